//go:build unix

package sessions

import (
	"cmp"
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

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/internal/state"
)

// An Unfinished is the unfinished-run record: a file beside the
// sessions that says what must be done, held by flock(2) while the launcher
// lives. Whoever finds one that nobody holds does it ([Home.Settle]).
//
// The files of a few are kept and used again, empty in between: ext4 looks
// through all that was removed in the last minutes before it makes a new file,
// so that one for each launch would make launches slower the more there are.
type Unfinished struct {
	file *os.File
	path string // to be removed when it is paid; "" for one that is kept
}

// slots is how many files are kept, and slotTries how many of them a launch
// tries: it does not look long for one that no other holds.
const (
	slots     = 8
	slotTries = 3
)

// slotName is the prefix of the names of those that are kept. The first line of
// such a file is the title; of others it is the name.
const slotName = "slot."

// title is a session's id and its launcher's pid.
func title(id string) string { return id + "." + strconv.Itoa(os.Getpid()) }

// maxTitle bounds the first line.
const maxTitle = 128

// State is pccrun's state directory, in which the sessions lie.
func (h Home) State() string { return filepath.Dir(h.dir) }

// Owe writes down what is owed if this process does not live to pay. It stands
// in the way of each launch.
func (h Home) Owe(id string, text []byte) (*Unfinished, error) {
	if len(text) > maxDebt-maxTitle {
		return nil, fmt.Errorf("%d bytes: the limit of an unfinished-run record is %d", len(text), maxDebt-maxTitle)
	}
	// The directory is judged before a name in it is used: what others can write
	// to, or a link leads to, would have this process open what they choose.
	root, err := state.OpenExisting(h.owed(), "")
	if errors.Is(err, fs.ErrNotExist) {
		root, err = state.Open(h.owed(), "")
	}
	if err != nil {
		return nil, err
	}
	defer root.Close()
	d, err := takeSlot(root, id)
	if d == nil && err == nil {
		d, err = own(root, id)
	}
	if err != nil {
		return nil, err
	}
	if _, err = d.file.Write(text); err != nil {
		return nil, errors.Join(err, d.Done())
	}
	return d, nil
}

// takeSlot takes a file that is kept and that nobody holds, if it finds one.
func takeSlot(root *os.Root, id string) (*Unfinished, error) {
	for try := range slotTries {
		name := slotName + strconv.Itoa((os.Getpid()+try)%slots)
		f, err := root.OpenFile(name, os.O_RDWR|os.O_CREATE|syscall.O_NONBLOCK, 0o600)
		if err != nil {
			return nil, err
		}
		if state.Flock(f, syscall.LOCK_EX|syscall.LOCK_NB) == nil && vacant(root, f, name) {
			if _, err = f.WriteString(title(id) + "\n"); err == nil {
				return &Unfinished{file: f}, nil
			}
			err = errors.Join(err, f.Truncate(0))
		}
		f.Close()
		if err != nil {
			return nil, err
		}
	}
	return nil, nil
}

// vacant reports whether nothing is owed by a file that we hold: what another
// launcher owed and did not pay stays.
func vacant(root *os.Root, f *os.File, name string) bool {
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() || info.Size() > 0 {
		return false
	}
	now, err := root.Lstat(name)
	return err == nil && os.SameFile(info, now) // else it is a link, or was removed before we had the lock
}

