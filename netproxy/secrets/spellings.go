package secrets

import (
	"bytes"
	"encoding/base64"
	"net/url"
	"slices"
	"strings"
)

// A Pair is a text, and what takes its place. Both have one length where the length of
// what they stand in counts.
type Pair struct {
	Old, New string

	sure int // the length of [Pair.beginning]; 0 where Old is the secret itself
}

// Spellings returns the pairs for a text and for the forms in which servers send such a
// text back: as it is, and in base64 of both alphabets, each also escaped as in a URL.
// No form becomes longer or shorter. Both texts have one length.
func Spellings(old, new string) (pairs []Pair) {
	pairs = Escaped(old, new)
	// What stands before it turns the bits of base64: three ways.
	for _, encoding := range [...]*base64.Encoding{base64.StdEncoding, base64.URLEncoding} {
		for skip := range 3 {
			form := func(s string) string {
				s = s[skip:]
				return encoding.EncodeToString([]byte(s[:len(s)/3*3]))
			}
			pairs = append(pairs, Escaped(form(old), form(new))...)
		}
	}
	slices.SortStableFunc(pairs, func(a, b Pair) int { return strings.Compare(a.Old, b.Old) })
	pairs = slices.CompactFunc(pairs, func(a, b Pair) bool { return a.Old == b.Old })
	// As much of each form is its beginning as there is of the text itself.
	public := common(old, new)
	secret := max(1, len(old)-public)
	for i := range pairs {
		p := &pairs[i]
		known := common(p.Old, p.New)
		p.sure = known + ((len(p.Old)-known)*unguessed(secret)+secret-1)/secret
	}
	return pairs
}

// Escaped returns the pairs for a text as it is and as libraries escape it in a query
// and in a path, in digits of either case. Stars make up for what that takes.
func Escaped(old, new string) []Pair {
	pairs := []Pair{{Old: old, New: new}}
	query, path := url.QueryEscape(old), url.PathEscape(old)
	for _, form := range [...]string{query, path, lowerDigits(query), lowerDigits(path)} {
		if form != old {
			pairs = append(pairs, Pair{Old: form, New: new + strings.Repeat("*", len(form)-len(new))})
		}
	}
	return pairs
}

// lowerDigits returns an escaped text with its hexadecimal digits in lower case.
func lowerDigits(s string) string {
	parts := strings.Split(s, "%")
	for i, p := range parts[1:] {
		parts[i+1] = strings.ToLower(p[:2]) + p[2:]
	}
	return strings.Join(parts, "%")
}

// Replace puts what takes the place of each text into s.
func Replace(s string, pairs []Pair) string {
	for _, p := range pairs {
		s = strings.ReplaceAll(s, p.Old, p.New)
	}
	return s
}

// InName says whether the name of a field holds one of the texts. Names have no
// case, and are spelled anew on the way.
func InName(name string, pairs []Pair) bool {
	name = strings.ToLower(name)
	return slices.ContainsFunc(pairs, func(p Pair) bool { return strings.Contains(name, strings.ToLower(p.Old)) })
}

// replace puts what takes the place of a pair's text into b.
func (p Pair) replace(b []byte) {
	for at := bytes.Index(b, []byte(p.Old)); at >= 0; at = bytes.Index(b, []byte(p.Old)) {
		copy(b[at:], p.New)
		b = b[at+len(p.Old):]
	}
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
func (p Pair) beginning() string {
	if p.sure == 0 {
		public := common(p.Old, p.New)
		p.sure = public + unguessed(len(p.Old)-public)
	}
	return p.Old[:min(p.sure, len(p.Old))]
}

// window returns how many bytes the beginning of each pair's text takes.
func window(pairs []Pair) (n int) {
	for _, p := range pairs {
		n = max(n, len(p.beginning()))
	}
	return n
}

// open returns how many bytes at the end of b have to wait for more, from the
// beginning of a pair's text on. So much of it has come that the text can be, and then
// they wait whether or not it still can: how long tells nothing of the text.
func (p Pair) open(b []byte) int {
	b = b[max(0, len(b)-len(p.Old)+1):]
	if at := bytes.Index(b, []byte(p.beginning())); at >= 0 {
		return len(b) - at
	}
	return 0
}
