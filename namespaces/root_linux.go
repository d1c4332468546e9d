package namespaces

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/internal/credentials"
	"github.com/pccrun/pccrun/internal/survey"
	"github.com/pccrun/pccrun/namespaces/inside"
	"github.com/pccrun/pccrun/workspace/beneath"
)

// Started as root, pccrun gives that up for an identity that owns nothing on
// any disk: "pccr" read as a number, beyond the ranges that distributions and
// systemd hand out (systemd.io/UIDS-GIDS). Root's uid 0 mapped into the
// sandbox without a capability would still own /proc/sys and every file of
// root's that a rule shows.
const rootIdentity = 0x70636372

// insideRoot is who that identity is inside: programs refuse uid 0, and names
// of long numbers.
const insideRoot = 1000

// ErrIdmap says that a file system cannot show its files as somebody else's.
var ErrIdmap = errors.New("the file system cannot map owners (idmapped mounts)")

// WhoAmI returns the identity that the command of this user gets.
func WhoAmI() Identity {
	if os.Getuid() == 0 {
		return Identity{HostUID: rootIdentity, HostGID: rootIdentity, UID: insideRoot, GID: insideRoot, Root: true}
	}
	uid, gid := os.Getuid(), os.Getgid()
	return Identity{HostUID: uid, HostGID: gid, UID: uid, GID: gid}
}

// Donate opens everything that the plan binds while this process is still
// root, and makes what root or the owner of the tree owns look as if it were
// the identity's. On the disk it stays whose it is.
//
// What in a tree is only pinned, or closed to more than the tree, looks as the tree does:
// by its own owner root's file of mode 0600 would be the identity's, whoever has given it
// such a name.
func (p *Plan) Donate() error {
	maps := map[owner]*os.File{}
	defer func() {
		for _, f := range maps {
			f.Close()
		}
	}()
	owners, around := make([]owner, len(p.Mounts)), p.ownedWith()
	for i := range p.Mounts {
		m := &p.Mounts[i]
		if m.Kind != Bind && m.Kind != Copy && m.Kind != Scratch && m.Kind != Persist {
			continue
		}
		if around[i] >= 0 {
			owners[i] = owners[around[i]]
		}
		var err error
		m.Donated, err = m.donate(p.Identity, maps, &owners[i])
		if err == nil && m.Kind == Copy {
			m.DonatedUpper, err = unix.OpenTree(unix.AT_FDCWD, m.Upper, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_SYMLINK_NOFOLLOW)
		}
		if err == nil && p.checked(m) {
			err = p.donateToCheck(m, maps, &owners[i])
		}
		if err != nil {
			return fmt.Errorf("mount %s: %w", m, err)
		}
	}
	return p.donateConfigs(func(m *Mount) (int, error) { return m.donate(p.Identity, maps, new(owner)) })
}

// checked reports whether the launcher looks through a mount of the host's for what the command
// has made there: through a directory that the command may write, through one that is the workspace,
// and through a repository of which the command may write a part. No other directory around what may
// be written stays open to it: that may hold what a rule hides.
func (p *Plan) checked(m *Mount) bool {
	switch {
	case m.Kind == Scratch, m.Kind != Copy && !m.Tree:
		return false
	case m.Protect:
		// Where the workspace may be written in parts only, what appears in one of these is quarantined by
		// a mount of that part, which may hold what must stay where it is.
		return !m.ReadOnly && len(p.guarded) > 0 && !p.Writes(p.guarded[0])
	case m.ReadOnly:
		return slices.Contains(p.guarded, m.Target) || p.hasObjects(m)
	}
	return true
}

// hasObjects reports whether a mount is the repository of a working tree that lies elsewhere, of
// which the command may write a part.
func (p *Plan) hasObjects(m *Mount) bool {
	return m.Kind == Bind && m.Tree && slices.ContainsFunc(p.Mounts, func(o Mount) bool {
		return o.Kind == Bind && o.Tree && !o.ReadOnly && o.Target == m.Target+"/objects"
	})
}

// donateToCheck opens a directory a second time, for the launcher: what appears there, or in a part of an
// overlay that is the host's own, it quarantines by a mount without pins.
func (p *Plan) donateToCheck(m *Mount, maps map[owner]*os.File, of *owner) error {
	fd, err := m.donate(p.Identity, maps, of)
	if err != nil {
		return err
	}
	if m.ReadOnly {
		if err := unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH|unix.AT_RECURSIVE, &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}); err != nil {
			unix.Close(fd)
			return os.NewSyscallError("mount_setattr", err)
		}
	}
	if p.Checked == nil {
		p.Checked = map[string]int{}
	}
	p.Checked[m.Target] = fd
	return nil
}

// An owner is whose files a mount makes look as if they were the identity's.
type owner struct {
	uid, gid uint32
	known    bool
}

// ownedWith returns for each mount the index of the host's tree around it by whose owner its files
// are the identity's as well, since the mount grants no more than that tree; else -1.
func (p *Plan) ownedWith() []int {
	return around(p.Mounts, func(*Mount) bool { return true }, func(m, w *Mount) bool {
		return m.Source == m.Target && w.Source == w.Target && 0 < m.grants() && m.grants() <= w.grants()
	})
}

