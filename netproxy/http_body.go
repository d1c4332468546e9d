package netproxy

import (
	"bufio"
	"errors"
	"io"
	"strconv"
	"strings"
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
	errFraming = errors.New("request body: conflicting or unknown framing")
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

// passBody passes one request's body on, each piece as soon as it comes, and returns how
// many bytes it has. Chunks are written anew, without trailers, which some servers take
// for fields of the head.
func passBody(w io.Writer, br *bufio.Reader, f framing) (n int64, err error) {
	if !f.chunked {
		return passBytes(w, br, f.length)
	}
	for before := ""; ; before = "\r\n" {
		size, err := readChunkSize(br)
		if err != nil {
			return n, noEOF(err)
		}
		if size == 0 {
			if _, err := readTrailers(br); err != nil {
				return n, noEOF(err)
			}
			_, err = io.WriteString(w, before+"0\r\n\r\n")
			return n, err
		}
		if _, err := io.WriteString(w, before+strconv.FormatInt(size, 16)+"\r\n"); err != nil {
			return n, err
		}
		m, err := passBytes(w, br, size)
		if n += m; err != nil {
			return n, err
		}
		var end [2]byte
		if _, err := io.ReadFull(br, end[:]); err != nil {
			return n, noEOF(err)
		}
		if end != [2]byte{'\r', '\n'} {
			return n, errChunk
		}
	}
}

// passBytes passes so many bytes on, in no other buffer than the reader's.
func passBytes(w io.Writer, br *bufio.Reader, length int64) (n int64, err error) {
	for n < length {
		if _, err := br.Peek(1); err != nil {
			return n, noEOF(err)
		}
		b, _ := br.Peek(int(min(int64(br.Buffered()), length-n)))
		if _, err := w.Write(b); err != nil {
			return n, err
		}
		_, _ = br.Discard(len(b))
		n += int64(len(b))
	}
	return n, nil
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
