//go:build unix

package many

import (
	"context"
	"time"

	"github.com/pccrun/pccrun/internal/spending"
	"github.com/pccrun/pccrun/task"
)

// A Plan is what is to be done, and how.
type Plan struct {
	Tasks    []Task
	Jobs     int     // at a time
	FailFast bool    // the first that does not succeed ends all
	Together Counter // what all spend, nil if nobody counts
}

// A Counter says what tasks have spent together, and how long their API wants no requests: a [spending.File].
type Counter interface {
	Read() (spending.State, error)
}

// A Worker works at a task to its end. It sends each line that the task prints, and at last an [End]. It ends soon when stop
// says so.
type Worker func(stop task.Stop, index int, t Task, said chan<- Said)

// Said is what comes of a task: a line of JSON, or its end.
type Said struct {
	Index int
	Line  []byte
	End   *End
}

// An End is how a task's process has ended.
type End struct {
	Status int
	How    string // in words
	Said   string // the last line of its standard error
}

// A Display is shown what happens: the state as it is now, which task has changed, and the line that it has printed, nil for
// another reason. It keeps nothing of the state.
type Display interface {
	Changed(s *State, index int, line []byte)
	// Tick is called when Ticks says so.
	Tick(s *State)
}

// Run has a plan's tasks done, in order, and returns when nothing goes on any more. A soft stop, and with FailFast the first
// that does not succeed, interrupts those that run and begins no other.
func (p Plan) Run(stop task.Stop, work Worker, to Display, ticks <-chan struct{}) State {
	soft, interrupt := context.WithCancel(stop.Soft)
	defer interrupt()
	stop.Soft = soft
	s := State{Plan: p, Began: time.Now()}
	for _, t := range p.Tasks {
		s.Tasks = append(s.Tasks, Status{Task: t, State: Waiting})
	}
	said := make(chan Said)
	running, next := 0, 0
	for {
		now := time.Now()
		if p.Together != nil {
			if state, err := p.Together.Read(); err == nil { // whoever cannot count lets no request out
				s.spent(state)
			}
		}
		held, closed := s.Hold.Sub(now), soft.Err() != nil || s.Spent.Over()
		for running < p.Jobs && next < len(s.Tasks) && held <= 0 && !closed {
			s.Tasks[next].State, s.Tasks[next].Began = task.Working, now
			go work(stop, next, s.Tasks[next].Task, said)
			to.Changed(&s, next, nil)
			running, next = running+1, next+1
		}
		if running == 0 && (next == len(s.Tasks) || closed) {
			break
		}
		var begin <-chan time.Time
		if running < p.Jobs && next < len(s.Tasks) && held > 0 {
			begin = time.After(held)
		}
		var stopped <-chan struct{}
		if running == 0 {
			stopped = soft.Done()
		}
		select {
		case what := <-said:
			if what.End == nil {
				s.read(what.Index, what.Line, time.Now())
				to.Changed(&s, what.Index, what.Line)
				continue
			}
			running--
			s.end(what.Index, *what.End, time.Now())
			to.Changed(&s, what.Index, nil)
			if p.FailFast && s.Tasks[what.Index].State != task.Done {
				interrupt()
			}
		case <-ticks:
			to.Tick(&s)
		case <-begin:
		case <-stopped:
		}
	}
	for ; next < len(s.Tasks); next++ {
		if s.Tasks[next].State = NotBegun; s.Spent.Over() {
			s.Tasks[next].Why = "the budget of all is spent"
		}
		to.Changed(&s, next, nil)
	}
	s.Took = time.Since(s.Began)
	return s
}
