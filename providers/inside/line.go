package inside

import (
	"bufio"
	"encoding/base64"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"strconv"
	"strings"
	"sync"
	"time"
)

// A Conn is a connection that outlives the lines that carry it: what was sent and not
// acknowledged is kept, and sent again over the next line. Bytes are numbered in each
// direction, so that none is lost and none comes twice, wherever a line was cut.
//
// A line carries text, one record each, since not every provider's streams carry bytes:
//
//	H 1234 z          first of all: so many bytes have come in so far; z: it expands records
//	D 1234 crc text   bytes from that number on, in base64
//	Z 1234 crc text   likewise, compressed by zstd, to a side that expands it: some providers carry a line slowly
//	A 1240 1300       so many have come in by now, and so many were sent; said when nothing
//	                  else is, too, so that a line that is dead or loses records is noticed
type Conn struct {
	mu      sync.Mutex
	cond    *sync.Cond
	kept    []byte // sent and not acknowledged, or not sent yet
	base    int64  // the number of its first byte
	came    []byte // and nobody has read it yet
	got     int64  // bytes that came in
	line    int    // the number of the line that carries
	carried bool   // by one now
	expands bool   // the other side does
	closed  error
	beat    time.Duration // see [heartbeat]
}

// The bounds of a [Conn].
const (
	maxKept   = 1 << 20
	maxRecord = 48 << 10

	leastPacked = 512 // bytes: fewer go as they are

	heartbeat = 15 * time.Second
	patience  = 4 // heartbeats without a word are the end of a line
)

// ErrForgotten says that the other side knows nothing of this connection: it was begun anew.
var ErrForgotten = errors.New("the other side has restarted")

var errMissing = errors.New("a record is missing")

// NewConn returns a connection that nothing carries yet.
func NewConn() *Conn {
	c := &Conn{beat: heartbeat}
	c.cond = sync.NewCond(&c.mu)
	return c
}

// Read returns what came in.
func (c *Conn) Read(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.came) == 0 {
		if c.closed != nil {
			return 0, c.closed
		}
		c.cond.Wait()
	}
	n := copy(b, c.came)
	if c.came = c.came[n:]; len(c.came) == 0 {
		c.came = nil
	}
	c.cond.Broadcast()
	return n, nil
}

// Write keeps b until the other side has it. It waits where too much is kept already.
func (c *Conn) Write(b []byte) (n int, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(b) > 0 {
		for len(c.kept) >= maxKept && c.closed == nil {
			c.cond.Wait()
		}
		if c.closed != nil {
			return n, c.closed
		}
		part := b[:min(len(b), maxKept-len(c.kept))]
		c.kept = append(c.kept, part...)
		n, b = n+len(part), b[len(part):]
		c.cond.Broadcast()
	}
	return n, nil
}

// Close ends the connection on this side.
func (c *Conn) Close() error { return c.fail(io.EOF) }

func (c *Conn) fail(err error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed == nil {
		c.closed = err
	}
	c.cond.Broadcast()
	return nil
}

// Flush waits until the other side has all that was written, or until a limit.
func (c *Conn) Flush(limit time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	over := false
	late := time.AfterFunc(limit, func() {
		c.mu.Lock() // else it could fall between the look at over and the wait
		defer c.mu.Unlock()
		over = true
		c.cond.Broadcast()
	})
	defer late.Stop()
	for len(c.kept) > 0 && c.closed == nil && !over {
		c.cond.Wait()
	}
}

// Carry uses a line until it breaks, another takes its place, or the connection is closed;
// it closes the line. met is called when the other side has answered on it.
func (c *Conn) Carry(line io.ReadWriteCloser, met func()) error {
	c.mu.Lock()
	c.line++
	c.carried = true
	number := c.line
	c.cond.Broadcast() // the line before ends
	c.mu.Unlock()
	var done sync.WaitGroup
	defer done.Wait()
	defer line.Close()
	cursor := make(chan int64, 1) // where to begin to send
	ended := make(chan struct{})
	defer close(ended)
	lines := make(chan error, 2)
	done.Go(func() { lines <- c.send(line, number, cursor, ended) })
	done.Go(func() { lines <- c.receive(line, number, cursor, met) })
	err := <-lines
	line.Close()
	c.mu.Lock()
	if c.line == number {
		c.line++ // nobody sends on it any more
		c.carried = false
	}
	c.cond.Broadcast()
	c.mu.Unlock()
	if errors.Is(err, ErrForgotten) {
		c.fail(err)
	}
	return err
}

// over says whether a line is not to be used any more. The mutex is held.
func (c *Conn) over(number int) error {
	switch {
	case c.closed != nil:
		return c.closed
	case c.line != number:
		return errors.New("another connection replaced it")
	}
	return nil
}

