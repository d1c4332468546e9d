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
//     its files could not be fetched, stopped with its files kept, if the provider can do that; one
//     that nobody looks after stops itself within minutes, or at the end that it was made with, and one
//     that the user has kept for the next run when its time is over. All are found again by their labels;
//   - of the sandbox's image nothing is needed but the kernel: what has to be done there pccrun's own program
//     does, by the verb place ([InPlace]);
//   - a sandbox is used again only where no command there could change more than the copy.
package remote

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"math"
	"mime/multipart"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/pccrun/pccrun/profiles"
)

// A Service is one provider's API: what every one of them can serve. Its calls may come at the same time; each
// ends when its context is done. They repeat what may be repeated themselves ([API]). What only some providers
// have is [Sleeper], [Extender], [Previewer] and [Liner].
type Service interface {
	// Name is the provider's: "e2b".
	Name() string

	// Ready says which key is missing or malformed. It asks nobody.
	Ready() error

	// Describe says what Create would ask for, for --dry-run.
	Describe(r *Request) any

	// Create makes a sandbox. One that does not run yet is made ready before anything else is asked of it, and one that
	// comes with an error is destroyed ([Make]). Where nobody knows whether one was made the error is an
	// [UnclearError].
	Create(ctx context.Context, r *Request) (*Sandbox, error)

	// Find lists the sandboxes that bear labels. A provider without labels has them in the sandbox's name
	// ([NameOf]), and may list more than those that were asked for.
	Find(ctx context.Context, labels map[string]string) ([]Sandbox, error)

	// Status returns a sandbox as it is now; the error wraps [ErrGone] if there is none.
	Status(ctx context.Context, id string) (*Sandbox, error)

	// Destroy removes a sandbox; likewise.
	Destroy(ctx context.Context, id string) error

	// Exec executes a program and returns its exit status, [Killed] where a signal ended it. The error is a [CutError] where the program may go on, or
	// have ended, and nobody knows.
	Exec(ctx context.Context, s *Sandbox, e *Exec) (code int, err error)

	// PutFile writes a file, and makes the directories around it.
	PutFile(ctx context.Context, s *Sandbox, name string, a *Archive) error

	// GetFile writes what a file holds: begin is called before each attempt.
	GetFile(ctx context.Context, s *Sandbox, name string, begin func() (io.Writer, error)) error
}

// Facts are what holds for all sandboxes of a provider.
type Facts struct {
	// Daemons are the ports at which the provider's own listens in a sandbox, who executes
	// commands for whoever comes: none of them may be in the command's reach.
	Daemons []uint16

	// Sockets are Unix sockets of the same kind, by their paths in a sandbox.
	Sockets []string

	// Elsewhere says that the provider's own daemon listens where nobody knows: the guarantees that are nothing where
	// the command reaches it are weak, and no sandbox is kept for the next run.
	Elsewhere bool

	// Keeps says by what the provider keeps a guarantee beside pccrun, as its documentation has it: nobody
	// tried it. That of net.allowlist is the filter of names that Create sets ([FilterOf]).
	Keeps map[profiles.Guarantee]string

	Home    string // the directory in which files may be written; "": /tmp, and the home that the sandbox's environment names
	MaxFile int64  // the largest file that PutFile and GetFile carry, in bytes: a larger one goes in parts; 0: any
	Arch    string // the processor, as Go names it; "" for this machine's
	Region  string // where sandboxes are if nobody names a region; "" where the provider decides

	Images  string   // what an image is there, such as "a template"; "" where nobody can choose one
	Image   string   // that a sandbox is made of if nobody names one; "" where the provider decides
	Regions []string // that can be named; "*" as the last: an account may have others. nil: none can

	Size       profiles.Size   // of a sandbox for which nobody asks one; what is 0 nobody knows
	Sizes      []profiles.Size // all that there are, or
	Step, Most profiles.Size   // each multiple of Step up to Most
	SizedBy    string          // where a request can ask for none: what decides, such as "the template"

	// Sizing reports whether a sandbox of an image has a size of the image's own where nobody asks for one; nil: of none,
	// unless SizedBy says so.
	Sizing func(image string) bool

	Prices Prices
	Life
}

