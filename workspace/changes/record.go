package changes

import (
	"errors"
	"path/filepath"
	"slices"
	"strings"

	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/workspace"
	"github.com/pccrun/pccrun/workspace/internal/codec"
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

const recordHeader = "pccrun overlay 2\n"

func (r *Record) append(b []byte) []byte { return codec.Append(append(b, recordHeader...), r) }

// parseRecord reads what append wrote, and nothing else: all that it understands is written again, and compared.
func parseRecord(text []byte) (*Record, error) {
	r := &Record{}
	rest, ok := strings.CutPrefix(string(text), recordHeader)
	path := func(path string) bool { return filepath.IsAbs(path) && filepath.Clean(path) == path }
	if !ok || !codec.Read(rest, r) || len(r.Layers) == 0 || !path(r.Workspace) || slices.ContainsFunc(r.Layers, func(l Layer) bool { return !path(l.Path) }) ||
		slices.ContainsFunc(r.Stood, func(s Stood) bool {
			return s.Layer < 0 || s.Layer >= len(r.Layers) || !localPath(s.Path) || s.Entry != nil && s.Entry.Kind > workspace.Special
		}) || string(r.append(nil)) != string(text) {
		return nil, errRecord
	}
	return r, nil
}

var errRecord = errors.New("record of the overlay: it is damaged, or not of a version that this program knows")

// localPath reports whether a path is clean and stays below where it starts.
func localPath(s string) bool {
	return s == "." || s != "" && s == strings.Trim(s, "/") && strings.IndexByte(s, 0) < 0 &&
		!slices.ContainsFunc(strings.Split(s, "/"), func(name string) bool { return name == "" || name == "." || name == ".." })
}
