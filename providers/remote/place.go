package remote

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pccrun/pccrun/internal/events"
	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/providers"
	"github.com/pccrun/pccrun/providers/filesync"
)

// at is where all is in a sandbox.
type at struct {
	Home    string   `json:"home"`
	Copy    string   `json:"copy"`    // of the workspace
	Program string   `json:"program"` // the directory of pccrun's program; what it needs is beside it
	Environ []string `json:"environ"` // variables that speak of the place
}

// A place is a sandbox with the copy and pccrun's program in it, and what this side has of the run: all that the engine
// does there goes by it.
type place struct {
	at
	p        *Provider
	facts    Facts // with the prices of its region
	box      *Sandbox
	labels   map[string]string // of the sandbox
	lifetime time.Duration     // after which it stops by itself, see [Request]
	asked    time.Time         // when it was asked for, in this run
	session  *os.Root
	observer providers.Observer
	progress func(what string, done, total int64) // nil: nobody looks

	size profiles.Size // of the sandbox; what is 0 nobody knows

	key  string // see [plan.key]; "" where nothing is to be kept
	tag  string // before the names of files there; not empty for a copy, see [Provider.Copy]
	busy bool   // the command runs while its files are fetched

	own   string // see [commandsOwn]
	tools string // what was installed there; "" for nothing
}

// newPlace is a place of which no more is known than how its sandbox is made, and who looks.
func (p *Provider) newPlace(r *Request, stdio providers.Stdio, o providers.Observer) *place {
	return &place{own: commandsOwn, p: p, facts: p.facts.in(r.Region), labels: r.Labels, lifetime: r.Lifetime, session: stdio.Changes, observer: o, progress: stdio.Progress}
}

// warn says something to the user.
func (l *place) warn(format string, args ...any) {
	l.observer.Warning(events.Warning{Text: fmt.Sprintf(format, args...)})
}

// named says that names are not brought back.
func (l *place) named(why string, names []string) {
	const most = 3
	if n := len(names); n > most {
		l.warn("%s: %s and %d more", why, strings.Join(names[:most], ", "), n-most)
	} else if n > 0 {
		l.warn("%s: %s", why, strings.Join(names, ", "))
	}
}

// spool makes a file without a name in the session's directory.
func (l *place) spool(name string) (*os.File, error) {
	f, err := l.session.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err == nil {
		err = l.session.Remove(name)
	}
	return f, err
}

// has records the sandbox: whoever reads the session's record finds it from now on.
func (l *place) has(box *Sandbox) {
	box.Labels = l.labels // whatever the answer says of them
	l.box = box
	l.observer.Created(l.p.resource(box))
}

// MaxPrinted bounds what a program may print: a listing of many names is the most.
const MaxPrinted = 256 << 20

// Output executes a program that does no harm twice, and returns what it prints. The error holds
// what it printed on standard error where the exit status is one of the program's own. Nobody waits for it without an end,
// though the provider says that it goes on.
func Output(ctx context.Context, s Service, box *Sandbox, root bool, argv ...string) (out []byte, code int, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, usual.transfer, fmt.Errorf("%s: %s has not ended within %s", s.Name(), path.Base(argv[0]), usual.transfer))
	defer cancel()
	for n := 1; ; n++ {
		var printed, said Printed
		printed.Most, said.Most = MaxPrinted, 4<<10
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
		case code != 0:
			err = said.status(code)
		}
		return printed.Bytes(), code, err
	}
}

// Printed is what a program printed, up to Most bytes: it takes no more.
type Printed struct {
	bytes.Buffer
	Most int
	over bool
}

func (l *Printed) Write(b []byte) (int, error) {
	if room := l.Most - l.Len(); len(b) > room {
		l.over = true
		l.Buffer.Write(b[:room])
		return len(b), nil
	}
	return l.Buffer.Write(b)
}

// A statusError is a program's own end, with what it printed.
type statusError struct {
	code int
	said string
}

func (e *statusError) Error() string { return fmt.Sprintf("exit status %d: %s", e.code, e.said) }