// Life is how long sandboxes stand, and the user's key counts.
type Life struct {
	MaxLife time.Duration // the longest life of a sandbox; 0: no end that is known
	Idle    time.Duration // after how long without a call a sandbox ends, with its files; 0: it does not
	KeyEnds time.Time     // when the user's key is accepted no more; the zero time: nobody says
	KeyNew  string        // how the user gets another then

	Now func() time.Time // by which the engine counts how long there was no network; nil: this machine's clock
}

// Prices are those of an hour, in US dollars.
type Prices struct {
	CPU, GiB float64 // 0 where nobody knows
	Region   float64 // by how much they are multiplied at most where the user names a region; 0: by nothing
	Read     string  // when they were read from the provider's own page or another's: "2026-11"
}

// in is what holds where the user names a region, or "".
func (f Facts) in(region string) Facts {
	if p := &f.Prices; region != "" && p.Region > 0 {
		p.CPU, p.GiB = p.CPU*p.Region, p.GiB*p.Region
	}
	return f
}

// Price is what a sandbox of a size costs in an hour, in US dollars; 0 where nobody knows.
func (f *Facts) Price(s profiles.Size) float64 {
	return f.Prices.CPU*s.CPUs + f.Prices.GiB*float64(s.MemoryMB)/1024
}

// Fit is the smallest size of the place that holds one: what is 0 of that is as if nobody asked for it. It is not ok where
// the place has none so large, or nobody can ask for one that is larger than its own.
func (f *Facts) Fit(want profiles.Size) (size profiles.Size, ok bool) {
	if f.Size.Holds(want) && (f.SizedBy != "" || want == profiles.Size{}) {
		return f.Size, true
	}
	for _, s := range f.Sizes { // by price, then by what it has more
		if s.Holds(want) && (!ok || f.Price(s) < f.Price(size) || f.Price(s) == f.Price(size) && size.Holds(s)) {
			size, ok = s, true
		}
	}
	if f.Step == (profiles.Size{}) || !f.Most.Holds(want) {
		return size, ok
	}
	size.CPUs = math.Ceil(cmp.Or(want.CPUs, f.Size.CPUs)/f.Step.CPUs) * f.Step.CPUs
	size.MemoryMB = (cmp.Or(want.MemoryMB, f.Size.MemoryMB) + f.Step.MemoryMB - 1) / f.Step.MemoryMB * f.Step.MemoryMB
	return size, true
}

// A Sleeper is a [Service] whose sandboxes can be stopped with their files kept.
type Sleeper interface {
	// Park stops a sandbox and keeps its files, so that it costs nothing, or little. It may be an error that
	// it is stopped already.
	Park(ctx context.Context, s *Sandbox) error

	// Resume makes a sandbox ready for Exec, one that was stopped too; the error wraps [ErrGone] if there is none.
	Resume(ctx context.Context, id string) (*Sandbox, error)
}

// An Extender is a [Service] whose sandboxes have an end that can be moved. A sandbox of another lives as long as
// [Request.Lifetime] says when it is made.
type Extender interface {
	// Extend has the provider stop a sandbox after a time from now, and not before. With remove its files go then
	// too, where the provider can do that; without, they stay.
	Extend(ctx context.Context, s *Sandbox, lifetime time.Duration, remove bool) error
}

// A Liner is a [Service] that carries lines of text to and from a program in another way than by Exec with
// [Exec.In], which is the way of those that are none ([FileLine] is one for providers that give a program no input).
type Liner interface {
	// Line executes a program and returns what carries lines to it, and from it. Its Read returns why the line
	// broke: a [CutError] or another error of Exec.
	Line(ctx context.Context, s *Sandbox, argv []string) (io.ReadWriteCloser, error)
}

