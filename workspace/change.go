package workspace

import (
	"errors"
	"strconv"
	"strings"
)

// A Change is one thing that a run left and the user should hear of.
type Change struct {
	Kind  ChangeKind
	Path  string // absolute
	Why   string // the pattern that it matches, or what would execute it
	What  string // what has become of it: "new", "changed", …; of Inert the keys or the hook
	Stash string // its name in the stash; "" if it is not there
	Mode  uint32 // of what is in the stash, as st_mode
}

// A ChangeKind says what kind of change it is.
type ChangeKind string

// The kinds.
const (
	Stashed ChangeKind = "stashed" // a protected name, set aside
	Inert   ChangeKind = "inert"   // what a repository that came into being would have run
	Review  ChangeKind = "review"  // a file for review has changed
	Program ChangeKind = "program" // a program where tools of the host find some
)

// journalMagic begins the journal of a stash.
const journalMagic = "pccrun stash 1\n"

// append appends the change as a line of the journal.
func (c Change) append(b []byte) []byte {
	b = append(append(b, c.Kind...), ' ')
	b = strconv.AppendUint(b, uint64(c.Mode), 8)
	for _, s := range [...]string{c.Stash, c.Path, c.Why, c.What} {
		b = strconv.AppendQuoteToASCII(append(b, ' '), s)
	}
	return append(b, '\n')
}

var errNoJournal = errors.New("not the journal of a stash")

// ParseJournal reads the journal of a stash. A last line that was cut short is
// left out: what it would have told of was not done.
func ParseJournal(text string) ([]Change, error) {
	rest, ok := strings.CutPrefix(text, journalMagic)
	if !ok {
		if strings.HasPrefix(journalMagic, text) {
			return nil, nil
		}
		return nil, errNoJournal
	}
	var list []Change
	for {
		line, more, whole := strings.Cut(rest, "\n")
		if !whole {
			return list, nil
		}
		rest = more
		c, err := parseChange(line)
		if err != nil {
			return nil, err
		}
		list = append(list, c)
	}
}

func parseChange(line string) (c Change, err error) {
	kind, rest, _ := strings.Cut(line, " ")
	switch c.Kind = ChangeKind(kind); c.Kind {
	case Stashed, Inert, Review, Program:
	default:
		return c, errNoJournal
	}
	digits, rest, _ := strings.Cut(rest, " ")
	mode, err := strconv.ParseUint(digits, 8, 32)
	if err != nil {
		return c, errNoJournal
	}
	c.Mode = uint32(mode)
	for i, field := range [...]*string{&c.Stash, &c.Path, &c.Why, &c.What} {
		quoted, err := strconv.QuotedPrefix(rest)
		if err != nil {
			return c, errNoJournal
		}
		*field, _ = strconv.Unquote(quoted) // QuotedPrefix has checked it
		rest = rest[len(quoted):]
		if i < 3 {
			if rest, _ = strings.CutPrefix(rest, " "); rest == "" {
				return c, errNoJournal
			}
		}
	}
	if rest != "" || !strings.HasPrefix(c.Path, "/") || c.Stash != "" && strings.Trim(c.Stash, "0123456789") != "" {
		return c, errNoJournal
	}
	return c, nil
}
