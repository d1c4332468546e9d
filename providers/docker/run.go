//go:build unix

package docker

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
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
	"github.com/pccrun/pccrun/internal/survey"
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
	plan     // a copy, to which the run adds what it alone knows
	egress   *egress.Plan
	io       providers.Stdio
	observer providers.Observer
	id       string
	session  *yamux.Session
	bulk     *inside.Bulk // nil: all goes over the engine's stream
	oom      atomic.Bool
	started  atomic.Bool
	printed  sync.WaitGroup // what the command prints
	way      *way
	door     *door // nil: connections come as streams
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
	if err := run.leave(); err != nil {
		return result, err
	}
	if run.egress != nil {
		defer run.egress.Abandon()
	}
	defer func() { err = errors.Join(err, state.RemovePath(r.dir)) }()
	if run.lends() {
		run.need()
	}
	if err := run.furnish(); err != nil {
		return result, err
	}
	if err := run.open(); err != nil {
		return result, err
	}
	if run.door != nil {
		defer run.door.listener.Close()
	}
	if err := run.births(); err != nil {
		return result, err
	}
	if err := r.provider.image(ctx, r.config.Image, r.layer); err != nil {
		return result, err
	}
	for again := true; again; {
		run.forget()
		if run.id, err = run.create(ctx); err != nil {
			return result, err
		}
		o.Created(providers.Resource{Provider: Name, ID: run.id, Labels: r.config.Labels})
		result, err = run.follow(ctx)
		var e *EngineError
		again = errors.As(err, &e) && e.unmade && run.forget()
		if left := r.remove(run.id); left != nil {
			return result, errors.Join(err, left)
		}
	}
	result.Wall = time.Since(begun)
	return result, err
}

// forget leaves out the covers of what is gone since the survey, a server's socket for
// example, on which nothing could be mounted; it reports whether there were any.
func (r *running) forget() bool {
	before := len(r.host.Mounts)
	r.host.Mounts = slices.DeleteFunc(slices.Clone(r.host.Mounts), func(m mount.Mount) bool {
		return r.fleeting[m.Target] && !exists(m.Target)
	})
	return len(r.host.Mounts) < before
}

// furnish makes the files that the engine binds.
func (r *plan) furnish() error {
	if err := os.MkdirAll(filepath.Dir(r.dir), 0o700); err != nil {
		return err
	}
	if err := os.Mkdir(r.dir, 0o700); err != nil {
		return err
	}
	for _, f := range r.files {
		if err := f.make(filepath.Join(r.dir, f.Name)); err != nil {
			return err
		}
	}
	if share := r.inside.Share; share != nil {
		var st unix.Stat_t
		if err := unix.Stat(filepath.Join(r.dir, canaryName), &st); err != nil {
			return &os.PathError{Op: "stat", Path: filepath.Join(r.dir, canaryName), Err: err}
		}
		share.Ino = st.Ino
	}
	r.inside.Umask = umask()
	return r.furnishHome()
}

