// Package clients asks the package managers that the user has installed which
// hosts they are set up to fetch from: npm, go, pip, cargo, apt.
//
// It promises that only the user's own and the system's configuration speak:
// a client is run from the root directory, found in PATH outside the
// workspace, with a short list of variables of which none names the
// workspace, and a file in or above the workspace is never a reason for a
// host. Asking costs up to half a second, so an answer is kept until the
// program, a file that it reads or one of those variables changes, and for a
// day at the most.
//
// It knows no host of any registry: a client that does not say where it
// fetches from is an error.
package clients

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pccrun/pccrun/netproxy/rules"
	"github.com/pccrun/pccrun/state"
)

// A Host is one that a client fetches from: a name or an address without
// brackets, in lower case as the client has it.
type Host struct {
	Name string
	Port uint16
}

// An Asker asks for one user.
type Asker struct {
	Environ   []string     // the user's
	Workspace string       // absolute; what lies in it does not count
	StateDir  string       // where answers are kept, "" for nowhere
	Note      func(string) // hears what could not be found out; may be nil
}

// The ages at which an answer is asked for again. One is incomplete if the
// network was needed for it and did not do.
const (
	maxAge           = 24 * time.Hour
	maxAgeIncomplete = 10 * time.Minute
)

// answer is what is kept of having asked.
type answer struct {
	Version  int               `json:"v"`
	Key      string            `json:"key"`   // of program and variables
	Watch    map[string]string `json:"watch"` // the stamps of the files that the client reads
	Hosts    []Host            `json:"hosts"`
	Missing  string            `json:"missing,omitempty"` // what could not be found out
	AskedFor time.Time         `json:"asked"`
}

// Hosts returns the hosts of a group: "npm", "go", "pip", "cargo" or "apt".
func (a *Asker) Hosts(group string) ([]Host, error) {
	i := slices.IndexFunc(table[:], func(c client) bool { return c.group == group })
	if i < 0 {
		return nil, fmt.Errorf("unknown group @%s", group)
	}
	c := &table[i]
	env := a.environ(c)
	program, err := a.find(c.program, env)
	if err != nil {
		return nil, err
	}
	key := keyOf(program, env)
	kept, ok := a.load(c)
	if !ok || !kept.fresh(key, time.Now()) {
		if kept, err = a.ask(c, program, env); err != nil {
			return nil, err
		}
		kept.Key = key
		a.save(c, kept)
	}
	if kept.Missing != "" && a.Note != nil {
		a.Note("@" + group + ": " + kept.Missing)
	}
	return kept.Hosts, nil
}

// Expand returns the rules that a group's rule stands for, one for each host.
func (a *Asker) Expand(group rules.Rule) ([]rules.Rule, error) {
	hosts, err := a.Hosts(group.Group())
	if err != nil {
		return nil, err
	}
	list := make([]rules.Rule, len(hosts))
	for i, h := range hosts {
		if list[i], err = group.For(h.Name, h.Port); err != nil {
			return nil, err
		}
	}
	return list, nil
}

// ask runs the client.
func (a *Asker) ask(c *client, program string, env []string) (answer, error) {
	started := time.Now()
	q := &question{program: program, env: env}
	got, err := c.ask(q)
	if err != nil {
		return answer{}, fmt.Errorf("ask %s for its hosts: %w", c.program, err)
	}
	kept := answer{Version: 1, Watch: map[string]string{}, Missing: got.missing, AskedFor: started}
	for _, path := range got.watch {
		if !filepath.IsAbs(path) {
			continue
		}
		if a.inWorkspace(path) {
			return answer{}, fmt.Errorf("%s reads %s, which is in the workspace", c.program, path)
		}
		kept.Watch[path] = stamp(path)
		if changed(path, started) {
			kept.Watch[path] = "changed while pccrun asked the client"
		}
	}
	for _, text := range got.urls {
		h, err := hostOf(text)
		if err != nil {
			return answer{}, fmt.Errorf("%s fetches from %q: %w", c.program, strip(text), err)
		}
		if h.Name != "" && !slices.Contains(kept.Hosts, h) {
			kept.Hosts = append(kept.Hosts, h)
		}
	}
	if len(kept.Hosts) == 0 {
		return answer{}, fmt.Errorf("%s names no host that it fetches from", c.program)
	}
	return kept, nil
}

