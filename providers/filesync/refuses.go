package filesync

import (
	"archive/tar"
	"errors"
	"slices"
	"time"

	"github.com/pccrun/pccrun/workspace"
)

// A Name is what stands at a path of a tree from which an archive may be asked for.
type Name struct {
	Path   string
	Kind   workspace.Kind
	Mode   int64
	Size   int64
	Target string // of a link
}

// Refuses returns for what of a tree an extraction would refuse the archive, and why, by path: what is left can be
// asked for. A directory comes before what is in it, which is refused with it.
func (d Down) Refuses(names []Name) map[string]string {
	d.Limits = d.Limits.orDefault()
	a := &archive{down: &d, members: map[string]*member{}, keys: map[string]string{}}
	why := map[string]string{}
	for _, n := range names {
		h := &tar.Header{Typeflag: tar.TypeReg, Name: n.Path, Mode: n.Mode, Size: n.Size, ModTime: time.Now()}
		switch n.Kind {
		case workspace.Dir:
			h.Typeflag, h.Size = tar.TypeDir, 0
		case workspace.Link:
			h.Typeflag, h.Linkname, h.Size = tar.TypeSymlink, n.Target, 0
		}
		if dir := parentOf(n.Path); dir != "" && why[dir] != "" {
			why[n.Path] = why[dir]
			continue
		}
		m, err := a.judge(h)
		if err == nil {
			err = a.enter(m)
		}
		var refused *RefusedError
		if errors.As(err, &refused) {
			why[n.Path] = refused.Why
		}
	}
	// A link that stays may have led another one elsewhere. Of many that depend on each other all stay: to find out would take
	// hours, and who made them may want that.
	for round, again := 0, true; again; round++ {
		again = false
		for _, n := range slices.Backward(names) {
			m := a.members[n.Path]
			if m == nil || m.kind != workspace.Link {
				continue
			}
			err := checkLink(n.Path, m.target, a.readlink)
			if err == nil && round == maxRounds {
				err = errors.New("the link depends on too many others that are refused")
			}
			if err != nil {
				why[n.Path], again = err.Error(), true
				delete(a.members, n.Path)
			}
		}
	}
	return why
}

// maxRounds is how often links are looked at again after others were refused.
const maxRounds = 8
