package profiles

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/pccrun/pccrun/internal/state"
	"github.com/pccrun/pccrun/netproxy/rules"
)

//go:embed builtin/*.jsonc
var builtin embed.FS

// WorkspaceFile is the name of the workspace's own profile, in its root.
const WorkspaceFile = ".pccrun.jsonc"

// Builtin returns the names of the built-in profiles.
func Builtin() []string {
	return []string{"default", "protect-more", "offline", "build", "strict", "agent", "aider", "amp", "claude", "cline", "codex", "copilot", "gemini", "opencode", "qwen"}
}

// parseBuiltin returns what a built-in profile's file holds.
func parseBuiltin(name string) (value, error) {
	text, err := builtin.ReadFile("builtin/" + name + ".jsonc")
	if err != nil {
		return value{}, err
	}
	return parseJSONC("built-in "+name, string(text))
}

// agents are the commands whose name picks the built-in profile of that name, builders those that pick build, so that
// what they keep in the home stays. No interpreter is among them: what one executes may be anything.
var (
	agents   = strings.Fields("aider amp claude cline codex copilot gemini opencode qwen")
	builders = strings.Fields("go cargo npm pnpm yarn pip uv poetry make cmake ninja mvn gradle dotnet bundle rake composer mix")
)

const byName = "the command's name"

// NamesAgent reports whether the command's name alone gives it what an agent may.
func (p *Policy) NamesAgent() bool {
	return p.PickedBy == byName && slices.Contains(p.Layers, "built-in agent")
}

// maxExtends bounds the chain of profiles that extend each other.
const maxExtends = 16

// A resolver carries one [Resolve] from step to step.
type resolver struct {
	scope
	req       *Request
	policy    *Policy
	dirs      state.Dirs
	configDir string // dirs.Config, if it is there and may be used
}

// Resolve makes the policy that a request asks for: it picks the profile and
// the workspace, reads the files, and lays their rules on each other, the
// later ones on top: the profile and what it extends, then
// ~/.parallel-cc/sandbox.json, PARALLEL_CC_* variables, settings of other
// tools, the workspace's own file if it is trusted, and the flags. A workspace
// file that is not trusted can only tighten what came out.
//
// The error names every mistake: see [Mistakes].
func Resolve(req Request) (*Policy, error) {
	if req.Resolved != nil {
		return req.Resolved, nil
	}
	r := &resolver{req: &req, policy: &Policy{}}
	if err := r.findHome(); err != nil {
		return nil, err
	}
	if err := r.findWorkspace(); err != nil {
		return nil, err
	}
	r.memory = req.Host.Memory
	r.findConfig()

	flags, err := r.flagLayer()
	if err != nil {
		return nil, err
	}
	own, content, err := r.workspaceLayer()
	if err != nil {
		return nil, err
	}
	layers, err := r.profileLayers()
	if err != nil {
		return nil, err
	}
	// A profile of the user's own that extends claude is for Claude Code too.
	claude := slices.ContainsFunc(layers, func(l *layer) bool { return l.source == "built-in claude" })
	imported, err := r.importLayers(claude)
	if err != nil {
		return nil, err
	}
	layers = append(layers, imported...)

	trusted := own != nil && r.dirs.State != "" && TrustIn(r.dirs.State).Holds(r.workspace, content)
	if trusted {
		chain, err := r.trustedLayers(own)
		if err != nil {
			return nil, err
		}
		for _, l := range chain {
			// What stands below already would undo what was laid on it.
			if !slices.ContainsFunc(layers, func(have *layer) bool { return have.source == l.source }) {
				layers = append(layers, l)
			}
		}
	}
	layers = append(layers, flags)

	for _, l := range layers {
		if l != flags || len(l.entries) > 0 || req.NoLogin || req.FreshHome {
			r.policy.Layers = append(r.policy.Layers, l.source)
		}
	}
	b := newBuilder(r.policy)
	b.homes()
	var tightening []*layer
	for _, l := range layers {
		if b.planted(l) {
			tightening = append(tightening, l)
		} else {
			b.apply(l)
		}
	}
	if own != nil && !trusted {
		tightening = append(tightening, own)
	}
	for _, l := range tightening {
		b.tighten(l)
	}
	if err := b.finish(req, r.dirs); err != nil {
		return nil, err
	}
	return r.policy, nil
}

