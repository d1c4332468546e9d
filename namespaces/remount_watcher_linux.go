package namespaces

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/internal/hint"
	"github.com/pccrun/pccrun/internal/shell"
	"github.com/pccrun/pccrun/internal/survey"
	"github.com/pccrun/pccrun/namespaces/inside"
	"github.com/pccrun/pccrun/workspace/beneath"
)

// A RemountWatcher mounts again what the host has detached.
//
// A mount ends when the host renames something onto what it covers, or removes
// that: the kernel detaches it in every namespace. An editor that saves `.env`,
// a `git config`, a checkout that replaces a directory, would so open to the
// command what the policy closes.
//
// The watcher watches every directory on the way to such a mount, from outside, by
// F_NOTIFY (fcntl(2)): closing an inotify instance waits for a grace period of
// 10 ms and more, and a user has no more than 128 of them. It then looks at the
// sandbox's own tree, through a descriptor of its root: a path that is no mount
// point any more is open. A [helper] mounts over it.
//
// Before that the command can open what is there. A file that it has opened or
// linked stays in its reach: the answers to fs.hide and fs.protect name this gap.
// A directory that it has opened lies below the mount that covers it again, and so
// does what the host puts there later: the watcher covers that as well, see view.
type RemountWatcher struct {
	sandbox *Sandbox
	mounts  []remount // containing directories first
	dirs    []watched // containing directories first
	views   []view    // the sandbox's root first
	signals chan os.Signal
	helper  helper

	mu              sync.Mutex    // held while a change is looked at
	done            chan struct{} // closed when nothing is covered any more
	ending, closing sync.Once
}

// A remount is a mount that the host can detach without knowing of it.
type remount struct {
	path     string
	with     string // the entry of the private tmpfs that covers the path; "" for what stands there
	readonly bool
}

// watched is a directory of the host, as the sandbox shows it.
type watched struct {
	path string
	fd   int // -1 while there is none
	seen inode
}

// A view is a directory from which a process inside looks at the tree: the root,
// and each directory that was open for a moment, which the command may have
// opened then. A mount over that directory does not cover what is in it for
// whoever has it open.
type view struct {
	path string // of the directory
	fd   int
}

// pause bounds how often the watcher looks: a command that makes files as fast
// as it can must not keep a processor busy with it.
const pause = time.Millisecond

// notifyNames asks F_NOTIFY for names that come, go and move, more than once:
// DN_CREATE, DN_DELETE, DN_RENAME and DN_MULTISHOT of linux/fcntl.h.
const notifyNames = 0x4 | 0x8 | 0x10 | 0x80000000

// Keep begins to cover again what the host replaces, nil if the plan covers
// nothing. If it cannot go on it ends the sandbox ([Sandbox.Abort]): what was covered may be open.
func (s *Sandbox) Keep() *RemountWatcher {
	k := &RemountWatcher{sandbox: s, signals: make(chan os.Signal, 1), done: make(chan struct{})}
	k.list(s.plan)
	if len(k.mounts) == 0 {
		return nil
	}
	k.views = []view{{path: "/", fd: s.root}}
	s.remounter = k
	signal.Notify(k.signals, unix.SIGIO)
	go func() {
		for {
			if err := k.check(); err != nil {
				k.Close()
				s.Abort(err)
				return
			}
			select {
			case <-k.done:
				return
			case <-k.signals:
				time.Sleep(pause)
			}
		}
	}()
	return k
}

// list finds which mounts the host can detach, and the directories to watch for that.
func (k *RemountWatcher) list(p *Plan) {
	top := p.top()
	seen := map[string]bool{}
	for i := range p.Mounts {
		m := &p.Mounts[i]
		if !p.detachable(m, top) {
			continue
		}
		r := remount{path: m.Target, readonly: m.ReadOnly}
		switch m.Kind {
		case Mask:
			r.with = "mask"
		case Fresh, PrivateCopy:
			r.with = entry(i)
		}
		k.mounts = append(k.mounts, r)
		// Above the root of a tree that a rule shows only another user or root can
		// rename.
		for dir := filepath.Dir(r.path); !seen[dir]; dir = filepath.Dir(dir) {
			seen[dir] = true
			k.dirs = append(k.dirs, watched{path: dir, fd: -1})
			if dir == "/" || p.isRoot(dir, top) {
				break
			}
		}
	}
	slices.SortStableFunc(k.mounts, func(a, b remount) int { return survey.Less(a.path, b.path) })
	slices.SortStableFunc(k.dirs, func(a, b watched) int { return survey.Less(a.path, b.path) })
}

