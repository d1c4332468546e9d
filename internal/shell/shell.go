// Package shell writes words for sh(1). Commands that are printed for root to
// run, and flags that are printed for a user to take, hold names that others have
// chosen.
package shell

import "strings"

// Quote returns a word as sh(1) takes it in one piece: itself where it needs no
// quotes.
func Quote(word string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("/._-+=:,@%", r)
	}
	if word != "" && strings.IndexFunc(word, func(r rune) bool { return !plain(r) }) < 0 {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

// Words splits a text that [Quote] wrote into its words; ok is false for one that a shell would read otherwise.
func Words(text string) (words []string, ok bool) {
	var word strings.Builder
	begun := false
	for text != "" {
		switch text[0] {
		case ' ':
			if begun {
				words = append(words, word.String())
			}
			word.Reset()
			begun, text = false, text[1:]
			continue
		case '\'':
			quoted, rest, closed := strings.Cut(text[1:], "'")
			if !closed {
				return nil, false
			}
			word.WriteString(quoted)
			text = rest
		case '\\':
			if !strings.HasPrefix(text, `\'`) {
				return nil, false
			}
			word.WriteByte('\'')
			text = text[2:]
		default:
			word.WriteByte(text[0])
			text = text[1:]
		}
		begun = true
	}
	if begun {
		words = append(words, word.String())
	}
	return words, true
}
