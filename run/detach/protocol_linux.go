package detach

import (
	"encoding/json"
	"errors"
	"io/fs"
	"net"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/pccrun/pccrun/internal/sessions"
	"github.com/pccrun/pccrun/internal/state"
)

// The names in the directory of a session or a task.
const (
	socketName = sessions.TerminalName
	endName    = "detach.json" // how it ended
)

// A message goes from a terminal to the holder, or back. Of a connection the first is the holder's, with Greeting, and the
// second has Attach or Detach.
type message struct {
	Attach bool   `json:",omitempty"` // show me what is printed
	Detach bool   `json:",omitempty"` // let those go that are attached
	Size   [2]int `json:",omitzero"`  // of the terminal: columns, rows; with Attach: these are its keys from now on
	Keys   []byte `json:",omitempty"`

	Greeting *Greeting `json:",omitempty"`
	Output   []byte    `json:",omitempty"`
	End      *End      `json:",omitempty"`
}

// A Greeting says what a holder has.
type Greeting struct {
	Terminal bool // the run has one
}

// An End is why nothing more is shown.
type End struct {
	Over   bool   // the run has ended
	Status int    // with this one, as a shell reports it
	Why    string // else
	Gone   int    // how many were let go
}

// patience is how long somebody may take to read a message.
const patience = 5 * time.Second

// A conn is one side of a connection. Its methods may be called at the same time.
type conn struct {
	*net.UnixConn
	in      *json.Decoder
	sending sync.Mutex
	out     *json.Encoder
}

func newConn(c *net.UnixConn) *conn {
	return &conn{UnixConn: c, in: json.NewDecoder(c), out: json.NewEncoder(c)}
}

func (c *conn) send(m message) error {
	c.sending.Lock()
	defer c.sending.Unlock()
	_ = c.SetWriteDeadline(time.Now().Add(patience))
	return c.out.Encode(m)
}

func (c *conn) receive() (m message, err error) {
	err = c.in.Decode(&m)
	return m, err
}

// checkPeer refuses who is not a process of this user in this user namespace: a sandbox has another.
func checkPeer(c *net.UnixConn) error {
	peer, err := sessions.Peer(c)
	if err != nil {
		return err
	}
	if int(peer.Uid) != os.Getuid() {
		return errors.New("the run is of another user")
	}
	own, err := os.Stat("/proc/self/ns/user")
	if err != nil {
		return err
	}
	if its, err := os.Stat("/proc/" + strconv.Itoa(int(peer.Pid)) + "/ns/user"); err != nil || !os.SameFile(own, its) {
		return errors.New("the run is of another user namespace")
	}
	return nil
}

// Ended returns how the run of a directory ended; ok is false where no holder has noted it.
func Ended(dir *os.Root) (end End, ok bool) {
	text, err := state.ReadFile(dir, endName, 1<<16)
	return end, err == nil && json.Unmarshal(text, &end) == nil
}

// Screen returns the end of what a run has printed that has ended.
func Screen(dir *os.Root) ([]byte, error) {
	text, err := state.ReadFile(dir, sessions.ScreenName, 4*keepSize)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return text, err
}
