package seatbelt

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/pccrun/pccrun/profiles"
)

// A Document is a profile: its text, and the values of the parameters that the
// text names.
type Document struct {
	Text   string
	Params []Param
}

// A Param is a parameter, which sandbox-exec takes as -D NAME=VALUE.
type Param struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// Profile returns the policy as a profile for a run as the survey describes it.
// It refuses an overlay ([profiles.Error]) and a pattern that no expression of
// Seatbelt's stands for.
func Profile(p *profiles.Policy, s Survey) (Document, error) {
	s.Home, s.Temp = s.Real(s.Home), s.Real(s.Temp)
	if !s.Asks && len(p.Network.Allow)+len(p.Network.Local) == 0 {
		s.Proxy = 0 // nothing is let out by name
	}
	real := *p
	real.Home, real.Workspace = s.Real(p.Home), s.Real(p.Workspace)
	t, err := newTree(&real, &s)
	if err != nil {
		return Document{}, err
	}
	w := &writer{tree: t, tag: s.Tag, names: map[string]string{}}
	w.param("HOME", real.Home)
	w.param("WORKSPACE", real.Workspace)
	w.param("PRIVATE_HOME", s.Home)
	w.param("PRIVATE_TMP", s.Temp)

	w.line("(version 1)")
	w.comment("What no rule here allows is denied.")
	if w.tag == "" {
		w.line("(deny default)")
	} else {
		w.line("(deny default " + w.message() + ")")
	}
	w.processes()
	w.lookups(s.Proxy > 0)
	w.network(p, &s)
	w.devices(&s)
	w.reading(&s)
	if err := w.writing(&real, &s); err != nil {
		return Document{}, err
	}
	w.fixed(&real, &s)
	if err := w.check(); err != nil {
		return Document{}, fmt.Errorf("profile: %w", err)
	}
	return Document{Text: w.String(), Params: w.params}, nil
}

// check refuses a path that the kernel would never compare with one, since what denies it would deny
// nothing, and a tag that could end its string.
func (w *writer) check() error {
	for _, p := range w.params {
		switch {
		case !path.IsAbs(p.Value) || path.Clean(p.Value) != p.Value:
			return fmt.Errorf("path %q: want an absolute one without . and .., and no / at its end", p.Value)
		case strings.ContainsFunc(p.Value, func(c rune) bool { return c < ' ' || c == 0x7f }):
			return fmt.Errorf("path %q: control character", p.Value)
		}
	}
	if strings.Trim(w.tag, tagSigns) != "" {
		return fmt.Errorf("tag %q: want letters, digits and -", w.tag)
	}
	return nil
}

const tagSigns = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-"

// A writer writes the text, and gives paths their parameters.
type writer struct {
	strings.Builder
	tree    *tree
	tag     string // of the survey
	params  []Param
	names   map[string]string // by path
	sockets []string          // those of the host that the policy names
}

func (w *writer) line(text string) { w.WriteString(text + "\n") }

// comment writes what is plain text, on lines of its own, and nothing that could
// end a line.
func (w *writer) comment(text string) { w.line("\n" + remark(text)) }

func remark(text string) string {
	return "; " + strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return '?'
		}
		return r
	}, text)
}

// rule writes a rule with its filters, each of which begins on a line of its own.
func (w *writer) rule(head string, filters ...string) {
	if len(filters) == 0 {
		return
	}
	if w.tag != "" && strings.HasPrefix(head, "deny ") {
		filters = append(slices.Clip(filters), w.message())
	}
	w.line(form(head, filters...))
}

// message is the part of a rule that marks what it denies in the system's log.
func (w *writer) message() string { return `(with message "` + w.tag + `")` }

// form puts a list into parentheses.
func form(head string, parts ...string) string {
	return "(" + head + "\n  " + strings.ReplaceAll(strings.Join(parts, "\n"), "\n", "\n  ") + ")"
}

func not(filter string) string { return "(require-not " + filter + ")" }

func regex(expression string) string { return `(regex #"` + expression + `")` }

// anyOf is one filter in place of several.
func anyOf(filters []string) string {
	if len(filters) == 1 {
		return filters[0]
	}
	return form("require-any", filters...)
}

func (w *writer) param(name, value string) {
	if _, ok := w.names[value]; !ok && value != "" {
		w.names[value] = name
		w.params = append(w.params, Param{name, value})
	}
}

// ref returns what stands for a path in the text: the system's own places stand
// for themselves, all else is a parameter.
func (w *writer) ref(path string) string {
	if path == "/" || path == "/private/tmp" || path == "/private/var/tmp" ||
		slices.ContainsFunc(systemPlaces[:], func(s systemPlace) bool { return s.path == path }) {
		return `"` + path + `"`
	}
	w.param("PATH_"+strconv.Itoa(len(w.params)), path)
	return `(param "` + w.names[path] + `")`
}

// at returns the filters for a path and what lies below it. That subpath covers a
// path that is a file is relied on by many, and doubted by one: so both stand there.
func (w *writer) at(path string) []string {
	ref := w.ref(path)
	if strings.HasPrefix(ref, `"`) {
		return []string{"(subpath " + ref + ")"}
	}
	return []string{"(literal " + ref + ")", "(subpath " + ref + ")"}
}

// processes allows what every program does with itself and its like.
func (w *writer) processes() {
	w.comment("Processes: its own, and nobody else's.")
	w.line("(allow process-fork)")
	w.rule("allow signal process-info*", "(target same-sandbox)")
	w.comment("Python's multiprocessing makes semaphores, PyTorch's OpenMP a note for its like; libnotify reads one.")
	w.line("(allow ipc-posix-sem)")
	w.rule("allow ipc-posix-shm-read-data", `(ipc-posix-name "apple.shm.notification_center")`)
	w.rule("allow ipc-posix-shm-read-data ipc-posix-shm-write-create ipc-posix-shm-write-data ipc-posix-shm-write-unlink",
		`(ipc-posix-name-regex #"^/?__KMP_REGISTERED_LIB_[0-9_]+$")`)
	w.comment("script, tmux and agents make terminals.")
	w.line("(allow pseudo-tty)")
}

// lookups allows the services of the system that programs cannot do without.
func (w *writer) lookups(proxy bool) {
	w.comment("Services of the system: each with who needs it. No keychain, no clipboard, nothing that starts programs.")
	list := func(head string, entries []need) {
		var filters []string
		for _, e := range entries {
			filters = append(filters, remark(e.why))
			filters = append(filters, e.filters...)
		}
		w.rule(head, filters...)
	}
	list("allow mach-lookup", services)
	if proxy {
		list("allow mach-lookup", trust)
	}
	list("allow sysctl-read", settings)
	list("allow sysctl-write", written)
	list("allow iokit-open", devicesOfIOKit)
}

// label says where a rule was written, without a path of the user's.
func label(o profiles.Origin) string {
	switch {
	case strings.HasPrefix(o.Source, "built-in "), o.Source == "default", o.Source == "flag", o.Source == "environment",
		o.Source == "macOS":
		return o.String()
	case o.Source == "this machine":
		return o.Source
	}
	return fmt.Sprintf("%s:%d", path.Base(o.Source), o.Line)
}
