// Package start makes the start of a program cheap, where the kernel and the
// runtime let it. Nothing but time depends on it, so it has no errors: what
// cannot be had is done without.
package start
