package profiles

import (
	"fmt"
	"slices"
	"strings"
)

// A layer is what one source says: a profile file, the flags, the environment,
// or somebody else's settings. Paths are expanded, rules have their origin,
// and nothing is merged yet. Layers are laid on each other by [builder.apply].
type layer struct {
	source      string
	description string
	extends     string
	noExtends   bool // "extends": null
	extendsAt   Origin

	files    []fileEntry
	tighten  []FileRule // rules that an import may only tighten with
	protect  []ProtectRule
	seeds    []seedEntry
	allow    []NetRule
	deny     []NetRule
	local    []NetRule
	publish  []NetRule
	sockets  []PathRule
	inject   []Injection
	use      []UseRule
	sources  []Injection // of flags: where values of inject, or of what lies below, come from
	pass     []EnvRule
	scrub    []EnvRule // names that an import takes off the pass list
	set      []setEntry
	limits   [len(limits)]limitEntry
	syscalls *PathRule // "default" or a path
	nested   *boolEntry
	strict   *boolEntry
	report   *boolEntry // of attempts
	forbid   *boolEntry // protect.strict
	clear    []Origin   // lists set to null, by key
	minus    *layer     // what entries with a - before them take out of lists; nil for nothing
	warnings []string
	unasked  bool // read because it is there: see [builder.planted]
}

type fileEntry struct {
	FileRule
	remove bool
}

type setEntry struct {
	name string
	EnvSet
	remove bool
}

type limitEntry struct {
	Limit
	given bool // with Value 0: no limit
}

type boolEntry struct {
	value  bool
	origin Origin
}

// Keys that a profile file may have, for hints; the schema is held against them.
var (
	topKeys         = []string{"$schema", "description", "extends", "filesystem", "seeds", "protect", "network", "environment", "resources", "use", "syscalls", "nested", "strict", "report"}
	protectKeys     = []string{"deny", "home", "review", "strict"}
	networkKeys     = []string{"allow", "deny", "local", "publish", "sockets", "inject"}
	injectKeys      = []string{"env", "hosts", "file", "command"}
	environmentKeys = []string{"pass", "set"}
	resourceKeys    = []string{"memory", "cpus", "pids", "files", "filesize", "disk", "timeout"}
)

// A decoder turns the values of one file into a layer.
type decoder struct {
	*scope
	mistakes
	source    string
	layer     layer
	minus     layer // becomes that of layer, if it
	subtracts bool
}

// decodeProfile reads a profile file's text. All mistakes are returned.
func decodeProfile(s *scope, source, text string) (*layer, error) {
	v, err := parseJSONC(source, text)
	if err != nil {
		return nil, err
	}
	return decode(s, source, v)
}

// decode turns the value that a profile file holds into a layer.
func decode(s *scope, source string, v value) (*layer, error) {
	d := &decoder{scope: s, source: source, layer: layer{source: source}}
	d.object(v, "", topKeys, func(m member) { d.top(m) })
	if !d.origin(0, "").builtin() {
		d.contradictions()
	}
	if err := d.err(); err != nil {
		return nil, err
	}
	if d.subtracts {
		d.layer.minus = &d.minus
	}
	return &d.layer, nil
}

func (d *decoder) origin(line int, key string) Origin {
	return Origin{Source: d.source, Line: line, Key: key}
}

func (d *decoder) fail(line int, key, format string, args ...any) {
	d.at(d.origin(line, key), "", format, args...)
}

// is reports whether v has the kind, and names the mistake if not.
func (d *decoder) is(v value, key string, want kind) bool {
	if v.kind != want {
		hint := ""
		switch {
		case v.kind == kindNumber && want == kindString:
			hint = "write " + quote(v.text)
		case v.kind == kindString && want == kindArray:
			hint = "write [" + quote(v.text) + "]"
		}
		d.at(d.origin(v.line, key), hint, "%s: want %s", kindNames[v.kind], kindNames[want])
	}
	return v.kind == want
}

// maxEntries bounds a list and an object: a repository may bring a file of its
// own, and must not make each launch in it slow.
const maxEntries = 4096

func (d *decoder) few(v value, key string, n int) bool {
	if n > maxEntries {
		d.fail(v.line, key, "%d entries: want at most %d", n, maxEntries)
	}
	return n <= maxEntries
}

