package seccomp

import (
	"encoding/json"
	"flag"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pccrun/pccrun/seccomp/internal/rules"
)

var update = flag.Bool("update", false, "write what is embedded anew")

// The embedded bytes are what the compiler makes of the rules now.
func TestEmbeddedFiltersAreWhatIsCompiled(t *testing.T) {
	for _, name := range []string{NameDefault, NameNested} {
		for _, goarch := range []string{"amd64", "arm64"} {
			made := compiled(t, name, goarch)
			if *update {
				require.NoError(t, os.WriteFile("builtin/"+name+"."+goarch+".bpf", made, 0o644))
			}
			require.Equal(t, builtinFile(t, name, goarch), made, "%s for %s: run go generate", name, goarch)
		}
	}
}

// compiled is a built-in filter, made of its rules.
func compiled(t *testing.T, name, goarch string) []byte {
	list, listed, err := builtin(name, goarch)
	require.NoError(t, err)
	m := machineOf(goarch)
	arches := slices.DeleteFunc(m.arches, func(a arch) bool { return !slices.Contains(listed, a.oci) })
	unknown := Errno(rules.DefaultErrno)
	code, err := assemble(arches, unknown, unknown, func(a arch, all checks) (map[uint32]*check, error) {
		calls := make(map[uint32]*check)
		for _, r := range list {
			for _, call := range r.Names {
				nr, known, ok := a.number(call)
				require.True(t, known, call)
				if ok {
					require.NotContains(t, calls, nr, call)
					calls[nr] = all.tree(r.Node)
				}
			}
		}
		return calls, nil
	})
	require.NoError(t, err)
	return encode(code)
}

// tree is what a tree of the rules decides.
func (all checks) tree(n *rules.Node) *check {
	switch {
	case n.Cases != nil:
	case n.Errno == rules.Allow:
		return all.answer(RetAllow)
	default:
		return all.answer(Errno(uint16(n.Errno)))
	}
	to := all.tree(n.Else)
	for _, c := range slices.Backward(n.Cases) {
		to = all.condition(condition{arg: n.Arg, op: maskedEqual, mask: n.Mask, value: c.Value}, all.tree(c.Then), to)
	}
	return to
}

// Libseccomp has no part in the compiler: its tests are a program of their own, since not
// every machine that runs the others has its headers.
//
//test:root
func TestLibseccomp(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, whose go command builds")
	}
	for _, tool := range []string{"go", "gcc"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("needs %s to build a program with libseccomp", tool)
		}
	}
	if _, err := os.Stat("/usr/include/seccomp.h"); err != nil {
		t.Skip("needs libseccomp-dev: no /usr/include/seccomp.h")
	}
	cmd := exec.Command("go", "test", "-vet=off", "-count=1", "-v", "-tags=libseccomp", "-run=^TestLibseccomp[A-Z]", ".")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=1", "GOFLAGS=")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Equal(t, 4, strings.Count(string(out), "\n--- PASS: "), "%s", out)
}

func builtinFile(t *testing.T, name, goarch string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("builtin", name+"."+goarch+".bpf"))
	require.NoError(t, err)
	return b
}

func load(t testing.TB, filter []byte) Program {
	t.Helper()
	p, err := Load(filter)
	require.NoError(t, err)
	return p
}

// everyCall has a call of each number that a machine's kernel might hand to a filter, from
// each architecture.
func everyCall() (list []Data) {
	for _, word := range []uint32{ArchX86_64, ArchI386, ArchAarch64, ArchARM, 0xdeadbeef} {
		for nr := range uint32(600) {
			list = append(list, Data{Nr: nr, Arch: word})
			if word == ArchX86_64 {
				list = append(list, Data{Nr: nr | x32Bit, Arch: word})
			}
		}
		for _, nr := range []uint32{0xf0001, 0xf0005, x32Bit - 1, 1 << 31, 1<<32 - 2} {
			list = append(list, Data{Nr: nr, Arch: word})
		}
	}
	return list
}

