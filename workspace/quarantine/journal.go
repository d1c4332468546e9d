package quarantine

import (
	"bytes"
	"errors"
	"io/fs"
	"os"

	"github.com/pccrun/pccrun/internal/state"
)

// The names within a session's directory.
const (
	StashName   = "stash"   // a directory: what was quarantined, by number
	JournalName = "changes" // a line for each change, written before what it tells of is done
)

// StagingName is the directory of pccrun's own, beside the sessions, for what may become a stash ([Stash.Staged]).
const StagingName = "staging"

// LeftOver ends the name, in the stash, of what was left of a configuration.
const LeftOver = ".left"

// Prefix begins the names that something gets where it stands, when it cannot
// be moved out of the workspace at once. No tool knows such a name.
const Prefix = ".pccrun-set-aside-"

// ErrInTheWay is returned for a path where something stands that is newer.
var ErrInTheWay = errors.New("the path exists again")

// maxJournal bounds the journal.
const maxJournal = 256 << 20

// ReadFindings returns what a session's directory has kept of its run, but for
// what was put back or removed since.
func ReadFindings(session *os.Root) ([]Finding, error) {
	all, _, err := readJournal(session)
	return Merge(kept(session, all)), err
}

// kept leaves out what was put back or removed, or was never moved.
func kept(session *os.Root, all []Finding) []Finding {
	list := make([]Finding, 0, len(all))
	for _, c := range all {
		if c.Stash != "" {
			if _, err := session.Lstat(StashName + "/" + c.Stash); err != nil {
				continue
			}
		}
		list = append(list, c)
	}
	return list
}

// readJournal returns all that the journal tells of, and how long it is up to
// the end of its last whole line.
func readJournal(session *os.Root) (all []Finding, size int64, err error) {
	b, err := state.ReadFile(session, JournalName, maxJournal)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, 0, nil
	}
	if err != nil {
		return nil, 0, err
	}
	all, err = ParseJournal(string(b))
	return all, int64(bytes.LastIndexByte(b, '\n') + 1), err
}

// A Lost is a file, or a directory of such, that was in a private directory.
type Lost struct {
	Path  string // where the command saw it
	Dir   bool
	Files int
	Size  int64
	More  bool   // than was counted
	Kept  string // its name in the session's directory; "" where it was too large
}
