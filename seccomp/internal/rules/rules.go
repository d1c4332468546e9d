// Package rules states what the built-in filters decide, and why: the one place where a
// decision is written down.
//
// A decision is a tree ([Node]), which the filters are compiled from. Its [Node.Paths] are the
// same as rules that libseccomp and OCI runtimes understand: they never contradict each other,
// since libseccomp orders rules by a scheme of its own.
package rules

import "slices"

// Errno values that filters answer, from asm-generic/errno.h.
const (
	EPERM           = 1
	ENOENT          = 2
	EINVAL          = 22
	ENOSYS          = 38
	EPROTONOSUPPORT = 93
	EOPNOTSUPP      = 95
	EAFNOSUPPORT    = 97
)

// What a Node's Errno may be beside an errno.
const (
	Allow = 0       // lets the call through
	Done  = 1 << 16 // says that the call succeeded, which was not made
)

// DefaultErrno is what calls get that no rule names, and all calls of an
// architecture that the filter does not know: the answer of a kernel without
// them, on which C libraries fall back.
const DefaultErrno = ENOSYS

// A Rule gives calls a decision. A name that an architecture does not have
// means nothing there.
type Rule struct {
	Names []string
	Node  *Node
}

// A Node is what is decided about a call: an answer, or, where it has cases, what
// an argument says under a mask. Masks have 32 bits where the kernel reads 32: what
// stands above them must not matter. One of 64 bits is asked for zero alone.
type Node struct {
	Errno uint32 // Allow, Done, or the errno that the call returns
	Arg   uint
	Mask  uint64
	Cases []Case
	Else  *Node // for all other values
}

// A Case is what is decided about one value.
type Case struct {
	Value uint64
	Then  *Node
}

// on asks for an argument under a mask; what [Node.is] does not name is unknown.
func on(arg uint, mask uint64) *Node { return &Node{Arg: arg, Mask: mask, Else: unknown} }

func (n *Node) is(then *Node, values ...uint64) *Node {
	for _, v := range values {
		n.Cases = append(n.Cases, Case{v, then})
	}
	return n
}

func (n *Node) other(then *Node) *Node { n.Else = then; return n }

// within goes on where an int argument is at most top, a power of two less one: what
// lies above is not known to the kernel either.
func within(arg uint, top uint64, then *Node) *Node { return on(arg, low32&^top).is(then, 0) }

// without lets through what has no bit of a mask set.
func without(arg uint, mask uint64, set *Node) *Node { return on(arg, mask).is(allow, 0).other(set) }

var (
	allow      = &Node{Errno: Allow}
	done       = &Node{Errno: Done}
	unknown    = &Node{Errno: DefaultErrno}
	refused    = &Node{Errno: EPERM}
	invalid    = &Node{Errno: EINVAL}
	absent     = &Node{Errno: ENOENT}
	noProtocol = &Node{Errno: EPROTONOSUPPORT}
	noSupport  = &Node{Errno: EOPNOTSUPP}
	noFamily   = &Node{Errno: EAFNOSUPPORT}
)

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
	return append(common(), Rule{sandboxing, refused},
		Rule{[]string{"clone"}, without(0, cloneNew, refused)},
		// unshare reads all 64 bits. What concerns no namespace is let through; a
		// flag of a later kernel gets DefaultErrno.
		Rule{[]string{"unshare"}, on(0, cloneNew|cloneNewTime).
			is(on(0, ^uint64(cloneVM|cloneFS|cloneFiles|cloneSighand|cloneThread|cloneSysVSem)).is(allow, 0), 0).other(refused)})
}

// Nested returns the rules of the filter for payloads that build sandboxes.
func Nested() []Rule {
	return append(common(), Rule{sandboxing, allow}, Rule{[]string{"clone", "clone3", "unshare"}, allow})
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
	rules := []Rule{{harmless, allow}, {dangerous, refused}}
	add := func(n *Node, names ...string) { rules = append(rules, Rule{names, n}) }

	// A mode that sets user or group on execution makes a program of the file's
	// owner; in a root-owned workspace that is root, outside.
	add(without(1, setID, refused), "chmod", "fchmod", "creat")
	add(without(2, setID, refused), "fchmodat")
	// Where open makes no file its mode is garbage.
	add(without(1, oCreat|oTmpfile, without(2, setID, refused)), "open")
	add(without(2, oCreat|oTmpfile, without(3, setID, refused)), "openat")
	add(nodes(1), "mknod")
	add(nodes(2), "mknodat")
	add(requests(), "ioctl")
	// A lease lets its holder stall whoever opens the file, on the host too.
	add(within(1, 2047, on(1, low32).is(refused, fSetLease, fSetDeleg).other(allow)), "fcntl", "fcntl64")
	// A soft core limit of 0 makes the kernel feed the host's core handler
	// again, so the limit stays as it was set. Who sets it wants no core written
	// nearly always (the sanitizers, gpg, browsers), has that, and gives up if told
	// that it failed.
	add(within(0, maxRlimit, on(0, low32).is(done, rlimitCore).other(allow)), "setrlimit")
	// prlimit64 is said to be done where C libraries' setrlimit asks, of the process
	// itself and for no answer but yes or no. These arguments are compared at 64 bits:
	// the kernel reads so many of a pointer, and what stands above a process's number
	// makes it none of libc's calls.
	const all = ^uint64(0)
	itself := on(0, all).is(on(3, all).is(done, 0).other(invalid), 0).other(invalid)
	add(on(2, all).is(allow, 0).other(within(1, maxRlimit, on(1, low32).is(itself, rlimitCore).other(allow))), "prlimit64")
	// PER_LINUX and PER_LINUX32, each with UNAME26, and the query, which is all bits.
	// The personalities of other systems get DefaultErrno.
	add(on(0, low32).is(allow, low32).other(on(0, 1<<31|personalityFlags).
		is(on(0, low32).is(allow, 0, 8, uname26, uname26|8), 0).other(on(0, 1<<31).is(refused, 0))), "personality")
	// The kernel's code for data out of band on unix sockets was a way out of
	// sandboxes (CVE-2025-38236), and few programs send any at all.
	add(without(2, msgOOB, noSupport), "sendmsg")
	add(without(3, msgOOB, noSupport), "sendto", "sendmmsg")
	// TLS in the kernel, and what else a connection can be handed to, as if the
	// module were not there. In these bits no other level that a socket here has
	// is the same, and no other option.
	add(on(1, 0xf).is(on(2, 0x1f).is(absent, tcpULP).other(allow), solTCP).other(allow), "setsockopt")
	add(within(0, maxFamily, on(0, low32).is(allow, afUnix).other(noFamily)), "socketpair")
	// What reaches other programs here and the network that the sandbox has. Other
	// families, raw and packet sockets, and protocols whose modules the kernel would
	// load on demand stay out of reach.
	protocol := within(2, maxProtocol, on(2, low32).is(allow, protoIP, protoICMP, protoTCP, protoUDP, protoICMPv6).other(noProtocol))
	add(within(0, maxFamily, on(0, low32).is(allow, afUnix).
		is(on(1, sockTypeMask).is(protocol, sockStream, sockDgram).other(noProtocol), afInet, afInet6).
		is(within(2, maxNetlink, on(2, low32).is(allow, netlinkRoute).other(noFamily)), afNetlink).other(noFamily)), "socket")
	return rules
}

