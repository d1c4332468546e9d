// Package clients asks the package managers that the user has installed which
// hosts they are set up to fetch from: npm, go, pip, cargo, apt.
//
// It promises that only the user's own and the system's configuration speak:
// a client is found and run by package programs, with variables of which none
// leads to what a run could write, and a file there is never a reason for a
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

	"github.com/pccrun/pccrun/internal/programs"
	"github.com/pccrun/pccrun/internal/state"
	"github.com/pccrun/pccrun/netproxy/rules"
)

// A Host is one that a client fetches from: a name or an address without
// brackets, in lower case as the client has it.
type Host struct {
	Name string
	Port uint16
}

// An Asker asks for one user.
type Asker struct {
	Programs  *programs.Finder // for the run at hand; its Note hears what could not be found out
	Workspace string           // absolute
	StateDir  string           // where answers are kept, "" for nowhere

	// Sends are the proxies and authorities by which a client that is asked asks a registry, NAME=VALUE: see
	// package internal/outgoing. nil: none.
	Sends   func() []string
	Environ []string // what tells the clients that were asked so far where they go, without credentials
}

// The ages at which an answer is asked for again. One is incomplete if the
// network was needed for it and did not do.
const (
	maxAge           = 24 * time.Hour
	maxAgeIncomplete = 10 * time.Minute
)

// version is of the form of an answer.
const version = 2

// answer is what is kept of having asked.
type answer struct {
	Version  int               `json:"v"`
	Key      string            `json:"key"`   // of program and variables
	Watch    map[string]string `json:"watch"` // the stamps of the files that the client reads
	Hosts    []Host            `json:"hosts"`
	Environ  []string          `json:"environ"`
	SignsIn  bool              `json:"signs_in,omitempty"`
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
	program, err := a.Programs.Find(c.program, a.passes(c))
	if errors.Is(err, programs.ErrNone) {
		err = fmt.Errorf("%s is not installed: %w", c.program, err)
	}
	if err != nil {
		return nil, err
	}
	if program.Env = append(program.Env, "LC_ALL=C", "COLUMNS=4000"); a.Sends != nil {
		program.Env = append(program.Env, a.Sends()...)
	}
	key := keyOf(program)
	kept, ok := a.load(c)
	if !ok || !kept.fresh(key, time.Now()) {
		if kept, err = a.ask(c, program); err != nil {
			return nil, err
		}
		kept.Key = key
		a.save(c, kept)
	}
	if kept.Missing != "" && a.Programs.Note != nil {
		a.Programs.Note("@" + group + ": " + kept.Missing)
	}
	if kept.SignsIn && a.Programs.Note != nil {
		a.Programs.Note("@" + group + ": your configuration has credentials for where " + c.program + " fetches from: they stay outside, and without them it may be refused")
	}
	a.Environ = append(a.Environ, kept.Environ...)
	return kept.Hosts, nil
}

// GroupOf returns the group of the client that a process is, by its words; "" for none.
func GroupOf(argv []string) string {
	words := strings.Fields(strings.Join(argv[:min(len(argv), 3)], " ")) // npm writes a title in their place
	if len(words) > 1 && (strings.HasPrefix(filepath.Base(words[0]), "python") || filepath.Base(words[0]) == "node") {
		words = words[1:]
		if len(words) > 1 && words[0] == "-m" {
			words = words[1:]
		}
	}
	if len(words) == 0 {
		return ""
	}
	name := strings.TrimRight(filepath.Base(words[0]), ".0123456789") // pip3.11
	i := slices.IndexFunc(table[:], func(c client) bool { return c.program == name })
	if i < 0 {
		return ""
	}
	return table[i].group
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
func (a *Asker) ask(c *client, program *programs.Program) (answer, error) {
	started := time.Now()
	got, err := c.ask(program)
	if err != nil {
		return answer{}, fmt.Errorf("ask %s for its hosts: %w", c.program, err)
	}
	kept := answer{Version: version, Watch: map[string]string{}, Environ: got.env, SignsIn: got.signsIn, Missing: got.missing, AskedFor: started}
	for _, path := range got.watch {
		if !filepath.IsAbs(path) {
			continue
		}
		if in, err := a.Programs.Covers(path); in || err != nil {
			return answer{}, errors.Join(err, fmt.Errorf("%s reads %s, which sandboxed commands can write", c.program, path))
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

// passes says which variables a client is asked with.
func (a *Asker) passes(c *client) func(name string) bool {
	// npm sets its variables by the project's files for whatever a script starts.
	inScript := slices.ContainsFunc(a.Programs.Environ, func(e string) bool {
		return strings.HasPrefix(e, "npm_lifecycle_event=") || strings.HasPrefix(e, "npm_command=")
	})
	return func(name string) bool {
		name = strings.ToUpper(name)
		return slices.ContainsFunc(c.vars, func(own string) bool {
			before, after, any := strings.Cut(own, "*")
			return name == own || any && len(name) >= len(before+after) && strings.HasPrefix(name, before) && strings.HasSuffix(name, after)
		}) && !(inScript && strings.HasPrefix(name, "NPM_"))
	}
}

// keyOf says in one word which program was asked, and with what.
func keyOf(p *programs.Program) string {
	real, err := filepath.EvalSymlinks(p.Path)
	if err != nil {
		real = p.Path
	}
	sum := sha256.Sum256([]byte(strings.Join(append([]string{p.Path, stamp(p.Path), real, stamp(real)}, p.Env...), "\x00")))
	return hex.EncodeToString(sum[:])
}

// fresh reports whether an answer may be used again.
func (k *answer) fresh(key string, now time.Time) bool {
	age := maxAge
	if k.Missing != "" {
		age = maxAgeIncomplete
	}
	if k.Version != version || k.Key != key || len(k.Hosts) == 0 || k.AskedFor.After(now) || now.Sub(k.AskedFor) > age {
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
