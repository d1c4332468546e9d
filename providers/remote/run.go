package remote

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pccrun/pccrun/internal/events"
	"github.com/pccrun/pccrun/internal/sessions"
	"github.com/pccrun/pccrun/providers"
	"github.com/pccrun/pccrun/providers/filesync"
)

// patience is how long each part of a run may take.
type patience struct {
	lifetime time.Duration // of a sandbox that nobody extends
	extend   time.Duration // between two extensions
	create   time.Duration
	script   time.Duration
	transfer time.Duration // of an archive
	line     time.Duration // without any way to the sandbox
	grace    time.Duration // between TERM and KILL when the time is up
	after    time.Duration // for all that follows the command's end
}

var usual = patience{
	lifetime: 5 * time.Minute, extend: 100 * time.Second, create: 3 * time.Minute, script: 2 * time.Minute,
	transfer: 20 * time.Minute, line: 3 * time.Minute, grace: 5 * time.Second, after: 30 * time.Minute,
}

// A StayedError says that what the command changed could not be fetched, and where it is.
type StayedError struct {
	Err      error
	Resource providers.Resource
	Parked   bool      // the sandbox is stopped, and keeps its files
	Awake    bool      // the provider cannot stop a sandbox and keep its files
	Ends     time.Time // of a sandbox that is awake; the zero time if nobody says
	Kept     string    // the file with what came, if it was refused
	Left     int       // so many names were left out, and all else is here
}

func (e *StayedError) Error() string {
	what := fmt.Sprintf("the changes could not be downloaded: %v", e.Err)
	switch {
	case e.Kept != "":
		what = fmt.Sprintf("the download was rejected: %v", e.Err)
	case e.Left > 0 && e.Err == nil:
		what = fmt.Sprintf("%d of the names that were changed could not be downloaded", e.Left)
	}
	switch {
	case e.Parked:
		return fmt.Sprintf("%s; sandbox %s is paused and has them", what, e.Resource.ID)
	case e.Awake && e.Ends.IsZero():
		return fmt.Sprintf("%s; sandbox %s has them, and runs until it is destroyed", what, e.Resource.ID)
	case e.Awake:
		return fmt.Sprintf("%s; sandbox %s has them, and runs until %s, when they are lost", what, e.Resource.ID, e.Ends.Local().Format("15:04"))
	}
	return fmt.Sprintf("%s; sandbox %s may still be running", what, e.Resource.ID)
}

// Unwrap returns the cause.
func (e *StayedError) Unwrap() error { return e.Err }

// Hint says how to go on.
func (e *StayedError) Hint() string {
	switch {
	case e.Kept != "":
		return "the archive is " + e.Kept + ": tar -itf lists it; pccrun gc --all destroys the sandbox"
	case e.Left > 0:
		return "all else is downloaded; pccrun download --to DIR --filter GLOB copies what was too much, and pccrun gc --all destroys the sandbox with the session"
	}
	return "pccrun download fetches them, and pccrun gc --all destroys the sandbox"
}

// Stays says that the session's record is wanted: something of the run's is not lost.
func (e *StayedError) Stays() {}

// running is a run under way.
type running struct {
	*plan
	at
	io       providers.Stdio
	observer providers.Observer
	session  *os.Root
	box      *Sandbox
	sent     *filesync.Sent
	before   *listing
	came     bool // an earlier download brought what may come
	started  atomic.Bool
	label    string // before the name of an archive there; not empty for a copy, see [Provider.Copy]
	busy     bool   // the command runs while its files are fetched
	reuse
}

// at is where all is in the sandbox.
type at struct {
	home    string   // there
	copy    string   // of the workspace, there
	own     string   // the engine's directory, there
	program string   // the directory of pccrun's program there; what it needs is beside it
	there   []string // variables that speak of the place
}

// reuse is what a run has of the one before, or leaves for the next.
type reuse struct {
	old   *kept           // the sandbox is one that an earlier run kept; nil for a new one
	since *filesync.Since // what stands in it
	kept  kept            // what this run may leave for the next
	ended bool            // pccrun in the sandbox has seen the command's end
	doubt string          // why this run's command may have changed what the next one trusts
}

