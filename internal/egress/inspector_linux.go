package egress

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/netproxy"
	"github.com/pccrun/pccrun/netproxy/inspect/wire"
)

// serving is the egress process, and what it serves.
type serving struct {
	conn    *net.UnixConn
	process *os.Process
	pid     atomic.Int64
	asking  chan struct{} // one for each question that is being answered

	mu      sync.Mutex
	next    uint64
	most    int // connections at once
	open    map[uint64]*netproxy.Handover
	dead    bool
	drained chan struct{} // closed when the last report was read
}

// maxAsking is how many questions are answered at once: as many as the process has requests,
// each with a dial.
const maxAsking = 2048

// run starts the process and returns the contents of the files that it made.
func (in *reader) run() (files []string, err error) {
	in.most, in.open, in.drained = maxServed(), map[uint64]*netproxy.Handover{}, make(chan struct{})
	in.dead, in.asking = false, make(chan struct{}, maxAsking)
	text, err := json.Marshal(in.setup)
	if err != nil {
		return nil, err
	}
	exe, err := in.program()
	if err != nil {
		return nil, err
	}
	defer exe.Close()
	null, err := os.OpenFile("/dev/null", os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer null.Close()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("socketpair", err)
	}
	ours, theirs := os.NewFile(uintptr(pair[0]), "control"), os.NewFile(uintptr(pair[1]), "control")
	defer ours.Close()
	defer theirs.Close()
	setup, pipe, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer setup.Close()
	defer pipe.Close()
	conn, err := net.FileConn(ours)
	if err != nil {
		return nil, err
	}
	in.conn = conn.(*net.UnixConn)
	path, argv := fmt.Sprintf("/proc/self/fd/%d", wire.ProgramFD), []string{"pccrun", wire.Verb}
	in.process, err = os.StartProcess(path, argv, &os.ProcAttr{
		Dir: "/", Env: []string{}, Files: []*os.File{null, null, null, theirs, setup, exe},
		Sys: &unix.SysProcAttr{Setpgid: true}, // Ctrl-C is for the command
	})
	if err != nil {
		conn.Close()
		return nil, err
	}
	in.pid.Store(int64(in.process.Pid))
	theirs.Close()
	setup.Close()
	if files, err = in.begin(pipe, text); err != nil {
		_ = in.process.Kill()
		_, _ = in.process.Wait()
		in.process = nil
		in.conn.Close()
		return nil, err
	}
	go in.read()
	go in.beat()
	return files, nil
}

// number is the process's, 0 before it is started.
func (in *reader) number() int { return int(in.pid.Load()) }

// startTimeout is how long the process has to say that it serves.
const startTimeout = 10 * time.Second

// begin tells the process what it needs to know, and waits for its answer.
func (in *reader) begin(pipe *os.File, setup []byte) (files []string, err error) {
	_ = pipe.SetWriteDeadline(time.Now().Add(startTimeout))
	if _, err := pipe.Write(setup); err != nil {
		return nil, err
	}
	pipe.Close()
	_ = in.conn.SetReadDeadline(time.Now().Add(startTimeout))
	buf, oob := make([]byte, wire.MaxMessage), make([]byte, unix.CmsgSpace(3*4))
	n, oobn, _, _, err := in.conn.ReadMsgUnix(buf, oob)
	if err != nil {
		return nil, fmt.Errorf("the process did not begin: %w", err)
	}
	var ready wire.Ready
	if err := json.Unmarshal(buf[:n], &ready); err != nil || ready.Error != "" {
		return nil, errors.Join(err, errors.New(ready.Error))
	}
	if !in.setup.Inspects {
		return nil, in.conn.SetReadDeadline(time.Time{})
	}
	messages, err := unix.ParseSocketControlMessage(oob[:oobn])
	if err != nil || len(messages) != 1 {
		return nil, errors.New("the process passed no files")
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	for _, fd := range fds {
		f := os.NewFile(uintptr(fd), "trust")
		content, e := io.ReadAll(io.NewSectionReader(f, 0, 8<<20))
		f.Close()
		err = errors.Join(err, e)
		files = append(files, string(content))
	}
	if err == nil && len(files) != 3 {
		err = errors.New("the process passed no files")
	}
	return files, errors.Join(err, in.conn.SetReadDeadline(time.Time{}))
}

// writeTimeout is how long the process may take to take a message.
const writeTimeout = 5 * time.Second

// maxServed is how many connections can be served at once, where the
// descriptors that a process may have are enough: each takes two there, and the
// client decides how long it stays.
func maxServed() int {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return 64
	}
	return int(min(limit.Max/4, 2048))
}

var (
	errGone = errors.New("the egress process has ended")
	errLong = errors.New("more than the egress process takes at once")
)

// hand hands a connection over.
func (in *reader) hand(h *netproxy.Handover) error {
	c, relay, err := descriptor(h.Conn)
	if err != nil {
		return err
	}
	in.mu.Lock()
	switch {
	case in.dead:
		err = errGone
	case len(in.open) >= in.most:
		err = errors.New("too many HTTP connections at once")
	default:
		in.next++
		in.open[in.next] = h
	}
	id := in.next
	in.mu.Unlock()
	if relay != nil {
		carried := make(chan struct{})
		h.Conn, h.Carried = c, carried
		go func() {
			defer close(carried)
			relay()
		}()
	}
	if err == nil {
		if err = in.send(wire.ToProcess{ID: id, Begin: &wire.Begin{Early: h.Early, To: h.To}}, c); err != nil {
			in.mu.Lock()
			delete(in.open, id)
			in.mu.Unlock()
		}
	}
	if err != nil && relay != nil {
		c.Close()
	}
	return err
}

