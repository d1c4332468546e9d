package filesync

import "strings"

// wildmatch is git's wildmatch.c (2.51) with WM_PATHNAME: no library that was tried agreed
// with `git check-ignore`. A pattern may come from whoever wrote the repository, so the work is
// bounded: past the bound it counts as a match, since a match leaves out.
func wildmatch(pattern, text string) bool {
	steps := maxSteps
	return doWild(pattern, 0, text, &steps) == wildMatch
}

const maxSteps = 1 << 20

type wildResult int

const (
	wildMatch wildResult = iota
	wildNoMatch
	wildAbortAll
	wildAbortToStarStar
)

// at is a byte of a text that ends in a NUL, as C has it.
func at(s string, i int) byte {
	if i >= 0 && i < len(s) {
		return s[i]
	}
	return 0
}

func doWild(pattern string, p int, text string, steps *int) wildResult {
	start := p
	t := 0
	for ; p < len(pattern); p, t = p+1, t+1 {
		if *steps--; *steps < 0 {
			return wildMatch
		}
		c, ch := pattern[p], at(text, t)
		if ch == 0 && c != '*' {
			return wildAbortAll
		}
		switch c {
		case '\\':
			p++
			if at(pattern, p) != ch {
				return wildNoMatch
			}
		default:
			if c != ch {
				return wildNoMatch
			}
		case '?':
			if ch == '/' {
				return wildNoMatch
			}
		case '[':
			end, matched, ok := wildSet(pattern, p, ch)
			if !ok {
				return wildAbortAll
			}
			if !matched || ch == '/' {
				return wildNoMatch
			}
			p = end
		case '*':
			slashes := false
			p++
			if at(pattern, p) == '*' {
				before := p
				for at(pattern, p) == '*' {
					p++
				}
				next := at(pattern, p)
				if (before-start < 2 || pattern[before-2] == '/') && (next == 0 || next == '/' || next == '\\' && at(pattern, p+1) == '/') {
					if next == '/' && doWild(pattern, p+1, text[t:], steps) == wildMatch {
						return wildMatch
					}
					slashes = true
				}
			}
			switch {
			case p >= len(pattern):
				if !slashes && strings.IndexByte(text[t:], '/') >= 0 {
					return wildAbortToStarStar
				}
				return wildMatch
			case !slashes && pattern[p] == '/':
				i := strings.IndexByte(text[t:], '/')
				if i < 0 {
					return wildAbortAll
				}
				t += i
				continue // the slash is taken by the loop
			}
			for ; t < len(text); t++ {
				if next := pattern[p]; strings.IndexByte(`*?[\`, next) < 0 {
					for t < len(text) && text[t] != next && (slashes || text[t] != '/') {
						t++
					}
					if at(text, t) != next {
						if slashes {
							return wildAbortAll
						}
						return wildAbortToStarStar
					}
				}
				if got := doWild(pattern, p, text[t:], steps); got != wildNoMatch {
					if !slashes || got != wildAbortToStarStar {
						return got
					}
				} else if !slashes && text[t] == '/' {
					return wildAbortToStarStar
				}
			}
			return wildAbortAll
		}
	}
	if t < len(text) {
		return wildNoMatch
	}
	return wildMatch
}

// wildSet looks a byte up in the set that begins at p, and returns where it ends. It is false
// for a set that does not end, or names a class that there is not.
func wildSet(pattern string, p int, ch byte) (end int, matched, ok bool) {
	p++
	negated := at(pattern, p) == '!' || at(pattern, p) == '^'
	if negated {
		p++
	}
	var before byte // of a range
	for first := true; first || at(pattern, p) != ']'; first = false {
		c := at(pattern, p)
		switch {
		case c == 0:
			return 0, false, false
		case c == '\\':
			p++
			if c = at(pattern, p); c == 0 {
				return 0, false, false
			}
			matched = matched || ch == c
		case c == '-' && before != 0 && at(pattern, p+1) != 0 && at(pattern, p+1) != ']':
			p++
			if c = at(pattern, p); c == '\\' {
				p++
				if c = at(pattern, p); c == 0 {
					return 0, false, false
				}
			}
			matched = matched || before <= ch && ch <= c
			c = 0
		case c == '[' && at(pattern, p+1) == ':':
			i := strings.IndexByte(pattern[p+2:], ']')
			if i < 0 {
				return 0, false, false
			}
			if i < 1 || pattern[p+2+i-1] != ':' { // no class, but a set with these in it
				matched = matched || ch == '['
				break
			}
			in, known := wildClass(pattern[p+2:p+2+i-1], ch)
			if !known {
				return 0, false, false
			}
			matched = matched || in
			p += 2 + i
			c = 0
		default:
			matched = matched || ch == c
		}
		before = c
		p++
	}
	return p, matched != negated, true
}

func wildClass(name string, c byte) (in, known bool) {
	upper, lower, digit := c >= 'A' && c <= 'Z', c >= 'a' && c <= 'z', c >= '0' && c <= '9'
	graph := c > ' ' && c < 0x7f
	switch name {
	case "alnum":
		return upper || lower || digit, true
	case "alpha":
		return upper || lower, true
	case "blank":
		return c == ' ' || c == '\t', true
	case "cntrl":
		return c < ' ' || c == 0x7f, true
	case "digit":
		return digit, true
	case "graph":
		return graph, true
	case "lower":
		return lower, true
	case "print":
		return graph || c == ' ', true
	case "punct":
		return graph && !upper && !lower && !digit, true
	case "space":
		return c == ' ' || c >= '\t' && c <= '\r', true
	case "upper":
		return upper, true
	case "xdigit":
		return digit || c >= 'A' && c <= 'F' || c >= 'a' && c <= 'f', true
	}
	return false, false
}
