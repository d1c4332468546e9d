package vcs

import "strings"

// IsRefName reports whether a component of a reference's name is one that git takes (git-check-ref-format(1)),
// and that neither a command takes for an option nor a shell for anything but a word.
func IsRefName(s string) bool {
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

// IsRef reports whether a text names a reference below a directory of them.
func IsRef(s, below string) bool {
	rest, ok := strings.CutPrefix(s, below)
	for ok {
		name, more, deep := strings.Cut(rest, "/")
		if !IsRefName(name) {
			return false
		}
		if !deep {
			return true
		}
		rest = more
	}
	return false
}
