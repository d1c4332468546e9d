package supervisor

import (
	"io"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/seccomp"
)

// What each call names, and whether a link at the end is followed.
func TestNames(t *testing.T) {
	const wronly, cwd = 1, uint64(0xffffff9c) // AT_FDCWD as a process has it in a register
	for _, c := range []struct {
		name string
		arch uint32
		args [6]uint64
		want []Name
	}{
		{"open", seccomp.ArchX86_64, [6]uint64{7, 0}, []Name{{Read, atFdcwd, 7, true}}},
		{"open", seccomp.ArchX86_64, [6]uint64{7, wronly}, []Name{{Write, atFdcwd, 7, true}}},
		{"open", seccomp.ArchX86_64, [6]uint64{7, wronly | unix.O_CREAT | unix.O_EXCL}, []Name{{Write, atFdcwd, 7, false}}},
		{"openat", seccomp.ArchX86_64, [6]uint64{cwd, 7, wronly | 0o400000}, []Name{{Write, atFdcwd, 7, false}}},
		{"openat", seccomp.ArchAarch64, [6]uint64{3, 7, wronly | 0o100000}, []Name{{Write, 3, 7, false}}},
		{"openat", seccomp.ArchAarch64, [6]uint64{1<<32 | 3, 7, wronly}, []Name{{Write, 3, 7, true}}},
		{"creat", seccomp.ArchX86_64, [6]uint64{7}, []Name{{Write, atFdcwd, 7, true}}},
		{"symlinkat", seccomp.ArchX86_64, [6]uint64{1, 3, 7}, []Name{{Create, 3, 7, false}}},
		{"rename", seccomp.ArchX86_64, [6]uint64{7, 8}, []Name{{Remove, atFdcwd, 7, false}, {Create, atFdcwd, 8, false}}},
		{"renameat2", seccomp.ArchX86_64, [6]uint64{3, 7, 4, 8}, []Name{{Remove, 3, 7, false}, {Create, 4, 8, false}}},
		{"linkat", seccomp.ArchX86_64, [6]uint64{3, 7, 4, 8, atSymlinkFollow}, []Name{{Read, 3, 7, true}, {Create, 4, 8, false}}},
		{"unlinkat", seccomp.ArchX86_64, [6]uint64{3, 7, unix.AT_REMOVEDIR}, []Name{{Remove, 3, 7, false}}},
		{"fchmodat", seccomp.ArchX86_64, [6]uint64{3, 7, 0o700}, []Name{{Write, 3, 7, true}}},
		{"execveat", seccomp.ArchX86_64, [6]uint64{3, 7, 0, 0, atSymlinkNofollow}, []Name{{Execute, 3, 7, false}}},
		{"connect", seccomp.ArchX86_64, [6]uint64{3, 7, 16}, nil},
		{"umask", seccomp.ArchX86_64, [6]uint64{7}, nil},
	} {
		require.Equal(t, c.want, names(c.name, seccomp.Data{Arch: c.arch, Args: c.args}), c.name)
	}
}

// Each list is one that a filter can be made of, and the narrower ones are part
// of the wider.
func TestLists(t *testing.T) {
	for _, list := range [][]seccomp.Watched{Writes(), Accesses(), Creations(), Both(Writes(), Creations())} {
		for _, arch := range []string{"amd64", "arm64"} {
			filter, err := seccomp.Watch(list, arch)
			require.NoError(t, err)
			_, err = seccomp.Load(filter)
			require.NoError(t, err)
		}
	}
	for _, w := range Both(Writes(), Creations()) {
		if w.Name == "openat" {
			require.EqualValues(t, writing, w.Bits)
		}
	}
	require.Contains(t, Both(Writes(), Creations()), seccomp.Watched{Name: "umask"})
	filter, err := seccomp.Watch(Both(Writes(), Creations()), "amd64")
	require.NoError(t, err)
	program, err := seccomp.Load(filter)
	require.NoError(t, err)
	for _, request := range []uint64{0x50009401, 0x5000940e, 0x50009417, 0x50009418, 0x4020bc10, 0x40186f04} {
		require.Equal(t, seccomp.Errno(1), program.Run(seccomp.Data{Arch: seccomp.ArchX86_64, Nr: 16, Args: [6]uint64{3, request}}))
	}
	require.Equal(t, []seccomp.Watched{{Name: "open"}}, Both([]seccomp.Watched{{Name: "open", Arg: 1, Bits: 1}}, []seccomp.Watched{{Name: "open"}}))
}

