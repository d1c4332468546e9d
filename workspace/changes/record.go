package changes

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/workspace"
)

// A Record is what a run notes of its overlays, beside what changed: enough to
// tell later whether the host's files are still those that the run saw.
type Record struct {
	Workspace string
	Started   int64 // by the clock that stamps files, in nanoseconds
	Layers    []Layer
	Protect   []profiles.ProtectRule // of the run's policy; their origins are not kept

	// What stood on the host under each change: when the run ended, or when
	// the snapshot was made that it began with.
	Ended bool
	Stood []Stood
}

// A Layer is a directory of the host that a run saw copy-on-write.
type Layer struct {
	Path     string // absolute and clean
	Dev, Ino uint64 // as stat(2) says
}

// Stood is what stood on the host where something was changed.
type Stood struct {
	Layer   int    // index in [Record.Layers]
	Path    string // as [Change.Path]
	Entry   *Entry // nil: nothing
	Touched bool   // the host changed it during the run
	Index   uint64 // of an index of git: what it records ([vcs.IndexDigest]); else 0
}

const recordHeader = "pccrun overlay 1\n"

// append appends the record's text: a line for each fact, a word first.
func (r *Record) append(b []byte) []byte {
	b = fmt.Appendf(b, "%sworkspace %q\nstarted %d\n", recordHeader, r.Workspace, r.Started)
	for _, l := range r.Layers {
		b = fmt.Appendf(b, "layer %d %d %q\n", l.Dev, l.Ino, l.Path)
	}
	for _, p := range r.Protect {
		word := "deny"
		if p.Review {
			word = "review"
		}
		b = fmt.Appendf(b, "%s %q\n", word, p.Pattern)
	}
	for _, s := range r.Stood {
		word := "stood"
		if s.Touched {
			word = "touched"
		}
		if e := s.Entry; e == nil {
			b = fmt.Appendf(b, "%s %d none %d %q\n", word, s.Layer, s.Index, s.Path)
		} else {
			b = fmt.Appendf(b, "%s %d %d %d %d %d %d %d %d %d %d %q\n", word, s.Layer, e.Kind, e.Mode, e.Size, e.Stamp.Ino, e.Stamp.Mtime, e.Stamp.Ctime, e.Stamp.UID, e.Stamp.GID, s.Index, s.Path)
		}
	}
	if r.Ended {
		b = append(b, "ended\n"...)
	}
	return b
}

// parseRecord reads what append wrote, and nothing else: all that it understands is written again, and compared.
func parseRecord(text []byte) (*Record, error) {
	r := &Record{}
	for line := range strings.Lines(strings.TrimPrefix(string(text), recordHeader)) {
		switch word, rest, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " "); word {
		case "workspace":
			scan(rest, &r.Workspace)
		case "started":
			scan(rest, &r.Started)
		case "layer":
			var l Layer
			scan(rest, &l.Dev, &l.Ino, &l.Path)
			r.Layers = append(r.Layers, l)
		case "deny", "review":
			p := profiles.ProtectRule{Review: word == "review"}
			scan(rest, &p.Pattern)
			r.Protect = append(r.Protect, p)
		case "stood", "touched":
			s, e, none := Stood{Touched: word == "touched"}, &Entry{}, ""
			if scan(rest, &s.Layer, &none); none == "none" {
				scan(rest, &s.Layer, &none, &s.Index, &s.Path)
			} else {
				s.Entry = e
				scan(rest, &s.Layer, &e.Kind, &e.Mode, &e.Size, &e.Stamp.Ino, &e.Stamp.Mtime, &e.Stamp.Ctime, &e.Stamp.UID, &e.Stamp.GID, &s.Index, &s.Path)
			}
			r.Stood = append(r.Stood, s)
		case "ended":
			r.Ended = true
		}
	}
	path := func(path string) bool { return filepath.IsAbs(path) && filepath.Clean(path) == path }
	if len(r.Layers) == 0 || !path(r.Workspace) || slices.ContainsFunc(r.Layers, func(l Layer) bool { return !path(l.Path) }) ||
		slices.ContainsFunc(r.Stood, func(s Stood) bool {
			return s.Layer < 0 || s.Layer >= len(r.Layers) || !localPath(s.Path) || s.Entry != nil && s.Entry.Kind > workspace.Special
		}) || string(r.append(nil)) != string(text) {
		return nil, errRecord
	}
	return r, nil
}

var errRecord = errors.New("record of the overlay: it is damaged, or not of a version that this program knows")

// scan reads the words of a line, each by what it goes to. What is none it leaves: the line is not written so again.
func scan(line string, to ...any) {
	for _, at := range to {
		word, rest, _ := strings.Cut(line, " ")
		if strings.HasPrefix(line, `"`) {
			quoted, _ := strconv.QuotedPrefix(line)
			word, _ = strconv.Unquote(quoted)
			rest = strings.TrimPrefix(line[len(quoted):], " ")
		}
		line = rest
		switch at := at.(type) {
		case *string:
			*at = word
		case *int:
			*at, _ = strconv.Atoi(word)
		case *int64:
			*at, _ = strconv.ParseInt(word, 10, 64)
		case *uint64:
			*at, _ = strconv.ParseUint(word, 10, 64)
		case *uint32:
			n, _ := strconv.ParseUint(word, 10, 32)
			*at = uint32(n)
		case *workspace.Kind:
			n, _ := strconv.ParseUint(word, 10, 8)
			*at = workspace.Kind(n)
		}
	}
}

// localPath reports whether a path is clean and stays below where it starts.
func localPath(s string) bool {
	return s == "." || s != "" && s == strings.Trim(s, "/") && strings.IndexByte(s, 0) < 0 &&
		!slices.ContainsFunc(strings.Split(s, "/"), func(name string) bool { return name == "" || name == "." || name == ".." })
}
