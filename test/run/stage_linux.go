package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/pccrun/pccrun/test/internal/asmac"
	"github.com/pccrun/pccrun/test/internal/claude"
	"github.com/pccrun/pccrun/test/internal/npm"
	"github.com/pccrun/pccrun/test/internal/verdicts"
)

// patience is how long the tests of one package may take, on a machine that others keep busy.
const patience = 40 * time.Minute

// A stage is a directory that every user can read: the sources with their
// modules, the program under test, the agent, and one test binary a package.
// The repository itself may lie where only root can look.
type stage struct {
	dir      string
	top      string // the repository itself, of which a test makes a release
	packages []testPackage
	broken   []string // packages whose tests do not compile
	agent    string   // Claude Code, "" where it cannot be had
	opencode string   // likewise
	clients  string   // what test/egress sends out beside it, "" likewise
	skips    verdicts.Skips
	rows     verdicts.PackageRows
}

// A testPackage is a package that has tests.
type testPackage struct {
	path   string // import path
	dir    string // in the stage
	binary string
	row    verdicts.PackageRow
	// Patterns for -test.run, "" where no test is one: what root runs too, what `make check`
	// runs too, what only `make test-long` runs.
	root, check, long string
}

// wanted reports whether somebody runs a test of the package in any pass.
func (p testPackage) wanted(identities []identity, o options) bool {
	for _, o.pass = range o.passes() {
		for _, who := range identities {
			if _, has := p.tests(who, o); has {
				return true
			}
		}
	}
	return false
}

// tests returns which tests of the package somebody runs, as a pattern for -test.run
// ("": all), and whether any.
func (p testPackage) tests(who identity, o options) (pattern string, has bool) {
	name := strings.TrimPrefix(p.path, verdicts.Module)
	switch {
	case o.pattern != "":
		return o.pattern, true
	case o.pass == longOnes:
		return p.long, p.long != ""
	case o.pass == check && strings.HasPrefix(name, "test/") && name != "test/rules":
		return p.check, p.check != ""
	case o.pass == usual && who.name == "root" && p.row.Who == verdicts.Marked:
		return p.root, p.root != ""
	}
	return "", true
}

func (s *stage) source() string  { return filepath.Join(s.dir, "src") }
func (s *stage) program() string { return filepath.Join(s.dir, "bin", "pccrun") }

// counted is the program that the scripts of cmd/pccrun launch: where coverage is judged, with counters.
func (s *stage) counted() string { return filepath.Join(s.dir, "bin", "counted") }

// macProgram is the program as a Mac builds it.
func (s *stage) macProgram() string { return filepath.Join(s.dir, "mac", "pccrun") }

// gocache is a cache of Go's with what a small module needs of the standard library.
// Who builds one by an empty cache copies it first: it saves a minute of a processor.
func (s *stage) gocache() string { return filepath.Join(s.dir, "gocache") }

// counters is where one identity's tests leave the counters of coverage.
func (s *stage) counters(identity string) string {
	return filepath.Join(s.dir, "coverage", identity)
}

// prepare fills dir.
func prepare(ctx context.Context, dir string, identities []identity, o options) (*stage, error) {
	s := &stage{dir: dir}
	top, err := output(ctx, "", "git", "rev-parse", "--show-toplevel")
	if err != nil {
		return nil, err
	}
	root := strings.TrimSpace(string(top))
	s.top = root
	if err := s.copySources(ctx, root); err != nil {
		return nil, err
	}
	if s.skips, err = verdicts.ReadSkips(filepath.Join(s.source(), "test", "skips.txt")); err != nil {
		return nil, err
	}
	if s.rows, err = verdicts.ReadPackages(filepath.Join(s.source(), "test", "packages.txt")); err != nil {
		return nil, err
	}
	// The module cache may be root's own, so the copy carries its modules.
	if _, err := output(ctx, s.source(), "go", "mod", "vendor"); err != nil {
		return nil, err
	}
	if err := place(filepath.Join(root, "bin", "pccrun"), s.program()); err != nil {
		return nil, err
	}
	if !o.check { // which sends out no real agent
		if err := s.fetch(ctx); err != nil {
			return nil, err
		}
	}
	if err := s.compile(ctx, identities, o); err != nil {
		return nil, err
	}
	if err := s.warm(ctx); err != nil {
		return nil, err
	}
	return s, errors.Join(s.count(ctx, o), s.mac(ctx))
}

