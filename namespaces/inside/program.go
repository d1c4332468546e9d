//go:build linux

// Package inside is what runs between clone and execve: in the forked copy of
// the launcher that becomes the sandbox's pid 1, and in the copy of that one
// that becomes the command.
//
// The launcher is a Go program with several threads; after a fork only one of
// them exists in the copy, so the copy may neither allocate, nor grow its
// stack, nor meet the scheduler. A [Program] is therefore a table of system
// calls, written by ordinary Go code and interpreted in the copy by one
// function that does nothing else. Starting a second Go runtime inside would
// cost more than all the mounts together.
//
// The table lies in memory that both share, so it can grow while the copy
// already works on its beginning: cloning the namespaces takes as long as
// reading the policy, and the two happen side by side ([Program.Await]).
//
// The promise: each system call happens in the order of the table; the first
// that fails ends the copy, and its step and errno reach the launcher; when the
// launcher dies, however it dies, everything inside dies.
package inside

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A Reg names the result of an earlier call of the same program, such as a
// descriptor. The zero Reg is no register.
type Reg uint16

// An Arg is one argument of a system call: a number, the address of memory
// that the copy sees too, or the result of an earlier call.
type Arg struct {
	value uintptr
	reg   Reg
}

// Int passes a number.
func Int[T ~int | ~int32 | ~int64 | ~uint32 | ~uint64 | ~uintptr](n T) Arg {
	return Arg{value: uintptr(n)}
}

// Result passes what an earlier call returned.
func Result(r Reg) Arg { return Arg{reg: r} }

// kind says how the interpreter carries an op out.
type kind uint8

const (
	call       kind = iota // one system call
	same                   // statx buffer (arg 0) must name device arg 1 and inode arg 2
	poke                   // store arg 1 as an int32 at address arg 0
	either                 // the same, and arg 2 where arg 1 is -errno
	defaults               // every signal back to its default action
	unbound                // empty the capability bounding set
	awaitTable             // wait for a message that says how long the table is
	fork                   // clone the command off; it runs what follows
	execAny                // execve each of the NULL-terminated paths (arg 0) until one starts
	pollAlive              // end at once if the launcher has closed its end of arg 0
	tell                   // send a message of kind arg 0
	jump                   // go on at op arg 0
	decimal                // write arg 1 as decimal digits at address arg 0
)

type op struct {
	nr   uintptr
	arg  [6]uintptr
	regs uint8 // bit i: arg[i] is a register
	kind kind
	out  Reg
	ok   [2]uint8 // errno values that count as success, or anyError
	step uint16
}

// The shared memory: a header, the table, then what the arguments point to.
// Only pages that are touched exist.
const (
	maxOps    = 1 << 15
	maxRegs   = 1 << 13
	arenaSize = 16 << 20
)

// shared is the header: what pid 1 must know beside the table. The launcher
// writes it before it says [Go]; it holds no pointers.
type shared struct {
	deadline  int64 // nanoseconds of wall time, 0 for none
	grace     int64 // nanoseconds between SIGTERM and SIGKILL at the deadline
	signals   Reg   // the signalfd of SIGCHLD
	terminal  Reg   // the command's terminal as pid 1 holds it; 0 for none
	extra     Reg   // the first of [ExecFDs] registers for another command
	namespace bool  // see [Supervision]
	ops       [maxOps]op
	arena     [arenaSize]byte
}

// A Program is a table of system calls with the memory that they point to.
type Program struct {
	shared *shared
	ops    int
	arena  int
	regs   int // how many results are kept
	steps  []string
	err    error // the first thing that did not fit

	empty Arg // "", for calls on a descriptor itself
	statx Arg // a buffer that each [Program.SameInode] fills anew
}

// New returns an empty program. Free gives its memory back.
func New() (*Program, error) {
	m, err := unix.MmapPtr(-1, 0, nil, unsafe.Sizeof(shared{}), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE)
	if err != nil {
		return nil, fmt.Errorf("mmap program: %w", err)
	}
	p := &Program{shared: (*shared)(m)}
	p.empty, p.statx = Ptr(p, uint64(0)), Ptr(p, unix.Statx_t{})
	return p, nil
}

// Free gives the program's memory back. A copy that still runs keeps its own
// mapping.
func (p *Program) Free() {
	unix.MunmapPtr(unsafe.Pointer(p.shared), unsafe.Sizeof(shared{}))
	p.shared = nil
}

// Step names what the following calls do, for errors and for printing:
// "mount proc on /proc".
func (p *Program) Step(text string) { p.steps = append(p.steps, text) }

// StepName returns the name of a step that the copy reported.
func (p *Program) StepName(i int32) string {
	if i < 0 || int(i) >= len(p.steps) {
		return fmt.Sprintf("BUG: step %d", i)
	}
	return p.steps[i]
}

