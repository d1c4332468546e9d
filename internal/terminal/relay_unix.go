//go:build linux || darwin

package terminal

import (
	"bytes"
	"errors"
	"io"
	"os"
	"os/signal"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Relay joins the host's terminal and the master of the pseudo-terminal that
// the command has.
//
//	keys    host terminal ──raw, byte for byte──▶ master
//	screen  master ──Filter──▶ Output (and Log)
//	watch   SIGWINCH, SIGCONT ──▶ window size, raw mode again
type Relay struct {
	o     Options
	wake  int // the keys' loop must look at what has changed
	poked int // writes to it

	asking sync.Mutex // one question at a time
	output sync.Mutex // guards Filter, and what is on the screen
	within bool       // a line: the last that was shown did not end one

	mu     sync.Mutex
	wanted bool // raw mode is wanted, as soon as we are in the foreground
	raw    bool // and is what we have set
	saved  unix.Termios
	early  *unix.Termios // what the pseudo-terminal began with in the background, until the keys are ours
	closed bool
	stop   bool        // the interrupt key was typed where it signals
	typed  chan []byte // what is typed goes here while a question is open

	signals  chan os.Signal
	screened chan struct{} // all output is written
	hungUp   chan struct{}
	hangOnce sync.Once
	keysDone chan struct{}
	ended    chan struct{} // by Close: no question is answered any more
}

// Start copies the terminal's modes and size to the pseudo-terminal and
// begins to relay. Do so before the command starts, so that it never sees
// another size. The relay owns the master from then on, also on an error.
func Start(o Options) (*Relay, error) {
	r := &Relay{
		o:        o,
		wanted:   !o.Lazy,
		signals:  make(chan os.Signal, 4),
		screened: make(chan struct{}),
		hungUp:   make(chan struct{}),
		keysDone: make(chan struct{}),
		ended:    make(chan struct{}),
	}
	if r.o.Output == nil {
		r.o.Output = tty(o.Terminal)
	}
	if r.o.Filter == nil {
		r.o.Filter = new(Filter)
	}
	modes, err := getModes(o.Terminal)
	if err == nil {
		err = control(o.Master, func(fd int) error { return setModes(fd, modes) })
	}
	if err == nil {
		r.wake, r.poked, err = wakeable()
	}
	if err != nil {
		o.Master.Close()
		return nil, err
	}
	r.copySize()
	if !foreground(o.Terminal) {
		r.early = &modes
	}
	signal.Notify(r.signals, unix.SIGWINCH, unix.SIGCONT)
	if err := r.grab(); err != nil {
		signal.Stop(r.signals)
		r.closeWake()
		o.Master.Close()
		return nil, err
	}
	go r.keys()
	go r.screen()
	go r.watch()
	return r, nil
}

// grab puts the terminal into raw mode, if that is wanted and we are in its
// foreground: from the background the attempt would stop us.
func (r *Relay) grab() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed || !r.wanted {
		return nil
	}
	if !foreground(r.o.Terminal) {
		r.wanted = false // until the command asks: see Active
		return nil
	}
	now, err := getModes(r.o.Terminal)
	if err != nil {
		return err
	}
	// After SIGSTOP and SIGCONT, which nobody can prepare for, our own raw
	// mode may still be there: not what the user wants back.
	if !r.raw || now != RawModes(r.saved) {
		r.saved = now
	}
	// In the background the modes were those of whoever had the terminal then: a shell that
	// edits its line, without lines and echo. Those that a reader has from the first are
	// what it finds in the foreground, unless the command has made its own meanwhile.
	if r.early != nil {
		_ = control(r.o.Master, func(fd int) error {
			if has, err := getModes(fd); err != nil || has != *r.early {
				return err
			}
			return setModes(fd, r.saved)
		})
		r.early = nil
	}
	if err := setModes(r.o.Terminal, RawModes(r.saved)); err != nil {
		return err
	}
	r.raw = true
	r.poke()
	return nil
}