// compare runs two programs with every call, as often as is given where they look at
// arguments: these are made of what either compares them with. It returns how many calls
// the first refused.
func compare(t *testing.T, one, other Program, often int, alike func(d Data, one, other Action) bool) (refused int) {
	t.Helper()
	r := rand.New(rand.NewPCG(8, 8))
	for _, d := range everyCall() {
		words := asked(one, d)
		for word, values := range asked(other, d) {
			words[word] = append(words[word], values...)
		}
		pick := func(word int) uint64 {
			values := words[uint32(word)]
			if len(values) == 0 {
				return 0
			}
			v := values[r.IntN(len(values))]
			return uint64([]uint32{v, v - 1, v + 1, v ^ 1<<r.IntN(32), v | r.Uint32()}[r.IntN(5)])
		}
		for range min(often, 1+often*len(words)) {
			for i := range d.Args {
				d.Args[i] = pick(offsetArgs + 8*i)
				if d.Arch != ArchI386 && d.Arch != ArchARM {
					d.Args[i] |= pick(offsetArgs+8*i+4) << 32
				}
			}
			a, b := one.Run(d), other.Run(d)
			if a != b && (alike == nil || !alike(d, a, b)) {
				require.Equal(t, a, b, "%+v", d)
			}
			if a != RetAllow {
				refused++
			}
		}
	}
	return refused
}

// asked returns what a program may compare each word of the arguments with, and the masks
// that it puts on it, on any way that it takes for a call.
func asked(p Program, d Data) map[uint32][]uint32 {
	known := map[uint32]uint32{offsetNr: d.Nr, offsetArch: d.Arch}
	found, seen := make(map[uint32][]uint32), make(map[[2]uint32]bool)
	var walk func(pc, word uint32)
	walk = func(pc, word uint32) {
		i := p.code[pc]
		if seen[[2]uint32{pc, word}] || i.op == opRetK {
			return
		}
		seen[[2]uint32{pc, word}] = true
		value, is := known[word]
		switch pc++; i.op {
		case opLoad:
			walk(pc, i.k)
			return
		case opJump | opAlways:
			walk(pc+i.k, word)
			return
		case opALU | opAnd:
			walk(pc, word)
		default:
			if holds := holds(i.op&0xf0, value, i.k); !is || holds {
				walk(pc+uint32(i.jt), word)
			}
			if holds := holds(i.op&0xf0, value, i.k); !is || !holds {
				walk(pc+uint32(i.jf), word)
			}
		}
		if !is {
			found[word] = append(found[word], i.k)
		}
	}
	walk(0, offsetNr)
	return found
}

// What the built-in filters are meant to decide, written down apart from the
// rules that make them: Docker's default profile for a process without
// capabilities, and where we differ.
var intent = map[string]string{
	// Docker allows these to all; we do not.
	"refused": `adjtimex clock_adjtime clock_adjtime64 fanotify_mark modify_ldt socketcall`,
	// Docker allows some of these and refuses the others. Programs fall back.
	"unknown": `openat2 clone3 add_key keyctl request_key memfd_secret uretprobe uprobe`,
	// We allow these; Docker leaves them out: what only old i386 programs call.
	"allowed": `nice oldfstat oldlstat oldolduname oldstat olduname readdir sgetmask sigaction signal sigpending sigsuspend ssetmask`,
	// Decided by their arguments.
	"argument": `chmod clone creat fchmod fchmodat fcntl fcntl64 ioctl mknod mknodat open openat personality prlimit64
		sendmmsg sendmsg sendto setrlimit setsockopt socket socketpair unshare`,
	// Let through in nested only. Docker refuses them without CAP_SYS_ADMIN.
	"sandboxing": `chroot fsconfig fsmount fsopen fspick mount mount_setattr move_mount open_tree pivot_root setdomainname
		sethostname setns umount umount2`,
}

// newest is the first number that all architectures share and that libseccomp
// 2.5.4 does not know.
const newest = 450

