package namespaces

import (
	"path/filepath"
	"strconv"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/namespaces/inside"
	"github.com/pccrun/pccrun/profiles"
)

// compiler writes the table of system calls of a plan. Its methods are in the
// order in which the calls happen, and that order is the subject of their
// comments. The first half, the shell (common_setup_linux.go), needs nothing but the
// identity and is written before the policy is known; here is what the policy
// decides of files and sockets, and in restrict_linux.go the end.
type compiler struct {
	*inside.Program
	Shell
	control   inside.Arg
	tmpfs     inside.Reg
	mask      inside.Reg // a read-only clone of the unreadable file
	proc      inside.Reg
	own       []inside.Reg       // mounts of the sandbox's own that must stay writable
	nodes     []inside.Reg       // and those whose devices must work
	sources   []inside.Arg       // by index of the mount; of a Copy, the overlay; what is open of a bind that stands
	over      map[int]inside.Reg // of a Scratch, the overlay, if it could be made
	scratched map[int]*int32     // and what became of it
	keyring   *int32             // the session keyring, or -errno; nil without that layer
	within    []int              // see [Plan.within]
	writable  []grant            // mounts that Landlock leaves writable
	send      []inside.Reg
	signals   inside.Reg
	tty       inside.Reg // the command's terminal, in pid 1
	questions inside.Reg // the name server's socket, in a network namespace of its own
	gate      inside.Reg // see [compiler.stage]; 0 for none
	environ   *inside.Environ
}

// grant is a mount that may be written.
type grant struct {
	fd       inside.Arg
	file     bool // it is of a single file
	brokered bool // the launcher makes the names there
	perhaps  bool // it may not have come about
}

// shell writes the half that every sandbox has: its life bound to ours, its
// identity, its own devices, processes and network.
func (c *compiler) shell() {
	c.tether()
	c.identity()
	c.unshare()
	c.prepare()
	c.devices()
	c.processes()
	c.sysfs()
	c.kernel()
	c.network()
	c.Step("wait for the plan")
	c.Await()
}

// rest writes what the policy decides, and the end.
func (c *compiler) rest(p *Plan, io *Stdio) {
	c.size(p)
	c.unasked(p)
	c.sockets(p)
	c.open(p)
	c.readonly()
	c.mount(p)
	c.listen(p)
	slave := c.terminal(io)
	c.enter(p)
	c.restrict(p)
	c.Step("pass descriptors to the launcher")
	user, mnt := c.namespace("user"), c.namespace("mnt")
	root := lookUp(c.Program, "/", unix.O_DIRECTORY)
	if p.Segments { // they are of the namespace in which they were opened
		tables := make([]inside.Reg, 0, len(sysvTables)+len(c.send))
		for _, name := range sysvTables {
			tables = append(tables, c.Get(unix.SYS_OPENAT, inside.Result(c.proc), c.Str("sysvipc/"+name), inside.Int(unix.O_RDONLY|unix.O_CLOEXEC)))
		}
		c.send = append(tables, c.send...)
	}
	if send := []inside.Reg{c.tmpfs, user, mnt, root}; c.gate == 0 {
		c.SendFDs(c.control, append(send, c.send...)...)
	} else { // in the place of one that could not be opened, another
		c.send = append([]inside.Reg{c.gate}, c.send...)
		send = append(send, c.send...)
		instead := make([]inside.Reg, len(send))
		instead[4] = root
		c.SendOpened(c.control, send, instead)
		c.Call(unix.SYS_CLOSE, inside.Result(c.gate))
		c.Attempt()
	}
	wait := func() {
		c.Step("wait for the launcher")
		c.Await()
	}
	if p.OwnFilter { // which may refuse the call
		wait()
		c.filter(p)
	} else {
		c.filter(p)
		wait()
	}
	c.Step("fork the command")
	c.Fork()
	c.command(p, io, slave)
}

// sysvTables are the files of proc_sysvipc(5), in the order of [Sandbox.SysV].
var sysvTables = [...]string{"shm", "sem", "msg"}

// size bounds what is private, now that the policy says by how much.
func (c *compiler) size(p *Plan) {
	if p.Disk == 0 {
		return
	}
	c.Step("limit the size of private directories")
	fs := c.Get(unix.SYS_FSPICK, inside.Result(c.tmpfs), c.Str(""), inside.Int(unix.FSPICK_CLOEXEC|unix.FSPICK_EMPTY_PATH))
	c.option(fs, "size", strconv.FormatInt(p.Disk, 10))
	c.option(fs, "nr_inodes", strconv.FormatInt(p.Inodes, 10))
	c.Call(unix.SYS_FSCONFIG, inside.Result(fs), inside.Int(unix.FSCONFIG_CMD_RECONFIGURE), inside.Int(0), inside.Int(0), inside.Int(0))
	c.Call(unix.SYS_CLOSE, inside.Result(fs))
}

