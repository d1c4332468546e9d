//go:build !launcher

package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/pccrun/pccrun/internal/events"
	"github.com/pccrun/pccrun/internal/hint"
	"github.com/pccrun/pccrun/internal/sessions"
	"github.com/pccrun/pccrun/internal/state"
	"github.com/pccrun/pccrun/internal/terminal"
)

// logsOptions is what logs was asked for.
type logsOptions struct {
	follow, output, json, net, denied, each bool

	tail int // -1: all
	save string
}

func logsVerb(args []string) int {
	o := logsOptions{tail: -1}
	tail := func(text string) error {
		n, err := strconv.ParseUint(text, 10, 31)
		if o.tail = int(n); err != nil {
			return errors.New(quote(text) + " is no number of lines")
		}
		return nil
	}
	words, err := options(args, flags{"--follow": &o.follow, "-f": &o.follow, "--output": &o.output, "--json": &o.json, "--net": &o.net, "--denied": &o.denied, "--each": &o.each, "--save": &o.save, "--tail": tail, "-n": tail})
	sums := o.net && !o.each && !o.json
	switch {
	case err != nil:
	case o.output && (o.json || o.net || o.denied):
		err = misuse("flag --output: what the command printed has no events", "leave out --json, --net and --denied")
	case o.each && !o.net:
		err = misuse("flag --each: goes with --net", "")
	case sums && (o.follow || o.tail >= 0 || o.save != ""):
		err = misuse("flag --net: prints sums", "--net --each prints each decision on a line")
	}
	if err != nil {
		return failSession(err)
	}
	home, e, err := findSession(words, anySession, errNotHere)
	if errors.Is(err, errNotHere) && o.denied {
		err = hint.Errorf(unrecorded, "no refusal in this workspace was recorded")
	}
	if err != nil {
		return failSession(err)
	}
	if o.net || o.denied {
		switch quiet := home.RanSince(e); {
		case len(words) > 0:
		case quiet && !o.json:
			say("the last run here was refused nothing that is recorded; of the one before: pccrun logs " + e.ID + o.filters())
			if o.denied {
				say("hint: " + unrecorded)
			}
			fallthrough
		case quiet:
			return 0
		case !o.json:
			say("session " + e.ID + " in " + e.Workspace + ": " + commandLine(e.Argv))
		}
	}
	if sums {
		err = netTable(home, e, o.denied)
	} else {
		err = showLogs(home, e, o)
	}
	if err != nil {
		return failSession(err)
	}
	return 0
}

// unrecorded says what no record has: a hidden file leaves no trace of who opened it, nor does a read-only one.
const unrecorded = "reads of hidden files, and writes without --report attempts, leave no record: pccrun learn -- COMMAND names each, with its flag"

// filters are the flags that choose among the events.
func (o *logsOptions) filters() (text string) {
	if o.net {
		text = " --net"
	}
	if o.denied {
		text += " --denied"
	}
	return text
}

// line says an event in one line: "" for one that was not asked for.
func (o *logsOptions) line(r events.Record) string {
	switch e := r.Event.(type) {
	case events.Denial:
		if o.denied && !o.net {
			return clock(r.Time) + denialText(e)
		}
	case events.Hidden:
		if o.denied && !o.net && strings.HasPrefix(e.What, "connect ") { // the rest may be named by a word alone
			return clock(r.Time) + denialText(e.Denial())
		}
	case events.NetDecision:
		if o.net && !(o.denied && e.Allowed) {
			return clock(r.Time) + netText(e)
		}
	case events.NetClosed:
		if o.net && !o.denied {
			return clock(r.Time) + closedText(e)
		}
	}
	if o.net || o.denied {
		return ""
	}
	return describe(r)
}

// showLogs prints what there is, then what comes.
func showLogs(home sessions.Home, e sessions.Entry, o logsOptions) (result error) {
	out, shown := io.Writer(stdout), isTerminal(os.Stdout)
	if o.save != "" {
		// Not over something: a log is no reason to lose a file.
		f, err := os.OpenFile(o.save, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			return err
		}
		defer func() { result = errors.Join(result, f.Close()) }()
		out, shown = f, isTerminal(f)
	}
	var next func(print func([]byte)) error
	var err error
	if o.output {
		next, err = outputLines(home, e, shown)
	} else {
		next, err = eventLines(home, e, o)
	}
	if err != nil {
		return err
	}
	watch := func() bool { return false }
	if o.follow && e.State == sessions.Running {
		f, err := home.Follow(e)
		if err != nil {
			return err
		}
		defer f.Close()
		watch = f.Wait
	}
	var werr error
	print := func(b []byte) {
		if werr == nil {
			_, werr = out.Write(b)
		}
	}
	var last [][]byte
	first := print
	if o.tail >= 0 {
		first = func(line []byte) {
			last = append(last, bytes.Clone(line))
			last = last[max(0, len(last)-o.tail):]
		}
	}
	if err := next(first); err != nil {
		return err
	}
	for _, line := range last {
		print(line)
	}
	for more := true; more && werr == nil; {
		more = watch()
		if err := next(print); err != nil {
			return err
		}
	}
	if o.save == "" {
		return nil // standard output remembers it
	}
	return werr
}

