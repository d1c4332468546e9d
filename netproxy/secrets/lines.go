package secrets

import (
	"slices"
	"sort"
	"strings"
)

// Base64 is often written in lines, of 76 characters or 64 or 60, and those are
// indented, or their ends escaped in JSON, a URL or HTML. Of such a text the line
// breaks are left out, and what is left is searched.

// A joined text is one without its line breaks.
type joined struct {
	text []byte
	cuts []cut // none where there is no break: text is not filled then
}

// A cut is a place of a joined text at which something was left out.
type cut struct{ at, left int } // and how much was until there

// maxBreak is how long a line break may be, with what the next line is indented by.
const maxBreak = 128

// mayBreak are the bytes that a line break begins with, each with those of which one
// has to follow, "" for any.
var mayBreak = [256]*string{'\n': new(""), '\r': new(""), '\\': new("nrux\\\n\r"), '%': new("02"), '&': new("#a"), '=': new("\n\r")}

// join makes of j the text of b without its line breaks, and without one that it may
// end within.
func (j *joined) join(b []byte) {
	j.text, j.cuts = j.text[:0], j.cuts[:0]
	from, left := 0, 0
	for i := 0; i < len(b); i++ {
		next := mayBreak[b[i]]
		if next == nil || *next != "" && i+1 < len(b) && strings.IndexByte(*next, b[i+1]) < 0 {
			continue
		}
		if i+4 < len(b) && b[i] == '\\' && b[i+1] == 'u' && string(b[i+2:i+5]) != "000" {
			continue // most of JSON's escapes
		}
		end := breakEnd(b, i)
		if end == i {
			continue
		}
		if from == 0 {
			j.text = slices.Grow(j.text, len(b))
		}
		j.text = append(j.text, b[from:i]...)
		left += end - i
		j.cuts = append(j.cuts, cut{len(j.text), left})
		from, i = end, end-1
	}
	if len(j.cuts) > 0 {
		j.text = append(j.text, b[from:]...)
	}
}

// place returns where a byte of the joined text stood in the whole one.
func (j *joined) place(i int) int {
	n := sort.Search(len(j.cuts), func(k int) bool { return j.cuts[k].at > i })
	if n == 0 {
		return i
	}
	return i + j.cuts[n-1].left
}

// replace puts what takes the place of each text into b, of which the breaks stay.
func (j *joined) replace(b []byte, pairs []Pair) {
	if len(j.cuts) == 0 {
		return
	}
	for _, p := range pairs {
		if !p.broken {
			continue
		}
		for at := p.candidate(j.text, 0); at >= 0; {
			end, _ := p.match(j.text, at)
			if end == 0 {
				at = p.candidate(j.text, at+1)
				continue
			}
			with := p.New + strings.Repeat("*", max(0, end-at-len(p.New)))
			for k := range len(with) {
				b[j.place(at+k)], j.text[at+k] = with[k], with[k]
			}
			at = p.candidate(j.text, at+len(with))
		}
	}
}

// open returns how many bytes at the end of a text of some length may be the beginning
// of a pair's text.
func (j *joined) open(length int, pairs []Pair) (held int) {
	if len(j.cuts) == 0 {
		return 0
	}
	for _, p := range pairs {
		if !p.broken {
			continue
		}
		if n := p.open(j.text); n > 0 {
			held = max(held, length-j.place(len(j.text)-n))
		}
	}
	return held
}

// breakEnd returns where a line break ends that begins at a place of b, or that place
// itself. What may be one with more behind it ends with b.
func breakEnd(b []byte, at int) int {
	end := at
	for end < len(b) && end-at < maxBreak {
		next := end
		switch c := b[end]; {
		case c == '\n' || c == '\r', end > at && (c == ' ' || c == '\t'):
			next = end + 1
		case c == '=': // of quoted-printable
			if end+1 == len(b) || b[end+1] == '\n' || b[end+1] == '\r' {
				next = end + 1
			}
		case mayBreak[c] != nil:
			next = escapedEnd(b, end)
		}
		if next == end {
			break
		}
		end = next
	}
	return end
}

// escapedEnd does so for one end of a line that is escaped.
func escapedEnd(b []byte, at int) int {
	i, codes := at+1, []string(nil)
	skip := func(text string) {
		for n := 0; n <= backslashes && i < len(b) && hasFold(b, i, text); n++ {
			i = min(i+len(text), len(b))
		}
	}
	switch b[at] {
	case '\\':
		skip(`\`)
		codes = []string{"n", "r", "u000a", "u000d", "x0a", "x0d"}
	case '%':
		skip("25")
		codes = []string{"0a", "0d"}
	case '&':
		skip("amp;")
		codes = []string{"#10;", "#13;", "#xa;", "#xd;"}
	}
	for _, code := range codes {
		if i < len(b) && b[i]|0x20 != code[0]|0x20 {
			continue
		}
		if hasFold(b, i, code) {
			return min(i+len(code), len(b))
		}
	}
	return at
}

// hasFold says whether a text stands at a place of b, or as much of it as b has left.
func hasFold(b []byte, at int, text string) bool {
	rest := b[min(at, len(b)):]
	n := min(len(rest), len(text))
	return strings.EqualFold(string(rest[:n]), text[:n])
}
