package detach

import (
	"bytes"
	"errors"
	"io"
	"strconv"
	"strings"
	"time"
)

// Keys are what detaches a terminal when they are typed one after the other, each as the forms that terminals send for it.
type Keys [][]string

// UsualKeys are those of other programs.
const UsualKeys = "ctrl-p,ctrl-q"

// ParseKeys reads keys: ctrl- and a letter or one of @[\]^_, or a character, with commas between.
func ParseKeys(text string) (keys Keys, err error) {
	for word := range strings.SplitSeq(text, ",") {
		c, isCtrl := strings.CutPrefix(word, "ctrl-")
		switch {
		case len(c) != 1 || c[0] <= ' ' || c[0] > '~':
			return nil, errors.New(strconv.Quote(word) + ": want a character, or ctrl- and a letter, with commas between")
		case !isCtrl:
			keys = append(keys, []string{c})
		case c[0] >= 'a' && c[0] <= 'z' || strings.Contains(`@[\]^_`, c):
			code := strconv.Itoa(int(c[0]))
			// A program may have told the terminal to send codes: those of xterm, and of kitty, with and without locks.
			forms := []string{string(rune(c[0] & 0x1f)), "\x1b[27;5;" + code + "~"}
			for _, modifiers := range []string{"5", "5:1", "69", "133", "197"} {
				forms = append(forms, "\x1b["+code+";"+modifiers+"u")
			}
			keys = append(keys, forms)
		default:
			return nil, errors.New(strconv.Quote(word) + ": want ctrl- and a letter, or one of @[\\]^_")
		}
	}
	return keys, nil
}

// second is how long the next of the keys is waited for, before what was typed goes to the program.
const second = time.Second

// pass passes on what is typed, until the keys are, or nothing more comes.
func (k Keys) pass(in io.Reader, to func([]byte) error) {
	chunks := make(chan []byte)
	go func() {
		defer close(chunks)
		for {
			b := make([]byte, 4096)
			n, err := in.Read(b)
			if n > 0 {
				chunks <- b[:n]
			}
			if err != nil {
				return
			}
		}
	}()
	var m matcher
	m.keys = k
	for {
		var late <-chan time.Time
		if len(m.held) > 0 {
			late = time.After(second)
		}
		select {
		case b, more := <-chunks:
			if !more {
				return
			}
			pass, done := m.typed(b)
			if len(pass) > 0 && to(pass) != nil || done {
				go func() {
					for range chunks { // nobody waits for it
					}
				}()
				return
			}
		case <-late:
			if to(m.release()) != nil {
				return
			}
		}
	}
}

// A matcher finds the keys in what is typed.
type matcher struct {
	keys Keys
	at   int    // so many of them were typed
	held []byte // by these bytes
}

// typed returns what is to be passed on of it, and whether the keys were typed.
func (m *matcher) typed(b []byte) (pass []byte, done bool) {
	for len(b) > 0 {
		n := m.next(b)
		if n == 0 && m.at > 0 { // what was held is no beginning, and this may be one
			pass = append(pass, m.release()...)
			n = m.next(b)
		}
		if n == 0 {
			pass, b = append(pass, b[0]), b[1:]
			continue
		}
		m.held, b = append(m.held, b[:n]...), b[n:]
		if m.at++; m.at == len(m.keys) {
			return pass, true
		}
	}
	return pass, false
}

// next returns the length of the next of the keys, if b begins with it. A terminal sends a form at once.
func (m *matcher) next(b []byte) int {
	for _, form := range m.keys[m.at] {
		if bytes.HasPrefix(b, []byte(form)) {
			return len(form)
		}
	}
	return 0
}

func (m *matcher) release() []byte {
	held := m.held
	m.held, m.at = nil, 0
	return held
}