// A Previewer is a [Service] whose sandboxes have addresses at which their ports are looked at.
type Previewer interface {
	// Preview says where a port of a sandbox is.
	Preview(ctx context.Context, s *Sandbox, port uint16) (*Preview, error)
}

// A Preview is where a port of a sandbox is looked at.
type Preview struct {
	URL    string
	Header http.Header // what a request has to bear, where not everybody may look: a secret
}

// Request is what a sandbox is created by.
type Request struct {
	Labels   map[string]string
	Lifetime time.Duration // after which it stops by itself, unless it is extended ([Extender]) or, by [Facts.Idle], called
	Policy   *profiles.Policy
	Ask      bool // the user is asked about hosts that no rule speaks of

	// What the user chose, of what the facts say can be chosen; the zero value where the provider decides.
	Image   string
	Size    profiles.Size // one of the place's ([Facts.Fit])
	Region  string
	Publish []uint16 // ports inside that the user wants to look at ([Previewer])
}

// Sandbox is one that stands.
type Sandbox struct {
	ID       string
	Region   string
	Labels   map[string]string
	Running  bool
	State    string // as the provider calls it, where the adapter has to know it
	Failed   string // why it never will run; "" where it may
	Created  time.Time
	Ends     time.Time // by itself; the zero time if nobody says
	CPUs     float64
	MemoryMB int64

	Address string      // of its daemon; "" for one of a list
	Version string      // likewise, where the adapter has to know it
	Domain  string      // below which its ports have names, where the adapter has to know it
	Header  http.Header // what each call to that bears; may hold a secret
	Query   url.Values  // likewise
}

// Size is how large it is.
func (s *Sandbox) Size() profiles.Size { return profiles.Size{CPUs: s.CPUs, MemoryMB: s.MemoryMB} }

// Exec is a program to be executed, which does no harm if it is executed twice.
type Exec struct {
	Argv     []string
	Root     bool // as root where that can be had
	Out, Err io.Writer

	// In is what the program reads, lines of text as they come; what it prints on standard output are lines then
	// too. Only a provider that is no [Liner] is given one. nil: the program reads an end, and prints any bytes.
	In   io.Reader
	Lost func(error) // called where not all of In could be sent; the program reads an end
}

// Killed is the exit status of a program that a signal ended.
const Killed = 128 + 9

// Archive is a file on its way up.
type Archive struct {
	Open func() (io.ReadCloser, error)
	Size int64
	Mode uint32 // of the file, for a provider that sets it; 0: any
}

// Bytes is what the file holds.
func (a *Archive) Bytes() ([]byte, error) {
	from, err := a.Open()
	if err != nil {
		return nil, err
	}
	defer from.Close()
	return io.ReadAll(from)
}

// Form has a call send the file as a part of a form, after fields: name and value in turn.
func (a *Archive) Form(c *Call, file string, fields ...string) error {
	var head bytes.Buffer
	w := multipart.NewWriter(&head)
	var err error
	for i := 0; i+1 < len(fields); i += 2 {
		err = errors.Join(err, w.WriteField(fields[i], fields[i+1]))
	}
	_, e := w.CreateFormFile(file, "file")
	tail := "\r\n--" + w.Boundary() + "--\r\n"
	c.Header, c.Size = http.Header{"Content-Type": {w.FormDataContentType()}}, int64(head.Len()+len(tail))+a.Size
	c.Body = func() (io.ReadCloser, error) {
		body, err := a.Open()
		if err != nil {
			return nil, err
		}
		return struct {
			io.Reader
			io.Closer
		}{io.MultiReader(bytes.NewReader(head.Bytes()), body, strings.NewReader(tail)), body}, nil
	}
	return errors.Join(err, e)
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
