package terminal

import (
	"bytes"
	"slices"
	"unicode/utf8"
)

// Filter passes terminal output, less what would act on the host beyond its
// screen. The zero value is the strict filter. It is for one stream and one
// goroutine.
//
// It drops:
//   - operating system commands (OSC) that are not known to be harmless;
//   - writing and reading the clipboard: OSC 52 and its kin;
//   - what makes the terminal answer with text that the output chose, or
//     arranges that a key will: reports of the title and of settings,
//     DECRQSS, XTGETTCAP, fonts, user-defined keys and macros, ENQ;
//   - what makes a terminal, a multiplexer or an editor around us run
//     commands, open files or print: see [Filter.osc] and [Filter.dcs];
//   - a sequence that is broken off before it was clear what it is, or that
//     is too long to judge. A terminal does nothing with the former.
//
// Questions whose answers are numbers (colours, cursor position, modes,
// device attributes) pass: programs need them.
//
// It knows the 7-bit and 8-bit forms of control sequences, and the latter in
// UTF-8 and alone, where a byte that is part of a longer UTF-8 character is
// none of them. Sequences are found wherever they begin, inside of other
// sequences too, so it does not matter whether the terminal agrees on where
// one ends; a string that is broken off by another sequence gets its end.
//
// The grammar is that of ECMA-48 and of the VT500 parser by Paul Williams
// (vt100.net/emu/dec_ansi_parser); the sequences are those of xterm's
// ctlseqs, and the documents of kitty, iTerm2, tmux, screen and VTE.
type Filter struct {
	// Clipboard lets the output write the clipboard with OSC 52. Reading it
	// is never let through.
	Clipboard bool

	// Answered drops what a terminal answers too: of output that is shown again, whose program has had its answers.
	Answered bool

	// Clipped says that the output wanted to write the clipboard, and was not let.
	Clipped bool

	state   state
	intro   byte   // what began the string: one of ] P _ ^ X
	esc     bool   // in a string, the last byte was ESC
	partial []byte // the beginning of a UTF-8 character
	whole   bool   // the string is judged at its end only
	hold    []byte // the sequence, while it is not clear whether it passes
	body    int    // where in hold the introducer ends
	out     []byte
	depth   int // of tmux's passthrough
	screen  screen
}

type state uint8

const (
	ground  state = iota
	escape        // after ESC, with its intermediate bytes
	csi           // control sequence, held
	csiDrop       // control sequence that is too long
	header        // string, held
	passing       // string that passes
	dropped       // string that does not
)

const (
	enq = 0x05
	bel = 0x07
	can = 0x18
	sub = 0x1a
	esc = 0x1b
	del = 0x7f
)

// Bounds of what is held.
const (
	maxSequence = 1 << 10 // of a control sequence and of a string's head
	maxString   = 1 << 20 // of a string that is judged as a whole
)

type verdict uint8

const (
	undecided verdict = iota
	pass
	drop
)

// Filter returns what of p passes, with what was held before and passes now.
// The result is valid until the next call.
func (f *Filter) Filter(p []byte) []byte {
	if len(f.partial) > 0 {
		p, f.partial = append(f.partial, p...), nil
	}
	// ENQ acts in the middle of anything. It goes first, so that what stands
	// around it is judged as it will arrive: side by side.
	if bytes.IndexByte(p, enq) >= 0 {
		p = bytes.ReplaceAll(p, []byte{enq}, nil)
	}
	f.out = f.out[:0]
	for len(p) > 0 {
		if n := f.plain(p); n > 0 {
			f.out = append(f.out, p[:n]...)
			p = p[n:]
			continue
		}
		if p[0] < utf8.RuneSelf {
			f.ascii(p[0])
			p = p[1:]
			continue
		}
		r, size := utf8.DecodeRune(p)
		switch {
		case !utf8.FullRune(p):
			f.partial = bytes.Clone(p)
			return f.out
		case r < 0xa0:
			f.c1(byte(r), p[:size]...)
		case size == 1 && p[0] < 0xa0: // alone
			f.c1(p[0], p[0])
		default:
			f.text(p[:size]...)
		}
		p = p[size:]
	}
	return f.out
}

// plain returns how many of the first bytes of p pass as they are: of text up
// to the next escape sequence, of a string that passes up to the next control.
func (f *Filter) plain(p []byte) (n int) {
	switch {
	case f.state == ground:
		for n < len(p) && p[n] != esc && p[n] < utf8.RuneSelf {
			n++
		}
	case f.state == passing && !f.esc:
		for n < len(p) && p[n] >= ' ' && p[n] < utf8.RuneSelf {
			n++
		}
	}
	return n
}

// quiet reports whether the last byte left nothing open.
func (f *Filter) quiet() bool { return f.state == ground && len(f.partial) == 0 }

// text takes a character above ASCII that is no control, or a byte that is part
// of none.
func (f *Filter) text(char ...byte) {
	if f.inString() && f.esc {
		f.abort()
	}
	switch f.state {
	case ground, passing:
		f.out = append(f.out, char...)
	case header:
		for _, c := range char {
			f.keep(c)
		}
		f.judge(char[0], false)
	case escape, csi, csiDrop:
		f.state = ground
		f.out = append(f.out, char...)
	}
}

func (f *Filter) inString() bool { return f.state >= header }

