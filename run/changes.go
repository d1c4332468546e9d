package run

import (
	"errors"
	"os"

	"github.com/pccrun/pccrun/workspace"
	"github.com/pccrun/pccrun/workspace/changes"
)

// What a run changed in its overlays, or in a copy of the workspace, as values: see package
// changes.
type (
	Change        = changes.Change
	ChangeSet     = changes.Set
	ChangedEntry  = changes.Entry
	ChangesRecord = changes.Record
	Selection     = changes.Selection
	Outcome       = changes.Outcome
	ConflictError = changes.ConflictError
)

// The kinds of a [ChangedEntry].
const (
	ChangedDir  = workspace.Dir
	ChangedFile = workspace.File
	ChangedLink = workspace.Link
)

// Equal compares two files of one size to their ends.
func Equal(a, b *os.File) (bool, error) { return changes.Equal(a, b) }

// SnapshotRecord reads what a snapshot is of.
func SnapshotRecord(snapshot *os.Root) (*ChangesRecord, error) { return changes.ReadRecord(snapshot) }

// EmptySnapshot removes what a snapshot holds, and closes it.
func EmptySnapshot(snapshot *os.Root) error {
	return errors.Join(changes.RemoveUpper(snapshot), snapshot.Close())
}
