package doctor

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Examine finds out what this machine can do. It leaves nothing behind.
func Examine(ctx context.Context, o Options) (r *Report, err error) {
	x := &examiner{Options: o}
	defer func() { err = errors.Join(err, x.close()) }()
	if err := x.prepare(); err != nil {
		return nil, err
	}
	native := x.examineNative(ctx)
	return &Report{Providers: []Provider{native}, Fixes: fixes(&native, thisHost(o.Launcher)), Host: x.facts(ctx)}, nil
}

func (x *examiner) facts(ctx context.Context) []Fact {
	host := thisHost(x.Launcher)
	var u unix.Utsname
	_ = unix.Uname(&u)
	list := []Fact{
		{Name: "system", Value: host.distribution() + ", Linux " + unix.ByteSliceToString(u.Release[:]) + ", " + runtime.GOARCH},
		{Name: "user", Value: host.user + host.identity()},
		{Name: "program", Value: x.Launcher},
		x.worktree(ctx),
		x.gvisor(ctx),
	}
	keys := Fact{Name: "API keys", Value: "none is set"}
	if names := Keys(x.Environ); len(names) > 0 {
		keys.Value = strings.Join(names, " ")
		keys.Hint = "inside only with --env NAME or a profile that names it"
	}
	return append(list, keys)
}

// ask runs a program that may not be there, or not answer.
func (x *examiner) ask(ctx context.Context, name string, args ...string) (string, error) {
	program, err := x.Programs.Find(name, func(variable string) bool { return strings.HasPrefix(variable, "DOCKER_") })
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	out, err := program.Command(ctx, args...).Output()
	if ctx.Err() != nil {
		err = fmt.Errorf("%s: no answer within 5 seconds", name)
	}
	return strings.TrimSpace(string(out)), err
}

// gvisor looks for runsc by itself and among the runtimes of Docker.
func (x *examiner) gvisor(ctx context.Context) Fact {
	f := Fact{Name: "gVisor", Value: "not installed"}
	if version, err := x.ask(ctx, "runsc", "--version"); err == nil {
		first, _, _ := strings.Cut(version, "\n")
		f.Value = first
	}
	if runtimes, err := x.ask(ctx, "docker", "info", "--format", "{{range $name, $_ := .Runtimes}}{{$name}} {{end}}"); err == nil && strings.Contains(" "+runtimes, " runsc") {
		f.Value += ", a runtime of Docker"
	}
	return f
}

// worktree tries what orchestrators do: a linked work tree, and git in it.
func (x *examiner) worktree(ctx context.Context) Fact {
	f := Fact{Name: "git work trees"}
	git, err := x.Programs.Find("git", nil)
	if err != nil {
		f.Value, f.Hint = "no git", "install git"
		return f
	}
	repo, tree := filepath.Join(x.dir, "repo"), filepath.Join(x.dir, "tree")
	// Nothing of the user's own configuration, and no hook, has a part in it.
	env := append(slices.Clone(git.Env), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null", "GIT_AUTHOR_NAME=pccrun", "GIT_AUTHOR_EMAIL=pccrun@localhost",
		"GIT_COMMITTER_NAME=pccrun", "GIT_COMMITTER_EMAIL=pccrun@localhost")
	for _, args := range [][]string{{"init", "-q", repo}, {"-C", repo, "commit", "-q", "--allow-empty", "-m", "first"}, {"-C", repo, "worktree", "add", "-q", tree}} {
		cmd := git.Command(ctx, args...)
		cmd.Env = env
		if out, err := cmd.CombinedOutput(); err != nil {
			f.Value = fmt.Sprintf("git %s: %v: %s", args[0], err, bytes.TrimSpace(out))
			return f
		}
	}
	if cause, _, ok := refusal(x.start(ctx, tree, "run", "-q", "--profile", "default", "--", git.Path, "status", "--short")); !ok {
		f.Value = "made; git in one, inside: " + cause
		return f
	}
	f.Value = "made, and git works in one inside"
	return f
}

// A host is what fixes depend on.
type host struct {
	launcher string
	user     string
	uid      int
	read     func(string) string // a small file, "" if it is not there
	exists   func(string) bool
	look     func(string) bool // whether root has a program of this name
}

func thisHost(launcher string) host {
	h := host{launcher: launcher, uid: os.Getuid(), user: fmt.Sprint(os.Getuid())}
	if u, err := user.Current(); err == nil {
		h.user = u.Username
	}
	h.read = func(path string) string {
		b, err := os.ReadFile(path)
		if err != nil {
			return ""
		}
		return strings.TrimRight(string(b), "\n\x00")
	}
	h.exists = func(path string) bool { _, err := os.Stat(path); return err == nil }
	h.look = func(name string) bool {
		for _, dir := range []string{"/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"} {
			if h.exists(filepath.Join(dir, name)) {
				return true
			}
		}
		return false
	}
	return h
}

func (h *host) identity() string {
	if h.uid == 0 {
		return "; runs drop root for an identity that owns nothing"
	}
	return ""
}

// distribution returns the name in os-release(5).
func (h *host) distribution() string {
	for line := range strings.Lines(h.read("/etc/os-release")) {
		if value, ok := strings.CutPrefix(line, "PRETTY_NAME="); ok {
			return strings.Trim(strings.TrimSpace(value), `"'`)
		}
	}
	return "an unnamed distribution"
}
