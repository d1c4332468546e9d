package beneath

import "io/fs"

// A Kind is what a path is, itself: a symbolic link is a Link, wherever it leads.
type Kind uint8

// The kinds.
const (
	File Kind = iota
	Dir
	Link
	Special // FIFO, socket, device
)

// String returns the kind as messages call it.
func (k Kind) String() string {
	switch k {
	case File:
		return "file"
	case Dir:
		return "directory"
	case Link:
		return "link"
	case Special:
		return "special file"
	}
	return "BUG: unknown kind"
}

// Type returns the kind as the type bits of a mode.
func (k Kind) Type() fs.FileMode {
	switch k {
	case File:
		return 0
	case Dir:
		return fs.ModeDir
	case Link:
		return fs.ModeSymlink
	}
	return fs.ModeIrregular
}
