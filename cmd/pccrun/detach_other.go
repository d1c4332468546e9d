//go:build !linux

package main

import (
	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/run"
)

func detachStage([]string) (code int, is bool) { return 0, false }

// What outlives its terminal is for Linux.

func attachVerb([]string) int { return fail("attach: not built for this system yet") }
func detachVerb([]string) int { return fail("detach: not built for this system yet") }

func detachedTask([]string, *func(dir, name string)) (code int, gone bool) {
	return fail("flag --detach: not built for this system yet"), true
}

func detached(*profiles.Request, *run.Program) (code int, gone bool) {
	return fail("flag --detach: not built for this system yet"), true
}
