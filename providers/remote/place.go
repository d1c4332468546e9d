package remote

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/hashicorp/yamux"

	"github.com/pccrun/pccrun/internal/egress"
	"github.com/pccrun/pccrun/internal/events"
	"github.com/pccrun/pccrun/internal/hint"
	"github.com/pccrun/pccrun/netproxy"
	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/providers"
	"github.com/pccrun/pccrun/providers/inside"
)

// install has pccrun's own program in the sandbox, and the directories, before any command was there; a program that an
// earlier run left is the same, and no command there could change it.
func (r *running) install(ctx context.Context) error {
	name := ".pccrun-" + r.command.Label
	var dir inside.Text
	if r.old != nil { // its directories are prepared
		if err := r.word(ctx, r.old.Program, true, &dir, adoptWord, r.old.Program, name, r.old.Own); err != nil {
			return fmt.Errorf("%s: take over pccrun itself: %w", r.provider.Name(), err)
		}
		r.program = string(dir)
		return nil
	}
	if err := r.uploadProgram(ctx, path.Join(cmp.Or(r.provider.facts.Home, "/tmp"), name, "pccrun")); err != nil {
		return fmt.Errorf("%s: upload pccrun itself: %w", r.provider.Name(), err)
	}
	if err := r.word(ctx, r.own, true, &dir, installWord, r.own, name); err != nil {
		return fmt.Errorf("%s: install pccrun itself: %w", r.provider.Name(), err)
	}
	r.program = string(dir)
	return nil
}

// uploadProgram has the program at a path in the sandbox, and executes it there. It goes compressed where the image has
// a gzip, else as it is.
func (r *running) uploadProgram(ctx context.Context, to string) error {
	program, sum, err := r.packProgram()
	if err != nil {
		return err
	}
	defer program.remove()
	const what = "uploading pccrun itself"
	for n := 1; ; n++ {
		if err := r.put(ctx, what, to+".gz", &program.small); err != nil {
			return err
		}
		if _, _, err := Output(ctx, r.provider.service, r.box, false, "gzip", "-df", to+".gz"); err != nil {
			if err := r.put(ctx, what, to, &program.plain); err != nil {
				return err
			}
		}
		_, _, chmod := Output(ctx, r.provider.service, r.box, false, "chmod", "755", to) // a provider may set modes itself
		err := r.prepare(ctx, to, sum)
		switch {
		case err == nil:
			return nil
		case !errors.Is(err, errGarbled):
			return errors.Join(fmt.Errorf("it cannot be executed there, on %s: %w", r.provider.arch(), err), chmod)
		case n == 3:
			return err
		}
	}
}

// linuxProgram returns pccrun's program for the processor of the provider's sandboxes, and its SHA-256.
func (r *running) linuxProgram() (text []byte, sum string, err error) {
	f, err := r.provider.openProgram()
	if err != nil {
		return nil, "", err
	}
	defer f.Close()
	text, err = io.ReadAll(f)
	return text, sumOf(text), err
}

// sumOf is the SHA-256 of a text in hexadecimal digits.
func sumOf(text []byte) string {
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// packedProgram is pccrun's program for the sandbox, in two forms.
type packedProgram struct {
	small, plain Archive
	file         *os.File
}

func (p *packedProgram) remove() { p.file.Close() }

// packProgram returns pccrun's program for Linux, and the program's SHA-256. What is compressed is kept in the cache: it
// takes a second.
func (r *running) packProgram() (*packedProgram, string, error) {
	text, sum, err := r.linuxProgram()
	if err != nil {
		return nil, "", err
	}
	p := &packedProgram{plain: Archive{Size: int64(len(text)), Sum: sum, Mode: 0o755, Open: func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(text)), nil }}}
	cached := ""
	if dir := r.provider.host.CacheDir; dir != "" {
		cached = filepath.Join(dir, "inside-"+sum+".gz")
		p.file, _ = os.Open(cached)
	}
	if p.file == nil {
		if p.file, err = r.spool("inside.gz"); err != nil {
			return nil, "", err
		}
		small, _ := gzip.NewWriterLevel(p.file, gzip.BestSpeed)
		_, err = small.Write(text)
		if err = errors.Join(err, small.Close()); err != nil {
			p.file.Close()
			return nil, "", err
		}
		keep(p.file, cached)
	}
	p.small, err = archive(p.file, sha256.New())
	return p, sum, err
}

