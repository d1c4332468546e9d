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
	*Streams
	ended chan *Exec // one, or closed
	heard bool
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
	e := &execution{Streams: NewStreams(stdio), ended: make(chan *Exec, 1)}
	ask := &Exec{Argv: Texts(argv), Paths: Texts(files)}
	if t := stdio.Terminal; t != nil {
		ask.Terminal = true
		ask.Columns, ask.Rows = t.Size()
	}
	if ask.Number, err = x.enroll(e); err != nil {
		return result, nil, err
	}
	defer x.forget(ask.Number)
	x.Say(Message{Exec: ask})
	over := make(chan struct{})
	defer close(over)
	signal := func(number int) { x.Say(Message{Exec: &Exec{Number: ask.Number, Signal: number}}) }
	go Forward(stdio, over, signal, func(columns, rows int) {
		x.Say(Message{Exec: &Exec{Number: ask.Number, Screen: Screen{Columns: columns, Rows: rows}}})
	})
	defer context.AfterFunc(ctx, func() { signal(sigkill) })()
	end, is := <-e.ended
	switch {
	case !is: // the place has ended, and all in it
		return providers.Result{Signal: sigkill}, nil, nil
	case end.Failed != nil:
		return result, end.Failed, nil
	}
	e.Wait()
	return providers.Result{Code: end.Ended.Code, Signal: end.Ended.Signal}, nil, nil
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
	x.mu.Lock()
	e := x.list[int(head[0])]
	x.mu.Unlock()
	if e == nil {
		_ = s.Close()
		return
	}
	e.Join(s, Kind(head[1]))
}

// End ends the waiting: the place is gone.
func (x *Executions) End() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.over = true
	for number, e := range x.list {
		close(e.ended)
		e.Lost()
		delete(x.list, number)
	}
}
