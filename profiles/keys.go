package profiles

import (
	"path"
	"slices"
	"strings"
)

// A keyedEntry is what one source says of a file's keys: rules that are laid on
// those of the sources before, by pattern.
type keyedEntry struct {
	KeyedFile
	remove bool     // the file: it is one like any other
	less   []string // patterns
}

// keyedFile reads a member of protect.keys.
func (d *decoder) keyedFile(m member) {
	key := join("protect.keys", m.key)
	o := d.origin(m.line, key)
	file, err := d.path(m.key, d.workspace)
	if err != nil {
		d.at(o, hintOf(err), "%v", err)
		return
	}
	e := keyedEntry{KeyedFile: KeyedFile{Path: file, Origin: o}}
	if m.value.kind == kindNull {
		e.remove = true
		d.layer.keyed = append(d.layer.keyed, e)
		return
	}
	d.object(m.value, key, nil, func(m member) {
		key := join(key, m.key)
		if cause := checkKeys(m.key); cause != "" {
			d.fail(m.line, key, "%s", cause)
			return
		}
		if m.value.kind == kindNull {
			e.less = append(e.less, m.key)
			return
		}
		if !d.is(m.value, key, kindString) {
			return
		}
		fate := slices.Index(fates[:], m.value.text)
		if fate < 0 {
			d.fail(m.line, key, "%q: want keep, inside or drop", m.value.text)
			return
		}
		e.Keys = append(e.Keys, KeyRule{Pattern: m.key, Fate: Fate(fate)})
	})
	d.layer.keyed = append(d.layer.keyed, e)
}

// onto lays the entry on those that are there.
func (e *keyedEntry) onto(have []KeyedFile) []KeyedFile {
	i := slices.IndexFunc(have, func(h KeyedFile) bool { return h.Path == e.Path })
	switch {
	case e.remove && i < 0:
		return have
	case e.remove:
		return slices.Delete(slices.Clone(have), i, i+1)
	case i < 0:
		return append(have, KeyedFile{Path: e.Path, Keys: e.Keys, Origin: e.Origin})
	}
	have = slices.Clone(have)
	keys := slices.DeleteFunc(slices.Clone(have[i].Keys), func(r KeyRule) bool { return slices.Contains(e.less, r.Pattern) })
	have[i].Keys = unite(keys, e.Keys, func(r KeyRule) string { return r.Pattern })
	return have
}

// keyed leaves the files of which the command gets a copy: those that it may
// write, in a directory that is its own. Elsewhere the file itself would be there,
// and is protected as a whole.
func (b *builder) keyed() {
	p := b.policy
	p.Keyed = slices.DeleteFunc(slices.Clone(p.Keyed), func(k KeyedFile) bool {
		reviewed := slices.ContainsFunc(p.Protect, func(r ProtectRule) bool { return r.Pattern == k.Path && r.Review })
		if reviewed || p.Decide(k.Path).Access <= Read {
			return true
		}
		if denied, ok := p.Protected(k.Path); ok && !denied.Review {
			return true
		}
		if p.Decide(path.Dir(k.Path)).Access == Private && p.Decide(k.Path).Access == Write {
			return false
		}
		p.Protect = append(p.Protect, ProtectRule{Pattern: k.Path, Origin: k.Origin})
		return true
	})
}

// Copied returns what may change of the file at a path, if the command gets a copy
// of it.
func (p *Policy) Copied(path string) (KeyedFile, bool) {
	i := slices.IndexFunc(p.Keyed, func(k KeyedFile) bool { return k.Path == path })
	if i < 0 || slices.Contains(p.Without, LayerProtect) {
		return KeyedFile{}, false
	}
	return p.Keyed[i], true
}

// Fate returns what becomes of a change to the key that the names lead to from
// the top; known is false for one that no rule covers. The longest pattern
// decides, of two as long the one with fewer stars, and of these the safer.
func (k *KeyedFile) Fate(names []string) (fate Fate, known bool) {
	best := 0
	for _, r := range k.Keys {
		if n := r.covers(names); n > best || n > 0 && n == best && r.Fate > fate {
			fate, known, best = r.Fate, true, n
		}
	}
	return fate, known
}

// covers returns how well the rule's pattern fits the key, 0 for not at all.
func (r *KeyRule) covers(names []string) int {
	parts := strings.Split(r.Pattern, ".")
	if len(parts) > len(names) {
		return 0
	}
	for i, part := range parts {
		prefix, suffix, star := strings.Cut(part, "*")
		name := names[i]
		if !star && part != name || star && (len(name) < len(prefix)+len(suffix) || !strings.HasPrefix(name, prefix) || !strings.HasSuffix(name, suffix)) {
			return 0
		}
	}
	return len(parts)<<16 - strings.Count(r.Pattern, "*")
}
