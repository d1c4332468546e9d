//go:build !launcher

package main

import (
	"bytes"
	"cmp"
	"io"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/rogpeppe/go-internal/diff"

	"github.com/pccrun/pccrun/internal/events"
	"github.com/pccrun/pccrun/internal/messages"
	"github.com/pccrun/pccrun/internal/shell"
	"github.com/pccrun/pccrun/internal/state"
	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/run"
)

// learnRequest reads the command line of learn; nil if there is nothing to do,
// with the status to exit with.
func learnRequest(args []string) (req *profiles.Request, save bool, code int) {
	req = &profiles.Request{}
	own := flags{"--json": &req.JSON, "--save": &save, "-q": &req.Quiet}
	words, rest, _, err := parse(args, append(policyFlags(req), own.defs()...))
	switch {
	case len(words) > 0:
		return nil, false, fail("unexpected argument "+quote(words[0]), "put -- before the command: pccrun learn -- "+words[0]+" …")
	case err != nil:
		return nil, false, failUsage(err)
	case len(rest) == 0:
		return nil, false, fail("no command", "put -- before the command: pccrun learn -- COMMAND")
	case rest[0] == "":
		return nil, false, fail("empty command name")
	}
	req.Command = rest
	req.Host = profiles.ThisHost()
	return req, save, 0
}

func learnVerb(args []string) int {
	child := len(args) > 0 && args[0] == supervised
	if child {
		args = args[1:]
		os.Args = slices.Concat(os.Args[:2], args) // ps and the events say what the user typed
	}
	req, save, code := learnRequest(args)
	if req == nil {
		return code
	}
	if child {
		req.JSON, req.Learn, req.Report, req.Events = false, true, "attempts", "fd:3"
		return run.Run(*req, thisProgram())
	}
	var tty *os.File
	if save {
		if tty = openTerminal(req.Quiet); tty != nil {
			defer tty.Close()
		}
	}
	if save && tty == nil {
		return fail("flag --save: no terminal to ask at", "without it, pccrun prints a diff for patch")
	}
	policy, err := profiles.Resolve(*req)
	if err != nil {
		return failWith(err)
	}
	file, err := profiles.FileOf(*req, policy)
	if err != nil {
		return failWith(err)
	}
	seen, code, err := observe(args)
	if err != nil {
		return fail("learn: " + inWords(err))
	}
	switch {
	case seen.exit == nil:
		fail("learn: the run was interrupted before it reported anything")
		return code
	case seen.refused != nil: // it has printed that itself
		causes := strings.Split(seen.refused.Cause, "\n")
		for _, cause := range causes[1:] {
			messages.Note(cause, "")
		}
		messages.Note(causes[0], seen.refused.Hint)
		return code
	}
	dirs, err := state.Find(req.Host.Getenv, policy.Home)
	if err != nil {
		return fail(inWords(err))
	}
	l := &lesson{req: req, policy: policy, file: file, code: code, lost: seen.lost, list: gather(seen.denials), own: []string{dirs.State, dirs.Config, dirs.Cache}}
	for i := range l.list {
		l.change(&l.list[i])
	}
	if err := l.amend(); err != nil {
		return failWith(err)
	}
	l.print()
	if save && l.text != file.Text {
		if err := l.save(tty); err != nil {
			failSession(err)
			return refused
		}
	}
	return code
}

// seen is what the events of a run say.
type seen struct {
	denials []events.Denial
	exit    *events.Exit
	refused *events.Refused
	lost    int64
}

// add takes an event in.
func (s *seen) add(event events.Event) {
	switch e := event.(type) {
	case events.Denial:
		s.denials = append(s.denials, e)
	case events.Hidden:
		s.denials = append(s.denials, e.Denial())
	case events.Refused:
		s.refused = &e
	case events.Dropped:
		s.lost += e.Count
	case events.Exit:
		s.exit = &e
	}
}

// A refusal is something that the run was denied, with what of the profile would have to change.
type refusal struct {
	events.Denial
	times int64
	state string // "proposed", "commented", "impossible"
	why   string // why it is not proposed; "" where no flag is known either

	edits []profiles.Edit
}

// gather returns what was denied, each once. What the host does not have is left out: a run that root
// began cannot see that itself. A name that was looked up is left out where its port is known.
func gather(denials []events.Denial) (list []refusal) {
	index := map[events.Denial]int{}
	for _, d := range denials {
		deed, subject, _ := strings.Cut(d.What, " ")
		isConnect := func(o events.Denial) bool { return strings.HasPrefix(o.What, "connect "+subject+":") }
		i, known := index[d]
		switch {
		case known:
			list[i].times++
		case deed == "resolve" && slices.ContainsFunc(denials, isConnect), d.Guarantee == string(profiles.FSHide) && isMissing(deed, subject):
		default:
			index[d] = len(list)
			list = append(list, refusal{Denial: d, times: 1})
		}
	}
	return list
}