// open takes a clone of everything that is bound, before any of it is
// covered or made read-only. A descriptor from before the clone is of no use
// here (EINVAL in a new mount namespace), so each path is looked up once more,
// through no link, and held against the inode that the survey saw.
func (c *compiler) open(p *Plan) {
	c.within, c.sources = p.within(), make([]inside.Arg, len(p.Mounts))
	for i, m := range p.Mounts {
		if m.Kind == Copy {
			c.overlay(i, m)
		}
		if m.Kind != Bind && m.Kind != Scratch && m.Kind != Persist || c.inPlace(p, i) {
			continue
		}
		if m.Donated >= 0 {
			c.sources[i] = inside.Int(m.Donated)
			if m.Kind == Scratch { // the kernel takes only what is attached in this mount namespace
				lower := c.attach(inside.Int(m.Donated), "lower"+strconv.Itoa(i))
				c.scratch(i, m.Upper, lower)
				c.sources[i] = inside.Result(lower)
			}
			continue
		}
		c.Step("open " + m.Source)
		fd := lookUp(c.Program, m.Source, m.noFollow())
		c.SameInode(fd, m.Dev, m.Ino)
		flags := unix.OPEN_TREE_CLONE | unix.OPEN_TREE_CLOEXEC | unix.AT_EMPTY_PATH
		if m.Tree {
			flags |= unix.AT_RECURSIVE
		}
		c.sources[i] = inside.Result(c.Get(unix.SYS_OPEN_TREE, inside.Result(fd), c.Str(""), inside.Int(flags)))
		if p.stages(&m) {
			c.stage(p.Staging, c.sources[i])
		}
		if m.Kind == Scratch {
			c.scratch(i, m.Upper, fd)
		}
		c.Call(unix.SYS_CLOSE, inside.Result(fd))
	}
}

// within returns for each mount the index of the one around it, if that is a tree
// of the host's in its own place that may be written, else -1.
func (p *Plan) within() []int {
	return around(p.Mounts, func(m *Mount) bool { return !p.skips(m) }, func(_, w *Mount) bool {
		return w.Kind == Bind && w.Tree && !w.ReadOnly && w.Source == w.Target
	})
}

// around returns for each mount that counts the index of the innermost around it, if that is fit for it, else -1.
func around(mounts []Mount, counts func(*Mount) bool, fit func(m, around *Mount) bool) []int {
	indices := make([]int, len(mounts))
	var stack []int
	for i := range mounts {
		m := &mounts[i]
		indices[i] = -1
		if !counts(m) {
			continue
		}
		for len(stack) > 0 && !below(m.Target, mounts[stack[len(stack)-1]].Target) {
			stack = stack[:len(stack)-1]
		}
		if n := len(stack); n > 0 && fit(m, &mounts[stack[n-1]]) {
			indices[i] = stack[n-1]
		}
		stack = append(stack, i)
	}
	return indices
}

// inPlace reports whether a mount only changes what is allowed of a name in the
// mount around it.
func (c *compiler) inPlace(p *Plan, i int) bool {
	m := &p.Mounts[i]
	return m.Kind == Bind && m.Source == m.Target && m.Donated < 0 && named(p.Mounts, i, c.within[i])
}

// named reports whether the target of a mount is a name in the mount around it: there
// the kernel looks it up by this one name, which leads nowhere else.
func named(mounts []Mount, i, around int) bool {
	return around >= 0 && !mounts[i].Optional && filepath.Dir(mounts[i].Target) == mounts[around].Target
}

// noFollow returns the flag that looks a link up itself.
func (m *Mount) noFollow() uint64 {
	if m.OverLink {
		return unix.O_NOFOLLOW
	}
	return 0
}

