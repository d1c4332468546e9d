package native

import (
	"errors"
	"path/filepath"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/namespaces"
	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/seccomp"
	"github.com/pccrun/pccrun/seccomp/supervisor"
)

// An Attempt is something that the command tried of a file and was refused.
type Attempt struct {
	Guarantee profiles.Guarantee
	Path      string
	Rule      string // what refused it, with its origin
	Hint      string // the flag that would allow it
}

// watch makes the sandbox ask about each call that changes something, where the
// policy wants to hear of attempts. The mounts refuse whatever comes of it: that
// the launcher looks at a path which another thread may rewrite meanwhile, and
// lets the call go on, can make a report wrong and nothing else.
func (r *Run) watch() error {
	if !r.Policy.Attempts {
		return nil
	}
	filter, err := seccomp.Watch(supervisor.Writes(), runtime.GOARCH)
	if err != nil {
		return err
	}
	r.Plan.Watch = &namespaces.Watch{Filter: filter, Flags: supervisor.InstallFlags()}
	return nil
}

// observe begins to look at what the command tries. A supervisor around this
// run leaves it without a report, which is no protection.
func (s *Started) observe() error {
	if s.run.Plan.Watch == nil {
		return nil
	}
	listener, err := s.Listener()
	if errors.Is(err, namespaces.ErrWatched) {
		return nil
	}
	if err != nil {
		return err
	}
	s.seen = supervisor.Observe(listener, s.run.look)
	return nil
}

// look tells of a call that the plan refuses.
func (r *Run) look(c *supervisor.Call) {
	if r.Attempted == nil {
		return
	}
	for _, n := range c.Names() {
		if n.Deed == supervisor.Read {
			continue
		}
		place, err := c.Path(n)
		if err != nil {
			continue // the process is gone, or the kernel will refuse it itself
		}
		moves := strings.HasPrefix(c.Name, "rename")
		switch {
		case !place.There && (n.Deed == supervisor.Remove || n.Deed == supervisor.Write && !c.Makes()):
			continue // ENOENT, whatever the policy says
		case place.There && n.Deed == supervisor.Create && !moves:
			continue // EEXIST
		}
		if r.Plan.Refuses(place.Path, moves) && r.ours(place.Path) {
			r.Attempted(r.attempt(place.Path))
		}
	}
}

// ours reports whether it is the sandbox that refuses a path: the user himself
// could change it outside. What a run began as root could change outside is
// everything; of that only the workspace and the homes are worth a word.
func (r *Run) ours(path string) bool {
	if r.Plan.Identity.Root {
		for _, dir := range append([]string{r.Policy.Workspace, r.Policy.Home}, r.Policy.Homes...) {
			if strings.HasPrefix(path, dir+"/") {
				return true
			}
		}
		return false
	}
	for ; ; path = filepath.Dir(path) {
		err := unix.Access(path, unix.W_OK)
		if err != unix.ENOENT && err != unix.ENOTDIR || path == "/" {
			return err == nil
		}
	}
}

// attempt says what refuses a path, and what would not: as `pccrun why` does.
func (r *Run) attempt(path string) Attempt {
	if p, ok := r.Policy.Protected(path); ok && !p.Review {
		return Attempt{Guarantee: profiles.FSProtect, Path: path, Rule: "protect " + p.Pattern + " (" + p.Origin.String() + ")", Hint: "--review " + p.Pattern}
	}
	d := r.Policy.Decide(path)
	rule := d.Access.String() + " " + d.Rule.Text() + " (" + d.Rule.Origin.String() + ")"
	if d.Access >= profiles.Overlay {
		return Attempt{Guarantee: profiles.FSProtect, Path: path, Rule: "it stands around what is protected"}
	}
	return Attempt{Guarantee: profiles.FSReadonly, Path: path, Rule: rule, Hint: "--write " + path}
}
