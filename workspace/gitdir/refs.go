package gitdir

import (
	"bytes"
	"strings"

	"github.com/pccrun/pccrun/workspace/vcs"
)

// IsID reports whether a text is the name of an object.
func IsID(s string) bool { return isHex(s, 40, 64) }

// head is the shape of HEAD. With tables of references git has a name there that is none.
func head(b []byte, _ vcs.Format) bool {
	text, whole := strings.CutSuffix(string(b), "\n")
	return whole && (IsID(text) || text == "ref: refs/heads/.invalid" || vcs.IsRef(text, "ref: refs/heads/"))
}

// ref is the shape of a reference.
func ref(b []byte, _ vcs.Format) bool {
	text, whole := strings.CutSuffix(string(b), "\n")
	return whole && (IsID(text) || vcs.IsRef(text, "ref: refs/"))
}

// log is the shape of a log of a reference: a line begins with what that led to.
func log(b []byte, _ vcs.Format) bool {
	id, _, _ := strings.Cut(string(b[:min(len(b), 65)]), " ")
	return len(b) == 0 || IsID(id)
}

// ids is the shape of a file that holds names of objects.
func ids(b []byte, _ vcs.Format) bool {
	for line := range bytes.Lines(b) {
		if text, whole := bytes.CutSuffix(line, []byte("\n")); !whole || !IsID(string(text)) {
			return false
		}
	}
	return true
}

// packedRefs is the shape of packed-refs.
func packedRefs(b []byte, _ vcs.Format) bool {
	_, sound := oddRefs(b)
	return sound
}

// oddRefs returns the names in packed-refs that are none as a loose reference may have, and reports whether
// the file has the shape: git reads all of it or nothing, so that one such name is no reason to take it away.
func oddRefs(b []byte) (odd []string, sound bool) {
	for line := range bytes.Lines(b) {
		text, whole := bytes.CutSuffix(line, []byte("\n"))
		if !whole {
			return nil, false
		}
		id, peeled := bytes.CutPrefix(text, []byte("^"))
		switch {
		case len(text) > 0 && text[0] == '#':
		case peeled:
			if !IsID(string(id)) {
				return nil, false
			}
		default:
			id, name, two := strings.Cut(string(text), " ")
			if !IsID(id) || !two || strings.ContainsAny(name, "\x00\r") {
				return nil, false
			}
			if !vcs.IsRef(name, "refs/") || strings.HasPrefix(name, "refs/replace/") {
				odd = append(odd, name)
			}
		}
	}
	return odd, true
}

// isLinkedRef reports whether a link in a git directory is a reference, as git writes them with
// core.preferSymlinkRefs: nothing else is a link of git's own.
func isLinkedRef(rel, text string) bool {
	return (rel == "HEAD" || strings.HasPrefix(rel, "refs/")) && vcs.IsRef(text, "refs/")
}
