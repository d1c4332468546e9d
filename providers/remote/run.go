package remote

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/pccrun/pccrun/internal/sessions"
	"github.com/pccrun/pccrun/providers"
)

// patience is how long each part of a run may take.
type patience struct {
	lifetime time.Duration // of a sandbox that nobody extends
	extend   time.Duration // between two extensions
	create   time.Duration
	script   time.Duration
	transfer time.Duration // of an archive
	line     time.Duration // without any way to the sandbox
	start    time.Duration // of the command, with the trial before
	grace    time.Duration // between TERM and KILL when the time is up
	after    time.Duration // for all that follows the command's end
	late     time.Duration // between looks for a sandbox whose answer was lost: a list may lag behind
}

var usual = patience{
	lifetime: 5 * time.Minute, extend: 100 * time.Second, create: 3 * time.Minute, script: 2 * time.Minute,
	transfer: 20 * time.Minute, line: 3 * time.Minute, start: 5 * time.Minute, grace: 5 * time.Second, after: 30 * time.Minute, late: time.Second,
}

// A StayedError says that what the command changed could not be fetched, and where it is.
type StayedError struct {
	Err     error
	Sandbox string // its name, and what becomes of it
	Kept    string // the file with what came, if it was refused
	Left    int    // so many names were left out, and all else is here
}

func (e *StayedError) Error() string {
	what := fmt.Sprintf("the changes could not be downloaded: %v", e.Err)
	switch {
	case e.Kept != "":
		what = fmt.Sprintf("the download was rejected: %v", e.Err)
	case e.Left > 0 && e.Err == nil:
		what = fmt.Sprintf("%d of the names that were changed could not be downloaded", e.Left)
	}
	return what + "; sandbox " + e.Sandbox
}

// Unwrap returns the cause.
func (e *StayedError) Unwrap() error { return e.Err }

// Hint says how to go on.
func (e *StayedError) Hint() string {
	switch {
	case e.Kept != "":
		return "the archive is " + e.Kept + ": tar -itf lists it; pccrun kill SESSION --no-download destroys the sandbox"
	case e.Left > 0:
		return "all else is downloaded; pccrun download --to DIR --filter GLOB copies what was too much, and pccrun kill SESSION --no-download destroys the sandbox"
	}
	return "pccrun download fetches them, and pccrun kill SESSION --no-download destroys the sandbox"
}

// Stays says that the session's record is wanted: something of the run's is not lost.
func (e *StayedError) Stays() {}

// Run carries the plan out, in stages that hand on what they make:
//
//	take      the sandbox that an earlier run kept, if there is one        → what stands in it
//	pack      what goes up, which is written meanwhile                     → upload
//	announce  what is made, what it costs and how much goes up is said
//	create    a sandbox                                                    → place
//	measure   it is as large as the user asked
//	furnish   pccrun's program and the copy are there                      → fetchable
//	install   so is what the image lacks
//	follow    the command runs                                             → ended
//	fetch     what it changed is here
//	keep      the sandbox stands for the next run, if that is wanted
//	leave     else it is destroyed; where not all could be fetched, it is stopped
func (p *plan) Run(ctx context.Context, stdio providers.Stdio, o providers.Observer) (result providers.Result, err error) {
	if p.command.Label == "" || stdio.Changes == nil {
		return result, fmt.Errorf("BUG: %s: a plan that is only looked at is run", p.provider.Name())
	}
	l, begun := p.provider.newPlace(&p.request, stdio, o), time.Now()
	defer func() {
		result.Wall = time.Since(begun)
		result.Price = l.facts.Price(l.size) * result.Wall.Hours()
	}()
	since, err := p.take(ctx, l)
	if err != nil {
		return result, err
	}
	up, err := p.pack(ctx, l, since)
	if err == nil {
		defer up.remove()
		if since == nil {
			p.announce(l, up.bytes)
			err = l.create(ctx, &p.request)
		}
	}
	if l.box == nil {
		return result, err
	}
	end, kept := &ended{}, false
	if err == nil {
		err = p.measure(ctx, l)
	}
	if err == nil {
		if end, err = p.inside(ctx, l, up, stdio); err == nil {
			kept = p.keep(ctx, l, end)
		}
	}
	return end.Result, l.leave(ctx, err, kept)
}

// inTime is how long the command may run so that what it changes is here before the sandbox ends, where nobody can move
// that end, and before the key does; 0: any time.
func inTime(l *place) time.Duration {
	until := keyTime(l)
	if _, can := l.p.service.(Extender); !can && !l.box.Ends.IsZero() {
		if ends := l.asked.Add(l.lifetime - min(l.p.patient.after, l.lifetime/4)); until.IsZero() || ends.Before(until) {
			until = ends
		}
	}
	if until.IsZero() {
		return 0
	}
	return max(time.Second, time.Until(until))
}

// keyTime is when the command has to end so that what it changes is here while the key is accepted; the zero time: whenever.
// A key that is at its end already by this machine's clock may be one by whose clock it is not.
func keyTime(l *place) time.Time {
	left := time.Until(l.facts.KeyEnds)
	if left <= 0 {
		return time.Time{}
	}
	return l.facts.KeyEnds.Add(-min(l.p.patient.after, left/4))
}

