package filesync

import (
	"io"
	"os"
	"path"
)

// An opener opens files of a tree that were decided on, through the directory of each, which stays open until the file of
// another is asked for.
type opener struct {
	root *os.Root
	dirs map[string]uint64 // the inodes of directories, by path
	in   openedDir
	at   string // its path; "" for none
	err  error  // why it is not open
	buf  []byte
}

// open opens a file, which may be another one by now: many a program saves a file so. The item says what it is. A link is
// none, and a directory is no other that a link leads to.
func (o *opener) open(item *Item) (openedFile, error) {
	if dir := path.Dir(item.Path); dir != o.at {
		o.close()
		o.in, o.err = o.openDir(dir)
		o.at = dir
	}
	if o.err != nil {
		return none, o.err
	}
	return openFile(o.in, path.Base(item.Path), &item.Entry)
}

func (o *opener) openDir(dir string) (in openedDir, err error) {
	root, err := openDir(o.root, dir, o.dirs[dir])
	if err != nil {
		return in, err
	}
	defer root.Close()
	return directoryOf(root)
}

// read returns what a file holds, nothing of one that is larger than [piece], until the next call.
func (o *opener) read(item *Item) ([]byte, error) {
	f, err := o.open(item)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	size := item.Entry.Size
	if size > piece {
		return nil, nil
	}
	if int64(cap(o.buf)) < size {
		o.buf = make([]byte, max(size, 64<<10))
	}
	n, err := io.ReadFull(f, o.buf[:size])
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		err = nil
	}
	item.Entry.Size = int64(n)
	return o.buf[:n], err
}

func (o *opener) close() {
	if o.at != "" && o.err == nil {
		o.in.Close()
	}
	o.at = ""
}
