//go:build unix

package sessions

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/pccrun/pccrun/internal/state"
)

// An Unfinished is an unfinished-run record: a file that says what has to be checked after a run, and that its launcher
// holds by flock(2) while it lives. Whoever finds one that nobody holds makes that check ([Home.Recover]).
type Unfinished struct{ file *os.File }

// State is pccrun's state directory, in which the sessions lie.
func (h Home) State() string { return filepath.Dir(h.dir) }

// recordName is that of this process's record: the session's id and the launcher's pid.
func recordName(id string) string { return id + "." + strconv.Itoa(os.Getpid()) }

// Records is the directory of the unfinished-run records, opened once for what a launch does there: to open and to judge it
// takes longer than all of that.
type Records struct {
	root *os.Root
	list []record
}

// OpenRecords opens the directory, which it makes if need be. The directory is judged before a name in it is used: what
// others can write to, or a link leads to, would have this process open what they choose.
func (h Home) OpenRecords() (*Records, error) {
	root, list, _, err := h.records("")
	if root == nil && err == nil {
		root, err = state.Open(h.unfinished(), "")
	}
	if err != nil {
		return nil, err
	}
	return &Records{root, list}, nil
}

// Close closes the directory.
func (r *Records) Close() error { return r.root.Close() }

// Earliest is [Home.Earliest] of the time when the directory was opened.
func (r *Records) Earliest() time.Time { return earliest(r.list) }

