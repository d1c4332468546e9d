package filesync

import (
	"bytes"
	"io/fs"
	"path"
	"strings"

	"github.com/pccrun/pccrun/workspace"
	"github.com/pccrun/pccrun/workspace/gitdir"
)

// inGit reports whether a path is, or lies below, a .git.
func inGit(rel string) bool { return strings.Contains("/"+rel+"/", "/.git/") }

// archiveRoot is where an archive's paths begin for the table of git directories. No file of git's can name it: an
// absolute path in an archive, or one that leads up out of it, is one of the host's.
const archiveRoot = "/\x00"

// An extractedView is what an extraction has made, by path, for that table.
type extractedView struct {
	x    *extraction
	made map[string]*member
}

func (v extractedView) member(name string) *member {
	rel, in := strings.CutPrefix(name, archiveRoot+"/")
	if !in {
		return nil
	}
	return v.made[rel]
}

// Kind returns what is at a path.
func (v extractedView) Kind(name string) (fs.FileMode, bool) {
	m := v.member(name)
	if m == nil {
		return 0, false
	}
	return m.kind.Type(), true
}

// Read reads a regular file.
func (v extractedView) Read(name string, limit int64) ([]byte, error) {
	m := v.member(name)
	if m == nil || m.kind != workspace.File {
		return nil, fs.ErrNotExist
	}
	f, err := v.x.tree.Open(m.path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return readAtMost(f, limit)
}

// judgeGit asks the table of git directories about all that was made, as an apply does. Nothing is taken that is
// under way.
func (x *extraction) judgeGit() error {
	view := extractedView{x, make(map[string]*member, len(x.made))}
	for _, m := range x.made {
		view.made[m.path] = m
	}
	git := gitdir.Tree{Root: archiveRoot, Before: extractedView{}, Now: view}
	made := x.made
	x.made = nil
	for _, m := range made {
		d := gitdir.Decision{}
		if !x.down.Trust || inGit(m.path) {
			d = git.Judge(archiveRoot+"/"+m.path, m.kind.Type(), m.target)
		}
		switch {
		case d.Why != "":
			return &RefusedError{m.path, d.Why}
		case d.Note != "":
			return &RefusedError{m.path, "git would go on with it"}
		case d.Plain == nil && (!d.Drop || m.kind == workspace.Dir):
			x.made = append(x.made, m)
			continue
		}
		dir, err := x.in(m.path)
		if err == nil {
			err = dir.Remove(path.Base(m.path))
		}
		x.out.Files--
		x.out.Bytes -= m.size
		delete(view.made, m.path)
		if err == nil && d.Plain != nil {
			m.size = int64(len(d.Plain))
			err = x.make(m, bytes.NewReader(d.Plain))
			view.made[m.path] = m
		}
		if err != nil {
			return err
		}
	}
	return nil
}
