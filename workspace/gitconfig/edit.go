package gitconfig

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/pccrun/pccrun/workspace/vcs"
)

// errEdit is for a text of which the result does not say what it is to say.
var errEdit = errors.New("it cannot be changed without changing what else it says")

// edit returns a text in which keys, in this order, have the given values, and all else stays as it is. Nothing
// that stands is written anew. The result is parsed again, and compared.
func edit(text []byte, keys []key, want values) ([]byte, error) {
	if len(want) == 0 {
		return text, nil
	}
	stood, err := vcs.ParseConfigPlaces(text)
	if err != nil {
		return nil, ErrSyntax
	}
	e := editor{text: text, Config: stood, inserts: map[int]string{}}
	var created strings.Builder
	for _, k := range keys {
		if rest := e.set(k, want[k]); len(rest) > 0 {
			created.WriteString(e.section(k, rest))
		}
	}
	out := e.apply()
	if created.Len() > 0 {
		if len(out) > 0 && out[len(out)-1] != '\n' {
			out = append(out, '\n')
		}
		out = append(out, created.String()...)
	}
	out = dropEmpty(out, &stood)
	return out, verify(out, stood.Settings, want)
}

// Strip returns a configuration without the settings that drop names, and their
// names. It is false for one that git cannot parse, or might parse in another
// way: that one cannot be mended.
func Strip(text []byte, drop func(*vcs.Setting) bool) (left []byte, dropped []string, ok bool) {
	c, err := vcs.ParseConfigPlaces(text)
	if err != nil || odd(text) {
		return nil, nil, false
	}
	e := editor{text: text}
	var kept []vcs.Setting
	for i := range c.Settings {
		if s := &c.Settings[i]; drop(s) {
			dropped = append(dropped, s.Name())
			e.cuts = append(e.cuts, e.remove(c.Places[i]))
		} else {
			kept = append(kept, *s)
		}
	}
	left = e.apply()
	again, err := vcs.ParseConfig(left)
	return left, dropped, err == nil && slices.Equal(again, kept)
}

// A cut is a part of a text that something takes the place of.
type cut struct {
	vcs.Place
	with string
}

type editor struct {
	text []byte
	vcs.Config
	cuts    []cut
	inserts map[int]string // by the place before which they stand
	last    string         // the heading of the section that is new and ends the text
}

// set changes what stands of a key, and returns the values for which there is no section.
func (e *editor) set(k key, list []string) (rest []string) {
	n, last := 0, -1
	for i := range e.Settings {
		s := &e.Settings[i]
		if keyOf(*s) != k {
			continue
		}
		last = i
		switch {
		case n >= len(list):
			e.cuts = append(e.cuts, e.remove(e.Places[i]))
		case valueOf(s) != list[n]:
			e.cuts = append(e.cuts, cut{e.Places[i], line(k.Key, list[n])})
		}
		n++
	}
	if n >= len(list) {
		return nil
	}
	at := -1
	if last >= 0 {
		at = e.Places[last].To
	} else if i := e.lastHeading(k); i >= 0 {
		at = e.Headings[i].To
		if n := settings(&e.Config, i); n > 0 {
			at = e.Places[e.Headings[i].First+n-1].To
		} else if next := bytes.IndexByte(e.text[at:], '\n'); next >= 0 && blank(e.text[at:at+next]) {
			at += next + 1
		}
	}
	if at < 0 {
		return list[n:]
	}
	for _, v := range list[n:] {
		if at > 0 && e.text[at-1] != '\n' && e.inserts[at] == "" {
			e.inserts[at] = "\n"
		}
		e.inserts[at] += "\t" + line(k.Key, v)
	}
	return nil
}

func (e *editor) lastHeading(k key) int {
	for i, h := range slices.Backward(e.Headings) {
		if h.Section == k.Section && h.Sub == k.Sub {
			return i
		}
	}
	return -1
}

