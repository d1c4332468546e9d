//go:build linux || darwin

package quarantine

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"slices"

	"github.com/pccrun/pccrun/workspace/vcs"
)

// ErrUnseen is returned for more than is shown of one finding.
var ErrUnseen = errors.New("it is too much to be shown")

// freshName is a body that is being written, in the stash: entries have numbers.
const freshName = "fresh"

// Seal gives each file that the stash has of a finding a body of its own, which no other name and no process of the run
// leads to, and returns digests of what stands there now, by the names in the stash. Unless all is wanted, more than
// [Finding.Show] shows is [ErrUnseen].
func (c Finding) Seal(session *os.Root, all bool) (digests map[string]string, err error) {
	stash, err := session.OpenRoot(StashName)
	if err != nil {
		return nil, err
	}
	defer stash.Close()
	w := walk{stash: stash, left: maxShown}
	limit := int64(vcs.MaxOriginal)
	if all {
		w.left, limit = 1<<30, math.MaxInt64-1
	}
	digests = map[string]string{}
	for _, p := range c.stored() {
		sum := sha256.New()
		fmt.Fprintf(sum, "%s %q ", p.Kind, p.Path)
		w.visit = func(name, path string, info fs.FileInfo) error {
			mode := info.Mode().Type()
			if mode == 0 {
				mode = info.Mode() & 0o111
			}
			fmt.Fprintf(sum, "%q %o ", path, mode)
			switch {
			case info.Mode().IsRegular():
				return renew(stash, name, info, sum, limit)
			case info.Mode()&fs.ModeSymlink != 0:
				to, err := stash.Readlink(name)
				fmt.Fprintf(sum, "%q ", to)
				return err
			}
			return nil
		}
		err := w.each(p.Stash, "", 0)
		if left := p.Stash + LeftOver; err == nil {
			w.left++
			if err = w.each(left, left, 0); errors.Is(err, fs.ErrNotExist) {
				err = nil
			}
		}
		if err != nil {
			return nil, err
		}
		digests[p.Stash] = hex.EncodeToString(sum.Sum(nil))
	}
	return digests, nil
}

// stored are the findings of which the stash has something: it, or its parts.
func (c Finding) stored() []Finding {
	parts := c.Parts
	if parts == nil {
		parts = []Finding{c}
	}
	return slices.DeleteFunc(slices.Clone(parts), func(p Finding) bool { return p.Stash == "" })
}

// renew writes the body of a file anew, and adds it to a sum.
func renew(stash *os.Root, name string, info fs.FileInfo, sum io.Writer, limit int64) error {
	from, err := stash.Open(name)
	if err != nil {
		return err
	}
	defer from.Close()
	if err := stash.Remove(freshName); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	to, err := stash.OpenFile(freshName, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	n, err := io.Copy(io.MultiWriter(to, sum), io.LimitReader(from, limit+1))
	fmt.Fprintf(sum, " %d ", n)
	if err == nil {
		err = to.Chmod(info.Mode().Perm())
	}
	if err = errors.Join(err, to.Close()); err == nil && n > limit {
		err = ErrUnseen
	}
	if err == nil {
		return stash.Rename(freshName, name)
	}
	return errors.Join(err, stash.Remove(freshName))
}
