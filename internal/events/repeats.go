package events

// The payload decides how often it is refused, and a log has an end: of one
// refusal so many are told one by one, and then, each time that they have
// doubled, how many there were meanwhile. Nothing is lost by it but the times.
const (
	eachTold   = 64
	maxRepeats = 1024 // different ones that are counted; the rest is told one by one, and bounded by share
)

// repeats counts refusals that are alike.
type repeats struct {
	of map[NetDecision]*repeat
}

type repeat struct{ told, untold int64 }

// next returns the refusal as it is to be told now, if it is.
func (r *repeats) next(d NetDecision) (_ NetDecision, tell bool) {
	n := r.of[d]
	if n == nil {
		if len(r.of) == maxRepeats {
			return d, true
		}
		if r.of == nil {
			r.of = map[NetDecision]*repeat{}
		}
		n = &repeat{}
		r.of[d] = n
	}
	n.untold++
	if n.told >= eachTold && n.untold < n.told {
		return d, false
	}
	return n.take(d), true
}

// take returns the refusal with how many it stands for.
func (n *repeat) take(d NetDecision) NetDecision {
	if n.untold > 1 {
		d.Times = n.untold
	}
	n.told, n.untold = n.told+n.untold, 0
	return d
}

// rest yields what was not told yet.
func (r *repeats) rest(tell func(NetDecision)) {
	for d, n := range r.of {
		if n.untold > 0 {
			tell(n.take(d))
		}
	}
}

// share is how much of a bounded log there may be when an event of a kind is
// still taken. What a payload can make as many of as it likes leaves room for
// the rest: refusals for connections, connections for what else happens.
func share(e Event, all int64) int64 {
	switch e := e.(type) {
	case Denial:
		return all / 2
	case NetDecision:
		if !e.Allowed {
			return all / 2
		}
		return all / 4 * 3
	case NetClosed:
		return all / 4 * 3
	}
	return all
}
