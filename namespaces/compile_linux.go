package namespaces

import (
	"fmt"
	"strconv"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/namespaces/inside"
	"github.com/pccrun/pccrun/profiles"
)

// compiler writes the table of system calls of a plan. Its methods are in the
// order in which the calls happen, and that order is the subject of their
// comments. The first half, the shell, needs nothing but the identity and is
// written before the policy is known.
type compiler struct {
	*inside.Program
	Shell
	control  inside.Arg
	tmpfs    inside.Reg
	mask     inside.Reg // a read-only clone of the unreadable file
	proc     inside.Reg
	own      []inside.Reg       // mounts of the sandbox's own that must stay writable
	nodes    []inside.Reg       // and those whose devices must work
	sources  map[int]inside.Arg // by index of the mount; of a Copy, the overlay
	writable []grant            // mounts that Landlock leaves writable
	send     []inside.Reg
	signals  inside.Reg
	tty      inside.Reg // the command's terminal, in pid 1
}

// grant is a mount that may be written.
type grant struct {
	fd        inside.Arg
	file      bool // it is of a single file
	deputized bool // somebody else makes the names there
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
	c.sockets(p)
	c.open(p)
	c.readonly()
	c.mount(p)
	c.listen(p)
	slave := c.terminal(io)
	c.enter(p)
	c.restrict(p)
	c.Step("hand descriptors to the launcher")
	user, mnt := c.namespace("user"), c.namespace("mnt")
	root := lookUp(c.Program, "/", unix.O_DIRECTORY)
	if p.Segments { // they are of the namespace in which they were opened
		tables := make([]inside.Reg, 0, len(sysvTables)+len(c.send))
		for _, name := range sysvTables {
			tables = append(tables, c.Get(unix.SYS_OPENAT, inside.Result(c.proc), c.Str("sysvipc/"+name), inside.Int(unix.O_RDONLY|unix.O_CLOEXEC)))
		}
		c.send = append(tables, c.send...)
	}
	c.SendFDs(c.control, append([]inside.Reg{c.tmpfs, user, mnt, root}, c.send...)...)
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

// tether binds the copy's life to the launcher's before anything exists that
// could outlive it.
func (c *compiler) tether() {
	c.Step("bind the sandbox's life to the launcher's")
	c.Call(unix.SYS_PRCTL, inside.Int(unix.PR_SET_PDEATHSIG), inside.Int(int(unix.SIGKILL)))
	c.Alive(c.control)
}

// identity writes the maps of the user namespace, user_namespaces(7): one uid
// and one gid, each the launcher's own.
func (c *compiler) identity() {
	id := c.Shell.Identity
	c.Step("map user and group in the user namespace")
	c.write("/proc/self/setgroups", "deny")
	c.write("/proc/self/uid_map", fmt.Sprintf("%d %d 1", id.UID, id.HostUID))
	c.write("/proc/self/gid_map", fmt.Sprintf("%d %d 1", id.GID, id.HostGID))
	c.Call(unix.SYS_UMASK, inside.Int(0)) // modes in the plan are meant as they stand
}

// unshare makes the other namespaces. The clone could make them too, but it is
// waited for, and a network namespace takes longer than all the others.
func (c *compiler) unshare() {
	c.Step(StepClone)
	c.Call(unix.SYS_UNSHARE, inside.Int(c.Shell.unshareFlags()))
}

func (c *compiler) write(path, text string) {
	c.writeAt(inside.Int(unix.AT_FDCWD), path, text)
}

func (c *compiler) writeAt(dir inside.Arg, path, text string) {
	fd := c.Get(unix.SYS_OPENAT, dir, c.Str(path), inside.Int(unix.O_WRONLY|unix.O_CLOEXEC))
	c.Call(unix.SYS_WRITE, inside.Result(fd), c.Str(text), inside.Int(len(text)))
	c.Call(unix.SYS_CLOSE, inside.Result(fd))
}

// prepare makes one tmpfs for all that is fresh: one size for all of it, and
// one superblock to make at each start. Each fresh directory is a bind of one
// of its directories. The whole is attached where the sandbox's own /proc will
// cover it: a mount that is attached nowhere is dissolved when its descriptor
// is closed, and that waits for an RCU grace period.
func (c *compiler) prepare() {
	c.Step("make the mounts private") // before any bind: a slave would let the host's later mounts in
	c.Call(unix.SYS_MOUNT, inside.Int(0), c.Str("/"), inside.Int(0), inside.Int(unix.MS_REC|unix.MS_PRIVATE), inside.Int(0))
	c.Step("make a tmpfs for private directories")
	fs := c.Get(unix.SYS_FSOPEN, c.Str("tmpfs"), inside.Int(unix.FSOPEN_CLOEXEC))
	c.option(fs, "mode", "0755")
	c.tmpfs = c.fsmount(fs, unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV)
	if !c.has(profiles.LayerPidns) {
		c.proc = c.hostTree("/proc") // proc(5) can be mounted only for a pid namespace of one's own
	}
	c.move(c.tmpfs, "/proc")
	c.own = append(c.own, c.tmpfs)
	// What covers the unreadable: cloned once read-only, and each clone of
	// that is read-only as well.
	c.Call(unix.SYS_MKNODAT, inside.Result(c.tmpfs), c.Str("mask"), inside.Int(unix.S_IFREG), inside.Int(0))
	c.Call(unix.SYS_MKDIRAT, inside.Result(c.tmpfs), c.Str("empty"), inside.Int(0o555))
	// Before Linux 6.15 only a mount that is attached can be cloned.
	c.mask = c.ownTree("mask", attrHidden)
	empty := c.ownTree("empty", attrHidden)
	c.Call(unix.SYS_MOVE_MOUNT, inside.Result(c.mask), c.Str(""), inside.Result(c.tmpfs), c.Str("mask"), inside.Int(unix.MOVE_MOUNT_F_EMPTY_PATH))
	c.Call(unix.SYS_MOVE_MOUNT, inside.Result(empty), c.Str(""), inside.Result(c.tmpfs), c.Str("empty"), inside.Int(unix.MOVE_MOUNT_F_EMPTY_PATH))
	c.Call(unix.SYS_FCHDIR, inside.Result(c.tmpfs)) // where cover finds them by name
}

// The attributes of mounts, mount_setattr(2).
const (
	attrFresh  = unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV
	attrHidden = attrFresh | unix.MOUNT_ATTR_RDONLY
	attrKernel = attrFresh | unix.MOUNT_ATTR_NOEXEC
)

// move attaches a mount to a path of the sandbox's own kernel file systems or
// of the host's root, where no link can stand.
func (c *compiler) move(tree inside.Reg, path string) {
	c.Call(unix.SYS_MOVE_MOUNT, inside.Result(tree), c.Str(""), inside.Int(unix.AT_FDCWD), c.Str(path), inside.Int(unix.MOVE_MOUNT_F_EMPTY_PATH))
}

// hostTree clones a tree of the host with all that is mounted in it.
func (c *compiler) hostTree(path string) inside.Reg {
	return c.Get(unix.SYS_OPEN_TREE, inside.Int(unix.AT_FDCWD), c.Str(path), inside.Int(unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_RECURSIVE))
}

// devices makes /dev: a few of the host's nodes, terminals and shared memory
// of its own.
func (c *compiler) devices() {
	c.Step("make /dev")
	at := inside.Result(c.tmpfs)
	c.Call(unix.SYS_MKDIRAT, at, c.Str("dev"), inside.Int(0o755))
	for _, name := range deviceNodes {
		c.Call(unix.SYS_MKNODAT, at, c.Str("dev/"+name), inside.Int(unix.S_IFREG|0o644), inside.Int(0))
		node := c.Get(unix.SYS_OPEN_TREE, inside.Int(unix.AT_FDCWD), c.Str("/dev/"+name), inside.Int(unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC))
		c.nodes = append(c.nodes, node)
	}
	for _, l := range deviceLinks {
		c.Call(unix.SYS_SYMLINKAT, c.Str(l[1]), at, c.Str("dev/"+l[0]))
	}
	c.Call(unix.SYS_MKDIRAT, at, c.Str("dev/pts"), inside.Int(0o755))
	c.Call(unix.SYS_MKDIRAT, at, c.Str("dev/shm"), inside.Int(0o755))
	c.Call(unix.SYS_MKDIRAT, at, c.Str("shm"), inside.Int(0o1777))
	dev := c.ownTree("dev", attrHidden|unix.MOUNT_ATTR_NOEXEC)
	c.move(dev, "/dev")
	for i, name := range deviceNodes {
		c.move(c.nodes[i], "/dev/"+name)
	}
	// The devices lie below /dev, whose own names stay as they are: it is mounted read-only.
	c.writable = append(c.writable, grant{fd: inside.Result(dev)})

	c.Step("mount devpts on /dev/pts")
	fs := c.Get(unix.SYS_FSOPEN, c.Str("devpts"), inside.Int(unix.FSOPEN_CLOEXEC))
	c.Call(unix.SYS_FSCONFIG, inside.Result(fs), inside.Int(unix.FSCONFIG_SET_FLAG), c.Str("newinstance"), inside.Int(0), inside.Int(0))
	c.option(fs, "ptmxmode", "0666")
	c.option(fs, "mode", "0620")
	pts := c.fsmount(fs, unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NOEXEC)
	c.move(pts, "/dev/pts")
	c.nodes = append(c.nodes, pts)
	c.Step("mount a tmpfs on /dev/shm")
	shm := c.ownTree("shm", attrFresh)
	c.move(shm, "/dev/shm")
	c.own = append(c.own, shm)
}

// processes mounts proc(5) of the pid namespace, and covers what would tell of
// the kernel or change it.
func (c *compiler) processes() {
	c.Step(StepProc)
	if c.has(profiles.LayerPidns) {
		fs := c.Get(unix.SYS_FSOPEN, c.Str("proc"), inside.Int(unix.FSOPEN_CLOEXEC))
		c.proc = c.fsmount(fs, attrKernel)
	}
	c.move(c.proc, "/proc")
	c.own = append(c.own, c.proc)
	c.writable = append(c.writable, grant{fd: inside.Result(c.proc)})
	c.userLimits() // before /proc/sys becomes read-only
	if c.Nested || !c.has(profiles.LayerProcMasks) {
		return // one mount over a /proc file makes every further mount of proc inside EPERM
	}
	// Each only where this kernel has it.
	attr := inside.Ptr(c.Program, unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY})
	bind, below := unix.MS_BIND, 0
	if !c.has(profiles.LayerPidns) {
		// The host's /proc may have mounts in it, which nobody may leave behind
		// (EINVAL): systemd's, at /proc/sys/fs/binfmt_misc.
		bind, below = unix.MS_BIND|unix.MS_REC, unix.AT_RECURSIVE
	}
	for _, path := range procReadOnly {
		c.Step("make " + path + " read-only")
		c.Call(unix.SYS_MOUNT, c.Str(path), c.Str(path), inside.Int(0), inside.Int(bind), inside.Int(0))
		c.Allow(unix.ENOENT)
		c.Call(unix.SYS_MOUNT_SETATTR, inside.Int(unix.AT_FDCWD), c.Str(path), inside.Int(below), attr, inside.Int(unsafe.Sizeof(unix.MountAttr{})))
		c.Allow(unix.ENOENT)
	}
	c.cover(procMasks[:], "mask")
	c.cover(procEmpty[:], "empty")
}

