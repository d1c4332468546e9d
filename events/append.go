package events

import (
	"strconv"
	"time"
	"unicode/utf8"
)

// Bounds of what one event holds, so that a payload cannot make it large.
// What is cut ends in "…".
const (
	maxString = 4 << 10 // bytes of a string
	maxList   = 256     // elements of a list
)

// Append appends the line for e, newline included, to b. It allocates
// nothing if b has room.
func Append(b []byte, seq uint64, at time.Time, session string, e Event) []byte {
	l := line{b: b}
	l.b = append(l.b, `{"v":1,"seq":`...)
	l.b = strconv.AppendUint(l.b, seq, 10)
	l.b = append(l.b, `,"time":"`...)
	l.b = appendTime(l.b, at)
	l.b = append(l.b, '"')
	l.str("session", session)
	l.str("type", string(e.Type()))
	e.appendFields(&l)
	return append(l.b, '}', '\n')
}

// appendTime appends a time in UTC to the nanosecond, as RFC 3339 has it, of a year
// with four digits. It is half of what [time.Time.AppendFormat] takes for an event.
func appendTime(b []byte, at time.Time) []byte {
	at = at.UTC()
	year, month, day := at.Date()
	hour, minute, second := at.Clock()
	b = appendDigits(b, year, 4)
	b = appendDigits(append(b, '-'), int(month), 2)
	b = appendDigits(append(b, '-'), day, 2)
	b = appendDigits(append(b, 'T'), hour, 2)
	b = appendDigits(append(b, ':'), minute, 2)
	b = appendDigits(append(b, ':'), second, 2)
	b = appendDigits(append(b, '.'), at.Nanosecond(), 9)
	return append(b, 'Z')
}

// appendDigits appends the last digits of n, so many of them.
func appendDigits(b []byte, n, digits int) []byte {
	b = append(b, "000000000"[:digits]...)
	for i := len(b) - 1; n > 0 && i >= len(b)-digits; i-- {
		b[i] = byte('0' + n%10)
		n /= 10
	}
	return b
}

// A line is a JSON object that is being written. Empty strings, zero
// numbers that mean "unknown" and empty lists are left out by the callers
// that say opt.
type line struct{ b []byte }

func (l *line) key(name string) {
	if c := l.b[len(l.b)-1]; c != '{' {
		l.b = append(l.b, ',')
	}
	l.b = append(l.b, '"')
	l.b = append(l.b, name...)
	l.b = append(l.b, `":`...)
}

func (l *line) str(name, value string) {
	l.key(name)
	l.b = AppendString(l.b, value)
}

func (l *line) optStr(name, value string) {
	if value != "" {
		l.str(name, value)
	}
}

func (l *line) num(name string, value int64) {
	l.key(name)
	l.b = strconv.AppendInt(l.b, value, 10)
}

func (l *line) optNum(name string, value int64) {
	if value != 0 {
		l.num(name, value)
	}
}

func (l *line) flag(name string, value bool) {
	l.key(name)
	l.b = strconv.AppendBool(l.b, value)
}

func (l *line) optFlag(name string, value bool) {
	if value {
		l.flag(name, value)
	}
}

func (l *line) optStrs(name string, values []string) {
	list(l, name, values, func(v string) { l.b = AppendString(l.b, v) })
}

// list writes a list, if it has elements.
func list[T any](l *line, name string, values []T, one func(T)) {
	if len(values) == 0 {
		return
	}
	l.key(name)
	l.b = append(l.b, '[')
	for i, v := range values[:min(len(values), maxList)] {
		if i > 0 {
			l.b = append(l.b, ',')
		}
		one(v)
	}
	l.b = append(l.b, ']')
}

func (e Start) appendFields(l *line) {
	l.str("version", e.Version)
	l.num("pid", int64(e.Pid))
	l.optStrs("argv", e.Argv)
	l.str("workspace", e.Workspace)
	l.str("workdir", e.WorkDir)
	l.str("profile", e.Profile)
	l.str("provider", e.Provider)
	l.optStrs("without", e.Without)
	l.optStrs("allow_missing", e.AllowMissing)
}

func (e Plan) appendFields(l *line) {
	list(l, "guarantees", e.Guarantees, func(g Guarantee) {
		l.b = append(l.b, '{')
		l.str("name", g.Name)
		l.str("state", g.State)
		l.optStr("mechanism", g.Mechanism)
		l.optStr("cause", g.Cause)
		l.b = append(l.b, '}')
	})
}

func (e Warning) appendFields(l *line) {
	l.str("text", e.Text)
	l.optStr("hint", e.Hint)
}

func (e Refused) appendFields(l *line) {
	l.optStr("guarantee", e.Guarantee)
	l.str("cause", e.Cause)
	l.optStr("hint", e.Hint)
}

func (e Denial) appendFields(l *line) {
	l.str("guarantee", e.Guarantee)
	l.str("what", e.What)
	l.optStr("rule", e.Rule)
	l.optStr("hint", e.Hint)
}

func (e Hidden) appendFields(l *line) {
	l.str("what", e.What)
	l.optStr("rule", e.Rule)
	l.optStr("hint", e.Hint)
}

