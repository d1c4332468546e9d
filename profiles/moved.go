package profiles

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/pccrun/pccrun/internal/shell"
)

// moves are the variables that take an agent's state elsewhere. A project may have
// set them (.envrc), so that none is followed unless the user passes it on: what
// would be written there is his to say. What is protected in the state is then
// protected there.
var moves = [...]struct{ layer, variable, state string }{
	{"built-in claude", "CLAUDE_CONFIG_DIR", "/.claude"},
	{"built-in codex", "CODEX_HOME", "/.codex"},
}

// moved says which of them are set and not followed, and protects the state of
// those that are.
func (b *builder) moved(h *Host) {
	p := b.policy
	for _, m := range moves {
		to := h.Getenv(m.variable)
		d := p.DecideEnv(m.variable)
		if d.Action == EnvSetTo {
			to = d.Value
		}
		from := p.Home + m.state
		if to == "" || !slices.Contains(p.Layers, m.layer) || real(to) == real(from) {
			continue
		}
		switch {
		case d.Action == EnvScrubbed:
			p.Warnings = append(p.Warnings, fmt.Sprintf("%s is ignored: the agent's state is in %s; to use it: --env %s --write %s", m.variable, from, m.variable, shell.Quote(to)))
		case strings.HasPrefix(to, "/") && path.Clean(to) != "/":
			b.protectMoved(from, path.Clean(to))
		}
	}
}

// protectMoved protects in one directory what is protected in another.
func (b *builder) protectMoved(from, to string) {
	p := b.policy
	deny := func(pattern string, o Origin) {
		if rest, in := below(p.Workspace, pattern); in && rest != "" {
			pattern = rest
		}
		p.Protect = append(p.Protect, ProtectRule{Pattern: pattern, Origin: o})
	}
	for _, r := range p.Protect {
		if rest, in := below(from, r.Pattern); in && rest != "" && !r.Review {
			deny(to+"/"+rest, r.Origin)
		}
	}
	for _, f := range p.Files { // ~/.claude.json moves into the directory
		if f.Glob == "" && f.Path == from+".json" && f.Access == Read {
			deny(to+"/"+path.Base(f.Path), f.Origin)
		}
	}
}
