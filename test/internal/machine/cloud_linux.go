package machine

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/internal/await"
	"github.com/pccrun/pccrun/test/internal/faults"
)

// Cloud is what the servers share that behave as providers of sandboxes do: sandboxes with homes,
// machines and daemons, calls that are counted, and faults. T is what one of them runs.
type Cloud[T any] struct {
	URL string
	Setting

	about   CloudOptions[T]
	http    *httptest.Server
	dir     string
	local   net.Listener // where the daemons would listen in machines of their own
	removed sync.WaitGroup

	mu    sync.Mutex
	boxes map[string]*Sandbox[T]
	next  int
	calls []string // method and path of each
	took  atomic.Int64
	fault func(r *http.Request) *faults.Fault
	made  []map[string]any // the bodies of requests to create
}

// A Setting is how a test has sandboxes be.
type Setting struct {
	Path string // a directory that stands first in the PATH of what is executed

	// Of sandboxes that are machines:
	Hosts  map[string]string // names that they know, and addresses of their own
	Booted func(m *Machine)  // hears of each; nil hears of none
	Bare   bool              // nobody there makes a namespace
	// Unmapped has homes be on a file system that maps no owners, as overlayfs does not.
	Unmapped bool
	User     *syscall.Credential // who is executed where nobody is root; nil: root may be
	Clock    time.Duration       // by how much the provider's is ahead of this machine's
}

// Settings are those of a server, of whichever kind.
func (s *Setting) Settings() *Setting { return s }

// CloudOptions are what one server has of its own.
type CloudOptions[T any] struct {
	Name     string
	Port     string              // of the daemon in each sandbox: ":2280"; "" for none
	Machines bool                // sandboxes are machines
	Owner    *syscall.Credential // of homes; nil: this process
	Stopped  string              // the state of a sandbox that is stopped
	Route    http.HandlerFunc
	Daemon   func(b *Sandbox[T]) http.Handler
	Anyone   http.Handler        // what a daemon answers to who knows of no sandbox
	Ended    func(b *Sandbox[T]) // what ran in one has ended; nil: nobody cares
}

// Sandbox is one. What may change is guarded by [Cloud.Set].
type Sandbox[T any] struct {
	ID, State string
	Labels    map[string]string
	Started   time.Time
	Home      string

	Mu     sync.Mutex // over what follows
	Runs   T
	runs   []*Process
	there  *Machine
	daemon net.Listener
}

// StartCloud starts a server.
func StartCloud[T any](o CloudOptions[T]) (*Cloud[T], error) {
	dir, err := os.MkdirTemp("", "pccrun-"+o.Name+"-")
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(dir, 0o711); err != nil {
		return nil, err
	}
	c := &Cloud[T]{about: o, dir: dir, boxes: map[string]*Sandbox[T]{}}
	if !o.Machines && o.Port != "" {
		if c.local, err = listenShared(o.Port); err != nil {
			return nil, err
		}
		go func() { _ = http.Serve(c.local, o.Anyone) }()
	}
	c.http = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c.mu.Lock()
		c.calls = append(c.calls, r.Method+" "+r.URL.Path)
		fault := c.fault
		c.mu.Unlock()
		r.Body = &counted{r.Body, &c.took}
		faults.Serve(w, r, fault, o.Route)
	}))
	c.http.Config.Protocols = new(http.Protocols) // gRPC's too
	c.http.Config.Protocols.SetHTTP1(true)
	c.http.Config.Protocols.SetUnencryptedHTTP2(true)
	c.http.Start()
	c.URL = c.http.URL
	return c, nil
}

// Stop ends all sandboxes and the server.
func (c *Cloud[T]) Stop() error {
	for _, id := range c.Sandboxes("") {
		c.Remove(id)
	}
	// c.local stays: it may have been given a connection to another's daemon, which answers alike.
	c.http.CloseClientConnections()
	c.http.Close()
	c.Wait()
	return os.RemoveAll(c.dir)
}