// hostOf reads the host of a URL; none for what is no network's.
func hostOf(text string) (Host, error) {
	u, err := url.Parse(strings.TrimPrefix(text, "sparse+"))
	if err != nil {
		return Host{}, errors.New("not a URL")
	}
	port := uint16(443)
	switch u.Scheme {
	case "https":
	case "http":
		port = 80
	case "file", "cdrom", "copy":
		return Host{}, nil
	default:
		return Host{}, fmt.Errorf("scheme %q is not http or https", u.Scheme)
	}
	if p := u.Port(); p != "" {
		n, err := strconv.ParseUint(p, 10, 16)
		if err != nil || n == 0 {
			return Host{}, fmt.Errorf("bad port %q", p)
		}
		port = uint16(n)
	}
	if u.Hostname() == "" {
		return Host{}, errors.New("no host")
	}
	return Host{strings.ToLower(u.Hostname()), port}, nil
}

// strip takes the credentials out of a URL that an error is to name.
func strip(text string) string {
	if u, err := url.Parse(text); err == nil {
		u.User, u.RawQuery = nil, ""
		return u.String()
	}
	return "a URL that cannot be read"
}

// find returns where the program lies: in PATH, and not in the workspace.
func (a *Asker) find(name string, env []string) (string, error) {
	for _, e := range env {
		path, ok := strings.CutPrefix(e, "PATH=")
		if !ok {
			continue
		}
		for _, dir := range filepath.SplitList(path) {
			file := filepath.Join(dir, name)
			if info, err := os.Stat(file); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 && !a.inWorkspace(file) {
				return file, nil
			}
		}
	}
	return "", fmt.Errorf("%s is not installed", name)
}

// inWorkspace reports whether a path, or what it leads to, lies in the
// workspace.
func (a *Asker) inWorkspace(path string) bool {
	if a.Workspace == "" {
		return false
	}
	within := func(p string) bool { return p == a.Workspace || strings.HasPrefix(p, a.Workspace+"/") }
	if within(path) {
		return true
	}
	real, err := filepath.EvalSymlinks(path)
	return err == nil && within(real)
}

// passed are the variables that every client gets; those of its own follow in
// the table. What starts programs or points into a project is not among them.
var passed = [...]string{
	"HOME", "USER", "LOGNAME", "TMPDIR", "XDG_CONFIG_HOME", "XDG_CONFIG_DIRS", "XDG_CACHE_HOME", "XDG_DATA_HOME",
	"http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "SSL_CERT_FILE", "SSL_CERT_DIR",
}

// environ returns the variables that a client is asked with.
func (a *Asker) environ(c *client) []string {
	env := []string{"LC_ALL=C", "COLUMNS=4000"}
	inScript := false // npm sets its variables by the project's files for whatever a script starts
	for _, e := range a.Environ {
		inScript = inScript || strings.HasPrefix(e, "npm_lifecycle_event=") || strings.HasPrefix(e, "npm_command=")
	}
	for _, e := range a.Environ {
		name, value, _ := strings.Cut(e, "=")
		switch {
		case name == "PATH":
			env = append(env, "PATH="+a.cleanPath(value))
			continue
		case slices.Contains(passed[:], name):
		case !slices.ContainsFunc(c.vars, func(prefix string) bool { return strings.HasPrefix(strings.ToUpper(name), prefix) }):
			continue
		case inScript && strings.HasPrefix(strings.ToLower(name), "npm_"):
			continue
		case startsPrograms(name):
			continue
		}
		if a.namesWorkspace(value) {
			continue
		}
		env = append(env, e)
	}
	slices.Sort(env)
	return env
}

