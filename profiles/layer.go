package profiles

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// A layer is what one source says: a profile file, the flags, the environment, or somebody else's
// settings. Paths are expanded and entries have their origin. [builder.apply] merges layers.
type layer struct {
	source      string
	description string
	extends     string
	noExtends   bool // "extends": null
	extendsAt   Origin
	entries     []entry
	atMost      []FileRule // of other tools' settings: rules that open nothing
	warnings    []string
	unasked     bool // no flag names the file: see [builder.planted]
}

// An entry is one thing that a layer says of a key.
type entry struct {
	key    keyID
	op     op
	text   string     // the rule, or what it is about: a path, a pattern, a variable's name
	more   string     // a variable's value; a path's glob
	number int64      // an access, a limit, or 1 for a toggle that is on
	inject *Injection // of network.inject
	seed   *Seed      // of seeds
	origin Origin
}

// An op is what an entry does.
type op uint8

const (
	opAdd    op = iota
	opRemove    // -X in a list, or null for a member of an object
	opClear     // -* in a list, or null in its place
	opSource    // says where the value of an injected variable comes from
)

func (e *entry) file() FileRule {
	return FileRule{Path: e.text, Glob: e.more, Access: Access(e.number), Origin: e.origin}
}

func (e *entry) protect() ProtectRule {
	return ProtectRule{Pattern: e.text, Review: e.key == keyProtectReview, Home: e.key == keyProtectHome, Origin: e.origin}
}

// each returns the layer's entries for a key that add something.
func (l *layer) each(k keyID) func(func(*entry) bool) {
	return func(yield func(*entry) bool) {
		for i := range l.entries {
			if e := &l.entries[i]; e.key == k && e.op == opAdd && !yield(e) {
				return
			}
		}
	}
}

// A decoder turns what one source says into a layer. Whether an entry stands in a file, a flag or
// another tool's settings, it goes through [decoder.read] or one of its like.
type decoder struct {
	*scope
	mistakes
	source string
	layer  layer
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
	s.dot = s.workspace
	d := &decoder{scope: s, source: source, layer: layer{source: source, entries: make([]entry, 0, min(v.size(), maxEntries))}}
	d.keys(v, "")
	if !d.origin(0, "").builtin() {
		d.contradictions()
	}
	if err := d.err(); err != nil {
		return nil, err
	}
	return &d.layer, nil
}

// size is about how many entries a profile has.
func (v *value) size() int {
	n := len(v.items) + len(v.members)
	for i := range v.members {
		n += v.members[i].value.size()
	}
	return n
}

func (d *decoder) origin(line int, key string) Origin {
	return Origin{Source: d.source, Line: line, Key: key}
}

func (d *decoder) fail(line int, key, format string, args ...any) {
	d.at(d.origin(line, key), "", format, args...)
}