// Break has a function decide what becomes of each call; nil for no fault.
func (c *Cloud[T]) Break(fault func(r *http.Request) *faults.Fault) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fault = fault
}

// Sandboxes are the names of those that stand: "running", "paused", or all.
func (c *Cloud[T]) Sandboxes(state string) (list []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for id, b := range c.boxes {
		if state == "" || (state == "paused") == (b.State == c.about.Stopped) {
			list = append(list, id)
		}
	}
	slices.Sort(list)
	return list
}

// Sandbox is the one of a name, nil for none.
func (c *Cloud[T]) Sandbox(id string) *Sandbox[T] {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.boxes[id]
}

// Bearing are the sandboxes that bear labels.
func (c *Cloud[T]) Bearing(labels map[string]string) (list []*Sandbox[T]) {
	for _, id := range c.Sandboxes("") {
		b, fits := c.Sandbox(id), true
		for key, value := range labels {
			fits = fits && b != nil && b.Labels[key] == value
		}
		if b != nil && fits {
			list = append(list, b)
		}
	}
	return list
}

// Calls are the method and path of each call so far.
func (c *Cloud[T]) Calls() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.calls)
}

// Received is how many bytes the bodies of all calls so far had.
func (c *Cloud[T]) Received() int64 { return c.took.Load() }

// counted counts what is read.
type counted struct {
	io.ReadCloser
	n *atomic.Int64
}

func (c *counted) Read(b []byte) (int, error) {
	n, err := c.ReadCloser.Read(b)
	c.n.Add(int64(n))
	return n, err
}

// CreateRequests are the bodies of the requests to create so far.
func (c *Cloud[T]) CreateRequests() []map[string]any {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.made)
}

// CreateTexts are all that requests to create said.
func (c *Cloud[T]) CreateTexts() string {
	text, _ := json.Marshal(c.CreateRequests())
	return string(text)
}

// Home is the home in a sandbox.
func (c *Cloud[T]) Home(id string) string { return filepath.Join(c.dir, id, "home") }

// Set changes a sandbox, or reads it.
func (c *Cloud[T]) Set(change func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change()
}

// Create makes a sandbox of a request, which is read into body too. name makes its name of a number.
func (c *Cloud[T]) Create(r *http.Request, body any, name func(n int) string) (*Sandbox[T], error) {
	text, err := io.ReadAll(r.Body)
	var all map[string]any
	if err = errors.Join(err, json.Unmarshal(text, body), json.Unmarshal(text, &all)); err != nil {
		return nil, err
	}
	c.mu.Lock()
	c.next++
	c.made = append(c.made, all)
	b := &Sandbox[T]{ID: name(c.next), Started: time.Now().Add(c.Clock)}
	c.mu.Unlock()
	b.Home = c.Home(b.ID)
	err = os.MkdirAll(b.Home, 0o755)
	if err == nil && c.Unmapped {
		err = unix.Mount("none", b.Home, "ramfs", 0, "")
	}
	if owner := cmp.Or(c.User, c.about.Owner); err == nil && owner != nil {
		err = os.Chown(b.Home, int(owner.Uid), int(owner.Gid))
	}
	return b, err
}

// Show has a sandbox be found.
func (c *Cloud[T]) Show(b *Sandbox[T]) { c.Set(func() { c.boxes[b.ID] = b }) }

// Remove has a sandbox be found no more. What runs in it ends, and its files go, afterwards
// ([Cloud.Wait]): a provider lets nobody wait for them either.
func (c *Cloud[T]) Remove(id string) {
	c.mu.Lock()
	b := c.boxes[id]
	delete(c.boxes, id)
	c.mu.Unlock()
	if b == nil {
		return
	}
	c.removed.Go(func() {
		c.End(b)
		if c.Unmapped {
			_ = unix.Unmount(b.Home, unix.MNT_DETACH)
		}
		_ = os.RemoveAll(filepath.Dir(b.Home))
	})
}

// Wait waits until the files of all sandboxes that were removed are gone.
func (c *Cloud[T]) Wait() { c.removed.Wait() }

