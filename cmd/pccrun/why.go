//go:build !launcher

package main

import (
	"cmp"
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/pccrun/pccrun/internal/clients"
	"github.com/pccrun/pccrun/internal/shell"
	"github.com/pccrun/pccrun/internal/state"
	"github.com/pccrun/pccrun/netproxy/rules"
	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/run"
	"github.com/pccrun/pccrun/run/explain"
)

// An answer is what `why` found out.
type answer struct {
	question, subject string
	yes               bool
	what              string // in words
	rule              profiles.Origin
	ruleText          string
	hint              string
	leadsTo           string // where a link leads
}

func whyVerb(args []string) int {
	session := ""
	req, words, err := queryRequest(args, flags{"--session": &session})
	var before *past
	if err == nil && session != "" {
		if before, err = findPast(session, req); err != nil {
			return failSession(err)
		}
	}
	switch {
	case err != nil:
		return failUsage(err)
	case len(words) != 2:
		return fail("why: want a question and one thing to ask about", "e.g. pccrun why read ~/.ssh/id_rsa; see pccrun help why")
	case words[1] == "":
		return fail("why "+words[0]+": empty", "see pccrun help why")
	}
	p, err := profiles.Resolve(*req)
	if err != nil {
		return failWith(err)
	}
	for _, w := range p.Warnings {
		say(w)
	}
	a := answer{question: words[0], subject: words[1]}
	switch a.question {
	case "read", "write", "exec":
		err = a.path(p, &req.Host)
	case "connect":
		err = a.connect(p, &req.Host)
	case "env":
		if strings.Contains(a.subject, "=") {
			return fail("why env "+quote(a.subject)+": want the name of a variable", "pccrun why env "+shell.Quote(a.subject[:strings.IndexByte(a.subject, '=')]))
		}
		a.env(p, &req.Host)
	default:
		if strings.Trim(a.question, "ABCDEFGHIJKLMNOPQRSTUVWXYZ-") != "" || a.question == "" {
			return fail("why: unknown question "+quote(a.question), "want read, write, exec, connect, env or a method such as GET")
		}
		err = a.request(p, &req.Host)
	}
	if err != nil {
		return failUsage(err)
	}
	if before != nil {
		if err := before.look(&a, words[1]); err != nil {
			return failSession(err)
		}
	}
	return a.report(req, p, before)
}

// report prints the answer, and returns the status that says it.
func (a *answer) report(req *profiles.Request, p *profiles.Policy, before *past) int {
	if req.JSON {
		o := object{
			{"question", a.question}, {"subject", a.subject}, {"leads_to", a.leadsTo}, {"answer", a.yes}, {"text", a.what},
			{"rule", a.ruleText}, {"origin", originObject(a.rule)}, {"hint", a.hint}, {"profile", p.Profile}, {"workspace", p.Workspace},
		}
		if before != nil {
			o = append(o, field{"session", before.entry.ID}, field{"happened", before.lines})
		}
		printJSON(o)
	} else {
		if before != nil {
			before.print()
		}
		a.print()
	}
	if a.yes {
		return 0
	}
	return 1
}

func (a *answer) print() {
	word := "no"
	if a.yes {
		word = "yes"
	}
	printf("%s: %s %s: %s\n", word, a.question, printable(a.subject), printable(a.what))
	for _, row := range [...]struct{ label, text string }{{"link: leads to", a.leadsTo}, {"rule:", a.ruleText}, {"from:", a.rule.String()}, {"hint:", a.hint}} {
		if row.text != "" {
			printf("  %s %s\n", row.label, printable(row.text))
		}
	}
}