// cover puts the unreadable file, or the empty directory, over each path that
// exists.
func (c *compiler) cover(paths []string, with string) {
	for _, path := range paths {
		c.Step("cover " + path)
		c.bind(with, path)
	}
}

// bind mounts what is at one path at another, if that exists: by mount(2), one
// call in place of three, since there are many of these.
func (c *compiler) bind(from, to string) {
	c.Call(unix.SYS_MOUNT, c.Str(from), c.Str(to), inside.Int(0), inside.Int(unix.MS_BIND), inside.Int(0))
	c.Allow(unix.ENOENT)
}

// sysfs mounts sysfs(5) anew: the host's would list the host's interfaces.
func (c *compiler) sysfs() {
	if !c.has(profiles.LayerNetns) {
		return // it can be mounted only for a network namespace of one's own
	}
	c.Step(StepSys)
	fs := c.Get(unix.SYS_FSOPEN, c.Str("sysfs"), inside.Int(unix.FSOPEN_CLOEXEC))
	sys := c.fsmount(fs, attrKernel|unix.MOUNT_ATTR_RDONLY)
	c.move(sys, "/sys")
	c.Call(unix.SYS_CLOSE, inside.Result(sys))
	if !c.Nested && c.has(profiles.LayerProcMasks) {
		c.cover(sysEmpty[:], "empty")
	}
}

