//go:build !linux

package main

func reviewVerb([]string) int {
	return fail("review: the native provider does not run on this system")
}
