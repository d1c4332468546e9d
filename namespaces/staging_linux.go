package namespaces

import (
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/namespaces/inside"
)

// Staging says where a directory of the host's gets a mount for the command alone, before it stands where the command
// sees it. A mount is found by its directory entry, so it goes where that goes; but the directory has to be opened
// through the sandbox's own mount of a tree, and lies outside of all that is mounted. So it comes into the tree under a
// name that nothing has, for as long as it takes to open it, and goes back.
//
// The command can be quick enough to open it too. Then it can put something in it below the mount, as the host can, and
// that is quarantined like that. The directory that it has made under a protected name comes to lie beyond its reach.
type Staging struct {
	Tree string // that the command may write, in its own place
	Name string // below Tree: how such names begin. Nothing happens there before a directory is mounted
	Kept string // absolute, on the same mount of the host: what holds such directories, and takes what they are exchanged for
}

// stages reports whether the plan has a staging directory for a mount.
func (p *Plan) stages(m *Mount) bool {
	return p.Staging != nil && m.Target == p.Staging.Tree && m.Source == m.Target && m.Kind == Bind && m.Tree && !m.ReadOnly && m.Donated < 0
}

// stage opens, in a tree that has been cloned and before it is covered, the directory by which others come in. Without it the
// run is as it would be without a plan for it.
func (c *compiler) stage(st *Staging, tree inside.Arg) {
	c.Step("open a staging directory")
	const flags = lookup | unix.O_DIRECTORY | unix.O_NOFOLLOW
	c.gate = c.Get(unix.SYS_OPENAT, tree, c.Str(filepath.Dir(st.Name)), inside.Int(flags))
	c.Attempt()
	// Who holds a directory that is moved there can go on in it.
	kept := c.Get(unix.SYS_OPENAT, inside.Int(unix.AT_FDCWD), c.Str(st.Kept), inside.Int(flags))
	c.Attempt()
	c.writable = append(c.writable, grant{fd: inside.Result(kept), perhaps: true})
}

// A mounter mounts for the launcher in a sandbox that has a staging directory.
type mounter struct {
	mu     sync.Mutex
	gate   int    // the directory by which others come in, through the sandbox's mount; 0 for none
	host   [2]int // that and [Staging.Kept], as the launcher sees them; 0 while they are not open
	ended  bool
	helper helper
}

// end ends the child and closes what it had. What was mounted stands as long as the sandbox does.
func (m *mounter) end() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ended = true
	m.helper.end()
	for _, fd := range append(m.host[:], m.gate) {
		if fd != 0 {
			unix.Close(fd)
		}
	}
	m.gate = 0
}

// open opens what is renamed from and to, before anybody moves it.
func (m *mounter) open(st *Staging) {
	for i, path := range [...]string{filepath.Join(st.Tree, filepath.Dir(st.Name)), st.Kept} {
		fd, err := unix.Open(path, lookup|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
		if err != nil {
			return
		}
		m.host[i] = fd
	}
}

// start starts the child, if there is none.
func (m *mounter) start(s *Sandbox) error {
	return m.helper.start(s, m.gate, s.root, m.gate, m.host[0], m.host[1])
}

// ErrNotStaged is returned for what cannot be mounted by way of the staging directory.
var ErrNotStaged = errors.New("it is not in the mount that the staging directory was opened through")

// Mount mounts, inside, the directory that stands at a path on an empty one in the staging directory: nosuid, nodev, and
// without what is mounted below it. Both must be those that the caller has seen; host is the caller's descriptor of the
// staging directory, which must be that of the sandbox. The path must lie in the mount through which the empty one is
// opened: through another the command would reach what is covered.
func (s *Sandbox) Mount(path string, have *unix.Stat_t, host int, entry string, stub *unix.Stat_t) error {
	m := &s.mounter
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ended {
		return ErrEnded
	}
	if m.gate == 0 || !sameNode(host, m.host[1]) || !sameNode(m.gate, m.host[0]) {
		return ErrNotStaged
	}
	v := view{path: "/", fd: s.root}
	source, there, err := v.look(path)
	if err != nil {
		return err
	}
	var place unix.Statx_t
	if err := unix.Statx(m.gate, "", unix.AT_EMPTY_PATH, unix.STATX_TYPE|unix.STATX_MNT_ID, &place); err != nil {
		return os.NewSyscallError("statx", err)
	}
	if !there || source.Ino != have.Ino || source.Mnt_id != place.Mnt_id {
		return ErrNotStaged
	}
	if err := m.start(s); err != nil {
		return err
	}
	return m.helper.do(func(p *inside.Program) {
		p.Step("mount " + path + " again")
		const flags = lookup | unix.O_DIRECTORY | unix.O_NOFOLLOW
		from := lookUpAt(p, inside.Int(v.fd), v.relative(path), unix.O_NOFOLLOW|unix.O_DIRECTORY)
		gate, kept := inside.Int(m.host[0]), inside.Int(m.host[1])
		name := p.Str(filepath.Base(s.plan.Staging.Name) + strconv.FormatUint(rand.Uint64(), 36))
		p.Call(unix.SYS_RENAMEAT2, kept, p.Str(entry), gate, name, inside.Int(unix.RENAME_NOREPLACE))
		to := p.Get(unix.SYS_OPENAT, inside.Int(m.gate), name, inside.Int(flags))
		p.Attempt() // lest it stays there
		p.Call(unix.SYS_RENAMEAT2, gate, name, kept, p.Str(entry), inside.Int(unix.RENAME_NOREPLACE))
		back := p.Get(unix.SYS_OPENAT, kept, p.Str(entry), inside.Int(flags))
		is := inodeOf(&source)
		p.SameInode(from, is.dev, is.ino)
		for _, fd := range [...]inside.Reg{to, back} { // the command may have put another directory there meanwhile
			p.SameInode(fd, is.dev, stub.Ino)
		}
		tree := p.Get(unix.SYS_OPEN_TREE, inside.Result(from), p.Str(""), inside.Int(unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_EMPTY_PATH))
		attr := unix.MountAttr{Attr_set: attrFresh}
		p.Call(unix.SYS_MOUNT_SETATTR, inside.Result(tree), p.Str(""), inside.Int(unix.AT_EMPTY_PATH), inside.Ptr(p, attr), inside.Int(unsafe.Sizeof(attr)))
		p.Call(unix.SYS_MOVE_MOUNT, inside.Result(tree), p.Str(""), inside.Result(to), p.Str(""), inside.Int(unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_EMPTY_PATH))
		for _, fd := range [...]inside.Reg{tree, to, back, from} {
			p.Call(unix.SYS_CLOSE, inside.Result(fd))
		}
	})
}

// helperAfter is how long a run lasts before its helper is started, so that the first directory does not stand longer
// than others. What is over sooner starts none.
const helperAfter = 20 * time.Millisecond

// ReadyToMount has [Sandbox.Mount] be quick from soon on. Call it once, before anything of the staging directory is moved.
func (s *Sandbox) ReadyToMount() {
	if s.mounter.gate == 0 {
		return
	}
	s.mounter.open(s.plan.Staging)
	time.AfterFunc(helperAfter, func() {
		m := &s.mounter
		m.mu.Lock()
		defer m.mu.Unlock()
		if !m.ended {
			_ = m.start(s) // Mount tries again
		}
	})
}

// sameNode reports whether two descriptors are of one file.
func sameNode(a, b int) bool {
	var x, y unix.Stat_t
	return unix.Fstat(a, &x) == nil && unix.Fstat(b, &y) == nil && x.Ino == y.Ino && x.Dev == y.Dev
}
