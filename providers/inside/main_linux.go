package inside

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/hashicorp/yamux"
	"golang.org/x/sys/unix"
)

// failed is the status of a launch that came to nothing; what was wrong has been told.
const failed = 125

// Main is `pccrun inside`, and returns the status to exit with.
func Main(args []string) int {
	// Before a byte is read: what this process holds is nobody else's to look at.
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return complain("prctl(PR_SET_DUMPABLE)", err)
	}
	switch {
	case len(args) == 1 && args[0] == Stage:
		return stage()
	case len(args) == 2 && args[0] == Attach:
		return attach(args[1], os.Stdin)
	case len(args) == 3 && args[0] == Attach:
		return attach(args[1], &lineFiles{dir: args[2]})
	case len(args) > 1 && args[0] == Serving:
		return serveElsewhere(args[1], len(args) > 2)
	case len(args) > 0 && args[0] == Reach: // where the provider has no daemon there is no address
		return reach(args[1:])
	case len(args) > 0 && (len(args) != 2 || args[0] != Shared && args[0] != Lent):
		return complain("inside", errors.New("no arguments are taken"))
	case os.Getpid() != 1:
		return complain("inside", errors.New("pccrun starts this verb as the first process of a container"))
	}
	deafen()
	if len(args) == 0 {
		return serve(stdio{}, nil)
	}
	if args[0] == Lent {
		if err := handMounts(args[1]); err != nil {
			return complain("hand the mount namespace to the launcher", err)
		}
		return serve(stdio{}, nil)
	}
	file, err := os.OpenFile(args[1], os.O_RDWR, 0)
	if err != nil {
		return complain("open the file that is shared with the launcher", err)
	}
	bulk := NewBulk(stdio{}, file, false)
	if err := bulk.Answer(); err != nil {
		return complain("use the file that is shared with the launcher", err)
	}
	return serve(bulk, bulk)
}

// deafen has signals of a terminal do nothing. Handled, they are the default's again in the command: what
// is ignored would stay so.
func deafen() {
	signal.Notify(
		make(chan os.Signal, 1),
		unix.SIGTTOU,
		unix.SIGTTIN,
		unix.SIGTSTP,
		unix.SIGHUP,
		unix.SIGINT,
		unix.SIGQUIT,
		unix.SIGTERM,
		unix.SIGPIPE,
	)
}

func complain(what string, err error) int {
	fmt.Fprintln(os.Stderr, "pccrun: "+what+": "+err.Error())
	return failed
}

// stdio is the connection to the launcher.
type stdio struct{}

func (stdio) Read(b []byte) (int, error)  { return os.Stdin.Read(b) }
func (stdio) Write(b []byte) (int, error) { return os.Stdout.Write(b) }
func (stdio) Close() error                { return errors.Join(os.Stdin.Close(), os.Stdout.Close()) }

// place is pid 1 at work.
type place struct {
	session *yamux.Session
	plan    *Plan
	master  *os.File // of the command's terminal
	slave   *os.File

	tree bool                // it is not pid 1: what descends from it is the command's
	as   *syscall.Credential // whom commands run as; nil: as this process

	mu     sync.Mutex
	out    *json.Encoder
	group  int // of the command's processes; 0 before it is started
	others map[int]*other

	births sync.Mutex                     // held while a process is born, and its end is told
	waits  map[int]chan<- unix.WaitStatus // for the end of another command's process
}

// serve carries out the plan that comes over a connection, bulk where that shares a file.
func serve(conn io.ReadWriteCloser, bulk *Bulk) int {
	session, err := yamux.Server(conn, Config())
	if err != nil {
		return complain("inside", err)
	}
	p := &place{session: session}
	control, err := p.open(Control)
	if err != nil {
		return complain("open the control stream", err)
	}
	p.out = json.NewEncoder(control)
	in := json.NewDecoder(control)
	in.DisallowUnknownFields() // a rule that this program does not know would not be kept
	p.say(Message{Hello: &Hello{Version}})
	var m Message
	if err := in.Decode(&m); err != nil || m.Plan == nil {
		return complain("read the plan", err)
	}
	p.plan = m.Plan
	ready, step, err := p.prepare()
	if bulk != nil && err == nil {
		step, err = "use the file that is shared with the launcher", bulk.Answer()
	}
	if err != nil {
		return p.refuse(step, err, false)
	}
	p.say(Message{Ready: ready})
	if err := in.Decode(&m); err != nil || !m.Go {
		return failed // the launcher wants no more of it
	}
	if bulk != nil {
		bulk.Use()
	}
	done, step, err := p.start()
	if err != nil {
		var exec *execError
		return p.refuse(step, err, errors.As(err, &exec))
	}
	p.say(Message{Started: true})
	go p.obey(in)
	ended := make(chan *Ended, 1)
	go func() { ended <- done() }()
	select {
	case end := <-ended:
		p.say(Message{Ended: end})
	case <-session.CloseChan(): // the launcher is gone, and with it all else
		return failed
	}
	select { // until the launcher has all of it
	case <-session.CloseChan():
	case <-time.After(time.Minute):
	}
	return 0
}

