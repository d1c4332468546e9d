package seccomp

import (
	"encoding/binary"
	"fmt"
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

// Classic BPF, linux/bpf_common.h.
const (
	opLoad    = 0x20 // BPF_LD | BPF_W | BPF_ABS
	opLoadLen = 0x80 // BPF_LD | BPF_W | BPF_LEN
	opLoadImm = 0x00 // BPF_LD | BPF_IMM
	opLoadMem = 0x60 // BPF_LD | BPF_MEM
	opXLen    = 0x81
	opXImm    = 0x01
	opXMem    = 0x61
	opStore   = 0x02
	opStoreX  = 0x03
	opTAX     = 0x07
	opTXA     = 0x87
	opRetK    = 0x06
	opRetA    = 0x16

	opALU = 0x04
	opAdd = 0x00
	opSub = 0x10
	opMul = 0x20
	opDiv = 0x30
	opOr  = 0x40
	opAnd = 0x50
	opLsh = 0x60
	opRsh = 0x70
	opNeg = 0x80
	opXor = 0xa0

	opJump    = 0x05
	opAlways  = 0x00
	opEqual   = 0x10
	opGreater = 0x20
	opAtLeast = 0x30
	opAnySet  = 0x40

	opX = 0x08 // the operand is X, not K

	maxInstructions = 4096 // BPF_MAXINSNS
	memWords        = 16   // BPF_MEMWORDS
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

// Load checks a filter by the rules of the kernel (bpf_check_classic and
// seccomp_check_filter of Linux 6.18) and returns a program that answers as
// the kernel would. The error names the instruction.
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
	if last := code[n-1].op; last != opRetK && last != opRetA {
		return Program{}, fmt.Errorf("load filter: instruction %d: the last one must return", n-1)
	}
	if err := checkMemory(code); err != nil {
		return Program{}, fmt.Errorf("load filter: %w", err)
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
	case opLoadMem, opXMem, opStore, opStoreX:
		if k >= memWords {
			return fmt.Errorf("memory word %d: want less than %d", k, memWords)
		}
	case opLoadLen, opLoadImm, opXLen, opXImm, opTAX, opTXA, opRetK, opRetA:
	case opALU | opAdd, opALU | opSub, opALU | opMul, opALU | opOr, opALU | opAnd, opALU | opXor, opALU | opNeg,
		opALU | opAdd | opX, opALU | opSub | opX, opALU | opMul | opX, opALU | opDiv | opX, opALU | opOr | opX,
		opALU | opAnd | opX, opALU | opLsh | opX, opALU | opRsh | opX, opALU | opXor | opX:
	case opALU | opDiv:
		if k == 0 {
			return fmt.Errorf("division by 0")
		}
	case opALU | opLsh, opALU | opRsh:
		if k >= 32 {
			return fmt.Errorf("shift by %d bits", k)
		}
	case opJump | opAlways:
		if k >= uint64(after) {
			return fmt.Errorf("jump by %d: past the end", k)
		}
	case opJump | opEqual, opJump | opGreater, opJump | opAtLeast, opJump | opAnySet,
		opJump | opEqual | opX, opJump | opGreater | opX, opJump | opAtLeast | opX, opJump | opAnySet | opX:
		if far := max(i.jt, i.jf); int(far) >= after {
			return fmt.Errorf("jump by %d: past the end", far)
		}
	default:
		return fmt.Errorf("operation %#x: not for filters", i.op)
	}
	return nil
}

// checkMemory reports a load of a memory word that some way through the
// program reaches before any store, as check_load_and_stores does: one pass,
// since jumps only go forward.
func checkMemory(code []instruction) error {
	// stored[pc] holds the words that every way to pc has stored, as bits.
	stored := make([]uint16, len(code))
	for pc := range stored {
		stored[pc] = ^uint16(0)
	}
	var words uint16
	for pc, i := range code {
		words &= stored[pc]
		reach := func(far uint32) { stored[pc+1+int(far)] &= words }
		switch {
		case i.op == opStore || i.op == opStoreX:
			words |= 1 << i.k
		case i.op == opLoadMem || i.op == opXMem:
			if words&(1<<i.k) == 0 {
				return fmt.Errorf("instruction %d: memory word %d: loaded before it is stored", pc, i.k)
			}
		case i.op == opJump|opAlways:
			reach(i.k)
			words = ^uint16(0)
		case i.op&0x07 == opJump:
			reach(uint32(i.jt))
			reach(uint32(i.jf))
			words = ^uint16(0)
		}
	}
	return nil
}

// Run returns what the program answers to a call.
func (p Program) Run(d Data) Action {
	action, _ := p.trace(d)
	return action
}

// trace runs the program and also counts the instructions.
func (p Program) trace(d Data) (action Action, steps int) {
	words := [dataSize / 4]uint32{0: d.Nr, 1: d.Arch, 2: uint32(d.IP), 3: uint32(d.IP >> 32)}
	for i, arg := range d.Args {
		// The low half first: all machines that filters are made for are little-endian.
		words[4+2*i], words[5+2*i] = uint32(arg), uint32(arg>>32)
	}
	var a, x uint32
	var mem [memWords]uint32
	for pc := 0; ; pc++ {
		i := p.code[pc]
		steps++
		operand := i.k
		if i.op&opX != 0 {
			operand = x
		}
		switch i.op {
		case opLoad:
			a = words[i.k/4]
		case opLoadLen:
			a = dataSize
		case opLoadImm:
			a = i.k
		case opLoadMem:
			a = mem[i.k]
		case opXLen:
			x = dataSize
		case opXImm:
			x = i.k
		case opXMem:
			x = mem[i.k]
		case opStore:
			mem[i.k] = a
		case opStoreX:
			mem[i.k] = x
		case opTAX:
			x = a
		case opTXA:
			a = x
		case opRetK:
			return Action(i.k), steps
		case opRetA:
			return Action(a), steps
		case opALU | opNeg:
			a = -a
		case opJump | opAlways:
			pc += int(i.k)
		default:
			if i.op&0x07 == opJump {
				if holds(i.op&0xf0, a, operand) {
					pc += int(i.jt)
				} else {
					pc += int(i.jf)
				}
				continue
			}
			if i.op&0xf0 == opDiv && operand == 0 {
				return RetKillThread, steps // the kernel makes it "return 0"
			}
			a = compute(i.op&0xf0, a, operand)
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

func compute(op uint16, a, b uint32) uint32 {
	switch op {
	case opAdd:
		return a + b
	case opSub:
		return a - b
	case opMul:
		return a * b
	case opDiv:
		return a / b
	case opOr:
		return a | b
	case opAnd:
		return a & b
	case opLsh:
		return a << (b & 31)
	case opRsh:
		return a >> (b & 31)
	}
	return a ^ b
}
