package workspace

import "time"

// Watch begins to look, whenever something has changed, until [Guard.Finish].
func (g *Guard) Watch() {
	g.stop, g.ended = make(chan struct{}), make(chan struct{})
	go g.follow()
}

// grace is how long a run lasts before its directories are watched: what is
// over sooner meets the post-run check, and costs nothing else.
const grace = 3 * time.Millisecond

// Looks may take a tenth of the time on the whole, so that a build is not slowed
// by what looks after it, and as much as burst at once, so that what appears
// after a calm is met without delay.
const (
	idle  = 10
	burst = 50 * time.Millisecond
)

// A budget is how long looks may take.
type budget struct {
	credit time.Duration
	last   time.Time // of a look
}

// spend counts a look that has just ended, by the time that its thread has had, not by what went
// by: on a loaded machine others' turns would be taken for its own, and a name stand ten times as
// long. It returns how long the guard rests now.
func (b *budget) spend(worked time.Duration, now time.Time) time.Duration {
	b.credit = min(b.credit+now.Sub(b.last)/idle, burst) - worked
	b.last = now
	return max(-b.credit*idle, time.Millisecond/2)
}

// flood is how many names at once are looked for again without a pause.
const flood = 32

// poll is how often directories are looked at that cannot be watched.
const poll = 50 * time.Millisecond

func (g *Guard) follow() {
	defer close(g.ended)
	g.remember()
	pause := time.NewTimer(grace)
	defer pause.Stop()
	select {
	case <-g.stop:
		return
	case <-pause.C:
	}
	g.lookout.stand(g.watch)
}

// watch looks whenever something has changed, until the watch is to end.
func (g *Guard) watch() {
	g.during.begin(&g.lookout, g.peers.watching())
	defer g.during.end()
	defer g.Configs.watch(&g.lookout)()
	b := budget{burst, time.Now()}
	for !g.stopped() {
		began := worked()
		if moved, _ := g.look(); moved >= flood {
			continue // none of so many may stand until the guard has time again
		}
		g.Configs.save(g.stash)
		if !g.rest(b.spend(worked()-began, time.Now())) && !g.stopped() {
			g.lookout.wait(g.during.patience())
		}
	}
}

// rest lets some time go by, unless the watch is to end, and reports whether
// anything has changed meanwhile.
func (g *Guard) rest(long time.Duration) (changed bool) {
	for end := time.Now().Add(long); long > 0 && !g.stopped(); long = time.Until(end) {
		changed = g.lookout.wait(long) || changed
	}
	return changed
}
