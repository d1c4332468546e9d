package events

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"
)

// ErrNotWanted may be returned by [Sink.Open] to say that nobody needs the
// events after all.
var ErrNotWanted = errors.New("not wanted")

// A Sink is one reader of a session's events.
type Sink struct {
	Name string // for errors: "--events out.jsonl"
	// Open is called once, in a goroutine of the sink's own, which may block
	// there. What it returns gets whole lines and is closed at the end.
	Open func() (io.WriteCloser, error)
	// Wanted, if set, is asked by a [Log.Close] that comes before anything was
	// written and has something to write: on false nothing is opened at all.
	Wanted func() bool
	Prompt bool   // each line is written at once, however fast they come
	Only   []Type // empty: all
	Max    int64  // bytes in all, but for the last words of a session; 0: no bound
}

// Denials is the sink for the file that the payload itself may read, which
// is how an agent learns what was refused and what would allow it
// (/run/pccrun/denials.jsonl, $PCCRUN_DENIALS): the denials, in the
// same form as in every other place, no more than 1 MiB.
func Denials(w io.WriteCloser) Sink {
	return Sink{
		Name:   "denials",
		Open:   func() (io.WriteCloser, error) { return w, nil },
		Prompt: true, // who was refused looks there next
		Only:   []Type{Denial{}.Type()},
		Max:    1 << 20,
	}
}

// maxPending bounds the bytes that wait for a slow reader.
const maxPending = 1 << 20

// pace is the least time between two writes to a sink: the events of a thousand
// connections in a second are some fifty writes and not thousands, each of which
// would take the file system's locks, and a processor from who relays them. After a
// pause an event is written at once.
const pace = 20 * time.Millisecond

// A Log numbers the events of one session and hands them to its sinks. Its
// methods may be called at the same time.
type Log struct {
	session string
	now     func() time.Time

	mu      sync.Mutex
	seq     uint64
	early   []early // that came before anything was written
	scratch []byte
	queues  []*queue
	running bool
	closed  bool
	closing chan struct{} // closed with it
	denials tally
	repeats repeats
}

// An early event is made a line when the log begins to write: of most runs, which are short, nothing is ever written.
type early struct {
	at time.Time
	Event
}

// maxEarly bounds them.
const maxEarly = 64

// A queue holds the lines that one sink has not taken yet. The log's mutex
// guards it.
type queue struct {
	Sink
	pending []byte
	total   int64 // bytes ever queued
	dropped int64 // since the last Dropped
	lost    int64 // ever
	failed  bool  // nothing is queued any more
	wake    chan struct{}
	done    chan struct{}
	err     error // valid once done is closed
}

// NewLog returns the log of a session. It starts no goroutine and opens
// nothing: until [Log.Start], events only queue.
func NewLog(session string, sinks ...Sink) *Log {
	l := &Log{session: session, now: time.Now, closing: make(chan struct{})}
	for _, s := range sinks {
		l.queues = append(l.queues, &queue{Sink: s, wake: make(chan struct{}, 1), done: make(chan struct{})})
	}
	return l
}

// Start begins to write. Call it when the command runs: what happens before
// must not wait for a file system.
func (l *Log) Start() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.start()
}

func (l *Log) start() {
	if l.running {
		return
	}
	l.running = true
	for _, e := range l.early {
		l.line(e.at, e.Event)
	}
	l.early = nil
	for _, q := range l.queues {
		go l.drain(q)
	}
}

// Emit queues the event, and after a refused [NetDecision] its [Denial]. Of
// refusals that are alike not each is told: see [NetDecision.Times]. It never
// blocks. After [Log.Close] it does nothing.
func (l *Log) Emit(e Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return
	}
	switch d := e.(type) {
	case NetDecision:
		if !d.Allowed {
			l.refused(d)
			return
		}
	case Exit:
		l.repeats.rest(func(d NetDecision) { l.emit(d) })
	}
	l.emit(e)
}

func (l *Log) refused(d NetDecision) {
	told, now := l.repeats.next(d)
	if !now || told.Times > 1 {
		l.denials.add(d.Denial()) // which was told often enough
	}
	if now {
		l.emit(told)
		if told.Times <= 1 {
			l.emit(d.Denial())
		}
	}
}

func (l *Log) emit(e Event) {
	if d, ok := e.(Denial); ok {
		l.denials.add(d)
	}
	if !l.running && len(l.early) < maxEarly {
		l.early = append(l.early, early{l.now(), e})
		return
	}
	for _, e := range l.early {
		l.line(e.at, e.Event)
	}
	l.early = l.early[:0]
	l.line(l.now(), e)
}