// findHome decides what ~ is.
func (r *resolver) findHome() error {
	if r.req.Host.Elsewhere {
		home, err := r.path(r.req.Host.Home, "")
		if err != nil || !strings.HasPrefix(r.req.Host.Home, "/") || home == "/" {
			return &Error{Origin: Origin{Source: "flag", Key: "--home"}, Cause: quote(r.req.Host.Home) + ": want the absolute path of a home"}
		}
		r.home, r.policy.Home, r.policy.Homes = home, home, homesElsewhere(home)
		return nil
	}
	home, warning, err := r.req.Host.HomeDir()
	if err != nil {
		return err
	}
	if warning != "" {
		r.policy.Warnings = append(r.policy.Warnings, warning)
	}
	r.home, r.policy.Home = home, home
	r.policy.Homes = homesOf(r.req.Host.Home, home)
	return nil
}

// NoHome begins the path that is ~ for a user who has no home; the uid follows.
const NoHome = "/tmp/pccrun-home-"

// HomeDir returns what ~ is, where its links lead: $HOME if it is the user's own
// directory, as for every program, else the home of the user database, and what
// the user is to hear of that. What looks for sessions asks here too: a run and
// `pccrun review` after it go by the same home.
func (h *Host) HomeDir() (home, warning string, err error) {
	wrong := func(cause string) error {
		return &Error{Origin: Origin{Source: "environment", Key: "HOME"}, Cause: cause, Hint: "set HOME to a directory of your own"}
	}
	home = h.Getenv("HOME")
	if h.Home == "" && (home == "" || path.Clean(home) == "/") && h.UID >= 0 {
		// A user whom nobody knows, as an image has it that is started with any number. Nothing stands there.
		home = NoHome + itoa(h.UID)
		return home, fmt.Sprintf("user %d has no home: ~ is %s, empty and deleted at exit", h.UID, home), nil
	}
	if home != "" && home != h.Home && !(strings.HasPrefix(home, "/") && path.Clean(home) != "/" && ownDir(home, h.UID)) {
		if h.Home == "" {
			return "", "", wrong(quote(home) + ": not a directory of your own")
		}
		warning = fmt.Sprintf("HOME=%s is not a directory of your own: ~ is %s", quote(home), h.Home)
		home = ""
	}
	if home == "" {
		home = h.Home
	}
	if home == "" || !strings.HasPrefix(home, "/") || path.Clean(home) == "/" {
		return "", "", wrong("no home directory is known")
	}
	return real(home), warning, nil
}

// real returns where a path leads, or the path itself if that is nowhere.
func real(name string) string {
	if !state.Straight(name) {
		if to, err := filepath.EvalSymlinks(name); err == nil {
			return to
		}
	}
	return path.Clean(name)
}

