package namespaces

import (
	"strings"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/namespaces/inside"
)

// Paths are looked up without following a link, by openat2(2). A sandbox
// around this one may refuse that call, as pccrun's own filter does: seccomp
// cannot see the mode bits that it takes. There a path is walked name by name.

const (
	lookup  = unix.O_PATH | unix.O_CLOEXEC
	resolve = unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS
)

// hasOpenat2 asks with a size that no kernel takes.
var hasOpenat2 = sync.OnceValue(func() bool {
	_, _, err := unix.RawSyscall6(unix.SYS_OPENAT2, 0, 0, 0, 0, 0, 0)
	return err == unix.EINVAL
})

// lookUp appends the look-up of an absolute path. A last name that is a link is
// an error, or found itself where flags have O_NOFOLLOW.
func lookUp(p *inside.Program, path string, flags uint64) inside.Reg {
	return lookUpAt(p, inside.Int(unix.AT_FDCWD), path, flags)
}

// lookUpAt is lookUp for a path below a directory, or an absolute one with
// AT_FDCWD.
func lookUpAt(p *inside.Program, dir inside.Arg, path string, flags uint64) inside.Reg {
	if !hasOpenat2() {
		return walk(p, dir, path, flags, nil)
	}
	how := unix.OpenHow{Flags: lookup | flags, Resolve: resolve}
	return p.Get(unix.SYS_OPENAT2, dir, p.Str(path), inside.Ptr(p, how), inside.Int(unsafe.Sizeof(how)))
}

// lookUpIfThere is lookUp for a path that need not be there: the register is
// then no descriptor.
func lookUpIfThere(p *inside.Program, path string, flags uint64) inside.Reg {
	if !hasOpenat2() {
		// A directory that cannot be searched ends the launch here.
		return walk(p, inside.Int(unix.AT_FDCWD), path, flags, []unix.Errno{unix.ENOENT, unix.EBADF})
	}
	fd := lookUp(p, path, flags)
	p.Allow(unix.ENOENT, unix.EACCES)
	return fd
}

// walk looks a path up name by name. A link on the way is no directory; one at
// the end is found itself: what is mounted there covers the name, and what is
// bound from there is compared with the inode that the plan decided on.
func walk(p *inside.Program, dir inside.Arg, path string, flags uint64, allow []unix.Errno) inside.Reg {
	top := "."
	if strings.HasPrefix(path, "/") {
		top = "/"
	}
	at := p.Get(unix.SYS_OPENAT, dir, p.Str(top), inside.Int(lookup|unix.O_DIRECTORY))
	rest := strings.Trim(path, "/")
	for rest != "" {
		name, after, more := strings.Cut(rest, "/")
		f := lookup | flags | unix.O_NOFOLLOW
		if more {
			f = lookup | unix.O_DIRECTORY | unix.O_NOFOLLOW
		}
		next := p.Get(unix.SYS_OPENAT, inside.Result(at), p.Str(name), inside.Int(f))
		p.Allow(allow...)
		p.Call(unix.SYS_CLOSE, inside.Result(at))
		p.Allow(unix.EBADF)
		at, rest = next, after
	}
	return at
}
