package inside

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"sync"

	"github.com/hashicorp/yamux"

	"github.com/pccrun/pccrun/providers"
)

// Dial connects to a port of the loopback there ([Plan.Reach]).
func Dial(session *yamux.Session, port uint16) (net.Conn, error) {
	s, err := session.OpenStream()
	if err != nil {
		return nil, err
	}
	_, err = s.Write(binary.BigEndian.AppendUint16([]byte{byte(Reached)}, port))
	if err == nil {
		_, err = io.ReadFull(s, make([]byte, 1))
	}
	if err != nil {
		s.Close()
		return nil, fmt.Errorf("nobody listens at port %d inside", port)
	}
	return s, nil
}

// Accept takes the next stream that was opened from inside, and reads its kind.
func Accept(session *yamux.Session) (*yamux.Stream, Kind, error) {
	s, err := session.AcceptStream()
	if err != nil {
		return nil, 0, err
	}
	var kind [1]byte
	_, err = io.ReadFull(s, kind[:])
	return s, Kind(kind[0]), err
}

// Streams joins the streams of a command with what it has at the launcher. What they carry
// is a request for no more than to read its input and to print.
type Streams struct {
	io      providers.Stdio
	mu      sync.Mutex
	missing int // streams of what it prints that have not come yet
	printed sync.WaitGroup
}

// NewStreams returns those of a command that prints here.
func NewStreams(stdio providers.Stdio) *Streams {
	s := &Streams{io: stdio, missing: 2}
	if stdio.Terminal != nil {
		s.missing = 1
	}
	s.printed.Add(s.missing)
	return s
}

// Join joins a stream. One that the command does not have is closed.
func (s *Streams) Join(stream *yamux.Stream, kind Kind) {
	to := s.io.Out
	switch kind {
	case Stdin:
		go s.feed(stream, true)
		return
	case Terminal:
		go s.feed(stream, false)
	case Stdout:
	case Stderr:
		to = s.io.Err
	default:
		_ = stream.Close()
		return
	}
	s.mu.Lock()
	expected := s.missing > 0
	if expected {
		s.missing--
	}
	s.mu.Unlock()
	if !expected {
		_ = stream.Close()
		return
	}
	go func() {
		defer s.printed.Done()
		if to == nil {
			to = io.Discard
		}
		// A reader that is gone is no reason to end the command: it finds out by itself.
		if _, err := io.Copy(to, stream); err != nil {
			_, _ = io.Copy(io.Discard, stream)
		}
		_ = stream.Close()
	}()
}

// feed sends the command its input.
func (s *Streams) feed(stream *yamux.Stream, ends bool) {
	if s.io.In != nil {
		_, _ = io.Copy(stream, s.io.In)
	}
	if ends {
		_ = stream.Close()
	}
}

// Wait waits until all that the command printed is passed on. Streams may come after the word of
// the command's end.
func (s *Streams) Wait() { s.printed.Wait() }

// Lost says that no more streams come: the connection has ended.
func (s *Streams) Lost() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.printed.Add(-s.missing)
	s.missing = 0
}

// Forward passes on the user's signals and the sizes of his terminal, until done is closed.
func Forward(stdio providers.Stdio, done <-chan struct{}, signal func(number int), resize func(columns, rows int)) {
	signals, resized := stdio.Signals, (<-chan struct{})(nil)
	if stdio.Terminal != nil {
		resized = stdio.Terminal.Resized
	}
	for {
		select {
		case number, open := <-signals:
			if !open {
				signals = nil
				continue
			}
			signal(number)
		case <-resized:
			resize(stdio.Terminal.Size())
		case <-done:
			return
		}
	}
}