// detachable reports whether a mount closes something of the host's that the host can
// replace, and so detach the mount.
func (p *Plan) detachable(m *Mount, top map[string]int) bool {
	switch {
	case m.Kind == Mask, m.Kind == Fresh && m.ReadOnly, (m.Kind == Bind || m.Kind == PrivateCopy) && (m.Protect || m.ReadOnly):
		// Else the host's file of that name is not what is seen inside.
		return !p.inOwn(m.Target, top) && !m.Optional && !p.skips(m)
	}
	return false
}

// top returns, by path, the index of the mount that comes last at it.
func (p *Plan) top() map[string]int {
	at := make(map[string]int, len(p.Mounts))
	for i, m := range p.Mounts {
		at[m.Target] = i
	}
	return at
}

// inOwn reports whether a path lies in a private or hidden directory or an
// overlay, and in nothing of the host's within that: names there are the
// sandbox's own, and the host cannot take one from under a mount.
func (p *Plan) inOwn(path string, top map[string]int) bool {
	for dir := path; dir != "/"; {
		dir = filepath.Dir(dir)
		if i, ok := top[dir]; ok {
			kind := p.Mounts[i].Kind
			return kind == Fresh || kind == Persist || kind == Copy || kind == Scratch
		}
	}
	return false
}

// isRoot reports whether a path is that of a tree which a rule shows,
// such as the workspace.
func (p *Plan) isRoot(path string, top map[string]int) bool {
	i, ok := top[path]
	return ok && p.Mounts[i].Kind == Bind && !p.Mounts[i].Protect
}

// end ends the watch: when it returns, nothing of the sandbox's is looked at any more.
func (k *RemountWatcher) end() {
	k.ending.Do(func() { close(k.done) })
	k.mu.Lock() // for a look that is under way
	defer k.mu.Unlock()
}

// Close ends the watch and gives back what it held. [Sandbox.Next] does so as
// well, before it closes what the remount watcher looks through.
//
// SIGIO stays taken: a last one may be on its way, and would end the process.
func (k *RemountWatcher) Close() {
	k.end()
	k.closing.Do(func() {
		k.helper.end()
		for _, d := range k.dirs {
			if d.fd >= 0 {
				unix.Close(d.fd)
			}
		}
		for _, v := range k.views[1:] {
			unix.Close(v.fd)
		}
	})
}

// over reports whether the watch has ended. A look ends by that: there is nobody
// inside to cover anything from, and a command may end long before hundreds of
// directories are watched.
func (k *RemountWatcher) over() bool {
	select {
	case <-k.done:
		return true
	default:
		return false
	}
}

// check watches what has come, from above, and covers what is open.
func (k *RemountWatcher) check() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	for i := range k.dirs {
		if k.over() {
			return nil
		}
		if err := k.watch(&k.dirs[i]); err != nil {
			return err
		}
	}
	if err := k.prune(); err != nil {
		return err
	}
	for i := 0; i < len(k.views); i++ { // there may be more of them at the end
		v := k.views[i]
		for j := range k.mounts {
			m := &k.mounts[j]
			if m.path == v.path || !below(m.path, v.path) {
				continue
			}
			if k.over() {
				return nil
			}
			if err := k.restore(v, m); err != nil {
				return fmt.Errorf("cover %s again: %w", m.path, err)
			}
		}
	}
	return nil
}

// watch sees to it that a directory is watched as it is now.
func (k *RemountWatcher) watch(d *watched) error {
	now, there, err := k.views[0].look(d.path)
	if err != nil || there && d.fd >= 0 && inodeOf(&now) == d.seen {
		return err
	}
	if d.fd >= 0 {
		unix.Close(d.fd)
		d.fd = -1
	}
	if !there {
		return nil
	}
	fd, err := k.views[0].open(d.path, unix.O_RDONLY|unix.O_DIRECTORY)
	if errors.Is(err, unix.EACCES) {
		// Nobody would see it when the host replaces a file there that has a rule.
		return hint.Errorf(fmt.Sprintf("--hide %s covers the directory itself, which needs no watching", shell.Quote(d.path)),
			"watch %s, where a file has a rule: %w", d.path, unix.EACCES)
	}
	if err != nil || fd < 0 {
		return err
	}
	// The owner first: left to itself, F_NOTIFY would name this thread, and the
	// signal goes to processes only.
	if _, err = unix.FcntlInt(uintptr(fd), unix.F_SETOWN, os.Getpid()); err == nil {
		_, err = unix.FcntlInt(uintptr(fd), unix.F_NOTIFY, notifyNames)
	}
	if err != nil {
		unix.Close(fd)
		return fmt.Errorf("watch %s: %w", d.path, err)
	}
	d.fd, d.seen = fd, inodeOf(&now)
	return nil
}