func (c *compiler) option(fs inside.Reg, key, value string) {
	c.Call(unix.SYS_FSCONFIG, inside.Result(fs), inside.Int(unix.FSCONFIG_SET_STRING), c.Str(key), c.Str(value), inside.Int(0))
}

func (c *compiler) fsmount(fs inside.Reg, attr int) inside.Reg {
	c.Call(unix.SYS_FSCONFIG, inside.Result(fs), inside.Int(unix.FSCONFIG_CMD_CREATE), inside.Int(0), inside.Int(0), inside.Int(0))
	m := c.Get(unix.SYS_FSMOUNT, inside.Result(fs), inside.Int(unix.FSMOUNT_CLOEXEC), inside.Int(attr))
	c.Call(unix.SYS_CLOSE, inside.Result(fs))
	return m
}

func (c *compiler) setattr(fd inside.Arg, flags uint, set uint64) {
	attr := unix.MountAttr{Attr_set: set}
	c.Call(unix.SYS_MOUNT_SETATTR, fd, c.Str(""), inside.Int(int(unix.AT_EMPTY_PATH|flags)), inside.Ptr(c.Program, attr), inside.Int(unsafe.Sizeof(attr)))
}

// ownTree clones a directory or file of the tmpfs as a mount of its own.
func (c *compiler) ownTree(name string, attr uint64) inside.Reg {
	tree := c.Get(unix.SYS_OPEN_TREE, inside.Result(c.tmpfs), c.Str(name), inside.Int(unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC))
	if attr != attrFresh { // the tmpfs as a whole has these
		c.setattr(inside.Result(tree), 0, attr)
	}
	return tree
}

