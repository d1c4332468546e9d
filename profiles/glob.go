package profiles

import (
	"strings"
	"unicode/utf8"
)

// The pattern language, everywhere the same: `*` and `?` match within one
// name, `[a-z]` and `[!a-z]` one character, `**` as a whole name matches any
// number of names, none included. There is no escape: `[*]` is a star. Case
// counts, and a leading dot is not special. Matching takes time in proportion
// to pattern times path at worst, since each `*` and `**` keeps only its last
// place to resume from.

// isGlob reports whether a path has a character that makes it a pattern.
func isGlob(path string) bool {
	for i := range len(path) { // ten times as quick as strings.ContainsAny
		if c := path[i]; c == '*' || c == '?' || c == '[' {
			return true
		}
	}
	return false
}

// globMatch reports whether a pattern matches the whole of a relative path.
func globMatch(pattern, path string) bool {
	// Fast path for the commonest pattern: a name at any depth.
	if rest, ok := strings.CutPrefix(pattern, "**/"); ok && strings.IndexByte(rest, '/') < 0 && rest != "**" {
		return nameMatch(rest, path[strings.LastIndexByte(path, '/')+1:])
	}
	p, s := 0, 0 // where the next name of pattern and path begins; past the end: len+1
	resumeP, resumeS := -1, 0
	for {
		name, nextP := nextName(pattern, p)
		switch {
		case nextP > 0 && name == "**":
			p, resumeP, resumeS = nextP, nextP, s
			continue
		case s > len(path):
			if nextP == 0 {
				return true
			}
		case nextP > 0:
			if have, nextS := nextName(path, s); nameMatch(name, have) {
				p, s = nextP, nextS
				continue
			}
		}
		// A mismatch: let the last ** swallow one name more.
		if resumeP < 0 || resumeS > len(path) {
			return false
		}
		_, resumeS = nextName(path, resumeS)
		p, s = resumeP, resumeS
	}
}

// nextName returns the name of path that begins at i, and where the one after
// it begins: 0 if there was none at i, more than len(path) after the last.
func nextName(path string, i int) (name string, next int) {
	if i > len(path) {
		return "", 0
	}
	if n := strings.IndexByte(path[i:], '/'); n >= 0 {
		return path[i : i+n], i + n + 1
	}
	return path[i:], len(path) + 1
}

// nameMatch reports whether a pattern without slashes matches a whole name.
func nameMatch(pattern, name string) bool {
	p, s := 0, 0
	resumeP, resumeS := -1, 0
	for p < len(pattern) || s < len(name) {
		if p < len(pattern) {
			if pattern[p] == '*' {
				p++
				resumeP, resumeS = p, s
				continue
			}
			if s < len(name) {
				if np, ns, ok := oneMatch(pattern, p, name, s); ok {
					p, s = np, ns
					continue
				}
			}
		}
		if resumeP < 0 || resumeS >= len(name) {
			return false
		}
		_, size := utf8.DecodeRuneInString(name[resumeS:])
		resumeS += size
		p, s = resumeP, resumeS
	}
	return true
}

// oneMatch matches one character of name at s, and returns the positions after it.
func oneMatch(pattern string, p int, name string, s int) (np, ns int, ok bool) {
	switch pattern[p] {
	case '?':
		_, size := utf8.DecodeRuneInString(name[s:])
		return p + 1, s + size, true
	case '[':
		r, size := utf8.DecodeRuneInString(name[s:])
		np, ok = classMatch(pattern, p, r)
		return np, s + size, ok
	}
	return p + 1, s + 1, pattern[p] == name[s]
}

// classMatch matches r with the class that begins at p. A class without an
// end, next 0, matches nothing: [checkGlob] refuses it before.
func classMatch(pattern string, p int, r rune) (next int, ok bool) {
	p++
	negated := p < len(pattern) && (pattern[p] == '!' || pattern[p] == '^')
	if negated {
		p++
	}
	for first := true; p < len(pattern); first = false {
		if pattern[p] == ']' && !first {
			return p + 1, ok != negated
		}
		low, size := utf8.DecodeRuneInString(pattern[p:])
		p += size
		high := low
		if p+1 < len(pattern) && pattern[p] == '-' && pattern[p+1] != ']' {
			high, size = utf8.DecodeRuneInString(pattern[p+1:])
			p += 1 + size
		}
		ok = ok || low <= r && r <= high
	}
	return 0, false
}

// maxGlob bounds a pattern, so that matching stays cheap whatever it says.
const maxGlob = 512

// checkGlob names what is wrong with a pattern, "" if nothing is.
func checkGlob(pattern string) string {
	if len(pattern) > maxGlob {
		return "pattern longer than 512 bytes"
	}
	for i := 0; i <= len(pattern) && isGlob(pattern); {
		name, next := nextName(pattern, i)
		i = next
		if strings.Contains(name, "**") && name != "**" {
			return "** must be alone between slashes"
		}
		for p := 0; p < len(name); p++ {
			if name[p] != '[' {
				continue
			}
			end, _ := classMatch(name, p, 0)
			if end == 0 {
				return "[ without ]"
			}
			p = end - 1
		}
	}
	return ""
}
