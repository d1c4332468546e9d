package workspace

import (
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/workspace/beneath"
)

// A Carried is what a run has made in a directory of its own and is to be the
// user's: the state of an agent that ran for the first time. Nothing stands at
// Path on the host until the run is over.
type Carried struct {
	Path    string // absolute: where it belongs
	Dir     int    // holds it under Name, and is closed by who carries it
	Name    string
	Without []string // absolute, below Path: what the policy does not let the command write

	// Protect are the rules of the look through it, as those of [Query]; nil for
	// none but of what absolute ones of the first guard's name.
	Protect []profiles.ProtectRule

	// Inward is that of [Query].
	Inward bool
}

// What is carried over: a directory takes its content along, and is read into
// memory file by file.
const maxCarried = 256 << 20

// within splits what was made: what belongs in the workspace is brought there
// before the last look, which treats it as all that a run leaves there; what
// belongs elsewhere has nobody to look at it but us, and waits until it was.
func (g *Guard) within(made []Carried) (in, out []Carried) {
	for _, c := range made {
		if _, ok := beneath.Path(g.standing.Root, c.Path); ok {
			in = append(in, c)
		} else {
			out = append(out, c)
		}
	}
	return in, out
}

// lend opens what was made so that the last look finds in it what is protected,
// as if it stood where it will.
func (g *Guard) lend(made []Carried) error {
	if len(made) == 0 {
		return nil
	}
	standing := *g.standing
	g.standing, g.lent = &standing, maps.Clone(g.lent)
	if g.lent == nil {
		g.lent = map[string]int{}
	}
	for _, c := range made {
		if err := c.less(); err != nil {
			return err
		}
		fd, err := openDirOf(c.Dir, c.Name)
		if err == unix.ENOTDIR || err == unix.ELOOP {
			continue
		}
		if err != nil {
			return fmt.Errorf("look through %s: %w", c.Path, err)
		}
		g.lent[c.Path], g.lends = fd, append(g.lends, fd)
		for _, p := range standing.Protect {
			if rest, in := beneath.Path(c.Path, p.Pattern); in && rest != "" && !p.Review {
				if err := c.unlockWay(rest); err != nil {
					return fmt.Errorf("look for %s: %w", p.Pattern, err)
				}
				standing.Vacant = append(slices.Clip(standing.Vacant), p.Pattern)
			}
		}
	}
	return nil
}

// whyVacant says why nothing may come to stand at a path: a pattern names it, or
// something leads there.
func (r *Standing) whyVacant(path string) string {
	for _, p := range r.Protect {
		if p.Pattern == path {
			return path
		}
	}
	return "a name that git or a link leads to"
}

// unlockWay makes the directories on the way to a path below what was made ones
// that we can search, whatever mode the command has left them: what stands in
// the others would not be found, and be carried over all the same.
func (c *Carried) unlockWay(rest string) error {
	path := c.Name + "/" + rest
	for i := range path {
		if path[i] != '/' {
			continue
		}
		if err := unlock(c.Dir, path[:i]); gone(err) {
			return nil // a link is met as one
		} else if err != nil {
			return err
		}
	}
	return nil
}

// less removes what is not to be carried.
func (c *Carried) less() error {
	for _, path := range c.Without {
		rest, in := beneath.Path(c.Path, path)
		if !in || rest == "" {
			continue
		}
		if err := c.unlockWay(rest); err != nil {
			return fmt.Errorf("look for %s, which is private: %w", path, err)
		}
		dir, err := beneath.Open(c.Dir, filepath.Join(c.Name, filepath.Dir(rest)), unix.O_PATH|unix.O_DIRECTORY)
		if err == nil {
			err = removeTree(dir, filepath.Base(rest))
			unix.Close(dir)
		}
		if err != nil && !gone(err) {
			return fmt.Errorf("remove %s, which is private: %w", path, err)
		}
	}
	return nil
}

// carry brings over what was made, or sets it aside if it cannot be: all of it
// after a look that failed, which may not have found what is protected. It returns
// what has come to be on the host.
func (g *Guard) carry(made []Carried, look error) (paths []string, err error) {
	var errs []error
	for _, c := range made {
		done, err := false, look
		if look == nil {
			done, err = c.Carry(g.stash.Open)
		}
		if err != nil {
			var found Finding
			if found, err = g.stash.take(c.Dir, c.Name, Finding{Kind: Stashed, Path: c.Path, Why: NotCarried + err.Error()}); err == nil {
				g.told(found)
			}
		}
		if done {
			paths = append(paths, c.Path)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("keep %s: %w", c.Path, err))
		}
	}
	return paths, errors.Join(errs...)
}

var errSort = errors.New("neither a directory nor a regular file")

