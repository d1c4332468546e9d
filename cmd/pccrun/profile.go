//go:build !launcher

package main

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"

	"github.com/pccrun/pccrun/internal/state"
	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/run"
)

func profileVerb(args []string) int {
	own := map[string]func([]string) int{"list": profileList, "show": profileShow, "check": profileCheck, "allow": profileAllow, "schema": profileSchema}
	hint := "want list, show, check, allow or schema"
	if len(args) == 0 {
		return fail("profile: "+hint, "see pccrun help profile")
	}
	if verb := own[args[0]]; verb != nil {
		return verb(args[1:])
	}
	if near := profiles.Nearest(args[0], slices.Sorted(maps.Keys(own))); near != "" {
		hint = "did you mean pccrun profile " + near + "? " + hint
	}
	return fail("profile: unknown verb "+quote(args[0]), hint)
}

func profileSchema(args []string) int {
	if len(args) > 0 {
		return fail("unexpected argument "+quote(args[0]), "there is one schema, of all profiles; pccrun profile show NAME shows one")
	}
	printf("%s", profiles.Schema())
	return 0
}

// queryRequest reads the command line of a verb that asks about a policy:
// flags, words, and perhaps -- and a command, whose name picks a profile.
func queryRequest(args []string, own flags) (req *profiles.Request, words []string, err error) {
	req = &profiles.Request{Host: profiles.ThisHost()}
	own["--json"] = &req.JSON
	words, req.Command, _, err = parse(args, append(policyFlags(req), own.defs()...))
	if err == nil && slices.Contains(words, "") {
		err = misuse("empty argument", "")
	}
	return req, words, err
}

