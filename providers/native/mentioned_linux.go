package native

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/events"
	"github.com/pccrun/pccrun/internal/shell"
	"github.com/pccrun/pccrun/namespaces"
	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/survey"
	"github.com/pccrun/pccrun/workspace/vcs"
)

// maxMentioned bounds the words of a command that are looked at as paths.
const maxMentioned = 4096

// scriptsOf returns what shells read of a command: words of it, scripts of the workspace that it starts, and what
// make, just, npm and the like run for the targets that it names.
func (p *Planned) scriptsOf(command []string) (texts []string) {
	started := filepath.Base(command[0])
	for i, name := range command {
		dashed := i > 0 && strings.HasPrefix(command[i-1], "-") && strings.HasSuffix(command[i-1], "c")
		switch {
		case i > 0 && (dashed || len(vcs.Words(name)) > 1):
			texts = append(texts, name)
		case i > 0 && i < 3 && slices.Contains(shells[:], started), i == 0 && strings.Contains(name, "/"):
			if script := p.ofWorkspace(name); i > 0 || strings.HasPrefix(script, "#!") {
				texts = append(texts, script)
			}
		}
	}
	switch started {
	case "npm", "pnpm", "yarn", "bun":
		var manifest struct{ Scripts map[string]string }
		_ = json.Unmarshal([]byte(p.ofWorkspace("package.json")), &manifest)
		for _, name := range command[1:] {
			texts = append(texts, manifest.Scripts["pre"+name], manifest.Scripts[name], manifest.Scripts["post"+name])
		}
	case "make", "gmake", "just":
		for _, name := range [...]string{"GNUmakefile", "makefile", "Makefile", "justfile", "Justfile"} {
			if text := p.ofWorkspace(name); text != "" && (started == "just") == strings.HasSuffix(name, "justfile") {
				return append(texts, recipes(text, command[1:]))
			}
		}
	}
	return texts
}

// ofWorkspace returns the text of a file of the workspace, "" for one that is none or is too large.
func (p *Planned) ofWorkspace(name string) string {
	if !filepath.IsAbs(name) {
		name = filepath.Join(p.Policy.WorkDir, name)
	}
	text, err := profiles.ReadFile(name)
	if err != nil || len(text) > maxScript || !survey.Below(name, p.Policy.Workspace) {
		return ""
	}
	return string(text)
}

// recipes returns the lines of a makefile or justfile that a shell reads for targets, or for the first one, and for
// what these depend on.
func recipes(text string, targets []string) string {
	lines, needs, first := map[string]string{}, map[string][]string{}, ""
	var current []string
	for line := range strings.Lines(text) {
		head, rest, is := strings.Cut(line, ":")
		switch {
		case line[0] == '\t' || line[0] == ' ':
			for _, name := range current {
				lines[name] += strings.TrimLeft(line, " \t@+-")
			}
		case is && line[0] != '#' && !strings.HasPrefix(rest, "="):
			current = strings.Fields(strings.TrimPrefix(head, "@"))
			for _, name := range current {
				needs[name] = append(needs[name], strings.Fields(rest)...)
			}
			if first == "" && len(current) > 0 && current[0][0] != '.' {
				first = current[0]
			}
		}
	}
	targets = slices.DeleteFunc(slices.Clone(targets), func(name string) bool { return lines[name] == "" && needs[name] == nil })
	if len(targets) == 0 {
		targets = []string{first}
	}
	all, seen := "", map[string]bool{}
	for len(targets) > 0 {
		name := targets[0]
		targets = targets[1:]
		if !seen[name] {
			seen[name] = true
			all += lines[name]
			targets = append(targets, needs[name]...)
		}
	}
	return strings.NewReplacer("$$", "$", "$(HOME)", "$HOME").Replace(all)
}

// mentioned returns what a command that failed with a code names of the host by its path, or finds in PATH, and that
// is hidden. Of secrets nothing is offered.
func (r *plan) mentioned(command []string, code int) (list []events.Hidden) {
	host, home := profiles.Host{Environ: r.provider.environ}, r.Policy.Home
	expanded := strings.NewReplacer(" ~/", " "+home+"/", "=~/", "="+home+"/", "$HOME/", home+"/", "${HOME}/", home+"/")
	words := slices.Clone(command)
	for _, text := range r.scripts {
		for _, word := range vcs.Words(unwritten(text)) {
			words = append(words, expanded.Replace(" " + word)[1:])
		}
	}
	for _, word := range words[:min(len(words), maxMentioned)] {
		for _, path := range append([]string{word}, strings.FieldsFunc(word, func(c rune) bool { return strings.ContainsRune("=:,@", c) })...) {
			h := r.hiddenAt(path, &host)
			if h.Code = code; h.What != "" && !slices.ContainsFunc(list, func(known events.Hidden) bool { return known.What == h.What }) {
				list = append(list, h)
			}
		}
	}
	return list
}

