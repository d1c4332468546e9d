package gitconfig

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/pccrun/pccrun/workspace/vcs"
)

// MaxSize bounds a configuration of which a run has a private copy, and what it makes of that.
const MaxSize = 64 << 10

// A Context is what a merge has to know beside the texts.
type Context struct {
	// Submodule says that the repository is a submodule's: git writes anew there where the
	// working tree is (core.worktree), which is no change.
	Submodule bool

	// Shown reports whether the run was shown a path that is an address; nil: no path.
	Shown func(path string) bool
}

// A Change is an address that is new, is not what it was, or is removed.
type Change struct{ Key, Old, New string } // Old is "" for a new one, New for one that is removed

// A Refusal is a key that was not taken over.
type Refusal struct {
	Key, Reason   string
	Before, After []byte // a configuration with the key alone, as it was handed out and as the run left it
}

// A Result is what became of a merge.
type Result struct {
	Host    []byte // the host's new text
	Changes []Change
	Refused []Refusal
}

// The errors of a text that is not merged at all.
var (
	ErrSyntax  = errors.New("git versions could parse it differently")
	ErrControl = errors.New("it has control characters, or is not UTF-8")
	ErrSize    = fmt.Errorf("it is larger than %d KiB", MaxSize>>10)
)

// A key is a setting without a value.
type key = vcs.Setting

func keyOf(s vcs.Setting) key { return key{Section: s.Section, Sub: s.Sub, Key: s.Key} }

// general is a key as the list of keys has it: with any subsection.
func general(k key) string {
	if k.Sub != "" {
		k.Sub = "*"
	}
	return k.Name()
}

// values are those of each key, in their order.
type values map[key][]string

// bare is the value of a key without "=", which git takes for true. No value of a file
// has a NUL.
const bare = "\x00"

// valueOf tells an empty value from none.
func valueOf(s *vcs.Setting) string {
	if s.Bare {
		return bare
	}
	return s.Value
}

// odd reports whether a text has control characters, which other versions of git read in other ways.
func odd(text []byte) bool {
	for i, c := range text {
		if c < ' ' && c != '\t' && c != '\n' && (c != '\r' || i+1 == len(text) || text[i+1] != '\n') || c == 0x7f {
			return true
		}
	}
	return false
}

// parse reads a text that is to be merged, or merged into.
func parse(text []byte) (v values, c vcs.Config, err error) {
	if !utf8.Valid(text) || strings.HasPrefix(string(text), "\uFEFF") || odd(text) {
		return nil, c, ErrControl
	}
	if c, err = vcs.ParseConfigPlaces(text); err != nil {
		return nil, c, ErrSyntax
	}
	for _, h := range c.Headings { // [a ""] is another section than [a] to git, and [] none
		if h.Section == "" || h.Sub == "" && strings.ContainsAny(string(text[h.From:h.To]), `".`) {
			return nil, c, ErrSyntax
		}
	}
	v = values{}
	for _, s := range c.Settings {
		v[keyOf(s)] = append(v[keyOf(s)], valueOf(&s))
	}
	return v, c, nil
}

// Merge takes over into the host's text what a copy says otherwise than its base, as far as
// each key is on the list and the host has not changed it as well. An error says why
// nothing of the copy can be taken over.
func Merge(base, copied, host []byte, c Context) (Result, error) {
	return merge(base, copied, host, func(m *merger) map[key]string { return m.judge(c) })
}

// Accept does to the host's text what one key of a copy says otherwise than its base, whatever that is: the
// user has looked at it. It is false where the host's text says something else by now.
func Accept(before, after, host []byte) (text []byte, ok bool, err error) {
	r, err := merge(before, after, host, func(*merger) map[key]string { return nil })
	return r.Host, err == nil && len(r.Refused) == 0, err
}

// A merger holds the three texts.
type merger struct {
	base, copied, host values
	changed            []key
	continued          map[key]bool // over several lines: git before and after 2.45 read the blanks of these in different ways
}

// moved is why a key is not taken over that the host has changed as well.
const moved = "the host changed it during the run"

func merge(base, copied, host []byte, judge func(*merger) map[key]string) (r Result, err error) {
	r = Result{Host: host}
	if len(copied) > MaxSize {
		return r, ErrSize
	}
	m := merger{continued: map[key]bool{}}
	var stood, now vcs.Config
	if m.base, stood, err = parse(base); err != nil {
		return r, err
	}
	if m.copied, now, err = parse(copied); err != nil {
		return r, err
	}
	if m.host, _, err = parse(host); err != nil {
		return r, fmt.Errorf("the host's file: %w", err)
	}
	for i, p := range now.Places {
		if bytes.Contains(bytes.TrimRight(copied[p.From:p.To], "\r\n"), []byte{'\n'}) {
			m.continued[keyOf(now.Settings[i])] = true
		}
	}
	for _, s := range append(now.Settings, stood.Settings...) {
		if k := keyOf(s); !slices.Equal(m.base[k], m.copied[k]) && !slices.Contains(m.changed, k) {
			m.changed = append(m.changed, k)
		}
	}
	if len(m.changed) == 0 {
		return r, nil
	}
	refused := judge(&m)
	into := values{}
	var changed []key
	for _, k := range m.changed {
		reason, no := refused[k]
		if no && reason == "" {
			continue // it is no change
		}
		if have := m.host[k]; !no && !slices.Equal(have, m.base[k]) && !slices.Equal(have, m.copied[k]) {
			no, reason = true, moved
		}
		if no {
			r.Refused = append(r.Refused, Refusal{k.Name(), reason, alone(k, m.base[k]), alone(k, m.copied[k])})
			continue
		}
		if !slices.Equal(m.host[k], m.copied[k]) {
			into[k], changed = m.copied[k], append(changed, k)
		}
		if addresses[general(k)] {
			r.Changes = append(r.Changes, Change{k.Name(), redact(m.base[k]), redact(m.copied[k])})
		}
	}
	if r.Host, err = edit(host, changed, into); err != nil {
		return Result{Host: host}, err
	}
	return r, nil
}

// alone is a configuration that says nothing else.
func alone(k key, list []string) []byte {
	text, err := edit(nil, []key{k}, values{k: list})
	if err != nil {
		return nil
	}
	return text
}

// redact leaves the passwords out of addresses.
func redact(list []string) string {
	list = slices.Clone(list)
	for i, address := range list {
		scheme, rest, ok := strings.Cut(address, "://")
		authority, path, _ := strings.Cut(rest, "/")
		at := strings.LastIndexByte(authority, '@')
		if colon := strings.IndexByte(authority, ':'); ok && at >= 0 && colon >= 0 && colon < at {
			list[i] = scheme + "://" + authority[:colon] + ":***" + authority[at:] + "/" + path
		}
	}
	return strings.Join(list, " ")
}
