package filesync

import (
	"context"
	"errors"
	"io"
)

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

// Extract is [ExtractParts] of one archive.
func Extract(ctx context.Context, dir string, from io.Reader, down Down) (*Extracted, error) {
	return ExtractParts(ctx, dir, once(from), down)
}

func once(from io.Reader) func() (io.Reader, error) {
	return func() (io.Reader, error) {
		part := from
		if from = nil; part == nil {
			return nil, io.EOF
		}
		return part, nil
	}
}
