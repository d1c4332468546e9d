package attach

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/internal/sessions"
	"github.com/pccrun/pccrun/providers"
)

// socketName is the launcher's socket, in the session's directory.
const socketName = "launcher"

// A request is what is asked of the launcher. The first of a connection has Argv, and comes with the
// command's ends of its pipes: two where it is to have a terminal, else three.
type request struct {
	Argv   [][]byte `json:",omitempty"` // nil: what does the run use?
	Size   [2]int   `json:",omitzero"`  // of the terminal: columns, rows
	Signal int      `json:",omitempty"`
}

// An Answer is how the command ended, or what the run uses, if Failed is nil.
type Answer struct {
	providers.Result
	Failed *Failure `json:",omitempty"`
}

// A Failure is why there is no result.
type Failure struct {
	Text string
	Help string // printed as a hint
	Code int    // the exit status that says so
}

func (f *Failure) Error() string { return f.Text }

// Hint says what mends it, "" if nothing is known.
func (f *Failure) Hint() string { return f.Help }

// A Handler is a run that goes on. Its errors are for [Failure].
type Handler interface {
	// Exec runs another command, as [providers.Executor] has it.
	Exec(ctx context.Context, argv []string, stdio providers.Stdio) (providers.Result, error)
	Usage(ctx context.Context) (providers.Result, error)
	Failure(err error) *Failure
}

// A Server is the launcher's side. The zero value listens to nobody.
type Server struct {
	mu       sync.Mutex
	closed   bool
	listener *net.UnixListener
	dir      *os.File
	cancel   context.CancelFunc
	calls    sync.WaitGroup
}

// Listen answers the processes of a user, unless the server is closed already. open returns the session's directory.
func (s *Server) Listen(open func() (*os.Root, error), uid int, h Handler) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	root, err := open()
	if err != nil {
		return err
	}
	if s.dir, err = root.Open("."); err != nil {
		return err
	}
	if s.listener, err = net.ListenUnix("unix", sessions.SocketIn(s.dir, socketName)); err != nil {
		s.dir.Close()
		return err
	}
	s.listener.SetUnlinkOnClose(false) // the path is not valid any more when the descriptor is closed
	ctx, cancel := context.WithCancel(context.Background())
	s.cancel = cancel
	go func() {
		for {
			conn, err := s.listener.AcceptUnix()
			if err != nil {
				return
			}
			s.mu.Lock()
			if s.closed {
				conn.Close()
			} else {
				s.calls.Go(func() { answer(ctx, conn, uid, h) })
			}
			s.mu.Unlock()
		}
	}()
	return nil
}

// lastAnswer is how long an answer may take to be read, and [Server.Close] waits for all of them.
const lastAnswer = time.Second

// Close ends the commands and the listening. Who waits for a command gets its end.
func (s *Server) Close() {
	s.mu.Lock()
	s.closed = true
	listener := s.listener
	s.mu.Unlock()
	if listener == nil {
		return
	}
	listener.Close()
	s.cancel()
	answered := make(chan struct{})
	go func() {
		s.calls.Wait()
		close(answered)
	}()
	select {
	case <-answered:
	case <-time.After(lastAnswer):
	}
	_ = unix.Unlinkat(int(s.dir.Fd()), socketName, 0)
	s.dir.Close()
}

// answer answers one connection.
func answer(ctx context.Context, conn *net.UnixConn, uid int, h Handler) {
	defer conn.Close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(ctx, func() { _ = conn.SetReadDeadline(time.Now()) })()
	who, err := sessions.Peer(conn)
	if err == nil && int(who.Uid) != uid {
		err = errors.New("the session is of another user")
	}
	var a Answer
	var asked call
	if err == nil {
		if asked, err = receive(conn); errors.Is(err, io.EOF) {
			return
		}
	}
	defer asked.close()
	switch {
	case err != nil:
	case len(asked.Argv) == 0:
		a.Result, err = h.Usage(ctx)
	default:
		a.Result, err = asked.exec(ctx, cancel, h)
	}
	if err != nil {
		a = Answer{Failed: h.Failure(err)}
	}
	_ = conn.SetWriteDeadline(time.Now().Add(lastAnswer))
	_ = json.NewEncoder(conn).Encode(a)
}

// A call is the first request of a connection, with what comes after it.
type call struct {
	request
	more  *json.Decoder
	files []*os.File // ends of pipes: standard input, output and error
}

// receive reads the first request.
func receive(conn *net.UnixConn) (c call, err error) {
	text, control := make([]byte, 4096), make([]byte, unix.CmsgSpace(3*4))
	n, cn, _, _, err := conn.ReadMsgUnix(text, control) // close-on-exec
	if err != nil {
		return c, err
	}
	messages, err := unix.ParseSocketControlMessage(control[:cn])
	if err != nil {
		return c, err
	}
	for i := range messages {
		fds, err := unix.ParseUnixRights(&messages[i])
		if err != nil {
			return c, err
		}
		for _, fd := range fds {
			_ = unix.SetNonblock(fd, true) // for the runtime's poller
			c.files = append(c.files, os.NewFile(uintptr(fd), "pipe"))
		}
	}
	c.more = json.NewDecoder(io.MultiReader(bytes.NewReader(text[:n]), conn))
	if err = c.more.Decode(&c.request); err != nil {
		return c, err
	}
	if pipes := len(c.files); len(c.Argv) > 0 && pipes != 2 && pipes != 3 {
		return c, errors.New("exec: the command has no pipes")
	}
	return c, nil
}

func (c *call) close() {
	for _, f := range c.files {
		f.Close()
	}
}

// exec runs the command. Its end is also that of the other process.
func (c *call) exec(ctx context.Context, cancel func(), h Handler) (providers.Result, error) {
	signals, resized := make(chan int, 16), make(chan struct{}, 1)
	stdio := providers.Stdio{In: c.files[0], Out: c.files[1], Signals: signals}
	var size atomic.Pointer[[2]int]
	size.Store(&c.Size)
	if len(c.files) == 2 {
		stdio.Terminal = &providers.Terminal{Resized: resized, Size: func() (columns, rows int) {
			now := size.Load()
			return now[0], now[1]
		}}
	} else {
		stdio.Err = c.files[2]
	}
	argv := make([]string, len(c.Argv))
	for i, arg := range c.Argv {
		argv[i] = string(arg)
	}
	go func() {
		defer cancel() // the other process is gone
		for {
			var more request
			if c.more.Decode(&more) != nil {
				return
			}
			if more.Signal != 0 {
				offer(signals, more.Signal)
			}
			if more.Size != [2]int{} {
				size.Store(&more.Size)
				offer(resized, struct{}{})
			}
		}
	}()
	return h.Exec(ctx, argv, stdio)
}

// offer sends what there is room for.
func offer[T any](to chan<- T, v T) {
	select {
	case to <- v:
	default:
	}
}
