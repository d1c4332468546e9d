//go:build !thin

package main

import (
	"errors"
	"path/filepath"
	"strings"

	"github.com/pccrun/pccrun/internal/messages"
	"github.com/pccrun/pccrun/internal/shell"
	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/seatbelt"
)

// specSeatbelt prints a policy as a profile for macOS: the text on standard output,
// the parameters on standard error.
func specSeatbelt(req *profiles.Request, home string) int {
	p, survey, err := policyOnDarwin(req, home)
	if err != nil {
		return failWith(err)
	}
	doc, err := seatbelt.Profile(p, survey)
	if err != nil {
		return failSeatbelt(err)
	}
	if req.JSON {
		params := make(object, len(doc.Params))
		for i, param := range doc.Params {
			params[i] = field{param.Name, param.Value}
		}
		printJSON(object{{"text", doc.Text}, {"parameters", params}, {"profile", p.Profile}, {"home", p.Home},
			{"workspace", p.Workspace}})
		return 0
	}
	printf("%s", doc.Text)
	for _, param := range doc.Params {
		say("parameter: -D " + shell.Quote(param.Name+"="+param.Value))
	}
	return 0
}

func failSeatbelt(err error) int {
	var overlay *seatbelt.OverlayError
	if errors.As(err, &overlay) {
		return fail(err.Error(), "--read or --write "+shell.Quote(overlay.Rule.Text())+" in place of it")
	}
	return fail(err.Error())
}

