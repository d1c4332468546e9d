package profiles

import (
	"path/filepath"
	"slices"
	"strings"
)

// What agents write in a workspace beside the work itself: a directory that they take for their
// own. It is protected as a whole, since the user's agent obeys what is in there. So inside it is
// a layer over the user's, gone at exit, and what the command made there is told. A directory in
// it that the work itself goes to has a rule in the agent's profile.

// An agentDir is the directory of an agent, in the root of a workspace.
type agentDir struct {
	name   string
	remade []string // what the agent makes there at each start, and nobody misses
}

// agentDirs are those of the built-in profiles.
var agentDirs = map[string]agentDir{
	// settings.local.json has the answers to "do not ask again", scheduled_tasks.json and
	// agent-memory-local what it notes (code.claude.com/docs: settings, sub-agents).
	"claude": {name: ".claude", remade: []string{"scheduled_tasks.lock"}},
	// config.toml of a project that is trusted is read, and written by nobody (developers.openai.com/codex/config-basic).
	"codex": {name: ".codex"},
	// settings.json of the workspace, by the dialog /settings; plans and what a session shares (geminicli.com/docs: settings).
	"gemini": {name: ".gemini"},
	// Each start makes these, and ends where that fails; plans lie beside them (opencode.ai/docs/config, plugins).
	"opencode": {name: ".opencode", remade: []string{".gitignore", "package.json", "package-lock.json", "bun.lock", "bun.lockb", "node_modules"}},
}

// unlinked takes out the rules of built-in profiles for a directory in the workspace that is not
// there, or to which a link leads: whoever wrote the repository would say what they open.
func (b *builder) unlinked(elsewhere bool) {
	p := b.policy
	p.Files = slices.DeleteFunc(p.Files, func(r FileRule) bool {
		if r.Glob != "" || r.Access != Write || !r.Origin.builtin() || r.Path == p.Workspace || !within(p.Workspace, r.Path) {
			return false
		}
		real, err := filepath.EvalSymlinks(r.Path)
		return elsewhere || err != nil || real != r.Path
	})
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