// release gives the terminal its modes back, unless somebody else has it
// now: then they are not ours to change, and trying would stop us.
func (r *Relay) release() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.giveBack()
}

// giveBack is release with the lock held.
func (r *Relay) giveBack() {
	if r.raw && foreground(r.o.Terminal) {
		_ = setModes(r.o.Terminal, r.saved)
	}
	r.raw = false
	r.poke()
}

// Active reports whether keys are relayed. If they are not, since the relay
// is lazy or the launcher runs in the background of the host's terminal, the
// command belongs into the background of its own: it is then stopped by
// SIGTTIN or SIGTTOU when it wants the terminal, which is the time for
// [Relay.Foreground]. (A shell that brings a running job to the foreground
// tells it nothing, so there is nothing else to wait for.)
//
// Ask after [Start], [Relay.Suspend] and Foreground.
func (r *Relay) Active() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.raw
}

// Foreground is to be called when the command wants the terminal. From the
// background of the host's terminal it stops the launcher's process group,
// as reading would, and returns when it is continued. An error says that the
// terminal has gone away: see [Relay.HungUp].
func (r *Relay) Foreground() error {
	r.mu.Lock()
	r.wanted = true
	r.mu.Unlock()
	if !foreground(r.o.Terminal) {
		r.settle()
		return stopGroup(unix.SIGTTIN, r.takeUp)
	}
	return r.takeUp()
}

// Suspend does what Ctrl-Z does outside, once the command has stopped: gives
// the terminal back, stops the launcher's process group, and returns when it
// is continued, in the foreground or not ([Relay.Active]). The caller then
// continues the command. SIGTSTP must have its default action meanwhile: a
// caller that catches it calls [signal.Reset] first. An error is as of Foreground.
func (r *Relay) Suspend() error {
	active := r.Active()
	r.settle()
	r.release()
	r.mu.Lock()
	r.wanted = active
	r.mu.Unlock()
	return stopGroup(unix.SIGTSTP, r.takeUp)
}

// takeUp is grab where nobody else would notice that the terminal has gone away: what
// wants it then, and is not ended by SIGHUP, reads its end.
func (r *Relay) takeUp() error {
	err := r.grab()
	if err != nil {
		r.hangUp()
	}
	return err
}

// settle waits, not for long, until what the command has printed before it
// stopped is on the screen: nothing is relayed while we are stopped.
func (r *Relay) settle() {
	conn, err := r.o.Master.SyscallConn()
	if err != nil {
		return
	}
	const quiet = 2 * time.Millisecond // for what was read and is not written yet
	for deadline := time.Now().Add(100 * time.Millisecond); time.Now().Before(deadline); {
		pending := false
		_ = conn.Control(func(fd uintptr) {
			p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
			n, err := poll(p, 0)
			pending = err == nil && n > 0 && p[0].Revents&unix.POLLIN != 0
		})
		time.Sleep(quiet)
		if !pending {
			return
		}
	}
}

// stopGroup sends a stop signal to our process group and calls then once it
// was continued.
func stopGroup(sig unix.Signal, then func() error) error {
	continued := make(chan os.Signal, 1)
	signal.Notify(continued, unix.SIGCONT)
	defer signal.Stop(continued)
	if err := unix.Kill(0, sig); err != nil {
		return os.NewSyscallError("kill", err)
	}
	// An orphaned process group is not stopped by these signals, and so
	// never continued: setpgid(2), POSIX. The clock runs on while we are
	// stopped, so this does not hold up anybody else.
	select {
	case <-continued:
	case <-time.After(100 * time.Millisecond):
	}
	return then()
}

// Wait returns when all output is written: every process that had the
// pseudo-terminal open has closed it or is dead; or when for a patience that is not
// 0 nothing was on its way, or the terminal took nothing. See [Options.Output] for errors of
// writing.
func (r *Relay) Wait(patience time.Duration) { waitFor(r, r.screened, patience) }

// endless bounds how long a wait with a patience goes on while output keeps coming.
const endless = time.Minute

