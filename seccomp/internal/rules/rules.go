// Package rules states what the built-in filters decide, as rules that
// libseccomp and OCI runtimes understand. It is the one place where a decision
// is written down for machines; docs/seccomp.md gives the reasons.
//
// Rules of one call never contradict each other: libseccomp orders rules by a
// scheme of its own, so "all but these values" is spelled out as patterns that
// cover exactly the rest ([complement]).
package rules

// Errno values that rules return, from asm-generic/errno.h.
const (
	EPERM           = 1
	ENOENT          = 2
	EINVAL          = 22
	ENOSYS          = 38
	EPROTONOSUPPORT = 93
	EOPNOTSUPP      = 95
	EAFNOSUPPORT    = 97
)

// What a Rule's Errno may be beside an errno.
const (
	Allow = 0       // lets the call through
	Done  = 1 << 16 // says that the call succeeded, which was not made
)

// DefaultErrno is what calls get that no rule names, and all calls of an
// architecture that the filter does not know: the answer of a kernel without
// them, on which C libraries fall back.
const DefaultErrno = ENOSYS

// A Cond holds if the argument, masked, is Value, or is not where Differs is
// set. Masks have 32 bits where the kernel reads 32: what stands above them
// must not matter. With Differs the mask has all 64, since libseccomp has no
// masked form of that.
type Cond struct {
	Arg         uint
	Mask, Value uint64
	Differs     bool
}

// A Rule gives calls an answer. Conditions of one rule must all hold; of
// several rules for a call one must. A name that an architecture does not
// have means nothing there.
type Rule struct {
	Names []string
	Errno uint32 // Allow, Done, or the errno that the call returns
	Conds []Cond
}

// Arches returns the architectures, in OCI spelling, that a filter for a Go
// architecture decides call by call. All others get [DefaultErrno]; that
// includes x32, which distributions leave out of their kernels, and 32-bit arm.
func Arches(goarch string) []string {
	switch goarch {
	case "amd64":
		return []string{"SCMP_ARCH_X86_64", "SCMP_ARCH_X86"}
	case "arm64":
		return []string{"SCMP_ARCH_AARCH64"}
	}
	return nil
}

// Default returns the rules of the default filter.
func Default() []Rule {
	rules := append(common(), refuse(sandboxing...))
	rules = append(rules, refuseBits("clone", 0, cloneNew)...)
	// unshare reads all 64 bits. What concerns no namespace is let through; a
	// flag of a later kernel gets DefaultErrno.
	rules = append(rules, allowIf("unshare", masked(0, ^uint64(cloneVM|cloneFS|cloneFiles|cloneSighand|cloneThread|cloneSysVSem), 0)))
	for _, flag := range bits(cloneNew | cloneNewTime) {
		rules = append(rules, refuseIf("unshare", EPERM, masked(0, flag, flag)))
	}
	return rules
}

// Nested returns the rules of the filter for payloads that build sandboxes.
func Nested() []Rule {
	return append(common(), allow(sandboxing...), allow("clone", "clone3", "unshare"))
}

const (
	low32 = 1<<32 - 1 // the width of an int

	// linux/sched.h
	cloneVM      = 0x100
	cloneFS      = 0x200
	cloneFiles   = 0x400
	cloneSighand = 0x800
	cloneThread  = 0x10000
	cloneSysVSem = 0x40000
	cloneNew     = 0x7e020000 // NS, CGROUP, UTS, IPC, USER, PID, NET
	cloneNewTime = 0x80       // unshare only: in clone the bit is of the exit signal

	// asm-generic/fcntl.h; O_TMPFILE is oTmpfile with O_DIRECTORY
	oCreat    = 0o100
	oTmpfile  = 0o20000000
	fSetLease = 1024
	fSetDeleg = 1040 // Linux 6.19

	// linux/stat.h
	setID    = 0o6000 // S_ISUID and S_ISGID
	fileType = 0o170000

	// asm-generic/resource.h
	rlimitCore = 4
	maxRlimit  = 15

	// linux/personality.h
	uname26          = 0x0020000
	personalityFlags = 0xffc0000 // all others, from ADDR_NO_RANDOMIZE to ADDR_LIMIT_3GB

	// linux/socket.h, linux/net.h, linux/in.h
	afUnix, afInet, afInet6, afNetlink     = 1, 2, 10, 16
	netlinkRoute                           = 0
	sockTypeMask                           = 0xf // SOCK_NONBLOCK and SOCK_CLOEXEC stand above it
	sockStream, sockDgram                  = 1, 2
	protoIP, protoICMP, protoTCP, protoUDP = 0, 1, 6, 17
	protoICMPv6                            = 58
	maxFamily, maxNetlink, maxProtocol     = 63, 31, 511 // powers of two, less one, that the kernel's own bounds lie below
	msgOOB                                 = 1
	solTCP, tcpULP                         = 6, 31 // linux/tcp.h
)

