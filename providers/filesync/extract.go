package filesync

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/pccrun/pccrun/internal/hint"
	"github.com/pccrun/pccrun/internal/state"
	"github.com/pccrun/pccrun/workspace"
)

// stageName begins the name of the directory in which an archive waits for its last member.
const stageName = ".pccrun-extract"

// An Extracted is what an extraction made.
type Extracted struct {
	Files, Dirs, Links int
	Bytes              int64
	NotExtracted       []Withheld
}

// Extract is [ExtractParts] of one archive.
func Extract(ctx context.Context, dir string, from io.Reader, down Down) (*Extracted, error) {
	return ExtractParts(ctx, dir, once(from), down)
}

func once(from io.Reader) func() (io.Reader, error) {
	return func() (io.Reader, error) {
		part := from
		if from = nil; part == nil {
			return nil, io.EOF
		}
		return part, nil
	}
}

// ExtractParts makes a directory of what archives hold, one after the other until [io.EOF]. The directory must
// not exist, or be empty. All is made in a directory of another name beside it, closed to others, which is renamed
// when the last member was judged, and removed if that ends with an error. What who is killed leaves there, the next
// extraction removes ([RemoveStale]).
func ExtractParts(ctx context.Context, dir string, next func() (io.Reader, error), down Down) (_ *Extracted, err error) {
	down.Limits = down.Limits.orDefault()
	x, err := newExtraction(dir, &down)
	if err != nil {
		return nil, fmt.Errorf("extract into %s: %w", dir, err)
	}
	defer func() {
		if e := x.end(); e != nil {
			err = errors.Join(err, fmt.Errorf("extract into %s: %w", dir, e))
		}
	}()
	a := &archive{down: &down}
	if err := a.read(ctx, next, x.add); err != nil {
		return nil, err
	}
	x.out.NotExtracted = a.withheld
	if err := x.judgeGit(); err != nil {
		return nil, err
	}
	if err := x.finishDirs(a.members["."]); err != nil {
		return nil, fmt.Errorf("extract into %s: %w", dir, err)
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if x.replaces {
		err = x.parent.Remove(x.name)
	}
	if err == nil {
		err = x.parent.Rename(x.stage, x.name)
	}
	if err != nil {
		return nil, fmt.Errorf("extract into %s: %w", dir, reason(err))
	}
	return &x.out, nil
}

// An extraction is one under way.
type extraction struct {
	parent   *os.Root // of the directory
	name     string   // of the directory in it
	replaces bool     // an empty directory of that name
	stage    string   // what the directory is called until all of it is there
	tree     *os.Root // the stage
	lock     *os.File // of the stage, while this process makes it
	uid, gid int      // of what root makes, else -1
	down     *Down
	out      Extracted
	made     []*member // in the order of the archive

	dir *os.Root  // the directory of the last member
	fd  openedDir // likewise
	at  string    // its path
	buf []byte
}

// newExtraction opens what the directory lies in, and makes the stage.
func newExtraction(dir string, down *Down) (x *extraction, err error) {
	if dir, err = filepath.Abs(dir); err != nil {
		return nil, err
	}
	parent, err := os.OpenRoot(filepath.Dir(dir))
	if err != nil {
		return nil, reason(err)
	}
	defer func() {
		if err != nil {
			parent.Close()
		}
		if err != nil && x != nil && x.lock != nil {
			x.lock.Close()
		}
	}()
	x = &extraction{parent: parent, name: filepath.Base(dir), stage: stageName + "-" + rand.Text(), down: down}
	info, err := parent.Lstat(x.name)
	x.replaces = err == nil
	switch {
	case x.replaces && !isEmptyDir(parent, x.name, info):
		return nil, hint.Errorf("name a directory that does not exist", "it exists already")
	case errors.Is(err, fs.ErrNotExist):
		info, err = parent.Lstat(".")
	}
	if err != nil {
		return nil, reason(err)
	}
	x.uid, x.gid = ownerFrom(info) // as an apply has it: root's work in somebody's directory is his
	for made := false; !made && err == nil; {
		if err = removeStale(parent); err == nil {
			err = parent.Mkdir(x.stage, 0o700)
		}
		if err == nil {
			x.lock, err = lockStage(parent, x.stage, true)
		}
		_, gone := parent.Lstat(x.stage) // by another extraction, before it was locked
		made = gone == nil
	}
	if err == nil {
		x.tree, err = parent.OpenRoot(x.stage)
	}
	return x, reason(err)
}

// RemoveStale removes from a directory that can be read what killed extractions have left there, and nothing of one that goes on.
func RemoveStale(dir string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil
	}
	defer root.Close()
	return removeStale(root)
}

func removeStale(parent *os.Root) error {
	dir, err := parent.Open(".")
	if err != nil {
		return nil
	}
	names, _ := dir.Readdirnames(-1)
	dir.Close()
	for _, name := range names {
		if text, is := strings.CutPrefix(name, stageName+"-"); !is || len(text) != len(rand.Text()) {
			continue
		}
		if lock, locked := lockStage(parent, name, false); locked == nil {
			err = errors.Join(err, state.RemoveAll(parent, name))
			lock.Close()
		}
	}
	return err
}

