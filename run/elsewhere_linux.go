package run

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/events"
	"github.com/pccrun/pccrun/internal/messages"
	"github.com/pccrun/pccrun/namespaces"
	"github.com/pccrun/pccrun/netproxy"
	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/providers"
	"github.com/pccrun/pccrun/sessions"
	"github.com/pccrun/pccrun/state"
	"github.com/pccrun/pccrun/survey"
	"github.com/pccrun/pccrun/terminal"
	"github.com/pccrun/pccrun/workspace/changes"
)

// elsewhere is one run at a provider that is not this machine itself: the same flow, in
// which the provider is asked for facts, a plan and a result, and for nothing else.
type elsewhere struct {
	flow
	kind  providers.Kind
	place providers.Provider
	plan  providers.Plan
	label string
	asker *asker
	seat  *seat // nil: the command has no terminal

	mu     sync.Mutex
	killed bool        // by a second Ctrl-C
	by     unix.Signal // the first that wanted the end before the command ran
}

// runElsewhere runs what the request asks for at a provider. With an error, which is for
// [launch.next] alone, nothing was run or said: it cannot be used, or would not keep what is
// required.
func runElsewhere(req *profiles.Request, program Program, c choice) (code int, passed error) {
	r := &elsewhere{flow: flow{program: program, req: req, provider: c.Name}, kind: c.Kind}
	if text, hint := unsupported(req); text != "" {
		return messages.Fail("provider "+c.Name+": "+text, hint), nil
	}
	if code := r.resolve(); code != 0 {
		return code, nil
	}
	if err := r.prepare(); err != nil {
		if c.auto {
			return 0, err
		}
		return r.refused(FailRun(err), err), nil
	}
	if req.DryRun {
		return r.print(), nil
	}
	if !req.Quiet {
		messages.Say("provider " + c.Name + " (" + c.by + ")")
	}
	r.announce()
	if err := r.begin(); err != nil {
		return r.refused(FailRun(err), err), nil
	}
	return r.follow(), nil
}

// unsupported names what a request asks for that only a run on this machine has.
func unsupported(req *profiles.Request) (text, hint string) {
	switch {
	case len(req.PassFDs) > 0:
		return "flag --pass-fd: this provider cannot pass descriptors", "--provider native"
	case req.Learn:
		return "learn: only the native provider reports what a command tries", "--provider native"
	case req.From != "":
		return "flag --from: only the native provider starts from a snapshot", "--provider native"
	case len(req.Without) > 0:
		return "flag --without: only the native provider has layers", "--provider native"
	}
	return "", ""
}

// prepare surveys this machine, asks the provider what it is, and plans the run.
func (r *elsewhere) prepare() error {
	r.workDir = r.policy.WorkDir
	if r.policy.Decide(r.workDir).Access < profiles.Read {
		r.workDir = r.policy.Workspace
	}
	var err error
	r.place, err = r.program.build(r.kind, r.req, providers.Host{Environ: r.req.Host.Environ, StateDir: r.dirs.State, CacheDir: r.dirs.Cache, Launcher: launcherFile()})
	if err != nil {
		return err
	}
	if r.req.Ask {
		r.asker = &asker{profile: r.policy.Profile, config: r.dirs.Config, work: r.policy.Workspace, root: os.Getuid() == 0, ready: make(chan struct{})}
	}
	if err := r.openHome(); err != nil {
		return err
	}
	looked, err := r.survey()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), examineWithin)
	defer cancel()
	facts, err := r.place.Examine(ctx)
	if err != nil {
		return err
	}
	if !r.req.DryRun {
		r.label = strings.ToLower(rand.Text())
	}
	command := providers.Command{Argv: r.req.Command, Env: r.policy.Environ(r.req.Host.Environ), Dir: r.workDir, Label: r.label}
	if r.plan, err = r.place.Plan(r.policy, looked, facts, command); err != nil {
		return err
	}
	r.answers = r.plan.Answers()
	warnings, err := providers.Check(r.policy, r.answers)
	for _, w := range slices.Concat(r.plan.Warnings(), warnings) {
		if !slices.Contains(r.warnings, w) {
			r.warnings = append(r.warnings, w)
		}
	}
	return err
}

