//go:build !launcher

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/run"
)

const profileUsage = `usage: pccrun profile list [--json]
       pccrun profile show [NAME|FILE] [--why] [--json] [FLAGS] [-- COMMAND]
       pccrun profile check [--json] [FILE…]
       pccrun profile allow RULE… [--profile NAME|FILE]
       pccrun profile schema

list    list the built-in profiles and your own ($XDG_CONFIG_HOME/pccrun/profiles)
show    print the policy of a run with these flags, each rule with its file and
        line; FLAGS are the policy flags of pccrun run. --why prints instead
        what picked the profile and the workspace, the files and variables that
        make up the policy, and pccrun's directories
check   print every mistake in profiles; without FILE, in the workspace's
        .pccrun.jsonc
allow   allow hosts in your own profile, for every run. Without --profile it is
        default; if you have none, it is created and extends the built-in one.
        A file in the workspace is never changed
schema  print the JSON Schema of profiles, for editors

example: pccrun profile show strict
         pccrun profile show --json --allow github.com -- claude
         pccrun profile allow github.com --profile claude
`

func profileVerb(args []string) int {
	if len(args) == 0 {
		return fail("profile: want list, show, check, allow or schema", "see pccrun help profile")
	}
	switch args[0] {
	case "list":
		return profileList(args[1:])
	case "show":
		return profileShow(args[1:])
	case "check":
		return profileCheck(args[1:])
	case "allow":
		return profileAllow(args[1:])
	case "schema":
		if len(args) > 1 {
			return fail("unexpected argument "+quote(args[1]), "there is one schema, of all profiles; pccrun profile show NAME shows one")
		}
		printf("%s", profiles.Schema())
		return 0
	}
	hint := "want list, show, check, allow or schema"
	if near := profiles.Nearest(args[0], []string{"list", "show", "check", "allow", "schema"}); near != "" {
		hint = "did you mean pccrun profile " + near + "? " + hint
	}
	return fail("profile: unknown verb "+quote(args[0]), hint)
}

// jsonFlag is --json of the verbs that print.
func jsonFlag() flagDef {
	return flagDef{"--json", alone, "", "print it as JSON", on(func(r *profiles.Request) *bool { return &r.JSON })}
}

// queryRequest reads the command line of a verb that asks about a policy:
// flags, words, and perhaps -- and a command, whose name picks a profile.
func queryRequest(defs []flagDef, args []string) (req *profiles.Request, words []string, err error) {
	req = &profiles.Request{Host: profiles.ThisHost()}
	for {
		rest, dashes, err := parseFlags(defs, req, args)
		switch {
		case err != nil:
			return nil, nil, err
		case dashes:
			req.Command = rest
			return req, words, nil
		case len(rest) == 0:
			return req, words, nil
		case rest[0] == "":
			return nil, nil, misuse("empty argument", "")
		}
		words, args = append(words, rest[0]), rest[1:]
	}
}

func profileList(args []string) int {
	req, words, err := queryRequest([]flagDef{jsonFlag()}, args)
	if err != nil {
		return failUsage(err)
	}
	if more := slices.Concat(words, req.Command); len(more) > 0 {
		return fail("unexpected argument "+quote(more[0]), "pccrun profile show NAME shows one")
	}
	list, err := profiles.List(*req)
	if err != nil {
		return failWith(err)
	}
	if req.JSON {
		rows := make([]object, len(list))
		for i, l := range list {
			rows[i] = object{{"name", l.Name}, {"source", l.Source}, {"description", l.Description}}
		}
		printJSON(object{{"profiles", rows}})
		return 0
	}
	for _, l := range list {
		text := l.Description
		if text == "" {
			text = l.Source
		}
		if l.Err != nil {
			text = "does not load: " + profiles.Mistakes(l.Err)[0].Error()
		}
		if l.InPlace {
			text += " (" + l.Source + ", replaces the built-in one)"
		}
		printf("%-12s %s\n", l.Name, printable(text))
	}
	return 0
}

func profileCheck(args []string) int {
	req, words, err := queryRequest([]flagDef{jsonFlag()}, args)
	if err != nil {
		return failUsage(err)
	}
	if req.Command != nil {
		return fail("profile check: takes files, no command")
	}
	if len(words) == 0 {
		workspace, content, err := profiles.ReadWorkspaceFile(*req)
		switch {
		case workspace == "":
			return failWith(err)
		case errors.Is(err, fs.ErrNotExist) && content == nil:
			fail("profile check: "+workspace+" has no "+profiles.WorkspaceFile, "pccrun profile check FILE checks another")
			return failed
		}
		words = []string{workspace + "/" + profiles.WorkspaceFile}
	}
	code := 0
	var rows []object
	for _, file := range words {
		req.Profile = file
		if !strings.Contains(file, "/") {
			req.Profile = "./" + file
		}
		p, err := profiles.Resolve(*req)
		if err == nil {
			err = checkFilter(p)
		}
		if req.JSON {
			row := object{{"file", file}, {"ok", err == nil}}
			var mistakes []object
			for _, m := range profiles.Mistakes(err) {
				mistakes = append(mistakes, mistakeObject(m))
			}
			rows = append(rows, append(row, field{"mistakes", mistakes}))
		} else if err == nil {
			printf("%s: ok\n", printable(file))
		} else {
			for _, m := range profiles.Mistakes(err) { // nobody has written the flag that names the file
				fail(strings.TrimPrefix(m.Error(), "flag --profile: "), profiles.Hint(m))
			}
		}
		if err != nil {
			code = refused
		}
	}
	if req.JSON {
		printJSON(object{{"files", rows}})
	}
	return code
}