// isMissing reports whether the host does not have a path, and, for a write, not its directory either.
func isMissing(deed, name string) bool {
	_, err := os.Lstat(name)
	if err != nil && deed == "write" {
		_, err = os.Lstat(path.Dir(name))
	}
	return err != nil && !strings.Contains(name, replaced)
}

// replaced stands in events for a byte that is no UTF-8 (RFC 8259).
const replaced = "\ufffd"

// A lesson is what a run has taught of its policy.
type lesson struct {
	req    *profiles.Request
	policy *profiles.Policy
	file   *profiles.File
	own    []string // pccrun's own directories
	code   int      // of the run
	lost   int64    // events that there was no room for

	list []refusal
	text string // the profile as it would be
}

// change finds what of the profile would allow a refusal: what its flags say.
func (l *lesson) change(r *refusal) {
	r.state = "impossible"
	deed, subject, _ := strings.Cut(r.What, " ")
	decided := l.policy.Decide(subject)
	if _, err := os.Lstat(subject); err != nil && deed == "write" && r.Guarantee == string(profiles.FSHide) && r.Hint != "" {
		r.Hint = l.policy.MakeFlag(subject, true) // a run that root began could not see that it is missing
	}
	before, flags := flagsOf(r.Hint)
	switch {
	case strings.HasPrefix(r.Guarantee, "fs.") && l.isOwn(subject):
		r.why = "it belongs to pccrun"
		return
	case strings.HasPrefix(r.Guarantee, "fs.") && slices.ContainsFunc(profiles.SearchedPlaces(), func(name string) bool { return strings.HasPrefix(subject+"/", l.policy.Home+"/"+name+"/") }):
		r.why = "secrets are kept in it"
		return
	case r.Guarantee == string(profiles.FSHide) && r.Hint == "" && decided.Rule.Origin.Source == "flag":
		r.why = "the flag " + decided.Rule.Origin.Key + " hides it"
		return
	case r.Guarantee == string(profiles.FSHide) && (r.Hint == "" || hasOtherNames(subject)): // a run that root began could not see that
		r.why = "it may hold secrets"
		return
	case flags == nil:
		return
	}
	if r.edits = l.edits(flags); r.edits == nil {
		return
	}
	r.state = "proposed"
	for _, e := range r.edits {
		switch {
		case !profiles.Printable(e.Key) || strings.Contains(e.Key, replaced):
			r.why = "its name cannot be written in a profile"
		case e.Keys[0] != "filesystem":
		case strings.ContainsAny(e.Key, "*?["):
			r.why = "in a profile its name would be a pattern"
		case l.isOwn(l.expand(e.Key)):
			r.why = "it belongs to pccrun"
		}
	}
	if r.why != "" {
		r.state, r.edits = "impossible", nil
		return
	}
	if before != "" {
		r.why = "before the run: " + before
	}
	for _, e := range r.edits {
		r.why = cmp.Or(r.why, l.caution(&e))
	}
	if r.why != "" {
		r.state = "commented"
	}
}

// isOwn reports whether a path is in a directory of pccrun's.
func (l *lesson) isOwn(name string) bool {
	return slices.ContainsFunc(l.own, func(dir string) bool { return strings.HasPrefix(name+"/", dir+"/") })
}

// flagsOf reads a hint that names flags, and what is to be done before they are given: as in
// "touch x and --write x". Of flags "in place of" others the first count. Nil where it names none.
func flagsOf(hint string) (before string, flags *profiles.Request) {
	words, ok := shell.Words(hint)
	begin := slices.IndexFunc(words, func(w string) bool { return strings.HasPrefix(w, "--") })
	if !ok || begin < 0 {
		return "", nil
	}
	if begin > 0 {
		if words[begin-1] != "and" {
			return "", nil
		}
		before, _, _ = strings.Cut(hint, " and --")
	}
	words = words[begin:]
	for i := range words {
		if i+2 < len(words) && words[i] == "in" && words[i+1] == "place" && words[i+2] == "of" {
			words = words[:i]
			break
		}
	}
	flags = &profiles.Request{}
	if more, rest, _, err := parse(words, policyFlags(flags)); err != nil || len(more)+len(rest) > 0 {
		return "", nil
	}
	return before, flags
}

// sections are the sections of a profile that flags of hints go into, in their order.
var sections = []string{"filesystem", "protect.review", "network.allow", "network.local", "network.sockets"}