// examineWithin bounds how long an engine or a cloud may take to say what it is.
const examineWithin = 30 * time.Second

// survey looks at this machine, and at what the command may write of it.
func (r *elsewhere) survey() (*providers.Survey, error) {
	found, paths, err := r.look(r.req.Ask)
	var absent *survey.ErrNotFound
	elsewhere := r.kind.Cloud || r.req.DockerImage != "" // which have programs of their own
	if found == nil || err != nil && !(elsewhere && errors.As(err, &absent)) {
		return nil, err
	}
	r.watched = &survey.Guarded{
		Policy: r.policy, Trees: append([]survey.Tree{{Query: found.Query, Found: found.Workspace}}, found.Trees...),
		Writes: func(path string) bool { return r.policy.Decide(path).Access == profiles.Write },
	}
	for path, text := range r.seeds {
		found.Places = append(found.Places, survey.Place{Path: path, Node: survey.File, Access: profiles.Read, Copied: true, Text: text, Why: "what a home begins with"})
	}
	who := namespaces.WhoAmI()
	s := &providers.Survey{UID: who.HostUID, GID: who.HostGID, Places: found.Places, Command: paths, Notes: found.Notes, Machine: found}
	for _, v := range found.Env {
		s.Env = append(s.Env, v.Entry)
	}
	return s, nil
}

// copies reports whether the command works on a copy of the workspace: nothing of this
// machine's changes then while it runs.
func (r *elsewhere) copies() bool {
	return slices.ContainsFunc(r.answers, func(a profiles.Answer) bool { return a.Guarantee == profiles.SyncUp })
}

// print is the dry run.
func (r *elsewhere) print() int {
	out := struct {
		V          int             `json:"v"`
		Schema     int             `json:"schema"`
		Provider   string          `json:"provider"`
		Profile    string          `json:"profile"`
		Workspace  string          `json:"workspace"`
		WorkDir    string          `json:"workdir"`
		Command    []string        `json:"command"`
		Warnings   []string        `json:"warnings"`
		Guarantees []guaranteeJSON `json:"guarantees"`
		Plan       any             `json:"plan"`
	}{
		V: messages.SchemaVersion, Schema: 1, Provider: r.provider, Profile: r.policy.Profile, Workspace: r.policy.Workspace, WorkDir: r.workDir,
		Command: r.req.Command, Warnings: append([]string{}, r.warnings...), Plan: r.plan.Describe(),
	}
	for _, a := range r.answers {
		out.Guarantees = append(out.Guarantees, guaranteeJSON{string(a.Guarantee), a.State.String(), a.Mechanism, a.Cause, a.Hint})
	}
	encode := func(v any) int {
		e := json.NewEncoder(messages.Stdout)
		e.SetIndent("", "  ")
		if err := e.Encode(v); err != nil {
			return messages.Fail(messages.InWords(err))
		}
		return 0
	}
	if r.req.JSON {
		return encode(out)
	}
	messages.Printf("provider   %s\nprofile    %s\nworkspace  %s\ncommand    %q in %s\n\nplan\n", out.Provider, out.Profile, out.Workspace, out.Command, out.WorkDir)
	if code := encode(out.Plan); code != 0 {
		return code
	}
	messages.Printf("\nguarantees\n")
	for _, g := range out.Guarantees {
		messages.Printf("  %-20s %-8s %s", g.Guarantee, g.State, g.Mechanism)
		if g.Cause != "" {
			messages.Printf(" (%s)", g.Cause)
		}
		messages.Printf("\n")
	}
	return 0
}