// waitFor waits for done, or until a patience that is not 0 ends in which nothing could be done: on a busy machine
// what was printed has not come as far, and would be lost.
func waitFor(r *Relay, done <-chan struct{}, patience time.Duration) {
	if patience == 0 {
		<-done
		return
	}
	for late := time.Now().Add(endless); ; {
		select {
		case <-done:
			return
		case <-time.After(patience):
			if !moves(r) || time.Now().After(late) {
				return
			}
		}
	}
}

// moves reports whether the terminal takes output, and some is on its way, or nobody can print any more.
func moves(r *Relay) bool {
	takes := []unix.PollFd{{Fd: int32(r.o.Terminal), Events: unix.POLLOUT}}
	if n, err := poll(takes, 0); err == unix.EINTR {
		return true
	} else if err != nil || n == 0 {
		return false
	}
	if !r.output.TryLock() { // something is being shown, or a question
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.typed == nil
	}
	r.output.Unlock()
	comes := []unix.PollFd{{Events: unix.POLLIN}}
	if control(r.o.Master, func(fd int) error {
		comes[0].Fd = int32(fd)
		_, err := poll(comes, 0)
		return err
	}) != nil {
		return true // it is closed
	}
	return comes[0].Revents != 0
}

// HungUp is closed when the host's terminal has gone away. The command has
// then got SIGHUP, as it would outside.
func (r *Relay) HungUp() <-chan struct{} { return r.hungUp }

// Close ends the relay and leaves the terminal as it was before: its modes,
// and what the command had switched on in it and not off again ([Filter.Reset]).
// It may be called on every way out, more than once, and at any time. The modes are given back
// at once; the terminal may take nothing of the rest, for which a patience that is not 0 ends.
func (r *Relay) Close(patience time.Duration) {
	r.mu.Lock()
	if r.closed {
		r.mu.Unlock()
		return
	}
	r.closed = true
	r.giveBack() // before anybody else finds it closed
	r.mu.Unlock()
	close(r.ended)
	signal.Stop(r.signals)
	close(r.signals)
	_ = r.o.Master.Close() // unless it is closed: see hangUp
	waitFor(r, r.screened, 200*time.Millisecond)
	select {
	case <-r.screened:
		// Not while the screen's loop writes; and not at all if it is stuck
		// in a terminal that takes nothing, where we would stick as well.
		written := make(chan struct{})
		go func() {
			defer close(written)
			r.output.Lock() // a question that was open is taken away first
			defer r.output.Unlock()
			if b := r.o.Filter.Reset(); len(b) > 0 {
				_, _ = r.o.Output.Write(b)
			}
		}()
		waitFor(r, written, patience)
	default:
	}
	<-r.keysDone
	r.closeWake()
}

// onPanic gives the terminal back when one of our own loops fails, so that
// the message can be read.
func (r *Relay) onPanic() {
	if v := recover(); v != nil {
		r.release()
		panic(v)
	}
}

func (r *Relay) closeWake() {
	unix.Close(r.wake)
	if r.poked != r.wake {
		unix.Close(r.poked)
	}
}

// poke makes the keys' loop look again.
func (r *Relay) poke() {
	one := [8]byte{1}
	_, _ = unix.Write(r.poked, one[:])
}

// hangUp closes the master: the kernel then sends SIGHUP to the command's
// session, and its reads and writes fail, as when the terminal were its own.
func (r *Relay) hangUp() {
	r.hangOnce.Do(func() {
		close(r.hungUp)
		_ = r.o.Master.Close()
	})
}