// path answers for a file. A link is decided by where it leads, as at a run.
func (a *answer) path(p *profiles.Policy, host *profiles.Host) error {
	if a.question == "exec" && !strings.ContainsAny(a.subject, "/~") {
		found, err := explain.ProgramOf(p, host, a.subject)
		if err != nil {
			a.rule = profiles.Origin{Source: "environment", Key: "PATH"}
			a.what, a.hint = explain.Unrunnable(err)
			return nil
		}
		a.subject = found
	}
	path, err := expand(a.subject, p, host)
	if err != nil {
		return err
	}
	a.subject = path
	if a.question == "exec" {
		defer func() {
			if _, err := explain.ProgramOf(p, host, path); a.yes && err != nil {
				a.yes = false
				a.what, a.hint = explain.Unrunnable(err)
			}
		}()
	}
	end, err := shownEnd(p, host, path)
	if err != nil {
		return err
	}
	if end != path {
		a.leadsTo, path = end, end
	}
	found, err := explain.At(p, host, path)
	if err != nil {
		return err
	}
	d := found.Decision
	if _, err := os.Stat(path); err != nil && a.question == "write" && d.Access == profiles.Hide && d.Rule.Glob != "" {
		d = p.Decide(filepath.Dir(path)) // what matches a pattern is hidden where it stood at the start
	}
	a.rule, a.ruleText = d.Rule.Origin, d.Access.String()+" "+d.Rule.Text()
	if ownTree(path) && d.Access >= profiles.Read {
		a.own(path, p.Nested)
		return nil
	}
	flag := map[string]string{"read": "--read", "write": "--write", "exec": "--read"}[a.question] + " " + shell.Quote(path)
	switch d.Access {
	case profiles.Hide:
		a.what, a.hint = "it is hidden", flag+" shows it"
	case profiles.Private:
		a.yes = a.question == "write"
		if a.what = "a private, empty place of the sandbox, deleted at exit"; !a.yes {
			if a.hint = flag + " shows the host's"; path == explain.RuntimeDir {
				a.hint = flag + "/NAME shows the host's file of that name"
			}
		}
	case profiles.Persist:
		a.yes = a.question == "write"
		if a.what = "the persistent home of this workspace; the host's home is not shown"; !a.yes {
			a.hint = flag + " shows the host's"
		}
	case profiles.Read:
		if a.yes, a.what = a.question != "write", "the host's file, read-only"; !a.yes {
			whole := explain.ChangedWith(&d, path)
			switch info, err := os.Lstat(whole); {
			case errors.Is(err, os.ErrNotExist):
				if a.hint = p.MakeFlag(whole, true); a.hint != "" {
					a.hint += " lets it be made"
				}
			case err == nil && info.IsDir():
				a.hint = p.WriteFlag(whole) + " makes it writable, --overlay " + shell.Quote(whole) + " a copy of it"
			default:
				a.hint = p.WriteFlag(whole) + " makes it writable"
			}
			if name, is := strings.CutPrefix(d.Rule.Origin.Key, "protect: "); is {
				a.what, a.hint = "it is protected: a protected name is a link to it, or is the same file", "--review "+shell.Quote(name)+" lets it change"
				if setting, of, is := strings.Cut(name, " in /"); is {
					a.what, a.hint = "it is protected: "+setting+" in /"+of+" names it", ""
				}
			}
			if fifo, err := explain.WritesFIFO(p, host, path); err != nil {
				return err
			} else if fifo != "" {
				a.yes, a.what, a.hint = true, fifo, ""
			}
		}
	case profiles.Overlay:
		a.yes, a.what = true, "a copy-on-write layer over the host's"
		if found.Scratch {
			if a.what = "the host's file; changes of the run are deleted at exit"; run.KeepsAgentDir(p, path) {
				a.what = "the host's file; changes of the run are there in the next one here, and nowhere else"
			}
		}
	case profiles.Write:
		a.yes, a.what = true, "the host's own"
	}
	a.strict(p, path, d.Access)
	if r, ok := p.ProtectedAnywhere(path); ok && a.question == "write" && d.Access >= profiles.Overlay && !found.Scratch {
		a.rule = r.Origin
		switch {
		case p.Lists(path, r):
			a.ruleText, a.what = "protect "+r.Pattern, "and it is listed at exit, because a host tool would execute it in a home; what stands is protected"
		case r.Review:
			a.ruleText, a.what = "review "+r.Pattern, "and it is listed at exit if it changes, because a host tool would execute it"
		default:
			a.yes, a.ruleText, a.what = false, "protect "+r.Pattern, "it is protected, because a host tool would execute it; "+newName(p)
			if strings.HasPrefix(r.Pattern, ".git/") {
				a.what = "it is protected in repositories that exist at the start; in a new repository, what git would execute is quarantined at the end"
			}
			if r.Pattern == ".git/config" || r.Pattern == ".git/config.worktree" {
				a.what = "in repositories that exist at the start git has a private copy of it, and at the end changed keys that name no program are saved to the host"
			}
			if flag := p.ReviewFlag(path, r); flag != "" {
				if a.hint = flag + " allows it, and lists it at exit"; !strings.HasPrefix(flag, "--") {
					a.hint = flag + " allow it, and list it at exit"
				}
			}
		}
	}
	return nil
}

// own answers for what the sandbox has of its own.
func (a *answer) own(path string, nested bool) {
	tree, read, write := explain.OwnPath(path, nested)
	a.what = "the sandbox has a " + tree + " of its own"
	switch {
	case a.question == "read" && read || a.question == "write" && write:
		a.yes = true
	case a.question == "read":
		a.what += ", without this"
	case a.question == "write" && read:
		a.what += ", in which this cannot be written"
	case a.question == "write":
		a.what += ", without this"
	default:
		a.what += ", in which there are no programs"
	}
}

// ownTree reports whether a path is in what each sandbox has of its own.
func ownTree(path string) bool {
	tree, _, _ := explain.OwnPath(path, false)
	return tree != ""
}

