//go:build !launcher

package main

import (
	"bytes"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/rogpeppe/go-internal/diff"

	"github.com/pccrun/pccrun/internal/messages"
	"github.com/pccrun/pccrun/internal/state"
	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/profiles/proposals"
	"github.com/pccrun/pccrun/run"
)

const learnUsage = `usage: pccrun learn [FLAGS] [--save] [--json] -- COMMAND [ARG…]

Runs a command as pccrun run does, under the same policy, and prints what was
denied with the flag that would allow it, and the smallest change to the profile
that would, as a diff for patch. Each line has the access that was tried, the
program and the count. FLAGS are the policy flags of pccrun run.

pccrun asks at the terminal before it proposes to show a secret or a home, to
allow a way out of the sandbox, or to allow a change to what the host executes.
Without a terminal these lines are commented out. Hosts have their ports and are
not resolved. Reads of environment variables cannot be observed: variables named
in the command or in a program that it executed are listed as comments.

The file is the one that --profile names by its path, else your profile of that
name in $XDG_CONFIG_HOME/pccrun/profiles, which is created if needed.

Standard output has only the diff; the output of the command goes to standard
error. The exit status is that of the command, or 125 if pccrun run would exit
with 125 or --save could not write.

  --save    show the change, ask, and write it to the profile
  --json    print the proposals as JSON
  -q        print errors only, and ask nothing

example: pccrun learn -- make test
         pccrun learn --profile claude --save -- claude -p "run the tests"
`

// learnOptions are the flags of learn that a run has not.
type learnOptions struct{ save bool }

// learnRequest reads the command line of learn; nil if there is nothing to do,
// with the status to exit with.
func learnRequest(args []string) (*profiles.Request, learnOptions, int) {
	var o learnOptions
	req := &profiles.Request{}
	defs := append(policyFlags(), jsonFlag(),
		flagDef{"--save", alone, "", "ask, and write the profile", func(*profiles.Request, string) error { o.save = true; return nil }},
		flagDef{"-q", alone, "", "print errors only", on(func(r *profiles.Request) *bool { return &r.Quiet })},
	)
	rest, dashes, err := parseFlags(defs, req, args)
	switch {
	case err != nil:
		return nil, o, failUsage(err)
	case !dashes && len(rest) > 0:
		return nil, o, fail("unexpected argument "+quote(rest[0]), "put -- before the command: pccrun learn -- "+rest[0]+" …")
	case len(rest) == 0:
		return nil, o, fail("no command", "put -- before the command: pccrun learn -- COMMAND")
	case rest[0] == "":
		return nil, o, fail("empty command name")
	}
	req.Command = rest
	req.Host = profiles.ThisHost()
	return req, o, 0
}

// supervised is how learn starts itself: the run is a process of its own, since
// a run that root began gives root up, and could not see any more what the host
// has.
const supervised = "--supervised"

