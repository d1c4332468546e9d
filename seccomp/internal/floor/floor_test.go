// Package floor writes the filter that stands below every other: a deny list,
// made by hand, of what nothing inside a sandbox may call, whatever the policy's
// own filter says.
//
// It promises to be made without anything that the other filters are made with:
// neither libseccomp, nor the compiler of package seccomp, nor its table of
// numbers, nor the rules of the built-in filters. A mistake in one of them
// leaves the floor, and one here leaves them. What it shares is the kernel's
// mechanism, seccomp(2).
//
// What it refuses, the default filter refuses too, with the same errno: tests
// hold the one against the other. What it does not name it lets through.
package floor

import (
	"cmp"
	"encoding/binary"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write the built-in floors anew")

// The embedded floors are what is written here.
func TestFloorIsWhatIsWritten(t *testing.T) {
	for _, kind := range []Kind{Floor, Nested} {
		for _, goarch := range []string{"amd64", "arm64"} {
			b, err := Write(kind, goarch)
			require.NoError(t, err)
			file := filepath.Join("../../builtin", string(kind)+"."+goarch+".bpf")
			if *update {
				require.NoError(t, os.WriteFile(file, b, 0o644))
			}
			embedded, err := os.ReadFile(file)
			require.NoError(t, err)
			require.Equal(t, embedded, b, "go generate ./seccomp")
		}
	}
	_, err := Write(Floor, "mips")
	require.EqualError(t, err, `floor: architecture "mips": want amd64 or arm64`)
}

// A Kind is one of the two floors.
type Kind string

// The kinds. Nested lets payloads build sandboxes of their own.
const (
	Floor  Kind = "floor"
	Nested Kind = "floor-nested"
)

// machines are the ABIs of a kernel, as audit words of linux/audit.h with the
// column of their numbers. x32 has the word of x86_64 and numbers from 2^30 on.
var machines = map[string][]struct {
	word   uint32
	column int
}{
	"amd64": {{0xc000003e, 0}, {0x40000003, 1}},
	"arm64": {{0xc00000b7, 2}},
}

// newer is the first number that nobody has looked at: all from there on are
// refused, and with them those of x32.
const newer = 450

// noCall is the number of a call that a tracer skips: nothing runs, and the result is the tracer's.
const noCall = 1<<32 - 1

// SECCOMP_RET_* of linux/seccomp.h, the errno to be added.
const (
	retAllow = 0x7fff0000
	retErrno = 0x00050000
	enosys   = 38
)

// answers end the program, each under its name.
var answers = []struct {
	name  string
	value uint32
}{
	{"allow", retAllow}, {"done", retErrno}, {"EPERM", retErrno + 1}, {"EINVAL", retErrno + 22}, {"ENOSYS", retErrno + enosys},
	{"ENOENT", retErrno + 2}, {"EPROTONOSUPPORT", retErrno + 93}, {"EOPNOTSUPP", retErrno + 95}, {"EAFNOSUPPORT", retErrno + 97},
}

// Write returns the filter for a Go architecture, in the form that seccomp(2)
// takes on it.
func Write(kind Kind, goarch string) ([]byte, error) {
	abis := machines[goarch]
	if abis == nil {
		return nil, fmt.Errorf("floor: architecture %q: want amd64 or arm64", goarch)
	}
	w := &writer{labels: map[string][]int{}}
	w.load(offsetArch)
	for _, abi := range abis {
		w.jump(jumpEqual, abi.word, fmt.Sprint(abi.column), "")
	}
	w.answer(retErrno + enosys) // an architecture that no filter here knows
	for _, abi := range slices.Backward(abis) {
		w.label(fmt.Sprint(abi.column))
		w.load(offsetNr)
		w.search(spans(kind, abi.column))
	}
	w.answers() // a jump reaches no further than 255
	checks(w)
	w.answers()
	return w.bytes()
}

// A span is a run of numbers, up to where the next begins, that go to one place
// of the program.
type span struct {
	first uint32
	to    string
}

// spans are all numbers of an ABI, in order.
func spans(kind Kind, column int) []span {
	places := map[uint32]string{}
	put := func(to string, calls ...call) {
		for _, c := range calls {
			if nr := c.numbers[column]; nr >= 0 {
				places[uint32(nr)] = to
			}
		}
	}
	put("EPERM", never...)
	put("ENOSYS", unknown...)
	for check, calls := range checked {
		put(check, calls...)
	}
	if kind == Floor {
		put("EPERM", building...)
		put("ENOSYS", clone3)
		put("namespaces", clone)
		put("namespaces, of time too", unshare)
	}
	list := []span{{0, "allow"}}
	for nr := uint32(0); nr < newer; nr++ {
		if to := cmp.Or(places[nr], "allow"); to != list[len(list)-1].to {
			list = append(list, span{nr, to})
		}
	}
	return append(list, span{newer, "ENOSYS"}, span{noCall, "allow"})
}

// Numbers of the kernel's headers.
const (
	cloneNew     = 0x7e020000 // CLONE_NEW*, linux/sched.h
	cloneNewTime = 0x80       // for unshare; in clone a bit of the exit signal
	makes        = 0o20000100 // O_CREAT, and what O_TMPFILE adds to O_DIRECTORY
	setID        = 0o6000     // S_ISUID, S_ISGID
	fileType     = 0o170000
	charNode     = 0o020000
	blockNode    = 0o060000
)

// checks writes what looks at arguments: at the 32 bits that the kernel reads.
func checks(w *writer) {
	w.label("namespaces")
	w.load(argument(0))
	w.jump(jumpAny, cloneNew, "EPERM", "allow")
	w.label("namespaces, of time too")
	w.load(argument(0))
	w.jump(jumpAny, cloneNew|cloneNewTime, "EPERM", "allow")

	for _, arg := range []int{1, 2} {
		// A mode that sets user or group makes a program of the file's owner. Open
		// reads its mode only where it makes a file.
		w.label(fmt.Sprintf("flags in argument %d", arg))
		w.load(argument(arg))
		w.jump(jumpAny, makes, "", "allow")
		w.load(argument(arg + 1))
		w.jump(jumpAny, setID, "EPERM", "allow")
		w.label(fmt.Sprintf("node in argument %d", arg))
		w.load(argument(arg))
		w.jump(jumpAny, setID, "EPERM", "")
		w.mask(fileType)
		w.jump(jumpEqual, charNode, "EPERM", "")
		w.jump(jumpEqual, blockNode, "EPERM", "allow")
		w.label(fmt.Sprintf("mode in argument %d", arg))
		w.load(argument(arg))
		w.jump(jumpAny, setID, "EPERM", "allow")
	}

	// What types into a terminal, takes its output, or loads a line discipline; and
	// what makes a file system show more than the mounts do, or less than there is.
	w.label("request")
	w.load(argument(1))
	w.mask(0xffff)                                       // type and number
	w.oneOf("EPERM", "", 0x5412, 0x541c, 0x541d, 0x5423) // TIOCSTI, TIOCLINUX, TIOCCONS, TIOCSETD
	w.oneOf("allow", "", 0x6601, 0x660b)                 // FS_IOC_GETFLAGS, FS_IOC_FIEMAP
	w.oneOf("allow", "", 0x9409, 0x940d, 0x9431, 0x9436) // FICLONE, FICLONERANGE, FS_IOC_GETFSLABEL, FIDEDUPERANGE
	w.mask(0xff00)
	w.oneOf("EPERM", "allow", 0x6600, 0x9400, 0xbc00) // of files and their keys, of btrfs, of bcachefs

	for _, arg := range []int{2, 3} {
		w.label(fmt.Sprintf("message flags in argument %d", arg))
		w.load(argument(arg))
		w.jump(jumpAny, 1, "EOPNOTSUPP", "allow") // MSG_OOB
	}
	w.label("socket option")
	w.load(argument(1))
	w.mask(0xf)
	w.jump(jumpEqual, 6, "", "allow") // SOL_TCP
	w.load(argument(2))
	w.mask(0x1f)
	w.jump(jumpEqual, 31, "ENOENT", "allow") // TCP_ULP

	w.label("lease") // whoever holds one stalls those who open the file, on the host too
	w.load(argument(1))
	w.oneOf("EPERM", "allow", 1024, 1040) // F_SETLEASE, F_SETDELEG

	// RLIMIT_CORE stays at the one byte that keeps the host's handler from being fed. It
	// is said to be set where C libraries' setrlimit asks, which sanitizers give up after.
	const core = 4
	w.label("core limit")
	w.load(argument(0))
	w.jump(jumpEqual, core, "done", "allow")
	w.label("new core limit")
	w.load(argument(1))
	w.jump(jumpEqual, core, "", "allow")
	w.load(argument(2)) // a null pointer only asks
	w.jump(jumpEqual, 0, "", "sets core limit")
	w.load(argument(2) + 4)
	w.jump(jumpEqual, 0, "allow", "")
	w.label("sets core limit")
	for _, half := range []uint32{argument(0), argument(0) + 4, argument(3)} { // of the process itself, without the old one
		w.load(half)
		w.jump(jumpEqual, 0, "", "EINVAL")
	}
	w.load(argument(3) + 4)
	w.jump(jumpEqual, 0, "done", "EINVAL")

	w.label("personality") // PER_LINUX, PER_LINUX32, each with UNAME26, and the query
	w.load(argument(0))
	w.oneOf("allow", "", 0, 8, 0x20000, 0x20008, 0xffffffff)
	w.jump(jumpAny, 1<<31, "ENOSYS", "")
	w.jump(jumpAny, 0xffc0000, "EPERM", "ENOSYS") // every other flag; else the personality of another system

	const unix, inet, inet6, netlink = 1, 2, 10, 16
	w.label("family")
	w.load(argument(0))
	w.jump(jumpEqual, unix, "allow", "")
	w.jump(jumpEqual, inet, "protocol", "")
	w.jump(jumpEqual, inet6, "protocol", "")
	w.jump(jumpEqual, netlink, "", "EAFNOSUPPORT")
	w.load(argument(2))
	w.jump(jumpEqual, 0, "allow", "EAFNOSUPPORT") // NETLINK_ROUTE
	w.label("protocol")
	w.load(argument(1))
	w.mask(0xf) // SOCK_NONBLOCK and SOCK_CLOEXEC stand above
	w.jump(jumpEqual, 1, "stream or datagram", "")
	w.jump(jumpEqual, 2, "", "EPROTONOSUPPORT")
	w.label("stream or datagram")
	w.load(argument(2))
	w.oneOf("allow", "EPROTONOSUPPORT", 0, 1, 6, 17, 58) // IP, ICMP, TCP, UDP, ICMPv6
	w.label("pair")
	w.load(argument(0))
	w.jump(jumpEqual, unix, "allow", "EAFNOSUPPORT")
}

// A writer puts a program down from its beginning; jumps name where they go:
// the next place of that name.
type writer struct {
	code   []instruction
	labels map[string][]int // where a name stands, in order
}

// An instruction is struct sock_filter of linux/filter.h, its jumps by name; ""
// is what follows.
type instruction struct {
	op      uint16
	k       uint32
	yes, no string
}

// Classic BPF, linux/bpf_common.h, and offsets in struct seccomp_data.
const (
	loadWord  = 0x20
	andWith   = 0x54
	jumpEqual = 0x15
	jumpAbove = 0x35 // or equal
	jumpAny   = 0x45 // of these bits
	returns   = 0x06

	offsetNr   = 0
	offsetArch = 4
)

// argument is the offset of the lower half of an argument.
func argument(n int) uint32 { return 16 + 8*uint32(n) }

func (w *writer) label(name string)  { w.labels[name] = append(w.labels[name], len(w.code)) }
func (w *writer) load(offset uint32) { w.code = append(w.code, instruction{op: loadWord, k: offset}) }
func (w *writer) mask(bits uint32)   { w.code = append(w.code, instruction{op: andWith, k: bits}) }
func (w *writer) answer(ret uint32)  { w.code = append(w.code, instruction{op: returns, k: ret}) }

// answers writes what ends the program.
func (w *writer) answers() {
	for _, a := range answers {
		w.label(a.name)
		w.answer(a.value)
	}
}

func (w *writer) jump(op uint16, k uint32, yes, no string) {
	w.code = append(w.code, instruction{op, k, yes, no})
}

// oneOf goes one way if the loaded word is one of some, else the other.
func (w *writer) oneOf(yes, no string, values ...uint32) {
	for _, v := range values[:len(values)-1] {
		w.jump(jumpEqual, v, yes, "")
	}
	w.jump(jumpEqual, values[len(values)-1], yes, no)
}

// search finds the span of the loaded number by halves.
func (w *writer) search(list []span) {
	mid := len(list) / 2
	low, high := list[:mid], list[mid:]
	yes, no := high[0].to, low[0].to
	at := len(w.code)
	w.jump(jumpAbove, high[0].first, yes, no)
	if len(low) > 1 {
		w.code[at].no = ""
		w.search(low)
	}
	if len(high) > 1 {
		w.code[at].yes = fmt.Sprintf("%d of %d", high[0].first, at)
		w.label(w.code[at].yes)
		w.search(high)
	}
}

// bytes puts distances in the place of names. A distance has eight bits.
func (w *writer) bytes() ([]byte, error) {
	b := make([]byte, 0, 8*len(w.code))
	for pc, i := range w.code {
		far := func(name string) (byte, error) {
			places := w.labels[name]
			if name == "" || i.op&7 != 5 {
				places = []int{pc + 1}
			}
			next, _ := slices.BinarySearch(places, pc+1)
			if next < len(places) && places[next]-pc-1 <= 255 {
				return byte(places[next] - pc - 1), nil
			}
			return 0, fmt.Errorf("floor: BUG: instruction %d: %q is not ahead, or too far: %d", pc, name, places)
		}
		yes, err := far(i.yes)
		if err != nil {
			return nil, err
		}
		no, err := far(i.no)
		if err != nil {
			return nil, err
		}
		b = binary.LittleEndian.AppendUint16(b, i.op) // both machines are little-endian
		b = append(b, yes, no)
		b = binary.LittleEndian.AppendUint32(b, i.k)
	}
	return b, nil
}