// findWorkspace decides what . is: section "the workspace" of docs/policy.md.
func (r *resolver) findWorkspace() error {
	r.cwd = r.req.Host.Cwd
	if r.req.Host.Elsewhere {
		return r.workspaceElsewhere()
	}
	origin := Origin{Source: "flag", Key: "--workspace"}
	if r.req.Workspace == "" {
		origin = Origin{Key: "workspace"}
		if r.cwd == "" {
			return &Error{Origin: origin, Cause: "the current directory was deleted", Hint: "cd to a directory that exists, or name one: --workspace DIR"}
		}
		r.workspace = r.cwd
		if pwd := r.req.Host.Getenv("PWD"); strings.HasPrefix(pwd, "/") && path.Clean(pwd) != r.cwd && real(pwd) == r.cwd {
			defer r.sayWorkspace(pwd)
		}
		if top := gitTop(r.cwd, r.req.Host.UID); top != "" && r.badWorkspace(top) == "" {
			r.workspace = top
		}
	} else {
		dir, err := r.argument(r.req.Workspace, r.cwd)
		if err == nil {
			dir, err = filepath.EvalSymlinks(dir)
		}
		if err == nil && !isDir(dir) {
			err = fmt.Errorf("%s: not a directory", dir)
		}
		if err != nil {
			return &Error{Origin: origin, Cause: cause(err), Hint: hintOf(err)}
		}
		r.workspace = dir
		if named, err := r.argument(r.req.Workspace, r.cwd); err == nil && named != dir {
			defer r.sayWorkspace(named)
		}
	}
	why := r.badWorkspace(r.workspace)
	if why == "" && r.req.Workspace == "" && isSystem(r.workspace) {
		why = "a system directory can be the workspace only with --workspace"
	}
	if why == "" && r.req.Workspace == "" && everybodys(r.workspace, r.req.Host.UID) {
		why = "everybody can write there: it can be the workspace only with --workspace"
	}
	if why != "" {
		return &Error{Origin: origin, Cause: r.workspace + ": " + why, Hint: "cd to a project, or name one: --workspace DIR"}
	}
	r.policy.Workspace = r.workspace
	r.policy.WorkDir = r.workspace
	if r.cwd != "" {
		r.policy.WorkDir = r.cwd
	}
	return nil
}

// workspaceElsewhere takes the workspace as it is named.
func (r *resolver) workspaceElsewhere() error {
	dir, err := r.path(r.req.Workspace, "")
	why := ""
	if err != nil || !strings.HasPrefix(r.req.Workspace, "/") {
		why = "want an absolute path"
	} else if why = r.badWorkspaceName(dir); why == "" && isSystem(dir) {
		why = "a directory of the system"
	}
	if why != "" {
		return &Error{Origin: Origin{Source: "flag", Key: "--workspace"}, Cause: quote(r.req.Workspace) + ": " + why}
	}
	r.workspace, r.policy.Workspace, r.policy.WorkDir = dir, dir, dir
	return nil
}

// sayWorkspace says where the workspace is, if it was reached by a link: what
// stands in a project somebody else may have made.
func (r *resolver) sayWorkspace(named string) {
	r.policy.Warnings = append(r.policy.Warnings, "the workspace is "+r.workspace+": "+path.Clean(named)+" leads there by a link")
}

// isSystem reports whether a directory is one that a user, root above all,
// stands in without meaning to have it changed.
func isSystem(dir string) bool {
	for _, tree := range [...]string{"/bin", "/boot", "/etc", "/lib", "/lib64", "/sbin", "/usr/bin", "/usr/lib", "/usr/sbin"} {
		if within(tree, dir) {
			return true
		}
	}
	return slices.Contains(systemDirs, dir) && dir != "/tmp" && dir != "/var/tmp"
}

// badWorkspace says why a directory cannot be the workspace, "" if it can.
func (r *resolver) badWorkspace(dir string) string {
	if why := r.badWorkspaceName(dir); why != "" {
		return why
	}
	if slices.Contains(homesAround(""), path.Dir(dir)) {
		return "a home of the outer system cannot be the workspace"
	}
	if partOfGit(dir) {
		return "a directory inside .git cannot be the workspace: git executes files there"
	}
	return ""
}

// badWorkspaceName is what of badWorkspace a name alone tells.
func (r *resolver) badWorkspaceName(dir string) string {
	if dir == "/" {
		return "the root of the file system cannot be the workspace"
	}
	for _, home := range append([]string{r.home, r.req.Host.Home}, r.policy.Homes...) {
		if home != "" && within(dir, home) {
			return "a home, or a directory with homes, cannot be the workspace"
		}
	}
	for _, special := range []string{"/proc", "/sys", "/dev"} {
		if within(special, dir) {
			return "a kernel file system cannot be the workspace"
		}
	}
	return ""
}

