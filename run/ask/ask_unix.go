//go:build unix

package ask

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/pccrun/pccrun/internal/messages"
	"github.com/pccrun/pccrun/internal/terminal"
	"github.com/pccrun/pccrun/netproxy"
	"github.com/pccrun/pccrun/profiles"
)

// Timeout is how long a question stands. Nobody's answer is no.
const Timeout = time.Minute

// An Asker puts the questions of a run, once it is [Asker.At] a terminal.
type Asker struct {
	req    profiles.Request
	policy *profiles.Policy
	root   bool // started as root: the rights to write what is root's are gone by the time of an answer

	ready  chan struct{}
	relay  *terminal.Relay // valid once ready is closed
	failed error           // see [Asker.Failed]
}

// New returns who asks for the run of a request, by its policy.
func New(req profiles.Request, policy *profiles.Policy, root bool) *Asker {
	return &Asker{req: req, policy: policy, root: root, ready: make(chan struct{})}
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
	file, text, err := a.widened(rule)
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
	shown := messages.PrintableExcept(strings.ReplaceAll(text, "\t", "  "), "\n")
	key, err = a.relay.Ask(ctx, "pccrun: write "+rule+" into "+file.Path+"? [y]es, [n]o\n\n"+shown, "yn")
	if err == nil && key == 'y' {
		a.failed = file.Write(a.req, a.policy, text)
	}
	return netproxy.Session
}

// widened returns the user's own profile, and its text with one host more. One that is named by its path may be of the
// repository. One that the run can write, as where a link leads into the workspace, is not trusted, and would be once it is written.
func (a *Asker) widened(rule string) (file *profiles.File, text string, err error) {
	if a.root || strings.ContainsAny(a.policy.Profile, "/.") {
		return nil, "", errors.New("the profile is not the user's own")
	}
	if file, err = profiles.FileOf(a.req, a.policy); err != nil {
		return nil, "", err
	}
	if to, err := filepath.EvalSymlinks(file.Path); a.policy.Changes(file.Path) || err == nil && a.policy.Changes(to) {
		return nil, "", errors.New("the run can write the profile")
	}
	text, err = file.Amended(a.policy, []profiles.Edit{{Keys: []string{"network", "allow"}, Key: rule}})
	return file, text, err
}
