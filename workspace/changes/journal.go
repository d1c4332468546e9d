package changes

import (
	"errors"
	"slices"
	"strings"

	"github.com/pccrun/pccrun/workspace/internal/codec"
)

// A journal is what an apply has promised itself, so that another can finish it
// or take it back, wherever it was killed:
//
//	staging     the new files are being made, each beside its place, under a name of the apply's own
//	committing  all are there; one after the other is put in its place by a
//	            rename that exchanges the two, or makes way for nothing
//	cleaning    all are in place; what they replaced has the names of the apply's own
//
// Up to the last step nothing is lost: what stood is there under the other name.
//
// A directory that is to be closed to its owner gets its mode last of all, when what was replaced in it is gone.
type journal struct {
	Phase phase
	Steps []step
}

type phase string

const (
	staging    phase = "staging"
	committing phase = "committing"
	cleaning   phase = "cleaning"
)

// A step is one rename of an apply, or one change of a directory's mode.
type step struct {
	Op    stepOp
	Layer int
	Path  string    // what is changed
	Temp  string    // beside it: first the new, then the old
	New   uint64    // put: the inode that is put in place
	Old   uint64    // the inode that stood there, 0 for none
	Modes [2]uint32 // before and after
}

type stepOp string

const (
	put    stepOp = "put"    // Temp takes the place of Path
	remove stepOp = "remove" // Path becomes Temp
	mode   stepOp = "mode"   // Path, a directory, gets the second mode
)

// closes reports whether a step takes from a directory's owner the right to write in it.
func (s *step) closes() bool { return s.Op == mode && s.Modes[1]&0o300 != 0o300 }

const journalHeader = "pccrun apply 2\n"

func (j *journal) append(b []byte) []byte { return codec.Append(append(b, journalHeader...), j) }

// parseJournal reads what append wrote, and nothing else: all that it understands is written again, and compared.
func parseJournal(text []byte, layers int) (*journal, error) {
	j := &journal{}
	rest, ok := strings.CutPrefix(string(text), journalHeader)
	unsound := func(s step) bool {
		return s.Op != put && s.Op != remove && s.Op != mode || s.Layer < 0 || s.Layer >= layers || s.Modes[0]|s.Modes[1] > 0o7777 ||
			!localPath(s.Path) || !localPath(s.Temp) || !strings.HasPrefix(base(s.Temp), tempPrefix)
	}
	if !ok || !codec.Read(rest, j) || j.Phase != staging && j.Phase != committing && j.Phase != cleaning ||
		slices.ContainsFunc(j.Steps, unsound) || string(j.append(nil)) != string(text) {
		return nil, errJournal
	}
	return j, nil
}

var errJournal = errors.New("journal of an apply: it is damaged, or not of a version that this program knows")

// tempPrefix begins the names that an apply uses beside the files that it
// changes.
const tempPrefix = ".pccrun-apply-"

// passed is called wherever an apply or a removal has done something that lasts.
// Tests end the process there.
var passed = func() {}