// fetch gets the agents and clients, so that no test's time runs out over a download. Without
// them the tests that need them skip, and that is not allowed.
func (s *stage) fetch(ctx context.Context) error {
	for _, f := range []struct {
		name string
		get  func(context.Context) (string, error)
		to   *string
	}{{"claude", claude.Fetch, &s.agent}, {"opencode", npm.FetchOpencode, &s.opencode}, {"clients", npm.FetchClients, &s.clients}} {
		from, err := f.get(ctx)
		if err != nil {
			fmt.Printf("%s: %v\n", f.name, err)
			continue
		}
		*f.to = filepath.Join(s.dir, "fetched", f.name)
		for _, argv := range [][]string{{"mkdir", "-p", filepath.Dir(*f.to)}, {"cp", "-a", "--reflink=auto", from, *f.to}, {"chmod", "-R", "a+rX", *f.to}} {
			if _, err := output(ctx, "", argv[0], argv[1:]...); err != nil {
				return err
			}
		}
	}
	return nil
}

// tests reports whether tests of one of the packages run.
func (s *stage) tests(packages ...string) bool {
	return slices.ContainsFunc(s.packages, func(p testPackage) bool { return slices.Contains(packages, p.row.Package) })
}

// mac builds the program that a Mac has, for the package whose tests launch it: a user would
// build all of it by an empty cache.
func (s *stage) mac(ctx context.Context) error {
	if !s.tests("test/macos") {
		return nil
	}
	if err := os.Mkdir(filepath.Dir(s.macProgram()), 0o755); err != nil {
		return err
	}
	return asmac.Build(ctx, s.source(), s.macProgram())
}

