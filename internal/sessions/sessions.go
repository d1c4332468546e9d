// Package sessions keeps one directory for each run, below pccrun's state
// directory, and lets other processes see, end and clear away runs.
//
//	sessions/20261121T120000Z-1f2e3d4c/
//	    session.json   what runs ([Info]); replaced as a whole
//	    lock           held by the launcher while it lives: flock(2)
//	    events.jsonl   package events
//	    log            the command's output, where it was to be kept
//	    …              what other packages keep there
//
// It promises:
//   - a launch waits for none of it: the directory is made once the run has
//     lasted a moment, or somebody needs it ([Session.Dir]);
//   - it is removed at exit unless something in it is wanted ([Session.Keep]);
//   - a launcher that crashed is seen by its lock, whatever its pid is now;
//   - a signal goes to the process that was meant, or to none: [Home.Kill];
//   - what another version of pccrun wrote is shown and left alone;
//   - nothing that stands in there is followed, trusted or able to block.
package sessions

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/pccrun/pccrun/internal/events"
	"github.com/pccrun/pccrun/internal/state"
)

// Schema is the version of session.json that this package writes, and the
// only one that it acts upon.
const Schema = 1

// The names in a session's directory that this package knows.
const (
	infoName   = "session.json"
	lockName   = "lock"
	EventsName = "events.jsonl"
	LogName    = "log"
	// TerminalName is the socket of what holds the terminal of a detached run, with the time when that last printed something.
	TerminalName = "terminal"
	ScreenName   = "screen" // the end of what a run printed that had no terminal of the user's: see package detach

	// UnfetchedName stands while a cloud has changes of the run's that are not here: see package remote.
	UnfetchedName = "remote.json"

	// NoDownloadName stands where the user wants nothing downloaded when the run ends.
	NoDownloadName = "no-download"

	// KeptName stands while a sandbox of the run's stands for the next one: see package remote.
	KeptName = "kept.json"
)

// A State says what has become of a session.
type State string

const (
	Running State = "running"
	Ended   State = "ended"
	Crashed State = "crashed" // the launcher is gone, and did not say goodbye
	Unknown State = "unknown" // another version wrote it, or nobody can read it
)

// An Entry is a session as others see it.
type Entry struct {
	Info
	State State  `json:"state"`
	Cause string `json:"cause,omitempty"` // of Unknown

	Unfetched bool `json:"-"` // no run goes on, and its cloud has changes that were not downloaded
	Standing  bool `json:"-"` // no run goes on, and its sandbox stands for the next one
}

// KeepDetached is the reason for which the directory of a run is kept that was not to end with its terminal.
const KeepDetached = "detached"

// Detached reports whether a session was started so.
func (e Entry) Detached() bool { return slices.Contains(e.Kept, KeepDetached) }

// Home is the directory that holds the sessions.
type Home struct{ dir string }

// In returns the home of the sessions below pccrun's state directory
// ([state.Dirs]).
func In(stateDir string) Home { return Home{filepath.Join(stateDir, "sessions")} }

// Check returns an error that wraps [state.ErrUnsafe] if the sessions would
// lie in the workspace. It makes nothing.
func (h Home) Check(workspace string) error { return state.Outside(h.dir, workspace) }

// NewID returns an id for a run that starts at the time given.
func NewID(at time.Time) string {
	return fmt.Sprintf("%s-%08x", at.UTC().Format(idTime), rand.Uint32())
}

const idTime = "20060102T150405Z"

// validID reports whether name is what [NewID] returns.
func validID(name string) bool {
	stamp, hex, ok := strings.Cut(name, "-")
	if !ok || len(hex) != 8 || strings.Trim(hex, "0123456789abcdef") != "" {
		return false
	}
	return startOfID(name).Format(idTime) == stamp
}

// startOfID returns the second that an id names, or the zero time.
func startOfID(id string) time.Time {
	stamp, _, _ := strings.Cut(id, "-")
	at, _ := time.Parse(idTime, stamp)
	return at
}

// Usage is what the processes of a sandbox use at a moment.
type Usage struct {
	Processes int
	Threads   int
	CPU       time.Duration // of those that live
	Memory    int64         // bytes resident; pages that several share count for each
	Read      int64         // bytes from storage, those of children that have ended included
	Written   int64         // bytes to storage, likewise
}

// open opens the directory, and returns the ids in it, sorted, which is by time. Where there is none, root is nil.
func (h Home) open() (root *os.Root, ids []string, err error) {
	root, all, err := openDirectory(h.dir)
	return root, onlyIDs(all), err
}

func onlyIDs(names []string) []string {
	return slices.DeleteFunc(names, func(name string) bool { return !validID(name) })
}

// openDirectory opens a directory of the state directory's, and returns the names in it, sorted. Where there is none,
// root is nil.
func openDirectory(path string) (root *os.Root, all []string, err error) {
	if root, err = state.OpenExisting(path, ""); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
		return nil, nil, err
	}
	if all, err = names(root); err != nil {
		root.Close()
		return nil, nil, err
	}
	return root, all, nil
}

