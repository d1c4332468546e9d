//go:build unix

package run

import (
	"fmt"
	"os"
	"sync"

	"github.com/pccrun/pccrun/internal/messages"
	"github.com/pccrun/pccrun/workspace/changes"
)

// What a run does about its overlays: the session's directory holds what they
// change, and is kept if anything did.

type overlays struct {
	*opened
	kept       bool                              // the session holds what overlays change, or a copy
	lower      func(layer int) (*os.Root, error) // opens what an overlay lies on
	summarized func() (overlaid, error)          // [overlays.summarize], once
}

// An overlaid is what a run left of its overlays.
type overlaid struct{ changed, lost int }

// took takes in the directory of a copy that a provider was given, where it has put something there.
func (u *overlays) took(dir *os.Root) {
	if dir != nil && !u.kept {
		u.kept, u.summarized = changes.Stands(dir), sync.OnceValues(u.summarize)
	}
}

// summarize counts what the run changed, and removes what nothing was changed in.
// Nothing of the run lives: it is done while the kernel takes the mounts apart.
func (u *overlays) summarize() (o overlaid, err error) {
	session, err := u.session.Dir()
	if err != nil {
		return o, err
	}
	upper, err := changes.OpenUpper(session, u.lower)
	if err != nil {
		return o, err
	}
	defer upper.Close()
	if o.changed, o.lost, err = upper.Settle(); err != nil {
		return o, fmt.Errorf("overlay: %w", err)
	}
	if o.changed == 0 {
		u.session.Drop(KeepUpper)
		return o, changes.RemoveUpper(session)
	}
	return o, nil
}

// report says what the run changed in its overlays, or why that is not noted.
func (u *overlays) report() {
	if !u.kept {
		u.session.Drop(KeepUpper)
		return
	}
	o, err := u.summarized()
	if err != nil {
		messages.Fail(messages.InWords(err), "the overlay is unchanged: pccrun diff shows it; apply and discard work when the error is fixed")
		return
	}
	if u.req.Quiet {
		return
	}
	if o.lost > 0 {
		messages.Say(fmt.Sprintf("%d sockets, FIFOs or devices in the overlay are not kept", o.lost))
	}
	if o.changed > 0 {
		messages.Say(PathsChanged(o.changed) + " in the overlay: pccrun diff, apply or discard")
	}
}