// maxViews bounds how many directories the watcher holds. A host that replaces
// more of them, and keeps the old ones, is not kept up with.
const maxViews = 256

// prune closes directories that were removed: nothing can be made in them.
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
		k.helper.end() // the numbers of its descriptors may soon mean others
	}
	if len(k.views) > maxViews {
		return fmt.Errorf("the host replaced more than %d directories", maxViews)
	}
	return nil
}

// maxTries is how often something is covered that the host goes on replacing.
const maxTries = 5

// restore covers a path as long as a view shows it open. What is gone by then
// comes back with an event.
func (k *RemountWatcher) restore(v view, m *remount) error {
	for try := 1; ; try++ {
		covered, err := v.covered(m.path)
		if covered || err != nil {
			return err
		}
		if err = k.cover(v, m); err != nil && try == maxTries {
			return err
		}
	}
}

// cover mounts over a path where a view shows it open. A directory that may have been
// opened is held before it is covered, and is a view from then on.
func (k *RemountWatcher) cover(v view, m *remount) error {
	fd, err := v.open(m.path, unix.O_PATH)
	if err != nil || fd < 0 {
		return err
	}
	var seen unix.Statx_t
	if err = unix.Statx(fd, "", unix.AT_EMPTY_PATH, unix.STATX_TYPE|unix.STATX_INO, &seen); err == nil {
		err = k.mount(v, m, inodeOf(&seen))
	}
	if err != nil || m.with != "" || seen.Mode&unix.S_IFMT != unix.S_IFDIR {
		unix.Close(fd)
		return err
	}
	k.views = append(k.views, view{m.path, fd})
	return nil
}

// mount mounts over what was seen at a path. A directory keeps what is mounted in it.
func (k *RemountWatcher) mount(v view, m *remount, seen inode) error {
	var fds []int
	for _, v := range k.views {
		fds = append(fds, v.fd)
	}
	if err := k.helper.start(k.sandbox, v.fd, fds...); err != nil {
		return err
	}
	return k.helper.do(func(p *inside.Program) {
		p.Step("cover " + m.path)
		target := lookUpAt(p, inside.Int(v.fd), v.relative(m.path), unix.O_NOFOLLOW)
		p.SameInode(target, seen.dev, seen.ino)
		var tree inside.Reg
		clone := unix.OPEN_TREE_CLONE | unix.OPEN_TREE_CLOEXEC
		if m.with != "" {
			tree = p.Get(unix.SYS_OPEN_TREE, inside.Int(k.sandbox.Private), p.Str(m.with), inside.Int(clone|unix.AT_SYMLINK_NOFOLLOW))
		} else {
			tree = p.Get(unix.SYS_OPEN_TREE, inside.Result(target), p.Str(""), inside.Int(clone|unix.AT_EMPTY_PATH|unix.AT_RECURSIVE))
		}
		attr := unix.MountAttr{Attr_set: attrFresh}
		if m.readonly {
			attr.Attr_set = attrHidden
		}
		p.Call(unix.SYS_MOUNT_SETATTR, inside.Result(tree), p.Str(""), inside.Int(unix.AT_EMPTY_PATH|unix.AT_RECURSIVE), inside.Ptr(p, attr), inside.Int(unsafe.Sizeof(attr)))
		p.Call(unix.SYS_MOVE_MOUNT, inside.Result(tree), p.Str(""), inside.Result(target), p.Str(""), inside.Int(unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_EMPTY_PATH))
		p.Call(unix.SYS_CLOSE, inside.Result(tree))
		p.Call(unix.SYS_CLOSE, inside.Result(target))
	})
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
	const mask = unix.STATX_TYPE | unix.STATX_INO | unix.STATX_MNT_ID
	err = unix.Statx(v.fd, v.relative(path), unix.AT_SYMLINK_NOFOLLOW, mask, &st)
	switch {
	case err == nil:
		return st, true, nil
	case beneath.Gone(err):
		return st, false, nil
	case err == unix.EACCES:
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

// open opens what the view shows at a path, itself if it is a link: -1 if nothing
// is there.
func (v view) open(path string, flags int) (fd int, err error) {
	fd, err = beneath.Open(v.fd, v.relative(path), flags)
	if beneath.Gone(err) {
		return -1, nil
	}
	if err != nil {
		return -1, fmt.Errorf("open %s: %w", path, err)
	}
	return fd, nil
}
