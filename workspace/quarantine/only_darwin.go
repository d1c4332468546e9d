package quarantine

import (
	"errors"
	"os"
)

// Nothing is staged for a stash while no directory is swapped, and no configuration is quarantined in part.

func (*Stash) adopt(*os.Root) bool { return false }

func (Finding) restoreSettings(_, _ int, _ string, _ []byte, _ bool) error {
	return errors.ErrUnsupported
}

// makeFIFO makes none: what has one in it stays where it is, under another name.
func makeFIFO(int, string) error { return errors.ErrUnsupported }
