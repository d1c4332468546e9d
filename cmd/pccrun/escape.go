//go:build !thin

package main

import (
	"github.com/pccrun/pccrun/providers/doctor"
	"github.com/pccrun/pccrun/test/escape"
)

const escapeUsage = escape.Usage

func escapeVerb(args []string) int { return escape.Main(args) }

// escapeHidden runs the verbs by which the escape suite and the doctor start
// this program again, inside sandboxes and cages; false if args are none of them.
func escapeHidden(args []string) (code int, is bool) {
	if len(args) > 0 && args[0] == doctor.InsideVerb {
		return doctor.Inside(args[1:]), true
	}
	return escape.Hidden(args)
}