// edits are the entries of a profile that say what flags do.
func (l *lesson) edits(flags *profiles.Request) (list []profiles.Edit) {
	for _, f := range flags.Files {
		list = append(list, profiles.Edit{Keys: []string{"filesystem"}, Key: l.spell(f.Path), Value: f.Access.String()})
	}
	for i, socket := range flags.Sockets {
		flags.Sockets[i] = l.spell(socket)
	}
	for i, items := range [...][]string{flags.Review, flags.Allow, flags.Local, flags.Sockets} {
		for _, item := range items {
			list = append(list, profiles.Edit{Keys: strings.Split(sections[1+i], "."), Key: item})
		}
	}
	return list
}

// spell writes a path of a flag as a profile does: absolute, or below ~ where it is in the home. Where
// the profile has a rule for it already, it is spelled as there.
func (l *lesson) spell(name string) string {
	if !path.IsAbs(name) {
		name = path.Join(l.policy.WorkDir, name)
	}
	if rule := l.policy.Decide(name).Rule; rule.Origin.Source == l.file.Path && rule.Path == name && rule.Glob == "" {
		if key, err := strconv.Unquote(strings.TrimPrefix(rule.Origin.Key, "filesystem.")); err == nil {
			return key
		}
	}
	if rest, in := strings.CutPrefix(name, l.policy.Home+"/"); in {
		return "~/" + rest
	}
	return name
}

// expand is the path that a profile spells so.
func (l *lesson) expand(key string) string {
	if rest, in := strings.CutPrefix(key, "~/"); in {
		return path.Join(l.policy.Home, rest)
	}
	if !path.IsAbs(key) {
		return path.Join(l.policy.Workspace, key)
	}
	return key
}

// caution says why an entry is not for every run without a thought; "" if it is.
func (l *lesson) caution(e *profiles.Edit) string {
	p := l.policy
	switch e.Keys[len(e.Keys)-1] {
	case "review":
		return "a host tool would execute it later"
	case "local", "sockets":
		return "a service of this machine, which may trust every client"
	case "allow":
		if strings.HasPrefix(e.Key, "private ") {
			return "it is in your own network"
		}
	case "filesystem":
		name := l.expand(e.Key)
		below := func(dir string) bool { return name == dir || strings.HasPrefix(name, dir+"/") }
		if end := resolveLinks(name); end != name && l.req.Host.UID == 0 {
			return "it leads to " + end // a run that root began could not see whether secrets are there
		}
		if d := p.Decide(name); d.Access == profiles.Hide && d.Rule.Origin.Source != "default" {
			return "the rule " + d.Rule.Text() + " hides it"
		}
		if slices.ContainsFunc(p.Homes, below) && !below(p.Home) && !below(p.Workspace) {
			return "it is in somebody else's home"
		}
		if e.Value == "read" || below(p.Workspace) {
			return ""
		}
		if slices.ContainsFunc([]string{"/bin", "/boot", "/etc", "/lib", "/lib64", "/opt", "/sbin", "/usr"}, below) {
			return "it belongs to the system"
		}
		if below(p.Home+"/bin") || below(p.Home+"/go/bin") || strings.HasPrefix(name, p.Home+"/.") {
			return "programs of the host use it"
		}
	}
	return ""
}

// amend writes the profile as it would be, and takes back what its rules would not allow even then.
func (l *lesson) amend() error {
	for again := true; again; {
		again = false
		l.text = l.file.Text
		edits := l.merged()
		if len(edits) == 0 {
			return nil
		}
		var after *profiles.Policy
		var err error
		if l.text, after, err = amended(*l.req, l.policy, l.file, edits); err != nil {
			return err
		}
		for i := range l.list {
			r := &l.list[i]
			for _, e := range r.edits {
				if r.state == "proposed" && !l.allows(after, &e) {
					r.state, r.why, again = "impossible", "another rule, or a flag, denies it", true
				}
			}
		}
	}
	return nil
}

