package run

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/internal/events"
	"github.com/pccrun/pccrun/internal/messages"
	"github.com/pccrun/pccrun/internal/sessions"
	"github.com/pccrun/pccrun/internal/survey"
	"github.com/pccrun/pccrun/internal/terminal"
	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/providers"
	"github.com/pccrun/pccrun/providers/inside"
)

// The launcher of a run listens on a socket in the session's directory, which no sandbox shows.
// Another pccrun of the same user asks there for another command in the run, or for what it uses,
// and the launcher asks the provider:
//
//	pccrun exec or stats                       the launcher
//	   ─── wants ─────────────────────────────▶
//	   ◀── says: Started, with the ends of pipes
//	   ─── wants: Signal, Size ────────────────▶
//	   ◀── says: Ended or Failed, or Used ──────
//
// All that the other process gets of the run are pipes that the launcher has made. When it goes, its
// command is killed.

// socketName is the socket, in the session's directory.
const socketName = "launcher"

// wants is what is asked of the launcher.
type wants struct {
	Argv     [][]byte `json:",omitempty"` // another command; nil: what the run uses
	Terminal bool     `json:",omitempty"`
	Size     [2]int   `json:",omitzero"` // of the terminal: columns, rows
	Signal   int      `json:",omitempty"`
}

// says is what the launcher answers: one of its fields is set.
type says struct {
	Started bool              `json:",omitempty"`
	Ended   *providers.Result `json:",omitempty"`
	Used    *providers.Result `json:",omitempty"`
	Failed  *failure          `json:",omitempty"`
}

// failure is why a command did not run.
type failure struct {
	Text, Hint string
	Code       int
}

// inquiries is the launcher's side. The zero value listens to nobody.
type inquiries struct {
	mu       sync.Mutex
	over     bool
	timer    *time.Timer
	listener *net.UnixListener
	dir      *os.File
	cancel   context.CancelFunc
	calls    sync.WaitGroup
	count    int // commands so far
}

// hear begins to listen once the session has its directory: a run that is over before has nothing
// of it, and none waits for it.
func (f *flow) hear() {
	q := &f.inquiries
	q.mu.Lock()
	defer q.mu.Unlock()
	q.timer = time.AfterFunc(sessions.Delay, func() {
		if err := f.listen(); err != nil && !errors.Is(err, os.ErrClosed) {
			f.log.Emit(events.Warning{Text: "pccrun exec cannot reach this run: " + messages.InWords(err)})
		}
	})
}

func (f *flow) listen() error {
	q := &f.inquiries
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.over {
		return nil
	}
	root, err := f.session.Dir()
	if err != nil {
		return err
	}
	if q.dir, err = root.Open("."); err != nil {
		return err
	}
	// By a name that is short, and that leads nowhere else.
	at := &net.UnixAddr{Net: "unix", Name: "/proc/self/fd/" + strconv.Itoa(int(q.dir.Fd())) + "/" + socketName}
	if q.listener, err = net.ListenUnix("unix", at); err != nil {
		return err
	}
	q.listener.SetUnlinkOnClose(false) // the session's directory is
	var ctx context.Context
	ctx, q.cancel = context.WithCancel(context.Background())
	go func() {
		for {
			conn, err := q.listener.AcceptUnix()
			if err != nil {
				return
			}
			q.mu.Lock()
			if q.over {
				conn.Close()
			} else {
				q.calls.Go(func() { f.answer(ctx, conn) })
			}
			q.mu.Unlock()
		}
	}()
	return nil
}

// lastAnswer is how long whoever asked is waited for at the end of the run.
const lastAnswer = time.Second