// Write writes the record of a run that begins. Each launch waits for it.
func (r *Records) Write(id string, text []byte) (*Unfinished, error) {
	if len(text) > maxRecord {
		return nil, fmt.Errorf("%d bytes: the limit of an unfinished-run record is %d", len(text), maxRecord)
	}
	f, err := r.root.OpenFile(recordName(id), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	u := &Unfinished{f}
	if err = state.Flock(f, syscall.LOCK_EX); err == nil { // whoever looks for records has the lock for a moment
		_, err = f.Write(text)
	}
	if err != nil {
		return nil, errors.Join(err, u.Done())
	}
	return u, nil
}

// WriteUnfinished is [Records.Write] for who has nothing else to do there.
func (h Home) WriteUnfinished(id string, text []byte) (*Unfinished, error) {
	records, err := h.OpenRecords()
	if err != nil {
		return nil, err
	}
	defer records.Close()
	return records.Write(id, text)
}

// Add appends to what was written.
func (u *Unfinished) Add(text string) error {
	_, err := u.file.WriteString(text)
	return err
}

// Done removes the record. A launcher that was root and is not any more can
// only empty it: the next one that is root removes it.
func (u *Unfinished) Done() error {
	err := os.Remove(u.file.Name())
	if errors.Is(err, fs.ErrPermission) {
		err = u.file.Truncate(0)
	}
	return errors.Join(err, u.file.Close())
}

// many is how many records are tried one by one. Among more, those whose launcher
// seems to live are passed over.
const many = 64

// ErrOtherVersion is for a record that only another version of pccrun can read, which checks that run. It is reported once.
var ErrOtherVersion = errors.New("another version of pccrun has to check this run: it wrote the unfinished-run record")

// maxRecord bounds a record.
const maxRecord = 64 << 20

// A record is an unfinished-run record as it is found.
type record struct {
	file, id string
	pid      int
}

// records lists those of the directory, which it opens, and says whether it has the mark of a workspace ([Home.Hold]).
// Where there is no directory, root is nil.
func (h Home) records(workspace string) (root *os.Root, list []record, held bool, err error) {
	root, all, err := openDirectory(h.unfinished())
	for _, name := range all {
		held = held || name == heldPrefix+markName(workspace)
		id, pid, _ := strings.Cut(name, ".")
		n, err := strconv.Atoi(pid)
		if err == nil && (validID(id) || id == "slot") { // "slot": of a version that used its files again, under such names
			list = append(list, record{name, id, n})
		}
	}
	return root, list, held, err
}

// Recover calls check for each record whose launcher is gone, and removes it if
// that succeeds. It reports whether [Home.Hold] has marked a workspace.
func (h Home) Recover(workspace string, check func(id, text string) error) (held bool, err error) {
	root, list, held, err := h.records(workspace)
	if root == nil {
		return held, err
	}
	defer root.Close()
	var errs []error
	for _, r := range list {
		if len(list) > many && syscall.Kill(r.pid, 0) == nil {
			continue
		}
		if err := r.recover(root, check); err != nil {
			errs = append(errs, fmt.Errorf("session %s: %w", r.id, err))
		}
	}
	return held, errors.Join(errs...)
}

// recover has the check made that one record asks for, unless its launcher lives or somebody else is at it.
func (r record) recover(root *os.Root, check func(id, text string) error) error {
	f, free, err := r.open(root)
	if f == nil || err != nil {
		return err
	}
	defer f.Close()
	if !free {
		return nil
	}
	if _, err := root.Lstat(r.file); err != nil {
		return nil // removed before we had the lock
	}
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() || info.Size() > maxRecord {
		return fmt.Errorf("%s: not a record of a run", r.file)
	}
	if info.Size() == 0 && time.Since(info.ModTime()) < time.Second {
		return nil // made this moment, and not held yet
	}
	text, err := io.ReadAll(f)
	if err == nil && len(text) > 0 {
		err = check(r.id, string(text))
	}
	switch {
	case errors.Is(err, ErrOtherVersion) && !firstReport(root, r.file, info.ModTime()):
		return nil
	case err != nil:
		return err
	}
	return root.Remove(r.file)
}

// firstReport marks a record as reported, and reports whether it was not.
func firstReport(records *os.Root, name string, written time.Time) bool {
	f, err := records.OpenFile(reportedPrefix+name+"-"+strconv.FormatInt(written.UnixNano(), 36), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err == nil {
		f.Close()
	}
	return !errors.Is(err, fs.ErrExist)
}

// open opens a record, and reports whether nobody holds it; then the caller does. It returns nil for one that is gone.
func (r record) open(root *os.Root) (f *os.File, free bool, err error) {
	f, err = root.OpenFile(r.file, os.O_RDWR|syscall.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, err
	}
	return f, state.Flock(f, syscall.LOCK_EX|syscall.LOCK_NB) == nil, nil
}

// Hold marks a workspace of which sessions hold what its next run is to have, or takes the mark away. It lies beside the
// unfinished-run records, through which each launch looks anyway.
func (h Home) Hold(workspace string, held bool) error {
	root, err := state.Open(h.unfinished(), workspace)
	if err != nil {
		return err
	}
	defer root.Close()
	name := heldPrefix + markName(workspace)
	if held {
		f, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE, 0o600)
		if err != nil {
			return err
		}
		return f.Close()
	}
	if err = root.Remove(name); errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return err
}

// Earliest returns when the first of the runs began that have unfinished-run records, but for
// this process's; the zero time if there is none. Most of them go on.
func (h Home) Earliest() time.Time {
	root, list, _, _ := h.records("")
	if root != nil {
		root.Close()
	}
	return earliest(list)
}

func earliest(list []record) (at time.Time) {
	for _, r := range list {
		if start := startOfID(r.id); !start.IsZero() && r.pid != os.Getpid() && (at.IsZero() || start.Before(at)) {
			at = start
		}
	}
	return at
}

// EachUnfinished calls yield with each unfinished-run record of another launcher that lives.
func (h Home) EachUnfinished(yield func(id, text string) error) error {
	root, list, _, err := h.records("")
	if root == nil {
		return err
	}
	defer root.Close()
	for _, r := range list {
		if r.pid == os.Getpid() {
			continue
		}
		text, err := r.readHeld(root)
		if err != nil {
			return fmt.Errorf("session %s: %w", r.id, err)
		}
		if text == "" {
			continue
		}
		if err := yield(r.id, text); err != nil {
			return err
		}
	}
	return nil
}

// readHeld reads a record whose launcher lives; "" for one that nobody holds.
func (r record) readHeld(root *os.Root) (string, error) {
	f, free, err := r.open(root)
	if f == nil || err != nil {
		return "", err
	}
	defer f.Close()
	if free {
		return "", nil
	}
	text, err := io.ReadAll(io.LimitReader(f, maxRecord+1))
	if err == nil && len(text) > maxRecord {
		err = fmt.Errorf("%s: larger than %d bytes", r.file, maxRecord)
	}
	return string(text), err
}

// Inherit returns the directory of a session whose launcher is gone, and makes
// it if there never was one.
func (h Home) Inherit(id string) (*os.Root, error) {
	if !validID(id) {
		return nil, fmt.Errorf("%w: %q", ErrNoSession, id)
	}
	root, err := state.Open(h.dir, "")
	if err != nil {
		return nil, err
	}
	defer root.Close()
	if err := root.Mkdir(id, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	return openDir(root, id)
}

// EndKilled writes down that a session whose launcher is gone has ended, and why its
// directory is kept. Workspace and start are for a session that had not yet
// written down its own.
func (h Home) EndKilled(id, workspace string, started time.Time, why string) error {
	dir, err := h.Inherit(id)
	if err != nil {
		return err
	}
	defer dir.Close()
	info := Info{ID: id, Started: started.UTC(), Workspace: workspace}
	if data, err := state.ReadFile(dir, infoName, maxInfo); err == nil {
		if old, err := parseInfo(data); err == nil {
			info = old
		}
	}
	if info.Ended.IsZero() {
		info.Ended, info.Code = time.Now().UTC(), 128+int(syscall.SIGKILL)
	}
	if !slices.Contains(info.Kept, why) {
		info.Kept = append(info.Kept, why)
	}
	return state.WriteFile(dir, infoName, info.append(nil), state.Fast)
}
