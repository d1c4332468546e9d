package namespaces

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/namespaces/inside"
)

// An overlay is the kernel's, mounted in the sandbox's own user namespace
// (Linux 5.11): the host's directory is its lower layer, which it never
// changes, and what the command changes goes to a directory of the session's.
// Whether this kernel and these file systems can is decided by trying: the
// first step that fails is an [OverlayError].
//
// What stands on the lower layer at the start is covered by its path, as
// anywhere else, and a mount in an overlay is safer than one on the host's own
// tree: nothing that the host does can detach it.

// The directories of the session's that an overlay needs, in [Mount.Upper].
const (
	UpperTree = "tree" // what changed
	UpperWork = "work" // the kernel's own
)

const overlayStep = "mount overlay on "

// Overlays returns the plan's overlays, in the order of [Bound.Upper].
func (p *Plan) Overlays() []*Mount {
	var list []*Mount
	for i := range p.Mounts {
		if p.Mounts[i].Kind == Copy {
			list = append(list, &p.Mounts[i])
		}
	}
	return list
}

// Device returns Dev as stat(2) has it.
func (m *Mount) Device() uint64 { return unix.Mkdev(uint32(m.Dev>>32), uint32(m.Dev)) }

// overlay makes an overlay while the host's tree is as it was: nothing is
// covered yet, and the directory for the changes is not read-only. The layers
// are named by their descriptors, so no path is read twice and none is read as
// an option.
func (c *compiler) overlay(i int, m Mount) {
	c.Step(overlayStep + m.Target)
	var lower, upper inside.Reg
	if m.Donated >= 0 {
		// The kernel takes only what is attached in this mount namespace.
		lower = c.attach(inside.Int(m.Donated), "lower"+strconv.Itoa(i))
		upper = c.attach(inside.Int(m.DonatedUpper), "upper"+strconv.Itoa(i))
	} else {
		lower, upper = lookUp(c.Program, m.Source, unix.O_DIRECTORY), lookUp(c.Program, m.Upper, unix.O_DIRECTORY)
	}
	c.SameInode(lower, m.Dev, m.Ino)
	tree, work := c.below(upper, UpperTree), c.below(upper, UpperWork)
	c.sources[i] = inside.Result(c.layers([]inside.Reg{lower}, tree, work, func() {}))
	if m.Donated >= 0 { // the overlay has clones of its own
		for _, fd := range [...]inside.Reg{lower, upper} {
			c.Call(unix.SYS_UMOUNT2, c.FDPath(fd), inside.Int(unix.MNT_DETACH))
		}
	}
	for _, fd := range [...]inside.Reg{lower, upper, tree, work} {
		c.Call(unix.SYS_CLOSE, inside.Result(fd))
	}
}

// layers mounts an overlay of directories that are open, the upper one of the lower first, attached nowhere yet;
// after each call that may fail it calls then.
func (c *compiler) layers(lower []inside.Reg, tree, work inside.Reg, then func()) inside.Reg {
	fs := c.Get(unix.SYS_FSOPEN, c.Str("overlay"), inside.Int(unix.FSOPEN_CLOEXEC))
	then()
	set := func(how int, key string, value inside.Arg) {
		c.Call(unix.SYS_FSCONFIG, inside.Result(fs), inside.Int(how), c.Str(key), value, inside.Int(0))
		then()
	}
	set(unix.FSCONFIG_SET_STRING, "source", c.Str("overlay"))
	// Without volatile (Linux 5.10) the end of each run would write out all that
	// waits on the upper file system, whoever's it is.
	set(unix.FSCONFIG_SET_FLAG, "userxattr", inside.Int(0))
	set(unix.FSCONFIG_SET_FLAG, "volatile", inside.Int(0))
	key := "lowerdir"
	if len(lower) > 1 {
		key = "lowerdir+" // Linux 6.7
	}
	for _, fd := range lower {
		set(unix.FSCONFIG_SET_STRING, key, c.FDPath(fd))
	}
	set(unix.FSCONFIG_SET_STRING, "upperdir", c.FDPath(tree))
	set(unix.FSCONFIG_SET_STRING, "workdir", c.FDPath(work))
	c.Call(unix.SYS_FSCONFIG, inside.Result(fs), inside.Int(unix.FSCONFIG_CMD_CREATE), inside.Int(0), inside.Int(0), inside.Int(0))
	then()
	m := c.Get(unix.SYS_FSMOUNT, inside.Result(fs), inside.Int(unix.FSMOUNT_CLOEXEC), inside.Int(attrFresh))
	then()
	c.Call(unix.SYS_CLOSE, inside.Result(fs))
	then()
	return m
}

// upperName begins the name of the layer of a scratch overlay.
const upperName = "upper"

