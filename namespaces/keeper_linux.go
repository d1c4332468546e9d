package namespaces

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/namespaces/inside"
)

// A mount over a file ends when the host renames another file onto it or
// unlinks it: the kernel detaches it in every namespace. An editor that saves
// `.env`, or a `git config` on the host, would so open to the command what the
// policy closes. The keeper mounts it again.
//
// It watches the directories of what is covered (inotify(7)), from outside.
// What it finds replaced it covers anew through a helper, a copy like pid 1 that
// has joined the sandbox's user and mount namespaces, which a program with
// several threads cannot, but not its pid namespace: nothing inside can see it.
type Keeper struct {
	sandbox *Sandbox
	items   []kept
	watch   *os.File
	dirs    map[string]int   // O_PATH descriptors by path
	watched map[int32]string // directories by watch descriptor
	helper  *helper
	gaveUp  func(error)
}

// kept is a mount that the host can end without knowing.
type kept struct {
	path     string
	mask     bool   // covered by the unreadable file; else by itself, read-only
	dev, ino uint64 // what stands there on the host, covered by us
}

// NewKeeper begins to watch what the plan covers; nil if there is nothing.
func NewKeeper(p *Plan) (*Keeper, error) {
	k := &Keeper{dirs: map[string]int{}, watched: map[int32]string{}}
	for _, m := range p.Mounts {
		switch {
		case m.Kind == Mask:
			k.items = append(k.items, kept{path: m.Target, mask: true})
		case m.Kind == Bind && m.ReadOnly && m.Protect:
			k.items = append(k.items, kept{path: m.Target, dev: m.Dev, ino: m.Ino})
		}
	}
	if len(k.items) == 0 {
		return nil, nil
	}
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("inotify_init1: %w", err)
	}
	k.watch = os.NewFile(uintptr(fd), "inotify")
	for i := range k.items {
		item := &k.items[i]
		if err := k.add(filepath.Dir(item.path)); err != nil {
			k.Close()
			return nil, err
		}
		if item.mask {
			item.dev, item.ino = k.identify(item.path)
		}
	}
	return k, nil
}

func (k *Keeper) add(dir string) error {
	if _, ok := k.dirs[dir]; ok {
		return nil
	}
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open %s: %w", dir, err)
	}
	k.dirs[dir] = fd
	wd, err := unix.InotifyAddWatch(int(k.watch.Fd()), dir, unix.IN_CREATE|unix.IN_MOVED_TO|unix.IN_DELETE|unix.IN_MOVED_FROM|unix.IN_ONLYDIR|unix.IN_DONT_FOLLOW)
	if err != nil {
		return fmt.Errorf("inotify_add_watch %s: %w", dir, err)
	}
	k.watched[int32(wd)] = dir
	return nil
}

// identify returns device and inode of what stands at a path of the host, 0 if
// nothing does.
func (k *Keeper) identify(path string) (dev, ino uint64) {
	var st unix.Stat_t
	if unix.Fstatat(k.dirs[filepath.Dir(path)], filepath.Base(path), &st, unix.AT_SYMLINK_NOFOLLOW) != nil {
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
	go k.run()
}

// Close ends the watch and the helper.
func (k *Keeper) Close() {
	k.watch.Close()
	for _, fd := range k.dirs {
		unix.Close(fd)
	}
}

func (k *Keeper) run() {
	defer func() {
		if k.helper != nil {
			k.helper.close()
		}
	}()
	k.check(func(*kept) bool { return true }) // what was replaced before the watch stood
	buf := make([]byte, 16<<10)
	for {
		n, err := k.watch.Read(buf)
		if err != nil {
			if !errors.Is(err, os.ErrClosed) {
				k.gaveUp(err)
			}
			return
		}
		for b := buf[:n]; len(b) >= unix.SizeofInotifyEvent; {
			e := (*unix.InotifyEvent)(unsafe.Pointer(&b[0]))
			name := strings.TrimRight(string(b[unix.SizeofInotifyEvent:unix.SizeofInotifyEvent+e.Len]), "\x00")
			b = b[unix.SizeofInotifyEvent+e.Len:]
			if e.Mask&unix.IN_Q_OVERFLOW != 0 {
				k.check(func(*kept) bool { return true })
				continue
			}
			path := filepath.Join(k.watched[e.Wd], name)
			if e.Mask&(unix.IN_DELETE|unix.IN_MOVED_FROM) != 0 {
				k.forget(path) // whatever comes next is new, even if it gets the same inode
			}
			k.check(func(i *kept) bool { return i.path == path })
		}
	}
}

func (k *Keeper) forget(path string) {
	for i := range k.items {
		if k.items[i].path == path {
			k.items[i].dev, k.items[i].ino = 0, 0
		}
	}
}

// check covers anew what was replaced among the items that match.
func (k *Keeper) check(match func(*kept) bool) {
	for i := range k.items {
		item := &k.items[i]
		if !match(item) {
			continue
		}
		dev, ino := k.identify(item.path)
		if ino == 0 || dev == item.dev && ino == item.ino {
			continue
		}
		item.dev, item.ino = dev, ino
		if err := k.cover(item); err != nil {
			k.gaveUp(fmt.Errorf("cover %s again: %w", item.path, err))
			return
		}
	}
}

// cover mounts over an item in the sandbox. A helper that fails is replaced
// once: the path may have changed again under its hands.
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
	if item.mask {
		tree = p.Get(unix.SYS_OPEN_TREE, inside.Int(private), p.Str("mask"), inside.Int(clone))
	} else {
		p.SameInode(target, item.dev, item.ino)
		tree = p.Get(unix.SYS_OPEN_TREE, inside.Result(target), p.Str(""), inside.Int(clone|unix.AT_EMPTY_PATH))
	}
	attr := unix.MountAttr{Attr_set: attrHidden}
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