// intended returns "allow", "EPERM", "ENOSYS" or "argument".
func intended(t *testing.T, nested bool) func(name string, nr uint32) string {
	src, err := os.ReadFile("testdata/docker.json")
	require.NoError(t, err)
	var docker struct{ Syscalls []map[string]any }
	require.NoError(t, json.Unmarshal(src, &docker))
	class := make(map[string]string)
	for _, s := range docker.Syscalls {
		includes, _ := s["includes"].(map[string]any)
		if s["action"] != "SCMP_ACT_ALLOW" || s["args"] != nil || includes["caps"] != nil {
			continue
		}
		for _, name := range s["names"].([]any) {
			class[name.(string)] = "allow"
		}
	}
	set := func(kind, as string) {
		for _, name := range strings.Fields(intent[kind]) {
			class[name] = as
		}
	}
	set("refused", "EPERM")
	set("unknown", "ENOSYS")
	set("allowed", "allow")
	set("argument", "argument")
	if nested {
		set("sandboxing", "allow")
		class["clone"], class["clone3"], class["unshare"] = "allow", "allow", "allow"
	}
	return func(name string, nr uint32) string {
		switch c := class[name]; {
		case nr >= newest && nr < 512:
			return "ENOSYS"
		case c == "":
			return "EPERM"
		default:
			return c
		}
	}
}

func TestBuiltinFiltersDecideEveryNumberAsIntended(t *testing.T) {
	answers := map[string]Action{"allow": RetAllow, "EPERM": Errno(1), "ENOSYS": Errno(38)}
	for _, name := range []string{NameDefault, NameNested} {
		for _, goarch := range []string{"amd64", "arm64"} {
			t.Run(name+" "+goarch, func(t *testing.T) {
				program := load(t, builtinFile(t, name, goarch))
				want := intended(t, name == NameNested)
				names := make(map[[2]uint32]string)
				m, _ := machines(goarch)
				for _, a := range m.arches {
					for _, s := range allCalls() {
						if nr, _, ok := a.number(s); ok && a.oci != "SCMP_ARCH_X32" && a.oci != "SCMP_ARCH_ARM" {
							names[[2]uint32{a.audit, nr}] = s
						}
					}
				}
				counts := make(map[string]int)
				for _, d := range everyCall() {
					call, known := names[[2]uint32{d.Arch, d.Nr}]
					kind := "ENOSYS"
					if known {
						kind = want(call, d.Nr)
					}
					counts[kind]++
					require.Equal(t, kind == "argument", len(asked(program, d)) > 0, "%s: %+v", call, d)
					if kind != "argument" {
						require.Equal(t, answers[kind], program.Run(d), "%s: %+v", call, d)
					}
				}
				for kind, n := range counts {
					require.Greater(t, n, 10, kind)
				}
			})
		}
	}
}

// One case of a call that is decided by its arguments.
type argumentCase struct {
	call string
	args [6]uint64
	want Action
}

const high = 1 << 32 // a bit that the kernel does not read in an int

