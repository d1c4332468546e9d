//go:build unix

package ask

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pccrun/pccrun/internal/state"
	"github.com/pccrun/pccrun/internal/terminal"
	"github.com/pccrun/pccrun/netproxy"
)

// Timeout is how long a question stands. Nobody's answer is no.
const Timeout = time.Minute

// An Asker puts the questions of a run, once it is [Asker.At] a terminal.
type Asker struct {
	profile string // of the run: a name, or a path
	config  string // the user's directory for configuration
	work    string // the workspace
	root    bool   // started as root: the rights to write what is root's are gone by the time of an answer

	ready  chan struct{}
	relay  *terminal.Relay // valid once ready is closed
	failed error           // see [Asker.Failed]
}

// New returns who asks for a run in a workspace, with a profile. config is the user's directory for configuration.
func New(profile, config, workspace string, root bool) *Asker {
	return &Asker{profile: profile, config: config, work: workspace, root: root, ready: make(chan struct{})}
}

// At says at which terminal the command is.
func (a *Asker) At(relay *terminal.Relay) {
	a.relay = relay
	close(a.ready)
}

// Failed is why an answer was not saved; valid when the run has ended.
func (a *Asker) Failed() error { return a.failed }

// Ask is a [netproxy.Config]'s Ask.
func (a *Asker) Ask(ctx context.Context, host string, port uint16) netproxy.Permission {
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	select {
	case <-a.ready:
	case <-ctx.Done():
		return netproxy.Unasked
	}
	rule := host
	if port != 80 && port != 443 {
		rule += ":" + strconv.Itoa(int(port))
	}
	file, content, err := a.widened(rule)
	keys, always := "osn", ""
	if err == nil {
		keys, always = "osan", ", [a]lways"
	}
	question := fmt.Sprintf("pccrun: the command wants to reach %s, port %d. allow it [o]nce, for this [s]ession%s, or [n]ot?", host, port, always)
	key, err := a.relay.Ask(ctx, question, keys)
	switch {
	case err != nil || ctx.Err() != nil:
		return netproxy.Unasked
	case key == 'o':
		return netproxy.Once
	case key == 's':
		return netproxy.Session
	case key != 'a':
		return netproxy.Refuse
	}
	// What is written is shown first; who does not want it keeps the session's.
	key, err = a.relay.Ask(ctx, "pccrun: write "+rule+" into "+filepath.Join(a.profiles(), file)+"? [y]es, [n]o\n\n"+content, "yn")
	if err == nil && key == 'y' {
		a.failed = a.write(file, content)
	}
	return netproxy.Session
}

func (a *Asker) profiles() string { return filepath.Join(a.config, "profiles") }

// widened returns the user's profile with one host more: its name and content.
// A file that somebody wrote by hand is not for a program to change.
func (a *Asker) widened(rule string) (file, content string, err error) {
	if a.root {
		return "", "", errors.New("root's profile")
	}
	if strings.ContainsAny(a.profile, "/.") {
		return "", "", fmt.Errorf("profile %s: named by its path", a.profile)
	}
	file = a.profile + ".jsonc"
	old, err := os.ReadFile(filepath.Join(a.profiles(), file))
	var hosts []string
	switch {
	case os.IsNotExist(err):
	case err != nil:
		return "", "", err
	default:
		for line := range strings.Lines(string(old)) {
			host, ok := strings.CutPrefix(strings.TrimSuffix(strings.TrimSuffix(line, "\n"), ","), `      "`)
			if ok {
				hosts = append(hosts, strings.TrimSuffix(host, `"`))
			}
		}
		if string(old) != allowing(a.profile, hosts) {
			return "", "", fmt.Errorf("%s: pccrun changes only a file that it wrote", file)
		}
	}
	if !slices.Contains(hosts, rule) {
		hosts = append(hosts, rule)
	}
	return file, allowing(a.profile, hosts), nil
}

// allowing is the text of a profile that adds hosts to another of its name.
func allowing(profile string, hosts []string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "{\n  \"extends\": %q,\n  \"network\": {\n    \"allow\": [\n", profile)
	for i, h := range hosts {
		comma := ","
		if i == len(hosts)-1 {
			comma = ""
		}
		fmt.Fprintf(&b, "      %q%s\n", h, comma)
	}
	return b.String() + "    ]\n  }\n}\n"
}

func (a *Asker) write(file, content string) error {
	root, err := state.Open(a.profiles(), a.work)
	if err != nil {
		return err
	}
	defer root.Close()
	return state.WriteFile(root, file, []byte(content), state.Durable)
}