// Run carries the plan out.
func (r *plan) Run(ctx context.Context, stdio providers.Stdio, o providers.Observer) (result providers.Result, err error) {
	if r.command.Label == "" || stdio.Changes == nil {
		return result, fmt.Errorf("BUG: %s: a plan that is only looked at is run", r.provider.Name())
	}
	own := *r
	run := &running{plan: &own, io: stdio, observer: o, session: stdio.Changes}
	begun := time.Now()
	defer func() { result.Wall = time.Since(begun) }()
	if err := run.take(ctx); err != nil {
		return result, err
	}
	up, err := run.pack(ctx)
	if err != nil && run.box != nil {
		return result, run.leave(ctx, err)
	} else if err != nil {
		return result, err
	}
	defer up.remove()
	if run.box == nil {
		err = run.create(ctx)
	}
	if err != nil {
		return result, err
	}
	result, err = run.inside(ctx, up)
	return result, run.leave(ctx, err)
}

// warn says something to the user.
func (r *running) warn(format string, args ...any) {
	r.observer.Warning(events.Warning{Text: fmt.Sprintf(format, args...)})
}

// create makes the sandbox. Where it is not clear whether one was made, that one is looked
// for, so that no second one costs money.
func (r *running) create(ctx context.Context) error {
	s := r.provider.service
	ctx, cancel := context.WithTimeout(ctx, r.provider.patient.create)
	defer cancel()
	var err error
	for range 3 {
		r.box, err = s.Create(ctx, &r.request)
		var unclear *UnclearError
		if !errors.As(err, &unclear) {
			break
		}
		look, stop := context.WithTimeout(context.WithoutCancel(ctx), r.provider.patient.script)
		found, e := r.provider.bearing(look, r.request.Labels)
		if e == nil && len(found) > 0 {
			for _, double := range found[1:] {
				e = errors.Join(e, r.provider.destroy(look, double.ID))
			}
			if ctx.Err() != nil {
				e = errors.Join(e, r.provider.destroy(look, found[0].ID))
			} else if e == nil {
				r.box, err = r.provider.ready(look, found[0].ID)
			}
		}
		stop()
		if e != nil {
			return errors.Join(err, e)
		}
		if r.box != nil || ctx.Err() != nil {
			break
		}
	}
	if err != nil {
		return err
	}
	r.box.Labels = r.request.Labels // whatever the answer says of them
	r.observer.Created(r.provider.resource(r.box))
	return nil
}

// inside does all that needs the sandbox.
func (r *running) inside(ctx context.Context, up *upload) (result providers.Result, err error) {
	stop := r.extend(ctx)
	defer stop()
	if err := r.furnish(ctx, up); err != nil {
		return result, err
	}
	result, err = r.follow(ctx)
	if err != nil && !r.started.Load() {
		return result, err
	}
	if _, e := r.session.Lstat(sessions.NoDownloadName); e == nil {
		r.warn("not downloaded, as pccrun kill --no-download asked: what the command changed is destroyed")
		r.command.Keep = 0
		return result, err
	}
	after, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.provider.patient.after)
	defer cancel()
	return result, errors.Join(err, r.fetch(after))
}

// extend keeps the sandbox from stopping by itself, where its end can be moved.
func (r *running) extend(ctx context.Context) (stop func()) {
	if _, can := r.provider.service.(Extender); !can {
		return func() {}
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	box := r.box
	var done sync.WaitGroup
	done.Go(func() {
		for told := false; ; {
			select {
			case <-ctx.Done():
				return
			case <-time.After(r.provider.patient.extend):
			}
			if err := r.provider.extend(ctx, box, r.provider.patient.lifetime, false); err != nil && ctx.Err() == nil && !told {
				told = true
				r.warn("the sandbox may stop within %s: %v", r.provider.patient.lifetime, err)
			}
		}
	})
	return func() { cancel(); done.Wait() }
}

// leave destroys the sandbox, or keeps it for the next run; where not all of its files could be fetched, it
// is stopped and keeps them.
func (r *running) leave(ctx context.Context, err error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.provider.patient.create)
	defer cancel()
	var stayed *StayedError
	if errors.As(err, &stayed) {
		stayed.Resource = r.provider.resource(r.box)
		if _, can := r.provider.service.(Sleeper); !can {
			stayed.Awake, stayed.Ends = true, r.box.Ends
			return err
		}
		e := r.provider.park(ctx, r.box)
		if stayed.Parked = e == nil; errors.Is(e, ErrGone) {
			return err
		}
		return errors.Join(err, e)
	}
	if e := r.session.Remove(sessions.UnfetchedName); !errors.Is(e, fs.ErrNotExist) {
		err = errors.Join(err, e) // nothing is there that is not here
	}
	var e error
	if err != nil || !r.stays(ctx) {
		e = r.provider.destroy(ctx, r.box.ID)
	}
	if found, look := r.provider.bearing(ctx, r.request.Labels); look == nil { // an answer that got lost may have made two
		for _, double := range found {
			if double.ID != r.box.ID {
				e = errors.Join(e, r.provider.destroy(ctx, double.ID))
			}
		}
	}
	if e != nil {
		e = fmt.Errorf("sandbox %s was not destroyed, and stops by itself within %s: %w", r.box.ID, r.request.Lifetime, e)
	}
	return errors.Join(err, e)
}

