// Package terminal is the launcher's side of an interactive run: it passes
// keys from the host's terminal to the pseudo-terminal that the command has,
// and the command's output back through a [Filter], and leaves the host's
// terminal as it was.
package terminal
