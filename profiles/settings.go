package profiles

import (
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"slices"
	"strings"
	"time"
)

// SettingsFile is the name of the user's settings, in the directory of his profiles.
const SettingsFile = "config.jsonc"

// Settings are what the user's configuration says beside the policy. No file of a workspace counts: what is in there is
// executed, or says where files are made.
type Settings struct {
	File string // "" where there is none
	Task TaskSettings
}

// TaskSettings are what `pccrun task` takes where no flag says otherwise.
type TaskSettings struct {
	Dir          string // where work trees are made, in a directory of each repository's name; absolute
	BranchPrefix string // of branches: the name of a task follows
	Agent        string
	Timeout      time.Duration // 0 for none
	Copy         []string      // patterns of gitignore(5): ignored files that a work tree gets a copy of
	Prepare      string        // a shell's command, inside
	PrepareAllow []string      // hosts that it alone may reach
	Notify       string        // a program and its arguments, outside

	Agents map[string]*AgentSettings // by name
}

// AgentSettings say how an agent is installed where a place lacks it.
type AgentSettings struct {
	Version string   // "" for the newest
	Install string   // a shell's command in place of the agent's own installer; "" for that
	Allow   []string // hosts that the installer may reach, beside its own
}

// agentNames are the agents that can be installed.
var agentNames = [...]string{"claude", "codex", "gemini", "opencode"}

var versionShape = regexp.MustCompile(`^[0-9][0-9A-Za-z.+-]*$`)

// A setting is one key: the object that it stands in, its name, and what it sets.
type setting struct {
	in, name string
	to       any // *string, *time.Duration or *[]string
	check    func(text string) (string, error)
}

// table returns the keys, with what each sets.
func (t *TaskSettings) table(s *scope) []setting {
	dir := func(text string) (string, error) {
		if !strings.HasPrefix(text, "~/") && !strings.HasPrefix(text, "/") {
			return "", fmt.Errorf("%q: want an absolute path, or one below ~", text)
		}
		return s.path(text, "")
	}
	host := func(text string) (string, error) { return text, checkNet("allow", text) }
	version := func(text string) (string, error) {
		if !versionShape.MatchString(text) {
			return "", fmt.Errorf("%q: want a version such as 2.1.332", text)
		}
		return text, nil
	}
	list := []setting{
		{"task", "dir", &t.Dir, dir},
		{"task", "agent", &t.Agent, nil},
		{"task", "timeout", &t.Timeout, nil},
		{"task", "copy", &t.Copy, nil},
		{"task", "prepare", &t.Prepare, nil},
		{"task", "prepare-allow", &t.PrepareAllow, host},
		{"task", "notify", &t.Notify, nil},
		{"branch", "prefix", &t.BranchPrefix, nil},
	}
	t.Agents = map[string]*AgentSettings{}
	for _, name := range agentNames {
		a, in := &AgentSettings{}, "agents."+name
		t.Agents[name] = a
		list = append(list, setting{in, "version", &a.Version, version}, setting{in, "install", &a.Install, nil}, setting{in, "install-allow", &a.Allow, host})
	}
	return list
}

// ReadSettings reads the user's settings, as his profiles are found: from a directory of his own outside of the workspace. What
// there is to say of that directory, [Resolve] says. The error names every mistake.
func ReadSettings(req Request) (s Settings, err error) {
	r := &resolver{req: &req, policy: &Policy{}}
	if err := r.findHome(); err != nil {
		return s, err
	}
	if err := r.findWorkspace(); err != nil {
		return s, err
	}
	if r.findConfig(); r.configDir == "" {
		return s, nil
	}
	file := r.configDir + "/" + SettingsFile
	text, err := ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return s, nil
	}
	origin := Origin{Source: file}
	if err != nil {
		return s, &Error{Origin: origin, Cause: cause(err)}
	}
	if where := real(file); within(r.workspace, where) {
		return s, &Error{Origin: origin, Cause: "it leads into the workspace, " + where, Hint: "put the file itself into " + r.configDir}
	}
	v, err := parseJSONC(file, string(text))
	if err != nil {
		return s, err
	}
	s.File = file
	d := &decoder{scope: &r.scope, source: file}
	readTable(d, v, s.Task.table(&r.scope))
	return s, d.err()
}

// readTable reads the objects of a table.
func readTable(d *decoder, v value, table []setting) {
	var read func(v value, at string)
	read = func(v value, at string) {
		var names []string
		if at == "" {
			names = append(names, "$schema")
		}
		for i := range table {
			if rest, below := strings.CutPrefix("."+table[i].in+"."+table[i].name, strings.TrimSuffix("."+at, ".")+"."); below {
				name, _, _ := strings.Cut(rest, ".")
				names = append(names, name)
			}
		}
		d.object(v, at, names, func(m member) {
			key := join(at, m.key)
			if i := slices.IndexFunc(table, func(s setting) bool { return s.in+"."+s.name == key }); i >= 0 {
				readSetting(d, &table[i], m.value, key)
			} else if key != "$schema" {
				read(m.value, key)
			}
		})
	}
	read(v, "")
}

// readSetting reads the value of one key.
func readSetting(d *decoder, to *setting, v value, key string) {
	checked := func(text string, o Origin) string {
		if err := error(nil); to.check != nil {
			if text, err = to.check(text); d.bad(o, err) {
				return ""
			}
		}
		return text
	}
	o := d.origin(v.line, key)
	if list, is := to.to.(*[]string); is {
		d.texts(v, key, func(text string, o Origin) { *list = append(*list, checked(text, o)) })
		return
	}
	if !d.is(v, key, kindString) {
		return
	}
	switch to := to.to.(type) {
	case *string:
		*to = checked(v.text, o)
	case *time.Duration:
		n, err := parseTimeout(v.text)
		if *to = time.Duration(n); err == nil && n < int64(time.Second) {
			err = fmt.Errorf("%q: want 1s or more", v.text)
		}
		d.bad(o, err)
	}
}
