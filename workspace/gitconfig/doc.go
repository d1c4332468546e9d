// Package gitconfig merges what a run has made of its private copy of a repository's
// configuration into the host's file.
//
// It promises that the result differs from the host's text in keys of a closed list alone, that each
// value of these has passed a check of its own, and that no byte of the copy is in it: what is
// taken over is written anew from the parsed key, and the result is parsed again and compared. All
// of it is a function of values; nothing here reads or writes a file.
package gitconfig
