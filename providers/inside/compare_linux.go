package inside

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

func (f *File) make() error {
	switch {
	case f.Dir:
		if err := os.MkdirAll(f.Path, 0o755); err != nil {
			return err
		}
		return nil
	case f.Link != "":
		return os.Symlink(f.Link, f.Path)
	}
	return os.WriteFile(f.Path, []byte(f.Text), 0o600)
}

// compare holds what stands at each path against the survey: the engine follows
// links on the way, as root, and the survey looked at what they led to a moment ago.
func (p *Plan) compare() error {
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	table := MountPoints(string(text))
	numbers, kind := true, ""
	if p.Share != nil {
		var st unix.Stat_t
		if err := unix.Lstat(p.Canary, &st); err != nil {
			return &os.PathError{Op: "lstat", Path: p.Canary, Err: err}
		}
		numbers, kind = st.Ino == p.Share.Ino, table[p.Canary].Type
	}
	for _, m := range p.Mounts {
		var st unix.Stat_t
		switch err := unix.Lstat(m.Path, &st); {
		case err == unix.ENOENT && m.Optional:
			continue
		case err == unix.EACCES && m.Ino == 0 && m.Birth == 0: // what covers it stands, though nobody here can look
		case err != nil:
			return &os.PathError{Op: "lstat", Path: m.Path, Err: err}
		}
		dev := uint64(unix.Major(st.Dev))<<32 | uint64(unix.Minor(st.Dev))
		if m.Ino != 0 && numbers && (m.Dev != dev && m.Dev != 0 || m.Ino != st.Ino) {
			return fmt.Errorf("%s: another file than the survey saw", m.Path)
		}
		if m.Birth != 0 {
			var x unix.Statx_t
			if err := unix.Statx(unix.AT_FDCWD, m.Path, unix.AT_SYMLINK_NOFOLLOW, unix.STATX_BTIME, &x); err != nil {
				return &os.PathError{Op: "statx", Path: m.Path, Err: err}
			}
			if x.Btime.Sec*1e9+int64(x.Btime.Nsec) != m.Birth {
				return fmt.Errorf("%s: another file than the survey saw, made at another time", m.Path)
			}
		}
		switch at, is := table[m.Path]; {
		case !is:
			return fmt.Errorf("%s: nothing is mounted there", m.Path)
		case m.ReadOnly && !at.ReadOnly:
			return fmt.Errorf("%s: mounted writable, and not read-only", m.Path)
		case p.Share != nil && m.Bound && at.Type != kind:
			return fmt.Errorf("%s: a file of the virtual machine's own (%s), and not of the directories that it shares (%s)", m.Path, at.Type, kind)
		}
	}
	return nil
}

// A MountPoint is the topmost mount at a path.
type MountPoint struct {
	ReadOnly bool
	Type     string // of its file system
}

// MountPoints returns those of a mountinfo by their paths, proc_pid_mountinfo(5).
func MountPoints(mountinfo string) map[string]MountPoint {
	table := map[string]MountPoint{}
	for line := range strings.Lines(mountinfo) {
		fields := strings.Fields(line)
		if len(fields) < 6 {
			continue
		}
		var m MountPoint
		for option := range strings.SplitSeq(fields[5], ",") {
			m.ReadOnly = m.ReadOnly || option == "ro"
		}
		_, after, _ := strings.Cut(line, " - ")
		m.Type, _, _ = strings.Cut(after, " ")
		table[unescape(fields[4])] = m
	}
	return table
}

// unescape undoes the kernel's \040 and its like.
func unescape(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) {
			if n, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				b.WriteByte(byte(n))
				i += 3
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}
