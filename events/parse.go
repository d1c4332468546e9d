package events

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"
)

// A Record is one event as it was read.
type Record struct {
	V       int
	Seq     uint64
	Time    time.Time
	Session string
	Type    Type
	Event   Event  // nil for a type that this version does not know
	Line    []byte // as it stands, without the newline
}

// ErrVersion is returned for an event of a later schema.
var ErrVersion = errors.New("event of another schema version")

// Parse reads one line. It takes fields and types that it does not know, as
// the schema asks of readers.
func Parse(line []byte) (Record, error) {
	var head struct {
		V       int       `json:"v"`
		Seq     uint64    `json:"seq"`
		Time    time.Time `json:"time"`
		Session string    `json:"session"`
		Type    Type      `json:"type"`
	}
	err := json.Unmarshal(line, &head)
	r := Record{V: head.V, Seq: head.Seq, Time: head.Time, Session: head.Session, Type: head.Type, Line: line}
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

func decode(t Type, line []byte) (Event, error) {
	switch t {
	case TypeStart:
		return as[Start](line)
	case TypePlan:
		return as[Plan](line)
	case TypeWarning:
		return as[Warning](line)
	case TypeRefused:
		return as[Refused](line)
	case TypeDenial:
		return as[Denial](line)
	case TypeHidden:
		return as[Hidden](line)
	case TypeNetDecision:
		return as[NetDecision](line)
	case TypeNetClosed:
		return as[NetClosed](line)
	case TypeOOM:
		return as[OOM](line)
	case TypeTimeout:
		return as[Timeout](line)
	case TypeChanged:
		return as[Changed](line)
	case TypeTried:
		return as[Access](line)
	case TypeExec:
		return as[Exec](line)
	case TypeExecEnd:
		return as[ExecEnd](line)
	case TypeDropped:
		return as[Dropped](line)
	case TypeExit:
		return as[Exit](line)
	}
	return nil, nil
}

func as[E Event](line []byte) (Event, error) {
	var e E
	err := json.Unmarshal(line, &e)
	return e, err
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
