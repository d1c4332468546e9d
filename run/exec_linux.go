package run

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/internal/events"
	"github.com/pccrun/pccrun/internal/messages"
	"github.com/pccrun/pccrun/internal/sessions"
	"github.com/pccrun/pccrun/internal/survey"
	"github.com/pccrun/pccrun/internal/terminal"
	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/providers"
	"github.com/pccrun/pccrun/run/attach"
)

// attached is how other processes of the user reach a run.
type attached struct {
	server   attach.Server
	commands atomic.Int32 // so far
}

// listen has the run reached once the session has its directory: a run that is over before has nothing
// of it, and does not wait for it.
func (f *flow) listen() {
	time.AfterFunc(sessions.Delay, func() {
		if err := f.server.Listen(f.session.Dir, f.uid, reached{f}); err != nil && !errors.Is(err, os.ErrClosed) {
			f.log.Emit(events.Warning{Text: "pccrun exec cannot reach this run: " + messages.InWords(err)})
		}
	})
}

// endAttached ends the other commands, when the run has ended.
func (a *attached) endAttached() { a.server.Close() }

// A reached run is an [attach.Handler].
type reached struct{ *flow }

func (r reached) Usage(ctx context.Context) (providers.Result, error) {
	meter, is := r.plan.(providers.Meter)
	if !is {
		return providers.Result{}, errors.New("provider " + r.Name + ": stats: it does not report what a running session uses")
	}
	return meter.Usage(ctx)
}

func (r reached) Exec(ctx context.Context, argv []string, stdio providers.Stdio) (providers.Result, error) {
	place, is := r.plan.(providers.Executor)
	if !is {
		return providers.Result{}, errors.New("provider " + r.Name + ": exec is not built for it")
	}
	files, absent := survey.Programs(r.policy, argv[0], r.req.Host.Environ)
	if absent != nil && !r.Cloud && r.policy.Place.Image.Text == "" {
		return providers.Result{}, absent
	}
	number, begun := int(r.commands.Add(1)), time.Now()
	r.tell(events.Exec{Number: number, Argv: argv})
	result, err := place.Exec(ctx, argv, files, stdio)
	ended := events.ExecEnd{Number: number, Code: statusOf(&result), WallMS: time.Since(begun).Milliseconds()}
	if err != nil {
		ended.Error = messages.InWords(err)
	}
	r.tell(ended)
	return result, err
}

func (r reached) Failure(err error) *attach.Failure {
	failure := &attach.Failure{Text: messages.InWords(err), Help: profiles.Hint(err), Code: messages.Refused}
	var exec *providers.ExecError
	var absent *survey.ErrNotFound
	if errors.As(err, &exec) || errors.As(err, &absent) {
		failure.Code = execStatus(err)
	}
	return failure
}

// statusOf is the exit status that a shell reports.
func statusOf(r *providers.Result) int {
	if r.Signal != 0 {
		return 128 + r.Signal
	}
	return r.Code
}

// Usage asks the launcher of a running session what it uses.
func Usage(home sessions.Home, e sessions.Entry) (providers.Result, error) {
	return attach.Usage(home, e)
}

// Exec runs another command in a running session, and returns the status to exit with. An error says
// that its launcher was not reached.
func Exec(home sessions.Home, e sessions.Entry, argv []string) (code int, err error) {
	LeaveSignals()
	caught, signals := make(chan os.Signal, 16), make(chan int)
	signal.Notify(caught, ends[:]...)
	go func() {
		for sig := range caught {
			signals <- linuxNumber(sig.(unix.Signal))
		}
	}()
	stdio := providers.Stdio{In: os.Stdin, Out: screened(os.Stdout), Err: screened(os.Stderr), Signals: signals}
	var user *relayedTerminal
	if terminal.IsTerminal(int(os.Stdin.Fd())) && terminal.IsTerminal(int(os.Stdout.Fd())) {
		if user, err = openRelayed("", nil); err != nil {
			return 0, err
		}
		stdio.In, stdio.Out, stdio.Err, stdio.Terminal = user.slave, user.slave, nil, user.terminal
	}
	end, err := attach.Exec(home, e, argv, stdio)
	user.close()
	switch {
	case err != nil:
		return 0, err
	case end.Failed != nil:
		messages.Fail(end.Failed.Text, end.Failed.Help)
		return end.Failed.Code, nil
	case end.Signal == int(unix.SIGINT) && user == nil:
		endBy(unix.SIGINT) // a shell that runs us in a loop goes by that, and not by the status
	}
	return statusOf(&end.Result), nil
}
