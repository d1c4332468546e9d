package vcs

import (
	"bytes"
	"path"
	"strings"
	"syscall"
	"unicode/utf8"
)

// TraceVariable names the file in which git writes what it does, and where it fails: a line
// each, "the normal format target" of `git help api-trace2`.
const TraceVariable = "GIT_TRACE2"

// TraceTarget is the setting that names it where the variable does not.
const TraceTarget = "trace2.normaltarget"

const (
	maxTraceLine  = 16 << 10 // longer ones are passed over
	maxTraceTrees = 16       // the latest are known
	maxTraceMarks = 64       // places in a line where a path can begin or end
	maxTracePath  = 4096     // PATH_MAX
)

// A Trace reads such a file, in pieces as they come, and finds the files that git could not
// change because a mount keeps them as they are. All processes of git write into one file,
// and so can anybody else: what it says may be made up, and what is no line of git's is
// passed over. It keeps no more than the last piece of a line and the names of a few working
// trees.
type Trace struct {
	// Translated says that git may speak another language than English. Then an
	// error that is not known for another one counts.
	Translated bool

	// Unsigned is set when git has failed at a commit or tag that it was to sign, or has
	// failed to write one, for which there is hardly another reason.
	Unsigned bool

	rest  []byte   // of a line that has not ended
	long  bool     // and is too long
	trees []string // working trees, the latest first
}

// Read takes the next piece. Of each error it asks about paths, absolute and clean, which
// may be the file's, until failed returns true.
func (t *Trace) Read(b []byte, failed func(path string) bool) {
	for {
		line, more, ended := bytes.Cut(b, []byte("\n"))
		if len(t.rest)+len(line) > maxTraceLine {
			t.long, t.rest, line = true, t.rest[:0], nil
		}
		if !ended {
			t.rest = append(t.rest, line...)
			return
		}
		if b = more; len(t.rest) > 0 {
			line = append(t.rest, line...)
			t.rest = line[:0]
		}
		if !t.long {
			t.line(line, failed)
		}
		t.long = false
	}
}

// Forget drops a line that has not ended: what is read next begins with one.
func (t *Trace) Forget() { t.rest, t.long = t.rest[:0], false }

// Skip drops what comes until the next line begins: something in between was not read.
func (t *Trace) Skip() { t.rest, t.long = t.rest[:0], true }

func (t *Trace) line(line []byte, failed func(path string) bool) {
	what, rest, _ := bytes.Cut(afterPlace(line), []byte(" "))
	switch string(what) {
	case "worktree":
		t.tree(string(rest))
	case "error":
		if text := string(rest); strings.HasPrefix(text, "gpg failed to sign the data") || text == "failed to write commit object" || text == "unable to sign the tag" {
			t.Unsigned = true
		}
		if utf8.Valid(rest) {
			t.failure(string(rest), failed)
		}
	}
}

// afterPlace returns a line without the time and the place in git's source that it begins
// with, as "12:34:56.123456 usage.c:79   ", where it does (`trace2.normalBrief`).
func afterPlace(line []byte) []byte {
	const clock = "00:00:00.000000 "
	if len(line) < len(clock) {
		return line
	}
	for i := range len(clock) {
		if digit := line[i] >= '0' && line[i] <= '9'; digit != (clock[i] == '0') || !digit && line[i] != clock[i] {
			return line
		}
	}
	_, rest, _ := bytes.Cut(line[len(clock):], []byte(" "))
	return bytes.TrimLeft(rest, " ")
}

// tree notes the working tree of a process that begins. The errors that follow are most
// likely its own: who wrote a line nobody knows.
func (t *Trace) tree(text string) {
	dir, ok := unquoteShell(text)
	if !ok || !path.IsAbs(dir) || len(dir) > maxTracePath || path.Clean(dir) != dir {
		return
	}
	at := 0
	for at < len(t.trees) && t.trees[at] != dir {
		at++
	}
	if at == len(t.trees) {
		if at < maxTraceTrees {
			t.trees = append(t.trees, "")
		} else {
			at--
		}
	}
	copy(t.trees[1:at+1], t.trees[:at])
	t.trees[0] = dir
}

// unquoteShell reads a word as git quotes it for a shell (sq_quote_buf_pretty in quote.c):
// not at all, or in apostrophes, and out of them where it has one itself.
func unquoteShell(s string) (string, bool) {
	if !strings.HasPrefix(s, "'") {
		return s, s != ""
	}
	s = strings.NewReplacer(`'\''`, "'", `'\!'`, "!").Replace(s)
	inner, ok := strings.CutSuffix(s[1:], "'")
	return inner, ok && inner != ""
}

// held are the errors with which a mount keeps a file as it is: it cannot be renamed over or
// removed, written to, and moved out of a directory.
var held = [...]syscall.Errno{syscall.EBUSY, syscall.EROFS, syscall.EXDEV}

// refused reports whether the end of a message says one of these. git writes them as
// strerror(3) does, which differs from [syscall.Errno.Error] in capitals.
func (t *Trace) refused(text string) bool {
	for _, e := range held {
		if strings.EqualFold(text, e.Error()) {
			return true
		}
	}
	if !t.Translated {
		return false
	}
	for e := syscall.Errno(1); e < 134; e++ { // EHWPOISON is the last
		if strings.EqualFold(text, e.Error()) {
			return false
		}
	}
	return true
}

// failure asks about the paths that a message can speak of. It stands in quotation marks, or
// behind a blank and before the error: "unable to unlink old 'a/b': Read-only file system",
// "could not write config file .git/config: Device or resource busy". Where it is relative, it
// is so to the working tree.
func (t *Trace) failure(message string, failed func(path string) bool) {
	colon := strings.LastIndex(message, ": ")
	if colon <= 0 || !t.refused(message[colon+2:]) {
		return
	}
	head := message[:colon]
	var begins, ends []int
	for i, c := range head {
		switch {
		case len(begins) == maxTraceMarks:
		case isQuote(c):
			begins, ends = append(begins, i+utf8.RuneLen(c)), append(ends, i)
		case c == ' ':
			begins = append(begins, i+1)
		}
	}
	ends = append(ends, len(head))
	for _, from := range begins {
		for _, to := range ends {
			// Behind a blank it is the last there is.
			if to <= from || to-from > maxTracePath || head[from-1] == ' ' && to < len(head) {
				continue
			}
			if t.ask(head[from:to], failed) {
				return
			}
		}
	}
}

func (t *Trace) ask(file string, failed func(path string) bool) bool {
	if path.IsAbs(file) {
		return failed(path.Clean(file))
	}
	for _, tree := range t.trees {
		if failed(path.Join(tree, file)) {
			return true
		}
	}
	return false
}

// isQuote reports whether a character stands around names, in whatever language.
func isQuote(c rune) bool {
	return strings.ContainsRune("'\"`´‘’‚‛“”„‟‹›«»「」『』", c)
}
