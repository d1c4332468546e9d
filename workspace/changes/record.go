package changes

import (
	"bytes"
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
	b = append(b, recordHeader...)
	b = fmt.Appendf(b, "workspace %q\nstarted %d\n", r.Workspace, r.Started)
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
			b = fmt.Appendf(b, "%s %d none 0 %q\n", word, s.Layer, s.Path)
		} else {
			b = fmt.Appendf(b, "%s %d %d %d %d %d %d %d %d %d %d %q\n", word, s.Layer, e.Kind, e.Mode, e.Size, e.Stamp.Ino, e.Stamp.Mtime, e.Stamp.Ctime, e.Stamp.UID, e.Stamp.GID, s.Index, s.Path)
		}
	}
	if r.Ended {
		b = append(b, "ended\n"...)
	}
	return b
}

// parseRecord reads what append wrote, and nothing else.
func parseRecord(text []byte) (*Record, error) {
	body, ok := bytes.CutPrefix(text, []byte(recordHeader))
	if !ok {
		return nil, fmt.Errorf("record of the overlay: not of a version that this program knows")
	}
	r := &Record{}
	number := 1
	for line := range strings.Lines(string(body)) {
		number++
		if err := r.line(line); err != nil {
			return nil, fmt.Errorf("record of the overlay, line %d: %w", number, err)
		}
	}
	if r.Workspace == "" || len(r.Layers) == 0 {
		return nil, fmt.Errorf("record of the overlay: it ends too soon")
	}
	return r, nil
}

// A factLine takes a line of a record or a journal apart. The first mistake wins.
type factLine struct {
	rest string
	err  error
}

func (f *factLine) word() string {
	w, rest, ok := strings.Cut(f.rest, " ")
	if !ok {
		w, rest = f.rest, ""
	}
	f.rest = rest
	return w
}

func (f *factLine) number(bits int) (n uint64) {
	w := f.word()
	n, err := strconv.ParseUint(w, 10, bits)
	if (err != nil || strconv.FormatUint(n, 10) != w) && f.err == nil {
		f.err = fmt.Errorf("%q: want a number", w)
	}
	return n
}

func (f *factLine) signed() (n int64) {
	w := f.word()
	n, err := strconv.ParseInt(w, 10, 64)
	if (err != nil || strconv.FormatInt(n, 10) != w) && f.err == nil {
		f.err = fmt.Errorf("%q: want a number", w)
	}
	return n
}

func (f *factLine) quoted() string {
	q, err := strconv.QuotedPrefix(f.rest)
	if err != nil || q[0] != '"' {
		if f.err == nil {
			f.err = fmt.Errorf("%q: want a quoted text", f.rest)
		}
		return ""
	}
	f.rest = strings.TrimPrefix(f.rest[len(q):], " ")
	s, _ := strconv.Unquote(q)
	return s
}

// path reads the path of a change.
func (f *factLine) path() string {
	s := f.quoted()
	if f.err == nil && !localPath(s) {
		f.err = fmt.Errorf("path %q: want one below the root", s)
	}
	return s
}

// localPath reports whether a path is clean and stays below where it starts.
func localPath(s string) bool {
	return s == "." || s != "" && s == strings.Trim(s, "/") && strings.IndexByte(s, 0) < 0 &&
		!slices.ContainsFunc(strings.Split(s, "/"), func(name string) bool { return name == "" || name == "." || name == ".." })
}

func (f *factLine) end() error {
	if f.err == nil && f.rest != "" {
		f.err = fmt.Errorf("%q: unexpected", f.rest)
	}
	return f.err
}

func (r *Record) line(line string) error {
	text, ok := strings.CutSuffix(line, "\n")
	if !ok {
		return fmt.Errorf("it breaks off")
	}
	if r.Ended {
		return fmt.Errorf("something follows the end")
	}
	f := &factLine{rest: text}
	switch word := f.word(); word {
	case "workspace":
		r.Workspace = f.quoted()
		if f.err == nil && !filepath.IsAbs(r.Workspace) {
			return fmt.Errorf("workspace %q: want an absolute path", r.Workspace)
		}
	case "started":
		r.Started = f.signed()
	case "layer":
		l := Layer{Dev: f.number(64), Ino: f.number(64), Path: f.quoted()}
		if f.err == nil && (!filepath.IsAbs(l.Path) || filepath.Clean(l.Path) != l.Path) {
			return fmt.Errorf("layer %q: want an absolute path", l.Path)
		}
		r.Layers = append(r.Layers, l)
	case "deny", "review":
		r.Protect = append(r.Protect, profiles.ProtectRule{Pattern: f.quoted(), Review: word == "review"})
	case "stood", "touched":
		s := Stood{Layer: int(f.number(31)), Touched: word == "touched"}
		if f.err == nil && s.Layer >= len(r.Layers) {
			return fmt.Errorf("layer %d: there are %d", s.Layer, len(r.Layers))
		}
		if rest, none := strings.CutPrefix(f.rest, "none "); none {
			f.rest = rest
		} else {
			s.Entry = &Entry{
				Kind: workspace.Kind(f.number(8)), Mode: uint32(f.number(32)), Size: f.signed(),
				Stamp: Stamp{Ino: f.number(64), Mtime: f.signed(), Ctime: f.signed(), UID: uint32(f.number(32)), GID: uint32(f.number(32))},
			}
			if f.err == nil && s.Entry.Kind > workspace.Special {
				return fmt.Errorf("kind %d: unknown", s.Entry.Kind)
			}
		}
		s.Index, s.Path = f.number(64), f.path()
		r.Stood = append(r.Stood, s)
	case "ended":
		r.Ended = true
	default:
		return fmt.Errorf("%q: unknown word", word)
	}
	return f.end()
}
