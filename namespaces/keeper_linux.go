package namespaces

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/namespaces/inside"
)

// A mount ends when the host renames something onto what it covers, or removes
// that: the kernel detaches it in every namespace. An editor that saves `.env`,
// a `git config`, a checkout that replaces a directory, would so open to the
// command what the policy closes. The keeper mounts it again.
//
// It watches what is covered and every directory on the way there (inotify(7)),
// from outside. What it finds replaced it covers anew through a helper, a copy
// like pid 1 that has joined the sandbox's user and mount namespaces, which a
// program with several threads cannot, but not its pid namespace: nothing
// inside can see it.
type Keeper struct {
	sandbox *Sandbox
	items   []kept         // containing directories first
	dirs    map[string]int // O_PATH descriptors of the watched directories, by path; -1 while there is none
	watched map[int32]string
	watch   *os.File
	helper  *helper
	gaveUp  func(error)
}

// kept is a mount that the host can end without knowing.
type kept struct {
	path     string
	with     string // the entry of the private tmpfs that covers it; "" for itself
	readonly bool
	dev, ino uint64 // what stands there on the host, covered by us
}

// NewKeeper begins to watch what the plan covers; nil if there is nothing.
func NewKeeper(p *Plan) (*Keeper, error) {
	k := &Keeper{dirs: map[string]int{}, watched: map[int32]string{}}
	for i, m := range p.Mounts {
		item := kept{path: m.Target, readonly: m.ReadOnly, dev: m.Dev, ino: m.Ino}
		switch {
		case m.Kind == Mask:
			item.with = "mask"
		case m.Kind == Fresh && m.ReadOnly:
			item.with = entry(i)
		case m.Kind != Bind || !m.Protect:
			continue
		}
		if p.inFresh(m.Target) || m.Optional {
			continue // the host's file of that name is not what is seen inside
		}
		k.items = append(k.items, item)
	}
	if len(k.items) == 0 {
		return nil, nil
	}
	slices.SortStableFunc(k.items, func(a, b kept) int { return less(a.path, b.path) })
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("inotify_init1: %w", err)
	}
	k.watch = os.NewFile(uintptr(fd), "inotify")
	for i := range k.items {
		item := &k.items[i]
		for dir := filepath.Dir(item.path); ; dir = filepath.Dir(dir) {
			if err := k.add(dir); err != nil {
				k.Close()
				return nil, err
			}
			if p.isRoot(dir) || dir == "/" {
				break // above it another user's or root's rename would be needed
			}
		}
		if item.with != "" {
			item.dev, item.ino = k.identify(item.path)
		}
	}
	return k, nil
}

// inFresh reports whether a path lies in a private or hidden directory, and in
// nothing of the host's within that.
func (p *Plan) inFresh(path string) bool {
	fresh := false
	for _, m := range p.Mounts {
		if m.Target != path && below(path, m.Target) {
			fresh = m.Kind == Fresh
		}
	}
	return fresh
}

// isRoot reports whether a path is that of a tree which the plan lends by rule,
// such as the workspace.
func (p *Plan) isRoot(path string) bool {
	return slices.ContainsFunc(p.Mounts, func(m Mount) bool { return m.Kind == Bind && m.Target == path && !m.Protect })
}

// add watches a directory, once. It is looked up from the one above it where
// that is watched: a launcher that was root can no longer walk root's paths.
func (k *Keeper) add(dir string) error {
	if fd, ok := k.dirs[dir]; ok && fd >= 0 {
		return nil
	}
	at, name := unix.AT_FDCWD, dir
	if above, ok := k.dirs[filepath.Dir(dir)]; ok && above >= 0 && dir != "/" {
		at, name = above, filepath.Base(dir)
	}
	fd, err := unix.Openat(at, name, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open %s: %w", dir, err)
	}
	const events = unix.IN_CREATE | unix.IN_MOVED_TO | unix.IN_DELETE | unix.IN_MOVED_FROM
	wd, err := unix.InotifyAddWatch(int(k.watch.Fd()), fmt.Sprintf("/proc/self/fd/%d", fd), events|unix.IN_ONLYDIR)
	if err != nil {
		unix.Close(fd)
		return fmt.Errorf("inotify_add_watch %s: %w", dir, err)
	}
	k.dirs[dir], k.watched[int32(wd)] = fd, dir
	return nil
}

