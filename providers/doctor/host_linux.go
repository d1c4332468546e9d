package doctor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/internal/programs"
	"github.com/pccrun/pccrun/internal/shell"
	"github.com/pccrun/pccrun/profiles"
)

// Examine finds out what this machine can do. It leaves nothing behind.
func Examine(ctx context.Context, o Options) (r *Report, err error) {
	x := &examiner{launcher: o.Launcher, environ: o.Environ, home: o.Home, programs: o.Programs}
	defer func() {
		if e := x.close(); err == nil {
			err = e
		}
	}()
	if err := x.lay(); err != nil {
		return nil, err
	}
	native := x.examineNative(ctx)
	r = &Report{Providers: []Provider{native}, Fixes: fixes(&native, thisHost(o.Launcher))}
	r.Host = x.facts(ctx)
	return r, nil
}

func (x *examiner) facts(ctx context.Context) []Fact {
	host, getenv := thisHost(x.launcher), (&profiles.Host{Environ: x.environ}).Getenv
	var u unix.Utsname
	_ = unix.Uname(&u)
	list := []Fact{
		{Name: "system", Value: host.distribution() + ", Linux " + unix.ByteSliceToString(u.Release[:]) + ", " + runtime.GOARCH},
		{Name: "user", Value: host.user + host.identity()},
		{Name: "program", Value: x.launcher},
		x.worktree(ctx),
		x.docker(ctx),
		x.gvisor(ctx),
		terminal(getenv),
		completion(getenv),
		subordinate(host.user),
	}
	keys := Fact{Name: "API keys", Value: "none is set"}
	if names := Keys(x.environ); len(names) > 0 {
		keys.Value = strings.Join(names, " ")
		keys.Hint = "inside only with --env NAME or a profile that names it"
	}
	return append(list, keys)
}

// ask runs a program that may not be there, or not answer.
func (x *examiner) ask(ctx context.Context, name string, args ...string) (string, error) {
	program, err := x.programs.Find(name, func(variable string) bool { return strings.HasPrefix(variable, "DOCKER_") })
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

func (x *examiner) docker(ctx context.Context) Fact {
	f := Fact{Name: "Docker"}
	version, err := x.ask(ctx, "docker", "version", "--format", "{{.Server.Version}}")
	if errors.Is(err, programs.ErrNone) {
		f.Value = "not installed"
		return f
	}
	if err != nil || version == "" {
		f.Value, f.Hint = "the client exists, but no daemon answers this user", "start the daemon; members of the group docker can become root"
		return f
	}
	f.Value = "daemon " + version
	return f
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

func terminal(getenv func(string) string) Fact {
	f := Fact{Name: "terminal"}
	for fd, name := range []string{"input", "output", "errors"} {
		if _, err := unix.IoctlGetTermios(fd, unix.TCGETS); err == nil {
			f.Value += name + " "
		}
	}
	if f.Value == "" {
		f.Value = "none"
		return f
	}
	f.Value = "for " + strings.TrimSpace(f.Value) + ", TERM=" + getenv("TERM")
	return f
}

// completion looks where shells look for the completion of the user's shell.
func completion(getenv func(string) string) Fact {
	f := Fact{Name: "shell completion"}
	home := getenv("HOME")
	data, config := getenv("XDG_DATA_HOME"), getenv("XDG_CONFIG_HOME")
	if data == "" {
		data = filepath.Join(home, ".local/share")
	}
	if config == "" {
		config = filepath.Join(home, ".config")
	}
	name := filepath.Base(getenv("SHELL"))
	var places []string
	switch name {
	case "bash":
		places = []string{data + "/bash-completion/completions/pccrun", "/usr/share/bash-completion/completions/pccrun", "/etc/bash_completion.d/pccrun"}
	case "zsh":
		places = []string{home + "/.zsh/completions/_pccrun", "/usr/share/zsh/site-functions/_pccrun", "/usr/local/share/zsh/site-functions/_pccrun"}
	case "fish":
		places = []string{config + "/fish/completions/pccrun.fish", "/usr/share/fish/vendor_completions.d/pccrun.fish"}
	default:
		f.Value = "for bash, zsh and fish; SHELL names none of them"
		return f
	}
	for _, place := range places {
		if _, err := os.Stat(place); err == nil {
			f.Value = name + ": " + place
			return f
		}
	}
	f.Value = name + ": not installed"
	f.Hint = fmt.Sprintf("mkdir -p %s && pccrun completion %s > %s", shell.Quote(filepath.Dir(places[0])), name, shell.Quote(places[0]))
	return f
}

// subordinate tells of the ranges of user ids that belong to the user:
// subuid(5). pccrun itself needs none.
func subordinate(who string) Fact {
	f := Fact{Name: "subordinate ids", Value: "none; pccrun needs none"}
	file, err := os.ReadFile("/etc/subuid")
	if err != nil {
		return f
	}
	for line := range strings.Lines(string(file)) {
		fields := strings.Split(strings.TrimSpace(line), ":")
		if len(fields) == 3 && (fields[0] == who || fields[0] == fmt.Sprint(os.Getuid())) {
			f.Value = fields[2] + " from " + fields[1] + "; pccrun needs none"
		}
	}
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