// status is the error of a program that printed this.
func (l *Printed) status(code int) error {
	return &statusError{code, strings.Join(strings.Fields(events.Clean(l.String())), " ")}
}

// word has pccrun's program there do something ([Place]), and reads its answer. Where the command closed the program to
// its user it is opened again, once.
func (l *place) word(ctx context.Context, word string, in input, answer any, args ...string) error {
	argv := append([]string{path.Join(l.Program, "pccrun"), Place, word, in.file, in.sum, strconv.Itoa(in.parts)}, args...)
	for again := false; ; again = true {
		text, code, err := Output(ctx, l.p.service, l.box, !slices.Contains(ofUser, word), argv...)
		var cut *CutError
		switch {
		case code == statusGarbled:
			return errGarbled
		case err != nil && !again && code != statusRefused && !errors.As(err, &cut) && ctx.Err() == nil && l.reopen(ctx, l.box):
			continue
		case err == nil && answer != nil:
			if err = json.Unmarshal(text, answer); err != nil {
				err = fmt.Errorf("the answer to %s: %w", word, err)
			}
		}
		return err
	}
}

// reopen gives pccrun's own files back to their user, who is the command's too where nobody is root there: the command
// can close them to both. It reports whether it could.
func (l *place) reopen(ctx context.Context, box *Sandbox) bool {
	for _, name := range []string{path.Dir(l.Program), l.Program, path.Join(l.Program, "own"), path.Join(l.Program, "own", "line"), path.Join(l.Program, "pccrun")} {
		if _, _, err := Output(ctx, l.p.service, box, true, "chmod", "u+rwx", name); err != nil {
			return false
		}
	}
	return true
}

// errGarbled says that what came is not what was sent.
var errGarbled = errors.New("the received data differs from what was sent")

// thrice does something again where what came was garbled.
func thrice(do func() error) (err error) {
	for n := 0; n < 3 && (n == 0 || errors.Is(err, errGarbled)); n++ {
		err = do()
	}
	return err
}

// A content is what a file that goes up holds.
type content struct {
	io.ReaderAt
	size int64
	sum  string // SHA-256 in hexadecimal digits
	mode uint32 // see [Archive]
}

// contentOf is a text.
func contentOf(text []byte) content {
	return content{ReaderAt: bytes.NewReader(text), size: int64(len(text)), sum: sumOf(text)}
}