// identify returns device and inode of what stands at a path of the host, 0 if
// nothing does.
func (k *Keeper) identify(path string) (dev, ino uint64) {
	var st unix.Stat_t
	dir := k.dirs[filepath.Dir(path)]
	if dir < 0 || unix.Fstatat(dir, filepath.Base(path), &st, unix.AT_SYMLINK_NOFOLLOW) != nil {
		return 0, 0
	}
	return device(st.Dev), st.Ino
}

// Start covers again, in the sandbox, what is replaced from now on and what was
// since the keeper was made. If it cannot go on, gaveUp is called once: what it
// kept is not kept any more.
func (k *Keeper) Start(s *Sandbox, gaveUp func(error)) {
	k.sandbox, k.gaveUp = s, gaveUp
	unix.SetNonblock(int(k.watch.Fd()), true)
	go func() {
		if err := k.run(); err != nil && !errors.Is(err, os.ErrClosed) {
			gaveUp(err)
		}
		if k.helper != nil {
			k.helper.close()
		}
		for _, fd := range k.dirs {
			if fd >= 0 {
				unix.Close(fd)
			}
		}
	}()
}

// Close ends the watch and the helper.
func (k *Keeper) Close() { k.watch.Close() }

func (k *Keeper) run() error {
	if err := k.check("/"); err != nil {
		return err // what was replaced before the watch stood
	}
	buf := make([]byte, 16<<10)
	for {
		n, err := k.watch.Read(buf)
		if err != nil {
			return err
		}
		for b := buf[:n]; len(b) >= unix.SizeofInotifyEvent; {
			e := (*unix.InotifyEvent)(unsafe.Pointer(&b[0]))
			name := strings.TrimRight(string(b[unix.SizeofInotifyEvent:unix.SizeofInotifyEvent+e.Len]), "\x00")
			b = b[unix.SizeofInotifyEvent+e.Len:]
			dir, ok := k.watched[e.Wd]
			switch {
			case e.Mask&unix.IN_Q_OVERFLOW != 0:
				dir = "/"
				for path := range k.dirs {
					k.lose(path)
				}
			case e.Mask&unix.IN_IGNORED != 0, !ok:
				delete(k.watched, e.Wd)
				continue
			default:
				dir = filepath.Join(dir, name)
				if e.Mask&(unix.IN_DELETE|unix.IN_MOVED_FROM) != 0 {
					k.lose(dir) // whatever comes next is new, even if it gets the same inode
					continue
				}
				k.lose(dir)
			}
			if err := k.check(dir); err != nil {
				return err
			}
		}
	}
}

// lose forgets what stood at a path and below it.
func (k *Keeper) lose(path string) {
	for dir, fd := range k.dirs {
		if below(dir, path) && fd >= 0 {
			unix.Close(fd)
			k.dirs[dir] = -1
		}
	}
	for i := range k.items {
		if below(k.items[i].path, path) {
			k.items[i].dev, k.items[i].ino = 0, 0
		}
	}
}

// check watches again the directories at and below a path that were lost, and
// covers what was replaced there.
func (k *Keeper) check(path string) error {
	for i := range k.items {
		item := &k.items[i]
		if !below(item.path, path) {
			continue
		}
		if err := k.again(filepath.Dir(item.path)); err != nil {
			return err
		}
		dev, ino := k.identify(item.path)
		if ino == 0 || dev == item.dev && ino == item.ino {
			continue
		}
		item.dev, item.ino = dev, ino
		if err := k.cover(item); err != nil {
			return fmt.Errorf("cover %s again: %w", item.path, err)
		}
	}
	return nil
}

// again watches the directories on the way to dir that were lost, from above.
// One that is not there, or is something else now, comes with an event.
func (k *Keeper) again(dir string) error {
	if fd, ok := k.dirs[dir]; !ok || fd >= 0 {
		return nil
	}
	if err := k.again(filepath.Dir(dir)); err != nil {
		return err
	}
	if above, ok := k.dirs[filepath.Dir(dir)]; ok && above < 0 {
		return nil
	}
	err := k.add(dir)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) {
		return nil
	}
	return err
}

// cover mounts over an item in the sandbox. A helper that fails is replaced:
// the path may have changed again under its hands. What is gone by then will
// be met by the event of its return.
func (k *Keeper) cover(item *kept) (err error) {
	for range 3 {
		if k.helper == nil {
			if k.helper, err = k.sandbox.newHelper(); err != nil {
				return err
			}
		}
		if err = k.helper.cover(k.sandbox.Private, item); err == nil {
			return nil
		}
		k.helper.close()
		k.helper = nil
		if dev, ino := k.identify(item.path); ino == 0 {
			return nil
		} else {
			item.dev, item.ino = dev, ino
		}
	}
	return err
}