// kernel sets what a namespace of its own lets us set.
func (c *compiler) kernel() {
	if c.has(profiles.LayerUtsns) {
		c.Step("set the host name")
		c.Call(unix.SYS_SETHOSTNAME, c.Str(Hostname), inside.Int(len(Hostname)))
	}
	if c.has(profiles.LayerKeyring) {
		c.Step("join a session keyring of its own")
		c.Call(unix.SYS_KEYCTL, inside.Int(unix.KEYCTL_JOIN_SESSION_KEYRING), inside.Int(0))
		c.Allow(unix.ENOSYS)
	}
}

// network brings the loopback up.
func (c *compiler) network() {
	if !c.has(profiles.LayerNetns) {
		return
	}
	c.Step("bring the loopback up")
	s := c.Get(unix.SYS_SOCKET, inside.Int(unix.AF_INET), inside.Int(unix.SOCK_STREAM|unix.SOCK_CLOEXEC), inside.Int(0))
	request := make([]byte, 40) // struct ifreq, netdevice(7)
	copy(request, "lo")
	request[16] = unix.IFF_UP
	c.Call(unix.SYS_IOCTL, inside.Result(s), inside.Int(unix.SIOCSIFFLAGS), c.Buf(request))
	c.Call(unix.SYS_CLOSE, inside.Result(s))
}

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