// partOfGit reports whether a directory is one such as the hooks of a repository, which is
// protected by its name where the repository lies in the workspace. A working tree in there,
// as beside a bare repository, is none, nor is the repository as a whole, which is found.
func partOfGit(dir string) bool {
	there := func(name string) bool { _, err := os.Lstat(name); return err == nil }
	for at := dir; at != "/" && at != "."; at = path.Dir(at) {
		switch {
		case there(at + "/.git"):
			return false
		case path.Base(at) == ".git" || there(at+"/HEAD") && (there(at+"/objects") && there(at+"/refs") || there(at+"/commondir")):
			return at != dir
		}
	}
	return false
}

// unreadProfiles begins the warning that says why.
const unreadProfiles = "your profiles are ignored: "

// findConfig finds the directory of the user's own profiles. One that the
// payload or somebody else could write is not used.
func (r *resolver) findConfig() {
	if r.req.Host.Elsewhere {
		return
	}
	var err error
	if r.dirs, err = state.Find(r.req.Host.Getenv, r.home); err != nil {
		return
	}
	if _, err := os.Lstat(r.dirs.Config); errors.Is(err, fs.ErrNotExist) {
		return // most users have none, and looking closer costs
	}
	root, err := state.OpenExisting(r.dirs.Config, r.workspace)
	switch {
	case err == nil:
		root.Close()
		if r.asks(r.dirs.Config, "/.config/pccrun", r.dirs.Config) {
			r.configDir = r.dirs.Config
		}
	case !errors.Is(err, fs.ErrNotExist):
		r.policy.Warnings = append(r.policy.Warnings, unreadProfiles+cause(err))
	}
}

// profileLayers returns the layers of the profile that is picked, and of what
// it extends, the most basic first.
func (r *resolver) profileLayers() ([]*layer, error) {
	name, origin := r.req.Profile, Origin{Source: "flag", Key: "--profile"}
	r.policy.PickedBy = "--profile"
	if name == "" {
		name, r.policy.PickedBy = r.pick()
		origin = Origin{Source: r.policy.PickedBy}
		if !isProfileName(name) {
			return nil, &Error{Origin: origin, Cause: quote(name) + ": want a name", Hint: "--profile takes a path too"}
		}
	}
	l, err := r.load(name, r.cwd, origin, "")
	if err != nil {
		return nil, err
	}
	r.policy.Profile, r.policy.Source = name, l.source
	return r.extend(l, false)
}

// pick returns the profile for the command's name, and what picked it. A
// command that lies in the workspace picks none: anybody may call a program
// claude, and the profile would hand it a key.
func (r *resolver) pick() (name, by string) {
	if name := r.req.Host.Getenv("PCCRUN_PROFILE"); name != "" {
		// Never a path: an .envrc of the workspace may have set it.
		return name, "PCCRUN_PROFILE"
	}
	if len(r.req.Command) > 0 {
		command := r.req.Command[0]
		if strings.Contains(command, "/") {
			if !strings.HasPrefix(command, "/") {
				command = r.cwd + "/" + command
			}
			if command = path.Clean(command); within(r.workspace, command) {
				return "default", "default"
			}
		}
		switch base := path.Base(command); {
		case slices.Contains(agents, base):
			return base, byName
		case slices.Contains(builders, base):
			return "build", byName
		}
	}
	return "default", "default"
}

