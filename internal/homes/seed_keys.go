package homes

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/BurntSushi/toml"

	"github.com/pccrun/pccrun/profiles"
)

// parse reads a JSON or TOML file, by its name. JSON may have comments and trailing commas, as
// the agents' own readers have it.
func parse(name string, text []byte) (map[string]any, error) {
	v := map[string]any{}
	return v, decode(name, text, &v)
}

// maxDepth bounds values in values, and names in a key: a parser calls itself for each, TOML's takes the square of the
// time, and to write one takes its depth in spaces for each line.
const maxDepth = 32

var errDeep = fmt.Errorf("values nested deeper than %d", maxDepth)

// deep reports whether a JSON or TOML text has more levels of brackets, and of dots outside of them, than are parsed. It
// is exact as far as the text is well formed, and a parser gets no further.
func deep(text []byte) bool {
	var above []int // the level around each bracket
	level := 0
	for i := 0; i < len(text); i++ {
		switch c := text[i]; c {
		case '"', '\'':
			i = quotedEnd(text, i)
		case '#':
			for i+1 < len(text) && text[i+1] != '\n' {
				i++
			}
		case '[', '{':
			above = append(above, level)
			level++
		case '.':
			level++
		case ',':
			level = 0
			if n := len(above); n > 0 {
				level = above[n-1] + 1
			}
		case ']', '}':
			level = 0
			if n := len(above); n > 0 {
				level, above = above[n-1], above[:n-1]
			}
		case '\n':
			if len(above) == 0 {
				level = 0
			}
		}
		if level > maxDepth {
			return true
		}
	}
	return false
}

// quotedEnd returns where a string that begins at i ends: that of one quotation mark, or of three.
func quotedEnd(text []byte, i int) int {
	mark := text[i]
	three := bytes.Repeat([]byte{mark}, 3)
	long := bytes.HasPrefix(text[i:], three)
	i++
	if long {
		i += 2
	}
	for ; i < len(text); i++ {
		switch {
		case text[i] == '\\' && mark == '"':
			i++
		case !long && (text[i] == mark || text[i] == '\n'):
			return i
		case long && bytes.HasPrefix(text[i:], three):
			for i += 2; i+1 < len(text) && text[i+1] == mark; i++ { // up to two are the string's
			}
			return i
		}
	}
	return i
}

func decode(name string, text []byte, v any) error {
	if filepath.Ext(name) == ".toml" {
		if deep(text) {
			return errDeep
		}
		_, err := toml.Decode(string(text), v)
		return err
	}
	text = plainJSON(text)
	if len(bytes.TrimSpace(text)) == 0 {
		return nil
	}
	if deep(text) {
		return errDeep
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	if err := d.Decode(v); err != nil {
		return err
	}
	if _, err := d.Token(); err != io.EOF {
		return errors.New("more than one value")
	}
	return nil
}

// format writes what [parse] reads.
func format(name string, v any) ([]byte, error) {
	var b bytes.Buffer
	if filepath.Ext(name) == ".toml" {
		err := toml.NewEncoder(&b).Encode(v)
		return b.Bytes(), err
	}
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	err := e.Encode(v)
	return b.Bytes(), err
}

// plainJSON takes comments and trailing commas out.
func plainJSON(text []byte) []byte {
	out := make([]byte, 0, len(text))
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '"':
			start := i
			for i++; i < len(text) && text[i] != '"'; i++ {
				if text[i] == '\\' {
					i++
				}
			}
			out = append(out, text[start:min(i+1, len(text))]...)
		case c == '/' && i+1 < len(text) && text[i+1] == '/':
			for i < len(text) && text[i] != '\n' {
				i++
			}
			out = append(out, '\n')
		case c == '/' && i+1 < len(text) && text[i+1] == '*':
			end := bytes.Index(text[i+2:], []byte("*/"))
			if end < 0 {
				return out
			}
			i += end + 3
		case c == '}' || c == ']':
			if trimmed := bytes.TrimRight(out, " \t\r\n"); bytes.HasSuffix(trimmed, []byte(",")) {
				out = trimmed[:len(trimmed)-1]
			}
			out = append(out, c)
		default:
			out = append(out, c)
		}
	}
	return out
}

// A pattern is a key as names from the top, `*` within a name.
type pattern []string

// patterns splits keys, with the workspace in its place.
func patterns(keys []string, workspace string) (list []pattern) {
	for _, key := range keys {
		names := strings.Split(key, ".")
		for i := range names {
			names[i] = strings.ReplaceAll(names[i], "{workspace}", workspace)
		}
		list = append(list, names)
	}
	return list
}

// rest returns what of the patterns goes on below a key, and whether one ends there.
func rest(list []pattern, key string) (more []pattern, whole bool) {
	for _, p := range list {
		prefix, suffix, star := strings.Cut(p[0], "*")
		if !star && p[0] != key || star && (len(key) < len(prefix)+len(suffix) || !strings.HasPrefix(key, prefix) || !strings.HasSuffix(key, suffix)) {
			continue
		}
		if len(p) == 1 {
			whole = true
		} else {
			more = append(more, p[1:])
		}
	}
	return more, whole
}

// pick returns the part of an object that the patterns name.
func pick(v map[string]any, list []pattern) map[string]any {
	out := map[string]any{}
	for key, value := range v {
		more, whole := rest(list, key)
		if whole {
			out[key] = value
		} else if object, is := value.(map[string]any); is && len(more) > 0 {
			if part := pick(object, more); len(part) > 0 {
				out[key] = part
			}
		}
	}
	return out
}

