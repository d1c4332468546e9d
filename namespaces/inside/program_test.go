//go:build linux

package inside

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func newProgram(t testing.TB) *Program {
	p, err := New()
	require.NoError(t, err)
	t.Cleanup(p.Free)
	return p
}

// socketpair returns the two ends of what launcher and copy speak over. Who
// waits on the launcher's waits for a minute at most.
func socketpair(t testing.TB) (launcher, control int) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	require.NoError(t, err)
	patience := unix.NsecToTimeval(int64(time.Minute))
	require.NoError(t, unix.SetsockoptTimeval(pair[0], unix.SOL_SOCKET, unix.SO_RCVTIMEO, &patience))
	return pair[0], pair[1]
}

// receive returns the next message, the zero one where the other end is closed.
func receive(t testing.TB, fd int) Message {
	var m Message
	n, _, err := unix.Recvfrom(fd, into(&m), 0)
	for err == unix.EINTR {
		n, _, err = unix.Recvfrom(fd, into(&m), 0)
	}
	require.NoError(t, err)
	require.Contains(t, []int{0, int(messageSize)}, n)
	return m
}

// into is where a message is received.
func into(m *Message) []byte { return (*[messageSize]byte)(unsafe.Pointer(m))[:] }

// here interprets a program in this very process: for calls that do it no harm,
// and that cannot fail, since that would end it.
func here(t *testing.T, p *Program, control int) *copied {
	require.NoError(t, p.err)
	s := &copied{shared: p.shared, length: p.ops, control: uintptr(control), regs: new([maxRegs]uintptr)}
	require.False(t, run(s), "no program here forks")
	return s
}

func TestCallsPassResults(t *testing.T) {
	p := newProgram(t)
	file := p.Get(unix.SYS_MEMFD_CREATE, p.Str("test"), Int(unix.MFD_CLOEXEC))
	written := p.Get(unix.SYS_WRITE, Result(file), p.Str("four"), Int(4))
	absent := p.Get(unix.SYS_OPENAT, Int(unix.AT_FDCWD), p.Str("/nonexistent"), Int(unix.O_RDONLY))
	p.Allow(unix.EACCES, unix.ENOENT)
	limit := Ptr(p, unix.Rlimit{})
	p.Call(unix.SYS_PRLIMIT64, Int(0), Int(unix.RLIMIT_NOFILE), Int(0), limit)
	pid := p.Pid()
	var st unix.Stat_t
	require.NoError(t, unix.Stat("/", &st))
	root := p.Get(unix.SYS_OPENAT, Int(unix.AT_FDCWD), p.Str("/"), Int(unix.O_PATH|unix.O_CLOEXEC))
	p.SameInode(root, uint64(unix.Major(st.Dev))<<32|uint64(unix.Minor(st.Dev)), st.Ino)
	rule := p.Beneath(1<<3, Result(root))

	s := here(t, p, -1)
	defer unix.Close(int(s.regs[file]))
	defer unix.Close(int(s.regs[root]))
	require.EqualValues(t, 4, s.regs[written])
	require.Equal(t, Int(-int(unix.ENOENT)).value, s.regs[absent], "an error that is allowed is the result")
	require.NotZero(t, (*unix.Rlimit)(at(limit)).Max)
	require.EqualValues(t, unix.Getpid(), *(*int32)(at(pid)))
	require.EqualValues(t, 1<<3, *(*uint64)(at(rule)))
	require.EqualValues(t, s.regs[root], *(*int32)(unsafe.Add(at(rule), 8)))
	text := make([]byte, 8)
	n, err := unix.Pread(int(s.regs[file]), text, 0)
	require.NoError(t, err)
	require.Equal(t, "four", string(text[:n]))
}

// at is where an argument points.
func at(a Arg) unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(&a.value)) }

func TestArguments(t *testing.T) {
	p := newProgram(t)
	require.Equal(t, "bytes", string(unsafe.Slice((*byte)(at(p.Buf([]byte("bytes")))), 5)))
	list := unsafe.Slice((**byte)(at(p.strv([]string{"a", ""}))), 3)
	require.Equal(t, "a", unix.BytePtrToString(list[0]))
	require.Empty(t, unix.BytePtrToString(list[1]))
	require.Nil(t, list[2])
	filter := p.Filter(make([]byte, 24))
	require.EqualValues(t, 3, *(*uint16)(at(filter)), "instructions of eight bytes")
	require.Equal(t, Arg{value: ^uintptr(0)}, Int(-1))
	require.Zero(t, p.ops)
	p.Step("one")
	p.Call(unix.SYS_GETPID)
	require.Equal(t, 1, p.ops)
	require.Equal(t, "one", p.StepName(0))
	for _, i := range []int32{-1, 1} {
		require.Contains(t, p.StepName(i), "BUG")
	}
}