// bytes returns n zeroed bytes that the copy sees too.
func (p *Program) bytes(n int) []byte {
	n = (n + 7) &^ 7
	if p.arena+n > arenaSize {
		p.err = fmt.Errorf("the plan is too large: more than %d bytes of arguments", arenaSize)
		return make([]byte, n)
	}
	b := p.shared.arena[p.arena : p.arena+n : p.arena+n]
	p.arena += n
	return b
}

func address(b []byte) Arg { return Arg{value: uintptr(unsafe.Pointer(unsafe.SliceData(b)))} }

// Str passes a NUL-terminated copy of s. A NUL within s is the caller's bug:
// paths are checked where they enter.
func (p *Program) Str(s string) Arg {
	if s == "" {
		return p.empty
	}
	b := p.bytes(len(s) + 1)
	copy(b, s)
	return address(b)
}

// Buf passes the address of a copy of b.
func (p *Program) Buf(b []byte) Arg {
	c := p.bytes(len(b))
	copy(c, b)
	return address(c)
}

// Ptr passes the address of a copy of v, a value without pointers but to what
// the program holds.
func Ptr[T any](p *Program, v T) Arg {
	b := p.bytes(int(unsafe.Sizeof(v)))
	*(*T)(unsafe.Pointer(unsafe.SliceData(b))) = v
	return address(b)
}

// strv passes a NULL-terminated array of strings, as execve takes it.
func (p *Program) strv(list []string) Arg {
	b := p.bytes(8 * (len(list) + 1))
	for i, s := range list {
		*(*uintptr)(unsafe.Pointer(&b[8*i])) = p.Str(s).value
	}
	return address(b)
}

func (p *Program) add(k kind, nr uintptr, args ...Arg) *op {
	if p.ops == maxOps {
		p.err = fmt.Errorf("the plan is too large: more than %d steps", maxOps)
		return &op{}
	}
	o := &p.shared.ops[p.ops]
	*o = op{nr: nr, kind: k, step: uint16(max(len(p.steps)-1, 0))}
	for i, a := range args {
		o.arg[i] = a.value
		if a.reg != 0 {
			o.arg[i], o.regs = uintptr(a.reg), o.regs|1<<i
		}
	}
	p.ops++
	return o
}

// Call appends a system call whose result nothing needs.
func (p *Program) Call(nr uintptr, args ...Arg) { p.add(call, nr, args...) }

// Get appends a system call and returns the register of its result.
func (p *Program) Get(nr uintptr, args ...Arg) Reg {
	if p.regs == maxRegs-1 {
		p.err = fmt.Errorf("the plan is too large: more than %d results", maxRegs)
		return 0
	}
	p.regs++
	p.add(call, nr, args...).out = Reg(p.regs)
	return Reg(p.regs)
}

// Allow makes the last call succeed as well when it fails with one of these
// errors (at most two). A register that it sets is then -errno: of no use as a
// descriptor.
func (p *Program) Allow(errs ...unix.Errno) {
	o := &p.shared.ops[p.ops-1]
	for i, e := range errs {
		o.ok[i] = uint8(e)
	}
}

// anyError is no errno.
const anyError = 0xff

// Attempt makes the last call succeed whatever it fails with: what needs it can
// do without. A register that it sets is then -errno.
func (p *Program) Attempt() { p.shared.ops[p.ops-1].ok[0] = anyError }

// Reveal appends the telling of a result, of use once a later message has come
// from the copy.
func (p *Program) Reveal(r Reg) *int32 {
	at := p.bytes(4)
	p.add(poke, 0, address(at), Result(r))
	return (*int32)(unsafe.Pointer(unsafe.SliceData(at)))
}

// SameInode appends a check that fd is the file that the plan decided on: what
// stands at a path may have been replaced between the survey and the clone.
// dev is major<<32 | minor.
func (p *Program) SameInode(fd Reg, dev, ino uint64) {
	p.Call(unix.SYS_STATX, Result(fd), p.Str(""), Int(unix.AT_EMPTY_PATH), Int(unix.STATX_INO), p.statx)
	p.add(same, 0, p.statx, Int(dev), Int(ino))
}

// SendFDs appends a message on socket ctl that carries the descriptors.
func (p *Program) SendFDs(ctl Arg, fds ...Reg) {
	control := p.bytes(unix.CmsgSpace(4 * len(fds)))
	h := (*unix.Cmsghdr)(unsafe.Pointer(&control[0]))
	h.Level, h.Type = unix.SOL_SOCKET, unix.SCM_RIGHTS
	h.SetLen(unix.CmsgLen(4 * len(fds)))
	for i, fd := range fds {
		p.add(poke, 0, address(control[unix.CmsgLen(0)+4*i:]), Result(fd))
	}
	text := p.Buf(Message{Kind: Descriptors, A: int32(len(fds))}.bytes())
	iov := p.bytes(int(unsafe.Sizeof(unix.Iovec{})))
	*(*[2]uintptr)(unsafe.Pointer(&iov[0])) = [2]uintptr{text.value, messageSize}
	msg := p.bytes(int(unsafe.Sizeof(unix.Msghdr{})))
	m := (*unix.Msghdr)(unsafe.Pointer(&msg[0]))
	m.Iov, m.Control = (*unix.Iovec)(unsafe.Pointer(&iov[0])), &control[0]
	m.SetIovlen(1)
	m.SetControllen(len(control))
	p.Call(unix.SYS_SENDMSG, ctl, address(msg), Int(unix.MSG_NOSIGNAL))
}

