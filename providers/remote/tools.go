package remote

import (
	"context"
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/providers"
)

// Where a program stands that the image lacks ([providers.Install]): in a directory of its own, which the command
// reads and cannot change. Its installer runs there in a sandbox of its own, before the command, with other hosts, without the
// copy, and without a variable or a secret of the user's.
const (
	toolsName = ".pccrun-tools"
	toolsOwn  = "tools" // beside pccrun's program, in place of [commandsOwn]
)

// commandsOwn is what pccrun keeps there of the command's run, beside its program.
const commandsOwn = "own"

// installing is what a request to create is made by: the provider's own filter lets the installer's hosts through too.
func installing(policy *profiles.Policy, i *providers.Install) *profiles.Policy {
	if i == nil {
		return policy
	}
	wider := *policy
	wider.Network.Allow = append(slices.Clip(policy.Network.Allow), hostsOf(i)...)
	return &wider
}

func hostsOf(i *providers.Install) (list []profiles.NetRule) {
	for _, host := range i.Allow {
		list = append(list, profiles.NetRule{Text: host, Origin: profiles.Origin{Source: "installation of " + i.Name}})
	}
	return list
}

// install has what the image lacks be in the sandbox, once.
func (p *plan) install(ctx context.Context, l *place, stdio providers.Stdio) error {
	i := p.command.Install
	if i == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, l.p.patient.transfer)
	defer cancel()
	text, err := json.Marshal(i)
	var there toolsDir
	if err == nil {
		err = l.word(ctx, toolsWord, input{}, &there, l.Copy, sumOf(text), "")
	}
	if err == nil && !there.Stands {
		if err = p.runInstaller(ctx, l, string(there.Dir), stdio); err == nil {
			err = l.word(ctx, toolsWord, input{}, &there, l.Copy, sumOf(text), "done")
		}
	}
	if err != nil {
		return fmt.Errorf("%s: install %s: %w", l.p.Name(), i.Name, err)
	}
	l.tools = string(there.Dir)
	return nil
}

// runInstaller runs the installer to its end.
func (p *plan) runInstaller(ctx context.Context, l *place, dir string, stdio providers.Stdio) error {
	i, policy, q, there := p.command.Install, *p.policy, *p, *l
	policy.Network.Allow, policy.Network.Inject = hostsOf(i), nil
	q.policy, q.seeds, q.env, q.dir, q.request.Ask = &policy, nil, nil, ".", false
	q.command.Conversation = nil
	q.command.Argv = append([]string{"/bin/sh", "-c", "exec 2>&1\n" + i.Script, "sh"}, append(slices.Clip(i.Args), dir)...)
	there.Copy, there.own, there.observer = dir, toolsOwn, installer{l.observer}
	said, none := &Printed{Most: 1 << 20}, &Printed{} // each is written by a goroutine of its own
	end, err := q.follow(ctx, &there, nil, providers.Stdio{Out: said, Err: none, Changes: stdio.Changes})
	l.box = there.box
	switch {
	case err != nil:
		return err
	case end.TimedOut || !end.seen:
		return fmt.Errorf("its time is over")
	case end.Code != 0 || end.Signal != 0:
		lines := strings.Split(strings.TrimSpace(said.String()), "\n")
		last := &Printed{Most: 4 << 10}
		_, _ = last.Write([]byte(strings.Join(lines[max(0, len(lines)-3):], " ")))
		return last.status(end.Code)
	}
	return nil
}

// installer is an observer to whom no command has started.
type installer struct{ providers.Observer }

func (installer) Started() {}

// withTools are variables by which a command finds what is installed.
func withTools(tools string, env []string) []string {
	if tools == "" {
		return env
	}
	for i := len(env) - 1; i >= 0; i-- {
		if rest, is := strings.CutPrefix(env[i], "PATH="); is {
			env = slices.Clone(env)
			env[i] = "PATH=" + path.Join(tools, ".local/bin") + ":" + rest
			break
		}
	}
	return env
}
