package profiles

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Bounds on what a file may be: a policy is written by people, so whatever is
// beyond them is a mistake or an attack, and is refused before it costs anything.
const (
	maxFile  = 1 << 20 // bytes of a file
	maxDepth = 32      // of nested objects and arrays
)

type kind uint8

const (
	kindNull kind = iota
	kindBool
	kindNumber
	kindString
	kindArray
	kindObject
)

var kindNames = [...]string{"null", "true or false", "a number", "a string", "a list", "an object"}

// A value is a JSON value that remembers where it stood.
type value struct {
	kind    kind
	line    int
	text    string   // a string's content, a number's digits, "true" or "false"
	items   []value  // of an array
	members []member // of an object, in the order of the file
	at, end int      // its bytes
}

// member returns the value of an object's key, nil if it has none.
func (v *value) member(key string) *value {
	for i := range v.members {
		if v.members[i].key == key {
			return &v.members[i].value
		}
	}
	return nil
}

type member struct {
	key   string
	line  int
	at    int // of the key's quote, likewise
	value value
}

// JSON makes JSON of a JSONC text of the user's, which errors call source. Keys that stand twice are an error.
func JSON(source, text string) ([]byte, error) {
	v, err := parseJSONC(source, text)
	if err != nil {
		return nil, err
	}
	tree, err := v.tree(source)
	if err != nil {
		return nil, err
	}
	return json.Marshal(tree)
}

// tree returns the value as package json has it.
func (v *value) tree(source string) (any, error) {
	switch v.kind {
	case kindNull:
		return nil, nil
	case kindBool:
		return v.text == "true", nil
	case kindNumber:
		return json.Number(v.text), nil
	case kindString:
		return v.text, nil
	case kindArray:
		list := make([]any, len(v.items))
		for i := range v.items {
			var err error
			if list[i], err = v.items[i].tree(source); err != nil {
				return nil, err
			}
		}
		return list, nil
	}
	if again, first := duplicate(v.members); again != nil {
		return nil, &Error{Origin: Origin{Source: source, Line: again.line}, Cause: fmt.Sprintf("%s: duplicate, first in line %d", again.key, first.line)}
	}
	object := map[string]any{}
	for _, m := range v.members {
		var err error
		if object[m.key], err = m.value.tree(source); err != nil {
			return nil, err
		}
	}
	return object, nil
}

// A parser reads JSONC: JSON with // and /* */ comments and with commas after
// the last element. It is stricter than encoding/json where that guesses:
// duplicate keys, a byte order mark, invalid UTF-8, a lone surrogate and
// anything after the value are errors.
type parser struct {
	source string
	text   string
	pos    int
	line   int
}

func parseJSONC(source, text string) (value, error) {
	p := &parser{source: source, text: text, line: 1}
	switch {
	case len(text) > maxFile:
		return value{}, p.errorf("%d bytes: want at most %d", len(text), maxFile)
	case strings.HasPrefix(text, "\xef\xbb\xbf"), strings.HasPrefix(text, "\xff\xfe"), strings.HasPrefix(text, "\xfe\xff"):
		return value{}, p.errorf("byte order mark: want plain UTF-8")
	}
	v, err := p.value(0)
	if err != nil {
		return value{}, err
	}
	if err := p.space(); err != nil {
		return value{}, err
	}
	if p.pos < len(p.text) {
		return value{}, p.errorf("%s after the end of the value", p.here())
	}
	return v, nil
}

func (p *parser) errorf(format string, args ...any) error {
	return &Error{Origin: Origin{Source: p.source, Line: p.line}, Cause: fmt.Sprintf(format, args...)}
}

// here names what stands at the position, for errors.
func (p *parser) here() string {
	if p.pos >= len(p.text) {
		return "end of file"
	}
	r, _ := utf8.DecodeRuneInString(p.text[p.pos:])
	return strconv.QuoteRune(r)
}

// space skips white space and comments.
func (p *parser) space() error {
	for p.pos < len(p.text) {
		switch c := p.text[p.pos]; {
		case c == '\n':
			p.line++
			p.pos++
		case c == ' ' || c == '\t' || c == '\r':
			p.pos++
		case strings.HasPrefix(p.text[p.pos:], "//"):
			if n := strings.IndexByte(p.text[p.pos:], '\n'); n >= 0 {
				p.pos += n
			} else {
				p.pos = len(p.text)
			}
		case strings.HasPrefix(p.text[p.pos:], "/*"):
			n := strings.Index(p.text[p.pos+2:], "*/")
			if n < 0 {
				return p.errorf("comment without an end")
			}
			p.line += strings.Count(p.text[p.pos:p.pos+2+n], "\n")
			p.pos += 2 + n + 2
		default:
			return nil
		}
	}
	return nil
}

