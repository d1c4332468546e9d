package main

import (
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/pccrun/pccrun/internal/messages"
)

// What a verb says and prints goes by package messages.

const refused = messages.Refused

// supervised is how learn starts itself: the run is a process of its own, since
// a run that root began gives root up, and could not see any more what the host
// has.
const supervised = "--supervised"

func say(text string)                       { messages.Say(text) }
func allow(text, flags string) string       { return messages.Allow(text, flags) }
func fail(text string, hints ...string) int { return messages.Fail(text, hints...) }
func failWith(err error) int                { return messages.FailWith(err) }
func inWords(err error) string              { return messages.InWords(err) }
func slow(text string) (done func())        { return messages.Slow(text) }
func sizeText(n int64) string               { return messages.SizeText(n) }
func printable(s string) string             { return messages.Printable(s) }
func printableLine(s string) string         { return messages.PrintableLine(s) }
func plain(s, but string) string            { return messages.PrintableExcept(s, but) }
func printf(format string, args ...any)     { messages.Printf(format, args...) }
func printText(line string)                 { printf("%s\n", printable(line)) }
func isTerminal(f *os.File) bool            { return messages.IsTerminal(f) }
func quote(s string) string                 { return strconv.Quote(s) }
func itoa(n int64) string                   { return strconv.FormatInt(n, 10) }

var stdout = messages.Stdout

// mistakes are what went wrong, for who asked for JSON.
func mistakes() []object {
	return each(messages.Mistakes, func(m messages.Mistake) object { return object{{"text", m.Text}, {"hint", m.Hint}} })
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
	case "logs", "escape":
		return false
	}
	if args[0] == "run" || strings.HasPrefix(args[0], "-") {
		return slices.Contains(args, "--dry-run")
	}
	return !slices.Contains(args, supervised)
}

// finish is the status to exit with, once a verb's result is written. Who asked for
// an object gets one: where there is no result, what went wrong.
func finish(args []string, code int) int {
	if code != 0 && !stdout.Wrote && len(messages.Mistakes) > 0 && wantsObject(args) {
		printJSON(object{{"errors", mistakes()}})
	}
	if stdout.Err != nil && code != refused {
		return fail(stdout.Err.Error())
	}
	return code
}
