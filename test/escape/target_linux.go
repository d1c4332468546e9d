package escape

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/providers"
)

// A Target is a launcher to be held against the probes.
type Target struct {
	Name     string
	Argv     []string // with {names} to be filled in; the payload's command line follows
	Launcher string   // the path that {self} stands for
	Profile  string   // the path that {profile} stands for, outside of cages
	Native   bool     // pccrun: flags can be given per probe
	Engine   bool     // it asks a service that is outside of every cage
	Provider string   // pccrun's, whose engine sees the files of this machine; "" for this machine itself
	Environ  []string // by which the launcher finds that engine
	Claims   []Claim

	plan             []byte // as the launcher prints it
	profile, version string
	strict           bool // what is hidden is to be stopped by two layers
}

// Native is pccrun itself, with more flags for a run, such as --profile.
func Native(launcher string, flags []string) *Target {
	argv := append([]string{"{self}", "run", "--workspace", "{workspace}", "--read", "{shown}", "--hide", "{canary}"}, flags...)
	return &Target{Name: "pccrun", Argv: append(argv, "{flags}", "--"), Launcher: launcher, Native: true}
}

// on is pccrun with a provider that mounts the workspace, and with a runtime of it, "" for
// its own.
func (t *Target) on(provider, runtime string) (*Target, error) {
	kind, err := providers.KindOf(provider)
	switch {
	case err != nil:
		return nil, err
	case provider == providers.Native:
		return t, nil
	case kind.Cloud:
		return nil, fmt.Errorf("--provider %s: the probes need a provider that has the files of this machine", provider)
	}
	copied := *t
	copied.Provider, copied.Name = provider, t.Name+" --provider "+provider
	if runtime != "" {
		copied.Name += " --runtime " + runtime
	}
	// What the suite puts into these for its payloads is no engine's.
	config := cmp.Or(os.Getenv("DOCKER_CONFIG"), filepath.Join(os.Getenv("HOME"), ".docker"))
	copied.Environ = []string{"DOCKER_CONFIG=" + config}
	for _, name := range [...]string{"DOCKER_HOST", "DOCKER_CONTEXT", "DOCKER_CERT_PATH", "DOCKER_TLS_VERIFY"} {
		copied.Environ = append(copied.Environ, name+"="+os.Getenv(name))
	}
	return &copied, nil
}

// without is the same target with layers switched off.
func (t *Target) without(layers []profiles.Layer) *Target {
	if len(layers) == 0 {
		return t
	}
	copied := *t
	copied.Argv = slices.Clone(t.Argv[:len(t.Argv)-2])
	copied.Name += " without "
	for i, layer := range layers {
		copied.Argv = append(copied.Argv, "--without", string(layer))
		copied.Name += map[bool]string{false: ","}[i == 0] + string(layer)
	}
	copied.Argv = append(copied.Argv, "{flags}", "--")
	return &copied
}

// claim is what the target says of a guarantee.
func (t *Target) claim(g profiles.Guarantee) Claim {
	if i := slices.IndexFunc(t.Claims, func(c Claim) bool { return c.Guarantee == g }); i >= 0 {
		return t.Claims[i]
	}
	return Claim{Guarantee: g}
}

// flags are those that the user gave for every run of pccrun.
func (t *Target) flags() []string {
	i := slices.Index(t.Argv, "{canary}")
	flags := slices.Clone(t.Argv[i+1 : len(t.Argv)-2])
	if i = slices.Index(flags, "{profile}"); i >= 0 {
		flags[i] = t.Profile
	}
	return flags
}

// ask reads the target's claims from its plan for an empty directory below
// dir. What the launcher remembers of it stays in dir.
func (t *Target) ask(ctx context.Context, dir string) error {
	workspace, memory := dir+"/ask/workspace", dir+"/ask/memory"
	if err := errors.Join(os.MkdirAll(workspace, 0o755), os.MkdirAll(memory, 0o755)); err != nil {
		return err
	}
	argv := append([]string{"run", "--dry-run", "--json"}, t.flags()...)
	cmd := exec.CommandContext(ctx, t.Launcher, append(argv, "--", "true")...)
	cmd.Dir = workspace
	cmd.Env = append(os.Environ(), "XDG_CACHE_HOME="+memory, "XDG_STATE_HOME="+memory)
	out, err := cmd.Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			err = fmt.Errorf("%w: %s", err, strings.TrimSpace(string(exit.Stderr)))
		}
		return fmt.Errorf("ask %s for its plan: %w", t.Launcher, err)
	}
	var plan struct {
		Profile    string  `json:"profile"`
		Strict     bool    `json:"strict"`
		Guarantees []Claim `json:"guarantees"`
	}
	if err := json.Unmarshal(out, &plan); err != nil {
		return fmt.Errorf("read the plan of %s: %w", t.Launcher, err)
	}
	t.Claims, t.plan, t.profile, t.strict = plan.Guarantees, out, plan.Profile, plan.Strict
	version, err := exec.CommandContext(ctx, t.Launcher, "version").Output()
	t.version = strings.TrimSpace(string(version))
	return err
}

