package workspace

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// A node is a JSON value (RFC 8259) that is read to be changed in some keys and
// written with all else as it was: numbers and strings keep their spelling,
// objects their order. It is stricter than the programs that read such files where
// two of them could read different things, or one could mean something else by it:
// a key that stands twice or is `__proto__`, a byte order mark, invalid UTF-8 and
// anything behind the value are errors.
type node struct {
	kind    nodeKind
	text    string         // of a word, number or string, as it stood
	meaning string         // of a string
	items   []*node        // of a list
	members []member       // of an object, in their order; one without a value was removed
	index   map[string]int // of them, by name
}

type nodeKind uint8

const (
	isWord nodeKind = iota // true, false, null
	isNumber
	isString
	isList
	isObject
)

type member struct {
	name  string // what the key means
	key   string // as it stood, with its quotes
	value *node
}

func newObject() *node { return &node{kind: isObject, index: map[string]int{}} }

// maxDeep bounds how deep values lie in each other.
const maxDeep = 64

// maxValues bounds how many there are: a number of two bytes takes a hundred in
// memory, and another hundred where it is written behind the spaces of its depth.
const maxValues = 1 << 17

// errJSON says that a text is not strict JSON.
var errJSON = errors.New("not JSON as it must be to be sorted by keys")

// parseTree reads a text whose top is an object.
func parseTree(b []byte) (*node, error) {
	if !utf8.Valid(b) {
		return nil, errJSON
	}
	p := treeParser{text: string(b)}
	n, ok := p.value(0)
	if p.values > maxValues {
		return nil, fmt.Errorf("more than %d values: %w", maxValues, ErrTooMuch)
	}
	if p.space(); !ok || n.kind != isObject || p.at != len(p.text) {
		return nil, errJSON
	}
	return n, nil
}

type treeParser struct {
	text   string
	at     int
	values int // that have begun
}

func (p *treeParser) space() {
	for p.at < len(p.text) && strings.IndexByte(" \t\r\n", p.text[p.at]) >= 0 {
		p.at++
	}
}

// take steps over a byte, if it stands there.
func (p *treeParser) take(c byte) bool {
	p.space()
	if p.at < len(p.text) && p.text[p.at] == c {
		p.at++
		return true
	}
	return false
}

func (p *treeParser) value(deep int) (n *node, ok bool) {
	p.values++
	if p.space(); deep > maxDeep || p.values > maxValues || p.at == len(p.text) {
		return nil, false
	}
	from := p.at
	n = new(node)
	switch c := p.text[p.at]; {
	case c == '{':
		return p.object(deep)
	case c == '[':
		return p.list(deep)
	case c == '"':
		n.kind = isString
		n.meaning, ok = p.str()
	case c == '-' || '0' <= c && c <= '9':
		n.kind = isNumber
		ok = p.number()
	default:
		for _, word := range [...]string{"true", "false", "null"} {
			if strings.HasPrefix(p.text[p.at:], word) {
				p.at += len(word)
				ok = true
				break // truefalse is no word: the host's file would be no JSON any more
			}
		}
	}
	n.text = p.text[from:p.at]
	return n, ok
}

func (p *treeParser) object(deep int) (*node, bool) {
	n := newObject()
	p.at++
	if p.take('}') {
		return n, true
	}
	for {
		p.space()
		from := p.at
		name, ok := p.str()
		if _, twice := n.index[name]; !ok || twice || name == "__proto__" {
			return nil, false
		}
		key := p.text[from:p.at]
		if !p.take(':') {
			return nil, false
		}
		v, ok := p.value(deep + 1)
		if !ok {
			return nil, false
		}
		n.add(name, key, v)
		if p.take('}') {
			return n, true
		}
		if !p.take(',') {
			return nil, false
		}
	}
}

func (p *treeParser) list(deep int) (*node, bool) {
	n := &node{kind: isList}
	p.at++
	if p.take(']') {
		return n, true
	}
	for {
		v, ok := p.value(deep + 1)
		if !ok {
			return nil, false
		}
		n.items = append(n.items, v)
		if p.take(']') {
			return n, true
		}
		if !p.take(',') {
			return nil, false
		}
	}
}

// str reads a string. Half of a surrogate pair means U+FFFD, as it would once it
// was written.
func (p *treeParser) str() (string, bool) {
	if p.at == len(p.text) || p.text[p.at] != '"' {
		return "", false
	}
	p.at++
	var b strings.Builder
	for p.at < len(p.text) {
		c := p.text[p.at]
		p.at++
		switch {
		case c == '"':
			return b.String(), true
		case c < ' ':
			return "", false
		case c != '\\':
			b.WriteByte(c)
		default:
			r, ok := p.escape()
			if !ok {
				return "", false
			}
			b.WriteRune(r)
		}
	}
	return "", false
}

func (p *treeParser) escape() (rune, bool) {
	if p.at == len(p.text) {
		return 0, false
	}
	c := p.text[p.at]
	p.at++
	if i := strings.IndexByte(`"\/bfnrt`, c); i >= 0 {
		return rune("\"\\/\b\f\n\r\t"[i]), true
	}
	if c != 'u' {
		return 0, false
	}
	r, ok := p.hex()
	if !ok || !utf16.IsSurrogate(r) {
		return r, ok
	}
	if strings.HasPrefix(p.text[p.at:], `\u`) {
		back := p.at
		p.at += 2
		low, ok := p.hex()
		if whole := utf16.DecodeRune(r, low); ok && whole != utf8.RuneError {
			return whole, true
		}
		p.at = back
	}
	return utf8.RuneError, true
}

