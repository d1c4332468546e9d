package terminal

import (
	"bytes"
	"strconv"
	"strings"
)

// A screen is what a terminal has been told to be, as far as it would spoil
// what comes after the program, or hide it.
type screen struct {
	changed uint64 // bit i: what resets[i] puts back is not at its default
	kitty   [2]int // entries on the stack of keyboard modes: main and alternate screen
}

// resets put back what a full-screen program that crashes leaves behind.
var resets = [...]struct{ key, text string }{
	{"?2026", "\x1b[?2026l"},                                                                                                   // synchronized update: nothing is drawn while it lasts
	{"?1", "\x1b[?1l"},                                                                                                         // cursor keys
	{"?5", "\x1b[?5l"},                                                                                                         // reverse video
	{"?6", "\x1b[?6l"},                                                                                                         // origin
	{"?7", "\x1b[?7h"},                                                                                                         // wrap
	{"?66", "\x1b[?66l"},                                                                                                       // keypad
	{"?69", "\x1b[?69l"},                                                                                                       // margins left and right
	{"?9", "\x1b[?9l"}, {"?1000", "\x1b[?1000l"}, {"?1001", "\x1b[?1001l"}, {"?1002", "\x1b[?1002l"}, {"?1003", "\x1b[?1003l"}, // mouse
	{"?1004", "\x1b[?1004l"},                                                                               // focus
	{"?1005", "\x1b[?1005l"}, {"?1006", "\x1b[?1006l"}, {"?1015", "\x1b[?1015l"}, {"?1016", "\x1b[?1016l"}, // forms of mouse reports
	{"?2004", "\x1b[?2004l"},                           // bracketed paste
	{"?2031", "\x1b[?2031l"}, {"?2048", "\x1b[?2048l"}, // reports of colour scheme and size
	{"?47", "\x1b[?47l"}, {"?1047", "\x1b[?1047l"}, {"?1049", "\x1b[?1049l"}, // alternate screen
	{"?25", "\x1b[?25h"},                 // cursor shown
	{"4", "\x1b[4l"}, {"20", "\x1b[20l"}, // insert, new line
	{"keypad", "\x1b>"},
	{"keyboard", "\x1b[=0u"},       // kitty's modes, outside of the stack
	{"other keys", "\x1b[>4;0m"},   // xterm's modifyOtherKeys
	{"region", "\x1b7\x1b[r\x1b8"}, // which moves the cursor
	{"charset", "\x1b(B\x1b)B\x0f"},
	{"cursor", "\x1b[0 q"}, // its shape
	{"colour", "\x1b[m"},   // any rendition
}

// set notes whether what a key of resets stands for is not at its default.
func (s *screen) set(key string, changed bool) {
	for i := range resets {
		if resets[i].key == key {
			s.changed &^= 1 << i
			if changed {
				s.changed |= 1 << i
			}
		}
	}
}

// is reports whether one of the keys of resets is not at its default.
func (s *screen) is(keys ...string) bool {
	for i := range resets {
		for _, key := range keys {
			if s.changed&(1<<i) != 0 && resets[i].key == key {
				return true
			}
		}
	}
	return false
}

func (s *screen) alternate() bool { return s.is("?47", "?1047", "?1049") }

// stack is that of the screen's keyboard modes.
func (s *screen) stack() *int {
	if s.alternate() {
		return &s.kitty[1]
	}
	return &s.kitty[0]
}

// escape follows an escape sequence, given without its ESC.
func (s *screen) escape(b []byte) {
	switch {
	case string(b) == "c": // RIS
		*s = screen{}
	case string(b) == "=", string(b) == ">":
		s.set("keypad", b[0] == '=')
	case len(b) == 2 && (b[0] == '(' || b[0] == ')') && b[1] != 'B':
		s.set("charset", true)
	}
}

// control follows a control sequence: its private mark, its arguments, and the rest.
func (s *screen) control(private string, args []byte, final string) {
	n, rest := number(args)
	switch private + final {
	case "?h", "?l", "h", "l":
		for arg := range bytes.SplitSeq(args, []byte(";")) {
			n, _ := number(arg)
			key := private + strconv.Itoa(n)
			s.set(key, (key == "?7" || key == "?25") == (final == "l"))
		}
	case ">u":
		*s.stack()++
	case "=u":
		s.set("keyboard", n > 0)
	case "<u":
		*s.stack() = max(0, *s.stack()-max(1, n))
	case ">m":
		if n == 4 {
			level, _ := number(bytes.TrimPrefix(rest, []byte(";")))
			s.set("other keys", level > 0)
		}
	case "r":
		s.set("region", len(args) > 0)
	case " q":
		s.set("cursor", n > 0)
	case "m":
		s.set("colour", bytes.ContainsAny(args, "123456789"))
	}
}

// Modes returns what brings a terminal that has its defaults into the modes that the output has switched on: those of
// [Filter.Reset] that are a private mode, and the keypad's. The rest a program sets again when it draws.
func (f *Filter) Modes() []byte {
	var b strings.Builder
	for i, r := range resets {
		if f.screen.changed&(1<<i) == 0 {
			continue
		}
		switch back := r.text[len(r.text)-1]; {
		case r.key == "keypad":
			b.WriteString("\x1b=")
		case r.key == "?2026" || r.key[0] != '?':
		case back == 'l':
			b.WriteString(r.text[:len(r.text)-1] + "h")
		default:
			b.WriteString(r.text[:len(r.text)-1] + "l")
		}
	}
	return []byte(b.String())
}

// Clone returns a filter that goes on where this one stands.
func (f *Filter) Clone() *Filter {
	c := *f
	c.partial, c.hold, c.out = bytes.Clone(f.partial), bytes.Clone(f.hold), nil
	return &c
}

// Reset returns what puts the terminal's modes back that the output has
// changed and not restored, and forgets them; nothing, if there are none. A
// sequence that is still held is lost, a string that is open gets its end.
func (f *Filter) Reset() []byte {
	var b strings.Builder
	if f.state == passing {
		b.WriteString("\x1b\\")
	}
	if f.state == ground {
		b.Write(f.partial) // no character, now that nothing follows
	}
	f.state, f.esc, f.partial = ground, false, nil
	s := f.screen
	f.screen = screen{}
	pop := func(n int) {
		if n > 0 {
			b.WriteString("\x1b[<" + strconv.Itoa(n) + "u")
		}
	}
	if s.alternate() {
		pop(s.kitty[1]) // each screen has its own, and this one is going
	}
	for i, r := range resets {
		if s.changed&(1<<i) != 0 {
			b.WriteString(r.text)
		}
	}
	pop(s.kitty[0])
	return []byte(b.String())
}
