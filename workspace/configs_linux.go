package workspace

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	store "github.com/pccrun/pccrun/internal/state"
	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/workspace/beneath"
	"github.com/pccrun/pccrun/workspace/gitconfig"
	"github.com/pccrun/pccrun/workspace/vcs"
)

// Of each configuration of git that stood the command has a private copy. What git inside makes of that is merged into
// the host's file, key by key, when the run has ended ([gitconfig.Merge]).
//
// The host's file is written in place, under git's own lock. It cannot be replaced: a rename onto it would end the mount
// that covers it in every other run, whose command could then open the new file and write to it. A program that reads the
// file in the moment of the write may see a part of either text; git that writes waits for the lock.
//
// The copies lie in the sandbox's own tmpfs, which is gone when the launcher is killed. So what changes in them is saved
// in the session's directory while the run goes on, and the next pccrun merges that.

// A PrivateConfig is a configuration of git of which the command has a copy.
type PrivateConfig struct {
	Path string // the host's file
	Base []byte // what was handed out
	Now  []byte // what the copy says; nil: nothing else
	// Open opens the directory that holds the copy, and returns the copy's name in it.
	Open func() (dir int, name string, err error) `json:"-"`

	seen unix.Stat_t // the copy as it was last read
}

// PrivateConfigs are the private copies of one run. A nil *PrivateConfigs does nothing.
type PrivateConfigs struct {
	Session string
	List    []*PrivateConfig
	At      func(path string) (dir int, err error) // opens the directory of a host's file; -1, or nil: as the guard does
	Shown   func(path string) bool                 // whether the run was shown a path
}

// Changed reports whether the copy says something else than was handed out, and not only where the working
// tree is.
func (k *PrivateConfig) Changed() bool { return k.read() && !vcs.SameSettings(k.Base, k.Now) }

