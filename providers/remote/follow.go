package remote

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
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

// asked is what the place is asked to run, and the secrets that it gets once its trial has shown what it keeps.
func (p *plan) asked(l *place, stdio providers.Stdio) (m *inside.Remote, secrets []string, err error) {
	host := &l.p.host
	dir := path.Join(l.Copy, p.dir)
	env := withTools(l.tools, slices.Concat(l.Environ, p.env))
	if t := stdio.Terminal; t != nil {
		env = append(slices.DeleteFunc(env, func(v string) bool { return strings.HasPrefix(v, "TERM=") }), "TERM="+t.Name)
	}
	secrets, err = new(egress.Secrets).Values(p.policy, &egress.Host{Environ: host.Environ, Programs: host.Programs, StateDir: host.StateDir})
	if err != nil {
		return nil, nil, err
	}
	m = &inside.Remote{
		Policy: p.policy.For(&profiles.Elsewhere{Home: l.Home, Workspace: l.Copy, WorkDir: dir, Environ: env}),
		Argv:   inside.Texts(p.command.Argv), Dir: dir, Environ: inside.Texts(env), Stdin: stdio.In != nil, Daemons: l.p.facts.Daemons, Sockets: l.p.facts.Sockets,
		Ask: p.request.Ask, Seeds: map[string]inside.Text{},
	}
	for _, in := range p.policy.Network.Inject {
		m.Secrets = append(m.Secrets, inside.Text(in.Env+"=only-for-the-trial"))
	}
	if wall, most := &m.Policy.Resources.Timeout, inTime(l); most > 0 && (wall.Value == 0 || int64(most) < wall.Value) {
		wall.Value = int64(most)
	}
	m.Policy.Files = slices.Clip(m.Policy.Files)
	for _, name := range m.Sockets { // a place hides those that its kernel lists, and one that is bound in another network namespace it does not list
		m.Policy.Files = append(m.Policy.Files, profiles.FileRule{Path: name, Access: profiles.Hide, Origin: profiles.Origin{Source: l.p.Name()}})
	}
	if c := p.command.Conversation; c != nil {
		for _, dir := range c.Dirs {
			m.Policy.Files = append(m.Policy.Files, profiles.FileRule{Path: path.Join(l.Home, dir), Access: profiles.Write, Origin: profiles.Origin{Source: inside.OfConversation}})
		}
	}
	if l.tools != "" {
		m.Policy.Files = append(m.Policy.Files, profiles.FileRule{Path: l.tools, Access: profiles.Read, Origin: profiles.Origin{Source: "installation"}})
	}
	moved := strings.NewReplacer(quoted(p.policy.Workspace), quoted(l.Copy))
	for name, text := range p.seeds {
		if rest, below := strings.CutPrefix(name, p.policy.Home+"/"); below {
			m.Seeds[path.Join(l.Home, rest)] = inside.Text(moved.Replace(text))
		}
	}
	if t := stdio.Terminal; t != nil {
		m.Terminal = true
		m.Columns, m.Rows = t.Size()
	}
	return m, secrets, nil
}

// quoted is a path as JSON and TOML have it: agents keep their answers by workspace.
func quoted(path string) string {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(path) // no string fails
	return strings.TrimSpace(b.String())
}

// ended is how a command ended, and what is known of it.
type ended struct {
	providers.Result
	started  bool
	seen     bool       // pccrun in the sandbox has seen the end
	unwanted bool       // what it changed is not to be downloaded
	doubt    string     // why it may have changed what the next run trusts
	by       *fetchable // what a download goes by
}

// A connection is that to pccrun in the sandbox, with the streams and messages that it carries. One line after the other
// carries it.
type connection struct {
	l        *place
	conn     *inside.Conn
	session  *yamux.Session
	streams  *inside.Streams // of the command
	others   inside.Executions
	messages chan inside.Message
	lost     atomic.Pointer[CutError] // why no line comes any more
	box      atomic.Pointer[Sandbox]  // as it was told of when it was resumed last
	ask      bool                     // the user is asked about hosts
	asked    int                      // so often

	mu  sync.Mutex
	out *json.Encoder
}

