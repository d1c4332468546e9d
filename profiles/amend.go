package profiles

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/pccrun/pccrun/internal/state"
)

// A Draft is the text of a profile file as it would be.
type Draft struct {
	Path string // absolute, as [FileOf] tells it
	Text string
}

// read returns a file's text: the draft's, if it is that file's.
func (d *Draft) read(file string) ([]byte, error) {
	if d != nil && d.Path == file {
		return []byte(d.Text), nil
	}
	return ReadFile(file)
}

// own returns the path of the user's own profile of a name, and whether one may
// be there.
func (r *resolver) own(name string) (file string, ok bool) {
	dir := r.configDir
	if d := r.req.Draft; dir == "" && d != nil && d.Path == ownFile(r.dirs.Config, name) {
		dir = r.dirs.Config // it is to be made with the file
	}
	return ownFile(dir, name), dir != ""
}

// isProfilePath reports whether a profile's name is the path of its file.
func isProfilePath(name string) bool {
	return strings.Contains(name, "/") || strings.HasSuffix(name, ".jsonc") || strings.HasSuffix(name, ".json")
}

func ownFile(config, name string) string { return config + "/profiles/" + name + ".jsonc" }

// A File is the profile file that a change to a policy belongs into.
type File struct {
	Path string // absolute
	Text string // "" where there is none yet
	New  bool
}

// FileOf returns the file to change where a request's policy is not what the
// user wants: the profile that was named by its path, else the user's own of the
// profile's name, which stands on the built-in one of that name and may be new.
func FileOf(req Request, policy *Policy) (*File, error) {
	r := &resolver{req: &req, policy: &Policy{}}
	if err := r.findHome(); err != nil {
		return nil, err
	}
	r.workspace, r.cwd = policy.Workspace, req.Host.Cwd
	r.findConfig()
	f := &File{Path: ownFile(r.dirs.Config, policy.Profile)}
	if isProfilePath(policy.Profile) {
		var err error
		if f.Path, err = r.argument(policy.Profile, r.cwd); err != nil {
			return nil, err
		}
	} else if r.dirs.Config == "" {
		return nil, &Error{Origin: Origin{Key: "profile"}, Cause: "no directory for your own profiles is known", Hint: "--profile FILE names a file"}
	} else if r.configDir == "" {
		f.New = true
		return f, nil
	}
	text, err := ReadFile(f.Path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		f.New = true
	case err != nil:
		return nil, &Error{Origin: Origin{Source: f.Path}, Cause: cause(err)}
	}
	f.Text = string(text)
	return f, nil
}

// Amended returns the file's text with edits made, as [Amend] does; one that is new extends the built-in profile of the policy's.
func (f *File) Amended(policy *Policy, edits []Edit) (string, error) {
	base := ""
	if f.New {
		base = policy.Profile
	}
	return Amend(f.Path, f.Text, base, edits)
}

// Write gives the file another text, whole or not at all, if it is still what [FileOf] has read for a request and its policy.
func (f *File) Write(req Request, policy *Policy, text string) error {
	root, err := state.Open(filepath.Dir(f.Path), policy.Workspace)
	if err != nil {
		return err
	}
	defer root.Close()
	now, err := FileOf(req, policy)
	if err != nil {
		return err
	}
	if now.Text != f.Text {
		return errors.New(f.Path + ": changed while pccrun edited it, and was not written: run it again")
	}
	return state.WriteFile(root, filepath.Base(f.Path), []byte(text), state.Durable)
}

// An Edit adds one entry to a profile's text.
type Edit struct {
	Keys    []string // what it stands in: "filesystem", or "network" and "allow"
	Key     string   // the member's, or a list's item
	Value   string   // the member's, as a string or a number; "" for a list's item
	Number  bool     // Value is one
	Comment string   // one line, without the slashes
	Off     bool     // only a comment: the entry is there to be read, not to hold
}

// Amend returns a profile's text with edits made, and all else as it is, its
// comments too. What stands already under a member's key is replaced. An empty
// text is a profile that extends base, "" for none.
//
// Nothing that an edit says can end the comment or the string that it stands in:
// keys and values are written as JSON strings, and a comment that is not one line
// of printable text is an error.
func Amend(source, text, base string, edits []Edit) (string, error) {
	if text == "" {
		text = "{\n}\n"
		if base != "" {
			text = "{\n  \"extends\": " + quote(base) + ",\n}\n"
		}
	}
	for len(edits) > 0 {
		// One container after the other: each moves what stands behind it.
		keys := edits[0].Keys
		var these, others []Edit
		for _, e := range edits {
			if err := e.check(); err != nil {
				return "", err
			}
			if slices.Equal(e.Keys, keys) {
				these = append(these, e)
			} else {
				others = append(others, e)
			}
		}
		root, err := parseJSONC(source, text)
		if err != nil {
			return "", err
		}
		if text, err = amend(source, text, root, keys, these); err != nil {
			return "", err
		}
		edits = others
	}
	_, err := parseJSONC(source, text)
	return text, err
}

