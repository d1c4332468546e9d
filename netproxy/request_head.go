package netproxy

import (
	"bufio"
	"errors"
	"io"
	"strings"
	"sync/atomic"
)

// A message's head is no longer than this.
const (
	maxHead   = 64 << 10
	maxFields = 500
)

// A head is usually short. Of those that are longer than shortHead so many are held
// at once, by whoever: each client could else make the host hold 64 KiB.
const (
	shortHead    = 8 << 10
	maxLongHeads = 256
)

var (
	longHeads    atomic.Int32
	errLongHeads = errors.New("too many heads over 8 KiB at once")
)

// takeLong says whether there is room for one more long head; then giveLong has to
// be called.
func takeLong() bool {
	if longHeads.Add(1) <= maxLongHeads {
		return true
	}
	longHeads.Add(-1)
	return false
}

func giveLong() { longHeads.Add(-1) }

// A head is the first line and the fields of an HTTP/1 message, read strictly
// (RFC 9112): lines end in CRLF, none is folded, and no control character
// stands anywhere. Two programs that read it see the same.
type head struct {
	line   string
	fields []field
}

// A field is one header line, in the spelling of whoever sent it.
type field struct{ name, value string }

var (
	errHeadTooLong = errors.New("head over 64 KiB or 500 lines")
	errBareLF      = errors.New("line does not end in CRLF")
	errFirstLine   = errors.New("malformed first line")
	errField       = errors.New("malformed header line")
	errFolded      = errors.New("folded header line")
)

// readHead reads a head up to its empty line. At the end of a connection,
// before the first byte, it returns io.EOF.
func readHead(br *bufio.Reader) (head, error) {
	text, err := readLines(br)
	if err != nil {
		return head{}, err
	}
	line, rest, _ := strings.Cut(text, "\r\n")
	if line == "" || line[0] == ' ' { // a blank ends a status line without a phrase
		return head{}, errFirstLine
	}
	fields, err := parseFields(rest)
	return head{line, fields}, err
}

// readLines reads up to and without the first empty line, and refuses one at the start.
func readLines(br *bufio.Reader) (string, error) {
	var text []byte
	start := 0 // of the line that is being read
	long := false
	for {
		part, err := br.ReadSlice('\n')
		text = append(text, part...)
		if !long && len(text) > shortHead {
			if !takeLong() {
				return "", errLongHeads
			}
			long = true
			defer giveLong()
		}
		switch {
		case len(text) > maxHead:
			return "", errHeadTooLong
		case err == bufio.ErrBufferFull:
			continue
		case err == io.EOF && len(text) > 0:
			return "", io.ErrUnexpectedEOF
		case err != nil:
			return "", err
		}
		line := text[start:]
		if len(line) < 2 || line[len(line)-2] != '\r' {
			return "", errBareLF
		}
		for _, c := range line[:len(line)-2] {
			if c < ' ' && c != '\t' || c == 0x7f {
				return "", errField
			}
		}
		if len(line) == 2 {
			if start == 0 {
				return "", errFirstLine
			}
			return string(text[:start]), nil
		}
		start = len(text)
	}
}

// parseFields splits lines, each with its CRLF, into fields.
func parseFields(lines string) ([]field, error) {
	if lines == "" {
		return nil, nil
	}
	n := strings.Count(lines, "\n")
	if n > maxFields {
		return nil, errHeadTooLong
	}
	fields := make([]field, 0, n)
	for line := range strings.SplitSeq(strings.TrimSuffix(lines, "\r\n"), "\r\n") {
		if line[0] == ' ' || line[0] == '\t' {
			return nil, errFolded
		}
		name, value, ok := strings.Cut(line, ":")
		if !ok || !isToken(name) {
			return nil, errField
		}
		fields = append(fields, field{name, strings.Trim(value, " \t")})
	}
	return fields, nil
}

// isToken says whether s is a token of RFC 9110, section 5.6.2.
func isToken(s string) bool {
	for i := range len(s) {
		switch c := s[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		case strings.IndexByte("!#$%&'*+-.^_`|~", c) >= 0:
		default:
			return false
		}
	}
	return s != ""
}

// get returns the values of a field, in order.
func (h head) get(name string) []string {
	var values []string
	for _, f := range h.fields {
		if strings.EqualFold(f.name, name) {
			values = append(values, f.value)
		}
	}
	return values
}
