package seccomp

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// The filter asks about what it is told, on each architecture, by the bits
// that the kernel reads; all else passes.
func TestWatch(t *testing.T) {
	const wronly, creat = 1, 0o100
	filter, err := Watch([]Watched{{Name: "mkdir"}, {Name: "openat", Arg: 2, Bits: wronly | creat}, {Name: "ioctl", Arg: 1, Refused: []uint32{0x5000940e, 7}}}, "amd64")
	require.NoError(t, err)
	program, err := Load(filter)
	require.NoError(t, err)
	open := func(arch, nr uint32, flags uint64) Data {
		return Data{Arch: arch, Nr: nr, Args: [6]uint64{2: flags}}
	}
	for _, c := range []struct {
		what string
		call Data
		want Action
	}{
		{"mkdir", Data{Arch: ArchX86_64, Nr: 83}, RetUserNotif},
		{"mkdir of i386", Data{Arch: ArchI386, Nr: 39}, RetUserNotif},
		{"mkdir of x32", Data{Arch: ArchX86_64, Nr: x32Bit | 83}, RetUserNotif},
		{"no mkdir: mkdir's number on x86_64 is another call's on i386", Data{Arch: ArchI386, Nr: 83}, RetAllow},
		{"rmdir", Data{Arch: ArchX86_64, Nr: 84}, RetAllow},
		{"another machine", Data{Arch: ArchAarch64, Nr: 34}, RetAllow},
		{"open for reading", open(ArchX86_64, 257, 0o2000000), RetAllow},
		{"open for writing", open(ArchX86_64, 257, wronly), RetUserNotif},
		{"open that makes", open(ArchX86_64, 257, creat), RetUserNotif},
		{"open for writing of i386", open(ArchI386, 295, wronly), RetUserNotif},
		{"a request that is refused", Data{Arch: ArchX86_64, Nr: 16, Args: [6]uint64{3, 0x5000940e}}, Errno(1)},
		{"the kernel reads 32 bits of it", Data{Arch: ArchX86_64, Nr: 16, Args: [6]uint64{3, 1<<40 | 7}}, Errno(1)},
		{"of i386", Data{Arch: ArchI386, Nr: 54, Args: [6]uint64{3, 7}}, Errno(1)},
		{"of x32", Data{Arch: ArchX86_64, Nr: x32Bit | 514, Args: [6]uint64{3, 7}}, Errno(1)},
		{"another request", Data{Arch: ArchX86_64, Nr: 16, Args: [6]uint64{3, 0x5401}}, RetAllow},
		{"the kernel reads 32 bits", open(ArchX86_64, 257, wronly<<32), RetAllow},
		{"the kernel reads 32 bits", open(ArchX86_64, 257, 1<<40|creat), RetUserNotif},
	} {
		require.Equal(t, c.want, program.Run(c.call), c.what)
	}
	filter, err = Watch([]Watched{{Name: "mkdirat"}}, "arm64")
	require.NoError(t, err)
	program, err = Load(filter)
	require.NoError(t, err)
	require.Equal(t, RetUserNotif, program.Run(Data{Arch: ArchAarch64, Nr: 34}))
	require.Equal(t, RetUserNotif, program.Run(Data{Arch: ArchARM, Nr: 323}))
	require.Equal(t, RetAllow, program.Run(Data{Arch: ArchX86_64, Nr: 34}))

	for _, bad := range []struct {
		calls  []Watched
		goarch string
	}{{[]Watched{{Name: "no such"}}, "amd64"}, {nil, "mips"}} {
		_, err = Watch(bad.calls, bad.goarch)
		require.Error(t, err)
	}
}

func TestName(t *testing.T) {
	for want, d := range map[string]Data{
		"mkdir": {Arch: ArchX86_64, Nr: 83}, "swapon": {Arch: ArchX86_64, Nr: 167}, "mkdirat": {Arch: ArchAarch64, Nr: 34},
		"execve": {Arch: ArchX86_64, Nr: x32Bit | 520}, "": {Arch: ArchX86_64, Nr: 99999},
	} {
		require.Equal(t, want, Name(d))
	}
	require.Equal(t, "mkdir", Name(Data{Arch: ArchI386, Nr: 39}))
	require.Empty(t, Name(Data{Arch: 7, Nr: 1}))
}
