//go:build thin && linux

package main

import (
	"github.com/pccrun/pccrun/internal/homes"
	"github.com/pccrun/pccrun/profiles"
)

// These verbs are the whole program's: what they link would cost a launch more than all of its mounts.

func doctorVerb(args []string) int { return runWhole(append([]string{"doctor"}, args...)) }
func specVerb(args []string) int   { return runWhole(append([]string{"spec"}, args...)) }
func syncVerb(args []string) int   { return runWhole(append([]string{"sync"}, args...)) }
func escapeVerb(args []string) int { return runWhole(append([]string{"escape"}, args...)) }

func whyOnDarwin(args []string, _ *profiles.Request, _ []string, _ string) int {
	return runWhole(append([]string{"why"}, args...))
}

func (r *homeRequest) login(string, *homes.Entry) int { return runWhole(r.args) }

// syncHidden is one of the whole program, which tar in a sandbox executes.
func syncHidden([]string) (code int, is bool) { return 0, false }
