package namespaces

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/internal/hint"
	"github.com/pccrun/pccrun/internal/procfs"
)

// A view is a directory from which a process inside may look at the tree: the
// root, by paths; and each directory that stood open for a moment, since it may
// have been opened then, or entered, by a command that waited for it. What a
// mount covers is what lies in the directory as the view shows it.
type view struct {
	path string // that the directory had
	fd   int
}

// relative is a path below the view's descriptor.
func (v view) relative(path string) string {
	if path == v.path {
		return "."
	}
	return strings.TrimPrefix(path[len(v.path):], "/")
}

// look returns what the view shows at a path, itself if it is a link, and
// whether anything does.
func (v view) look(path string) (st unix.Statx_t, there bool, err error) {
	const mask = unix.STATX_TYPE | unix.STATX_INO | unix.STATX_NLINK | unix.STATX_MNT_ID
	err = unix.Statx(v.fd, v.relative(path), unix.AT_SYMLINK_NOFOLLOW, mask, &st)
	switch err {
	case nil:
		return st, true, nil
	case unix.ENOENT, unix.ENOTDIR, unix.ELOOP:
		return st, false, nil
	case unix.EACCES:
		// What the host puts there could no longer be covered again, and by a descriptor that it
		// holds the command would reach it.
		return st, false, hint.Errorf("a parent directory lost its search permission during the run (chmod), and hidden or protected files "+
			"below it could not be watched", "statx %s: %w", path, unix.EACCES)
	}
	return st, false, fmt.Errorf("statx %s: %w", path, err)
}

// covered reports whether a path is a mount point in the view, or nothing.
func (v view) covered(path string) (bool, error) {
	st, there, err := v.look(path)
	if err != nil || !there {
		return true, err
	}
	above, there, err := v.look(filepath.Dir(path))
	return !there || st.Mnt_id != above.Mnt_id, err
}

// open opens what the view shows at a path, to hold it, and says of what kind
// it is. Nothing there is -1.
func (v view) open(path string) (fd int, st unix.Statx_t, err error) {
	how := unix.OpenHow{Flags: lookup | unix.O_NOFOLLOW, Resolve: resolve}
	fd, err = unix.Openat2(v.fd, v.relative(path), &how)
	if err == unix.ENOENT || err == unix.ENOTDIR || err == unix.ELOOP {
		return -1, st, nil
	}
	if err != nil {
		return -1, st, fmt.Errorf("open %s: %w", path, err)
	}
	if err = unix.Statx(fd, "", unix.AT_EMPTY_PATH, unix.STATX_BASIC_STATS|unix.STATX_MNT_ID, &st); err != nil {
		unix.Close(fd)
		return -1, st, fmt.Errorf("statx %s: %w", path, err)
	}
	return fd, st, nil
}

// maxViews bounds how many directories the remount watcher holds. A host that replaces
// more of them, and keeps the old ones, is not kept up with.
const maxViews = 256

// prune lets go of directories that were removed: nothing can be made in them.
func (k *RemountWatcher) prune() error {
	before := len(k.views)
	k.views = slices.DeleteFunc(k.views, func(v view) bool {
		var st unix.Stat_t
		if v.path == "/" || unix.Fstat(v.fd, &st) == nil && st.Nlink > 0 {
			return false
		}
		unix.Close(v.fd)
		return true
	})
	if len(k.views) < before {
		k.dismiss() // its numbers may soon mean others
	}
	if len(k.views) > maxViews {
		return fmt.Errorf("the host replaced more than %d directories", maxViews)
	}
	return nil
}

// mend covers what is open in a view. What fails may have changed again under
// our hands; what is gone by then will be met by the event of its return.
func (k *RemountWatcher) mend(v view) error {
	for i := range k.items {
		item := &k.items[i]
		if item.path == v.path || !below(item.path, v.path) {
			continue
		}
		if k.over.Load() {
			return nil
		}
		ok, err := v.covered(item.path)
		for try := 0; err == nil && !ok; try++ {
			if err = k.seal(v, i); err != nil && try < mendTries {
				err = nil
			}
			if err == nil {
				ok, err = v.covered(item.path)
			}
		}
		if err != nil {
			return fmt.Errorf("cover %s again: %w", item.path, err)
		}
	}
	return nil
}

// mendTries is how often something that changes under our hands is covered.
const mendTries = 4

