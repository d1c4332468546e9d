//go:build !linux

package workspace

import (
	"errors"
	"io/fs"
	"os"
)

const nonblock = 0

func isNotDir(error) bool { return false }

// entryOf returns an entry, but for the target of a link.
func entryOf(info fs.FileInfo) *Entry {
	e := &Entry{Mode: uint32(info.Mode().Perm()), Stamp: Stamp{Mtime: info.ModTime().UnixNano()}}
	switch mode := info.Mode(); {
	case mode.IsRegular():
		e.Kind, e.Size = File, info.Size()
	case mode.IsDir():
		e.Kind = Dir
	case mode&fs.ModeSymlink != 0:
		e.Kind = Link
	default:
		e.Kind = Other
	}
	return e
}

func dataFrom(_ *os.File, at int64) int64 { return at }

// There are overlays on Linux only.
func (l *layer) whiteout(string) bool        { return false }
func opaque(*os.File) bool                   { return false }
func (l *layer) copied(string) bool          { return false }
func (l Layer) is(fs.FileInfo) bool          { return false }
func takesAttributes(*os.Root, string) error { return errors.ErrUnsupported }
