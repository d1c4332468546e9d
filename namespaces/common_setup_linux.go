package namespaces

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/internal/survey"
	"github.com/pccrun/pccrun/namespaces/inside"
	"github.com/pccrun/pccrun/profiles"
)

// This is what every sandbox has, whatever the policy says: the calls of
// [compiler.shell], in their order.

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
	at := inside.Int(unix.AT_FDCWD)
	c.writeAt(at, "/proc/self/setgroups", "deny")
	c.writeAt(at, "/proc/self/uid_map", fmt.Sprintf("%d %d 1", id.UID, id.HostUID))
	c.writeAt(at, "/proc/self/gid_map", fmt.Sprintf("%d %d 1", id.GID, id.HostGID))
	c.Call(unix.SYS_UMASK, inside.Int(0)) // modes in the plan are meant as they stand
}

// unshare makes the other namespaces. The clone could make them too, but it is
// waited for, and a network namespace takes longer than all the others.
func (c *compiler) unshare() {
	c.Step(StepClone)
	c.Call(unix.SYS_UNSHARE, inside.Int(c.Shell.unshareFlags()))
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
	for _, name := range survey.DeviceNodes {
		c.Call(unix.SYS_MKNODAT, at, c.Str("dev/"+name), inside.Int(unix.S_IFREG|0o644), inside.Int(0))
		node := c.Get(unix.SYS_OPEN_TREE, inside.Int(unix.AT_FDCWD), c.Str("/dev/"+name), inside.Int(unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC))
		c.nodes = append(c.nodes, node)
	}
	for _, l := range survey.DeviceLinks {
		c.Call(unix.SYS_SYMLINKAT, c.Str(l[1]), at, c.Str("dev/"+l[0]))
	}
	c.Call(unix.SYS_MKDIRAT, at, c.Str("dev/pts"), inside.Int(0o755))
	c.Call(unix.SYS_MKDIRAT, at, c.Str("dev/shm"), inside.Int(0o755))
	c.Call(unix.SYS_MKDIRAT, at, c.Str("shm"), inside.Int(0o1777))
	dev := c.ownTree("dev", attrHidden|unix.MOUNT_ATTR_NOEXEC)
	c.move(dev, "/dev")
	for i, name := range survey.DeviceNodes {
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
	var st unix.Statfs_t
	if err := unix.Statfs("/sys", &st); err != nil || st.Type != unix.SYSFS_MAGIC {
		return // a small image has none, and the kernel then mounts none in a user namespace (mount_too_revealing)
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
		keyring := c.Get(unix.SYS_KEYCTL, inside.Int(unix.KEYCTL_JOIN_SESSION_KEYRING), inside.Int(0))
		c.Allow(unix.ENOSYS)
		if c.has(profiles.LayerFloor) {
			// Each run takes one of a user's 200 keys (keyrings(7)). The floor refuses
			// whatever asks for a key, so that more runs do not depend on it.
			c.Allow(unix.ENOSYS, unix.EDQUOT)
		}
		c.keyring = c.Reveal(keyring)
	}
}

// network brings the loopback up. The socket that this takes is where a run without
// a network has its name server, if the plan wants one: it asks for no call more than
// a bind, while the launcher reads the policy.
func (c *compiler) network() {
	if !c.has(profiles.LayerNetns) {
		return
	}
	c.Step("bring the loopback up")
	c.questions = c.Get(unix.SYS_SOCKET, inside.Int(unix.AF_INET), inside.Int(unix.SOCK_DGRAM|unix.SOCK_CLOEXEC), inside.Int(0))
	request := make([]byte, 40) // struct ifreq, netdevice(7)
	copy(request, "lo")
	request[16] = unix.IFF_UP
	c.Call(unix.SYS_IOCTL, inside.Result(c.questions), inside.Int(unix.SIOCSIFFLAGS), c.Buf(request))
	c.Step("bind the name server's port in the sandbox")
	at := []byte{unix.AF_INET, 0, 0, 53, 127, 0, 0, 1, 15: 0} // struct sockaddr_in, ip(7)
	c.Call(unix.SYS_BIND, inside.Result(c.questions), c.Buf(at), inside.Int(len(at)))
}

// unasked closes the name server's socket where the plan has no use for it: before
// the launcher binds that port to every address.
func (c *compiler) unasked(p *Plan) {
	if c.questions != 0 && !p.Questions {
		c.Call(unix.SYS_CLOSE, inside.Result(c.questions))
	}
}

// userLimits forbids user namespaces inside by number, in addition to the filter that
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
