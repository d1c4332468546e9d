package workspace

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/workspace/beneath"
	"github.com/pccrun/pccrun/workspace/vcs"
)

// Of a large file git-lfs has git keep the name alone, which is the hash of its content, and
// puts into the working tree what lies by that name in a directory of its own. It compares
// the sizes alone, and fetches nothing that is there: nobody sees that the content is another.

const (
	maxMedia   = 64 << 20 // bytes of one that is read
	lfsObjects = "lfs/objects"
	forgedLFS  = "git-lfs puts it into the working tree as what its name says; `git lfs fsck` tells"
	unreadLFS  = "it is too much to be read, and git-lfs believes its name; `git lfs fsck` tells whether it is what it says"
)

// media tells of the first of git-lfs's files, as far as the run has left them, that is not what
// its name says, and of a repository that stood of the first that is too much to be read.
func (c *commits) media(tell func(path, what, why string)) error {
	top, _ := c.guard.led(c.common + "/" + lfsObjects)
	files, err := c.newMedia(top)
	if err != nil {
		if gone(err) {
			return nil
		}
		return fmt.Errorf("%s: %w", lfsObjects, err)
	}
	large := !c.stood
	for _, name := range files {
		path := top + "/" + name
		dir, base, err := c.guard.parent(path)
		if err != nil {
			return fmt.Errorf("%s: %w", lfsObjects, err)
		}
		var st unix.Stat_t
		if err = beneath.Stat(dir, base, &st); err == nil {
			err = c.left.spend(min(st.Size, maxMedia))
		}
		forged := false
		switch {
		case err != nil || st.Mode&unix.S_IFMT != unix.S_IFREG: // links in a repository are set aside
		case st.Size > maxMedia:
			if !large {
				tell(path, fmt.Sprintf("%d MiB, new or changed", st.Size>>20), unreadLFS)
			}
			large = true
		default:
			var b []byte
			b, err = readOwn(dir, base, maxMedia)
			is := sha256.Sum256(b)
			forged = !gone(err) && (err != nil || hex.EncodeToString(is[:]) != base)
		}
		unix.Close(dir)
		if forged {
			tell(path, "not what its name says", forgedLFS)
			return nil
		}
		if err != nil && !gone(err) {
			return fmt.Errorf("%s: %w", lfsObjects, err)
		}
	}
	return nil
}

// newMedia returns the files that the run may have left in a directory of git-lfs's objects, by
// their paths in it: what changed, or came with a directory. A file that is written to in its
// place changes nothing of its directory, so that each is asked when it changed.
func (c *commits) newMedia(top string) (list []string, err error) {
	above, name, err := c.guard.parent(top)
	if err != nil {
		return nil, err
	}
	defer unix.Close(above)
	dir, err := c.guard.openDir(above, name)
	if err != nil {
		return nil, err
	}
	defer unix.Close(dir)
	fans, err := beneath.Entries(dir)
	if err != nil {
		return nil, err
	}
	var st unix.Stat_t
	changed := unix.Fstat(dir, &st) != nil || c.guard.touched(&st)
	whole := level{dir: dir, all: !c.stood || c.moved(top+"/"+name), changed: changed}
	var mu sync.Mutex
	byTwo(len(fans), func(i int, buf []byte) (more bool) {
		found, e := c.guard.mediaIn(whole, fans[i], buf)
		mu.Lock()
		defer mu.Unlock()
		err = cmp.Or(err, e, c.left.spend(64))
		list = append(list, found...)
		return err == nil && len(list) <= maxTips
	})
	if err == nil && len(list) > maxTips {
		err = ErrTooMuch
	}
	slices.Sort(list)
	return list, err
}

// A level is an open directory, and whether all in it may have come with the run: it all, or
// those of its directories that have changed.
type level struct {
	dir          int
	all, changed bool
}

// below opens a directory in one; the descriptor is negative if git-lfs finds none there.
func (g *Guard) below(l level, name string) (in level, err error) {
	in.dir = -1
	if !vcs.IsFan(name) {
		return in, nil
	}
	if in.dir, err = g.openDir(l.dir, name); err != nil {
		in.dir = -1
		if gone(err) || err == unix.EACCES {
			err = nil
		}
		return in, err
	}
	var st unix.Stat_t
	in.changed = unix.Fstat(in.dir, &st) != nil || g.touched(&st)
	in.all = l.all || l.changed && in.changed
	return in, nil
}

// mediaIn is [commits.newMedia] for one of the directories over which the files are spread.
func (g *Guard) mediaIn(top level, fan string, buf []byte) (list []string, err error) {
	first, err := g.below(top, fan)
	if first.dir < 0 {
		return nil, err
	}
	defer unix.Close(first.dir)
	fans, err := beneath.Entries(first.dir)
	for i := 0; i < len(fans) && err == nil; i++ {
		var second level
		if second, err = g.below(first, fans[i]); second.dir < 0 {
			continue
		}
		err = beneath.Each(second.dir, buf, func(file []byte) {
			if len(file) != hex.EncodedLen(sha256.Size) {
				return
			}
			if ctime, ok := beneath.Ctime(second.dir, file); ok && (second.all || latest(ctime) >= g.begun()) {
				if path := fan + "/" + fans[i] + "/" + string(file); vcs.IsLFSObject(path) {
					list = append(list, path)
				}
			}
		})
		unix.Close(second.dir)
	}
	return list, err
}
