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
// launcher that has given root up by then. It is a clone of the launcher, made
// before, that waits and does nothing else; it ends with the launcher.
type DirectoryRemover struct {
	program *inside.Program
	control int
	pid     int
}

// NewDirectoryRemover makes a directory remover for directories, which it removes in their
// order if they are empty. What it looks up it looks up now: a name of theirs is removed where it is.
func NewDirectoryRemover(paths ...string) (*DirectoryRemover, error) {
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
	dirs, keep := make([]int, len(paths)), []int{pair[1]}
	for i, path := range paths {
		if dirs[i], err = unix.Open(filepath.Dir(path), lookup|unix.O_DIRECTORY, 0); err != nil {
			dirs[i] = -1 // it has gone with what it is in
			continue
		}
		defer unix.Close(dirs[i])
		keep = append(keep, dirs[i])
	}
	p.Step("close the launcher's descriptors") // whoever reads from a pipe waits for the last writer
	keepOnly(p, keep)
	p.Step("wait for the end")
	p.Await()
	for i, path := range paths {
		if dirs[i] >= 0 {
			p.Step("remove " + path)
			p.Call(unix.SYS_UNLINKAT, inside.Int(dirs[i]), p.Str(filepath.Base(path)), inside.Int(unix.AT_REMOVEDIR))
			p.Attempt()
		}
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

// Close has the directories removed and waits until they are.
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
