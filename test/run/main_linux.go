// Command run is `make test`: it vets, builds and runs the tests of the repository, and says
// on its last line how many passed. As root it makes two unprivileged users, one of whom runs every
// test, and runs at the same time what differs for root: the packages that test/packages.txt says,
// and the tests with the mark //test:root. A caller who is not root runs every test as
// himself. `make check` is a part of that in a few minutes, `make test-long` all of it as both
// and more.
//
// It promises that nothing is passed over in silence: a skip that is not in
// test/skips.txt fails. No failed test is run again. Afterwards no user, process or file of
// the run is left: a package fails if the user's tests leave a process, or something where
// everybody may write. With -long a package fails whose statements are covered to less than
// 85 %, the files in test/uncovered.txt aside, or that takes much longer than its row.
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

	"github.com/pccrun/pccrun/test/internal/debian"
	"github.com/pccrun/pccrun/test/internal/dockerd"
	"github.com/pccrun/pccrun/test/internal/tempuser"
)

const usage = `usage: go run ./test/run [flags] [package ...]

Runs the tests of the packages (default ./...), two at a time: root's, and those of
two unprivileged users. A caller who is not root runs his own alone.

  -as WHO       root, user or both (default both)
  -run PATTERN  only tests that match, as all of WHO; skips and coverage are not judged
  -check        as the user alone: packages outside of test, test/rules, and tests
                with the mark //test:check
  -long         everything as both, then the tests that test/skips.txt leaves to
                make test-long; coverage and times are judged
  -fuzz TIME    run every fuzz target for TIME instead
  -fuzz-all TIME  run them for TIME altogether instead
  -write FILE  add what fuzzing tried to the table there, and keep the inputs that cover more
  -v            print every test's output, not only that of failures
`

// options are what the command line says, and which pass is under way.
type options struct {
	as       string
	pattern  string
	check    bool
	long     bool
	fuzz     time.Duration // of each target
	fuzzAll  time.Duration // of all of them
	write    string        // the page of what fuzzing tried
	verbose  bool
	packages []string
	pass     pass
}

// A pass is what part of the tests runs.
type pass int

const (
	usual      pass = iota // what decides a landing
	check                  // its quick part
	everything             // as both, whatever marks say
	longOnes               // what only make test-long runs
)

// passes are what the options ask for.
func (o options) passes() []pass {
	switch {
	case o.long && o.pattern == "":
		return []pass{everything, longOnes}
	case o.check:
		return []pass{check}
	}
	return []pass{usual}
}

// whole reports whether every test of a pass runs, so that skips can be judged.
func (o options) whole() bool { return o.pattern == "" }

// covers reports whether coverage is counted and judged.
func (o options) covers() bool { return o.long && o.whole() && o.as == "both" }

// all is what is tested where no package is named.
var all = []string{"./..."}

func main() {
	var o options
	flag.Usage = func() { fmt.Fprint(os.Stderr, usage) }
	flag.StringVar(&o.as, "as", "both", "")
	flag.StringVar(&o.pattern, "run", "", "")
	flag.BoolVar(&o.check, "check", false, "")
	flag.BoolVar(&o.long, "long", false, "")
	flag.DurationVar(&o.fuzz, "fuzz", 0, "")
	flag.DurationVar(&o.fuzzAll, "fuzz-all", 0, "")
	flag.StringVar(&o.write, "write", "", "")
	flag.BoolVar(&o.verbose, "v", false, "")
	flag.Parse()
	if o.check {
		o.as = "user"
	}
	if o.packages = flag.Args(); len(o.packages) == 0 {
		o.packages = all
	}
	// A signal ends the tests by the context, and then all is tidied up.
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	run := test
	if o.fuzz+o.fuzzAll > 0 {
		run = fuzz
	}
	if err := run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "test/run:", err)
		stop()
		os.Exit(1)
	}
}

// errFailed is the end of a run whose reasons have been printed already.
var errFailed = errors.New("some tests failed")

