//go:build !launcher

package main

import (
	"errors"
	"path/filepath"
	"strings"

	"github.com/pccrun/pccrun/internal/messages"
	"github.com/pccrun/pccrun/internal/shell"
	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/providers/macos"
)

// specSeatbelt prints a policy as a profile for macOS: the text on standard output,
// the parameters on standard error.
func specSeatbelt(req *profiles.Request, home string) int {
	p, mac, err := policyOnDarwin(req, home)
	if err != nil {
		return failWith(err)
	}
	if req.JSON {
		params := make(object, len(mac.Params))
		for i, param := range mac.Params {
			params[i] = field{param.Name, param.Value}
		}
		printJSON(object{{"text", mac.Text}, {"parameters", params}, {"profile", p.Profile}, {"home", p.Home},
			{"workspace", p.Workspace}})
		return 0
	}
	printf("%s", mac.Text)
	for _, param := range mac.Params {
		say("parameter: -D " + shell.Quote(param.Name+"="+param.Value))
	}
	return 0
}

// policyOnDarwin returns the policy as it would be on a Mac, and what answers for it there: of a
// home that is elsewhere the links are unknown.
func policyOnDarwin(req *profiles.Request, home string) (*profiles.Policy, *macos.Preview, error) {
	resolve := resolveLinks
	if req.Host = profiles.ThisHost(); home != "" {
		if err := named(req); err != nil {
			return nil, nil, err
		}
		if req.Workspace == "" {
			req.Workspace = filepath.Join(home, "workspace")
		}
		req.Host, resolve = profiles.Host{Home: home, Elsewhere: true, Memory: 16 << 30, Cwd: req.Workspace}, nil
	}
	p, err := profiles.Resolve(*req)
	if err != nil {
		return nil, nil, err
	}
	for _, w := range p.Warnings {
		say(w)
	}
	mac, err := macos.NewPreview(p, resolve)
	return p, mac, err
}

// named makes the files that flags name absolute: they are this machine's.
func named(req *profiles.Request) (err error) {
	list := []*string{}
	if strings.Contains(req.Profile, "/") || strings.HasSuffix(req.Profile, ".json") || strings.HasSuffix(req.Profile,
		".jsonc") {
		list = append(list, &req.Profile)
	}
	for i := range req.Settings {
		list = append(list, &req.Settings[i])
	}
	for _, file := range list {
		if *file, err = filepath.Abs(*file); err != nil {
			return err
		}
	}
	return nil
}

// onDarwin answers a question as a Mac would.
func (a *answer) onDarwin(p *profiles.Policy, host *profiles.Host, mac *macos.Preview) (err error) {
	isPath := strings.HasPrefix(a.subject, "/") || strings.HasPrefix(a.subject, "~") || strings.HasPrefix(a.subject, ".")
	isFile := a.question == "read" || a.question == "write" || a.question == "exec"
	switch {
	case a.question == "connect" && !isPath:
		return a.hostOnDarwin(p, host, mac)
	case a.question != "connect" && !isFile:
		return misuse("why --platform darwin "+a.question+": want read, write, exec or connect",
			"leave --platform out: variables and requests are the same on every system")
	}
	if a.subject, err = expand(a.subject, p, host); err != nil {
		return err
	}
	var seen macos.Answer
	if isFile {
		seen, err = mac.File(a.question, a.subject)
	} else if seen, err = mac.Socket(a.subject); seen.RuleText == "" {
		seen.Rule = profiles.Origin{Source: "default", Key: "no rule names it"}
		a.hint = "--socket " + shell.Quote(a.subject) + " names it"
	}
	a.yes, a.what, a.leadsTo, a.rule, a.ruleText = seen.Yes, seen.Text, seen.LeadsTo, seen.Rule, seen.RuleText
	return err
}

// hostOnDarwin answers for a host: the profile lets nothing out but the proxy, which asks
// the rules.
func (a *answer) hostOnDarwin(p *profiles.Policy, host *profiles.Host, mac *macos.Preview) error {
	name, port, err := splitTarget(a.subject)
	if err != nil {
		return err
	}
	direct, proxy, err := mac.Host(name, port)
	if err != nil {
		return err
	}
	if err := a.connect(p, host); err != nil {
		return err
	}
	if direct.Yes {
		a.what, a.hint = "directly; "+direct.Text, ""
		if !a.yes {
			a.yes, a.rule = true, profiles.Origin{Source: "default", Key: "the proxy of a run"}
		}
		return nil
	}
	if a.yes = a.yes && proxy.Yes; a.yes && proxy.Text != "" {
		a.what = "only through the proxy, which decides by name; " + proxy.Text
	}
	return nil
}

// whyOnDarwin is why --platform darwin.
func whyOnDarwin(_ []string, req *profiles.Request, words []string, home string) int {
	p, mac, err := policyOnDarwin(req, home)
	if err != nil {
		return failWith(err)
	}
	a := answer{question: words[0], subject: words[1]}
	if err := a.onDarwin(p, &req.Host, mac); err != nil {
		var usage *messages.UsageError
		if errors.As(err, &usage) {
			return failUsage(err)
		}
		return failWith(err)
	}
	return a.report(req, p, nil)
}
