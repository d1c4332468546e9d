package workspace

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	"golang.org/x/sys/unix"

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
	files, err := c.guard.filesIn(top, maxTips, c.left)
	if err != nil {
		if gone(err) {
			return nil
		}
		return fmt.Errorf("%s: %w", lfsObjects, err)
	}
	large := !c.stood
	for _, name := range files {
		path := top + "/" + name
		if !vcs.IsLFSObject(name) {
			continue
		}
		var st unix.Stat_t
		if err := c.guard.stat(path, &st); gone(err) || err == nil && c.stood && !c.guard.touched(&st) && !c.moved(path) {
			continue
		}
		if st.Size > maxMedia {
			if !large {
				tell(path, fmt.Sprintf("%d MiB, new or changed", st.Size>>20), unreadLFS)
			}
			large = true
			continue
		}
		if err := c.left.spend(st.Size); err != nil {
			return fmt.Errorf("%s: %w", lfsObjects, err)
		}
		dir, base, err := c.guard.parent(path)
		if err != nil {
			return fmt.Errorf("%s: %w", lfsObjects, err)
		}
		b, err := readOwn(dir, base, maxMedia)
		unix.Close(dir)
		if gone(err) {
			continue
		}
		if is := sha256.Sum256(b); err != nil || hex.EncodeToString(is[:]) != base {
			tell(path, "not what its name says", forgedLFS)
			return nil
		}
	}
	return nil
}
