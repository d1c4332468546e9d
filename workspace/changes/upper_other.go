//go:build !linux

package changes

import (
	"errors"
	"io/fs"
	"os"

	"github.com/pccrun/pccrun/workspace"
)

const nonblock = 0

func isNotDir(error) bool { return false }

// EntryOf returns an entry, but for the target of a link.
func EntryOf(info fs.FileInfo) *Entry {
	e := &Entry{Mode: uint32(info.Mode().Perm()), Stamp: Stamp{Mtime: info.ModTime().UnixNano()}}
	switch mode := info.Mode(); {
	case mode.IsRegular():
		e.Kind, e.Size = workspace.File, info.Size()
	case mode.IsDir():
		e.Kind = workspace.Dir
	case mode&fs.ModeSymlink != 0:
		e.Kind = workspace.Link
	default:
		e.Kind = workspace.Special
	}
	return e
}

// LayerOf is not available on this system.
func LayerOf(string) (Layer, error) { return Layer{}, errors.ErrUnsupported }

func dataFrom(_ *os.File, at int64) int64 { return at }

// There are overlays on Linux only.
func (l *layer) whiteout(string) bool        { return false }
func whiteoutAt(*os.File, string) error      { return errors.ErrUnsupported }
func opaque(*os.File) bool                   { return false }
func (l Layer) is(fs.FileInfo) bool          { return false }
func takesAttributes(*os.Root, string) error { return errors.ErrUnsupported }

// Clock is not available on this system.
func Clock() int64 { return 0 }

// Begin is not available on this system.
func (u *Upper) Begin() error { return errors.ErrUnsupported }

// Apply is not available on this system.
func (u *Upper) Apply(Selection) (*Outcome, error) { return nil, errors.ErrUnsupported }

// Copy is not available on this system.
func (u *Upper) Copy(*os.Root) error { return errors.ErrUnsupported }

// Usage is not available on this system.
func Usage(*os.Root) int64 { return 0 }

func beginWith(_, _ *os.Root, _ *Record) error { return errors.ErrUnsupported }

// TakeBack is not available on this system.
func (u *Upper) TakeBack() error { return errors.ErrUnsupported }
