// Command others is `make test-others`: it has other people's test suites judge pccrun. Each runs outside
// and, the same command, inside a sandbox, and whatever passes outside and not inside is a difference.
//
// It promises that no difference is passed over in silence: one that test/others/known.txt does not explain
// fails, as does a suite that does not end, that prints no result, that leaves a process, or that changes
// its user's home outside.
//
// Its arguments are suites: none means all that need no checkout, or whose checkout is named. It reads ALL (1: every
// test of git and Python; of git also which kinds, "t5404 t74"), DIR (a directory in which what is fetched, built and printed stays), FLAGS (further
// flags of pccrun), AS (who runs the suites where the caller is root: nobody), and the variables of checkouts.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/pccrun/pccrun/test/internal/debian"
	"github.com/pccrun/pccrun/test/internal/orphans"
	"github.com/pccrun/pccrun/test/internal/tlsserver"
	"github.com/pccrun/pccrun/test/internal/verdicts"
)

const knownFile = "test/others/known.txt"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "test/others:", err)
		stop()
		os.Exit(1)
	}
}

func run(ctx context.Context, names []string) (err error) {
	var chosen []suite
	var all []string
	for _, s := range suites {
		all = append(all, s.name)
		named := slices.Contains(names, s.name)
		switch {
		case named && !s.had():
			return fmt.Errorf("%s needs %s, the path of a checkout", s.name, s.checkout)
		case named || len(names) == 0 && s.had():
			chosen = append(chosen, s)
		}
	}
	if len(names) > len(chosen) {
		return fmt.Errorf("%s: the suites are %s", strings.Join(names, ", "), strings.Join(all, ", "))
	}
	known, err := verdicts.Rows(knownFile, 3)
	if err != nil {
		return err
	}
	// What outlives its suite becomes a child of this process, whatever its session.
	if err := orphans.Adopt(); err != nil {
		return err
	}
	dir := os.Getenv("DIR")
	if dir == "" {
		if dir, err = os.MkdirTemp("", "pccrun-others-"); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	}
	b, err := newBench(dir)
	if err != nil {
		return err
	}
	var failed []string
	table := ""
	for _, s := range chosen {
		r, err := b.try(ctx, s, known)
		if err != nil {
			fmt.Printf("%s: %v\n", s.name, err)
		} else {
			fmt.Print(r.lines())
			table += r.markdown(b.values["ALL"], b.flags)
		}
		if err != nil || len(r.new) > 0 {
			failed = append(failed, s.name)
		}
	}
	fmt.Printf("\n%s", table)
	if len(failed) > 0 {
		return fmt.Errorf("no result, or a difference that %s does not explain: %s", knownFile, strings.Join(failed, ", "))
	}
	return nil
}

// try runs a suite, and compares.
func (b *bench) try(ctx context.Context, s suite, known [][]string) (*row, error) {
	missing, err := debian.Install(ctx, s.needs)
	if len(missing) > 0 {
		err = fmt.Errorf("needs %s", strings.Join(missing, " "))
	}
	if err == nil {
		err = errors.Join(b.build(ctx, s), b.give("work/"+s.name)) // another user's, of an earlier run in this directory
	}
	if err != nil {
		return nil, err
	}
	if s.server {
		b.authority = b.dir + "/authority.pem"
		if b.cred != nil { // the environment's counts for what the inspector sends where root alone can write it
			b.authority = "/run/pccrun-others.pem"
			defer os.Remove(b.authority)
		}
		ports, stop, err := tlsserver.Serve(b.authority, tlsserver.Address(), tlsserver.Address())
		if err != nil {
			return nil, err
		}
		defer stop()
		b.values["HOST"], b.values["READ"], b.values["PASSED"] = tlsserver.Address().String(), ports[0], ports[1]
	}
	version, err := b.outside(ctx, s, "version", s.version)
	if err != nil {
		return nil, err
	}
	r := &row{suite: s, version: strings.ReplaceAll(strings.TrimSpace(string(version)), "\n", ", "), when: time.Now()}
	if s.judge == same || s.judge == attacks {
		if r.without, err = b.results(ctx, s, "outside", b.outside); err != nil {
			return nil, err
		}
		_ = orphans.End(patience) // that is the suite's own affair
	}
	before, err := b.home()
	if err != nil {
		return nil, err
	}
	way := b.inside
	if s.judge == itself {
		way = b.outside
	}
	if r.within, err = b.results(ctx, s, "inside", way); err != nil {
		return nil, err
	}
	for _, left := range orphans.End(patience) {
		r.new = append(r.new, "left running: "+left)
	}
	after, err := b.home()
	if err != nil {
		return nil, err
	}
	for name := range union(before, after) {
		if before[name] != after[name] {
			r.new = append(r.new, "changed outside: "+name)
		}
	}
	return r, r.compare(known)
}

// results are those of a suite's script. That tests fail makes no error; that there are none does.
func (b *bench) results(ctx context.Context, s suite, name string, way func(context.Context, suite, string, string) ([]byte, error)) (results, error) {
	out, err := way(ctx, s, name, s.run)
	if ctx.Err() != nil || errors.Is(err, context.DeadlineExceeded) {
		return nil, fmt.Errorf("%s: it did not end: %w", name, err)
	}
	list, readErr := s.read(out)
	if readErr != nil || len(list) == 0 {
		return nil, errors.Join(fmt.Errorf("%s: no results in %s.out", name, b.log(s, name)), readErr, err)
	}
	return list, nil
}
