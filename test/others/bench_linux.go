package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/pccrun/pccrun/test/internal/tempuser"
)

const (
	limit    = 12 * time.Hour   // of one run of a suite
	patience = 20 * time.Second // of what it has started, after it
)

// A bench is where suites run: a directory that everybody can read, in which the home and the
// workspaces are the user's.
type bench struct {
	dir       string
	user      *tempuser.User      // with a home of the bench
	cred      *syscall.Credential // nil: the caller's
	values    map[string]string   // what scripts have as variables, and flags as $NAME
	flags     []string
	authority string // a file of a certificate, which pccrun trusts
}

// newBench prepares a directory, in which suites may have run before.
func newBench(dir string) (*bench, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	b := &bench{dir: dir, user: &tempuser.User{Name: os.Getenv("USER")}, flags: strings.Fields(os.Getenv("FLAGS")),
		values: map[string]string{"PCCRUN": dir + "/pccrun", "ALL": os.Getenv("ALL")}}
	if os.Getuid() == 0 {
		if b.user, err = tempuser.Lookup(cmp.Or(os.Getenv("AS"), "nobody")); err != nil {
			return nil, err
		}
		b.cred = b.user.Credential()
	}
	b.user.Home = dir + "/home"
	for _, name := range []string{"log", "work", "home/.ssh", "home/.aws", "pccruns"} {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o755); err != nil {
			return nil, err
		}
	}
	program, err := os.ReadFile("bin/pccrun")
	if err != nil {
		return nil, fmt.Errorf("%w: make build makes it", err)
	}
	const canary = "aws_secret_access_key = nothing inside may read this\n"
	return b, errors.Join(os.Chmod(dir, 0o755), os.RemoveAll(dir+"/pccrun"), os.WriteFile(dir+"/pccrun", program, 0o755),
		os.WriteFile(dir+"/home/.ssh/id_ed25519", []byte(canary), 0o600), os.WriteFile(dir+"/home/.aws/credentials", []byte(canary), 0o600), b.give("home", "pccruns"))
}

// give makes trees of the bench the user's.
func (b *bench) give(names ...string) error {
	for _, name := range names {
		if b.cred == nil {
			return nil
		}
		out, err := exec.Command("chown", "-R", fmt.Sprintf("%d:%d", b.user.UID, b.user.GID), filepath.Join(b.dir, name)).CombinedOutput()
		if err != nil {
			return fmt.Errorf("chown %s: %w: %s", name, err, out)
		}
	}
	return nil
}

func (b *bench) workspace(s suite) string      { return filepath.Join(b.dir, "work", s.name) }
func (b *bench) log(s suite, of string) string { return filepath.Join(b.dir, "log", s.name+"."+of) }

// build has a suite's workspace made, once in a directory, by the caller, with caches and proxies of his own.
func (b *bench) build(ctx context.Context, s suite) error {
	built := b.workspace(s) + ".built"
	if _, err := os.Stat(built); err == nil {
		return nil
	}
	if err := errors.Join(os.RemoveAll(b.workspace(s)), os.MkdirAll(b.workspace(s), 0o755)); err != nil {
		return err
	}
	if s.build != "" {
		if _, err := b.execute(ctx, s, "build", nil, os.Environ(), "sh", "-c", s.build); err != nil {
			return err
		}
	}
	return os.WriteFile(built, nil, 0o644)
}

// outside runs a script as the user.
func (b *bench) outside(ctx context.Context, s suite, name, script string) ([]byte, error) {
	return b.execute(ctx, s, name, b.cred, b.environ(), "sh", "-c", script)
}

// inside runs one in a sandbox.
func (b *bench) inside(ctx context.Context, s suite, name, script string) ([]byte, error) {
	argv := []string{b.values["PCCRUN"], "run", "--profile", cmp.Or(s.profile, "build"), "--workspace", b.workspace(s)}
	for name, value := range b.values {
		argv = append(argv, "--env", name+"="+value)
	}
	for _, word := range slices.Concat(s.flags, b.flags) {
		argv = append(argv, os.Expand(word, func(name string) string { return b.values[name] }))
	}
	return b.execute(ctx, s, name, b.cred, b.environ(), append(argv, "--", "sh", "-c", script)...)
}

// environ is the user's environment.
func (b *bench) environ() []string {
	env := b.user.Environ(os.Environ())
	for _, kind := range []string{"STATE", "CACHE", "CONFIG", "DATA"} {
		env = append(env, "XDG_"+kind+"_HOME="+b.dir+"/pccruns/"+strings.ToLower(kind))
	}
	if b.authority != "" {
		env = append(env, "SSL_CERT_FILE="+b.authority)
	}
	return env
}

// execute runs a command in the workspace. What it prints on standard error is in its log.
func (b *bench) execute(ctx context.Context, s suite, name string, cred *syscall.Credential, env []string, argv ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	log, err := os.Create(b.log(s, name))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	fmt.Fprintln(log, strings.Join(argv, " "))
	for name, value := range b.values {
		env = append(env, name+"="+value)
	}
	var out bytes.Buffer
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = b.workspace(s), env, &out, log
	cmd.Stdin = strings.NewReader("") // a pipe: crun gives the streams to the container's user, /dev/null too
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: cred, Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	cmd.WaitDelay = patience
	if err = cmd.Run(); err != nil {
		err = errors.Join(ctx.Err(), fmt.Errorf("%w: %s says why", err, log.Name()))
	}
	return out.Bytes(), errors.Join(err, os.WriteFile(log.Name()+".out", out.Bytes(), 0o644))
}

// home is what no suite inside may change: each file of the user's home.
func (b *bench) home() (map[string]string, error) {
	files := map[string]string{}
	return files, filepath.Walk(b.dir+"/home", func(name string, info os.FileInfo, err error) error {
		if err == nil && !info.IsDir() {
			files[name] = fmt.Sprint(info.Mode(), info.Size(), info.ModTime())
		}
		return err
	})
}
