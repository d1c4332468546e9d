package seccomp

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func ret(a Action) instruction { return instruction{op: opRetK, k: uint32(a)} }

func TestLoadRefusesWhatTheKernelRefuses(t *testing.T) {
	allow := ret(RetAllow)
	for _, c := range []struct {
		name string
		code []instruction
		want string
	}{
		{"empty", nil, "load filter: 0 bytes: want 1 to 4096 instructions of 8 bytes"},
		{"too long", make([]instruction, 4097), "load filter: 32776 bytes: want 1 to 4096 instructions of 8 bytes"},
		{"no return", []instruction{{op: opLoad}}, "load filter: instruction 0: the last one must return"},
		{"load outside", []instruction{{op: opLoad, k: 64}, allow}, "load filter: instruction 0: load from offset 64: want a multiple of 4 below 64"},
		{"load between", []instruction{{op: opLoad, k: 2}, allow}, "load filter: instruction 0: load from offset 2: want a multiple of 4 below 64"},
		{"load half", []instruction{{op: 0x28}, allow}, "load filter: instruction 0: operation 0x28: not for filters"},
		{"modulo", []instruction{{op: 0x94, k: 1}, allow}, "load filter: instruction 0: operation 0x94: not for filters"},
		{"division by 0", []instruction{{op: opALU | opDiv}, allow}, "load filter: instruction 0: division by 0"},
		{"wide shift", []instruction{{op: opALU | opLsh, k: 32}, allow}, "load filter: instruction 0: shift by 32 bits"},
		{"memory outside", []instruction{{op: opStore, k: 16}, allow}, "load filter: instruction 0: memory word 16: want less than 16"},
		{"memory unset", []instruction{{op: opLoadMem}, allow}, "load filter: instruction 0: memory word 0: loaded before it is stored"},
		{"memory unset on one way", []instruction{{op: opJump | opEqual, jt: 1}, {op: opStore, k: 3}, {op: opXMem, k: 3}, allow},
			"load filter: instruction 2: memory word 3: loaded before it is stored"},
		{"memory unset after a jump", []instruction{{op: opJump | opAlways, k: 1}, {op: opStore, k: 3}, {op: opXMem, k: 3}, allow},
			"load filter: instruction 2: memory word 3: loaded before it is stored"},
		{"jump past the end", []instruction{{op: opJump | opAlways, k: 1}, allow}, "load filter: instruction 0: jump by 1: past the end"},
		{"jump around", []instruction{{op: opJump | opAlways, k: 1<<32 - 1}, allow}, "load filter: instruction 0: jump by 4294967295: past the end"},
		{"branch past the end", []instruction{{op: opJump | opEqual, jf: 1}, allow}, "load filter: instruction 0: jump by 1: past the end"},
	} {
		_, err := Load(encode(c.code))
		require.EqualError(t, err, c.want, c.name)
	}
	_, err := Load(encode([]instruction{allow})[:7])
	require.EqualError(t, err, "load filter: 7 bytes: want 1 to 4096 instructions of 8 bytes")
	_, err = Load(encode([]instruction{allow}))
	require.NoError(t, err, "the control")
}