// Paths are looked up below the root, whatever links say.
func TestFind(t *testing.T) {
	top, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	root := filepath.Join(top, "root")
	require.NoError(t, os.MkdirAll(filepath.Join(root, "a/b"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(top, "outside"), nil, 0o644))
	for link, to := range map[string]string{"a/up": "../a/b", "abs": "/a/b", "out": "../outside", "far": "../../../..", "nowhere": "a/b/none", "loop": "loop", "chain": "nowhere"} {
		require.NoError(t, os.Symlink(to, filepath.Join(root, link)))
	}
	fd, err := unix.Open(root, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	require.NoError(t, err)
	defer unix.Close(fd)
	for text, want := range map[string]Place{
		"/a/b":             {root + "/a/b", true, true},
		"/a/b/":            {root + "/a/b", true, true},
		"/a/./b/..//b/new": {root + "/a/b/new", false, true},
		"/a/up/new":        {root + "/a/b/new", false, true},
		"/abs":             {root + "/a/b", true, true},
		"/abs/../new":      {root + "/a/new", false, true},
		"/far/../../new":   {root + "/new", false, true},
		"/nowhere":         {root + "/a/b/none", false, true},
		"/chain":           {root + "/a/b/none", false, true},
		"/out":             {root + "/outside", false, true}, // the one above the root is another
		"/no/such/dir":     {root + "/no/such/dir", false, false},
		"/abs/such/dir":    {root + "/a/b/such/dir", false, false},
		"/loop/such/dir":   {"/loop/such/dir", false, false},
	} {
		require.Equal(t, want, find(fd, text, true, maxLinks), text)
	}
	require.Equal(t, Place{root + "/abs", true, true}, find(fd, "/abs", false, maxLinks))
	require.Equal(t, Place{root + "/nowhere", true, true}, find(fd, "/nowhere", false, maxLinks))
	require.False(t, find(fd, "/loop", true, maxLinks).There)
}

func TestParseUmask(t *testing.T) {
	mask, err := parseUmask("Name:\tsh\\nUmask:\t0777\nUmask:\t0027\nState:\tS (sleeping)\n")
	require.NoError(t, err)
	require.Equal(t, 0o027, mask)
	for _, bad := range []string{"", "Name:\tx\n", "Umask:\t0999\n", "Umask:\t7777\n"} {
		_, err := parseUmask(bad)
		require.Error(t, err, bad)
	}
}

func FuzzNames(f *testing.F) {
	f.Add(uint32(seccomp.ArchX86_64), uint32(257), uint64(1<<63), uint64(2), uint64(3), uint64(4))
	f.Fuzz(func(t *testing.T, arch, nr uint32, a, b, c, d uint64) {
		data := seccomp.Data{Arch: arch, Nr: nr, Args: [6]uint64{a, b, c, d}}
		for _, n := range names(seccomp.Name(data), data) {
			_ = n.Op.String()
			require.False(t, n.Dir != atFdcwd && n.Dir != int(int32(a)) && n.Dir != int(int32(b)) && n.Dir != int(int32(c)))
		}
	})
}

func FuzzParseUmask(f *testing.F) {
	f.Add("Umask:\t0022\n")
	f.Fuzz(func(t *testing.T, status string) {
		if mask, err := parseUmask(status); err == nil && (mask < 0 || mask > 0o777) {
			t.Fatalf("%o", mask)
		}
	})
}

// What was read of a process that does not wait any more means nothing: its
// number may be another's by now.
func TestGone(t *testing.T) {
	null, err := os.Open(os.DevNull)
	require.NoError(t, err)
	defer null.Close()
	name := append([]byte("/proc/self/fd/0"), 0)
	at := uint64(uintptr(unsafe.Pointer(&name[0])))
	// The process is there, and its memory can be read; only the listener knows of no call.
	c := &Call{PID: os.Getpid(), Name: "openat", s: &Supervisor{listener: int(null.Fd())}}
	n := Name{Pointer: at, Dir: atFdcwd}
	text, err := c.text(n)
	require.NoError(t, err)
	require.Equal(t, "/proc/self/fd/0", text, "else this proves nothing")

	_, err = c.Text(n)
	require.ErrorIs(t, err, ErrGone)
	_, err = c.Path(n)
	require.ErrorIs(t, err, ErrGone)
	_, ok := c.ownDescriptor(n)
	require.False(t, ok)
	d := &Broker{umaskSet: true}
	require.ErrorIs(t, d.takeUmask(c), ErrGone)
	did := false
	require.Equal(t, Answer{kind: fails, errno: unix.EACCES}, d.outcome(c, func() error { did = true; return nil }))
	require.False(t, did)
	require.Equal(t, Answer{kind: fails, errno: unix.EIO}, (&Broker{Umask: 0o22}).outcome(c, func() error { return io.EOF }))
	syscall.Umask(0o22)

	_, err = c.text(Name{Pointer: 1, Dir: atFdcwd})
	require.Error(t, err)
	require.False(t, nothing("x"))
	runtime.KeepAlive(name)
}
