package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// What one program of the user's may take: emulated machines are slow.
const (
	testTime   = 8 * time.Minute
	escapeTime = 25 * time.Minute
	launchTime = 5 * time.Minute
)

// probes are those of the escape suite that every set-up tries: of each
// guarantee, what a minute of an emulated processor allows. Set-ups with tests
// try all that are critical.
var probes = []string{
	"FS-001", "FS-002", "FS-022", "PER-007", "NET-001", "NET-013", "IPC-001", "IPC-005", "NS-004", "NS-012", "NS-019", "LCH-001",
	"RES-001", "RES-002", "INF-004",
}

// work is the user's part: launch, ask the doctor, run tests, try to escape.
func work(part string) error {
	o := outcome{TookMS: map[string]int64{}}
	workspace := filepath.Join(home, "ws")
	if err := os.MkdirAll(workspace, 0o755); err != nil {
		return err
	}
	_, o.Said, o.Code = o.run("launch", launchTime, workspace, payload+"/pccrun", "--profile", "default", "-q", "--", "true")
	o.Doctor, o.DoctorSaid, _ = o.run("doctor", launchTime, workspace, payload+"/pccrun", "doctor", "--json")
	if o.Code == 0 && part != "after" {
		if part == "long" {
			for _, p := range tested {
				o.Tests = append(o.Tests, o.test(p))
			}
		}
		if line, err := os.ReadFile("/proc/cmdline"); err != nil || strings.Contains(string(line), " vm.calm") {
			return o.write(part)
		}
		args := []string{payload + "/pccrun", "escape", "--json"}
		if part == "short" {
			args = append(args, "--id", strings.Join(probes, ","))
		} else {
			args = append(args, "--severity", "critical")
		}
		o.Escape, o.EscapeSaid, o.EscapeCode = o.run("escape", escapeTime, workspace, args...)
	}
	return o.write(part)
}

// write leaves what was seen for the driver.
func (o *outcome) write(part string) error {
	text, err := json.Marshal(o)
	if err != nil {
		return err
	}
	// Renamed when complete: half a result is none.
	file := filepath.Join(results, part)
	if err := os.WriteFile(file+".new", text, 0o644); err != nil {
		return err
	}
	return os.Rename(file+".new", file)
}

// run runs a program to its end and returns what it printed.
func (o *outcome) run(name string, limit time.Duration, dir string, argv ...string) (out, errs string, code int) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "PCCRUN_TEST_BIN="+payload+"/pccrun")
	cmd.WaitDelay = 5 * time.Second
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	began := time.Now()
	err := cmd.Run()
	o.TookMS[name] = time.Since(began).Milliseconds()
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

// test runs the tests of a package, from its own directory.
func (o *outcome) test(pkg string) testRun {
	t := testRun{Package: pkg}
	binary := filepath.Join(payload, "tests", strings.ReplaceAll(pkg, "/", "_")+".test")
	out, errs, code := o.run("test "+pkg, testTime, filepath.Join(payload, "src", pkg), binary, "-test.v", "-test.timeout", (testTime - time.Minute).String())
	t.Code = code
	t.count(out)
	if code != 0 {
		t.Output = tail(out+errs, 20000)
	}
	return t
}

// count reads the verdicts of the tests at the top level.
func (t *testRun) count(output string) {
	for line := range strings.Lines(output) {
		switch {
		case strings.HasPrefix(line, "--- PASS"):
			t.Passed++
		case strings.HasPrefix(line, "--- SKIP"):
			t.Skipped++
		case strings.HasPrefix(line, "--- FAIL"):
			t.Failed++
			t.Names = append(t.Names, strings.Fields(line)[2])
		}
	}
}

func tail(s string, n int) string { return s[max(0, len(s)-n):] }
