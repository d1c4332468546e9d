package native

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/pccrun/pccrun/internal/events"
	"github.com/pccrun/pccrun/internal/procfs"
	"github.com/pccrun/pccrun/internal/shell"
	"github.com/pccrun/pccrun/internal/survey"
	"github.com/pccrun/pccrun/namespaces"
	"github.com/pccrun/pccrun/profiles"
)

// Hidden returns the services of this machine that the command has asked its own loopback for; and, if it has failed, what
// its words name that this machine has and the command does not see. What the workspace names in the home is told of if it
// was looked for.
func (s *Started) Hidden(failed bool) (list []events.Hidden) {
	r := s.run
	if failed && !r.learn { // which has seen what was opened
		list = r.named
		if !r.Plan.Identity.Root {
			list = r.hiddenNames()
		}
	}
	for _, n := range r.outward {
		if !slices.Contains(r.looked, n.Path) {
			continue
		}
		h := r.hiddenAt(n.Path)
		h.What, h.Hint = "read "+n.Path+", "+n.By, "--read "+shell.Quote(n.Path)
		pushes := strings.HasPrefix(n.By, survey.NamedRemote) && slices.ContainsFunc(r.Plan.Command.Argv, func(w string) bool { return strings.Contains(w, "push") })
		if made := slices.Contains(r.made, n.Path); made || pushes {
			h.What, h.Hint = "write "+n.Path+", "+n.By, "--write "+shell.Quote(n.Path)
			if made {
				h.What += "; what was written is gone"
			}
		}
		list = append(slices.DeleteFunc(list, func(have events.Hidden) bool { return have.Hint == h.Hint }), h)
	}
	for _, path := range r.sockets {
		if h, is := r.hiddenSocket(path); is && !slices.Contains(list, h) {
			list = append(list, h)
		}
	}
	for _, port := range r.closed {
		rule := "localhost:" + strconv.Itoa(int(port))
		own := slices.ContainsFunc(r.Policy.Network.Local, func(l profiles.NetRule) bool {
			return strings.TrimPrefix(l.Text, "localhost:") == strings.TrimPrefix(rule, "localhost:")
		}) || slices.ContainsFunc(r.Policy.Network.Publish, func(p profiles.NetRule) bool {
			at, _, _ := profiles.PublishedPorts(p.Text)
			return at == port // pccrun listens there itself
		})
		if procfs.Listens(os.Getpid(), port) && !own {
			list = append(list, events.Hidden{What: "connect " + rule + " of this machine", Hint: "--local " + rule})
		}
	}
	return list
}

// hiddenNames returns what the words of the command name and is hidden. That it was opened no record has: a refused open
// leaves none, and a word that is no shell's is for its program.
func (r *Run) hiddenNames() (list []events.Hidden) {
	add := func(h events.Hidden) {
		if h.What != "" && !slices.Contains(list, h) {
			list = append(list, h)
		}
	}
	argv := r.Plan.Command.Argv
	script := slices.Contains([]string{"sh", "bash", "dash", "ksh", "zsh"}, filepath.Base(argv[0]))
	for _, word := range argv {
		if script && strings.HasPrefix(word, "-") && strings.HasSuffix(word, "c") {
			break // what follows is a script and its words, and nobody knows what it does with them
		}
		add(r.hiddenWord(word))
		if _, value, is := strings.Cut(word, "="); is { // as in --file=PATH
			add(r.hiddenWord(value))
		}
	}
	for _, path := range triedSockets(r.Plan.Command.Argv) {
		if h, is := r.hiddenSocket(path); is {
			list = slices.DeleteFunc(list, func(have events.Hidden) bool { return have.What == "read "+filepath.Dir(path) })
			add(h)
		}
	}
	return list
}

// unseen returns what shows the program that the command names, if that lies in what is hidden.
func (r *Planned) unseen() string {
	for _, path := range r.Plan.Command.Paths {
		if m := r.Plan.At(path); m.Kind == namespaces.Mask || m.Kind == namespaces.Fresh && m.ReadOnly {
			return "--read " + shell.Quote(m.Target) + " shows it"
		}
		real, _ := filepath.EvalSymlinks(filepath.Dir(path))
		for _, n := range r.outward {
			if to, err := filepath.EvalSymlinks(n.Path); err == nil && survey.Below(real, to) {
				return "--read " + shell.Quote(n.Path) + " shows it: " + n.Path + " is hidden, " + n.By
			}
		}
	}
	return ""
}