func (p *parser) value(depth int) (value, error) {
	if err := p.space(); err != nil {
		return value{}, err
	}
	if depth > maxDepth {
		return value{}, p.errorf("nested deeper than %d", maxDepth)
	}
	v := value{line: p.line, at: p.pos}
	if p.pos >= len(p.text) {
		return v, p.errorf("end of file: want a value")
	}
	var err error
	switch c := p.text[p.pos]; {
	case c == '{':
		v.kind = kindObject
		v.members, err = p.object(depth)
	case c == '[':
		v.kind = kindArray
		v.items, err = p.array(depth)
	case c == '"':
		v.kind = kindString
		v.text, err = p.str()
	case c == '-' || '0' <= c && c <= '9':
		v.kind = kindNumber
		v.text, err = p.number()
	default:
		v.text = p.word("")
		switch v.text {
		case "null":
			v.kind = kindNull
		case "true", "false":
			v.kind = kindBool
		case "":
			err = p.errorf("%s: want a value", p.here())
		default:
			err = p.errorf("%s: want a value; put strings in double quotes", v.text)
		}
	}
	v.end = p.pos
	return v, err
}

func (p *parser) object(depth int) ([]member, error) {
	p.pos++ // {
	var members []member
	for {
		if err := p.space(); err != nil {
			return nil, err
		}
		if p.pos < len(p.text) && p.text[p.pos] == '}' {
			p.pos++
			return members, nil
		}
		if p.pos >= len(p.text) || p.text[p.pos] != '"' {
			return nil, p.errorf("%s: want a key in double quotes, or }", p.here())
		}
		m := member{line: p.line, at: p.pos}
		var err error
		if m.key, err = p.str(); err != nil {
			return nil, err
		}
		if err := p.space(); err != nil {
			return nil, err
		}
		if p.pos >= len(p.text) || p.text[p.pos] != ':' {
			return nil, p.errorf("%s after the key %q: want a colon", p.here(), m.key)
		}
		p.pos++
		if m.value, err = p.value(depth + 1); err != nil {
			return nil, err
		}
		members = append(members, m)
		if err := p.comma('}'); err != nil {
			return nil, err
		}
	}
}

// duplicate returns the first key that stands twice, and where it stood first.
func duplicate(members []member) (again, first *member) {
	seen := make(map[string]int, len(members))
	for i := range members {
		if j, ok := seen[members[i].key]; ok {
			return &members[i], &members[j]
		}
		seen[members[i].key] = i
	}
	return nil, nil
}

func (p *parser) array(depth int) ([]value, error) {
	p.pos++ // [
	// Room at once for as many as the text has, up to a bound: growing touched 250 KB of memory a launch.
	list, _, _ := strings.Cut(p.text[p.pos:], "]")
	items := make([]value, 0, min(strings.Count(list, ",")+1, 512))
	for {
		if err := p.space(); err != nil {
			return nil, err
		}
		if p.pos < len(p.text) && p.text[p.pos] == ']' {
			p.pos++
			return items, nil
		}
		v, err := p.value(depth + 1)
		if err != nil {
			return nil, err
		}
		items = append(items, v)
		if err := p.comma(']'); err != nil {
			return nil, err
		}
	}
}

// comma reads what must stand after an element: a comma, or, unread, the end.
func (p *parser) comma(end byte) error {
	if err := p.space(); err != nil {
		return err
	}
	if p.pos < len(p.text) {
		switch p.text[p.pos] {
		case ',':
			p.pos++
			return nil
		case end:
			return nil
		}
	}
	return p.errorf("%s: want a comma or %c", p.here(), end)
}

// str reads a string with its quotes.
func (p *parser) str() (string, error) {
	start, escapes := p.pos, false
	for p.pos++; p.pos < len(p.text) && p.text[p.pos] != '"'; p.pos++ {
		switch c := p.text[p.pos]; {
		case c < ' ':
			return "", p.errorf("control character %q in a string", c)
		case c == '\\':
			escapes = true
			p.pos++
		}
	}
	if p.pos >= len(p.text) {
		return "", p.errorf("string without an end")
	}
	p.pos++
	quoted := p.text[start:p.pos]
	s := quoted[1 : len(quoted)-1]
	if !utf8.ValidString(s) {
		return "", p.errorf("string is not valid UTF-8")
	}
	if escapes {
		// A lone surrogate becomes this character, with no error.
		const lone = "\ufffd"
		known := strings.Count(s, lone)
		if err := json.Unmarshal([]byte(quoted), &s); err != nil || strings.Count(s, lone) > known {
			return "", p.errorf("string %s: not a JSON string: unknown escape", quoted)
		}
	}
	return s, nil
}

// number reads a number as RFC 8259 defines it, and keeps its digits.
func (p *parser) number() (string, error) {
	text := p.word("+-.")
	if !json.Valid([]byte(text)) {
		return "", p.errorf("number %q: not a JSON number", text)
	}
	return text, nil
}

// word reads letters, digits and what else may be part of it.
func (p *parser) word(more string) string {
	start := p.pos
	for p.pos < len(p.text) {
		c := p.text[p.pos]
		if !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '_' || strings.IndexByte(more, c) >= 0) {
			break
		}
		p.pos++
	}
	return p.text[start:p.pos]
}
