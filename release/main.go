// Release writes what a release of pccrun consists of: an archive for each system, Debian packages, npm packages, the
// script that installs one of them, the list of what is linked (CycloneDX), and the checksums of all.
//
// It builds what is committed, from a copy, and nothing in what it writes depends on when or where it was built: two
// releases of one commit by one version of Go are equal, byte for byte.
package main

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

func main() {
	version := flag.String("version", "", "of the release: 1.2.3 or 1.2.3-rc.1")
	source := flag.String("source", "..", "a git work tree of pccrun")
	out := flag.String("out", "../dist", "an empty or new directory for what is made")
	only := flag.String("only", "", "one system, as linux-amd64, in place of all: for tests")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := release(ctx, *version, *source, *out, *only)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

// A target is a system that is built for.
type target struct{ OS, Arch string }

func (t target) String() string { return t.OS + "-" + t.Arch }

var targets = []target{{"linux", "amd64"}, {"linux", "arm64"}, {"darwin", "amd64"}, {"darwin", "arm64"}, {"windows", "amd64"}}

// A commit is what is released.
type commit struct {
	ID   string
	Time time.Time // of the commit, and of every file in a package
}

// A built program, with all that goes beside it.
type built struct {
	target  target
	program string // path
	whole   string // path of the program that says what is linked: a program for Linux carries it, and is linked from less
	files   []file // of the archive, the program first
}

// A file of a package.
type file struct {
	name string // in an archive, relative
	path string // on this machine
	mode os.FileMode
}

var versions = regexp.MustCompile(`^[0-9]+\.[0-9]+\.[0-9]+(-[0-9a-z.]+)?$`)

func release(ctx context.Context, version, source, out, only string) (err error) {
	if !versions.MatchString(version) {
		return fmt.Errorf("version %q: want 1.2.3 or 1.2.3-rc.1: make release VERSION=1.2.3", version)
	}
	if entries, err := os.ReadDir(out); err == nil && len(entries) > 0 {
		return fmt.Errorf("%s is not empty: remove it, or name another directory", out)
	}
	work, err := os.MkdirTemp("", "pccrun-release-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()
	if err := os.MkdirAll(out, 0o755); err != nil {
		return err
	}
	defer func() { // half a release is none
		if err != nil {
			err = errors.Join(err, os.RemoveAll(out))
		}
	}()
	tree := filepath.Join(work, "tree")
	at, err := checkOut(ctx, source, tree)
	if err != nil {
		return err
	}
	var programs []built
	for _, t := range targets {
		if only != "" && only != t.String() {
			continue
		}
		fmt.Fprintln(os.Stderr, "release: building", t)
		program, err := build(ctx, tree, work, version, at, t)
		if err != nil {
			return err
		}
		programs = append(programs, program)
	}
	common, err := documents(ctx, tree, work, programs)
	if err != nil {
		return err
	}
	for _, p := range programs {
		p.files = slices.Concat([]file{{executable(p.target), p.program, 0o755}}, forPlaces(programs, p.target), common)
		if err := pack(out, work, version, at, p); err != nil {
			return fmt.Errorf("%s: %w", p.target, err)
		}
	}
	if len(programs) == 0 {
		return fmt.Errorf("there is no system %q", only)
	}
	if err := npmMain(out, version, at, tree); err != nil {
		return err
	}
	if err := copyFile(filepath.Join(tree, "release", "install.sh"), filepath.Join(out, "install.sh"), 0o755); err != nil {
		return err
	}
	return checksums(out)
}

// forPlaces are the programs for sandboxes of another processor, or of a machine that is no Linux.
func forPlaces(programs []built, t target) (list []file) {
	for _, p := range programs {
		if p.target.OS == "linux" && p.target != t {
			list = append(list, file{"pccrun-" + p.target.String(), p.whole, 0o755})
		}
	}
	return list
}

func executable(t target) string {
	if t.OS == "windows" {
		return "pccrun.exe"
	}
	return "pccrun"
}

// run runs a program in a directory and returns its output.
func run(ctx context.Context, dir string, env []string, name string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Env, cmd.WaitDelay = dir, append(os.Environ(), env...), time.Second
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, strings.TrimSpace(said.String()))
	}
	return out, nil
}

