package namespaces

import (
	"fmt"
	"os"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/internal/hint"
	"github.com/pccrun/pccrun/internal/survey"
	"github.com/pccrun/pccrun/profiles"
)

// JudgePassing judges the descriptors that the command is to get as they are, and which
// [JudgePassed] let through, by the plan. A file can be opened again through /proc/self/fd, for more
// than the descriptor allows, and past the sandbox's mounts: the descriptor's own is
// the host's. So what is open for reading only is refused where no Landlock rule keeps
// it from being written: without such rules, and where a mount alone makes it
// read-only in a directory that may be written.
func (p *Plan) JudgePassing(fds []int) error {
	ruled := !p.Nested && p.Landlock >= landlockRefer && p.has(profiles.LayerLandlock)
	for _, fd := range fds {
		var st unix.Stat_t
		flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
		if err == nil {
			err = unix.Fstat(fd, &st)
		}
		if err != nil {
			return fmt.Errorf("--pass-fd %d: %w", fd, err)
		}
		if why := p.judgeSocket(fd); why != "" {
			return leadsOut(fmt.Sprintf("--pass-fd %d", fd), why)
		}
		if st.Mode&unix.S_IFMT != unix.S_IFREG || flags&unix.O_ACCMODE != unix.O_RDONLY {
			continue
		}
		if !ruled {
			return rewritable(fd, "")
		}
		path, err := os.Readlink("/proc/self/fd/" + strconv.Itoa(fd))
		if err != nil {
			return fmt.Errorf("--pass-fd %d: %w", fd, err)
		}
		if at := p.pinned(path, inode{survey.Device(st.Dev), st.Ino}); at != "" {
			return rewritable(fd, at)
		}
	}
	return nil
}

// inode is a file as stat(2) has it, its device as statx(2) does.
type inode struct{ dev, ino uint64 }

func inodeOf(st *unix.Statx_t) inode {
	return inode{uint64(st.Dev_major)<<32 | uint64(st.Dev_minor), st.Ino}
}

// pinned returns the path at which mounts alone keep a file from being written, ""
// for none. A file of several names may have been opened by one that has no mount.
func (p *Plan) pinned(path string, file inode) string {
	for _, m := range p.Mounts {
		if (m.Kind == Bind || m.Kind == PrivateCopy) && m.ReadOnly && !m.Tree && file == (inode{m.Dev, m.Ino}) {
			path = m.Target
		}
	}
	around := func(m Mount) bool { return m.Kind == Bind && m.Tree && !m.ReadOnly && below(path, m.Target) }
	if p.Planned(path).ReadOnly && !p.At(path).OpensFiles && slices.ContainsFunc(p.Mounts, around) {
		return path
	}
	return ""
}

// rewritable is the error where the command could write what it was to read: a mount alone keeps it
// from being written at a place, or for "" Landlock keeps nothing.
func rewritable(fd int, at string) error {
	why := "without Landlock rules, which nested switches off,"
	if at != "" {
		why = at + " is read-only only by a mount:"
	}
	return hint.Errorf("--read FILE, or a pipe: cat FILE | pccrun …",
		"--pass-fd %d: the file is open for reading only: %s the command could reopen it for writing", fd, why)
}