func profileList(args []string) int {
	req := profiles.Request{Host: profiles.ThisHost()}
	words, err := options(args, flags{"--json": &req.JSON})
	if err = cmp.Or(err, unexpected(words, 0, "pccrun profile show NAME shows one")); err != nil {
		return failUsage(err)
	}
	list, err := profiles.List(req)
	if err != nil {
		return failWith(err)
	}
	if req.JSON {
		printJSON(object{{"profiles", each(list, func(l profiles.Listed) object {
			return object{{"name", l.Name}, {"source", l.Source}, {"description", l.Description}}
		})}})
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
	req := profiles.Request{Host: profiles.ThisHost()}
	words, err := options(args, flags{"--json": &req.JSON})
	if err != nil {
		return failUsage(err)
	}
	if len(words) == 0 {
		workspace, content, err := profiles.ReadWorkspaceFile(req)
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
		p, err := profiles.Resolve(req)
		if err == nil {
			err = checkFilter(p)
		}
		if req.JSON {
			rows = append(rows, object{{"file", file}, {"ok", err == nil}, {"mistakes", each(profiles.Mistakes(err), mistakeObject)}})
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
	req, words, err := queryRequest(args, flags{"--why": &why})
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
	} else {
		printPolicy(p)
	}
	return 0
}

// showWhy prints what made up a policy, and why: pccrun help environment lists the variables that pccrun reads.
func showWhy(req *profiles.Request, p *profiles.Policy) int {
	dirs, err := state.Find(req.Host.Getenv, p.Home)
	if err != nil {
		return failWith(err)
	}
	var set []string
	for _, e := range req.Host.Environ {
		name, _, _ := strings.Cut(e, "=")
		if strings.HasPrefix(name, "PCCRUN_") && name != "PCCRUN_LAUNCHER" || strings.HasPrefix(name, "PARALLEL_CC_") || strings.HasPrefix(name, "XDG_") && strings.HasSuffix(name, "_HOME") {
			set = append(set, name)
		}
	}
	provider, by, err := run.Chosen(req)
	if err != nil {
		return fail(inWords(err), profiles.Hint(err))
	}
	if req.JSON {
		printJSON(object{
			{"profile", p.Profile}, {"picked_by", p.PickedBy}, {"workspace", p.Workspace}, {"workdir", p.WorkDir}, {"home", p.Home}, {"provider", provider},
			{"layers", p.Layers}, {"variables", set}, {"config_dir", dirs.Config}, {"state_dir", dirs.State}, {"cache_dir", dirs.Cache},
		})
		return 0
	}
	for _, row := range [...][2]string{
		{"profile", p.Profile + ", picked by " + p.PickedBy}, {"workspace", p.Workspace}, {"starts in", p.WorkDir}, {"home", p.Home}, {"provider", provider + ", picked by " + by},
		{"profiles", dirs.Config + "/profiles"}, {"sessions", dirs.State}, {"caches", dirs.Cache}, {"variables", cmp.Or(strings.Join(set, ", "), "none")},
	} {
		printf("%-10s %s\n", row[0], printable(row[1]))
	}
	for i, l := range p.Layers {
		title := ""
		if i == 0 {
			title = "rules from"
		}
		printf("%-10s %s\n", title, printable(l))
	}
	return 0
}

func originObject(o profiles.Origin) object {
	return object{{"source", o.Source}, {"line", o.Line}, {"key", o.Key}}
}

// A shownRule is one rule of a policy, as a line and as JSON.
type shownRule struct {
	word, text string
	origin     profiles.Origin
	fields     object
}

// rulesOf are all rules of a policy, in the lists of its JSON: help/json.txt.
func rulesOf(p *profiles.Policy) map[string][]shownRule {
	rules := map[string][]shownRule{}
	add := func(list, word, text string, from profiles.Origin, fields ...field) {
		rules[list] = append(rules[list], shownRule{word, text, from, append(fields, field{"origin", originObject(from)})})
	}
	for _, r := range p.Files {
		add("filesystem", r.Access.String(), r.Text(), r.Origin, field{"access", r.Access.String()}, field{"path", r.Path}, field{"glob", r.Glob})
	}
	for _, r := range p.Tighten {
		add("tighten", r.Access.String(), r.Text()+" (at most)", r.Origin, field{"access", r.Access.String()}, field{"path", r.Path}, field{"glob", r.Glob})
	}
	for _, r := range p.Protect {
		add("protect", r.List(), r.Pattern, r.Origin, field{"pattern", r.Pattern}, field{"review", r.Review}, field{"home", r.Home})
	}
	for _, s := range p.Seeds {
		add("seeds", s.Mode.String(), s.Path, s.Origin, field{"path", s.Path}, field{"mode", s.Mode.String()}, field{"copied", s.Keys}, field{"dropped", s.Drop})
	}
	n := &p.Network
	for list, from := range map[string][]profiles.NetRule{"allow": n.Allow, "deny": n.Deny, "local": n.Local, "publish": n.Publish} {
		for _, r := range from {
			add(list, list, r.Text, r.Origin, field{"rule", r.Text})
		}
	}
	for _, r := range n.Sockets {
		add("sockets", "socket", r.Path, r.Origin, field{"path", r.Path}, field{"at", r.At})
	}
	for _, in := range n.Inject {
		text := in.Env + " to " + strings.Join(in.Hosts, ", ")
		if in.File != "" || len(in.Command) > 0 {
			text += ", from " + in.Source()
		}
		add("inject", "inject", text, in.Origin, field{"env", in.Env}, field{"hosts", in.Hosts}, field{"file", in.File}, field{"command", in.Command})
	}
	for _, r := range p.Environment.Pass {
		add("pass", "pass", r.Pattern, r.Origin, field{"pattern", r.Pattern})
	}
	for _, name := range p.SetNames() {
		s := p.Environment.Set[name]
		add("set", "set", name+"="+s.Value, s.Origin, field{"name", name}, field{"value", s.Value})
	}
	for _, r := range p.Environment.Scrub {
		add("scrub", "scrub", r.Pattern, r.Origin)
	}
	for i, name := range profiles.LimitNames() {
		if l := p.Resources.Limit(i); l.Value > 0 {
			add("resources", name, limitText(i, l.Value), l.Origin, field{"name", name}, field{"value", l.Value}, field{"text", limitText(i, l.Value)})
		}
	}
	for _, u := range p.Use {
		add("use", "use", u.Name, u.Origin, field{"name", u.Name})
	}
	for _, r := range p.Requirements {
		word := "wanted"
		if r.Required {
			word = "required"
		}
		if r.Strong {
			word = "strong"
		}
		add("requirements", word, string(r.Guarantee), r.Origin, field{"guarantee", string(r.Guarantee)}, field{"required", r.Required}, field{"strong", r.Strong})
	}
	return rules
}

// policyObject is a policy as --json shows it.
func policyObject(p *profiles.Policy) object {
	rules := rulesOf(p)
	lists := func(names ...string) (o object) {
		for _, name := range names {
			o = append(o, field{name, each(rules[name], func(r shownRule) object { return r.fields })})
		}
		return o
	}
	return slices.Concat(object{
		{"profile", p.Profile}, {"picked_by", p.PickedBy}, {"workspace", p.Workspace}, {"workdir", p.WorkDir}, {"home", p.Home},
	}, lists("filesystem", "tighten", "protect", "seeds"), object{
		{"network", lists("allow", "deny", "local", "publish", "sockets", "inject")}, {"environment", lists("pass", "set")},
	}, lists("resources", "use"), object{
		{"place", placeObject(p)}, {"syscalls", p.Syscalls}, {"nested", p.Nested}, {"strict", p.Strict}, {"report", reportName(p)}, {"protect_strict", p.ProtectStrict},
	}, lists("requirements"), object{
		{"without", profiles.Words(p.Without)}, {"allow_missing", profiles.Words(p.AllowMissing)}, {"warnings", p.Warnings},
	})
}

// placeObject is what the policy says of the place where the command runs.
func placeObject(p *profiles.Policy) (o object) {
	for _, key := range profiles.PlaceKeys() {
		if c := p.Place.Choice(key); c.Text != "" {
			o = append(o, field{key, c.Text}, field{key + "_origin", c.Origin.String()})
		}
	}
	return o
}

// printPolicy prints a policy for people: what each rule says, and where it
// stands.
func printPolicy(p *profiles.Policy) {
	rules := rulesOf(p)
	section := func(title string, lists ...string) {
		printf("\n%s\n", title)
		for _, list := range lists {
			for _, r := range rules[list] {
				printf("  %-8s %-44s %s\n", r.word, printable(r.text), printable(r.origin.String()))
			}
		}
	}
	printf("profile    %s, picked by %s\n", printable(p.Profile), p.PickedBy)
	printf("workspace  %s\n", printable(p.Workspace))
	printf("home       %s\n", printable(p.Home))
	section("filesystem", "filesystem", "tighten")
	if len(p.Protect) > 0 {
		section("protect", "protect")
	}
	if len(p.Seeds) > 0 {
		section("seeds of the home", "seeds")
	}
	title := "network"
	if n := &p.Network; len(n.Allow)+len(n.Local)+len(n.Publish)+len(n.Sockets) == 0 {
		title += "\n  none"
	}
	section(title, "allow", "deny", "local", "publish", "sockets", "inject")
	section("environment", "pass", "set", "scrub")
	section("resources", "resources")
	for _, key := range profiles.PlaceKeys() {
		if c := p.Place.Choice(key); c.Text != "" {
			printf("\n%-10s %-45s %s", key, printable(c.Text), printable(c.Origin.String()))
		}
	}
	printf("\nsyscalls   %s\n", printable(p.Syscalls))
	printf("nested     %v\n", p.Nested)
	printf("report     %s\n", reportName(p))
	printf("strict     %v\n", p.Strict)
	section("guarantees", "requirements")
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
