package docker

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/providers"
	"github.com/pccrun/pccrun/providers/inside"
)

// startEngine is how an engine is started here.
const startEngine = "systemctl start docker"

// inspects says that a process can read requests here.
const inspects = true

// launcher returns the file that is pid 1 in a container of an engine in a virtual machine: this program.
func launcher(host providers.Host) (string, error) { return host.Launcher, nil }

// look reads this machine's root.
func (f *Facts) look() error {
	f.Landlock = inside.Landlock()
	if err := f.list("/"); err != nil {
		return err
	}
	for i, c := range f.DataRoot {
		if c == '/' && i > 0 {
			_ = f.list(f.DataRoot[:i]) // nothing is shown of what the user cannot list
		}
	}
	// A socket is fed whatever RLIMIT_CORE is, core(5); a program is not where that is 1.
	if pattern, err := os.ReadFile("/proc/sys/kernel/core_pattern"); err == nil &&
		strings.HasPrefix(string(pattern), "@") {
		f.Crash = strings.TrimSpace(string(pattern))
	}
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	mounts := inside.MountPoints(string(text))
	for _, path := range slices.Sorted(maps.Keys(mounts)) {
		f.Submounts = append(f.Submounts, Submount{path, mounts[path].Type})
	}
	for _, path := range covered {
		if exists(path) {
			f.Texts = append(f.Texts, path)
		}
	}
	return nil
}

// list adds the entries of a directory.
func (f *Facts) list(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		entry := Entry{Path: filepath.Join(dir, e.Name()), Dir: e.IsDir()}
		var st unix.Stat_t
		if err := unix.Lstat(entry.Path, &st); err != nil {
			continue // gone by now
		}
		entry.Dev, entry.Ino = uint64(unix.Major(st.Dev))<<32|uint64(unix.Minor(st.Dev)), st.Ino
		if st.Mode&unix.S_IFMT == unix.S_IFLNK {
			if entry.Link, err = os.Readlink(entry.Path); err != nil {
				continue
			}
		}
		f.Root = append(f.Root, entry)
	}
	return nil
}

// readBirthTimes notes when each file was made that gVisor shows under another number: what a
// link leads to that somebody puts in the way was made at another time.
func (r *running) readBirthTimes() error {
	for _, n := range r.plan.renumbered {
		var st unix.Statx_t
		err := unix.Statx(unix.AT_FDCWD, n.source, unix.AT_SYMLINK_NOFOLLOW, unix.STATX_BTIME|unix.STATX_INO, &st)
		switch {
		case err != nil:
			return &os.PathError{Op: "statx", Path: n.source, Err: err}
		case uint64(st.Dev_major)<<32|uint64(st.Dev_minor) != n.dev || st.Ino != n.ino:
			return &EngineError{Text: n.source + ": another file than the survey saw"}
		case st.Mask&unix.STATX_BTIME != 0:
			r.plan.inside.Mounts[n.mount].Birth = st.Btime.Sec*1e9 + int64(st.Btime.Nsec)
		}
	}
	return nil
}