// object calls each for every member of v; known nil means that any key will do.
func (d *decoder) object(v value, key string, known []string, each func(member)) {
	if !d.is(v, key, kindObject) || !d.few(v, key, len(v.members)) {
		return
	}
	if again, first := duplicate(v.members); again != nil {
		d.fail(again.line, join(key, again.key), "duplicate, first in line %d", first.line)
		return
	}
	for _, m := range v.members {
		if known != nil && !slices.Contains(known, m.key) {
			hint := ""
			if where := keyHome(m.key); where != "" {
				hint = "it belongs in " + where
			} else if near := Nearest(m.key, known); near != "" {
				hint = "did you mean " + near + "?"
			}
			d.at(d.origin(m.line, join(key, m.key)), hint, "unknown key")
			continue
		}
		each(m)
	}
}

// keyHome says which object has a key that another one does not know, "" if none
// has it.
func keyHome(key string) string {
	for _, o := range [...]struct {
		name string
		keys []string
	}{{"protect", protectKeys}, {"network", networkKeys}, {"environment", environmentKeys}, {"resources", resourceKeys}} {
		if slices.Contains(o.keys, key) {
			return o.name
		}
	}
	if slices.Contains(topKeys, key) {
		return "the profile itself, not in a part of it"
	}
	return ""
}