// amend makes the edits of one container.
func amend(source, text string, root value, keys []string, edits []Edit) (string, error) {
	at, depth := root, 0
	for ; depth < len(keys); depth++ {
		i := slices.IndexFunc(at.members, func(m member) bool { return m.key == keys[depth] })
		if i < 0 {
			break
		}
		at = at.members[i].value
	}
	list := edits[0].Value == ""
	if want := kindObject; at.kind != want && !(depth == len(keys) && list && at.kind == kindArray) {
		o := Origin{Source: source, Line: at.line, Key: strings.Join(keys[:depth], ".")}
		return "", &Error{Origin: o, Cause: kindNames[at.kind] + ": cannot be edited"}
	}
	if depth < len(keys) {
		block := entries(edits, strings.Repeat("  ", len(keys)+1))
		for i := len(keys) - 1; i >= depth; i-- {
			brackets := "{}"
			if list && i == len(keys)-1 {
				brackets = "[]"
			}
			indent := strings.Repeat("  ", i+1)
			block = indent + quote(keys[i]) + ": " + brackets[:1] + "\n" + block + indent + brackets[1:] + ",\n"
		}
		return insert(text, at, block, true), nil
	}
	// From the last to the first, so that what stands before does not move.
	var added []Edit
	type replacement struct {
		at, end int
		with    string
	}
	var replaced []replacement
	for _, e := range edits {
		i := slices.IndexFunc(at.members, func(m member) bool { return m.key == e.Key })
		switch {
		case e.Off && strings.Contains(text[at.at:at.end], "\n"+indentOf(text, at)+e.entry()):
			continue // it stands there from the last time
		case i < 0 || e.Off:
			added = append(added, e)
			continue
		}
		v := at.members[i].value
		replaced = append(replaced, replacement{v.at, v.end, e.value()})
	}
	if len(added) > 0 {
		holds := slices.ContainsFunc(added, func(e Edit) bool { return !e.Off })
		text = insert(text, at, entries(added, indentOf(text, at)), holds)
	}
	slices.SortFunc(replaced, func(a, b replacement) int { return b.at - a.at })
	for _, r := range replaced {
		text = text[:r.at] + r.with + text[r.end:]
	}
	return text, nil
}

// insert puts lines at the end of a container; after what stands there a comma
// is needed if the lines hold an entry.
func insert(text string, at value, lines string, holds bool) string {
	closing := at.end - 1
	last := at.at + 1
	if n := len(at.items); n > 0 {
		last = at.items[n-1].end
	}
	if n := len(at.members); n > 0 {
		last = at.members[n-1].value.end
	}
	p := &parser{text: text, pos: last}
	comma := len(at.items)+len(at.members) == 0
	if p.space() == nil && text[p.pos] == ',' {
		last, comma = p.pos+1, true
	}
	// The lines stand in front of the line of the closing bracket, after what is
	// said of the last entry; where there is no such line they make one.
	rest := text[last:closing]
	put := closing
	before, after := "\n", strings.Repeat(" ", lineIndent(text, at.at))
	if n := strings.LastIndexByte(rest, '\n'); n >= 0 && !strings.Contains(rest, "/*") {
		put = last + n + 1
		before, after = "", ""
	} else if strings.TrimLeft(rest, " \t") == "" {
		text = text[:last] + text[closing:]
		put = last
	}
	text = text[:put] + before + lines + after + text[put:]
	if !comma && holds {
		text = text[:last] + "," + text[last:]
	}
	return text
}

// entries writes edits, one a line.
func entries(edits []Edit, indent string) string {
	var b strings.Builder
	for _, e := range edits {
		b.WriteString(indent + e.entry())
		if e.Comment != "" {
			b.WriteString(" // " + e.Comment)
		}
		b.WriteString("\n")
	}
	return b.String()
}

// entry is an edit as it stands in a line, less the comment.
func (e *Edit) entry() string {
	text := quote(e.Key)
	if e.Off {
		text = "// " + text
	}
	if e.Value != "" {
		text += ": " + e.value()
	}
	return text + ","
}

func (e *Edit) value() string {
	if e.Number {
		return e.Value
	}
	return quote(e.Value)
}

func (e *Edit) check() error {
	for _, s := range [...]string{e.Key, e.Value, e.Comment} {
		if !Printable(s) {
			return fmt.Errorf("amend profile: %q: not a line of plain text", s)
		}
	}
	if e.Number && strings.Trim(e.Value, "0123456789.") != "" {
		return fmt.Errorf("amend profile: %q: not a number", e.Value)
	}
	return nil
}

// indentOf returns what an entry of a container begins with.
func indentOf(text string, at value) string {
	first := -1
	if len(at.members) > 0 {
		first = at.members[0].at
	} else if len(at.items) > 0 {
		first = at.items[0].at
	}
	if first >= 0 && strings.IndexByte(text[at.at:first], '\n') >= 0 {
		line := strings.LastIndexByte(text[:first], '\n') + 1
		if indent := text[line:first]; strings.Trim(indent, " \t") == "" {
			return indent
		}
	}
	return strings.Repeat(" ", lineIndent(text, at.at)+2)
}

// lineIndent counts the blanks that a line begins with.
func lineIndent(text string, at int) int {
	line := text[strings.LastIndexByte(text[:at], '\n')+1 : at]
	return len(line) - len(strings.TrimLeft(line, " "))
}

// Printable reports whether a text is of one line, and does nothing to a
// terminal that shows it.
func Printable(s string) bool {
	return utf8.ValidString(s) && strings.IndexFunc(s, func(r rune) bool { return !strconv.IsPrint(r) }) < 0
}
