// Package state finds the directories that pccrun keeps for itself, and
// changes what is in them so that a crash, a second pccrun or a hostile
// neighbour can do no harm.
//
// It promises:
//   - a directory is used only if it is a real directory, the user's own,
//     closed to writing by others, and outside every workspace ([Open]);
//   - a file is seen whole, before or after, never half ([WriteFile]);
//   - a lock dies with the process that holds it ([TryLock]).
//
// It knows nothing of what is kept: sessions, trust and caches do.
package state

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// Dirs are pccrun's own directories. None of them needs to exist.
type Dirs struct {
	State  string // sessions
	Config string // the user's profiles, and what he trusts
	Cache  string // what can be made again
}

// Find returns the directories that the XDG base directory specification
// gives: $XDG_STATE_HOME, $XDG_CONFIG_HOME and $XDG_CACHE_HOME, else their
// defaults below home. A value that is not absolute is ignored, as the
// specification asks. The home must be absolute.
func Find(getenv func(string) string, home string) (Dirs, error) {
	if !filepath.IsAbs(home) {
		return Dirs{}, fmt.Errorf("home %q: not an absolute path", home)
	}
	dir := func(name, below string) string {
		base := getenv(name)
		if !filepath.IsAbs(base) || strings.ContainsRune(base, 0) {
			base = filepath.Join(home, below)
		}
		return filepath.Join(base, "pccrun")
	}
	return Dirs{
		State:  dir("XDG_STATE_HOME", ".local/state"),
		Config: dir("XDG_CONFIG_HOME", ".config"),
		Cache:  dir("XDG_CACHE_HOME", ".cache"),
	}, nil
}

// ErrUnsafe is wrapped by the errors for a directory that pccrun must not
// trust. The text names the directory and what is wrong with it.
var ErrUnsafe = errors.New("unsafe directory")

// ErrLocked is returned for a lock that somebody else holds.
var ErrLocked = errors.New("locked")

func unsafe(path, format string, args ...any) error {
	return fmt.Errorf("%w %q: %s", ErrUnsafe, path, fmt.Sprintf(format, args...))
}

// Outside returns nil if path, and where its links lead, is neither the
// workspace nor below it: a state directory that the payload could write
// would let one run prepare the next. The workspace must be absolute, clean
// and free of links; "" is none. What of path does not exist yet is taken
// by its name.
func Outside(path, workspace string) error {
	if workspace == "" {
		return nil
	}
	real, err := resolve(path)
	if err != nil {
		return err
	}
	if within(real, workspace) || within(filepath.Clean(path), workspace) {
		return unsafe(path, "it is in the workspace %s", workspace)
	}
	return nil
}

// Straight reports whether no link is on the way of a path, as far as it exists. It is false too where that would have
// to be asked name by name.
func Straight(path string) bool {
	is, _ := straight(path)
	return is && filepath.IsAbs(path) && filepath.Clean(path) == path
}

// Real is [filepath.EvalSymlinks], and quicker where no link is on the way.
func Real(path string) (string, error) {
	is, exists := straight(path)
	switch is = is && filepath.IsAbs(path) && filepath.Clean(path) == path; {
	case is && exists:
		return path, nil
	case is:
		return "", &fs.PathError{Op: "lstat", Path: path, Err: syscall.ENOENT}
	}
	return filepath.EvalSymlinks(path)
}

// resolve follows the links of the part of path that exists.
func resolve(path string) (string, error) {
	if !filepath.IsAbs(path) {
		return "", unsafe(path, "not an absolute path")
	}
	path = filepath.Clean(path)
	if Straight(path) {
		return path, nil
	}
	for dir, rest := path, ""; ; {
		real, err := filepath.EvalSymlinks(dir)
		switch {
		case err == nil:
			return filepath.Join(real, rest), nil
		case !isNotExist(err) || dir == filepath.Dir(dir):
			return "", unsafe(path, "%v", err)
		}
		// A link that leads to nothing is "not there" as well, and could
		// come to lead anywhere.
		if isLink(dir) {
			return "", unsafe(path, "%s is a link to nothing", dir)
		}
		dir, rest = filepath.Dir(dir), filepath.Join(filepath.Base(dir), rest)
	}
}

// within reports whether path is dir or below it. Both are clean.
func within(path, dir string) bool {
	return path == dir || dir == "/" || strings.HasPrefix(path, dir+"/")
}

// RemovePath is [RemoveAll] of what stands at a path.
func RemovePath(path string) error {
	root, err := os.OpenRoot(filepath.Dir(path))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer root.Close()
	return RemoveAll(root, filepath.Base(path))
}
