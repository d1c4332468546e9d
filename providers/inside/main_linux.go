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
	"strings"
	"sync"
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
	case len(args) > 0:
		return complain("inside", errors.New("no arguments are taken"))
	case os.Getpid() != 1:
		return complain("inside", errors.New("this is for the first process of a container, which pccrun starts"))
	}
	// Handled, they are the default's again in the command: what is ignored would stay so.
	signal.Notify(make(chan os.Signal, 1), unix.SIGTTOU, unix.SIGTTIN, unix.SIGTSTP, unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGTERM, unix.SIGPIPE)
	return serve(stdio{})
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

	mu      sync.Mutex
	out     *json.Encoder
	group   int  // of the command's processes; 0 before it is started
	expired bool // the wall time is up
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
	p.say(Message{Hello: &Hello{Version}})
	var m Message
	if err := in.Decode(&m); err != nil || m.Plan == nil {
		return complain("read the plan", err)
	}
	p.plan = m.Plan
	ready, step, err := p.prepare()
	if err != nil {
		return p.refuse(step, err, false)
	}
	p.say(Message{Ready: ready})
	if err := in.Decode(&m); err != nil || !m.Go {
		return failed // the launcher wants no more of it
	}
	done, step, err := p.start()
	if err != nil {
		var exec *execError
		return p.refuse(step, err, errors.As(err, &exec))
	}
	p.say(Message{Started: true})
	go p.obey(in)
	go func() {
		<-session.CloseChan() // the launcher is gone, and with it all else
		os.Exit(failed)
	}()
	p.say(Message{Ended: done()})
	select { // until the launcher has all of it
	case <-session.CloseChan():
	case <-time.After(time.Minute):
	}
	return 0
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
	}
	if err := compare(p.plan.Mounts); err != nil {
		return nil, "compare the mounts", err
	}
	for _, f := range p.plan.Files {
		if err := f.make(); err != nil {
			return nil, "make " + f.Path, err
		}
	}
	for _, port := range p.plan.Listen {
		l, err := net.Listen("tcp4", net.JoinHostPort("127.0.0.1", strconv.Itoa(int(port))))
		if err != nil {
			return nil, "listen on port " + strconv.Itoa(int(port)), err
		}
		go p.carry(l, port)
	}
	if p.plan.Terminal {
		if p.master, p.slave, err = openTerminal(p.plan.Columns, p.plan.Rows); err != nil {
			return nil, "open a terminal", err
		}
	}
	return r, "", nil
}

func (f *File) make() error {
	switch {
	case f.Dir:
		if err := os.MkdirAll(f.Path, 0o755); err != nil {
			return err
		}
		return nil
	case f.Link != "":
		return os.Symlink(f.Link, f.Path)
	}
	return os.WriteFile(f.Path, []byte(f.Text), 0o600)
}

// compare holds what stands at each path against the survey: the engine follows
// links on the way, as root, and the survey looked at what they led to a moment ago.
func compare(mounts []Mount) error {
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	table := readOnly(string(text))
	for _, m := range mounts {
		var st unix.Stat_t
		if err := unix.Lstat(m.Path, &st); err != nil {
			return &os.PathError{Op: "lstat", Path: m.Path, Err: err}
		}
		dev := uint64(unix.Major(st.Dev))<<32 | uint64(unix.Minor(st.Dev))
		if m.Ino != 0 && (m.Dev != dev || m.Ino != st.Ino) {
			return fmt.Errorf("%s: another file than the survey saw", m.Path)
		}
		switch ro, is := table[m.Path]; {
		case !is:
			return fmt.Errorf("%s: nothing is mounted there", m.Path)
		case m.ReadOnly && !ro:
			return fmt.Errorf("%s: mounted writable, and not read-only", m.Path)
		}
	}
	return nil
}

// readOnly returns for each mount point of a mountinfo whether its topmost mount is
// read-only, proc_pid_mountinfo(5).
func readOnly(mountinfo string) map[string]bool {
	table := map[string]bool{}
	for line := range strings.Lines(mountinfo) {
		fields := strings.Fields(line)
		if len(fields) < 6 {
			continue
		}
		ro := false
		for option := range strings.SplitSeq(fields[5], ",") {
			ro = ro || option == "ro"
		}
		table[unescape(fields[4])] = ro
	}
	return table
}

// unescape undoes the kernel's \040 and its like.
func unescape(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) {
			if n, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				b.WriteByte(byte(n))
				i += 3
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
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
		_, _ = io.Copy(s, c)
		_ = s.Close() // of the stream's own direction alone
	}()
	_, _ = io.Copy(c, s)
	_ = c.CloseWrite()
	<-up
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
