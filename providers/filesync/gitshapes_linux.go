package filesync

import (
	"bytes"
	"io/fs"
	"path"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/workspace"
	"github.com/pccrun/pccrun/workspace/beneath"
	"github.com/pccrun/pccrun/workspace/gitdir"
)

// A gitView is what lies in the first of these directories, and in the others, through no link.
type gitView []int

// Kind returns what is at a path.
func (v gitView) Kind(name string) (fs.FileMode, bool) {
	for _, dir := range v {
		fd, err := beneath.Open(dir, name[1:], unix.O_PATH)
		if err != nil {
			continue
		}
		defer unix.Close(fd)
		var st unix.Stat_t
		if unix.Fstat(fd, &st) == nil {
			return workspace.KindOf(st.Mode).Type(), true
		}
	}
	return 0, false
}

// Read reads a regular file.
func (v gitView) Read(name string, limit int64) ([]byte, error) {
	for _, dir := range v {
		fd, err := beneath.Open(dir, name[1:], unix.O_RDONLY|unix.O_NONBLOCK)
		if err == nil {
			return beneath.ReadFile(fd, limit)
		}
	}
	return nil, fs.ErrNotExist
}

// judgeGit asks the table of git directories about all that was made, as an apply does. Nothing is taken that is
// under way.
func (x *extraction) judgeGit(a *archive) error {
	stands := gitView{}
	if x.target >= 0 {
		stands = gitView{x.target}
	}
	git := gitdir.Tree{Root: "/", Before: stands, Now: append(gitView{x.tree}, stands...)}
	made := x.made
	x.made = nil
	for _, rel := range made {
		m, d := a.members[rel], gitdir.Decision{}
		if !x.down.Trust || inGit(rel) {
			d, _ = git.Judge("/"+rel, m.kind.Type(), m.target)
		}
		switch {
		case d.Why != "":
			return &RefusedError{rel, d.Why}
		case d.Report:
			return &RefusedError{rel, "git would go on with it"}
		case d.Plain == nil && (!d.Drop || m.kind == workspace.Dir):
			x.made = append(x.made, rel)
			continue
		}
		dir, err := x.in(rel)
		if err == nil {
			err = unix.Unlinkat(dir, path.Base(rel), 0)
		}
		x.out.Files--
		x.out.Bytes -= m.size
		if err == nil && d.Plain != nil {
			m.size = int64(len(d.Plain))
			err = x.make(m, bytes.NewReader(d.Plain))
		}
		if err != nil {
			return err
		}
	}
	return nil
}