// read reads a copy, and reports whether it says something else than at the last time. Whoever removes it has changed
// nothing.
func (k *PrivateConfig) read() (changed bool) {
	if k.Open == nil {
		return false
	}
	dir, name, err := k.Open()
	if err != nil {
		return false
	}
	defer unix.Close(dir)
	var st unix.Stat_t
	if beneath.Stat(dir, name, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFREG {
		return false
	}
	if st.Ino == k.seen.Ino && st.Mtim == k.seen.Mtim && st.Size == k.seen.Size {
		return false
	}
	fd, err := beneath.Open(dir, name, unix.O_RDONLY)
	if err != nil {
		return false
	}
	b, err := beneath.ReadFile(fd, gitconfig.MaxSize+1)
	if errors.Is(err, ErrTooMuch) {
		b, err = bytes.Repeat([]byte{'#'}, gitconfig.MaxSize+1), nil // which says as much
	}
	if err != nil {
		return false
	}
	k.seen = st
	if k.Now == nil && bytes.Equal(b, k.Base) || k.Now != nil && bytes.Equal(b, k.Now) {
		return false
	}
	k.Now = b
	return true
}

// maxSaved bounds the copies that are watched and saved while the run goes on. Those beyond are read when it has ended.
const maxSaved = 64

// watch has a lookout hear of what changes beside the copies, until the returned function is called.
func (c *PrivateConfigs) watch(l *lookout) (end func()) {
	var watched []int
	for _, k := range c.saved() {
		dir, _, err := k.Open()
		if err != nil {
			continue
		}
		watched = append(watched, dir)
		if l.own(dir) == nil {
			_, _ = unix.FcntlInt(uintptr(dir), unix.F_NOTIFY, notifyOnce|notifyWrites|notifyMany)
		}
	}
	return func() {
		for _, dir := range watched {
			unix.Close(dir)
		}
	}
}

func (c *PrivateConfigs) saved() []*PrivateConfig {
	if c == nil {
		return nil
	}
	return c.List[:min(len(c.List), maxSaved)]
}

// savedName is the file in the session's directory in which the changed copies are saved, and maxSavedSize bounds it: each
// byte of two texts takes 4/3.
const (
	savedName    = "git-configs.json"
	maxSavedSize = maxSaved * 3 * (gitconfig.MaxSize + 1<<10)
)

// save keeps in the session's directory what the copies say, if one has changed since the last time. Where that fails the
// recovery of a killed run lacks it, and nothing else.
func (c *PrivateConfigs) save(stash *Stash) {
	var list []*PrivateConfig
	changed := false
	for _, k := range c.saved() {
		changed = k.read() || changed
		if k.Now != nil {
			list = append(list, k)
		}
	}
	if !changed {
		return
	}
	if dir, err := stash.Open(); err == nil {
		text, _ := json.Marshal(list) // it fails for no texts
		_ = store.WriteFile(dir, savedName, text, store.Fast)
	}
}

// SavedConfigs returns what the copies said of a run whose launcher was killed, from its session's directory; nil if none
// had changed. An address that is a path counts as shown only in the workspace: the record names no other paths.
func SavedConfigs(r *Standing, dir *os.Root) (*PrivateConfigs, error) {
	text, err := store.ReadFile(dir, savedName, maxSavedSize)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	c := &PrivateConfigs{Session: r.Session, Shown: r.shows}
	if err == nil {
		err = json.Unmarshal(text, &c.List)
	}
	for _, k := range c.List {
		if k == nil || !filepath.IsAbs(k.Path) {
			err = errors.Join(err, errors.New("a configuration without a path"))
		}
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", savedName, err)
	}
	return c, nil
}

// shows reports whether the rules of a record show a path in its workspace.
func (r *Standing) shows(path string) bool {
	return inside(r.Root, path) && r.policy().Decide(path).Access >= profiles.Read
}

// maxRefused bounds the keys of one configuration that are reported.
const maxRefused = 64

// merge merges what the copies say into the host's files, and reports each address that is new and each key that the host's
// file does not get. Nothing of the run lives by then.
func (c *PrivateConfigs) merge(g *Guard) {
	if c == nil {
		return
	}
	changed := false
	for _, k := range c.List {
		k.read()
		changed = changed || k.Now != nil
		if k.Now == nil || bytes.Equal(k.Now, k.Base) {
			continue
		}
		context := gitconfig.Context{Submodule: vcs.OfSubmodule(k.Path), Shown: func(path string) bool { return c.shows(k, path) }}
		var r gitconfig.Result
		err := c.rewrite(g, k.Path, func(host []byte) (_ []byte, err error) {
			r, err = gitconfig.Merge(k.Base, k.Now, host, context)
			return r.Host, err
		})
		if err != nil {
			g.report(g.stash.Pair(Finding{Kind: Setting, Path: k.Path, Why: err.Error(), Mode: unix.S_IFREG | 0o600}, k.Now, k.Base))
			continue
		}
		g.reportMerge(k.Path, &r)
	}
	if !changed {
		return
	}
	if dir, err := g.stash.Open(); err == nil {
		_ = dir.Remove(savedName)
	}
}

// reportMerge reports what became of a configuration.
func (g *Guard) reportMerge(path string, r *gitconfig.Result) {
	for _, change := range r.Changes {
		what, why := change.Key+" is "+change.New, "it was "+change.Old
		switch {
		case change.Old == "":
			why = "it is new"
		case change.New == "":
			what = change.Key + " is removed"
		}
		g.report(g.stash.Note(Finding{Kind: Address, Path: path, What: what, Why: why}, nil, false))
	}
	for i, f := range r.Refused {
		if i == maxRefused {
			g.report(g.stash.Note(Finding{Kind: Setting, Path: path, What: "and others", Why: strconv.Itoa(len(r.Refused)-i) + " more"}, nil, false))
			break
		}
		g.report(g.stash.Pair(Finding{Kind: Setting, Path: path, What: f.Key, Why: f.Reason, Mode: unix.S_IFREG | 0o600}, f.After, f.Before))
	}
}

// shows reports whether the run was shown what an address leads to. One that is relative
// begins in the working tree.
func (c *PrivateConfigs) shows(k *PrivateConfig, path string) bool {
	if !filepath.IsAbs(path) {
		dir := filepath.Dir(k.Path)
		if filepath.Base(dir) != ".git" {
			return false
		}
		path = filepath.Join(filepath.Dir(dir), path)
	}
	path = filepath.Clean(path)
	if c.Shown == nil || !c.Shown(path) {
		return false
	}
	real, err := filepath.EvalSymlinks(path)
	return err != nil || real == path || c.Shown(real)
}

// rewrite changes a configuration of the host's in place, under git's lock.
func (c *PrivateConfigs) rewrite(g *Guard, path string, change func(host []byte) ([]byte, error)) error {
	dir, err := -1, error(nil)
	if c.At != nil {
		dir, err = c.At(path)
	}
	if dir < 0 && err == nil {
		dir, _, err = g.parent(path)
	}
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	name := filepath.Base(path)
	unlock, err := gitconfig.Lock(dir, name, gitconfig.LockText(c.Session), gitconfig.Patient)
	if err != nil {
		return err
	}
	defer unlock()
	return gitconfig.Rewrite(dir, name, change)
}
