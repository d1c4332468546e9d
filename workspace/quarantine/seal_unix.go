//go:build linux || darwin

package quarantine

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"math"
	"os"
	"slices"

	"github.com/pccrun/pccrun/workspace/vcs"
)

// ErrUnseen is returned for more than is shown of one finding.
var ErrUnseen = errors.New("it is too much to be shown")

// maxSealed bounds how deep directories in the stash are looked into.
const maxSealed = 256

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
	s := sealer{stash: stash, left: maxShown, limit: vcs.MaxOriginal}
	if all {
		s.left, s.limit = 1<<30, math.MaxInt64-1
	}
	parts := c.Parts
	if parts == nil {
		parts = []Finding{c}
	}
	digests = map[string]string{}
	for _, p := range parts {
		if p.Stash == "" {
			continue
		}
		s.sum = sha256.New()
		fmt.Fprintf(s.sum, "%s %q ", p.Kind, p.Path)
		err := s.seal(p.Stash, "", 0)
		if left := p.Stash + LeftOver; err == nil {
			s.left++
			if err = s.seal(left, left, 0); errors.Is(err, fs.ErrNotExist) {
				err = nil
			}
		}
		if err != nil {
			return nil, err
		}
		digests[p.Stash] = hex.EncodeToString(s.sum.Sum(nil))
	}
	return digests, nil
}

type sealer struct {
	stash *os.Root
	sum   hash.Hash
	left  int   // how many entries more
	limit int64 // of a file, in bytes
}

// seal adds an entry to the sum, by its path below the finding's.
func (s *sealer) seal(name, path string, depth int) error {
	info, err := s.stash.Lstat(name)
	if err != nil {
		return err
	}
	if s.left--; s.left <= 0 {
		return ErrUnseen
	}
	mode := info.Mode() & fs.ModeType
	if mode == 0 {
		mode = info.Mode() & 0o111
	}
	fmt.Fprintf(s.sum, "%q %o ", path, mode)
	switch {
	case info.IsDir():
		if depth == maxSealed {
			return fmt.Errorf("%w: more than %d levels of directories", ErrUnseen, maxSealed)
		}
		if info.Mode()&0o700 != 0o700 { // its maker has closed it
			if err := s.stash.Chmod(name, info.Mode().Perm()|0o700); err != nil {
				return err
			}
		}
		dir, err := s.stash.Open(name)
		if err != nil {
			return err
		}
		names, err := dir.Readdirnames(s.left + 1)
		dir.Close()
		if err == io.EOF {
			err = nil
		}
		slices.Sort(names)
		for _, n := range names {
			if err == nil {
				err = s.seal(name+"/"+n, path+"/"+n, depth+1)
			}
		}
		fmt.Fprint(s.sum, "end ")
		return err
	case info.Mode().IsRegular():
		return s.body(name, info)
	case info.Mode()&fs.ModeSymlink != 0:
		to, err := s.stash.Readlink(name)
		fmt.Fprintf(s.sum, "%q ", to)
		return err
	}
	return nil
}

// body writes the body of a file anew.
func (s *sealer) body(name string, info fs.FileInfo) error {
	if info.Mode()&0o400 == 0 {
		if err := s.stash.Chmod(name, info.Mode().Perm()|0o400); err != nil {
			return err
		}
	}
	from, err := s.stash.Open(name)
	if err != nil {
		return err
	}
	defer from.Close()
	if err := s.stash.Remove(freshName); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	to, err := s.stash.OpenFile(freshName, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	n, err := io.Copy(io.MultiWriter(to, s.sum), io.LimitReader(from, s.limit+1))
	fmt.Fprintf(s.sum, " %d ", n)
	if err == nil {
		err = to.Chmod(info.Mode().Perm())
	}
	if err = errors.Join(err, to.Close()); err == nil && n > s.limit {
		err = ErrUnseen
	}
	if err == nil {
		return s.stash.Rename(freshName, name)
	}
	return errors.Join(err, s.stash.Remove(freshName))
}