// send sends a message, with a descriptor of c where there is one.
func (in *reader) send(m wire.ToProcess, c net.Conn) (err error) {
	text, err := json.Marshal(m)
	if err != nil {
		return err
	}
	if len(text) > wire.MaxMessage {
		return errLong
	}
	write := func(rights []byte) {
		in.mu.Lock()
		defer in.mu.Unlock()
		_ = in.conn.SetWriteDeadline(time.Now().Add(writeTimeout))
		if in.dead {
			err = errGone
		} else if _, _, e := in.conn.WriteMsgUnix(text, rights, nil); e != nil {
			in.dead, err = true, errGone
			_ = in.process.Kill() // who takes no message would hold up all others
		}
	}
	if c == nil {
		write(nil)
		return err
	}
	raw, err := c.(syscall.Conn).SyscallConn()
	if err != nil {
		return err
	}
	return errors.Join(raw.Control(func(fd uintptr) { write(unix.UnixRights(int(fd))) }), err)
}

// descriptor returns a connection with a descriptor, which stands for c in another process
// too: c itself, or for one that has come over a stream another, with what carries the bytes
// as long as it lasts.
func descriptor(c net.Conn) (own net.Conn, relay func(), err error) {
	if _, is := c.(syscall.Conn); is {
		return c, nil, nil
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, os.NewSyscallError("socketpair", err)
	}
	var ends [2]net.Conn
	for i, fd := range pair {
		file := os.NewFile(uintptr(fd), "client")
		end, e := net.FileConn(file)
		file.Close()
		ends[i], err = end, errors.Join(err, e)
	}
	if err != nil {
		for _, end := range ends {
			if end != nil {
				end.Close()
			}
		}
		return nil, nil, err
	}
	return ends[1], func() {
		defer ends[0].Close()
		go func() {
			_, _ = io.Copy(ends[0], c)
			_ = ends[0].(*net.UnixConn).CloseWrite()
		}()
		_, _ = io.Copy(c, ends[0])
	}, nil
}

// beat says that the launcher runs, until the process is gone.
func (in *reader) beat() {
	ticker := time.NewTicker(wire.Beat)
	defer ticker.Stop()
	for {
		select {
		case <-in.drained:
			return
		case <-ticker.C:
			if in.send(wire.ToProcess{}, nil) != nil {
				return
			}
		}
	}
}

// read answers what the process asks, and passes on what it reports, until it is gone. What
// it had then is over.
func (in *reader) read() {
	defer close(in.drained)
	buf := make([]byte, wire.MaxMessage)
	for {
		n, err := in.conn.Read(buf)
		if err != nil || n == 0 {
			break
		}
		var m wire.ToLauncher
		if json.Unmarshal(buf[:n], &m) != nil {
			break
		}
		in.mu.Lock()
		h := in.open[m.ID]
		if r := m.Report; r != nil && r.Number == 0 && (r.Closed || r.Tunnel) {
			delete(in.open, m.ID)
		}
		in.mu.Unlock()
		switch {
		case m.Report != nil && m.Report.Spent != nil: // of a connection that may be gone
			in.spending.Count(*m.Report.Spent)
		case h == nil:
		case m.Report != nil:
			h.Report(*m.Report)
		case m.Question != nil:
			select {
			case in.asking <- struct{}{}:
				go func() {
					defer func() { <-in.asking }()
					in.answer(h, m.ID, m.Asked, *m.Question)
				}()
			default:
				_ = in.send(wire.ToProcess{ID: m.ID, Number: m.Asked, Answer: &wire.Answer{Status: 503, Detail: "too many requests at once"}}, nil)
			}
		}
	}
	_ = in.process.Kill() // what it still has open ends with it
	in.spending.Lost()
	in.mu.Lock()
	in.dead = true
	left := in.open
	in.open = nil
	in.mu.Unlock()
	for _, h := range left {
		h.Report(wire.Report{Closed: true})
	}
}

// unsent has nobody wait for what a request costs that does not go out.
func (in *reader) unsent(a *wire.Answer) {
	if a.Meter != "" {
		a.Meter = ""
		in.spending.Count(wire.Spent{})
	}
}

// answer answers a question.
func (in *reader) answer(h *netproxy.Handover, id, number uint64, q wire.Question) {
	a := h.Ask(context.Background(), q)
	var dialled net.Conn
	if a.Conn != nil {
		c, relay, err := descriptor(a.Conn)
		switch {
		case err != nil:
			a.Conn.Close()
			in.unsent(&a)
			a.Status, a.Detail = 502, "too many open files"
		case relay != nil:
			go relay()
			fallthrough
		default:
			dialled = c
			defer c.Close() // the process has it
		}
	}
	if err := in.send(wire.ToProcess{ID: id, Number: number, Answer: &a}, dialled); err == errLong { // a request without an answer would wait
		in.unsent(&a)
		_ = in.send(wire.ToProcess{ID: id, Number: number, Answer: &wire.Answer{Status: 502, Detail: errLong.Error()}}, nil)
	}
}

// close ends the process, which has a moment to report what it had open.
func (in *reader) close() {
	if in == nil || in.process == nil {
		return
	}
	in.mu.Lock()
	_ = in.conn.CloseWrite()
	in.mu.Unlock()
	ended := make(chan struct{})
	go func() {
		_, _ = in.process.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(3 * time.Second):
		_ = in.process.Kill()
		<-ended
	}
	_ = in.conn.SetReadDeadline(time.Now().Add(time.Second))
	select {
	case <-in.drained:
	case <-time.After(2 * time.Second):
	}
	in.conn.Close()
	in.process = nil
}
