//go:build unix && !launcher

package main

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/internal/sessions"
	"github.com/pccrun/pccrun/run"
	"github.com/pccrun/pccrun/run/leftovers"
)

func killVerb(args []string) int {
	all, force, asJSON, discard := false, false, false, false
	signal, wait := syscall.Signal(unix.SIGTERM), 10*time.Second
	toSignal := func(text string) error {
		if signal = unix.SignalNum("SIG" + strings.TrimPrefix(strings.ToUpper(text), "SIG")); signal == 0 {
			return misuse(quote(text)+" is no signal", "e.g. TERM, INT, KILL")
		}
		return nil
	}
	words, err := options(args, flags{"--all": &all, "--force": &force, "--json": &asJSON, "--no-download": &discard, "--keep-worktree": new(bool), // as ever: nothing but task rm removes one
		"--signal": toSignal, "-s": toSignal, "--wait": durationIn(&wait, 0, "e.g. 3s, 1m")})
	if err == nil && all && len(words) > 0 {
		err = misuse("kill: --all and a session contradict each other", "")
	}
	if err != nil {
		return failSession(err)
	}
	home, err := run.Sessions()
	if err != nil {
		return failSession(err)
	}
	targets, err := killTargets(home, words, all)
	if err != nil {
		return failSession(err)
	}
	code, results := 0, []object{}
	for _, e := range targets {
		done := slow("waiting for session " + e.ID + " to end")
		end := func() error { return endSession(home, e, signal, wait, discard) }
		if plain := end; discard {
			end = func() error { return leftovers.WithoutDownload(home, e, plain) }
		}
		err := end()
		done()
		if force && errors.Is(err, sessions.ErrAlive) {
			err = home.Kill(e, unix.SIGKILL, wait)
		}
		if all && (errors.Is(err, sessions.ErrGone) || errors.Is(err, sessions.ErrElsewhere)) {
			continue
		}
		cause := ""
		if err != nil {
			cause, code = err.Error(), failed
			fail(cause, sessionHint(err))
		}
		results = append(results, object{{"id", e.ID}, {"ended", err == nil}, {"error", cause}})
	}
	if asJSON {
		printJSON(object{{"sessions", results}})
	}
	return code
}

// endSession ends one: a launcher passes the signal on, wherever the command runs, and what
// one that crashed left at a provider is destroyed there; to discard, also what one that ended could not download.
func endSession(home sessions.Home, e sessions.Entry, signal syscall.Signal, wait time.Duration, discard bool) error {
	if e.Resource != nil && (e.State == sessions.Crashed || e.Standing || e.Unfetched && discard) {
		if e.Unfetched {
			say("session " + e.ID + ": what its command changed at " + e.Resource.Provider + " was not downloaded, and is destroyed")
		}
		return leftovers.ClearCrashed(thisProgram(), home, e)
	}
	return home.Kill(e, signal, wait)
}

// killTargets returns the sessions that the words name, without words the only one that runs, or all that may have
// something to end.
func killTargets(home sessions.Home, words []string, all bool) ([]sessions.Entry, error) {
	if len(words) == 0 {
		list, err := home.List()
		var alive []sessions.Entry
		for _, e := range list {
			if e.State == sessions.Running || all && (e.State == sessions.Crashed || e.Standing) {
				alive = append(alive, e)
			}
		}
		if err == nil && !all && len(alive) != 1 {
			err = misuse(fmt.Sprintf("kill: no session named, and %d run", len(alive)), "pccrun ps lists them")
		}
		return alive, err
	}
	var targets []sessions.Entry
	for _, word := range words {
		e, err := home.Find(word)
		if err != nil {
			return nil, err
		}
		targets = append(targets, e)
	}
	return targets, nil
}