// keys relays what is typed, while we are in raw mode.
func (r *Relay) keys() {
	defer close(r.keysDone)
	defer r.onPanic()
	buf := make([]byte, 16<<10)
	for {
		r.mu.Lock()
		raw, closed := r.raw, r.closed
		r.mu.Unlock()
		if closed {
			return
		}
		fds := []unix.PollFd{{Fd: int32(r.wake), Events: unix.POLLIN}, {Fd: int32(r.o.Terminal), Events: unix.POLLIN}}
		if !raw {
			fds[1].Events = 0 // not what is typed, but that the terminal goes away
		}
		if _, err := poll(fds, -1); err != nil && err != unix.EINTR {
			return
		}
		if fds[0].Revents != 0 {
			var count [8]byte
			_, _ = unix.Read(r.wake, count[:])
			continue // our state has changed
		}
		if fds[1].Revents == 0 {
			continue
		}
		if !raw {
			// Nobody tells us, in the background: HUP is for the foreground, and for who is stopped.
			r.hangUp()
			return
		}
		n, err := r.read(buf)
		gone := err == nil && n == 0 && fds[1].Revents&(unix.POLLHUP|unix.POLLERR|unix.POLLNVAL) != 0
		if gone || err != nil && err != unix.EINTR && err != unix.EAGAIN {
			r.hangUp()
			return
		}
		if n > 0 && r.isAnswer(buf[:n]) {
			continue
		}
		if n > 0 {
			if _, err := r.o.Master.Write(buf[:n]); err != nil {
				return // the command's side is gone: the screen's loop says so
			}
		}
	}
}

// read takes what was typed, if the keys are still ours. In our raw mode it
// never blocks: see [RawModes].
func (r *Relay) read(buf []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.raw {
		return 0, unix.EAGAIN
	}
	n, err := unix.Read(r.o.Terminal, buf)
	if n > 0 && !r.stop {
		_ = control(r.o.Master, func(fd int) error {
			has, err := getModes(fd)
			key := has.Cc[unix.VINTR] // 0: none
			r.stop = err == nil && has.Lflag&unix.ISIG != 0 && key != 0 && bytes.IndexByte(buf[:n], key) >= 0
			return err
		})
	}
	return n, err
}

// Interrupted reports whether the interrupt key was typed in our foreground, while the command had it signal. Outside, the
// kernel would have sent SIGINT to the whole process group: a script in it goes by that, and not by how we end alone. A
// terminal that is not our controlling one signals nobody of us.
func (r *Relay) Interrupted() bool {
	group, err := unix.IoctlGetInt(r.o.Terminal, unix.TIOCGPGRP)
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.stop && err == nil && group == unix.Getpgrp()
}

