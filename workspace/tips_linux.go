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
	read := func(dir int, at, name string) error {
		var st unix.Stat_t
		if early && (beneath.Stat(dir, at, &st) != nil || g.touched(&st)) {
			return nil // the command may have written it already
		}
		b, err := readOwn(dir, at, maxPackedRefs)
		if err == nil {
			err = left.spend(int64(len(b)) + 64)
		}
		if gone(err) || err == unix.EISDIR || err == unix.EACCES || err == beneath.ErrNotRegular {
			return nil // git cannot read it either
		}
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
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
					return fmt.Errorf("references: %w", ErrTooMuch)
				}
				if err := left.spend(tipSize); err != nil {
					return err
				}
			}
		}
		return nil
	}
	for _, name := range heads {
		dir, at, err := g.parent(gitDir + "/" + name)
		if err != nil {
			continue
		}
		err = read(dir, at, name)
		unix.Close(dir)
		if err != nil {
			return nil, err
		}
	}
	err = g.eachFile(gitDir+"/refs", left, early, func(dir int, at, rel string) error { return read(dir, at, "refs/"+rel) })
	if gone(err) {
		err = nil
	}
	return tips, err
}

// eachFile calls look with the regular files below a directory, and their paths in it; early, in what stood.
func (g *Guard) eachFile(path string, left *allowance, early bool, look func(dir int, name, rel string) error) error {
	dir, name, err := g.parent(path)
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	files := 0
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
				files++
				if err := look(fd, e.Name(), join(rel, e.Name())); err != nil {
					return err
				}
			case e.IsDir():
				if err := read(fd, e.Name(), join(rel, e.Name())); err != nil && !gone(err) {
					return err
				}
			}
			if files > maxTips || strings.Count(rel, "/") > maxNested {
				return fmt.Errorf("%s: %w", path, ErrTooMuch)
			}
		}
		return nil
	}
	return read(dir, name, "")
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