// create makes the sandbox. Where it is not clear whether one was made, that one is looked
// for, so that no second one costs money.
func (l *place) create(ctx context.Context, request *Request) error {
	ctx, cancel := context.WithTimeout(ctx, l.p.patient.create)
	defer cancel()
	for n := 0; ; n++ {
		l.asked = time.Now()
		box, err := Make(ctx, l.p.service, request)
		var unclear *UnclearError
		if errors.As(err, &unclear) {
			found, lost := l.lost(ctx)
			switch {
			case lost != nil:
				return errors.Join(err, lost)
			case found != nil:
				box, err = found, nil
			case ctx.Err() == nil && n < 2:
				continue
			}
		}
		if err == nil {
			l.has(box)
		}
		return err
	}
}

// looks is how often a sandbox is looked for whose answer was lost.
const looks = 4

// lost looks for a sandbox whose answer did not come, and destroys what is too much: all where nobody waits any more.
func (l *place) lost(ctx context.Context) (*Sandbox, error) {
	look, stop := context.WithTimeout(context.WithoutCancel(ctx), l.p.patient.script)
	defer stop()
	var found []Sandbox
	var err error
	for n := 0; n < looks && len(found) == 0 && err == nil; n++ {
		if n > 0 { // who was interrupted waits too: what nobody finds costs money
			select {
			case <-look.Done():
			case <-time.After(time.Duration(n) * l.p.patient.late):
			}
		}
		found, err = l.p.bearing(look, l.labels)
	}
	if err != nil || len(found) == 0 {
		return nil, err
	}
	if ctx.Err() != nil {
		return nil, l.p.destroyAll(look, found)
	}
	if err := l.p.destroyAll(look, found[1:]); err != nil {
		return nil, err
	}
	return readied(look, l.p.service, found[0].ID, nil)
}

// inside does all that needs the sandbox.
func (p *plan) inside(ctx context.Context, l *place, up *upload, stdio providers.Stdio) (*ended, error) {
	defer l.prolong(ctx)()
	by, err := p.furnish(ctx, l, up)
	if err != nil {
		return &ended{}, err
	}
	if err := p.install(ctx, l, stdio); err != nil {
		return &ended{}, err
	}
	if err := sendConversation(p, ctx, l); err != nil {
		return &ended{}, err
	}
	stop, err := preview(p, ctx, l)
	if err != nil {
		return &ended{}, err
	}
	defer stop()
	end, err := p.follow(ctx, l, by, stdio)
	if err != nil && !end.started {
		return end, err
	}
	if _, e := l.session.Lstat(sessions.NoDownloadName); e == nil {
		l.warn("not downloaded, as pccrun kill --no-download asked: what the command changed is destroyed")
		end.unwanted = true
		return end, err
	}
	after, cancel := context.WithTimeout(context.WithoutCancel(ctx), l.p.patient.after)
	defer cancel()
	err = errors.Join(err, l.fetch(after, by))
	fetchConversation(p, after, l)
	return end, err
}

// leave destroys the sandbox, unless it was kept for the next run; where not all of its files could be fetched, it
// is stopped and keeps them.
func (l *place) leave(ctx context.Context, err error, kept bool) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), l.p.patient.create)
	defer cancel()
	var stayed *StayedError
	if errors.As(err, &stayed) {
		rests, e := l.rest(ctx)
		stayed.Sandbox = l.box.ID + " " + rests
		return errors.Join(err, e)
	}
	if e := l.session.Remove(sessions.UnfetchedName); !errors.Is(e, fs.ErrNotExist) {
		err = errors.Join(err, e) // nothing is there that is not here
	}
	var e error
	if !kept {
		e = l.p.destroy(ctx, l.box.ID)
	}
	if found, look := l.p.bearing(ctx, l.labels); look == nil { // an answer that got lost may have made two
		e = errors.Join(e, l.p.destroyAll(ctx, found, l.box.ID))
	}
	if e != nil {
		e = fmt.Errorf("sandbox %s was not destroyed, and stops by itself within %s: %w", l.box.ID, l.lifetime, e)
	}
	return errors.Join(err, e)
}

// rest stops the sandbox with its files, where the provider can do that, and says what becomes of them.
func (l *place) rest(ctx context.Context) (rests string, err error) {
	if _, can := l.p.service.(Sleeper); can {
		if err = l.p.park(ctx, l.box); err == nil {
			return "is paused and has them", nil
		} else if errors.Is(err, ErrGone) {
			err = nil
		}
		return "may still be running", err
	}
	if idle := l.facts.Idle; idle > 0 {
		return "has them, and loses them when it is not called for " + idle.String(), nil
	}
	if l.box.Ends.IsZero() {
		return "has them, and runs until it is destroyed", nil
	}
	return "has them, and runs until " + l.box.Ends.Local().Format("15:04") + ", when they are lost", nil
}
