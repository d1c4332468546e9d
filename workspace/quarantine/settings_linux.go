package quarantine

import (
	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/workspace/beneath"
	"github.com/pccrun/pccrun/workspace/gitconfig"
	"github.com/pccrun/pccrun/workspace/vcs"
)

// restoreSettings does to the host's configuration what was not taken over or was taken out: all of it, or as far as it
// does not say something else by now.
func (c Finding) restoreSettings(stash, dir int, name string, before []byte, whole bool) error {
	after, err := beneath.ReadOwn(stash, c.Stash, vcs.MaxConfig)
	if err != nil {
		return err
	}
	unlock, err := gitconfig.Lock(dir, name, gitconfig.LockText("review"), gitconfig.Patient)
	if err != nil {
		return err
	}
	defer unlock()
	err = gitconfig.Rewrite(dir, name, func(host []byte) ([]byte, error) {
		text, ok, err := gitconfig.Accept(before, after, host)
		if err == nil && !ok && whole {
			err = ErrInTheWay
		}
		return text, err
	})
	if err != nil {
		return err
	}
	_ = unix.Unlinkat(stash, c.Stash+LeftOver, 0)
	return beneath.RemoveTree(stash, c.Stash)
}

func makeFIFO(dir int, name string) error { return unix.Mknodat(dir, name, unix.S_IFIFO|0o600, 0) }
