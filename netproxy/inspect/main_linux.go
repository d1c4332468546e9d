package inspect

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/internal/credentials"
	"github.com/pccrun/pccrun/netproxy/inspect/wire"
	"github.com/pccrun/pccrun/netproxy/meter"
	"github.com/pccrun/pccrun/netproxy/rules"
)

// Main is the egress process, started by a launcher with the
// descriptors that package wire names. It ends when the launcher does.
func Main() int {
	// Nobody else's business: it holds the session's key and secrets.
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return 125
	}
	unix.Close(wire.ProgramFD)
	log.SetOutput(io.Discard) // net/http tells it what a server has sent
	closeInherited()
	file := os.NewFile(wire.ControlFD, "control")
	conn, err := net.FileConn(file)
	file.Close() // by itself, or its finalizer would close whatever has the number by then
	control, ok := conn.(*net.UnixConn)
	if err != nil || !ok {
		return 125
	}
	if err := serve(control, os.NewFile(wire.SetupFD, "setup"), &alive{clock: time.Now}, confine); err != nil {
		text, _ := json.Marshal(wire.Ready{Error: err.Error()})
		_, _ = control.Write(text)
		return 125
	}
	return 0
}

// closeInherited closes what the launcher's own caller left open in it: all but
// the descriptors that were meant for us and those of the Go runtime.
func closeInherited() {
	names, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return
	}
	for _, n := range names {
		fd, err := strconv.Atoi(n.Name())
		what, e := os.Readlink("/proc/self/fd/" + n.Name())
		if err != nil || e != nil || fd <= wire.ProgramFD || strings.HasPrefix(what, "anon_inode:[event") || strings.HasPrefix(what, "/sys/fs/cgroup/") {
			continue
		}
		unix.Close(fd)
	}
}

// alive is told when the launcher last was heard of.
type alive struct {
	last  atomic.Int64
	clock func() time.Time
}

func (a *alive) heard() { a.last.Store(a.clock().UnixNano()) }

// now says whether the launcher still runs: one that is stopped must not be
// the reason why something is let through that it would have stopped.
func (a *alive) now() bool { return a.clock().Sub(time.Unix(0, a.last.Load())) < wire.Patience }

// serve sets up and serves until the launcher has closed its end. Before it takes a client,
// confine leaves the process nothing but what it has open.
func serve(control *net.UnixConn, pipe io.ReadCloser, launcher *alive, confine func() error) error {
	var setup wire.Setup
	err := json.NewDecoder(pipe).Decode(&setup)
	pipe.Close()
	if err != nil {
		return fmt.Errorf("read setup: %w", err)
	}
	launcher.heard()
	cfg := Config{Alive: launcher.now}
	for _, s := range setup.Secrets {
		hosts, err := parseRules(s.Hosts)
		if err != nil {
			return err
		}
		cfg.Secrets = append(cfg.Secrets, Secret{Placeholder: s.Placeholder, Value: s.Value, Name: s.Name, Hosts: hosts, Caseless: s.Caseless, Field: s.Field})
	}
	var trusted *trust
	if setup.Inspects {
		if trusted, err = readTrust(setup.Certificates); err != nil {
			return err
		}
		cfg.Roots = trusted.pool
	}
	if setup.Meters {
		if cfg.Prices, err = meter.Load(setup.Prices); err != nil {
			return err
		}
	}
	if setup.UID != 0 && os.Getuid() != setup.UID { // a launcher that has begun its run has given root up
		if err := become(setup.UID, setup.GID); err != nil {
			return err
		}
	}
	i, err := New(cfg)
	if err != nil {
		return err
	}
	defer i.finish()
	files, err := i.trustFiles(trusted)
	if err != nil {
		return err
	}
	err = errors.Join(confine(), ready(control, files))
	for _, fd := range files {
		unix.Close(fd)
	}
	if err != nil {
		return err
	}
	s := &served{control: control, inspector: i, open: map[uint64]*remote{}}
	s.receive(launcher)
	return nil
}

func parseRules(texts []string) (*rules.Set, error) {
	list := make([]rules.Rule, len(texts))
	for i, text := range texts {
		var err error
		if list[i], err = rules.Parse(text); err != nil {
			return nil, err
		}
	}
	return rules.New(list...)
}

// become gives root up for good.
func become(uid, gid int) error {
	if err := credentials.Become(uid, gid); err != nil {
		return err
	}
	return unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0)
}

// trustFiles makes the files of what has to be trusted inside; none where nothing is inspected.
func (i *Inspector) trustFiles(t *trust) (fds []int, err error) {
	if t == nil {
		return nil, nil
	}
	all, java, err := t.bundles(i.ca)
	if err != nil {
		return nil, err
	}
	for _, content := range [...][]byte{i.Authority(), all, java} {
		fd, err := unix.MemfdCreate("trust", unix.MFD_CLOEXEC)
		if err != nil {
			return fds, fmt.Errorf("memfd_create: %w", err)
		}
		fds = append(fds, fd)
		if n, err := unix.Pwrite(fd, content, 0); err != nil || n < len(content) {
			return fds, errors.Join(err, io.ErrShortWrite)
		}
	}
	return fds, nil
}

// ready tells the launcher that clients are served, with the trust files.
func ready(control *net.UnixConn, files []int) error {
	text, err := json.Marshal(wire.Ready{})
	if err != nil {
		return err
	}
	var rights []byte
	if len(files) > 0 {
		rights = unix.UnixRights(files...)
	}
	_, _, err = control.WriteMsgUnix(text, rights, nil)
	return err
}

