package netproxy

import (
	"bufio"
	"errors"
	"io"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
)

// A framing says how a message's body ends (RFC 9112, section 6).
type framing struct {
	chunked  bool
	untilEOF bool  // of a response alone
	length   int64 // where it is neither
}

func (f framing) empty() bool { return !f.chunked && !f.untilEOF && f.length == 0 }

// fields returns the header lines that say the same.
func (f framing) fields(always bool) []field {
	switch {
	case f.chunked:
		return []field{{"Transfer-Encoding", "chunked"}}
	case !f.untilEOF && (f.length > 0 || always):
		return []field{{"Content-Length", strconv.FormatInt(f.length, 10)}}
	}
	return nil
}

var (
	errFraming = errors.New("body framed in more than one way, or in none that is known")
	errChunk   = errors.New("malformed chunk")
)

// framingOf reads the one way in which a body is framed. What could be read in
// two ways, the root of request smuggling, is an error: Content-Length beside
// Transfer-Encoding, twice, or not a plain number; any coding but chunked.
// known tells whether a field spoke at all.
func framingOf(h head) (f framing, known bool, err error) {
	lengths, codings := h.get("Content-Length"), h.get("Transfer-Encoding")
	switch {
	case len(lengths)+len(codings) == 0:
		return framing{}, false, nil
	case len(lengths)+len(codings) > 1:
		return framing{}, false, errFraming
	case len(codings) == 1:
		if !strings.EqualFold(codings[0], "chunked") {
			return framing{}, false, errFraming
		}
		return framing{chunked: true}, true, nil
	}
	n, err := strconv.ParseUint(lengths[0], 10, 62)
	if err != nil || strings.Trim(lengths[0], "0123456789") != "" {
		return framing{}, false, errFraming
	}
	return framing{length: int64(n)}, true, nil
}

// bodyBuffer is what a body moves in. A chunk that is sent on is no longer.
const bodyBuffer = 16 << 10

// chunkRoom is kept free before and after the bytes of a chunk: 8 hexadecimal
// digits and CRLF.
const chunkRoom = 10

var bodyBuffers = sync.Pool{New: func() any { return new([bodyBuffer]byte) }}

// A sink takes a body and frames it in its own way.
type sink struct {
	w       io.Writer
	chunked bool
	bare    bool  // without trailers, which some servers take for fields of the head
	n       int64 // bytes of the body so far
}

// copyBody moves one body from br to the sink, each piece as soon as it
// arrives, and ends it there.
func (s *sink) copyBody(br *bufio.Reader, f framing) error {
	if !f.chunked {
		left := f.length
		for f.untilEOF || left > 0 {
			n, err := s.move(br, left, f.untilEOF)
			if err == io.EOF && f.untilEOF {
				break
			}
			if err != nil {
				return noEOF(err)
			}
			left -= n
		}
		return s.end(nil)
	}
	for {
		left, err := readChunkSize(br)
		if err != nil {
			return noEOF(err)
		}
		if left == 0 {
			trailers, err := readTrailers(br)
			if err != nil {
				return noEOF(err)
			}
			return s.end(head{fields: trailers}.endToEnd())
		}
		for left > 0 {
			n, err := s.move(br, left, false)
			if err != nil {
				return noEOF(err)
			}
			left -= n
		}
		var crlf [2]byte
		if _, err := io.ReadFull(br, crlf[:]); err != nil {
			return noEOF(err)
		}
		if crlf != [2]byte{'\r', '\n'} {
			return errChunk
		}
	}
}

// So many bodies wait for more with a buffer in hand, into which they read at once.
// The others take one when something has come.
const maxWaiting = 256

var waiting atomic.Int32

// move sends on what one read brings, at most left bytes unless unbounded.
func (s *sink) move(br *bufio.Reader, left int64, unbounded bool) (int64, error) {
	defer waiting.Add(-1)
	if waiting.Add(1) > maxWaiting {
		if _, err := br.Peek(1); err != nil {
			return 0, err
		}
	}
	buf := bodyBuffers.Get().(*[bodyBuffer]byte)
	defer bodyBuffers.Put(buf)
	space := buf[chunkRoom : bodyBuffer-2]
	if !unbounded && left < int64(len(space)) {
		space = space[:left]
	}
	n, err := br.Read(space)
	if n == 0 {
		return 0, err
	}
	s.n += int64(n)
	out := buf[chunkRoom : chunkRoom+n]
	if s.chunked {
		size := strconv.AppendUint(buf[:0:chunkRoom-2], uint64(n), 16)
		start := chunkRoom - 2 - len(size)
		copy(buf[start:], size)
		copy(buf[chunkRoom-2:], "\r\n")
		out = append(buf[start:chunkRoom+n:bodyBuffer], "\r\n"...)
	}
	_, err = s.w.Write(out)
	return int64(n), err
}

// end marks the end of a chunked body.
func (s *sink) end(trailers []field) error {
	if !s.chunked {
		return nil
	}
	if s.bare {
		trailers = nil
	}
	b := appendFields([]byte("0\r\n"), trailers)
	_, err := s.w.Write(append(b, "\r\n"...))
	return err
}

// readChunkSize reads the line before a chunk. Extensions, which nobody uses
// and programs read differently, are refused.
func readChunkSize(br *bufio.Reader) (int64, error) {
	line, err := br.ReadSlice('\n')
	if err != nil {
		if err == bufio.ErrBufferFull {
			return 0, errChunk
		}
		return 0, err
	}
	digits, ok := strings.CutSuffix(string(line), "\r\n")
	if !ok || len(digits) > 15 || strings.Trim(digits, "0123456789abcdefABCDEF") != "" {
		return 0, errChunk
	}
	n, err := strconv.ParseUint(digits, 16, 62)
	if err != nil {
		return 0, errChunk
	}
	return int64(n), nil
}

// noEOF makes the end of a connection within a body an error.
func noEOF(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}