func TestRunComputes(t *testing.T) {
	d := Data{Nr: 7, Arch: ArchX86_64, IP: 0x1122334455667788, Args: [6]uint64{0x99aabbccddeeff00, 1, 2, 3, 4, 5<<32 | 6}}
	load := func(at uint32) instruction { return instruction{op: opLoad, k: at} }
	for _, c := range []struct {
		name string
		code []instruction
		want uint32
	}{
		{"nr", []instruction{load(0)}, 7},
		{"arch", []instruction{load(4)}, ArchX86_64},
		{"ip", []instruction{load(8)}, 0x55667788},
		{"ip, upper", []instruction{load(12)}, 0x11223344},
		{"arg", []instruction{load(16)}, 0xddeeff00},
		{"arg, upper", []instruction{load(20)}, 0x99aabbcc},
		{"last arg", []instruction{load(56)}, 6},
		{"last arg, upper", []instruction{load(60)}, 5},
		{"length", []instruction{{op: opLoadLen}}, 64},
		{"length in X", []instruction{{op: opXLen}, {op: opTXA}}, 64},
		{"immediate", []instruction{{op: opLoadImm, k: 9}}, 9},
		{"memory", []instruction{{op: opLoadImm, k: 9}, {op: opStore, k: 15}, {op: opLoadImm}, {op: opLoadMem, k: 15}}, 9},
		{"memory of X", []instruction{{op: opXImm, k: 8}, {op: opStoreX, k: 1}, {op: opXMem, k: 1}, {op: opTXA}}, 8},
		{"A to X", []instruction{{op: opLoadImm, k: 5}, {op: opTAX}, {op: opALU | opAdd | opX}}, 10},
		{"add", []instruction{load(0), {op: opALU | opAdd, k: 1<<32 - 1}}, 6},
		{"subtract", []instruction{load(0), {op: opALU | opSub, k: 8}}, 1<<32 - 1},
		{"multiply", []instruction{load(0), {op: opALU | opMul, k: 3}}, 21},
		{"divide", []instruction{load(0), {op: opALU | opDiv, k: 2}}, 3},
		{"divide by X = 0", []instruction{load(0), {op: opALU | opDiv | opX}, {op: opALU | opOr, k: 1}}, 0},
		{"or", []instruction{load(0), {op: opALU | opOr, k: 8}}, 15},
		{"and", []instruction{load(0), {op: opALU | opAnd, k: 3}}, 3},
		{"xor", []instruction{load(0), {op: opALU | opXor, k: 3}}, 4},
		{"shift left", []instruction{load(0), {op: opALU | opLsh, k: 31}}, 1 << 31},
		{"shift right", []instruction{load(0), {op: opALU | opRsh, k: 1}}, 3},
		{"shift by X past the width", []instruction{load(0), {op: opXImm, k: 33}, {op: opALU | opLsh | opX}}, 14},
		{"negate", []instruction{load(0), {op: opALU | opNeg}}, 1<<32 - 7},
		{"jump", []instruction{load(0), {op: opJump | opAlways, k: 1}, {op: opLoadImm}}, 7},
		{"jump if equal", []instruction{load(0), {op: opJump | opEqual, jt: 1, k: 7}, {op: opLoadImm}}, 7},
		{"jump if not", []instruction{load(0), {op: opJump | opEqual, jf: 1, k: 8}, {op: opLoadImm}}, 7},
		{"jump if greater than X", []instruction{load(0), {op: opXImm, k: 6}, {op: opJump | opGreater | opX, jt: 1}, {op: opLoadImm}}, 7},
		{"jump if at least", []instruction{load(0), {op: opJump | opAtLeast, jt: 1, k: 7}, {op: opLoadImm}}, 7},
		{"jump if any bit", []instruction{load(0), {op: opJump | opAnySet, jt: 1, k: 12}, {op: opLoadImm}}, 7},
		{"no jump if no bit", []instruction{load(0), {op: opJump | opAnySet, jf: 1, k: 8}, {op: opLoadImm}}, 7},
	} {
		p, err := Load(encode(append(c.code, instruction{op: opRetA})))
		require.NoError(t, err, c.name)
		require.Equal(t, Action(c.want), p.Run(d), c.name)
	}
}

func TestActionsHaveNames(t *testing.T) {
	for action, want := range map[Action]string{
		RetAllow: "allow", Errno(38): "errno 38", RetKillThread: "kill thread", RetKillProcess: "kill process", RetTrap | 3: "trap 3",
		RetLog: "log", RetTrace | 1: "trace 1", RetUserNotif: "notify", 0x12340000: "kill process (unknown action 0x12340000)",
	} {
		require.Equal(t, want, action.String())
	}
}
