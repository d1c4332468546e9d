//go:build linux || darwin

package homes

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/internal/state"
	"github.com/pccrun/pccrun/profiles"
)

// Names in the directory of a home.
const (
	homeName   = "home"   // what stands at ~
	asideName  = "aside"  // what was in the way, or must not be there in the next run
	recordName = "record" // a [Record]
	lockName   = "lock"   // held shared by runs, exclusively by who seeds or removes it
)

// A Home is a home that is open, and locked: nobody removes it. The zero value is none.
type Home struct {
	Path     string   // of what stands at ~: absolute, without links
	Dev, Ino uint64   // of it, as stat(2) has them
	Record   Record   // beside it
	Alone    bool     // no other run uses it, until [Home.Share]
	Notes    []string // what the user should hear
	Aside    []string // what was moved aside, relative to ~

	Layers map[string]string // by directory of the workspace, where lies what earlier runs left in it

	logins      map[string]stamp // how they stood when the run began
	beside      map[string]int   // as root, the directories that hold them
	fd, asideFD int
	root        *os.Root // of its directory
	lock        *os.File
}

// Open opens the home of a workspace and a profile, and makes it where there is none. It waits
// for whoever seeds it.
func Open(stateDir, workspace, profile, name string) (*Home, error) {
	w, err := Identify(workspace)
	if err != nil {
		return nil, err
	}
	dir := filepath.Join(stateDir, DirName, Key(workspace, profile))
	var notes []string
	for range 16 {
		h := &Home{fd: -1, asideFD: -1}
		if h.root, err = state.Open(dir, workspace); err != nil {
			return nil, err
		}
		again := false
		if err = h.hold(); err == nil {
			again, err = h.begin(dir, w, profile, name)
		}
		if err == nil && !again {
			h.Notes = append(notes, h.Notes...)
			return h, nil
		}
		if again && err == nil {
			notes = h.Notes
		}
		h.Close()
		if err != nil {
			return nil, fmt.Errorf("open the home of %s: %w", quoted(workspace), err)
		}
	}
	return nil, fmt.Errorf("open the home of %s: it was removed repeatedly by another process", quoted(workspace))
}

// For opens the persistent home of a policy in a workspace.
func For(stateDir, workspace string, p *profiles.Policy) (*Home, error) {
	variant := ""
	if p.NoLogin {
		variant = NoLogin
	}
	source := p.Source
	if one := "built-in " + p.Profile; slices.Contains(p.Layers, one) {
		source = one // a profile of the user's in its place adds to it: `pccrun profile allow` does not give an agent another home
	}
	return Open(stateDir, workspace, source+variant, p.Profile+variant)
}

// hold takes the lock: for itself, or else with other runs.
func (h *Home) hold() error {
	var err error
	if h.lock, err = h.root.OpenFile(lockName, os.O_RDWR|os.O_CREATE|unix.O_NONBLOCK, 0o600); err != nil {
		return err
	}
	if err = state.Flock(h.lock, unix.LOCK_EX|unix.LOCK_NB); err == nil {
		h.Alone = true
		return nil
	}
	if err != unix.EWOULDBLOCK {
		return err
	}
	return state.Flock(h.lock, unix.LOCK_SH)
}

// begin reads the record, or makes one. A home of another directory is put by: then it reports
// that all begins again, as where it was removed before we had the lock.
func (h *Home) begin(dir string, w Workspace, profile, name string) (again bool, err error) {
	now, err := os.Stat(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return true, nil
	}
	ours, e := h.root.Stat(".")
	if err = errors.Join(err, e); err != nil {
		return false, err
	}
	if !os.SameFile(now, ours) {
		return true, nil
	}
	h.Record, err = readRecord(h.root)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		h.Record = Record{Schema: Schema, Workspace: w, Profile: profile, Name: name, Created: time.Now()}
	case err != nil || !h.Record.same(w, profile):
		why := "for a directory that was replaced"
		if err != nil {
			why = "without a record: " + err.Error()
		} else if h.Record.Schema != Schema {
			why = "of another version of pccrun"
		}
		h.Notes = append(h.Notes, "the last home was "+why+"; this run starts with a new home; pccrun home list lists the old one")
		return true, os.Rename(dir, dir+"-"+strconv.FormatInt(time.Now().UnixNano(), 36))
	}
	h.Record.Used = time.Now()
	if err := h.open(); err != nil {
		return false, err
	}
	return false, save(h.root, recordName, h.Record)
}