// readonly takes writing, set-user-ID and devices away from the whole tree.
// What was opened before keeps its flags; what the sandbox has of its own gets
// them back.
func (c *compiler) readonly() {
	if !c.has(profiles.LayerReadonly) {
		return
	}
	c.Step("make the host's tree read-only")
	attr := unix.MountAttr{Attr_set: attrHidden}
	c.Call(unix.SYS_MOUNT_SETATTR, inside.Int(unix.AT_FDCWD), c.Str("/"), inside.Int(unix.AT_RECURSIVE), inside.Ptr(c.Program, attr), inside.Int(unsafe.Sizeof(attr)))
	for _, fd := range c.own {
		c.giveBack(fd, unix.MOUNT_ATTR_RDONLY)
	}
	for _, fd := range c.nodes {
		c.giveBack(fd, unix.MOUNT_ATTR_RDONLY|unix.MOUNT_ATTR_NODEV)
	}
}

func (c *compiler) giveBack(fd inside.Reg, attr uint64) {
	clear := unix.MountAttr{Attr_clr: attr}
	c.Call(unix.SYS_MOUNT_SETATTR, inside.Result(fd), c.Str(""), inside.Int(unix.AT_EMPTY_PATH), inside.Ptr(c.Program, clear), inside.Int(unsafe.Sizeof(clear)))
}

// mount puts everything in its place, containing directories first.
func (c *compiler) mount(p *Plan) {
	var top map[string]int
	if c.Identity.Root {
		top = p.top()
	}
	for i := range p.Mounts {
		m := &p.Mounts[i]
		if c.skips(m) {
			continue
		}
		set := uint64(attrFresh)
		if (m.ReadOnly || m.Kind == Scratch) && (m.Protect || c.has(profiles.LayerReadonly)) {
			set |= unix.MOUNT_ATTR_RDONLY
		}
		c.Step("mount " + m.String())
		tree := c.tree(p, i, set)
		gone := m.Optional || top != nil && p.detachable(m, top)
		if named(p.Mounts, i, c.within[i]) {
			c.Call(unix.SYS_MOVE_MOUNT, tree, c.Str(""), c.sources[c.within[i]], c.Str(filepath.Base(m.Target)), inside.Int(unix.MOVE_MOUNT_F_EMPTY_PATH))
			if gone && !c.inPlace(p, i) {
				c.Allow(unix.ENOENT)
			}
		} else {
			c.attachAt(m, tree, gone)
		}
		switch c.sources[i] = tree; {
		case m.Kind == Scratch:
			c.scratchOver(i, tree)
			c.Call(unix.SYS_CLOSE, tree)
			c.writable = append(c.writable, grant{fd: inside.Result(c.over[i]), perhaps: true, brokered: p.brokered(m)})
			continue
		case m.ReadOnly || m.Kind == Trace:
			c.Call(unix.SYS_CLOSE, tree)
			continue
		case m.Kind == Bind && c.within[i] >= 0: // what Landlock grants around it holds in it
		default:
			c.writable = append(c.writable, grant{fd: tree, file: m.Kind == Bind && !m.Tree, brokered: p.brokered(m)})
		}
		c.cloneInPlace(p, i)
	}
}

// attachAt puts a tree at the target of a mount, which may be gone by now: who has given root
// up cannot look anew, and the host may remove what is covered a moment later just as well.
// The remount watcher covers what comes there.
func (c *compiler) attachAt(m *Mount, tree inside.Arg, gone bool) {
	var target inside.Reg
	switch {
	case m.Optional:
		target = lookUpIfThere(c.Program, m.Target, m.noFollow())
	case gone && !hasOpenat2():
		target = walk(c.Program, inside.Int(unix.AT_FDCWD), m.Target, m.noFollow(), []unix.Errno{unix.ENOENT, unix.EBADF})
	default:
		target = lookUp(c.Program, m.Target, m.noFollow())
		if gone { // not what cannot be reached, which the command could open to itself
			c.Allow(unix.ENOENT)
		}
	}
	c.Call(unix.SYS_MOVE_MOUNT, tree, c.Str(""), inside.Result(target), c.Str(""), inside.Int(unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_EMPTY_PATH))
	if gone {
		c.Allow(unix.EBADF, unix.ENOENT) // removed since it was looked up
	}
	c.Call(unix.SYS_CLOSE, inside.Result(target))
	if gone {
		c.Allow(unix.EBADF)
	}
}

