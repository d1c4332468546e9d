package native

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/internal/shell"
	"github.com/pccrun/pccrun/internal/survey"
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

// watch returns the filter by which the sandbox asks the launcher about calls: those that change
// something, where the policy has refused attempts reported, with every open, execution and removal
// where the run learns; and those that make a name, where the launcher forbids some (see forbids).
//
// A reported call continues in the kernel, and the mounts refuse it there. Another thread may rewrite
// its path after the launcher has read it: that can make a report wrong and nothing else.
func (r *Planned) watch(f *facts) (*namespaces.Watch, error) {
	var calls []seccomp.Watched
	if r.Policy.Attempts {
		calls = supervisor.Both(supervisor.Writes(), supervisor.Connects())
		if r.learn {
			calls = supervisor.Both(calls, supervisor.Accesses())
		}
	}
	strict, err := r.forbids(f.powerless)
	if err != nil {
		return nil, err
	}
	opens := r.opens(f.powerless)
	if strict || opens {
		calls = supervisor.Both(calls, supervisor.Creations())
	}
	if opens {
		calls = supervisor.Both(calls, supervisor.Opens())
	}
	if calls == nil {
		return nil, nil
	}
	filter, err := seccomp.Watch(calls, runtime.GOARCH)
	if err != nil {
		return nil, err
	}
	return &namespaces.Watch{Filter: filter, Flags: f.supervise, Broker: strict || opens, Opens: opens, Required: strict || opens || r.learn}, nil
}

// observe begins to answer the calls. Where another supervisor runs around this run there can be
// no second one: attempts are then not reported, which protects nothing; a run in which the launcher
// forbids names, or that learns, does not start.
func (s *Started) observe() error {
	if s.run.Plan.Watch == nil {
		return nil
	}
	listener, err := s.box.Listener()
	switch {
	case errors.Is(err, namespaces.ErrWatched):
		s.Unreported = true
		return nil
	case errors.Is(err, unix.EBUSY):
		return errWatched
	case err != nil:
		return err
	}
	var seen func(*supervisor.Call)
	if s.run.Policy.Attempts {
		seen = s.run.reportCall
	}
	if !s.run.Plan.Watch.Broker {
		s.seen = supervisor.Observe(listener, seen)
		return nil
	}
	s.seen, err = s.broker(seen).Serve(listener)
	return err
}

// errWatched says that the kernel's one supervisor for a process is another's.
var errWatched = errors.New("another seccomp supervisor already runs around this pccrun, so protect-strict and learn do not work")

// reportCall reports a call that the plan refuses.
func (r *Run) reportCall(c *supervisor.Call) {
	if n, ok := socketOf(c); ok {
		place, err := c.Path(n)
		if err == nil && len(r.sockets) < maxClosed && !slices.Contains(r.sockets, place.Path) && !ownSocket().MatchString(place.Path) {
			r.sockets = append(r.sockets, place.Path)
		}
		return
	}
	var refused []Attempt
	for _, n := range c.Names() {
		reads := n.Op == supervisor.Read || n.Op == supervisor.Execute
		if reads && !r.learn {
			continue
		}
		place, err := c.Path(n)
		if err != nil {
			continue // the process is gone, or the kernel refuses the path itself
		}
		if r.learn && r.recordSought(c, n, place) || reads {
			continue
		}
		moves := n.Op == supervisor.Remove || strings.HasPrefix(c.Name, "rename") // the name itself is taken or given away
		switch {
		case !place.There && (n.Op == supervisor.Remove || n.Op == supervisor.Write && !c.Makes()):
			continue // ENOENT, whatever the policy says
		case place.There && n.Op == supervisor.Create && !moves:
			continue // EEXIST
		}
		m := r.Plan.At(place.Path)
		repository := m.Why == survey.WorktreeRepository
		if r.Policy.Decide(place.Path).Access == profiles.Private && !repository {
			continue // it may write there, and what it writes goes: there was no place for a mount
		}
		if r.Plan.Refuses(place.Path, moves) && r.ours(place.Path, c.Name, moves) {
			a := r.attempt(place.Path)
			if p, ok := r.Policy.ProtectedAnywhere(place.Path); ok && !p.Review && strings.HasPrefix(c.Name, "mkdir") {
				a.Hint = r.Policy.DirFlag(place.Path, p)
			} else if a.Guarantee == profiles.FSReadonly && (moves || !place.There) {
				a.Hint = r.Policy.MakeFlag(place.Path, n.Op == supervisor.Write)
				if repository { // in a part of it git makes what it cannot read
					a.Hint = r.Policy.WriteFlag(m.Target)
				}
			}
			refused = append(refused, a)
		}
	}
	if len(refused) == 2 { // a move from one directory to another needs both
		a, b := &refused[0], &refused[1]
		switch {
		case a.Hint == "" || b.Hint == "" || !strings.HasPrefix(a.Hint+b.Hint, "--") || strings.Contains(a.Hint+b.Hint, " and "):
			a.Hint, b.Hint = "", ""
		case a.Hint != b.Hint:
			a.Hint += " " + b.Hint
			b.Hint = a.Hint
		}
	}
	for _, a := range refused {
		r.report.attempt(a)
	}
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
	n = supervisor.Name{Op: supervisor.Connect, Dir: unix.AT_FDCWD, Pointer: c.Data.Args[1] + family, Follow: true}
	text, err := c.Text(n)
	return n, err == nil && text == path
}

