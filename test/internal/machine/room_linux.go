package machine

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// A Room is where a sandbox's programs run: a machine of its own, or, where nobody is root, a directory of this machine.
type Room struct {
	Home string // as its programs call it

	dir  string
	user *syscall.Credential // nil: this process
	path string
	m    *Machine
}

// NewRoom makes one in a directory that is not there yet. shows stands first in PATH there, if it is not empty.
func NewRoom(dir string, user *syscall.Credential, shows string) (*Room, error) {
	r := &Room{dir: dir, user: user, path: strings.TrimPrefix(shows+":"+os.Getenv("PATH"), ":")}
	r.Home = r.home()
	err := r.MakeDirs(r.home())
	if err != nil || user == nil {
		return r, err
	}
	o := Options{Root: filepath.Join(dir, "root"), Home: r.home()}
	if shows != "" {
		o.Shows = []string{shows}
	}
	r.Home = Home
	if err = os.Mkdir(o.Root, 0o755); err == nil {
		r.m, err = Start(o)
	}
	return r, err
}

func (r *Room) home() string { return filepath.Join(r.dir, "home") }

// MakeDirs makes directories of this machine, those that are missing the user's.
func (r *Room) MakeDirs(dir string) error { return makeDirs(dir, r.user) }

func makeDirs(dir string, user *syscall.Credential) error {
	if _, err := os.Lstat(dir); err == nil {
		return nil
	}
	if err := makeDirs(filepath.Dir(dir), user); err != nil {
		return err
	}
	err := os.Mkdir(dir, 0o755)
	if errors.Is(err, os.ErrExist) {
		return nil
	}
	if err == nil && user != nil {
		err = os.Lchown(dir, int(user.Uid), int(user.Gid))
	}
	return err
}

// Path is where a path of the room's is on this machine.
func (r *Room) Path(name string) string {
	rest, is := strings.CutPrefix(name, Home)
	switch {
	case r.m == nil:
		return name
	case is:
		return r.home() + rest
	}
	return r.m.Path(name)
}

// Command executes a program there. It ends with its context.
func (r *Room) Command(ctx context.Context, root bool, argv ...string) *exec.Cmd {
	c := exec.CommandContext(ctx, argv[0], argv[1:]...)
	if r.m != nil {
		uid, gid := r.user.Uid, r.user.Gid
		if root {
			uid, gid = 0, 0
		}
		there := r.m.Command(uid, gid, r.Home, argv...)
		c = exec.CommandContext(ctx, there.Path, there.Args[1:]...)
	}
	c.Dir, c.WaitDelay = r.home(), time.Second
	c.Env = []string{"PATH=" + r.path, "HOME=" + r.Home}
	return c
}

// End ends all that runs there, and removes its files.
func (r *Room) End() error {
	if r.m != nil {
		r.m.Stop()
	}
	return os.RemoveAll(r.dir)
}