// merged returns the edits of all refusals in the order of a profile, of those for one path the one that gives
// most. What is in a directory that is shown needs no entry of its own.
func (l *lesson) merged() (list []profiles.Edit) {
	for _, r := range l.list {
		for _, e := range r.edits {
			if r.state == "impossible" {
				continue
			}
			if e.Comment = printable(r.What); r.state == "commented" {
				e.Off = true
				e.Comment += "; " + printable(r.why)
			}
			same := func(o profiles.Edit) bool {
				return o.Key == e.Key && o.Off == e.Off && slices.Equal(o.Keys, e.Keys)
			}
			if i := slices.IndexFunc(list, same); i < 0 {
				list = append(list, e)
			} else if e.Value == "write" {
				list[i] = e
			}
		}
	}
	slices.SortStableFunc(list, func(a, b profiles.Edit) int {
		section := func(e profiles.Edit) int { return slices.Index(sections, strings.Join(e.Keys, ".")) }
		return cmp.Or(section(a)-section(b), strings.Compare(a.Key, b.Key))
	})
	return slices.DeleteFunc(slices.Clone(list), func(e profiles.Edit) bool {
		return e.Value == "read" && slices.ContainsFunc(list, func(o profiles.Edit) bool { return o.Off == e.Off && strings.HasPrefix(e.Key, o.Key+"/") })
	})
}

// allows reports whether a policy allows what an entry is for.
func (l *lesson) allows(p *profiles.Policy, e *profiles.Edit) bool {
	switch e.Keys[len(e.Keys)-1] {
	case "filesystem":
		want, err := profiles.ParseAccess(e.Value)
		return err == nil && p.Decide(l.expand(e.Key)).Access >= want
	case "allow", "local":
		return holdsRule(p, e.Keys[1], e.Key)
	}
	return true
}

// diff is the change, for people and for patch(1).
func (l *lesson) diff() string {
	if l.text == l.file.Text {
		return ""
	}
	old := l.file.Path
	if l.file.New {
		old = "/dev/null"
	}
	text := diff.Diff(old, []byte(l.file.Text), l.file.Path, []byte(l.text))
	_, text, _ = bytes.Cut(text, []byte("\n"))
	return string(text)
}

func (l *lesson) print() {
	if l.req.JSON {
		rows := each(l.list, func(r refusal) object {
			edits := each(r.edits, func(e profiles.Edit) object { return object{{"keys", e.Keys}, {"key", e.Key}, {"value", e.Value}} })
			return object{
				{"guarantee", r.Guarantee}, {"what", r.What}, {"rule", r.Rule}, {"hint", r.Hint}, {"times", r.times}, {"state", r.state}, {"why", r.why}, {"edits", edits},
			}
		})
		printJSON(object{{"profile", l.policy.Profile}, {"file", l.file.Path}, {"new", l.file.New}, {"refusals", rows}, {"diff", l.diff()}, {"lost", l.lost}, {"code", l.code}})
		return
	}
	if !l.req.Quiet {
		l.explain()
	}
	if isTerminal(os.Stdout) {
		printf("%s", l.diff())
		return
	}
	io.WriteString(stdout, l.diff()) // to the byte: patch(1) finds the lines of a profile that has others than ours
}

// maxPrinted bounds the refusals that are printed: --json has all.
const maxPrinted = 64

// explain prints what was refused, what of it the diff leaves out, and which file the diff is of.
func (l *lesson) explain() {
	for i, r := range l.list {
		if i == maxPrinted {
			say("learn: " + strconv.Itoa(len(l.list)-i) + " more refusals, see pccrun logs --denied")
			break
		}
		if !run.PrintedApart(r.Denial) {
			say(run.DeniedText(r.Denial, r.times))
		}
		if r.state == "impossible" && r.why != "" {
			say("learn: not proposed: " + r.What + ": " + r.why)
		}
	}
	if l.lost > 0 {
		say("learn: " + strconv.FormatInt(l.lost, 10) + " more refusals were not recorded")
	}
	is := "changes:"
	if l.file.New {
		is = "is new:"
	}
	switch {
	case l.text == l.file.Text && len(l.list) > 0:
		say("learn: no change to the profile " + l.policy.Profile + " is proposed")
	case l.text == l.file.Text:
		say("learn: the profile " + l.policy.Profile + " need not change")
	default:
		say("learn: " + l.file.Path + " " + is + " " + l.sum())
	}
}

// sum counts what the profile gains.
func (l *lesson) sum() string {
	counts := map[string]int{}
	for _, r := range l.list {
		counts[r.state]++
	}
	return strconv.Itoa(counts["proposed"]) + " proposed, " + strconv.Itoa(counts["commented"]) + " commented out"
}

// save asks, and writes the profile, whole or not at all.
func (l *lesson) save(tty *os.File) error {
	if l.req.JSON {
		os.Stderr.WriteString(plain(l.diff(), "\n\t"))
	}
	if !yes(tty, "write "+l.file.Path+"?") {
		say("learn: nothing was written")
		return nil
	}
	if err := l.file.Write(*l.req, l.policy, l.text); err != nil {
		return err
	}
	say("learn: written: " + l.file.Path + ", " + l.sum() + standsInPlace(l.policy, l.file))
	return nil
}