// policyOnDarwin returns the policy as it would be on a Mac, and what is known of
// that: of one that is elsewhere the home alone.
func policyOnDarwin(req *profiles.Request, home string) (*profiles.Policy, seatbelt.Survey, error) {
	if req.Host = profiles.ThisHost(); home != "" {
		if err := named(req); err != nil {
			return nil, seatbelt.Survey{}, err
		}
		if req.Workspace == "" {
			req.Workspace = filepath.Join(home, "workspace")
		}
		req.Host = profiles.Host{Home: home, Elsewhere: true, Memory: 16 << 30, Cwd: req.Workspace}
	}
	p, err := profiles.Resolve(*req)
	if err != nil {
		return nil, seatbelt.Survey{}, err
	}
	for _, w := range p.Warnings {
		say(w)
	}
	survey := seatbelt.Example(p.Home)
	if home == "" {
		survey.Links = links(p)
	}
	return p, survey, nil
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

// links returns where paths that the policy names lead on this machine.
func links(p *profiles.Policy) (list []seatbelt.Link) {
	var paths []string
	for _, r := range p.Files {
		paths = append(paths, r.Path)
	}
	for _, r := range p.Protect {
		if strings.HasPrefix(r.Pattern, "/") {
			paths = append(paths, r.Pattern)
		}
	}
	for _, sock := range p.Network.Sockets {
		paths = append(paths, sock.Path)
	}
	for _, path := range paths {
		if to := resolveLinks(path); to != path {
			list = append(list, seatbelt.Link{From: path, To: to})
		}
	}
	return list
}

// onDarwin answers a question as a Mac would, from the profile that the policy becomes.
func (a *answer) onDarwin(p *profiles.Policy, host *profiles.Host, survey seatbelt.Survey) error {
	doc, err := seatbelt.Profile(p, survey)
	if err != nil {
		return err
	}
	rules, err := seatbelt.Parse(doc.Text, doc.Params)
	if err != nil {
		return err
	}
	isPath := strings.HasPrefix(a.subject, "/") || strings.HasPrefix(a.subject, "~") || strings.HasPrefix(a.subject, ".")
	switch {
	case a.question == "read" || a.question == "write" || a.question == "exec":
		return a.fileOnDarwin(p, host, survey, rules)
	case a.question == "connect" && !isPath:
		return a.hostOnDarwin(p, host, survey, rules)
	case a.question != "connect":
		return misuse("why --platform darwin "+a.question+": want read, write, exec or connect",
			"leave --platform out: variables and requests are the same on every system")

	}
	if a.subject, err = expand(a.subject, p, host); err != nil {
		return err
	}
	v, err := seatbelt.Evaluate(rules, "network-outbound", seatbelt.Target{Path: survey.Real(a.subject)})
	a.yes, a.what = v.Allowed, lineOf(v)
	a.rule, a.hint = profiles.Origin{Source: "default", Key: "no rule names it"},
		"--socket "+shell.Quote(a.subject)+" names it"
	for _, s := range p.Network.Sockets {
		if s.Path == a.subject {
			a.rule, a.ruleText, a.hint = s.Origin, "socket "+s.Path, ""
		}
	}
	return err
}

// fileOnDarwin answers for a file. To write is to change it, and to make it where it is not.
func (a *answer) fileOnDarwin(p *profiles.Policy, host *profiles.Host, survey seatbelt.Survey,
	rules *seatbelt.Rules) error {
	path, err := expand(a.subject, p, host)
	if err != nil {
		return err
	}
	a.subject = path
	if !host.Elsewhere {
		path = resolveLinks(path)
	}
	if path = survey.Real(path); path != a.subject {
		a.leadsTo = path
	}
	operations := map[string][]string{"read": {"file-read-data"}, "exec": {"process-exec"},
		"write": {"file-write-create", "file-write-data"}}
	for _, op := range operations[a.question] {
		v, err := seatbelt.Evaluate(rules, op, seatbelt.Target{Path: path})
		if err != nil {
			return err
		}
		if a.yes, a.what = v.Allowed, lineOf(v); !a.yes {
			break
		}
	}
	d, err := seatbelt.Decide(p, survey, path)
	if err != nil {
		return err
	}
	a.rule, a.ruleText = d.Rule.Origin, d.Access.String()+" "+d.Rule.Text()
	if r, ok := p.ProtectedAnywhere(path); ok && !r.Review && !a.yes && a.question == "write" &&
		d.Access == profiles.Write {
		a.rule, a.ruleText = r.Origin, "protect "+r.Pattern
	}
	if d.Access == profiles.Private || d.Access == profiles.Persist {
		a.what += "; there HOME and TMPDIR are private directories"
	}
	return nil
}

// hostOnDarwin answers for a host: the profile lets nothing out but the proxy, which asks
// the rules.
func (a *answer) hostOnDarwin(p *profiles.Policy, host *profiles.Host, survey seatbelt.Survey,
	rules *seatbelt.Rules) error {
	name, port, err := splitTarget(a.subject)
	if err != nil {
		return err
	}
	direct, err := seatbelt.Evaluate(rules, "network-outbound", seatbelt.Address(name, port))
	if err != nil {
		return err
	}
	if err := a.connect(p, host); err != nil {
		return err
	}
	if direct.Allowed {
		a.what, a.hint = "directly; "+lineOf(direct), ""
		if !a.yes {
			a.yes, a.rule = true, profiles.Origin{Source: "default", Key: "the proxy of a run"}
		}
		return nil
	}
	for _, proxy := range survey.Proxy {
		v, err := seatbelt.Evaluate(rules, "network-outbound", seatbelt.Address("localhost", proxy))
		if err != nil {
			return err
		}
		if a.yes = a.yes && v.Allowed; a.yes {
			a.what = "only through the proxy, which decides by name; " + lineOf(v)
		}
	}
	return nil
}

// lineOf says which line of the profile gave a verdict.
func lineOf(v seatbelt.Verdict) string {
	switch {
	case v.Line == 0:
		return "no rule of the profile allows it"
	case v.Allowed:
		return "line " + itoa(int64(v.Line)) + " of the profile allows it"
	}
	return "line " + itoa(int64(v.Line)) + " of the profile denies it"
}

// whyOnDarwin is why --platform darwin.
func whyOnDarwin(_ []string, req *profiles.Request, words []string, home string) int {
	p, survey, err := policyOnDarwin(req, home)
	if err != nil {
		return failWith(err)
	}
	a := answer{question: words[0], subject: words[1]}
	if err := a.onDarwin(p, &req.Host, survey); err != nil {
		var usage *messages.UsageError
		if errors.As(err, &usage) {
			return failUsage(err)
		}
		return failSeatbelt(err)
	}
	return a.report(req, p, nil)
}
