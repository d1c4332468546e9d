// Command run is `make test`: it vets, builds and runs every test of the
// repository, as root and as an unprivileged user where it is root, else as
// whoever calls it, and says on its last line how many passed.
//
// It promises that nothing is passed over in silence: a skip that is not in
// test/skips.txt fails, and so does a package whose statements are covered to
// less than 85 %, the files in test/uncovered.txt aside. Afterwards no user,
// process or file of the run is left: a package fails that as the user leaves
// something where everybody may write.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/pccrun/pccrun/test/internal/tempuser"
)

const usage = `usage: go run ./test/run [flags] [package ...]

Runs the tests of the packages (default ./...) as root and as an unprivileged
user, or only as the caller where that is not root.

  -as WHO       root, user or both (default both)
  -run PATTERN  only tests that match; skips and coverage are not judged
  -fuzz TIME    run every fuzz target for TIME instead
  -v            print every test's output, not only that of failures
`

// options are what the command line says.
type options struct {
	as       string
	pattern  string
	fuzz     time.Duration
	verbose  bool
	packages []string
}

// everything is what is tested where no package is named.
var everything = []string{"./..."}

func main() {
	var o options
	flag.Usage = func() { fmt.Fprint(os.Stderr, usage) }
	flag.StringVar(&o.as, "as", "both", "")
	flag.StringVar(&o.pattern, "run", "", "")
	flag.DurationVar(&o.fuzz, "fuzz", 0, "")
	flag.BoolVar(&o.verbose, "v", false, "")
	flag.Parse()
	if o.packages = flag.Args(); len(o.packages) == 0 {
		o.packages = everything
	}
	// A signal ends the tests by the context, and then all is tidied up.
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	run := test
	if o.fuzz > 0 {
		run = fuzz
	}
	if err := run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "test/run:", err)
		stop()
		os.Exit(1)
	}
}

// tries is how often a test is run at most, until it has passed.
const tries = 3

// errFailed is the end of a run whose reasons have been printed already.
var errFailed = errors.New("some tests failed")

func test(ctx context.Context, o options) (err error) {
	start := time.Now()
	if err := install(ctx); err != nil {
		return err
	}
	total := report{failures: vet(ctx, o.packages)}
	dir, err := os.MkdirTemp("", "pccrun-test-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if err := os.Chmod(dir, 0o755); err != nil {
		return err
	}
	stage, err := prepare(ctx, dir, o.packages)
	if err != nil {
		return err
	}
	identities, remove, err := identify(o.as)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, remove()) }()

	total.failures = append(total.failures, stage.broken...)
	for _, who := range identities {
		for _, p := range stage.packages {
			before := who.belongings(public)
			r, err := stage.run(ctx, who, p, o)
			// Tests of terminals, limits and proxies meet the clock. One that
			// passes when it is run again is told as flaky, by name, at the end: it
			// is somebody's next work, and no reason to stop.
			for try := 1; try < tries && err == nil && len(r.failures) > 0 && ctx.Err() == nil; try++ {
				if _, err = who.tidy(public, before); err != nil { // a test that fails may leave something
					break
				}
				var again report
				if again, err = stage.run(ctx, who, p, r.again(o)); err == nil {
					r = r.settle(again)
				}
			}
			left, leftErr := who.tidy(public, before)
			if err := errors.Join(err, leftErr); err != nil {
				return err
			}
			for _, path := range left {
				r.failures = append(r.failures, fmt.Sprintf("%s (%s): leaves %s", p.path, who.name, path))
			}
			total.add(r)
		}
	}
	if o.pattern == "" {
		if err := stage.judge(&total, o, identities); err != nil {
			return err
		}
	}
	fmt.Printf("\ntook %s\n", time.Since(start).Round(time.Second))
	for _, name := range total.flaky {
		fmt.Println("flaky:", name)
	}
	for _, name := range total.failures {
		fmt.Println("failed:", name)
	}
	fmt.Printf("%d passed, %d failed, %d skipped\n", total.passed, len(total.failures), total.skipped)
	if len(total.failures) > 0 {
		return errFailed
	}
	return nil
}

// An identity is who runs the tests.
type identity struct {
	name string
	env  []string
	cred *syscall.Credential // nil: the caller
}

// identify returns who is to run the tests, and what takes them away again.
func identify(as string) ([]identity, func() error, error) {
	nothing := func() error { return nil }
	caller := identity{name: "user", env: os.Environ()}
	if os.Getuid() != 0 {
		if as == "root" {
			return nil, nil, errors.New("-as root: the caller is not root")
		}
		fmt.Println("not root: the tests run as the caller only")
		return []identity{caller}, nothing, nil
	}
	caller.name = "root"
	if as == "root" {
		return []identity{caller}, nothing, nil
	}
	u, err := tempuser.New()
	if err != nil {
		return nil, nil, err
	}
	user := identity{name: "user", env: u.Environ(os.Environ()), cred: u.Credential()}
	if as == "user" {
		return []identity{user}, u.Remove, nil
	}
	return []identity{caller, user}, u.Remove, nil
}

// vet checks the packages for every system that pccrun builds for, and
// returns the systems that it found something for. Some packages exist for
// Linux only, which the pattern of all passes over and a name does not.
func vet(ctx context.Context, packages []string) []string {
	systems := []string{"linux/" + runtime.GOARCH}
	if slices.Equal(packages, everything) {
		systems = append(systems, "linux/arm64", "darwin/arm64", "windows/amd64")
	}
	var failed []string
	for _, system := range systems {
		goos, goarch, _ := strings.Cut(system, "/")
		cmd := exec.CommandContext(ctx, "go", append([]string{"vet"}, packages...)...)
		cmd.Env = append(os.Environ(), "GOOS="+goos, "GOARCH="+goarch, "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			fmt.Printf("%s", out)
			failed = append(failed, "vet for "+system)
		}
	}
	fmt.Println("vet:", strings.Join(systems, ", "))
	return failed
}

// fuzz runs each fuzz target of the packages for the time that o says.
func fuzz(ctx context.Context, o options) error {
	out, err := output(ctx, "", "go", append([]string{"test", "-list", "^Fuzz", "-json"}, o.packages...)...)
	if err != nil {
		return err
	}
	for _, t := range fuzzTargets(out) {
		fmt.Printf("%s %s for %s\n", t.pkg, t.name, o.fuzz)
		// An input that is only new would be made smaller for a minute, in which nothing is tried.
		cmd := exec.CommandContext(ctx, "go", "test", "-run", "^$", "-fuzz", "^"+t.name+"$", "-fuzztime", o.fuzz.String(), "-fuzzminimizetime", "2s", t.pkg)
		cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
		if err := cmd.Run(); err != nil {
			return fmt.Errorf("fuzz %s %s: %w", t.pkg, t.name, err)
		}
	}
	return nil
}

// output runs a program in dir and returns what it prints; its error has
// what it printed on standard error.
func output(ctx context.Context, dir, name string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	out, err := cmd.Output()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return out, fmt.Errorf("%s %s: %w\n%s", filepath.Base(name), strings.Join(args, " "), err, exit.Stderr)
	}
	return out, err
}
