//go:build unix

package run

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/events"
	"github.com/pccrun/pccrun/homes"
	"github.com/pccrun/pccrun/internal/messages"
	"github.com/pccrun/pccrun/netproxy"
	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/providers"
	"github.com/pccrun/pccrun/sessions"
	"github.com/pccrun/pccrun/state"
	"github.com/pccrun/pccrun/survey"
	"github.com/pccrun/pccrun/terminal"
)

// plain is a run where the flow of Linux is not built: the same steps, without what is Linux's, such
// as the watch over new names. A provider that denies those needs none.
type plain struct {
	req      *profiles.Request
	program  Program
	place    providers.Provider
	policy   *profiles.Policy
	dirs     state.Dirs
	home     *homes.Home
	plan     providers.Plan
	answers  []profiles.Answer
	warnings []string
	label    string
	session  *sessions.Session
	log      *events.Log
	started  atomic.Bool

	mu   sync.Mutex
	left []events.Change
}

// runPlain runs what the request asks for on this machine, and returns the status to exit with.
func runPlain(req *profiles.Request, program Program) int {
	r := &plain{req: req, program: program}
	c, err := choose(req)
	if err == nil && c.Name != providers.Native {
		err = &providers.UnusableError{Provider: c.Name, Cause: "not built for this system yet", Advice: "--provider native runs on this machine"}
	}
	if err == nil {
		err = r.unsupported()
	}
	if err == nil {
		c.Kind, err = providers.KindOf(c.Name)
	}
	if err == nil {
		err = r.prepare(c.Kind)
	}
	if r.home != nil {
		defer r.home.Close()
	}
	if err != nil {
		return r.refuse(err)
	}
	if req.DryRun {
		return r.print()
	}
	r.announce()
	return r.follow()
}

// unsupported names what a request asks for that is not built here.
func (r *plain) unsupported() error {
	req := r.req
	for _, flag := range [...]struct {
		given bool
		name  string
	}{
		{len(req.PassFDs) > 0, "--pass-fd"}, {req.From != "", "--from"}, {len(req.Without) > 0, "--without"}, {req.Ask, "--ask"},
		{req.Log, "--log"}, {req.Learn, "learn"}, {req.Runtime != "", "--runtime"}, {req.DockerImage != "", "--docker-image"},
	} {
		if flag.given {
			return fmt.Errorf("%s: not built for this system yet", flag.name)
		}
	}
	return nil
}

