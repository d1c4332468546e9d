// Package inside is pccrun as the first process of a place that another engine
// made: a container, a micro-VM. It is pid 1 there, is given a plan over its
// standard input, applies what of the policy the place lets it apply, starts the
// command, and carries the command's streams and connections to the launcher.
//
//	launcher                                  inside (pid 1)
//	   ◀── stream Control: Hello ──────────────  it is there, not dumpable, nothing was read
//	   ─── Plan ──────────────────────────────▶
//	   ◀── Ready (what the trial found) ────────  mounts compared, files made, listeners open
//	   ─── Go ────────────────────────────────▶
//	   ◀── streams Stdin, Stdout, Stderr or Terminal
//	   ◀── Started, or Failed
//	   ─── Signal, Size ──────────────────────▶
//	   ─── Exec ──────────────────────────────▶ another command; answered by streams Executed, and Exec
//	   ─── streams Reached ───────────────────▶ to servers of the command's
//	   ◀── streams Connection and Questions, of what the command connects to and asks for
//	   ◀── Ended
//	   ─── closes the session ────────────────▶
//
// All streams but those of kind [Reached] are opened from inside, each with one byte that says its kind, and
// all of them share one connection (yamux). The promises: the command starts only
// if each step was carried out; nothing of the plan stands in the container's
// description; when the connection ends, however that came, all inside ends. The
// launcher takes nothing that comes over the connection for more than a request.
package inside

import (
	"encoding/base64"
	"encoding/binary"
	"io"
	"net/netip"
	"time"

	"github.com/hashicorp/yamux"
)

// Kind is the first byte of a stream.
type Kind byte

// The kinds of streams.
const (
	Control    Kind = 'c' // messages in both directions, JSON
	Stdin      Kind = 'i'
	Stdout     Kind = 'o'
	Stderr     Kind = 'e'
	Terminal   Kind = 't' // of a pseudo-terminal, both directions
	Connection Kind = 'p' // to the proxy or to one of [Names]; the address follows, and the port
	Questions  Kind = 'q' // packets to and from clients of the name server: see [Packet]
	Executed   Kind = 'x' // a stream of another command, whose number follows, and its kind
	Reached    Kind = 'r' // opened by the launcher: to a port of the loopback, which follows; answered by a byte once it is there
)

// Verb is the hidden verb of the program that is pid 1, and Stage what it calls
// itself with to become the command.
const (
	Verb  = "inside"
	Stage = "--command"
)

// Plan is what the launcher sends. It holds secrets: it is printed nowhere.
type Plan struct {
	Paths []Text // files that are tried in their order; none: Argv[0] is looked for in the PATH of Env
	Argv  []Text
	Env   []Text
	Dir   Text
	Umask int
	Stdin bool // else it is /dev/null

	Screen

	Canary   string   // the file whose content Ready returns, and which is empty when all should end; "" for none
	Share    *Share   // nil: the container's kernel is the launcher's
	Mounts   []Mount  // compared before anything else is done
	Files    []File   // made in private directories, in this order
	Writable []string // what Landlock lets be written: all else it refuses
	Filter   []byte   // seccomp, as package seccomp makes them
	Floor    []byte
	Rlimits  []Rlimit

	Ports

	Bare *Bare // nil: namespaces surround the command

	Deadline, Grace time.Duration // 0 for none
}

// Ports are those at which the two sides meet.
type Ports struct {
	Listen  []uint16 // of the loopback, that lead to the launcher
	Reach   []uint16 // of the loopback, that the launcher may connect to
	Capture []uint16 // of all addresses of [Names] that lead to the launcher; with a name server at port 53
}

// Screen is the command's terminal, if it has one.
type Screen struct {
	Terminal      bool
	Columns, Rows int
}

// Bare is what a command has in place of namespaces where nobody can make one: filters, Landlock, an
// environment and limits stay. It starts as another user where the spool is root.
type Bare struct {
	Sockets []byte // the filter whose supervisor makes its sockets; none where the kernel has none
	Port    uint16 // of the loopback, the only one that can be connected to; 0 for none
}

// Names is where names have addresses in a place without routes: all of 127.0.0.0/8 is
// the loopback's own (RFC 1122), and nobody needs a right for that.
var Names = netip.MustParsePrefix("127.64.0.0/16")

// appendAddress appends an address of IPv4 and a port, as [ReadAddress] reads them.
func appendAddress(b []byte, at netip.AddrPort) []byte {
	four := at.Addr().Unmap().As4()
	return binary.BigEndian.AppendUint16(append(b, four[:]...), at.Port())
}

// ReadAddress reads an address of IPv4 and a port.
func ReadAddress(r io.Reader) (at netip.AddrPort, err error) {
	var text [6]byte
	_, err = io.ReadFull(r, text[:])
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte(text[:4])), binary.BigEndian.Uint16(text[4:])), err
}