// begin makes the session, which says what will have to be found at the provider, before
// anything is made there.
func (r *elsewhere) begin() error {
	r.session = sessions.In(r.dirs.State).Begin(sessions.Info{
		Version: r.program.Version, Argv: os.Args, Workspace: r.policy.Workspace, Profile: r.policy.Profile, Provider: r.provider,
		AllowMissing: guaranteeNames(r.policy.AllowMissing),
		Resource:     &sessions.Resource{Provider: r.provider, Labels: map[string]string{providers.LabelKey: r.label}},
	})
	if err := r.openLog(); err != nil {
		return err
	}
	r.tellPlan()
	if _, err := r.session.Dir(); err != nil {
		return err
	}
	if err := r.keepOutput(); err != nil {
		return err
	}
	if r.copies() {
		return nil
	}
	if err := r.owe(); err != nil {
		return err
	}
	if r.guarded.debt != nil {
		if err := r.guarded.debt.Add(owedBy + r.provider + "\n"); err != nil {
			return err
		}
	}
	return r.guard(nil)
}

// follow starts the command and follows it to its end.
func (r *elsewhere) follow() int {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var late atomic.Bool
	if limit := r.policy.Resources.Deadline(); limit > 0 {
		// The provider keeps the time; where it does not, the run ends all the same.
		timer := time.AfterFunc(limit+graceful, func() {
			late.Store(true)
			cancel()
		})
		defer timer.Stop()
	}
	stdio, err := r.stdio()
	if err != nil {
		return r.failed(err)
	}
	signals := make(chan int, 16)
	stdio.Signals = signals
	if r.copies() {
		if stdio.Changes, err = r.session.Want(KeepUpper); err != nil {
			return r.failed(err)
		}
	}
	over := r.forward(signals, cancel)
	result, err := r.plan.Run(ctx, stdio, observer{r})
	over()
	r.seat.close()
	r.kept.tell()
	var stays interface{ Stays() }
	if errors.As(err, &stays) {
		r.session.Keep(KeepUnfetched)
	}
	r.upper, r.noted = stdio.Changes != nil && changes.Stands(stdio.Changes), sync.OnceValues(r.noteUpper)
	if err != nil {
		if !r.running.Load() || ctx.Err() == nil {
			return r.failed(err)
		}
		result = providers.Result{} // it was ended from here, and nobody counted
		if !errors.Is(err, context.Canceled) {
			messages.Say(messages.InWords(err))
		}
	}
	result.Killed = result.Killed || r.killed
	result.TimedOut = result.TimedOut || late.Load()
	code := r.status(&result, r.killed)
	r.survivors(&result)
	if r.asker != nil && r.asker.failed != nil {
		messages.Say("flag --ask: the answer was not saved: " + r.asker.failed.Error())
	}
	return r.ended(code, &result)
}

// graceful is how much longer than its time a run may last before it is ended from here.
const graceful = 15 * time.Second

// failed ends a run that did not start, or of whose end nothing is known.
func (r *elsewhere) failed(err error) int {
	if r.by == 0 {
		return r.refused(FailRun(err), err)
	}
	r.session.Drop(sessions.LogName) // nothing was printed
	code := r.refused(128+int(r.by), &interruptedError{r.by})
	endBy(r.by)
	return code
}

// stdio gives the command what pccrun itself reads and prints. Where both are a terminal the
// command gets one of its own; what it prints to the user's goes through the filter.
func (r *elsewhere) stdio() (providers.Stdio, error) {
	s := providers.Stdio{In: os.Stdin, Out: os.Stdout, Err: os.Stderr}
	if _, err := os.Stdin.Stat(); err != nil {
		s.In = nil
	}
	if terminal.IsTerminal(int(os.Stdin.Fd())) && terminal.IsTerminal(int(os.Stdout.Fd())) { // /dev/null is a device too
		seat, err := takeSeat(r.kept)
		if err != nil {
			return s, err
		}
		r.seat = seat
		if r.asker != nil {
			r.asker.relay = seat.relay
			close(r.asker.ready)
		}
		s.In, s.Out, s.Err, s.Terminal = seat.slave, seat.slave, seat.slave, seat.terminal(r.req.Host.Getenv("TERM"))
		return s, nil
	}
	if r.asker != nil {
		return s, errors.New("flag --ask: there is no terminal to ask at")
	}
	for _, out := range [...]*io.Writer{&s.Out, &s.Err} {
		if f := (*out).(*os.File); terminal.IsTerminal(int(f.Fd())) {
			*out = &filtered{to: f}
		}
		if r.kept != nil {
			*out = io.MultiWriter(*out, r.kept)
		}
	}
	return s, nil
}

