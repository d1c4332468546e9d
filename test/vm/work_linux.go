package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// What one program of the user's may take: emulated machines are slow.
const (
	testTime   = 20 * time.Minute
	escapeTime = 25 * time.Minute
	launchTime = 5 * time.Minute
)

// probes are those of the escape suite that a set-up tries where the machine
// itself is another: one of each guarantee, the one with the most at stake among
// those that take no root and little of an emulated processor. There is none of
// res.cpu: what an emulated processor is slowed down by is not known.
var probes = []string{
	"FS-001", "FS-002", "FS-038", "PER-007", "FS-042", // fs
	"NET-001", "NET-036", "DNS-001", "NET-057", "LCH-083", // net
	"IPC-001", "IPC-005", "NS-012", "NS-019", // ipc, proc
	"KS-001", "NS-004", "FS-022", "LCH-001", // sys, priv, env
	"RES-001", "RES-002", "RES-015", "RES-004", "RES-010", // res
	"TTY-003", "TTY-004", "INF-004", "INF-006", "IPC-011", // tty, info, launch
}

// few are those of set-ups that differ in a setting, or in what is around: what
// a mount, a FIFO, a socket, a process, a network and a namespace are behind.
var few = []string{"FS-001", "FS-002", "FS-038", "NET-001", "IPC-001", "NS-012", "NS-004", "FS-022"}

// bounds are those of limits, which set-ups try beside few where control groups
// are what they differ in.
var bounds = []string{"RES-001", "RES-002", "RES-015", "RES-004", "RES-010"}

// work is what the user does: launch, ask the doctor, run tests, try to escape.
// what is "launch" for the first, "examine" for the first two, "all" for what the
// set-up says. note hears of each program.
func work(what string, note func(string)) *outcome {
	o := &outcome{TookMS: map[string]int64{}, note: note}
	workspace := filepath.Join(home, "ws")
	if err := os.MkdirAll(workspace, 0o755); err != nil {
		o.Code, o.Said = -1, err.Error()
		return o
	}
	_, o.Said, o.Code = o.run("launch", launchTime, workspace, payload+"/pccrun", "--profile", "default", "-q", "--", "true")
	if what == "launch" {
		return o
	}
	if what == "examine" && o.Code == 0 {
		// With limits too; where they are kept, the doctor has no more to say.
		asked := limits
		if s, _, err := chosen(); err == nil && s.start.around() {
			asked = []string{"--memory", "1g", "--cpus", "1", "--pids", "200"} // a part of a processor takes groups, which are not theirs to give
		}
		limited := slices.Concat([]string{payload + "/pccrun", "--profile", "default"}, asked)
		if _, said, code := o.run("limited launch", launchTime, workspace, append(slices.Clone(limited), "--", "true")...); code != 0 {
			o.Code, o.Said = code, said
		}
		o.Plan, _, _ = o.run("plan", launchTime, workspace, append(limited, "--dry-run", "--json", "--", "true")...)
		if list, err := o.limits(); err == nil && !slices.ContainsFunc(list, func(l string) bool { return !strings.Contains(l, " kept ") }) {
			return o
		}
	}
	o.Doctor, o.DoctorSaid, _ = o.run("doctor", launchTime, workspace, payload+"/pccrun", "doctor", "--json")
	if o.Code != 0 || what == "examine" {
		return o
	}
	s, words, err := chosen()
	if err != nil {
		o.EscapeSaid = err.Error()
		return o
	}
	for _, t := range tested {
		if pattern := t.pattern(s, words); pattern != "" {
			o.Tests = append(o.Tests, o.test(t, pattern))
		}
	}
	if words["vm.calm"] {
		return o
	}
	ids := few
	switch {
	case s.differs() && s.start.grouped():
		ids = slices.Concat(few, bounds)
	case s.differs():
		ids = probes
	}
	o.escape("escape", ids, "2")
	if again := erred(o.Escape); len(again) > 0 {
		// An error proves nothing: beside another probe an emulated processor may
		// be too slow for a launch, which looks for a second and a half and no longer.
		first := o.Escape
		o.escape("escape again", again, "1")
		o.Escape = without(first, o.Escape) + o.Escape
	}
	return o
}

// escape tries probes, some at a time: some wait for a clock, and leave the one
// processor to others.
func (o *outcome) escape(name string, ids []string, atOnce string) {
	o.Escape, o.EscapeSaid, o.EscapeCode = o.run(name, escapeTime, filepath.Join(home, "ws"), payload+"/pccrun", "escape", "--json", "--parallel", atOnce, "--id", strings.Join(ids, ","))
}

