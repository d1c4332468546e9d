package terminal

import (
	"bytes"
	"strconv"
)

// A screen is what a terminal has been told to be, as far as it would spoil
// what comes after the program, or hide it.
type screen struct {
	modes    uint32 // bit i: modes[i] is not at its default
	ansi     uint32 // bit n: ANSI mode n is set
	kitty    [2]int // entries on the stack of keyboard modes: main and alternate screen
	kittySet bool   // keyboard modes were set outside of it
	keypad   bool
	otherKey bool // xterm's modifyOtherKeys
	region   bool
	colour   bool // any rendition
	charset  bool
	shape    bool // of the cursor
}

// modes are the private modes (DECSET) that are put back, with their
// defaults: what a full-screen program that crashes leaves behind.
var modes = [...]struct {
	n       int
	initial bool
}{
	{2026, false},                                                          // synchronized update: nothing is drawn while it lasts
	{1, false},                                                             // cursor keys
	{5, false},                                                             // reverse video
	{6, false},                                                             // origin
	{7, true},                                                              // wrap
	{66, false},                                                            // keypad
	{69, false},                                                            // margins left and right
	{9, false}, {1000, false}, {1001, false}, {1002, false}, {1003, false}, // mouse
	{1004, false},                                              // focus
	{1005, false}, {1006, false}, {1015, false}, {1016, false}, // forms of mouse reports
	{2004, false},                // bracketed paste
	{2031, false}, {2048, false}, // reports of colour scheme and size
	{47, false}, {1047, false}, {1049, false}, // alternate screen
	{25, true}, // cursor shown
}

func (s *screen) alternate() int {
	for i, m := range modes {
		if s.modes&(1<<i) != 0 && (m.n == 47 || m.n == 1047 || m.n == 1049) {
			return 1
		}
	}
	return 0
}

// escape follows an escape sequence, given without its ESC.
func (s *screen) escape(b []byte) {
	switch {
	case string(b) == "c": // RIS
		*s = screen{}
	case string(b) == "=":
		s.keypad = true
	case string(b) == ">":
		s.keypad = false
	case len(b) == 2 && (b[0] == '(' || b[0] == ')') && b[1] != 'B':
		s.charset = true
	}
}

// control follows a control sequence.
func (s *screen) control(private byte, args, inter []byte, final byte) {
	if len(inter) > 0 {
		if string(inter) == " " && final == 'q' {
			n, _ := number(args)
			s.shape = n > 0
		}
		return
	}
	n, _ := number(args)
	switch {
	case private == '?' && (final == 'h' || final == 'l'):
		eachNumber(args, func(n int) { s.set(n, final == 'h') })
	case private == 0 && (final == 'h' || final == 'l'):
		eachNumber(args, func(n int) {
			if n == 4 || n == 20 { // insert, new line
				s.ansi &^= 1 << n
				if final == 'h' {
					s.ansi |= 1 << n
				}
			}
		})
	case private == '>' && final == 'u':
		s.kitty[s.alternate()]++
	case private == '=' && final == 'u':
		s.kittySet = n > 0
	case private == '<' && final == 'u':
		k := &s.kitty[s.alternate()]
		*k = max(0, *k-max(1, n))
	case private == '>' && final == 'm' && n == 4:
		_, level, _ := bytes.Cut(args, []byte(";"))
		n, _ := number(level)
		s.otherKey = n > 0
	case private == 0 && final == 'r':
		s.region = len(args) > 0
	case private == 0 && final == 'm':
		s.colour = bytes.ContainsAny(args, "123456789")
	}
}

func (s *screen) set(n int, on bool) {
	for i, m := range modes {
		if m.n == n {
			s.modes &^= 1 << i
			if on != m.initial {
				s.modes |= 1 << i
			}
		}
	}
}

func eachNumber(args []byte, f func(int)) {
	for len(args) > 0 {
		n, rest := number(args)
		f(n)
		_, args, _ = bytes.Cut(rest, []byte(";"))
	}
}

// Reset returns what puts the terminal's modes back that the output has
// changed and not restored, and forgets them; nothing, if there are none. A
// sequence that is still held is lost, a string that is open gets its end.
func (f *Filter) Reset() []byte {
	var b []byte
	if f.state == passing {
		b = append(b, esc, '\\')
	}
	f.state, f.esc, f.c2, f.more = ground, false, false, 0
	s := f.screen
	f.screen = screen{}
	alternate := s.alternate()
	pop := func(n int) {
		if n > 0 {
			b = append(b, "\x1b[<"...)
			b = strconv.AppendInt(b, int64(n), 10)
			b = append(b, 'u')
		}
	}
	if alternate == 1 {
		pop(s.kitty[1]) // each screen has its own, and this one is going
	}
	for i, m := range modes {
		if s.modes&(1<<i) != 0 {
			b = append(b, "\x1b[?"...)
			b = strconv.AppendInt(b, int64(m.n), 10)
			if m.initial {
				b = append(b, 'h')
			} else {
				b = append(b, 'l')
			}
		}
	}
	pop(s.kitty[0])
	for _, part := range []struct {
		changed bool
		undo    string
	}{
		{s.ansi&(1<<4) != 0, "\x1b[4l"},
		{s.ansi&(1<<20) != 0, "\x1b[20l"},
		{s.keypad, "\x1b>"},
		{s.kittySet, "\x1b[=0u"},
		{s.otherKey, "\x1b[>4;0m"},
		{s.region, "\x1b7\x1b[r\x1b8"}, // which moves the cursor
		{s.charset, "\x1b(B\x1b)B\x0f"},
		{s.shape, "\x1b[0 q"},
		{s.colour, "\x1b[m"},
	} {
		if part.changed {
			b = append(b, part.undo...)
		}
	}
	return b
}
