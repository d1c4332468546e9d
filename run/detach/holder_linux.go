package detach

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"os/user"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/cgroups"
	"github.com/pccrun/pccrun/internal/messages"
	"github.com/pccrun/pccrun/internal/sessions"
	"github.com/pccrun/pccrun/internal/state"
	"github.com/pccrun/pccrun/internal/terminal"
)

// Verb is the word by which pccrun starts itself as a holder, with the size of the terminal or [noTerminal], and the line of
// the run.
const Verb = "detached"

const noTerminal = "-"

// A holder owns what a run reads and prints.
type holder struct {
	terminal bool
	out      *os.File // the master of its pseudo-terminal, or a pipe from it
	caller   *json.Encoder
	printed  chan struct{} // closed when nothing more comes

	mu      sync.Mutex // over all below
	waiting bool       // the caller waits: what pccrun says is for it too
	line    []byte     // of it, so far
	again   bool       // a carriage return: unless a line ends, it is written anew
	kept    kept
	viewers []*viewer // in the order in which they came
	size    [2]int    // of the pseudo-terminal
	over    bool
	dir     *os.Root  // once the run has started
	noted   time.Time // when it last printed something, to a second
}

// A viewer is who is attached.
type viewer struct {
	*conn
	types atomic.Bool // the terminal whose size and keys count
}

// A report is what a holder tells who has started it.
type report struct {
	Line   string `json:",omitempty"` // to be printed
	ID     string `json:",omitempty"` // the run has started
	Status *int   `json:",omitempty"` // it has not
}

// callerFD is the socket to who has started a holder, which is closed when that has gone.
const callerFD = 3

// Hold is the whole of a holder's process.
func Hold(args []string) int {
	caller := os.NewFile(callerFD, "caller")
	unix.CloseOnExec(callerFD)
	if _, err := unix.FcntlInt(callerFD, unix.F_GETFD, 0); err != nil || len(args) < 2 {
		return messages.Fail("detached: it is started by --detach")
	}
	h := &holder{terminal: args[0] != noTerminal, caller: json.NewEncoder(caller), printed: make(chan struct{}), waiting: true}
	_, _ = fmt.Sscanf(args[0], "%dx%d", &h.size[0], &h.size[1])
	h.outlive()
	status, err := h.run(caller, args[1:])
	if err != nil {
		h.tell(report{Line: "pccrun: detach: " + messages.InWords(err)})
		status = messages.Refused
	}
	h.tell(report{Status: &status}) // nobody hears it if the run has started
	return status
}

// outlive has this process outlive the login session it was started in. logind leaves what a user has started alone, unless it
// is told to end it at logout. The user's service manager goes with his last session, with all that it has, but where he lingers
// (loginctl(1)): there it keeps this.
func (h *holder) outlive() {
	who, err := user.Current()
	if err != nil {
		return
	}
	if _, err := os.Stat("/var/lib/systemd/linger/" + who.Username); err == nil {
		if err := cgroups.JoinScope("/run/user/"+who.Uid+"/bus", fmt.Sprintf("pccrun-detached-%d.scope", os.Getpid())); err != nil {
			h.tell(report{Line: "pccrun: detach: systemd does not keep it when you log out: " + messages.InWords(err)})
		}
	} else if cgroups.EndsAtLogout("/run/dbus/system_bus_socket") {
		h.tell(report{Line: "pccrun: detach: systemd ends it when you log out: KillUserProcesses=yes"})
		h.tell(report{Line: "pccrun: hint: loginctl enable-linger keeps it"})
	}
}

// tell tells the caller, if it waits.
func (h *holder) tell(r report) { _ = h.caller.Encode(r) }

// run carries a line out, and returns how it ended.
func (h *holder) run(caller *os.File, line []string) (status int, err error) {
	cmd, theirs, err := h.child(line)
	if err != nil {
		return 0, err
	}
	started, w, err := os.Pipe()
	if err != nil {
		return 0, err
	}
	cmd.ExtraFiles = []*os.File{w}
	runtime.LockOSThread() // the signal of our death goes with the thread that has started it: prctl(2), PR_SET_PDEATHSIG
	if err := cmd.Start(); err != nil {
		return 0, fmt.Errorf("start pccrun: %w", err)
	}
	theirs.Close()
	w.Close()
	h.forward(cmd.Process)
	came := make(chan Started, 1)
	go h.read(caller, started, cmd.Process, came)
	exited := make(chan error, 1)
	go func() { exited <- cmd.Wait() }()
	var dir *os.Root
	if s, has := <-came; has {
		if dir, err = h.open(s); err != nil {
			_ = cmd.Process.Signal(unix.SIGTERM)
		} else {
			defer dir.Close()
			h.tell(report{ID: s.ID})
		}
	}
	<-exited
	select {
	case <-h.printed:
	case <-time.After(patience): // somebody else holds it open
	}
	if status = statusOf(cmd.ProcessState); dir != nil {
		h.end(dir, status)
	}
	return status, err
}