// scratch makes an overlay whose changes lie in the sandbox's own tmpfs, bounded
// and gone as all that is private. Nothing depends on it but convenience, so it
// is tried: where the kernel has none of this host's directory (another file
// system, a module that is not there, too many overlays upon each other) what is
// mounted first, read-only, is what the command sees ([Plan.settle]).
func (c *compiler) scratch(i int, between string, lower inside.Reg) {
	at := inside.Result(c.tmpfs)
	var dirs [2]inside.Reg
	for n, name := range [...]string{upperName, "work"} {
		name += strconv.Itoa(i)
		c.Call(unix.SYS_MKDIRAT, at, c.Str(name), inside.Int(0o755))
		dirs[n] = c.below(c.tmpfs, name)
	}
	lowers := []inside.Reg{lower}
	if between != "" {
		lowers = []inside.Reg{lookUp(c.Program, between, unix.O_DIRECTORY), lower}
		defer c.Call(unix.SYS_CLOSE, inside.Result(lowers[0]))
	}
	c.over[i] = c.layers(lowers, dirs[0], dirs[1], c.Attempt)
	for _, fd := range dirs {
		c.Call(unix.SYS_CLOSE, inside.Result(fd))
	}
}

// scratchOver mounts a scratch overlay over the read-only tree that is in its
// place, if there is one, and remembers where the launcher hears of it.
func (c *compiler) scratchOver(i int, tree inside.Arg) {
	moved := c.Get(unix.SYS_MOVE_MOUNT, inside.Result(c.over[i]), c.Str(""), tree, c.Str(""), inside.Int(unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_EMPTY_PATH))
	c.Attempt()
	c.scratched[i] = c.Reveal(moved)
}

// settle makes the plan say what is there, now that it is known: a scratch
// overlay that could not be mounted is the read-only tree below it.
func (c *compiler) settle(p *Plan) {
	for i, result := range c.scratched {
		if *result != 0 {
			p.Mounts[i].Kind, p.Mounts[i].ReadOnly = Bind, true
		}
	}
}

// attach puts a detached mount on a directory of the tmpfs, out of everybody's
// reach, and returns a descriptor of its root.
func (c *compiler) attach(tree inside.Arg, name string) inside.Reg {
	at := inside.Result(c.tmpfs)
	c.Call(unix.SYS_MKDIRAT, at, c.Str(name), inside.Int(0o700))
	c.Call(unix.SYS_MOVE_MOUNT, tree, c.Str(""), at, c.Str(name), inside.Int(unix.MOVE_MOUNT_F_EMPTY_PATH))
	return c.Get(unix.SYS_OPENAT, at, c.Str(name), inside.Int(lookup|unix.O_DIRECTORY))
}

// below looks a name up in a directory, without following a link.
func (c *compiler) below(dir inside.Reg, name string) inside.Reg {
	return c.Get(unix.SYS_OPENAT, inside.Result(dir), c.Str(name), inside.Int(lookup|unix.O_DIRECTORY|unix.O_NOFOLLOW))
}

// An OverlayError says why a directory cannot be an overlay here. Nothing has
// run.
type OverlayError struct {
	Path  string
	Errno unix.Errno
}

func (e *OverlayError) Error() string {
	return fmt.Sprintf("overlay on %s: %s: %s", e.Path, e.Cause(), e.Errno)
}

// Unwrap returns the errno.
func (e *OverlayError) Unwrap() error { return e.Errno }

// Cause says what the errno means, as far as it tells.
func (e *OverlayError) Cause() string {
	switch e.Errno {
	case unix.ENODEV:
		return "the kernel has no overlayfs"
	case unix.EPERM, unix.EACCES:
		return "the kernel does not let a user namespace mount overlayfs"
	case unix.EINVAL:
		return "overlayfs does not accept the session's directory as upper directory, or a file system is mounted below the path"
	case unix.ELOOP:
		return "the session's directory is in it"
	case unix.ENOENT:
		return "the session's directory is in /dev, /proc or /sys, which the sandbox replaces"
	case unix.ESTALE:
		return "it was replaced while the sandbox was set up"
	}
	return "overlayfs"
}

// Hint says what may mend it.
func (e *OverlayError) Hint() string {
	switch e.Errno {
	case unix.EINVAL, unix.ENOENT:
		return "set XDG_STATE_HOME to a directory on ext4, xfs or btrfs, or from Linux 6.6 on tmpfs, or use read or private instead of overlay"
	case unix.ESTALE:
		return "run it again"
	}
	return "use read or private instead of overlay"
}

// overlayError turns the failure of an overlay's step into its own error.
func overlayError(err error) error {
	var step *StepError
	if errors.As(err, &step) {
		if path, ok := strings.CutPrefix(step.Step, overlayStep); ok {
			return &OverlayError{Path: path, Errno: step.Errno}
		}
	}
	return err
}
