package netproxy

import (
	"context"
	"encoding/binary"
	"net"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/netproxy/rules"
)

// A loop carries connections to the host's own loopback, each in one thread, by epoll(7): it
// accepts, decides, dials and relays. Nothing about them has to be waited for: no name is
// resolved, the kernel dials at once, and what the client says names no host. In
// goroutines each of them is handed from thread to thread, which have to be woken for it:
// a third of all that a short one costs. What cannot be done at once, the loop gives to
// goroutines: whatever leads elsewhere before it is dialled, and a connection that moves
// much, or whose reader is slow, as it stands. There is a loop for each processor, up to
// maxLoops, and a client is the first one's that comes to it.
//
// What epoll(7) reports is a hint, and level-triggered: only read(2) tells what has come. A
// report for who had the place before does no harm.
type loop struct {
	p           *Proxy
	epoll, bell int // the bell is an eventfd(2), rung when there is something to do

	mu   sync.Mutex
	todo []func()

	// Of the loop's own thread.
	places []any     // a *door or a *flow, or nothing
	free   []int     // of the places
	shut   []*door   // for want of descriptors
	since  time.Time // when the first of them was shut
	over   bool
	buf    [loopBuffer]byte
}

// loopBuffer is what the loop reads at once. Who fills it gets goroutines, whose buffers
// are larger.
const loopBuffer = 64 << 10

// maxLoops bounds the threads that a proxy has for its loops.
const maxLoops = 4

// shutFor is how long a door stays shut for want of descriptors.
const shutFor = 20 * time.Millisecond

// The bell has no place.
const bellPlace = -1

// A door is a listener that the loops accept from.
type door struct {
	entrance
	ctx    context.Context
	fd     int
	failed chan error // has room for one
}

// A flow is a connection in the loop.
type flow struct {
	door  *door
	place int
	sides [2]side // the client's, the server's
	ev    Event
}

// A side is one end of a flow.
type side struct {
	fd    int
	bytes int64 // that came from it and went on
	ended bool  // no more comes from it, and the other one knows
}

// serveAtOnce is serve for a listener whose connections may lead to the host's loopback.
// The loops begin with the first that does: it has goroutines, and a command that makes
// none pays for no threads.
func (p *Proxy) serveAtOnce(ctx context.Context, ln net.Listener, e entrance) error {
	if !p.atOnce {
		return p.serve(ctx, ln, e.handle)
	}
	var d *door
	var loops []*loop
	err := p.serveUntil(ctx, ln, e.handle, func(c net.Conn) bool {
		if to, ok := c.LocalAddr().(*net.TCPAddr); ok && e.leadsHere(e.decide(to.AddrPort())) {
			d, loops, _ = p.takeOver(ln, e) // else it stays as it is
		}
		return d != nil
	})
	if d == nil {
		return err
	}
	return p.serveDoor(ctx, d, loops)
}

// leadsHere says whether a verdict is one that a loop carries out.
func (e *entrance) leadsHere(v rules.Verdict) bool {
	return v.Action == rules.Allow && v.Local && v.Port != e.own
}

// takeOver makes a door of a listener, which may be closed then: Go's own epoll(7) would
// else be woken by each connection. With it come the loops that it is a door of.
func (p *Proxy) takeOver(ln net.Listener, e entrance) (*door, []*loop, error) {
	fd, err := duplicate(ln)
	if err != nil {
		return nil, nil, err
	}
	loops, err := p.enter()
	if err != nil {
		unix.Close(fd)
		return nil, nil, err
	}
	return &door{entrance: e, fd: fd, failed: make(chan error, 1)}, loops, nil
}

// serveDoor has the loops serve a door until ctx is done or the proxy closed.
func (p *Proxy) serveDoor(ctx context.Context, d *door, loops []*loop) (err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(p.ctx, cancel)()
	d.ctx = ctx
	for _, l := range loops {
		l.do(func() { l.open(d) })
	}
	select {
	case <-ctx.Done():
	case err = <-d.failed:
	}
	cancel()
	var left sync.WaitGroup
	for _, l := range loops {
		left.Add(1)
		l.do(func() {
			defer left.Done()
			l.leave(d)
		})
	}
	left.Wait()
	unix.Close(d.fd)
	p.exit()
	p.cutAll(ctx)
	return err
}

