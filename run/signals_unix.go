//go:build unix

package run

import (
	"os"
	"os/signal"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/internal/messages"
	"github.com/pccrun/pccrun/internal/terminal"
)

// twice is how soon a second Ctrl-C must follow to mean: end it now.
const twice = 5 * time.Second

// together is how close a TSTP and a CONT are whose order is not known: they can have
// waited in the runtime, on a busy machine for long, and it hands them on by their numbers.
const together = 100 * time.Millisecond

// stopDelay is how long after a TSTP we stop ourselves: who continues us at once has done
// so by then, and the runtime has heard of it. The command is stopped before.
const stopDelay = 50 * time.Millisecond

// impatience is how long somebody who wants us to end waits before he hears why we
// have not.
const impatience = 300 * time.Millisecond

// A catcher has the signals to pccrun from the moment a launch makes what would be
// left. Until the command runs the first ends the launch in order
// ([catcher.interrupted]); then they are passed on ([catcher.forward]).
type catcher struct {
	signals chan os.Signal
	forced  bool // see [catcher.forward]

	mu     sync.Mutex
	to     func(unix.Signal) // whom they are passed on to; nil until then
	wanted unix.Signal       // the end of a launch, by this; 0 for none
	timer  *time.Timer       // bounds how long that takes
	cancel func()            // ends the launch at a provider that takes its time; nil: nobody is waited for longer than orderly

	relay atomic.Pointer[terminal.Relay] // which has the terminal; nil if none has
}

// orderly is how long somebody waits for the end of a launch that takes away what it
// has made. A step of it can hang, in a look-up on a host that does not answer.
const orderly = 2 * time.Second

// ends are the signals that end a launch.
var ends = [...]os.Signal{unix.SIGINT, unix.SIGQUIT, unix.SIGHUP, unix.SIGTERM, unix.SIGUSR1, unix.SIGUSR2}

// catch begins to catch signals. What is ignored stays so for the time of the launch,
// for it is what the copy that is to be pid 1 begins with.
func catch() *catcher {
	arrived.prepared.Wait()
	c := &catcher{forced: !signal.Ignored(unix.SIGINT), signals: arrived.signals}
	for _, sig := range ends {
		if !signal.Ignored(sig) {
			signal.Notify(c.signals, sig)
		}
	}
	signal.Notify(c.signals, unix.SIGPIPE)
	arrived.handTo(c)
	return c
}

// caught is called for each signal, one after the other.
func (c *catcher) caught(sig unix.Signal) {
	c.mu.Lock()
	to := c.to
	switch {
	case to != nil || sig == unix.SIGPIPE:
	case c.cancel != nil:
		c.wanted = sig
		c.cancel()
	case c.wanted != 0:
		c.endBy(sig)
	default:
		c.wanted = sig
		c.timer = time.AfterFunc(orderly, func() {
			c.mu.Lock()
			defer c.mu.Unlock()
			if c.to == nil {
				c.endBy(sig)
			}
		})
	}
	c.mu.Unlock()
	if to != nil {
		to(sig)
	}
}

// lastWord is how long a terminal has to take what gives it back, where this process ends.
const lastWord = 200 * time.Millisecond

// endBy gives the terminal back, and ends this process by a signal ([endBy]), and its process group with it where a key says so.
func (c *catcher) endBy(sig unix.Signal) {
	if r := c.relay.Load(); r != nil {
		r.Close(lastWord)
		if sig == unix.SIGINT && r.Interrupted() {
			signal.Reset(sig)
			_ = unix.Kill(0, sig)
		}
	}
	endBy(sig)
}

// hand passes the signals on from now on, beginning with one that came while the
// command began to run.
func (c *catcher) hand(to func(unix.Signal)) {
	c.mu.Lock()
	c.to = to
	sig := c.wanted
	c.mu.Unlock()
	signal.Notify(c.signals, ends[:]...) // those too that were ignored
	if sig != 0 {
		if c.timer != nil {
			c.timer.Stop()
		}
		to(sig)
	}
}

// interrupted returns an [interruptedError] if a signal wants the launch to end.
func (c *catcher) interrupted() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.wanted != 0 {
		return &interruptedError{c.wanted}
	}
	return nil
}

// ends has the first signal end a launch at another provider, which takes away what it has made.
func (c *catcher) ends(cancel func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cancel = cancel
	if c.timer != nil {
		c.timer.Stop()
	}
	if c.wanted != 0 {
		cancel()
	}
}

// An interruptedError ends a launch in order, and then pccrun by the signal.
type interruptedError struct{ signal unix.Signal }

func (e *interruptedError) Error() string {
	return "launch: " + unix.SignalName(e.signal) + " came before the command ran"
}

// endBy ends this process by a signal, as it ends any program. Those that Go's runtime
// would not end it by, and any in the first process of a pid namespace, which no such
// signal ends (pid_namespaces(7)), end it with the status that a shell reports.
func endBy(sig unix.Signal) {
	if sig == unix.SIGINT || sig == unix.SIGHUP || sig == unix.SIGTERM {
		signal.Reset(sig)
		unix.Kill(os.Getpid(), sig)
		time.Sleep(stopDelay) // another thread may be the one that meets it
	}
	os.Exit(128 + int(sig))
}

