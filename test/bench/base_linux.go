package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"
)

// sinceBase is `make bench-launch`: it builds a commit, and prints a table of how much a launch
// has changed since: this build, that one and bwrap in turns, round by round. Each
// build has state and workspaces of its own, so that none reads what the other left.
func (b *bench) sinceBase(ctx context.Context, commit string) error {
	base, err := b.build(ctx, commit)
	if err != nil {
		return err
	}
	// Both are copied: how a file was written shows in the time of a start, by some per cent.
	own := filepath.Join(b.dir, "pccrun-this")
	if err := errors.Join(exec.CommandContext(ctx, "cp", base, base+"-copy").Run(), exec.CommandContext(ctx, "cp", b.program, own).Run()); err != nil {
		return err
	}
	base += "-copy"
	if _, err := exec.LookPath("bwrap"); err != nil {
		return err
	}
	var empty, repositories [2]string // for that build, and for this
	for i := range empty {
		empty[i] = filepath.Join(b.dir, fmt.Sprint("empty-", i))
		if err := os.Mkdir(empty[i], 0o755); err != nil {
			return err
		}
		if err := b.own(empty[i]); err != nil {
			return err
		}
		if repositories[i], err = b.repository(ctx, fmt.Sprint("repository-", i)); err != nil {
			return err
		}
	}
	fmt.Printf("| launch of /bin/true | this ÷ %.12s | this ÷ bwrap | %.12s ÷ bwrap | medians: this, that, bwrap |\n|---|---|---|---|---|\n", commit, commit)
	for _, place := range []struct {
		name string
		dirs [2]string
	}{{"in an empty directory", empty}, {"in a repository of 1,000 files", repositories}} {
		launch := func(dir, program, state string) variant {
			return variant{dir, []string{program, "-q", "--", "/bin/true"}, []string{"XDG_STATE_HOME=" + filepath.Join(b.dir, state)}}
		}
		times, err := b.wall(ctx, []variant{
			{dir: place.dirs[0], argv: []string{"/bin/true"}},
			{dir: place.dirs[0], argv: append(slices.Clone(bwrap), "/bin/true")},
			launch(place.dirs[0], base, "state-base"),
			launch(place.dirs[1], own, "state-this"),
		}, b.rounds)
		if err != nil {
			return err
		}
		over := func(i int) (list []time.Duration) { // what the sandbox costs, pair by pair
			for j, t := range times[i] {
				list = append(list, max(t-times[0][j], time.Microsecond))
			}
			return list
		}
		peer, old, new := over(1), over(2), over(3)
		fmt.Printf("| %s | **%.3f** | %.2f | %.2f | %s, %s, %s |\n", place.name, ratios(new, old), ratios(new, peer), ratios(old, peer), ms(median(new)), ms(median(old)), ms(median(peer)))
	}
	fmt.Printf("\n%d rounds, over a plain /bin/true. Above 1.02 the commit message says why.\n", b.rounds)
	return ctx.Err()
}

// build builds the program of a commit, and returns its path.
func (b *bench) build(ctx context.Context, commit string) (string, error) {
	source := filepath.Join(b.dir, "base")
	if err := os.Mkdir(source, 0o755); err != nil {
		return "", err
	}
	archive := exec.CommandContext(ctx, "git", "archive", commit)
	extract := exec.CommandContext(ctx, "tar", "-x", "-C", source)
	var err error
	if extract.Stdin, err = archive.StdoutPipe(); err != nil {
		return "", err
	}
	archive.Stderr, extract.Stderr = os.Stderr, os.Stderr
	if err := extract.Start(); err != nil {
		return "", err
	}
	if err := errors.Join(archive.Run(), extract.Wait()); err != nil {
		return "", fmt.Errorf("read commit %s: %w", commit, err)
	}
	build := exec.CommandContext(ctx, "make", "-s", "-C", source, "build")
	build.Stdout, build.Stderr = os.Stderr, os.Stderr
	if err := build.Run(); err != nil {
		return "", fmt.Errorf("build commit %s: %w", commit, err)
	}
	program := filepath.Join(b.dir, "pccrun-base")
	return program, os.Rename(filepath.Join(source, "bin", "pccrun"), program)
}

// repository makes a git repository with 1,000 files of the user's.
func (b *bench) repository(ctx context.Context, name string) (string, error) {
	dir := filepath.Join(b.dir, name)
	if err := os.Mkdir(dir, 0o755); err != nil {
		return "", err
	}
	for i := range 1000 {
		name := filepath.Join(dir, fmt.Sprintf("d%d", i/50), fmt.Sprintf("f%d.go", i))
		if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, []byte("package d\n"), 0o644)); err != nil {
			return "", err
		}
	}
	if err := b.own(dir); err != nil {
		return "", err
	}
	for _, args := range [][]string{{"init", "-q"}, {"add", "."}, {"-c", "user.name=b", "-c", "user.email=b@example.com", "commit", "-qm", "first"}} {
		if out, err := b.command(ctx, dir, append([]string{"git"}, args...)...).CombinedOutput(); err != nil {
			return "", fmt.Errorf("git %s: %w: %s", args[0], err, out)
		}
	}
	return dir, nil
}
