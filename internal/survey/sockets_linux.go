package survey

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/internal/procfs"
	"github.com/pccrun/pccrun/internal/shell"
	"github.com/pccrun/pccrun/internal/state"
	"github.com/pccrun/pccrun/profiles"
)

// SocketHidden is the reason of a socket of the host that is shown and cannot be connected to.
const SocketHidden = "a socket of a running service"

// FIFOHidden is the reason of a FIFO that stood.
const FIFOHidden = "a FIFO, whose other end is outside"

// maxSockets bounds how many sockets are masked one by one: anybody on the host
// can bind thousands, and each mount is time of every launch.
const maxSockets = 256

// sockets masks the unix sockets that somebody listens on: a read-only mount
// does not stop connect(2). The kernel lists those of this network namespace,
// with the path that they were bound to.
//
// Anybody can be in that list, and make a path that cannot be resolved: what
// the kernel does not find for us it does not find for the command.
func (f *finder) sockets() error {
	shown := map[string]bool{}
	for _, s := range f.policy.Network.Sockets {
		var st unix.Stat_t
		switch err := unix.Stat(s.Path, &st); {
		case nowhere(err) && err != unix.EACCES && s.Origin.Source == "flag":
			return &profiles.Error{Origin: s.Origin, Cause: s.Path + " does not exist: there is no socket to reach", Hint: "start what listens there first; a profile's network.sockets may name one that is not there"}
		case err == unix.ENOENT:
			f.notes = append(f.notes, s.Path+" does not exist: there is no socket to reach ("+s.Origin.String()+")")
		case err == nil && st.Mode&unix.S_IFMT != unix.S_IFSOCK:
			return &profiles.Error{Origin: s.Origin, Cause: s.Path + ": no unix socket", Hint: "--read " + shell.Quote(s.Path) + " shows a file that is not a socket"}
		}
		if s.At != "" {
			f.put(Place{Path: s.At, Source: s.Path, Node: Special, Dev: Device(st.Dev), Ino: st.Ino, Access: profiles.Read, Why: s.Origin.String()})
			continue
		}
		f.add(s.Path, profiles.Read, s.Origin.String())
		if real, err := state.Real(s.Path); err == nil {
			shown[real] = true
		}
	}
	if slices.Contains(f.policy.Without, profiles.LayerSockets) {
		return nil
	}
	list, err := procfs.Read("/proc/net/unix")
	if err != nil {
		return err
	}
	hidden := f.service(sssd)
	var paths []string
	for _, name := range namesOfSockets(string(list)) {
		path, ok := socketAt(name)
		if ok && f.policy.Decide(path).Access >= profiles.Read && !Below(path, "/run") && !Below(path, "/dev") && !(hidden && Below(path, sssd)) && !shown[path] {
			paths = append(paths, path)
		}
	}
	for _, path := range crowd(paths, maxSockets, func(dir string) bool { return keepsOpen(f.policy, dir) }) {
		f.add(path, profiles.Hide, SocketHidden)
		if i, ok := f.seen[path]; ok {
			f.places[i].Optional = true
		}
	}
	return nil
}

// sssd is where sssd listens, which looks names of hosts up too (sssd.conf(5),
// resolver_provider). The others have their sockets in /run.
const sssd = "/var/lib/sss/pipes"

// service hides a directory in which a service of the host listens, so that a socket
// that it makes anew during the run cannot be reached either. It does nothing where
// there is none, or a rule speaks of what is in it.
func (f *finder) service(dir string) bool {
	var st unix.Stat_t
	d := f.policy.Decide(dir)
	if unix.Lstat(dir, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFDIR || d.Access < profiles.Read || Below(d.Rule.Path, dir) ||
		slices.ContainsFunc(f.policy.Network.Sockets, func(s profiles.PathRule) bool { return Below(s.Path, dir) }) {
		return false
	}
	f.add(dir, profiles.Hide, "a service there resolves names")
	if i, ok := f.seen[dir]; ok {
		f.places[i].Optional = true
	}
	return true
}

// namesOfSockets returns the paths in the text of /proc/net/unix.
func namesOfSockets(text string) (names []string) {
	for line := range strings.Lines(text) {
		i := strings.IndexByte(line, '/')
		if i < 1 || line[i-1] != ' ' {
			continue // unnamed, abstract, or the heading
		}
		names = append(names, strings.TrimSuffix(line[i:], "\n"))
	}
	return names
}

// socketAt returns where a socket's path leads, and whether it leads to one. The
// kernel prints names as they are, and one with a newline looks like two lines.
func socketAt(path string) (string, bool) {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err == unix.EACCES {
		return filepath.Clean(path), true // our own directory, closed, could be opened inside
	}
	if err != nil {
		return "", false
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if unix.Fstat(fd, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFSOCK {
		return "", false
	}
	real, err := os.Readlink("/proc/self/fd/" + strconv.Itoa(fd))
	return real, err == nil
}

// keepsOpen reports whether a directory cannot be covered as a whole: it holds
// what the command works with.
func keepsOpen(p *profiles.Policy, dir string) bool {
	for _, needed := range [...]string{p.Workspace, p.Home, "/usr", "/etc", "/opt", "/srv", "/var/lib", "/nix", "/gnu"} {
		if Below(needed, dir) {
			return true
		}
	}
	return Below(dir, p.Workspace)
}

// crowd names the directories of sockets in place of them, from below, until
// there are no more than most, or only what keep keeps open is left.
func crowd(paths []string, most int, keep func(dir string) bool) []string {
	for {
		slices.Sort(paths)
		paths = slices.Compact(paths)
		if len(paths) <= most {
			return paths
		}
		changed := false
		for i, path := range paths {
			if dir := filepath.Dir(path); !keep(dir) {
				paths[i], changed = dir, true
			}
		}
		if !changed {
			return paths
		}
	}
}