// maxPrinted bounds what a program may print: a listing of many names is the most.
const maxPrinted = 256 << 20

// Output executes a program that does no harm twice, and returns what it prints. The error holds
// what it printed on standard error where the exit status is one of the program's own.
func Output(ctx context.Context, s Service, box *Sandbox, root bool, argv ...string) (out []byte, code int, err error) {
	for n := 1; ; n++ {
		var printed, said limited
		printed.most, said.most = maxPrinted, 4<<10
		code, err = s.Exec(ctx, box, &Exec{Argv: argv, Root: root, Out: &printed, Err: &said})
		var cut *CutError
		if errors.As(err, &cut) && ctx.Err() == nil && n < 4 {
			continue
		}
		switch {
		case err != nil:
			return nil, code, err
		case printed.over:
			return nil, code, errors.New("the output of the sandbox is too long")
		}
		if text := strings.Join(strings.Fields(events.Clean(said.String())), " "); code != 0 {
			err = fmt.Errorf("exit status %d: %s", code, text)
		}
		return printed.Bytes(), code, err
	}
}

// word has pccrun's program in a directory there do something ([Place]), and reads its answer.
func (r *running) word(ctx context.Context, dir string, root bool, answer any, args ...string) error {
	argv := append([]string{path.Join(dir, "pccrun"), Place}, args...)
	text, code, err := Output(ctx, r.provider.service, r.box, root, argv...)
	var cut *CutError
	if err != nil && code != statusGarbled && code != statusRefused && !errors.As(err, &cut) && ctx.Err() == nil && dir == r.program && r.reopen(ctx) {
		text, code, err = Output(ctx, r.provider.service, r.box, root, argv...)
	}
	if code == statusGarbled {
		return errGarbled
	}
	if err == nil && answer != nil {
		if err = json.Unmarshal(text, answer); err != nil {
			err = fmt.Errorf("the answer to %s: %w", args[0], err)
		}
	}
	return err
}

// reopen gives pccrun's own files back to their user, who is the command's too where nobody is root there: the command
// can close them to both. It reports whether it could.
func (r *running) reopen(ctx context.Context) bool {
	for _, name := range []string{path.Dir(r.program), r.program, path.Join(r.program, "own"), path.Join(r.program, "own", "line"), path.Join(r.program, "pccrun")} {
		if _, _, err := Output(ctx, r.provider.service, r.box, true, "chmod", "u+rwx", name); err != nil {
			return false
		}
	}
	return true
}

// limited is a buffer that takes no more than it should.
type limited struct {
	bytes.Buffer
	most int
	over bool
}

func (l *limited) Write(b []byte) (int, error) {
	if room := l.most - l.Len(); len(b) > room {
		l.over = true
		l.Buffer.Write(b[:room])
		return len(b), nil
	}
	return l.Buffer.Write(b)
}

// prepare makes the directories by pccrun's program, of a sum where it was uploaded, and learns where they are.
func (r *running) prepare(ctx context.Context, program, sum string) error {
	ctx, cancel := context.WithTimeout(ctx, r.provider.patient.script)
	defer cancel()
	own, stands, uploaded := ".pccrun-"+r.command.Label, "", program
	if r.old != nil {
		stands, uploaded = "stands", ""
	}
	var p prepared
	if err := r.word(ctx, path.Dir(program), false, &p, prepareWord, uploaded, sum, r.name, own, stands, r.provider.facts.Home); err != nil {
		return err
	}
	r.home = string(p.Home)
	if !path.IsAbs(r.home) || path.Clean(r.home) != r.home || strings.ContainsAny(r.home, "\x00\n") {
		return fmt.Errorf("no home in the answer: %q", events.Cut(r.home))
	}
	r.there = []string{"HOME=" + r.home, "PATH=" + string(p.Path), "USER=" + string(p.User), "LOGNAME=" + string(p.User)}
	r.copy, r.own = path.Join(r.home, r.name), path.Join(r.home, own)
	return nil
}

// furnish makes the copy.
func (r *running) furnish(ctx context.Context, up *upload) (err error) {
	transfer, stop := context.WithTimeout(ctx, r.provider.patient.transfer)
	defer stop()
	if err := r.install(transfer); err != nil {
		return err
	}
	if err := r.upload(transfer, up); err != nil {
		return err
	}
	if r.before, err = r.look(ctx); err != nil {
		return err
	}
	return r.record()
}