// load reads a profile by name or path. A name is the user's own profile
// before the built-in one; in a profile of the same name it is the built-in.
func (r *resolver) load(name, dir string, from Origin, self string) (*layer, error) {
	fail := func(hint, format string, args ...any) (*layer, error) {
		return nil, &Error{Origin: from, Cause: fmt.Sprintf(format, args...), Hint: hint}
	}
	if isProfilePath(name) {
		file, err := r.argument(name, dir)
		if err != nil {
			return fail(hintOf(err), "%v", err)
		}
		return r.loadFile(file, from)
	}
	if !isProfileName(name) {
		hint := ""
		if strings.Contains(name, ",") {
			hint = "name one; a profile of your own can extend another"
		}
		return fail(hint, "%q: not the name of a profile", name)
	}
	if file, ok := r.own(name); ok {
		if file != self {
			l, err := r.loadFile(file, from)
			if err == nil && slices.Contains(Builtin(), name) {
				// Who wrote it long ago takes "default" for the built-in one.
				r.policy.Warnings = append(r.policy.Warnings, "profile "+name+": "+file+", replaces the built-in one")
			}
			if err == nil || !errors.Is(err, fs.ErrNotExist) {
				return l, err
			}
		}
	}
	v, err := parseBuiltin(name)
	if errors.Is(err, fs.ErrNotExist) {
		hint := "pccrun profile list shows them"
		if near := Nearest(name, Builtin()); near != "" {
			hint = "did you mean " + near + "?"
		}
		for _, w := range r.policy.Warnings {
			if strings.HasPrefix(w, unreadProfiles) {
				hint = w // one of that name may be among them
			}
		}
		return fail(hint, "no profile %q", name)
	}
	if err != nil {
		return nil, err
	}
	return decode(&r.scope, "built-in "+name, v)
}

// argument expands a path that names a file to read or a directory, where a
// bare name is relative too.
func (r *resolver) argument(text, dot string) (string, error) {
	s := r.scope
	s.bare = true
	return s.path(text, dot)
}

// isProfileName keeps names from leaving the directory of profiles.
func isProfileName(name string) bool {
	return len(name) <= 64 && name != "" && name[0] != '.' &&
		strings.Trim(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") == ""
}

func (r *resolver) loadFile(file string, from Origin) (*layer, error) {
	text, err := r.req.Draft.read(file)
	if err != nil {
		return nil, &Error{Origin: from, Cause: cause(err), cause: err}
	}
	s := r.scope
	s.base = path.Dir(file)
	return decodeProfile(&s, file, string(text))
}

// extend returns the layers that l extends, the most basic first, and l. A
// profile that does not say what it extends extends default, unless it only
// adds to others.
func (r *resolver) extend(l *layer, adds bool) ([]*layer, error) {
	chain := []*layer{l}
	for {
		l := chain[len(chain)-1]
		name, origin := l.extends, l.extendsAt
		if l.noExtends || name == "" && adds {
			break
		}
		if name == "" {
			name, origin = "default", Origin{Source: l.source}
		}
		if len(chain) == maxExtends {
			return nil, &Error{Origin: origin, Cause: fmt.Sprintf("more than %d profiles extend each other", maxExtends)}
		}
		base, err := r.load(name, path.Dir(l.source), origin, l.source)
		if err != nil {
			return nil, err
		}
		for _, seen := range chain {
			if seen.source == base.source {
				return nil, &Error{Origin: origin, Cause: fmt.Sprintf("a loop: %s extends %s", l.source, base.source)}
			}
		}
		chain = append(chain, base)
	}
	slices.Reverse(chain)
	return chain, nil
}

// workspaceLayer reads the workspace's own profile, once, through one
// descriptor, following no link; nil if there is none.
func (r *resolver) workspaceLayer() (*layer, []byte, error) {
	if r.req.Host.Elsewhere {
		return nil, nil, nil
	}
	file := r.workspace + "/" + WorkspaceFile
	text, err := readFile(file, noLinks)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, &Error{Cause: cause(err)}
	}
	s := r.scope
	s.base = r.workspace
	l, err := decodeProfile(&s, file, string(text))
	return l, text, err
}