// connect begins to carry. What is returned is to be closed.
func (l *place) connect(ctx context.Context, stdio providers.Stdio, ask bool) (t *connection, err error) {
	t = &connection{l: l, conn: inside.NewConn(), streams: inside.NewStreams(stdio), messages: make(chan inside.Message), ask: ask}
	if t.session, err = yamux.Client(t.conn, inside.Config()); err != nil {
		return nil, err
	}
	t.others.Say = t.say
	t.box.Store(l.box)
	go t.carry(ctx)
	go t.listen(ctx)
	return t, nil
}

// follow has the command run in the sandbox and follows it to its end.
func (p *plan) follow(ctx context.Context, l *place, by *fetchable, stdio providers.Stdio) (end *ended, err error) {
	end = &ended{by: by}
	asked, secrets, err := p.asked(l, stdio)
	if err != nil {
		return end, err
	}
	life, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	t, err := l.connect(life, stdio, p.request.Ask)
	if err != nil {
		return end, err
	}
	defer t.close()
	done, late := ctx.Done(), (<-chan time.Time)(nil)
	starts := time.NewTimer(l.p.patient.start)
	defer starts.Stop()
	for {
		select {
		case m, ok := <-t.messages:
			switch {
			case !ok && end.Killed:
				return end, nil
			case !ok:
				err = errors.New("pccrun in the sandbox is gone")
				if cut := t.lost.Load(); cut != nil {
					err = cut
				}
				return end, fmt.Errorf("%s: run %s: %w", l.p.Name(), p.command.Argv[0], err)
			case m.Hello != nil && m.Hello.Version != inside.Version:
				return end, fmt.Errorf("BUG: %s: pccrun in the sandbox speaks version %d", l.p.Name(), m.Hello.Version)
			case m.Hello != nil:
				t.say(inside.Message{Remote: asked})
			case m.Failed != nil:
				return end, fmt.Errorf("%s: %s: %s", l.p.Name(), m.Failed.Step, events.Clean(m.Failed.Text))
			case m.Trial != nil:
				injects := false
				if end.doubt, injects, err = p.judgeTrial(l, m.Trial); err == nil && m.Trial.Given && by != nil {
					err = l.begin(ctx, by)
				}
				if err != nil {
					return end, err
				}
				if !injects { // they would be of no use there, or the command's
					secrets = nil
				}
				t.say(inside.Message{Go: true, Secrets: inside.Texts(secrets)})
			case m.Started && !end.started:
				end.started = true
				starts.Stop()
				l.p.goesOn.Store(&running{&t.others, l})
				l.observer.Started()
				go inside.Forward(stdio, life.Done(), func(n int) { t.say(inside.Message{Signal: n}) }, func(columns, rows int) {
					t.say(inside.Message{Size: &[2]int{columns, rows}})
				})
			case m.Done != nil && m.Done.Refused != nil:
				end.started = false // what it would have changed is nothing
				return end, p.refused(m.Done.Refused)
			case m.Done != nil:
				end.seen, end.Result = true, resultOf(m.Done, end.Killed)
				printed := make(chan struct{})
				go func() { t.streams.Wait(); close(printed) }()
				select {
				case <-printed: // readers may take their time
				case <-done: // until nobody waits for them any more
				case <-late:
				}
				return end, nil
			default:
				t.hear(life, &m)
			}
		case <-done:
			if !end.started {
				return end, context.Cause(ctx)
			}
			done, end.Result = nil, providers.Result{Killed: true, Signal: int(syscall.SIGKILL)}
			go t.say(inside.Message{Signal: int(syscall.SIGKILL)}) // nobody waits for a place that reads nothing
			late = time.After(l.p.patient.grace)
		case <-late:
			return end, nil // it ends with the sandbox
		case <-starts.C:
			return end, fmt.Errorf("%s: run %s: pccrun in the sandbox has not started it within %s", l.p.Name(), p.command.Argv[0], l.p.patient.start)
		}
	}
}

// close ends the connection.
func (t *connection) close() {
	t.others.End()
	t.session.Close()
	t.l.box = t.box.Load()
}

// maxHeard bounds a message of a place's, in bytes.
const maxHeard = 16 << 20

// maxQuestions bounds how often a place may ask the user, and hostName what about: the name is shown, and may
// become a rule.
const maxQuestions = 50

var hostName = regexp.MustCompile(`^[a-z0-9_-]+(\.[a-z0-9_-]+)+$`)

