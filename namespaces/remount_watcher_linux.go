package namespaces

import (
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/internal/hint"
	"github.com/pccrun/pccrun/internal/shell"
	"github.com/pccrun/pccrun/internal/survey"
	"github.com/pccrun/pccrun/namespaces/inside"
)

// A mount ends when the host renames something onto what it covers, or removes
// that: the kernel detaches it in every namespace. An editor that saves `.env`,
// a `git config`, a checkout that replaces a directory, would so open to the
// command what the policy closes. The remount watcher mounts it again.
//
// It watches every directory on the way to what is covered, from outside, by
// F_NOTIFY (fcntl(2)): closing an inotify instance waits for a grace period of
// 10 ms and more, and a user has no more than 128 of them. It then looks at the
// sandbox's own tree, through a descriptor of its root: what is not a mount
// point any more is open. That it covers anew through a helper, a copy like pid
// 1 that has joined the sandbox's user and mount namespaces, which a program
// with several threads cannot, but not its pid namespace: nothing inside can
// see it.
//
// In the gap the command can have taken hold of what was open. A directory that
// it holds lies below the mount that would cover it, so that what is in there
// is covered first, where the holder would find it, and again whenever the host
// replaces it: see view. Of a file no mount takes a hold away: see grip.
type RemountWatcher struct {
	sandbox *Sandbox
	items   []kept    // containing directories first
	dirs    []watched // containing directories first
	views   []view    // the sandbox's own root first
	grips   []grip
	pid     int // this process's
	signals chan os.Signal
	done    chan struct{}
	helper  *helper

	over   atomic.Bool // nothing need be covered any more: a turn that is under way ends by that
	mu     sync.Mutex
	ended  bool // nothing is looked at any more
	closed bool // all is given back
}

// kept is a mount that the host can end without knowing.
type kept struct {
	path     string
	with     string // the entry of the private tmpfs that covers it; "" for itself
	readonly bool
}

// watched is a directory of the host, as the sandbox shows it.
type watched struct {
	path string
	fd   int // -1 while there is none
}

// pause bounds how often the remount watcher looks: a command that makes files as fast
// as it can must not keep a processor busy with it.
const pause = time.Millisecond

// notifyNames asks F_NOTIFY for names that come, go and move, more than once:
// DN_CREATE, DN_DELETE, DN_RENAME and DN_MULTISHOT of linux/fcntl.h.
const notifyNames = 0x4 | 0x8 | 0x10 | 0x80000000

// Keep begins to cover again what the host replaces, nil if the plan covers
// nothing. If it cannot go on it ends the sandbox ([Sandbox.Abort]): what it kept would be open.
func (s *Sandbox) Keep() *RemountWatcher {
	k := &RemountWatcher{sandbox: s, pid: os.Getpid(), signals: make(chan os.Signal, 1), done: make(chan struct{})}
	k.list(s.plan)
	if len(k.items) == 0 {
		return nil
	}
	k.views = []view{{path: "/", fd: s.root}}
	s.remounter = k
	signal.Notify(k.signals, unix.SIGIO)
	go func() {
		for {
			if err := k.turn(); err != nil {
				k.Close()
				s.Abort(err)
				return
			}
			var again <-chan time.Time
			if k.grasps() {
				again = time.After(settle / 10)
			}
			select {
			case <-k.done:
				return
			case <-k.signals:
				time.Sleep(pause)
			case <-again:
			}
		}
	}()
	return k
}

// grasps reports whether a file that stood open is still watched.
func (k *RemountWatcher) grasps() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.grips) > 0
}

// list finds what there is to keep, and the directories to watch for it.
func (k *RemountWatcher) list(p *Plan) {
	top := p.top()
	seen := map[string]bool{}
	for i, m := range p.Mounts {
		if !p.keeps(&m, top) {
			continue
		}
		item := kept{path: m.Target, readonly: m.ReadOnly}
		switch m.Kind {
		case Mask:
			item.with = "mask"
		case Fresh, PrivateCopy:
			item.with = entry(i)
		}
		k.items = append(k.items, item)
		// Above the root of a tree that is lent another user's or root's
		// rename would be needed.
		for dir := filepath.Dir(item.path); !seen[dir]; dir = filepath.Dir(dir) {
			seen[dir] = true
			k.dirs = append(k.dirs, watched{dir, -1})
			if dir == "/" || p.isRoot(dir, top) {
				break
			}
		}
	}
	slices.SortStableFunc(k.items, func(a, b kept) int { return survey.Less(a.path, b.path) })
	slices.SortStableFunc(k.dirs, func(a, b watched) int { return survey.Less(a.path, b.path) })
}