// WritePacket writes a packet and whose it is, as the stream [Questions] carries them:
// address, port and length, and the text.
func WritePacket(w io.Writer, at netip.AddrPort, text []byte) error {
	b := binary.BigEndian.AppendUint16(appendAddress(nil, at), uint16(len(text)))
	_, err := w.Write(append(b, text...))
	return err
}

// ReadPacket reads what [WritePacket] has written.
func ReadPacket(r io.Reader) (at netip.AddrPort, text []byte, err error) {
	var length [2]byte
	if at, err = ReadAddress(r); err == nil {
		_, err = io.ReadFull(r, length[:])
	}
	if err != nil {
		return at, nil, err
	}
	text = make([]byte, binary.BigEndian.Uint16(length[:]))
	_, err = io.ReadFull(r, text)
	return at, text, err
}

// Text is any bytes: JSON would change a string that is not UTF-8.
type Text string

// MarshalText is base64.
func (t Text) MarshalText() ([]byte, error) {
	return base64.StdEncoding.AppendEncode(nil, []byte(t)), nil
}

// UnmarshalText undoes it.
func (t *Text) UnmarshalText(b []byte) error {
	text, err := base64.StdEncoding.AppendDecode(nil, b)
	*t = Text(text)
	return err
}

// Texts converts a list.
func Texts(list []string) []Text {
	texts := make([]Text, len(list))
	for i, s := range list {
		texts[i] = Text(s)
	}
	return texts
}

// A Share says how a virtual machine shows the files of the launcher's machine: by the canary, which
// is one of them.
type Share struct {
	Ino uint64 // of the canary, there; other numbers are compared only if it has the same here
}

// A Mount is what must stand at a path.
type Mount struct {
	Path     string
	Dev, Ino uint64 // 0: not compared
	Bound    bool   // a file of the launcher's machine: with Share, of no file system but the canary's kind
	Birth    int64  // when the file was made, in nanoseconds; 0: not compared
	ReadOnly bool
	Optional bool // nothing is there to be covered any more: that is fine
}

// A File is a link, a directory or a text in a private directory.
type File struct {
	Path, Link, Text string
	Dir              bool
}

// Rlimit is one setrlimit(2) of the command.
type Rlimit struct {
	Resource   int
	Soft, Hard uint64
}

// Message is what either side says on Control: one of its fields is set.
type Message struct {
	Hello   *Hello  `json:",omitempty"`
	Plan    *Plan   `json:",omitempty"`
	Ready   *Ready  `json:",omitempty"`
	Go      bool    `json:",omitempty"`
	Started bool    `json:",omitempty"`
	Failed  *Failed `json:",omitempty"`
	Signal  int     `json:",omitempty"`
	Size    *[2]int `json:",omitempty"` // columns, rows
	Ended   *Ended  `json:",omitempty"`
	Exec    *Exec   `json:",omitempty"`

	// Of a place elsewhere.
	Remote  *Remote `json:",omitempty"`
	Trial   *Trial  `json:",omitempty"`
	Secrets []Text  `json:",omitempty"` // with Go: in the place of [Remote.Secrets]
	Event   Event   `json:",omitempty"`
	Done    *Done   `json:",omitempty"`

	Question *Question `json:",omitempty"`
	Answer   *Answer   `json:",omitempty"`
}

// Hello is the first message.
type Hello struct{ Version int }

// Version is that of the protocol. Both sides are the same file, or pccrun for another system beside
// pccrun for Linux: what a side does not know of it refuses.
const Version = 5

// Ready says what the place let be applied.
type Ready struct {
	Canary   string // content of [Plan.Canary]
	Kernel   string // uname(2): release
	Landlock int    // ABI version, 0 for none
	Filter   bool   // seccomp filters can be loaded
	UID      int    // of pid 1
	Caps     uint64 // capabilities that it has, which should be none
}

// Failed says why the command was not started.
type Failed struct {
	Step  string // what was done
	Errno int    // 0 where no system call failed
	Text  string
	Exec  bool // execve(2) was what failed
}

// Ended says how the command ended.
type Ended struct {
	Code, Signal int
	TimedOut     bool
	User, System time.Duration
	Survivors    []string // what ran on and was killed, by name
}

// Exec is about another command, by its number: one that starts, with Argv; a signal or a size for
// its terminal; or from inside how it ended.
type Exec struct {
	Number      int // 1 to 255
	Argv, Paths []Text
	Screen
	Signal int
	Ended  *Ended
	Failed *Failed
}

// Config is the multiplexer's on both sides. Nobody is taken for dead because he
// is slow: a launcher that is stopped comes back, and one that is gone closes the
// connection.
func Config() *yamux.Config {
	c := yamux.DefaultConfig()
	c.EnableKeepAlive = false
	c.ConnectionWriteTimeout = 100 * 365 * 24 * time.Hour // for a reader who takes his time
	c.StreamOpenTimeout = 0
	c.StreamCloseTimeout = 24 * time.Hour // for a client that has said all and waits for a long answer
	c.MaxStreamWindowSize = 1 << 20
	c.LogOutput = io.Discard
	return c
}