// join appends a key to the path of keys that leads to it.
func join(path, key string) string {
	plain := key != "" && strings.Trim(key, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_$-") == ""
	if !plain {
		key = quote(key)
	}
	if path == "" {
		return key
	}
	return path + "." + key
}

// list calls each for every string of v. A list set to null is noted as removed.
func (d *decoder) list(v value, key string, each func(text string, o Origin)) {
	if v.kind == kindNull {
		d.layer.clear = append(d.layer.clear, d.origin(v.line, key))
		return
	}
	if !d.is(v, key, kindArray) || !d.few(v, key, len(v.items)) {
		return
	}
	for _, item := range v.items {
		if d.is(item, key, kindString) {
			each(item.text, d.origin(item.line, key))
		}
	}
}

// rules is list for one whose entries can be taken out again: with a - before it one is
// added to what the layer subtracts, and -* takes out all that is inherited.
func (d *decoder) rules(v value, key string, each func(text string, o Origin)) {
	d.list(v, key, func(text string, o Origin) {
		rest, minus := strings.CutPrefix(text, "-")
		switch {
		case strings.HasPrefix(text, "!"):
			d.at(o, "a - takes it out: "+quote("-"+text[1:]), "%q: nothing begins with !", text)
		case text == "-*":
			d.layer.clear = append(d.layer.clear, o)
		case minus:
			d.subtracts = true
			d.layer, d.minus = d.minus, d.layer
			each(rest, o)
			d.layer, d.minus = d.minus, d.layer
		default:
			each(text, o)
		}
	})
}

func (d *decoder) top(m member) {
	v, o := m.value, d.origin(m.line, m.key)
	switch m.key {
	case "$schema", "description":
		if d.is(v, m.key, kindString) && m.key == "description" {
			d.layer.description = v.text
		}
	case "extends":
		d.layer.extendsAt = o
		if v.kind == kindNull {
			d.layer.noExtends = true
		} else if d.is(v, m.key, kindString) {
			if v.text == "" {
				d.fail(m.line, m.key, "empty: want a profile's name or path, or null")
			}
			d.layer.extends = v.text
		}
	case "filesystem":
		d.object(v, m.key, nil, d.file)
	case "seeds":
		d.object(v, m.key, nil, d.seed)
	case "protect":
		d.object(v, m.key, append(protectKeys[:len(protectKeys):len(protectKeys)], "keys"), func(m member) {
			key := "protect." + m.key
			if m.key == "keys" {
				d.at(d.origin(m.line, key), `"seeds": {"~/FILE": {"mode": "follow"}} says which part of a file is copied into an agent's home`, "the old key is not supported any more")
				return
			}
			if m.key == "strict" {
				d.boolean(m.value, d.origin(m.line, key), &d.layer.forbid)
				return
			}
			d.layer.protect = slices.Grow(d.layer.protect, len(m.value.items))
			d.rules(m.value, key, func(text string, o Origin) { d.protect(text, m.key, o) })
		})
	case "network":
		d.object(v, m.key, networkKeys, d.network)
	case "environment":
		d.object(v, m.key, environmentKeys, d.environment)
	case "resources":
		d.object(v, m.key, resourceKeys, d.resource)
	case "use":
		d.rules(v, m.key, d.useName)
	case "syscalls":
		if d.is(v, m.key, kindString) {
			path, err := d.syscallsPath(v.text, d.base)
			d.bad(o, err)
			d.layer.syscalls = &PathRule{Path: path, Origin: o}
		}
	case "report":
		if d.is(v, m.key, kindString) {
			d.report(v.text, o)
		}
	case "nested":
		d.boolean(v, o, &d.layer.nested)
	case "strict":
		d.boolean(v, o, &d.layer.strict)
	}
}

func (d *decoder) boolean(v value, o Origin, into **boolEntry) {
	if d.is(v, o.Key, kindBool) {
		*into = &boolEntry{v.text == "true", o}
	}
}

func (d *decoder) file(m member) {
	key := join("filesystem", m.key)
	o := d.origin(m.line, key)
	rule, err := d.fileRule(m.key, d.workspace)
	if d.bad(o, err) {
		return
	}
	rule.Origin = o
	if m.value.kind == kindNull {
		d.layer.files = append(d.layer.files, fileEntry{FileRule: rule, remove: true})
		return
	}
	if m.value.kind != kindString {
		d.fail(m.line, key, "%s: want one of %s", kindNames[m.value.kind], strings.Join(accessNames[:], ", "))
		return
	}
	if rule.Access, err = ParseAccess(m.value.text); d.bad(o, err) {
		return
	}
	if rule.Access == Persist && !d.isHome(rule) {
		d.at(o, "", "persist is for ~ only")
		return
	}
	d.layer.files = append(d.layer.files, fileEntry{FileRule: rule})
}

// isHome reports whether a rule is that of ~.
func (s *scope) isHome(r FileRule) bool { return r.Glob == "" && r.Path == s.home }

func (d *decoder) network(m member) {
	key := "network." + m.key
	l := &d.layer
	switch m.key {
	case "sockets":
		d.rules(m.value, key, func(text string, o Origin) { d.socket(text, d.workspace, o) })
	case "inject":
		if m.value.kind == kindNull {
			l.clear = append(l.clear, d.origin(m.line, key))
			return
		}
		if d.is(m.value, key, kindArray) && d.few(m.value, key, len(m.value.items)) {
			for _, item := range m.value.items {
				d.injection(item, key)
			}
		}
	default:
		d.rules(m.value, key, func(text string, o Origin) { d.net(m.key, text, o) })
	}
}

// What follows reads one entry, whether a file has it or a flag.

// bad notes that something was not understood.
func (d *decoder) bad(o Origin, err error) bool {
	if err != nil {
		d.at(o, hintOf(err), "%v", err)
	}
	return err != nil
}

func (d *decoder) net(key, text string, o Origin) {
	if into := d.layer.nets(key); !d.bad(o, checkNet(key, text)) {
		*into = append(*into, NetRule{Text: text, Origin: o})
	}
}

func (d *decoder) socket(text, base string, o Origin) {
	if path, err := d.path(text, base); !d.bad(o, err) {
		d.layer.sockets = append(d.layer.sockets, PathRule{Path: path, Origin: o})
	}
}

func (d *decoder) protect(text, list string, o Origin) {
	if pattern, err := d.protectPattern(text); !d.bad(o, err) {
		d.layer.protect = append(d.layer.protect, ProtectRule{Pattern: pattern, Review: list == "review", Home: list == "home", Origin: o})
	}
}

func (d *decoder) limit(i int, text string, o Origin) {
	if n, err := parseLimit(i, text, d.memory); !d.bad(o, err) {
		d.layer.limits[i] = limitEntry{Limit: Limit{Value: n, Origin: o}, given: true}
	}
}

func (d *decoder) report(text string, o Origin) {
	attempts, err := parseReport(text)
	d.bad(o, err)
	d.layer.report = &boolEntry{attempts, o}
}

// nets returns the list of network rules of that key.
func (l *layer) nets(key string) *[]NetRule {
	switch key {
	case "allow":
		return &l.allow
	case "deny":
		return &l.deny
	case "local":
		return &l.local
	}
	return &l.publish
}

func (d *decoder) injection(v value, key string) {
	in := Injection{Origin: d.origin(v.line, key)}
	d.object(v, key, injectKeys, func(m member) {
		switch m.key {
		case "env":
			if d.is(m.value, key+".env", kindString) {
				in.Env = m.value.text
			}
		case "hosts":
			d.list(m.value, key+".hosts", func(text string, o Origin) {
				d.bad(o, checkNet("inject", text))
				in.Hosts = append(in.Hosts, text)
			})
		case "file":
			if d.is(m.value, key+".file", kindString) {
				path, err := d.path(m.value.text, d.workspace)
				d.bad(d.origin(m.line, key+".file"), err)
				in.File = path
			}
		case "command":
			in.Command = []string{}
			d.list(m.value, key+".command", func(text string, _ Origin) { in.Command = append(in.Command, text) })
		}
	})
	switch {
	case v.kind != kindObject:
	case !isEnvName(in.Env):
		d.fail(v.line, key+".env", "%q: want the name of a variable", in.Env)
	case len(in.Hosts) == 0:
		d.fail(v.line, key+".hosts", "want at least one host")
	case in.Command != nil && (len(in.Command) == 0 || in.Command[0] == ""):
		d.fail(v.line, key+".command", "want a program and its arguments")
	case in.File != "" && in.Command != nil:
		d.fail(v.line, key, "%s: want a file or a command, not both", in.Env)
	default:
		d.layer.inject = append(d.layer.inject, in)
	}
}

func (d *decoder) environment(m member) {
	if m.key == "pass" {
		d.rules(m.value, "environment.pass", func(text string, o Origin) {
			if !isEnvName(strings.TrimSuffix(text, "*")) && text != "*" {
				hint := ""
				if name, value, sets := strings.Cut(text, "="); sets && isEnvName(name) {
					hint = `environment.set gives a value: "set": {` + quote(name) + ": " + quote(value) + "}"
				}
				d.at(o, hint, "%q: want a variable's name, or a prefix and *", text)
				return
			}
			d.layer.pass = append(d.layer.pass, EnvRule{Pattern: text, Origin: o})
		})
		return
	}
	d.object(m.value, "environment.set", nil, func(m member) {
		key := join("environment.set", m.key)
		o := d.origin(m.line, key)
		switch {
		case !isEnvName(m.key):
			d.at(o, "", "%q: want the name of a variable", m.key)
		case m.value.kind == kindNull:
			d.layer.set = append(d.layer.set, setEntry{name: m.key, EnvSet: EnvSet{Origin: o}, remove: true})
		case !d.is(m.value, key, kindString):
		case strings.IndexByte(m.value.text, 0) >= 0:
			d.at(o, "", "value with a NUL byte")
		default:
			d.layer.set = append(d.layer.set, setEntry{name: m.key, EnvSet: EnvSet{Value: m.value.text, Origin: o}})
		}
	})
}

func (d *decoder) resource(m member) {
	i := slices.Index(resourceKeys, m.key)
	key := "resources." + m.key
	o := d.origin(m.line, key)
	switch m.value.kind {
	case kindNull:
		d.layer.limits[i] = limitEntry{Limit: Limit{Origin: o}, given: true}
	case kindString, kindNumber:
		d.limit(i, m.value.text, o)
	default:
		d.fail(m.line, key, "%s: want a number or a string such as %q", kindNames[m.value.kind], limits[i].want)
	}
}

// contradictions finds rules of one layer that cannot both hold.
func (d *decoder) contradictions() {
	l := &d.layer
	files := make(map[string]int, len(l.files))
	for i, f := range l.files {
		if j, ok := files[f.key()]; ok && (l.files[j].Access != f.Access || l.files[j].remove != f.remove) {
			d.at(f.Origin, "", "contradicts %s, which names the same path", l.files[j].Origin.place())
		}
		files[f.key()] = i
	}
	for _, a := range l.allow {
		for _, b := range l.deny {
			if a.Text == b.Text {
				d.at(b.Origin, "", "%q is allowed too, by %s", b.Text, a.Origin.place())
			}
		}
	}
	for _, a := range l.protect {
		for _, b := range l.protect {
			if a.Pattern == b.Pattern && a.List() > b.List() {
				d.at(a.Origin, "", "%q is denied too, by %s", a.Pattern, b.Origin.place())
			}
		}
	}
}

// place names an origin in a sentence about another one.
func (o Origin) place() string {
	if o.Line > 0 {
		return "line " + itoa(o.Line)
	}
	return o.Key
}

// key identifies the path that a rule is about: rules of one key replace each other.
func (r *FileRule) key() string {
	if r.Glob == "" {
		return r.Path
	}
	return r.Path + "\x00" + r.Glob
}

// isEnvName reports whether a name is one that shells and programs can use.
func isEnvName(name string) bool {
	for i := range len(name) {
		c := name[i]
		if !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || c == '_' || i > 0 && '0' <= c && c <= '9') {
			return false
		}
	}
	return name != ""
}

// parseReport reads what the report at exit is about: "attempts" or "none".
func parseReport(word string) (attempts bool, err error) {
	switch word {
	case "attempts", "none":
		return word == "attempts", nil
	}
	return false, fmt.Errorf("report %q: want attempts or none", word)
}