// bad notes that something was not understood.
func (d *decoder) bad(o Origin, err error) bool {
	if err != nil {
		d.at(o, hintOf(err), "%v", err)
	}
	return err != nil
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

// holds is [decoder.is] for a list or an object, of not too many entries.
func (d *decoder) holds(v value, key string, want kind) bool {
	n := len(v.items) + len(v.members)
	if n > maxEntries {
		d.at(d.origin(v.line, key), "", "%d entries: want at most %d", n, maxEntries)
	}
	return d.is(v, key, want) && n <= maxEntries
}

// object calls each for every member of v; known nil means that any key will do.
func (d *decoder) object(v value, key string, known []string, each func(member)) {
	if !d.holds(v, key, kindObject) {
		return
	}
	if again, first := duplicate(v.members); again != nil {
		d.fail(again.line, join(key, again.key), "duplicate, first in line %d", first.line)
		return
	}
	for _, m := range v.members {
		if known != nil && !slices.Contains(known, m.key) {
			d.unknown(m, key, known)
			continue
		}
		each(m)
	}
}

// unknown names a key that its object does not have.
func (d *decoder) unknown(m member, key string, known []string) {
	hint := ""
	if where := keyHome(m.key); where != "" {
		hint = "it belongs in " + where
	} else if near := Nearest(m.key, known); near != "" {
		hint = "did you mean " + near + "?"
	}
	d.at(d.origin(m.line, join(key, m.key)), hint, "unknown key")
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

// texts calls each for every string of a list.
func (d *decoder) texts(v value, key string, each func(text string, o Origin)) {
	if !d.holds(v, key, kindArray) {
		return
	}
	for _, item := range v.items {
		if d.is(item, key, kindString) {
			each(item.text, d.origin(item.line, key))
		}
	}
}

// keys reads the members of an object of the table: the profile itself, or a part of it.
func (d *decoder) keys(v value, in string) {
	d.object(v, in, nil, func(m member) {
		k := keyNamed(in, m.key)
		if k == keyNone {
			d.unknown(m, in, keysIn(in))
			return
		}
		d.key(k, m.value, d.origin(m.line, join(in, m.key)))
	})
}

// key reads what a profile file has for a key.
func (d *decoder) key(k keyID, v value, o Origin) {
	row := &keys[k]
	list := row.kind == holdsTexts || row.kind == holdsProtected || row.kind == holdsInjected
	if v.kind == kindNull && list {
		d.put(entry{key: k, op: opClear, origin: d.origin(v.line, o.Key)})
		return
	}
	switch row.kind {
	case holdsKeys:
		d.keys(v, o.Key)
	case holdsNote:
		if d.is(v, o.Key, kindString) && k == keyDescription {
			d.layer.description = v.text
		}
	case holdsBase:
		d.layer.extendsAt, d.layer.noExtends = o, v.kind == kindNull
		if !d.layer.noExtends && d.is(v, o.Key, kindString) {
			if v.text == "" {
				d.at(o, "", "empty: want a profile's name or path, or null")
			}
			d.layer.extends = v.text
		}
	case holdsFiles:
		d.object(v, o.Key, nil, func(m member) { d.fileMember(m, d.origin(m.line, join(o.Key, m.key))) })
	case holdsSeeds:
		d.object(v, o.Key, nil, d.seed)
	case holdsVariables:
		d.object(v, o.Key, nil, func(m member) { d.variable(m, d.origin(m.line, join(o.Key, m.key))) })
	case holdsTexts, holdsProtected:
		d.texts(v, o.Key, func(text string, o Origin) { d.item(k, text, o) })
	case holdsInjected:
		if d.holds(v, o.Key, kindArray) {
			for _, item := range v.items {
				d.injection(item, o.Key)
			}
		}
	case holdsLimit:
		switch v.kind {
		case kindNull:
			d.put(entry{key: k, origin: o})
		case kindString, kindNumber:
			d.read(k, opAdd, v.text, o)
		default:
			d.at(o, "", "%s: want a number or a string such as %q", kindNames[v.kind], row.want)
		}
	case holdsToggle:
		want := kindString
		if row.on == "true" {
			want = kindBool
		}
		if d.is(v, o.Key, want) {
			d.read(k, opAdd, v.text, o)
		}
	case holdsWord:
		if d.is(v, o.Key, kindString) {
			d.read(k, opAdd, v.text, o)
		}
	}
}

// item reads an item of a list: with a - before it, it removes what is inherited.
func (d *decoder) item(k keyID, text string, o Origin) {
	rest, minus := strings.CutPrefix(text, "-")
	switch {
	case strings.HasPrefix(text, "!"):
		d.at(o, "a - takes it out: "+quote("-"+text[1:]), "%q: nothing begins with !", text)
	case text == "-*":
		d.put(entry{key: k, op: opClear, origin: o})
	case minus:
		d.read(k, opRemove, rest, o)
	default:
		d.read(k, opAdd, text, o)
	}
}

// read adds the entry that one text stands for, wherever it was written.
func (d *decoder) read(k keyID, op op, text string, o Origin) {
	e := entry{key: k, op: op, text: text, origin: o}
	row := &keys[k]
	var err error
	switch row.kind {
	case holdsLimit:
		e.number, err = parseLimit(row, text, d.memory)
	case holdsToggle:
		switch text {
		case row.on:
			e.number = 1
		case row.off:
		default:
			err = fmt.Errorf("%s %q: want %s or %s", row.name, text, row.on, row.off)
		}
	default:
		e.text, err = row.check(d.scope, row, text)
	}
	if !d.bad(o, err) {
		d.put(e)
	}
}

func (d *decoder) put(e entry) { d.layer.entries = append(d.layer.entries, e) }

// file adds a rule for a path.
func (d *decoder) file(path string, op op, access Access, o Origin) {
	rule, err := d.fileRule(path, d.dot)
	if err == nil && access == Persist && op == opAdd && (rule.Glob != "" || rule.Path != d.home) {
		err = errors.New("persist is for ~ only")
	}
	if !d.bad(o, err) {
		d.put(entry{key: keyFilesystem, op: op, text: rule.Path, more: rule.Glob, number: int64(access), origin: o})
	}
}

// fileMember reads a member of filesystem.
func (d *decoder) fileMember(m member, o Origin) {
	switch m.value.kind {
	case kindNull:
		d.file(m.key, opRemove, 0, o)
	case kindString:
		if access, err := ParseAccess(m.value.text); !d.bad(o, err) {
			d.file(m.key, opAdd, access, o)
		}
	default:
		d.at(o, "", "%s: want one of %s", kindNames[m.value.kind], strings.Join(accessNames[:], ", "))
	}
}

// variable reads a member of environment.set.
func (d *decoder) variable(m member, o Origin) {
	switch {
	case !isEnvName(m.key):
		d.at(o, "", "%q: want the name of a variable", m.key)
	case m.value.kind == kindNull:
		d.put(entry{key: keySet, op: opRemove, text: m.key, origin: o})
	case !d.is(m.value, o.Key, kindString):
	case strings.IndexByte(m.value.text, 0) >= 0:
		d.at(o, "", "value with a NUL byte")
	default:
		d.put(entry{key: keySet, text: m.key, more: m.value.text, origin: o})
	}
}

// injectKeys are the keys of an item of network.inject.
var injectKeys = []string{"env", "hosts", "file", "command"}

// injection reads an item of network.inject.
func (d *decoder) injection(v value, key string) {
	in := &Injection{Origin: d.origin(v.line, key)}
	d.object(v, key, injectKeys, func(m member) {
		key := key + "." + m.key
		switch m.key {
		case "env":
			if d.is(m.value, key, kindString) {
				in.Env = m.value.text
			}
		case "hosts":
			d.texts(m.value, key, func(text string, o Origin) {
				d.bad(o, checkNet("inject", text))
				in.Hosts = append(in.Hosts, text)
			})
		case "file":
			if d.is(m.value, key, kindString) {
				path, err := d.path(m.value.text, d.dot)
				d.bad(d.origin(m.line, key), err)
				in.File = path
			}
		case "command":
			in.Command = []string{}
			d.texts(m.value, key, func(text string, _ Origin) { in.Command = append(in.Command, text) })
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
		d.put(entry{key: keyInject, inject: in, origin: in.Origin})
	}
}

// contradictions finds entries of one layer that cannot both hold: two for one path, a host that
// is allowed and denied, a pattern in two lists of protect, and -X in a list with X.
func (d *decoder) contradictions() {
	type about struct {
		rivals     keyID
		text, glob string
	}
	of := func(e *entry) about { return about{cmp.Or(keys[e.key].rivals, e.key), e.text, e.more} }
	seen := make(map[about]*entry, len(d.layer.entries))
	for i := range d.layer.entries {
		e := &d.layer.entries[i]
		if e.key != keyFilesystem && (e.op != opAdd || keys[e.key].check == nil) {
			continue
		}
		first, again := seen[of(e)]
		seen[of(e)] = e
		switch {
		case !again:
		case first.key == e.key:
			if first.number != e.number || first.op != e.op {
				d.at(e.origin, "", "contradicts %s, which names the same path", first.origin.place())
			}
		default:
			if first.key > e.key {
				first, e = e, first
			}
			said := "denied"
			if first.key == keyAllow {
				said = "allowed"
			}
			d.at(e.origin, "", "%q is %s too, by %s", e.text, said, first.origin.place())
		}
	}
	for i := range d.layer.entries {
		e := &d.layer.entries[i]
		if added := seen[of(e)]; e.op == opRemove && added != nil && added.op == opAdd && added.key == e.key {
			d.at(e.origin, "", "-%s: the same list adds it", e.text)
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