// common returns what both filters share.
func common() []Rule {
	rules := []Rule{allow(harmless...), refuse(dangerous...)}

	// A mode that sets user or group on execution makes a program of the file's
	// owner; in a root-owned workspace that is root, outside.
	for _, call := range []struct {
		name string
		mode uint
	}{{"chmod", 1}, {"fchmod", 1}, {"fchmodat", 2}, {"creat", 1}} {
		rules = append(rules, refuseBits(call.name, call.mode, setID)...)
	}
	rules = append(rules, opening("open", 1)...)
	rules = append(rules, opening("openat", 2)...)
	rules = append(rules, nodes("mknod", 1)...)
	rules = append(rules, nodes("mknodat", 2)...)

	rules = append(rules, requests()...)
	// A lease lets its holder stall whoever opens the file, on the host too.
	for _, name := range []string{"fcntl", "fcntl64"} {
		rules = append(rules, allBut(name, 1, EPERM, 2047, fSetLease, fSetDeleg)...)
	}
	// A soft core limit of 0 makes the kernel feed the host's core handler
	// again, so the limit stays as it was set. Who sets it wants no core written
	// nearly always (the sanitizers, gpg, browsers), has that, and gives up if told
	// that it failed.
	rules = append(rules, allBut("setrlimit", 0, Done, maxRlimit, rlimitCore)...)
	rules = append(rules, prlimit()...)
	rules = append(rules, personality()...)
	rules = append(rules, only("socketpair", 0, EAFNOSUPPORT, maxFamily, afUnix)...)
	// The kernel's code for data out of band on unix sockets was a way out of
	// sandboxes (CVE-2025-38236), and few programs send any at all.
	for _, call := range []struct {
		name  string
		flags uint
	}{{"sendto", 3}, {"sendmsg", 2}, {"sendmmsg", 3}} {
		rules = append(rules, allowIf(call.name, masked(call.flags, msgOOB, 0)), refuseIf(call.name, EOPNOTSUPP, masked(call.flags, msgOOB, msgOOB)))
	}
	// TLS in the kernel, and what else a connection can be handed to, as if the
	// module were not there. In these bits no other level that a socket here has
	// is the same, and no other option.
	const level, option = 0xf, 0x1f
	for _, c := range complement(1, level, level, []uint64{solTCP}) {
		rules = append(rules, allowIf("setsockopt", c))
	}
	for _, c := range complement(2, option, option, []uint64{tcpULP}) {
		rules = append(rules, allowIf("setsockopt", masked(1, level, solTCP), c))
	}
	rules = append(rules, refuseIf("setsockopt", ENOENT, masked(1, level, solTCP), masked(2, option, tcpULP)))
	return append(rules, sockets()...)
}

// Requests of ioctl(2) by their type and number, which are the low 16 bits; what
// stands above says only how long the argument is and which way it goes.
const (
	tiocSTI, tiocLinux, tiocCons, tiocSetLine = 0x5412, 0x541c, 0x541d, 0x5423 // asm-generic/ioctls.h

	typeOf     = 0xff00
	fileFlags  = 0x6600 // linux/fs.h, linux/fscrypt.h, linux/fsverity.h; ext4's
	btrfs      = 0x9400 // linux/btrfs.h, and with the same type linux/fs.h
	bcachefs   = 0xbc00
	getFlags   = 0x01 // FS_IOC_GETFLAGS
	fieMap     = 0x0b // FS_IOC_FIEMAP
	clone      = 0x09 // FICLONE
	cloneRange = 0x0d // FICLONERANGE
	getLabel   = 0x31 // FS_IOC_GETFSLABEL
	dedupe     = 0x36 // FIDEDUPERANGE
)

