package workspace

import (
	"os"

	"golang.org/x/sys/unix"
)

// indexes sets aside the index in a repository's directory, if git would write elsewhere
// for it: whatever is there, or what the run has left.
func (i *inerter) indexes(gitDir string, all bool) {
	i.each(gitDir, func(fd int, e os.DirEntry) {
		if !isIndex(e.Name()) || !e.Type().IsRegular() || !all && !i.changed(fd, e.Name()) {
			return
		}
		b, err := readOwn(fd, e.Name(), maxGitIndex)
		if gone(err) {
			return
		}
		if f, known := i.hash(gitDir); err != nil || !known || !soundIndex(b, f) {
			i.aside(gitDir+"/"+e.Name(), unsoundIndex)
		}
	})
}

// hash returns by what the objects of a repository are named, and whether its
// configuration leaves no doubt of that.
func (i *inerter) hash(gitDir string) (f format, known bool) {
	common := gitDir
	if b, err := i.read(gitDir+"/commondir", maxGitFile); err == nil {
		t, _, err := i.follow(gitDir, parsePathFile(b))
		if err != nil {
			return 0, false
		}
		common = t.end.Path
	}
	b, err := i.read(common+"/config", maxConfig)
	if gone(err) {
		return formatSHA1, true
	}
	if err != nil { // as root that is given up, what it was is all that is known: the command has read it at most
		f, known = i.guard.standing.Formats[gitDir]
		return f, known
	}
	return hashOf(b)
}

// read reads a file of a repository, in the tree or outside.
func (i *inerter) read(path string, limit int64) ([]byte, error) {
	dir, name, err := i.guard.parent(path)
	if err != nil {
		return nil, err
	}
	defer unix.Close(dir)
	return readOwn(dir, name, limit)
}