// keeps reports whether a mount is one that the remount watcher covers again.
func (p *Plan) keeps(m *Mount, top map[string]int) bool {
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
	last := -1
	for dir := path; dir != "/"; {
		dir = filepath.Dir(dir)
		if i, ok := top[dir]; ok {
			last = max(last, i)
		}
	}
	return last >= 0 && (p.Mounts[last].Kind == Fresh || p.Mounts[last].Kind == Persist || p.Mounts[last].Kind == Copy || p.Mounts[last].Kind == Scratch)
}

// isRoot reports whether a path is that of a tree which the plan lends by rule,
// such as the workspace.
func (p *Plan) isRoot(path string, top map[string]int) bool {
	i, ok := top[path]
	return ok && p.Mounts[i].Kind == Bind && !p.Mounts[i].Protect
}

// watch sees to it that a directory is watched as it is now.
func (k *RemountWatcher) watch(d *watched) error {
	now, there, err := k.views[0].look(d.path)
	if err != nil {
		return err
	}
	if d.fd >= 0 {
		var st unix.Stat_t
		if err := unix.Fstat(d.fd, &st); err != nil {
			return os.NewSyscallError("fstat", err)
		}
		if there && st.Nlink > 0 && st.Ino == now.Ino && survey.Device(st.Dev) == uint64(now.Dev_major)<<32|uint64(now.Dev_minor) {
			return nil
		}
		unix.Close(d.fd)
		d.fd = -1
	}
	if !there {
		return nil
	}
	fd, err := openPlain(k.sandbox.root, k.views[0].relative(d.path), unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC)
	if err == unix.ENOENT || err == unix.ENOTDIR || err == unix.ELOOP {
		return nil
	}
	if err == unix.EACCES {
		// Nobody would see it when the host replaces a file there that has a rule.
		return hint.Errorf(fmt.Sprintf("--hide %s covers the directory itself, which needs no watching", shell.Quote(d.path)),
			"watch %s, where a file has a rule: %w", d.path, unix.EACCES)
	}
	if err != nil {
		return fmt.Errorf("open %s: %w", d.path, err)
	}
	// The owner first: left to itself, F_NOTIFY would name this thread, and the
	// signal goes to processes only.
	if _, err = unix.FcntlInt(uintptr(fd), unix.F_SETOWN, k.pid); err == nil {
		_, err = unix.FcntlInt(uintptr(fd), unix.F_NOTIFY, notifyNames)
	}
	if err != nil {
		unix.Close(fd)
		return fmt.Errorf("watch %s: %w", d.path, err)
	}
	d.fd = fd
	return nil
}

// turn looks once, unless the watch has ended.
func (k *RemountWatcher) turn() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.ended {
		return nil
	}
	return k.check()
}

// end ends the watch: when it returns, nothing of the sandbox's is looked at any more.
func (k *RemountWatcher) end() {
	k.over.Store(true)
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.ended {
		k.ended = true
		close(k.done)
	}
}

// Close ends the watch and gives back what it held. [Sandbox.Next] does so as
// well, before it closes what the remount watcher looks through.
//
// SIGIO stays taken: a last one may be on its way, and would end the process.
func (k *RemountWatcher) Close() {
	k.end()
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.closed {
		return
	}
	k.closed = true
	k.dismiss()
	for _, d := range k.dirs {
		if d.fd >= 0 {
			unix.Close(d.fd)
		}
	}
	k.release(1, 0)
}

