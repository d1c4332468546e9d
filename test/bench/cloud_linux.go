package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/pccrun/pccrun/test/internal/e2b"
)

// A cloudRun is one run in a sandbox.
type cloudRun struct {
	begun  time.Duration // until the command printed its first line
	after  time.Duration // from its last line to pccrun's exit
	late   []time.Duration
	memory int64 // bytes, pccrun's own peak until the last line
}

// cloud measures a run at a provider on loopback: the workspace's way up and down beside tar's, how
// late output comes, and whether pccrun's memory grows with the size of what goes up.
func (b *bench) cloud(ctx context.Context) (_ []figure, err error) {
	var credential *syscall.Credential
	if b.user != nil {
		credential = b.user.Credential()
	}
	// Where sandboxes lie on another disk than tar writes to, the figures are of the disks.
	defer os.Setenv("TMPDIR", os.Getenv("TMPDIR"))
	if err := os.Setenv("TMPDIR", b.dir); err != nil {
		return nil, err
	}
	server, err := e2b.Start(credential)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, server.Stop()) }()
	files := min(b.files, 10_000)
	empty, tree, large := filepath.Join(b.dir, "cloud-empty"), filepath.Join(b.dir, "cloud-tree"), filepath.Join(b.dir, "cloud-large")
	if err := errors.Join(sourceTree(tree, files), os.MkdirAll(empty, 0o755), os.MkdirAll(large, 0o755)); err != nil {
		return nil, err
	}
	size := int64(files) * 20_000
	if err := errors.Join(os.WriteFile(filepath.Join(large, "zeros"), make([]byte, size), 0o644), b.own(empty), b.own(tree), b.own(large)); err != nil {
		return nil, err
	}
	to := filepath.Join(b.dir, "cloud-copied")
	var bare, up, down, upEmpty, downEmpty []time.Duration
	for round := range max(2, b.rounds/100) + 1 {
		if err := errors.Join(os.RemoveAll(to), os.Mkdir(to, 0o755), b.own(to)); err != nil {
			return nil, err
		}
		start := time.Now()
		if out, err := b.command(ctx, tree, "sh", "-c", `tar -c . | tar -x -C "$1"`, "sh", to).CombinedOutput(); err != nil {
			return nil, fmt.Errorf("tar: %w: %s", err, out)
		}
		copied := time.Since(start)
		all, err := b.cloudRun(ctx, server, tree, "date +%s%N; mkdir new && cp -r d* new; date +%s%N")
		if err != nil {
			return nil, err
		}
		none, err := b.cloudRun(ctx, server, empty, "date +%s%N; date +%s%N")
		if err != nil {
			return nil, err
		}
		if round > 0 { // the first fills the caches
			bare = append(bare, copied)
			up, upEmpty = append(up, all.begun), append(upEmpty, none.begun)
			down, downEmpty = append(down, all.after), append(downEmpty, none.after)
		}
	}
	second, err := b.secondUpload(ctx, server, tree)
	if err != nil {
		return nil, err
	}
	talk, err := b.cloudRun(ctx, server, empty, "for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do date +%s%N; sleep 0.05; done")
	if err != nil {
		return nil, err
	}
	small, err := b.cloudRun(ctx, server, empty, "date +%s%N")
	if err != nil {
		return nil, err
	}
	big, err := b.cloudRun(ctx, server, large, "date +%s%N")
	if err != nil {
		return nil, err
	}
	way := func(name string, with, without []time.Duration) figure {
		ours, tar := minus(with, without), median(bare)
		return figure{
			name: fmt.Sprintf("%d MB in %d files %s through a provider on loopback ÷ tar", files*sourceSize/1_000_000, files, name), value: ratio(ours, tar), unit: "×", goal: 1.5,
			detail: fmt.Sprintf("%s, tar %s", ms(ours), ms(tar)),
		}
	}
	late := median(talk.late)
	return []figure{
		way("up", up, upEmpty), way("down", down, downEmpty), second,
		{name: "output of a command at a provider, until it is here", value: float64(late) / 1e6, unit: "ms", goal: 50, detail: "of 20 lines, the median"},
		{
			name: fmt.Sprintf("memory of a run that uploads %d MB ÷ nothing", size/1_000_000), value: float64(big.memory) / float64(small.memory), unit: "×", goal: 1.3,
			detail: fmt.Sprintf("%d to %d MiB", big.memory>>20, small.memory>>20),
		},
	}, errors.Join(os.RemoveAll(tree), os.RemoveAll(to), os.RemoveAll(large))
}

// secondUpload measures how many bytes go up with a kept sandbox after a change of one line, beside
// those of the first run: of all calls, pccrun's own program and the request to create too.
func (b *bench) secondUpload(ctx context.Context, server *e2b.Server, tree string) (f figure, err error) {
	f = figure{name: "a second upload after a change of one line ÷ the first, in bytes", unit: "×", goal: 0.01}
	if b.user == nil {
		f.why = "only root has machines in which pccrun is another user than the command"
		return f, nil
	}
	var sizes []int64
	for range 2 {
		before := server.Received()
		if _, err := b.cloudRun(ctx, server, tree, "date +%s%N", "--keep", "1h"); err != nil {
			return f, err
		}
		sizes = append(sizes, server.Received()-before)
		to, err := os.OpenFile(filepath.Join(tree, "d0", "f0.go"), os.O_APPEND|os.O_WRONLY, 0)
		if err == nil {
			_, err = to.WriteString("// one line more\n")
			err = errors.Join(err, to.Close())
		}
		if err != nil {
			return f, err
		}
	}
	if kept := server.Sandboxes(""); len(kept) != 1 {
		return f, fmt.Errorf("%d sandboxes stand after two runs, want the one that was kept", len(kept))
	}
	f.value, f.detail = float64(sizes[1])/float64(sizes[0]), fmt.Sprintf("%d of %d", sizes[1], sizes[0])
	return f, nil
}

// cloudRun runs a script that prints the time in nanoseconds, a line each.
func (b *bench) cloudRun(ctx context.Context, server *e2b.Server, dir, script string, flags ...string) (*cloudRun, error) {
	cmd := b.command(ctx, dir, append(b.pccrun(append(flags, "--provider", "e2b")...), "sh", "-c", script)...)
	cmd.Env = append(cmd.Env, server.Environ()...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	start := time.Now()
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	r := &cloudRun{}
	var last time.Time
	lines := bufio.NewScanner(stdout)
	for lines.Scan() {
		last = time.Now()
		if r.begun == 0 {
			r.begun = last.Sub(start)
		}
		// Not by wait4(2): what is said there begins with the peak of this process (exec_mmap, fs/exec.c).
		memory, e := peak(cmd.Process.Pid)
		r.memory, err = memory, errors.Join(err, e)
		ns, e := strconv.ParseInt(strings.TrimSpace(lines.Text()), 10, 64)
		err = errors.Join(err, e)
		r.late = append(r.late, time.Duration(last.UnixNano()-ns))
	}
	_, _ = io.Copy(io.Discard, stdout)
	if e := cmd.Wait(); e != nil || err != nil || len(r.late) == 0 {
		return nil, fmt.Errorf("%s: %w: %s", strings.Join(cmd.Args, " "), errors.Join(e, err), bytes.TrimSpace(stderr.Bytes()))
	}
	r.after = time.Since(last)
	server.Wait()
	return r, nil
}

// peak is the most memory that a process has had, in bytes.
func peak(pid int) (size int64, err error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	_, rest, _ := strings.Cut(string(text), "\nVmHWM:")
	_, e := fmt.Sscan(rest, &size)
	return size << 10, errors.Join(err, e)
}
