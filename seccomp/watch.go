package seccomp

import (
	"fmt"
	"math"
)

// Watched is a system call about which a filter of [Watch] asks.
type Watched struct {
	Name string

	// Bits, if any are given, must be set in the lower half of argument Arg,
	// one at least: open(2) and its like read no more of their flags.
	Arg  uint
	Bits uint32

	// Passed, if any are given, are values of the lower half of argument Arg
	// about which nobody is asked.
	Passed []uint32

	// Refused, if any are given, are values of the lower half of argument Arg
	// with which the call fails (EPERM); with others it passes, and nobody is
	// asked.
	Refused []uint32
}

// Watch returns a filter that asks its supervisor about these calls
// (SECCOMP_RET_USER_NOTIF, Linux 5.0) and lets all else pass, on every
// architecture that a kernel for goarch runs. It is for a second filter: where
// another refuses a call, the refusal wins, and nobody is asked.
//
// Calls that are not in the list cost nothing: the kernel sees ahead of time
// that the answer to them is always the same (Linux 5.11).
func Watch(calls []Watched, goarch string) ([]byte, error) {
	machine, ok := machines(goarch)
	if !ok {
		return nil, fmt.Errorf("watch system calls: architecture %q: want amd64 or arm64", goarch)
	}
	program, err := assemble(machine.arches, RetAllow, RetAllow, func(a arch, all checks) (map[uint32]*check, error) {
		numbers := map[uint32]*check{}
		for _, c := range calls {
			nr, known, has := a.number(c.Name)
			switch {
			case !known:
				return nil, fmt.Errorf("watch system calls: %s: no such call", printable(c.Name))
			case has:
				numbers[nr] = all.first(c.rules())
			}
		}
		return numbers, nil
	})
	return encode(program), err
}

// rules ask about the call, unless none of its bits is set, or refuse it.
func (c Watched) rules() (list []rule, answer Action) {
	add := func(action Action, mask, value uint32) {
		list = append(list, rule{action: action, conds: []condition{{arg: c.Arg, op: maskedEqual, narrow: true, mask: uint64(mask), value: uint64(value)}}})
	}
	if len(c.Refused) > 0 {
		for _, v := range c.Refused {
			add(Errno(1), math.MaxUint32, v)
		}
		return list, RetAllow
	}
	if c.Bits != 0 {
		add(RetAllow, c.Bits, 0)
	}
	for _, v := range c.Passed {
		add(RetAllow, math.MaxUint32, v)
	}
	return list, RetUserNotif
}

// PairsAlone are the calls that make unix sockets, as refused but for connected pairs: any other reaches each socket whose
// path is shown (unix(7)). A pair of datagrams can send to any as well, and SOCK_RAW is one (unix_create in net/unix).
// i386's socketcall has the same numbers for both.
func PairsAlone() []Watched {
	const unix, raw, dgram, nonblock, cloexec = 1, 3, 2, 0x800, 0x80000
	var kinds []uint32
	for _, flags := range [...]uint32{0, nonblock, cloexec, nonblock | cloexec} {
		kinds = append(kinds, dgram|flags, raw|flags)
	}
	return []Watched{{Name: "socket", Refused: []uint32{unix}}, {Name: "socketpair", Arg: 1, Refused: kinds}, {Name: "socketcall", Refused: []uint32{1, 8}}}
}

// Name returns the name of the call that a filter saw, "" for one that no list
// of this program has.
func Name(d Data) string {
	for _, goarch := range [...]string{"amd64", "arm64"} {
		m, _ := machines(goarch)
		for _, a := range m.arches {
			if a.audit != d.Arch || d.Nr&x32Bit != a.offset {
				continue
			}
			for i := range len(syscalls) / rowSize {
				if nr, ok := a.numberAt(i); ok && nr == d.Nr {
					return syscallName(i)
				}
			}
		}
	}
	return ""
}