// open takes a clone of everything that the host lends, before any of it is
// covered or made read-only. A descriptor from before the clone is of no use
// here (EINVAL in a new mount namespace), so each path is looked up once more,
// through no link, and held against the inode that the survey saw.
func (c *compiler) open(p *Plan) {
	for i, m := range p.Mounts {
		if m.Kind == Copy {
			c.overlay(i, m)
		}
		if m.Kind != Bind {
			continue
		}
		if m.Donated >= 0 {
			c.sources[i] = inside.Int(m.Donated)
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
		c.Call(unix.SYS_CLOSE, inside.Result(fd))
	}
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
	for i, m := range p.Mounts {
		if c.skips(m) {
			continue
		}
		c.Step("mount " + m.String())
		set := uint64(attrFresh)
		if m.ReadOnly && (m.Protect || c.has(profiles.LayerReadonly)) {
			set |= unix.MOUNT_ATTR_RDONLY
		}
		var tree inside.Arg
		switch m.Kind {
		case Bind:
			tree = c.sources[i]
			flags := uint(0)
			if m.Tree {
				flags = unix.AT_RECURSIVE
			}
			c.setattr(tree, flags, set)
		case Copy:
			tree = c.sources[i]
		case Fresh, Text:
			c.fill(i, m)
			tree = inside.Result(c.ownTree(entry(i), set))
		case Mask:
			tree = inside.Result(c.Get(unix.SYS_OPEN_TREE, inside.Result(c.mask), c.Str(""), inside.Int(unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_EMPTY_PATH)))
		}
		find := lookUp
		if m.Optional {
			find = lookUpIfThere
		}
		target := find(c.Program, m.Target, m.noFollow())
		c.Call(unix.SYS_MOVE_MOUNT, tree, c.Str(""), inside.Result(target), c.Str(""), inside.Int(unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_EMPTY_PATH))
		if m.Optional {
			c.Allow(unix.EBADF, unix.ENOENT) // removed since it was looked up
		}
		c.Call(unix.SYS_CLOSE, inside.Result(target))
		if m.Optional {
			c.Allow(unix.EBADF)
		}
		switch {
		case m.ReadOnly:
			c.Call(unix.SYS_CLOSE, tree)
		default:
			c.writable = append(c.writable, grant{fd: tree, file: m.Kind == Bind && !m.Tree, deputized: p.deputized(&m)})
		}
	}
}

// skips reports whether a mount belongs to a layer that is off.
func (s Shell) skips(m Mount) bool {
	switch {
	case m.Protect:
		return !s.has(profiles.LayerProtect)
	case m.Kind == Copy:
		return false
	case m.Kind != Bind && m.Kind != Text, m.Kind == Bind && m.ReadOnly:
		return !s.has(profiles.LayerHide) // where nothing is hidden, all is there to be read
	}
	return false
}

// entry is the name of a mount's own directory or file in the tmpfs.
func entry(i int) string { return "m" + strconv.Itoa(i) }

func (c *compiler) fill(i int, m Mount) {
	at := inside.Result(c.tmpfs)
	if m.Kind == Text {
		fd := c.Get(unix.SYS_OPENAT, at, c.Str(entry(i)), inside.Int(unix.O_WRONLY|unix.O_CREAT|unix.O_CLOEXEC), inside.Int(m.Mode))
		c.Call(unix.SYS_WRITE, inside.Result(fd), c.Str(m.Text), inside.Int(len(m.Text)))
		c.Call(unix.SYS_CLOSE, inside.Result(fd))
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
				c.age(at, name)
			}
		default:
			c.Call(unix.SYS_MKNODAT, at, name, inside.Int(unix.S_IFREG|0o644), inside.Int(0))
		}
	}
}

// userLimits forbids user namespaces inside by number, beside the filter that
// forbids them by call (namespaces(7), /proc/sys/user).
func (c *compiler) userLimits() {
	if !c.Nested && c.has(profiles.LayerUsernsLimit) {
		c.Step("forbid user namespaces inside")
		c.writeAt(inside.Result(c.proc), "sys/user/max_user_namespaces", "0")
	}
	if c.has(profiles.LayerRlimits) {
		c.Step("limit inotify instances")
		c.writeAt(inside.Result(c.proc), "sys/user/max_inotify_instances", "64") // of the 128 that a user has by default
	}
}

// sockets opens what only a process in this network namespace can open, and
// hands it to the launcher: it makes the network while we mount.
func (c *compiler) sockets(p *Plan) {
	list := p.sockets()
	if len(list) == 0 {
		return
	}
	c.Step("open the sockets of the sandbox's network")
	regs := make([]inside.Reg, len(list))
	for i, s := range list {
		regs[i] = c.Get(unix.SYS_SOCKET, inside.Int(s.Domain), inside.Int(s.Type|unix.SOCK_CLOEXEC), inside.Int(s.Protocol))
	}
	c.SendFDs(c.control, regs...)
	for _, r := range regs {
		c.Call(unix.SYS_CLOSE, inside.Result(r))
	}
}

