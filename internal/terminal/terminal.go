// Package terminal is the launcher's side of an interactive run: it passes
// keys from the host's terminal to the pseudo-terminal that the command has,
// and the command's output back through a [Filter].
//
// It promises:
//   - the host's terminal is as it was, on every way out but SIGKILL and a
//     crash of the Go runtime, and while the launcher is suspended ([Relay]);
//   - keys arrive byte for byte, and so does output, but for what the filter
//     is there to stop: sequences that write the host's clipboard or make the
//     host's terminal answer with text that the command chose, which then
//     stands there as if the user had typed it ([Filter]);
//   - how output is split into writes never changes what passes.
//
// Which descriptors become the pseudo-terminal is the caller's decision: a
// pipe or a file is handed to the command as it is, and never relayed.
package terminal

import (
	"io"
	"os"
)

// Options says what a [Relay] joins.
type Options struct {
	// Terminal is the host's: a descriptor open for reading and writing.
	// The relay does not close it, nor changes its file flags.
	Terminal int
	// Master is that of the command's pseudo-terminal, non-blocking, with
	// none of the command's descriptors open in this process.
	Master *os.File
	// Output gets what the filter passes; nil is the terminal. An error of
	// it is taken for the terminal's end.
	Output io.Writer
	// Log, if not nil, gets a copy. An error ends the copy alone.
	Log io.Writer
	// Filter is the filter; nil is the strict one.
	Filter *Filter
	// Lazy leaves the host's terminal alone until [Relay.Foreground]. Where
	// only some of the standard descriptors are terminals, another program
	// may want the keys (`pccrun -- git log | less`). See [Relay.Active].
	Lazy bool
}