// keep copies a file to the cache, if there is one: where that fails the next run packs again.
func keep(f *os.File, path string) {
	if path == "" || os.MkdirAll(filepath.Dir(path), 0o700) != nil {
		return
	}
	to, err := os.CreateTemp(filepath.Dir(path), "inside-")
	if err != nil {
		return
	}
	_, err = io.Copy(to, io.NewSectionReader(f, 0, 1<<40))
	if err = errors.Join(err, to.Close()); err == nil {
		err = os.Rename(to.Name(), path)
	}
	if err != nil {
		_ = os.Remove(to.Name())
		return
	}
	old, _ := filepath.Glob(filepath.Join(filepath.Dir(path), "inside-*.gz"))
	for _, name := range old {
		if info, err := os.Stat(name); err == nil && name != path && time.Since(info.ModTime()) > 30*24*time.Hour {
			_ = os.Remove(name)
		}
	}
}

// remote is what the place is asked to run.
func (r *running) remote() (*inside.Remote, error) {
	dir := path.Join(r.copy, r.dir)
	env := slices.Concat(r.there, r.env)
	if t := r.io.Terminal; t != nil {
		env = append(slices.DeleteFunc(env, func(v string) bool { return strings.HasPrefix(v, "TERM=") }), "TERM="+t.Name)
	}
	secrets, err := new(egress.Secrets).Values(r.policy, &egress.Host{Environ: r.provider.host.Environ, Programs: r.provider.host.Programs, StateDir: r.provider.host.StateDir})
	if err != nil {
		return nil, err
	}
	m := &inside.Remote{
		Policy: r.policy.For(&profiles.Elsewhere{Home: r.home, Workspace: r.copy, WorkDir: dir, Environ: env}),
		Argv:   inside.Texts(r.command.Argv), Dir: dir, Environ: inside.Texts(slices.Concat(env, secrets)), Stdin: r.io.In != nil, Daemons: r.provider.facts.Daemons,
		Ask: r.request.Ask,
	}
	moved := strings.NewReplacer(quoted(r.policy.Workspace), quoted(r.copy))
	m.Seeds = map[string]inside.Text{}
	for name, text := range r.seeds {
		if rest, below := strings.CutPrefix(name, r.policy.Home+"/"); below {
			m.Seeds[path.Join(r.home, rest)] = inside.Text(moved.Replace(text))
		}
	}
	if t := r.io.Terminal; t != nil {
		m.Terminal = true
		m.Columns, m.Rows = t.Size()
	}
	return m, nil
}

// quoted is a path as JSON and TOML have it: agents keep their answers by workspace.
func quoted(path string) string {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(path) // no string fails
	return strings.TrimSpace(b.String())
}

// A connection is that to pccrun in the sandbox, with the streams and messages that it carries.
type connection struct {
	*running
	conn    *inside.Conn
	session *yamux.Session
	streams *inside.Streams // of the command
	others  inside.Executions
	lost    atomic.Pointer[CutError]
	resumed atomic.Pointer[Sandbox] // the sandbox as it was told of when it was resumed last

	mu  sync.Mutex
	out *json.Encoder
}

