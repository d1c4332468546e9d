package native

import (
	"fmt"
	"strings"
	"sync/atomic"

	"github.com/pccrun/pccrun/internal/events"
	"github.com/pccrun/pccrun/internal/shell"
	"github.com/pccrun/pccrun/internal/survey"
	"github.com/pccrun/pccrun/netproxy"
	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/providers"
)

// A reporter reports to the observer what happens in a run. Of a command that tries the same thing for
// ever, or ever new things, it reports no more than the bounds.
type reporter struct {
	o      providers.Observer
	policy *profiles.Policy
	signs  survey.Signing

	full  atomic.Int64 // connections that were reset for want of room
	times map[Attempt]int
}

const (
	maxAttempts = 256 // different ones
	maxRepeats  = 16  // of each
)

// What is said of connections that were reset because there were too many.
const (
	crowded     = "too many connections at once: further ones are reset"
	crowdedHint = "raise the hard limit of open files (ulimit -Hn): half of it, at most 10000, is used for connections"
)

func (t *reporter) decided(e netproxy.Event) {
	if e.Kind != netproxy.Full {
		providers.Tell(t.o, e)
	} else {
		t.full.Add(1)
	}
}

func (t *reporter) attempt(a Attempt) {
	if t.times == nil {
		t.times = map[Attempt]int{}
	}
	n := t.times[a]
	if n == maxRepeats || n == 0 && len(t.times) == maxAttempts {
		return
	}
	t.times[a] = n + 1
	t.o.Denial(events.Denial{Guarantee: string(a.Guarantee), What: "write " + a.Path, Rule: a.Rule, Hint: a.Hint})
}

// leastOf are the flags that give the least of a directory with secrets in a home: what signs, and not the keys; a file of
// it; or a copy, for programs that keep sessions and locks beside their settings, and fail without (Azure/azure-cli issue
// 21213, snyk/kubernetes-monitor issue 1099). ~ is the home.
var leastOf = map[string]string{
	".gnupg":          "--use gpg-agent",
	".kube":           "--read ~/.kube/config",
	".aws":            "--overlay ~/.aws",
	".azure":          "--overlay ~/.azure",
	".config/gcloud":  "--overlay ~/.config/gcloud",
	".config/gh":      "--overlay ~/.config/gh",
	".password-store": "--overlay ~/.password-store --use gpg-agent",
}

// secretHint is the flag that gives the least of a directory with secrets.
func secretHint(path, home string) string {
	dir, _ := strings.CutPrefix(path, home+"/")
	words := strings.Fields(leastOf[dir])
	if len(words) == 0 {
		return "--read " + shell.Quote(path)
	}
	for i, word := range words {
		if rest, is := strings.CutPrefix(word, "~"); is {
			words[i] = shell.Quote(home + rest)
		}
	}
	return strings.Join(words, " ")
}

// end reports what is known when the run is over: which secrets of the home were looked for.
func (t *reporter) end(end *End) {
	for _, path := range end.Looked {
		rule, flags := t.policy.Decide(path), secretHint(path, t.policy.Home)
		if t.signs.Flags != "" && path == t.policy.Home+"/"+t.signs.Dir {
			flags = t.signs.Flags
		}
		t.o.Denial(events.Denial{Guarantee: string(profiles.FSHide), What: "read " + path, Rule: rule.Text(), Hint: flags})
	}
	if n := t.full.Load(); n > 0 {
		t.o.Warning(events.Warning{Text: fmt.Sprintf("%s (%d times)", crowded, n), Hint: crowdedHint})
	}
}
