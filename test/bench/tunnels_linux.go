package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// maxTunnels is how many connections are held at once, if the hard limit of
// descriptors leaves the launcher, which needs two for each, that many.
const maxTunnels = 10_000

// tunnels measures what the launcher holds for connections that are open and
// idle.
func (b *bench) tunnels(ctx context.Context, port string) ([]figure, error) {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return nil, err
	}
	n := min(maxTunnels, b.options.files, int(min(limit.Max, 1<<20)-1000)/2) // a little of it where the whole bench does a little
	memory := figure{name: fmt.Sprintf("memory for each of %d idle tunnels", n), unit: "KiB", goal: 12}
	files := figure{name: "descriptors for each of them", unit: "descriptors", goal: 2.05}
	if b.user == nil {
		memory.why, files.why = "needs root to read it", "needs root to read it"
		return []figure{memory, files}, nil
	}
	argv := append(b.pccrun("--local", port), b.worker, "work", "net", net.JoinHostPort("host.pccrun.internal", port), "hold", strconv.Itoa(n))
	cmd := b.command(ctx, b.empty, argv...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	defer func() {
		in.Close()
		_ = cmd.Wait()
	}()
	said := bufio.NewScanner(out)
	// The client says when it has one, and when it has all.
	var at [2]held
	for i := range at {
		if !said.Scan() {
			return nil, fmt.Errorf("%s: %s", strings.Join(argv, " "), bytes.TrimSpace(stderr.Bytes()))
		}
		if at[i], err = holds(cmd); err != nil {
			return nil, err
		}
		if i == 0 {
			fmt.Fprintln(in)
		}
	}
	memory.value = float64(at[1].memory-at[0].memory) / float64(n-1)
	memory.detail = fmt.Sprintf("PSS of the launcher from %d to %d KiB", at[0].memory, at[1].memory)
	files.value = float64(at[1].files-at[0].files) / float64(n-1)
	files.detail = fmt.Sprintf("from %d to %d", at[0].files, at[1].files)
	return []figure{memory, files}, nil
}

// held is what a process holds: memory in KiB, and descriptors.
type held struct{ memory, files int }

func holds(cmd *exec.Cmd) (h held, err error) {
	if h.memory, err = pss(cmd.Process.Pid); err != nil {
		return h, err
	}
	list, err := os.ReadDir(filepath.Join("/proc", strconv.Itoa(cmd.Process.Pid), "fd"))
	h.files = len(list)
	return h, err
}

// hold opens one connection, says so, is told to go on, opens the rest, and
// holds all until nobody is there any more.
func hold(address string, n int) error {
	wait := bufio.NewReader(os.Stdin)
	for i := range n {
		c, err := net.Dial("tcp", address)
		if err != nil {
			return fmt.Errorf("connection %d: %w", i, err)
		}
		defer c.Close()
		if _, err := io.WriteString(c, "e."); err != nil {
			return err
		}
		if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
			return err
		}
		if i == 0 || i == n-1 {
			fmt.Println(i + 1)
		}
		if i == 0 {
			if _, err := wait.ReadString('\n'); err != nil {
				return err
			}
		}
	}
	_, _ = io.Copy(io.Discard, wait)
	return nil
}

// Requests that are sent at a rate, over connections that stand.
const (
	perSecond = 1000
	overMany  = 16
	forLong   = 5 * time.Second
)

// latency measures how much later the answers to a thousand requests a second
// come, at the 99th percentile, and how much of that a bare relay adds as well.
func (b *bench) latency(ctx context.Context, port string) ([]figure, error) {
	const name = "latency at 1,000 requests a second, p99, added"
	n := int(forLong.Seconds() * perSecond)
	if b.rounds < 100 {
		n = perSecond / 10
	}
	ways := [...]struct {
		host string
		argv []string
	}{
		{"127.0.0.1", []string{b.worker, "work", "net"}},
		{"host.pccrun.internal", append(b.pccrun("--local", port), b.worker, "work", "net")},
		{relayed, []string{b.worker, "work", "relay", port}},
	}
	var late [len(ways)][]time.Duration
	for range 3 {
		for i, way := range ways {
			argv := append(way.argv, net.JoinHostPort(way.host, port), "echo", strconv.Itoa(n))
			out, err := b.command(ctx, b.empty, argv...).Output()
			if err != nil {
				return nil, fmt.Errorf("%s: %w", strings.Join(argv, " "), err)
			}
			p99, _, _ := strings.Cut(string(out), "\n") // then the worker's own time
			ns, err := strconv.ParseInt(p99, 10, 64)
			if err != nil {
				return nil, err
			}
			late[i] = append(late[i], time.Duration(ns))
		}
	}
	direct, own, bare := median(late[0]), median(late[1]), median(late[2])
	return []figure{
		{name: name, value: float64(own-direct) / 1e6, unit: "ms", goal: 1, detail: ms(own) + " over " + ms(direct)},
		{name: name + " to a bare relay's", value: float64(own-bare) / 1e6, unit: "ms", goal: 1, detail: ms(own) + " over " + ms(bare)},
	}, nil
}

// echo sends n requests, each at its time, whether or not the one before was
// answered, and prints the 99th percentile of how long after its time each was
// answered, in nanoseconds.
func echo(address string, n int) error {
	const every = time.Second / perSecond
	took := make(chan []time.Duration, overMany)
	errs := make(chan error, overMany)
	begin := time.Now().Add(50 * time.Millisecond)
	for i := range overMany {
		c, err := net.Dial("tcp", address)
		if err != nil {
			return err
		}
		defer c.Close()
		if _, err := io.WriteString(c, "e"); err != nil {
			return err
		}
		go func() {
			var list []time.Duration
			request := make([]byte, 100)
			for k := i; k < n; k += overMany {
				due := begin.Add(time.Duration(k) * every)
				time.Sleep(time.Until(due))
				_, err := c.Write(request)
				if err == nil {
					_, err = io.ReadFull(c, request)
				}
				if err != nil {
					errs <- err
					return
				}
				list = append(list, time.Since(due))
			}
			took <- list
		}()
	}
	var all []time.Duration
	for range overMany {
		select {
		case list := <-took:
			all = append(all, list...)
		case err := <-errs:
			return err
		}
	}
	slices.Sort(all)
	fmt.Println(all[len(all)*99/100].Nanoseconds())
	return nil
}