// follow has the command run in the sandbox and follows it to its end.
func (r *running) follow(ctx context.Context) (result providers.Result, err error) {
	asked, err := r.remote()
	if err != nil {
		return result, err
	}
	life, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	t := &connection{running: r, conn: inside.NewConn(), streams: inside.NewStreams(r.io)}
	if t.session, err = yamux.Client(t.conn, inside.Config()); err != nil {
		return result, err
	}
	defer func() {
		if box := t.resumed.Load(); box != nil {
			r.box = box
		}
	}()
	defer t.session.Close()
	t.others.Say = t.say
	defer t.others.End()
	go t.carry(life, r.box)
	messages := make(chan inside.Message)
	go t.listen(life, messages)
	done := ctx.Done()
	var signals <-chan int
	var resized <-chan struct{}
	var late <-chan time.Time
	killed, questions := false, 0
	for {
		select {
		case m, ok := <-messages:
			switch {
			case !ok && killed:
				return providers.Result{Killed: true, Signal: int(syscall.SIGKILL)}, nil
			case !ok:
				if cut := t.lost.Load(); cut != nil {
					return result, fmt.Errorf("%s: run %s: %w", r.provider.Name(), r.command.Argv[0], cut)
				}
				return result, fmt.Errorf("%s: run %s: pccrun in the sandbox is gone", r.provider.Name(), r.command.Argv[0])
			case m.Hello != nil && m.Hello.Version != inside.Version:
				return result, fmt.Errorf("BUG: %s: pccrun in the sandbox speaks version %d", r.provider.Name(), m.Hello.Version)
			case m.Hello != nil:
				t.say(inside.Message{Remote: asked})
			case m.Failed != nil:
				return result, fmt.Errorf("%s: %s: %s", r.provider.Name(), m.Failed.Step, events.Clean(m.Failed.Text))
			case m.Trial != nil:
				if err := r.judgeTrial(m.Trial); err != nil {
					return result, err
				}
				if m.Trial.Given {
					if r.before, err = r.look(ctx); err == nil {
						err = r.record()
					}
				}
				if err != nil {
					return result, err
				}
				t.say(inside.Message{Go: true})
			case m.Started:
				r.started.Store(true)
				r.provider.others.Store(&t.others)
				r.observer.Started()
				if signals = r.io.Signals; r.io.Terminal != nil {
					resized = r.io.Terminal.Resized
				}
			case m.Event != nil:
				r.tell(m.Event)
			case m.Exec != nil:
				t.others.Hear(m.Exec)
			case m.Question != nil && r.request.Ask:
				questions++
				go t.answer(life, m.Question, questions <= maxQuestions && len(m.Question.Host) < 254 && hostName.MatchString(m.Question.Host))
			case m.Done != nil:
				t.streams.Wait() // readers may take their time
				return r.end(m.Done, killed)
			}
		case n := <-signals:
			t.say(inside.Message{Signal: n})
		case <-resized:
			columns, rows := r.io.Terminal.Size()
			t.say(inside.Message{Size: &[2]int{columns, rows}})
		case <-done:
			if !r.started.Load() {
				return result, context.Cause(ctx)
			}
			done, killed = nil, true
			t.say(inside.Message{Signal: int(syscall.SIGKILL)})
			late = time.After(r.provider.patient.grace)
		case <-late:
			return providers.Result{Killed: true, Signal: int(syscall.SIGKILL)}, nil // it ends with the sandbox
		}
	}
}

// maxQuestions bounds how often a place may ask the user, and hostName what about: the name is shown, and may
// become a rule.
const maxQuestions = 50

var hostName = regexp.MustCompile(`^[a-z0-9_-]+(\.[a-z0-9_-]+)+$`)

// answer asks the user, or refuses.
func (t *connection) answer(ctx context.Context, q *inside.Question, ask bool) {
	p := netproxy.Refuse
	if ask {
		p = t.observer.Ask(ctx, q.Host, q.Port)
	}
	t.say(inside.Message{Answer: &inside.Answer{Number: q.Number, Permission: uint8(p)}})
}

func (t *connection) say(m inside.Message) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.out != nil {
		_ = t.out.Encode(m) // a place that is gone ends the session
	}
}