// startsPrograms reports whether a variable of a client's names a program, or
// what one is given to run. None of them says where packages come from.
func startsPrograms(name string) bool {
	name = strings.ToUpper(name)
	return slices.ContainsFunc([]string{"PIP_PYTHON", "RUSTC", "RUSTDOC", "TOOLCHAIN", "WRAPPER", "LINKER", "RUNNER", "SHELL", "NODE_OPTIONS", "NODE_GYP", "CREDENTIAL", "EDITOR", "VIEWER", "GIT", "PLUGIN"},
		func(part string) bool { return strings.Contains(name, part) })
}

// namesWorkspace reports whether a value, or a part of it that is a list, leads
// into the workspace: as it is, or for a client that is asked in the root
// directory.
func (a *Asker) namesWorkspace(value string) bool {
	if a.Workspace == "" {
		return false
	}
	if strings.Contains(value, a.Workspace) {
		return true
	}
	return slices.ContainsFunc(strings.FieldsFunc(value, func(r rune) bool { return strings.ContainsRune(":,; ", r) }), func(part string) bool {
		return a.inWorkspace(part) || a.inWorkspace(filepath.Clean("/"+part))
	})
}

// Path keeps of a list of directories such as PATH what is absolute and outside
// the workspace, for whoever runs a program of this machine's: in the workspace
// anybody could have put one of that name.
func Path(list, workspace string) string { return (&Asker{Workspace: workspace}).cleanPath(list) }

// cleanPath is [Path] for this asker's workspace.
func (a *Asker) cleanPath(path string) string {
	return strings.Join(slices.DeleteFunc(filepath.SplitList(path), func(dir string) bool {
		return !filepath.IsAbs(dir) || a.inWorkspace(dir)
	}), string(filepath.ListSeparator))
}

// keyOf says in one word which program was asked, and with what.
func keyOf(program string, env []string) string {
	real, err := filepath.EvalSymlinks(program)
	if err != nil {
		real = program
	}
	sum := sha256.Sum256([]byte(strings.Join(append([]string{program, stamp(program), real, stamp(real)}, env...), "\x00")))
	return hex.EncodeToString(sum[:])
}

// fresh reports whether an answer may be used again.
func (k *answer) fresh(key string, now time.Time) bool {
	age := maxAge
	if k.Missing != "" {
		age = maxAgeIncomplete
	}
	if k.Version != 1 || k.Key != key || len(k.Hosts) == 0 || k.AskedFor.After(now) || now.Sub(k.AskedFor) > age {
		return false
	}
	for path, was := range k.Watch {
		if stamp(path) != was {
			return false
		}
	}
	return true
}

// load reads what was kept; anything odd about it means to ask again.
func (a *Asker) load(c *client) (kept answer, ok bool) {
	if a.StateDir == "" {
		return answer{}, false
	}
	root, err := state.OpenExisting(a.dir(), a.Workspace)
	if err != nil {
		return answer{}, false
	}
	defer root.Close()
	text, err := state.ReadFile(root, c.group+".json", 1<<20)
	return kept, err == nil && json.Unmarshal(text, &kept) == nil
}

// save keeps an answer, if it can.
func (a *Asker) save(c *client, kept answer) {
	if a.StateDir == "" {
		return
	}
	text, err := json.Marshal(kept)
	if err != nil {
		return
	}
	root, err := state.Open(a.dir(), a.Workspace)
	if err != nil {
		return
	}
	defer root.Close()
	_ = state.WriteFile(root, c.group+".json", text, state.Fast)
}

func (a *Asker) dir() string { return filepath.Join(a.StateDir, "clients") }

// stamp tells one state of a file from another, and of a directory together
// with what is in it.
func stamp(path string) string {
	info, err := os.Stat(path)
	if err != nil {
		return "absent"
	}
	text := stampOf(info)
	if !info.IsDir() {
		return text
	}
	names, err := os.ReadDir(path)
	if err != nil {
		return text
	}
	for _, n := range names {
		if info, err := os.Stat(filepath.Join(path, n.Name())); err == nil && !info.IsDir() {
			text += " " + n.Name() + " " + stampOf(info)
		}
	}
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

// changed reports whether a file was written at or after a time, so that the
// client may have read it in another state than it was stamped in.
func changed(path string, since time.Time) bool {
	info, err := os.Stat(path)
	return err == nil && !info.ModTime().Before(since.Truncate(time.Millisecond))
}
