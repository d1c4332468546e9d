package filesync

import (
	"bytes"
	"io/fs"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/workspace"
	"github.com/pccrun/pccrun/workspace/beneath"
	"github.com/pccrun/pccrun/workspace/gitdir"
)

// archiveRoot is where an archive's paths begin for the table of git directories. No file of git's can name it: an
// absolute path in an archive, or one that leads up out of it, is one of the host's.
const archiveRoot = "/\x00"

// A gitView is what lies in the first of these directories, and in the others, through no link.
type gitView []int

func (v gitView) open(name string, flags int) (fd int, there bool) {
	rel, in := strings.CutPrefix(name, archiveRoot+"/")
	if !in {
		return -1, false
	}
	for _, dir := range v {
		if fd, err := beneath.Open(dir, rel, flags); err == nil {
			return fd, true
		}
	}
	return -1, false
}

// Kind returns what is at a path.
func (v gitView) Kind(name string) (fs.FileMode, bool) {
	fd, there := v.open(name, unix.O_PATH)
	if !there {
		return 0, false
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if unix.Fstat(fd, &st) != nil {
		return 0, false
	}
	return workspace.KindOf(st.Mode).Type(), true
}

// Read reads a regular file.
func (v gitView) Read(name string, limit int64) ([]byte, error) {
	fd, there := v.open(name, unix.O_RDONLY|unix.O_NONBLOCK)
	if !there {
		return nil, fs.ErrNotExist
	}
	return beneath.ReadFile(fd, limit)
}

// judgeGit asks the table of git directories about all that was made, as an apply does. Nothing is taken that is
// under way.
func (x *extraction) judgeGit(a *archive) error {
	stands := gitView{}
	if x.target >= 0 {
		stands = gitView{x.target}
	}
	git := gitdir.Tree{Root: archiveRoot, Before: stands, Now: append(gitView{x.tree}, stands...)}
	made := x.made
	x.made = nil
	for _, rel := range made {
		m, d := a.members[rel], gitdir.Decision{}
		if !x.down.Trust || inGit(rel) {
			d = git.Judge(archiveRoot+"/"+rel, m.kind.Type(), m.target)
		}
		switch {
		case d.Why != "":
			return &RefusedError{rel, d.Why}
		case d.Note != "":
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