// listen opens the launcher's listeners on the sandbox's own loopback.
func (c *compiler) listen(p *Plan) {
	for _, at := range p.Listen {
		c.Step("listen on " + at.String() + " in the sandbox")
		port, family := at.Port(), unix.AF_INET
		address := []byte{unix.AF_INET, 0, byte(port >> 8), byte(port), 127, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0} // struct sockaddr_in, ip(7)
		if at.Addr().Is6() {
			family = unix.AF_INET6
			address = []byte{unix.AF_INET6, 0, byte(port >> 8), byte(port), 23: 1, 27: 0} // struct sockaddr_in6, ipv6(7): ::1
		}
		s := c.Get(unix.SYS_SOCKET, inside.Int(family), inside.Int(unix.SOCK_STREAM|unix.SOCK_CLOEXEC), inside.Int(0))
		c.Call(unix.SYS_BIND, inside.Result(s), c.Buf(address), inside.Int(len(address)))
		c.Call(unix.SYS_LISTEN, inside.Result(s), inside.Int(1024))
		c.send = append(c.send, s)
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
	c.send = append([]inside.Reg{master}, c.send...)
	return c.tty
}

// namespace opens one of the sandbox's namespaces, for the keeper: once pid 1
// is not dumpable nobody else can.
func (c *compiler) namespace(name string) inside.Reg {
	return c.Get(unix.SYS_OPENAT, inside.Result(c.proc), c.Str("self/ns/"+name), inside.Int(unix.O_RDONLY|unix.O_CLOEXEC))
}

// enter goes where the command starts, in the tree as it is now.
func (c *compiler) enter(p *Plan) {
	c.Step("enter " + p.Command.Dir)
	c.Call(unix.SYS_CHDIR, c.Str(p.Command.Dir))
}

// restrict gives up every privilege, for pid 1 and so for all that it starts.
func (c *compiler) restrict(p *Plan) {
	if len(p.CPUs) > 0 {
		c.Step("limit processors")
		c.Call(unix.SYS_SCHED_SETAFFINITY, inside.Int(0), inside.Int(len(p.CPUs)), c.Buf(p.CPUs))
	}
	if c.has(profiles.LayerRlimits) {
		c.Step("raise the OOM score")
		c.writeAt(inside.Result(c.proc), "self/oom_score_adj", strconv.Itoa(p.OOMScore))
		c.limit(p, func(r Rlimit) bool { return r.Resource != unix.RLIMIT_NOFILE }) // which comes when nothing is opened any more
	}
	if c.has(profiles.LayerNoNewPrivs) {
		c.Step("forbid new privileges")
		c.Call(unix.SYS_PRCTL, inside.Int(unix.PR_SET_NO_NEW_PRIVS), inside.Int(1), inside.Int(0), inside.Int(0), inside.Int(0))
	}
	if p.Landlock >= landlockRefer && c.has(profiles.LayerLandlock) {
		c.landlock(p) // while CAP_SYS_ADMIN lets us do without the line above
	}
	c.Step("watch for children")
	set := uint64(1) << (unix.SIGCHLD - 1)
	c.signals = c.Get(unix.SYS_SIGNALFD4, inside.Int(-1), inside.Ptr(c.Program, set), inside.Int(8), inside.Int(unix.SFD_CLOEXEC|unix.SFD_NONBLOCK))
	c.Call(unix.SYS_PRCTL, inside.Int(unix.PR_SET_NAME), c.Str("pccrun"))
}

// limit sets the limits that are chosen.
func (c *compiler) limit(p *Plan, chosen func(Rlimit) bool) {
	for _, r := range p.Rlimits {
		if !chosen(r) {
			continue
		}
		r, stands := r.bounded()
		if stands && r.Resource == unix.RLIMIT_CORE {
			continue // the filter of a pccrun around this one refuses to set it, to whatever value
		}
		c.Step("limit " + r.Name)
		c.Call(unix.SYS_PRLIMIT64, inside.Int(0), inside.Int(r.Resource), inside.Ptr(c.Program, unix.Rlimit{Cur: r.Soft, Max: r.Hard}), inside.Int(0))
	}
}

// bounded returns a limit as it can be set: below the hard limit that this
// process has, which containers and limits.conf(5) lower. It reports whether
// the limit stands already.
func (r Rlimit) bounded() (bounded Rlimit, stands bool) {
	var now unix.Rlimit
	if unix.Getrlimit(r.Resource, &now) != nil {
		return r, false
	}
	r.Hard = min(r.Hard, now.Max)
	r.Soft = min(r.Soft, r.Hard)
	return r, now.Cur == r.Soft && now.Max == r.Hard
}

func (c *compiler) landlock(p *Plan) {
	c.Step("restrict files with Landlock")
	attr := landlockRuleset{fs: landlockWrite}
	if len(p.Readable) > 0 {
		attr.fs = landlockAll(p.Landlock)
	}
	if c.Nested {
		attr.fs = 0 // under a file ruleset every mount inside is refused
	}
	size := unsafe.Sizeof(attr.fs)
	if p.Landlock >= landlockScope {
		attr.scoped = landlockScopes
		size = unsafe.Sizeof(attr)
	}
	if attr.fs == 0 && attr.scoped == 0 {
		return
	}
	rules := c.Get(unix.SYS_LANDLOCK_CREATE_RULESET, inside.Ptr(c.Program, attr), inside.Int(size), inside.Int(0))
	if attr.fs != 0 {
		for _, g := range c.writable {
			rights := attr.fs
			if g.file {
				rights &= landlockFile
			}
			if g.deputized {
				rights &^= landlockMake
			}
			c.allow(rules, rights, g.fd)
		}
		for _, r := range p.Readable {
			c.Step("let Landlock read " + r.Path)
			fd := lookUpIfThere(c.Program, r.Path, 0)
			c.allow(rules, r.Rights(), inside.Result(fd))
			c.Allow(unix.EBADF) // gone since the survey
			c.Call(unix.SYS_CLOSE, inside.Result(fd))
			c.Allow(unix.EBADF)
		}
		c.Step("restrict files with Landlock")
	}
	c.Call(unix.SYS_LANDLOCK_RESTRICT_SELF, inside.Result(rules), inside.Int(0))
}

// allow adds a rule: rights below what a descriptor is of.
func (c *compiler) allow(rules inside.Reg, rights uint64, fd inside.Arg) {
	c.Call(unix.SYS_LANDLOCK_ADD_RULE, inside.Result(rules), inside.Int(unix.LANDLOCK_RULE_PATH_BENEATH), c.Beneath(rights, fd), inside.Int(0))
}

// filter drops the capabilities and installs the seccomp filter, last: it
// refuses most of what came before it. pid 1 runs under it too.
func (c *compiler) filter(p *Plan) {
	if c.has(profiles.LayerDumpable) {
		c.Step("close /proc/1 to the sandbox")
		c.Call(unix.SYS_PRCTL, inside.Int(unix.PR_SET_DUMPABLE), inside.Int(0), inside.Int(0), inside.Int(0), inside.Int(0))
	}
	install := func() {
		c.watch(p)
		if c.has(profiles.LayerRlimits) {
			c.limit(p, func(r Rlimit) bool { return r.Resource == unix.RLIMIT_NOFILE })
		}
		for _, f := range [...]struct {
			layer   profiles.Layer
			program []byte
		}{{profiles.LayerFloor, p.Floor}, {profiles.LayerSeccomp, p.Filter}} { // the other filter may refuse to have one more
			if c.has(f.layer) && len(f.program) > 0 {
				c.Step("install the filter " + string(f.layer))
				c.Call(unix.SYS_SECCOMP, inside.Int(unix.SECCOMP_SET_MODE_FILTER), inside.Int(unix.SECCOMP_FILTER_FLAG_SPEC_ALLOW), c.Program.Filter(f.program))
			}
		}
	}
	if !c.has(profiles.LayerCaps) {
		install()
		return
	}
	c.Step("give up all capabilities")
	c.DropBounding()
	if !c.has(profiles.LayerNoNewPrivs) {
		install() // without no_new_privs it takes CAP_SYS_ADMIN
	}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	c.Call(unix.SYS_CAPSET, inside.Ptr(c.Program, header), inside.Ptr(c.Program, [2]unix.CapUserData{}))
	if c.has(profiles.LayerNoNewPrivs) {
		install()
	}
}

// stepWatch is where a supervisor around this one shows: a process has one at most.
const stepWatch = "install the filter that asks the launcher"

// watch installs the filter that asks, and hands its listener to the launcher;
// where there is none, the word alone says so. It comes before the other
// filters, which may refuse what it takes. Neither pid 1 nor the command keeps
// the listener: who holds it answers for everybody.
func (c *compiler) watch(p *Plan) {
	if p.Watch == nil {
		return
	}
	c.Step(stepWatch)
	listener := c.Get(unix.SYS_SECCOMP, inside.Int(unix.SECCOMP_SET_MODE_FILTER), inside.Int(p.Watch.Flags), c.Program.Filter(p.Watch.Filter))
	if !p.Watch.Required {
		c.Allow(unix.EBUSY, unix.EINVAL) // there is one; or the kernel has none
	}
	c.SendFDs(c.control, listener)
	c.Allow(unix.EBADF)
	c.Call(unix.SYS_CLOSE, inside.Result(listener))
	c.Allow(unix.EBADF)
	c.Tell(inside.Watched)
}

// command is what the second copy does before it becomes the command.
func (c *compiler) command(p *Plan, io *Stdio, slave inside.Reg) {
	c.Step("start a process group")
	if slave == 0 {
		c.Call(unix.SYS_SETSID)
	} else {
		c.Call(unix.SYS_SETPGID, inside.Int(0), inside.Int(0))
	}
	if slave != 0 && !io.Background {
		c.Call(unix.SYS_IOCTL, inside.Result(slave), inside.Int(unix.TIOCSPGRP), c.Pid())
	}
	c.Step("set the standard descriptors")
	for i, fd := range io.Fds {
		switch {
		case fd == Terminal:
			c.Call(unix.SYS_DUP3, inside.Result(slave), inside.Int(i), inside.Int(0))
		case fd != i:
			c.Call(unix.SYS_DUP3, inside.Int(fd), inside.Int(i), inside.Int(0))
		}
	}
	if c.has(profiles.LayerFds) {
		c.Call(unix.SYS_CLOSE_RANGE, inside.Int(3), inside.Int(^uint32(0)), inside.Int(unix.CLOSE_RANGE_CLOEXEC))
	}
	for _, fd := range p.PassFDs {
		c.Step("pass descriptor " + strconv.Itoa(fd))
		c.Call(unix.SYS_FCNTL, inside.Int(fd), inside.Int(unix.F_SETFD), inside.Int(0))
	}
	c.Call(unix.SYS_UMASK, inside.Int(p.Command.Umask))
	c.Step("reset signals")
	c.DefaultSignals()
	c.Call(unix.SYS_RT_SIGPROCMASK, inside.Int(unix.SIG_SETMASK), inside.Ptr(c.Program, uint64(0)), inside.Int(0), inside.Int(8))
	c.Step("execute " + p.Command.Argv[0])
	c.Exec(p.Command.Paths, p.Command.Argv, p.Command.Env)
}

// cloneFlags returns the namespaces of clone(2): the one that gives the right to
// make the others, and the one that only a clone can put a process into.
func (s Shell) cloneFlags() uintptr {
	if s.has(profiles.LayerPidns) {
		return unix.CLONE_NEWUSER | unix.CLONE_NEWPID
	}
	return unix.CLONE_NEWUSER
}

// unshareFlags returns the namespaces of unshare(2).
func (s Shell) unshareFlags() uintptr {
	flags := uintptr(unix.CLONE_NEWNS)
	for _, n := range [...]struct {
		layer profiles.Layer
		flag  uintptr
	}{
		{profiles.LayerNetns, unix.CLONE_NEWNET},
		{profiles.LayerIpcns, unix.CLONE_NEWIPC},
		{profiles.LayerUtsns, unix.CLONE_NEWUTS},
		{profiles.LayerCgroupns, unix.CLONE_NEWCGROUP},
	} {
		if s.has(n.layer) {
			flags |= n.flag
		}
	}
	return flags
}