// duplicate returns a descriptor of ln's own that nothing of Go's looks after.
func duplicate(ln net.Listener) (fd int, err error) {
	sc, ok := ln.(syscall.Conn)
	if !ok {
		return -1, unix.ENOTSUP
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return -1, err
	}
	if e := raw.Control(func(of uintptr) { fd, err = unix.FcntlInt(of, unix.F_DUPFD_CLOEXEC, 0) }); e != nil {
		return -1, e
	}
	return fd, err
}

// enter returns the loops, for one door more. They run from the first to the last.
func (p *Proxy) enter() (loops []*loop, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ctx.Err() != nil {
		return nil, net.ErrClosed
	}
	if p.doors == 0 {
		for range min(runtime.GOMAXPROCS(0), maxLoops) {
			l, err := newLoop(p)
			if err != nil {
				for _, l := range loops {
					l.close()
				}
				return nil, err
			}
			loops = append(loops, l)
		}
		for _, l := range loops {
			go l.run()
		}
		p.loops = loops
	}
	p.doors++
	p.group.Add(1)
	return p.loops, nil
}

// exit is for a door that was left.
func (p *Proxy) exit() {
	p.mu.Lock()
	if p.doors--; p.doors == 0 {
		for _, l := range p.loops {
			l.do(func() { l.over = true })
		}
		p.loops = nil
	}
	p.mu.Unlock()
	p.group.Done()
}

func newLoop(p *Proxy) (*loop, error) {
	l := &loop{p: p, epoll: -1, bell: -1}
	var err error
	if l.epoll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err == nil {
		l.bell, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	}
	if err == nil {
		err = l.watch(unix.EPOLL_CTL_ADD, l.bell, unix.EPOLLIN, bellPlace, 0)
	}
	if err != nil {
		l.close()
		return nil, err
	}
	return l, nil
}

func (l *loop) close() {
	unix.Close(l.epoll)
	unix.Close(l.bell)
}

// do has f called in the loop's thread. Whoever calls it has a door.
func (l *loop) do(f func()) {
	l.mu.Lock()
	l.todo = append(l.todo, f)
	l.mu.Unlock()
	var one [8]byte
	binary.NativeEndian.PutUint64(one[:], 1)
	_, _ = unix.Write(l.bell, one[:]) // which fails where it is ringing already, and a lot
}

func (l *loop) run() {
	var events [64]unix.EpollEvent
	for !l.over {
		patience := -1
		if len(l.shut) > 0 {
			patience = int(shutFor / time.Millisecond)
		}
		n, err := unix.EpollWait(l.epoll, events[:], patience)
		if err != nil && err != unix.EINTR {
			panic("BUG: epoll_wait: " + err.Error())
		}
		if len(l.shut) > 0 && time.Since(l.since) >= shutFor {
			l.reopen()
		}
		for _, e := range events[:max(n, 0)] {
			if e.Fd == bellPlace {
				l.answer()
				continue
			}
			switch at := l.places[e.Fd].(type) {
			case *door:
				l.accept(at)
			case *flow:
				l.move(at, int(e.Pad), e.Events)
			}
		}
	}
	l.close()
}

// answer does what there is to do.
func (l *loop) answer() {
	var count [8]byte
	_, _ = unix.Read(l.bell, count[:])
	l.mu.Lock()
	todo := l.todo
	l.todo = nil
	l.mu.Unlock()
	for _, f := range todo {
		f()
	}
}

// watch has epoll(7) report what happens to a descriptor of a place.
func (l *loop) watch(op, fd int, what uint32, place, side int) error {
	return unix.EpollCtl(l.epoll, op, fd, &unix.EpollEvent{Events: what, Fd: int32(place), Pad: int32(side)})
}

// seat gives a place to a door or a flow.
func (l *loop) seat(what any) (place int) {
	if n := len(l.free); n > 0 {
		place, l.free = l.free[n-1], l.free[:n-1]
		l.places[place] = what
		return place
	}
	l.places = append(l.places, what)
	return len(l.places) - 1
}

func (l *loop) unseat(place int) {
	l.places[place] = nil
	l.free = append(l.free, place)
}

// open lets clients in at a door. Of the loops that wait each of them wakes one.
func (l *loop) open(d *door) {
	if err := l.watch(unix.EPOLL_CTL_ADD, d.fd, unix.EPOLLIN|unix.EPOLLEXCLUSIVE, l.seat(d), 0); err != nil {
		d.fail(err)
	}
}

// shutDoor lets nobody in any more.
func (l *loop) shutDoor(d *door) {
	_ = l.watch(unix.EPOLL_CTL_DEL, d.fd, 0, 0, 0)
	if i := slices.Index(l.places, any(d)); i >= 0 {
		l.unseat(i)
	}
}