// strict says what the second layer adds to an answer about reading, under strict.
func (a *answer) strict(p *profiles.Policy, path string, access profiles.Access) {
	around := p.Decide(filepath.Dir(path)).Access
	switch {
	case !p.Strict || p.Nested || a.question == "write" || access == profiles.Private || access == profiles.Persist || access >= profiles.Overlay:
	case access == profiles.Read:
		a.what += "; strict: new files in a directory with hidden names cannot be read"
	case around == profiles.Overlay:
		a.what += "; strict: protected by the mount alone, because it is in an overlay"
	case around == profiles.Write:
		a.what += "; strict: protected by the mount, and by the launcher, which opens the files there for the command"
	default:
		a.what += "; strict: protected by the mount and by Landlock"
	}
}

// newName says what becomes of a protected name that is made inside.
func newName(p *profiles.Policy) string {
	if p.ProtectStrict {
		return "a new file of that name cannot be made"
	}
	return "a new file of that name is quarantined at once"
}

// expand reads a path as the flags do.
func expand(text string, p *profiles.Policy, host *profiles.Host) (string, error) {
	if rest, ok := strings.CutPrefix(text, "~"); ok && (rest == "" || rest[0] == '/') {
		text = p.Home + rest
	}
	if !filepath.IsAbs(text) {
		if host.Cwd == "" {
			return "", misuse("why "+quote(text)+": the current directory was deleted", "name an absolute path")
		}
		text = host.Cwd + "/" + text
	}
	if strings.IndexByte(text, 0) >= 0 {
		return "", misuse("why: NUL in a path", "")
	}
	return filepath.Clean(text), nil
}

// resolveLinks returns where a path leads; what of it does not exist is kept.
func resolveLinks(path string) string { return follow(path, func(string) bool { return true }) }

// shownEnd returns where a path leads in a run: as far as the links on the way are there. What
// the sandbox has of its own leads elsewhere inside.
func shownEnd(p *profiles.Policy, host *profiles.Host, path string) (end string, err error) {
	end = follow(path, func(link string) bool {
		if err != nil || ownTree(link) {
			return false
		}
		var shown bool
		shown, err = explain.ShowsLink(p, host, link)
		return shown
	})
	return end, err
}

// follow goes along a path, through the links that through lets it, as the kernel does.
func follow(path string, through func(link string) bool) string {
	at, rest := "/", path
	for hops := 0; rest != ""; {
		var name string
		name, rest, _ = strings.Cut(strings.TrimLeft(rest, "/"), "/")
		at = filepath.Join(at, name)
		to, err := os.Readlink(at)
		if err != nil {
			continue // no link, or nothing
		}
		if hops++; hops > 40 || !through(at) {
			return filepath.Join(at, rest)
		}
		if at = filepath.Dir(at); filepath.IsAbs(to) {
			at = "/"
		}
		rest = to + "/" + rest
	}
	return at
}

func (a *answer) connect(p *profiles.Policy, host *profiles.Host) error {
	if strings.HasPrefix(a.subject, "/") || strings.HasPrefix(a.subject, "~") || strings.HasPrefix(a.subject, ".") {
		path, err := expand(a.subject, p, host)
		if err != nil {
			return err
		}
		a.subject, a.what = path, "sockets of the host cannot be reached, unless named"
		a.rule, a.hint = profiles.Origin{Source: "default", Key: "no rule names it"}, "--socket "+shell.Quote(path)+" names it"
		real, err := shownEnd(p, host, path)
		if err != nil {
			return err
		}
		if real != path {
			a.leadsTo = real
		}
		for _, s := range p.Network.Sockets {
			to := resolveLinks(s.Path)
			if path != cmp.Or(s.At, s.Path) && (s.At != "" || real != to) {
				continue
			}
			a.yes, a.rule, a.ruleText, a.what, a.hint = true, s.Origin, "socket "+s.Path, "the host's own", ""
		}
		return nil
	}
	name, port, err := splitTarget(a.subject)
	if err != nil {
		return err
	}
	set, err := networkRules(p, host)
	if err != nil {
		return err
	}
	v := set.Decide(name, port)
	if strings.Contains(name, ":") {
		name = "[" + name + "]"
	}
	a.subject = name + ":" + strconv.Itoa(int(port))
	a.verdict(p, v)
	if a.yes {
		a.what = "the name is allowed; its address is checked when the command connects"
		switch {
		case v.Local:
			a.what = "the host's loopback"
		case v.Action == rules.Inspect:
			a.what = "only for the requests that the rules allow; the proxy reads them"
		}
	}
	return nil
}