// requests refuses what types into a terminal, takes its output, or loads a
// line discipline; and what changes how a file system shows its files, past
// mounts and rules, which go by names: a snapshot of a subvolume holds what is
// covered in it, a subvolume can be closed to its owner's writes, a directory
// can be told to take .GIT for .git, or to be read only with a key.
func requests() []Rule {
	const name, arg = "ioctl", 1
	terminal := []uint64{tiocSTI, tiocLinux, tiocCons, tiocSetLine}
	whole := map[uint64][]uint64{fileFlags: {getFlags, fieMap}, btrfs: {clone, cloneRange, getLabel, dedupe}, bcachefs: nil} // less what is let through
	var rules []Rule
	var kinds []uint64
	for _, kind := range []uint64{fileFlags, btrfs, bcachefs} {
		kinds = append(kinds, kind)
		for _, number := range whole[kind] {
			rules = append(rules, allowIf(name, masked(arg, 0xffff, kind|number)))
		}
		for _, c := range complement(arg, 0xff, 0xff, whole[kind]) {
			rules = append(rules, refuseIf(name, EPERM, masked(arg, typeOf|c.Mask, kind|c.Value)))
		}
	}
	const tty = tiocSTI & typeOf
	for _, request := range terminal {
		rules = append(rules, refuseIf(name, EPERM, masked(arg, 0xffff, request)))
	}
	for i := range terminal {
		terminal[i] &= 0xff
	}
	for _, c := range complement(arg, 0xff, 0xff, terminal) {
		rules = append(rules, allowIf(name, masked(arg, typeOf|c.Mask, tty|c.Value)))
	}
	for _, c := range complement(arg, typeOf, typeOf, append(kinds, tty)) {
		rules = append(rules, allowIf(name, c))
	}
	return rules
}

// personality allows PER_LINUX and PER_LINUX32, each with UNAME26, and the query,
// which is all bits. What else is known is refused by its flag; the personalities of
// other systems get DefaultErrno: each bit of them would cost two comparisons.
func personality() []Rule {
	const name, query = "personality", 1 << 31
	var rules []Rule
	for _, known := range []uint64{0, 8, uname26, uname26 | 8, low32} {
		rules = append(rules, allowIf(name, masked(0, low32, known)))
	}
	for _, flag := range bits(personalityFlags) {
		rules = append(rules, refuseIf(name, EPERM, masked(0, query|flag, flag)))
	}
	return rules
}

// opening returns rules for a call that takes open flags at arg and, where
// they make a file, a mode after them; else the mode is garbage.
func opening(name string, arg uint) []Rule {
	rules := []Rule{
		allowIf(name, masked(arg, oCreat|oTmpfile, 0)),
		allowIf(name, masked(arg+1, setID, 0)),
	}
	for _, makes := range bits(oCreat | oTmpfile) {
		for _, mode := range bits(setID) {
			rules = append(rules, refuseIf(name, EPERM, masked(arg, makes, makes), masked(arg+1, mode, mode)))
		}
	}
	return rules
}

// nodes returns rules for a call that makes a file of a type: regular files,
// FIFOs and sockets may be made.
func nodes(name string, arg uint) []Rule {
	var rules []Rule
	types := []uint64{0, 0o010000, 0o100000, 0o140000}
	for _, typ := range types {
		rules = append(rules, allowIf(name, masked(arg, fileType|setID, typ)))
	}
	for _, c := range complement(arg, fileType, fileType, types) {
		rules = append(rules, refuseIf(name, EPERM, c))
	}
	for _, mode := range bits(setID) {
		rules = append(rules, refuseIf(name, EPERM, masked(arg, mode, mode)))
	}
	return rules
}

// prlimit lets limits be read, and all but RLIMIT_CORE be set: that is said to be
// done where C libraries' setrlimit asks, of the process itself and for no answer
// but yes or no. These arguments are compared at 64 bits: the kernel reads so many of
// a pointer, and what stands above a process's number makes it none of libc's calls.
func prlimit() []Rule {
	const name = "prlimit64"
	rules := []Rule{allowIf(name, masked(2, ^uint64(0), 0))}
	for _, c := range complement(1, low32, maxRlimit, []uint64{rlimitCore}) {
		rules = append(rules, allowIf(name, c))
	}
	set := masked(1, low32, rlimitCore)
	zero := func(arg uint) Cond { return masked(arg, ^uint64(0), 0) }
	other := func(arg uint) Cond { return Cond{Arg: arg, Mask: ^uint64(0), Differs: true} }
	return append(rules,
		refuseIf(name, Done, zero(0), set, other(2), zero(3)),
		refuseIf(name, EINVAL, other(0), set, other(2)),
		refuseIf(name, EINVAL, zero(0), set, other(2), other(3)))
}