// own makes a file for one unfinished-run record alone.
func own(root *os.Root, id string) (*Unfinished, error) {
	f, err := root.OpenFile(title(id), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	d := &Unfinished{file: f, path: f.Name()}
	if err := state.Flock(f, syscall.LOCK_EX); err != nil { // whoever looks for records has the lock for a moment
		return nil, errors.Join(fmt.Errorf("flock %s: %w", f.Name(), err), d.Done())
	}
	return d, nil
}

// Add appends to what was written.
func (d *Unfinished) Add(text string) error {
	_, err := d.file.WriteString(text)
	return err
}

// Paid takes the unfinished-run record away. A launcher that was root and is not any more can
// only empty a file of its own: the next one that is root finds it so.
func (d *Unfinished) Done() error {
	err := fs.ErrPermission
	if d.path != "" {
		err = os.Remove(d.path)
	}
	if errors.Is(err, fs.ErrPermission) {
		err = d.file.Truncate(0)
	}
	return errors.Join(err, d.file.Close())
}

// many is how many unfinished-run records are tried one by one. Among more, those whose launcher
// seems to live are passed over.
const many = 64

// maxDebt bounds the file.
const maxDebt = 64 << 20

// pending lists the files of the directory that owe something, and says whether it holds a crowd. Where nothing is owed,
// as most launches find it, it costs an open and a look at each.
func (h Home) pending() (names []string, crowd bool, err error) {
	fd, err := unix.Open(h.owed(), unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err == unix.ENOENT {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, &fs.PathError{Op: "open", Path: h.owed(), Err: err}
	}
	dir := os.NewFile(uintptr(fd), h.owed())
	defer dir.Close()
	if names, err = dir.Readdirnames(-1); err != nil {
		return nil, false, err
	}
	crowd = len(names) > many
	names = slices.DeleteFunc(names, func(name string) bool {
		var st unix.Stat_t
		err := unix.Fstatat(fd, name, &st, unix.AT_SYMLINK_NOFOLLOW)
		return strings.HasPrefix(name, slotName) && (err == unix.ENOENT || err == nil && st.Size == 0)
	})
	slices.Sort(names)
	return names, crowd, nil
}

// Settle calls pay for each unfinished-run record whose launcher is gone, and takes it away if
// that succeeds. It reports whether [Home.Hold] has marked a workspace.
func (h Home) Settle(workspace string, pay func(id, text string) error) (held bool, err error) {
	names, crowd, err := h.pending()
	mark := heldPrefix + markName(workspace)
	names = slices.DeleteFunc(names, func(name string) bool {
		held = held || name == mark
		return strings.HasPrefix(name, heldPrefix)
	})
	if err != nil || len(names) == 0 {
		return held, err
	}
	root, err := state.OpenExisting(h.owed(), "")
	if err != nil {
		return held, err
	}
	defer root.Close()
	var errs []error
	for _, name := range names {
		if strings.HasPrefix(name, slotName) {
			errs = append(errs, settle(root, name, "", pay))
			continue
		}
		id, pid, _ := strings.Cut(name, ".")
		n, err := strconv.Atoi(pid)
		if !validID(id) || err != nil || crowd && syscall.Kill(n, 0) == nil {
			continue
		}
		errs = append(errs, settle(root, name, id, pay))
	}
	return held, errors.Join(errs...)
}

// Hold marks a workspace of which sessions hold what its next run is to have, or takes the mark away. It lies beside the
// unfinished-run records, through which each launch looks anyway.
func (h Home) Hold(workspace string, held bool) error {
	root, err := state.Open(h.owed(), workspace)
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

// A record is a unfinished-run record as it is found: in which file, whose, and how much of the
// file says so.
type record struct {
	file, id, pid string
	header        int // bytes before the text
}

// others lists the unfinished-run records of other processes. It costs a look at the directory,
// and one into each file that is kept and not empty.
func others(root *os.Root) (list []record, err error) {
	names, err := fs.ReadDir(root.FS(), ".")
	for _, entry := range names {
		r := record{file: entry.Name()}
		title := r.file
		if strings.HasPrefix(r.file, slotName) {
			if title = slotTitle(root, r.file); title == "" {
				continue
			}
			r.header = len(title) + 1
		}
		r.id, r.pid, _ = strings.Cut(title, ".")
		if validID(r.id) && r.pid != strconv.Itoa(os.Getpid()) {
			list = append(list, r)
		}
	}
	return list, err
}

// slotTitle returns the first line of a file that is kept; "" if it has none.
func slotTitle(root *os.Root, name string) string {
	if info, err := root.Lstat(name); err != nil || !info.Mode().IsRegular() || info.Size() == 0 {
		return ""
	}
	f, err := root.Open(name)
	if err != nil {
		return ""
	}
	defer f.Close()
	var b [maxTitle]byte
	n, _ := f.Read(b[:])
	title, _, whole := strings.Cut(string(b[:n]), "\n")
	if !whole {
		return ""
	}
	return title
}

// Earliest returns when the first of the runs began that have unfinished-run records, but for
// this process's; the zero time if there is none. Most of them go on.
func (h Home) Earliest() (at time.Time) {
	if names, _, err := h.pending(); err == nil && len(names) == 0 {
		return at
	}
	root, err := state.OpenExisting(h.owed(), "")
	if err != nil {
		return at
	}
	defer root.Close()
	list, _ := others(root)
	for _, r := range list {
		if start := startOfID(r.id); at.IsZero() || start.Before(at) {
			at = start
		}
	}
	return at
}

// Owed calls yield with each unfinished-run record of another launcher that lives.
func (h Home) EachUnfinished(yield func(id, text string) error) error {
	root, err := state.OpenExisting(h.owed(), "")
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer root.Close()
	list, err := others(root)
	if err != nil {
		return err
	}
	for _, r := range list {
		text, err := readHeld(root, r)
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

// readHeld reads a unfinished-run record whose launcher lives; "" for one that nobody holds.
func readHeld(root *os.Root, r record) (string, error) {
	f, err := root.OpenFile(r.file, os.O_RDWR|syscall.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	defer f.Close()
	if state.Flock(f, syscall.LOCK_EX|syscall.LOCK_NB) == nil {
		return "", nil
	}
	text, err := io.ReadAll(io.LimitReader(f, maxDebt+1))
	if err == nil && len(text) > maxDebt {
		err = fmt.Errorf("%s: larger than %d bytes", r.file, maxDebt)
	}
	return string(text[min(r.header, len(text)):]), err
}

// settle settles one unfinished-run record. Without an id it is one in a file that is kept.
func settle(root *os.Root, name, id string, pay func(id, text string) error) (err error) {
	f, err := root.OpenFile(name, os.O_RDWR|syscall.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // paid this moment
	}
	kept := id == ""
	defer func() {
		if err != nil {
			err = fmt.Errorf("session %s: %w", cmp.Or(id, name), err)
		}
	}()
	if err != nil {
		return err
	}
	defer f.Close()
	if err := state.Flock(f, syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return nil // its launcher lives, or somebody else is at it
	}
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if _, err := root.Lstat(name); err != nil {
		return nil // paid before we had the lock
	}
	if !info.Mode().IsRegular() || info.Size() > maxDebt {
		return fmt.Errorf("%s: not a record of a run", name)
	}
	if !kept && info.Size() == 0 && time.Since(info.ModTime()) < time.Second {
		return nil // made this moment, and not held yet
	}
	data, err := io.ReadAll(f)
	if err != nil {
		return err
	}
	text, begun := string(data), true
	if kept {
		id, text, begun = strings.Cut(text, "\n")
		id, _, _ = strings.Cut(id, ".")
		begun = begun && validID(id) // else its launcher died as it began to write
	}
	if text != "" && begun {
		if err := pay(id, text); err != nil {
			return err
		}
	}
	if kept {
		return f.Truncate(0)
	}
	return root.Remove(name)
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

// Bury writes down that a session whose launcher is gone has ended, and why its
// directory is kept. Workspace and start are for a session that had not yet
// written down its own.
func (h Home) Bury(id, workspace string, started time.Time, why string) error {
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
