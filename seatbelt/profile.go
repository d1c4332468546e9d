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
type Param struct{ Name, Value string }

// An OverlayError says that a policy asks for copy-on-write, which Seatbelt has not.
type OverlayError struct{ Rule profiles.FileRule }

func (e *OverlayError) Error() string {
	return fmt.Sprintf("filesystem %s: overlay: macOS has no copy-on-write for a sandbox", e.Rule.Text())
}

// Profile returns the policy as a profile for a run as the survey describes it.
// It refuses an overlay ([OverlayError]) and a pattern that no expression of
// Seatbelt's stands for.
func Profile(p *profiles.Policy, s Survey) (Document, error) {
	s.Home, s.Temp = s.own()
	real := *p
	real.Home, real.Workspace = s.Real(p.Home), s.Real(p.Workspace)
	t, err := newTree(&real, &s)
	if err != nil {
		return Document{}, err
	}
	w := &writer{tree: t, names: map[string]string{}, counts: map[string]int{}}
	w.param("HOME", real.Home)
	w.param("WORKSPACE", real.Workspace)
	w.param("PRIVATE_HOME", s.Home)
	w.param("PRIVATE_TMP", s.Temp)

	w.line("(version 1)")
	w.comment("What no rule here allows is denied.")
	w.line("(deny default)")
	w.processes()
	w.lookups(hasProxy(p))
	w.network(p, &s)
	w.devices(&s)
	w.reading(&s)
	w.writing()
	if err := w.protected(&real, &s); err != nil {
		return Document{}, err
	}
	w.fixed(&real, &s)
	return Document{Text: w.String(), Params: w.params}, nil
}

// hasProxy reports whether the policy lets anything out by name.
func hasProxy(p *profiles.Policy) bool { return len(p.Network.Allow)+len(p.Network.Local) > 0 }

// A writer writes the text, and gives paths their parameters.
type writer struct {
	strings.Builder
	tree   *tree
	params []Param
	names  map[string]string // by path
	counts map[string]int    // by role
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
	if len(filters) > 0 {
		w.line(form(head, filters...))
	}
}

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
func (w *writer) ref(path, role string) string {
	if _, ok := w.names[path]; !ok {
		if path == "/" || path == "/private/tmp" || path == "/private/var/tmp" ||
			slices.ContainsFunc(systemPlaces[:], func(s systemPlace) bool { return s.path == path }) {
			return `"` + path + `"`
		}
		w.counts[role]++
		w.param(role+"_"+strconv.Itoa(w.counts[role]), path)
	}
	return `(param "` + w.names[path] + `")`
}

// at returns the filters for a path and what lies below it. That subpath covers a
// path that is a file is relied on by many, and doubted by one: so both stand there.
func (w *writer) at(path, role string) []string {
	ref := w.ref(path, role)
	if slices.Contains(w.tree.known, path) || strings.HasPrefix(ref, `"`) {
		return []string{"(subpath " + ref + ")"}
	}
	return []string{"(literal " + ref + ")", "(subpath " + ref + ")"}
}

// roles name the parameters of places.
func role(a profiles.Access) string {
	switch {
	case writable(a):
		return "WRITE"
	case readable(a):
		return "READ"
	}
	return "HIDE"
}