// screen relays the command's output until nobody can write any more, which
// the kernel reports as EIO.
func (r *Relay) screen() {
	defer close(r.screened)
	defer r.onPanic()
	buf := make([]byte, 64<<10)
	for {
		n, err := r.o.Master.Read(buf)
		if n > 0 {
			r.output.Lock()
			shown := r.show(r.o.Filter.Filter(buf[:n]))
			r.output.Unlock()
			if !shown {
				r.hangUp()
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// show writes output, and reports whether the terminal is still there.
func (r *Relay) show(b []byte) bool {
	if len(b) == 0 {
		return true
	}
	if r.o.Log != nil {
		if _, err := r.o.Log.Write(b); err != nil {
			r.o.Log = nil
		}
	}
	r.within = b[len(b)-1] != '\n'
	_, err := r.o.Output.Write(b)
	return err == nil
}

// Say prints a line between two of the command's, and reports whether it did: not where the command draws a screen of its
// own, which takes its keys one by one or has the alternate screen, and not where the terminal is another's.
func (r *Relay) Say(line string) bool {
	drawn := true
	_ = control(r.o.Master, func(fd int) error {
		has, err := getModes(fd)
		drawn = err != nil || has.Lflag&unix.ICANON == 0
		return err
	})
	if drawn || !r.Active() || !r.hold() {
		return false
	}
	defer r.output.Unlock()
	if r.o.Filter.screen.alternate() {
		return false
	}
	if r.within {
		line = "\r\n" + line
	}
	r.within = false
	_, err := r.o.Output.Write([]byte(line + "\r\n"))
	return err == nil
}

// Clipped reports whether the command wanted to write the clipboard. It may be asked once the command has ended.
func (r *Relay) Clipped() bool {
	if !r.output.TryLock() { // a terminal that takes nothing
		return false
	}
	defer r.output.Unlock()
	return r.o.Filter.Clipped
}

// watch follows the terminal's size, and its return to us.
func (r *Relay) watch() {
	defer r.onPanic()
	for sig := range r.signals {
		if sig == unix.SIGCONT {
			if r.takeUp() != nil {
				continue
			}
		}
		r.copySize()
	}
}

func (r *Relay) copySize() {
	size, err := unix.IoctlGetWinsize(r.o.Terminal, unix.TIOCGWINSZ)
	if err != nil {
		return
	}
	_ = control(r.o.Master, func(fd int) error { return unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, size) })
}

// IsTerminal reports whether the descriptor is a terminal.
func IsTerminal(fd int) bool {
	_, err := getModes(fd)
	return err == nil
}

// foreground reports whether we may change the terminal's modes without
// being stopped. Where it is not our controlling terminal, there is no job
// control, and we may.
func foreground(fd int) bool {
	group, err := unix.IoctlGetInt(fd, unix.TIOCGPGRP)
	return err != nil || group == unix.Getpgrp()
}

// MakeRaw takes a pseudo-terminal's line discipline away, where the command's own terminal has one. A read that waits still
// ends when the file is closed, which [os.File.Fd] would prevent.
func MakeRaw(f *os.File) error {
	return control(f, func(fd int) error {
		modes, err := getModes(fd)
		if err != nil {
			return err
		}
		raw := RawModes(modes)
		raw.Cc[unix.VMIN] = 1
		return setModes(fd, raw)
	})
}

// RawModes is what cfmakeraw(3) makes of the modes, but that a read returns
// at once, with nothing if there is nothing: another reader of the terminal
// may be faster, and we must not wait with a lock held.
func RawModes(t unix.Termios) unix.Termios {
	t.Iflag &^= unix.IGNBRK | unix.BRKINT | unix.PARMRK | unix.ISTRIP | unix.INLCR | unix.IGNCR | unix.ICRNL | unix.IXON
	t.Oflag &^= unix.OPOST
	t.Lflag &^= unix.ECHO | unix.ECHONL | unix.ICANON | unix.ISIG | unix.IEXTEN
	t.Cflag = t.Cflag&^(unix.CSIZE|unix.PARENB) | unix.CS8
	t.Cc[unix.VMIN], t.Cc[unix.VTIME] = 0, 0
	return t
}

func getModes(fd int) (unix.Termios, error) {
	t, err := unix.IoctlGetTermios(fd, getTermios)
	if err != nil {
		return unix.Termios{}, os.NewSyscallError("ioctl(TCGETS)", err)
	}
	return *t, nil
}

func setModes(fd int, t unix.Termios) error {
	for {
		err := unix.IoctlSetTermios(fd, setTermios, &t)
		if err != unix.EINTR {
			return os.NewSyscallError("ioctl(TCSETS)", err)
		}
	}
}

// control calls f with the file's descriptor, without making it blocking.
func control(file *os.File, f func(fd int) error) error {
	conn, err := file.SyscallConn()
	if err != nil {
		return err
	}
	var ferr error
	if err := conn.Control(func(fd uintptr) { ferr = f(int(fd)) }); err != nil {
		return err
	}
	return ferr
}

// A tty writes to the host's terminal by its descriptor, whose flags it
// shares with other programs and so must leave alone: a non-blocking one is
// waited for.
type tty int

func (t tty) Write(b []byte) (int, error) {
	done := 0
	for done < len(b) {
		n, err := unix.Write(int(t), b[done:])
		switch {
		case err == nil && n == 0:
			return done, io.ErrShortWrite
		case err == nil:
			done += n
		case errors.Is(err, unix.EAGAIN):
			_, _ = poll([]unix.PollFd{{Fd: int32(t), Events: unix.POLLOUT}}, -1)
		case err != unix.EINTR:
			return done, os.NewSyscallError("write", err)
		}
	}
	return done, nil
}
