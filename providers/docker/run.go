//go:build unix

package docker

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/yamux"
	"github.com/moby/moby/api/pkg/stdcopy"
	"github.com/moby/moby/api/types/mount"
	"github.com/moby/moby/client"
	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/internal/egress"
	"github.com/pccrun/pccrun/internal/events"
	"github.com/pccrun/pccrun/internal/state"
	"github.com/pccrun/pccrun/providers"
	"github.com/pccrun/pccrun/providers/inside"
)

// grace is how long the command has between TERM and KILL when its time is up, and
// patience how long the engine has to take away what has ended.
const (
	grace    = 5 * time.Second
	patience = 20 * time.Second
)

// running is a run under way.
type running struct {
	plan     plan // a copy, to which the run adds what it alone knows
	egress   *egress.Plan
	io       providers.Stdio
	observer providers.Observer
	id       string
	session  *yamux.Session
	oom      atomic.Bool
	started  atomic.Bool
	streams  *inside.Streams // of the command
	gateway  *gateway        // nil: a network of the engine's
	others   inside.Executions

	mu      sync.Mutex
	control *json.Encoder
}

// Run carries the plan out.
func (r *plan) Run(ctx context.Context, io providers.Stdio, o providers.Observer) (result providers.Result, err error) {
	if r.label == "" {
		return result, errors.New("BUG: docker: a plan that is only looked at is run")
	}
	begun := time.Now()
	run := &running{plan: *r, io: io, observer: o}
	run.others.Say = run.say
	if err := run.planEgress(); err != nil {
		return result, err
	}
	if run.egress != nil {
		defer run.egress.Abandon()
	}
	defer func() { err = errors.Join(err, state.RemovePath(r.dir)) }()
	if err := run.plan.makeFiles(); err != nil {
		return result, err
	}
	if err := run.readBirthTimes(); err != nil {
		return result, err
	}
	if err := r.provider.image(ctx, r.config.Image, r.layer); err != nil {
		return result, err
	}
	for again := true; again; {
		run.dropGone()
		if run.id, err = run.plan.create(ctx); err != nil {
			return result, err
		}
		o.Created(providers.Resource{Provider: Name, ID: run.id, Labels: r.config.Labels})
		result, err = run.follow(ctx)
		var e *EngineError
		again = errors.As(err, &e) && e.unmade && run.dropGone()
		if left := r.remove(run.id); left != nil {
			return result, errors.Join(err, left)
		}
	}
	result.Wall = time.Since(begun)
	return result, err
}

// dropGone leaves out the covers of what is gone since the survey, a server's socket for
// example, on which nothing could be mounted; it reports whether there were any.
func (r *running) dropGone() bool {
	before := len(r.plan.host.Mounts)
	r.plan.host.Mounts = slices.DeleteFunc(slices.Clone(r.plan.host.Mounts), func(m mount.Mount) bool {
		return r.plan.mayBeGone[m.Target] && !exists(m.Target)
	})
	return len(r.plan.host.Mounts) < before
}

// create has the container made, which is the trial of whether the engine sees the
// files of this machine.
func (r *plan) create(ctx context.Context) (string, error) {
	made, err := r.provider.client.ContainerCreate(
		ctx,
		client.ContainerCreateOptions{Config: &r.config, HostConfig: &r.host, Name: "pccrun-" + r.label},
	)
	if err == nil {
		return made.ID, nil
	}
	text := err.Error()
	switch {
	case !r.facts.VM && strings.Contains(text, "bind source path does not exist: "+filepath.Join(r.dir, canaryName)):
		return "", otherMachine(r.provider.address, nil)
	case strings.Contains(text, "already in use"):
		return "", &EngineError{
			Text:   "the name pccrun-" + r.label + " is taken",
			Advice: "pccrun gc removes what a run left",
			Err:    plain(err),
		}
	case client.IsErrConnectionFailed(err):
		return "", r.provider.unreached(err)
	}
	return "", r.refused("create the container", err)
}

// notShared says that a virtual machine does not have what is to be shown.
func (r *plan) notShared(err error) *EngineError {
	return &EngineError{
		Text:   "the virtual machine of " + r.provider.address + " does not have each directory that the run shows",
		Advice: "share " + r.policy.Workspace + " and " + r.provider.host.StateDir + " with it: Docker Desktop's file sharing, or colima start --mount DIR:w",
		Err:    plain(err),
	}
}

