package inside

import (
	"context"
	"errors"
	"io"
	"sync"

	"github.com/hashicorp/yamux"

	"github.com/pccrun/pccrun/providers"
)

// Executions are, for the launcher, the other commands at a place.
type Executions struct {
	Say func(Message) // to pid 1

	mu   sync.Mutex
	over bool
	last int // number
	list map[int]*execution
}

type execution struct {
	io      providers.Stdio
	ended   chan *Exec // one, or closed
	heard   bool
	open    int // streams of what it prints that have not come yet
	printed sync.WaitGroup
}

// maxExecutions bounds them.
const maxExecutions = 16

// Exec runs another command, as [providers.Executor] has it. A failure of its start is for the
// caller to put into words.
func (x *Executions) Exec(ctx context.Context, argv, files []string, stdio providers.Stdio) (result providers.Result, failed *Failed, err error) {
	defer func() {
		for _, f := range []any{stdio.In, stdio.Out, stdio.Err} {
			if c, is := f.(io.Closer); is {
				_ = c.Close()
			}
		}
	}()
	e := &execution{io: stdio, ended: make(chan *Exec, 1), open: 2}
	ask := &Exec{Argv: Texts(argv), Paths: Texts(files)}
	var resized <-chan struct{}
	if t := stdio.Terminal; t != nil {
		e.open, resized, ask.Terminal = 1, t.Resized, true
		ask.Size[0], ask.Size[1] = t.Size()
	}
	e.printed.Add(e.open)
	if ask.Number, err = x.enroll(e); err != nil {
		return result, nil, err
	}
	defer x.forget(ask.Number)
	x.Say(Message{Exec: ask})
	done, signals := ctx.Done(), stdio.Signals
	for {
		select {
		case n, is := <-signals:
			if !is {
				signals = nil
				continue
			}
			x.Say(Message{Exec: &Exec{Number: ask.Number, Signal: n}})
		case <-resized:
			more := &Exec{Number: ask.Number}
			more.Size[0], more.Size[1] = stdio.Terminal.Size()
			x.Say(Message{Exec: more})
		case <-done:
			done = nil
			x.Say(Message{Exec: &Exec{Number: ask.Number, Signal: sigkill}})
		case end := <-e.ended:
			if end == nil { // the place has ended, and all in it
				return providers.Result{Signal: sigkill}, nil, nil
			}
			if end.Failed != nil {
				return result, end.Failed, nil
			}
			e.printed.Wait() // the streams may come after that word
			return providers.Result{Code: end.Ended.Code, Signal: end.Ended.Signal}, nil, nil
		}
	}
}

// sigkill is Linux's number of SIGKILL.
const sigkill = 9

func (x *Executions) enroll(e *execution) (number int, err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.over {
		return 0, errors.New("the session has ended")
	}
	if x.list == nil {
		x.list = map[int]*execution{}
	}
	if len(x.list) == maxExecutions {
		return 0, errors.New("16 other commands run already")
	}
	for x.last = x.last%255 + 1; x.list[x.last] != nil; { // not at once that of one before, whose streams may still come
		x.last = x.last%255 + 1
	}
	x.list[x.last] = e
	return x.last, nil
}

// Hear takes what pid 1 says of another command.
func (x *Executions) Hear(end *Exec) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if e := x.list[end.Number]; e != nil && !e.heard && (end.Ended != nil || end.Failed != nil) {
		e.heard = true
		e.ended <- end
	}
}

func (x *Executions) forget(number int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.list, number)
}

// Stream joins a stream of the kind [Executed] with what its command has here. One that nobody
// asked for is closed.
func (x *Executions) Stream(s *yamux.Stream) {
	var head [2]byte
	if _, err := io.ReadFull(s, head[:]); err != nil {
		_ = s.Close()
		return
	}
	kind := Kind(head[1])
	x.mu.Lock()
	e := x.list[int(head[0])]
	prints := e != nil && (kind == Stdout || kind == Stderr || kind == Terminal) && e.open > 0
	if prints {
		e.open--
	}
	x.mu.Unlock()
	if e != nil && (kind == Stdin || kind == Terminal) {
		go func() {
			_, _ = io.Copy(s, e.io.In)
			if kind == Stdin {
				_ = s.Close()
			}
		}()
	}
	switch {
	case prints:
		to := e.io.Out
		if kind == Stderr {
			to = e.io.Err
		}
		go func() {
			defer e.printed.Done()
			_, _ = io.Copy(to, s)
			_ = s.Close()
		}()
	case kind != Stdin || e == nil:
		_ = s.Close()
	}
}

// End ends the waiting: the place is gone.
func (x *Executions) End() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.over = true
	for number, e := range x.list {
		close(e.ended)
		e.printed.Add(-e.open)
		e.open = 0
		delete(x.list, number)
	}
}
