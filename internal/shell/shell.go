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