// Wrap is any launcher: a command line to which the payload's is appended.
// {workspace}, {home}, {canary}, {shown}, {tmp}, {uid}, {gid} are filled in.
func Wrap(name, line string) (*Target, error) {
	argv, err := split(line)
	if err != nil {
		return nil, fmt.Errorf("wrap %q: %w", line, err)
	}
	if len(argv) == 0 {
		return nil, fmt.Errorf("wrap: an empty command line")
	}
	if name == "" {
		name = argv[0]
	}
	return &Target{Name: name, Argv: argv, Engine: slices.ContainsFunc(argv, func(word string) bool {
		return slices.Contains([]string{"docker", "podman", "nerdctl"}, filepath.Base(word))
	})}, nil
}

// split cuts a command line into words: quotes as in a shell, nothing expanded.
func split(line string) ([]string, error) {
	wordPattern := regexp.MustCompile(`(?s)(?:[^ \t\n'"\\]|\\.|'[^']*'|"(?:[^"\\]|\\.)*")+`)
	quotedPattern := regexp.MustCompile(`(?s)\\.|'[^']*'|"(?:[^"\\]|\\.)*"`)
	escapedPattern := regexp.MustCompile(`(?s)\\(.)`)
	if strings.ContainsRune(line, 0) {
		return nil, fmt.Errorf("a NUL byte")
	}
	if strings.Trim(wordPattern.ReplaceAllString(line, ""), " \t\n") != "" {
		return nil, fmt.Errorf("an open quote")
	}
	words := wordPattern.FindAllString(line, -1)
	for i, word := range words {
		words[i] = quotedPattern.ReplaceAllStringFunc(word, func(quoted string) string {
			switch quoted[0] {
			case '\\':
				return quoted[1:]
			case '\'':
				return quoted[1 : len(quoted)-1]
			}
			return escapedPattern.ReplaceAllString(quoted[1:len(quoted)-1], "$1")
		})
	}
	return words, nil
}

// ready are wrap lines for well-known launchers, as their own documentation
// would have a careful user write them.
var ready = []struct{ name, program, line, note string }{
	{"unshare", "unshare", "unshare -Urm --", "namespaces alone: a weak target that shows that the suite bites"},
	{"bwrap", "bwrap", "bwrap --unshare-all --cap-drop ALL --die-with-parent --new-session --ro-bind / / --dev /dev --proc /proc --tmpfs /tmp --tmpfs /run --tmpfs {home} --tmpfs {canary} --bind {workspace} {workspace} --chdir {workspace} --", "no seccomp filter, no limits"},
	{"firejail", "firejail", "firejail --quiet --noprofile --net=none --private-tmp --private-dev --caps.drop=all --nonewprivs --seccomp --noroot --blacklist={canary} --read-only={shown} --", "needs its setuid root program"},
	{"nsjail", "nsjail", "nsjail -Mo -Q --disable_rlimits -R / -T /tmp -T {home} -T {canary} -B {workspace} --cwd {workspace} --", ""},
	{"runc", "runc", "{probe} " + runcVerb + " {tag} {workspace} {home} {canary}", "a rootless bundle over the host's /, with runc's own defaults"},
	{"docker", "docker", "env -u DOCKER_HOST docker run --rm --name {tag} --network none --cap-drop ALL --security-opt no-new-privileges --user {uid}:{gid} -v {workspace}:{workspace} -v {shown}:{shown}:ro -w {workspace} debian:stable-slim", "needs a running engine and the image"},
	{"srt", "srt", "srt --", "settings that hide the home and the canary"},
}

// ReadyNames lists the launchers that a ready line exists for.
func ReadyNames() []string {
	names := []string{"pccrun"}
	for _, r := range ready {
		names = append(names, r.name)
	}
	return names
}

// Ready is a well-known launcher by name.
func Ready(name, self string) (*Target, error) {
	if name == "pccrun" {
		return Native(self, nil), nil
	}
	for _, r := range ready {
		if r.name != name {
			continue
		}
		if _, err := exec.LookPath(r.program); err != nil {
			return nil, fmt.Errorf("wrap %s: %w", name, err)
		}
		return Wrap(name, r.line)
	}
	return nil, fmt.Errorf("no ready line for %q: want one of %s", name, strings.Join(ReadyNames(), ", "))
}

const runcVerb = "__runc"

// needs of the host and the target that must be met before a probe is tried.
func (t *Target) lacks(p *Probe, h *host) Need {
	for _, need := range p.Needs {
		if !t.meets(need, h) {
			return need
		}
	}
	switch {
	case p.Payload == nil && p.Drive == nil:
		return "a payload"
	case p.Setting&Caged != 0 && (t.Engine || t.Provider != "" && p.Drive != nil):
		return NeedNoEngine
	case t.Provider != "" && p.ByCalls:
		return NeedOwnSetup
	case p.Setting&Proxy != 0 && !t.Native:
		return NeedProxy
	case len(p.Flags) > 0 && !t.Native:
		return NeedNative
	}
	return ""
}

func (t *Target) meets(need Need, h *host) bool {
	switch need {
	case NeedRoot, NeedSetuid:
		return h.root
	case NeedResource:
		return h.root && h.capability(unix.CAP_SYS_RESOURCE)
	case NeedUser:
		return !h.root
	case NeedNative:
		return t.Native
	case NeedCgroup:
		return h.root && h.cgroup != ""
	case NeedTIOCSTI:
		data, err := os.ReadFile("/proc/sys/dev/tty/legacy_tiocsti")
		return err != nil || strings.TrimSpace(string(data)) == "1"
	case NeedAMD64:
		return h.arch == "amd64"
	}
	return false
}