// hear takes what pccrun there says while the command runs.
func (t *connection) hear(ctx context.Context, m *inside.Message) {
	switch q := m.Question; {
	case m.Event != nil:
		tell(t.l.observer, m.Event)
	case m.Exec != nil:
		t.others.Hear(m.Exec)
	case q != nil && t.ask:
		t.asked++
		p, may := netproxy.Refuse, t.asked <= maxQuestions && len(q.Host) < 254 && hostName.MatchString(q.Host)
		go func() {
			if may {
				p = t.l.observer.Ask(ctx, q.Host, q.Port)
			}
			t.say(inside.Message{Answer: &inside.Answer{Number: q.Number, Permission: uint8(p)}})
		}()
	}
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
func (t *connection) carry(ctx context.Context) {
	var since time.Time // the line was lost
	reopened := false
	for n := 0; ctx.Err() == nil; n++ {
		err := t.line(ctx, func() { since, n, reopened = time.Time{}, 0, false })
		if ctx.Err() != nil {
			break
		}
		if since.IsZero() {
			since = t.l.facts.Now()
		}
		var broken *statusError
		if errors.As(err, &broken) && !reopened && t.l.reopen(ctx, t.box.Load()) {
			reopened = true
			continue
		}
		over := errors.Is(err, ErrGone) || errors.Is(err, inside.ErrForgotten) || errors.As(err, &broken) || t.l.facts.Now().Sub(since) > t.l.p.patient.line
		if over || n == 3 {
			again, e := t.resume(ctx)
			if again {
				since, n = time.Time{}, 0
				continue
			}
			if errors.Is(e, ErrGone) {
				over, err = true, e
			}
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

// resume resumes a sandbox that does not run, and reports whether it did; the error wraps [ErrGone] if there is none any more.
func (t *connection) resume(ctx context.Context) (again bool, err error) {
	box, s := t.box.Load(), t.l.p.service
	ctx, cancel := context.WithTimeout(ctx, t.l.p.patient.create)
	defer cancel()
	now, err := s.Status(ctx, box.ID)
	sleeper, can := s.(Sleeper)
	if err != nil || now.Running || !can {
		return false, err
	}
	if now, err = sleeper.Resume(ctx, box.ID); err != nil {
		return false, err
	}
	now.Labels = box.Labels
	t.box.Store(now)
	return true, nil
}

// line carries the connection by one program that the provider executes.
func (t *connection) line(ctx context.Context, met func()) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	argv := []string{path.Join(t.l.Program, "pccrun"), inside.Verb, inside.Attach, path.Join(t.l.Program, t.l.own)}
	line, err := t.l.p.line(ctx, t.box.Load(), argv)
	if err != nil {
		return err
	}
	answered := false
	err = t.conn.Carry(line, func() { answered = true; met() })
	var broken *statusError
	if answered && errors.As(err, &broken) {
		return &CutError{err}
	}
	return err
}

// listen takes the streams that pccrun in the sandbox opens. What they carry is a request
// for no more than to print, and to hear of it.
func (t *connection) listen(ctx context.Context) {
	defer close(t.messages)
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
	bounded := &io.LimitedReader{R: control}
	in := json.NewDecoder(bounded)
	for {
		var m inside.Message
		if bounded.N = maxHeard; in.Decode(&m) != nil {
			return
		}
		select {
		case t.messages <- m:
		case <-ctx.Done():
			return
		}
	}
}

// tell passes on what happened there.
func tell(o providers.Observer, line []byte) {
	record, err := events.Parse(line)
	if err != nil {
		return
	}
	switch e := record.Event.(type) {
	case events.NetDecision:
		o.Decision(e)
	case events.NetClosed:
		o.Closed(e)
	case events.Warning:
		o.Warning(e)
	case events.Denial:
		if !strings.HasPrefix(e.Guarantee, "net.") { // of a decision, which was told
			o.Denial(e)
		}
	}
}

// refused turns what pccrun in the sandbox says into an error of this side.
func (p *plan) refused(f *inside.Refusal) error {
	name := p.command.Argv[0]
	advice := "the command gets the sandbox's programs, and the workspace is at ~/" + p.name
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
	return hint.Errorf(fix, "%s: in the sandbox: %s", p.provider.Name(), events.Clean(f.Text))
}

// resultOf is how the command ended.
func resultOf(d *inside.Done, killed bool) providers.Result {
	result := providers.Result{
		Code: d.Code, Signal: d.Signal, TimedOut: d.TimedOut, OOM: d.OOM, Killed: killed, User: d.User, System: d.System,
		Survivors: d.Survivors, Memory: d.Memory, Processes: d.Processes, Read: d.Read, Written: d.Written, IOBy: d.IOBy,
	}
	if result.Signal != 0 {
		result.Code = 0
	} else if n := d.Code - 128; n > 0 && n < 65 {
		result.Code, result.Signal = 0, n
	}
	return result
}

// ofDaemon are the guarantees that are nothing where the command reaches who executes
// commands beside pccrun.
var ofDaemon = []profiles.Guarantee{
	profiles.NetAllowlist, profiles.NetAddress, profiles.NetDNS, profiles.SysFilter, profiles.SysNoNewUserns, profiles.PrivNone, profiles.LaunchIntegrity,
}

// secretThere is what is wrong with a secret at another machine.
const secretThere = "the secret is in the memory of the provider's machine, outside of the command's reach"

// unknownDaemon is what is wrong with [Facts.Elsewhere].
const unknownDaemon = "nobody says where the provider's own daemon listens, which executes commands: the command may reach it"

// judgeTrial holds what the trial found against the policy. A run whose trial keeps less than
// the policy requires is refused, before anything of the command was there. doubt says why the command may change what a
// later run trusts, and injects whether secrets are kept from it there.
func (p *plan) judgeTrial(l *place, t *inside.Trial) (doubt string, injects bool, err error) {
	if t.Refused != nil {
		return "", false, p.refused(t.Refused)
	}
	if t.Bare != "" {
		l.warn("no namespace can be made in the sandbox, so filters and Landlock alone surround the command, which connects to nothing but the proxy and has no server: %s", events.Clean(t.Bare))
	}
	daemon := ""
	switch {
	case len(t.Reached) > 0:
		daemon = "the command can reach the provider's own daemon at " + events.Clean(strings.Join(t.Reached, ", ")) + ", which executes commands"
	case len(p.provider.facts.Daemons)+len(p.provider.facts.Sockets) > 0 && len(t.Daemons) == 0:
		daemon = "the provider's own daemon listens at none of its known ports or sockets, so pccrun cannot test whether the command reaches it"
	}
	switch doubt = doubtOf(t.Answers); {
	case daemon != "":
		doubt = daemon
	case !t.Root:
		doubt = "pccrun is not root there, and runs as the command's user"
	}
	var list []profiles.Answer
	for _, a := range p.answers {
		if i := slices.IndexFunc(t.Answers, func(o profiles.Answer) bool { return o.Guarantee == a.Guarantee }); i >= 0 && strings.HasPrefix(a.Mechanism, insideThere) {
			a = t.Answers[i]
			a.Mechanism, a.Cause = events.Clean(a.Mechanism), events.Clean(a.Cause)
		}
		if by := p.provider.facts.Keeps[a.Guarantee]; a.Guarantee == profiles.NetAllowlist && a.State == profiles.Missing && by != "" && FilterOf(&p.request).Open == "" && p.command.Install == nil {
			a = profiles.WeakBy(p.provider.Name()+" itself, by its documentation: "+by, "nobody has tried that; "+a.Cause, "")
		}
		switch {
		case daemon != "" && (slices.Contains(ofDaemon, a.Guarantee) || a.Guarantee == profiles.NetInject && len(p.policy.Network.Inject) > 0):
			a = profiles.Answer{Guarantee: a.Guarantee, State: profiles.Missing, Cause: daemon}
		case p.provider.facts.Elsewhere && a.State == profiles.Kept && slices.Contains(ofDaemon, a.Guarantee):
			a.State, a.Cause = profiles.Weak, unknownDaemon
		case a.Guarantee == profiles.NetInject && a.State == profiles.Kept && len(p.policy.Network.Inject) > 0:
			a.State, a.Cause = profiles.Weak, secretThere
		case a.Guarantee == profiles.LaunchIntegrity && !t.Root && a.State == profiles.Kept:
			a.State, a.Cause = profiles.Weak, "pccrun is not root there, and runs as the command's user"
		}
		list = append(list, a)
	}
	warnings, err := providers.Check(p.policy, list)
	for _, text := range warnings {
		l.warn("%s", text)
	}
	injects = daemon == "" && !slices.ContainsFunc(t.Answers, func(a profiles.Answer) bool { return a.Guarantee == profiles.NetInject && a.State == profiles.Missing })
	return doubt, injects, err
}