// checkFilter compiles the filter that a policy names. Whether a command starts under it only
// a run says.
func checkFilter(p *profiles.Policy) error {
	if p.Syscalls == "" || p.Syscalls == "default" {
		return nil
	}
	text, err := profiles.ReadFile(p.Syscalls)
	if err == nil {
		if err = run.CheckFilter(text); err != nil {
			err = fmt.Errorf("%s: %w", p.Syscalls, err)
		}
	}
	if err != nil {
		return &profiles.Error{Origin: p.SyscallsAt, Cause: err.Error()}
	}
	return nil
}

func mistakeObject(err error) object {
	o := profiles.OriginOf(err)
	return object{{"text", err.Error()}, {"hint", profiles.Hint(err)}, {"origin", originObject(o)}}
}

func profileShow(args []string) int {
	why := false
	req, words, err := queryRequest(append(policyFlags(), jsonFlag(), flagDef{"--why", alone, "", "", on(func(*profiles.Request) *bool { return &why })}), args)
	if err != nil {
		return failUsage(err)
	}
	if len(words) == 1 && req.Profile == "" {
		req.Profile, words = words[0], nil
	}
	if len(words) > 0 {
		return fail("unexpected argument "+quote(words[len(words)-1]), "name one profile; put -- before a command")
	}
	p, err := profiles.Resolve(*req)
	if err != nil {
		return failWith(err)
	}
	for _, w := range p.Warnings {
		say(w)
	}
	if why {
		return showWhy(req, p)
	}
	if req.JSON {
		printJSON(policyObject(p))
		return 0
	}
	var b strings.Builder
	writePolicy(&b, p)
	printf("%s", b.String())
	return 0
}

func originObject(o profiles.Origin) object {
	return object{{"source", o.Source}, {"line", o.Line}, {"key", o.Key}}
}

// policyObject is a policy as --json shows it: docs/integration.md.
func policyObject(p *profiles.Policy) object {
	files := func(rules []profiles.FileRule) []object {
		rows := make([]object, len(rules))
		for i, r := range rules {
			rows[i] = object{{"access", r.Access.String()}, {"path", r.Path}, {"glob", r.Glob}, {"origin", originObject(r.Origin)}}
		}
		return rows
	}
	nets := func(rules []profiles.NetRule) []object {
		rows := make([]object, len(rules))
		for i, r := range rules {
			rows[i] = object{{"rule", r.Text}, {"origin", originObject(r.Origin)}}
		}
		return rows
	}
	var protect, seeds, sockets, use, inject, pass, set, limits, requirements []object
	for _, r := range p.Protect {
		protect = append(protect, object{{"pattern", r.Pattern}, {"review", r.Review}, {"home", r.Home}, {"origin", originObject(r.Origin)}})
	}
	for _, s := range p.Seeds {
		seeds = append(seeds, object{{"path", s.Path}, {"mode", s.Mode.String()}, {"copied", append([]string{}, s.Keys...)}, {"dropped", append([]string{}, s.Drop...)}, {"origin", originObject(s.Origin)}})
	}
	for _, r := range p.Network.Sockets {
		sockets = append(sockets, object{{"path", r.Path}, {"at", r.At}, {"origin", originObject(r.Origin)}})
	}
	for _, u := range p.Use {
		use = append(use, object{{"name", u.Name}, {"origin", originObject(u.Origin)}})
	}
	for _, in := range p.Network.Inject {
		inject = append(inject, object{{"env", in.Env}, {"hosts", in.Hosts}, {"file", in.File}, {"command", append([]string{}, in.Command...)}, {"origin", originObject(in.Origin)}})
	}
	for _, r := range p.Environment.Pass {
		pass = append(pass, object{{"pattern", r.Pattern}, {"origin", originObject(r.Origin)}})
	}
	for _, name := range p.SetNames() {
		s := p.Environment.Set[name]
		set = append(set, object{{"name", name}, {"value", s.Value}, {"origin", originObject(s.Origin)}})
	}
	for i, name := range profiles.LimitNames() {
		if l := p.Resources.Limit(i); l.Value > 0 {
			limits = append(limits, object{{"name", name}, {"value", l.Value}, {"text", limitText(i, l.Value)}, {"origin", originObject(l.Origin)}})
		}
	}
	for _, r := range p.Requirements {
		requirements = append(requirements, object{{"guarantee", string(r.Guarantee)}, {"required", r.Required}, {"strong", r.Strong}, {"origin", originObject(r.Origin)}})
	}
	return object{
		{"profile", p.Profile}, {"picked_by", p.PickedBy}, {"workspace", p.Workspace}, {"workdir", p.WorkDir}, {"home", p.Home},
		{"filesystem", files(p.Files)}, {"tighten", files(p.Tighten)}, {"protect", protect}, {"seeds", seeds},
		{"network", object{
			{"allow", nets(p.Network.Allow)}, {"deny", nets(p.Network.Deny)}, {"local", nets(p.Network.Local)}, {"publish", nets(p.Network.Publish)},
			{"sockets", sockets}, {"inject", inject},
		}},
		{"environment", object{{"pass", pass}, {"set", set}}},
		{"resources", limits}, {"use", use}, {"syscalls", p.Syscalls}, {"nested", p.Nested}, {"strict", p.Strict}, {"report", reportName(p)}, {"protect_strict", p.ProtectStrict},
		{"requirements", requirements}, {"without", profiles.Words(p.Without)}, {"allow_missing", profiles.Words(p.AllowMissing)}, {"warnings", p.Warnings},
	}
}

