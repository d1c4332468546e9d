package main

import (
	"strconv"
	"unicode/utf8"
)

// An object is a JSON object with its fields in order. Values are nil, bool,
// int, int64, string, object, and slices of string, object or any.
type object []field

type field struct {
	key   string
	value any
}

// schemaVersion is the "v" of everything that --json prints, except events,
// which have their own.
const schemaVersion = 1

// printJSON prints a verb's result. encoding/json would cost every launch its
// initialisation, and this is all that pccrun needs of it.
func printJSON(o object) {
	b := appendJSON(nil, append(object{{"v", schemaVersion}}, o...), "\n")
	stdout.Write(append(b, '\n'))
}

// appendJSON appends v; indent is a line feed and what the line begins with.
func appendJSON(b []byte, v any, indent string) []byte {
	switch v := v.(type) {
	case nil:
		return append(b, "null"...)
	case bool:
		return strconv.AppendBool(b, v)
	case int:
		return strconv.AppendInt(b, int64(v), 10)
	case int64:
		return strconv.AppendInt(b, v, 10)
	case string:
		return appendString(b, v)
	case object:
		return appendList(b, "{}", indent, len(v), func(b []byte, i int, indent string) []byte {
			b = append(appendString(b, v[i].key), ": "...)
			return appendJSON(b, v[i].value, indent)
		})
	case []object:
		return appendList(b, "[]", indent, len(v), func(b []byte, i int, indent string) []byte { return appendJSON(b, v[i], indent) })
	case []string:
		return appendList(b, "[]", indent, len(v), func(b []byte, i int, _ string) []byte { return appendString(b, v[i]) })
	}
	return appendString(b, "BUG: no JSON for this type")
}

func appendList(b []byte, brackets, indent string, n int, one func(b []byte, i int, indent string) []byte) []byte {
	b = append(b, brackets[0])
	for i := range n {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, indent+"  "...)
		b = one(b, i, indent+"  ")
	}
	if n > 0 {
		b = append(b, indent...)
	}
	return append(b, brackets[1])
}

// appendString appends s as a JSON string. What is not valid UTF-8 becomes
// U+FFFD, and controls, also those of 8 bits, are escaped.
func appendString(b []byte, s string) []byte {
	b = append(b, '"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b = append(b, '\\', byte(r))
		case r < ' ' || r >= 0x7f && r < 0xa0:
			b = append(b, `\u00`...)
			b = append(b, "0123456789abcdef"[r>>4], "0123456789abcdef"[r&15])
		default:
			b = utf8.AppendRune(b, r)
		}
	}
	return append(b, '"')
}
