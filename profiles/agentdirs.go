package profiles

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/pccrun/pccrun/internal/state"
)

// What agents write in a workspace beside the work itself: a directory that they take for their
// own. It is protected as a whole, since the user's agent obeys what is in there. So inside it is
// a layer over the user's, gone at exit, and what the command made there is told. A directory in
// it that the work itself goes to has a rule in the agent's profile.

// An agentDir is the directory of an agent, in the root of a workspace.
type agentDir struct {
	name   string
	remade []string // what the agent makes there at each start, and nobody misses
	made   []string // what the launcher makes for the time of a run where it does not stand: the directory, and what the work goes to
}

// agentDirs are those of the built-in profiles.
var agentDirs = map[string]agentDir{
	// settings.local.json has the answers to "do not ask again", scheduled_tasks.json and
	// agent-memory-local what it notes (code.claude.com/docs: settings, sub-agents).
	"claude": {name: ".claude", remade: []string{"scheduled_tasks.lock"}, made: []string{".claude", ".claude/worktrees"}},
	// config.toml of a project that is trusted is read, and written by nobody (developers.openai.com/codex/config-basic).
	"codex": {name: ".codex"},
	// settings.json of the workspace, by the dialog /settings; plans and what a session shares (geminicli.com/docs: settings).
	"gemini": {name: ".gemini", made: []string{".gemini"}},
	// Each start makes these where the directory stands, and ends where that fails; plans lie beside them (opencode.ai/docs/config, plugins).
	"opencode": {name: ".opencode", remade: []string{".gitignore", "package.json", "package-lock.json", "bun.lock", "bun.lockb", "node_modules"}},
	// No agent, but in all profiles: husky fills it whenever packages are installed, and fails where it cannot. Only the project's
	// own hooks beside it are tracked (typicode.github.io/husky).
	"default": {name: ".husky/_", made: []string{".husky/_"}},
}

// unlinked takes out the rules of built-in profiles for a directory in the workspace to which a
// link leads: whoever wrote the repository would say what they open. So it does with one that is
// not there, and that no run makes.
func (b *builder) unlinked(elsewhere bool) {
	p := b.policy
	p.Files = slices.DeleteFunc(p.Files, func(r FileRule) bool {
		if r.Glob != "" || r.Access != Write || !r.Origin.builtin() || r.Path == p.Workspace || !within(p.Workspace, r.Path) {
			return false
		}
		real, err := state.Real(r.Path)
		for dir := r.Path; errors.Is(err, fs.ErrNotExist) && p.makes(r.Path); { // of what is not there, what is above it
			dir = filepath.Dir(dir)
			real, err = state.Real(dir)
			real += r.Path[len(dir):]
		}
		return elsewhere || err != nil || real != r.Path
	})
}

// makes reports whether a run makes a directory where none stands, and not even a link.
func (p *Policy) makes(path string) bool {
	_, err := os.Lstat(path)
	return errors.Is(err, fs.ErrNotExist) && slices.Contains(p.MadeDirs(), path[len(p.Workspace)+1:])
}

// MadeDirs returns the directories that the launcher makes for the time of a run where they do not
// stand, below the workspace, so that a layer can lie on them: what the agent notes there
// works until the run is over. Only who may make them, and write there, has them. What lies
// above one is made with it, or has to stand.
func (p *Policy) MadeDirs() (names []string) {
	if d := p.Decide(p.Workspace); d.Access != Write || os.Getuid() == 0 || slices.Contains(p.Without, LayerProtect) {
		return nil
	}
	dirs, _ := p.AgentDirs()
	for _, name := range EveryMadeDir() {
		path := filepath.Join(p.Workspace, name)
		if !slices.ContainsFunc(dirs, func(dir string) bool { return within(dir, path) }) {
			continue
		}
		if above := filepath.Dir(name); above != "." && !slices.Contains(names, above) {
			if _, err := os.Lstat(filepath.Dir(path)); err != nil {
				continue
			}
		}
		names = append(names, name)
	}
	return names
}

// EveryMadeDir returns those of all agents.
func EveryMadeDir() (names []string) {
	for _, d := range agentDirs {
		names = append(names, d.made...)
	}
	slices.Sort(names)
	return names
}

// AgentDirs returns the directories of the workspace that the policy's agents take for their own,
// and of what is in them what is made again in each run. Under strict there are none.
func (p *Policy) AgentDirs() (dirs, remade []string) {
	if p.Strict {
		return nil, nil
	}
	for _, layer := range p.Layers {
		d, is := agentDirs[strings.TrimPrefix(layer, "built-in ")]
		path := filepath.Join(p.Workspace, d.name)
		if !is || !strings.HasPrefix(layer, "built-in ") || slices.Contains(dirs, path) {
			continue
		}
		dirs = append(dirs, path)
		for _, name := range d.remade {
			remade = append(remade, filepath.Join(path, name))
		}
	}
	return dirs, remade
}
