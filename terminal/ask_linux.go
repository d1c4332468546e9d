package terminal

import (
	"bytes"
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// ErrCannotAsk says that a question cannot be put: the terminal is not ours at
// the moment, or the command holds it in the middle of a sequence.
var ErrCannotAsk = errors.New("the terminal cannot be asked")

// How long the command may take to end a sequence that it has begun, and how
// long what is typed is no answer yet: it was meant for the command.
const (
	betweenTimeout = time.Second
	deafFor        = 400 * time.Millisecond
)

// Ask puts a question on the screen, waits for one of the keys, and leaves the
// screen as it was. The command's output waits meanwhile, and so do its keys.
// Escape, Ctrl-C and the end of ctx are no answer: 0.
//
// Where the command draws on the main screen the question has the alternate one
// to itself. Where it has that, as full-screen programs do, the question stands
// on the last line, and the program is made to draw anew, as for a new size of
// the window. What is typed within the first moment is dropped, and so is
// what is pasted: neither was meant as an answer.
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
	full := s.alternate() == 1
	enter, leave := s.around(full, question, r.columns())
	_, err := r.o.Output.Write(enter)
	answer := byte(0)
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

// around returns what puts a question on the screen, and what takes it away.
// Both save and restore the cursor with its rendition (DECSC).
func (s *screen) around(full bool, question string, columns int) (enter, leave []byte) {
	const plain = "\x1b[?6l\x1b[m" // origin, rendition
	var frozen, thaw string
	for i, m := range modes {
		if m.n == 2026 && s.modes&(1<<i) != 0 {
			frozen, thaw = "\x1b[?2026l", "\x1b[?2026h"
		}
	}
	if full {
		line := strings.ReplaceAll(question, "\n", "  ")
		line = line[:min(len(line), max(columns-1, 0))]
		return []byte(frozen + "\x1b7" + plain + "\x1b[999;1H\x1b[2K\x1b[7m" + line + "\x1b[m"), []byte("\x1b[2K\x1b8" + thaw)
	}
	return []byte(frozen + "\x1b[?1049h" + plain + "\x1b[H\x1b[2J" + strings.ReplaceAll(question, "\n", "\r\n")), []byte("\x1b[2J\x1b[?1049l" + thaw)
}

func (r *Relay) columns() int {
	size, err := unix.IoctlGetWinsize(r.o.Terminal, unix.TIOCGWINSZ)
	if err != nil || size.Col == 0 {
		return 80
	}
	return int(size.Col)
}

// listen waits for one of the keys.
func (r *Relay) listen(ctx context.Context, typed <-chan []byte, keys string) byte {
	deaf := time.Now().Add(deafFor)
	for {
		select {
		case <-ctx.Done():
			return 0
		case <-r.hungUp:
			return 0
		case <-r.ended:
			return 0
		case b := <-typed:
			if time.Now().Before(deaf) {
				continue
			}
			switch key := keyOf(b); {
			case key == 0x1b, key == 0x03:
				return 0
			case key != 0 && strings.IndexByte(keys, key) >= 0:
				return key
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