// served is what the launcher has handed over.
type served struct {
	control   *net.UnixConn
	inspector *Inspector

	mu    sync.Mutex
	open  map[uint64]*remote // connections, by number
	asked uint64             // numbers the questions
	gone  bool               // the launcher
}

// remote is the launcher as one connection has it.
type remote struct {
	*served
	id      uint64
	waiting map[uint64]chan wire.Answer // questions
}

// maxWaiting is how many answers are waited for at once on one connection: as many as it may
// have requests, each with a dial.
const maxWaiting = 2*maxStreams + 16

// Ask sends a question and waits for the answer.
func (r *remote) Ask(ctx context.Context, q wire.Question) wire.Answer {
	answer := make(chan wire.Answer, 1)
	r.mu.Lock()
	if r.gone || len(r.waiting) >= maxWaiting {
		r.mu.Unlock()
		return wire.Answer{Status: 503, Detail: "too many questions at once"}
	}
	r.asked++
	number := r.asked
	r.waiting[number] = answer
	r.mu.Unlock()
	text, err := json.Marshal(wire.ToLauncher{ID: r.id, Question: &q, Asked: number})
	switch {
	case err == nil && len(text) > wire.MaxMessage:
		r.forget(number)
		return wire.Answer{Status: 431, Detail: "the target of the request is too long"}
	case err == nil:
		_, err = r.control.Write(text)
	}
	if err != nil {
		r.forget(number)
		return wire.Answer{Status: 503, Detail: "the launcher has ended"}
	}
	select {
	case a, ok := <-answer:
		if !ok {
			return wire.Answer{Status: 503, Detail: "the launcher has ended"}
		}
		return a
	case <-ctx.Done():
		if !r.forget(number) { // it came meanwhile
			r.unused(<-answer)
		}
		return wire.Answer{Status: 503, Detail: "the request is over"}
	}
}

// unused gives up an answer that nobody waits for any more.
func (s *served) unused(a wire.Answer) {
	if a.Conn != nil {
		a.Conn.Close()
	}
	if a.Meter != "" { // nothing was sent
		if text, err := json.Marshal(wire.ToLauncher{Report: &wire.Report{Spent: &wire.Spent{}}}); err == nil {
			_, _ = s.control.Write(text)
		}
	}
}

// forget says whether a question was still open.
func (r *remote) forget(number uint64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, ok := r.waiting[number]
	delete(r.waiting, number)
	return ok
}

// Report tells the launcher of what became of a request, or of the connection.
func (r *remote) Report(report wire.Report) {
	report.Request, report.Error = cut(report.Request), cut(report.Error)
	if report.Number == 0 && (report.Closed || report.Tunnel) {
		r.mu.Lock()
		delete(r.open, r.id)
		r.mu.Unlock()
	}
	if text, err := json.Marshal(wire.ToLauncher{ID: r.id, Report: &report}); err == nil && len(text) <= wire.MaxMessage {
		_, _ = r.control.Write(text)
	}
}

// receive takes the connections that the launcher hands over, and its answers.
func (s *served) receive(launcher *alive) {
	buf, oob := make([]byte, wire.MaxMessage), make([]byte, unix.CmsgSpace(4*4))
	defer s.end()
	for {
		n, oobn, _, _, err := s.control.ReadMsgUnix(buf, oob)
		if err != nil || n == 0 {
			return
		}
		conn, err := connection(oob[:oobn])
		launcher.heard()
		var m wire.ToProcess
		if json.Unmarshal(buf[:n], &m) != nil {
			return // it is not the launcher that speaks
		}
		switch {
		case m.Begin != nil:
			r := &remote{served: s, id: m.ID, waiting: map[uint64]chan wire.Answer{}}
			if conn == nil { // the kernel keeps a socket that there is no number for
				r.Report(wire.Report{Error: "too many open files"})
				r.Report(wire.Report{Closed: true})
				continue
			}
			s.mu.Lock()
			s.open[m.ID] = r
			s.mu.Unlock()
			go s.inspector.Serve(conn, *m.Begin, r)
		case m.Answer != nil:
			if m.Answer.Conn = conn; err != nil {
				m.Answer.Status, m.Answer.Detail = 502, "too many open files"
			}
			s.answer(m.ID, m.Number, *m.Answer)
		}
	}
}

// answer passes an answer on to who waits for it.
func (s *served) answer(id, number uint64, a wire.Answer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.open[id]; r != nil {
		if waiting, ok := r.waiting[number]; ok {
			delete(r.waiting, number)
			waiting <- a
			return
		}
	}
	s.unused(a)
}

// end ends what waits for answers.
func (s *served) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gone = true
	for _, r := range s.open {
		for number, waiting := range r.waiting {
			delete(r.waiting, number)
			close(waiting)
		}
	}
}

// cut leaves room in a message, where each byte may take six.
func cut(text string) string { return text[:min(len(text), 2<<10)] }

// connection returns the connection whose descriptor came with a message, nil if none did.
func connection(oob []byte) (net.Conn, error) {
	fds := rights(oob)
	if len(fds) != 1 {
		for _, fd := range fds {
			unix.Close(fd)
		}
		return nil, nil
	}
	file := os.NewFile(uintptr(fds[0]), "connection")
	defer file.Close()
	return net.FileConn(file)
}

// rights returns the descriptors that came with a message.
func rights(oob []byte) (fds []int) {
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil
	}
	for i := range messages {
		if got, err := unix.ParseUnixRights(&messages[i]); err == nil {
			fds = append(fds, got...)
		}
	}
	for _, fd := range fds {
		unix.CloseOnExec(fd)
	}
	return fds
}