// ownSocket matches sockets that libraries try by themselves, and those of the user's session, by which the command
// could do whatever the user can: no hint names them.
var ownSocket = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^/run/(nscd|systemd|avahi-daemon|dbus|user|screen)/|^/tmp/(tmux-|ssh-|\.X11-|\.ICE-)|/\.gnupg/`)
})

// ours reports whether it is the sandbox that refuses a call: outside, the user could change the path,
// or remove its name. Root could change everything outside; a run that root began reports only the
// workspace and the homes.
func (r *Planned) ours(path, call string, moves bool) bool {
	if r.Plan.Identity.Root {
		for _, dir := range append([]string{r.Policy.Workspace, r.Policy.Home}, r.Policy.Homes...) {
			if strings.HasPrefix(path, dir+"/") {
				return true
			}
		}
		return false
	}
	if moves {
		path = filepath.Dir(path) // it is the directory that is written, whatever the file's mode
	}
	for path = r.Plan.Shown(path); ; path = filepath.Dir(path) {
		var st unix.Stat_t
		if unix.Lstat(path, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFLNK {
			continue // it is its directory's entry that is refused, wherever it leads
		} else if strings.Contains(call, "chmod") {
			return st.Uid == uint32(os.Getuid())
		}
		err := unix.Access(path, unix.W_OK)
		if err != unix.ENOENT && err != unix.ENOTDIR || path == "/" {
			return err == nil
		}
	}
}

// forbidden says which pattern forbids a name.
func (r *Planned) forbidden(path, pattern string) Attempt {
	a := Attempt{Guarantee: profiles.FSProtect, Path: path, Rule: "protect: git or a link leads there"}
	if p, ok := r.Policy.ProtectedAnywhere(path); ok && !p.Review {
		return r.attempt(path)
	} else if pattern != "" {
		a.Rule, a.Hint = "protect "+pattern, "--review "+shell.Quote(pattern)
	}
	return a
}

// attempt says what refuses a path, and what would not: as `pccrun why` does.
func (r *Planned) attempt(path string) Attempt {
	if p, ok := r.Policy.ProtectedAnywhere(path); ok && !p.Review {
		a := Attempt{Guarantee: profiles.FSProtect, Path: path, Rule: "protect " + p.Pattern + " (" + p.Origin.String() + ")", Hint: r.Policy.ReviewFlag(path, p)}
		var st unix.Stat_t // a new name that a pattern hides is not covered
		if a.Hint != "" && r.Policy.Decide(path).Access == profiles.Hide && unix.Lstat(path, &st) == nil {
			a.Hint += " --write " + shell.Quote(path)
		}
		return a
	}
	for _, p := range r.trees[0].Query.Protect[min(len(r.Policy.Protect), len(r.trees[0].Query.Protect)):] { // what links of protected names lead to
		if p.Matches(r.Policy.Workspace, path) {
			a := Attempt{Guarantee: profiles.FSProtect, Path: path, Rule: "protect " + p.Pattern + ", where a protected name leads (" + p.Origin.String() + ")"}
			if rest, in := strings.CutPrefix(p.Pattern, r.Policy.Workspace+"/"); in {
				a.Hint = "--review " + shell.Quote(rest)
			}
			return a
		}
	}
	d := r.Policy.Decide(path)
	if d.Access >= profiles.Overlay {
		if m := r.Plan.At(path); m.Why == survey.FIFOHidden {
			return Attempt{Guarantee: profiles.FSSpecial, Path: path, Rule: m.Why, Hint: r.Policy.WriteFlag(path)}
		}
		for _, p := range r.Policy.Protect { // a link of the name leads there, or it is the same file
			if m := r.Plan.At(path); survey.Below(path, m.Target) && m.Kind == namespaces.Bind && m.Why == "protect: "+p.Pattern {
				return Attempt{Guarantee: profiles.FSProtect, Path: path, Rule: "protect " + p.Pattern + ", which leads there (" + p.Origin.String() + ")", Hint: "--review " + shell.Quote(p.Pattern)}
			}
		}
		return Attempt{Guarantee: profiles.FSProtect, Path: path, Rule: "it contains protected files"}
	}
	return Attempt{Guarantee: profiles.FSReadonly, Path: path, Rule: d.Text(), Hint: r.Policy.WriteFlag(path)}
}
