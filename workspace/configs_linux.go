package workspace

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/workspace/beneath"
	"github.com/pccrun/pccrun/workspace/gitconfig"
	"github.com/pccrun/pccrun/workspace/vcs"
)

// Of each configuration of git that stood the command has a private copy. What git makes of that
// is merged into the host's file by keys, whenever it has changed and when the run is over
// ([gitconfig.Merge]).
//
// The host's file is written in its place, under git's own lock. It cannot be replaced: a rename
// ends the mount that covers the file inside, in this run and in each other one in the same
// place, and a command that waits for that gets the new file open to be written. Whoever reads the
// file in the very moment in which it is written may see half of either; git that writes waits for
// the lock.

// A Config is a configuration of which the command has a copy.
type Config struct {
	Path string // of the host's
	Text string // what was handed out

	// Open opens the directory that holds the copy, and says its name in there.
	Open func() (dir int, name string, err error)
}

// Configs are those of one run. All of it is nothing for a nil.
type Configs struct {
	Session string
	At      func(path string) (dir int, err error) // opens the directory of a host's file; -1, or nil: as the guards do
	Shown   func(path string) bool                 // whether the run was shown a path

	guard *Guard
	mu    sync.Mutex
	list  []*config
	stop  chan struct{}
	ended chan struct{}
}

type config struct {
	Config
	n       int    // of its record
	base    []byte // what was handed out, with what is taken over
	now     []byte // the copy as it was last read; nil: as it was handed out
	seen    unix.Stat_t
	shown   []string           // the paths among the addresses that the run was shown
	changes []gitconfig.Change // addresses that are the host's by now
	refused []gitconfig.Refusal
	failed  error        // why nothing of the last one was taken over
	left    *unix.Stat_t // the host's file as it was left here, where nobody else had changed it
}

// NewConfigs returns the copies of a run that begins.
func NewConfigs(session string, list []Config) *Configs {
	if len(list) == 0 {
		return nil
	}
	c := &Configs{Session: session}
	for i, one := range list {
		c.list = append(c.list, &config{Config: one, n: i, base: []byte(one.Text)})
	}
	return c
}

// Attach gives the copies to the guards of their run.
func (gs Guards) Attach(c *Configs) {
	if c != nil {
		c.guard = gs[0]
		gs[0].Configs = c
	}
}

// Watch begins to merge what changes. It hears of the directories of the copies by SIGIO, as
// a guard hears of the workspace's.
func (c *Configs) Watch() {
	if c == nil {
		return
	}
	c.stop, c.ended = make(chan struct{}), make(chan struct{})
	go c.follow()
}

// maxHeard bounds the copies that are listened to; those beyond are looked at when others change,
// and when the run is over.
const maxHeard = 64

// unlocked is how long it takes until a file of the host's that was locked is tried again.
const unlocked = 100 * time.Millisecond

func (c *Configs) follow() {
	defer close(c.ended)
	select {
	case <-c.stop:
		return
	case <-time.After(grace):
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, unix.SIGIO) // for good: a last one may be on its way, and would end the process
	for _, k := range c.list[:min(len(c.list), maxHeard)] {
		if dir, err := k.listen(); err == nil {
			defer unix.Close(dir)
		}
	}
	for {
		var again <-chan time.Time
		if c.look() {
			again = time.After(unlocked)
		}
		select {
		case <-c.stop:
			return
		case <-again:
		case <-signals:
			time.Sleep(time.Millisecond) // others' directories are told of in the same way
		}
	}
}

// notifyMany keeps a directory armed (DN_MULTISHOT), notifyWritten hears of what is written in
// its place (DN_MODIFY).
const (
	notifyMany    = 0x80000000
	notifyWritten = 0x2
)

// listen has this process hear of what happens beside a copy.
func (k *config) listen() (int, error) {
	dir, _, err := k.Open()
	if err != nil {
		return -1, err
	}
	// The owner first: left to itself, F_NOTIFY would name this thread, and
	// the signal goes to processes only.
	if _, err = unix.FcntlInt(uintptr(dir), unix.F_SETOWN, os.Getpid()); err == nil {
		_, err = unix.FcntlInt(uintptr(dir), unix.F_NOTIFY, notifyOnce|notifyWritten|notifyMany)
	}
	if err != nil {
		unix.Close(dir)
	}
	return dir, err
}

