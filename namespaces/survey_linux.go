package namespaces

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/profiles"
)

// Survey is what only this machine knows, read once before the plan.
type Survey struct {
	Identity Identity
	Places   []Place
	Landlock int // ABI version, 0 where the kernel has none
}

// Identity is who the command is, outside and inside.
type Identity struct {
	HostUID, HostGID int  // in the host's user namespace
	UID, GID         int  // as the command sees itself
	Root             bool // pccrun was started as root and gives that up
}

// Look reads from the host what the plan of this policy needs to know.
func Look(policy *profiles.Policy) (*Survey, error) {
	s := &Survey{}
	s.Identity = Me()
	s.Landlock = landlockABI()
	if err := s.places(policy); err != nil {
		return nil, err
	}
	return s, nil
}

// Me returns the identity of a command that runs as the user who starts it.
func Me() Identity {
	uid, gid := os.Getuid(), os.Getgid()
	return Identity{HostUID: uid, HostGID: gid, UID: uid, GID: gid}
}

func nodeOf(mode uint32) Node {
	switch mode & unix.S_IFMT {
	case unix.S_IFREG:
		return File
	case unix.S_IFDIR:
		return Directory
	case unix.S_IFLNK:
		return Link
	}
	return Special
}

// places finds every path at which access changes.
func (s *Survey) places(policy *profiles.Policy) error {
	f := finder{policy: policy, seen: map[string]int{}}
	f.add("/run", profiles.Private, "sockets and state of the host's services")
	for _, home := range policy.Homes {
		f.rule(home)
	}
	for _, table := range [][]profiles.FileRule{policy.Files, policy.Tighten} {
		for i := range table {
			r := &table[i]
			if r.Glob == "" {
				f.rule(r.Path)
			}
		}
	}
	if f.err != nil {
		return f.err
	}
	s.Places = f.places
	return nil
}

// finder collects places; the first mistake wins.
type finder struct {
	policy *profiles.Policy
	places []Place
	seen   map[string]int // by path, index into places
	err    error
}

// rule adds the place that a rule's path names, with the access that
// [profiles.Policy.Decide] gives it, and where it leads.
func (f *finder) rule(path string) {
	d := f.policy.Decide(path)
	f.resolve(path, d.Access, d.Rule.Origin.String(), 0)
}

func (f *finder) add(path string, access profiles.Access, why string) {
	f.resolve(path, access, why, 0)
}

// resolve adds path as a place. A link on the way is followed as the kernel
// would, and each link is a place of its own, since in a fresh directory it
// must be made again. Links that the command itself could have made never
// carry a grant: whoever can write there could point them anywhere.
func (f *finder) resolve(path string, access profiles.Access, why string, depth int) {
	if f.err != nil {
		return
	}
	if depth > 40 {
		f.err = fmt.Errorf("filesystem %s: %w", path, unix.ELOOP)
		return
	}
	for i := 1; i <= len(path); i++ {
		if i < len(path) && path[i] != '/' {
			continue
		}
		prefix := path[:i]
		var st unix.Stat_t
		err := unix.Lstat(prefix, &st)
		if err != nil {
			if errors.Is(err, fs.ErrNotExist) || err == unix.ENOTDIR || err == unix.EACCES {
				f.put(Place{Path: path, Node: Absent, Access: access, Why: why})
				return
			}
			f.err = fmt.Errorf("lstat %s: %w", prefix, err)
			return
		}
		n := nodeOf(st.Mode)
		if n == Link {
			text, err := os.Readlink(prefix)
			if err != nil {
				f.err = err
				return
			}
			if access > profiles.Hide && f.policy.Decide(filepath.Dir(prefix)).Access >= profiles.Overlay {
				f.err = fmt.Errorf("filesystem %s: %s: leads through the link %s, which the command could have made (%s)", path, access, prefix, why)
				return
			}
			f.put(Place{Path: prefix, Node: Link, Link: text, Access: access, Why: why})
			to := text
			if !strings.HasPrefix(to, "/") {
				to = filepath.Join(filepath.Dir(prefix), to)
			}
			real := filepath.Join(to, path[i:])
			// Where it leads may have a rule of its own: the stricter wins, but
			// for the rule that merely hides the homes as a whole.
			if d := f.policy.Decide(real); d.Rule.Path != f.policy.Home && d.Rule.Path != "/" && d.Access < access {
				access = d.Access
			}
			f.resolve(filepath.Clean(real), access, why, depth+1)
			return
		}
		if i == len(path) {
			f.put(Place{Path: path, Node: n, Dev: uint64(unix.Major(st.Dev))<<32 | uint64(unix.Minor(st.Dev)), Ino: st.Ino, Access: access, Why: why})
		}
	}
}

// put adds a place, or makes the one that is there stricter.
func (f *finder) put(p Place) {
	if i, ok := f.seen[p.Path]; ok {
		if p.Access < f.places[i].Access {
			f.places[i].Access, f.places[i].Why = p.Access, p.Why
		}
		f.places[i].Pin = f.places[i].Pin || p.Pin
		return
	}
	f.seen[p.Path] = len(f.places)
	f.places = append(f.places, p)
}
