package native

import (
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/pccrun/pccrun/internal/shell"
	"github.com/pccrun/pccrun/namespaces"
	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/survey"
	"github.com/pccrun/pccrun/workspace"
)

const (
	maxFailed = 256 // files at which git has failed, of which it is told
	maxAsked  = 4096
	maxParts  = 256 // of a path
)

// A gitWatch reads what git writes in a run ([namespaces.GitTrace]) and keeps which pinned
// files are in it. Any process inside can make that up: what comes of it is a line for the
// user, about a file that is pinned, and no more than maxFailed of those.
type gitWatch struct {
	mu     sync.Mutex
	run    *Run
	trace  *namespaces.GitTrace
	pins   map[string]*workspace.Pin // made when somebody asks
	failed []workspace.Refusal
	known  map[string]bool
	asked  int // since the last look began

	unsigned bool // git has failed to sign
}

// gitSoon and gitLate are the shortest and the longest time between two looks. What git
// writes in the meantime takes up memory; a run that is over sooner is looked at once.
const (
	gitSoon = time.Second
	gitLate = 4 * time.Second
)

// hearGit begins to read it, if the plan has git write it.
func (s *Started) hearGit() {
	if s.run.Plan.GitTrace == "" {
		return
	}
	g := &gitWatch{run: s.run, trace: s.GitTrace(translated(s.run.Plan.Command.Env)), known: map[string]bool{}}
	s.git = g
	var again func(time.Duration)
	again = func(pause time.Duration) {
		time.AfterFunc(pause, func() {
			switch grown, ended := g.look(); {
			case grown:
				again(gitSoon)
			case !ended:
				again(min(2*pause, gitLate))
			}
		})
	}
	again(gitSoon)
}

// heardBefore ends it with what is called when nothing of the run lives: the sandbox goes then.
func (s *Started) heardBefore(gone func(*namespaces.Result)) func(*namespaces.Result) {
	if s.git == nil {
		return gone
	}
	return func(r *namespaces.Result) {
		if gone != nil {
			gone(r)
		}
		s.git.end()
	}
}

// look reads what is new, and reports whether there was any, or is to be no more.
func (g *gitWatch) look() (grown, ended bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.trace == nil {
		return false, true
	}
	g.asked = 0
	return g.trace.Read(g.take), false
}

// end looks a last time, and returns what was found.
func (g *gitWatch) end() []workspace.Refusal {
	g.look()
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.trace != nil {
		g.unsigned = g.trace.Unsigned
		g.trace.Close()
		g.trace = nil
	}
	return g.failed
}

// take notes a path if it is pinned, or held by what is. It returns true to be asked no
// more about the same error.
func (g *gitWatch) take(path string) bool {
	if g.asked++; g.asked > maxAsked || len(g.failed) == maxFailed {
		return true
	}
	if g.known[path] {
		return true
	}
	r, ok := g.refusal(path)
	if ok {
		g.known[path] = true
		g.failed = append(g.failed, r)
	}
	return ok
}

func (g *gitWatch) refusal(path string) (workspace.Refusal, bool) {
	if strings.Count(path, "/") > maxParts {
		return workspace.Refusal{}, false
	}
	if g.pins == nil {
		g.pins = map[string]*workspace.Pin{}
		for i := range g.run.trees {
			pins := g.run.trees[i].Found.Pins
			for n := range pins {
				g.pins[pins[n].Path] = &pins[n]
			}
		}
	}
	for at := path; at != "/"; at = filepath.Dir(at) {
		if pin := g.pins[at]; pin != nil {
			return g.run.refusal(pin, path)
		}
	}
	return workspace.Refusal{}, false
}

// refusal says what is pinned, where a flag lets it change.
func (r *Planned) refusal(pin *workspace.Pin, path string) (workspace.Refusal, bool) {
	if r.Policy.Decide(filepath.Dir(pin.Path)).Access < profiles.Overlay && !r.Plan.Writes(filepath.Dir(pin.Path)) {
		return workspace.Refusal{}, false // all around it is read-only as well
	}
	refusal := workspace.Refusal{Path: path, Why: pin.Why}
	if path != pin.Path {
		refusal.Pin = pin.Path
	}
	if strings.HasPrefix(pin.Why, ".git/") {
		return refusal, true
	}
	a := r.attempt(pin.Path)
	refusal.Flags = a.Hint
	if p, ok := r.Policy.ProtectedAnywhere(pin.Path); ok && !p.Review {
		// git puts another file in the place of one, for which a file alone is not enough.
		refusal.Flags = "--review " + shell.Quote(p.Pattern)
	}
	return refusal, refusal.Flags != "" && a.Guarantee == profiles.FSProtect
}

// unsigned returns the service that git lacked, if it failed to sign what was committed. It is
// for when refusedFiles was called.
func (s *Started) unsigned() string {
	service := survey.Signer(s.run.found)
	if s.git == nil || !s.git.unsigned || s.run.Policy.Uses(service) {
		return ""
	}
	return service
}

// translated reports whether programs may speak another language than English by an
// environment, setlocale(3).
func translated(env []string) bool {
	for _, name := range [...]string{"LC_ALL", "LC_MESSAGES", "LANG"} {
		i := slices.IndexFunc(env, func(e string) bool { return strings.HasPrefix(e, name+"=") })
		if i < 0 {
			continue
		}
		if value := env[i][len(name)+1:]; value != "" {
			language, _, _ := strings.Cut(value, ".")
			return language != "C" && language != "POSIX" && !strings.HasPrefix(language, "en")
		}
	}
	return false
}

// Refused returns what [Started.refusedFiles] found.
func (s *Started) Refused() []workspace.Refusal { return s.pinned }

// refusedFiles returns the pinned files at which git says that it has failed, and those of which the command has
// changed a copy that nothing comes back of. It is for [namespaces.Sandbox.Gone], and to be called once.
func (s *Started) refusedFiles() (list []workspace.Refusal) {
	for _, c := range s.Sandbox.Configs(false) {
		if c.Changed() {
			list = append(list, workspace.Refusal{Path: c.Path, Why: ".git/config"})
		}
	}
	if s.git != nil {
		list = append(list, s.git.end()...)
	}
	return list
}