// seal covers an item, and all that lies in it, in a view that shows it open.
// What lies deepest goes first, each at the place where somebody would find it
// who has opened any directory above it, and so into the clone that is then
// mounted over that directory.
func (k *RemountWatcher) seal(v view, first int) error {
	// All are held before they are covered, and the helper, which is to know
	// the directories by their numbers, comes after. What it covers must be
	// what is held: a name is uncovered a moment before another file has it.
	type target struct {
		item *kept
		seen unix.Statx_t
	}
	var open []target
	views, grips := len(k.views), len(k.grips)
	for i := first; i < len(k.items) && below(k.items[i].path, k.items[first].path); i++ {
		item := &k.items[i]
		ok, err := v.covered(item.path)
		if err != nil {
			return err
		}
		if ok {
			continue
		}
		fd, st, err := v.open(item.path)
		if err != nil {
			return err
		}
		if fd < 0 {
			continue
		}
		open = append(open, target{item, st})
		switch {
		case st.Mode&unix.S_IFMT == unix.S_IFREG:
			k.grips = append(k.grips, grip{item: item, fd: fd, was: st, until: time.Now().Add(settle)})
		case st.Mode&unix.S_IFMT == unix.S_IFDIR && item.with == "":
			k.views = append(k.views, view{item.path, fd})
			k.dismiss()
		default:
			unix.Close(fd)
		}
	}
	for _, t := range slices.Backward(open) {
		if err := k.cover(v, t.item, &t.seen); err != nil {
			k.release(views, grips)
			return err
		}
	}
	return nil
}

// release lets go of what has come since there were so many.
func (k *RemountWatcher) release(views, grips int) {
	for _, v := range k.views[views:] {
		unix.Close(v.fd)
	}
	for _, g := range k.grips[grips:] {
		unix.Close(g.fd)
	}
	k.views, k.grips = k.views[:views], k.grips[:grips]
}

// A grip is a file that stood open for a moment. It is covered by now, so that
// nobody inside finds it by its name; what was done to it before stays. That
// can be seen to some extent, and ends the run: a second name, another content,
// a descriptor that is still open.
type grip struct {
	item  *kept
	fd    int
	was   unix.Statx_t // when it was seen; no mask once it was covered
	until time.Time    // when what is odd about it is no work of the host's that is under way
}

// settle is how long a program of the host may take to finish with a file that
// it has put in its place: to remove the name that it wrote it by, to close it.
const settle = 100 * time.Millisecond

// loosen judges the grips, and lets go of those that are as they should be.
func (k *RemountWatcher) loosen() error {
	var odd error
	left := k.grips[:0]
	for _, g := range k.grips {
		cause, sure := g.judge()
		if cause == "" && k.held(&g) {
			cause = "a process inside had it open"
		}
		if cause == "" {
			unix.Close(g.fd)
			continue
		}
		if (sure || time.Now().After(g.until)) && odd == nil {
			odd = hint.Errorf("replace no hidden or protected file on the host while a command runs",
				"%s: the host replaced it, and before it was covered again %s", g.item.path, cause)
		}
		left = append(left, g)
	}
	k.grips = left
	return odd
}

// judge says what is odd about the file, and whether that will not pass.
func (g *grip) judge() (cause string, sure bool) {
	var st unix.Statx_t
	if unix.Statx(g.fd, "", unix.AT_EMPTY_PATH, unix.STATX_BASIC_STATS, &st) != nil || st.Nlink == 0 {
		return "", true // replaced once more
	}
	hidden, was := g.item.with != "", g.was
	g.was.Mask = 0 // from now on only who has it open can write, and that is seen below
	if !hidden && was.Mask != 0 && (st.Size != was.Size || st.Mtime != was.Mtime) {
		return "a process inside wrote to it", true
	}
	if st.Nlink > 1 {
		return "a process inside linked it", false
	}
	if g.held(hidden) {
		return "a process inside still has it open", false
	}
	return "", true
}

// held reports whether somebody has the file open: for writing or, if it is
// hidden, at all. A lease tells, fcntl(2): to ask for one fails with EAGAIN.
// It is given back at once. Where it cannot be had, by the file system or for
// a file of somebody else's, nobody knows.
func (g *grip) held(reading bool) bool {
	fd, err := unix.Open("/proc/self/fd/"+strconv.Itoa(g.fd), unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	kind := unix.F_RDLCK
	if reading {
		kind = unix.F_WRLCK
	}
	if _, err = unix.FcntlInt(uintptr(fd), unix.F_SETLEASE, kind); err != nil {
		return err == unix.EAGAIN
	}
	_, _ = unix.FcntlInt(uintptr(fd), unix.F_SETLEASE, unix.F_UNLCK)
	return false
}

// held reports whether a process inside has a descriptor of the file as it lies
// below its cover: whatever it is good for itself, it can be opened again.
// What a process hides, or has sent to itself through a socket, is not seen.
func (k *RemountWatcher) held(g *grip) bool {
	mount, inode := fmt.Appendf(nil, "\nmnt_id:\t%d\n", g.was.Mnt_id), fmt.Appendf(nil, "\nino:\t%d\n", g.was.Ino)
	for _, pid := range procfs.Tree(k.sandbox.Pid) {
		dir := "/proc/" + strconv.Itoa(pid) + "/fdinfo"
		list, _ := os.ReadDir(dir)
		for _, fd := range list {
			text, _ := os.ReadFile(dir + "/" + fd.Name())
			if bytes.Contains(text, mount) && bytes.Contains(text, inode) {
				return true
			}
		}
	}
	return false
}
