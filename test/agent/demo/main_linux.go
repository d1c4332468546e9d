// Command demo is `make demo`: the real Claude Code, in pccrun's sandbox,
// mends a small project and then tries what it must not do. The model is a
// script on this machine's loopback; nothing leaves the machine, and the
// project is a temporary one.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/pccrun/pccrun/test/agent"
	"github.com/pccrun/pccrun/test/internal/claude"
)

func main() {
	if err := demo(); err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

func demo() (err error) {
	fmt.Println("fetching Claude Code", claude.Version, "(370 MB) unless it is in the cache")
	waits := time.NewTicker(10 * time.Second)
	go func() {
		for range waits.C {
			fmt.Println("still fetching")
		}
	}()
	program, err := claude.Fetch(context.Background())
	waits.Stop()
	if err != nil {
		return err
	}
	pccrun, err := filepath.Abs("bin/pccrun")
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "pccrun-demo-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	project, err := agent.NewProject(dir)
	if err != nil {
		return err
	}
	if err := project.Install(program); err != nil {
		return err
	}
	// Port 1 has no listener; the connection must be refused before it matters.
	steps := project.Script(project.Attempts(1, "86397"))
	endpoint, err := agent.Start(steps)
	if err != nil {
		return err
	}
	defer endpoint.Close()

	args := append(endpoint.Flags(), "--")
	shown, mu := 0, sync.Mutex{}
	show := func(until int) { // what the agent did before a step, once the step is asked for
		mu.Lock()
		defer mu.Unlock()
		for ; shown < until; shown++ {
			printStep(steps[shown], endpoint.Results(steps[shown].Name))
		}
	}
	for i, step := range steps {
		if step.Name != "" {
			endpoint.Before(step.Name, func() { show(i) })
		}
	}
	cmd := project.Command(pccrun, append(args, agent.Arguments()...)...)
	cmd.Stderr = os.Stderr
	fmt.Println("\n$ pccrun", strings.Join(cmd.Args[1:], " "))
	fmt.Println("what the agent does, and what comes back:")
	runErr := cmd.Run()
	show(len(steps))
	log, err := project.Command("git", "log", "--stat", "--format=%h %an: %s", "-1").Output()
	fmt.Printf("\nwhat it left in the project:\n%s", log)
	return errors.Join(runErr, err)
}

// printStep shows what the agent did in a step, and what came back.
func printStep(step agent.Step, results []agent.Result) {
	for i, r := range results {
		call := step.Calls[i]
		what := call.Input["command"]
		if what == nil {
			what = call.Input["file_path"]
		}
		fmt.Printf("\n[%s] %s %v\n", step.Name, call.Tool, what)
		for line := range strings.Lines(r.Text) {
			fmt.Printf("    %s", line)
		}
		fmt.Println()
	}
}
