package workspace

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pccrun/pccrun/profiles"
)

// A Record says what stood in a workspace when a run began, as far as the look
// at its end needs it. It is written down before the command starts, so that
// the look can be made by somebody else if the launcher is killed.
type Record struct {
	Session string    // of the run
	Root    string    // the workspace
	Start   time.Time // what has a ctime before it was not changed by the run
	Files   []profiles.FileRule
	Protect []profiles.ProtectRule

	Names  []string // relative to Root: protected names that stood
	Repos  []string // and directories of git
	Shut   []string // and directories that could not be listed: they are hidden inside
	Pins   []Node   // what must not have changed, and cannot have been changed from inside
	Vacant []string // absolute: names that no pattern finds, and that did not exist
	Review []Reviewed
	Keys   map[string][]string // of reviewed configurations of git: the settings that execute something, as name=value
}

// recordMagic begins a record, recordEnd ends it: one without was never
// finished, and its command never started.
const (
	recordMagic = "pccrun record 1\n"
	recordEnd   = "end\n"
)

// Append appends the record's text: lines of words, of which those that
// anybody else chose are quoted as in Go.
func (r *Record) Append(b []byte) []byte {
	b = append(b, recordMagic...)
	line := func(word string, numbers ...uint64) {
		b = append(b, word...)
		for _, n := range numbers {
			b = strconv.AppendUint(append(b, ' '), n, 10)
		}
	}
	text := func(list ...string) {
		for _, s := range list {
			b = strconv.AppendQuoteToASCII(append(b, ' '), s)
		}
		b = append(b, '\n')
	}
	line("session")
	text(r.Session)
	line("root", uint64(r.Start.UnixNano()))
	text(r.Root)
	for i := range r.Files {
		line("file", uint64(r.Files[i].Access))
		text(r.Files[i].Path, r.Files[i].Glob)
	}
	for _, p := range r.Protect {
		review := uint64(0)
		if p.Review {
			review = 1
		}
		line("protect", review)
		text(p.Pattern)
	}
	for _, list := range [...]struct {
		word  string
		paths []string
	}{{"name", r.Names}, {"repo", r.Repos}, {"shut", r.Shut}, {"vacant", r.Vacant}} {
		for _, path := range list.paths {
			line(list.word)
			text(path)
		}
	}
	for _, n := range r.Pins {
		line("pin", uint64(n.Kind), n.Dev, n.Ino)
		text(n.Path)
	}
	for _, n := range r.Review {
		line("review", uint64(n.Kind), n.Dev, n.Ino)
		text(n.Path, n.Why)
	}
	for _, path := range slices.Sorted(maps.Keys(r.Keys)) {
		line("keys")
		text(path)
		for _, key := range r.Keys[path] {
			line("key")
			text(path, key)
		}
	}
	return append(b, recordEnd...)
}

var (
	errNoRecord   = errors.New("not a record of a run")
	errUnfinished = errors.New("the record was never finished")
)

// ParseRecord reads what [Record.Append] wrote, and what stands behind its end.
// The error of a record that was cut short, whose command never started, is
// one that [Unfinished] knows.
func ParseRecord(text string) (*Record, string, error) {
	rest, ok := strings.CutPrefix(text, recordMagic)
	if !ok {
		if strings.HasPrefix(recordMagic, text) {
			return nil, "", errUnfinished
		}
		return nil, "", errNoRecord
	}
	r := &Record{}
	for {
		line, more, ok := strings.Cut(rest, "\n")
		if !ok {
			return nil, "", errUnfinished
		}
		rest = more
		if line+"\n" == recordEnd {
			return r, rest, nil
		}
		if err := r.line(line); err != nil {
			return nil, "", fmt.Errorf("%w: %q", err, line)
		}
	}
}

// Unfinished reports whether an error says that a record was cut short.
func Unfinished(err error) bool { return errors.Is(err, errUnfinished) }

// recordShape is how many numbers and how many texts follow each word.
var recordShape = [...]struct {
	word           string
	numbers, texts int
}{
	{"session", 0, 1}, {"root", 1, 1}, {"file", 1, 2}, {"protect", 1, 1}, {"name", 0, 1}, {"repo", 0, 1}, {"shut", 0, 1}, {"vacant", 0, 1},
	{"pin", 3, 1}, {"review", 3, 2}, {"keys", 0, 1}, {"key", 0, 2},
}

func (r *Record) line(line string) error {
	word, rest, _ := strings.Cut(line, " ")
	for _, shape := range recordShape {
		if shape.word != word {
			continue
		}
		var n [3]uint64
		var s [2]string
		for i := range shape.numbers {
			var digits string
			var err error
			digits, rest, _ = strings.Cut(rest, " ")
			if n[i], err = strconv.ParseUint(digits, 10, 64); err != nil {
				return errNoRecord
			}
		}
		for i := range shape.texts {
			quoted, err := strconv.QuotedPrefix(rest)
			if err != nil {
				return errNoRecord
			}
			s[i], _ = strconv.Unquote(quoted) // QuotedPrefix has checked it
			if rest = rest[len(quoted):]; i+1 < shape.texts {
				if rest, _ = strings.CutPrefix(rest, " "); rest == "" {
					return errNoRecord
				}
			}
		}
		if rest != "" {
			return errNoRecord
		}
		return r.set(word, n, s)
	}
	return errNoRecord
}

func (r *Record) set(word string, n [3]uint64, s [2]string) error {
	node := Node{Path: s[0], Kind: Kind(n[0]), Dev: n[1], Ino: n[2]}
	switch word {
	case "session":
		r.Session = s[0]
	case "root":
		r.Root, r.Start = s[0], time.Unix(0, int64(n[0]))
	case "file":
		if n[0] > uint64(profiles.Write) {
			return errNoRecord
		}
		r.Files = append(r.Files, profiles.FileRule{Path: s[0], Glob: s[1], Access: profiles.Access(n[0])})
	case "protect":
		r.Protect = append(r.Protect, profiles.ProtectRule{Pattern: s[0], Review: n[0] == 1})
	case "name":
		r.Names = append(r.Names, s[0])
	case "repo":
		r.Repos = append(r.Repos, s[0])
	case "shut":
		r.Shut = append(r.Shut, s[0])
	case "vacant":
		r.Vacant = append(r.Vacant, s[0])
	case "pin":
		r.Pins = append(r.Pins, node)
	case "review":
		r.Review = append(r.Review, Reviewed{Node: node, Why: s[1]})
	case "keys":
		if r.Keys == nil {
			r.Keys = map[string][]string{}
		}
		r.Keys[s[0]] = []string{}
	case "key":
		if _, ok := r.Keys[s[0]]; !ok {
			return errNoRecord
		}
		r.Keys[s[0]] = append(r.Keys[s[0]], s[1])
	}
	return nil
}
