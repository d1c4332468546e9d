//go:build linux || darwin

package quarantine

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/internal/state"
	"github.com/pccrun/pccrun/workspace/beneath"
)

// What a command has written to private directories is gone with the sandbox. A session
// keeps it within a bound, so that who misses it can fetch it.

// LostName is the directory of a session that holds what was lost, and its list.
const (
	LostName     = "lost"
	lostList     = "list"
	maxLost      = 64 << 20 // bytes of all that is kept
	maxLostFiles = 20_000
	maxLostItems = 256
	maxLostList  = 4 << 20
)

// KeepLost keeps what open finds of a list in a session, as far as there is room, and notes
// there which of it is kept.
func KeepLost(session *os.Root, list []Lost, open func(path string) (dir int, name string, err error)) ([]Lost, error) {
	if len(list) > maxLostItems {
		list = list[:maxLostItems]
	}
	if err := session.Mkdir(LostName, 0o700); err != nil {
		return list, err
	}
	to, err := lostDir(session)
	if err != nil {
		return list, err
	}
	defer to.Close()
	k := &copier{room: maxLost, entries: maxLostFiles, plain: true}
	var text []byte
	for i := range list {
		l := &list[i]
		if room := *k; !l.More && l.Size <= k.room {
			l.Kept = strconv.Itoa(i)
			dir, name, err := open(l.Path)
			if err == nil {
				err = k.copy(dir, name, int(to.Fd()), l.Kept)
				unix.Close(dir)
			}
			if err != nil {
				_ = beneath.RemoveTree(int(to.Fd()), l.Kept)
				l.Kept, *k = "", room
				if !errors.Is(err, beneath.ErrTooMuch) {
					return list, fmt.Errorf("keep %s: %w", l.Path, err)
				}
			}
		}
		text = fmt.Appendf(text, "%q %t %d %d %t %q\n", l.Path, l.Dir, l.Files, l.Size, l.More, l.Kept)
	}
	return list, WriteNew(int(to.Fd()), lostList, text, 0o600)
}

func lostDir(session *os.Root) (*os.File, error) {
	return session.OpenFile(LostName, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
}

// ReadLost returns what a session notes of what was lost. None is no error.
func ReadLost(session *os.Root) (list []Lost, err error) {
	text, err := state.ReadFile(session, LostName+"/"+lostList, maxLostList)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	for line := range strings.Lines(string(text)) {
		var l Lost
		if _, e := fmt.Sscanf(line, "%q %t %d %d %t %q\n", &l.Path, &l.Dir, &l.Files, &l.Size, &l.More, &l.Kept); e != nil {
			return nil, fmt.Errorf("%s/%s: %w", LostName, lostList, e)
		}
		list = append(list, l)
	}
	return list, err
}

// SaveLost copies what was lost at a path, or below one, out of a session: to a name that
// does not exist yet, or into a directory that does.
func SaveLost(session *os.Root, list []Lost, path, dest string) (string, error) {
	for _, l := range list {
		rest, ok := beneath.Path(l.Path, path)
		if !ok {
			continue
		}
		if l.Kept == "" {
			return "", fmt.Errorf("%s: too large: the session does not have it", path)
		}
		if info, err := os.Stat(dest); err == nil && info.IsDir() {
			dest = filepath.Join(dest, filepath.Base(path))
		}
		from, err := lostDir(session)
		if err != nil {
			return "", err
		}
		defer from.Close()
		name := filepath.Join(l.Kept, rest)
		at, err := beneath.Open(int(from.Fd()), filepath.Dir(name), unix.O_RDONLY|unix.O_DIRECTORY)
		if err != nil {
			return "", fmt.Errorf("%s: %w", path, err)
		}
		defer unix.Close(at)
		to, err := os.OpenFile(filepath.Dir(dest), os.O_RDONLY|unix.O_DIRECTORY, 0)
		if err != nil {
			return "", err
		}
		defer to.Close()
		k := &copier{room: maxLost, entries: maxLostFiles, plain: true}
		if err := k.copy(at, filepath.Base(name), int(to.Fd()), filepath.Base(dest)); err != nil {
			return "", fmt.Errorf("%s: %w", dest, err)
		}
		return dest, nil
	}
	return "", fmt.Errorf("%s: the session has no unsaved files there", path)
}
