package run

import (
	"github.com/pccrun/pccrun/events"
	"github.com/pccrun/pccrun/providers/native"
	"github.com/pccrun/pccrun/seccomp/supervisor"
)

// learning collects what the command of a run under `pccrun learn` tried, and
// tells it at the end, where the verb reads it: see [learnVerb].
type learning struct {
	launch *launch
	index  map[native.Try]int
	tried  []events.Tried
	bytes  int
	more   int64 // that there was no room for
}

// Bounds of what is remembered: a reader of events has 1 MiB of room, and a
// command that tries ever new names is told of no more than this.
const (
	maxTried      = 4096
	maxTriedBytes = 512 << 10
)

func (a *learning) begin(l *launch) {
	if l.req.Learn {
		*a = learning{launch: l, index: map[native.Try]int{}}
		l.run.Tried = a.note
	}
}

// hear returns what looks at each call of a run that learns, nil for any other.
func (l *launch) hear() func(*supervisor.Call) {
	if !l.req.Learn {
		return nil
	}
	return func(c *supervisor.Call) { l.run.Study(c) }
}

// note is called from one goroutine.
func (a *learning) note(t native.Try) {
	key := t
	key.Call, key.Program = "", "" // the first that there was
	i, ok := a.index[key]
	switch size := len(t.Path) + len(t.Program); {
	case ok:
		a.tried[i].Times++
	case len(a.tried) == maxTried || a.bytes+size > maxTriedBytes:
		a.more++
	default:
		a.bytes += size
		a.index[key] = len(a.tried)
		deed := t.Deed.String()
		if t.Limit {
			deed = "limit"
		}
		a.tried = append(a.tried, events.Tried{Deed: deed, Path: t.Path, Call: t.Call, Program: t.Program, Times: 1, There: t.There, Opened: t.Opened, Done: t.Done})
	}
}

func (a *learning) end(end *native.End) {
	if a.launch == nil || end == nil {
		return
	}
	log := a.launch.log
	for _, t := range a.tried {
		log.Emit(t)
	}
	for _, key := range end.Spent(a.launch.policy) {
		log.Emit(events.Tried{Deed: "limit", Path: key, Times: 1})
	}
	if a.more > 0 {
		log.Emit(events.Dropped{Count: a.more})
	}
}
