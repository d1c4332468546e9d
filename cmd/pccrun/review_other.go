//go:build !linux

package main

func reviewVerb([]string) int {
	return fail("review: nothing runs natively on this system, and nothing is set aside")
}
