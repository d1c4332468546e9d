package inside

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/signal"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/hashicorp/yamux"
	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/internal/egress"
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
		return serveSpool(args[1], len(args) > 2)
	case len(args) > 0 && args[0] == Reach: // where the provider has no daemon there is no address
		return printReached(args[1:])
	case len(args) > 0:
		return complain("inside", errors.New("no arguments are taken"))
	case os.Getpid() != 1:
		return complain("inside", errors.New("pccrun starts this verb as the first process of a container"))
	}
	dropTerminalSignals()
	return serve(stdio{})
}

// dropTerminalSignals has the signals that a terminal sends do nothing to this process. They are handled and
// not ignored: execve(2) gives a handled signal its default action again, so that the command has that, while
// an ignored one would stay ignored in the command.
func dropTerminalSignals() {
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

	tree   bool                // it is not pid 1: what descends from it is the command's
	egress *egress.Service     // where it starts a process of its own here; else nil
	as     *syscall.Credential // whom commands run as; nil: as this process

	mu       sync.Mutex
	out      *json.Encoder
	commands map[int]*command // by their numbers

	answers *json.Encoder // to a run that asks; nil where nobody is asked

	births sync.Mutex                     // held while a process is born, and its end is told
	waits  map[int]chan<- unix.WaitStatus // for the end of a command's process
	over   bool                           // the plan's command has ended
}

// serve carries out the plan that comes over a connection.
func serve(conn io.ReadWriteCloser) int {
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
	if err != nil {
		return p.refuse(step, err)
	}
	p.say(Message{Ready: ready})
	if err := in.Decode(&m); err != nil || !m.Go {
		return failed // the launcher wants no more of it
	}
	done, step, err := p.start()
	if err != nil {
		return p.refuse(step, err)
	}
	p.say(Message{Started: true})
	go p.reached()
	go p.followLauncher(in, func(sig unix.Signal) { p.signal(0, sig) }, p.begin)
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
func (p *place) refuse(step string, err error) int {
	p.say(Message{Failed: failure(step, err)})
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

// loopback is where the proxy of the environment is.
var loopback = netip.MustParsePrefix("127.0.0.1/32")

// prepare holds the place against the plan and makes what must stand before the
// command.
func (p *place) prepare() (r *Ready, step string, err error) {
	r = &Ready{UID: os.Getuid(), Landlock: Landlock(), Filter: loads(allowAll(), 0)}
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
	for _, port := range p.plan.Listen {
		l, err := listen("127.0.0.1", port)
		if err != nil {
			return nil, "listen on port " + strconv.Itoa(int(port)), err
		}
		go p.carry(l, loopback)
	}
	if len(p.plan.Capture) > 0 {
		if err := p.capture(); err != nil {
			return nil, "capture connections", err
		}
	}
	return r, "", nil
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

// followLauncher does what the launcher says while the command runs: signal is for the command, begin starts another.
func (p *place) followLauncher(in *json.Decoder, signal func(unix.Signal), begin starter) {
	for {
		var m Message
		if in.Decode(&m) != nil {
			return // the session's end is somebody else's part
		}
		switch {
		case m.Signal != 0:
			signal(unix.Signal(m.Signal))
		case m.Size != nil:
			p.resize(0, m.Size[0], m.Size[1])
		case m.Exec != nil:
			p.handleExec(m.Exec, begin)
		case m.Answer != nil && p.answers != nil:
			_ = p.answers.Encode(m.Answer) // a run that is over asks no more
		}
	}
}