func (p *treeParser) hex() (rune, bool) {
	if len(p.text)-p.at < 4 {
		return 0, false
	}
	n, err := strconv.ParseUint(p.text[p.at:p.at+4], 16, 32)
	p.at += 4
	return rune(n), err == nil
}

func (p *treeParser) number() bool {
	digits := func() bool {
		from := p.at
		for p.at < len(p.text) && '0' <= p.text[p.at] && p.text[p.at] <= '9' {
			p.at++
		}
		return p.at > from
	}
	is := func(set string) bool {
		if p.at < len(p.text) && strings.IndexByte(set, p.text[p.at]) >= 0 {
			p.at++
			return true
		}
		return false
	}
	is("-")
	if !is("0") && !digits() {
		return false
	}
	if is(".") && !digits() {
		return false
	}
	if is("eE") {
		is("+-")
		return digits()
	}
	return true
}

func (n *node) add(name, key string, value *node) {
	n.index[name] = len(n.members)
	n.members = append(n.members, member{name, key, value})
}

// get returns what a name stands for, nil for nothing.
func (n *node) get(name string) *node {
	if !n.isObject() {
		return nil
	}
	if i, ok := n.index[name]; ok {
		return n.members[i].value
	}
	return nil
}

func (n *node) isObject() bool { return n != nil && n.kind == isObject }

// at returns what the names lead to, nil for nothing.
func (n *node) at(names []string) *node {
	for _, name := range names {
		n = n.get(name)
	}
	return n
}

// set puts a value where the names lead to, nil to remove it, and makes the objects
// on the way. What stands on the way and is none stays, and so does an object in
// which something is, where the value is none: then it is false.
func (n *node) set(names []string, value *node) bool {
	if !n.isObject() {
		return false
	}
	name, last := names[0], len(names) == 1
	i, ok := n.index[name]
	switch {
	case value == nil && !ok:
		return true
	case value == nil && last:
		n.members[i].value = nil
		delete(n.index, name)
		return true
	case !ok && last:
		n.add(name, quoteJSON(name), value)
		return true
	case !ok:
		i = len(n.members)
		n.add(name, quoteJSON(name), newObject())
	case last && n.members[i].value.holds() && !value.isObject():
		return false
	case last:
		n.members[i].value = value
		return true
	}
	return n.members[i].value.set(names[1:], value)
}

// append writes the value as JSON.stringify(value, null, 2) does.
func (n *node) append(b []byte, indent string) []byte {
	within := indent + "  "
	begin, end := byte('{'), byte('}')
	count := 0
	separate := func() {
		if count++; count > 1 {
			b = append(b, ',')
		}
		b = append(append(b, '\n'), within...)
	}
	switch n.kind {
	case isObject:
		b = append(b, begin)
		for _, m := range n.members {
			if m.value != nil {
				separate()
				b = m.value.append(append(append(b, m.key...), ": "...), within)
			}
		}
	case isList:
		begin, end = '[', ']'
		b = append(b, begin)
		for _, item := range n.items {
			separate()
			b = item.append(b, within)
		}
	default:
		return append(b, n.text...)
	}
	if count > 0 {
		b = append(append(b, '\n'), indent...)
	}
	return append(b, end)
}

// bytes is the value as a text.
func (n *node) bytes() []byte { return append(n.append(nil, ""), '\n') }

// same reports whether two values mean the same to who reads numbers as
// JavaScript does.
func (n *node) same(o *node) bool {
	if n == nil || o == nil || n.kind != o.kind {
		return n == o
	}
	switch n.kind {
	case isString:
		return n.meaning == o.meaning
	case isNumber:
		x, e1 := strconv.ParseFloat(n.text, 64)
		y, e2 := strconv.ParseFloat(o.text, 64)
		return n.text == o.text || e1 == nil && e2 == nil && x == y
	case isList:
		return slices.EqualFunc(n.items, o.items, (*node).same)
	case isObject:
		if len(n.index) != len(o.index) {
			return false
		}
		for name, i := range n.index {
			if other := o.get(name); other == nil || !n.members[i].value.same(other) {
				return false
			}
		}
		return true
	}
	return n.text == o.text
}

// empty reports whether a value is an object or list with nothing in it.
func (n *node) empty() bool {
	return n != nil && (n.kind == isObject && len(n.index) == 0 || n.kind == isList && len(n.items) == 0)
}

// holds reports whether a value is an object with something in it, at any depth.
func (n *node) holds() bool {
	if !n.isObject() {
		return false
	}
	for _, i := range n.index {
		if !n.members[i].value.void() {
			return true
		}
	}
	return false
}

// void reports whether a value says nothing.
func (n *node) void() bool { return n == nil || n.empty() || n.isObject() && !n.holds() }

// quoteJSON writes a string as JSON.stringify does.
func quoteJSON(s string) string {
	b := []byte{'"'}
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b = append(b, '\\', byte(r))
		case r < ' ':
			b = append(b, `\u00`...)
			b = append(b, "0123456789abcdef"[r>>4], "0123456789abcdef"[r&15])
		default:
			b = utf8.AppendRune(b, r)
		}
	}
	return string(append(b, '"'))
}
