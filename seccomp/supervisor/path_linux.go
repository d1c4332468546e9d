package supervisor

import (
	"bytes"
	"errors"
	"os"
	"path"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ErrGone says that the process does not wait in the call any more: it was
// killed, or a signal broke the call off. What was read of it means nothing.
var ErrGone = errors.New("the process does not wait in the call any more")

// Names returns what the call's arguments name, in their order; nothing of a
// call that names nothing, such as connect(2).
func (c *Call) Names() []Name { return names(c.Name, c.Data) }

// Makes reports whether an open makes its file where there is none.
func (c *Call) Makes() bool {
	s, ok := shapeOf(c.Name)
	return c.Name == "creat" || ok && s.flags != 0 && c.Data.Args[s.flags]&oCreat != 0
}

// Text returns a path as the call has it, as long as the kernel would take
// (PATH_MAX); ENAMETOOLONG and EFAULT as the kernel would answer.
func (c *Call) Text(n Name) (string, error) {
	text, err := c.text(n)
	if !c.alive() {
		return "", ErrGone
	}
	return text, err
}

// text is Text for who asks afterwards whether the process still waits. Most
// paths are short.
func (c *Call) text(n Name) (string, error) {
	for _, length := range [...]int{256, unix.PathMax} {
		b, err := c.memory(n.Pointer, length)
		if err != nil {
			return "", err
		}
		if end := bytes.IndexByte(b, 0); end >= 0 {
			return string(b[:end]), nil
		}
		if len(b) < length {
			return "", unix.EFAULT // the memory ends before the path
		}
	}
	return "", unix.ENAMETOOLONG
}

// Address returns the address of a connect(2), as sockaddr(3type) has it.
func (c *Call) Address() ([]byte, error) {
	if c.Name != "connect" {
		return nil, unix.EINVAL
	}
	const most = 128 // sizeof(struct sockaddr_storage)
	b, err := c.memory(c.Data.Args[1], int(min(uint32(c.Data.Args[2]), most)))
	if !c.alive() {
		return nil, ErrGone
	}
	return b, err
}

// memory reads from the process, as far as there is memory. It means nothing
// before the process is known to wait still: another may have its number by now.
func (c *Call) memory(at uint64, length int) ([]byte, error) {
	if length == 0 {
		return nil, nil
	}
	page := uint64(os.Getpagesize())
	b := make([]byte, length)
	// One piece a page: what lies in the first is read where there is no second.
	var pieces []unix.RemoteIovec
	for done := 0; done < length; {
		n := int(min(page-(at+uint64(done))%page, uint64(length-done)))
		pieces = append(pieces, unix.RemoteIovec{Base: uintptr(at + uint64(done)), Len: n})
		done += n
	}
	local := []unix.Iovec{{Base: unsafe.SliceData(b)}}
	local[0].SetLen(length)
	n, err := unix.ProcessVMReadv(c.PID, local, pieces, 0)
	if err != nil {
		return nil, os.NewSyscallError("process_vm_readv", err)
	}
	return b[:n], nil
}

func (c *Call) proc(name string) string { return "/proc/" + strconv.Itoa(c.PID) + "/" + name }

// A Place is where a name leads in the process's own view of files.
type Place struct {
	Path  string // absolute and clean, through all links
	There bool   // something stands there
	Dir   bool   // or could: its directory is there
}

// Path returns where a name leads: the last link is followed only where the
// call follows it, and the process's own root and directory are where it begins.
// What is not there keeps its name below where it would be. The empty path
// stands for the directory itself (AT_EMPTY_PATH).
func (c *Call) Path(n Name) (Place, error) {
	text, err := c.text(n)
	if err != nil {
		return Place{}, err
	}
	if !strings.HasPrefix(text, "/") {
		link := "cwd"
		if n.Dir != atFdcwd {
			link = "fd/" + strconv.Itoa(n.Dir)
		}
		dir, err := os.Readlink(c.proc(link))
		if err != nil {
			return Place{}, err
		}
		// Most are a plain name in a directory whose path the kernel has just told.
		if text != "" && text != "." && text != ".." && !strings.Contains(text, "/") {
			var st unix.Stat_t
			err := unix.Lstat(c.proc(link)+"/"+text, &st)
			if !c.alive() {
				return Place{}, ErrGone
			}
			if err == nil && (!n.Follow || st.Mode&unix.S_IFMT != unix.S_IFLNK) {
				return Place{path.Join(dir, text), true, true}, nil
			}
		}
		text = dir + "/" + text
	}
	root, err := unix.Open(c.proc("root"), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return Place{}, os.NewSyscallError("open root", err)
	}
	defer unix.Close(root)
	if !c.alive() {
		return Place{}, ErrGone
	}
	return find(root, text, n.Follow, maxLinks), nil
}

// maxLinks bounds the links at the end of a path that lead nowhere yet; the
// kernel follows no more either (path_resolution(7)).
const maxLinks = 40

// find returns where an absolute path leads below a root, of which so many of the last names may be missing.
func find(root int, text string, follow bool, missing int) Place {
	for range maxLinks {
		if follow {
			if fd, err := open(root, text, 0); err == nil {
				return Place{nameOf(fd), true, true}
			}
		}
		// What is beyond a last name that is a link, or is not there.
		kept := strings.TrimRight(text, "/")
		i := strings.LastIndexByte(kept, '/')
		if i < 0 {
			return Place{"/", true, true}
		}
		name := kept[i+1:]
		dir, err := open(root, kept[:i+1], unix.O_DIRECTORY)
		if err != nil || name == "." || name == ".." {
			if err == nil {
				unix.Close(dir)
			} else if err == unix.ENOENT && missing > 0 && name != "." && name != ".." {
				return Place{Path: path.Join(find(root, kept[:i], true, missing-1).Path, name)}
			}
			break
		}
		var st unix.Stat_t
		there := unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW) == nil
		var to [unix.PathMax]byte
		n, err := unix.Readlinkat(dir, name, to[:])
		place := Place{path.Join(nameOf(dir), name), there, true}
		if err != nil || !follow {
			return place
		}
		if text = string(to[:n]); !strings.HasPrefix(text, "/") {
			text = kept[:i+1] + text
		}
	}
	return Place{Path: path.Clean(text)}
}

// open opens what a path below a root leads to, and no link leads out of that.
// Those of proc(5) are not followed at all: they lead to what other processes
// have open.
func open(root int, text string, flags uint64) (int, error) {
	return unix.Openat2(root, text, &unix.OpenHow{
		Flags: unix.O_PATH | unix.O_CLOEXEC | flags, Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS,
	})
}

// nameOf returns the path of what a descriptor holds, and closes that.
func nameOf(fd int) string {
	defer unix.Close(fd)
	name, err := os.Readlink("/proc/self/fd/" + strconv.Itoa(fd))
	if err != nil {
		return ""
	}
	return name
}
