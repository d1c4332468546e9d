package quarantine

import (
	"errors"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// restore puts back one thing, through no link.
func (c Finding) restore(session *os.Root, _ bool) error {
	stash, err := session.Open(StashName)
	if err != nil {
		return err
	}
	defer stash.Close()
	dir, err := OpenDirectory(filepath.Dir(c.Path))
	if err != nil {
		return err
	}
	defer dir.Close()
	if err = rename(int(stash.Fd()), c.Stash, int(dir.Fd()), filepath.Base(c.Path)); err == unix.EEXIST {
		return ErrInTheWay
	}
	return err
}

// Left is nil, and Complete has nothing to add: no configuration is quarantined in part.
func (c Finding) Left(*os.Root) []byte    { return nil }
func (c Finding) Complete(*os.Root) error { return nil }

// ReadLost returns none: macOS has no private directories.
func ReadLost(*os.Root) ([]Lost, error) { return nil, nil }

// SaveLost finds none.
func SaveLost(*os.Root, []Lost, string, string) (string, error) {
	return "", errors.New("the session has no unsaved files")
}