// SendOpened appends a message as [Program.SendFDs] does, in which what could not
// be opened ([Program.Attempt]) is replaced: instead[i] stands in for fds[i], if
// it is not 0.
func (p *Program) SendOpened(ctl Arg, fds, instead []Reg) {
	at := p.ops
	p.SendFDs(ctl, fds...)
	if p.err != nil {
		return
	}
	for i, other := range instead {
		if other != 0 {
			o := &p.shared.ops[at+i]
			o.kind, o.arg[2], o.regs = either, uintptr(other), o.regs|1<<2
		}
	}
}

// Await appends a wait for the launcher's [Go]: it still writes the rest of
// the table, or has work of its own that must be done first.
func (p *Program) Await() { p.add(awaitTable, 0) }

// A Mark is a place in a program to which it can be cut back.
type Mark struct{ ops, arena, regs, steps int }

// Mark returns the end of the program as it is now.
func (p *Program) Mark() Mark { return Mark{p.ops, p.arena, p.regs, len(p.steps)} }

// Tell appends a word to the launcher.
func (p *Program) Tell(k Kind) { p.add(tell, 0, Int(k)) }

// Repeat appends a word to the launcher ([Done]) and a jump back to the
// [Program.Await] right before the mark: what lies between can then be cut off
// and written anew.
func (p *Program) Repeat(m Mark) {
	p.Tell(Done)
	p.add(jump, 0, Int(m.ops-1))
}

// Cut takes away what follows the mark. The copy must be waiting right before it.
func (p *Program) Cut(m Mark) {
	clear(p.shared.arena[m.arena:p.arena])
	p.ops, p.arena, p.regs, p.steps = m.ops, m.arena, m.regs, p.steps[:m.steps]
}

// Alive appends a check that the launcher still holds its end of ctl. The
// death signal is set by the copy itself, so a launcher that died before that
// call would never be noticed otherwise.
func (p *Program) Alive(ctl Arg) { p.add(pollAlive, 0, ctl) }

// DefaultSignals appends a reset of every signal's action: the copy still has
// the Go runtime's handlers installed, and must not run them.
func (p *Program) DefaultSignals() { p.add(defaults, 0) }

// DropBounding appends the emptying of the capability bounding set,
// capabilities(7).
func (p *Program) DropBounding() { p.add(unbound, 0) }

// Pid appends the calling process's pid and returns a pointer to it as an
// int32, as TIOCSPGRP takes it.
func (p *Program) Pid() Arg {
	at := Ptr(p, int32(0))
	p.add(poke, 0, at, Result(p.Get(unix.SYS_GETPID)))
	return at
}

// FDPath appends the writing of a descriptor's name in /proc/self/fd, and
// passes it: for calls that take only a path. A path of the host's could hold
// what such a call reads as something else.
func (p *Program) FDPath(fd Reg) Arg {
	const dir = "/proc/self/fd/"
	b := p.bytes(len(dir) + 21) // the digits of 2^64, and a NUL
	copy(b, dir)
	p.add(decimal, 0, address(b[len(dir):]), Result(fd))
	return address(b)
}

// Beneath appends the filling of a struct landlock_path_beneath_attr (packed:
// 8 bytes of rights, 4 of descriptor) and passes its address.
func (p *Program) Beneath(rights uint64, fd Arg) Arg {
	b := p.bytes(16)
	*(*uint64)(unsafe.Pointer(&b[0])) = rights
	p.add(poke, 0, address(b[8:]), fd)
	return address(b)
}

// Filter passes a struct sock_fprog of a classic BPF program, seccomp(2).
func (p *Program) Filter(program []byte) Arg {
	b := p.bytes(16)
	*(*uint16)(unsafe.Pointer(&b[0])) = uint16(len(program) / 8)
	*(*uintptr)(unsafe.Pointer(&b[8])) = p.Buf(program).value
	return address(b)
}

// Fork appends the clone that makes the command's process: what follows runs
// there, and pid 1 begins to reap.
func (p *Program) Fork() { p.add(fork, 0) }

// Exec appends the end of the command's part: the paths are tried in order, as
// execvp(3) does; when none starts, the launcher gets the errno.
func (p *Program) Exec(paths, argv, env []string) (chosen *Environ) {
	o := p.add(execAny, 0, p.strv(paths), p.strv(argv), p.strv(env))
	return &Environ{p, &o.arg[2]}
}

// An Environ is where the program has the environment of its command.
type Environ struct {
	p  *Program
	at *uintptr
}

// Replace puts another one in its place. The copy must be waiting before it
// ([Program.Await]).
func (e *Environ) Replace(env []string) { *e.at = e.p.strv(env).value }