func argumentCases() []argumentCase {
	const allow = RetAllow
	eperm, enoent, einval, enosys, noproto, nosupport, nofamily := Errno(1), Errno(2), Errno(22), Errno(38), Errno(93), Errno(95), Errno(97)
	a := func(args ...uint64) (list [6]uint64) { copy(list[:], args); return list }
	cases := []argumentCase{
		// socket(family, type, protocol)
		{"socket", a(1, 1, 0), allow},
		{"socket", a(1, 5, 0), allow},
		{"socket", a(1|high, 2|0o2000000, 77), allow},
		{"socket", a(2, 1, 0), allow},
		{"socket", a(2, 1|0o4000|0o2000000, 6), allow}, // SOCK_NONBLOCK | SOCK_CLOEXEC
		{"socket", a(2, 2, 17), allow},
		{"socket", a(2, 2, 1), allow},
		{"socket", a(10, 2, 58), allow},
		{"socket", a(10|high, 1|high, 6|high), allow},
		{"socket", a(2, 3, 1), noproto},        // raw
		{"socket", a(2, 3, 255), noproto},      // raw, IPPROTO_RAW
		{"socket", a(2, 10, 0x300), noproto},   // SOCK_PACKET: a packet socket by another name
		{"socket", a(2, 10|high, 6), noproto},  // the same
		{"socket", a(2, 1, 132), noproto},      // SCTP
		{"socket", a(10, 5, 132), noproto},     // SCTP
		{"socket", a(2, 6, 33), noproto},       // DCCP
		{"socket", a(2, 1, 262), noproto},      // MPTCP
		{"socket", a(2, 2, 136|high), noproto}, // UDP-Lite
		{"socket", a(2, 2, 115), noproto},      // L2TP
		{"socket", a(16, 3, 0), allow},         // NETLINK_ROUTE
		{"socket", a(16, 2|0o2000000, high), allow},
		{"socket", a(16, 3, 12), nofamily},      // NETLINK_NETFILTER
		{"socket", a(16, 3, 15|high), nofamily}, // uevents
		{"socket", a(17, 3, 0), nofamily},       // packet
		{"socket", a(38, 5, 0), nofamily},       // ALG
		{"socket", a(40, 1, 0), nofamily},       // vsock
		{"socket", a(40|high, 1, 0), nofamily},
		{"socket", a(40|1<<63, 1, 0), nofamily},
		{"socket", a(0, 1, 0), nofamily},
		{"socket", a(3, 1, 0), nofamily},
		{"socket", a(45, 1, 0), nofamily},
		{"socket", a(1<<32-1, 1, 0), enosys},
		{"socketpair", a(1, 1, 0), allow},
		{"socketpair", a(1|high, 2, 0), allow},
		{"socketpair", a(2, 10, 0x300), nofamily},
		{"socketpair", a(30, 1, 0), nofamily},

		// ioctl(fd, request)
		{"ioctl", a(0, 0x5401), allow}, // TCGETS
		{"ioctl", a(0, 0x5413), allow}, // TIOCGWINSZ
		{"ioctl", a(0, 0x540e), allow}, // TIOCSCTTY
		{"ioctl", a(0, 0x541b), allow}, // FIONREAD
		{"ioctl", a(0, 0x5421), allow}, // FIONBIO
		{"ioctl", a(0, 0x80045430), allow},
		{"ioctl", a(0, 0xffffffff80045430), allow}, // as musl passes it
		{"ioctl", a(0, 0x40049409), allow},         // FICLONE
		{"ioctl", a(0, 0), allow},
		{"ioctl", a(0, 1<<32-1), allow},
		{"ioctl", a(0, 0x5412), eperm}, // TIOCSTI
		{"ioctl", a(0, 0x5412|high), eperm},
		{"ioctl", a(0, 0x5412|1<<63), eperm},
		{"ioctl", a(0, 0x541c), eperm}, // TIOCLINUX
		{"ioctl", a(0, 0x541c|high), eperm},
		{"ioctl", a(0, 0x541d), eperm}, // TIOCCONS
		{"ioctl", a(0, 0x5423), eperm}, // TIOCSETD
		{"ioctl", a(0, 0x5423|high), eperm},

		{"ioctl", a(0, 0x80086601), allow}, // FS_IOC_GETFLAGS
		{"ioctl", a(0, 0xc020660b), allow}, // FS_IOC_FIEMAP
		{"ioctl", a(0, 0x4020940d), allow}, // FICLONERANGE
		{"ioctl", a(0, 0xc0189436), allow}, // FIDEDUPERANGE
		{"ioctl", a(0, 0x81009431), allow}, // FS_IOC_GETFSLABEL
		{"ioctl", a(0, 0x401c5820), allow}, // FS_IOC_FSSETXATTR
		{"ioctl", a(0, 0x40086602), eperm}, // FS_IOC_SETFLAGS
		{"ioctl", a(0, 0x40046602), eperm}, // of 32-bit programs
		{"ioctl", a(0, 0x40086602|high), eperm},
		{"ioctl", a(0, 0x800c6613), eperm}, // FS_IOC_SET_ENCRYPTION_POLICY
		{"ioctl", a(0, 0xc0506617), eperm}, // FS_IOC_ADD_ENCRYPTION_KEY
		{"ioctl", a(0, 0xc0406618), eperm}, // FS_IOC_REMOVE_ENCRYPTION_KEY
		{"ioctl", a(0, 0x40806685), eperm}, // FS_IOC_ENABLE_VERITY
		{"ioctl", a(0, 0x50009401), eperm}, // BTRFS_IOC_SNAP_CREATE
		{"ioctl", a(0, 0x50009417), eperm}, // BTRFS_IOC_SNAP_CREATE_V2
		{"ioctl", a(0, 0x5000940e|high), eperm},
		{"ioctl", a(0, 0x5000940f), eperm}, // BTRFS_IOC_SNAP_DESTROY
		{"ioctl", a(0, 0x4008941a), eperm}, // BTRFS_IOC_SUBVOL_SETFLAGS
		{"ioctl", a(0, 0x4020bc10), eperm}, // BCH_IOCTL_SUBVOLUME_CREATE

		// setsockopt(fd, level, option)
		{"setsockopt", a(0, 1, 31), allow},
		{"setsockopt", a(0, 6, 1), allow}, // TCP_NODELAY
		{"setsockopt", a(0, 6, 13), allow},
		{"setsockopt", a(0, 6, 30), allow},
		{"setsockopt", a(0, 41, 31), allow},
		{"setsockopt", a(0, 282, 31), allow},
		{"setsockopt", a(0, 6, 31), enoent}, // TCP_ULP
		{"setsockopt", a(0, 6|high, 31|high), enoent},

		// messages
		{"sendto", a(0, 0, 0, 0x4000), allow}, // MSG_NOSIGNAL
		{"sendto", a(0, 0, 0, 1), nosupport},  // MSG_OOB
		{"sendto", a(0, 0, 0, 0x4001|high), nosupport},
		{"sendmsg", a(0, 0, 0x40), allow},
		{"sendmsg", a(0, 0, 1), nosupport},
		{"sendmmsg", a(0, 0, 0, 0), allow},
		{"sendmmsg", a(0, 0, 0, 0x41), nosupport},

		// fcntl(fd, command)
		{"fcntl", a(0, 0), allow},
		{"fcntl", a(0, 4), allow},
		{"fcntl", a(0, 1030), allow},
		{"fcntl", a(0, 1030|high), allow},
		{"fcntl", a(0, 1025), allow}, // F_GETLEASE
		{"fcntl", a(0, 1024), eperm}, // F_SETLEASE
		{"fcntl", a(0, 1024|high), eperm},
		{"fcntl", a(0, 1<<31), enosys},

		// modes
		{"openat", a(0, 0, 0, 0o6777), allow}, // the mode is garbage
		{"openat", a(0, 0, 0o100, 0o644), allow},
		{"openat", a(0, 0, 0o100, 0o1777), allow},
		{"openat", a(0, 0, 0o200000, 0o6777), allow}, // O_DIRECTORY alone makes nothing
		{"openat", a(0, 0, 0o100, 0o4755), eperm},
		{"openat", a(0, 0, 0o100|high, 0o2755|high), eperm},
		{"openat", a(0, 0, 0o100, 0o6000), eperm},
		{"openat", a(0, 0, 0o20200000|2, 0o4700), eperm}, // O_TMPFILE
		{"openat", a(0, 0, 0o20200000|2, 0o700), allow},
		{"fchmod", a(0, 0o755), allow},
		{"fchmod", a(0, 0o1755), allow},
		{"fchmod", a(0, 0o4755), eperm},
		{"fchmod", a(0, 0o2755|1<<40), eperm},
		{"fchmodat", a(0, 0, 0o755), allow},
		{"fchmodat", a(0, 0, 0o4755), eperm},
		{"fchmodat2", a(0, 0, 0o4755), enosys},
		{"openat2", a(0, 0, 0), enosys},
		{"mknodat", a(0, 0, 0o100644), allow},
		{"mknodat", a(0, 0, 0o644), allow},
		{"mknodat", a(0, 0, 0o010644), allow},
		{"mknodat", a(0, 0, 0o140644), allow},
		{"mknodat", a(0, 0, 0o020644, 0x103), eperm},
		{"mknodat", a(0, 0, 0o060644|high), eperm},
		{"mknodat", a(0, 0, 0o104755), eperm},
		{"mknodat", a(0, 0, 0o012755), eperm},

		// limits
		{"prlimit64", a(0, 7, 0x1000), allow},
		{"prlimit64", a(0, 4, 0, 0x1000), allow},
		{"prlimit64", a(0, 4, 0x1000), Errno(0)},
		{"prlimit64", a(0, 4|high, 0x1000), Errno(0)},
		{"prlimit64", a(0, 4, 0x7fff00000000), Errno(0)},
		{"prlimit64", a(0, 4, 0x1000, 0x2000), einval},
		{"prlimit64", a(0, 4, 0x1000, 0x7fff00000000), einval},
		{"prlimit64", a(1, 4, 0x1000), einval},
		{"prlimit64", a(1, 4|high, 0x1000, 0x2000), einval},
		{"prlimit64", a(1, 4, 0, 0x1000), allow},
		{"prlimit64", a(0, 7, 0x7fff00000000), allow},
		{"setrlimit", a(7, 0x1000), allow},
		{"setrlimit", a(4, 0x1000), Errno(0)},
		{"setrlimit", a(4|high, 0x1000), Errno(0)},

		{"personality", a(0), allow},
		{"personality", a(8), allow},
		{"personality", a(0x20008), allow},
		{"personality", a(1<<32 - 1), allow},
		{"personality", a(1<<64 - 1), allow},
		{"personality", a(0x0040000), eperm}, // ADDR_NO_RANDOMIZE
		{"personality", a(0x0400000), eperm}, // READ_IMPLIES_EXEC
		{"personality", a(0x0400000 | high), eperm},
		{"personality", a(0x4100001), eperm}, // PER_SVR4, by its flags
		{"personality", a(6), enosys},        // PER_BSD, which has none
		{"personality", a(1 << 31), enosys},
	}
	return append(cases, legacyCases(a)...)
}

