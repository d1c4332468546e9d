package machine

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
)

// A Program is what a sandbox is to execute.
type Program struct {
	Name  string // by which [Sandbox.Process] finds it; "": its number
	Tag   string // that its caller gave it
	Argv  []string
	Dir   string            // as the sandbox calls it; "": the home
	Env   []string          // in place of what there is always; nil: that
	More  map[string]string // beside it
	Root  bool              // as root, where who is executed otherwise is somebody else
	Stdin bool              // it reads what is written to [Process.In]; else an end
	Lines bool              // what it prints is kept line by line; else as it comes
	Piece int               // bytes of what comes at once; 0: 32 KiB

	// Terminal makes a terminal of its own and gives it to the program, which starts a session; nil: none.
	Terminal func(c *exec.Cmd) (master, slave *os.File, err error)
}

// A Piece is something that a program printed.
type Piece struct {
	Stream int // 1 is standard output, 2 standard error
	At     int // of the stream's bytes
	Text   []byte
}

// A Process is what a sandbox executes. What it prints is kept: who goes away does not end it.
type Process struct {
	ID      string
	Program Program
	In      io.WriteCloser
	Master  *os.File // of its terminal

	c     *exec.Cmd
	there bool          // in a machine of its own
	over  chan struct{} // closed when it has ended, and all that it printed is here
	quit  chan struct{} // closed when what it prints is to be read no more
	once  sync.Once

	mu     sync.Mutex
	pieces []Piece
	sizes  [3]int        // of streams
	grown  chan struct{} // closed when there is more of it
}

// ofSandbox is a variable of all that is executed in a sandbox.
func (b *Sandbox[T]) ofSandbox() string { return "PCCRUN_TEST_SANDBOX=" + b.Home }

// HomeThere is the home of a sandbox, as it is called there.
func (c *Cloud[T]) HomeThere(b *Sandbox[T]) string {
	if c.about.Machines {
		return Home
	}
	return b.Home
}

// Place is where a path of a sandbox is on this machine, one that is relative to a directory, the home if that is "".
func (c *Cloud[T]) Place(b *Sandbox[T], dir, name string) (string, error) {
	if !filepath.IsAbs(name) {
		name = filepath.Join(cmp.Or(dir, c.HomeThere(b)), name)
	}
	m, err := c.Boot(b)
	switch rest, is := strings.CutPrefix(name, Home); {
	case err != nil || m == nil:
		return name, err
	case is:
		return b.Home + rest, nil
	}
	return m.Path(name), nil
}

// owner is whose the files of sandboxes are, nil for this process.
func (c *Cloud[T]) owner() *syscall.Credential { return cmp.Or(c.about.Owner, c.User) }

// WriteFile writes a file of this machine's for who is executed in sandboxes.
func (c *Cloud[T]) WriteFile(path string, from io.Reader, mode os.FileMode) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, from)
	if owner := c.owner(); owner != nil {
		err = errors.Join(err, f.Chown(int(owner.Uid), int(owner.Gid)))
	}
	return errors.Join(err, f.Chmod(mode), f.Close())
}

// SendFile answers with what a file of this machine's holds, or answers nothing and returns an error.
func SendFile(w http.ResponseWriter, path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	w.Header().Set("Content-Type", "application/octet-stream")
	_, _ = io.Copy(w, f)
	return nil
}

// Execute starts a program in a sandbox.
func (c *Cloud[T]) Execute(b *Sandbox[T], p Program) (*Process, error) {
	m, err := c.Boot(b)
	if err != nil {
		return nil, err
	}
	home := c.HomeThere(b)
	dir := cmp.Or(p.Dir, home)
	x := &Process{Program: p, c: exec.Command(p.Argv[0], p.Argv[1:]...), there: m != nil, over: make(chan struct{}), quit: make(chan struct{}), grown: make(chan struct{})}
	if x.c.Dir = dir; x.there {
		user := cmp.Or(c.owner(), &syscall.Credential{})
		if p.Root {
			user = &syscall.Credential{}
		}
		x.c = m.Command(user.Uid, user.Gid, dir, p.Argv...)
	}
	if x.c.Env = p.Env; p.Env == nil {
		x.c.Env = c.Env(home)
	}
	for name, value := range p.More {
		x.c.Env = append(x.c.Env, name+"="+value)
	}
	x.c.Env = append(x.c.Env, b.ofSandbox())
	x.c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	var out, said io.Reader
	var slave *os.File
	if p.Terminal != nil {
		x.Master, slave, err = p.Terminal(x.c)
		out, said = x.Master, strings.NewReader("")
	} else {
		var e1, e2, e3 error
		out, e1 = x.c.StdoutPipe()
		said, e2 = x.c.StderrPipe()
		if p.Stdin {
			x.In, e3 = x.c.StdinPipe()
		}
		err = errors.Join(e1, e2, e3)
	}
	if err == nil {
		err = x.c.Start()
	}
	if slave != nil {
		slave.Close()
	}
	if err != nil {
		return nil, err
	}
	x.ID = cmp.Or(p.Name, strconv.Itoa(x.c.Process.Pid))
	b.Mu.Lock()
	b.runs = append(b.runs, x)
	b.Mu.Unlock()
	go x.watch(out, said)
	return x, nil
}

