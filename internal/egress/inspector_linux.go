package egress

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/netproxy"
	"github.com/pccrun/pccrun/netproxy/inspect/wire"
)

// start runs the process and returns the contents of the files that it made.
func (in *inspection) start(program func() (*os.File, error)) (files []string, err error) {
	in.most, in.open, in.drained = maxInspected(), map[uint64]netproxy.Handover{}, make(chan struct{})
	text, err := json.Marshal(in.setup)
	if err != nil {
		return nil, err
	}
	exe, err := program()
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

// startTimeout is how long the process has to say that it serves.
const startTimeout = 10 * time.Second

// begin tells the process what it needs to know, and waits for its answer.
func (in *inspection) begin(pipe *os.File, setup []byte) (files []string, err error) {
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

// maxInspected is how many connections can be inspected at once, where the
// descriptors that a process may have are enough: each takes two there, and the
// client decides how long it stays.
func maxInspected() int {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return 64
	}
	return int(min(limit.Max/4, 2048))
}

var errInspectorGone = errors.New("the inspection process ended")

// take hands a connection over. It is a [netproxy.Config]'s Inspect.
func (in *inspection) take(h netproxy.Handover) error {
	file, relay, err := descriptor(h.Conn)
	if err != nil {
		return err
	}
	defer file.Close()
	if err := in.pass(h, file); err != nil {
		return err
	}
	file.Close()
	relay()
	return nil
}

// pass gives the process a client's descriptor.
func (in *inspection) pass(h netproxy.Handover, file *os.File) error {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.dead {
		return errInspectorGone
	}
	if len(in.open) >= in.most {
		return errors.New("too many inspected connections at once")
	}
	in.next++
	text, err := json.Marshal(wire.Connection{ID: in.next, Early: h.Early, Verdict: h.Verdict})
	if err != nil {
		return err
	}
	_ = in.conn.SetWriteDeadline(time.Now().Add(writeTimeout))
	if _, _, err := in.conn.WriteMsgUnix(text, unix.UnixRights(int(file.Fd())), nil); err != nil {
		return errInspectorGone
	}
	in.open[in.next] = h
	return nil
}

// descriptor returns what stands for a client's connection in another process, and what
// carries the bytes as long as it lasts, for one that has come over a stream and has none.
func descriptor(c net.Conn) (file *os.File, relay func(), err error) {
	if own, ok := c.(interface{ File() (*os.File, error) }); ok {
		file, err = own.File()
		return file, func() {}, err
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, os.NewSyscallError("socketpair", err)
	}
	ours := os.NewFile(uintptr(pair[0]), "client")
	defer ours.Close()
	file = os.NewFile(uintptr(pair[1]), "client")
	end, err := net.FileConn(ours)
	if err != nil {
		file.Close()
		return nil, nil, err
	}
	return file, func() {
		defer end.Close()
		go func() {
			_, _ = io.Copy(end, c)
			_ = end.(*net.UnixConn).CloseWrite()
		}()
		_, _ = io.Copy(c, end)
	}, nil
}

// beat says that the launcher runs, until the process is gone.
func (in *inspection) beat() {
	text, err := json.Marshal(wire.Connection{})
	ticker := time.NewTicker(wire.Beat)
	defer ticker.Stop()
	for err == nil {
		select {
		case <-in.drained:
			return
		case <-ticker.C:
			in.mu.Lock()
			_ = in.conn.SetWriteDeadline(time.Now().Add(writeTimeout))
			_, err = in.conn.Write(text)
			in.mu.Unlock()
		}
	}
}

// read passes on what the process reports, until it is gone. What it had then
// is over.
func (in *inspection) read() {
	defer close(in.drained)
	buf := make([]byte, wire.MaxMessage)
	for {
		n, err := in.conn.Read(buf)
		if err != nil || n == 0 {
			break
		}
		var r wire.Report
		if json.Unmarshal(buf[:n], &r) != nil {
			break
		}
		in.mu.Lock()
		h, ok := in.open[r.ID]
		if ok && r.Closed {
			delete(in.open, r.ID)
		}
		in.mu.Unlock()
		switch {
		case !ok:
		case r.Closed:
			h.Closed(r.Up, r.Down)
		case r.Error != "":
			h.Decided(r.Verdict, r.Request, errors.New(r.Error))
		default:
			h.Decided(r.Verdict, r.Request, nil)
		}
	}
	in.mu.Lock()
	in.dead = true
	left := in.open
	in.open = nil
	in.mu.Unlock()
	for _, h := range left {
		h.Closed(0, 0)
	}
}

// close ends the process, which has a moment to report what it had open.
func (in *inspection) close() {
	if in == nil || in.process == nil {
		return
	}
	_ = in.conn.CloseWrite()
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