// line queues an event for each sink that wants it.
func (l *Log) line(at time.Time, e Event) {
	if len(l.queues) > 0 {
		l.scratch = Append(l.scratch[:0], l.seq, at, l.session, e)
	}
	l.seq++
	for _, q := range l.queues {
		if q.wants(e.Type()) {
			q.put(l, at, e, l.scratch)
		}
	}
}

func (q *queue) wants(t Type) bool {
	return !q.failed && (len(q.Only) == 0 || slices.Contains(q.Only, t))
}

// put queues a line if there is room, and before it the number of those for
// which there was none.
func (q *queue) put(l *Log, at time.Time, e Event, line []byte) {
	const reserve = 64 << 10 // for what ends a session
	room := int64(maxPending - len(q.pending))
	if q.Max > 0 {
		all := q.Max
		if len(q.Only) == 0 {
			all = share(e, q.Max)
		}
		room = min(room, all-q.total)
	}
	switch e.(type) {
	case Exit, Refused, Timeout, OOM:
		room += reserve
	}
	if int64(len(line)) > room {
		q.dropped++
		q.lost++
		return
	}
	before := len(q.pending)
	if q.dropped > 0 {
		q.pending = Append(q.pending, l.seq, at, l.session, Dropped{Count: q.dropped})
		l.seq++
		q.dropped = 0
	}
	q.pending = append(q.pending, line...)
	q.total += int64(len(q.pending) - before)
	q.poke()
}

func (q *queue) poke() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// drain writes what is queued, all that there is at a time and not more often than
// pace has it, until the log is closed and nothing is left.
func (l *Log) drain(q *queue) {
	defer close(q.done)
	w, err := q.Open()
	if err != nil {
		l.fail(q, err)
		return
	}
	var batch []byte
	var last time.Time // of a write
	for {
		l.mu.Lock()
		waits, closed := len(q.pending) > 0, l.closed
		l.mu.Unlock()
		if !waits && closed {
			break
		}
		if !waits {
			<-q.wake
			continue
		}
		if late := time.Until(last.Add(pace)); late > 0 && !q.Prompt {
			l.pause(late)
		}
		l.mu.Lock()
		batch, q.pending = q.pending, batch[:0]
		l.mu.Unlock()
		last = time.Now()
		if _, err := w.Write(batch); err != nil {
			l.fail(q, err)
			_ = w.Close()
			return
		}
	}
	if err := w.Close(); err != nil {
		l.fail(q, err)
	}
}

// pause returns after d, or when the log is closed.
func (l *Log) pause(d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-l.closing:
	}
}

func (l *Log) fail(q *queue, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	q.failed, q.pending = true, nil
	if !errors.Is(err, ErrNotWanted) {
		q.err = fmt.Errorf("%s: %w", q.Name, err)
	}
}

// Close writes what is queued, waits for each slow reader no longer than
// patience, and says for which sinks something was lost.
func (l *Log) Close(patience time.Duration) error {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return nil
	}
	l.closed = true
	close(l.closing)
	if !l.running {
		l.queues = slices.DeleteFunc(l.queues, func(q *queue) bool {
			waits := len(q.pending) > 0 || slices.ContainsFunc(l.early, func(e early) bool { return q.wants(e.Type()) })
			return q.Wanted != nil && (!waits || !q.Wanted())
		})
	}
	l.start()
	for _, q := range l.queues {
		q.poke()
	}
	l.mu.Unlock()
	if len(l.queues) == 0 {
		return nil
	}

	var errs []error
	for _, q := range l.queues { // one that is stuck takes nothing of another's time
		select {
		case <-q.done:
			errs = append(errs, q.err)
			if q.lost > 0 && q.err == nil {
				errs = append(errs, fmt.Errorf("%s: %d events dropped", q.Name, q.lost))
			}
		case <-time.After(patience):
			errs = append(errs, fmt.Errorf("%s: the reader stopped before the last events", q.Name))
		}
	}
	return errors.Join(errs...)
}

// Denied returns how many denials there were, and the different ones in the
// order of their first, no more than 100.
func (l *Log) Denied() (total int64, distinct []DenialCount) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.denials.total, append([]DenialCount(nil), l.denials.distinct...)
}

// A DenialCount is a denial and how often it happened.
type DenialCount struct {
	Denial
	Count int64
}

// A tally counts denials in bounded memory.
type tally struct {
	total    int64
	distinct []DenialCount
	index    map[Denial]int
}

const maxDistinct = 100

func (t *tally) add(d Denial) {
	t.total++
	if i, ok := t.index[d]; ok {
		t.distinct[i].Count++
		return
	}
	if len(t.distinct) == maxDistinct {
		return
	}
	if t.index == nil {
		t.index = map[Denial]int{}
	}
	t.index[d] = len(t.distinct)
	t.distinct = append(t.distinct, DenialCount{d, 1})
}