// forward passes signals on to the command once it runs; before, the first ends the run in
// order. A second INT within moments ends all of it. over is called when it has ended.
func (r *elsewhere) forward(to chan<- int, cancel func()) (over func()) {
	caught := make(chan os.Signal, 16)
	signal.Notify(caught, append(slices.Clone(ends[:]), unix.SIGPIPE)...)
	LeaveSignals()
	var last time.Time
	ended, impatient := false, false
	go func() {
		for s := range caught {
			sig := s.(unix.Signal)
			r.mu.Lock()
			switch {
			case sig == unix.SIGPIPE:
			case ended && impatient:
				endBy(sig)
			case ended:
				impatient = true
			case !r.running.Load():
				r.by = sig
				cancel()
			case sig == unix.SIGINT && time.Since(last) < twice:
				r.killed = true
				cancel()
			default:
				if sig == unix.SIGINT {
					last = time.Now()
				}
				select {
				case to <- int(sig):
				default: // who takes none of sixteen takes no more
				}
			}
			r.mu.Unlock()
		}
	}()
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		ended = true
	}
}

// observer is what a provider tells of a run.
type observer struct{ run *elsewhere }

func (o observer) Created(r providers.Resource) {
	if r.Labels == nil {
		r.Labels = map[string]string{providers.LabelKey: o.run.label}
	}
	if err := o.run.session.Update(func(i *sessions.Info) { i.Resource = &r }); err != nil {
		messages.Say(messages.InWords(err))
	}
}

func (o observer) Started() {
	o.run.running.Store(true)
	o.run.log.Start()
}

func (o observer) Decision(d events.NetDecision) {
	o.run.log.Emit(d)
	o.run.log.Start()
}

func (o observer) Closed(c events.NetClosed) {
	o.run.missed.closed(c)
	o.run.log.Emit(c)
	o.run.log.Start()
}

func (o observer) Denial(d events.Denial) {
	o.run.log.Emit(d)
	o.run.log.Start()
}

func (o observer) Change(c events.Changed) {
	o.run.log.Emit(c)
	o.run.log.Start()
}

func (o observer) Warning(w events.Warning) {
	o.run.log.Emit(w)
	if o.run.req.Quiet {
		return
	}
	messages.Say(w.Text)
	if w.Hint != "" {
		messages.Say("hint: " + w.Hint)
	}
}

func (o observer) Ask(ctx context.Context, host string, port uint16) providers.Permission {
	if o.run.asker == nil {
		return netproxy.Unasked
	}
	return o.run.asker.ask(ctx, host, port)
}

// owedBy begins the line after the records of a debt that says at which provider the run has
// something: no word of a record begins so.
const owedBy = "at "

// endAt ends what a killed run left at another provider, before anybody looks at what it did.
func endAt(home sessions.Home, program Program, id string) error {
	e, err := home.Find(id)
	if errors.Is(err, sessions.ErrNoSession) {
		return nil // it ended in order, but for this
	}
	if err != nil || e.Resource == nil {
		return err
	}
	return Destroy(program, e.Resource)
}

// Inquire asks a provider what it would keep of the default policy in the current directory,
// for doctor: nothing is made there. The error says why it cannot be used, or what it misses.
func Inquire(program Program, k providers.Kind) ([]profiles.Answer, error) {
	req := &profiles.Request{Host: profiles.ThisHost(), Command: []string{"/bin/true"}, DryRun: true}
	r := &elsewhere{flow: flow{program: program, req: req, provider: k.Name}, kind: k}
	if _, err := program.build(k, req, providers.Host{Environ: req.Host.Environ}); err != nil {
		return nil, err // without a look at the workspace
	}
	var err error
	if r.policy, err = profiles.Resolve(*req); err != nil {
		return nil, err
	}
	if r.dirs, err = state.Find(req.Host.Getenv, r.policy.Home); err != nil {
		return nil, err
	}
	err = r.prepare()
	return r.answers, err
}
