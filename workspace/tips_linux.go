package workspace

import (
	"bytes"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/workspace/beneath"
	"github.com/pccrun/pccrun/workspace/vcs"
)

// By which names git knows commits: its references, the heads of what is under way, and the log of the stash.
// Where references are in tables, nobody reads them.

const (
	maxTips       = 50_000 // references of one repository
	maxPackedRefs = 64 << 20
	tipSize       = 512 // bytes that one costs: a file may have one in five of its own
)

// heads are the files beside references that hold names of commits.
var heads = [...]string{"HEAD", "ORIG_HEAD", "FETCH_HEAD", "MERGE_HEAD", "CHERRY_PICK_HEAD", "REVERT_HEAD", "logs/refs/stash", "packed-refs"}

// A tip is a commit that git knows by a name.
type tip struct {
	id, name string
	packed   bool // it is said by packed-refs
}

// small reads a file of a repository that holds a few lines.
func (g *Guard) small(path string) ([]byte, error) {
	dir, name, err := g.parent(path)
	if err != nil {
		return nil, err
	}
	defer unix.Close(dir)
	return readOwn(dir, name, vcs.MaxConfig)
}

// tipsOf reads them in a repository's own directory; early, as far as the command has not written there yet.
func (g *Guard) tipsOf(gitDir string, left *allowance, early bool) (tips []tip, err error) {
	names := heads[:]
	refs, err := g.filesIn(gitDir+"/refs", left, early)
	if err != nil && !gone(err) {
		return nil, err
	}
	for _, name := range refs {
		names = append(names[:len(names):len(names)], "refs/"+name)
	}
	for _, name := range names {
		b, err := g.unlessChanged(gitDir+"/"+name, early)
		if err == nil {
			err = left.spend(int64(len(b)) + 64)
		}
		if gone(err) || err == unix.EISDIR || err == unix.EACCES || err == beneath.ErrNotRegular { // git cannot read it either
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		for line := range bytes.Lines(b) {
			first, rest, _ := bytes.Cut(bytes.TrimSpace(line), []byte(" "))
			first, _, _ = bytes.Cut(first, []byte("\t"))
			called := name
			switch name {
			case "packed-refs":
				called = string(rest)
			case "logs/refs/stash": // from one to the next
				first, _, _ = bytes.Cut(rest, []byte(" "))
			}
			if id, _, ok := vcs.ParseID(string(first)); ok {
				if tips = append(tips, tip{id, called, name == "packed-refs"}); len(tips) > maxTips {
					return nil, fmt.Errorf("references: %w", ErrTooMuch)
				}
				if err := left.spend(tipSize); err != nil {
					return nil, err
				}
			}
		}
	}
	return tips, nil
}

// unlessChanged reads a file; early, one that the command has not written yet.
func (g *Guard) unlessChanged(path string, early bool) ([]byte, error) {
	dir, name, err := g.parent(path)
	if err != nil {
		return nil, err
	}
	defer unix.Close(dir)
	var st unix.Stat_t
	if early && (beneath.Stat(dir, name, &st) != nil || g.touched(&st)) {
		return nil, unix.ENOENT
	}
	return readOwn(dir, name, maxPackedRefs)
}

// filesIn returns the regular files below a directory by their paths in it; early, in what stood.
func (g *Guard) filesIn(path string, left *allowance, early bool) (list []string, err error) {
	dir, name, err := g.parent(path)
	if err != nil {
		return nil, err
	}
	defer unix.Close(dir)
	var read func(dir int, name, rel string) error
	read = func(dir int, name, rel string) error {
		fd, err := g.openDir(dir, name)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		var st unix.Stat_t
		if had, known := g.standing.Git[filepath.Join(path, rel)]; early && g.standing.Git != nil && (unix.Fstat(fd, &st) != nil || !known || had.Ino != st.Ino) {
			return nil // with it came what is in it, as old as that is
		}
		entries, err := readDir(fd)
		if err != nil {
			return err
		}
		for _, e := range entries {
			if err := left.spend(64); err != nil {
				return err
			}
			switch {
			case e.Type().IsRegular():
				list = append(list, join(rel, e.Name()))
			case e.IsDir():
				if err := read(fd, e.Name(), join(rel, e.Name())); err != nil && !gone(err) {
					return err
				}
			}
			if len(list) > maxTips || strings.Count(rel, "/") > maxNested {
				return fmt.Errorf("%s: %w", path, ErrTooMuch)
			}
		}
		return nil
	}
	return list, read(dir, name, "")
}

// knowTips notes what the references of the repositories lead to, as far as the command has
// not changed them yet.
func (g *Guard) knowTips(stop <-chan struct{}) {
	tips := map[string]map[string]bool{}
	left := &allowance{room: maxObjects, until: time.Now().Add(maxRead), stop: stop}
	know := func(dir string) {
		list, err := g.tipsOf(dir, left, true)
		if err != nil {
			return
		}
		tips[dir] = map[string]bool{}
		for _, t := range list {
			tips[dir][t.id] = true
		}
	}
	for rel := range g.repos {
		know(g.abs(rel))
	}
	for _, dir := range g.standing.GitDirs {
		know(dir)
		if common := g.commonOf(dir); common != dir && tips[common] == nil {
			know(common)
		}
	}
	g.tips = tips
}