// look merges what has changed, and reports whether some of it has to wait.
func (c *Configs) look() (wait bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, k := range c.list {
		if k.read() {
			c.merge(k, 0)
		}
		wait = wait || errors.Is(k.failed, gitconfig.ErrLocked)
	}
	return wait
}

// halt ends the watch.
func (c *Configs) halt() {
	if c != nil && c.stop != nil {
		close(c.stop)
		<-c.ended
		c.stop = nil
	}
}

// Changed reports whether the copy says something else than was handed out, and not only where the working
// tree is.
func (c Config) Changed() bool {
	k := config{Config: c}
	return k.read() && !vcs.SameSettings([]byte(c.Text), k.now)
}

// read reads a copy, and reports whether it is to be merged. Whoever removes it has changed nothing.
func (k *config) read() (changed bool) {
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
		return errors.Is(k.failed, gitconfig.ErrLocked)
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
	if k.now == nil && string(b) == k.Text || k.now != nil && bytes.Equal(b, k.now) {
		return false
	}
	k.now = b
	return true
}

// merge takes over what a copy says, and waits so long for the lock.
func (c *Configs) merge(k *config, patience time.Duration) {
	if k.now == nil {
		return
	}
	c.record(k)
	k.refused, k.changes = nil, nil
	context := gitconfig.Context{Submodule: vcs.OfSubmodule(k.Path), Shown: func(path string) bool { return c.shows(k, path) }}
	base := k.base
	k.failed = c.edit(k.Path, patience, func(host []byte) ([]byte, error) {
		r, err := gitconfig.Merge(k.base, k.now, host, context)
		if err != nil {
			return nil, err
		}
		k.refused, base = r.Refused, r.Base
		all, err := gitconfig.Merge([]byte(k.Text), k.now, r.Host, context) // also what was taken over before
		k.changes = all.Changes
		return r.Host, err
	}, k)
	if k.failed == nil { // else the host's file lacks what the copy says
		k.base = base
	}
}

// shows reports whether the run was shown what an address leads to. One that is relative
// begins in the working tree.
func (c *Configs) shows(k *config, path string) bool {
	if slices.Contains(k.shown, path) {
		return true
	}
	at := path
	if !filepath.IsAbs(at) {
		dir := filepath.Dir(k.Path)
		if filepath.Base(dir) != ".git" {
			return false
		}
		at = filepath.Join(filepath.Dir(dir), at)
	}
	at = filepath.Clean(at)
	if c.Shown == nil || !c.Shown(at) {
		return false
	}
	if real, err := filepath.EvalSymlinks(at); err == nil && real != at && !c.Shown(real) {
		return false
	}
	k.shown = append(k.shown, path)
	return true
}

// edit changes a configuration of the host's under git's lock. Of k it keeps how it left the file.
func (c *Configs) edit(path string, patience time.Duration, change func(host []byte) ([]byte, error), k *config) error {
	dir, name, err := -1, filepath.Base(path), error(nil)
	if c.At != nil {
		dir, err = c.At(path)
	}
	if dir < 0 && err == nil {
		dir, _, err = c.guard.parent(path)
	}
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	unlock, err := gitconfig.Lock(dir, name, gitconfig.LockText(c.Session), patience)
	if err != nil {
		return err
	}
	defer unlock()
	before, after, err := gitconfig.Rewrite(dir, name, change)
	if err != nil || after == nil {
		return err
	}
	known := func(st *unix.Stat_t) bool { return k.left != nil && st.Ino == k.left.Ino && st.Ctim == k.left.Ctim }
	for _, g := range c.guard.peers {
		if i := slices.IndexFunc(g.standing.Known, func(n Known) bool { return n.Path == path }); k.left == nil && i >= 0 && g.standing.Known[i].is(before) || known(before) {
			k.left = after
		}
	}
	return nil
}

// finish merges a last time, when nothing of the run lives, and tells of it.
func (c *Configs) finish() {
	if c == nil {
		return
	}
	g := c.guard
	for _, k := range c.list {
		if k.read() || k.Open == nil || k.failed != nil {
			c.merge(k, gitconfig.Patient)
		}
		for _, change := range k.changes {
			why := "it was " + change.Old
			if change.Old == "" {
				why = "it is new"
			}
			g.told(g.stash.Note(Finding{Kind: Address, Path: k.Path, What: change.Key + " is " + change.New, Why: why}, nil, false))
		}
		if k.failed != nil {
			g.told(g.stash.Pair(Finding{Kind: Setting, Path: k.Path, Why: k.failed.Error(), Mode: unix.S_IFREG | 0o600}, k.now, k.base))
			continue
		}
		for i, f := range k.refused {
			if i == maxRefused {
				g.told(g.stash.Note(Finding{Kind: Setting, Path: k.Path, What: "and others", Why: strconv.Itoa(len(k.refused)-i) + " more"}, nil, false))
				break
			}
			g.told(g.stash.Pair(Finding{Kind: Setting, Path: k.Path, What: f.Key, Why: f.Reason, Mode: unix.S_IFREG | 0o600}, f.After, f.Before))
		}
	}
	c.forget()
}

