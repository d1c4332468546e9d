package quarantine

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// A Finding is one thing that a run left and the user should hear of.
type Finding struct {
	Kind  FindingKind
	Path  string // absolute
	Why   string // the pattern that it matches, or what would execute it
	What  string // what has become of it: "new", "changed", …; of Inert the keys or the hook
	Stash string // its name in the stash; "" if it is not there
	Mode  uint32 // of what is in the stash, as st_mode

	Of    string    // the git directory in which it was: all of one that is not git's is one finding ([Merge])
	Parts []Finding // of that finding: what was there, by itself
}

// A FindingKind says what kind of change it is.
type FindingKind string

// The kinds.
const (
	Stashed FindingKind = "stashed" // a protected name, quarantined
	Inert   FindingKind = "inert"   // what a repository that came into being would have run
	Review  FindingKind = "review"  // a file for review has changed
	Address FindingKind = "address" // an address in a configuration of git is new, or another
	Setting FindingKind = "setting" // a key of a configuration of git that was not taken over
)

// Protected reports whether it is a protected name that was quarantined: not one
// that was too much, nor what is left of a worktree.
func (c Finding) Protected() bool { return c.Kind == Stashed && c.Why != TooMuch && c.Why != Removed }

// TooMuch is the Why of directories that were quarantined unseen.
const TooMuch = "too many files to check"

// Removed is the Why of a linked worktree that stood, and of which git inside has removed a part.
const Removed = "git worktree remove failed: files in it are protected"

// journalMagic begins the journal of a stash.
const journalMagic = "pccrun stash 1\n"

// maxPartNames bounds the names of a merged finding that its reason lists.
const maxPartNames = 5

// Merge makes one finding of all that lay in one git directory, in the place of the first.
func Merge(list []Finding) (merged []Finding) {
	at := map[string]int{}
	for _, c := range list {
		if i, known := at[c.Of]; known && c.Of != "" {
			one := &merged[i]
			if one.Parts == nil {
				one.Parts = []Finding{*one}
			}
			one.Parts = append(one.Parts, c)
			continue
		}
		at[c.Of] = len(merged)
		merged = append(merged, c)
	}
	for i := range merged {
		if c := &merged[i]; c.Parts != nil {
			*c = Finding{Kind: Inert, Path: c.Of, What: strconv.Itoa(len(c.Parts)) + " names", Why: whyParts(c.Parts), Parts: c.Parts}
		}
	}
	return merged
}

// whyParts says by reason what is not git's.
func whyParts(parts []Finding) string {
	names, reasons := map[string][]string{}, []string{}
	for _, p := range parts {
		why := p.Why
		if p.Stash == "" {
			why = p.What + "; " + why
		}
		if names[why] == nil {
			reasons = append(reasons, why)
		}
		if name := strings.TrimPrefix(p.Path, p.Of+"/"); !slices.Contains(names[why], name) {
			names[why] = append(names[why], name)
		}
	}
	for i, why := range reasons {
		list := names[why]
		if n := len(list) - maxPartNames; n > 0 {
			list = append(list[:maxPartNames], strconv.Itoa(n)+" more")
		}
		reasons[i] = strings.Join(list, ", ") + ": " + why
	}
	return strings.Join(reasons, "; ")
}

// append appends the change as a line of the journal.
func (c Finding) append(b []byte) []byte {
	b = fmt.Appendf(b, "%s %o %+q %+q %+q %+q", c.Kind, c.Mode, c.Stash, c.Path, c.Why, c.What)
	if c.Of != "" {
		b = fmt.Appendf(b, " %+q", c.Of)
	}
	return append(b, '\n')
}

var errNoJournal = errors.New("not the journal of a stash")

// ParseJournal reads the journal of a stash. A last line that was cut short is
// left out: what it would have told of was not done.
func ParseJournal(text string) ([]Finding, error) {
	rest, ok := strings.CutPrefix(text, journalMagic)
	if !ok {
		if strings.HasPrefix(journalMagic, text) {
			return nil, nil
		}
		return nil, errNoJournal
	}
	var list []Finding
	for {
		line, more, whole := strings.Cut(rest, "\n")
		if !whole {
			return list, nil
		}
		rest = more
		c, err := parseFinding(line)
		if err != nil {
			return nil, err
		}
		list = append(list, c)
	}
}

// parseFinding reads what append wrote, and nothing else: what it understands is written again, and compared.
func parseFinding(line string) (c Finding, err error) {
	_, _ = fmt.Sscanf(line, "%s %o %q %q %q %q %q", &c.Kind, &c.Mode, &c.Stash, &c.Path, &c.Why, &c.What, &c.Of)
	if !slices.Contains([]FindingKind{Stashed, Inert, Review, Address, Setting}, c.Kind) || string(c.append(nil)) != line+"\n" ||
		!strings.HasPrefix(c.Path, "/") || strings.Trim(c.Stash, "0123456789") != "" {
		return c, errNoJournal
	}
	return c, nil
}