// Unreadable returns the hidden files of the workspace that git reads for the command, if it takes them: it is one that
// adds all there is in a directory.
func (s *Started) Unreadable() (paths []string) {
	r := s.run
	argv := r.Plan.Command.Argv
	verb := slices.IndexFunc(argv, func(w string) bool { return w == "add" || w == "stash" })
	if filepath.Base(argv[0]) != "git" || verb < 0 {
		return nil
	}
	var dirs []string
	for _, w := range argv[verb+1:] {
		switch {
		case w == "--all", w == "-A", argv[verb] == "stash" && (w == "-u" || w == "-a" || w == "--include-untracked"):
			dirs = append(dirs, r.Policy.Workspace)
		case argv[verb] == "add" && !strings.HasPrefix(w, "-"):
			dirs = append(dirs, filepath.Join(r.Plan.Command.Dir, w))
		}
	}
	for _, m := range r.Plan.Mounts {
		if m.Kind == namespaces.Mask && slices.ContainsFunc(dirs, func(dir string) bool { return m.Target != dir && survey.Below(m.Target, dir) }) {
			paths = append(paths, m.Target)
		}
	}
	return paths
}

// hiddenAt returns what a word names, if that is hidden. No link is followed: the name of a file to which one leads would
// say more than the command line does.
func (r *Run) hiddenAt(word string) (h events.Hidden) {
	path := filepath.Clean(word)
	if !filepath.IsAbs(path) {
		path = filepath.Join(r.Plan.Command.Dir, word)
	}
	d, m := r.Policy.Decide(path), r.Plan.At(path)
	socket := false
	covered := m.Target == path && (m.Kind == namespaces.Mask || m.Kind == namespaces.Fresh && m.ReadOnly)
	switch {
	case word == "", d.Rule.Origin.Source == "flag" && d.Access == profiles.Hide: // whoever hides it knows
		return h
	case !covered:
		info, err := os.Lstat(path)
		if dir := filepath.Dir(path); os.IsNotExist(err) && strings.Contains(word, "/") && d.Access != profiles.Hide && !r.visible(dir) && !survey.Secret(r.Policy.Home, path) {
			if in, err := os.Stat(dir); err == nil && in.IsDir() {
				touch := shell.Quote(path)
				return events.Hidden{What: "write " + path, Rule: d.Text(), Hint: "touch " + touch + " and --write " + touch}
			}
		}
		unknown := r.Plan.Identity.Root && errors.Is(err, fs.ErrPermission) // root's rights are gone by now
		if err != nil && !unknown || r.visible(path) {
			return h
		}
		socket = err == nil && info.Mode().Type() == os.ModeSocket
	}
	name := path
	if rel, in := strings.CutPrefix(path, r.Policy.Workspace+"/"); in {
		name = rel
		if from, err := filepath.Rel(r.Policy.WorkDir, path); err == nil {
			name = from // where the user is
		}
	}
	h = events.Hidden{What: "read " + path, Rule: d.Text(), Hint: "--read " + shell.Quote(name)}
	switch {
	case m.Why == survey.SocketHidden && covered:
		return events.Hidden{What: "connect " + path, Rule: m.Why, Hint: "--socket " + shell.Quote(path)}
	case socket:
		return events.Hidden{What: "connect " + path, Rule: h.Rule, Hint: "--socket " + shell.Quote(path)}
	case survey.Secret(r.Policy.Home, path):
		h.What, h.Hint = h.What+", which may hold secrets", ""
	case covered && d.Access != profiles.Hide:
		h.Rule = m.Why
	}
	return h
}

// hiddenWord is [Run.hiddenAt] for a word of a command that failed: nobody has seen whether it wanted to read what is
// hidden or to change it.
func (r *Run) hiddenWord(word string) events.Hidden {
	h := r.hiddenAt(word)
	name, reads := strings.CutPrefix(h.Hint, "--read ")
	path, _ := strings.CutPrefix(h.What, "read ")
	if !reads || r.Plan.At(path).Target != path {
		return h
	}
	if change := r.attempt(path).Hint; change != "" {
		h.Hint += ", or " + strings.ReplaceAll(change, shell.Quote(path), name) + " to change or remove it"
	}
	return h
}

// hiddenSocket returns what a path names, if that is a socket and hidden.
func (r *Run) hiddenSocket(path string) (h events.Hidden, is bool) {
	h = r.hiddenAt(path)
	return h, strings.HasPrefix(h.Hint, "--socket ")
}

// visible reports whether the command finds at a path what the host has there, or something of the sandbox's own.
func (r *Run) visible(path string) bool {
	m := r.Plan.At(path)
	switch {
	case m.Kind == namespaces.Mask:
		return false
	case m.Kind != namespaces.Fresh && m.Kind != namespaces.Persist || m.Target == path:
		return true
	case m.Kind == namespaces.Persist:
		if _, err := os.Lstat(m.Source + path[len(m.Target):]); err == nil {
			return true
		}
	}
	return slices.ContainsFunc(r.Plan.Mounts, func(other namespaces.Mount) bool { return survey.Below(other.Target, path) }) ||
		slices.ContainsFunc(m.Stubs, func(s namespaces.Stub) bool {
			at := m.Target + "/" + s.Name
			return !s.Trace && (survey.Below(at, path) || s.Node == survey.Link && survey.Below(path, at))
		})
}
