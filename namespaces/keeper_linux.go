package namespaces

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
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
// It watches every directory on the way to what is covered, from outside, by
// F_NOTIFY (fcntl(2)): closing an inotify instance waits for a grace period of
// 10 ms and more, and a user has no more than 128 of them. What was
// replaced it covers anew through a helper, a copy like pid 1 that has joined
// the sandbox's user and mount namespaces, which a program with several threads
// cannot, but not its pid namespace: nothing inside can see it.
type Keeper struct {
	sandbox *Sandbox
	items   []kept    // containing directories first
	dirs    []watched // containing directories first
	signals chan os.Signal
	done    chan struct{}
	helper  *helper
}

// kept is a mount that the host can end without knowing.
type kept struct {
	path     string
	with     string // the entry of the private tmpfs that covers it; "" for itself
	readonly bool
	is       identity // what stands there on the host, covered by us
}

// watched is a directory of the host.
type watched struct {
	path string
	root bool // what is above it is not watched
	fd   int  // -1 while there is none
	is   identity
}

// identity tells a file from another of the same name. Inodes are used again,
// so the time of birth belongs to it; where a file system has none, the time of
// the last change.
type identity struct {
	dev, ino uint64
	born     unix.StatxTimestamp
}

// pause bounds how often the keeper looks: a command that makes files as fast
// as it can must not keep a processor busy with it.
const pause = time.Millisecond

// notifyNames asks F_NOTIFY for names that come, go and move, more than once:
// DN_CREATE, DN_DELETE, DN_RENAME and DN_MULTISHOT of linux/fcntl.h.
const notifyNames = 0x4 | 0x8 | 0x10 | 0x80000000

