//go:build unix

package macos

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"syscall"
)

// A warden is the process that ends what the command leaves.
type warden struct {
	process *os.Process
	to      *os.File
	said    *bufio.Reader
	once    sync.Once
	names   []string
	err     error
}

// startWarden starts it, in a session of its own: what ends the launcher does not end it.
func (s *system) startWarden(label string) (*warden, error) {
	in, to, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer in.Close()
	from, out, err := os.Pipe()
	if err != nil {
		to.Close()
		return nil, err
	}
	defer out.Close()
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		return nil, err
	}
	defer null.Close()
	argv := append(append([]string{}, s.stage...), wardenPart, label)
	w := &warden{to: to, said: bufio.NewReader(from)}
	w.process, err = os.StartProcess(argv[0], argv, &os.ProcAttr{
		Dir: "/", Env: s.environ, Files: []*os.File{in, out, null}, Sys: &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		to.Close()
		from.Close()
		return nil, fmt.Errorf("start %s: %w", argv[0], err)
	}
	return w, nil
}

func (w *warden) tell(word string) { _, _ = io.WriteString(w.to, word+"\n") }

// end has it end what is left, and returns what there was.
func (w *warden) end() ([]string, error) {
	w.once.Do(func() {
		w.tell("end")
		for {
			line, err := w.said.ReadString('\n')
			if name, ok := strings.CutPrefix(line, "ended "); ok {
				w.names = append(w.names, strings.TrimSuffix(name, "\n"))
			} else if text, ok := strings.CutPrefix(line, "error "); ok {
				w.err = errors.New(strings.TrimSuffix(text, "\n"))
			}
			if err != nil {
				break
			}
		}
		if state, err := w.process.Wait(); err != nil || !state.Success() {
			w.err = errors.Join(w.err, err, fmt.Errorf("the clean-up process ended (%v)", state))
		}
		w.to.Close()
	})
	return w.names, w.err
}

// abandon ends all where nobody asked for it yet.
func (w *warden) abandon() { _, _ = w.end() }
