package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/test/internal/tempuser"
)

// A bench is a directory with what is measured, and the user who runs it.
type bench struct {
	options
	dir     string
	program string // pccrun
	worker  string // this program, where the sandbox shows it
	empty   string // a workspace with nothing but the worker
	user    *tempuser.User
	disk    *disk  // nil: the directory lies on the machine's own
	on      string // what it lies on, for who reads the figures
}

func newBench(o options) (_ *bench, err error) {
	dir, err := os.MkdirTemp("", "pccrun-bench-")
	if err != nil {
		return nil, err
	}
	b := &bench{options: o, dir: dir, program: filepath.Join(dir, "pccrun"), empty: filepath.Join(dir, "empty")}
	b.worker = filepath.Join(b.empty, "worker")
	defer func() {
		if err != nil {
			err = errors.Join(err, b.close())
		}
	}()
	if os.Getuid() == 0 {
		if b.user, err = tempuser.New(); err != nil {
			return nil, err
		}
		b.disk, err = newDisk(dir)
	} else {
		err = errors.New("only root mounts one")
	}
	b.on = "ext4 with a journal, as an installer makes it"
	if err != nil {
		b.on = "the machine's own file system (" + err.Error() + "): figures with many files are another's where it is ext4 without a journal"
	}
	if err := os.Mkdir(b.empty, 0o755); err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	for from, to := range map[string]string{cmp.Or(os.Getenv("PCCRUN_TEST_BIN"), "bin/pccrun"): b.program, self: b.worker} {
		data, err := os.ReadFile(from)
		if err != nil {
			return nil, err
		}
		if err := os.WriteFile(to, data, 0o755); err != nil {
			return nil, err
		}
	}
	return b, b.own(dir)
}

// own gives a tree to the user who runs the commands.
func (b *bench) own(dir string) error {
	if b.user == nil {
		return nil
	}
	return filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Lchown(path, int(b.user.UID), int(b.user.GID))
	})
}

func (b *bench) close() error {
	var err error
	if b.disk != nil {
		err = b.disk.remove()
	}
	err = errors.Join(err, os.RemoveAll(b.dir))
	if b.user != nil {
		err = errors.Join(err, b.user.Remove())
	}
	return err
}

// command is one of the user's, in a directory.
func (b *bench) command(ctx context.Context, dir string, argv ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Dir = dir
	cmd.Env = os.Environ()
	if b.user != nil {
		cmd.Env = b.user.Environ(cmd.Env)
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: b.user.Credential()}
	}
	cmd.Env = append(cmd.Env, "GOTOOLCHAIN=local", "GOFLAGS=", "XDG_STATE_HOME="+filepath.Join(b.dir, "state"), "XDG_CACHE_HOME="+filepath.Join(b.dir, "state", "cache"))
	return cmd
}

// A variant is one of several commands that are measured in turns.
type variant struct {
	dir  string
	argv []string
	env  []string // beside that of all
}

// wall measures fork, exec and wait of each variant, and returns the times by variant. Each round has an order of its
// own: what ran last leaves namespaces that the kernel still ends, and caches, and a program seemed 5 % faster than
// itself where it always came next. A first round does not count: it warms the caches.
func (b *bench) wall(ctx context.Context, variants []variant, rounds int) ([][]time.Duration, error) {
	times := make([][]time.Duration, len(variants))
	for round := range rounds + 1 {
		for _, i := range rand.Perm(len(variants)) {
			v := variants[i]
			cmd := b.command(ctx, v.dir, v.argv...)
			cmd.Env = append(cmd.Env, v.env...)
			var stderr bytes.Buffer
			cmd.Stderr = &stderr
			start := time.Now()
			err := cmd.Run()
			took := time.Since(start)
			if err != nil {
				return nil, fmt.Errorf("%s: %w: %s", strings.Join(v.argv, " "), err, bytes.TrimSpace(stderr.Bytes()))
			}
			if round > 0 {
				times[i] = append(times[i], took)
			}
		}
	}
	return times, nil
}

// median is the middle of the times.
func median(times []time.Duration) time.Duration {
	sorted := slices.Sorted(slices.Values(times))
	return sorted[len(sorted)/2]
}

// minus is the median of what times have more than others, pair by pair: of
// the same round, so that a slow moment of the machine weighs on both.
func minus(times, others []time.Duration) time.Duration {
	pairs := make([]time.Duration, len(times))
	for i := range times {
		pairs[i] = times[i] - others[i]
	}
	return median(pairs)
}

func ratio(a, b time.Duration) float64 { return float64(a) / float64(b) }

// ratios is the median of a ÷ b, pair by pair.
func ratios(a, b []time.Duration) float64 {
	list := make([]float64, len(a))
	for i := range a {
		list[i] = ratio(a[i], b[i])
	}
	slices.Sort(list)
	return list[len(list)/2]
}

