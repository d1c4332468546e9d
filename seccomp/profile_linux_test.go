package seccomp

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestProfileErrorsNameLineAndKey(t *testing.T) {
	rule := func(body string) string {
		return "{\"defaultAction\": \"SCMP_ACT_ERRNO\",\n\"syscalls\": [\n" + body + "]}"
	}
	long := strings.Repeat("x", 100)
	for src, want := range map[string]string{
		``:                                      "line 1: unexpected end of JSON input",
		`{`:                                     "line 1: unexpected end of JSON input",
		`[]`:                                    "line 1: array: want an object",
		`{"a": 1}`:                              "line 1: a: unknown key",
		`{"defaultAction": 3}`:                  "line 1: defaultAction: number: want a string",
		`{"DefaultAction": "SCMP_ACT_ALLOW"}`:   "line 1: DefaultAction: unknown key",
		`null`:                                  "line 1: no action",
		`{}`:                                    "line 1: no action",
		`{"defaultAction": "SCMP_ACT_ALLOW"} x`: "line 1: invalid character 'x' after top-level value",
		`{"defaultAction": "SCMP_ACT_ALLOW"}{}`: "line 1: invalid character '{' after top-level value",
		"{\"defaultAction\": \"SCMP_ACT_ALLOW\",\n\"defaultAction\": \"\"}":                                                          "line 2: defaultAction: given twice",
		`{"defaultAction": "SCMP_ACT_ALLOW", "defaultErrnoRet": 1}`:                                                                  "line 1: an errno is for SCMP_ACT_ERRNO only",
		`{"defaultAction": "SCMP_ACT_TRACE"}`:                                                                                        "line 1: action SCMP_ACT_TRACE: not supported: a tracer inside would decide",
		`{"defaultAction": "SCMP_ACT_NOTIFY"}`:                                                                                       "line 1: action SCMP_ACT_NOTIFY: not supported: there is no supervisor to ask",
		`{"defaultAction": "allow"}`:                                                                                                 "line 1: action allow: unknown",
		`{"defaultAction": "a\nb"}`:                                                                                                  `line 1: action "a\nb": unknown`,
		`{"defaultAction": "SCMP_ACT_ERRNO", "defaultErrnoRet": 4096}`:                                                               "line 1: errno 4096: want a whole number from 0 to 4095",
		`{"defaultAction": "SCMP_ACT_ERRNO", "defaultErrnoRet": -1}`:                                                                 "line 1: defaultErrnoRet: number -1: want a whole number from 0 on",
		`{"defaultAction": "SCMP_ACT_ERRNO", "defaultErrnoRet": 1.0}`:                                                                "line 1: defaultErrnoRet: number 1.0: want a whole number from 0 on",
		`{"defaultAction": "SCMP_ACT_ERRNO", "defaultErrnoRet": "1"}`:                                                                "line 1: defaultErrnoRet: string: want a whole number from 0 on",
		`{"defaultAction": "SCMP_ACT_ERRNO", "defaultErrno": "EXDEV"}`:                                                               "line 1: errno EXDEV: not known by name here: give its number as errnoRet",
		`{"defaultAction": "SCMP_ACT_ERRNO", "defaultErrno": "EPERM", "defaultErrnoRet": 2}`:                                         "line 1: errno EPERM and errnoRet 2 contradict each other",
		`{"defaultAction": "SCMP_ACT_ERRNO", "architectures": ["SCMP_ARCH_VAX"]}`:                                                    "line 1: architectures: architecture SCMP_ARCH_VAX: unknown",
		`{"defaultAction": "SCMP_ACT_ERRNO", "architectures": {}}`:                                                                   "line 1: architectures: object: want an array",
		`{"defaultAction": "SCMP_ACT_ERRNO", "architectures": [null]}`:                                                               "line 1: architectures: architecture : unknown",
		`{"defaultAction": "SCMP_ACT_ERRNO", "archMap": [{"architecture": "SCMP_ARCH_X"}]}`:                                          "line 1: archMap[0]: architecture SCMP_ARCH_X: unknown",
		`{"defaultAction": "SCMP_ACT_ERRNO", "archMap": [{"arch": "SCMP_ARCH_X86"}]}`:                                                "line 1: archMap[0].arch: unknown key",
		`{"defaultAction": "SCMP_ACT_ERRNO", "flags": ["SECCOMP_FILTER_FLAG_LOG"]}`:                                                  "line 1: flags: flag SECCOMP_FILTER_FLAG_LOG: not supported",
		`{"defaultAction": "SCMP_ACT_ERRNO", "listenerPath": "/run/s"}`:                                                              "line 1: listenerPath: not supported: there is no supervisor to ask",
		`{"defaultAction": "SCMP_ACT_ERRNO", "` + long + `": 1}`:                                                                     "line 1: " + long[:64] + "…: unknown key",
		`{"defaultAction": "SCMP_ACT_ERRNO", "architectures": ["SCMP_ARCH_X86"], "archMap": [{"architecture": "SCMP_ARCH_X86_64"}]}`: "line 1: architectures and archMap: give one of them",

		rule(`{"names": ["read"]}`):                                                                        "line 3: syscalls[0]: no action",
		rule(`{"action": "SCMP_ACT_ALLOW"}`):                                                               "line 3: syscalls[0]: a rule without a system call's name",
		rule(`{"names": [""], "action": "SCMP_ACT_ALLOW"}`):                                                "line 3: syscalls[0]: a rule without a system call's name",
		rule(`{"names": ["read"], "name": "write", "action": "SCMP_ACT_ALLOW"}`):                           "line 3: syscalls[0]: name and names: give one of them",
		rule(`{"names": ["read"], "action": "SCMP_ACT_ALLOW", "arg": []}`):                                 "line 3: syscalls[0].arg: unknown key",
		rule(`{"names": ["read"], "action": "SCMP_ACT_ALLOW", "errnoRet": 1}`):                             "line 3: syscalls[0]: an errno is for SCMP_ACT_ERRNO only",
		rule("\n" + `{"names": ["read"], "action": "SCMP_ACT_ALLOW", "args": [{"index": 6}]}`):             "line 4: syscalls[0].args[0].index: 6: want a whole number from 0 to 5",
		rule(`{"names": ["read"], "action": "SCMP_ACT_ALLOW", "args": [{"op": "EQ"}]}`):                    "line 3: syscalls[0].args[0]: op EQ: unknown",
		rule(`{"names": ["read"], "action": "SCMP_ACT_ALLOW", "args": [{"value": 18446744073709551616}]}`): "line 3: syscalls.args.value: number 18446744073709551616: want a whole number from 0 on",
		rule(`{"names": ["read"], "action": "SCMP_ACT_ALLOW", "includes": {"minKernel": "6.8"}}`):          "line 3: syscalls[0].includes.minKernel: 6.8: not supported: want 5.12 or older; every kernel that runs pccrun is at least that new",
		rule(`{"names": ["read"], "action": "SCMP_ACT_ALLOW", "includes": {"minKernel": "new"}}`):          "line 3: syscalls[0].includes.minKernel: new: want a kernel version like 4.8",
		rule(`{"names": ["read"], "action": "SCMP_ACT_ALLOW", "excludes": {"kernel": "4.8"}}`):             "line 3: syscalls[0].excludes.kernel: unknown key",
		rule(`{"names": ["ioctl"], "action": "SCMP_ACT_ALLOW"},` + "\n" + `{"names": ["ioctl"], "action": "SCMP_ACT_KILL", "args": [{"index": 1, "value": 21522, "op": "SCMP_CMP_EQ"}]}`): "line 4: syscalls[1]: has no effect: line 3: syscalls[0] names the same call without conditions and allows more",
		rule(`{"names": ["raed"], "action": "SCMP_ACT_KILL"}`): "line 3: syscalls[0]: raed: no such system call: its refusal would have no effect",
	} {
		_, err := CompileOCI([]byte(src), "amd64")
		require.EqualError(t, err, "seccomp profile: "+want, src)
	}
	_, err := CompileOCI([]byte(`{"defaultAction": "SCMP_ACT_ERRNO"}`), "riscv64")
	require.EqualError(t, err, `seccomp profile: architecture "riscv64": want amd64 or arm64`)
}