// deaf ends the listening, when the run has ended. Who waits for a command learns of its end.
func (q *inquiries) deaf() {
	q.mu.Lock()
	q.over = true
	if q.timer != nil {
		q.timer.Stop()
	}
	listener := q.listener
	q.mu.Unlock()
	if listener == nil {
		return
	}
	listener.Close()
	q.cancel()
	answered := make(chan struct{})
	go func() {
		q.calls.Wait()
		close(answered)
	}()
	select {
	case <-answered:
	case <-time.After(lastAnswer):
	}
	_ = unix.Unlinkat(int(q.dir.Fd()), socketName, 0)
	q.dir.Close()
}

// answer answers one who asks.
func (f *flow) answer(ctx context.Context, conn *net.UnixConn) {
	defer conn.Close()
	out := json.NewEncoder(conn)
	if who, err := peer(conn); err != nil || who != f.uid {
		_ = out.Encode(says{Failed: &failure{"the session is of another user", "", messages.Refused}})
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(ctx, func() { _ = conn.SetReadDeadline(time.Now()) })()
	in := json.NewDecoder(conn)
	var first wants
	if in.Decode(&first) != nil {
		return
	}
	answer := says{}
	result, err := providers.Result{}, error(nil)
	switch executor, is := f.plan.(providers.Executor); {
	case len(first.Argv) == 0:
		if meter, is := f.plan.(providers.Meter); is {
			result, err = meter.Usage(ctx)
			answer.Used = &result
		} else {
			err = errors.New("provider " + f.Name + ": stats: it does not report what a running session uses")
		}
	case !is:
		err = errors.New("provider " + f.Name + ": exec is not built for it")
	default:
		result, err = f.execute(ctx, cancel, executor, &first, in, conn)
		answer.Ended = &result
	}
	if err != nil {
		answer = says{Failed: &failure{messages.InWords(err), profiles.Hint(err), messages.Refused}}
		var exec *providers.ExecError
		var absent *survey.ErrNotFound
		if errors.As(err, &exec) || errors.As(err, &absent) {
			answer.Failed.Code = execStatus(err)
		}
	}
	_ = conn.SetWriteDeadline(time.Now().Add(lastAnswer))
	_ = out.Encode(answer)
}

// peer is the user at the other end.
func peer(conn *net.UnixConn) (uid int, err error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return -1, err
	}
	var got *unix.Ucred
	controlled := raw.Control(func(fd uintptr) { got, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) })
	if err = errors.Join(controlled, err); err != nil {
		return -1, err
	}
	return int(got.Uid), nil
}

// execute runs another command in the run.
func (f *flow) execute(ctx context.Context, cancel func(), place providers.Executor, first *wants, in *json.Decoder, conn *net.UnixConn) (result providers.Result, err error) {
	argv := make([]string, len(first.Argv))
	for i, arg := range first.Argv {
		argv[i] = string(arg)
	}
	files, absent := survey.Programs(f.policy, argv[0], f.req.Host.Environ)
	if absent != nil && !f.Cloud && f.req.DockerImage == "" {
		return result, absent
	}
	stdio, theirs, err := execPipes(first.Terminal)
	if err != nil {
		return result, err
	}
	signals, resized := make(chan int, 16), make(chan struct{}, 1)
	stdio.Signals = signals
	var mu sync.Mutex
	size := first.Size
	if first.Terminal {
		stdio.Terminal = &providers.Terminal{Resized: resized, Size: func() (columns, rows int) {
			mu.Lock()
			defer mu.Unlock()
			return size[0], size[1]
		}}
	}
	err = handOver(conn, theirs)
	for _, file := range theirs {
		file.Close()
	}
	if err != nil {
		closePipes(stdio)
		return result, err
	}
	f.inquiries.mu.Lock()
	f.inquiries.count++
	number := f.inquiries.count
	f.inquiries.mu.Unlock()
	f.tell(events.Exec{Number: number, Argv: argv})
	begun := time.Now()
	go func() {
		defer cancel() // nobody is there any more
		for {
			var more wants
			if in.Decode(&more) != nil {
				return
			}
			if more.Signal != 0 {
				select {
				case signals <- more.Signal:
				default:
				}
			}
			if more.Size != [2]int{} {
				mu.Lock()
				size = more.Size
				mu.Unlock()
				select {
				case resized <- struct{}{}:
				default:
				}
			}
		}
	}()
	result, err = place.Exec(ctx, argv, files, stdio)
	ended := events.ExecEnd{Number: number, Code: statusOf(&result), WallMS: time.Since(begun).Milliseconds()}
	if err != nil {
		ended.Error = messages.InWords(err)
	}
	f.tell(ended)
	return result, err
}

