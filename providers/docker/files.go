//go:build unix

package docker

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// makeFiles makes the files that the engine binds.
func (r *plan) makeFiles() error {
	if err := os.MkdirAll(filepath.Dir(r.dir), 0o700); err != nil {
		return err
	}
	if err := os.Mkdir(r.dir, 0o700); err != nil {
		return err
	}
	for _, f := range r.files {
		if err := f.make(filepath.Join(r.dir, f.Name)); err != nil {
			return err
		}
	}
	if share := r.inside.Share; share != nil {
		var st unix.Stat_t
		if err := unix.Stat(filepath.Join(r.dir, canaryName), &st); err != nil {
			return &os.PathError{Op: "stat", Path: filepath.Join(r.dir, canaryName), Err: err}
		}
		share.Ino = st.Ino
	}
	r.inside.Umask = umask()
	return nil
}

func (f *file) make(path string) error {
	switch {
	case f.Dir:
		if err := os.MkdirAll(path, 0o755); err != nil {
			return err
		}
	case f.Link != "":
		return os.Symlink(f.Link, path)
	default:
		text := []byte(f.Text)
		if f.Copy != "" {
			var err error
			if text, err = os.ReadFile(f.Copy); err != nil {
				return err
			}
		}
		if err := os.WriteFile(path, text, 0o600); err != nil {
			return err
		}
	}
	return os.Chmod(path, os.FileMode(f.Mode)) // whatever the umask is
}

// umask returns this process's, which only Linux's /proc says without a change of it.
func umask() int {
	text, _ := os.ReadFile("/proc/self/status")
	_, after, ok := strings.Cut(string(text), "\nUmask:")
	mask := 0o022
	if ok {
		_, _ = fmt.Sscanf(after, "%o", &mask)
	}
	return mask
}
