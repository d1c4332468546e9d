package seccomp

import (
	"encoding/binary"
	"fmt"
	"runtime"
)

// Data is struct seccomp_data of linux/seccomp.h: what a filter sees of a call.
type Data struct {
	Nr   uint32 // as in the register; x32 calls have bit 30 set
	Arch uint32 // AUDIT_ARCH_*
	IP   uint64
	Args [6]uint64
}

// Architectures that a call can come from, as in linux/audit.h. Calls by x32
// programs carry ArchX86_64.
const (
	ArchX86_64  = 0xc000003e
	ArchI386    = 0x40000003
	ArchAarch64 = 0xc00000b7
	ArchARM     = 0x40000028
)

// An Action is what a filter returns: SECCOMP_RET_* of linux/seccomp.h, and in
// the low 16 bits data, which for RetErrno is the errno.
type Action uint32

// The actions, from the strictest to the loosest.
const (
	RetKillProcess Action = 0x80000000
	RetKillThread  Action = 0x00000000
	RetTrap        Action = 0x00030000
	RetErrno       Action = 0x00050000
	RetUserNotif   Action = 0x7fc00000
	RetTrace       Action = 0x7ff00000
	RetLog         Action = 0x7ffc0000
	RetAllow       Action = 0x7fff0000

	retAction = 0xffff0000
	retData   = 0x0000ffff
)

// Errno returns the action by which a call fails with an errno.
func Errno(errno uint16) Action { return RetErrno | Action(errno) }

// String returns the action's name in lower case, with its data where it has
// a meaning: "allow", "errno 38".
func (a Action) String() string {
	switch data := a & retData; a & retAction {
	case RetKillProcess:
		return "kill process"
	case RetKillThread:
		return "kill thread"
	case RetTrap:
		return fmt.Sprintf("trap %d", data)
	case RetErrno:
		return fmt.Sprintf("errno %d", data)
	case RetUserNotif:
		return "notify"
	case RetTrace:
		return fmt.Sprintf("trace %d", data)
	case RetLog:
		return "log"
	case RetAllow:
		return "allow"
	}
	// The kernel's own answer to what it does not know.
	return fmt.Sprintf("kill process (unknown action %#x)", uint32(a))
}

// What filters are made of here, of classic BPF's, linux/bpf_common.h.
const (
	opLoad = 0x20 // BPF_LD | BPF_W | BPF_ABS
	opRetK = 0x06

	opALU = 0x04
	opAnd = 0x50

	opJump    = 0x05
	opAlways  = 0x00
	opEqual   = 0x10
	opGreater = 0x20
	opAtLeast = 0x30
	opAnySet  = 0x40

	maxInstructions = 4096 // BPF_MAXINSNS
	dataSize        = 64   // sizeof(struct seccomp_data)
)

// An instruction is struct sock_filter.
type instruction struct {
	op     uint16
	jt, jf uint8
	k      uint32
}

const instructionSize = 8

func encode(program []instruction) []byte {
	b := make([]byte, 0, len(program)*instructionSize)
	for _, i := range program {
		b = binary.NativeEndian.AppendUint16(b, i.op)
		b = append(b, i.jt, i.jf)
		b = binary.NativeEndian.AppendUint32(b, i.k)
	}
	return b
}

// A Program is a filter that has been checked and can be run.
type Program struct{ code []instruction }

// Load checks a filter and returns a program that answers as the kernel would.
// It knows the instructions that libseccomp and [CompileOCI] use, and of those
// refuses what the kernel refuses (bpf_check_classic and seccomp_check_filter of
// Linux 6.18). The error names the instruction.
func Load(filter []byte) (Program, error) {
	n := len(filter) / instructionSize
	if len(filter)%instructionSize != 0 || n == 0 || n > maxInstructions {
		return Program{}, fmt.Errorf("load filter: %d bytes: want 1 to %d instructions of %d bytes", len(filter), maxInstructions, instructionSize)
	}
	code := make([]instruction, n)
	for pc := range code {
		b := filter[pc*instructionSize:]
		code[pc] = instruction{binary.NativeEndian.Uint16(b), b[2], b[3], binary.NativeEndian.Uint32(b[4:])}
		if err := code[pc].check(n - pc - 1); err != nil {
			return Program{}, fmt.Errorf("load filter: instruction %d: %w", pc, err)
		}
	}
	if code[n-1].op != opRetK {
		return Program{}, fmt.Errorf("load filter: instruction %d: the last one must return", n-1)
	}
	return Program{code}, nil
}

// check reports an instruction that the kernel would refuse. after is how many
// follow: jumps go forward and must land on one of them.
func (i instruction) check(after int) error {
	k := uint64(i.k)
	switch i.op {
	case opLoad:
		if k >= dataSize || k%4 != 0 {
			return fmt.Errorf("load from offset %d: want a multiple of 4 below %d", k, dataSize)
		}
	case opRetK, opALU | opAnd:
	case opJump | opAlways:
		if k >= uint64(after) {
			return fmt.Errorf("jump by %d: past the end", k)
		}
	case opJump | opEqual, opJump | opGreater, opJump | opAtLeast, opJump | opAnySet:
		if far := max(i.jt, i.jf); int(far) >= after {
			return fmt.Errorf("jump by %d: past the end", far)
		}
	default:
		return fmt.Errorf("operation %#x: not used in filters here", i.op)
	}
	return nil
}

// Run returns what the program answers to a call.
func (p Program) Run(d Data) Action {
	action, _ := p.trace(d)
	return action
}

// Answer returns what a filter answers to a call of a program for this machine, and whether that lets the call pass.
func Answer(filter []byte, nr uint32) (a Action, passes bool, err error) {
	p, err := Load(filter)
	m, known := machines(runtime.GOARCH)
	if err != nil || !known {
		return RetKillProcess, false, err
	}
	a = p.Run(Data{Nr: nr, Arch: m.native().audit})
	return a, a == RetAllow || a == RetLog, nil
}

// trace runs the program and also counts the instructions.
func (p Program) trace(d Data) (action Action, steps int) {
	words := [dataSize / 4]uint32{0: d.Nr, 1: d.Arch, 2: uint32(d.IP), 3: uint32(d.IP >> 32)}
	for i, arg := range d.Args {
		// The low half first: all machines that filters are made for are little-endian.
		words[4+2*i], words[5+2*i] = uint32(arg), uint32(arg>>32)
	}
	var a uint32
	for pc := 0; ; pc++ {
		i := p.code[pc]
		steps++
		switch i.op {
		case opLoad:
			a = words[i.k/4]
		case opRetK:
			return Action(i.k), steps
		case opALU | opAnd:
			a &= i.k
		case opJump | opAlways:
			pc += int(i.k)
		default: // a comparison
			if holds(i.op&0xf0, a, i.k) {
				pc += int(i.jt)
			} else {
				pc += int(i.jf)
			}
		}
	}
}

func holds(op uint16, a, b uint32) bool {
	switch op {
	case opEqual:
		return a == b
	case opGreater:
		return a > b
	case opAtLeast:
		return a >= b
	}
	return a&b != 0
}