// What a profile says, and what one call gets of it.
func TestProfilesMeanWhatRuntimesReadInThem(t *testing.T) {
	const (
		getppid = 110
		ioctl   = 16
	)
	for _, c := range []struct {
		name string
		src  string
		data Data
		want Action
	}{
		{"default", `{"defaultAction": "SCMP_ACT_LOG"}`, Data{Nr: getppid}, RetLog},
		{"default errno", `{"defaultAction": "SCMP_ACT_ERRNO"}`, Data{Nr: getppid}, Errno(1)},
		{"default errno by name", `{"defaultAction": "SCMP_ACT_ERRNO", "defaultErrno": "ENOSYS", "defaultErrnoRet": 38}`, Data{Nr: getppid}, Errno(38)},
		{"errno 0 is an errno", `{"defaultAction": "SCMP_ACT_ERRNO", "defaultErrnoRet": 0}`, Data{Nr: getppid}, Errno(0)},
		{"old name", `{"defaultAction": "SCMP_ACT_KILL", "syscalls": [{"name": "getppid", "action": "SCMP_ACT_ALLOW"}]}`, Data{Nr: getppid}, RetAllow},
		{"unknown name in an allow list", `{"defaultAction": "SCMP_ACT_KILL", "syscalls": [{"names": ["s390_call", "getppid"], "action": "SCMP_ACT_ALLOW"}]}`, Data{Nr: getppid}, RetAllow},
		{"nulls", `{"defaultAction": "SCMP_ACT_LOG", "architectures": null, "archMap": [{"architecture": "SCMP_ARCH_RISCV64", "subArchitectures": null}], "syscalls": null}`, Data{Nr: getppid}, RetLog},
		{"capabilities included", `{"defaultAction": "SCMP_ACT_LOG", "syscalls": [{"names": ["getppid"], "action": "SCMP_ACT_ALLOW", "includes": {"caps": ["CAP_BPF"]}}]}`, Data{Nr: getppid}, RetLog},
		{"capabilities excluded", `{"defaultAction": "SCMP_ACT_LOG", "syscalls": [{"names": ["getppid"], "action": "SCMP_ACT_ALLOW", "excludes": {"caps": ["CAP_BPF"]}}]}`, Data{Nr: getppid}, RetAllow},
		{"machine included", `{"defaultAction": "SCMP_ACT_LOG", "syscalls": [{"names": ["getppid"], "action": "SCMP_ACT_ALLOW", "includes": {"arches": ["arm64", "amd64"], "minKernel": "4.8"}}]}`, Data{Nr: getppid}, RetAllow},
		{"another machine included", `{"defaultAction": "SCMP_ACT_LOG", "syscalls": [{"names": ["getppid"], "action": "SCMP_ACT_ALLOW", "includes": {"arches": ["arm64"]}}]}`, Data{Nr: getppid}, RetLog},
		{"machine excluded", `{"defaultAction": "SCMP_ACT_LOG", "syscalls": [{"names": ["getppid"], "action": "SCMP_ACT_ALLOW", "excludes": {"arches": ["amd64"]}}]}`, Data{Nr: getppid}, RetLog},
		{"kernel excluded", `{"defaultAction": "SCMP_ACT_LOG", "syscalls": [{"names": ["getppid"], "action": "SCMP_ACT_ALLOW", "excludes": {"minKernel": "4.8"}}]}`, Data{Nr: getppid}, RetLog},
		{"no kernel", `{"defaultAction": "SCMP_ACT_LOG", "syscalls": [{"names": ["getppid"], "action": "SCMP_ACT_ALLOW", "comment": "x", "excludes": {"minKernel": ""}}]}`, Data{Nr: getppid}, RetAllow},
		{"flags without effect", `{"defaultAction": "SCMP_ACT_LOG", "flags": ["SECCOMP_FILTER_FLAG_TSYNC"], "listenerPath": ""}`, Data{Nr: getppid}, RetLog},
		{"the first rule without conditions", `{"defaultAction": "SCMP_ACT_LOG", "syscalls": [{"names": ["getppid"], "action": "SCMP_ACT_ERRNO", "errno": "EINVAL"}, {"names": ["getppid"], "action": "SCMP_ACT_ALLOW"}]}`, Data{Nr: getppid}, Errno(22)},
		{"the strictest of rules with conditions", `{"defaultAction": "SCMP_ACT_ERRNO", "syscalls": [{"names": ["ioctl"], "action": "SCMP_ACT_ALLOW", "args": [{"index": 1, "value": 5, "op": "SCMP_CMP_GE"}]}, {"names": ["ioctl"], "action": "SCMP_ACT_KILL", "args": [{"index": 1, "value": 7, "op": "SCMP_CMP_EQ"}]}]}`, Data{Nr: ioctl, Args: [6]uint64{0, 7}}, RetKillThread},
		{"a default restated is a default", `{"defaultAction": "SCMP_ACT_ERRNO", "syscalls": [{"names": ["ioctl"], "action": "SCMP_ACT_ERRNO"}, {"names": ["ioctl"], "action": "SCMP_ACT_ALLOW", "args": [{"index": 1, "value": 7, "op": "SCMP_CMP_EQ"}]}]}`, Data{Nr: ioctl, Args: [6]uint64{0, 7}}, RetAllow},
		{"one argument twice: either", `{"defaultAction": "SCMP_ACT_ERRNO", "syscalls": [{"names": ["ioctl"], "action": "SCMP_ACT_ALLOW", "args": [{"index": 1, "value": 7, "op": "SCMP_CMP_EQ"}, {"index": 1, "value": 9, "op": "SCMP_CMP_EQ"}]}]}`, Data{Nr: ioctl, Args: [6]uint64{0, 9}}, RetAllow},
		{"two arguments: both", `{"defaultAction": "SCMP_ACT_ERRNO", "syscalls": [{"names": ["ioctl"], "action": "SCMP_ACT_ALLOW", "args": [{"index": 1, "value": 7, "op": "SCMP_CMP_EQ"}, {"index": 0, "value": 9, "op": "SCMP_CMP_EQ"}]}]}`, Data{Nr: ioctl, Args: [6]uint64{0, 7}}, Errno(1)},
		{"all 64 bits", `{"defaultAction": "SCMP_ACT_ERRNO", "syscalls": [{"names": ["ioctl"], "action": "SCMP_ACT_ALLOW", "args": [{"index": 1, "value": 7, "op": "SCMP_CMP_EQ"}]}]}`, Data{Nr: ioctl, Args: [6]uint64{0, 7 | 1<<32}}, Errno(1)},
		{"another architecture", `{"defaultAction": "SCMP_ACT_ALLOW"}`, Data{Nr: getppid, Arch: ArchAarch64}, RetKillThread},
		{"i386 not listed", `{"defaultAction": "SCMP_ACT_ALLOW"}`, Data{Nr: getppid, Arch: ArchI386}, RetKillThread},
		{"i386 listed", `{"defaultAction": "SCMP_ACT_ERRNO", "architectures": ["SCMP_ARCH_X86"], "syscalls": [{"names": ["getppid"], "action": "SCMP_ACT_ALLOW"}]}`, Data{Nr: 64, Arch: ArchI386}, RetAllow},
		{"x32 not listed", `{"defaultAction": "SCMP_ACT_ALLOW"}`, Data{Nr: getppid | x32Bit}, RetKillThread},
		{"x32 listed", `{"defaultAction": "SCMP_ACT_ERRNO", "architectures": ["SCMP_ARCH_X32"], "syscalls": [{"names": ["getppid"], "action": "SCMP_ACT_ALLOW"}]}`, Data{Nr: getppid | x32Bit}, RetAllow},
	} {
		t.Run(c.name, func(t *testing.T) {
			filter, err := CompileOCI([]byte(c.src), "amd64")
			require.NoError(t, err)
			if c.data.Arch == 0 {
				c.data.Arch = ArchX86_64
			}
			require.Equal(t, c.want, load(t, filter).Run(c.data))
		})
	}
}

