// Command vm is `make test-vm`: it boots unmodified Debian kernels with Debian
// userlands under qemu, and lets an unprivileged user of theirs run pccrun, its
// doctor, its tests and its escape suite, in the set-ups that people have.
//
// It promises that no cell of the table that it writes is guessed: what is in
// it was said by a machine that booted, and a machine that does not answer
// fails the run. Where a set-up is expected to be refused, the refusal has to
// name its cause, and where it names a fix, that is followed and has to help.
//
// Kernels and userlands come from the archive that this machine's own apt is
// set up for. They are kept in the user's cache directory, which all checkouts
// share; what is made of this source, and what machines said, in .cache/vm.
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/test/internal/debian"
	"github.com/pccrun/pccrun/test/internal/verdicts"
)

const usage = `usage: go run ./test/vm [flags]

Boots machines, and says what pccrun keeps in them. Those that took longest
the last time are started first.

  -short         the first few set-ups only, with few tests
  -only PATTERN  set-ups whose name matches
  -no-escape     leave the escape suite out, which takes most of the time
  -jobs N        machines at the same time, of one processor each (default: one
                 for each of this machine's)
  -nice N        the emulators' priority (default 10: behind whatever else runs)
  -tests WHICH   whole, brief (few, and none in set-ups that differ in a setting
                 alone) or none (default whole)
  -prepare       make the images that the set-ups need, and boot none
  -resume        do not boot those again that have answered before, and as they
                 should
  -report        boot none: the table is of what machines said before, and says of
                 the others that they were not tried
  -list          list the set-ups
  -write FILE    put the table into this page, between its marks
  -cache DIR     where downloads and images are kept (default: pccrun-test/vm in
                 the user's cache directory)
`

func main() {
	if isInit() {
		os.Args = []string{"vm", "guest", "init"}
	}
	if len(os.Args) > 2 && os.Args[1] == "guest" {
		err := guest(os.Args[2])
		if err != nil {
			console("%s: %v", os.Args[2], err)
		}
		if os.Getpid() == 1 || os.Args[2] == "drive" {
			time.Sleep(100 * time.Millisecond) // for the console
			halt()
		}
		if err != nil {
			os.Exit(1)
		}
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	if err := host(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "test/vm:", err)
		os.Exit(1)
	}
}

// needed is what makes and boots the machines.
var needed = []debian.Need{
	{Program: "qemu-system-x86_64", Package: "qemu-system-x86"},
	{Program: "qemu-system-aarch64", Package: "qemu-system-arm"},
	{File: "/usr/share/seabios/bios-256k.bin", Package: "seabios"},
	{Program: "debootstrap", Package: "debootstrap"},
	{File: "/usr/sbin/mke2fs", Package: "e2fsprogs"},
	{File: "/usr/sbin/depmod", Package: "kmod"},
	{Program: "xz", Package: "xz-utils"},
}

// host is this machine's side.
func host(ctx context.Context) (err error) {
	var o struct {
		short, list, calm  bool
		resume, prepare    bool
		report             bool
		only, write, cache string
		tests              string
		jobs, nice         int
	}
	flag.Usage = func() { fmt.Fprint(os.Stderr, usage) }
	flag.BoolVar(&o.short, "short", false, "")
	flag.BoolVar(&o.list, "list", false, "")
	flag.BoolVar(&o.resume, "resume", false, "")
	flag.StringVar(&o.tests, "tests", "whole", "")
	flag.BoolVar(&o.prepare, "prepare", false, "")
	flag.BoolVar(&o.report, "report", false, "")
	flag.BoolVar(&o.calm, "no-escape", false, "")
	flag.IntVar(&o.jobs, "jobs", runtime.NumCPU(), "")
	flag.IntVar(&o.nice, "nice", 10, "")
	flag.StringVar(&o.only, "only", "", "")
	flag.StringVar(&o.write, "write", "", "")
	flag.StringVar(&o.cache, "cache", "", "")
	flag.Parse()
	only, err := regexp.Compile("^(?:" + o.only + ")$")
	if err != nil {
		return err
	}
	if o.short {
		o.tests = "brief"
	}
	if o.tests != "whole" && o.tests != "brief" && o.tests != "none" {
		return fmt.Errorf("-tests %s: want whole, brief or none", o.tests)
	}
	var chosen []*setup
	for i := range setups {
		if s := &setups[i]; (o.only == "" || only.MatchString(s.name)) && (!o.short || i < short) {
			chosen = append(chosen, s)
		}
	}
	if o.list || len(chosen) == 0 {
		for _, s := range chosen {
			fmt.Printf("%-14s Linux %-7s %-9s %s\n", s.name, s.kernel, s.userland, s.says)
		}
		return nil
	}
	if missing, err := debian.Install(ctx, needed); err != nil {
		return err
	} else if len(missing) > 0 {
		return fmt.Errorf("missing: %s", strings.Join(missing, " "))
	}
	if o.cache == "" {
		user, err := os.UserCacheDir()
		if err != nil {
			return err
		}
		o.cache = filepath.Join(user, "pccrun-test", "vm")
	}
	kept, err := filepath.Abs(o.cache)
	if err != nil {
		return err
	}
	dir, err := filepath.Abs(".cache/vm")
	if err != nil {
		return err
	}
	if err := errors.Join(os.MkdirAll(kept, 0o755), os.MkdirAll(dir, 0o755)); err != nil {
		return err
	}
	log, err := openLog(filepath.Join(dir, "log"))
	if err != nil {
		return err
	}
	defer log.Close()
	top, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}").Output()
	if err != nil {
		return fmt.Errorf("go list: %w", err)
	}
	m := machine{cache: cache{kept, log}, dir: dir, jobs: max(o.jobs, 1), root: strings.TrimSpace(string(top)), calm: o.calm, tests: o.tests, resume: o.resume, report: o.report, nice: o.nice}
	if o.prepare {
		for _, s := range chosen {
			if _, _, err := m.images(ctx, s); err != nil {
				return err
			}
		}
		return nil
	}
	return m.matrix(ctx, chosen, o.write)
}

