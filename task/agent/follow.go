package agent

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"strings"
)

// Bounds of what is held of a stream: an agent may print what it likes.
const (
	maxLine    = 1 << 20  // bytes of a line; a longer one is skipped
	maxText    = 4 << 10  // bytes of a step's text
	maxMessage = 64 << 10 // bytes of the last message
	maxOpen    = 1 << 10  // uses of tools that wait for their result
	maxDenied  = 1 << 8   // refused uses that are named
	maxID      = 1 << 8   // bytes of an id, and of what else an agent says of itself
	maxCounted = 1 << 10  // messages whose usage may still change
)

// Follow reads the stream of the agent's JSON lines to its end and calls each with every step, and with what is known by then.
// Types that it does not know pass, since agents add some in every release. The error is that of reading.
func (a *Agent) Follow(stream io.Reader, each func(Step, End)) (End, error) {
	f := &follower{each: each, open: map[string]Step{}, counted: map[string]counted{}}
	lines := bufio.NewReaderSize(stream, 64<<10)
	for {
		line, whole, err := nextLine(lines)
		switch {
		case !whole:
			f.end.Garbage++
		case len(strings.TrimSpace(string(line))) > 0:
			if !json.Valid(line) || line[0] != '{' {
				f.end.Garbage++
				break
			}
			a.line(f, line)
		}
		if err != nil {
			f.flush()
			for _, s := range []*string{&f.end.Conversation, &f.end.Model, &f.end.Version} {
				*s = cut(*s, maxID)
			}
			if errors.Is(err, io.EOF) {
				err = nil
			}
			return f.end, err
		}
	}
}

// nextLine reads a line without its end. Of one that is longer than [maxLine] it holds nothing.
func nextLine(r *bufio.Reader) (line []byte, whole bool, err error) {
	whole = true
	for {
		part, err := r.ReadSlice('\n')
		if whole && len(line)+len(part) <= maxLine {
			line = append(line, part...)
		} else {
			line, whole = nil, false
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return []byte(strings.TrimRight(string(line), "\r\n")), whole, err
		}
	}
}

// A follower is what is known of a stream so far.
type follower struct {
	each    func(Step, End)
	end     End
	open    map[string]Step    // uses of tools without a result yet, by their id
	order   []string           // their ids, oldest first
	counted map[string]counted // of messages, by their id: a message that comes in pieces says its usage with each
	recent  []string           // their ids, oldest first
	text    strings.Builder    // of a message that comes in pieces
}

// step reports a step.
func (f *follower) step(s Step) {
	s.What, s.Result = cut(s.What, maxText), cut(s.Result, maxText)
	if s.Kind == Run {
		f.end.LastCommand = &s
	}
	f.each(s, f.end)
}

// says reports what the agent said. The last is its message.
func (f *follower) says(text string) {
	if strings.TrimSpace(text) == "" {
		return
	}
	f.end.Message = cut(text, maxMessage)
	f.step(Step{Kind: Says, What: text})
}

// begin holds the use of a tool until its result comes.
func (f *follower) begin(id string, s Step) {
	id = cut(id, maxID)
	if _, again := f.open[id]; again {
		f.finish(id, func(*Step) {}) // two uses of one id: each is reported
	}
	if len(f.order) == maxOpen {
		f.finish(f.order[0], func(*Step) {})
	}
	s.What = cut(s.What, maxText)
	f.open[id] = s
	f.order = append(f.order, id)
}

// finish reports the use of a tool with its result.
func (f *follower) finish(id string, result func(*Step)) {
	id = cut(id, maxID)
	s, ok := f.open[id]
	if !ok {
		return
	}
	delete(f.open, id)
	for i := range f.order {
		if f.order[i] == id {
			f.order = append(f.order[:i], f.order[i+1:]...)
			break
		}
	}
	result(&s)
	f.step(s)
}

// flush reports what has no result: the stream is at its end.
func (f *follower) flush() {
	f.flushText()
	for len(f.order) > 0 {
		f.finish(f.order[0], func(s *Step) { s.Result = "no result" })
	}
}

// flushText reports a message that came in pieces.
func (f *follower) flushText() {
	text := f.text.String()
	f.text.Reset()
	f.says(text)
}

// denied notes the use of a tool that the agent's own rules refused.
func (f *follower) denied(what string) {
	if len(f.end.Denied) < maxDenied {
		f.end.Denied = append(f.end.Denied, cut(what, maxText))
	}
}

// counted is the usage of a message, and how many bytes of its text have come.
type counted struct {
	Usage
	text int
}

// bytesPerToken are what a token of output is taken for.
const bytesPerToken = 4

// count adds the usage of a message, once for each id, of which more text has come. Claude Code says with the pieces of one what
// its output was at the beginning: the text counts where it is more.
func (f *follower) count(id string, usage Usage, text int) {
	id = cut(id, maxID)
	was, again := f.counted[id]
	u := counted{usage, was.text + text}
	u.Output = max(u.Output, int64(u.text/bytesPerToken))
	if !again {
		if len(f.recent) == maxCounted {
			delete(f.counted, f.recent[0])
			f.recent = f.recent[1:]
		}
		f.recent = append(f.recent, id)
	}
	f.counted[id] = u
	f.end.Usage = f.end.Usage.Plus(u.Since(was.Usage))
}

// cut shortens a text to so many bytes, at the border of a character.
func cut(text string, most int) string {
	text = strings.ToValidUTF8(text, "\uFFFD")
	if len(text) <= most {
		return text
	}
	const mark = "…"
	return strings.ToValidUTF8(text[:most-len(mark)], "") + mark
}

// decode reads what a line says of a type. What has another shape stays zero: an agent's new release is no error.
func decode[T any](line []byte) (v T) {
	_ = json.Unmarshal(line, &v) // fields of another type are left out, the rest is read
	return v
}