// processes allows what every program does with itself and its like.
func (w *writer) processes() {
	w.comment("Processes: its own, and nobody else's.")
	w.line("(allow process-fork)")
	w.rule("allow signal process-info*", "(target same-sandbox)")
	w.comment("Semaphores of POSIX: Python's multiprocessing makes some. Terminals that the command makes, as script and tmux do.")
	w.line("(allow ipc-posix-sem)")
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

// network allows the proxy, and what the policy names.
func (w *writer) network(p *profiles.Policy, s *Survey) {
	var out []string
	if hasProxy(p) {
		for _, port := range s.Proxy {
			out = append(out, port16("remote", port))
		}
	}
	if len(out) > 0 {
		w.comment("The network: the proxy, which decides by name, and ports of the loopback that the policy names.")
		out = append([]string{remark("the proxy of this run")}, out...)
	}
	for _, r := range p.Network.Local {
		if digits, ok := strings.CutPrefix(r.Text, "localhost:"); ok {
			if port, err := strconv.ParseUint(digits, 10, 16); err == nil {
				out = append(out, remark("network.local, "+label(r.Origin)), port16("remote", uint16(port)))
			}
		}
	}
	w.rule("allow network-outbound", out...)
	var in []string
	for _, r := range p.Network.Publish {
		if port, err := strconv.ParseUint(r.Text, 10, 16); err == nil {
			in = append(in, remark("network.publish, "+label(r.Origin)), port16("local", uint16(port)))
		}
	}
	if len(in) > 0 {
		w.comment("Ports on which the command may listen.")
	}
	w.rule("allow network-bind network-inbound", in...)

	w.comment("Unix sockets: in the command's own directories, and those that the policy names.")
	w.rule("allow system-socket", "(socket-domain AF_UNIX)")
	var own, named []string
	for _, dir := range []string{s.Home, s.Temp} {
		if dir != "" {
			own = append(own, "(subpath "+w.ref(dir, "PRIVATE")+")")
		}
	}
	for _, sock := range p.Network.Sockets {
		named = append(named, remark("network.sockets, "+label(sock.Origin)), "(remote unix-socket (path-literal "+w.ref(s.Real(sock.Path), "SOCKET")+"))")
	}
	unix := func(side string) (filters []string) {
		for _, dir := range own {
			filters = append(filters, "("+side+" unix-socket "+dir+")")
		}
		return filters
	}
	w.rule("allow network-bind network-inbound", unix("local")...)
	w.rule("allow network-outbound", append(unix("remote"), named...)...)
}

func port16(side string, port uint16) string {
	return fmt.Sprintf(`(%s ip "localhost:%d")`, side, port)
}

// devices allows the few files of /dev that programs need.
func (w *writer) devices(s *Survey) {
	w.comment("Devices: none is the host's terminal.")
	list := []string{`(literal "/dev/null")`, `(literal "/dev/zero")`, `(literal "/dev/random")`, `(literal "/dev/urandom")`,
		remark("the command's own terminal, and those that it makes"), `(literal "/dev/tty")`, `(literal "/dev/ptmx")`}
	if s.Terminal != "" {
		list = append(list, "(literal "+w.ref(s.Terminal, "TERMINAL")+")")
	}
	list = append(list, form("require-all", regex("^/dev/ttys[0-9]+$"), `(extension "com.apple.sandbox.pty")`))
	w.rule("allow file-read* file-write-data file-ioctl", list...)
	w.rule("allow file-read* file-write-data", remark("descriptors that are open, by name"), `(subpath "/dev/fd")`)
	w.rule("allow file-read-metadata", `(literal "/dev")`, `(literal "/dev/stdin")`, `(literal "/dev/stdout")`, `(literal "/dev/stderr")`)
}

// reading allows what the policy shows, and the way there.
func (w *writer) reading(s *Survey) {
	w.comment("Files that are read, and executed.")
	regions := w.tree.regions(readable)
	w.rule("allow file-read* file-test-existence file-map-executable file-clone process-exec*", w.filters(regions, readable, s)...)

	var way []string
	add := func(dir string) {
		if at := w.tree.at(dir); !at.gives(readable) && !slices.Contains(way, dir) {
			way = append(way, dir)
		}
	}
	for _, r := range regions {
		for dir := path.Dir(r.path); dir != "/" && r.path != "/"; dir = path.Dir(dir) {
			add(dir)
		}
	}
	for _, sock := range w.params {
		if strings.HasPrefix(sock.Name, "SOCKET_") {
			for dir := path.Dir(sock.Value); dir != "/"; dir = path.Dir(dir) {
				add(dir)
			}
		}
	}
	for _, l := range s.Links {
		if at := w.tree.at(l.From); !at.gives(readable) {
			way = append(way, l.From)
		}
	}
	slices.Sort(way)
	var filters []string
	for _, dir := range way {
		filters = append(filters, "(literal "+w.ref(dir, "WAY")+")")
	}
	if len(filters) > 0 {
		w.comment("Directories on the way to what is shown: that they are there, and not what they hold.")
	}
	w.rule("allow file-read-metadata file-test-existence", filters...)
}

// writing allows what the policy lets be changed. A link is a second name by
// which a file can be changed.
func (w *writer) writing() {
	w.comment("Files that are changed.")
	w.rule("allow file-write* file-link", w.filters(w.tree.regions(writable), writable, &Survey{})...)
}

// filters returns a filter for each region.
func (w *writer) filters(regions []*region, right class, s *Survey) (list []string) {
	for _, r := range regions {
		list = append(list, remark(r.decision.Access.String()+", "+label(r.decision.Rule.Origin)))
		here, turning := w.at(r.path, role(r.decision.Access)), r.turning(right)
		if len(r.holes) == 0 && len(turning) == 0 {
			list = append(list, here...)
			continue
		}
		parts := []string{anyOf(here)}
		for _, hole := range r.holes {
			for _, filter := range w.at(hole.path, role(hole.decision.Access)) {
				parts = append(parts, not(filter))
			}
		}
		var opening []string
		for _, p := range turning {
			if r.gives(right) {
				parts = append(parts, remark(p.rule.Access.String()+", "+label(p.rule.Origin)), w.except(r.place, p, s))
			} else {
				opening = append(opening, remark(p.rule.Access.String()+", "+label(p.rule.Origin)), regex(below(r.path, whole(p.expression()))))
			}
		}
		if len(opening) > 0 {
			parts = append(parts, form("require-any", opening...))
			for _, p := range r.patterns { // of two patterns the stricter holds
				if !right(p.rule.Access) {
					parts = append(parts, remark(p.rule.Access.String()+", "+label(p.rule.Origin)), w.except(r.place, p, s))
				}
			}
		}
		list = append(list, form("require-all", parts...))
	}
	return list
}

// except returns a filter for what a pattern does not match, or leaves alone.
func (w *writer) except(at *place, p pattern, s *Survey) string {
	filters := []string{not(regex(below(at.path, whole(p.expression()))))}
	if template := p.template(); template != "" && p.rule.Access == profiles.Hide {
		filter := regex(below(at.path, whole(template)))
		if twice := p.twice(); twice != "" {
			filter = form("require-all", filter, not(regex(below(at.path, whole(twice)))))
		}
		filters = append(filters, filter)
	}
	for _, file := range s.Unhidden {
		if file = s.Real(file); within(at.path, file) {
			filters = append(filters, "(literal "+w.ref(file, "UNHIDDEN")+")")
		}
	}
	return anyOf(filters)
}

// label says where a rule was written, without a path of the user's.
func label(o profiles.Origin) string {
	switch {
	case strings.HasPrefix(o.Source, "built-in "), o.Source == "default", o.Source == "flag", o.Source == "environment", o.Source == "macOS":
		return o.String()
	case o.Source == "this machine":
		return o.Source
	}
	return fmt.Sprintf("%s:%d", path.Base(o.Source), o.Line)
}
