package events

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"time"
	"unicode/utf8"
)

// Bounds of what one event holds, so that a payload cannot make it large.
// What is cut ends in "…".
const (
	maxString = 4 << 10 // bytes of a string
	maxList   = 256     // elements of a list
)

// stamp is RFC 3339 to the nanosecond, each as long as the other.
const stamp = "2006-01-02T15:04:05.000000000Z"

// Append appends the line for e, newline included, to b.
func Append(b []byte, seq uint64, at time.Time, session string, e Event) []byte {
	b = fmt.Appendf(b, `{"v":%d,"seq":%d,"time":"%s","session":%s,"type":"%s"`, Version, seq, at.UTC().Format(stamp), Marshal(Cut(session)), e.Type())
	v := reflect.New(reflect.TypeOf(e)).Elem()
	v.Set(reflect.ValueOf(e))
	bound(v)
	if fields := Marshal(v.Interface()); len(fields) > len("{}") {
		b = append(append(b, ','), fields[1:]...)
	} else {
		b = append(b, '}')
	}
	return append(b, '\n')
}

// bound cuts the strings and lists of a value, and changes nothing that it shares with another.
func bound(v reflect.Value) {
	switch v.Kind() {
	case reflect.String:
		v.SetString(Cut(v.String()))
	case reflect.Struct:
		for i := range v.NumField() {
			bound(v.Field(i))
		}
	case reflect.Slice:
		v.Set(reflect.AppendSlice(reflect.Zero(v.Type()), v.Slice(0, min(v.Len(), maxList))))
		for i := range v.Len() {
			bound(v.Index(i))
		}
	}
}

// Cut returns a string that is no longer than one of an event may be.
func Cut(s string) string {
	if len(s) <= maxString {
		return s
	}
	n := maxString
	for n > maxString-utf8.UTFMax && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n] + "…"
}

// Marshal returns v as JSON that is safe to print: see [visible]. What v is made of
// is known to encoding/json.
func Marshal(v any) []byte {
	var b bytes.Buffer
	to := json.NewEncoder(&b)
	to.SetEscapeHTML(false)
	if err := to.Encode(v); err != nil {
		panic("BUG: " + err.Error())
	}
	return appendVisible(nil, strings.TrimSuffix(b.String(), "\n"))
}

// appendVisible appends s, with \uXXXX for what is not [visible]. Bytes that are not UTF-8
// become U+FFFD.
func appendVisible(b []byte, s string) []byte {
	for _, r := range s {
		switch {
		case visible(r):
			b = utf8.AppendRune(b, r)
		case r > 0xffff: // none of those is hidden but the tags
			r -= 0x10000
			b = fmt.Appendf(b, `\u%04x\u%04x`, 0xd800+r>>10, 0xdc00+r&0x3ff)
		default:
			b = fmt.Appendf(b, `\u%04x`, r)
		}
	}
	return b
}

// visible reports whether r may stand as it is in a line that a person or a
// line reader sees. Not: C0 and C1 controls and DEL; line and paragraph
// separators; what turns the direction of text or has no width, so that two
// different names would look alike (CVE-2021-42574).
func visible(r rune) bool {
	switch {
	case r < 0x20, r >= 0x7f && r < 0xa0, r == 0xad, r == 0x61c:
		return false
	case r >= 0x200b && r <= 0x200f, r >= 0x2028 && r <= 0x202e, r >= 0x2060 && r <= 0x206f, r == 0xfeff:
		return false
	}
	return r < 0xe0000 || r > 0xe0fff
}

// Clean returns s fit for one line of a terminal or a log: what is not
// [visible] is written as \u00XX, and a backslash is doubled, so that nothing
// can pass for it.
func Clean(s string) string {
	return string(appendVisible(nil, strings.ReplaceAll(Cut(s), `\`, `\\`)))
}
