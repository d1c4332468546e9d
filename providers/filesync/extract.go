package filesync

import "errors"

// stageName begins the name of the directory in which an archive waits for its last member.
const stageName = ".pccrun-extract"

// ErrBusy says that another extraction works on the same directory.
var ErrBusy = errors.New("another extraction into it is running")

// An Extracted is what an extraction made.
type Extracted struct {
	Files, Dirs, Links int
	Bytes              int64
	NotExtracted       []HeldBack
}