// request answers for one request.
func (a *answer) request(p *profiles.Policy, host *profiles.Host) error {
	scheme, rest, ok := strings.Cut(a.subject, "://")
	if !ok || scheme != "http" && scheme != "https" {
		return misuse(a.question+" "+quote(a.subject)+": want an http or https URL", "")
	}
	name, port, err := splitTarget(scheme + "://" + rest)
	if err != nil {
		return err
	}
	path := "/"
	if i := strings.IndexAny(rest, "/?#"); i >= 0 && rest[i] == '/' {
		path, _, _ = strings.Cut(rest[i:], "#")
	}
	set, err := networkRules(p, host)
	if err != nil {
		return err
	}
	authority := name
	if strings.Contains(name, ":") {
		authority = "[" + name + "]"
	}
	a.verdict(p, set.DecideRequest(name, port, rules.Request{Scheme: scheme, Host: authority + ":" + strconv.Itoa(int(port)), Method: a.question, Path: path}))
	if a.yes {
		a.what = "the request is allowed; the address of the host is checked when the command connects"
		if set.Decide(name, port).Action == rules.Allow {
			a.what = "the host is allowed for every request; the proxy does not read them"
		}
	}
	return nil
}

// networkRules are the policy's, groups such as @npm put in by the clients that
// they stand for, as at a run.
func networkRules(p *profiles.Policy, host *profiles.Host) (*rules.Set, error) {
	dirs, err := state.Find(host.Getenv, p.Home)
	if err != nil {
		return nil, err
	}
	asker := clients.Asker{Programs: run.Programs(host, dirs.State).For(p.Changes, say), Workspace: p.Workspace, StateDir: dirs.State}
	return p.Network.Rules(asker.Expand)
}

// verdict takes over what the rules say.
func (a *answer) verdict(p *profiles.Policy, v rules.Verdict) {
	a.ruleText = v.Rule
	a.rule = originOfRule(p, v.Rule)
	switch v.Action {
	case rules.Allow, rules.Inspect:
		a.yes = true
	default:
		a.what = v.Detail
		switch {
		case a.what != "":
		case v.Reason == rules.ByRule:
			a.what = "a rule denies it"
		case len(p.Network.Allow)+len(p.Network.Local) == 0:
			a.what = "there is no network at all: no rule allows a host"
		default:
			a.what = "no rule allows it"
		}
		if v.Reason == rules.ByDefault && v.AllowWith != "" {
			a.hint = v.AllowWith + " allows it"
		}
	}
}

// splitTarget reads HOST, HOST:PORT, [ADDRESS]:PORT, an address, or a URL; the
// port is 443 where nothing says another.
func splitTarget(text string) (host string, port uint16, err error) {
	want := misuse("connect "+quote(text)+": want HOST, HOST:PORT, [ADDRESS]:PORT or a URL", "")
	if strings.Count(text, ":") > 1 && !strings.ContainsAny(text, "[/") { // an address without brackets
		text = "[" + text + "]"
	}
	if !strings.Contains(text, "://") {
		text = "https://" + text
	}
	u, err := url.Parse(text)
	if err != nil || u.Hostname() == "" {
		return "", 0, want
	}
	defaults := map[string]string{"https": "443", "wss": "443", "http": "80", "ws": "80", "ssh": "22", "git+ssh": "22"}
	n, err := strconv.ParseUint(cmp.Or(u.Port(), defaults[u.Scheme]), 10, 16)
	if err != nil || n == 0 || strings.HasSuffix(u.Host, ":") {
		return "", 0, want
	}
	return u.Hostname(), uint16(n), nil
}

// originOfRule finds where the rule stands that a verdict names.
func originOfRule(p *profiles.Policy, text string) profiles.Origin {
	if text != "" {
		for _, list := range [...][]profiles.NetRule{p.Network.Deny, p.Network.Allow, p.Network.Local} {
			for _, r := range list {
				if r.Text == text {
					return r.Origin
				}
			}
		}
	}
	return profiles.Origin{Source: "default", Key: "no rule allows it"}
}

func (a *answer) env(p *profiles.Policy, host *profiles.Host) {
	d := p.DecideEnvOf(a.subject, host.Getenv(a.subject))
	a.rule = d.Origin
	switch d.Action {
	case profiles.EnvPassed:
		a.yes, a.what = true, "the host's value is passed"
	case profiles.EnvSetTo:
		a.yes, a.what = true, "it is set to "+quote(d.Value)
	case profiles.EnvInjected:
		a.yes, a.what = true, "a placeholder; its value, from "+d.Value+", is sent only with requests to its hosts"
	default:
		a.what, a.hint = cmp.Or(d.Value, "it is not passed"), "--env "+shell.Quote(a.subject)+" passes it"
	}
	if !a.yes || d.Action == profiles.EnvPassed && host.Getenv(a.subject) == "" { // nothing comes from the host
		if value, what := explain.SurveyedEnv(p, host, a.subject); value != "" {
			a.yes, a.what, a.hint = true, "it is set to "+quote(value)+", "+what, ""
		}
	}
}