// c1 takes a C1 control, which came as the bytes given.
func (f *Filter) c1(c byte, form ...byte) {
	if f.inString() && f.esc {
		f.abort()
	}
	begins := c == 0x9b || c == 0x9d || c == 0x90 || c == 0x9f || c == 0x9e || c == 0x98
	if f.inString() {
		switch {
		case c == 0x9c:
			f.finish(form...)
			return
		case !begins:
			f.text(form...)
			return
		}
		f.abort()
	}
	if begins {
		f.begin(c-0x40, form...)
		return
	}
	f.state = ground
	f.out = append(f.out, form...)
}

// begin starts a control sequence or a string. What was held is broken off.
func (f *Filter) begin(intro byte, form ...byte) {
	f.hold = append(f.hold[:0], form...)
	f.body, f.intro, f.whole, f.esc = len(f.hold), intro, false, false
	switch intro {
	case '[':
		f.state = csi
	case '^', 'X': // privacy message, start of string: nothing acts on them
		f.state = passing
		f.out = append(f.out, f.hold...)
	default:
		f.state = header
	}
}

// ascii takes a byte below 0x80.
func (f *Filter) ascii(c byte) {
	if f.inString() {
		f.inside(c)
		return
	}
	switch {
	case c == esc:
		f.hold = append(f.hold[:0], esc)
		f.body, f.state = 1, escape
	case f.state == ground:
		f.out = append(f.out, c)
	case c == can || c == sub:
		f.state = ground
	case f.state == csiDrop:
		if c >= 0x40 && c != del {
			f.state = ground
		}
	case c < 0x20 || c == del: // acted upon at once, or ignored
		f.keep(c)
	case f.state == csi:
		f.keep(c)
		if c >= 0x40 && f.state == csi {
			f.decide(f.control())
		}
	default:
		f.escaped(c)
	}
}

// escaped takes what follows ESC.
func (f *Filter) escaped(c byte) {
	first := len(f.params()) == 0
	switch {
	case first && (c == '[' || c == ']' || c == 'P' || c == '_' || c == '^' || c == 'X'):
		f.begin(c, append(f.hold, c)...)
	case c < 0x30:
		f.keep(c)
	default:
		f.keep(c)
		if f.state == escape {
			f.decide(f.simple())
		}
	}
}

// keep adds to what is held, as far as the bound allows.
func (f *Filter) keep(c byte) {
	limit := maxSequence
	if f.whole {
		limit = maxString
	}
	if len(f.hold) < limit {
		f.hold = append(f.hold, c)
		return
	}
	switch f.state {
	case header:
		f.state = dropped
	case csi:
		f.state = csiDrop
		if c >= 0x40 && c != del {
			f.state = ground
		}
	default:
		f.state = ground
	}
}

// decide ends a sequence that is no string.
func (f *Filter) decide(v verdict) {
	f.state = ground
	if v == pass {
		f.out = append(f.out, f.hold...)
	}
}

// params returns what is held behind the introducer, without the control
// characters that a terminal acts upon, or ignores, in its midst.
func (f *Filter) params() []byte {
	body := f.hold[f.body:]
	for _, c := range body {
		if isControl(c) {
			return slices.DeleteFunc(slices.Clone(body), isControl)
		}
	}
	return body
}

func isControl(c byte) bool { return c < 0x20 || c == del }

// inside takes an ASCII byte of a string.
func (f *Filter) inside(c byte) {
	if f.esc {
		f.esc = false
		switch {
		case c == '\\':
			f.finish(esc, '\\')
			return
		case c == esc && f.intro == 'P' && f.whole && f.state == header:
			// tmux's passthrough doubles each ESC.
			f.keep(esc)
			f.keep(esc)
			return
		}
		f.abort()
		f.hold = append(f.hold[:0], esc)
		f.body, f.state = 1, escape
		f.ascii(c)
		return
	}
	switch {
	case c == esc:
		f.esc = true
	case c == bel && f.intro == ']':
		f.finish(bel)
	case c == can || c == sub:
		if f.state == passing {
			f.out = append(f.out, c)
		}
		f.state = ground
	case f.state == passing:
		f.out = append(f.out, c)
	case f.state == header:
		f.keep(c)
		f.judge(c, false)
	}
}

// abort ends a string that another sequence breaks off. Terminals differ in
// whether it is broken off at all: where it passed, it gets its proper end.
func (f *Filter) abort() {
	if f.state == passing {
		f.out = append(f.out, esc, '\\')
	}
	f.state, f.esc = ground, false
}

// finish ends a string by its terminator.
func (f *Filter) finish(end ...byte) {
	if f.state == header {
		f.judge(0, true)
	}
	if f.state == passing {
		f.out = append(f.out, end...)
	}
	f.state, f.esc = ground, false
}

// judge looks whether the head of a string says what it is, after the byte c
// or at its end.
func (f *Filter) judge(c byte, end bool) {
	if f.state != header || !end && (f.whole || isControl(c)) {
		return
	}
	var v verdict
	switch f.intro {
	case ']':
		v = f.osc(c, end)
	case 'P':
		v = f.dcs(c, end)
	default:
		v = f.apc(c, end)
	}
	switch {
	case v == pass:
		f.state = passing
		f.out = append(f.out, f.hold...)
	case v == drop || end:
		f.state = dropped
	}
}
