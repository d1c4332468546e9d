package secrets

import (
	"bytes"
	"slices"
	"strconv"
	"strings"
)

// Who writes a text into a URL, into JSON, a script or HTML escapes characters of
// it, each library others, and some do it twice. So the spellings are not listed: a
// letter or digit stands for itself, and any other character may be
//
//	%2B  %252B                 of a URL, by whoever has it once more
//	\+  \u002b  \x2b  \\u002b  of JSON and scripts, within strings of such
//	&plus;  &#43;  &#x2B;  &amp;#43;
//
// in every match anew. What an escape is made of may have been escaped in another
// way, as HTML in JSON has it, \u0026#43;, or JSON in a URL, %5Cu002b.
const (
	nested      = 3 // how many times more it may have been escaped in the same way
	mixed       = 2 // and how many times in another
	backslashes = 1<<(nested+1) - 1
	maxNumber   = 8  // digits of a character reference, most of them zeros
	maxSpelled  = 64 // bytes of one character, at most

	escapes = `%\&` // what a spelling begins with that is not the character itself
)

func isPlain(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
}

// lead returns what every spelling of a pair's text begins with, "" where its
// first character may be spelled in many ways.
func (p Pair) lead() string {
	if !p.escaped {
		return p.Old
	}
	for i := range len(p.Old) {
		if !isPlain(p.Old[i]) {
			return p.Old[:i]
		}
	}
	return p.Old
}

// maxNeedle is how much of a text is looked for at once: [bytes.Index] is several times
// slower with more than the processor compares in one go.
const maxNeedle = 16

// candidate returns where in b, from a place on, a text may begin; -1 for nowhere.
func (p Pair) candidate(b []byte, from int) int {
	i := -1
	switch lead := p.lead(); {
	case len(lead) > 1 && lead[1] == 0 && bytes.IndexByte(b[from:], 0) < 0: // wide: nearly no text is
	case len(lead) > maxNeedle:
		for {
			i = bytes.Index(b[from:], []byte(lead[:maxNeedle]))
			if i < 0 || len(b)-from-i >= len(lead) && string(b[from+i:from+i+len(lead)]) == lead {
				break
			}
			from += i + 1
		}
	case lead != "":
		i = bytes.Index(b[from:], []byte(lead))
	case p.Old != "":
		i = bytes.IndexAny(b[from:], p.Old[:1]+escapes)
	}
	if i < 0 {
		return -1
	}
	return from + i
}

// match returns where the text that begins at a place ends, 0 if it does not stand
// there, and whether it may with more behind b.
func (p Pair) match(b []byte, at int) (end int, more bool) {
	lead := len(p.lead())
	if i := at + lead; lead < len(p.Old) && i < len(b) && b[i] != p.Old[lead] && strings.IndexByte(escapes, b[i]) < 0 {
		return 0, false
	}
	ends, next := []int{at + lead}, []int(nil)
	for i := lead; i < len(p.Old) && len(ends) > 0; i++ {
		next = next[:0]
		for _, e := range ends {
			var open bool
			if next, open = appendEnds(next, b, e, p.Old[i], mixed); open {
				more = true
			}
		}
		ends, next = next, ends
	}
	for _, e := range ends {
		end = max(end, e)
	}
	return end, more
}

// replace puts what takes the place of a pair's text into b, which may be changed:
// as long as what stood there, with stars behind where that was spelled longer.
func (p Pair) replace(b []byte) []byte {
	for at := p.candidate(b, 0); at >= 0; {
		end, _ := p.match(b, at)
		if end == 0 {
			at = p.candidate(b, at+1)
			continue
		}
		with := p.New + strings.Repeat("*", max(0, end-at-len(p.New)))
		if len(with) == end-at {
			copy(b[at:], with)
		} else {
			b = slices.Replace(b, at, end, []byte(with)...)
		}
		at = p.candidate(b, at+len(with))
	}
	return b
}

// guessable is how many characters of a secret somebody might guess who can try often.
// Of a short one it is half, so that the rest stays one.
const guessable = 8

func unguessed(length int) int { return max(1, min(guessable, length/2)) }

