package escape

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"
)

// interrupted is the error of a run that a signal ended before its time.
type interrupted struct{ syscall.Signal }

func (i interrupted) Error() string { return "interrupted by " + unix.SignalName(i.Signal) }

// exit is the status that a shell gives a command that the signal ended.
func (i interrupted) exit() int { return 128 + int(i.Signal) }

// interruptible returns a context that the first SIGINT, SIGTERM or SIGHUP ends,
// with an interrupted error as its cause: the suite stops in order, removes what
// it made, and reports what it knows. After it the signals do again what they do
// to any program: a second one ends the process at once, and the next run removes
// what is left. What the caller has ignored, as nohup(1) does, stays ignored.
func interruptible() (context.Context, func()) {
	signals := slices.DeleteFunc([]os.Signal{unix.SIGINT, unix.SIGTERM, unix.SIGHUP}, signal.Ignored)
	ctx, cancel := context.WithCancelCause(context.Background())
	arrived := make(chan os.Signal, 1)
	if len(signals) > 0 { // of none Notify would make all
		signal.Notify(arrived, signals...)
	}
	go func() {
		select {
		case <-ctx.Done():
		case s := <-arrived:
			signal.Stop(arrived)
			cancel(interrupted{s.(syscall.Signal)})
			line := "pccrun: escape: " + context.Cause(ctx).Error() + ": removing what was made; a second one ends it at once\n"
			if isTerminal(os.Stderr) {
				line = "\r\x1b[K" + line // progress stands there
			}
			fmt.Fprint(os.Stderr, line)
		}
	}()
	return ctx, func() {
		signal.Stop(arrived)
		cancel(nil)
	}
}

// interruption is the signal that ended ctx, if one did.
func interruption(ctx context.Context) (i interrupted, is bool) {
	is = errors.As(context.Cause(ctx), &i)
	return i, is
}