// settings counts those behind a heading.
func settings(c *vcs.Config, i int) int {
	end := len(c.Settings)
	if i+1 < len(c.Headings) {
		end = c.Headings[i+1].First
	}
	return end - c.Headings[i].First
}

// section returns a new section with the values of a key, under one heading with those before.
func (e *editor) section(k key, list []string) string {
	text := heading(k)
	if text == e.last {
		text = ""
	} else {
		e.last = text
	}
	for _, v := range list {
		text += "\t" + line(k.Key, v)
	}
	return text
}

// remove takes a setting out with its line, if nothing else is on it.
func (e *editor) remove(p vcs.Place) cut {
	start := p.From
	for start > 0 && (e.text[start-1] == ' ' || e.text[start-1] == '\t') {
		start--
	}
	if start == 0 || e.text[start-1] == '\n' {
		return cut{vcs.Place{From: start, To: p.To}, ""}
	}
	return cut{p, "\n"} // it stands behind its heading
}

func (e *editor) apply() []byte {
	for at, text := range e.inserts {
		e.cuts = append(e.cuts, cut{vcs.Place{From: at, To: at}, text})
	}
	// What is put in where a setting ends comes behind that.
	slices.SortStableFunc(e.cuts, func(a, b cut) int { return cmp.Or(a.From-b.From, a.To-b.To) })
	var out []byte
	at := 0
	for _, c := range e.cuts {
		out = append(append(out, e.text[at:c.From]...), c.with...)
		at = c.To
	}
	return append(out, e.text[at:]...)
}

// dropEmpty removes the headings of sections that had settings and have none left, as git does. There are as
// many headings as there were, and then new ones.
func dropEmpty(out []byte, before *vcs.Config) []byte {
	now, err := vcs.ParseConfigPlaces(out)
	if err != nil || len(now.Headings) < len(before.Headings) {
		return out
	}
	for i := range slices.Backward(before.Headings) {
		if settings(before, i) == 0 || settings(&now, i) > 0 {
			continue
		}
		end := len(out)
		if i+1 < len(now.Headings) {
			end = now.Headings[i+1].From
		}
		if h := now.Headings[i]; blank(out[h.To:end]) {
			out = slices.Delete(out, h.From, end)
		}
	}
	return out
}

func blank(b []byte) bool { return len(bytes.TrimSpace(b)) == 0 }

// verify holds a result against what it is to say: the given keys as given, and of all others the same in
// the same order.
func verify(out []byte, stood []vcs.Setting, want values) error {
	again, err := vcs.ParseConfig(out)
	got := values{}
	for _, s := range again {
		got[keyOf(s)] = append(got[keyOf(s)], valueOf(&s))
	}
	ours := func(s vcs.Setting) bool {
		_, is := want[keyOf(s)]
		return is
	}
	if err != nil || !slices.Equal(slices.DeleteFunc(stood, ours), slices.DeleteFunc(again, ours)) {
		return errEdit
	}
	for k, list := range want {
		if !slices.Equal(got[k], list) {
			return fmt.Errorf("%s: %w", k.Name(), errEdit)
		}
	}
	return nil
}

var (
	quoteValue = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`, "\t", `\t`, "\b", `\b`)
	quoteSub   = strings.NewReplacer(`\`, `\\`, `"`, `\"`)
)

// line is a setting as git writes it, with quotes where it could be read in another way.
func line(name, value string) string {
	if value == bare {
		return name + "\n"
	}
	quoted := quoteValue.Replace(value)
	if quoted != value || strings.ContainsAny(value, "#;") || value != strings.TrimSpace(value) {
		quoted = `"` + quoted + `"`
	}
	return name + " = " + quoted + "\n"
}

func heading(k key) string {
	if k.Sub == "" {
		return "[" + k.Section + "]\n"
	}
	return "[" + k.Section + ` "` + quoteSub.Replace(k.Sub) + `"]` + "\n"
}
