package namespaces

import (
	"os"
	"path/filepath"
	"runtime"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/namespaces/inside"
)

// A DirectoryRemover removes empty directories that only root may remove, for a
// launcher that has given root up by then. It is a copy of the launcher, made
// before, that waits and does nothing else; it ends with the launcher.
type DirectoryRemover struct {
	program *inside.Program
	control int
	pid     int
}

// A EmptyDirectory is a directory to be removed if it is empty.
type EmptyDirectory struct {
	Path string

	// Lock is a descriptor of the directory with a lock that others share who
	// use it (flock(2)): if anybody does, it stays, and so do the chores after
	// it. 0 for none.
	Lock int
}

// NewDirectoryRemover makes a directory remover for chores that are done in their order. What it
// looks up it looks up now: a name of theirs is removed where it is.
func NewDirectoryRemover(chores ...EmptyDirectory) (*DirectoryRemover, error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("socketpair", err)
	}
	defer unix.Close(pair[1])
	j := &DirectoryRemover{control: pair[0]}
	if j.program, err = inside.New(); err != nil {
		unix.Close(pair[0])
		return nil, err
	}
	p := j.program
	dirs, keep := make([]int, len(chores)), []int{pair[1]}
	for i, c := range chores {
		if dirs[i], err = unix.Open(filepath.Dir(c.Path), lookup|unix.O_DIRECTORY, 0); err != nil {
			dirs[i] = -1 // it has gone with what it is in
			continue
		}
		defer unix.Close(dirs[i])
		keep = append(keep, dirs[i])
		if c.Lock != 0 {
			keep = append(keep, c.Lock)
		}
	}
	p.Step("close the launcher's descriptors") // whoever reads from a pipe waits for the last writer
	keepOnly(p, keep)
	p.Step("wait for the end")
	p.Await()
	for i, c := range chores {
		dir := dirs[i]
		if dir < 0 {
			continue
		}
		p.Step("remove " + c.Path)
		if c.Lock != 0 {
			p.Call(unix.SYS_FLOCK, inside.Int(c.Lock), inside.Int(unix.LOCK_EX|unix.LOCK_NB))
		}
		p.Call(unix.SYS_UNLINKAT, inside.Int(dir), p.Str(filepath.Base(c.Path)), inside.Int(unix.AT_REMOVEDIR))
		p.Allow(unix.ENOTEMPTY, unix.ENOENT)
	}
	runtime.LockOSThread()
	j.pid, err = p.Start(inside.Options{Control: pair[1], Launcher: pair[0]})
	runtime.UnlockOSThread()
	if err != nil {
		p.Free()
		unix.Close(pair[0])
		return nil, Shell{}.cloneError(err)
	}
	return j, nil
}

// Close has the chores done and waits until they are.
func (j *DirectoryRemover) Close() {
	_ = j.program.Go(j.control, inside.Supervision{})
	for {
		if _, err := unix.Wait4(j.pid, nil, unix.WALL, nil); err != unix.EINTR {
			break
		}
	}
	unix.Close(j.control)
	j.program.Free()
}

// keepOnly has a copy close all descriptors but these.
func keepOnly(p *inside.Program, fds []int) {
	slices.Sort(fds)
	first := 0
	for _, fd := range fds {
		if fd > first {
			p.Call(unix.SYS_CLOSE_RANGE, inside.Int(first), inside.Int(fd-1), inside.Int(0))
		}
		first = max(first, fd+1)
	}
	p.Call(unix.SYS_CLOSE_RANGE, inside.Int(first), inside.Int(^uint32(0)), inside.Int(0))
}
