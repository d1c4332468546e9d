// Package doctor finds out what this machine can keep of what pccrun promises,
// and what would mend the rest.
//
// The promise: everything that it says of a launch comes from a launch. The
// launcher itself runs in a child process under the default profile, with a
// network, with limits and under the strict profile. No kernel version is
// compared with a table. That each layer holds is what `pccrun escape --layers`
// shows. Nothing is changed but by [Fix.Apply], and no secret is read: of an API
// key only the variable's name is looked at.
package doctor

import (
	"fmt"
	"strings"
	"time"

	"github.com/pccrun/pccrun/internal/shell"
	"github.com/pccrun/pccrun/profiles"
)

// A Report is what an examination found.
type Report struct {
	Providers []Provider
	Host      []Fact
	Fixes     []Fix
}

// OK reports whether some provider can run the default profile.
func (r *Report) OK() bool {
	for _, p := range r.Providers {
		if p.Runs {
			return true
		}
	}
	return false
}

// A Provider is one way to run a command, and what it keeps here.
type Provider struct {
	Name       string
	Runs       bool              // the default profile starts
	Refused    string            // why it does not
	Hint       string            // what the launcher itself advises
	Launch     time.Duration     // of /bin/true under the default profile, the best of a few
	Guarantees []profiles.Answer // of the default profile
	Limits     []profiles.Answer // memory, processors and processes, where a policy asks for them: the default one does not pay for control groups
	Trials     []Trial
}

// A Verdict is what came of a trial.
type Verdict string

// The verdicts.
const (
	Runs    Verdict = "runs"
	Refused Verdict = "refused"
)

// A Trial is one launch.
type Trial struct {
	Name    string // "default", "network", "limits" or "strict"
	Verdict Verdict
	Seen    string // the refusal
	Hint    string
}

// A Fact is something about the machine that helps to read the rest.
type Fact struct {
	Name, Value, Hint string
}

// A Fix is a change that an administrator can make.
type Fix struct {
	Why      string
	Optional bool // the default profile runs without it
	Steps    []Step
	After    string // what is left for the user to do
}

// A Step writes a file or runs a program.
type Step struct {
	File, Content string
	Run           []string
}

// Script returns the fix as the shell commands that [Fix.Apply] runs, for root.
func (f *Fix) Script() string {
	var b strings.Builder
	for _, s := range f.Steps {
		switch {
		case s.File == "":
			words := make([]string, len(s.Run))
			for i, w := range s.Run {
				words[i] = shell.Quote(w)
			}
			b.WriteString(strings.Join(words, " ") + "\n")
		case strings.Count(s.Content, "\n") == 1:
			fmt.Fprintf(&b, "echo %s > %s\n", shell.Quote(strings.TrimSuffix(s.Content, "\n")), shell.Quote(s.File))
		default:
			fmt.Fprintf(&b, "cat > %s <<'EOF'\n%sEOF\n", shell.Quote(s.File), s.Content)
		}
	}
	return b.String()
}

// Keys returns the names of the variables of an environment that hold
// credentials of the services that pccrun and agents know, or look so. Values
// are not looked at, but for whether they are empty.
func Keys(environ []string) []string {
	var names []string
	for _, e := range environ {
		name, value, _ := strings.Cut(e, "=")
		if value != "" && isKey(name) {
			names = append(names, name)
		}
	}
	return names
}

func isKey(name string) bool {
	switch name {
	case "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN", "CLOUDFLARE_API_TOKEN", "MODAL_TOKEN_ID", "MODAL_TOKEN_SECRET", "SPRITES_TOKEN",
		"VERCEL_TOKEN", "GITHUB_TOKEN", "GH_TOKEN", "GITLAB_TOKEN", "HF_TOKEN", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN":
		return true
	}
	return strings.HasSuffix(name, "_API_KEY") || strings.HasSuffix(name, "_API_TOKEN") || strings.HasSuffix(name, "_AUTH_TOKEN")
}
