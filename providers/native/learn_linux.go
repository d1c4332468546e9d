package native

import (
	"context"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/namespaces"
	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/seccomp"
	"github.com/pccrun/pccrun/seccomp/supervisor"
)

// A Try is something that a command tried of the host and that the plan kept
// from it, or a program that it executed. Whether the host has such a thing, and
// whether the user could have had it, is not looked at: where root began the run
// the launcher could not see that any more.
type Try struct {
	Deed    supervisor.Deed // Read, Write, Execute or Connect
	Path    string          // as the command sees it, through all links
	Call    string
	Program string
	There   bool // something stands at the path inside
	Opened  bool // it was not only looked at
	Limit   bool // Path is the key of a limit that the call came up against
	Done    bool // of an execution: it was not refused
}

// studied are the calls that a run that learns asks about: each that names a
// path, and each that makes a process where there may be only so many.
func (r *Planned) studied() []seccomp.Watched {
	calls := supervisor.Everything()
	if r.Policy.Resources.Pids.Value > 0 {
		for _, name := range forks {
			calls = append(calls, seccomp.Watched{Name: name})
		}
	}
	return calls
}

// study tells of a call whose path the plan hides, or does not let be changed.
func (r *Run) study(c *supervisor.Call) {
	if limit := r.Policy.Resources.Files.Value; limit > 0 && strings.HasPrefix(c.Name, "open") && c.Descriptors() >= limit {
		t := Try{Limit: true, Path: "files", Call: c.Name} // EMFILE
		t.Program, _ = c.Program()
		r.report.try(t)
	}
	if slices.Contains(forks[:], c.Name) {
		r.countForks(c)
		return
	}
	names := c.Names()
	if c.Name == "connect" {
		n, ok := socketOf(c)
		if !ok {
			return
		}
		names = []supervisor.Name{n}
	}
	for _, n := range names {
		place, err := c.Path(n)
		if err != nil {
			continue // the process is gone, or the kernel refuses it itself
		}
		t := Try{Deed: n.Deed, Path: place.Path, Call: c.Name, There: place.There, Opened: opens(c.Name)}
		refused := false
		switch n.Deed {
		case supervisor.Write, supervisor.Create, supervisor.Remove:
			t.Deed = supervisor.Write
			refused = r.unwritable(c, n, place)
		default:
			refused = r.unreadable(&t)
			t.Done = n.Deed == supervisor.Execute && !refused && place.There
		}
		if refused || t.Done {
			t.Program, _ = c.Program()
			r.report.try(t)
		}
	}
}

// forks are the calls that make a process or a thread.
var forks = [...]string{"clone", "clone3", "fork", "vfork"}

// countForks tells of a process that there is no room for. Counting takes time,
// and as many calls as there was room for at the last count need none.
func (r *Run) countForks(c *supervisor.Call) {
	if r.room--; r.room > 0 {
		return
	}
	n, err := c.Processes()
	if err != nil {
		r.room = 0 // pid 1 of the sandbox
		return
	}
	r.room = r.Policy.Resources.Pids.Value - n
	if r.room <= 0 {
		t := Try{Limit: true, Path: "pids", Call: c.Name} // EAGAIN
		t.Program, _ = c.Program()
		r.report.try(t)
	}
}

// unreadable reports whether the plan hides what a call looks for.
func (r *Planned) unreadable(t *Try) bool {
	if ownTree(t.Path) {
		return false
	}
	m := r.Plan.At(t.Path)
	switch m.Kind {
	case namespaces.Mask:
		return t.Opened || t.Deed != supervisor.Read || strings.Contains(t.Call, "access")
	case namespaces.Fresh, namespaces.Persist:
		if t.There {
			// An empty directory in place of the host's, or something of the
			// command's own.
			return m.ReadOnly && m.Target == t.Path && t.Opened
		}
		return true
	}
	return false
}

// unwritable reports whether the plan keeps a call from changing something.
func (r *Planned) unwritable(c *supervisor.Call, n supervisor.Name, place supervisor.Place) bool {
	moves := strings.HasPrefix(c.Name, "rename")
	makes := n.Deed == supervisor.Create || c.Makes()
	switch m := r.Plan.At(place.Path); {
	case ownTree(place.Path), n.Deed == supervisor.Remove && !place.There, place.There && n.Deed == supervisor.Create && !moves:
		return false // ENOENT or EEXIST, whatever the policy says
	case (m.Kind == namespaces.Fresh || m.Kind == namespaces.Persist) && !m.ReadOnly && place.Path != m.Target:
		return !place.There && (!makes || !place.Dir) // the host may have it
	case m.Kind == namespaces.Fresh || m.Kind == namespaces.Mask:
		return true
	case !place.There && (!makes || !place.Dir):
		return false
	}
	return r.Plan.Refuses(place.Path, moves)
}

// ownTree reports whether a path is in what every sandbox has of its own.
func ownTree(path string) bool {
	for _, own := range [...]string{"/proc", "/sys", "/dev"} {
		if path == own || strings.HasPrefix(path, own+"/") {
			return true
		}
	}
	return strings.HasPrefix(path, filepath.Dir(DenialsPath)+"/")
}

// opens reports whether a call reads what it names, and not only its status.
func opens(call string) bool {
	switch call {
	case "open", "openat", "execve", "execveat", "chdir", "connect":
		return true
	}
	return false
}

// socketOf returns the path that a connect(2) names, if it is of unix(7) and has
// one. Its argument is a sockaddr_un, of 110 bytes at most and perhaps without a
// NUL at its end.
func socketOf(c *supervisor.Call) (n supervisor.Name, ok bool) {
	const family = 2 // bytes
	address, err := c.Address()
	if err != nil || len(address) <= family || address[0] != unix.AF_UNIX || address[1] != 0 || address[family] == 0 {
		return n, false
	}
	path, _, _ := strings.Cut(string(address[family:]), "\x00")
	n = supervisor.Name{Deed: supervisor.Connect, Dir: unix.AT_FDCWD, Pointer: c.Data.Args[1] + family, Follow: true}
	text, err := c.Text(n)
	return n, err == nil && text == path
}

// watchPrivate looks whether the private directories become full: the kernel refuses
// what has no room, and tells nobody but the command.
func (s *Started) watchPrivate(ctx context.Context) {
	fd, err := unix.FcntlInt(uintptr(s.box.Private), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return
	}
	s.filled = make(chan bool, 1)
	go func() {
		defer unix.Close(fd)
		full, tick := false, time.Second // what fills them most often ends soon, and leaves them full
		if s.run.learn {
			tick = 10 * time.Millisecond
		}
		look := func() {
			var private unix.Statfs_t
			full = full || unix.Fstatfs(fd, &private) == nil && (private.Bfree == 0 || private.Ffree == 0)
		}
		for {
			select {
			case <-ctx.Done():
				look()
				s.filled <- full
				return
			case <-time.After(tick):
				look()
			}
		}
	}()
}

// Spent returns the limits that a run came up against, as keys of resources;
// memory and time are told otherwise.
func (e *End) Spent(policy *profiles.Policy) (keys []string) {
	if e.Forks > 0 && policy.Resources.Pids.Value > 0 {
		keys = append(keys, "pids")
	}
	if e.Full || e.Filled {
		keys = append(keys, "disk")
	}
	if e.Status.Signaled() && e.Status.Signal() == unix.SIGXFSZ || e.Status.Exited() && e.Status.ExitStatus() == 128+int(unix.SIGXFSZ) {
		keys = append(keys, "filesize")
	}
	return keys
}