// refused says what the engine would not do.
func (r *plan) refused(what string, err error) *EngineError {
	if text := err.Error(); r.facts.VM && (strings.Contains(text, "bind source path does not exist: ") || strings.Contains(text, "Mounts denied")) {
		return r.notShared(err) // as Colima's and Docker Desktop's engines say it
	}
	e := &EngineError{Text: what, Err: plain(err)}
	if strings.Contains(err.Error(), "no space left on device") {
		e.Advice = "the engine's disk is full: docker system prune frees what it keeps in " + r.facts.DataRoot
	}
	return e
}

// remove takes the container away. The engine may be at it already: it removes what has
// ended, and is asked until it has.
func (r *plan) remove(id string) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for {
		_, err := r.provider.client.ContainerRemove(
			ctx,
			id,
			client.ContainerRemoveOptions{Force: true, RemoveVolumes: true},
		)
		switch {
		case err == nil, notFound(err):
			return nil
		case client.IsErrConnectionFailed(err):
			_ = os.Truncate(filepath.Join(r.dir, canaryName), 0) // by which pid 1 knows
			return waitUntilGone(ctx, id)
		}
		select {
		case <-ctx.Done():
			return &EngineError{
				Text:   "remove the container " + id[:12],
				Advice: "docker rm -f " + id[:12],
				Err:    plain(err),
			}
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// waitUntilGone waits until nothing of a container runs, of which no engine can say.
func waitUntilGone(ctx context.Context, id string) error {
	for {
		groups, err := filepath.Glob("/proc/[0-9]*/cgroup")
		if err != nil || !slices.ContainsFunc(groups, func(name string) bool {
			text, _ := os.ReadFile(name)
			return bytes.Contains(text, []byte(id))
		}) {
			return err
		}
		select {
		case <-ctx.Done():
			return &EngineError{
				Text:   "the engine is gone, and the container " + id[:12] + " still runs",
				Advice: "start the engine, then docker rm -f " + id[:12],
			}
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// complaints keeps the beginning of what pid 1 itself prints as errors.
type complaints struct {
	mu   sync.Mutex
	text []byte
}

func (c *complaints) Write(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if room := 4096 - len(c.text); room > 0 {
		c.text = append(c.text, b[:min(room, len(b))]...)
	}
	return len(b), nil
}

func (c *complaints) String() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	line, _, _ := strings.Cut(strings.TrimPrefix(string(c.text), "pccrun: "), "\n")
	return line
}

// follow starts the container and follows it to its end.
func (r *running) follow(ctx context.Context) (result providers.Result, err error) {
	c := r.plan.provider.client
	attached, err := c.ContainerAttach(
		ctx,
		r.id,
		client.ContainerAttachOptions{Stream: true, Stdin: true, Stdout: true, Stderr: true},
	)
	if err != nil {
		// Podman sets it up to attach to it, and says why that failed when it is started.
		if _, why := c.ContainerStart(ctx, r.id, client.ContainerStartOptions{}); why != nil {
			err = why
		}
		e := r.plan.refused("attach to the container", err)
		e.unmade = true
		return result, e
	}
	defer attached.Close()
	var said complaints
	out, in := io.Pipe()
	go func() {
		_, err := stdcopy.StdCopy(in, &said, attached.Reader)
		if err == nil {
			err = io.EOF
		}
		in.CloseWithError(err)
	}()
	watching, cancel := context.WithCancel(context.Background())
	defer cancel()
	go r.watch(watching)
	if _, err := c.ContainerStart(ctx, r.id, client.ContainerStartOptions{}); err != nil {
		e := r.plan.refused("start the container", err)
		e.unmade = true
		return result, e
	}
	connection := struct {
		io.Reader
		io.WriteCloser
	}{out, attached.Conn}
	if r.session, err = yamux.Client(connection, inside.Config()); err != nil {
		return result, err
	}
	defer r.session.Close()
	stop := context.AfterFunc(ctx, func() { r.kill() })
	defer stop()
	end, err := r.execute(ctx)
	r.others.End()
	switch {
	case err == nil && end != nil:
		r.streams.Wait() // readers may take their time
		killed := end.Signal == int(unix.SIGKILL) || end.Code == 128+int(unix.SIGKILL)
		return providers.Result{
			Code: end.Code, Signal: end.Signal, TimedOut: end.TimedOut, OOM: r.ranOut(killed), User: end.User, System: end.System, Survivors: end.Survivors,
		}, nil
	case ctx.Err() != nil:
		return providers.Result{Killed: true, Signal: int(unix.SIGKILL)}, nil
	case r.oom.Load():
		return providers.Result{OOM: true, Signal: int(unix.SIGKILL)}, nil
	case err != nil:
		return result, err
	}
	e := &EngineError{Text: "the container ended before the command did"}
	defer func() {
		if r.started.Load() { // and was ended with it: 125 would say that it never ran
			var text *EngineError
			if errors.As(err, &text) {
				r.observer.Warning(events.Warning{Text: text.Error(), Hint: text.Advice})
			}
			result, err = providers.Result{Killed: true, Signal: int(unix.SIGKILL)}, nil
		}
	}()
	if line := said.String(); line != "" {
		e.Err = errors.New(line)
	} else if _, ping := c.Ping(context.Background(), client.PingOptions{}); ping != nil {
		e.Text = "the engine stopped during the run, and the container with it"
	}
	return result, e
}

// engineLate is how much later than a command's end the engine says, at most, why the kernel killed it: on a busy machine that
// takes seconds, which only who was killed waits for.
const engineLate = 3 * time.Second

// ranOut reports whether memory ran out; of what was killed the engine may still have to say so.
func (r *running) ranOut(killed bool) bool {
	for late := time.Duration(0); killed && !r.oom.Load() && late < engineLate; late += engineLate / 50 {
		time.Sleep(engineLate / 50)
	}
	return r.oom.Load()
}

// watch notes when memory ran out in the container.
func (r *running) watch(ctx context.Context) {
	events := r.plan.provider.client.Events(
		ctx,
		client.EventsListOptions{Filters: make(client.Filters).Add("container", r.id).Add("event", "oom")},
	)
	for {
		select {
		case _, ok := <-events.Messages:
			if !ok {
				return
			}
			r.oom.Store(true)
		case <-events.Err:
			return
		case <-ctx.Done():
			return
		}
	}
}

// kill ends the container.
func (r *running) kill() {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	_, _ = r.plan.provider.client.ContainerKill(ctx, r.id, client.ContainerKillOptions{Signal: "KILL"})
	_ = r.session.Close()
}

// execute gives pid 1 the plan, and returns how the command ended; nil where the
// connection ended before.
func (r *running) execute(ctx context.Context) (*inside.Ended, error) {
	opened, kind, err := inside.Accept(r.session)
	if err != nil {
		return nil, nil
	}
	if kind != inside.Control {
		return nil, fmt.Errorf("BUG: docker: the first stream is of kind %q", kind)
	}
	in := json.NewDecoder(opened)
	r.control = json.NewEncoder(opened)
	r.plan.inside.Stdin = r.io.In != nil
	if t := r.io.Terminal; t != nil {
		r.plan.inside.Terminal = true
		r.plan.inside.Columns, r.plan.inside.Rows = t.Size()
	}
	for {
		var m inside.Message
		if err := in.Decode(&m); err != nil {
			return nil, nil
		}
		switch {
		case m.Hello != nil && m.Hello.Version != inside.Version:
			return nil, fmt.Errorf("BUG: docker: pid 1 speaks version %d", m.Hello.Version)
		case m.Hello != nil:
			r.say(inside.Message{Plan: &r.plan.inside})
		case m.Ready != nil:
			if err := r.judge(m.Ready); err != nil {
				return nil, err
			}
			if r.egress != nil {
				if r.gateway, err = r.serve(ctx); err != nil {
					return nil, err
				}
				defer r.gateway.close()
			}
			r.streams = inside.NewStreams(r.io)
			go r.join()
			r.say(inside.Message{Go: true})
		case m.Started:
			r.started.Store(true)
			r.plan.provider.running.Store(r)
			r.observer.Started()
			go inside.Forward(r.io, r.session.CloseChan(), func(number int) {
				r.say(inside.Message{Signal: number})
			}, func(columns, rows int) {
				r.say(inside.Message{Size: &[2]int{columns, rows}})
			})
		case m.Exec != nil:
			r.others.Hear(m.Exec)
		case m.Failed != nil:
			return nil, r.failed(m.Failed, string(r.plan.inside.Argv[0]))
		case m.Ended != nil && r.started.Load():
			return m.Ended, nil
		}
	}
}

func (r *running) say(m inside.Message) {
	r.mu.Lock()
	defer r.mu.Unlock()
	_ = r.control.Encode(m) // a container that is gone ends the session
}

// Exec starts another command: pid 1 does, as it has started the first.
func (r *plan) Exec(ctx context.Context, argv, files []string, stdio providers.Stdio) (providers.Result, error) {
	run := r.provider.running.Load()
	if r.provider.options.Image != "" {
		files = nil // it has its own
	}
	result, failed, err := run.others.Exec(ctx, argv, files, stdio)
	if failed != nil {
		err = run.failed(failed, argv[0])
	}
	return result, err
}

// judge holds what the container lets be applied against what was planned: one that
// keeps less is a start that came to nothing.
func (r *running) judge(ready *inside.Ready) error {
	less := func(what string) error {
		return &EngineError{Text: "the container keeps fewer guarantees than planned: " + what}
	}
	gvisor := strings.Contains(strings.ToLower(ready.Kernel), "gvisor")
	switch {
	case ready.Canary != r.plan.label && r.plan.facts.VM:
		return r.plan.notShared(nil)
	case ready.Canary != r.plan.label:
		return otherMachine(r.plan.provider.address, nil)
	case ready.UID != r.plan.uid:
		return less(fmt.Sprintf("pid 1 has user %d", ready.UID))
	case ready.Caps != 0:
		return less(fmt.Sprintf("pid 1 has the capabilities %#x", ready.Caps))
	case !ready.Filter:
		return less("no seccomp filter can be loaded")
	case r.plan.runsc() && !gvisor:
		return less("the runtime " + r.plan.provider.options.Runtime + " is not gVisor: its kernel is " + ready.Kernel)
	case !r.plan.runsc() && !gvisor && ready.Landlock < r.plan.facts.Landlock:
		return less(fmt.Sprintf("Landlock has version %d, and %d on this machine", ready.Landlock, r.plan.facts.Landlock))
	}
	return nil
}

// failed turns what pid 1 says into an error of this side.
func (r *running) failed(f *inside.Failed, command string) error {
	if f.Exec {
		err := &providers.ExecError{Name: command, Err: unix.Errno(f.Errno)}
		if image := r.plan.provider.options.Image; image != "" {
			err.Name = "the image " + image + ": " + err.Name
			err.Advice = "it is searched in the image, by the PATH of the command"
		}
		return err
	}
	return &EngineError{Text: f.Step, Err: errors.New(f.Text)}
}

// join joins what the command has with what it has here. The command's processes
// reach none of it but by reading, writing and connecting: what pid 1 opens is what
// it was asked for.
func (r *running) join() {
	for {
		s, kind, err := inside.Accept(r.session)
		switch {
		case err != nil:
			r.streams.Lost()
			return
		case kind == inside.Executed:
			r.others.Stream(s)
		case r.gateway == nil || !r.gateway.join(s, kind):
			r.streams.Join(s, kind)
		}
	}
}

// Find lists the containers that bear a label, and what was made on this machine for
// those that are gone.
func (p *Provider) Find(ctx context.Context, label string) (list []providers.Resource, err error) {
	want := providers.LabelKey
	if label != "" {
		want += "=" + label
	}
	found, err := p.client.ContainerList(
		ctx,
		client.ContainerListOptions{All: true, Filters: make(client.Filters).Add("label", want)},
	)
	if err != nil {
		return nil, p.unreached(err)
	}
	for _, c := range found.Items {
		list = append(list, providers.Resource{Provider: Name, ID: c.ID, Labels: c.Labels})
	}
	entries, err := os.ReadDir(filepath.Join(p.host.StateDir, "docker"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	for _, e := range entries {
		own := map[string]string{providers.LabelKey: e.Name()}
		stands := slices.ContainsFunc(
			list,
			func(r providers.Resource) bool { return r.Labels[providers.LabelKey] == e.Name() },
		)
		if (label == "" || label == e.Name()) && !stands {
			list = append(list, providers.Resource{Provider: Name, Labels: own})
		}
	}
	return list, nil
}

// Destroy ends a container and takes away what was made for it.
func (p *Provider) Destroy(ctx context.Context, res providers.Resource) error {
	if res.ID != "" {
		if err := (&plan{provider: p}).remove(res.ID); err != nil {
			return err
		}
	}
	if label := res.Labels[providers.LabelKey]; label != "" && filepath.IsLocal(label) &&
		filepath.Base(label) == label {
		return state.RemovePath(filepath.Join(p.host.StateDir, "docker", label))
	}
	return nil
}

var (
	_ providers.Provider = (*Provider)(nil)
	_ providers.Executor = (*plan)(nil)
)