// watch keeps what is printed, to the end.
func (x *Process) watch(pipes ...io.Reader) {
	var all sync.WaitGroup
	for i, from := range pipes {
		all.Go(func() {
			lines := bufio.NewReader(from)
			for {
				var text []byte
				var err error
				if x.Program.Lines {
					text, err = lines.ReadBytes('\n')
				} else {
					text = make([]byte, cmp.Or(x.Program.Piece, 32<<10))
					var n int
					n, err = from.Read(text)
					text = text[:n]
				}
				if len(text) > 0 {
					x.change(func() {
						x.pieces = append(x.pieces, Piece{i + 1, x.sizes[i+1], text})
						x.sizes[i+1] += len(text)
					})
				}
				if err != nil {
					return
				}
			}
		})
	}
	printed := make(chan struct{})
	go func() { all.Wait(); close(printed) }()
	select {
	case <-printed:
	case <-x.quit:
	}
	_ = x.c.Wait()
	if x.Master != nil {
		x.Master.Close()
	}
	x.change(func() { close(x.over) })
}

// change changes a process, and has who waits look again.
func (x *Process) change(do func()) {
	x.mu.Lock()
	defer x.mu.Unlock()
	do()
	close(x.grown)
	x.grown = make(chan struct{})
}

// Follow hands on what a process prints, from a piece on, as much as there is each time, to its end or that of ctx or to an error.
func (x *Process) Follow(ctx context.Context, at int, take func(pieces []Piece) error) error {
	for {
		x.mu.Lock()
		pieces, over, grown := x.pieces[at:], x.ended(), x.grown
		x.mu.Unlock()
		if len(pieces) > 0 {
			if err := take(pieces); err != nil {
				return err
			}
		}
		if at += len(pieces); over {
			return nil
		}
		select {
		case <-grown:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Pieces is how many there are so far.
func (x *Process) Pieces() int {
	x.mu.Lock()
	defer x.mu.Unlock()
	return len(x.pieces)
}

// Over is closed when a process has ended.
func (x *Process) Over() <-chan struct{} { return x.over }

func (x *Process) ended() bool {
	select {
	case <-x.over:
		return true
	default:
		return false
	}
}

// End is how a process ended, as a shell says it: nil while it runs.
func (x *Process) End() *int {
	if !x.ended() {
		return nil
	}
	code := x.State().ExitCode()
	if sig := x.Signaled(); sig != 0 {
		code = 128 + int(sig)
	}
	return &code
}

// State is how one ended, as the kernel says it.
func (x *Process) State() *os.ProcessState { return x.c.ProcessState }

// Signaled is the signal that ended one, 0 for none.
func (x *Process) Signaled() syscall.Signal {
	if status := x.State().Sys().(syscall.WaitStatus); status.Signaled() {
		return status.Signal()
	}
	return 0
}

// Signal signals a process that runs.
func (x *Process) Signal(sig syscall.Signal) {
	switch {
	case x.End() != nil:
	case x.there:
		Signal(x.c, sig)
	default:
		_ = syscall.Kill(-x.c.Process.Pid, sig)
	}
}

// Quit has nobody wait for what a process prints: it ends with itself, whatever it has started.
func (x *Process) Quit() { x.once.Do(func() { close(x.quit) }) }

// Process is the one of a name, nil for none, or none of which anybody knows any more.
func (b *Sandbox[T]) Process(id string) *Process {
	for _, x := range b.Processes(true) {
		if x.ID == id {
			return x
		}
	}
	return nil
}

// Processes are all that were started in a sandbox, or those that run.
func (b *Sandbox[T]) Processes(ended bool) (list []*Process) {
	b.Mu.Lock()
	defer b.Mu.Unlock()
	for _, x := range b.runs {
		if ended || x.End() == nil {
			list = append(list, x)
		}
	}
	return list
}

// kill ends all that is executed in a sandbox, where that is no machine what is in sessions of its own too.
func (c *Cloud[T]) kill(b *Sandbox[T]) {
	if !c.about.Machines {
		EndBearing(b.ofSandbox())
	}
	for _, x := range b.Processes(false) {
		x.Signal(syscall.SIGKILL)
	}
}

// Named are the sandboxes whose names begin with a prefix and come after another, up to so many, and the name after which there
// are more, "" for none.
func (c *Cloud[T]) Named(prefix, after string, most int) (list []*Sandbox[T], next string) {
	for _, name := range c.Sandboxes("") {
		b := c.Sandbox(name)
		switch {
		case b == nil || !strings.HasPrefix(name, prefix) || name <= after:
		case len(list) == most:
			return list, list[most-1].ID
		default:
			list = append(list, b)
		}
	}
	return list, ""
}

// Page is a part of a list: up to so many from one on, and the next one, 0 for none.
func Page[E any](list []E, from, most int) (page []E, next int) {
	list = list[min(max(0, from), len(list)):]
	if len(list) <= most {
		return list, 0
	}
	return list[:most], from + most
}