// eventLines returns a function that prints the events that are new since it
// was last called. The file may come into being later.
func eventLines(home sessions.Home, e sessions.Entry, o logsOptions) (func(func([]byte)) error, error) {
	dir, err := home.Open(e.ID)
	if err != nil {
		return nil, err
	}
	var r *events.Reader
	return func(print func([]byte)) error {
		if r == nil {
			f, err := state.OpenFile(dir, sessions.EventsName)
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			if err != nil {
				return err
			}
			r = events.NewReader(f)
		}
		return drainEvents(r, func(record events.Record) {
			switch line := o.line(record); {
			case line == "":
			case o.json:
				print(append(record.Line, '\n'))
			default:
				print([]byte(line + "\n"))
			}
		})
	}, nil
}

// outputLines is eventLines for what the command printed.
func outputLines(home sessions.Home, e sessions.Entry, shown bool) (func(func([]byte)) error, error) {
	dir, err := home.Open(e.ID)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	f, err := state.OpenFile(dir, sessions.LogName)
	if errors.Is(err, fs.ErrNotExist) {
		f, err = state.OpenFile(dir, sessions.ScreenName)
	}
	switch {
	case errors.Is(err, fs.ErrNotExist) && e.Detached() && e.State == sessions.Running:
		return nil, hint.Errorf("pccrun attach "+e.ID, "session %s: its output is kept when it ends", e.ID)
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("session %s: its output was not saved", e.ID)
	}
	if err != nil {
		return nil, err
	}
	r := bufio.NewReaderSize(f, 64<<10)
	filter := terminal.Filter{Answered: true}
	return func(print func([]byte)) error {
		for {
			line, err := r.ReadSlice('\n')
			if shown {
				line = filter.Filter(line)
			}
			if len(line) > 0 {
				print(line)
			}
			switch {
			case err == io.EOF:
				if b := filter.Reset(); shown && len(b) > 0 {
					print(b)
				}
				return nil
			case err != nil && err != bufio.ErrBufferFull:
				return err
			}
		}
	}, nil
}

// clock says when an event was, in UTC, as dates in the ids of sessions are; with
// the date, unless that is today's.
func clock(t time.Time) string {
	t = t.UTC()
	if layout := time.DateOnly; t.Format(layout) != time.Now().UTC().Format(layout) {
		return t.Format("2006-01-02 15:04:05.000")
	}
	return t.Format("15:04:05.000")
}

// describe says an event in one line.
func describe(r events.Record) string {
	line := clock(r.Time) + " " + printable(string(r.Type))
	add := func(label, value string) {
		if value != "" {
			line += " " + label + printable(value)
		}
	}
	switch e := r.Event.(type) {
	case nil: // of a later version
	case events.Start:
		add("", commandLine(e.Argv))
		add("profile=", e.Profile)
		add("workspace=", e.Workspace)
	case events.Plan:
		count := map[string]int{}
		for _, g := range e.Guarantees {
			count[g.State]++
		}
		line += fmt.Sprintf(" %d kept, %d weak, %d missing", count["kept"], count["weak"], count["missing"])
	case events.Warning:
		add("", e.Text)
	case events.Refused:
		add("", e.Guarantee)
		add("", e.Cause)
	case events.Denial:
		line += denialText(e)
	case events.Hidden:
		add("", e.What)
		add("by ", e.Rule)
		add("to allow: ", e.Hint)
	case events.NetDecision:
		line += netText(e)
	case events.NetClosed:
		line += closedText(e)
	case events.OOM:
		line += fmt.Sprintf(" limit=%d kills=%d", e.Limit, e.Kills)
	case events.Timeout:
		line += fmt.Sprintf(" after %d ms", e.AfterMS)
	case events.Changed:
		line += " " + changedText(e)
	case events.Exec:
		line += fmt.Sprintf(" %d: %s", e.Number, commandLine(e.Argv))
	case events.ExecEnd:
		line += fmt.Sprintf(" %d: code=%d wall=%dms", e.Number, e.Code, e.WallMS)
		add("", e.Error)
	case events.Dropped:
		line += fmt.Sprintf(" %d events", e.Count)
	case events.Exit:
		line += fmt.Sprintf(" code=%d wall=%dms cpu=%dms memory=%d denials=%d", e.Code, e.WallMS, e.UserMS+e.SystemMS, e.MaxMemory, e.Denials)
		add("signal=", e.Signal)
	}
	return line
}
