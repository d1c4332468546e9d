package events

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"time"
)

// A Record is one event as it was read.
type Record struct {
	V       int       `json:"v"`
	Seq     uint64    `json:"seq"`
	Time    time.Time `json:"time"`
	Session string    `json:"session"`
	Type    Type      `json:"type"`
	Event   Event     `json:"-"` // nil for a type that this version does not know
	Line    []byte    `json:"-"` // as it stands, without the newline
}

// ErrVersion is returned for an event of a later schema.
var ErrVersion = errors.New("event of another schema version")

// Parse reads one line. It takes fields and types that it does not know, as
// the schema asks of readers.
func Parse(line []byte) (Record, error) {
	r := Record{Line: line}
	err := json.Unmarshal(line, &r)
	switch {
	case r.V > Version:
		return r, fmt.Errorf("%w: %d", ErrVersion, r.V)
	case err != nil:
		return r, fmt.Errorf("event: %w", err)
	case r.V < 1 || r.Time.IsZero() || r.Type == "" || r.Session == "":
		return r, errors.New("event: it has no head (v, seq, time, session, type)")
	}
	if r.Event, err = decode(r.Type, line); err != nil {
		return r, fmt.Errorf("event %s: %w", Clean(string(r.Type)), err)
	}
	return r, nil
}

// known are the events that this version reads.
var known = [...]Event{Start{}, Plan{}, Running{}, Warning{}, Refused{}, Denial{}, Hidden{}, NetDecision{}, NetClosed{}, OOM{}, Timeout{}, Spending{},
	Changed{}, Exec{}, ExecEnd{}, Dropped{}, Exit{}}

func decode(t Type, line []byte) (Event, error) {
	for _, e := range known {
		if e.Type() == t {
			v := reflect.New(reflect.TypeOf(e))
			err := json.Unmarshal(line, v.Interface())
			return v.Elem().Interface().(Event), err
		}
	}
	return nil, nil
}

// maxLine bounds a line that is read: more than [Append] can write.
const maxLine = 4 << 20

// A Reader reads the events of a file that may still grow.
type Reader struct {
	r       *bufio.Reader
	partial []byte
	skip    bool // the rest of a line that is too long
}

// NewReader returns a reader of r.
func NewReader(r io.Reader) *Reader { return &Reader{r: bufio.NewReaderSize(r, 64<<10)} }

// Next returns the next event. [io.EOF] means that there is no whole line
// now; when the file has grown, Next goes on. After another error, which
// concerns one line, the next call reads the next line; an error of the
// file itself wraps [ErrRead].
func (r *Reader) Next() (Record, error) {
	for {
		chunk, err := r.r.ReadSlice('\n')
		if !r.skip {
			r.partial = append(r.partial, chunk...)
		}
		if len(r.partial) > maxLine {
			r.partial, r.skip = nil, true
		}
		switch {
		case err == bufio.ErrBufferFull:
			continue
		case err == io.EOF:
			return Record{}, io.EOF
		case err != nil:
			return Record{}, fmt.Errorf("%w: %w", ErrRead, err)
		}
		line := r.partial
		r.partial = nil
		if r.skip {
			r.skip = false
			return Record{}, fmt.Errorf("event: a line of more than %d bytes", maxLine)
		}
		return Parse(line[:len(line)-1])
	}
}

// ErrRead is wrapped by the errors of the file that a [Reader] reads.
var ErrRead = errors.New("read events")
