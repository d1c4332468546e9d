package secrets

import (
	"io"
	"sync"
	"time"
)

// A Reader reads a body, with what takes the place of each text put in.
//
// A text may come in pieces, so the end of what was read waits for more. Whoever has
// the other end say what he likes, and sees what of it comes at once, would learn the
// text by that, character by character, if what waited were whatever the text might
// begin with. So it is always as much, whatever it says: until more comes, the body
// ends, or, of a stream, its source has paused. Then nothing waits any longer but what
// stands behind a text's [Pair.beginning], which nobody guesses. Where the source
// pauses within that, it goes out, and what follows is replaced.
type Reader struct {
	r      io.Reader
	pairs  []Pair
	window int    // how much waits
	buf    []byte // what was passed on last, and what was read since
	passed int    // how much of buf was passed on
	ready  int    // how much of what follows is final
	err    error

	// Of a stream.
	pieces chan piece
	taken  chan []byte // the pieces' memory, to be used again
	start  func()
	stop   func()
	waited bool // for a pause: what is still held needs more
	pause  time.Duration
}

// A piece is what one read of a stream brought.
type piece struct {
	b   []byte
	err error
}

const (
	readSize = 16 << 10

	// pause is how long the source of a stream has to be silent before what it has said
	// is passed on.
	pause = 5 * time.Millisecond
)

// NewReader returns a reader of a body that nobody reads piece by piece, since its
// length is known.
func NewReader(r io.Reader, pairs []Pair) *Reader {
	return &Reader{r: r, pairs: pairs, window: window(pairs)}
}

// NewStream returns a reader of a body whose reader may want each piece as it comes. It
// has to be closed, and r be read from no more by then, or soon. Nothing is read from r
// before the first piece is wanted: the end of a response's body writes its trailers.
func NewStream(r io.Reader, pairs []Pair) *Reader {
	done := make(chan struct{})
	s := &Reader{r: r, pairs: pairs, window: window(pairs), pause: pause, taken: make(chan []byte, 1), stop: sync.OnceFunc(func() { close(done) })}
	s.pieces = make(chan piece)
	s.taken <- make([]byte, readSize)
	s.start = sync.OnceFunc(func() { go s.listen(done) })
	return s
}

// listen reads until the end of the stream or its reader's.
func (r *Reader) listen(done <-chan struct{}) {
	for {
		var b []byte
		select {
		case b = <-r.taken:
		case <-done:
			return
		}
		n, err := r.r.Read(b)
		select {
		case r.pieces <- piece{b[:n], err}:
		case <-done:
			return
		}
		if err != nil {
			return
		}
	}
}

// Close ends the reading of a stream.
func (r *Reader) Close() error {
	if r.stop != nil {
		r.stop()
	}
	return nil
}

func (r *Reader) Read(b []byte) (int, error) {
	if len(b) == 0 {
		return 0, nil
	}
	for r.ready == 0 {
		if r.err != nil {
			return 0, r.err
		}
		r.fill()
	}
	n := copy(b, r.buf[r.passed:r.passed+r.ready])
	r.passed += n
	r.ready -= n
	return n, nil
}

// fill reads once and finds out how much of it is final.
func (r *Reader) fill() {
	keep := min(r.passed, r.window)
	r.buf = r.buf[:copy(r.buf, r.buf[r.passed-keep:])]
	r.passed = keep
	held := r.window
	if paused := r.more(); paused {
		held = 0
	}
	for _, p := range r.pairs {
		p.replace(r.buf)
	}
	for _, p := range r.pairs {
		held = max(held, p.open(r.buf))
	}
	if r.err != nil {
		held = 0
	}
	r.ready = max(0, len(r.buf)-r.passed-held)
}

// more appends what comes next. Of a stream that has paused it is nothing.
func (r *Reader) more() (paused bool) {
	if r.pieces == nil {
		start := len(r.buf)
		r.buf = append(r.buf, make([]byte, readSize)...)
		n, err := r.r.Read(r.buf[start:])
		r.buf, r.err = r.buf[:start+n], err
		return false
	}
	r.start()
	var late <-chan time.Time
	if len(r.buf) > r.passed && !r.waited {
		t := time.NewTimer(r.pause)
		defer t.Stop()
		late = t.C
	}
	select {
	case p := <-r.pieces:
		r.buf, r.err, r.waited = append(r.buf, p.b...), p.err, false
		r.taken <- p.b[:readSize]
		return false
	case <-late:
		r.waited = true
		return true
	}
}