// leave ends a door and all who came in by it.
func (l *loop) leave(d *door) {
	for _, at := range l.places {
		if f, ok := at.(*flow); ok && f.door == d {
			l.end(f)
		}
	}
	l.shut = slices.DeleteFunc(l.shut, func(s *door) bool { return s == d })
	l.shutDoor(d)
}

// reopen opens the doors that were shut.
func (l *loop) reopen() {
	for _, d := range l.shut {
		l.open(d)
	}
	l.shut = nil
}

func (d *door) fail(err error) {
	select {
	case d.failed <- err:
	default:
	}
}

// accept lets one client in.
func (l *loop) accept(d *door) {
	fd, _, err := syscall.Accept4(d.fd, unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC)
	switch {
	case err == unix.EAGAIN, err == unix.EINTR, err == unix.ECONNABORTED:
		return
	case transient(err): // the client that could not be accepted waits in the kernel
		l.shutDoor(d)
		if l.shut = append(l.shut, d); len(l.shut) == 1 {
			l.since = time.Now()
		}
		return
	case err != nil:
		l.shutDoor(d)
		d.fail(os.NewSyscallError("accept4", err))
		return
	case !l.p.takeSlot():
		abruptly(fd)
		unix.Close(fd)
		return
	}
	to, err := nameOf(fd)
	if err != nil {
		unix.Close(fd)
		<-l.p.slots
		return
	}
	if v := d.decide(to); d.leadsHere(v) && l.begin(d, fd, v) {
		return
	}
	c, err := adopt(fd)
	if err != nil { // for want of the descriptor that it takes in between
		l.p.cfg.Event(Event{Kind: Full, Time: time.Now()})
	}
	if err != nil || !l.p.track(c, d.ctx) {
		<-l.p.slots
		return
	}
	l.p.work(func() { l.p.serveOne(d.ctx, c, d.handle) })
}

// adopt makes a connection of Go's own of a descriptor, which it closes in any case.
func adopt(fd int) (net.Conn, error) {
	// A file that blocks is none that Go's epoll(7) would look after, for a moment.
	if err := unix.SetNonblock(fd, false); err != nil {
		unix.Close(fd)
		return nil, err
	}
	f := os.NewFile(uintptr(fd), "client")
	defer f.Close()
	return net.FileConn(f)
}

// begin dials for a client, if the kernel does it at once. Where it does not, whoever waits
// for that has words for what goes wrong.
func (l *loop) begin(d *door, fd int, v rules.Verdict) bool {
	a := netip.AddrFrom4([4]byte{127, 0, 0, 1})
	if v = l.p.cfg.Rules.DecideAddr(v, a, true); v.Action != rules.Allow {
		return false
	}
	if unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1) != nil {
		return false
	}
	server, err := dialAtOnce(netip.AddrPortFrom(a, v.Port))
	if err != nil {
		return false
	}
	f := &flow{door: d, ev: Event{Kind: Opened, Time: time.Now(), Protocol: d.protocol, Verdict: v}}
	f.sides[0].fd, f.sides[1].fd = fd, server
	f.place = l.seat(f)
	l.p.cfg.Event(f.ev)
	for i, s := range f.sides {
		if err := l.watch(unix.EPOLL_CTL_ADD, s.fd, unix.EPOLLIN|unix.EPOLLRDHUP, f.place, i); err != nil {
			l.breakOff(f)
			break
		}
	}
	return true
}

// move passes on what has come from one side.
func (l *loop) move(f *flow, from int, ready uint32) {
	src, dst := &f.sides[from], &f.sides[1-from]
	if src.ended {
		if ready&(unix.EPOLLERR|unix.EPOLLHUP) != 0 { // there is nobody any more to pass anything to
			l.breakOff(f)
		}
		return
	}
	buf := l.room()
	n, err := read(src.fd, buf)
	switch {
	case err == unix.EAGAIN:
		return
	case err != nil:
		l.breakOff(f)
		return
	}
	over := n == 0
	// The end has come too; an error is left to the next read, which is told of it once: to
	// the one after it a connection that was broken off has come to its end.
	if n > 0 && n < len(buf) && ready&(unix.EPOLLRDHUP|unix.EPOLLERR) == unix.EPOLLRDHUP {
		m, err := read(src.fd, buf[n:])
		over = m == 0 && err == nil
		n += m
	}
	if n > 0 {
		sent, err := send(dst.fd, buf[:n], over)
		src.bytes += int64(sent)
		switch {
		case err != nil && err != unix.EAGAIN:
			l.breakOff(f)
			return
		case sent < n || n == len(buf):
			l.grow(f, from, buf[sent:n], over)
			return
		}
	}
	if !over {
		return
	}
	src.ended = true
	switch {
	case dst.ended:
		l.end(f)
	case unix.Shutdown(dst.fd, unix.SHUT_WR) != nil, l.watch(unix.EPOLL_CTL_MOD, src.fd, 0, f.place, from) != nil:
		l.breakOff(f)
	}
}