// carry keeps a line to the sandbox: one that breaks is followed by another, and nothing is
// lost between them. A sandbox that stopped meanwhile, as where this machine has slept, is resumed.
func (t *connection) carry(ctx context.Context, box *Sandbox) {
	var since time.Time // the line was lost
	reopened := false
	for n := 0; ctx.Err() == nil; n++ {
		err := t.line(ctx, box, func() { since, n, reopened = time.Time{}, 0, false })
		if ctx.Err() != nil {
			break
		}
		if since.IsZero() {
			since = time.Now()
		}
		var broken *brokenError
		if errors.As(err, &broken) && !reopened && t.reopen(ctx) {
			reopened = true
			continue
		}
		over := errors.Is(err, ErrGone) || errors.Is(err, inside.ErrForgotten) || errors.As(err, &broken) || time.Since(since) > t.provider.patient.line
		if again := t.resume(ctx, box, over || n == 3); again != nil {
			box, since, n = again, time.Time{}, 0
			t.resumed.Store(box)
			continue
		}
		if over {
			t.lost.Store(&CutError{err})
			break
		}
		select {
		case <-ctx.Done():
		case <-time.After(min(time.Duration(1<<min(n, 6))*50*time.Millisecond, 3*time.Second)):
		}
	}
	t.conn.Close()
}

// resume resumes a sandbox that does not run, if it is time to look; nil if it runs, or none can be had.
func (t *connection) resume(ctx context.Context, box *Sandbox, look bool) *Sandbox {
	sleeper, can := t.provider.service.(Sleeper)
	if !look || !can {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, t.provider.patient.create)
	defer cancel()
	if now, err := t.provider.service.Status(ctx, box.ID); err != nil || now.Running {
		return nil
	}
	again, err := sleeper.Resume(ctx, box.ID)
	if err != nil {
		return nil
	}
	again.Labels = box.Labels
	return again
}

// line carries the connection by one program that the provider executes.
func (t *connection) line(ctx context.Context, box *Sandbox, met func()) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	argv := []string{path.Join(t.program, "pccrun"), inside.Verb, inside.Attach, path.Join(t.program, "own")}
	line, err := t.provider.line(ctx, box, argv)
	if err != nil {
		return err
	}
	answered := false
	err = t.conn.Carry(line, func() { answered = true; met() })
	var broken *brokenError
	if answered && errors.As(err, &broken) {
		return &CutError{err}
	}
	return err
}

// listen takes the streams that pccrun in the sandbox opens. What they carry is a request
// for no more than to print, and to hear of it.
func (t *connection) listen(ctx context.Context, messages chan<- inside.Message) {
	defer close(messages)
	control, kind, err := inside.Accept(t.session)
	if err != nil || kind != inside.Control {
		return
	}
	t.mu.Lock()
	t.out = json.NewEncoder(control)
	t.mu.Unlock()
	go func() {
		for {
			s, kind, err := inside.Accept(t.session)
			if err != nil {
				t.streams.Lost()
				return
			}
			if kind == inside.Executed {
				t.others.Stream(s)
				continue
			}
			t.streams.Join(s, kind)
		}
	}()
	in := json.NewDecoder(control)
	for {
		var m inside.Message
		if in.Decode(&m) != nil {
			return
		}
		select {
		case messages <- m:
		case <-ctx.Done():
			return
		}
	}
}

// tell passes on what happened there.
func (r *running) tell(line []byte) {
	record, err := events.Parse(line)
	if err != nil {
		return
	}
	switch e := record.Event.(type) {
	case events.NetDecision:
		r.observer.Decision(e)
	case events.NetClosed:
		r.observer.Closed(e)
	case events.Warning:
		r.observer.Warning(e)
	case events.Denial:
		if !strings.HasPrefix(e.Guarantee, "net.") { // of a decision, which was told
			r.observer.Denial(e)
		}
	}
}

// refused turns what pccrun in the sandbox says into an error of this side.
func (r *running) refused(f *inside.Refusal) error {
	name := r.command.Argv[0]
	advice := "the command gets the sandbox's programs, and the workspace is at ~/" + r.name
	switch f.Code {
	case 127:
		return &providers.ExecError{Name: name, Err: syscall.ENOENT, Advice: advice}
	case 126:
		return &providers.ExecError{Name: name, Err: syscall.EACCES, Advice: advice}
	}
	fix := events.Clean(f.Hint)
	if !strings.HasPrefix(fix, "--") { // what mends a machine of the user's mends no sandbox
		fix = "another template or snapshot of the provider's may allow it; --provider native runs the command on this machine"
	}
	return hint.Errorf(fix, "%s: in the sandbox: %s", r.provider.Name(), events.Clean(f.Text))
}

