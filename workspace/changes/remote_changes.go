package changes

import (
	"os"
	"path"
	"strconv"
)

// What a copy of a directory became elsewhere is kept as what an overlay of it would
// have held: the files that differ, and marks for what is gone. All that is done with
// an overlay's changes is done with these.

// TreeDir is the directory in a session's that holds what differs of a layer.
func TreeDir(layer int) string { return path.Join(UpperName, strconv.Itoa(layer), treeName) }

// Keep notes that the sets, one a layer, are all that there is of the run's changes: what
// else differs from the host is no change of the run's. It returns how many paths they
// are of. A conflict that a change has stays one.
func (u *Upper) Keep(sets []*Set) (n int, err error) {
	r := &u.Record
	r.Stood, r.Ended = nil, true
	for i, s := range sets {
		for _, c := range s.Changes {
			r.Stood = append(r.Stood, Stood{Layer: i, Path: c.Path, Entry: c.Before, Touched: c.Conflict != "", Index: u.index(i, c.Path)})
		}
	}
	if len(r.Stood) == 0 {
		return 0, nil // nobody keeps that
	}
	return len(r.Stood), writeRecord(u.dir, r)
}

// ReadTree reads a file of what differs of a layer, of at most so many bytes.
func (u *Upper) ReadTree(layer int, name string, most int64) ([]byte, error) {
	return read(u.after[layer], name, most)
}

// Gone marks a path of a layer as one that the run removed. What it lies in must be there.
func Gone(session *os.Root, layer int, name string) error {
	if !localPath(name) || name == "." {
		return &os.PathError{Op: "remove", Path: name, Err: os.ErrInvalid}
	}
	dir, err := session.OpenRoot(path.Join(TreeDir(layer), path.Dir(name)))
	if err != nil {
		return err
	}
	defer dir.Close()
	f, err := dir.Open(".")
	if err != nil {
		return err
	}
	defer f.Close()
	return whiteoutAt(f, path.Base(name))
}