// statusOf is the exit status that a shell reports.
func statusOf(s *os.ProcessState) int {
	if w := s.Sys().(syscall.WaitStatus); w.Signaled() {
		return 128 + int(w.Signal())
	}
	return s.ExitCode()
}

// child is the command that a run is, and our descriptor of what it prints to, to be closed.
func (h *holder) child(line []string) (cmd *exec.Cmd, theirs *os.File, err error) {
	cmd = exec.Command("/proc/self/exe", line...)
	cmd.Args[0], cmd.Env = "pccrun", append(os.Environ(), Variable+"=3")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: unix.SIGTERM, Setsid: true}
	if !h.terminal {
		if h.out, theirs, err = os.Pipe(); err == nil {
			cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, theirs, theirs
		}
		return cmd, theirs, err
	}
	if h.out, theirs, err = terminal.OpenPair(); err != nil {
		return nil, nil, fmt.Errorf("open a pseudo-terminal: %w", err)
	}
	h.setSize(h.size)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = theirs, theirs, theirs
	cmd.SysProcAttr.Setctty = true
	return cmd, theirs, nil
}

func (h *holder) setSize(size [2]int) {
	control(h.out, func(fd int) {
		_ = unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Col: uint16(size[0]), Row: uint16(size[1])})
	})
}

// control calls f with a file's descriptor, without making it blocking.
func control(file *os.File, f func(fd int)) {
	if c, err := file.SyscallConn(); err == nil {
		_ = c.Control(func(fd uintptr) { f(int(fd)) })
	}
}

// forward passes on what is to end this process.
func (h *holder) forward(child *os.Process) {
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT, unix.SIGUSR1, unix.SIGUSR2)
	go func() {
		for sig := range signals {
			_ = child.Signal(sig)
		}
	}()
}

// read takes in what the run prints, to the end. Until it has started that is pccrun's own; once it has, which its line at
// the pipe says, came gets that. A caller that goes, or says no more, before ends it.
func (h *holder) read(caller, started *os.File, child *os.Process, came chan<- Started) {
	defer close(h.printed)
	buf := make([]byte, 64<<10)
	more, gone := true, false
	for told := false; more && !told; {
		var printed, left bool
		if printed, told, left = h.poll(started, caller); printed {
			more = h.take(buf)
		}
		if left {
			_ = child.Signal(unix.SIGTERM)
			caller, gone = nil, true
		}
	}
	for i := 0; more && i < 16; i++ { // what was printed before is there by now
		if printed, _, _ := h.poll(nil, nil); printed {
			more = h.take(buf)
		}
	}
	var s Started
	if json.NewDecoder(started).Decode(&s) == nil && !gone {
		came <- s
	}
	close(came)
	started.Close()
	h.mu.Lock()
	h.waiting = false
	h.mu.Unlock()
	for more {
		more = h.take(buf)
	}
}

// poll waits for one of them, or with none looks whether something was printed.
func (h *holder) poll(started, caller *os.File) (printed, told, gone bool) {
	fds, wait := []unix.PollFd{{Fd: -1}, {Fd: -1}, {Fd: -1}}, 0
	for i, f := range []*os.File{h.out, started, caller} {
		if f != nil {
			control(f, func(fd int) { fds[i] = unix.PollFd{Fd: int32(fd), Events: unix.POLLIN} })
		}
		if i > 0 && f != nil {
			wait = -1
		}
	}
	if _, err := unix.Poll(fds, wait); err != nil {
		return false, false, false
	}
	return fds[0].Revents != 0, fds[1].Revents != 0, fds[2].Revents != 0
}

// take reads what was printed, and shows it; false when nothing more comes.
func (h *holder) take(buf []byte) bool {
	n, err := h.out.Read(buf)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.kept.add(buf[:n])
	if h.waiting {
		h.pass(buf[:n])
	}
	if now := time.Now(); n > 0 && h.dir != nil && !h.over && now.Sub(h.noted) > time.Second {
		h.noted = now
		_ = h.dir.Chtimes(socketName, now, now) // pccrun stats says when
	}
	if n > 0 {
		for _, v := range h.viewers {
			h.show(v, buf[:n])
		}
	}
	return err == nil
}

// pass passes the lines that pccrun says before the command runs on to the caller.
func (h *holder) pass(b []byte) {
	for _, c := range b {
		if c == '\r' {
			h.again = true
			continue
		}
		if h.again && c != '\n' {
			h.line = nil
		}
		if h.again = false; c != '\n' {
			h.line = append(h.line, c)
			continue
		}
		if line := strings.TrimPrefix(string(h.line), "\x1b[K"); strings.HasPrefix(line, "pccrun: ") {
			h.tell(report{Line: line})
		}
		h.line = nil
	}
}