// without takes what the patterns name out of an object.
func without(v map[string]any, list []pattern) {
	for key, value := range v {
		more, whole := rest(list, key)
		if whole {
			delete(v, key)
		} else if object, is := value.(map[string]any); is && len(more) > 0 {
			without(object, more)
		}
	}
}

// servers takes out of an object, below the patterns, each server with a credential, and returns
// their names.
func servers(v map[string]any, list []pattern, allow []string) (names []string) {
	for key, value := range v {
		more, whole := rest(list, key)
		object, is := value.(map[string]any)
		switch {
		case !is:
		case whole:
			for name, server := range object {
				if !slices.Contains(allow, name) && credential(server) {
					delete(object, name)
					names = append(names, name)
				}
			}
		case len(more) > 0:
			names = append(names, servers(object, more, allow)...)
		}
	}
	slices.Sort(names)
	return names
}

// secretKeys are members of a server's description that hold a credential, if they hold anything.
var secretKeys = []string{"env", "environment", "headers", "http_headers", "env_http_headers", "oauth", "auth", "authorization", "token", "bearer_token", "bearer_token_env_var", "apiKey", "api_key", "headersHelper"}

var ( // made where a server is looked at: no launch waits for them
	secretOption = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`(?i)(token|secret|passw|api.?key|bearer|authorization|credential)`)
	})
	secretWord = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`^(sk-|gh[a-z]_|github_pat_|xox[a-z]-|AKIA|AIza|eyJ)|://[^/@]*:[^/@]*@|^[A-Za-z0-9_\-+/=]{32,}$`)
	})
)

// credential reports whether a server's description has something in it that looks like one. It
// errs on the side of leaving a server out.
func credential(server any) bool {
	object, is := server.(map[string]any)
	if !is {
		return true
	}
	for key, value := range object {
		if slices.Contains(secretKeys, key) && !empty(value) {
			return true
		}
		for _, word := range words(value) {
			u, err := url.Parse(word)
			if secretOption().MatchString(word) || secretWord().MatchString(word) || err == nil && u.Scheme != "" && (u.User != nil || u.RawQuery != "") {
				return true
			}
		}
	}
	return false
}

func empty(v any) bool {
	switch v := v.(type) {
	case nil:
		return true
	case string:
		return v == ""
	case map[string]any:
		return len(v) == 0
	case []any:
		return len(v) == 0
	}
	return false
}

// words are the strings in a value, below it in lists and objects too.
func words(v any) (list []string) {
	switch v := v.(type) {
	case string:
		return []string{v}
	case []any:
		for _, e := range v {
			list = append(list, words(e)...)
		}
	case []string:
		return v
	case map[string]any:
		for _, e := range v {
			list = append(list, words(e)...)
		}
	}
	return list
}

// same reports whether two values are the same in JSON: a number or a time of TOML's is no such
// in a record.
func same(a, b any) bool {
	x, err := json.Marshal(a)
	y, e := json.Marshal(b)
	return err == nil && e == nil && bytes.Equal(x, y)
}

// merge brings into an object what has changed of another since it was as base says. What was
// taken away there is taken away, unless it was changed here.
func merge(into, base, now map[string]any) {
	for key, value := range now {
		before, stood := base[key]
		if stood && same(before, value) {
			continue
		}
		mine, a := into[key].(map[string]any)
		theirs, b := value.(map[string]any)
		if a && b {
			was, _ := before.(map[string]any)
			merge(mine, was, theirs)
			continue
		}
		into[key] = value
	}
	for key, before := range base {
		if _, stands := now[key]; !stands && same(into[key], before) {
			delete(into, key)
		}
	}
}

// set gives keys the values that they have inside; over, also those that have one.
func set(v map[string]any, values []profiles.SeedValue, workspace string, over bool) {
	for _, s := range values {
		names := patterns([]string{s.Key}, workspace)[0]
		at := v
		for _, name := range names[:len(names)-1] {
			next, is := at[name].(map[string]any)
			if !is {
				next = map[string]any{}
				at[name] = next
			}
			at = next
		}
		last := names[len(names)-1]
		if _, stands := at[last]; over || !stands {
			at[last] = s.Value
		}
	}
}

// picked is what a seed copies of a file of the host's: the whole of it, as text, or an object.
func picked(s *profiles.Seed, text []byte, workspace string) (object map[string]any, notes []string, err error) {
	if object, err = parse(s.Path, text); err != nil {
		return nil, nil, fmt.Errorf("read %s for the home: %w", quoted(s.Path), err)
	}
	keys := s.Keys
	if len(keys) == 0 {
		keys = []string{"*"}
	}
	object = pick(object, patterns(keys, workspace))
	without(object, patterns(s.Drop, workspace))
	for _, name := range servers(object, patterns(s.Server, workspace), s.Allow) {
		notes = append(notes, fmt.Sprintf("server %s of %s is not copied into the home: it has variables, headers or credentials", quoted(name), s.Path))
	}
	return object, notes, nil
}

// whole reports whether a file is copied as it is.
func whole(s *profiles.Seed) bool {
	return len(s.Keys)+len(s.Drop)+len(s.Server)+len(s.Set) == 0
}