func test(ctx context.Context, o options) (err error) {
	start := time.Now()
	missing, err := debian.Install(ctx, needed)
	if err != nil {
		return err
	}
	if len(missing) > 0 {
		fmt.Println("missing, and so not tested:", strings.Join(missing, " "))
	}
	if os.Getuid() == 0 { // as an engine does when it first starts: here its service never does
		if err := os.MkdirAll(dockerd.Data, 0o710); err != nil {
			return err
		}
	}
	total := report{failures: vet(ctx, o.packages, o.long)}
	dir, err := os.MkdirTemp("", "pccrun-test-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if err := os.Chmod(dir, 0o755); err != nil {
		return err
	}
	workers, remove, err := identify(o.as)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, remove()) }()
	stage, err := prepare(ctx, dir, identities(workers), o)
	if err != nil {
		return err
	}

	total.failures = append(total.failures, stage.broken...)
	for _, o.pass = range o.passes() {
		part := report{}
		if err := stage.runAll(ctx, workers, o, &part); err != nil {
			return err
		}
		if o.whole() {
			stage.judgeSkips(&part)
			part.judgeTimes(o)
		}
		total.add(&part)
		total.lanes = append(total.lanes, part.lanes...)
	}
	if o.covers() {
		if err := stage.judgeCoverage(&total, identities(workers)); err != nil {
			return err
		}
	}
	total.printLanes(identities(workers))
	total.printSlowest(20)
	fmt.Printf("\ntook %s\n", time.Since(start).Round(time.Second))
	total.printFailures()
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
	made *tempuser.User      // nil: the caller
}

// identify returns who is to run the tests, and what takes the made ones away again. Two
// workers keep two processors busy: root's goes on as a user, a second one, when root has nothing left.
func identify(as string) ([]worker, func() error, error) {
	nothing := func() error { return nil }
	caller := identity{name: "user", env: os.Environ()}
	if os.Getuid() != 0 {
		if as == "root" {
			return nil, nil, errors.New("-as root: the caller is not root")
		}
		fmt.Println("not root: the tests run as the caller only")
		return []worker{{caller}}, nothing, nil
	}
	caller.name = "root"
	if as == "root" {
		return []worker{{caller}}, nothing, nil
	}
	first, err := tempuser.New()
	if err != nil {
		return nil, nil, err
	}
	second, err := tempuser.New()
	if err != nil {
		return nil, nil, errors.Join(err, first.Remove())
	}
	remove := func() error { return errors.Join(first.Remove(), second.Remove()) }
	user := func(u *tempuser.User) identity {
		return identity{name: "user", env: u.Environ(os.Environ()), cred: u.Credential(), made: u}
	}
	if as == "user" {
		return []worker{{user(first)}, {user(second)}}, remove, nil
	}
	return []worker{{caller, user(second)}, {user(first)}}, remove, nil
}

// identities are those of the workers, once each by name: one made user stands for the others.
func identities(workers []worker) (list []identity) {
	for _, who := range slices.Concat(workers...) {
		if !slices.ContainsFunc(list, func(have identity) bool { return have.name == who.name }) {
			list = append(list, who)
		}
	}
	return list
}

// vet checks the packages, where it takes long for every system that pccrun builds for, and
// returns the systems that it found something for. Some packages exist for
// Linux only, which the pattern of all passes over and a name does not.
func vet(ctx context.Context, packages []string, long bool) []string {
	systems := []string{"linux/" + runtime.GOARCH}
	if long && slices.Equal(packages, all) {
		systems = append(systems, "linux/arm64", "darwin/arm64", "windows/amd64")
	}
	var failed []string
	for _, system := range systems {
		goos, goarch, _ := strings.Cut(system, "/")
		cmd := exec.CommandContext(ctx, "go", append([]string{"vet", "-trimpath"}, packages...)...)
		cmd.Env = append(os.Environ(), "GOOS="+goos, "GOARCH="+goarch, "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			fmt.Printf("%s", out)
			failed = append(failed, "vet for "+system)
		}
	}
	fmt.Println("vet:", strings.Join(systems, ", "))
	return failed
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