// check watches what has come, from above, and covers what is open. Once it is
// over there is nobody inside to cover anything from, and a command may end long
// before hundreds of directories are watched.
func (k *RemountWatcher) check() error {
	for i := range k.dirs {
		if k.over.Load() {
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
		if err := k.mend(k.views[i]); err != nil {
			return err
		}
	}
	return k.loosen()
}

// cover mounts over an item where a view shows it as it was seen. A helper that
// fails has come to its end.
func (k *RemountWatcher) cover(v view, item *kept, seen *unix.Statx_t) (err error) {
	if k.helper == nil {
		var fds []int
		for _, v := range k.views {
			fds = append(fds, v.fd)
		}
		if k.helper, err = k.sandbox.newHelper(fds...); err != nil {
			return err
		}
	}
	if err = k.helper.cover(k.sandbox.Private, v, item, seen); err != nil {
		k.dismiss()
	}
	return err
}

// dismiss lets the helper go. The next one has the descriptors of its time.
func (k *RemountWatcher) dismiss() {
	if k.helper != nil {
		k.helper.close()
		k.helper = nil
	}
}

// helper is a copy that mounts in the sandbox's namespaces.
type helper struct {
	pid     int
	control int
	program *inside.Program
	mark    inside.Mark
	done    chan struct{}
}

// newHelper starts one that has descriptors. It lives as long as the sandbox, so
// it lets go of all else that this process has open: a pipe to a program that
// is being started just now would not end with that program.
func (s *Sandbox) newHelper(fds ...int) (*helper, error) {
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
	p.Step("close unneeded descriptors")
	keepOnly(p, append([]int{pair[1], s.Private}, fds...))
	p.Await()
	h.mark = p.Mark()
	started := make(chan error)
	go func() {
		runtime.LockOSThread() // the helper's death signal is this thread's end
		pid, err := p.Start(inside.Options{Control: pair[1], Launcher: pair[0]})
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

// cover tells the helper to mount over the item, and waits until it has. A
// directory keeps what is mounted in it.
func (h *helper) cover(private int, v view, item *kept, seen *unix.Statx_t) error {
	p := h.program
	p.Cut(h.mark)
	p.Step("cover " + item.path)
	target := lookUpAt(p, inside.Int(v.fd), v.relative(item.path), unix.O_NOFOLLOW)
	p.SameInode(target, uint64(seen.Dev_major)<<32|uint64(seen.Dev_minor), seen.Ino)
	var tree inside.Reg
	clone := unix.OPEN_TREE_CLONE | unix.OPEN_TREE_CLOEXEC
	if item.with != "" {
		tree = p.Get(unix.SYS_OPEN_TREE, inside.Int(private), p.Str(item.with), inside.Int(clone|unix.AT_SYMLINK_NOFOLLOW))
	} else {
		tree = p.Get(unix.SYS_OPEN_TREE, inside.Result(target), p.Str(""), inside.Int(clone|unix.AT_EMPTY_PATH|unix.AT_RECURSIVE))
	}
	attr := unix.MountAttr{Attr_set: attrFresh}
	if item.readonly {
		attr.Attr_set = attrHidden
	}
	p.Call(unix.SYS_MOUNT_SETATTR, inside.Result(tree), p.Str(""), inside.Int(unix.AT_EMPTY_PATH|unix.AT_RECURSIVE), inside.Ptr(p, attr), inside.Int(unsafe.Sizeof(attr)))
	p.Call(unix.SYS_MOVE_MOUNT, inside.Result(tree), p.Str(""), inside.Result(target), p.Str(""), inside.Int(unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_EMPTY_PATH))
	p.Call(unix.SYS_CLOSE, inside.Result(tree))
	p.Call(unix.SYS_CLOSE, inside.Result(target))
	return h.carryOut()
}

// carryOut has the helper do what its program says, and waits until it has.
func (h *helper) carryOut() error {
	p := h.program
	p.Repeat(h.mark)
	if err := p.Go(h.control, inside.Supervision{}); err != nil && err != unix.EPIPE { // what it died of may be told below
		return err
	}
	timeout := unix.Timeval{Sec: int64(10 * time.Second / time.Second)}
	unix.SetsockoptTimeval(h.control, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &timeout)
	var m inside.Message
	n, _, err := unix.Recvfrom(h.control, bytesOf(&m), 0)
	// With a timeout it is not taken up again, signal(7). A helper that ended before
	// it took our message is told of once, and then what it said last: unix(7).
	for err == unix.EINTR || err == unix.ECONNRESET {
		n, _, err = unix.Recvfrom(h.control, bytesOf(&m), 0)
	}
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
