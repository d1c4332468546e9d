package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// sync measures a workspace that is packed and extracted beside one that tar copies.
func (b *bench) sync(ctx context.Context) ([]figure, error) {
	files := min(b.files, 10_000)
	from, to := filepath.Join(b.dir, "sync"), filepath.Join(b.dir, "synced")
	if err := sourceTree(from, files); err != nil {
		return nil, err
	}
	if err := b.own(from); err != nil {
		return nil, err
	}
	quote := func(s string) string { return "'" + s + "'" }
	program := quote(b.program)
	lines := []string{
		"tar -c -C " + quote(from) + " . | tar -x -C " + quote(to),
		program + " sync pack " + quote(from) + " | " + program + " sync extract " + quote(to),
	}
	times := make([][]time.Duration, len(lines))
	for round := range max(3, b.rounds/50) + 1 {
		for i, line := range lines {
			if err := errors.Join(os.RemoveAll(to), os.Mkdir(to, 0o755), b.own(to)); err != nil {
				return nil, err
			}
			cmd := b.command(ctx, b.empty, "bash", "-o", "pipefail", "-c", line)
			start := time.Now()
			if out, err := cmd.CombinedOutput(); err != nil {
				return nil, fmt.Errorf("%s: %w: %s", line, err, bytes.TrimSpace(out))
			}
			if round > 0 { // the first fills the caches
				times[i] = append(times[i], time.Since(start))
			}
		}
		if out, err := exec.CommandContext(ctx, "diff", "-r", from, to).CombinedOutput(); err != nil {
			return nil, fmt.Errorf("what was extracted is not what was packed: %s", out)
		}
	}
	bare, ours := median(times[0]), median(times[1])
	return []figure{{
		name: fmt.Sprintf("%d MB in %d files packed and extracted ÷ tar", files*sourceSize/1_000_000, files), value: ours.Seconds() / bare.Seconds(), unit: "×", goal: 1.5,
		detail: fmt.Sprintf("%v, tar %v", ours.Round(time.Millisecond), bare.Round(time.Millisecond)),
	}}, errors.Join(os.RemoveAll(from), os.RemoveAll(to))
}

// sourceSize is how large one of the files is.
const sourceSize = 10_000

// sourceTree makes files of text that reads like a program, with the words that secrets have around them.
func sourceTree(dir string, files int) error {
	var text bytes.Buffer
	for i := 0; text.Len() < 4*sourceSize; i++ {
		fmt.Fprintf(&text, "func handler%d(ctx context.Context, key string, access Access) error {\n\ttoken := auth.Token(ctx, %d) // of the session\n\treturn store.Put(ctx, key, token, access)\n}\n\n", i, i*i)
	}
	for i := range files {
		at := filepath.Join(dir, fmt.Sprintf("d%d", i/100))
		if i%100 == 0 {
			if err := os.MkdirAll(at, 0o755); err != nil {
				return err
			}
		}
		begin := i * 17 % (3 * sourceSize)
		if err := os.WriteFile(filepath.Join(at, fmt.Sprintf("f%d.go", i)), text.Bytes()[begin:begin+sourceSize], 0o644); err != nil {
			return err
		}
	}
	return nil
}