// send writes records until the line is over.
func (c *Conn) send(w io.Writer, number int, cursor <-chan int64, ended <-chan struct{}) error {
	c.mu.Lock()
	told := c.got
	c.mu.Unlock()
	if _, err := fmt.Fprintf(w, "H %d%s\n", told, expands); err != nil {
		return err
	}
	var at int64
	select {
	case at = <-cursor:
	case <-ended:
		return io.ErrClosedPipe
	}
	beat := time.NewTicker(c.beat)
	defer beat.Stop()
	var due bool
	go func() {
		for {
			select {
			case <-ended:
				return
			case <-beat.C:
				c.mu.Lock()
				due = true
				c.cond.Broadcast()
				c.mu.Unlock()
			}
		}
	}()
	for {
		c.mu.Lock()
		for at == c.base+int64(len(c.kept)) && told == c.got && !due && c.over(number) == nil {
			c.cond.Wait()
		}
		if err := c.over(number); err != nil && at == c.base+int64(len(c.kept)) || err != nil && c.closed == nil {
			c.mu.Unlock()
			return err // what was written before the end goes out still
		}
		at = max(at, c.base)
		from := at - c.base
		part := append([]byte(nil), c.kept[from:min(from+maxRecord, int64(len(c.kept)))]...)
		got := c.got
		ack, packs := got != told || due, c.expands
		due = false
		c.mu.Unlock()
		var text []byte
		if ack {
			text = fmt.Appendf(text, "A %d %d\n", got, at)
			told = got
		}
		if len(part) > 0 {
			kind, sent := 'D', part
			if packs {
				if packed := pack(part); packed != nil {
					kind, sent = 'Z', packed
				}
			}
			text = fmt.Appendf(text, "%c %d %08x ", kind, at, crc32.ChecksumIEEE(part))
			text = append(base64.StdEncoding.AppendEncode(text, sent), '\n')
		}
		if _, err := w.Write(text); err != nil {
			return err
		}
		at += int64(len(part))
	}
}

// receive reads records until the line breaks.
func (c *Conn) receive(line io.ReadWriteCloser, number int, cursor chan<- int64, met func()) error {
	quiet := time.AfterFunc(patience*c.beat, func() { line.Close() })
	defer quiet.Stop()
	r := bufio.NewReaderSize(line, 2*maxRecord)
	greeted := false
	for {
		text, err := r.ReadSlice('\n')
		if err != nil {
			return err
		}
		quiet.Reset(patience * c.beat)
		if len(strings.TrimSpace(string(text))) == 0 {
			continue // a line that was ended once more
		}
		kind, rest, _ := strings.Cut(strings.TrimRight(string(text), "\r\n"), " ")
		if !greeted {
			if kind != "H" {
				continue // a greeting of the place's own
			}
			count, said, _ := strings.Cut(rest, " ")
			n, err := strconv.ParseInt(count, 10, 64)
			if err != nil {
				continue
			}
			c.mu.Lock()
			c.expands = " "+said == expands
			c.mu.Unlock()
			if err := c.acknowledged(n, number); err != nil {
				return err
			}
			greeted = true
			cursor <- n
			if met != nil {
				met()
			}
			continue
		}
		switch kind {
		case "A":
			var n, sent int64
			if _, err := fmt.Sscanf(rest, "%d %d", &n, &sent); err != nil {
				return fmt.Errorf("a record in an unknown form: %w", err)
			}
			if err := c.acknowledged(n, number); err != nil {
				return err
			}
			c.mu.Lock()
			lost := sent > c.got
			c.mu.Unlock()
			if lost {
				return errMissing
			}
		case "D", "Z":
			if err := c.data(kind, rest, number); err != nil {
				return err
			}
		default:
			return errors.New("a record in an unknown form")
		}
	}
}

// acknowledged forgets what the other side has.
func (c *Conn) acknowledged(n int64, number int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.over(number); err != nil {
		return err
	}
	if n < c.base || n > c.base+int64(len(c.kept)) {
		if n == 0 {
			return ErrForgotten
		}
		return nil // an older one, that overtook
	}
	c.kept = c.kept[n-c.base:]
	if c.base = n; len(c.kept) == 0 {
		c.kept = nil
	}
	c.cond.Broadcast()
	return nil
}

// data takes a record's bytes in, those that came before excepted.
func (c *Conn) data(kind, rest string, number int) error {
	fields := strings.Fields(rest)
	if len(fields) != 3 {
		return errors.New("a record that is truncated")
	}
	at, err := strconv.ParseInt(fields[0], 10, 64)
	if err != nil {
		return fmt.Errorf("a record in an unknown form: %w", err)
	}
	text, err := base64.StdEncoding.DecodeString(fields[2])
	if err == nil && kind == "Z" {
		text, err = unpack(text)
	}
	if err != nil || fmt.Sprintf("%08x", crc32.ChecksumIEEE(text)) != fields[1] {
		return errors.New("a record that is altered")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.came) >= maxKept && c.over(number) == nil {
		c.cond.Wait()
	}
	if err := c.over(number); err != nil {
		return err
	}
	switch {
	case at > c.got:
		return errMissing
	case at+int64(len(text)) <= c.got:
		return nil // it came before
	}
	text = text[c.got-at:]
	c.came = append(c.came, text...)
	c.got += int64(len(text))
	c.cond.Broadcast()
	return nil
}
