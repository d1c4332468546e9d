package gitconfig

import (
	"bytes"
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
	all, headings, err := vcs.ParseConfigPlaces(text)
	if err != nil {
		return nil, ErrSyntax
	}
	e := editor{text: text, all: all, headings: headings, inserts: map[int]string{}}
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
	out = dropEmpty(out, text, headings, all)
	return out, verify(out, text, all, want)
}

// A cut is a part of a text that something takes the place of.
type cut struct {
	from, to int
	with     string
}

type editor struct {
	text     []byte
	all      []vcs.Setting
	headings []vcs.Heading
	cuts     []cut
	inserts  map[int]string // by the place before which they stand
	made     map[key]bool   // sections that are new, by a key without a name
}

// set changes what stands of a key, and returns the values for which there is no section.
func (e *editor) set(k key, list []string) (rest []string) {
	n, last := 0, -1
	for i := range e.all {
		s := &e.all[i]
		if keyOf(s) != k {
			continue
		}
		last = i
		from, to := s.Place()
		switch {
		case n >= len(list):
			e.cuts = append(e.cuts, e.remove(from, to))
		case valueOf(e.text, s) != list[n]:
			e.cuts = append(e.cuts, cut{from, to, line(k.name, list[n])})
		}
		n++
	}
	if n >= len(list) {
		return nil
	}
	at := -1
	if last >= 0 {
		_, at = e.all[last].Place()
	} else if i := e.lastHeading(k); i >= 0 {
		at = e.headings[i].To
		end := len(e.all)
		if i+1 < len(e.headings) {
			end = e.headings[i+1].First
		}
		if end > e.headings[i].First {
			_, at = e.all[end-1].Place()
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
		e.inserts[at] += "\t" + line(k.name, v)
	}
	return nil
}

func (e *editor) lastHeading(k key) int {
	for i := len(e.headings) - 1; i >= 0; i-- {
		if h := &e.headings[i]; h.Section == k.section && h.Sub == k.sub {
			return i
		}
	}
	return -1
}

// section returns a new section with the values of a key, under one heading with those before.
func (e *editor) section(k key, list []string) string {
	var b strings.Builder
	if e.made == nil {
		e.made = map[key]bool{}
	}
	id := key{k.section, k.sub, ""}
	if !e.made[id] {
		clear(e.made) // what comes behind another section needs a heading again
		e.made[id] = true
		b.WriteString(heading(k))
	}
	for _, v := range list {
		b.WriteString("\t" + line(k.name, v))
	}
	return b.String()
}

// remove takes a setting out with its line, if nothing else is on it.
func (e *editor) remove(from, to int) cut {
	start := from
	for start > 0 && (e.text[start-1] == ' ' || e.text[start-1] == '\t') {
		start--
	}
	if start == 0 || e.text[start-1] == '\n' {
		return cut{start, to, ""}
	}
	return cut{from, to, "\n"} // it stands behind its heading
}

func (e *editor) apply() []byte {
	for at, text := range e.inserts {
		e.cuts = append(e.cuts, cut{at, at, text})
	}
	// What is put in where a setting ends comes behind that.
	slices.SortStableFunc(e.cuts, func(a, b cut) int {
		if a.from != b.from {
			return a.from - b.from
		}
		return a.to - b.to
	})
	var out []byte
	at := 0
	for _, c := range e.cuts {
		out = append(append(out, e.text[at:c.from]...), c.with...)
		at = c.to
	}
	return append(out, e.text[at:]...)
}

// dropEmpty removes the headings of sections that had settings and have none left, as git does. There are as
// many headings as there were, and then new ones.
func dropEmpty(out, text []byte, before []vcs.Heading, had []vcs.Setting) []byte {
	all, headings, err := vcs.ParseConfigPlaces(out)
	if err != nil || len(headings) < len(before) {
		return out
	}
	count := func(list []vcs.Heading, i, settings int) int {
		if i+1 < len(list) {
			settings = list[i+1].First
		}
		return settings - list[i].First
	}
	for i := len(before) - 1; i >= 0; i-- {
		if count(before, i, len(had)) == 0 || count(headings, i, len(all)) > 0 {
			continue
		}
		end := len(out)
		if i+1 < len(headings) {
			end = headings[i+1].From
		}
		if blank(out[headings[i].To:end]) {
			out = append(slices.Clone(out[:headings[i].From]), out[end:]...)
		}
	}
	return out
}

func blank(b []byte) bool { return len(bytes.TrimSpace(b)) == 0 }

// verify holds a result against what it is to say: the given keys as given, and of all others the same in
// the same order.
func verify(out, text []byte, all []vcs.Setting, want values) error {
	again, err := vcs.ParseConfig(out)
	if err != nil {
		return errEdit
	}
	type said struct {
		key
		value string
	}
	others := func(text []byte, list []vcs.Setting) (rest []said, wanted values) {
		wanted = values{}
		for i := range list {
			k := keyOf(&list[i])
			if _, ours := want[k]; ours {
				wanted[k] = append(wanted[k], valueOf(text, &list[i]))
			} else {
				rest = append(rest, said{k, valueOf(text, &list[i])})
			}
		}
		return rest, wanted
	}
	before, _ := others(text, all)
	after, got := others(out, again)
	if !slices.Equal(before, after) {
		return errEdit
	}
	for k, list := range want {
		if !slices.Equal(got[k], list) {
			return fmt.Errorf("%s: %w", k, errEdit)
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
	if k.sub == "" {
		return "[" + k.section + "]\n"
	}
	return "[" + k.section + ` "` + quoteSub.Replace(k.sub) + `"]` + "\n"
}