func (e NetDecision) appendFields(l *line) {
	l.flag("allowed", e.Allowed)
	l.str("host", e.Host)
	l.optNum("port", int64(e.Port))
	l.optStr("address", e.Address)
	l.optFlag("upstream", e.Upstream)
	l.str("via", e.Via)
	l.optStr("request", e.Request)
	l.optStr("rule", e.Rule)
	l.optStr("guarantee", e.Guarantee)
	l.optStr("hint", e.Hint)
	l.optNum("times", e.Times)
}

func (e NetClosed) appendFields(l *line) {
	l.str("host", e.Host)
	l.optNum("port", int64(e.Port))
	l.optStr("address", e.Address)
	l.str("via", e.Via)
	l.num("up", e.Up)
	l.num("down", e.Down)
	l.num("duration_ms", e.DurationMS)
	l.optStr("error", e.Error)
}

func (e OOM) appendFields(l *line) {
	l.num("limit", e.Limit)
	l.num("kills", e.Kills)
}

func (e Timeout) appendFields(l *line) { l.num("after_ms", e.AfterMS) }

func (e Changed) appendFields(l *line) {
	l.str("path", e.Path)
	l.str("kind", e.Kind)
	l.str("what", e.What)
	l.optStr("why", e.Why)
}

func (e Tried) appendFields(l *line) {
	l.str("deed", e.Deed)
	l.str("path", e.Path)
	l.optStr("call", e.Call)
	l.optStr("program", e.Program)
	l.num("times", e.Times)
	l.flag("there", e.There)
	l.flag("opened", e.Opened)
	l.flag("done", e.Done)
}

func (e Dropped) appendFields(l *line) { l.num("count", e.Count) }

func (e Exit) appendFields(l *line) {
	l.num("code", int64(e.Code))
	l.optStr("signal", e.Signal)
	l.flag("timed_out", e.TimedOut)
	l.flag("oom", e.OOM)
	l.num("wall_ms", e.WallMS)
	l.optNum("user_ms", e.UserMS)
	l.optNum("system_ms", e.SystemMS)
	l.optNum("max_memory", e.MaxMemory)
	l.optNum("read_bytes", e.ReadBytes)
	l.optNum("write_bytes", e.WriteBytes)
	l.optStr("io_by", e.IOBy)
	l.optNum("processes", e.Processes)
	l.num("denials", e.Denials)
	list(l, "changed", e.Changed, func(c Change) {
		l.b = append(l.b, '{')
		l.str("path", c.Path)
		l.str("kind", c.Kind)
		l.b = append(l.b, '}')
	})
}

const hex = "0123456789abcdef"

// AppendString appends s as a JSON string that is safe to print: see
// [visible]. Bytes that are not UTF-8 become U+FFFD, and what is longer than
// 4 KiB is cut.
func AppendString(b []byte, s string) []byte {
	cut := len(s) > maxString
	if cut {
		s = s[:maxString]
		for n := 0; n < utf8.UTFMax && len(s) > 0 && !utf8.RuneStart(s[len(s)-1]); n++ {
			s = s[:len(s)-1]
		}
		if len(s) > 0 && s[len(s)-1] >= utf8.RuneSelf {
			s = s[:len(s)-1]
		}
	}
	b = append(b, '"')
	if isPlain(s) {
		b, s = append(b, s...), ""
	}
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b = append(b, '\\', byte(r))
		case visible(r):
			b = utf8.AppendRune(b, r)
		case r > 0xffff: // none of those is hidden but the tags
			r -= 0x10000
			b = appendEscape(b, 0xd800+r>>10)
			b = appendEscape(b, 0xdc00+r&0x3ff)
		default:
			b = appendEscape(b, r)
		}
	}
	if cut {
		b = append(b, "…"...)
	}
	return append(b, '"')
}

// isPlain says whether s is ASCII that stands as it is, as nearly every text is.
func isPlain(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			return false
		}
	}
	return true
}

func appendEscape(b []byte, r rune) []byte {
	return append(b, '\\', 'u', hex[r>>12&15], hex[r>>8&15], hex[r>>4&15], hex[r&15])
}

// visible reports whether r may stand as it is in a line that a person or a
// line reader sees. Not: C0 and C1 controls and DEL; line and paragraph
// separators; what turns the direction of text or has no width, so that two
// different names would look alike (CVE-2021-42574).
func visible(r rune) bool {
	switch {
	case r < 0x20, r >= 0x7f && r < 0xa0, r == 0xad, r == 0x61c:
		return false
	case r >= 0x200b && r <= 0x200f, r >= 0x2028 && r <= 0x202e, r >= 0x2060 && r <= 0x206f, r == 0xfeff:
		return false
	}
	return r < 0xe0000 || r > 0xe0fff
}

// Clean returns s fit for one line of a terminal or a log: what is not
// [visible] is written as \u00XX, and a backslash is doubled, so that nothing
// can pass for it.
func Clean(s string) string {
	for _, r := range s {
		if !visible(r) || r == '\\' || r == utf8.RuneError || len(s) > maxString {
			b := AppendString(nil, s)
			return string(unquoteQuotes(b[1 : len(b)-1]))
		}
	}
	return s
}

// unquoteQuotes turns \" back into ", in place.
func unquoteQuotes(b []byte) []byte {
	out := b[:0]
	for i := 0; i < len(b); i++ {
		if b[i] == '\\' && i+1 < len(b) {
			if b[i+1] != '"' {
				out = append(out, b[i])
			}
			i++
		}
		out = append(out, b[i])
	}
	return out
}