// maxRefused bounds the keys of one configuration that are told.
const maxRefused = 64

// mine reports whether a configuration is as it was left by a merge, and was not changed by somebody else before.
func (c *Configs) mine(path string, st *unix.Stat_t) bool {
	if c == nil {
		return false
	}
	return slices.ContainsFunc(c.list, func(k *config) bool {
		return k.Path == path && k.left != nil && k.left.Ino == st.Ino && k.left.Dev == st.Dev && k.left.Ctim == st.Ctim
	})
}

// splits is [scan.splits] of the host's configuration as it is now.
func (g *Guard) splits(path string) bool {
	b, err := g.readOwn(path, vcs.MaxConfig)
	return splits(b) || err != nil && !beneath.Gone(err)
}

// What a copy says is written down before it is merged: if the launcher is killed, the next pccrun
// merges in its place.

const (
	recordName  = "config-" // in the session's directory, with a number
	newRecord   = ".new"
	recordMagic = "pccrun config 2\n"
)

var errNoRecord = errors.New("not the record of a configuration")

// record writes down what is to be merged. Without one, only that is missing.
func (c *Configs) record(k *config) {
	if k.Open == nil {
		return
	}
	root, err := c.guard.stash.Open()
	if err != nil {
		return
	}
	name := recordName + strconv.Itoa(k.n)
	if root.WriteFile(name+newRecord, k.append(nil), 0o600) == nil {
		_ = root.Rename(name+newRecord, name)
	}
}

// code writes what is to be merged, or reads it.
func (k *config) code(c *codec) {
	base, now := string(k.base), string(k.now)
	for _, s := range [...]*string{&k.Path, &k.Text, &base, &now} {
		c.text(s)
	}
	list(c, &k.shown, c.text)
	k.base, k.now = []byte(base), []byte(now)
}

func (k *config) append(b []byte) []byte {
	c := codec{out: append(b, recordMagic...)}
	k.code(&c)
	return append(c.out, standingEnd...)
}

func parseRecord(text string) (*config, error) {
	body, ok := strings.CutPrefix(text, recordMagic)
	body, whole := strings.CutSuffix(body, standingEnd)
	k, c := &config{}, codec{in: body, reading: true}
	if k.code(&c); !ok || !whole || c.bad || c.in != "" || !filepath.IsAbs(k.Path) {
		return nil, errNoRecord
	}
	return k, nil
}

// forget removes the records.
func (c *Configs) forget() {
	if !slices.ContainsFunc(c.list, func(k *config) bool { return k.now != nil }) {
		return
	}
	root, err := c.guard.stash.Open()
	if err != nil {
		return
	}
	for _, k := range c.list {
		if k.now != nil {
			_ = root.Remove(recordName + strconv.Itoa(k.n))
		}
	}
}

// maxRecord bounds a record, of which each byte may take four.
const maxRecord = 4*3*vcs.MaxConfig + 64<<10

// UnfinishedConfigs returns what a run had still to merge whose launcher was killed, from its session's directory. What is
// shown of a path it knows from there alone.
func UnfinishedConfigs(session string, root *os.Root) (*Configs, error) {
	c := &Configs{Session: session}
	for n := range maxPrivate {
		name := recordName + strconv.Itoa(n)
		f, err := root.Open(name)
		if err != nil {
			continue
		}
		b, err := beneath.ReadFile(dupOf(f), maxRecord)
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", name, err)
		}
		k, err := parseRecord(string(b))
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", name, err)
		}
		k.n = n
		c.list = append(c.list, k)
	}
	if len(c.list) == 0 {
		return nil, nil
	}
	return c, nil
}

// dupOf gives a file's descriptor to who closes it.
func dupOf(f *os.File) int {
	defer f.Close()
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return -1
	}
	return fd
}