// unwritten leaves out of a script where its redirections write.
func unwritten(text string) string {
	for i := 0; ; {
		at := strings.IndexByte(text[i:], '>')
		if at < 0 {
			return text
		}
		i += at
		rest := strings.TrimLeft(text[i:], ">|& \t")
		if end := strings.IndexAny(rest, " \t\n;&|)"); end >= 0 {
			text = text[:i] + rest[end:]
		} else {
			text = text[:i]
		}
	}
}

// hiddenAt returns what a word names, if the host has it and the command does not.
func (r *plan) hiddenAt(word string, host *profiles.Host) (h events.Hidden) {
	path := word
	switch slash := strings.IndexByte(word, '/'); {
	case word == "" || word[0] == '-' && slash < 0:
		return h
	case word[0] == '-':
		path = word[slash:] // as in -I/usr/include
	case slash < 0:
		if path = r.inPath(word, host.Getenv("PATH")); path == "" {
			return h
		}
	case slash > 0:
		path = filepath.Join(r.Policy.WorkDir, word)
	}
	path = filepath.Clean(path)
	real, err := filepath.EvalSymlinks(path)
	if err != nil || r.visible(path) && r.visible(real) || survey.Below(real, r.Policy.Workspace) {
		return h
	}
	if survey.Below(path, r.Policy.Workspace) {
		path = real // a rule may not lead through a link that the command could have made
	}
	info, err := os.Stat(real)
	if err != nil || !info.Mode().IsRegular() && (!info.IsDir() || r.Policy.Passing(real)) || unix.Access(real, unix.R_OK) != nil {
		return h
	}
	for _, name := range [...]string{path, real} {
		if d := r.Policy.Decide(name); ownTree(name) || d.Access == profiles.Hide && d.Rule.Origin.Source == "flag" {
			return h
		}
	}
	h.What = "read " + path
	for _, name := range [...]string{path, real} {
		hidden := r.Policy.Decide(filepath.Join(r.Policy.Workspace, filepath.Base(name))).Access == profiles.Hide // as .env is
		switch secret := survey.Secret(r.Policy.Home, name); {
		case secret && r.Policy.Attempts:
			return events.Hidden{} // which the run tells itself
		case secret || hidden:
			h.What += ", which may hold secrets"
			return h
		}
	}
	for _, dir := range r.needed(path, info.Mode().IsRegular() && info.Mode()&0o111 != 0, host.Getenv) {
		h.Hint += " --read " + shell.Quote(dir)
	}
	h.Hint = strings.TrimSpace(h.Hint)
	return h
}

// inPath returns the program of that name in the user's PATH, "" where there is none.
func (r *plan) inPath(name, list string) string {
	for _, dir := range filepath.SplitList(list) {
		path := filepath.Join(dir, name)
		if info, err := os.Stat(path); filepath.IsAbs(dir) && err == nil && info.Mode().IsRegular() && unix.Access(path, unix.X_OK) == nil {
			return path
		}
	}
	return ""
}

// needed returns what has to be shown for a path to be of use: of a virtual environment all, of another program what
// is shown with one that is the command itself.
func (r *plan) needed(path string, program bool, getenv func(string) string) []string {
	list := []string{path}
	if env := filepath.Dir(filepath.Dir(path)); filepath.Base(filepath.Dir(path)) == "bin" {
		if _, err := os.Stat(env + "/pyvenv.cfg"); err == nil {
			list, path, program = []string{env}, env+"/bin/python", true
		}
	}
	if program {
		query := survey.ToolQuery{Home: r.Policy.Home, Workspace: r.Policy.Workspace, Command: []string{path}, Env: getenv}
		for _, tool := range survey.Toolchains(query).Show {
			if !r.visible(tool.Path) {
				list = append(list, tool.Path)
			}
		}
	}
	slices.Sort(list)
	all := slices.Compact(list)
	return slices.DeleteFunc(slices.Clone(all), func(one string) bool {
		return slices.ContainsFunc(all, func(other string) bool { return one != other && survey.Below(one, other) })
	})
}

// visible reports whether the command finds at a path what the host has there, or something of the sandbox's own.
func (r *plan) visible(path string) bool {
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