// statusOf is the exit status that a shell reports.
func statusOf(r *providers.Result) int {
	if r.Signal != 0 {
		return 128 + r.Signal
	}
	return r.Code
}

// execPipes makes the pipes of a command: the ends of the provider, and those of who asked.
func execPipes(terminal bool) (ours providers.Stdio, theirs []*os.File, err error) {
	var made []*os.File
	pipe := func() (r, w *os.File) {
		if err == nil {
			r, w, err = os.Pipe()
			made = append(made, r, w)
		}
		return r, w
	}
	in, input := pipe()
	printed, out := pipe()
	ours.In, ours.Out, theirs = in, out, []*os.File{input, printed}
	if !terminal {
		mistakes, errs := pipe()
		ours.Err, theirs = errs, append(theirs, mistakes)
	}
	if err != nil {
		for _, f := range made {
			_ = f.Close()
		}
	}
	return ours, theirs, err
}

func closePipes(s providers.Stdio) {
	for _, f := range []any{s.In, s.Out, s.Err} {
		if file, is := f.(*os.File); is {
			file.Close()
		}
	}
}

// handOver says that a command starts, with the ends of its pipes.
func handOver(conn *net.UnixConn, files []*os.File) error {
	text, err := json.Marshal(says{Started: true})
	if err != nil {
		return err
	}
	var fds []int
	for _, f := range files {
		fds = append(fds, int(f.Fd()))
	}
	_, _, err = conn.WriteMsgUnix(append(text, '\n'), unix.UnixRights(fds...), nil)
	return err
}

// call reaches the launcher of a session.
func call(home sessions.Home, e sessions.Entry) (*net.UnixConn, error) {
	dir, err := home.Open(e.ID)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	at, err := dir.Open(".")
	if err != nil {
		return nil, err
	}
	defer at.Close()
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Net: "unix", Name: "/proc/self/fd/" + strconv.Itoa(int(at.Fd())) + "/" + socketName})
	if err != nil {
		return nil, fmt.Errorf("session %s: its launcher does not answer: %w", e.ID, errors.Unwrap(err))
	}
	return conn, nil
}

// Usage asks the launcher of a running session what it uses.
func Usage(home sessions.Home, e sessions.Entry) (r providers.Result, err error) {
	conn, err := call(home, e)
	if err != nil {
		return r, err
	}
	defer conn.Close()
	var answer says
	if err := errors.Join(json.NewEncoder(conn).Encode(wants{}), json.NewDecoder(conn).Decode(&answer)); err != nil {
		return r, err
	}
	if answer.Used == nil {
		return r, answer.refused()
	}
	return *answer.Used, nil
}

func (s *says) refused() error {
	if s.Failed == nil {
		return errors.New("BUG: an empty answer of the launcher")
	}
	return &refusal{*s.Failed}
}

// refusal is what a launcher would not do.
type refusal struct{ failure }

func (r *refusal) Error() string { return r.Text }

// Hint is the launcher's.
func (r *refusal) Hint() string { return r.failure.Hint }

