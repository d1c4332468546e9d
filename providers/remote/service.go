// Package remote runs commands at providers that have a copy of the workspace: one
// engine for all of them. An adapter says how one provider's API makes a sandbox,
// executes in it and carries files ([Service]); the engine does the rest.
//
// It promises:
//   - what goes up is what package filesync lets go, less what the policy hides;
//   - what comes back is a change set, as that of an overlay, and nothing of the host
//     changes before it is applied;
//   - the command, its environment and secrets are never part of a request to create;
//   - a call is repeated only where it may be, as late as the provider asks for, and
//     each has a deadline;
//   - a key stands in no error, no address and no record;
//   - whatever ends a run, nothing goes on running: the sandbox is destroyed, or, where
//     its files could not be fetched, stopped with its files kept; one that nobody looks
//     after stops itself within minutes, and one that the user has kept for the next run when
//     its time is over. All are found again by their labels;
//   - a sandbox is used again only where no command there could change more than the copy.
package remote

import (
	"context"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/pccrun/pccrun/profiles"
)

// A Service is one provider's API. Its calls may come at the same time; each ends when
// its context is done. They repeat what may be repeated themselves ([API]).
type Service interface {
	// Name is the provider's: "e2b".
	Name() string

	// Ready says which key is missing or malformed. It asks nobody.
	Ready() error

	// Daemons are the ports at which the provider's own listens in a sandbox, who executes
	// commands for whoever comes: none of them may be in the command's reach.
	Daemons() []uint16

	// Itself says by what the provider keeps a guarantee beside pccrun, as its documentation has it: nobody
	// tried it. That of net.allowlist is the filter of names that Create sets ([FilterOf]).
	Itself() map[profiles.Guarantee]string

	// Describe says what Create would ask for, for --dry-run.
	Describe(r *Request) any

	// Create makes a sandbox. Where nobody knows whether one was made the error is an
	// [UnclearError].
	Create(ctx context.Context, r *Request) (*Sandbox, error)

	// Find lists the sandboxes that bear labels.
	Find(ctx context.Context, labels map[string]string) ([]Sandbox, error)

	// Status returns a sandbox as it is now; the error wraps [ErrGone] if there is none.
	Status(ctx context.Context, id string) (*Sandbox, error)

	// Resume makes a sandbox ready for Exec, one that was stopped too; likewise.
	Resume(ctx context.Context, id string) (*Sandbox, error)

	// Extend has the provider stop a sandbox after a time from now, and not before.
	Extend(ctx context.Context, s *Sandbox, lifetime time.Duration) error

	// Keep has the provider end a sandbox that nobody uses after a time, as Extend does. With remove
	// its files go then too, where the provider can do that; without, they stay.
	Keep(ctx context.Context, s *Sandbox, lifetime time.Duration, remove bool) error

	// Park stops a sandbox and keeps its files, so that it costs nothing, or little. It may be an error that
	// it is stopped already.
	Park(ctx context.Context, s *Sandbox) error

	// Destroy removes a sandbox; likewise.
	Destroy(ctx context.Context, id string) error

	// Exec executes a program and returns its exit status, [Killed] where a signal ended it. The error is a [CutError] where the program may go on, or
	// have ended, and nobody knows.
	Exec(ctx context.Context, s *Sandbox, e *Exec) (code int, err error)

	// PutFile writes a file, and makes the directories around it.
	PutFile(ctx context.Context, s *Sandbox, name string, a *Archive) error

	// GetFile writes what a file holds: begin is called before each attempt.
	GetFile(ctx context.Context, s *Sandbox, name string, begin func() (io.Writer, error)) error

	// Price is what a sandbox costs in an hour, in US dollars; 0 where nobody knows.
	Price(s *Sandbox) float64
}

// Request is what a sandbox is created by.
type Request struct {
	Labels   map[string]string
	Lifetime time.Duration // after which it stops by itself, unless it is extended
	Policy   *profiles.Policy
	Ask      bool // the user is asked about hosts that no rule speaks of
}

// Sandbox is one that stands.
type Sandbox struct {
	ID       string
	Region   string
	Labels   map[string]string
	Running  bool
	Created  time.Time
	Ends     time.Time // by itself; the zero time if nobody says
	CPUs     float64
	MemoryMB int64

	Address string      // of its daemon; "" for one of a list
	Header  http.Header // what each call to that bears; may hold a secret
}

// Exec is a program to be executed, which does no harm if it is executed twice.
type Exec struct {
	Argv []string
	Root bool // as root where that can be had

	In       io.Reader // nil: empty
	Out, Err io.Writer
	Lost     func(error) // called where not all of In could be sent; the program reads an end

	// Lines says that what it reads and prints on standard output are lines of text, as they
	// come; else they are any bytes, and In comes to its end.
	Lines bool
}

// Killed is the exit status of a program that a signal ended.
const Killed = 128 + 9

// Archive is a file on its way up.
type Archive struct {
	Open func() (io.ReadCloser, error)
	Size int64
	Sum  string // SHA-256 in hexadecimal digits
}

// ErrGone says that there is no such sandbox, or none any more.
var ErrGone = errors.New("the sandbox does not exist any more")

// An UnclearError says that a call may have done its work, and may not.
type UnclearError struct{ Err error }

func (e *UnclearError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *UnclearError) Unwrap() error { return e.Err }

// A CutError says that the connection to a program was lost, and could not be made again.
type CutError struct{ Err error }

func (e *CutError) Error() string { return "the connection was lost: " + e.Err.Error() }

// Unwrap returns the cause.
func (e *CutError) Unwrap() error { return e.Err }
