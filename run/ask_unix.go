//go:build unix

package run

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

// askTimeout is how long a question stands. Nobody's answer is no.
const askTimeout = time.Minute

// An asker puts the questions of --ask at the command's terminal.
type asker struct {
	profile string // of the run: a name, or a path
	config  string // the user's directory for configuration
	work    string // the workspace
	root    bool   // started as root: the rights to write what is root's are gone by the time of an answer
	failed  error  // what kept an answer from being written; valid when the run has ended
	ready   chan struct{}
	relay   *terminal.Relay // valid once ready is closed
}

// ask is a [netproxy.Config]'s Ask.
func (a *asker) ask(ctx context.Context, host string, port uint16) netproxy.Permission {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
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

func (a *asker) profiles() string { return filepath.Join(a.config, "profiles") }

// widened returns the user's profile with one host more: its name and content.
// A file that somebody wrote by hand is not for a program to change.
func (a *asker) widened(rule string) (file, content string, err error) {
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
		if string(old) != Allowing(a.profile, hosts) {
			return "", "", fmt.Errorf("%s: pccrun changes only a file that it wrote", file)
		}
	}
	if !slices.Contains(hosts, rule) {
		hosts = append(hosts, rule)
	}
	return file, Allowing(a.profile, hosts), nil
}

// Allowing is the text of a profile that adds hosts to another of its name.
func Allowing(profile string, hosts []string) string {
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

func (a *asker) write(file, content string) error {
	root, err := state.Open(a.profiles(), a.work)
	if err != nil {
		return err
	}
	defer root.Close()
	return state.WriteFile(root, file, []byte(content), state.Durable)
}