func ms(d time.Duration) string { return fmt.Sprintf("%.2f ms", float64(d)/1e6) }

// bwrap is the peer, in the words that the goal names.
var bwrap = []string{"bwrap", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--unshare-all"}

// pccrun is the program with flags, before a command.
func (b *bench) pccrun(flags ...string) []string {
	return append(append([]string{b.program, "-q"}, flags...), "--")
}

// proxied are the flags that need the proxy: one host that nobody asks for.
var proxied = []string{"--allow", "example.com"}

// launch measures an empty command, plain and wrapped.
func (b *bench) launch(ctx context.Context) ([]figure, error) {
	names := []string{"launch, all layers, no network", "launch with the proxy"}
	goals := []float64{1.0, 1.1}
	if _, err := exec.LookPath("bwrap"); err != nil {
		return []figure{{name: names[0], unit: "× bwrap", goal: goals[0], why: "no bwrap"}, {name: names[1], unit: "× bwrap", goal: goals[1], why: "no bwrap"}}, nil
	}
	command := "/bin/true"
	times, err := b.wall(ctx, []variant{
		{b.empty, []string{command}, nil},
		{b.empty, append(slices.Clone(bwrap), command), nil},
		{b.empty, append(b.pccrun(), command), nil},
		{b.empty, append(b.pccrun(proxied...), command), nil},
	}, b.rounds)
	if err != nil {
		return nil, err
	}
	peer := minus(times[1], times[0])
	var figures []figure
	for i, name := range names {
		own := minus(times[i+2], times[0])
		figures = append(figures, figure{
			name: name, value: ratio(own, peer), unit: "× bwrap", goal: goals[i],
			detail: fmt.Sprintf("%s to %s over a plain %s", ms(own), ms(peer), ms(median(times[0]))),
		})
	}
	network := minus(times[3], times[2])
	figures = append(figures, figure{name: "of a launch, the network", value: float64(network) / 1e6, unit: "ms", goal: 0.3, detail: "over one without"})
	return figures, nil
}

// inside measures what a command that prints times in nanoseconds, one a
// line, takes inside ÷ outside, in turns. The launch is not part of it.
func (b *bench) inside(ctx context.Context, name string, goal float64, dir string, rounds int, command ...string) (figure, error) {
	return b.insideWith(ctx, nil, name, goal, dir, rounds, command...)
}

// insideWith is inside with flags of pccrun's.
func (b *bench) insideWith(ctx context.Context, flags []string, name string, goal float64, dir string, rounds int, command ...string) (figure, error) {
	return b.beside(ctx, nil, flags, name, goal, dir, rounds, command...)
}

// beside is insideWith, where the other does not run plainly: prefix stands
// before it.
func (b *bench) beside(ctx context.Context, prefix, flags []string, name string, goal float64, dir string, rounds int, command ...string) (figure, error) {
	var times [2][]time.Duration
	for range rounds {
		for i, prefix := range [2][]string{prefix, b.pccrun(append([]string{"--env", "GOCACHE", "--env", "GOTOOLCHAIN"}, flags...)...)} {
			cmd := b.command(ctx, dir, append(slices.Clone(prefix), command...)...)
			cmd.Env = append(cmd.Env, "GOCACHE="+filepath.Join(dir, ".gocache"))
			var stderr bytes.Buffer
			cmd.Stderr = &stderr
			out, err := cmd.Output()
			if err != nil {
				return figure{}, fmt.Errorf("%s: %w: %s", strings.Join(cmd.Args, " "), err, bytes.TrimSpace(stderr.Bytes()))
			}
			for line := range strings.Lines(string(out)) {
				ns, err := strconv.ParseInt(strings.TrimSpace(line), 10, 64)
				if err != nil {
					return figure{}, err
				}
				times[i] = append(times[i], time.Duration(ns))
			}
		}
	}
	in, out := median(times[1]), median(times[0])
	return figure{name: name, value: ratio(in, out), unit: "×", goal: goal, detail: fmt.Sprintf("%s to %s", ms(in), ms(out))}, nil
}

// start starts a command that stands until the returned function ends it, and
// waits until it has printed a line: until it runs.
func (b *bench) start(ctx context.Context, prefix []string) (*exec.Cmd, func(), error) {
	argv := append(slices.Clone(prefix), "sh", "-c", "echo && exec sleep 3600")
	cmd := b.command(ctx, b.empty, argv...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	cmd.WaitDelay = time.Second
	r, w, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	defer r.Close()
	cmd.Stdout = w
	err = cmd.Start()
	w.Close()
	if err != nil {
		return nil, nil, err
	}
	end := func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
	if _, err := io.ReadFull(r, make([]byte, 1)); err != nil {
		end()
		return nil, nil, fmt.Errorf("%s: %w: %s", strings.Join(argv, " "), err, bytes.TrimSpace(stderr.Bytes()))
	}
	return cmd, end, nil
}

// memory measures what stands around a command that sleeps: with the program as
// a machine reads it from its disk, and as it is in the page cache after it was
// written, in pieces of 2 MiB, of which each page that is touched maps all.
func (b *bench) memory(ctx context.Context) ([]figure, error) {
	figures := []figure{{name: "helper memory while a command sleeps, proxy on", unit: "MiB", goal: 8}, {name: "the same, the program just written", unit: "MiB", goal: 8}}
	for i := range figures {
		f := &figures[len(figures)-1-i] // just written first
		if b.user == nil {
			f.why = "needs root to read it"
			continue
		}
		if i == 1 {
			if err := evict(b.program); err != nil {
				return nil, err
			}
		}
		if err := b.standsBy(ctx, f); err != nil {
			return nil, err
		}
	}
	return figures, nil
}

// evict takes a file out of the page cache (posix_fadvise(2)).
func evict(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := f.Sync(); err != nil {
		return err
	}
	return os.NewSyscallError("fadvise", unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED))
}

// standsBy measures what stands around a command that sleeps.
func (b *bench) standsBy(ctx context.Context, f *figure) error {
	cmd, end, err := b.start(ctx, b.pccrun(proxied...))
	if err != nil {
		return err
	}
	defer end()
	time.Sleep(time.Second) // a launcher rests when its command has run for a while
	total, processes := 0, 0
	for _, pid := range family(cmd.Process.Pid) {
		name, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
		if strings.TrimSpace(string(name)) == "sleep" {
			continue
		}
		kib, err := pss(pid)
		if err != nil {
			return err
		}
		total += kib
		processes++
	}
	f.value = float64(total) / 1024
	f.detail = fmt.Sprintf("PSS of %d processes", processes)
	return nil
}

// family is a process with all that descends from it.
func family(pid int) []int {
	list := []int{pid}
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, task := range tasks {
		children, _ := os.ReadFile(task)
		for child := range strings.FieldsSeq(string(children)) {
			n, _ := strconv.Atoi(child)
			list = append(list, family(n)...)
		}
	}
	return list
}

// pss is a process's proportional share of memory, in KiB.
func pss(pid int) (int, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(data)) {
		if rest, ok := strings.CutPrefix(line, "Pss:"); ok {
			return strconv.Atoi(strings.Fields(rest)[0])
		}
	}
	return 0, fmt.Errorf("process %d: no Pss", pid)
}

