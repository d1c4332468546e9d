package gitdir

import (
	"bytes"
	"strings"

	"github.com/pccrun/pccrun/workspace/vcs"
)

// isName reports whether a component of a reference's name is one that git takes (git-check-ref-format(1)),
// and that neither a command takes for an option nor a shell for anything but a word.
func isName(s string) bool {
	if s == "" || s[0] == '.' || s[0] == '-' || strings.HasSuffix(s, ".") || strings.HasSuffix(s, ".lock") || strings.Contains(s, "..") || strings.Contains(s, "@{") {
		return false
	}
	for i := range len(s) {
		if c := s[i]; c <= ' ' || c == 0x7f || strings.IndexByte("~^:?*[\\/$;&|<>`\"'!", c) >= 0 {
			return false
		}
	}
	return true
}

// isRef reports whether a text names a reference below a directory of them.
func isRef(s, below string) bool {
	rest, ok := strings.CutPrefix(s, below)
	for ok {
		name, more, deep := strings.Cut(rest, "/")
		if !isName(name) {
			return false
		}
		if !deep {
			return true
		}
		rest = more
	}
	return false
}

// IsID reports whether a text is the name of an object.
func IsID(s string) bool { return isHex(s, 40, 64) }

// head is the shape of HEAD. With tables of references git has a name there that is none.
func head(b []byte, _ vcs.Format) bool {
	text, whole := strings.CutSuffix(string(b), "\n")
	return whole && (IsID(text) || text == "ref: refs/heads/.invalid" || isRef(text, "ref: refs/heads/"))
}

// ref is the shape of a reference.
func ref(b []byte, _ vcs.Format) bool {
	text, whole := strings.CutSuffix(string(b), "\n")
	return whole && (IsID(text) || isRef(text, "ref: refs/"))
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
			if !isRef(name, "refs/") || strings.HasPrefix(name, "refs/replace/") {
				odd = append(odd, name)
			}
		}
	}
	return odd, true
}

// isLinkedRef reports whether a link in a git directory is a reference, as git writes them with
// core.preferSymlinkRefs: nothing else is a link of git's own.
func isLinkedRef(rel, text string) bool {
	return (rel == "HEAD" || strings.HasPrefix(rel, "refs/")) && isRef(text, "refs/")
}