// tree returns what is put at the target of a mount, with the attributes that
// it has there.
func (c *compiler) tree(p *Plan, i int, set uint64) inside.Arg {
	m := &p.Mounts[i]
	switch m.Kind {
	case Bind, Scratch, Persist:
		flags := uint(0)
		if m.Tree {
			flags = unix.AT_RECURSIVE
		}
		if set != attrFresh || !c.inPlace(p, i) { // else the tree that it was cloned from has these
			c.setattr(c.sources[i], flags, set)
		}
		return c.sources[i]
	case Copy:
		return c.sources[i]
	case Mask:
		return inside.Result(c.Get(unix.SYS_OPEN_TREE, inside.Result(c.mask), c.Str(""), inside.Int(unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_EMPTY_PATH)))
	}
	c.fill(i, m)
	if m.Kind == PrivateCopy || m.Kind == Trace {
		tree := c.Get(unix.SYS_OPEN_TREE, inside.Result(c.tmpfs), c.Str(entry(i)), inside.Int(unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_SYMLINK_NOFOLLOW))
		c.setattr(inside.Result(tree), 0, set)
		return inside.Result(tree)
	}
	return inside.Result(c.ownTree(entry(i), set))
}

// cloneInPlace clones what stands in a tree that may be written, for the mounts that only
// change what is allowed there: the tree itself names it, and what was cloned
// is compared with the inode that the survey saw, as in [compiler.open]. All
// are cloned before one is mounted: to clone the kernel goes through all that is
// mounted in the tree.
func (c *compiler) cloneInPlace(p *Plan, from int) {
	for i := from + 1; i < len(p.Mounts) && below(p.Mounts[i].Target, p.Mounts[from].Target); i++ {
		m := &p.Mounts[i]
		if c.within[i] != from || !c.inPlace(p, i) {
			continue
		}
		c.Step("open " + m.Source)
		flags := unix.OPEN_TREE_CLONE | unix.OPEN_TREE_CLOEXEC | unix.AT_SYMLINK_NOFOLLOW | unix.AT_NO_AUTOMOUNT
		if m.Tree {
			flags |= unix.AT_RECURSIVE
		}
		tree := c.Get(unix.SYS_OPEN_TREE, c.sources[from], c.Str(filepath.Base(m.Target)), inside.Int(flags))
		c.SameInode(tree, m.Dev, m.Ino)
		c.sources[i] = inside.Result(tree)
	}
}

// skips reports whether a mount belongs to a layer that is off.
func (s Shell) skips(m *Mount) bool {
	switch {
	case m.Protect:
		return !s.has(profiles.LayerProtect)
	case m.Kind == Copy, m.Kind == Persist:
		return false
	case m.Kind != Bind && m.Kind != Text, m.Kind == Bind && m.ReadOnly:
		return !s.has(profiles.LayerHide) // where nothing is hidden, all is there to be read
	}
	return false
}

// entry is the name of a mount's own directory or file in the tmpfs.
func entry(i int) string { return "m" + strconv.Itoa(i) }

func (c *compiler) fill(i int, m *Mount) {
	at := inside.Result(c.tmpfs)
	if m.Kind == PrivateCopy || m.Kind == Trace {
		c.Call(unix.SYS_SYMLINKAT, c.Str(m.Link), at, c.Str(entry(i)))
		if m.Kind == Trace {
			c.backdate(at, c.Str(entry(i)))
		}
		return
	}
	if m.Kind == Text {
		c.file(at, c.Str(entry(i)), m.Mode, m.Text)
		return
	}
	c.Call(unix.SYS_MKDIRAT, at, c.Str(entry(i)), inside.Int(m.Mode))
	for _, s := range m.Stubs {
		name := c.Str(entry(i) + "/" + s.Name)
		switch s.Node {
		case Directory:
			c.Call(unix.SYS_MKDIRAT, at, name, inside.Int(s.mode()))
		case Link:
			c.Call(unix.SYS_SYMLINKAT, c.Str(s.Link), at, name)
			if s.Trace {
				c.backdate(at, name)
			}
		default:
			if s.Text == "" {
				c.Call(unix.SYS_MKNODAT, at, name, inside.Int(unix.S_IFREG|0o644), inside.Int(0))
			} else {
				c.file(at, name, 0o600, s.Text)
			}
		}
	}
}

// file makes a file that has a text.
func (c *compiler) file(at, name inside.Arg, mode uint32, text string) {
	fd := c.Get(unix.SYS_OPENAT, at, name, inside.Int(unix.O_WRONLY|unix.O_CREAT|unix.O_CLOEXEC), inside.Int(mode))
	c.Call(unix.SYS_WRITE, inside.Result(fd), c.Str(text), inside.Int(len(text)))
	c.Call(unix.SYS_CLOSE, inside.Result(fd))
}