// nodes lets regular files, FIFOs and sockets be made.
func nodes(arg uint) *Node {
	return on(arg, setID).is(on(arg, fileType).is(allow, 0, 0o010000, 0o100000, 0o140000).other(refused), 0).other(refused)
}

// Requests of ioctl(2) by their type and number, which are the low 16 bits; what
// stands above says only how long the argument is and which way it goes.
const (
	terminal                                  = 0x5400 // asm-generic/ioctls.h
	tiocSTI, tiocLinux, tiocCons, tiocSetLine = 0x12, 0x1c, 0x1d, 0x23

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
func requests() *Node {
	const arg, number = 1, 0xff
	return on(arg, typeOf).
		is(on(arg, number).is(refused, tiocSTI, tiocLinux, tiocCons, tiocSetLine).other(allow), terminal).
		is(on(arg, number).is(allow, getFlags, fieMap).other(refused), fileFlags).
		is(on(arg, number).is(allow, clone, cloneRange, getLabel, dedupe).other(refused), btrfs).
		is(refused, bcachefs).other(allow)
}

// A Path is one way through a tree: the answer where all conditions hold. Paths are
// disjoint; where none holds the answer is [DefaultErrno].
type Path struct {
	Errno uint32
	Conds []Cond
}

// A Cond holds if the argument, masked, is Value, or, where Differs is set, is not.
type Cond struct {
	Arg         uint
	Mask, Value uint64
	Differs     bool // of all 64 bits: libseccomp has no masked form of that
}

// Paths returns the ways through a tree, with one condition on an argument at most.
func (n *Node) Paths() (list []Path) {
	if n.Cases == nil {
		if n.Errno == DefaultErrno {
			return nil
		}
		return []Path{{Errno: n.Errno}}
	}
	under := func(c Cond, to *Node) {
		for _, p := range to.Paths() {
			if p, possible := p.under(c); possible {
				list = append(list, p)
			}
		}
	}
	var values []uint64
	for _, c := range n.Cases {
		under(Cond{n.Arg, n.Mask, c.Value, false}, c.Then)
		values = append(values, c.Value)
	}
	if n.Mask == ^uint64(0) {
		under(Cond{n.Arg, n.Mask, 0, true}, n.Else)
		return list
	}
	for _, c := range complement(n.Arg, bits(n.Mask), 0, 0, values) {
		under(c, n.Else)
	}
	return list
}

// under returns a path that is taken where a condition holds as well.
func (p Path) under(c Cond) (path Path, possible bool) {
	i := slices.IndexFunc(p.Conds, func(d Cond) bool { return d.Arg == c.Arg })
	if i < 0 {
		return Path{p.Errno, append([]Cond{c}, p.Conds...)}, true
	}
	d := p.Conds[i]
	if c.Differs || d.Differs {
		panic("BUG: a tree asks again for what differs")
	}
	p.Conds = slices.Clone(p.Conds)
	p.Conds[i] = Cond{Arg: c.Arg, Mask: c.Mask | d.Mask, Value: c.Value | d.Value}
	return p, (c.Value^d.Value)&c.Mask&d.Mask == 0
}

// complement returns conditions that are disjoint and hold, together, for exactly the
// arguments that have none of the values in some bits: one condition for each prefix of
// bits at which the values part from all the rest. prefix are the bits that are decided.
func complement(arg uint, bits []uint64, prefix, value uint64, values []uint64) []Cond {
	if len(values) == 0 {
		return []Cond{{Arg: arg, Mask: prefix, Value: value}}
	}
	if len(bits) == 0 {
		return nil
	}
	rest, bit := bits[:len(bits)-1], bits[len(bits)-1]
	var zero, one []uint64
	for _, v := range values {
		if v&bit == 0 {
			zero = append(zero, v)
		} else {
			one = append(one, v)
		}
	}
	return append(complement(arg, rest, prefix|bit, value, zero), complement(arg, rest, prefix|bit, value|bit, one)...)
}

// bits returns the bits of a mask, the lowest first.
func bits(mask uint64) (list []uint64) {
	for ; mask != 0; mask &= mask - 1 {
		list = append(list, mask&-mask)
	}
	return list
}
