package workspace

import (
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/workspace/beneath"
)

// Who changes a configuration of git writes a new one beside it, config.lock,
// and renames that onto it, which a pin refuses: git says "could not write config
// file: Device or resource busy", and nothing of it stays. The lock stands for
// some hundred microseconds. What tells that a name has come tells to look for it.

// notifyMany keeps a directory armed, so that one change does not hide the next:
// DN_MULTISHOT.
const notifyMany = 0x80000000

// maxLocks bounds the configurations that are watched so.
const maxLocks = 64

// A lockWatch looks for locks of pinned configurations.
type lockWatch struct {
	configs []Known
	dirs    []int // of each
	seen    map[string]bool
	signals chan os.Signal
	done    chan struct{}
}

// pinnedConfigs are the configurations of git that a run cannot change.
func (r *Standing) pinnedConfigs() (list []Known) {
	for _, k := range r.Known {
		if k.Pin && k.Kind == File && k.Why == ".git/config" && len(list) < maxLocks {
			list = append(list, k)
		}
	}
	return list
}

// watchLocks begins to look. It hears of their directories by itself: a lock stands for so short
// a time that nothing else may be looked at first.
func (g *Guard) watchLocks() *lockWatch {
	l := &lockWatch{seen: map[string]bool{}, signals: make(chan os.Signal, 1), done: make(chan struct{})}
	signal.Notify(l.signals, unix.SIGIO)
	for _, k := range g.standing.pinnedConfigs() {
		if dir, err := g.hear(k.Path); err == nil {
			l.configs, l.dirs = append(l.configs, k), append(l.dirs, dir)
		}
	}
	go func() {
		defer close(l.done)
		for range l.signals {
			for i, k := range l.configs {
				var st unix.Stat_t
				if unix.Fstatat(l.dirs[i], filepath.Base(k.Path)+".lock", &st, unix.AT_SYMLINK_NOFOLLOW) == nil {
					l.seen[k.Path] = true // read when this goroutine has ended
				}
			}
		}
	}()
	return l
}

// hear has this process hear of names beside a file, by SIGIO.
func (g *Guard) hear(path string) (dir int, err error) {
	at, _, err := g.parent(path)
	if err != nil {
		return -1, err
	}
	defer unix.Close(at)
	if dir, err = beneath.Open(at, "", unix.O_RDONLY|unix.O_DIRECTORY); err != nil {
		return -1, err
	}
	// The owner first: left to itself, F_NOTIFY would name this thread, and
	// the signal goes to processes only.
	if _, err = unix.FcntlInt(uintptr(dir), unix.F_SETOWN, os.Getpid()); err == nil {
		_, err = unix.FcntlInt(uintptr(dir), unix.F_NOTIFY, notifyOnce|notifyMany)
	}
	if err != nil {
		unix.Close(dir)
		return -1, err
	}
	return dir, nil
}

func (l *lockWatch) end() {
	signal.Stop(l.signals)
	close(l.signals)
	<-l.done
	for _, fd := range l.dirs {
		unix.Close(fd)
	}
}

// A Refusal is a pinned file that somebody tried to change, and what pins it.
type Refusal struct {
	Path, Why string
	Pin       string // what is pinned, where that is a directory which holds the file; "" else
	Flags     string // those that let it change, where --review of Why alone does not
}

// Refused returns, once [Guards.Finish] has returned, the pinned configurations of
// git that somebody tried to change, and that are as they were: git itself
// (see [ConfigWatch]), or another program, if its lock was seen. So it does tracked
// files that are pinned, for which git has put other content into the index and not
// written it; and what git itself says it could not change, as far as nobody has changed it.
func (gs Guards) Refused(said []Refusal) (list []Refusal) {
	for _, g := range gs {
		list = append(list, g.refusals...)
	}
	for _, r := range said {
		g := gs.near(r.Path)
		if g == nil { // of an overlay, or a repository elsewhere: nothing of the run could change it
			r.orPin(unix.Lstat(r.Path, new(unix.Stat_t)))
		}
		if g == nil || g.unchanged(&r) {
			list = append(list, r)
		}
	}
	slices.SortStableFunc(list, func(a, b Refusal) int { return strings.Compare(a.Path, b.Path) })
	return slices.CompactFunc(list, func(a, b Refusal) bool { return a.Path == b.Path })
}

// orPin names a directory that is pinned in the place of a file in it that is not there, as
// the error says with which it was looked for: that was to be made.
func (r *Refusal) orPin(err error) bool {
	if err != unix.ENOENT && err != unix.ENOTDIR || r.Pin == "" {
		return false
	}
	r.Path, r.Pin = r.Pin, ""
	return true
}

// unchanged reports whether what somebody tried to change is what it was.
func (g *Guard) unchanged(r *Refusal) bool {
	var st unix.Stat_t
	err := g.stat(r.Path, &st)
	if r.orPin(err) {
		err = g.stat(r.Path, &st)
	}
	if err != nil {
		return false
	}
	if i := slices.IndexFunc(g.standing.Known, func(k Known) bool { return k.Pin && k.Path == r.Path }); i >= 0 {
		return g.standing.Known[i].is(&st)
	}
	return st.Ctim.Nano() < g.standing.Start.UnixNano()
}

func (g *Guard) refused() (list []Refusal) {
	for _, k := range g.standing.pinnedConfigs() {
		var st unix.Stat_t
		seen := g.Configs.Tried(k.Path) || g.locks != nil && g.locks.seen[k.Path]
		if seen && g.stat(k.Path, &st) == nil && k.is(&st) {
			list = append(list, Refusal{Path: k.Path, Why: k.Why})
		}
	}
	return append(list, g.unwritten...)
}