// furnishHome makes the names in a persistent home that something is mounted on: the
// engine would make them root's. What an earlier run has put in the way is left alone,
// and named: a link of its own could lead anywhere.
func (r *plan) furnishHome() error {
	if r.home == "" {
		return nil
	}
	root, err := os.OpenRoot(r.home)
	if err != nil {
		return err
	}
	defer root.Close()
	for _, s := range r.homes { // parents first
		info, err := root.Lstat(s.Name)
		switch {
		case err == nil && info.Mode().Type() == map[survey.Node]os.FileMode{survey.Directory: os.ModeDir, survey.Link: os.ModeSymlink}[s.Node]:
		case err == nil:
			return &EngineError{
				Text:   "~/" + s.Name + " in the persistent home blocks a mount; an earlier run made it",
				Advice: "pccrun home lists the homes; remove " + filepath.Join(r.home, s.Name),
			}
		case !errors.Is(err, os.ErrNotExist):
			return err
		case s.Node == survey.Directory:
			err = root.Mkdir(s.Name, os.FileMode(stubMode(s)))
		case s.Node == survey.Link:
			err = root.Symlink(s.Link, s.Name)
		default:
			err = root.WriteFile(s.Name, []byte(s.Text), 0o644)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (f *file) make(path string) error {
	switch {
	case f.Dir:
		if err := os.MkdirAll(path, 0o755); err != nil {
			return err
		}
	case f.Link != "":
		return os.Symlink(f.Link, path)
	case f.Copy != "":
		if err := copyFile(f.Copy, path); err != nil {
			return err
		}
	default:
		if err := os.WriteFile(path, []byte(f.Text), 0o600); err != nil {
			return err
		}
	}
	return os.Chmod(path, os.FileMode(f.Mode)) // whatever the umask is
}

func copyFile(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}

// umask returns this process's, which only Linux's /proc says without a change of it.
func umask() int {
	text, _ := os.ReadFile("/proc/self/status")
	_, after, ok := strings.Cut(string(text), "\nUmask:")
	mask := 0o022
	if ok {
		_, _ = fmt.Sscanf(after, "%o", &mask)
	}
	return mask
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
		return "", elsewhere(r.provider.address, nil)
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

// unshared says that a virtual machine does not have what is to be shown.
func (r *plan) unshared(err error) *EngineError {
	return &EngineError{
		Text:   "the virtual machine of " + r.provider.address + " does not have each directory that the run shows",
		Advice: "share " + r.policy.Workspace + " and " + r.provider.host.StateDir + " with it: Docker Desktop's file sharing, or colima start --mount DIR:w",
		Err:    plain(err),
	}
}

// refused says what the engine would not do.
func (r *plan) refused(what string, err error) *EngineError {
	if text := err.Error(); r.facts.VM && (strings.Contains(text, "bind source path does not exist: ") || strings.Contains(text, "Mounts denied")) {
		return r.unshared(err) // as Colima's and Docker Desktop's engines say it
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
			return outlive(ctx, id)
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

// outlive waits until nothing of a container runs, of which no engine can say.
func outlive(ctx context.Context, id string) error {
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

// stream is the connection to pid 1 over what the engine attaches.
type stream struct {
	io.Reader
	client.HijackedResponse
}

func (s *stream) Read(b []byte) (int, error)  { return s.Reader.Read(b) }
func (s *stream) Write(b []byte) (int, error) { return s.Conn.Write(b) }
func (s *stream) Close() error                { return s.Conn.Close() }

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
	c := r.provider.client
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
		e := r.refused("attach to the container", err)
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
	var conn io.ReadWriteCloser = &stream{out, attached.HijackedResponse}
	if r.runsc() {
		if conn, err = r.share(conn); err != nil {
			return result, err
		}
		defer conn.Close()
	}
	watching, cancel := context.WithCancel(context.Background())
	defer cancel()
	go r.watch(watching)
	if _, err := c.ContainerStart(ctx, r.id, client.ContainerStartOptions{}); err != nil {
		e := r.refused("start the container", err)
		e.unmade = true
		return result, e
	}
	if r.session, err = yamux.Client(conn, inside.Config()); err != nil {
		return result, err
	}
	defer r.session.Close()
	stop := context.AfterFunc(ctx, func() { r.kill() })
	defer stop()
	end, err := r.talk(ctx)
	r.others.End()
	switch {
	case err == nil && end != nil:
		r.printed.Wait() // all of it is here, and with readers who take their time
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

// share has large writes go through a file that pid 1 has too.
func (r *running) share(conn io.ReadWriteCloser) (io.ReadWriteCloser, error) {
	file, err := os.OpenFile(filepath.Join(r.dir, bulkName), os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	if err := file.Truncate(inside.BulkSize); err != nil {
		file.Close()
		return nil, err
	}
	r.bulk = inside.NewBulk(conn, file, true)
	return r.bulk, nil
}

// engineLate is how much later than a command's end the engine says why the kernel killed it.
const engineLate = 500 * time.Millisecond

// ranOut reports whether memory ran out; of what was killed the engine may still have to say so.
func (r *running) ranOut(killed bool) bool {
	for late := time.Duration(0); killed && !r.oom.Load() && late < engineLate; late += engineLate / 50 {
		time.Sleep(engineLate / 50)
	}
	return r.oom.Load()
}

// watch notes when memory ran out in the container.
func (r *running) watch(ctx context.Context) {
	events := r.provider.client.Events(
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
	_, _ = r.provider.client.ContainerKill(ctx, r.id, client.ContainerKillOptions{Signal: "KILL"})
	_ = r.session.Close()
}

// talk gives pid 1 the plan, and returns how the command ended; nil where the
// connection ended before.
func (r *running) talk(ctx context.Context) (*inside.Ended, error) {
	opened, kind, err := r.accept()
	if err != nil {
		return nil, nil
	}
	if kind != inside.Control {
		return nil, fmt.Errorf("BUG: docker: the first stream is of kind %q", kind)
	}
	in := json.NewDecoder(opened)
	r.control = json.NewEncoder(opened)
	r.inside.Stdin = r.io.In != nil
	if t := r.io.Terminal; t != nil {
		r.inside.Terminal = true
		r.inside.Columns, r.inside.Rows = t.Size()
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
			if err := r.lend(); err != nil {
				return nil, err
			}
			if r.bulk != nil {
				if err := r.bulk.Challenge(r.label); err != nil {
					return nil, err
				}
			}
			r.say(inside.Message{Plan: &r.inside})
		case m.Ready != nil:
			if err := r.judge(m.Ready); err != nil {
				return nil, err
			}
			if r.bulk != nil {
				r.bulk.Use()
			}
			if r.egress != nil {
				if r.way, err = r.serve(ctx); err != nil {
					return nil, err
				}
				defer r.way.close()
			}
			expected := 2 // of what the command prints
			if r.inside.Terminal {
				expected = 1
			}
			r.printed.Add(expected) // before the end of the command can be heard
			go r.streams(ctx, expected)
			r.say(inside.Message{Go: true})
		case m.Started:
			r.started.Store(true)
			r.provider.running.Store(r)
			r.observer.Started()
			go r.forward()
		case m.Exec != nil:
			r.others.Hear(m.Exec)
		case m.Failed != nil:
			return nil, r.failed(m.Failed, string(r.inside.Argv[0]))
		case m.Ended != nil:
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
	case ready.Canary != r.label && r.facts.VM:
		return r.unshared(nil)
	case ready.Canary != r.label:
		return elsewhere(r.provider.address, nil)
	case ready.UID != r.uid:
		return less(fmt.Sprintf("pid 1 has user %d", ready.UID))
	case ready.Caps != 0:
		return less(fmt.Sprintf("pid 1 has the capabilities %#x", ready.Caps))
	case !ready.Filter:
		return less("no seccomp filter can be loaded")
	case r.bulk != nil && !r.bulk.Answered(r.label):
		return less("a file does not change inside when it changes outside")
	case r.runsc() && !gvisor:
		return less("the runtime " + r.provider.options.Runtime + " is not gVisor: its kernel is " + ready.Kernel)
	case !r.runsc() && !gvisor && ready.Landlock < r.facts.Landlock:
		return less(fmt.Sprintf("Landlock has version %d, and %d on this machine", ready.Landlock, r.facts.Landlock))
	}
	return nil
}

// failed turns what pid 1 says into an error of this side.
func (r *running) failed(f *inside.Failed, command string) error {
	if f.Exec {
		err := &providers.ExecError{Name: command, Err: unix.Errno(f.Errno)}
		if image := r.provider.options.Image; image != "" {
			err.Name = "the image " + image + ": " + err.Name
			err.Advice = "it is searched in the image, by the PATH of the command"
		}
		return err
	}
	return &EngineError{Text: f.Step, Err: errors.New(f.Text)}
}

// accept takes the next stream and reads its kind.
func (r *running) accept() (*yamux.Stream, inside.Kind, error) {
	s, err := r.session.AcceptStream()
	if err != nil {
		return nil, 0, err
	}
	var kind [1]byte
	_, err = io.ReadFull(s, kind[:])
	return s, inside.Kind(kind[0]), err
}

// streams joins what the command has with what it has here. The command's processes
// reach none of it but by reading, writing and connecting: what pid 1 opens is what
// it was asked for.
func (r *running) streams(ctx context.Context, expected int) {
	for {
		s, kind, err := r.accept()
		if err != nil {
			r.printed.Add(-expected)
			return
		}
		if (r.way == nil || r.door != nil) && (kind == inside.Connection || kind == inside.Captured || kind == inside.Questions) {
			kind = 0 // pid 1 was asked for none of them
		}
		if kind == inside.Stdout || kind == inside.Stderr || kind == inside.Terminal {
			expected--
		}
		switch kind {
		case inside.Stdin:
			go func() {
				_, _ = io.Copy(s, r.io.In)
				_ = s.Close()
			}()
		case inside.Stdout:
			r.print(s, r.io.Out)
		case inside.Stderr:
			r.print(s, r.io.Err)
		case inside.Terminal:
			if r.io.In != nil {
				go func() {
					_, _ = io.Copy(s, r.io.In)
				}()
			}
			r.print(s, r.io.Out)
		case inside.Connection:
			go r.way.take(ctx, s)
		case inside.Captured:
			go r.way.takeCaptured(s)
		case inside.Executed:
			r.others.Stream(s)
		case inside.Questions:
			r.way.service.Questions(ctx, &questions{Stream: s})
		default:
			_ = s.Close()
		}
	}
}

// print passes on what the command prints.
func (r *running) print(s net.Conn, w io.Writer) {
	go func() {
		defer r.printed.Done()
		if w == nil {
			w = io.Discard
		}
		_, _ = io.Copy(w, s)
		_ = s.Close()
	}()
}

// forward passes signals and sizes on while the command runs.
func (r *running) forward() {
	var resized <-chan struct{}
	if r.io.Terminal != nil {
		resized = r.io.Terminal.Resized
	}
	for {
		select {
		case sig, ok := <-r.io.Signals:
			if !ok {
				r.io.Signals = nil
				continue
			}
			r.say(inside.Message{Signal: sig})
		case <-resized:
			columns, rows := r.io.Terminal.Size()
			r.say(inside.Message{Size: &[2]int{columns, rows}})
		case <-r.session.CloseChan():
			return
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
