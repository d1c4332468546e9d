package namespaces

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/namespaces/inside"
)

// Staging is a directory of the host that the sandbox's own mount of a tree reaches, although it lies elsewhere: it is
// made in the tree, opened through that mount, and moved out before the command starts. What is mounted in it
// ([Sandbox.Mount]) is seen inside wherever the host then moves the name that carries the mount: a mount is found by
// its directory entry, so it goes where that goes. No path inside leads to the directory, and ".." out of what the
// command holds of it ends there (path_connected of Linux's fs/namei.c).
type Staging struct {
	Tree string // that the command may write, in its own place
	Name string // below Tree: what nothing has
	Kept string // absolute, on the same mount of the host: where it is moved. Where that fails there is none
}

// stages reports whether the plan has a staging directory for a mount.
func (p *Plan) stages(m *Mount) bool {
	return p.Staging != nil && m.Target == p.Staging.Tree && m.Source == m.Target && m.Kind == Bind && m.Tree && !m.ReadOnly && m.Donated < 0
}

// stage makes the staging directory in a tree that has been cloned. Without one the run is as it would be without a
// plan for it.
func (c *compiler) stage(st *Staging, tree inside.Arg) {
	c.Step("make a staging directory")
	c.Call(unix.SYS_MKDIRAT, tree, c.Str(st.Name), inside.Int(0o700))
	c.Attempt()
	c.staging = c.Get(unix.SYS_OPENAT, tree, c.Str(st.Name), inside.Int(lookup|unix.O_DIRECTORY|unix.O_NOFOLLOW))
	c.Attempt()
	at := inside.Int(unix.AT_FDCWD)
	c.Call(unix.SYS_RENAMEAT2, at, c.Str(st.Tree+"/"+st.Name), at, c.Str(st.Kept), inside.Int(unix.RENAME_NOREPLACE))
	c.Attempt()
	c.Call(unix.SYS_UNLINKAT, tree, c.Str(st.Name), inside.Int(unix.AT_REMOVEDIR)) // where it could not be moved
	c.Attempt()
	// Who holds a directory that is moved there can go on in it.
	c.writable = append(c.writable, grant{fd: inside.Result(c.staging), perhaps: true})
}

// A mounter mounts for the launcher in a sandbox that has a staging directory.
type mounter struct {
	mu      sync.Mutex
	staging int // its descriptor, through the sandbox's mount; 0 for none
	ended   bool
	helper  helper
}

// end ends the child and closes the staging directory. What was mounted stands as long as the sandbox does.
func (m *mounter) end() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ended = true
	m.helper.end()
	if m.staging != 0 {
		unix.Close(m.staging)
		m.staging = 0
	}
}

// ErrNotStaged is returned for what cannot be mounted by way of the staging directory.
var ErrNotStaged = errors.New("it is not in the mount that the staging directory was opened through")

// Staged reports whether the sandbox has a staging directory. It is asked once it has started.
func (s *Sandbox) Staged() bool { return s.mounter.staging != 0 }

// Mount mounts, inside, the directory that stands at a path on an empty one in the staging directory: nosuid, nodev, and
// without what is mounted below it. Both must be those that the caller has seen; host is the caller's descriptor of the
// staging directory, which must be that of the sandbox. The path must lie in the mount through which the staging
// directory was opened: through another the command would reach what is covered.
func (s *Sandbox) Mount(path string, have *unix.Stat_t, host int, entry string, stub *unix.Stat_t) error {
	m := &s.mounter
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ended || m.staging == 0 {
		return ErrEnded
	}
	if !sameNode(host, m.staging) {
		return ErrNotStaged
	}
	v := view{path: "/", fd: s.root}
	source, there, err := v.look(path)
	if err != nil {
		return err
	}
	var place, target unix.Statx_t
	const mask = unix.STATX_TYPE | unix.STATX_INO | unix.STATX_MNT_ID
	if err := unix.Statx(m.staging, "", unix.AT_EMPTY_PATH, mask, &place); err != nil {
		return os.NewSyscallError("statx", err)
	}
	if err := unix.Statx(m.staging, entry, unix.AT_SYMLINK_NOFOLLOW, mask, &target); err != nil {
		return fmt.Errorf("statx %s: %w", entry, err)
	}
	if !there || source.Ino != have.Ino || target.Ino != stub.Ino || source.Mnt_id != place.Mnt_id || target.Mnt_id != place.Mnt_id {
		return ErrNotStaged
	}
	if err := m.helper.start(s, m.staging, s.root, m.staging); err != nil {
		return err
	}
	return m.helper.do(func(p *inside.Program) {
		p.Step("mount " + path + " again")
		from := lookUpAt(p, inside.Int(v.fd), v.relative(path), unix.O_NOFOLLOW|unix.O_DIRECTORY)
		to := p.Get(unix.SYS_OPENAT, inside.Int(m.staging), p.Str(entry), inside.Int(lookup|unix.O_DIRECTORY|unix.O_NOFOLLOW))
		is, at := inodeOf(&source), inodeOf(&target)
		p.SameInode(from, is.dev, is.ino)
		p.SameInode(to, at.dev, at.ino)
		tree := p.Get(unix.SYS_OPEN_TREE, inside.Result(from), p.Str(""), inside.Int(unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_EMPTY_PATH))
		attr := unix.MountAttr{Attr_set: attrFresh}
		p.Call(unix.SYS_MOUNT_SETATTR, inside.Result(tree), p.Str(""), inside.Int(unix.AT_EMPTY_PATH), inside.Ptr(p, attr), inside.Int(unsafe.Sizeof(attr)))
		p.Call(unix.SYS_MOVE_MOUNT, inside.Result(tree), p.Str(""), inside.Result(to), p.Str(""), inside.Int(unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_EMPTY_PATH))
		for _, fd := range [...]inside.Reg{tree, to, from} {
			p.Call(unix.SYS_CLOSE, inside.Result(fd))
		}
	})
}

// helperAfter is how long a run lasts before its helper is started, so that the first directory does not stand longer
// than others. What is over sooner starts none.
const helperAfter = 20 * time.Millisecond

// ReadyToMount has [Sandbox.Mount] be quick from soon on.
func (s *Sandbox) ReadyToMount() {
	time.AfterFunc(helperAfter, func() {
		m := &s.mounter
		m.mu.Lock()
		defer m.mu.Unlock()
		if !m.ended {
			_ = m.helper.start(s, m.staging, s.root, m.staging) // Mount tries again
		}
	})
}

// sameNode reports whether two descriptors are of one file.
func sameNode(a, b int) bool {
	var x, y unix.Stat_t
	return unix.Fstat(a, &x) == nil && unix.Fstat(b, &y) == nil && x.Ino == y.Ino && x.Dev == y.Dev
}