// Far jumps, and the kernel's bound.
func TestLongFilters(t *testing.T) {
	conditions := func(n int) string {
		var b strings.Builder
		b.WriteString(`{"defaultAction": "SCMP_ACT_ERRNO", "syscalls": [{"names": ["read"], "action": "SCMP_ACT_ALLOW"}`)
		for i := range n {
			fmt.Fprintf(&b, `, {"names": ["ioctl"], "action": "SCMP_ACT_LOG", "args": [{"index": 1, "value": %d, "op": "SCMP_CMP_EQ"}]}`, i)
		}
		b.WriteString("]}")
		return b.String()
	}
	filter, err := CompileOCI([]byte(conditions(900)), "amd64")
	require.NoError(t, err)
	p := load(t, filter)
	for i := range uint64(900) {
		require.Equal(t, RetLog, p.Run(Data{Nr: 16, Arch: ArchX86_64, Args: [6]uint64{0, i}}))
	}
	require.Equal(t, Errno(1), p.Run(Data{Nr: 16, Arch: ArchX86_64, Args: [6]uint64{0, 900}}))
	require.Equal(t, RetAllow, p.Run(Data{Nr: 0, Arch: ArchX86_64}))
	require.Equal(t, RetKillThread, p.Run(Data{Nr: 0, Arch: ArchI386}))

	_, err = CompileOCI([]byte(conditions(100_000)), "amd64")
	require.ErrorContains(t, err, "instructions: the kernel takes 4096")
}