// common returns how many bytes two texts have in common at their front: what a
// placeholder tells of its secret.
func common(a, b string) int {
	n := 0
	for n < min(len(a), len(b)) && a[n] == b[n] {
		n++
	}
	return n
}

// beginning returns what a pair's text begins with, so much that whoever does not know
// it does not hit upon it.
func (p Pair) beginning() Pair {
	if p.sure == 0 {
		public := common(p.Old, p.New)
		p.sure = public + unguessed(len(p.Old)-public)
	}
	p.Old = p.Old[:min(p.sure, len(p.Old))]
	return p
}

// room returns how many bytes a pair's text takes at most, its line breaks aside.
func (p Pair) room() int {
	lead := len(p.lead())
	return lead + maxSpelled*(len(p.Old)-lead)
}

// maxWindow bounds what is kept of a body: a beginning of which every character is
// spelled as long as can be is let go.
const maxWindow = 2 << 10

// window returns how many bytes the beginning of each pair's text takes.
func window(pairs []Pair) (n int) {
	for _, p := range pairs {
		room := p.beginning().room()
		if p.broken {
			room += 4 * maxBreak
		}
		n = max(n, room)
	}
	return min(n, maxWindow)
}

// open returns how many bytes at the end of b have to wait for more, from the
// beginning of a pair's text on. So much of it has come that the text can be, and then
// they wait whether or not it still can: how long tells nothing of the text.
func (p Pair) open(b []byte) int {
	first := p.beginning()
	for at := first.candidate(b, max(0, len(b)-p.room())); at >= 0; at = first.candidate(b, at+1) {
		end, _ := first.match(b, at)
		if end > 0 && (len(b)-end < len(p.Old)-len(first.Old) || p.mayFollow(b, at)) {
			return len(b) - at
		}
	}
	return 0
}

// mayFollow says whether a pair's text that begins at a place may stand there with more
// behind b.
func (p Pair) mayFollow(b []byte, at int) bool {
	lead, rest := p.lead(), b[at:]
	if len(rest) <= len(lead) {
		return strings.HasPrefix(lead, string(rest))
	}
	if string(rest[:len(lead)]) != lead {
		return false
	}
	_, more := p.match(b, at)
	return more
}

