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
	"errors"
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
			return "", errors.New("has a character that is invalid in a header")
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
		return "", errors.New("equals its placeholder")
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