// sumOf is the SHA-256 of a text in hexadecimal digits.
func sumOf(text []byte) string {
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// maxFile is the size of the largest file that the provider carries.
func (p *Provider) maxFile() int64 {
	if p.facts.MaxFile > 0 {
		return p.facts.MaxFile
	}
	return math.MaxInt64
}

// put sends a file, in parts where the provider carries none so large; what says to the user which one it is, "" for none.
func (l *place) put(ctx context.Context, what, name string, c content) (in input, err error) {
	most := l.p.maxFile()
	in = input{name, c.sum, 1 + int(max(0, c.size-1)/most)}
	var show func(done, total int64)
	if what != "" && l.progress != nil {
		show = func(done, total int64) { l.progress(what, done, total) }
		defer l.progress("", 0, 0)
	}
	for i := range in.parts {
		begin := int64(i) * most
		size := min(most, c.size-begin)
		part := &Archive{Size: size, Mode: c.mode, Open: func() (io.ReadCloser, error) {
			return io.NopCloser(&shown{from: io.NewSectionReader(c, begin, size), done: begin, total: c.size, shown: show}), nil
		}}
		if err == nil {
			err = l.p.service.PutFile(ctx, l.box, partName(name, i, in.parts), part)
		}
	}
	return in, err
}

// temp is where a file waits that the engine sends or fetches: next to the copy, in the user's home.
func (l *place) temp(name string) string {
	return path.Join(path.Dir(l.Copy), ".pccrun-"+path.Base(l.Copy)+"-"+l.tag+name)
}

// send sends a file and has a word read it. What came over garbled is sent again.
func (l *place) send(ctx context.Context, what string, c content, word string, answer any, args ...string) error {
	return thrice(func() error {
		in, err := l.put(ctx, what, l.temp(word), c)
		if err == nil {
			err = l.word(ctx, word, in, answer, args...)
		}
		return err
	})
}

// remove removes names in a directory there.
func (l *place) remove(ctx context.Context, dir string, names []string) error {
	return l.send(ctx, "", contentOf(namesOf(names)), removeWord, nil, dir)
}

// list lists the copy, with sums where that is how.
func (l *place) list(ctx context.Context, how string) (*listing, error) {
	ctx, cancel := context.WithTimeout(ctx, l.p.patient.script)
	defer cancel()
	if l.tag != "" {
		how = "busy"
	}
	list := &listing{}
	err := l.word(ctx, listWord, input{}, list, l.Copy, how)
	if err == nil {
		err = list.index()
	}
	if err != nil {
		return nil, fmt.Errorf("%s: list the remote workspace: %w", l.p.Name(), err)
	}
	return list, nil
}

// pack has an archive of names be made, those alone and nothing below them, and fetches it into a file from begin on.
func (l *place) pack(ctx context.Context, names []string, to *os.File, begin int64, way func(done, total int64)) (size int64, err error) {
	dir, busy := l.temp("down"), ""
	if l.busy {
		busy = "1"
	}
	var made packed
	if err := l.send(ctx, "", contentOf(namesOf(names)), packWord, &made, l.Copy, dir, strconv.FormatInt(l.p.maxFile(), 10), busy); err != nil {
		return 0, err
	}
	if most := 2*filesync.DefaultLimits.Bytes - begin; made.Size <= 0 || made.Size > most { // all archives of a download together
		return 0, fmt.Errorf("the archive has %d bytes, and may have %d", made.Size, most)
	}
	return made.Size, thrice(func() error {
		took := &shown{to: to, total: made.Size, shown: way}
		for i := range made.Parts {
			before := took.done
			err := l.p.service.GetFile(ctx, l.box, downName(dir, i), func() (io.Writer, error) {
				took.done = before
				_, err := to.Seek(begin+before, io.SeekStart)
				return took, errors.Join(err, to.Truncate(begin+before))
			})
			if err != nil {
				return err
			}
		}
		sum := sha256.New()
		if _, err := io.Copy(sum, io.NewSectionReader(to, begin, took.done)); err != nil {
			return err
		}
		if took.done != made.Size || hex.EncodeToString(sum.Sum(nil)) != made.Sum {
			return errGarbled
		}
		return nil
	})
}

// shown is a stream whose way is shown.
type shown struct {
	from        io.Reader
	to          io.Writer
	done, total int64 // no more than total is written; 0: any
	shown       func(done, total int64)
}

func (s *shown) add(n int, err error) (int, error) {
	if s.done += int64(n); s.shown != nil {
		s.shown(s.done, s.total)
	}
	return n, err
}

func (s *shown) Read(b []byte) (int, error) { return s.add(s.from.Read(b)) }

func (s *shown) Write(b []byte) (int, error) {
	if s.total > 0 && int64(len(b)) > s.total-s.done {
		return 0, errGarbled
	}
	return s.add(s.to.Write(b))
}

// prolong keeps the sandbox from stopping by itself, where its end can be moved.
func (l *place) prolong(ctx context.Context) (stop func()) {
	if _, can := l.p.service.(Extender); !can {
		return func() {}
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	over, box := make(chan struct{}), l.box
	go func() {
		defer close(over)
		for told := false; ; {
			select {
			case <-ctx.Done():
				return
			case <-time.After(l.p.patient.extend):
			}
			if err := l.p.extend(ctx, box, l.p.patient.lifetime, false); err != nil && ctx.Err() == nil && !told {
				told = true
				l.warn("the sandbox may stop within %s: %v", l.p.patient.lifetime, err)
			}
		}
	}()
	return func() { cancel(); <-over }
}
