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
		{"load half", []instruction{{op: 0x28}, allow}, "load filter: instruction 0: operation 0x28: not used in filters here"},
		{"modulo", []instruction{{op: 0x94, k: 1}, allow}, "load filter: instruction 0: operation 0x94: not used in filters here"},
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
	and := func(k uint32) instruction { return instruction{op: opALU | opAnd, k: k} }
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
		{"and", []instruction{load(0), and(3)}, 3},
		{"jump", []instruction{load(0), {op: opJump | opAlways, k: 1}, and(0)}, 7},
		{"jump if equal", []instruction{load(0), {op: opJump | opEqual, jt: 1, k: 7}, and(0)}, 7},
		{"jump if not", []instruction{load(0), {op: opJump | opEqual, jf: 1, k: 8}, and(0)}, 7},
		{"jump if greater", []instruction{load(0), {op: opJump | opGreater, jt: 1, k: 6}, and(0)}, 7},
		{"jump if at least", []instruction{load(0), {op: opJump | opAtLeast, jt: 1, k: 7}, and(0)}, 7},
		{"jump if any bit", []instruction{load(0), {op: opJump | opAnySet, jt: 1, k: 12}, and(0)}, 7},
		{"no jump if no bit", []instruction{load(0), {op: opJump | opAnySet, jf: 1, k: 8}, and(0)}, 7},
	} {
		code := append(c.code, instruction{op: opJump | opEqual, k: c.want, jf: 1}, ret(RetAllow), ret(RetLog))
		p, err := Load(encode(code))
		require.NoError(t, err, c.name)
		require.Equal(t, RetAllow, p.Run(d), c.name)
		code[len(c.code)].k++
		p, err = Load(encode(code))
		require.NoError(t, err, c.name)
		require.Equal(t, RetLog, p.Run(d), "the control: %s", c.name)
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