// legacyCases are of calls that arm64 does not have.
func legacyCases(a func(...uint64) [6]uint64) []argumentCase {
	eperm := Errno(1)
	return []argumentCase{
		{"open", a(0, 0, 0o6777), RetAllow},
		{"open", a(0, 0o101, 0o644), RetAllow},
		{"open", a(0, 0o101, 0o4755), eperm},
		{"open", a(0, 0o101|high, 0o2755|high), eperm},
		{"open", a(0, 0o20200002, 0o2755), eperm},
		{"creat", a(0, 0o644), RetAllow},
		{"creat", a(0, 0o4755), eperm},
		{"chmod", a(0, 0o644), RetAllow},
		{"chmod", a(0, 0o4755|high), eperm},
		{"mknod", a(0, 0o010600), RetAllow},
		{"mknod", a(0, 0o020600), eperm},
		{"mknod", a(0, 0o102755), eperm},
		{"fcntl64", a(0, 4), RetAllow},
		{"fcntl64", a(0, 1024), eperm},
	}
}

func TestBuiltinFiltersDecideByArguments(t *testing.T) {
	namespaces := func(eperm, enosys Action) []argumentCase {
		cases := []argumentCase{
			{"clone", [6]uint64{0x1200011}, RetAllow}, // fork as glibc does it
			{"clone", [6]uint64{0x3d0f00}, RetAllow},  // a thread
			{"clone", [6]uint64{0x4111}, RetAllow},    // posix_spawn
			{"unshare", [6]uint64{0x200}, RetAllow},
			{"unshare", [6]uint64{0x400 | 0x40000}, RetAllow},
			{"unshare", [6]uint64{0x80}, eperm},
			{"unshare", [6]uint64{0x00100000}, enosys},
			{"clone3", [6]uint64{0x1000, 88}, enosys},
		}
		for _, flag := range []uint64{0x00020000, 0x02000000, 0x04000000, 0x08000000, 0x10000000, 0x20000000, 0x40000000} {
			cases = append(cases, argumentCase{"clone", [6]uint64{flag | 17}, eperm}, argumentCase{"clone", [6]uint64{flag | 17 | high}, eperm},
				argumentCase{"unshare", [6]uint64{flag}, eperm}, argumentCase{"unshare", [6]uint64{flag | 0x200}, eperm})
		}
		return cases
	}
	for name, extra := range map[string][]argumentCase{NameDefault: namespaces(Errno(1), Errno(38)), NameNested: namespaces(RetAllow, RetAllow)} {
		for _, goarch := range []string{"amd64", "arm64"} {
			program := load(t, builtinFile(t, name, goarch))
			m, _ := machines(goarch)
			for _, a := range m.arches {
				if a.oci == "SCMP_ARCH_X32" || a.oci == "SCMP_ARCH_ARM" {
					continue
				}
				asked := 0
				for _, c := range append(argumentCases(), extra...) {
					nr, known, ok := a.number(c.call)
					require.True(t, known, c.call)
					if !ok {
						continue
					}
					d := Data{Nr: nr, Arch: a.audit, Args: c.args}
					if a.audit == ArchI386 {
						for i := range d.Args {
							d.Args[i] &= 1<<32 - 1
						}
						if c.call == "prlimit64" && (d.Args[2] != c.args[2] || d.Args[3] != c.args[3]) {
							continue // a pointer that no 32-bit program has
						}
					}
					require.Equal(t, c.want, program.Run(d), "%s %s: %s%#x: got %s", name, a.oci, c.call, d.Args, program.Run(d))
					asked++
				}
				require.Greater(t, asked, 90)
			}
		}
	}
}

