// Package quarantine holds what a run left and a tool of the host would execute, outside of its workspace, in the
// directory of its session, and puts it back where that is accepted.
//
// It promises that what is taken is in the quarantine or, where it cannot be moved there, beside its place under a name
// that no tool knows; that what was shown is what is put back; and that nothing is put back through a link or over
// what the host has made since. A journal says of each [Finding] what it is before anything is moved.
package quarantine