// writePolicy writes a policy for people: what each rule says, and where it
// stands.
func writePolicy(b *strings.Builder, p *profiles.Policy) {
	head := func(title string) { fmt.Fprintf(b, "\n%s\n", title) }
	row := func(what, thing string, o profiles.Origin) {
		fmt.Fprintf(b, "  %-8s %-44s %s\n", what, printable(thing), printable(o.String()))
	}
	fmt.Fprintf(b, "profile    %s, picked by %s\n", printable(p.Profile), p.PickedBy)
	fmt.Fprintf(b, "workspace  %s\n", printable(p.Workspace))
	fmt.Fprintf(b, "home       %s\n", printable(p.Home))

	head("filesystem")
	for _, r := range p.Files {
		row(r.Access.String(), r.Text(), r.Origin)
	}
	for _, r := range p.Tighten {
		row(r.Access.String(), r.Text()+" (at most)", r.Origin)
	}
	if len(p.Protect) > 0 {
		head("protect")
		for _, r := range p.Protect {
			row(r.List(), r.Pattern, r.Origin)
		}
	}
	if len(p.Seeds) > 0 {
		head("seeds of the home")
		for _, s := range p.Seeds {
			row(s.Mode.String(), s.Path, s.Origin)
		}
	}
	head("network")
	n := &p.Network
	if len(n.Allow)+len(n.Local)+len(n.Publish)+len(n.Sockets) == 0 {
		b.WriteString("  none\n")
	}
	for _, list := range []struct {
		word string
		from []profiles.NetRule
	}{{"allow", n.Allow}, {"deny", n.Deny}, {"local", n.Local}, {"publish", n.Publish}} {
		for _, r := range list.from {
			row(list.word, r.Text, r.Origin)
		}
	}
	for _, r := range n.Sockets {
		row("socket", r.Path, r.Origin)
	}
	for _, in := range n.Inject {
		text := in.Env + " to " + strings.Join(in.Hosts, ", ")
		if in.File != "" || len(in.Command) > 0 {
			text += ", from " + in.Source()
		}
		row("inject", text, in.Origin)
	}
	head("environment")
	for _, r := range p.Environment.Pass {
		row("pass", r.Pattern, r.Origin)
	}
	for _, name := range p.SetNames() {
		row("set", name+"="+p.Environment.Set[name].Value, p.Environment.Set[name].Origin)
	}
	for _, r := range p.Environment.Scrub {
		row("scrub", r.Pattern, r.Origin)
	}
	head("resources")
	for i, name := range profiles.LimitNames() {
		if l := p.Resources.Limit(i); l.Value > 0 {
			row(name, limitText(i, l.Value), l.Origin)
		}
	}
	fmt.Fprintf(b, "\nsyscalls   %s\n", printable(p.Syscalls))
	fmt.Fprintf(b, "nested     %v\n", p.Nested)
	fmt.Fprintf(b, "report     %s\n", reportName(p))
	fmt.Fprintf(b, "strict     %v\n", p.Strict)
	head("guarantees")
	for _, r := range p.Requirements {
		word := "wanted"
		if r.Required {
			word = "required"
		}
		if r.Strong {
			word = "strong"
		}
		row(word, string(r.Guarantee), r.Origin)
	}
}

// limitText writes a limit as a profile would, but for sizes, which are rounded.
func limitText(i int, n int64) string {
	switch profiles.LimitNames()[i] {
	case "memory", "filesize", "disk":
		return sizeText(n)
	}
	return profiles.LimitText(i, n)
}

// reportName is the word of the policy language for what is told at exit.
func reportName(p *profiles.Policy) string {
	if p.Attempts {
		return "attempts"
	}
	return "none"
}