// List returns all sessions, the oldest first. None is no error.
func (h Home) List() ([]Entry, error) {
	root, ids, err := h.open()
	if root == nil {
		return nil, err
	}
	defer root.Close()
	var list []Entry
	for _, id := range ids {
		e, err := look(root, id)
		if errors.Is(err, fs.ErrNotExist) {
			continue // it begins or ends at this moment, or never began: see GC
		}
		if err != nil {
			e = Entry{Info: Info{ID: id, Started: startOfID(id)}, State: Unknown, Cause: err.Error()}
		}
		list = append(list, e)
	}
	// Ids are by the second.
	slices.SortStableFunc(list, func(a, b Entry) int { return a.Started.Compare(b.Started) })
	return list, nil
}

// Newest returns the session that began last of those that want takes; ok is
// false if there is none. It looks at no older one.
func (h Home) Newest(want func(Entry) bool) (newest Entry, ok bool, err error) {
	root, ids, err := h.open()
	if root == nil {
		return Entry{}, false, err
	}
	defer root.Close()
	for _, id := range slices.Backward(ids) {
		if ok && startOfID(id).Before(startOfID(newest.ID)) {
			break // ids are by the second
		}
		e, err := look(root, id)
		if err != nil || !want(e) {
			continue // it begins or ends at this moment, or is another version's
		}
		if !ok || e.Started.After(newest.Started) {
			newest, ok = e, true
		}
	}
	return newest, ok, nil
}

// names returns the names in a directory, sorted.
func names(root *os.Root) ([]string, error) {
	dir, err := root.Open(".")
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	all, err := dir.Readdirnames(-1)
	slices.Sort(all)
	return all, err
}

// maxInfo bounds session.json: an argv may be long.
const maxInfo = 4 << 20

// look reads one session. The error is [fs.ErrNotExist] if it has no
// session.json.
func look(root *os.Root, id string) (Entry, error) {
	dir, err := openDir(root, id)
	if err != nil {
		return Entry{}, err
	}
	defer dir.Close()
	data, err := state.ReadFile(dir, infoName, maxInfo)
	if err != nil {
		return Entry{}, err
	}
	e := Entry{}
	if e.Info, err = parseInfo(data); err != nil {
		return Entry{}, fmt.Errorf("%s: %w", infoName, err)
	}
	if e.ID != id {
		return Entry{}, fmt.Errorf("%s: it is about session %q", infoName, events.Clean(e.ID))
	}
	locked, err := state.Locked(dir, lockName)
	switch {
	case err != nil:
		return Entry{}, err
	case locked:
		e.State = Running
	case e.Ended.IsZero():
		e.State = Crashed
	default:
		e.State = Ended
	}
	if !locked && e.Resource != nil {
		_, err := dir.Lstat(UnfetchedName)
		e.Unfetched, e.Standing = err == nil, e.Resource.stands(dir) && time.Now().Before(e.Resource.Until)
	}
	if e.Resource != nil && !e.Standing {
		e.Resource.Until = time.Time{}
		if !locked {
			e.Resource.Hourly = 0
		}
	}
	return e, nil
}

// What [Home.Kill] and [Home.Find] may wrap.
var (
	ErrNoSession = errors.New("no such session")
	ErrGone      = errors.New("the process has ended")
	ErrAlive     = errors.New("it still runs")
	ErrElsewhere = errors.New("it is in another pid namespace or on another machine")
)

// Find returns the session that name means: its id, the start of it, the
// start of the eight digits at its end, or "" for the newest. A name that
// could mean two is an error.
func (h Home) Find(name string) (Entry, error) {
	list, err := h.List()
	if err != nil {
		return Entry{}, err
	}
	var found []Entry
	for _, e := range list {
		_, hex, _ := strings.Cut(e.ID, "-")
		if strings.HasPrefix(e.ID, name) || strings.HasPrefix(hex, name) {
			found = append(found, e)
		}
	}
	switch {
	case len(found) == 0:
		return Entry{}, fmt.Errorf("%w: %q", ErrNoSession, name)
	case len(found) > 1 && name != "":
		return Entry{}, fmt.Errorf("session %q: matches %d sessions, such as %s and %s", name, len(found), found[0].ID, found[1].ID)
	}
	return found[len(found)-1], nil
}

// Open returns the directory of a session. It is not kept from being removed.
func (h Home) Open(id string) (*os.Root, error) {
	if !validID(id) {
		return nil, fmt.Errorf("%w: %q", ErrNoSession, id)
	}
	root, err := state.OpenExisting(h.dir, "")
	if err != nil {
		return nil, err
	}
	defer root.Close()
	return openDir(root, id)
}

// openDir opens a session's directory. The look before it is there because a
// FIFO of the name would block the opening, and a link be followed.
func openDir(root *os.Root, id string) (*os.Root, error) {
	info, err := root.Lstat(id)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return nil, errors.New("not a directory")
	}
	return root.OpenRoot(id)
}