func FuzzCompileOCI(f *testing.F) {
	// Small seeds: the fuzzer spends its time on making large ones smaller.
	f.Add([]byte(`{"defaultAction": "SCMP_ACT_ERRNO", "defaultErrnoRet": 38, "defaultErrno": "ENOSYS",
		"archMap": [{"architecture": "SCMP_ARCH_X86_64", "subArchitectures": ["SCMP_ARCH_X86", "SCMP_ARCH_X32"]}],
		"syscalls": [{"names": ["read", "ioctl"], "action": "SCMP_ACT_ALLOW", "args": [], "comment": "", "includes": {}, "excludes": {"caps": ["CAP_BPF"]}}]}`),
		"amd64", uint32(16), uint64(0x5412))
	f.Add([]byte(`{"defaultAction": "SCMP_ACT_ALLOW", "architectures": ["SCMP_ARCH_AARCH64"], "syscalls": [
		{"name": "mount", "action": "SCMP_ACT_KILL"},
		{"names": ["clone"], "action": "SCMP_ACT_TRAP", "includes": {"arches": ["arm64"], "minKernel": "4.8"},
		 "args": [{"index": 0, "value": 1, "op": "SCMP_CMP_LT"}, {"index": 5, "value": 1, "op": "SCMP_CMP_NE"}]}]}`), "arm64", uint32(220), uint64(1))
	f.Add([]byte(`{"defaultAction": "SCMP_ACT_ERRNO", "syscalls": [{"names": ["ioctl"], "action": "SCMP_ACT_ALLOW", "args": [{"index": 1, "value": 7, "valueTwo": 3, "op": "SCMP_CMP_MASKED_EQ"}]}]}`), "arm64", uint32(29), uint64(3))
	f.Fuzz(func(t *testing.T, src []byte, goarch string, nr uint32, arg uint64) {
		filter, err := CompileOCI(src, goarch)
		if err != nil {
			require.NotContains(t, err.Error(), "\n")
			require.Nil(t, filter)
			return
		}
		program, err := Load(filter)
		require.NoError(t, err, "what the compiler makes, the kernel takes")
		for _, word := range []uint32{ArchX86_64, ArchI386, ArchAarch64, ArchARM} {
			a := program.Run(Data{Nr: nr, Arch: word, Args: [6]uint64{arg, arg, arg, arg, arg, arg}})
			require.NotContains(t, a.String(), "unknown")
		}
	})
}

func FuzzLoad(f *testing.F) {
	f.Add(Default()[len(Default())-4*instructionSize:], uint32(1), uint64(2))
	f.Add(encode([]instruction{{op: opLoad, k: 16}, {op: opALU | opAnd, k: 7}, {op: opJump | opEqual, jt: 1, k: 2}, ret(RetAllow), ret(RetKillThread)}), uint32(1), uint64(2))
	f.Fuzz(func(t *testing.T, filter []byte, nr uint32, arg uint64) {
		program, err := Load(filter)
		if err != nil {
			return
		}
		_, steps := program.trace(Data{Nr: nr, Arch: ArchX86_64, Args: [6]uint64{arg, arg}})
		require.LessOrEqual(t, steps, len(program.code), "a filter ends")
	})
}
