//go:build unix && !launcher

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/internal/events"
	"github.com/pccrun/pccrun/task"
	"github.com/pccrun/pccrun/task/many"
)

// A manyDisplay is shown what happens, and what comes of it. say may be called by any goroutine.
type manyDisplay interface {
	many.Display
	say(text string)
	ticks() (ticks <-chan struct{}, end func())
	results(r *many.Results)
}

// display is a table at a terminal, and lines elsewhere.
func (m *manyLine) display() manyDisplay {
	text := manyText{quiet: m.quiet}
	switch {
	case m.json:
		return &manyJSON{}
	case m.quiet || !isTerminal(os.Stderr) || os.Getenv("TERM") == "dumb":
		return &text
	}
	return &manyTable{manyText: text, colours: os.Getenv("NO_COLOR") == ""}
}

// A manyText prints a line for each change.
type manyText struct{ quiet bool }

func (d *manyText) say(text string) {
	if !d.quiet {
		say(text)
	}
}

func (d *manyText) ticks() (<-chan struct{}, func()) { return nil, func() {} }

func (d *manyText) Tick(*many.State) {}

func (d *manyText) Changed(s *many.State, i int, line []byte) {
	if line == nil {
		d.say(s.Change(i))
	}
}

func (d *manyText) results(r *many.Results) {
	for i := range r.Tasks {
		if d.quiet && r.Tasks[i].State != task.Done {
			say(r.Change(i))
		}
	}
	for _, line := range r.Lines() {
		d.say(line)
	}
}

// A manyTable prints a table, and again in its place. The cursor is not hidden and the terminal's modes are not changed, so that
// nothing is to be put back, however this process ends.
type manyTable struct {
	manyText
	colours bool
	mu      sync.Mutex
	stands  []string // the lines of the table that stands, nil for none
	width   int      // of the terminal when it was written
}

// redrawn is how often.
const redrawn = 250 * time.Millisecond

// ticks come when the table is to be written again: also when the terminal has another size.
func (d *manyTable) ticks() (<-chan struct{}, func()) {
	ticks, done := make(chan struct{}), make(chan struct{})
	sizes := make(chan os.Signal, 1)
	signal.Notify(sizes, syscall.SIGWINCH)
	clock := time.NewTicker(redrawn)
	go func() {
		for {
			select {
			case <-clock.C:
			case <-sizes:
			case <-done:
				return
			}
			select {
			case ticks <- struct{}{}:
			case <-done:
				return
			}
		}
	}()
	return ticks, func() {
		signal.Stop(sizes)
		clock.Stop()
		close(done)
	}
}

func (d *manyTable) Changed(*many.State, int, []byte) {} // the next tick shows it

// Tick writes the table.
func (d *manyTable) Tick(s *many.State) {
	width, height := terminalSize()
	lines := many.Table(s, many.View{Width: width, Height: height, Colours: d.colours, Now: time.Now()})
	d.mu.Lock()
	defer d.mu.Unlock()
	if width == d.width && slices.Equal(lines, d.stands) {
		return
	}
	text := d.erased(width) + strings.Join(lines, "\n") + "\n"
	d.stands, d.width = lines, width
	os.Stderr.WriteString(text)
}

// terminalSize is that of standard error, in cells.
func terminalSize() (width, height int) {
	if size, err := unix.IoctlGetWinsize(int(os.Stderr.Fd()), unix.TIOCGWINSZ); err == nil && size.Col > 0 && size.Row > 0 {
		return int(size.Col), int(size.Row)
	}
	return 80, 24
}

// erased is what takes the table away: a terminal that is narrower now has broken its lines.
func (d *manyTable) erased(width int) string {
	rows := 0
	for _, line := range d.stands {
		rows += max(1, (many.Cells(line)+width-1)/width)
	}
	if d.stands = nil; rows == 0 {
		return ""
	}
	return fmt.Sprintf("\r\x1b[%dA\x1b[J", rows) // CUU, ED: ECMA-48
}

// say prints a line above the table, which the next tick writes again.
func (d *manyTable) say(text string) {
	width, _ := terminalSize()
	d.mu.Lock()
	defer d.mu.Unlock()
	os.Stderr.WriteString(d.erased(width))
	say(text)
}

func (d *manyTable) results(r *many.Results) {
	d.say(r.Lines()[0])
	for _, line := range r.Lines()[1:] {
		say(line)
	}
}

// A manyJSON prints the lines of all tasks, each with the name of its task, and at last the results.
type manyJSON struct{ taskJSON }

func (d *manyJSON) say(text string) { d.Line(text) }

func (d *manyJSON) ticks() (<-chan struct{}, func()) { return nil, func() {} }

func (d *manyJSON) Tick(*many.State) {}

func (d *manyJSON) Changed(s *many.State, i int, line []byte) {
	var has struct{ Name *string }
	if json.Unmarshal(line, &has) != nil { // none, or none of JSON
		return
	}
	if has.Name == nil {
		version := fmt.Appendf(nil, `{"v":%d,`, schemaVersion)
		line = bytes.Replace(line, version, fmt.Appendf(nil, `%s"name":%s,`, version, events.Marshal(s.Tasks[i].Name)), 1)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	stdout.Write(append(line, '\n'))
}

func (d *manyJSON) results(r *many.Results) { stdout.Write(r.JSON()) }