// Boot starts the sandbox's machine, if it has none that runs. It is nil where there are none.
func (c *Cloud[T]) Boot(b *Sandbox[T]) (*Machine, error) {
	b.Mu.Lock()
	defer b.Mu.Unlock()
	if !c.about.Machines || b.there != nil {
		return b.there, nil
	}
	root := filepath.Join(filepath.Dir(b.Home), "root")
	if err := os.MkdirAll(root, 0o755); err != nil {
		return nil, err
	}
	o := Options{Root: root, Home: b.Home, Hosts: c.Hosts, Bare: c.Bare}
	if c.Path != "" {
		o.Shows = []string{c.Path}
	}
	m, err := Start(o)
	if err != nil {
		return nil, err
	}
	if c.about.Port != "" {
		if b.daemon, err = m.Listen("0.0.0.0" + c.about.Port); err != nil {
			m.Stop()
			return nil, err
		}
		go func() { _ = http.Serve(b.daemon, c.about.Daemon(b)) }()
	}
	b.there = m
	if c.Booted != nil {
		c.Booted(m)
	}
	return m, nil
}

// Pause stops a sandbox with its memory, as a provider does at its end: what runs in it goes on when it is resumed. It stands
// still nowhere here: nobody is there to see it.
func (c *Cloud[T]) Pause(id string) {
	b := c.Sandbox(id)
	c.Set(func() { b.State = c.about.Stopped })
	c.http.CloseClientConnections()
}

// Unplug breaks all connections.
func (c *Cloud[T]) Unplug() { c.http.CloseClientConnections() }

// End ends all that runs in a sandbox.
func (c *Cloud[T]) End(b *Sandbox[T]) {
	b.Mu.Lock()
	m := b.there
	b.there = nil
	if m != nil && b.daemon != nil {
		b.daemon.Close()
	}
	b.Mu.Unlock()
	c.kill(b)
	if c.about.Ended != nil {
		c.about.Ended(b)
	}
	if m != nil {
		m.Stop()
	}
}

// Env is the environment of what is executed in a sandbox whose home has a name.
func (c *Cloud[T]) Env(home string) []string {
	path := os.Getenv("PATH")
	if c.Path != "" {
		path = c.Path + ":" + path
	}
	return []string{"PATH=" + path, "HOME=" + home, "USER=user", "LOGNAME=user"}
}

// MakeDirs makes directories of this machine, those that are missing for who is executed in sandboxes.
func (c *Cloud[T]) MakeDirs(dir string) error { return makeDirs(dir, c.owner()) }

// Preview passes a request on to a port of a sandbox's loopback.
func (c *Cloud[T]) Preview(w http.ResponseWriter, r *http.Request, b *Sandbox[T], port string) {
	m, err := c.Boot(b)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		if m != nil {
			return m.Dial("127.0.0.1:" + port)
		}
		return (&net.Dialer{}).DialContext(ctx, "tcp", "127.0.0.1:"+port)
	}
	proxy := httputil.ReverseProxy{Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true}, Rewrite: func(r *httputil.ProxyRequest) {
		r.Out.URL.Scheme, r.Out.URL.Host = "http", "127.0.0.1:"+port
	}}
	proxy.ServeHTTP(w, r)
}

// Answer answers a call with JSON.
func Answer(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v)
}

// EndBearing ends the processes that have a variable in their environment, those in sessions of their own too. One in the middle
// of an exec has none for a moment: several looks must find nothing.
func EndBearing(variable string) {
	late := await.Deadline()
	for looks := 0; looks < 3 && time.Now().Before(late); time.Sleep(5 * time.Millisecond) {
		looks++
		list, _ := filepath.Glob("/proc/[0-9]*/environ")
		for _, name := range list {
			env, err := os.ReadFile(name)
			if err != nil || !bytes.Contains(append([]byte{0}, env...), []byte("\x00"+variable+"\x00")) {
				continue
			}
			if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(name))); err == nil && pid != os.Getpid() && syscall.Kill(pid, syscall.SIGKILL) == nil {
				looks = 0
			}
		}
	}
}