// The table grows while the copy works on it, and its end can be written anew.
func TestAwaitAndRepeat(t *testing.T) {
	launcher, control := socketpair(t)
	defer unix.Close(launcher)
	defer unix.Close(control)
	p := newProgram(t)
	p.Alive(Int(control))
	p.Await()
	mark := p.Mark()
	first := p.Get(unix.SYS_GETPID)
	p.Repeat(mark)
	require.NoError(t, p.Go(launcher, Supervision{Deadline: 1, Grace: 2, Signals: 3, Terminal: 4, Namespace: true}))
	require.Equal(t, Message{Kind: Go, A: int32(p.ops)}, peek(t, control))
	end := Message{Kind: Go, A: int32(mark.ops)} // the second time it ends right there
	require.NoError(t, unix.Sendto(launcher, end.bytes(), 0, nil))

	s := here(t, p, control)
	require.EqualValues(t, unix.Getpid(), s.regs[first])
	require.Equal(t, Message{Kind: Done}, receive(t, launcher))
	require.Equal(t, []int64{1, 2}, []int64{s.deadline, s.grace})
	require.Equal(t, []Reg{3, 4}, []Reg{s.signals, s.terminal})
	require.True(t, s.namespace)

	old := p.Str("secret")
	p.Cut(mark)
	require.Equal(t, mark, p.Mark())
	require.Equal(t, make([]byte, 6), unsafe.Slice((*byte)(at(old)), 6), "what is cut off is cleared")
	require.Equal(t, first, p.Get(unix.SYS_GETUID), "its registers are free again")
}

func peek(t *testing.T, fd int) (m Message) {
	_, _, err := unix.Recvfrom(fd, into(&m), unix.MSG_PEEK)
	require.NoError(t, err)
	return m
}

func TestSendFDs(t *testing.T) {
	launcher, control := socketpair(t)
	defer unix.Close(launcher)
	defer unix.Close(control)
	p := newProgram(t)
	r := p.Get(unix.SYS_MEMFD_CREATE, p.Str("lent"), Int(unix.MFD_CLOEXEC))
	p.SendFDs(Int(control), r, r)
	s := here(t, p, control)
	defer unix.Close(int(s.regs[r]))
	var m Message
	space := make([]byte, unix.CmsgSpace(8))
	_, n, _, _, err := unix.Recvmsg(launcher, into(&m), space, unix.MSG_CMSG_CLOEXEC)
	require.NoError(t, err)
	require.Equal(t, Message{Kind: Descriptors, A: 2}, m)
	messages, err := unix.ParseSocketControlMessage(space[:n])
	require.NoError(t, err)
	fds, err := unix.ParseUnixRights(&messages[0])
	require.NoError(t, err)
	require.Len(t, fds, 2)
	for _, fd := range fds {
		require.NoError(t, unix.Close(fd))
	}
}

// What could not be opened is replaced, where there is something instead, and a
// failure else.
func TestSendOpened(t *testing.T) {
	launcher, control := socketpair(t)
	defer unix.Close(launcher)
	defer unix.Close(control)
	p := newProgram(t)
	there := p.Get(unix.SYS_MEMFD_CREATE, p.Str("there"), Int(unix.MFD_CLOEXEC))
	other := p.Get(unix.SYS_MEMFD_CREATE, p.Str("other"), Int(unix.MFD_CLOEXEC))
	absent := p.Get(unix.SYS_OPENAT, Int(unix.AT_FDCWD), p.Str("/nonexistent"), Int(unix.O_RDONLY))
	p.Attempt()
	p.SendOpened(Int(control), []Reg{there, there, absent}, []Reg{0, other, other})
	s := here(t, p, control)
	defer unix.Close(int(s.regs[there]))
	defer unix.Close(int(s.regs[other]))
	var m Message
	space := make([]byte, unix.CmsgSpace(12))
	_, n, _, _, err := unix.Recvmsg(launcher, into(&m), space, unix.MSG_CMSG_CLOEXEC)
	require.NoError(t, err)
	messages, err := unix.ParseSocketControlMessage(space[:n])
	require.NoError(t, err)
	fds, err := unix.ParseUnixRights(&messages[0])
	require.NoError(t, err)
	var names []string
	for _, fd := range fds {
		name, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd))
		require.NoError(t, err)
		names = append(names, name)
		unix.Close(fd)
	}
	require.Equal(t, []string{"/memfd:there (deleted)", "/memfd:there (deleted)", "/memfd:other (deleted)"}, names)
}

// The environment of a program that waits can still be another.
func TestReplaceEnvironment(t *testing.T) {
	p := newProgram(t)
	chosen := p.Exec([]string{"/bin/true"}, []string{"true"}, []string{"A=1", "B=2"})
	environ := func() string {
		list := unsafe.Slice((**byte)(at(Arg{value: p.shared.ops[p.ops-1].arg[2]})), 2)
		return unix.BytePtrToString(list[0])
	}
	require.Equal(t, "A=1", environ())
	chosen.Replace([]string{"C=3"})
	require.Equal(t, "C=3", environ())
}

// A plan that does not fit is refused as a whole, before anything is cloned.
func TestTooLarge(t *testing.T) {
	for name, fill := range map[string]func(*Program){
		"arguments": func(p *Program) { p.Str(strings.Repeat("x", arenaSize)) },
		"steps": func(p *Program) {
			for range maxOps + 1 {
				p.Call(unix.SYS_GETPID)
			}
		},
		"results": func(p *Program) {
			for range maxRegs {
				p.Get(unix.SYS_GETPID)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := newProgram(t)
			fill(p)
			_, err := p.Start(Options{Control: -1, Launcher: -1})
			require.ErrorContains(t, err, name)
			require.ErrorContains(t, p.Go(-1, Supervision{}), "too large")
		})
	}
	p := newProgram(t)
	for range maxOps {
		p.Call(unix.SYS_GETPID)
	}
	require.NoError(t, p.err, "control: so many fit")
	here(t, p, -1)
}
