package sessions

import (
	"bytes"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/internal/procfs"
)

// Usage adds up the processes of a session that runs: pid 1 of the sandbox
// and all below it. [ErrGone] if there is none.
func (e Entry) Usage() (Usage, error) {
	fd, err := e.Sandbox.open()
	if err != nil {
		return Usage{}, err
	}
	defer unix.Close(fd)
	var sum Usage
	for _, pid := range procfs.Tree(e.Sandbox.Pid) {
		if s, ok := procfs.ReadStat(pid); ok {
			const tick = time.Second / 100 // USER_HZ, the same on every architecture that we build for
			sum.Processes++
			sum.Threads += int(s.Field(20))
			sum.CPU += time.Duration(s.Field(14)+s.Field(15)) * tick
			sum.Memory += s.Field(24) * int64(os.Getpagesize())
		}
		read, written := readIO(pid)
		sum.Read += read
		sum.Written += written
	}
	return sum, nil
}

// readIO reads proc_pid_io(5). A process that hides itself, as pid 1 of a
// sandbox does, reads and writes nothing.
func readIO(pid int) (read, written int64) {
	data, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/io")
	return parseIO(data)
}

func parseIO(data []byte) (read, written int64) {
	for line := range bytes.Lines(data) {
		key, value, _ := bytes.Cut(bytes.TrimSpace(line), []byte(": "))
		n, _ := strconv.ParseInt(string(value), 10, 64)
		switch string(key) {
		case "read_bytes":
			read = n
		case "write_bytes":
			written = n
		}
	}
	return read, written
}

// A Follower waits for a session to tell more.
type Follower struct{ notify, process int }

// Follow begins to watch a session's directory. Start before reading what
// there is, so that nothing falls between.
func (h Home) Follow(e Entry) (*Follower, error) {
	process, err := e.Launcher.open()
	if err != nil {
		process = -1 // it has ended: the first Wait says so
	}
	notify, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err == nil {
		_, err = unix.InotifyAddWatch(notify, h.dir+"/"+e.ID, unix.IN_MODIFY|unix.IN_CREATE|unix.IN_DELETE|unix.IN_ONLYDIR)
	}
	if err != nil && err != unix.ENOENT {
		(&Follower{notify, process}).Close()
		return nil, os.NewSyscallError("inotify", err)
	}
	return &Follower{notify, process}, nil
}

// Wait returns true when there may be more, and false when the launcher has
// ended: what is there then is all.
func (f *Follower) Wait() bool {
	if f.process < 0 {
		return false
	}
	for {
		fds := []unix.PollFd{{Fd: int32(f.notify), Events: unix.POLLIN}, {Fd: int32(f.process), Events: unix.POLLIN}}
		if _, err := unix.Poll(fds, -1); err == unix.EINTR {
			continue
		} else if err != nil || fds[1].Revents != 0 {
			return false
		}
		var buf [4096]byte
		_, _ = unix.Read(f.notify, buf[:])
		return true
	}
}

// Close ends the watch.
func (f *Follower) Close() {
	for _, fd := range []int{f.notify, f.process} {
		if fd >= 0 {
			unix.Close(fd)
		}
	}
}