// erred lists the probes of a report that ended in an error.
func erred(report string) (ids []string) {
	for line := range strings.Lines(report) {
		var r struct{ ID, Verdict string }
		if json.Unmarshal([]byte(line), &r) == nil && r.Verdict == "error" {
			ids = append(ids, r.ID)
		}
	}
	return ids
}

// without returns a report without the probes that another one has.
func without(report, other string) string {
	later := map[string]bool{}
	for line := range strings.Lines(other) {
		if id := probeID(line); id != "" {
			later[id] = true
		}
	}
	var b strings.Builder
	for line := range strings.Lines(report) {
		if !later[probeID(line)] {
			b.WriteString(line)
		}
	}
	return b.String()
}

// probeID is which probe a line of a report is about.
func probeID(line string) string {
	var r struct{ ID string }
	_ = json.Unmarshal([]byte(line), &r) // what is no line of a report is about none, and stays
	return r.ID
}

// pattern returns which of a package's tests run in a set-up, "" for none. words
// are the kernel's.
func (t *testedPackage) pattern(s *setup, words map[string]bool) string {
	differs := s.differs()
	switch brief := words["vm.brief"]; {
	case words["vm.no-tests"], s.root(), brief && !differs, s.small() && !t.alone:
		return ""
	case slices.Contains(s.whole, t.pkg) && !brief:
		return "."
	case t.kernel && s.start != session:
		return ""
	case differs:
		return t.brief
	}
	return t.least
}

// differs reports whether the machine is another, and not one setting of it, or
// what is around the user's part.
func (s *setup) differs() bool { return len(s.tweaks) == 0 && s.words == "" && !s.start.around() }

// limits are some that a policy asks for.
var limits = []string{"--memory", "1g", "--cpus", "0.5", "--pids", "200"}

// limits reads how far the plan keeps them, and by what.
func (o *outcome) limits() (list []string, err error) {
	var plan struct {
		Guarantees []struct{ Guarantee, State, Mechanism string }
	}
	if err := json.Unmarshal([]byte(o.Plan), &plan); err != nil {
		return nil, err
	}
	for _, g := range plan.Guarantees {
		if g.Guarantee == "res.memory" || g.Guarantee == "res.cpu" || g.Guarantee == "res.pids" {
			list = append(list, limitText(g.Guarantee, g.State, g.Mechanism))
		}
	}
	if len(list) != 3 {
		return nil, fmt.Errorf("the plan answers for %d limits", len(list))
	}
	return list, nil
}

// limitText says how far a limit is kept, and by what.
func limitText(guarantee, state, mechanism string) string {
	text := strings.TrimPrefix(guarantee, "res.") + " " + state
	if mechanism != "" {
		text += " by " + mechanism
	}
	return text
}

// write leaves what was seen for the driver.
func (o *outcome) write(file string) error {
	text, err := json.Marshal(o)
	if err != nil {
		return err
	}
	return os.WriteFile(file, text, 0o644)
}

// run runs a program to its end and returns what it printed.
func (o *outcome) run(name string, limit time.Duration, dir string, argv ...string) (out, errs string, code int) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "PCCRUN_TEST_BIN="+payload+"/pccrun")
	if strings.HasPrefix(name, "test ") && noPrograms("/tmp") { // tests start programs that they have written themselves
		cmd.Env = append(cmd.Env, "TMPDIR="+home)
	}
	cmd.WaitDelay = 5 * time.Second
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	began := time.Now()
	err := cmd.Run()
	o.TookMS[name] = time.Since(began).Milliseconds()
	o.note(fmt.Sprintf("%s: %d ms", name, o.TookMS[name]))
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		code = exit.ExitCode()
	case err != nil:
		code = -1
		stderr.WriteString(err.Error())
	}
	return stdout.String(), stderr.String(), code
}

// noPrograms reports whether nothing may be executed from a directory.
func noPrograms(dir string) bool {
	var st unix.Statfs_t
	return unix.Statfs(dir, &st) == nil && st.Flags&unix.ST_NOEXEC != 0
}

// test runs the tests of a package that match, from its own directory.
func (o *outcome) test(t testedPackage, pattern string) testRun {
	binary := filepath.Join(payload, "tests", filepath.Base(t.pkg)+".test")
	args := []string{binary, "-test.v=test2json", "-test.paniconexit0", "-test.run", pattern, "-test.timeout", (testTime - time.Minute).String()}
	if t.timed != "" {
		args = append(args, "-test.skip", t.timed)
	}
	out, errs, code := o.run("test "+t.pkg, testTime, filepath.Join(payload, "src", t.pkg), args...)
	return testRun{Package: t.pkg, Whole: pattern == ".", Code: code, Output: out + errs}
}

func tail(s string, n int) string { return s[max(0, len(s)-n):] }
