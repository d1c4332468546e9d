//go:build unix

package macos

import (
	"bytes"
	"os"
	"slices"
	"syscall"
	"time"
)

// How often the processes of a run are looked for while it goes on, and how long it may take to
// end them.
const (
	sampleEvery = 50 * time.Millisecond
	endWithin   = 20 * time.Second
)

// A tracker knows the processes of a run. macOS has no name for a tree of them: kqueue's NOTE_TRACK
// is gone, and a process whose parent ends becomes launchd's. One is the run's if its parent, its
// group, or the variable in its environment is.
type tracker struct {
	system *system
	label  string
	leader int // of the command's group; 0 for a run of an earlier time, whose number another may have by now: the variable alone counts
	known  []process
	asked  map[process]bool // of those whose environment was read already: it says nothing
}

// look takes in what runs now, and returns what of it is the run's.
func (t *tracker) look() ([]process, error) {
	all, err := t.system.processes()
	if err != nil {
		return nil, err
	}
	mine := slices.DeleteFunc(slices.Clone(all), func(p process) bool { return !t.is(p) })
	for more := t.leader > 0; more; {
		more = false
		for _, p := range all {
			if !has(mine, p) && slices.ContainsFunc(mine, func(of process) bool { return p.parent == of.pid || p.group == of.pid }) {
				mine, more = append(mine, p), true
			}
		}
	}
	t.known = mine
	return mine, nil
}

// is reports whether a process is one that was known, or says itself that it is.
func (t *tracker) is(p process) bool {
	if p.pid == os.Getpid() || p.pid <= 1 {
		return false
	}
	if has(t.known, p) || t.leader > 0 && (p.pid == t.leader || p.group == t.leader) {
		return true
	}
	if t.asked[p] {
		return false
	}
	if t.asked == nil {
		t.asked = map[process]bool{}
	}
	t.asked[p] = true // whoever becomes one later has a parent that is known
	return t.system.bears(p.pid, RunVariable+"="+t.label)
}

func has(list []process, p process) bool {
	return slices.ContainsFunc(list, func(o process) bool { return o.pid == p.pid && o.begun == p.begun })
}

// end kills what is the run's until nothing is, and returns the names of what there was.
func (t *tracker) end() (names []string, err error) {
	t.asked = nil
	for deadline := time.Now().Add(endWithin); ; time.Sleep(5 * time.Millisecond) {
		left, err := t.look()
		if err != nil || len(left) == 0 {
			return names, err
		}
		if time.Now().After(deadline) {
			return names, syscall.ETIMEDOUT
		}
		for _, p := range left {
			if !slices.Contains(names, p.name) {
				names = append(names, p.name)
			}
			_ = syscall.Kill(p.pid, syscall.SIGKILL)
		}
	}
}

// variableIn looks through the arguments and variables of a process as macOS has them, behind their
// number: the path of the program and zeros come first.
func variableIn(b []byte, arguments int, variable string) bool {
	next := func() []byte {
		word, rest, _ := bytes.Cut(b, []byte{0})
		b = rest
		return word
	}
	next()
	b = bytes.TrimLeft(b, "\x00")
	for range arguments {
		if len(b) == 0 {
			return false
		}
		next()
	}
	for len(b) > 0 && b[0] != 0 {
		if string(next()) == variable {
			return true
		}
	}
	return false
}