// sockets opens what only a process in this network namespace can open, and
// hands it to the launcher: it makes the network while we mount.
func (c *compiler) sockets(p *Plan) {
	list := p.sockets()
	if len(list) == 0 {
		return
	}
	c.Step("open the sockets of the sandbox's network")
	regs, instead := make([]inside.Reg, len(list)), make([]inside.Reg, len(list))
	for i, s := range list {
		regs[i] = c.Get(unix.SYS_SOCKET, inside.Int(s.Domain), inside.Int(s.Type|unix.SOCK_CLOEXEC), inside.Int(s.Protocol))
		if s.Instead > 0 {
			c.Attempt()
		}
	}
	for i, s := range list {
		if s.Instead > 0 {
			instead[i] = regs[s.Instead]
		}
	}
	c.SendOpened(c.control, regs, instead)
	for i, r := range regs {
		c.Call(unix.SYS_CLOSE, inside.Result(r))
		if instead[i] != 0 {
			c.Attempt()
		}
	}
}

// listen opens the launcher's listeners on the sandbox's own loopback.
func (c *compiler) listen(p *Plan) {
	for i, at := range p.Listen {
		c.Step("listen on " + at.String() + " in the sandbox")
		port, family := at.Port(), unix.AF_INET
		address := []byte{unix.AF_INET, 0, byte(port >> 8), byte(port), 127, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0} // struct sockaddr_in, ip(7)
		if at.Addr().Is6() {
			family = unix.AF_INET6
			address = []byte{unix.AF_INET6, 0, byte(port >> 8), byte(port), 23: 1, 27: 0} // struct sockaddr_in6, ipv6(7): ::1
		}
		s := c.Get(unix.SYS_SOCKET, inside.Int(family), inside.Int(unix.SOCK_STREAM|unix.SOCK_CLOEXEC), inside.Int(0))
		if i > 0 { // it shares the port with the socket at the addresses of names, where there are no packet rules: socket(7)
			c.Call(unix.SYS_SETSOCKOPT, inside.Result(s), inside.Int(unix.SOL_SOCKET), inside.Int(unix.SO_REUSEPORT), inside.Ptr(c.Program, int32(1)), inside.Int(4))
		}
		c.Call(unix.SYS_BIND, inside.Result(s), c.Buf(address), inside.Int(len(address)))
		c.Call(unix.SYS_LISTEN, inside.Result(s), inside.Int(1024))
		c.send = append(c.send, s)
	}
	if p.Questions {
		c.send = append(c.send, c.questions) // the last: see Sandbox.receive
	}
}

// terminal opens a terminal of the sandbox's own, if one of the standard
// descriptors is one. pid 1 leads its session and owns it: a command that led
// the session itself would be in an orphaned process group and never get the
// SIGTSTP of Ctrl-Z.
func (c *compiler) terminal(io *Stdio) (slave inside.Reg) {
	if io.Host < 0 {
		return 0
	}
	c.Step("open a terminal")
	c.Call(unix.SYS_SETSID)
	master := c.Get(unix.SYS_OPENAT, inside.Int(unix.AT_FDCWD), c.Str("/dev/pts/ptmx"), inside.Int(unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC))
	c.Call(unix.SYS_IOCTL, inside.Result(master), inside.Int(unix.TIOCSPTLCK), inside.Ptr(c.Program, int32(0)))
	// The first of a new instance is always 0.
	c.tty = c.Get(unix.SYS_OPENAT, inside.Int(unix.AT_FDCWD), c.Str("/dev/pts/0"), inside.Int(unix.O_RDWR|unix.O_CLOEXEC|unix.O_NOCTTY))
	c.Call(unix.SYS_IOCTL, inside.Result(c.tty), inside.Int(unix.TIOCSCTTY), inside.Int(0))
	// Before the command can ask: the launcher hears of later changes only.
	if io.modes != nil {
		c.Call(unix.SYS_IOCTL, inside.Result(c.tty), inside.Int(unix.TCSETS), inside.Ptr(c.Program, *io.modes))
	}
	if io.size != nil {
		c.Call(unix.SYS_IOCTL, inside.Result(c.tty), inside.Int(unix.TIOCSWINSZ), inside.Ptr(c.Program, *io.size))
	}
	c.send = append([]inside.Reg{master}, c.send...)
	return c.tty
}

// enter goes where the command starts, in the tree as it is now.
func (c *compiler) enter(p *Plan) {
	c.Step("enter " + p.Command.Dir)
	c.Call(unix.SYS_CHDIR, c.Str(p.Command.Dir))
}
