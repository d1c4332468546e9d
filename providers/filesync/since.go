package filesync

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"path"
	"slices"
	"strings"

	"github.com/pccrun/pccrun/workspace"
)

// A Since is what stands in a copy that an earlier run had: a second upload sends what differs.
type Since struct {
	Items map[string]Standing
	Sent  []string // what went up before: it goes if it is not here any more, also where git ignores it now
}

// A Standing is one path of the copy, as its place says.
type Standing struct {
	Kind   workspace.Kind
	Mode   uint32
	Size   int64
	Names  int // of a file, hard links all
	Target string
	Sum    string // of a file: SHA-256 in hexadecimal digits
}

// since returns the items that the copy lacks or has otherwise, and the paths that have to go
// before they come, the outermost only. What was made there and is ignored stays. A file that is
// replaced goes first: what else bears its inode, or a link in its place, is no business of its.
func (t *Tree) since(ctx context.Context, old *Since) (send map[string]bool, gone []string, err error) {
	send, goes := map[string]bool{".": true}, map[string]bool{}
	items := t.Manifest.byPath()
	sent := map[string]bool{}
	for _, name := range old.Sent {
		sent[name] = true
	}
	var others []string
	for name, there := range old.Items {
		if items[name] == nil && !sent[name] {
			others = append(others, asked(name, there.Kind == workspace.Dir))
		}
	}
	ignored, err := t.Manifest.LeftOut(ctx, t.up.Git, others)
	if err != nil {
		return nil, nil, err
	}
	for name, there := range old.Items {
		item := items[name]
		switch {
		case item == nil && ignored[name] == "", item != nil && item.Entry.Kind != there.Kind:
			goes[name] = true
		case there.Kind == workspace.Dir && item != nil && there.Mode&0o700 != 0o700: // nobody but root can write in it
			goes[name] = true
		}
	}
	files := opener{root: t.root, dirs: t.Manifest.dirs()}
	defer files.close()
	for i := range t.Manifest.Items {
		item := &t.Manifest.Items[i]
		there, stands := old.Items[item.Path]
		stands = stands && !within(goes, item.Path)
		same := false
		if stands {
			if same, err = files.same(ctx, item, &there); err != nil {
				return nil, nil, err
			}
		}
		if !same {
			for name := item.Path; !send[name]; name = path.Dir(name) { // with the modes of all that it lies in
				send[name] = true
			}
			if stands && item.Entry.Kind != workspace.Dir {
				goes[item.Path] = true
			}
		}
	}
	for name := range goes {
		if !within(goes, path.Dir(name)) {
			gone = append(gone, name)
		}
	}
	slices.Sort(gone)
	return send, gone, nil
}

// within reports whether a path, or a directory that it is in, is one of a set.
func within(set map[string]bool, name string) bool {
	for ; name != "." && name != ""; name = path.Dir(name) {
		if set[name] {
			return true
		}
	}
	return false
}

// same reports whether a path is there as it is here.
func (o *opener) same(ctx context.Context, item *Item, there *Standing) (bool, error) {
	e := &item.Entry
	switch {
	case e.Kind == workspace.Link:
		return e.Target == there.Target, nil
	case uint32(e.Mode) != there.Mode:
		return false, nil
	case e.Kind == workspace.Dir:
		return true, nil
	case e.Size != there.Size || there.Names != 1:
		return false, nil
	}
	f, err := o.open(item)
	if err != nil {
		return false, nil // whoever packs it says why
	}
	defer f.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, contextReader{ctx, f}); err != nil {
		return false, err
	}
	return strings.EqualFold(hex.EncodeToString(sum.Sum(nil)), there.Sum), nil
}