// NewKeeper begins to watch what the plan covers; nil if there is nothing.
func NewKeeper(p *Plan) (*Keeper, error) {
	k := &Keeper{signals: make(chan os.Signal, 1), done: make(chan struct{})}
	for i, m := range p.Mounts {
		item := kept{path: m.Target, readonly: m.ReadOnly}
		switch {
		case m.Kind == Mask:
			item.with = "mask"
		case m.Kind == Fresh && m.ReadOnly:
			item.with = entry(i)
		case m.Kind != Bind || !m.Protect && !m.ReadOnly:
			continue
		}
		if p.inFresh(m.Target) || m.Optional {
			continue // the host's file of that name is not what is seen inside
		}
		k.items = append(k.items, item)
		for dir := filepath.Dir(item.path); ; dir = filepath.Dir(dir) {
			root := dir == "/" || p.isRoot(dir) // above it another user's or root's rename would be needed
			if !slices.ContainsFunc(k.dirs, func(d watched) bool { return d.path == dir }) {
				k.dirs = append(k.dirs, watched{path: dir, root: root, fd: -1})
			}
			if root {
				break
			}
		}
	}
	if len(k.items) == 0 {
		return nil, nil
	}
	slices.SortStableFunc(k.items, func(a, b kept) int { return less(a.path, b.path) })
	slices.SortStableFunc(k.dirs, func(a, b watched) int { return less(a.path, b.path) })
	signal.Notify(k.signals, unix.SIGIO)
	for i := range k.dirs {
		if err := k.add(&k.dirs[i]); err != nil {
			k.close()
			return nil, err
		}
	}
	for i := range k.items {
		item := &k.items[i]
		var err error
		if item.is, err = k.identify(item.path); err != nil {
			k.close()
			return nil, err
		}
		for _, m := range p.Mounts {
			if m.Target == item.path && m.Kind == Bind && (item.is.dev != m.Dev || item.is.ino != m.Ino) {
				item.is = identity{} // replaced since the survey
			}
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

// add watches a directory. It is looked up from the one above it: a launcher
// that was root can no longer walk root's paths.
func (k *Keeper) add(d *watched) error {
	at, name := unix.AT_FDCWD, d.path
	if !d.root {
		at, name = k.dir(filepath.Dir(d.path)), filepath.Base(d.path)
	}
	fd, err := unix.Openat(at, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open %s: %w", d.path, err)
	}
	// The owner first: left to itself, F_NOTIFY would name this thread, and the
	// signal goes to processes only.
	_, err = unix.FcntlInt(uintptr(fd), unix.F_SETOWN, os.Getpid())
	if err == nil {
		_, err = unix.FcntlInt(uintptr(fd), unix.F_NOTIFY, notifyNames)
	}
	if err != nil {
		unix.Close(fd)
		return fmt.Errorf("watch %s: %w", d.path, err)
	}
	d.fd = fd
	d.is, err = identify(fd, "")
	return err
}

// dir returns the descriptor of a watched directory, -1 if there is none.
func (k *Keeper) dir(path string) int {
	for i := range k.dirs {
		if k.dirs[i].path == path {
			return k.dirs[i].fd
		}
	}
	return -1
}

// identify returns what stands at a path of the host, the zero identity if
// nothing does.
func (k *Keeper) identify(path string) (identity, error) {
	return identify(k.dir(filepath.Dir(path)), filepath.Base(path))
}

func identify(dir int, name string) (identity, error) {
	if dir < 0 {
		return identity{}, nil
	}
	var st unix.Statx_t
	err := unix.Statx(dir, name, unix.AT_SYMLINK_NOFOLLOW|unix.AT_EMPTY_PATH, unix.STATX_INO|unix.STATX_BTIME|unix.STATX_CTIME, &st)
	switch {
	case err == unix.ENOENT:
		return identity{}, nil
	case err != nil:
		return identity{}, fmt.Errorf("statx %s: %w", name, err)
	}
	id := identity{dev: uint64(st.Dev_major)<<32 | uint64(st.Dev_minor), ino: st.Ino, born: st.Btime}
	if st.Mask&unix.STATX_BTIME == 0 {
		id.born = st.Ctime
	}
	return id, nil
}

// Start covers again, in the sandbox, what is replaced from now on and what was
// since the keeper was made. If it cannot go on, gaveUp is called once: what it
// kept is not kept any more.
func (k *Keeper) Start(s *Sandbox, gaveUp func(error)) {
	k.sandbox = s
	go func() {
		defer k.close()
		for {
			if err := k.check(); err != nil {
				gaveUp(err)
				return
			}
			select {
			case <-k.done:
				return
			case <-k.signals:
			}
			time.Sleep(pause)
		}
	}()
}

// Close ends the watch.
func (k *Keeper) Close() { close(k.done) }

func (k *Keeper) close() {
	signal.Stop(k.signals)
	if k.helper != nil {
		k.helper.close()
	}
	for _, d := range k.dirs {
		if d.fd >= 0 {
			unix.Close(d.fd)
		}
	}
}

// check looks whether anything was replaced, from above, and covers it anew.
func (k *Keeper) check() error {
	for i := range k.dirs {
		d := &k.dirs[i]
		if d.root {
			continue
		}
		is, err := k.identify(d.path)
		if err != nil {
			return err
		}
		if is == d.is && d.fd >= 0 {
			continue
		}
		if d.fd >= 0 {
			unix.Close(d.fd)
		}
		d.fd, d.is = -1, identity{}
		if is.ino == 0 {
			continue
		}
		err = k.add(d)
		if err != nil && !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.ENOTDIR) && !errors.Is(err, unix.ELOOP) {
			return err
		}
	}
	for i := range k.items {
		item := &k.items[i]
		is, err := k.identify(item.path)
		if err != nil {
			return err
		}
		if is == item.is {
			continue
		}
		if item.is = is; is.ino == 0 {
			continue
		}
		if err := k.cover(item); err != nil {
			return fmt.Errorf("cover %s again: %w", item.path, err)
		}
	}
	return nil
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
		is, e := k.identify(item.path)
		if item.is = is; e != nil || is.ino == 0 {
			return e
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
		p.SameInode(target, item.is.dev, item.is.ino)
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