// room is where a read goes: a small one while as many big buffers are held as there may
// be, since what its reader does not take a connection holds until it does.
func (l *loop) room() []byte {
	if bigTaken.Load() >= bigBuffers {
		return l.buf[:smallBuffer]
	}
	return l.buf[:]
}

// read is read(2) for the loop. Of nothing read because of an error it returns 0.
func read(fd int, b []byte) (int, error) {
	for {
		n, err := unix.Read(fd, b)
		if err != unix.EINTR {
			return max(n, 0), err
		}
	}
}

// send sends what fits, and with the end that follows it in one packet.
func send(fd int, b []byte, ends bool) (int, error) {
	flags := unix.MSG_NOSIGNAL
	if ends {
		flags |= moreToCome
	}
	for {
		n, err := unix.SendmsgN(fd, b, nil, nil, flags)
		if err != unix.EINTR {
			return max(n, 0), err
		}
	}
}

// end closes a flow, and leaves to the kernel what was not sent yet.
func (l *loop) end(f *flow) {
	unix.Close(f.sides[0].fd)
	unix.Close(f.sides[1].fd)
	l.unseat(f.place)
	<-l.p.slots // before it is told, so that who hears of it finds room
	l.p.closed(&f.ev, f.sides[0].bytes, f.sides[1].bytes)
}

// breakOff ends a flow so that both sides hear of it at once.
func (l *loop) breakOff(f *flow) {
	for _, s := range f.sides {
		abruptly(s.fd)
	}
	l.end(f)
}

// abruptly has close(2) reset a connection.
func abruptly(fd int) {
	_ = unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
}

// grow gives a flow to goroutines, as it stands: rest has come from one side and is still to
// go on, and is the last of it if over.
func (l *loop) grow(f *flow, from int, rest []byte, over bool) {
	l.unseat(f.place)
	for _, s := range f.sides {
		_ = l.watch(unix.EPOLL_CTL_DEL, s.fd, 0, 0, 0)
	}
	client, server := carry(f.sides[0].fd, netip.AddrPort{}), carry(f.sides[1].fd, netip.AddrPort{})
	if !l.p.track(client, f.door.ctx) {
		server.Close()
		l.p.closed(&f.ev, f.sides[0].bytes, f.sides[1].bytes)
		<-l.p.slots
		return
	}
	l.p.leads(f.door.ctx, client, server)
	go l.p.goOn(f, [2]net.Conn{client, server}, from, hold(rest), over)
}

// Untaken is what a connection holds until its reader takes it.
type untaken []byte

// hold keeps a copy of b. If that is more than a small buffer, it is one of the big ones.
func hold(b []byte) untaken {
	if len(b) > smallBuffer {
		bigTaken.Add(1)
	}
	return slices.Clone(b)
}

// writeTo writes it, and lets go of it.
func (u untaken) writeTo(dst net.Conn) (int64, error) {
	n, err := dst.Write(u)
	if len(u) > smallBuffer {
		bigTaken.Add(-1)
	}
	return int64(n), err
}

// goOn is what becomes of a flow that has left its loop.
func (p *Proxy) goOn(f *flow, ends [2]net.Conn, from int, rest untaken, over bool) {
	src, dst := ends[from], ends[1-from]
	var t tunnel
	back := make(chan int64, 1)
	if f.sides[1-from].ended {
		t.over.Store(true)
		back <- 0
	} else {
		go func() { back <- t.pass(src, dst) }()
	}
	n, err := rest.writeTo(dst)
	if err != nil || over {
		t.end(dst, src, err)
	} else {
		n += t.pass(dst, src)
	}
	f.sides[from].bytes += n
	f.sides[1-from].bytes += <-back
	ends[1].Close()
	p.closedSoon(&f.ev, f.sides[0].bytes, f.sides[1].bytes)
	p.end(ends[0])
}