// standing measures one more launch while many sandboxes stand, and the
// starting of them.
func (b *bench) standing(ctx context.Context) ([]figure, error) {
	alone, err := b.wall(ctx, []variant{{b.empty, append(b.pccrun(), "/bin/true"), nil}}, 20)
	if err != nil {
		return nil, err
	}
	own, crowded, err := b.crowd(ctx, b.pccrun())
	if err != nil {
		return nil, err
	}
	name := fmt.Sprintf("%d sandboxes", b.options.standing)
	one := figure{
		name: "one more launch while " + name + " stand", value: ratio(median(crowded), median(alone[0])), unit: "×", goal: 2.2,
		detail: fmt.Sprintf("%s to %s alone", ms(median(crowded)), ms(median(alone[0]))),
	}
	all := figure{name: "starting " + name, unit: "× bwrap", goal: 1}
	if _, err := exec.LookPath("bwrap"); err != nil {
		all.why = "no bwrap"
		return []figure{one, all}, nil
	}
	peer, _, err := b.crowd(ctx, append(slices.Clone(bwrap), "--die-with-parent"))
	if err != nil {
		return nil, err
	}
	all.value = ratio(own, peer)
	all.detail = fmt.Sprintf("%.2f s to %.2f s", own.Seconds(), peer.Seconds())
	return []figure{one, all}, nil
}

// crowd starts many sandboxes, says how long that took and how long one more
// takes while they stand, and ends them.
func (b *bench) crowd(ctx context.Context, prefix []string) (time.Duration, []time.Duration, error) {
	var ends []func()
	defer func() {
		for _, end := range ends {
			end()
		}
	}()
	begin := time.Now()
	for range b.options.standing {
		_, end, err := b.start(ctx, prefix)
		if err != nil {
			return 0, nil, fmt.Errorf("after %d: %w", len(ends), err)
		}
		ends = append(ends, end)
	}
	took := time.Since(begin)
	more, err := b.wall(ctx, []variant{{b.empty, append(slices.Clone(prefix), "/bin/true"), nil}}, 20)
	if err != nil {
		return 0, nil, err
	}
	return took, more[0], nil
}