// forward passes the signals that were caught on to the command; stop ends that, and says
// whether a second Ctrl-C ended the run, by kill.
//
// A second INT within five seconds ends everything, unless pccrun was started so that it
// ignores INT, as a shell that controls no jobs starts what it puts in its background: that
// goes on at any number of them. Where the command has no terminal of its own, and the provider
// is this machine (stops), TSTP stops it and us, and CONT continues both. PIPE ends
// nobody: whoever reads what we say may go before we have looked after the run.
//
// When the command is gone, the first that would end us is held until that is done:
// who presses Ctrl-C until a program ends presses it once too often, and what the
// command made would be lost. A second ends us.
func (c *catcher) forward(to chan<- int, kill func(), stops bool) (stop func() bool) {
	var mu sync.Mutex
	var killed, over, held bool
	var last time.Time
	send := func(sig unix.Signal) {
		select {
		case to <- linuxNumber(sig):
		default: // who takes none of sixteen takes no more
		}
	}
	// A CONT that came after a TSTP, or so close before that nobody knows their order,
	// takes it back: who has sent both would wait for ever for us to go on.
	continued := make(chan os.Signal, 1)
	var lately time.Time
	resumed := func() bool {
		select {
		case <-continued:
			lately = time.Now()
		default:
		}
		return time.Since(lately) < together || pending(unix.SIGCONT)
	}
	pass := func(sig unix.Signal) {
		mu.Lock()
		defer mu.Unlock()
		if sig == unix.SIGPIPE {
			return
		}
		if sig == unix.SIGCONT {
			resumed()
			return
		}
		if over && !held {
			held = true
			time.AfterFunc(impatience, func() {
				messages.Say("the command has ended and the post-run check is running; a second signal stops it and loses what it has not saved")
			})
			return
		}
		if over {
			c.endBy(sig)
			return
		}
		switch {
		case sig == unix.SIGINT && c.forced && time.Since(last) < twice:
			killed = true
			kill()
		case sig == unix.SIGTSTP:
			if resumed() {
				return
			}
			// The command leads an orphaned group, which ignores TSTP.
			send(unix.SIGSTOP)
			for i := 0; len(to) > 0 && i < 100; i++ { // the provider takes it first: it stops with us
				time.Sleep(stopDelay)
			}
			time.Sleep(stopDelay)
			if !resumed() {
				stopSelf()
			}
			send(unix.SIGCONT)
		default:
			if sig == unix.SIGINT {
				last = time.Now()
			}
			send(sig)
		}
	}
	if stops {
		signal.Notify(c.signals, unix.SIGTSTP, unix.SIGCONT)
		signal.Notify(continued, unix.SIGCONT)
	}
	c.hand(pass)
	// The goroutine and the handlers stay: to take a handler back costs two
	// switches of threads, and the process is about to end.
	return func() bool {
		mu.Lock()
		defer mu.Unlock()
		over = true
		return killed
	}
}

// arrived are the signals that this process gets: one channel from the start to the end, so
// that none is lost, or met twice, as a catcher takes over.
var arrived = arrivals{signals: make(chan os.Signal, 16)}

type arrivals struct {
	signals  chan os.Signal
	begin    sync.Once
	prepared sync.WaitGroup // see [arrivals.prepare]

	mu sync.Mutex
	to *catcher // nil: a signal ends this process
}

// prepare begins to catch those that are not ignored. A handler takes the runtime two switches of threads, and the first
// takes it two threads and moves whoever asks for it off the first thread, from which a sandbox is cloned at once
// ([namespaces.Begin]): so another goroutine asks.
func (a *arrivals) prepare(signals ...os.Signal) {
	a.prepared.Go(func() {
		for _, sig := range signals {
			if !signal.Ignored(sig) {
				signal.Notify(a.signals, sig)
			}
		}
	})
}

// handTo lets a catcher have the signals; nil, nobody.
func (a *arrivals) handTo(c *catcher) {
	a.mu.Lock()
	a.to = c
	a.mu.Unlock()
	a.begin.Do(func() { go a.deliver() })
}

func (a *arrivals) deliver() {
	for sig := range a.signals {
		a.mu.Lock()
		to := a.to
		if to == nil {
			endBy(sig.(unix.Signal)) // locked: nobody makes the terminal raw meanwhile
		}
		a.mu.Unlock()
		to.caught(sig.(unix.Signal))
	}
}

// EndQuietly has the signals at which Go's runtime prints a trace of all goroutines (QUIT),
// or which it drops, end this process, with the status that a shell reports. No signal leaves
// an image of our memory in the current directory (core(5)): it may hold secrets, and a
// command could read it. A limit of 1 stops a handler of the host's too; what the command
// gets does not come from ours.
func EndQuietly() {
	var core unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_CORE, &core) == nil {
		core.Cur = min(1, core.Max)
		_ = unix.Setrlimit(unix.RLIMIT_CORE, &core)
	}
	arrived.prepare(unix.SIGQUIT, unix.SIGUSR1, unix.SIGUSR2)
	arrived.handTo(nil)
}

// LeaveSignals leaves the signals that come from now on to others in this process.
func LeaveSignals() {
	arrived.prepared.Wait()
	signal.Stop(arrived.signals)
}
