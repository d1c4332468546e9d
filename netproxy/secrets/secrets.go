// Package secrets keeps a credential out of the sandbox: it makes the
// placeholder that stands for one inside, and puts one in the place of the
// other in what passes.
//
// A placeholder has the length of its secret, its prefix and its alphabet, so
// that programs which look at the shape of a key take it, and so that no
// length changes on the way. It tells nothing of the secret but these. It is
// the same in every run for the same user, name and hosts, since programs
// remember which key they were allowed to use.
package secrets

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// The lengths that a secret may have, in bytes. What is shorter stands in any
// text by chance.
const (
	MinLength = 12
	MaxLength = 8 << 10
)

const (
	digits = "0123456789"
	hexes  = digits + "abcdef"
	base62 = digits + "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
)

// Placeholder returns what stands for a secret inside. The key is the user's
// own and never leaves the host; what names the variable and its hosts.
func Placeholder(key []byte, what, secret string) (string, error) {
	if len(secret) < MinLength || len(secret) > MaxLength {
		return "", errors.New("is shorter than 12 bytes, or longer than 8 KiB")
	}
	for i := range len(secret) {
		if secret[i] <= ' ' || secret[i] >= 0x7f {
			return "", errors.New("holds a character that does not belong in a header")
		}
	}
	prefix := secret[:prefixOf(secret)]
	rest := secret[len(prefix):]
	alphabet := base62
	switch {
	case strings.Trim(rest, digits) == "":
		alphabet = digits
	case strings.Trim(rest, hexes) == "":
		alphabet = hexes
	}
	out := []byte(prefix)
	for counter := byte(0); len(out) < len(secret); counter++ {
		mac := hmac.New(sha256.New, key)
		mac.Write([]byte(what + "\x00" + prefix))
		mac.Write([]byte{counter, byte(len(out) >> 8), byte(len(out))})
		for _, b := range mac.Sum(nil) {
			if int(b) < 256/len(alphabet)*len(alphabet) && len(out) < len(secret) {
				out = append(out, alphabet[int(b)%len(alphabet)])
			}
		}
	}
	if string(out) == secret {
		return "", errors.New("is its own placeholder")
	}
	return string(out), nil
}

// prefixOf returns the length of what keys of one kind have in common, such as
// "sk-ant-api03-" or "ghp_": lower-case words, each with up to two digits
// behind it, as long as enough is left that is secret.
func prefixOf(secret string) int {
	end := 0
	for i, word := 0, 0; i < min(len(secret)-16, 20); i++ {
		switch c := secret[i]; {
		case c == '-' || c == '_':
			name := strings.TrimRight(secret[word:i], digits)
			if len(name) < 2 || len(name) > 8 || i-word-len(name) > 2 || strings.Trim(name, "abcdefghijklmnopqrstuvwxyz") != "" {
				return end
			}
			word, end = i+1, i+1
		}
	}
	return end
}

// A Pair is a text, and what takes its place.
type Pair struct {
	Old, New string

	escaped bool // in whatever spelling the text stands
	broken  bool // and with its lines broken
	sure    int  // the length of [Pair.beginning]; 0 where Old is the secret itself
}

// Escaped returns a pair whose text is found however URLs, JSON, scripts or HTML
// spell it. Both have one length.
func Escaped(old, new string) Pair { return Pair{Old: old, New: new, escaped: true} }

// Spellings returns the pairs for a text and for the forms in which servers send
// such a text back: as it is, in base64 of both alphabets, in lines or not, and in
// hexadecimal, each as it is [Escaped]; in two and four bytes a character; and with
// every character escaped, or written as a number. No form becomes longer or shorter.
func Spellings(old, new string) (pairs []Pair) {
	public := common(old, new)
	defer func() {
		for i := range pairs {
			p := &pairs[i]
			known := common(p.Old, p.New)
			secret := max(1, len(old)-public)
			p.sure = known + ((len(p.Old)-known)*unguessed(secret)+secret-1)/secret
		}
	}()
	lines := false
	add := func(f func(string) string) {
		p := Escaped(f(old), f(new))
		p.broken = lines
		if !slices.ContainsFunc(pairs, func(q Pair) bool { return q.Old == p.Old }) {
			pairs = append(pairs, p)
		}
	}
	add(func(s string) string { return s })
	// What stands before it turns the bits of base64: three ways.
	lines = true
	for _, encoding := range [...]*base64.Encoding{base64.StdEncoding, base64.URLEncoding} {
		for skip := range 3 {
			add(func(s string) string {
				s = s[(3-skip)%3:]
				return encoding.EncodeToString([]byte(s[:len(s)/3*3]))
			})
		}
	}
	lines = false
	add(func(s string) string { return hex.EncodeToString([]byte(s)) })
	add(func(s string) string { return strings.ToUpper(hex.EncodeToString([]byte(s))) })
	// UTF-16 and UTF-32, whichever byte of a character comes first.
	for _, between := range [...]string{"\x00", "\x00\x00\x00"} {
		pairs = append(pairs, Pair{Old: spaced(old, between), New: spaced(new, between)})
	}
	for _, form := range numbered {
		pairs = append(pairs, Pair{Old: written(old, old, form), New: written(new, old, form)})
	}
	return pairs
}

// numbered are the forms in which every character is its number: of URLs, JSON, scripts
// and HTML that escape letters too, of dumps, and of lists of bytes.
var numbered = [...]struct{ before, verb, between string }{
	{"%", "%02x", "%"}, {"%", "%02X", "%"},
	{`\u00`, "%02x", `\u00`}, {`\u00`, "%02X", `\u00`},
	{`\x`, "%02x", `\x`}, {`\x`, "%02X", `\x`},
	{"&#", "%d", ";&#"}, {"&#x", "%x", ";&#x"}, {"&#x", "%X", ";&#x"},
	{"", "%02x", " "}, {"", "%02X", " "}, {"", "%02x", ":"}, {"", "%02X", ":"},
	{"0x", "%02x", ", 0x"}, {"", "%d", ","}, {"", "%d", ", "}, {"", "%d", " "},
}

// written returns s in such a form, with as many digits as those of another text have
// there. A number that has others is that of a star, or of an x.
func written(s, like string, form struct{ before, verb, between string }) string {
	b := []byte(form.before)
	for i := range len(s) {
		if i > 0 {
			b = append(b, form.between...)
		}
		number, room := fmt.Sprintf(form.verb, s[i]), len(fmt.Sprintf(form.verb, like[i]))
		switch {
		case len(number) == room:
		case room == 2:
			number = "42"
		default:
			number = "120"
		}
		b = append(b, number...)
	}
	return string(b)
}

// spaced returns s with a text between its characters.
func spaced(s, between string) string { return strings.Join(strings.Split(s, ""), between) }

// Replace puts what takes the place of each text into s.
func Replace(s string, pairs []Pair) string {
	for _, p := range pairs {
		if !p.escaped {
			s = strings.ReplaceAll(s, p.Old, p.New)
		} else if strings.Contains(s, p.lead()) {
			s = string(p.replace([]byte(s)))
		}
	}
	var j joined
	if b := []byte(s); slices.ContainsFunc(pairs, func(p Pair) bool { return p.broken }) {
		j.join(b)
		j.replace(b, pairs)
		s = string(b)
	}
	return s
}

// InName says whether the name of a field holds one of the texts. Names have no
// case, and are spelled anew on the way.
func InName(name string, pairs []Pair) bool {
	name = strings.ToLower(name)
	return slices.ContainsFunc(pairs, func(p Pair) bool {
		p.Old = strings.ToLower(p.Old)
		return string(p.replace([]byte(name))) != name
	})
}