// endWith ends all when the launcher has emptied a file of its own: where an engine has
// crashed, nobody closes the connection.
func endWith(path string) {
	for range time.Tick(time.Second) {
		if info, err := os.Stat(path); err != nil || info.Size() == 0 {
			os.Exit(failed)
		}
	}
}

func (p *place) say(m Message) {
	p.mu.Lock()
	defer p.mu.Unlock()
	_ = p.out.Encode(m) // a launcher that is gone ends the session
}

// refuse tells why the command was not started.
func (p *place) refuse(step string, err error, exec bool) int {
	f := &Failed{Step: step, Text: err.Error(), Exec: exec}
	var errno unix.Errno
	if errors.As(err, &errno) {
		f.Errno = int(errno)
	}
	p.say(Message{Failed: f})
	select {
	case <-p.session.CloseChan():
	case <-time.After(time.Minute):
	}
	return failed
}

// open opens a stream.
func (p *place) open(kind Kind, more ...byte) (*yamux.Stream, error) {
	s, err := p.session.OpenStream()
	if err != nil {
		return nil, err
	}
	_, err = s.Write(append([]byte{byte(kind)}, more...))
	return s, err
}

// prepare holds the place against the plan and makes what must stand before the
// command.
func (p *place) prepare() (r *Ready, step string, err error) {
	r = &Ready{UID: os.Getuid(), Landlock: Landlock(), Filter: filters()}
	if r.Caps, err = capabilities(); err != nil {
		return nil, "read the capabilities", err
	}
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		return nil, "uname", err
	}
	r.Kernel = unix.ByteSliceToString(name.Release[:])
	if p.plan.Canary != "" {
		text, err := os.ReadFile(p.plan.Canary)
		if err != nil {
			return nil, "read the canary", err
		}
		r.Canary = string(text)
		go endWith(p.plan.Canary)
	}
	if err := p.plan.compare(); err != nil {
		return nil, "compare the mounts", err
	}
	for _, f := range p.plan.Files {
		if err := f.make(); err != nil {
			return nil, "make " + f.Path, err
		}
	}
	if p.plan.Socket != "" {
		if err := p.hand(); err != nil {
			return nil, "hand the listeners to the launcher", err
		}
		p.plan.Listen, p.plan.Capture = nil, nil
	}
	for _, port := range p.plan.Listen {
		l, err := listen("127.0.0.1", port)
		if err != nil {
			return nil, "listen on port " + strconv.Itoa(int(port)), err
		}
		go p.carry(l, port)
	}
	if len(p.plan.Capture) > 0 {
		if err := p.capture(); err != nil {
			return nil, "capture connections", err
		}
	}
	if p.plan.Terminal {
		if p.master, p.slave, err = openTerminal(p.plan.Columns, p.plan.Rows); err != nil {
			return nil, "open a terminal", err
		}
	}
	return r, "", nil
}

// carry carries each connection to a port to the launcher, who decides on it.
func (p *place) carry(l net.Listener, port uint16) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer c.Close()
			s, err := p.open(Connection, byte(port>>8), byte(port))
			if err != nil {
				return
			}
			defer s.Close()
			Join(c.(*net.TCPConn), s)
		}()
	}
}

// A half is a connection of which each direction can be closed.
type half interface {
	io.ReadWriter
	CloseWrite() error
}

// Join carries bytes between a connection and a stream until both directions are
// at their end.
func Join(c half, s *yamux.Stream) {
	up := make(chan struct{})
	go func() {
		defer close(up)
		carry(s, c)
		_ = s.Close() // of the stream's own direction alone
	}()
	carry(c, s)
	_ = c.CloseWrite()
	<-up
}

// carry is io.Copy, in larger pieces where there is much: a system call is dear in gVisor.
func carry(to io.Writer, from io.Reader) {
	b := make([]byte, 32<<10)
	for {
		n, err := from.Read(b)
		if n > 0 {
			if _, err := to.Write(b[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
		if n == len(b) && n < 256<<10 {
			b = make([]byte, 256<<10)
		}
	}
}

// obey does what the launcher says while the command runs.
func (p *place) obey(in *json.Decoder) {
	for {
		var m Message
		if in.Decode(&m) != nil {
			return // the session's end is somebody else's part
		}
		switch {
		case m.Signal != 0:
			p.signal(unix.Signal(m.Signal))
		case m.Size != nil && p.master != nil:
			resize(p.master, m.Size[0], m.Size[1])
		case m.Exec != nil:
			p.hear(m.Exec, p.begin)
		}
	}
}

// signal sends a signal to the command's process group; what has left it is ended
// with the command.
func (p *place) signal(sig unix.Signal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.group != 0 {
		_ = unix.Kill(-p.group, sig)
	}
}