// Carry copies what was made to where it belongs, by the session's directory: it
// is there as a whole or not at all, and a launcher that is killed meanwhile
// leaves nothing but a session, which the next command removes. It takes no name
// that is taken, follows no link, and belongs to the user alone. Directories that hold
// nothing are not worth a name: done says whether there is one now.
func (c *Carried) Carry(session func() (*os.Root, error)) (done bool, err error) {
	var st unix.Stat_t
	if err := beneath.Stat(c.Dir, c.Name, &st); err != nil {
		return false, err
	}
	if err := c.less(); err != nil {
		return false, err
	}
	kind := st.Mode & unix.S_IFMT
	if kind != unix.S_IFDIR && kind != unix.S_IFREG {
		return false, errSort // a link that the command has made would lead the next run
	}
	if kind == unix.S_IFDIR {
		if some, err := holds(c.Dir, c.Name); !some || err != nil {
			return false, err
		}
	}
	to, err := makePath(filepath.Dir(c.Path))
	if err != nil {
		return false, err
	}
	defer unix.Close(to)
	root, err := session()
	if err != nil {
		return false, err
	}
	stage, err := root.Open(".")
	if err != nil {
		return false, err
	}
	defer stage.Close()
	err = c.through(int(stage.Fd()), "made", to, &st)
	if errors.Is(err, unix.EXDEV) {
		err = c.through(to, ".pccrun-new-"+rand.Text(), to, &st)
	}
	return err == nil, err
}

// through copies what was made under a name in one directory, and moves it from
// there into another of the same file system.
func (c *Carried) through(at int, name string, to int, st *unix.Stat_t) error {
	k := copier{room: maxCarried, entries: maxCopied, modes: true, plain: true}
	err := k.copy(c.Dir, c.Name, at, name)
	if err == nil {
		mode := st.Mode&0o700 | 0o600
		if st.Mode&unix.S_IFMT == unix.S_IFDIR {
			mode = 0o700
		}
		err = unix.Fchmodat(at, name, mode, 0)
	}
	if err == nil {
		err = unix.Renameat2(at, name, to, filepath.Base(c.Path), unix.RENAME_NOREPLACE)
	}
	if err != nil {
		err = errors.Join(err, missing(removeTree(at, name)))
	}
	return err
}

// missing makes nothing of an error that says that nothing is there.
func missing(err error) error {
	if gone(err) {
		return nil
	}
	return err
}

// holds reports whether anything but directories stands in a directory.
func holds(dir int, name string) (bool, error) {
	fd, err := openDirOf(dir, name)
	if err != nil {
		return false, err
	}
	defer unix.Close(fd)
	list, err := beneath.Entries(fd)
	if err != nil {
		return false, err
	}
	for _, e := range list {
		if beneath.DirentType(fd, e) != unix.DT_DIR {
			return true, nil
		}
		if some, err := holds(fd, e); some || err != nil {
			return some, err
		}
	}
	return false, nil
}

// makePath opens a directory, name by name and without following a link, and
// makes what of it does not exist, for the user alone.
func makePath(path string) (int, error) {
	at, err := unix.Open("/", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	for name := range strings.SplitSeq(strings.Trim(path, "/"), "/") {
		if name == "" {
			continue
		}
		next, err := beneath.Open(at, name, unix.O_PATH|unix.O_DIRECTORY)
		if err == unix.ENOENT {
			if err = unix.Mkdirat(at, name, 0o700); err == nil || err == unix.EEXIST {
				next, err = beneath.Open(at, name, unix.O_PATH|unix.O_DIRECTORY)
			}
		}
		unix.Close(at)
		if err != nil {
			return -1, &os.PathError{Op: "open", Path: path, Err: err}
		}
		at = next
	}
	return at, nil
}

// passing reports whether an entry holds nothing but what is private by the
// policy: what a program makes anew at each run, and nobody will miss.
func (g *Guard) passing(dir int, name, path string, room int) bool {
	leads, lies := false, false
	for _, p := range g.Private {
		if _, in := beneath.Path(p, path); in {
			lies = true
		} else if _, in := beneath.Path(path, p); in {
			leads = true
		}
	}
	if lies || !leads {
		return lies
	}
	fd, err := openDirOf(dir, name)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	list, err := beneath.Entries(fd)
	if err != nil || len(list) > room {
		return false
	}
	for _, e := range list {
		if !g.passing(fd, e, path+"/"+e, room-len(list)) {
			return false
		}
	}
	return true
}

// maxPassing bounds the names that lead to what is private.
const maxPassing = 64

// drop removes an entry, which is gone for everybody before any of it is.
func (s *Stash) drop(dir int, name string) (away string, err error) {
	s.mu.Lock()
	away = s.beside(moving)
	s.mu.Unlock()
	if os.Geteuid() == 0 {
		return name, dropHeld(dir, name)
	}
	if err := move(dir, name, dir, away); err != nil {
		return name, err
	}
	return away, removeTree(dir, away)
}