// The OCI form decides as the filter, both by our compiler and by libseccomp.
func TestOCIFormDecidesAsTheFilter(t *testing.T) {
	for _, name := range []string{NameDefault, NameNested} {
		for _, goarch := range []string{"amd64", "arm64"} {
			profile, losses, err := OCI(name, goarch)
			require.NoError(t, err)
			require.Len(t, losses, 1)
			b, err := CompileOCI(profile, goarch)
			require.NoError(t, err)
			ours, want := load(t, b), load(t, builtinFile(t, name, goarch))
			m, _ := machines(goarch)
			refused := compare(t, want, ours, 500, func(d Data, _, _ Action) bool {
				// the loss that OCI names
				return d.Arch != m.native().audit && (d.Arch != ArchI386 || goarch == "arm64") || d.Nr >= x32Bit
			})
			require.Greater(t, refused, 5_000)
		}
	}
	_, _, err := OCI("other", "amd64")
	require.EqualError(t, err, `built-in filter "other": want default or nested`)
	_, _, err = OCI(NameDefault, "mips")
	require.EqualError(t, err, `built-in filter default: architecture "mips": want amd64 or arm64`)
}

func TestOtherArchitecturesGetENOSYS(t *testing.T) {
	for goarch, words := range map[string][]uint32{
		"amd64": {ArchAarch64, ArchARM, 0, 0xffffffff, ArchX86_64 &^ 0x80000000},
		"arm64": {ArchX86_64, ArchI386, ArchARM, 0},
	} {
		for _, name := range []string{NameDefault, NameNested, "floor", "floor-nested"} {
			program := load(t, builtinFile(t, name, goarch))
			for _, word := range words {
				require.Equal(t, Errno(38), program.Run(Data{Nr: 0, Arch: word}))
			}
			// What a tracer skips has the tracer's result.
			require.Equal(t, RetAllow, program.Run(Data{Nr: noCall, Arch: machineOf(goarch).native().audit}))
		}
	}
	program := load(t, builtinFile(t, NameDefault, "amd64"))
	for nr := range uint32(600) {
		require.Equal(t, Errno(38), program.Run(Data{Nr: nr | x32Bit, Arch: ArchX86_64}))
	}
}

// A launch pays for each instruction, and what programs call most must pass few.
func TestBuiltinFiltersAreShort(t *testing.T) {
	for name, limit := range map[string]int{"amd64": 312, "arm64": 188} {
		program := load(t, builtinFile(t, NameDefault, name))
		require.LessOrEqual(t, len(program.code), limit)
	}
	program := load(t, builtinFile(t, NameDefault, "amd64"))
	for call, limit := range map[string]int{"getppid": 14, "read": 14, "write": 14, "openat": 16, "newfstatat": 14, "futex": 14, "clone": 16, "sendmsg": 16, "sendto": 16, "setsockopt": 24} {
		nr, _, _ := machineOf("amd64").native().number(call)
		_, steps := program.trace(Data{Nr: nr, Arch: ArchX86_64})
		require.LessOrEqual(t, steps, limit, call)
	}
}

func machineOf(goarch string) machine {
	m, ok := machines(goarch)
	if !ok {
		panic("BUG: no machine " + goarch)
	}
	return m
}
