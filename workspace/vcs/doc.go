// Package vcs knows what git, and others of its kind, keep in a repository: which
// of it they execute, and by which of it they would write elsewhere. It is asked of
// names and bytes; it opens nothing.
//
// What git parses is parsed as git does, and a file about which two programs could
// think differently is not sound.
package vcs