// grants orders mounts by what may be done in the host's files there: 0 where there are none.
func (m *Mount) grants() int {
	switch {
	case m.Kind == Bind && !m.ReadOnly:
		return 3
	case m.Kind == Copy, m.Kind == Scratch:
		return 2
	case m.Kind == Bind:
		return 1
	}
	return 0
}

// donate opens what is bound, as if it belonged to the identity: its own owner's files
// if none is known.
func (m *Mount) donate(id Identity, maps map[owner]*os.File, of *owner) (int, error) {
	dir, name, err := beneath.ParentOf(m.Source)
	if err != nil {
		return -1, err
	}
	defer unix.Close(dir)
	fd, err := beneath.Open(dir, name, unix.O_PATH)
	if err != nil {
		return -1, err
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return -1, err
	}
	if st.Mode&unix.S_IFMT == unix.S_IFLNK && !m.OverLink {
		return -1, unix.ELOOP
	}
	if survey.Device(st.Dev) != m.Dev || st.Ino != m.Ino {
		return -1, unix.ESTALE
	}
	flags := uint(unix.OPEN_TREE_CLONE | unix.OPEN_TREE_CLOEXEC | unix.AT_EMPTY_PATH)
	attr := uint(unix.AT_EMPTY_PATH)
	if m.Tree {
		flags |= unix.AT_RECURSIVE
		attr |= unix.AT_RECURSIVE
	}
	tree, err := unix.OpenTree(fd, "", flags)
	if err != nil {
		errno, _ := err.(unix.Errno)
		return -1, powerless(os.NewSyscallError("open_tree", err), errno, readText)
	}
	if !of.known {
		*of = owner{st.Uid, st.Gid, true}
	}
	if maps[*of] == nil {
		if maps[*of], err = idmap(of.uid, of.gid, id); err != nil {
			unix.Close(tree)
			return -1, err
		}
	}
	// Private, or mounts of the host would go in, and those inside come out.
	err = unix.MountSetattr(tree, "", attr, &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_IDMAP, Propagation: unix.MS_PRIVATE, Userns_fd: uint64(maps[*of].Fd())})
	if err != nil {
		unix.Close(tree)
		if err == unix.EINVAL {
			err = ErrIdmap
		}
		return -1, err
	}
	return tree, nil
}

// idmap returns a user namespace in which the disk's uid and gid are the
// identity's, for MOUNT_ATTR_IDMAP (mount_setattr(2)).
func idmap(uid, gid uint32, id Identity) (*os.File, error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("socketpair", err)
	}
	defer unix.Close(pair[0])
	program, err := inside.New()
	if err != nil {
		unix.Close(pair[1])
		return nil, err
	}
	defer program.Free()
	program.Call(unix.SYS_PRCTL, inside.Int(unix.PR_SET_PDEATHSIG), inside.Int(int(unix.SIGKILL)))
	program.Await() // for ever: it only holds the namespace
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	pid, err := program.Start(inside.Options{Flags: unix.CLONE_NEWUSER, Control: pair[1], Launcher: pair[0]})
	unix.Close(pair[1])
	if err != nil {
		return nil, Shell{}.cloneError(err)
	}
	defer func() {
		unix.Kill(pid, unix.SIGKILL)
		unix.Wait4(pid, nil, unix.WALL, nil)
	}()
	proc := "/proc/" + strconv.Itoa(pid) + "/"
	for _, w := range [...][2]string{{"uid_map", fmt.Sprintf("%d %d 1", uid, id.HostUID)}, {"gid_map", fmt.Sprintf("%d %d 1", gid, id.HostGID)}} {
		if err := os.WriteFile(proc+w[0], []byte(w[1]), 0); err != nil {
			return nil, err
		}
	}
	return os.Open(proc + "ns/user")
}

// Shed makes this process the identity for good, all its threads: from here on
// the launcher has no more power than the command's own user has outside.
func (id Identity) Shed() error {
	if !id.Root {
		return nil
	}
	if err := credentials.Become(id.HostUID, id.HostGID); err != nil {
		return err
	}
	// A process that has changed its user is not dumpable, and its copy could
	// not write its own uid_map.
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 1, 0, 0, 0); err != nil {
		return os.NewSyscallError("prctl", err)
	}
	return nil
}

// passwd returns the host's passwd(5) or group(5) with a line for the identity
// in place of whoever has its number.
func (id Identity) passwd(path, line string) string {
	text, _ := os.ReadFile(path)
	return id.inPlace(string(text), line)
}

// inPlace is passwd on the text of such a file.
func (id Identity) inPlace(text, line string) string {
	var b strings.Builder
	b.WriteString(line + "\n")
	number := strconv.Itoa(id.UID)
	for l := range strings.Lines(text) {
		if f := strings.SplitN(l, ":", 4); len(f) < 4 || f[2] != number {
			b.WriteString(l)
		}
	}
	return b.String()
}
