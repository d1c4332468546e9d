package main

import (
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/state"
	"github.com/pccrun/pccrun/workspace"
)

// What a policy lets only later runs know of a JSON file (protect.keys, inside) is
// remembered in the state directory, for each file and workspace apart: what a run
// in one place has agreed to holds in that place.

// insideDir holds what is remembered, a file each.
const insideDir = "inside"

// maxInside bounds such a file.
const maxInside = 1 << 20

// insideMagic begins one; then come the path and the workspace, quoted as in Go.
const insideMagic = "pccrun inside 1\n"

// insideName returns the name of what is remembered of a file, and how it begins:
// two files of one name would be each other's.
func (l *launch) insideName(path string) (name, head string) {
	head = insideMagic + strconv.QuoteToASCII(path) + " " + strconv.QuoteToASCII(l.policy.Workspace) + "\n"
	h := fnv.New64a()
	h.Write([]byte(head))
	return insideDir + "/" + strconv.FormatUint(h.Sum64(), 16), head
}

// recall returns what earlier runs here remembered of a file, nil for nothing.
func (l *launch) recall(path string) []byte {
	root, err := state.OpenExisting(l.dirs.State, l.policy.Workspace)
	if err != nil {
		return nil
	}
	defer root.Close()
	name, head := l.insideName(path)
	b, err := state.ReadFile(root, name, maxInside)
	if err != nil {
		return nil
	}
	return remembered(b, head)
}

// remembered is the content of such a file less its beginning, nil where it is
// another's or damaged.
func remembered(b []byte, head string) []byte {
	text, ok := strings.CutPrefix(string(b), head)
	if !ok || text == "" {
		return nil
	}
	return []byte(text)
}

// forgetInside removes what is remembered for workspaces that are gone: no run will
// ask for it. What is no such file stays.
func forgetInside(dirs state.Dirs) error {
	root, err := state.OpenExisting(dirs.State, "")
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer root.Close()
	list, err := fs.ReadDir(root.FS(), insideDir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	var errs []error
	for _, e := range list {
		name := insideDir + "/" + e.Name()
		b, err := state.ReadFile(root, name, maxInside)
		if err != nil {
			continue
		}
		if _, err := os.Lstat(workspaceOf(string(b))); errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, root.Remove(name))
		}
	}
	return errors.Join(errs...)
}

// workspaceOf returns the workspace of such a file, "/" of what is none.
func workspaceOf(text string) string {
	text, ok := strings.CutPrefix(text, insideMagic)
	path, err := strconv.QuotedPrefix(text)
	if !ok || err != nil {
		return "/"
	}
	text, ok = strings.CutPrefix(text[len(path):], " ")
	quoted, err := strconv.QuotedPrefix(text)
	if !ok || err != nil || !strings.HasPrefix(text[len(quoted):], "\n") {
		return "/"
	}
	dir, err := strconv.Unquote(quoted)
	if err != nil || !filepath.IsAbs(dir) {
		return "/"
	}
	return dir
}

// openInside opens, while this process may, what the run will write there.
func (l *launch) openInside() error {
	for _, k := range l.run.Plan.Copied {
		if l.inside[k.Path] != nil {
			continue
		}
		root, err := state.Open(l.dirs.State, l.policy.Workspace)
		if err != nil {
			return err
		}
		name, head := l.insideName(k.Path)
		if err = root.Mkdir(insideDir, 0o700); errors.Is(err, fs.ErrExist) {
			err = nil
		}
		var f *os.File
		if err == nil {
			f, err = root.OpenFile(name, os.O_RDWR|os.O_CREATE|unix.O_NONBLOCK|unix.O_NOFOLLOW, 0o600)
		}
		if err == nil { // whose it is it says from the start, for who clears away
			var info fs.FileInfo
			if info, err = f.Stat(); err == nil && info.Size() == 0 {
				_, err = f.WriteString(head)
			}
		}
		root.Close()
		if err != nil {
			return fmt.Errorf("what runs remember of %s: %w", k.Path, err)
		}
		if l.inside == nil {
			l.inside = map[string]*os.File{}
		}
		l.inside[k.Path] = f
	}
	return nil
}

// remember changes what is remembered of a file. It is written in its place, by a
// descriptor from before root was given up: what a killed launcher leaves half
// written is JSON no more, and nothing.
func (l *launch) remember(path string, change func(old []byte) ([]byte, error)) error {
	f := l.inside[path]
	if f == nil {
		return fs.ErrNotExist
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
		return err
	}
	defer unix.Flock(int(f.Fd()), unix.LOCK_UN)
	_, head := l.insideName(path)
	old := make([]byte, maxInside)
	n, _ := f.ReadAt(old, 0)
	b, err := change(remembered(old[:n], head))
	if err != nil {
		return err
	}
	b = append([]byte(head), b...)
	if err := f.Truncate(0); err != nil {
		return err
	}
	_, err = f.WriteAt(b, 0)
	return err
}

// sorts gives the guard the copies of files that it has to sort by keys.
func (l *launch) sorts(list []*workspace.Copied) {
	for _, k := range list {
		k.Recall = func(change func([]byte) ([]byte, error)) error { return l.remember(k.Path, change) }
	}
	l.guarded.guard[0].Copied = list
}