// Exec runs another command in a running session, and returns the status to exit with. An error says
// that its launcher was not reached.
func Exec(home sessions.Home, e sessions.Entry, argv []string) (code int, err error) {
	conn, err := call(home, e)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	LeaveSignals()
	caught := make(chan os.Signal, 16)
	signal.Notify(caught, ends[:]...)
	ask := wants{Terminal: terminal.IsTerminal(int(os.Stdin.Fd())) && terminal.IsTerminal(int(os.Stdout.Fd()))}
	for _, arg := range argv {
		ask.Argv = append(ask.Argv, []byte(arg))
	}
	var sit *relayedTerminal
	var resized <-chan struct{}
	if ask.Terminal {
		if sit, err = openRelayed("", nil); err != nil {
			return 0, err
		}
		defer sit.close()
		resized = sit.terminal.Resized
		ask.Size[0], ask.Size[1] = sit.terminal.Size()
	}
	var sending sync.Mutex
	out := json.NewEncoder(conn)
	send := func(w wants) error {
		sending.Lock()
		defer sending.Unlock()
		return out.Encode(w)
	}
	if err := send(ask); err != nil {
		return 0, err
	}
	files, rest, err := takeOver(conn)
	if err != nil {
		return 0, err
	}
	in := json.NewDecoder(io.MultiReader(rest, conn))
	var last os.Signal
	go func() {
		for {
			select {
			case last = <-caught:
				_ = send(wants{Signal: linuxNumber(last.(unix.Signal))})
			case <-resized:
				columns, rows := sit.terminal.Size()
				_ = send(wants{Size: [2]int{columns, rows}})
			}
		}
	}()
	printed := carry(files, sit)
	var answer says
	for answer.Ended == nil && answer.Failed == nil {
		if err := in.Decode(&answer); err != nil { // the launcher was killed, and all of its run with it
			answer.Ended = &providers.Result{Signal: int(unix.SIGKILL)}
		}
	}
	printed()
	sit.close()
	switch {
	case answer.Failed != nil:
		messages.Fail(answer.Failed.Text, answer.Failed.Hint)
		return answer.Failed.Code, nil
	case answer.Ended.Signal == int(unix.SIGINT) && sit == nil:
		endBy(unix.SIGINT) // a shell that runs us in a loop goes by that, and not by the status
	}
	return statusOf(answer.Ended), nil
}

// takeOver receives the ends of the command's pipes, none where the launcher refuses; rest is what else it has said.
func takeOver(conn *net.UnixConn) (files []*os.File, rest io.Reader, err error) {
	text, control := make([]byte, 4096), make([]byte, unix.CmsgSpace(3*4))
	n, cn, _, _, err := conn.ReadMsgUnix(text, control)
	if err != nil {
		return nil, nil, err
	}
	list, err := unix.ParseSocketControlMessage(control[:cn])
	if err != nil {
		return nil, nil, err
	}
	for _, m := range list {
		fds, err := unix.ParseUnixRights(&m)
		if err != nil {
			return nil, nil, err
		}
		for _, fd := range fds {
			unix.CloseOnExec(fd)
			_ = unix.SetNonblock(fd, true)
			files = append(files, os.NewFile(uintptr(fd), "pipe"))
		}
	}
	return files, bytes.NewReader(text[:n]), nil
}

// carry joins the command's pipes with what this process reads and prints; the function that it
// returns waits until all is printed that the command has.
func carry(files []*os.File, sit *relayedTerminal) (printed func()) {
	if len(files) < 2 {
		return func() {}
	}
	from, to := io.Reader(os.Stdin), []io.Writer{screened(os.Stdout), screened(os.Stderr)}
	if sit != nil {
		from, to = sit.slave, []io.Writer{sit.slave}
	}
	go func() {
		_, _ = io.Copy(files[0], from)
		files[0].Close()
	}()
	var printing inside.Drain
	for i, r := range files[1:] {
		printing.Go(to[i], r)
	}
	return printing.Wait
}

// screened is what the command prints to, without what acts on a terminal.
func screened(file *os.File) io.Writer {
	if terminal.IsTerminal(int(file.Fd())) {
		return &filtered{to: file}
	}
	return file
}
