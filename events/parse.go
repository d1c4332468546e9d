package events

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/pccrun/pccrun/events/jsontext"
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
// the schema asks of readers, and nothing else that [Append] would not write.
func Parse(line []byte) (Record, error) {
	f, err := jsontext.Object(line)
	if err != nil {
		return Record{}, fmt.Errorf("event: %w", err)
	}
	r := Record{V: int(f.Int("v")), Seq: f.Uint("seq"), Session: f.String("session"), Type: Type(f.String("type")), Line: line}
	if r.V > Version {
		return r, fmt.Errorf("%w: %d", ErrVersion, r.V)
	}
	r.Time, err = time.Parse(time.RFC3339Nano, f.String("time"))
	if err != nil || r.V < 1 || r.Type == "" || r.Session == "" {
		return r, errors.Join(errors.New("event: it has no head (v, seq, time, session, type)"), f.Err())
	}
	r.Event = decode(r.Type, f)
	if err := f.Err(); err != nil {
		return r, fmt.Errorf("event %s: %w", Clean(string(r.Type)), err)
	}
	return r, nil
}

// decode is the reverse of appendFields.
func decode(t Type, f *jsontext.Fields) Event {
	switch t {
	case TypeStart:
		return Start{
			Version: f.String("version"), Pid: int(f.Int("pid")), Argv: f.Strings("argv"), Workspace: f.String("workspace"), WorkDir: f.String("workdir"),
			Profile: f.String("profile"), Provider: f.String("provider"), Without: f.Strings("without"), AllowMissing: f.Strings("allow_missing"),
		}
	case TypePlan:
		var e Plan
		for _, g := range f.Objects("guarantees") {
			e.Guarantees = append(e.Guarantees, Guarantee{g.String("name"), g.String("state"), g.String("mechanism"), g.String("cause")})
		}
		return e
	case TypeWarning:
		return Warning{f.String("text"), f.String("hint")}
	case TypeRefused:
		return Refused{f.String("guarantee"), f.String("cause"), f.String("hint")}
	case TypeDenial:
		return Denial{f.String("guarantee"), f.String("what"), f.String("rule"), f.String("hint")}
	case TypeHidden:
		return Hidden{f.String("what"), f.String("rule"), f.String("hint")}
	case TypeNetDecision:
		return NetDecision{
			Allowed: f.Bool("allowed"), Host: f.String("host"), Port: int(f.Int("port")), Address: f.String("address"), Upstream: f.Bool("upstream"), Via: f.String("via"),
			Request: f.String("request"), Rule: f.String("rule"), Guarantee: f.String("guarantee"), Hint: f.String("hint"), Times: f.Int("times"),
		}
	case TypeNetClosed:
		return NetClosed{
			Host: f.String("host"), Port: int(f.Int("port")), Address: f.String("address"), Via: f.String("via"),
			Up: f.Int("up"), Down: f.Int("down"), DurationMS: f.Int("duration_ms"), Error: f.String("error"),
		}
	case TypeOOM:
		return OOM{f.Int("limit"), f.Int("kills")}
	case TypeTimeout:
		return Timeout{f.Int("after_ms")}
	case TypeChanged:
		return Changed{f.String("path"), f.String("kind"), f.String("what"), f.String("why")}
	case TypeTried:
		return Tried{
			Deed: f.String("deed"), Path: f.String("path"), Call: f.String("call"), Program: f.String("program"), Times: f.Int("times"),
			There: f.Bool("there"), Opened: f.Bool("opened"), Done: f.Bool("done"),
		}
	case TypeDropped:
		return Dropped{f.Int("count")}
	case TypeExit:
		e := Exit{
			Code: int(f.Int("code")), Signal: f.String("signal"), TimedOut: f.Bool("timed_out"), OOM: f.Bool("oom"),
			WallMS: f.Int("wall_ms"), UserMS: f.Int("user_ms"), SystemMS: f.Int("system_ms"), MaxMemory: f.Int("max_memory"),
			ReadBytes: f.Int("read_bytes"), WriteBytes: f.Int("write_bytes"), IOBy: f.String("io_by"), Processes: f.Int("processes"), Denials: f.Int("denials"),
		}
		for _, c := range f.Objects("changed") {
			e.Changed = append(e.Changed, Change{c.String("path"), c.String("kind")})
		}
		return e
	}
	return nil
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
