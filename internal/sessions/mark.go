package sessions

import (
	"hash/fnv"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/pccrun/pccrun/internal/state"
)

// The last run of a workspace may have left nothing, while an older one is kept. A kept session makes a mark, an
// empty file for its workspace; a run that leaves nothing sets the mark's time, if there is one, which is one
// system call. Where that fails [Home.RanSince] knows less, which is no reason to fail. GC removes the marks of
// workspaces that have no session.

// markPrefix begins their names.
const markPrefix = ".ran-"

func markName(workspace string) string {
	h := fnv.New64a()
	_, _ = h.Write([]byte(workspace))
	return markPrefix + strconv.FormatUint(h.Sum64(), 36)
}

// unfinished is the directory of the unfinished-run records.
func (h Home) unfinished() string { return filepath.Join(filepath.Dir(h.dir), "owed") }

// heldPrefix begins the names, in there, of the marks of [Home.Hold].
const heldPrefix = "held"

// reportedPrefix begins the names, in there, of the marks of records that were reported ([ErrOtherVersion]).
const reportedPrefix = "reported-"

// toldPrefix begins the names of the marks of [Home.Once].
const toldPrefix = ".told-"

// Once reports whether it is asked for the first time of a workspace, as far as GC has left the mark of that. Where none
// can be made it is not.
func (h Home) Once(workspace string) bool {
	root, err := state.Open(h.dir, workspace)
	if err != nil {
		return false
	}
	defer root.Close()
	f, err := root.OpenFile(toldPrefix+markName(workspace), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err == nil {
		f.Close()
	}
	return err == nil
}

// makeMark makes that of a session that is kept.
func makeMark(root *os.Root, i Info) {
	if f, err := root.OpenFile(markName(i.Workspace), os.O_WRONLY|os.O_CREATE, 0o600); err == nil {
		f.Close()
		_ = root.Chtimes(markName(i.Workspace), i.Ended, i.Ended)
	}
}

// setMark says that a run has ended that left nothing.
func (h Home) setMark(workspace string, open *os.File) {
	if open != nil {
		_ = open.Truncate(0) // which sets the time
	} else {
		setTime(filepath.Join(h.dir, markName(workspace)), time.Now())
	}
}

// RanSince reports whether a run of the session's workspace has ended after it, and left nothing.
func (h Home) RanSince(e Entry) bool {
	info, err := os.Lstat(filepath.Join(h.dir, markName(e.Workspace)))
	return err == nil && e.State != Running && info.ModTime().After(e.Started) && info.ModTime().After(e.Ended)
}