// prepare reads the policy, surveys this machine and plans the run.
func (r *plain) prepare(kind providers.Kind) (err error) {
	if r.policy, err = profiles.Resolve(*r.req); err != nil {
		return err
	}
	if r.dirs, err = state.Find(r.req.Host.Getenv, r.policy.Home); err != nil {
		return err
	}
	for _, dir := range [...]string{r.dirs.State, r.dirs.Cache} {
		if err := state.Outside(dir, r.policy.Workspace); err != nil {
			return err
		}
	}
	host := &r.req.Host
	if r.place, err = r.program.build(kind, r.req, providers.Host{Environ: host.Environ, StateDir: r.dirs.State, CacheDir: r.dirs.Cache, Launcher: launcherFile()}); err != nil {
		return err
	}
	if err := r.openHome(); err != nil {
		return err
	}
	o := survey.Options{Getenv: host.Getenv, Environ: host.Environ, Own: r.dirs.State}
	if r.home != nil {
		o.Home = &survey.Home{Path: r.home.Path, Dev: r.home.Dev, Ino: r.home.Ino}
	}
	if o.Command, err = survey.Programs(r.policy, r.req.Command[0], host.Environ); err != nil {
		return err
	}
	found, err := survey.LayoutOf(r.policy, o)
	if err != nil {
		return err
	}
	s := &providers.Survey{UID: os.Getuid(), GID: os.Getgid(), Places: found.Places, Command: o.Command, Notes: found.Notes, Machine: found}
	for _, v := range found.Env {
		s.Env = append(s.Env, v.Entry)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	facts, err := r.place.Examine(ctx)
	if err != nil {
		return err
	}
	if !r.req.DryRun {
		r.label = strings.ToLower(rand.Text())
	}
	dir := r.policy.WorkDir
	if r.policy.Decide(dir).Access < profiles.Read {
		dir = r.policy.Workspace
	}
	command := providers.Command{Argv: r.req.Command, Env: r.policy.Environ(host.Environ), Dir: dir, Label: r.label}
	if r.plan, err = r.place.Plan(r.policy, s, facts, command); err != nil {
		return err
	}
	r.answers = r.plan.Answers()
	warnings, err := providers.Check(r.policy, r.answers)
	r.warnings = slices.Concat(r.policy.Warnings, r.plan.Warnings(), warnings)
	return err
}

// openHome opens the home that the policy asks for, and copies into it what the profile says.
func (r *plain) openHome() (err error) {
	if r.req.DryRun || r.policy.Decide(r.policy.Home).Access != profiles.Persist || r.policy.FreshHome {
		return nil
	}
	variant := ""
	if r.policy.NoLogin {
		variant = homes.NoLogin
	}
	if r.home, err = homes.Open(r.dirs.State, r.policy.Workspace, r.policy.Source+variant, r.policy.Profile+variant); err != nil {
		return err
	}
	if err = r.home.Clear(); err == nil {
		err = r.home.Seed(r.policy)
	}
	if err == nil {
		err = r.home.Share()
	}
	r.policy.Warnings = append(r.policy.Warnings, r.home.Notes...)
	return err
}

// refuse says why the command was not run, to the user and to who reads the events.
func (r *plain) refuse(err error) int {
	code, told := messages.Refused, events.Refused{Cause: err.Error(), Hint: Hint(err)}
	var absent *survey.ErrNotFound
	var exec *providers.ExecError
	var missing *providers.MissingError
	switch {
	case errors.As(err, &absent):
		code = plainStatus(absent.Err)
	case errors.As(err, &exec):
		code = plainStatus(exec.Err)
	case errors.As(err, &missing):
		told.Guarantee = string(missing.Answer.Guarantee)
	}
	if hint := Hint(err); hint != "" {
		messages.Fail(messages.InWords(err), hint)
	} else {
		messages.FailWith(err)
	}
	if r.log != nil {
		r.log.Emit(told)
		return r.end(code, nil)
	}
	if r.req.Events == "" || r.req.DryRun {
		return code
	}
	workspace := r.req.Host.Cwd
	if r.policy != nil {
		workspace = r.policy.Workspace
	}
	if sink, bad := events.Target(r.req.Events, workspace); bad == nil {
		log := events.NewLog(sessions.NewID(time.Now()), sink)
		log.Emit(events.Start{Version: r.program.Version, Pid: os.Getpid(), Argv: events.Redact(os.Args), Provider: providers.Native})
		log.Emit(told)
		log.Emit(events.Exit{Code: code})
		_ = log.Close(time.Second)
	}
	return code
}

func plainStatus(err error) int {
	if errors.Is(err, os.ErrNotExist) {
		return 127
	}
	return 126
}

func (r *plain) announce() {
	for _, g := range r.policy.AllowMissing {
		messages.Say("guarantee " + string(g) + " may be missing: --allow-missing")
	}
	if r.req.Quiet {
		return
	}
	for _, w := range r.warnings {
		messages.Say(w)
	}
	if r.req.Verbose || r.policy.PickedBy != "default" || r.policy.Workspace != r.policy.WorkDir {
		messages.Say("profile " + r.policy.Profile + " (" + r.policy.PickedBy + "), workspace " + r.policy.Workspace)
	}
}

// print is the dry run.
func (r *plain) print() int {
	type guarantee struct {
		Guarantee string `json:"guarantee"`
		State     string `json:"state"`
		Mechanism string `json:"mechanism"`
		Cause     string `json:"cause,omitempty"`
		Hint      string `json:"hint,omitempty"`
	}
	out := struct {
		V          int         `json:"v"`
		Schema     int         `json:"schema"`
		Provider   string      `json:"provider"`
		Profile    string      `json:"profile"`
		Workspace  string      `json:"workspace"`
		Command    []string    `json:"command"`
		Warnings   []string    `json:"warnings"`
		Guarantees []guarantee `json:"guarantees"`
		Plan       any         `json:"plan"`
	}{
		messages.SchemaVersion, 1, r.place.Name(), r.policy.Profile, r.policy.Workspace, r.req.Command, append([]string{}, r.warnings...), nil, r.plan.Describe(),
	}
	for _, a := range r.answers {
		out.Guarantees = append(out.Guarantees, guarantee{string(a.Guarantee), a.State.String(), a.Mechanism, a.Cause, a.Hint})
	}
	if !r.req.JSON {
		messages.Printf("provider   %s\nprofile    %s\nworkspace  %s\ncommand    %q\n\nguarantees\n", out.Provider, out.Profile, out.Workspace, out.Command)
		for _, g := range out.Guarantees {
			cause := ""
			if g.Cause != "" {
				cause = " (" + g.Cause + ")"
			}
			messages.Printf("  %-20s %-8s %s%s\n", g.Guarantee, g.State, g.Mechanism, cause)
		}
		messages.Printf("\nplan\n")
	}
	e := json.NewEncoder(messages.Stdout)
	e.SetIndent("", "  ")
	var err error
	if r.req.JSON {
		err = e.Encode(out)
	} else {
		err = e.Encode(out.Plan)
	}
	if err != nil {
		return messages.Fail(messages.InWords(err))
	}
	return 0
}

// follow runs the command and follows it to its end.
func (r *plain) follow() int {
	names := func(list []profiles.Guarantee) (names []string) {
		for _, g := range list {
			names = append(names, string(g))
		}
		return names
	}
	allowed := names(r.policy.AllowMissing)
	r.session = sessions.In(r.dirs.State).Begin(sessions.Info{
		Version: r.program.Version, Argv: os.Args, Workspace: r.policy.Workspace, Profile: r.policy.Profile, Provider: providers.Native, AllowMissing: allowed,
		Resource: &sessions.Resource{Provider: providers.Native, Labels: map[string]string{providers.LabelKey: r.label}},
	})
	sinks := []events.Sink{r.session.Events()}
	if r.req.Events != "" {
		sink, err := events.Target(r.req.Events, r.policy.Workspace)
		if err != nil {
			return r.refuse(err)
		}
		sinks = append(sinks, sink)
	}
	r.log = events.NewLog(r.session.ID(), sinks...)
	r.log.Emit(events.Start{
		Version: r.program.Version, Pid: os.Getpid(), Argv: events.Redact(os.Args), Workspace: r.policy.Workspace,
		WorkDir: r.policy.WorkDir, Profile: r.policy.Profile, Provider: providers.Native, AllowMissing: allowed,
	})
	plan := events.Plan{}
	for _, a := range r.answers {
		plan.Guarantees = append(plan.Guarantees, events.Guarantee{Name: string(a.Guarantee), State: a.State.String(), Mechanism: a.Mechanism, Cause: a.Cause})
	}
	r.log.Emit(plan)
	if _, err := r.session.Dir(); err != nil {
		return r.refuse(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	signals, stop := r.forward(cancel)
	defer stop()
	result, err := r.plan.Run(ctx, plainStdio(signals), plainObserver{r})
	if err != nil {
		return r.refuse(err)
	}
	for _, name := range result.Survivors {
		r.log.Emit(events.Denial{Guarantee: string(profiles.ProcNoSurvivors), What: "leave behind the process " + name})
	}
	code := result.Code
	switch {
	case result.TimedOut:
		messages.Say("timed out after " + r.policy.Resources.Deadline().String())
		code = 124
	case result.Killed:
		code = 128 + int(syscall.SIGINT)
	case result.Signal != 0:
		code = 128 + result.Signal
	}
	return r.end(code, &result)
}

// plainStdio is what pccrun itself reads and prints. What goes to a terminal goes through the filter.
func plainStdio(signals <-chan int) providers.Stdio {
	s := providers.Stdio{In: os.Stdin, Out: os.Stdout, Err: os.Stderr, Signals: signals}
	if terminal.IsTerminal(int(os.Stdin.Fd())) && terminal.IsTerminal(int(os.Stdout.Fd())) {
		s.Terminal = plainTerminal()
		return s
	}
	for _, out := range [...]*io.Writer{&s.Out, &s.Err} {
		if f := (*out).(*os.File); messages.IsTerminal(f) {
			*out = &plainFiltered{to: f}
		}
	}
	return s
}

// plainTerminal is the user's, of which the command gets one of its own.
func plainTerminal() *providers.Terminal {
	resized, winch := make(chan struct{}, 1), make(chan os.Signal, 1)
	signal.Notify(winch, unix.SIGWINCH)
	go func() {
		for range winch {
			select {
			case resized <- struct{}{}:
			default:
			}
		}
	}()
	return &providers.Terminal{
		Name: os.Getenv("TERM"), Resized: resized,
		Size: func() (columns, rows int) {
			size, err := unix.IoctlGetWinsize(int(os.Stdout.Fd()), unix.TIOCGWINSZ)
			if err != nil {
				return 80, 24
			}
			return int(size.Col), int(size.Row)
		},
		Relay: func(o terminal.Options) (*terminal.Relay, error) {
			o.Terminal = int(os.Stdout.Fd())
			return terminal.Start(o)
		},
	}
}

// plainFiltered is a terminal of the user's to which a command prints that has none of its own.
type plainFiltered struct {
	to     io.Writer
	filter terminal.Filter
}

func (f *plainFiltered) Write(b []byte) (int, error) {
	_, err := f.to.Write(f.filter.Filter(b))
	return len(b), err
}

// forward passes signals on to the command once it runs; before, and a second INT within moments, ends
// all of it.
func (r *plain) forward(cancel func()) (<-chan int, func()) {
	to, caught := make(chan int, 16), make(chan os.Signal, 16)
	signal.Notify(caught, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGHUP, syscall.SIGTERM)
	go func() {
		var last time.Time
		for s := range caught {
			sig := s.(syscall.Signal) // of those below 16, which Linux numbers as all do
			if !r.started.Load() || sig == syscall.SIGINT && time.Since(last) < 5*time.Second {
				cancel()
				continue
			}
			if sig == syscall.SIGINT {
				last = time.Now()
			}
			select {
			case to <- int(sig):
			default:
			}
		}
	}()
	return to, func() { signal.Stop(caught); close(caught) }
}

// end writes the last events, says what was denied, and ends the session.
func (r *plain) end(code int, result *providers.Result) int {
	total, distinct := r.log.Denied()
	exit := events.Exit{Code: code, Denials: total, Changed: r.left}
	if result != nil {
		exit.TimedOut, exit.WallMS = result.TimedOut, result.Wall.Milliseconds()
		exit.UserMS, exit.SystemMS, exit.IOBy = result.User.Milliseconds(), result.System.Milliseconds(), result.IOBy
	}
	if total > 0 {
		r.session.Keep("denials")
	}
	if !r.req.Quiet {
		const most = 10
		for i, d := range distinct {
			if i == most {
				messages.Say(fmt.Sprintf("denied: %d more, see pccrun denials", len(distinct)-most))
				break
			}
			text := "denied: " + d.What
			if d.Hint != "" {
				text += ", allowed by " + d.Hint
			}
			messages.Say(text)
		}
	}
	r.log.Emit(exit)
	if err := errors.Join(r.session.Settle(), r.log.Close(time.Second), r.session.End(code)); err != nil && !r.req.Quiet {
		messages.Say(messages.InWords(err))
	}
	return code
}

// plainObserver is what a provider tells of a run.
type plainObserver struct{ run *plain }

func (o plainObserver) emit(e events.Event) {
	o.run.log.Emit(e)
	o.run.log.Start()
}

func (o plainObserver) Created(res providers.Resource) {
	if err := o.run.session.Update(func(i *sessions.Info) { i.Resource = &res }); err != nil {
		messages.Say(messages.InWords(err))
	}
}

func (o plainObserver) Started() {
	o.run.started.Store(true)
	o.run.log.Start()
}

func (o plainObserver) Decision(d events.NetDecision) { o.emit(d) }
func (o plainObserver) Closed(c events.NetClosed)     { o.emit(c) }
func (o plainObserver) Denial(d events.Denial)        { o.emit(d) }

func (o plainObserver) Change(c events.Changed) {
	o.emit(c)
	path := c.Path
	if rel, err := filepath.Rel(o.run.policy.Workspace, c.Path); err == nil && filepath.IsLocal(rel) {
		path = rel
	}
	o.run.mu.Lock()
	o.run.session.Keep(KeepChanges)
	o.run.left = append(o.run.left, events.Change{Path: path, Kind: c.Kind})
	o.run.mu.Unlock()
	if !o.run.req.Quiet {
		messages.Say(c.What + ": " + path + " (review " + c.Why + ")")
	}
}

func (o plainObserver) Warning(w events.Warning) {
	o.run.log.Emit(w)
	if !o.run.req.Quiet {
		messages.Say(w.Text)
	}
}

func (plainObserver) Ask(context.Context, string, uint16) providers.Permission {
	return netproxy.Unasked
}