// warm fills gocache, for the packages whose tests use it.
func (s *stage) warm(ctx context.Context) error {
	if !s.tests("test/agent", "test/tools") {
		return nil
	}
	module := filepath.Join(s.dir, "module")
	if err := os.Mkdir(module, 0o755); err != nil {
		return err
	}
	for name, text := range map[string]string{
		"go.mod": "module example.com/m\n", "m.go": "package main\n\nfunc main() {}\n",
		"m_test.go": "package main\n\nimport \"testing\"\n\nfunc TestM(t *testing.T) {}\n",
	} {
		if err := os.WriteFile(filepath.Join(module, name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	for _, verb := range []string{"test", "vet"} {
		if _, err := output(ctx, module, "env", "GOTOOLCHAIN=local", "GOCACHE="+s.gocache(), "go", verb, "."); err != nil {
			return err
		}
	}
	_, err := output(ctx, "", "chmod", "-R", "a+rX", s.gocache())
	return err
}

// count builds the program as `make build` does, with counters, for the package whose
// tests it is the program of: there it starts in half the time of their binary.
func (s *stage) count(ctx context.Context, o options) error {
	if !s.tests("cmd/pccrun") {
		return nil
	}
	if !o.covers() {
		return place(s.program(), s.counted())
	}
	whole := filepath.Join(s.source(), "cmd", "pccrun", "whole.bin")
	for _, flags := range [][]string{
		{"-ldflags=-s -w", "-o", whole},
		{"-tags=launcher", "-ldflags=-s -w -E github.com/pccrun/pccrun/internal/start.entry", "-o", s.counted()},
	} {
		build := slices.Concat([]string{"CGO_ENABLED=0", "go", "build", "-cover", "-coverpkg=./..."}, flags, []string{"./cmd/pccrun"})
		if _, err := output(ctx, s.source(), "env", build...); err != nil {
			return err
		}
	}
	return os.Remove(whole)
}

// copySources copies what git knows of, or would add: not what it ignores.
func (s *stage) copySources(ctx context.Context, root string) error {
	list, err := output(ctx, root, "git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	if err != nil {
		return err
	}
	for name := range strings.SplitSeq(strings.TrimSuffix(string(list), "\x00"), "\x00") {
		err := place(filepath.Join(root, name), filepath.Join(s.source(), name))
		// A file that git lists may be deleted and not yet committed.
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// place copies a file to where everybody can read it.
func place(from, to string) error {
	info, err := os.Lstat(from)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	if info.Mode()&fs.ModeSymlink != 0 {
		target, err := os.Readlink(from)
		if err != nil {
			return err
		}
		return os.Symlink(target, to)
	}
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, info.Mode().Perm()|0o444)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}

// compile builds a test binary for each package that has tests for somebody, without cgo, as the program
// is built.
func (s *stage) compile(ctx context.Context, identities []identity, o options) error {
	args := append([]string{"CGO_ENABLED=0", "go", "list", "-e", "-f", "{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}}\t{{.Dir}}{{end}}"}, o.packages...)
	out, err := output(ctx, s.source(), "env", args...)
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(out)) {
		name, dir, _ := strings.Cut(strings.TrimSpace(line), "\t")
		binary := filepath.Join(s.dir, "bin", strings.ReplaceAll(name, "/", "_")+".test")
		p := testPackage{path: name, dir: dir, binary: binary, row: s.rows.Of(name), long: s.skips.Long(name)}
		for mark, pattern := range map[verdicts.Mark]*string{verdicts.Root: &p.root, verdicts.Check: &p.check} {
			if *pattern, err = mark.Tests(dir); err != nil {
				return err
			}
		}
		if p.wanted(identities, o) {
			s.packages = append(s.packages, p)
		}
	}
	var built []testPackage
	for _, some := range unlike(s.packages) {
		if s.build(ctx, o, some) == nil {
			built = append(built, some...)
			continue
		}
		for _, p := range some { // one by one, to learn which it is
			if err := s.build(ctx, o, []testPackage{p}); err != nil {
				fmt.Println(err)
				s.broken = append(s.broken, p.path+": does not compile")
				continue
			}
			built = append(built, p)
		}
	}
	s.packages = built
	if len(s.packages) == 0 {
		return fmt.Errorf("no package with tests in %s", strings.Join(o.packages, " "))
	}
	fmt.Printf("built: tests of %d packages\n", len(s.packages))
	return ctx.Err()
}

// unlike divides packages into groups, in none of which two have the same last element: one command of
// Go's builds such a group, and would write two binaries of one name.
func unlike(packages []testPackage) (groups [][]testPackage) {
	for _, p := range packages {
		i := slices.IndexFunc(groups, func(g []testPackage) bool {
			return !slices.ContainsFunc(g, func(q testPackage) bool { return path.Base(q.path) == path.Base(p.path) })
		})
		if i < 0 {
			i, groups = len(groups), append(groups, nil)
		}
		groups[i] = append(groups[i], p)
	}
	return groups
}

// build builds the test binaries of packages. Its flags are those of `make build`, so that what
// both need is compiled once, and without symbols for a debugger, which are a third of what is linked.
func (s *stage) build(ctx context.Context, o options, packages []testPackage) error {
	dir, err := os.MkdirTemp(s.dir, "tests-")
	if err != nil {
		return err
	}
	args := []string{"CGO_ENABLED=0", "go", "test", "-c", "-trimpath", "-ldflags=-s -w", "-o", dir + "/"}
	if o.covers() {
		args = append(args, "-cover", "-coverpkg=./...")
	}
	for _, p := range packages {
		args = append(args, p.path)
	}
	if _, err := output(ctx, s.source(), "env", args...); err != nil {
		return err
	}
	for _, p := range packages {
		if err := os.Rename(filepath.Join(dir, path.Base(p.path)+".test"), p.binary); err != nil {
			return err
		}
	}
	return os.Remove(dir)
}

// run runs a package's tests as somebody.
func (s *stage) run(ctx context.Context, who identity, p testPackage, o options) (report, error) {
	counters := s.counters(who.name)
	if err := os.MkdirAll(counters, 0o777); err != nil {
		return report{}, err
	}
	if err := os.Chmod(counters, 0o777); err != nil {
		return report{}, err
	}
	args := []string{"-test.v=test2json", "-test.paniconexit0", "-test.timeout=" + patience.String()}
	env := append(slices.Clone(who.env), "PCCRUN_TEST_BIN="+s.program(), "PCCRUN_TEST_COUNTED="+s.counted(), "PCCRUN_TEST_GOCACHE="+s.gocache(),
		"PCCRUN_TEST_CLAUDE="+s.agent, "PCCRUN_TEST_OPENCODE="+s.opencode, "PCCRUN_TEST_CLIENTS="+s.clients, "PCCRUN_TEST_MAC="+s.macProgram(), "PCCRUN_TEST_TOP="+s.top)
	if o.covers() {
		args = append(args, "-test.gocoverdir="+counters)
		env = append(env, "GOCOVERDIR="+counters)
	}
	if o.pass == longOnes || o.pattern != "" && o.long {
		env = append(env, "PCCRUN_LONG=1")
	}
	if pattern, _ := p.tests(who, o); pattern != "" {
		args = append(args, "-test.run="+pattern)
	}
	ctx, cancel := context.WithTimeout(ctx, patience+30*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, p.binary, args...)
	cmd.Dir = p.dir
	cmd.Env = env
	// A group of its own, so that what a stopped test leaves goes with it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: who.cred, Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	// A process that a test leaves behind must not hold the pipe for ever.
	cmd.WaitDelay = 5 * time.Second
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	start := time.Now()
	runErr := cmd.Run()
	if ctx.Err() != nil && context.Cause(ctx) != context.DeadlineExceeded {
		return report{}, ctx.Err()
	}
	list, rest, err := verdicts.Read(ctx, p.path, &out)
	if err != nil {
		return report{}, err
	}
	r := report{who: who.name, rest: rest, took: time.Since(start)}
	for _, v := range list {
		r.take(v)
	}
	if runErr != nil && len(r.failures) == 0 { // a panic, a signal, or no end
		r.fail(fmt.Sprintf("%s (%s): %v", p.path, who.name, runErr), r.rest)
	}
	return r, nil
}
