// Package messages is what pccrun says on standard error, and how a verb's result gets to
// standard output.
//
// It promises that nothing that a hostile name or file brings in acts on a terminal, that
// each message is a line of its own, and that a run that has to end does not wait for a reader.
//
// # Glossary
//
// One word for one thing, in messages, names and pages; test/rules knows what is not said:
//
//   - inside, host: in the sandbox; the machine around it
//   - launcher: the process outside that starts and follows a run
//   - child: the launcher's forked process, which becomes pid 1 inside
//   - provider: what runs a command for a policy
//   - engine: a container engine that a provider uses
//   - guarantee: a named promise: *required* or *wanted* by a policy, *kept*, *weak* or *missing* here
//   - denied: refused by the policy, and reported
//   - protected: a name that a host tool would execute, which the command cannot change
//   - quarantine: where a protected name that appeared is moved, out of the workspace
//   - finding: one thing in quarantine
//   - stub: the empty directory that the host has in place of one in quarantine
//   - changed: a name for review that is not what it was
//   - post-run check: looks for findings and changes when a run's processes are dead
//   - unfinished-run record: what a killed run still has to have checked
//   - remount watcher: mounts hidden and protected files again that the host replaced
//   - change set: what a run changed in an overlay or a copy: `diff`, `apply`, `discard`
//   - persistent home: the home that a profile has for one workspace
//   - seed: a file of the user's that is copied into a persistent home
//   - session: the directory and record of one run
package messages

import (
	"fmt"
	"io"
	"io/fs"
	"os"
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

// Refused is the exit status of whatever stopped pccrun before the command ran.
const Refused = 125

// Say prints one line. Control characters, which a path or a file of the
// workspace may bring in, are shown as escapes: they would act on the terminal.
func Say(text string) {
	line := "pccrun: " + Printable(text) + "\n"
	if !hurried.Load() {
		os.Stderr.WriteString(line)
		return
	}
	if unread.Load() {
		return
	}
	written := make(chan struct{})
	go func() {
		os.Stderr.WriteString(line)
		close(written)
	}()
	select {
	case <-written:
	case <-time.After(time.Second):
		unread.Store(true)
	}
}

// hurried is set by [Hurry]. unread is set when a line could then not be written within a second: a reader of standard
// error that takes nothing is not waited for again.
var hurried, unread atomic.Bool

// Fail prints an error and its hints, and returns the status to exit with.
func Fail(text string, hints ...string) int {
	Say(text)
	var given []string
	for _, hint := range hints {
		if hint != "" {
			Say("hint: " + hint)
			given = append(given, hint)
		}
	}
	Note(text, strings.Join(given, "; "))
	return Refused
}

// Allow is a refusal with the flags that would allow it, if there are any.
func Allow(text, flags string) string {
	if flags == "" {
		return text
	}
	return text + " (to allow: " + flags + ")"
}

// Within is a path as it is printed: one in the workspace by its name there.
func Within(workspace, path string) string { return strings.TrimPrefix(path, workspace+"/") }

// Few is a list in a sentence: the first of it, and how many there are more.
func Few(list []string, most int) string {
	text := strings.Join(list[:min(len(list), most)], ", ")
	if more := len(list) - most; more > 0 {
		text += " and " + strconv.Itoa(more) + " more"
	}
	return text
}

// Note adds to the mistakes one that is not printed.
func Note(text, hint string) { Mistakes = append(Mistakes, Mistake{text, hint}) }

// InWords is what an error says, on one line: what [errors.Join] puts on lines of their
// own stands one behind the other.
func InWords(err error) string {
	text := err.Error()
	switch e := err.(type) {
	case interface{ Unwrap() []error }:
		var lines, words []string
		for _, part := range e.Unwrap() {
			lines, words = append(lines, part.Error()), append(words, InWords(part))
		}
		if text == strings.Join(lines, "\n") {
			return strings.Join(words, "; ")
		}
		for i := range lines {
			text = strings.Replace(text, lines[i], words[i], 1)
		}
	case interface{ Unwrap() error }:
		if inner := e.Unwrap(); inner != nil {
			text = strings.Replace(text, inner.Error(), InWords(inner), 1)
		}
	}
	return text
}

// A Mistake is what went wrong, for who asked for JSON.
type Mistake struct{ Text, Hint string }

// Mistakes are those that [Fail] has printed.
var Mistakes []Mistake

// SchemaVersion is the "v" of everything that --json prints, except events, which have
// their own.
const SchemaVersion = 1

// A UsageError is a mistake in the command line, with its hint.
type UsageError struct{ Text, Hint string }

func (e *UsageError) Error() string { return e.Text }

// FailUsage prints a mistake in the command line, or all that an error names.
func FailUsage(err error) int {
	if u, ok := err.(*UsageError); ok {
		return Fail(u.Text, u.Hint)
	}
	return FailWith(err)
}

// FailWith prints all mistakes that an error names.
func FailWith(err error) int {
	for _, mistake := range profiles.Mistakes(err) {
		Fail(InWords(mistake), profiles.Hint(mistake))
	}
	return Refused
}

// patience is how long something may take before [Slow] says what: in a file or a pipe, and at a terminal.
var patience = [...]time.Duration{10 * time.Second, 2 * time.Second}

// Slow says once what takes so long; nothing if the function that it returns is called before.
func Slow(text string) (done func()) {
	wait := patience[0]
	if IsTerminal(os.Stderr) {
		wait = patience[1]
	}
	t := time.AfterFunc(wait, func() { Say(text + " …") })
	return func() { t.Stop() }
}

// Printable escapes what is not plain text.
func Printable(s string) string {
	return PrintableExcept(s, "")
}

// PrintableExcept escapes what is not plain text, but for some characters. A byte that
// is no UTF-8 is not plain either: terminals take some for controls.
func PrintableExcept(s, but string) string {
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

// Printf prints a verb's result, which names of a hostile workspace may be part of.
func Printf(format string, args ...any) {
	io.WriteString(Stdout, PrintableExcept(fmt.Sprintf(format, args...), "\n\t"))
}

// Stdout is standard output. It remembers the first error: a verb whose result
// is cut short by a full disk has not succeeded.
var Stdout = new(Output)

// Output is [Stdout].
type Output struct {
	Wrote bool
	Err   error
}

// Write writes, and remembers the first error.
func (o *Output) Write(b []byte) (int, error) {
	o.Wrote = true
	n, err := os.Stdout.Write(b)
	if o.Err == nil {
		o.Err = err
	}
	return n, err
}

// PrintableLine escapes what is not plain text, but for tabs.
func PrintableLine(s string) string {
	return PrintableExcept(s, "\t")
}

// IsTerminal reports whether what is written there is seen by a person.
func IsTerminal(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Mode()&fs.ModeCharDevice != 0
}

// Hurry is for a run that has to end, as by --timeout: from now on [Say] does not wait for a reader of standard error.
func Hurry() { hurried.Store(true) }