// openLog begins the log of a run, of which a checkout has one at a time: two
// would make the same images (flock(2)).
func openLog(path string) (*os.File, error) {
	log, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	err = unix.Flock(int(log.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if err == unix.EWOULDBLOCK {
		err = errors.New("another run makes its machines in this checkout")
	}
	if err == nil {
		err = log.Truncate(0)
	}
	if err != nil {
		log.Close()
		return nil, err
	}
	return log, nil
}

// matrix tries set-ups, and prints what came of each as it ends.
func (m *machine) matrix(ctx context.Context, chosen []*setup, write string) error {
	allowed, err := verdicts.ReadSkips(filepath.Join(m.root, "test", "skips.txt"))
	if err != nil {
		return err
	}
	rows := make([]row, len(chosen))
	failed := 0
	slots := make(chan struct{}, m.jobs)
	var wait sync.WaitGroup
	var told sync.Mutex
	t := tally{began: time.Now(), jobs: m.jobs}
	for _, i := range m.order(chosen) {
		s := chosen[i]
		slots <- struct{}{}
		wait.Go(func() {
			defer func() { <-slots }()
			began := time.Now()
			w := m.row(ctx, s, allowed)
			told.Lock()
			defer told.Unlock()
			rows[i] = w
			failed += len(w.problems)
			if ctx.Err() != nil {
				return
			}
			t.add(&w)
			fmt.Printf("%-14s %-8s %4.0f s  %s\n", s.name, w.verdict(), time.Since(began).Seconds(), w.line())
			for _, p := range w.problems {
				fmt.Printf("    %s\n", strings.ReplaceAll(strings.TrimSpace(p), "\n", "\n    "))
			}
		})
	}
	wait.Wait()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	failed += mended(rows)
	text := table(rows) + "\n" + t.String() + "\n"
	if write != "" {
		if err := writeTable(write, text); err != nil {
			return err
		}
	}
	fmt.Print("\n", text)
	if failed > 0 {
		return errors.New("not every set-up is as it should be")
	}
	return nil
}

// order returns the set-ups' indices, those first that took longest the last
// time: the last machine should not run alone. One that was never tried is
// taken for long.
func (m *machine) order(chosen []*setup) []int {
	took := make([]time.Duration, len(chosen))
	list := make([]int, len(chosen))
	for i, s := range chosen {
		list[i] = i
		took[i] = longBoot
		if r, err := m.said(s); err == nil {
			took[i] = r.Took
		}
	}
	slices.SortStableFunc(list, func(a, b int) int { return cmp.Compare(took[b], took[a]) })
	return list
}

// row tries one set-up, or takes what its machine said before.
func (m *machine) row(ctx context.Context, s *setup, allowed verdicts.Skips) row {
	switch r, err := m.said(s); {
	case m.report && errors.Is(err, fs.ErrNotExist):
		return s.row(ctx, nil, errors.New("by no machine yet"), allowed)
	case m.report:
		return s.row(ctx, r, err, allowed)
	case m.resume && err == nil:
		if w := s.row(ctx, r, nil, allowed); len(w.problems) == 0 {
			return w
		}
	}
	r, err := m.answer(ctx, s)
	if err == nil {
		err = m.keep(r)
	}
	return s.row(ctx, r, err, allowed)
}

// row is what the table has of what a machine said, or of why it said nothing.
func (s *setup) row(ctx context.Context, r *result, err error, allowed verdicts.Skips) row {
	w := judge(s, r, err)
	if err == nil {
		w.took, w.earlier = r.Took, r.earlier
		w.tests(ctx, r.Before.Tests, allowed)
	}
	return w
}

// answer boots a machine.
func (m *machine) answer(ctx context.Context, s *setup) (*result, error) {
	root, files, err := m.prepare(ctx, s)
	if err != nil {
		return nil, err
	}
	began := time.Now()
	r, err := m.boot(ctx, s, root, files)
	if err != nil {
		return nil, err
	}
	r.Took = time.Since(began)
	return r, nil
}

// said returns what a machine said the last time.
func (m *machine) said(s *setup) (*result, error) {
	text, err := os.ReadFile(m.kept(s.name))
	if err != nil {
		return nil, err
	}
	r := &result{earlier: true}
	return r, json.Unmarshal(text, r)
}

// kept is where what a machine said is left, for the next run and whoever wants
// to look.
func (m *machine) kept(setup string) string { return filepath.Join(m.dir, "result-"+setup+".json") }

// keep leaves it there.
func (m *machine) keep(r *result) error {
	text, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(m.kept(r.Setup), text, 0o644)
}
