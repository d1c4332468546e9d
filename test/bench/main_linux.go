// Command bench is `make bench`: what a sandbox costs, as a markdown table
// with the goal beside each figure.
//
// Every figure is a ratio between things that ran in turns in this one run,
// as one unprivileged user, on this machine: a number of milliseconds would
// say more about the machine than about pccrun. Where it runs as root it
// makes a user for the time; reading the memory of the helpers needs root.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
)

const usage = `usage: go run ./test/bench [flags]

  -base COMMIT only by how much a launch has changed since a commit
  -quick       little of everything: shows that the bench works, not the figures
  -only NAMES  some of: launch work tree sync network peers requests memory standing docker cloud (separated by commas)
  -rounds N    launches of each kind (default 300)
  -files N     files of the large repository (default 100000)
  -standing N  sandboxes that stand while one more starts (default 1000)
`

type options struct {
	only     string
	base     string
	rounds   int
	files    int
	standing int
}

func main() {
	if len(os.Args) > 1 && os.Args[1] == "work" {
		if err := work(os.Args[2:]); err != nil {
			fmt.Fprintln(os.Stderr, "bench work:", err)
			os.Exit(1)
		}
		return
	}
	var o options
	flag.Usage = func() { fmt.Fprint(os.Stderr, usage) }
	flag.StringVar(&o.only, "only", "launch,work,tree,sync,network,peers,requests,memory,standing,docker,cloud", "")
	flag.StringVar(&o.base, "base", "", "")
	flag.IntVar(&o.rounds, "rounds", 300, "")
	flag.IntVar(&o.files, "files", 100_000, "")
	flag.IntVar(&o.standing, "standing", 1000, "")
	quick := flag.Bool("quick", false, "")
	flag.Parse()
	if *quick {
		o.rounds, o.files, o.standing = 10, 2000, 10
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	if err := run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		stop()
		os.Exit(1)
	}
}

func run(ctx context.Context, o options) (err error) {
	b, err := newBench(o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.close()) }()
	if o.base != "" {
		return b.sinceBase(ctx, o.base)
	}
	parts := map[string]func(context.Context) ([]figure, error){
		"launch": b.launch, "work": b.work, "tree": b.tree, "sync": b.sync, "network": b.network, "peers": b.peers, "requests": b.inspected, "memory": b.memory, "standing": b.standing, "docker": b.docker, "cloud": b.cloud,
	}
	fmt.Println("| figure | measured | goal | verdict |\n|---|---|---|---|")
	for name := range strings.SplitSeq(o.only, ",") {
		part, ok := parts[name]
		if !ok {
			return fmt.Errorf("-only %s: no such part", name)
		}
		figures, err := part(ctx)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		for _, f := range figures {
			fmt.Println(f)
		}
	}
	fmt.Printf("\nMeasured on %s.\n", b.on)
	return ctx.Err()
}

// A figure is a row of the table.
type figure struct {
	name   string
	value  float64
	unit   string // "×", "MiB", "µs an entry"
	goal   float64
	detail string // the times that the ratio was made of
	why    string // not empty: it could not be measured
}

func (f figure) String() string {
	goal := fmt.Sprintf("≤ %g %s", f.goal, f.unit)
	if f.why != "" {
		return fmt.Sprintf("| %s | | %s | not measured: %s |", f.name, goal, f.why)
	}
	verdict := "reached"
	if f.value > f.goal {
		verdict = "**missed**"
	}
	return fmt.Sprintf("| %s | %.3g %s (%s) | %s | %s |", f.name, f.value, f.unit, f.detail, goal, verdict)
}