// show sends output to somebody, and lets who takes none go.
func (h *holder) show(v *viewer, b []byte) {
	if v.send(message{Output: b}) != nil {
		_ = v.Close()
	}
}

// open begins to listen in the run's directory.
func (h *holder) open(s Started) (dir *os.Root, err error) {
	if dir, err = os.OpenRoot(s.Dir); err != nil {
		return nil, err
	}
	at, err := dir.Open(".")
	if err != nil {
		return nil, err
	}
	defer at.Close()           // and so not before: its number is in the address
	_ = dir.Remove(socketName) // of a task's earlier holder
	_ = dir.Remove(endName)
	listener, err := net.ListenUnix("unix", sessions.SocketIn(at, socketName))
	if err == nil {
		err = dir.Chmod(socketName, 0o600)
	}
	if err != nil {
		return nil, err
	}
	listener.SetUnlinkOnClose(false) // its path is ours alone
	h.mu.Lock()
	h.dir = dir
	h.mu.Unlock()
	go func() {
		for {
			c, err := listener.AcceptUnix()
			if err != nil {
				return
			}
			go h.serve(newConn(c))
		}
	}()
	return dir, nil
}

// serve answers a connection.
func (h *holder) serve(c *conn) {
	defer c.Close()
	if err := checkPeer(c.UnixConn); err != nil {
		_ = c.send(message{End: &End{Why: err.Error()}})
		return
	}
	if c.send(message{Greeting: &Greeting{Terminal: h.terminal}}) != nil {
		return
	}
	_ = c.SetReadDeadline(time.Now().Add(patience))
	first, err := c.receive()
	_ = c.SetReadDeadline(time.Time{})
	switch {
	case err != nil:
		return
	case first.Detach:
		h.mu.Lock()
		n := h.letGo("pccrun detach has detached this terminal", func(*viewer) bool { return true })
		h.mu.Unlock()
		_ = c.send(message{End: &End{Gone: n}})
		return
	case !first.Attach:
		return
	}
	v := &viewer{conn: c}
	v.types.Store(h.terminal && first.Size != [2]int{})
	h.attach(v, first.Size)
	for {
		m, err := v.receive()
		if err != nil {
			h.leave(v)
			return
		}
		if m.Size != [2]int{} && v.types.Load() {
			h.resize(m.Size)
		}
		if len(m.Keys) > 0 && v.types.Load() {
			_, _ = h.out.Write(m.Keys)
		}
	}
}

// redrawn is how long a program has to draw for a size before it gets the right one: two changes that come at once are one.
const redrawn = 100 * time.Millisecond

// attach shows somebody what was printed, and what comes. A terminal that types takes the run from the one that did.
func (h *holder) attach(v *viewer, size [2]int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.over {
		_ = v.Close()
		return
	}
	types := v.types.Load()
	if types {
		h.letGo("another terminal has attached, and this one is detached", func(other *viewer) bool { return other.types.Load() })
	}
	h.viewers = append(h.viewers, v)
	if !types {
		h.show(v, h.kept.lines())
		return
	}
	// What stands on it is moved up, so that both agree on where the first line is.
	text := fmt.Sprintf("\x1b[%d;1H%s\x1b[H", size[1], strings.Repeat("\n", size[1]))
	h.show(v, append([]byte(text), h.kept.screen()...))
	if size != h.size {
		h.size = size
		h.setSize(size)
		return
	}
	// A program that draws its screen does so for another size.
	h.setSize([2]int{size[0], max(1, size[1]-1)})
	time.AfterFunc(redrawn, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.setSize(h.size)
	})
}

func (h *holder) resize(size [2]int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.size = size
	h.setSize(size)
}

// letGo ends the showing to some, and returns how many there were. mu is held.
func (h *holder) letGo(why string, some func(*viewer) bool) (n int) {
	for _, v := range h.viewers {
		if some(v) {
			v.types.Store(false)
			_ = v.send(message{End: &End{Why: why}})
			_ = v.CloseRead() // and its goroutine goes
			n++
		}
	}
	return n
}

func (h *holder) leave(v *viewer) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i, other := range h.viewers {
		if other == v {
			h.viewers = append(h.viewers[:i:i], h.viewers[i+1:]...)
		}
	}
}

// end writes down how the run ended, and tells those who are attached.
func (h *holder) end(dir *os.Root, status int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.over = true
	end := End{Over: true, Status: status}
	text, err := json.Marshal(end)
	if err == nil {
		err = errors.Join(state.WriteFile(dir, sessions.ScreenName, h.kept.lines(), state.Fast), state.WriteFile(dir, endName, text, state.Fast))
	}
	_ = err // the session may be gone, or the disk full: there is nobody to tell
	_ = dir.Remove(socketName)
	for _, v := range h.viewers {
		_ = v.send(message{End: &end})
	}
}
