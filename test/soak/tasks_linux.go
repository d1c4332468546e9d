package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// An agent that stands in for Claude Code: it executes its prompt.
const agent = `#!/bin/sh
for prompt; do :; done
echo '{"type":"system","subtype":"init","session_id":"3e37aa8c-0000-4000-8000-000000000001","model":"x","claude_code_version":"1"}'
eval "$prompt" >&2
echo '{"type":"result","subtype":"success","is_error":false,"result":"done","permission_denials":[],"session_id":"3e37aa8c-0000-4000-8000-000000000001"}'
`

// tasksAtOnce is how many tasks work at a time.
const tasksAtOnce = "8"

// tasks has many tasks done, merges what comes back, and removes them. It reports what is left of them: a task, a work tree, a
// branch, a lock.
func (s *soak) tasks(ctx context.Context, n int) error {
	if n == 0 {
		return nil
	}
	repo, bin := s.dir+"/src/repo", s.dir+"/home/.local/bin"
	var lines bytes.Buffer
	for i := range n {
		fmt.Fprintf(&lines, "{\"name\": \"t%d\", \"prompt\": \"echo %d > f%d\"}\n", i, i, i)
	}
	err := errors.Join(os.MkdirAll(repo, 0o755), os.MkdirAll(bin, 0o755), os.WriteFile(bin+"/claude", []byte(agent), 0o755))
	run := func(name string, args ...string) {
		if err != nil {
			return
		}
		cmd := exec.CommandContext(ctx, name, args...)
		cmd.Dir, cmd.Env = repo, append(s.launch(ctx).Env, "PATH="+bin+":"+os.Getenv("PATH"), "GIT_CONFIG_NOSYSTEM=1")
		cmd.Stdin = bytes.NewReader(lines.Bytes())
		if out, wrong := cmd.CombinedOutput(); wrong != nil {
			err = fmt.Errorf("%s %s: %w: %s", filepath.Base(name), strings.Join(args[:min(len(args), 3)], " "), wrong, out[max(0, len(out)-2000):])
		}
	}
	run("git", "config", "--global", "user.name", "x")
	run("git", "config", "--global", "user.email", "x@x")
	run("git", "init", "-q", "-b", "main")
	run("git", "commit", "-q", "--allow-empty", "-m", "begin")
	run(s.program, "task", "--file", "-", "--jobs", tasksAtOnce)
	for i := range n {
		run("git", "merge", "-q", "-m", "m", fmt.Sprintf("task/t%d", i))
	}
	run("git", "fsck", "--strict")
	run(s.program, "task", "clean")
	if err != nil {
		return err
	}
	files, err := filepath.Glob(repo + "/f*")
	if len(files) != n {
		err = errors.Join(err, fmt.Errorf("%d of %d tasks came back", len(files), n))
	}
	var left []string
	for _, pattern := range []string{s.dir + "/src/repo-worktrees", repo + "/.git/refs/heads/task/*", s.dir + "/state/pccrun/tasks/*", s.dir + "/state/pccrun/git-*", s.dir + "/state/pccrun/homes/*/*"} {
		found, _ := filepath.Glob(pattern)
		left = append(left, found...)
	}
	_ = filepath.WalkDir(repo+"/.git", func(path string, e fs.DirEntry, err error) error {
		if err == nil && (strings.HasSuffix(path, ".lock") || strings.HasPrefix(e.Name(), "tmp_")) {
			left = append(left, path)
		}
		return nil
	})
	held, wrong := locked(s.dir)
	if left = append(left, held...); len(left) > 0 {
		err = errors.Join(err, fmt.Errorf("%d of their files are left, such as %s", len(left), left[0]))
	}
	return errors.Join(err, wrong, os.RemoveAll(s.dir+"/src"))
}

func inodeOf(info fs.FileInfo) string {
	return strconv.FormatUint(info.Sys().(*syscall.Stat_t).Ino, 10)
}

// locked returns the files below a directory that a process holds a lock of: proc_locks(5).
func locked(dir string) (held []string, err error) {
	text, err := os.ReadFile("/proc/locks")
	if err != nil {
		return nil, err
	}
	inodes := map[string]bool{}
	for line := range strings.Lines(string(text)) {
		if fields := strings.Fields(line); len(fields) > 5 {
			_, inode, _ := strings.Cut(fields[5][strings.Index(fields[5], ":")+1:], ":")
			inodes[inode] = true
		}
	}
	err = filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return nil // it goes
		}
		if info, err := e.Info(); err == nil && inodes[inodeOf(info)] {
			held = append(held, path)
		}
		return nil
	})
	return held, err
}