// lockStage locks the directory of a stage, as long as the file is open.
func lockStage(parent *os.Root, name string, wait bool) (*os.File, error) {
	f, err := parent.OpenFile(name, os.O_RDONLY|nonblock|directory, 0)
	if err != nil {
		return nil, err
	}
	if err = flock(f, wait); err != nil {
		f.Close()
	}
	return f, err
}

func isEmptyDir(parent *os.Root, name string, info fs.FileInfo) bool {
	if !info.IsDir() {
		return false
	}
	f, err := parent.Open(name)
	if err != nil {
		return false
	}
	defer f.Close()
	_, err = f.Readdirnames(1)
	return err == io.EOF
}

// end removes the stage, if it was not renamed.
func (x *extraction) end() error {
	x.closeDir()
	x.tree.Close()
	defer x.lock.Close()
	defer x.parent.Close()
	if _, err := x.parent.Lstat(x.stage); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return state.RemoveAll(x.parent, x.stage)
}

// in returns the directory that a path lies in. It was made here, and nobody else has a way into it.
func (x *extraction) in(rel string) (*os.Root, error) {
	dir := path.Dir(rel)
	if x.dir != nil && x.at == dir {
		return x.dir, nil
	}
	x.closeDir()
	next, err := x.tree.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	if x.fd, err = directoryOf(next); err != nil {
		next.Close()
		return nil, err
	}
	x.dir, x.at = next, dir
	return next, nil
}

func (x *extraction) closeDir() {
	if x.dir != nil {
		x.fd.Close()
		x.dir.Close()
	}
	x.dir = nil
}

// add makes a member in the tree. Directories get their modes and times at the end.
func (x *extraction) add(m *member, body io.Reader) error {
	if m.path == "." {
		return nil
	}
	err := x.make(m, body)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("extract %s: %w", m.path, reason(err))
	}
	if err == nil && x.down.Progress != nil {
		x.down.Progress(x.out.Files, x.out.Bytes)
	}
	return err
}

func (x *extraction) make(m *member, body io.Reader) error {
	dir, err := x.in(m.path)
	if err != nil {
		return err
	}
	x.made = append(x.made, m)
	name := path.Base(m.path)
	switch {
	case m.kind == workspace.Dir:
		x.out.Dirs++
		return dir.Mkdir(name, 0o700)
	case m.kind == workspace.Link:
		x.out.Links++
		err := dir.Symlink(filepath.FromSlash(m.target), name)
		if err == nil && x.uid >= 0 {
			err = dir.Lchown(name, x.uid, x.gid)
		}
		if err == nil && !m.mtime.IsZero() {
			err = setLinkTime(dir, name, m.mtime)
		}
		return err
	case m.hard != "":
		x.out.Files++
		return x.tree.Link(m.hard, m.path)
	}
	x.out.Files++
	x.out.Bytes += m.size
	return x.makeFile(dir, name, m, body)
}

// copy writes what a file holds.
func (x *extraction) copy(to io.Writer, body io.Reader, size int64) error {
	if x.buf == nil {
		x.buf = make([]byte, 256<<10)
	}
	for size > 0 {
		n, err := io.ReadFull(body, x.buf[:min(size, int64(len(x.buf)))])
		if err == io.EOF {
			err = io.ErrUnexpectedEOF // that there is less is no end of any kind
		}
		if err == nil {
			_, err = to.Write(x.buf[:n])
		}
		if err != nil {
			return err
		}
		size -= int64(n)
	}
	return nil
}

// finish gives a file or a directory its owner, mode and time, after an error nothing.
func (x *extraction) finish(dir *os.Root, name string, f *os.File, m *member, err error) error {
	if err == nil && x.uid >= 0 {
		err = f.Chown(x.uid, x.gid)
	}
	if err == nil && !m.mtime.IsZero() { // before the mode: that may close the directory itself to its owner
		err = dir.Chtimes(name, time.Time{}, m.mtime)
	}
	if err == nil {
		err = f.Chmod(fileMode(m.mode))
	}
	return err
}

// fileMode is a mode of tar(5), as package fs has it.
func fileMode(mode uint32) fs.FileMode {
	m := fs.FileMode(mode & 0o777)
	if mode&0o1000 != 0 {
		m |= fs.ModeSticky
	}
	return m
}

// finishDirs finishes the directories, the deepest first, and last the top.
func (x *extraction) finishDirs(top *member) error {
	if top == nil {
		top = &member{mode: 0o755}
	}
	for _, m := range slices.Backward(append([]*member{{path: ".", kind: workspace.Dir, mode: top.mode, mtime: top.mtime}}, x.made...)) {
		if m.kind != workspace.Dir {
			continue
		}
		f, err := x.tree.Open(m.path)
		if err == nil {
			err = errors.Join(x.finish(x.tree, m.path, f, m, nil), f.Close())
		}
		if err != nil {
			return fmt.Errorf("%s: %w", m.path, reason(err))
		}
	}
	return nil
}