func learnVerb(args []string) int {
	child := len(args) > 0 && args[0] == supervised
	if child {
		args = args[1:]
		os.Args = slices.Concat(os.Args[:2], args) // ps and the events say what the user typed
	}
	req, o, code := learnRequest(args)
	if req == nil {
		return code
	}
	if child {
		req.JSON, req.Learn, req.Events = false, true, "fd:3"
		return run.Run(*req, thisProgram())
	}
	tty := openTerminal(req.Quiet)
	if tty != nil {
		defer tty.Close()
	}
	if o.save && tty == nil {
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
	case seen.refused != nil: // it has said so itself
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
	l := &lesson{req: req, policy: policy, file: file, code: code, lost: seen.lost}
	list := proposals.Make(policy, seen.denials(req, policy), proposals.Machine{List: listFiles, Memory: req.Host.Memory, File: file.Path, Own: []string{dirs.State, dirs.Config, dirs.Cache}})
	if err := l.weigh(list, tty); err != nil {
		return failWith(err)
	}
	l.print()
	if o.save && l.text != file.Text {
		if err := l.save(tty); err != nil {
			failSession(err)
			return refused
		}
	}
	return code
}

// A lesson is what a run has taught of its policy.
type lesson struct {
	req    *profiles.Request
	policy *profiles.Policy
	file   *profiles.File
	code   int   // of the run
	lost   int64 // observations that there was no room for

	rows []row
	text string // the profile as it would be
}

// A row is a proposal and what became of it.
type row struct {
	proposals.Proposal
	state string // "proposed", "commented", "impossible"
}

// weigh asks about what needs it, and keeps of the rest what the functions that
// enforce then allow: another rule, or a flag, may still refuse it.
func (l *lesson) weigh(list []proposals.Proposal, tty *os.File) error {
	for _, p := range list {
		r := row{p, "proposed"}
		switch {
		case p.Never != "":
			r.state = "impossible"
		case p.Ask != "" && !yes(tty, l.question(p)):
			r.state = "commented"
		}
		l.rows = append(l.rows, r)
	}
	for {
		if err := l.amend(); err != nil {
			return err
		}
		again, err := l.check()
		if err != nil || !again {
			return err
		}
	}
}

func (l *lesson) question(p proposals.Proposal) string {
	what := p.Key
	if p.Value != "" {
		what += ": " + p.Value
	}
	return strings.Join(p.Keys, ".") + ": " + what + "? " + p.Ask + " (" + p.Reason + ")"
}

// amend writes the profile as it would be.
func (l *lesson) amend() error {
	var edits []profiles.Edit
	for _, r := range l.rows {
		e := r.Edit
		e.Comment = printable(r.Reason)
		switch r.state {
		case "commented":
			e.Off = true
			e.Comment += "; " + printable(r.Ask)
		case "impossible":
			continue
		}
		edits = append(edits, e)
	}
	l.text = l.file.Text
	if len(edits) == 0 {
		return nil
	}
	base := ""
	if l.file.New {
		base = l.policy.Profile
	}
	var err error
	l.text, err = profiles.Amend(l.file.Path, l.file.Text, base, edits)
	return err
}

// check resolves the policy as it would be, and asks `why` of each proposal.
// It reports whether one was taken back.
func (l *lesson) check() (again bool, err error) {
	if l.text == l.file.Text {
		return false, nil
	}
	req := *l.req
	req.Draft = &profiles.Draft{Path: l.file.Path, Text: l.text}
	policy, err := profiles.Resolve(req)
	if err != nil {
		return false, err
	}
	for i := range l.rows {
		r := &l.rows[i]
		if r.state != "proposed" {
			continue
		}
		a := answer{subject: r.What}
		switch r.Deed {
		case proposals.Read:
			a.question, err = "read", a.path(policy, &req.Host)
		case proposals.Write:
			a.question = "write"
			err = a.path(policy, &req.Host)
		case proposals.Socket:
			err = a.connect(policy, &req.Host)
		case proposals.Variable:
			a.env(policy, &l.req.Host)
		case proposals.Limit:
			n := limitIndex(r.What)
			a.yes = policy.Resources.Limit(n).Value > l.policy.Resources.Limit(n).Value
			a.rule = policy.Resources.Limit(n).Origin
		case proposals.Host:
			a.yes = holdsRule(policy, r.Keys[1], r.What)
			a.rule = profiles.Origin{Source: "default", Key: "another rule overrides it"}
		}
		if err != nil {
			return false, err
		}
		if !a.yes {
			r.state, r.Never, again = "impossible", "still denied by "+a.rule.String(), true
		}
	}
	return again, nil
}

func limitIndex(name string) int {
	for i, n := range profiles.LimitNames() {
		if n == name {
			return i
		}
	}
	return 0
}

// holdsRule reports whether a policy has a network rule, and no deny of all.
func holdsRule(p *profiles.Policy, list, text string) bool {
	from := p.Network.Allow
	if list == "local" {
		from = p.Network.Local
	}
	for _, r := range from {
		if r.Text == text {
			return true
		}
	}
	return false
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
		rows := []object{}
		for _, r := range l.rows {
			rows = append(rows, object{
				{"keys", r.Keys}, {"key", r.Key}, {"value", r.Value}, {"deed", r.Deed.String()}, {"what", r.What}, {"reason", r.Reason},
				{"state", r.state}, {"ask", r.Ask}, {"never", r.Never},
			})
		}
		printJSON(object{{"profile", l.policy.Profile}, {"file", l.file.Path}, {"new", l.file.New}, {"proposals", rows}, {"diff", l.diff()}, {"lost", l.lost}, {"code", l.code}})
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

// maxFlags bounds the refusals that are named with a flag: the diff has all.
const maxFlags = 20

// explain says what was refused, with the flag for it, what the diff is of, and what it cannot hold.
func (l *lesson) explain() {
	impossible, flags := 0, 0
	for _, r := range l.rows {
		text := r.Deed.String() + " " + r.What + ": "
		if r.state == "impossible" {
			impossible++
			say("learn: not proposed: " + text + r.Never)
		} else if flags++; flags <= maxFlags {
			if text += r.Reason; r.Ask != "" {
				text += "; " + r.Ask
			}
			say(messages.Allow("learn: "+text, r.Flag()))
		}
	}
	if l.lost > 0 {
		say("learn: " + strconv.FormatInt(l.lost, 10) + " more accesses were not recorded")
	}
	is := "changes:"
	if l.file.New {
		is = "is new:"
	}
	switch {
	case l.text == l.file.Text && impossible > 0:
		say("learn: no change to the profile " + l.policy.Profile + " would help")
	case l.text == l.file.Text:
		say("learn: the profile " + l.policy.Profile + " need not change")
	default:
		say("learn: " + l.file.Path + " " + is + " " + l.sum())
	}
}

// sum counts what the profile gains.
func (l *lesson) sum() string {
	counts := map[string]int{}
	for _, r := range l.rows {
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
	if err := writeProfile(l.req, l.policy, l.file, l.text); err != nil {
		return err
	}
	say("learn: written: " + l.file.Path + ", " + l.sum() + standsInPlace(l.policy, l.file))
	return nil
}