// helper is a copy that mounts in the sandbox's namespaces.
type helper struct {
	pid     int
	control int
	program *inside.Program
	mark    inside.Mark
	done    chan struct{}
}

func (s *Sandbox) newHelper() (*helper, error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("socketpair", err)
	}
	p, err := inside.New()
	if err != nil {
		return nil, err
	}
	h := &helper{control: pair[0], program: p, done: make(chan struct{})}
	p.Step("bind the helper's life to the launcher's")
	p.Call(unix.SYS_PRCTL, inside.Int(unix.PR_SET_PDEATHSIG), inside.Int(int(unix.SIGKILL)))
	p.Alive(inside.Int(pair[1]))
	p.Step("join the sandbox's namespaces") // the user namespace first: it gives the right to join the other
	p.Call(unix.SYS_SETNS, inside.Int(s.user), inside.Int(unix.CLONE_NEWUSER))
	p.Call(unix.SYS_SETNS, inside.Int(s.mnt), inside.Int(unix.CLONE_NEWNS))
	p.Await()
	h.mark = p.Mark()
	started := make(chan error)
	go func() {
		runtime.LockOSThread() // the helper's death signal is this thread's end
		pid, err := p.Start(inside.Options{Cgroup: -1, Control: pair[1], Launcher: pair[0]})
		unix.Close(pair[1])
		h.pid = pid
		started <- err
		<-h.done
	}()
	if err := <-started; err != nil {
		close(h.done)
		unix.Close(pair[0])
		return nil, err
	}
	return h, nil
}

func (h *helper) close() {
	unix.Kill(h.pid, unix.SIGKILL)
	unix.Wait4(h.pid, nil, unix.WALL, nil)
	close(h.done)
	unix.Close(h.control)
	h.program.Free()
}

// cover tells the helper to mount over the item, and waits until it has.
func (h *helper) cover(private int, item *kept) error {
	p := h.program
	p.Cut(h.mark)
	p.Step("cover " + item.path)
	how := unix.OpenHow{Flags: lookup, Resolve: resolve}
	target := p.Get(unix.SYS_OPENAT2, inside.Int(unix.AT_FDCWD), p.Str(item.path), inside.Ptr(p, how), inside.Int(unsafe.Sizeof(how)))
	var tree inside.Reg
	clone := unix.OPEN_TREE_CLONE | unix.OPEN_TREE_CLOEXEC
	if item.with != "" {
		tree = p.Get(unix.SYS_OPEN_TREE, inside.Int(private), p.Str(item.with), inside.Int(clone))
	} else {
		p.SameInode(target, item.dev, item.ino)
		tree = p.Get(unix.SYS_OPEN_TREE, inside.Result(target), p.Str(""), inside.Int(clone|unix.AT_EMPTY_PATH))
	}
	attr := unix.MountAttr{Attr_set: attrFresh}
	if item.readonly {
		attr.Attr_set = attrHidden
	}
	p.Call(unix.SYS_MOUNT_SETATTR, inside.Result(tree), p.Str(""), inside.Int(unix.AT_EMPTY_PATH), inside.Ptr(p, attr), inside.Int(unsafe.Sizeof(attr)))
	p.Call(unix.SYS_MOVE_MOUNT, inside.Result(tree), p.Str(""), inside.Result(target), p.Str(""), inside.Int(unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_EMPTY_PATH))
	p.Call(unix.SYS_CLOSE, inside.Result(tree))
	p.Call(unix.SYS_CLOSE, inside.Result(target))
	p.Repeat(h.mark)
	if err := p.Go(h.control, inside.Supervision{}); err != nil {
		return err
	}
	timeout := unix.Timeval{Sec: int64(10 * time.Second / time.Second)}
	unix.SetsockoptTimeval(h.control, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &timeout)
	var m inside.Message
	n, _, err := unix.Recvfrom(h.control, bytesOf(&m), 0)
	switch {
	case err != nil:
		return os.NewSyscallError("recvfrom", err)
	case n == 0:
		return ErrEnded
	case m.Kind == inside.Failed:
		return &StepError{Step: p.StepName(m.A), Errno: unix.Errno(m.B)}
	}
	return nil
}
