package vcs

import "bytes"

// Renamed reports whether git takes one content for the other under a new name, where it looks for renames as merges
// do: by half of the larger, in lines, or parts of 64 bytes (estimate_similarity and hash_chars of git's diffcore).
// Its sums are small enough to be met on purpose, so that they are the same ones here.
func Renamed(a, b []byte) bool {
	const half = 2
	most, least := max(len(a), len(b)), min(len(a), len(b))
	if least == 0 || (most-least)*half > most {
		return false
	}
	for _, text := range [...]bool{true, false} { // attributes may say which
		had, same := parts(a, text), 0
		for sum, n := range parts(b, text) {
			same += min(n, had[sum])
		}
		if same*half >= most {
			return true
		}
	}
	return false
}

// parts returns how many bytes are in parts of each sum.
func parts(b []byte, text bool) map[uint32]int {
	const (
		base = 107927
		long = 64
	)
	list := map[uint32]int{}
	var one, two uint32
	n := 0
	for i, c := range b {
		if text && c == '\r' && bytes.HasPrefix(b[i+1:], []byte("\n")) {
			continue
		}
		one, two = one<<7^two>>25, two<<7^one>>25
		one += uint32(c)
		if n++; n < long && c != '\n' {
			continue
		}
		list[(one+two*0x61)%base] += n
		n, one, two = 0, 0, 0
	}
	if n > 0 { // git before 2.37 leaves that out
		list[(one+two*0x61)%base] += n
	}
	return list
}