// end is how the command ended.
func (r *running) end(d *inside.Done, killed bool) (result providers.Result, err error) {
	if d.Refused != nil {
		r.started.Store(false) // what it would have changed is nothing
		return result, r.refused(d.Refused)
	}
	r.ended = true
	result = providers.Result{
		Code: d.Code, Signal: d.Signal, TimedOut: d.TimedOut, OOM: d.OOM, Killed: killed, User: d.User, System: d.System,
		Survivors: d.Survivors, Memory: d.Memory, Processes: d.Processes, Read: d.Read, Written: d.Written, IOBy: d.IOBy,
	}
	if result.Signal != 0 {
		result.Code = 0
	} else if n := d.Code - 128; n > 0 && n < 65 {
		result.Code, result.Signal = 0, n
	}
	return result, nil
}

// ofDaemon are the guarantees that are nothing where the command reaches who executes
// commands beside pccrun.
var ofDaemon = []profiles.Guarantee{
	profiles.NetAllowlist, profiles.NetAddress, profiles.NetDNS, profiles.SysFilter, profiles.SysNoNewUserns, profiles.PrivNone, profiles.LaunchIntegrity,
}

// judgeTrial holds what the trial found against the policy. A run whose trial keeps less than
// the policy requires is refused, before anything of the command was there.
func (r *running) judgeTrial(t *inside.Trial) error {
	if t.Refused != nil {
		return r.refused(t.Refused)
	}
	if t.Bare != "" {
		r.warn("no namespace can be made in the sandbox, so filters and Landlock alone surround the command, which connects to nothing but the proxy and has no server: %s", events.Clean(t.Bare))
	}
	daemon := ""
	switch {
	case len(t.Reached) > 0:
		daemon = "the command can reach the provider's own daemon at " + events.Clean(strings.Join(t.Reached, ", ")) + ", which executes commands"
	case len(r.provider.facts.Daemons) > 0 && len(t.Daemons) == 0:
		daemon = "the provider's own daemon listens at none of its known ports, so pccrun cannot test whether the command reaches it"
	}
	switch r.doubt = doubtOf(t.Answers); {
	case daemon != "":
		r.doubt = daemon
	case !t.Root:
		r.doubt = "pccrun is not root there, and runs as the command's user"
	}
	var list []profiles.Answer
	for _, a := range r.answers {
		if i := slices.IndexFunc(t.Answers, func(o profiles.Answer) bool { return o.Guarantee == a.Guarantee }); i >= 0 && strings.HasPrefix(a.Mechanism, insideThere) {
			a = t.Answers[i]
			a.Mechanism, a.Cause = events.Clean(a.Mechanism), events.Clean(a.Cause)
		}
		if by := r.provider.facts.Keeps[a.Guarantee]; a.Guarantee == profiles.NetAllowlist && a.State == profiles.Missing && by != "" && FilterOf(&r.request).Open == "" {
			a = profiles.WeakBy(r.provider.Name()+" itself, by its documentation: "+by, "nobody has tried that; "+a.Cause, "")
		}
		switch {
		case daemon != "" && slices.Contains(ofDaemon, a.Guarantee):
			a = profiles.Answer{Guarantee: a.Guarantee, State: profiles.Missing, Cause: daemon}
		case a.Guarantee == profiles.LaunchIntegrity && !t.Root && a.State == profiles.Kept:
			a.State, a.Cause = profiles.Weak, "pccrun is not root there, and runs as the command's user"
		}
		list = append(list, a)
	}
	warnings, err := providers.Check(r.policy, list)
	for _, text := range warnings {
		r.warn("%s", text)
	}
	return err
}