// checkOut writes what is committed into a new directory.
func checkOut(ctx context.Context, source, tree string) (commit, error) {
	head, err := run(ctx, source, nil, "git", "log", "-1", "--format=%H %ct")
	if err != nil {
		return commit{}, err
	}
	id, seconds, _ := strings.Cut(strings.TrimSpace(string(head)), " ")
	unix, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil {
		return commit{}, err
	}
	top, err := run(ctx, source, nil, "git", "rev-parse", "--show-toplevel")
	if err != nil {
		return commit{}, err
	}
	archive, err := run(ctx, strings.TrimSpace(string(top)), nil, "git", "archive", "--format=tar", id)
	if err != nil {
		return commit{}, err
	}
	return commit{id, time.Unix(unix, 0).UTC()}, extract(bytes.NewReader(archive), tree)
}

// extract writes the regular files of an archive that git made.
func extract(archive io.Reader, tree string) error {
	if err := os.Mkdir(tree, 0o755); err != nil {
		return err
	}
	root, err := os.OpenRoot(tree)
	if err != nil {
		return err
	}
	defer root.Close()
	for r := tar.NewReader(archive); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		switch h.Typeflag {
		case tar.TypeDir:
			err = root.MkdirAll(filepath.Clean(h.Name), 0o755)
		case tar.TypeReg:
			var text []byte
			if text, err = io.ReadAll(r); err == nil {
				err = root.WriteFile(h.Name, text, h.FileInfo().Mode().Perm())
			}
		}
		if err != nil {
			return err
		}
	}
}

// build builds the program for a system. The program for Linux is three in one file: see the Makefile.
func build(ctx context.Context, tree, work, version string, at commit, t target) (built, error) {
	program := filepath.Join(work, t.String(), executable(t))
	stamp := fmt.Sprintf("-s -w -buildid= -X main.version=%s -X main.commit=%s -X main.date=%s", version, at.ID[:12], at.Time.Format(time.DateOnly))
	env := []string{"CGO_ENABLED=0", "GOFLAGS=-mod=readonly", "GOOS=" + t.OS, "GOARCH=" + t.Arch, "GOAMD64=v1", "GOARM64=v8.0"}
	compile := func(to string, flags ...string) error {
		args := slices.Concat([]string{"build", "-trimpath", "-buildvcs=false"}, flags, []string{"-o", to, "./cmd/pccrun"})
		_, err := run(ctx, tree, env, "go", args...)
		return err
	}
	if t.OS != "linux" {
		return built{target: t, program: program, whole: program}, compile(program, "-ldflags", stamp)
	}
	embedded := func(name string) string { return filepath.Join(tree, "cmd", "pccrun", name) }
	place, whole := program+".place", program+".whole"
	if err := compile(place, "-tags", "launcher,place", "-ldflags", stamp); err != nil {
		return built{}, err
	}
	if _, err := run(ctx, tree, nil, "go", "run", "cmd/pccrun/compress.go", place, embedded("place.gz")); err != nil {
		return built{}, err
	}
	if err := compile(whole, "-tags", "carries", "-ldflags", stamp); err != nil {
		return built{}, err
	}
	if err := copyFile(whole, embedded("whole.bin"), 0o644); err != nil {
		return built{}, err
	}
	return built{target: t, program: program, whole: whole}, compile(program, "-tags", "launcher", "-ldflags", stamp+" -E github.com/pccrun/pccrun/internal/start.entry")
}

// checksums writes the SHA-256 of every file, as sha256sum does.
func checksums(out string) error {
	entries, err := os.ReadDir(out)
	if err != nil {
		return err
	}
	var list strings.Builder
	for _, e := range entries {
		text, err := os.ReadFile(filepath.Join(out, e.Name()))
		if err != nil {
			return err
		}
		fmt.Fprintf(&list, "%x  %s\n", sha256.Sum256(text), e.Name())
	}
	return os.WriteFile(filepath.Join(out, "SHA256SUMS"), []byte(list.String()), 0o644)
}

func copyFile(from, to string, mode os.FileMode) error {
	text, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, text, mode)
}
