//go:build linux || darwin

package terminal

import (
	"bytes"
	"context"
	"errors"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"
)

// ErrCannotAsk says that a question cannot be put: the terminal is not ours at
// the moment, or the command holds it in the middle of a sequence.
var ErrCannotAsk = errors.New("no question can be asked at the terminal")

// How long the command may take to end a sequence that it has begun, and for how
// long nothing may have been typed before an answer: what comes sooner is a
// sentence that somebody types for the command, or the rest of what the terminal
// itself says.
const (
	betweenTimeout = time.Second
	deafFor        = 400 * time.Millisecond
)

// Ask puts a question on the screen, waits for one of the keys, and leaves the
// screen as it was. The command's output waits meanwhile, and so do its keys.
// Escape, Ctrl-C and the end of ctx are no answer: 0.
//
// The question has the alternate screen to itself. Where the command draws on
// that, as full-screen programs do, it is made to draw anew, as for a new size of
// the window. What is typed within the first moment is dropped, and so is
// what is pasted or typed on after that: none was meant as an answer. A question
// whose first line does not fit into the window is not put: what would be missing
// is the end of a name that the command has chosen.
func (r *Relay) Ask(ctx context.Context, question string, keys string) (byte, error) {
	r.asking.Lock()
	defer r.asking.Unlock()
	if !r.hold() {
		return 0, ErrCannotAsk
	}
	typed := make(chan []byte, 16)
	r.mu.Lock()
	if r.closed || !r.raw {
		r.mu.Unlock()
		r.output.Unlock()
		return 0, ErrCannotAsk
	}
	r.typed = typed
	r.mu.Unlock()

	s := &r.o.Filter.screen
	full := s.alternate()
	enter, leave, err := s.around(full, question, r.size())
	answer := byte(0)
	if err == nil {
		_, err = r.o.Output.Write(enter)
	}
	if err == nil {
		answer = r.listen(ctx, typed, keys)
		_, err = r.o.Output.Write(leave)
	}
	r.mu.Lock()
	r.typed = nil
	r.mu.Unlock()
	r.output.Unlock()
	if full {
		r.redraw()
	}
	return answer, err
}

// hold keeps the command's output back, from between two of its sequences on.
func (r *Relay) hold() bool {
	for deadline := time.Now().Add(betweenTimeout); ; {
		r.output.Lock()
		if f := r.o.Filter; f.quiet() && !f.esc {
			return true
		}
		r.output.Unlock()
		if time.Now().After(deadline) {
			return false
		}
		time.Sleep(time.Millisecond)
	}
}

// around returns what puts a question on the alternate screen, and what takes it
// away. Both save and restore the cursor with its rendition and character set
// (DECSC). Full is where that screen is the command's.
func (s *screen) around(full bool, question string, window *unix.Winsize) (enter, leave []byte, err error) {
	const plain = "\x1b[?6l\x1b[m\x0f\x1b(B\x1b[H\x1b[2J" // origin, rendition, ASCII; and nothing else
	text, ok := fold(question, max(int(window.Col)-1, 1), int(window.Row))
	if !ok {
		return nil, nil, ErrCannotAsk
	}
	save, restore := "\x1b[?1049h", "\x1b[?1049l"
	if full {
		save, restore = "\x1b7", "\x1b8"
	}
	if s.is("?2026") { // nothing would be drawn
		save, restore = "\x1b[?2026l"+save, restore+"\x1b[?2026h"
	}
	return []byte(save + plain + text), []byte("\x1b[2J" + restore), nil
}

// fold breaks a text into lines that fit into a window, as many as do. It is
// false if those do not hold the first line of the text.
func fold(text string, columns, rows int) (folded string, ok bool) {
	head, _, _ := strings.Cut(text, "\n")
	var lines []string
	for line := range strings.SplitSeq(text, "\n") {
		runes := []rune(line)
		for ; len(runes) > columns; runes = runes[columns:] {
			lines = append(lines, string(runes[:columns]))
		}
		lines = append(lines, string(runes))
	}
	return strings.Join(lines[:min(len(lines), rows)], "\r\n"), utf8.RuneCountInString(head) <= columns*rows
}

// size returns the size of the window; where nobody knows it that of a VT100.
func (r *Relay) size() *unix.Winsize {
	size, err := unix.IoctlGetWinsize(r.o.Terminal, unix.TIOCGWINSZ)
	if err != nil || size.Col == 0 || size.Row == 0 {
		return &unix.Winsize{Row: 24, Col: 80}
	}
	return size
}

// listen waits for one of the keys, alone: nothing was typed for a while before
// it. Who says no need not wait.
func (r *Relay) listen(ctx context.Context, typed <-chan []byte, keys string) byte {
	begin := time.Now().Add(deafFor)
	quiet := begin
	for {
		select {
		case <-ctx.Done():
			return 0
		case <-r.hungUp:
			return 0
		case <-r.ended:
			return 0
		case b := <-typed:
			now := time.Now()
			switch key := keyOf(b); {
			case now.Before(begin):
			case key == 0x1b, key == 0x03:
				return 0
			case !now.Before(quiet) && key != 0 && strings.IndexByte(keys, key) >= 0:
				return key
			}
			if until := now.Add(deafFor); until.After(quiet) {
				quiet = until
			}
		}
	}
}

// keyOf returns the key that was pressed, in lower case; 0 if it was none, or
// many, or what else a terminal sends. A terminal may have been told to send
// keys as CSI number u, kitty's way.
func keyOf(b []byte) byte {
	if text, ok := bytes.CutPrefix(b, []byte("\x1b[")); ok && bytes.HasSuffix(text, []byte("u")) {
		number, modifiers, _ := strings.Cut(string(text[:len(text)-1]), ";")
		n, err := strconv.ParseUint(number, 10, 7)
		if err != nil || modifiers != "" && modifiers != "1" && modifiers != "2" {
			return 0
		}
		b = []byte{byte(n)}
	}
	if len(b) != 1 {
		return 0
	}
	return bytes.ToLower(b)[0]
}

// isAnswer takes what was typed if a question is open.
func (r *Relay) isAnswer(b []byte) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.typed == nil {
		return false
	}
	select {
	case r.typed <- bytes.Clone(b):
	default: // nobody types that fast
	}
	return true
}

// redraw tells the command of a window one line shorter, and of the real one.
func (r *Relay) redraw() {
	size, err := unix.IoctlGetWinsize(r.o.Terminal, unix.TIOCGWINSZ)
	if err != nil || size.Row < 2 {
		return
	}
	size.Row--
	_ = control(r.o.Master, func(fd int) error { return unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, size) })
	time.Sleep(50 * time.Millisecond) // two signals at once are one
	r.copySize()
}