// sockets lets through what reaches other programs here and the network that
// the sandbox has. Other families, raw and packet sockets, and protocols whose
// modules the kernel would load on demand stay out of reach.
func sockets() []Rule {
	const name = "socket"
	types := []uint64{sockStream, sockDgram}
	protocols := []uint64{protoIP, protoICMP, protoTCP, protoUDP, protoICMPv6}

	rules := []Rule{
		allowIf(name, masked(0, low32, afUnix)),
		allowIf(name, masked(0, low32, afNetlink), masked(2, low32, netlinkRoute)),
	}
	for _, c := range complement(2, low32, maxNetlink, []uint64{netlinkRoute}) {
		rules = append(rules, refuseIf(name, EAFNOSUPPORT, masked(0, low32, afNetlink), c))
	}
	inet := masked(0, low32&^(afInet^afInet6), afInet&afInet6) // either: they part in one bit
	for _, typ := range types {
		for _, protocol := range protocols {
			rules = append(rules, allowIf(name, inet, masked(1, sockTypeMask, typ), masked(2, low32, protocol)))
		}
	}
	for _, c := range append(complement(1, sockTypeMask, sockTypeMask, types), complement(2, low32, maxProtocol, protocols)...) {
		rules = append(rules, refuseIf(name, EPROTONOSUPPORT, inet, c))
	}
	for _, c := range complement(0, low32, maxFamily, []uint64{afUnix, afInet, afInet6, afNetlink}) {
		rules = append(rules, refuseIf(name, EAFNOSUPPORT, c))
	}
	return rules
}

func masked(arg uint, mask, value uint64) Cond { return Cond{Arg: arg, Mask: mask, Value: value} }

func allow(names ...string) Rule  { return Rule{Names: names, Errno: Allow} }
func refuse(names ...string) Rule { return Rule{Names: names, Errno: EPERM} }

func allowIf(name string, conds ...Cond) Rule { return Rule{[]string{name}, Allow, conds} }

func refuseIf(name string, errno uint32, conds ...Cond) Rule {
	return Rule{[]string{name}, errno, conds}
}

// refuseBits refuses the call with EPERM if any bit of mask is set in arg.
func refuseBits(name string, arg uint, mask uint64) []Rule {
	rules := []Rule{allowIf(name, masked(arg, mask, 0))}
	for _, bit := range bits(mask) {
		rules = append(rules, refuseIf(name, EPERM, masked(arg, bit, bit)))
	}
	return rules
}

// only allows the values of an int argument, and refuses all others up to top.
func only(name string, arg uint, errno uint32, top uint64, values ...uint64) []Rule {
	var rules []Rule
	for _, v := range values {
		rules = append(rules, allowIf(name, masked(arg, low32, v)))
	}
	for _, c := range complement(arg, low32, top, values) {
		rules = append(rules, refuseIf(name, errno, c))
	}
	return rules
}

// allBut refuses the values of an int argument, and allows all others up to top.
func allBut(name string, arg uint, errno uint32, top uint64, values ...uint64) []Rule {
	var rules []Rule
	for _, v := range values {
		rules = append(rules, refuseIf(name, errno, masked(arg, low32, v)))
	}
	for _, c := range complement(arg, low32, top, values) {
		rules = append(rules, allowIf(name, c))
	}
	return rules
}

// complement returns conditions that are disjoint and hold, together, for
// exactly the arguments that, masked, are at most top (a power of two less
// one) and none of the values: one condition for each prefix of bits at which
// the values part from all the rest. What lies above top gets DefaultErrno,
// as does what the kernel itself does not know; each bit of it would cost a
// comparison.
func complement(arg uint, mask, top uint64, values []uint64) []Cond {
	var conds []Cond
	var walk func(bits []uint64, prefix, value uint64, within []uint64)
	walk = func(bits []uint64, prefix, value uint64, within []uint64) {
		if len(within) == 0 {
			conds = append(conds, masked(arg, prefix, value))
			return
		}
		if len(bits) == 0 {
			return
		}
		bit := bits[len(bits)-1]
		var zero, one []uint64
		for _, v := range within {
			if v&bit == 0 {
				zero = append(zero, v)
			} else {
				one = append(one, v)
			}
		}
		walk(bits[:len(bits)-1], prefix|bit, value, zero)
		walk(bits[:len(bits)-1], prefix|bit, value|bit, one)
	}
	walk(bits(mask&top), mask&^top, 0, values)
	return conds
}

// bits returns the bits of a mask, the lowest first.
func bits(mask uint64) []uint64 {
	var list []uint64
	for ; mask != 0; mask &= mask - 1 {
		list = append(list, mask&-mask)
	}
	return list
}
