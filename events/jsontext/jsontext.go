// Package jsontext reads JSON without reflection and without work at program
// start: encoding/json would cost every launch its initialisation.
//
// It takes RFC 8259 and nothing beyond: an object that has a name twice, text
// that is not UTF-8, half of a surrogate pair, deep nesting and what follows
// the value are errors, so that no two readers see different things.
package jsontext

import (
	"errors"
	"fmt"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// maxDepth bounds the nesting.
const maxDepth = 32

// Object returns the object that data is.
func Object(data []byte) (*Fields, error) {
	p := parser{data: data}
	v, err := p.value(0)
	if err == nil {
		if p.space(); p.at < len(data) {
			err = errors.New("something follows the value")
		}
	}
	if err != nil {
		return nil, fmt.Errorf("JSON at byte %d: %w", p.at, err)
	}
	f, ok := v.(*Fields)
	if !ok {
		return nil, errors.New("JSON: not an object")
	}
	return f, nil
}

// Fields are the fields of an object. Its methods return the zero value for a
// name that is not there or null; for one of another type too, and then
// [Fields.Err] says so.
type Fields struct {
	names  []string
	values []any // nil, bool, number, string, []any, *Fields
	err    error
}

type number string

// Err returns a mismatch that the other methods found, here or in an object
// that is part of this one.
func (f *Fields) Err() error {
	err := f.err
	for _, v := range f.values {
		parts, _ := v.([]any)
		for _, part := range append(parts[:len(parts):len(parts)], v) {
			if o, ok := part.(*Fields); ok && err == nil {
				err = o.Err()
			}
		}
	}
	return err
}

func (f *Fields) get(name string) any {
	for i, n := range f.names {
		if n == name {
			return f.values[i]
		}
	}
	return nil
}

// as returns the field as a T.
func as[T any](f *Fields, name, want string) (t T) {
	v := f.get(name)
	if v == nil {
		return t
	}
	t, ok := v.(T)
	if !ok && f.err == nil {
		f.err = fmt.Errorf("field %q: want %s", name, want)
	}
	return t
}

// String returns a string.
func (f *Fields) String(name string) string { return as[string](f, name, "a string") }

// Bool returns a boolean.
func (f *Fields) Bool(name string) bool { return as[bool](f, name, "true or false") }

// Int returns a whole number.
func (f *Fields) Int(name string) int64 {
	return whole(f, name, func(s string) (int64, error) { return strconv.ParseInt(s, 10, 64) })
}

// Uint returns a whole number that is not negative.
func (f *Fields) Uint(name string) uint64 {
	return whole(f, name, func(s string) (uint64, error) { return strconv.ParseUint(s, 10, 64) })
}

func whole[T int64 | uint64](f *Fields, name string, parse func(string) (T, error)) T {
	text := as[number](f, name, "a number")
	if text == "" {
		return 0
	}
	n, err := parse(string(text))
	if err != nil && f.err == nil {
		f.err = fmt.Errorf("field %q: %s is no whole number in range", name, text)
	}
	return n
}

// Strings returns a list of strings.
func (f *Fields) Strings(name string) []string { return list[string](f, name, "strings") }

// Objects returns a list of objects.
func (f *Fields) Objects(name string) []*Fields { return list[*Fields](f, name, "objects") }

// Object returns an object: an empty one if there is none.
func (f *Fields) Object(name string) *Fields {
	if o := as[*Fields](f, name, "an object"); o != nil {
		return o
	}
	return &Fields{}
}

func list[T any](f *Fields, name, want string) []T {
	var out []T
	for _, v := range as[[]any](f, name, "a list") {
		t, ok := v.(T)
		if !ok && f.err == nil {
			f.err = fmt.Errorf("field %q: want a list of %s", name, want)
		}
		out = append(out, t)
	}
	return out
}

type parser struct {
	data []byte
	at   int
}

func (p *parser) space() {
	for p.at < len(p.data) {
		switch p.data[p.at] {
		case ' ', '\t', '\n', '\r':
			p.at++
		default:
			return
		}
	}
}

// next skips space and reports whether c follows, and takes it then.
func (p *parser) next(c byte) bool {
	p.space()
	if p.at < len(p.data) && p.data[p.at] == c {
		p.at++
		return true
	}
	return false
}

func (p *parser) value(depth int) (any, error) {
	if depth > maxDepth {
		return nil, errors.New("nested too deeply")
	}
	p.space()
	if p.at == len(p.data) {
		return nil, errors.New("it ends too early")
	}
	switch c := p.data[p.at]; {
	case c == '{':
		return p.object(depth)
	case c == '[':
		return p.list(depth)
	case c == '"':
		return p.str()
	case c == '-' || c >= '0' && c <= '9':
		return p.number()
	}
	for _, word := range [...]struct {
		text  string
		value any
	}{{"true", true}, {"false", false}, {"null", nil}} {
		if rest := p.data[p.at:]; len(rest) >= len(word.text) && string(rest[:len(word.text)]) == word.text {
			p.at += len(word.text)
			return word.value, nil
		}
	}
	return nil, errors.New("no value")
}

func (p *parser) object(depth int) (any, error) {
	p.at++
	f := &Fields{}
	if p.next('}') {
		return f, nil
	}
	seen := map[string]bool{}
	for {
		p.space()
		if p.at == len(p.data) || p.data[p.at] != '"' {
			return nil, errors.New("want a name")
		}
		name, err := p.str()
		if err != nil {
			return nil, err
		}
		if seen[name] {
			return nil, errors.New("a name stands twice")
		}
		seen[name] = true
		if !p.next(':') {
			return nil, errors.New("want a colon")
		}
		v, err := p.value(depth + 1)
		if err != nil {
			return nil, err
		}
		f.names, f.values = append(f.names, name), append(f.values, v)
		if p.next('}') {
			return f, nil
		}
		if !p.next(',') {
			return nil, errors.New("want a comma or the object's end")
		}
	}
}

func (p *parser) list(depth int) (any, error) {
	p.at++
	out := []any{}
	if p.next(']') {
		return out, nil
	}
	for {
		v, err := p.value(depth + 1)
		if err != nil {
			return nil, err
		}
		out = append(out, v)
		if p.next(']') {
			return out, nil
		}
		if !p.next(',') {
			return nil, errors.New("want a comma or the list's end")
		}
	}
}

func (p *parser) digits() int {
	from := p.at
	for p.at < len(p.data) && p.data[p.at] >= '0' && p.data[p.at] <= '9' {
		p.at++
	}
	return p.at - from
}

func (p *parser) byteIs(set string) bool {
	if p.at < len(p.data) {
		for i := range len(set) {
			if p.data[p.at] == set[i] {
				p.at++
				return true
			}
		}
	}
	return false
}

func (p *parser) number() (any, error) {
	bad := errors.New("not a number")
	from := p.at
	p.byteIs("-")
	if p.byteIs("0") == (p.digits() > 0) { // digits, without a zero before them
		return nil, bad
	}
	if p.byteIs(".") && p.digits() == 0 {
		return nil, bad
	}
	if p.byteIs("eE") {
		p.byteIs("+-")
		if p.digits() == 0 {
			return nil, bad
		}
	}
	return number(p.data[from:p.at]), nil
}

// str reads a string, from its opening quote on.
func (p *parser) str() (string, error) {
	p.at++
	from := p.at
	for p.at < len(p.data) && p.data[p.at] != '"' && p.data[p.at] != '\\' {
		p.at++
	}
	out := append([]byte(nil), p.data[from:p.at]...)
	for {
		if p.at == len(p.data) {
			return "", errors.New("a string without end")
		}
		c := p.data[p.at]
		p.at++
		switch c {
		case '"':
			if !utf8.Valid(out) {
				return "", errors.New("not UTF-8")
			}
			for _, c := range p.data[from : p.at-1] {
				if c < 0x20 {
					return "", errors.New("a control character in a string")
				}
			}
			return string(out), nil
		case '\\':
			r, err := p.escape()
			if err != nil {
				return "", err
			}
			out = utf8.AppendRune(out, r)
		default:
			out = append(out, c)
		}
	}
}

// escape reads what stands behind a backslash.
func (p *parser) escape() (rune, error) {
	bad := errors.New("an escape that is none")
	if p.at == len(p.data) {
		return 0, bad
	}
	c := p.data[p.at]
	p.at++
	switch c {
	case '"', '\\', '/':
		return rune(c), nil
	case 'b':
		return '\b', nil
	case 'f':
		return '\f', nil
	case 'n':
		return '\n', nil
	case 'r':
		return '\r', nil
	case 't':
		return '\t', nil
	case 'u':
		r, ok := p.hex()
		if !ok {
			return 0, bad
		}
		if !utf16.IsSurrogate(r) {
			return r, nil
		}
		if p.byteIs("\\") && p.byteIs("u") {
			low, ok := p.hex()
			if r = utf16.DecodeRune(r, low); ok && r != utf8.RuneError {
				return r, nil
			}
		}
		return 0, errors.New("half of a surrogate pair")
	}
	return 0, bad
}

func (p *parser) hex() (rune, bool) {
	if len(p.data)-p.at < 4 {
		return 0, false
	}
	n, err := strconv.ParseUint(string(p.data[p.at:p.at+4]), 16, 16)
	p.at += 4
	return rune(n), err == nil
}
