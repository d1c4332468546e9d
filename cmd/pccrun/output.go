package main

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/pccrun/pccrun/profiles"
)

// What pccrun says goes to standard error, one line each: "pccrun: …" for what
// happened, "pccrun: hint: …" for what mends it. Lower case, no full stop.
// Standard output is the command's, or a verb's result.

// refused is the exit status of whatever stopped pccrun before the command ran.
const refused = 125

// say prints one line. Control characters, which a path or a file of the
// workspace may bring in, are shown as escapes: they would act on the terminal.
func say(text string) {
	line := "pccrun: " + printable(text) + "\n"
	if !hasty.Load() {
		os.Stderr.WriteString(line)
		return
	}
	if deaf.Load() {
		return
	}
	said := make(chan struct{})
	go func() {
		os.Stderr.WriteString(line)
		close(said)
	}()
	select {
	case <-said:
	case <-time.After(hearing):
		deaf.Store(true)
	}
}

// hasty is set when somebody wants the end, as by --timeout, and so does not wait for who
// reads what is said; deaf, when that one has taken nothing for as long as hearing.
var hasty, deaf atomic.Bool

const hearing = time.Second

// fail prints an error and its hints, and returns the status to exit with.
func fail(text string, hints ...string) int {
	say(text)
	var given []string
	for _, hint := range hints {
		if hint != "" {
			say("hint: " + hint)
			given = append(given, hint)
		}
	}
	mistake(text, strings.Join(given, "; "))
	return refused
}

// inWords is what an error says, on one line: what [errors.Join] puts on lines of their
// own stands one behind the other.
func inWords(err error) string {
	text := err.Error()
	switch e := err.(type) {
	case interface{ Unwrap() []error }:
		var lines, words []string
		for _, part := range e.Unwrap() {
			lines, words = append(lines, part.Error()), append(words, inWords(part))
		}
		if text == strings.Join(lines, "\n") {
			return strings.Join(words, "; ")
		}
		for i := range lines {
			text = strings.Replace(text, lines[i], words[i], 1)
		}
	case interface{ Unwrap() error }:
		if inner := e.Unwrap(); inner != nil {
			text = strings.Replace(text, inner.Error(), inWords(inner), 1)
		}
	}
	return text
}

// mistakes are what went wrong, for who asked for JSON.
var mistakes []object

func mistake(text, hint string) {
	mistakes = append(mistakes, object{{"text", text}, {"hint", hint}})
}

// wantsObject reports whether a command line asks for one JSON object on standard
// output: not where each line is one, and not where the output is a command's.
func wantsObject(args []string) bool {
	if i := slices.Index(args, "--"); i >= 0 {
		args = args[:i]
	}
	if !slices.Contains(args, "--json") {
		return false
	}
	switch args[0] {
	case "logs", "net", "denials", "escape":
		return false
	}
	if args[0] == "run" || strings.HasPrefix(args[0], "-") {
		return slices.Contains(args, "--dry-run")
	}
	return !slices.Contains(args, supervised)
}

// failWith prints all mistakes that an error names.
func failWith(err error) int {
	for _, mistake := range profiles.Mistakes(err) {
		fail(inWords(mistake), profiles.Hint(mistake))
	}
	return refused
}

// patience is how long a verb may be silent before a person wonders.
const patience = 2 * time.Second

// slow says once, at a terminal, what takes so long; nothing if the function
// that it returns is called before.
func slow(text string) (done func()) {
	if !isTerminal(os.Stderr) {
		return func() {}
	}
	t := time.AfterFunc(patience, func() { say(text + " …") })
	return func() { t.Stop() }
}

func quote(s string) string { return strconv.Quote(s) }

// printable escapes what is not plain text.
func printable(s string) string {
	return plain(s, "")
}

// plain escapes what is not plain text, but for some characters. A byte that
// is no UTF-8 is not plain either: terminals take some for controls.
func plain(s, but string) string {
	is := func(r rune) bool { return strconv.IsPrint(r) || strings.ContainsRune(but, r) }
	if utf8.ValidString(s) && strings.IndexFunc(s, func(r rune) bool { return !is(r) }) < 0 {
		return s
	}
	var b strings.Builder
	for len(s) > 0 {
		r, n := utf8.DecodeRuneInString(s)
		switch {
		case r == utf8.RuneError && n == 1:
			fmt.Fprintf(&b, `\x%02x`, s[0])
		case is(r):
			b.WriteRune(r)
		default:
			q := strconv.QuoteRune(r)
			b.WriteString(q[1 : len(q)-1])
		}
		s = s[n:]
	}
	return b.String()
}

// printf prints a verb's result, which names of a hostile workspace may be part of.
func printf(format string, args ...any) {
	io.WriteString(stdout, plain(fmt.Sprintf(format, args...), "\n\t"))
}

// stdout is standard output. It remembers the first error: a verb whose result
// is cut short by a full disk has not succeeded.
var stdout = new(output)

type output struct {
	wrote bool
	err   error
}

func (o *output) Write(b []byte) (int, error) {
	o.wrote = true
	n, err := os.Stdout.Write(b)
	if o.err == nil {
		o.err = err
	}
	return n, err
}

// finish is the status to exit with, once a verb's result is written. Who asked for
// an object gets one: where there is no result, what went wrong.
func (o *output) finish(args []string, code int) int {
	if code != 0 && !o.wrote && len(mistakes) > 0 && wantsObject(args) {
		printJSON(object{{"errors", mistakes}})
	}
	if o.err != nil && code != refused {
		return fail(o.err.Error())
	}
	return code
}

// printableLine escapes what is not plain text, but for tabs.
func printableLine(s string) string {
	return plain(s, "\t")
}
