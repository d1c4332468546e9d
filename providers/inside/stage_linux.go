package inside

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The descriptors of the stage beside the command's own three.
const (
	planFD  = 3
	errorFD = 4
)

// stage is what becomes the command: it takes rights away from its one thread,
// the most necessary for the work first, and executes. It returns only if that
// fails.
func stage() int {
	runtime.LockOSThread() // filters and Landlock are a thread's, and execve(2) keeps those of who calls it
	unix.CloseOnExec(errorFD)
	in := os.NewFile(planFD, "plan")
	var p Plan
	err := json.NewDecoder(in).Decode(&p)
	in.Close()
	step, exec := "read the plan", false
	if err == nil {
		step, exec, err = p.become()
	}
	if exec {
		err = &execError{err}
	}
	_ = json.NewEncoder(os.NewFile(errorFD, "errors")).Encode(failure(step, err))
	return failed
}

// become ends as the command, or says which step did not succeed.
func (p *Plan) become() (step string, exec bool, err error) {
	if err := unix.Chdir(string(p.Dir)); err != nil {
		return "enter " + string(p.Dir), false, err
	}
	unix.Umask(p.Umask)
	paths := p.Paths
	if len(paths) == 0 {
		paths = p.look()
	}
	argv, err := pointers(p.Argv)
	if err != nil {
		return "the command's arguments", false, err
	}
	env, err := pointers(p.Env)
	if err != nil {
		return "the command's environment", false, err
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return "forbid new privileges", false, err
	}
	if err := p.landlock(); err != nil {
		return "restrict files with Landlock", false, err
	}
	for _, r := range p.Rlimits {
		if err := r.set(); err != nil {
			return fmt.Sprintf("set limit %d", r.Resource), false, err
		}
	}
	const rest = ^uint(0) >> 33 // the largest descriptor that the kernel takes
	if err := unix.CloseRange(3, rest, unix.CLOSE_RANGE_CLOEXEC); err != nil && err != unix.ENOSYS {
		return "close descriptors", false, err
	}
	if p.Bare != nil && len(p.Bare.Sockets) > 0 {
		if err := p.Bare.superviseSockets(); err != nil {
			return "supervise sockets", false, err
		}
	}
	for _, filter := range [...][]byte{p.Floor, p.Filter} { // the other filter may refuse to have one more
		if len(filter) == 0 {
			continue
		}
		if err := install(filter); err != nil {
			return "install the seccomp filter", false, err
		}
	}
	err = unix.ENOENT
	for _, path := range paths {
		name, bad := unix.BytePtrFromString(string(path))
		if bad != nil {
			continue
		}
		// execve(2) itself: Go's would set limits first, which the filter refuses.
		_, _, errno := unix.RawSyscall(
			unix.SYS_EXECVE,
			uintptr(unsafe.Pointer(name)),
			uintptr(unsafe.Pointer(&argv[0])),
			uintptr(unsafe.Pointer(&env[0])),
		)
		if err = errno; errno != unix.ENOENT && errno != unix.EACCES && errno != unix.ENOTDIR {
			break // as execvp(3) goes on
		}
	}
	return "execute " + string(p.Argv[0]), true, err
}

// pointers are what execve(2) takes, a null pointer last.
func pointers(list []Text) ([]*byte, error) {
	pointers := make([]*byte, len(list)+1)
	for i, text := range list {
		var err error
		if pointers[i], err = unix.BytePtrFromString(string(text)); err != nil {
			return nil, err
		}
	}
	return pointers, nil
}

// look returns the files that the command's name stands for in a place whose files
// nobody has looked at before.
func (p *Plan) look() (paths []Text) {
	name := string(p.Argv[0])
	if strings.Contains(name, "/") {
		return []Text{p.Argv[0]}
	}
	search := "/usr/local/bin:/usr/bin:/bin"
	for _, e := range p.Env {
		if value, is := strings.CutPrefix(string(e), "PATH="); is {
			search = value
			break
		}
	}
	for _, dir := range filepath.SplitList(search) {
		path := filepath.Join(dir, name)
		if filepath.IsAbs(dir) && unix.Access(path, unix.X_OK) == nil {
			paths = append(paths, Text(path))
		}
	}
	return paths
}

// set sets a limit, below the hard limit that this process has.
func (r Rlimit) set() error {
	var now unix.Rlimit
	if err := unix.Prlimit(0, r.Resource, nil, &now); err != nil {
		return err
	}
	r.Hard = min(r.Hard, now.Max)
	r.Soft = min(r.Soft, r.Hard)
	if now.Cur == r.Soft && now.Max == r.Hard {
		return nil
	}
	return unix.Prlimit(0, r.Resource, &unix.Rlimit{Cur: r.Soft, Max: r.Hard}, nil)
}

// install loads a filter for this thread, seccomp(2).
func install(filter []byte) error {
	_, errno := load(filter, unix.SECCOMP_FILTER_FLAG_SPEC_ALLOW)
	if errno == unix.EINVAL {
		_, errno = load(filter, 0) // gVisor knows no flag of the processor's
	}
	if errno != 0 {
		return errno
	}
	return nil
}

// load is the system call: a filter that asks has a listener.
func load(filter []byte, flags uintptr) (listener uintptr, errno unix.Errno) {
	program := unix.SockFprog{
		Len:    uint16(len(filter) / int(unsafe.Sizeof(unix.SockFilter{}))),
		Filter: (*unix.SockFilter)(unsafe.Pointer(&filter[0])),
	}
	listener, _, errno = unix.RawSyscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, flags, uintptr(unsafe.Pointer(&program)))
	return listener, errno
}

// loads reports whether a filter can be loaded, by a thread that loads it and ends.
func loads(filter []byte, flags uintptr) bool {
	loaded := make(chan bool)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with this goroutine
		if unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != nil {
			loaded <- false
			return
		}
		listener, errno := load(filter, flags)
		if errno == 0 && flags&unix.SECCOMP_FILTER_FLAG_NEW_LISTENER != 0 {
			unix.Close(int(listener))
		}
		loaded <- errno == 0
	}()
	return <-loaded
}

// allowAll is a filter that allows everything.
func allowAll() []byte {
	allow := unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW}
	return unsafe.Slice((*byte)(unsafe.Pointer(&allow)), unsafe.Sizeof(allow))
}

// capabilities returns those that this process has or could have.
func capabilities() (uint64, error) {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return 0, os.NewSyscallError("capget", err)
	}
	set := func(d unix.CapUserData) uint64 { return uint64(d.Effective | d.Permitted | d.Inheritable) }
	return set(data[0]) | set(data[1])<<32, nil
}