// Rules returns the rules as the set that decides. What expand returns stands
// for a rule with a group such as @npm; without it, such a rule is an error. A
// group opens no port of the host's loopback that is not named.
func (n *Network) Rules(expand func(group rules.Rule) ([]rules.Rule, error)) (*rules.Set, error) {
	var all []rules.Rule
	for _, list := range [...]struct {
		from  []NetRule
		parse func(string) (rules.Rule, error)
	}{{n.Allow, rules.Parse}, {n.Deny, rules.ParseDeny}, {n.Local, rules.ParseLocal}} {
		for _, from := range list.from {
			rule, err := list.parse(from.Text)
			if err != nil {
				return nil, &Error{Origin: from.Origin, Cause: err.Error()}
			}
			if rule.Group() != "" && expand != nil {
				hosts, err := expand(rule)
				if err != nil {
					return nil, &Error{Origin: from.Origin, Cause: err.Error(), Hint: "name the hosts that your client is set up for: --allow HOST"}
				}
				if flags := n.unnamed(hosts); flags != "" {
					return nil, &Error{Origin: from.Origin, Cause: fmt.Sprintf("rule %q: your client fetches from a port of this machine's loopback, which no group opens", rule), Hint: flags + " opens the port"}
				}
				all = append(all, hosts...)
				continue
			}
			all = append(all, rule)
		}
	}
	return rules.New(all...)
}

// unnamed returns the flags for what a group allows of the host's loopback and nobody has named.
func (n *Network) unnamed(hosts []rules.Rule) string {
	var flags []string
	for _, r := range hosts {
		if r.Deny() || !r.Local() {
			continue
		}
		port := strconv.Itoa(int(r.LocalPort()))
		if !slices.ContainsFunc(n.Local, func(l NetRule) bool { return strings.TrimPrefix(l.Text, "localhost:") == port }) {
			flags = append(flags, "--local "+port)
		}
	}
	return strings.Join(flags, " ")
}

// checkNet checks a rule of the list, in the grammar of netproxy/rules.
func checkNet(list, text string) error {
	var err error
	switch list {
	case "deny":
		_, err = rules.ParseDeny(text)
	case "local":
		_, err = rules.ParseLocal(text)
	case "publish":
		_, _, err = PublishedPorts(text)
	default:
		var rule rules.Rule
		rule, err = rules.Parse(text)
		if err == nil && rule.Deny() {
			err = hinted{fmt.Errorf("rule %q denies", text), "put it into network.deny"}
		}
	}
	if hint := netHint(list, text); err != nil && hint != "" && hintOf(err) == "" {
		return hinted{err, hint}
	}
	return err
}

// PublishedPorts reads a rule of network.publish: the port at the host's loopback, and the
// one inside that it leads to, which is the same where only one is named.
func PublishedPorts(text string) (host, inside uint16, err error) {
	at, to, two := strings.Cut(text, ":")
	if !two {
		to = at
	}
	h, err := parseCount(at)
	i, errInside := parseCount(to)
	if err != nil || errInside != nil || min(h, i) < 1 || max(h, i) > 65535 {
		return 0, 0, fmt.Errorf("publish %q: want a port, or HOST:INSIDE", text)
	}
	return uint16(h), uint16(i), nil
}

// netHint says how to write what is written otherwise elsewhere, "" if nothing is
// known: a list in one rule, the URL of a git remote, two ports as for a container.
func netHint(list, text string) string {
	switch _, inside, two := strings.Cut(text, ":"); {
	case list == "publish" && two && strings.Contains(inside, ":"):
		return "ports are published only at the host's loopback: " + inside
	case list == "publish" || list == "local":
		if strings.ContainsAny(text, ", ") {
			return "name each port separately"
		}
		return ""
	}
	if first, _, several := strings.Cut(text, " "); several && (slices.Contains([]string{"private", "allow", "deny"}, first) || strings.ToUpper(first) == first) {
		return "" // words of the grammar's own
	}
	host := text
	if scheme, rest, ok := strings.Cut(text, "://"); ok && strings.HasSuffix(scheme, "ssh") {
		host = rest
	}
	if i := strings.IndexByte(host, '@'); i > 0 {
		host = host[i+1:]
	}
	remote := host != text
	if host = host[:strings.IndexAny(host+":", ":/")]; remote && host != "" {
		return "git over ssh goes to " + host + ":22"
	}
	if strings.ContainsAny(host, ", ") {
		return "name each host separately"
	}
	return ""
}

// cause is an error's text without what the origin says already.
func cause(err error) string {
	var e *fs.PathError
	if errors.As(err, &e) {
		return e.Path + ": " + e.Err.Error()
	}
	return err.Error()
}