// appendEnds appends where a character that begins at a place of b ends, in each
// spelling that stands there: as it is escaped in one way, and in others mixes times
// more. more says that b ends within one.
func appendEnds(ends []int, b []byte, at int, c byte, mixes int) (_ []int, more bool) {
	if at >= len(b) {
		return ends, true
	}
	found := func(end int) {
		for _, e := range ends {
			if e == end {
				return
			}
		}
		if end-at <= maxSpelled {
			ends = append(ends, end)
		}
	}
	// is says whether text stands at i, and notes where b ends before it does.
	is := func(i int, text string) bool {
		rest := b[min(i, len(b)):]
		if len(rest) < len(text) {
			more = more || strings.EqualFold(string(rest), text[:len(rest)])
			return false
		}
		return strings.EqualFold(string(rest[:len(text)]), text)
	}
	if b[at] == c {
		found(at + 1)
	}
	if isPlain(c) {
		return ends, false
	}
	hexadecimal := strconv.FormatUint(0x100|uint64(c), 16)[1:]
	switch i := at + 1; b[at] {
	case '%':
		for range nested + 1 {
			if is(i, hexadecimal) {
				found(i + 2)
			}
			if !is(i, "25") {
				break
			}
			i += 2
		}
	case '\\':
		for range backslashes {
			for _, form := range [...]string{string([]byte{c}), "u00" + hexadecimal, "x" + hexadecimal} {
				if is(i, form) {
					found(i + len(form))
				}
			}
			if !is(i, `\`) {
				break
			}
			i++
		}
	case '&':
		for range nested + 1 {
			for name := range strings.FieldsSeq(entities[c]) {
				if is(i, name+";") {
					found(i + len(name) + 1)
				}
			}
			if is(i, "#") {
				end, open := numberEnd(b, i+1, c)
				if more = more || open; end > 0 {
					found(end)
				}
			}
			if !is(i, "amp;") {
				break
			}
			i += len("amp;")
		}
	default:
		return ends, more
	}
	if mixes == 0 || !spellsSign(b[at:]) {
		return ends, more
	}
	// The same, with each sign of the escape spelled in its turn.
	sign := func(i int, c byte) []int {
		all, open := appendEnds(nil, b, i, c, mixes-1)
		more = more || open
		return all
	}
	for _, i := range sign(at, '%') {
		if i > at+1 && is(i, hexadecimal) {
			found(i + 2)
		}
	}
	for _, i := range sign(at, '\\') {
		if b[i-1] == '\\' {
			continue // as it is, or a run of them
		}
		for _, form := range [...]string{"u00" + hexadecimal, "x" + hexadecimal} {
			if is(i, form) {
				found(i + len(form))
			}
		}
		for _, end := range sign(i, c) {
			found(end)
		}
	}
	for _, i := range sign(at, '&') {
		if i == at+1 {
			continue
		}
		for name := range strings.FieldsSeq(entities[c]) {
			if is(i, name) {
				for _, end := range sign(i+len(name), ';') {
					found(end)
				}
			}
		}
		for _, digits := range sign(i, '#') {
			at, open := number(b, digits, c)
			if more = more || open; at > 0 {
				for _, end := range sign(at, ';') {
					found(end)
				}
			}
		}
	}
	return ends, more
}

// spellsSign says whether b may begin with a sign of an escape that is itself escaped.
// Most texts that are full of signs do not, and are not worth a closer look.
func spellsSign(b []byte) bool {
	var forms []string
	switch b[0] {
	case '%':
		forms = []string{"%25", "%26", "%5c", "%23", "%3b"}
	case '&':
		forms = []string{"&amp", "&#", "&perc", "&bsol", "&num", "&semi"}
	default:
		start := b[:min(len(b), backslashes+1)]
		b = b[len(start)-len(bytes.TrimLeft(start, `\`)):]
		forms = []string{"u002", "u003b", "u005c", "x2", "x3b", "x5c"}
	}
	for _, form := range forms {
		if n := min(len(b), len(form)); strings.EqualFold(string(b[:n]), form[:n]) {
			return true
		}
	}
	return false
}

// number returns where the digits of a character reference end that stands for c, 0
// where they do not, and whether b ends within them.
func number(b []byte, at int, c byte) (end int, open bool) {
	base, digits := 10, at
	if at < len(b) && b[at]|0x20 == 'x' {
		base, digits = 16, at+1
	}
	for end = digits; end < len(b) && isPlain(b[end]); end++ {
		if end-digits == maxNumber {
			return 0, false
		}
	}
	if end == len(b) {
		return 0, true
	}
	if n, err := strconv.ParseUint(string(b[digits:end]), base, 32); err != nil || n != uint64(c) {
		return 0, false
	}
	return end, false
}

// numberEnd returns where the number of a character reference ends that stands for
// c, 0 where it is no such number, and whether b ends within it.
func numberEnd(b []byte, at int, c byte) (end int, open bool) {
	base, digits := 10, at
	if at < len(b) && b[at]|0x20 == 'x' {
		base, digits = 16, at+1
	}
	for i := digits; i <= digits+maxNumber; i++ {
		if i >= len(b) {
			return 0, true
		}
		if b[i] != ';' {
			continue
		}
		if n, err := strconv.ParseUint(string(b[digits:i]), base, 32); err == nil && n == uint64(c) {
			return i + 1, false
		}
		return 0, false
	}
	return 0, false
}

// entities are the names of characters in HTML.
var entities = [256]string{
	'!': "excl", '"': "quot", '#': "num", '$': "dollar", '%': "percnt", '&': "amp", '\'': "apos", '(': "lpar", ')': "rpar", '*': "ast midast",
	'+': "plus", ',': "comma", '.': "period", '/': "sol", ':': "colon", ';': "semi", '<': "lt", '=': "equals", '>': "gt", '?': "quest",
	'@': "commat", '[': "lsqb lbrack", '\\': "bsol", ']': "rsqb rbrack", '^': "hat", '_': "lowbar underbar", '`': "grave", '{': "lcub lbrace",
	'|': "verbar vert", '}': "rcub rbrace",
}