// open opens the directories, and makes them.
func (h *Home) open() error {
	for _, d := range [...]struct {
		name string
		fd   *int
	}{{homeName, &h.fd}, {asideName, &h.asideFD}} {
		if err := h.root.Mkdir(d.name, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		top, err := h.root.Open(".")
		if err != nil {
			return err
		}
		*d.fd, err = open(int(top.Fd()), d.name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW)
		if err == unix.EACCES { // the command may close what is its own
			if err = h.root.Chmod(d.name, 0o700); err == nil {
				*d.fd, err = open(int(top.Fd()), d.name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW)
			}
		}
		top.Close()
		if err != nil {
			return &fs.PathError{Op: "open", Path: filepath.Join(h.root.Name(), d.name), Err: err}
		}
	}
	if err := unix.Fchmod(h.fd, 0o700); err != nil {
		return &fs.PathError{Op: "chmod", Path: h.Path, Err: err}
	}
	var st unix.Stat_t
	if err := unix.Fstat(h.fd, &st); err != nil {
		return err
	}
	dir, err := filepath.EvalSymlinks(h.root.Name())
	h.Path, h.Dev, h.Ino = filepath.Join(dir, homeName), uint64(st.Dev), st.Ino
	return err
}

// Usage returns what the home takes on the disk, as far as it can be looked at.
func (h *Home) Usage() int64 {
	bytes, _ := size(h.root)
	return bytes
}

// Share lets other runs use the home too. Whoever waits to remove it comes first.
func (h *Home) Share() error {
	if !h.Alone {
		return nil
	}
	h.Alone = false
	return state.Flock(h.lock, unix.LOCK_SH)
}

// Close gives the home up.
func (h *Home) Close() {
	for _, fd := range [...]int{h.fd, h.asideFD} {
		if fd >= 0 {
			unix.Close(fd)
		}
	}
	if h.lock != nil {
		h.lock.Close()
	}
	if h.root != nil {
		h.root.Close()
	}
}

// Clear moves away what an earlier run has left under one of [profiles.StartupFiles], and removes the empty
// files on which one has mounted something: links that report searches, for one. It does nothing where
// another run uses the home.
func (h *Home) Clear() error {
	if !h.Alone {
		return nil
	}
	if err := h.keepGitConfig(); err != nil {
		return err
	}
	for _, name := range profiles.StartupFiles {
		if err := h.clear(name); err != nil && err != unix.ENOENT {
			return fmt.Errorf("move %s out of the home: %w", name, err)
		}
	}
	text, err := state.ReadFile(h.root, stubsName, 1<<20)
	if err == nil {
		err = h.root.Remove(stubsName)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, name := range append(profiles.SearchedPlaces(), strings.Split(string(text), "\x00")...) {
		dir, err := open(h.fd, path.Dir(name), unix.O_RDONLY|unix.O_DIRECTORY)
		if err != nil {
			continue
		}
		var st unix.Stat_t
		if unix.Fstatat(dir, path.Base(name), &st, unix.AT_SYMLINK_NOFOLLOW) == nil && st.Mode&unix.S_IFMT == unix.S_IFREG && st.Size == 0 {
			_ = unix.Unlinkat(dir, path.Base(name), 0)
		}
		unix.Close(dir)
	}
	return nil
}

// clear moves one name aside, and the link that leads to it, if there is one on the way.
func (h *Home) clear(name string) error {
	at, dir := h.fd, path.Dir(name)
	if dir != "." {
		var err error
		if at, err = open(h.fd, dir, unix.O_RDONLY|unix.O_DIRECTORY); err == unix.ENOENT {
			return nil
		} else if err != nil {
			at, err = h.dir(dir)
		}
		if err != nil {
			return err
		}
		defer unix.Close(at)
	}
	var st unix.Stat_t
	if unix.Fstatat(at, path.Base(name), &st, unix.AT_SYMLINK_NOFOLLOW) != nil {
		return nil
	}
	return h.aside(at, path.Base(name), name)
}

// A Need is a name that must stand in a home for a mount.
type Need struct {
	Name string // relative
	Dir  bool
	Link string // what the link of that name holds, "" for none
}

// Prepare makes what lacks of the names, and moves aside what is in their way.
func (h *Home) Prepare(needs []Need) error {
	for _, n := range needs {
		var err error
		switch {
		case n.Link != "":
			err = h.link(n.Name, n.Link)
		case n.Dir:
			var fd int
			if fd, err = h.dir(n.Name); err == nil {
				unix.Close(fd)
			}
		default:
			err = h.file(n.Name)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// stubsName is the list of the empty files that were made for mounts: the next run that is alone removes them, since one
// in which nothing is mounted there would find an empty file.
const stubsName = "stubs"

// file makes a file for something to be mounted on, and lists it.
func (h *Home) file(name string) error {
	dir, err := h.dir(path.Dir(name))
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	return h.make(dir, name, func(st *unix.Stat_t, base string) bool { return st.Mode&unix.S_IFMT == unix.S_IFREG }, func(base string) error {
		fd, err := unix.Openat(dir, base, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
		if err != nil {
			return err
		}
		unix.Close(fd)
		list, err := h.root.OpenFile(stubsName, os.O_WRONLY|os.O_CREATE|os.O_APPEND|unix.O_NOFOLLOW, 0o600)
		if err != nil {
			return err
		}
		_, err = list.WriteString(name + "\x00")
		return errors.Join(err, list.Close())
	})
}

// link makes a symbolic link.
func (h *Home) link(name, text string) error {
	dir, err := h.dir(path.Dir(name))
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	is := func(st *unix.Stat_t, base string) bool {
		b := make([]byte, len(text)+1)
		n, err := unix.Readlinkat(dir, base, b)
		return err == nil && string(b[:n]) == text
	}
	return h.make(dir, name, is, func(base string) error { return unix.Symlinkat(text, dir, base) })
}

// make makes a name in a directory unless what stands there will do. Another run may do the
// same.
func (h *Home) make(dir int, name string, is func(*unix.Stat_t, string) bool, do func(base string) error) error {
	base := path.Base(name)
	for range 8 {
		var st unix.Stat_t
		err := unix.Fstatat(dir, base, &st, unix.AT_SYMLINK_NOFOLLOW)
		if err == nil {
			if is(&st, base) {
				return nil
			}
			err = h.aside(dir, base, name)
		}
		if err == nil || err == unix.ENOENT {
			err = do(base)
		}
		if err != unix.EEXIST && err != unix.ENOENT {
			if err != nil {
				err = fmt.Errorf("make %s in the home: %w", quoted(name), err)
			}
			return err
		}
	}
	return fmt.Errorf("make %s in the home: %w", quoted(name), errWay)
}

// Shown are the names that stand in a directory of the home, those that begin with a dot left
// out; nil if there is none.
func (h *Home) Shown(dir string) (names []string) {
	fd, err := unix.FcntlInt(uintptr(h.fd), unix.F_DUPFD_CLOEXEC, 0) // who is not root any more cannot open it
	if dir != "." && err == nil {
		unix.Close(fd)
		fd, err = open(h.fd, dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW)
	}
	if err != nil {
		return nil
	}
	f := os.NewFile(uintptr(fd), dir)
	defer f.Close()
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return nil
	}
	all, _ := f.Readdirnames(4096)
	for _, name := range all {
		if name[0] != '.' {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

func readRecord(root *os.Root) (r Record, err error) {
	if err = load(root, recordName, &r); err == nil && !strings.HasPrefix(r.Workspace.Path, "/") {
		err = errors.New("no path")
	}
	return r, err
}

// load reads a record that stands beside a home.
func load(root *os.Root, name string, into any) error {
	text, err := state.ReadFile(root, name, 2*maxFile)
	if err == nil {
		err = json.Unmarshal(text, into)
	}
	return err
}

// save replaces one.
func save(root *os.Root, name string, record any) error {
	text, err := json.Marshal(record)
	if err == nil {
		err = state.WriteFile(root, name, text, state.Fast)
	}
	return err
}
