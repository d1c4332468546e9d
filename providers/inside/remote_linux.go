package inside

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/hashicorp/yamux"
	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/internal/events"
	"github.com/pccrun/pccrun/internal/state"
	"github.com/pccrun/pccrun/profiles"
)

// lineName is the socket at which the spool waits, in a directory that is its own.
const lineName = "line"

// attach carries a line between what the provider executes and the spool, which it starts if
// there is none. in is what came from there.
func attach(dir string, in io.Reader) int {
	// By a short name: an address of a socket has 108 bytes, unix(7).
	if err := os.Chdir(dir); err != nil {
		return complain("attach", err)
	}
	c, err := net.Dial("unix", lineName)
	if errors.Is(err, unix.ENOENT) {
		if err = startServing(dir); err == nil {
			c, err = net.Dial("unix", lineName)
		}
	}
	if err != nil {
		return complain("attach", err)
	}
	go func() {
		_, _ = io.Copy(c, in)
		_ = c.(*net.UnixConn).CloseWrite()
	}()
	_, _ = io.Copy(os.Stdout, c)
	if files, is := in.(*lineFiles); is {
		_ = state.RemovePath(files.dir)
	}
	return 0
}

// lineFiles reads what came as files: each is taken away when it has been read.
type lineFiles struct {
	dir  string
	next int
	text []byte
}

func (l *lineFiles) Read(b []byte) (int, error) {
	for len(l.text) == 0 {
		name := filepath.Join(l.dir, FileName(l.next))
		text, err := os.ReadFile(name)
		if rest, whole := strings.CutSuffix(string(text), FileEnd); err == nil && whole {
			l.text = append([]byte(rest), '\n')
			l.next++
			_ = os.Remove(name)
			continue
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return 0, err
		}
		time.Sleep(20 * time.Millisecond)
	}
	n := copy(b, l.text)
	l.text = l.text[n:]
	return n, nil
}

// startServing starts the spool, which outlives this process, and returns when it waits.
func startServing(dir string) error {
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer r.Close()
	err = detach(w, dir)
	w.Close()
	if err != nil {
		return err
	}
	said, err := io.ReadAll(r)
	if err == nil && string(said) != "ready" {
		err = errors.New(string(said))
	}
	return err
}

// detach starts the spool, or who starts it and ends at once: some daemons end all the
// descendants of what they executed, and nobody's child is none of them.
func detach(ready *os.File, args ...string) error {
	c := exec.Command("/proc/self/exe", append([]string{Verb, Serving}, args...)...)
	c.Args[0], c.Dir, c.ExtraFiles = "pccrun", "/", []*os.File{ready}
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := c.Start(); err != nil || len(args) > 1 {
		return err
	}
	return c.Wait()
}

// orphaned is how long the spool waits for a line before it ends the command and itself.
const orphaned = 30 * time.Minute

// elsewhere is the spool at work.
type elsewhere struct {
	place
	dir     string
	in      *json.Decoder
	asked   *Remote
	answers *json.Encoder // to who asked; nil where nobody is asked
	child   *os.Process
	ended   bool
	printed sync.WaitGroup
	bare    *bare  // nil: the native provider runs the command
	own     string // what the native provider keeps, a directory of its user's
	given   bool   // the copy was root's, and is the command's user's
}

// serveElsewhere is the spool.
func serveElsewhere(dir string, alone bool) int {
	ready := os.NewFile(3, "ready")
	deafen() // else what the provider's daemon ignores, the command would
	if !alone {
		if err := detach(ready, dir, "alone"); err != nil {
			return complain("start the spool", err)
		}
		return 0
	}
	l, err := listenFirst(dir)
	if err != nil && !errors.Is(err, os.ErrExist) {
		fmt.Fprint(ready, err)
		return failed
	}
	fmt.Fprint(ready, "ready")
	ready.Close()
	if err != nil {
		return 0 // another waits there
	}
	conn := NewConn()
	lines := make(chan struct{}, 1)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				_ = conn.Carry(c, nil)
				select {
				case lines <- struct{}{}:
				default:
				}
			}()
		}
	}()
	session, err := yamux.Server(conn, Config())
	if err != nil {
		return failed
	}
	e := &elsewhere{place: place{session: session}, dir: dir, own: dir}
	go func() {
		look := time.NewTicker(time.Second)
		defer look.Stop()
		for alone := time.NewTimer(orphaned); ; {
			select {
			case <-look.C:
				// Where the sandbox's files are taken away while its processes go on, nobody comes back.
				if _, err := os.Lstat(lineName); errors.Is(err, fs.ErrNotExist) {
					e.kill()
					os.Exit(failed)
				}
				continue
			case <-lines:
			case <-session.CloseChan():
				return
			case <-alone.C:
				conn.mu.Lock()
				carried := conn.carried
				conn.mu.Unlock()
				if !carried {
					e.kill()
					conn.Close()
					return
				}
			}
			alone.Reset(orphaned)
		}
	}()
	code := e.run()
	conn.Flush(time.Minute)
	_ = os.Remove(filepath.Join(dir, lineName))
	return code
}

// listenFirst listens at [lineName]. Lines that are cut early start more than one spool: the name
// appears when somebody listens there, and the first alone has it.
func listenFirst(dir string) (net.Listener, error) {
	old := unix.Umask(0o077)
	defer unix.Umask(old)
	if err := os.Chdir(dir); err != nil {
		return nil, err
	}
	own := lineName + strconv.Itoa(os.Getpid())
	l, err := net.Listen("unix", own)
	if err != nil {
		return nil, err
	}
	defer os.Remove(own)
	if err := os.Link(own, lineName); err != nil {
		l.Close()
		return nil, err
	}
	return l, nil
}

// run talks to the launcher until all is done.
func (e *elsewhere) run() int {
	control, err := e.open(Control)
	if err != nil {
		return failed
	}
	e.out, e.in = json.NewEncoder(control), json.NewDecoder(control)
	e.say(Message{Hello: &Hello{Version}})
	var m Message
	if err := e.in.Decode(&m); err != nil || m.Remote == nil {
		return failed
	}
	e.asked = m.Remote
	trial, err := e.trial()
	if err != nil {
		e.say(Message{Failed: &Failed{Step: "test which guarantees can be kept here", Text: err.Error()}})
		<-e.session.CloseChan()
		return failed
	}
	e.say(Message{Trial: trial})
	if err := e.in.Decode(&m); err != nil || !m.Go {
		return failed
	}
	if err := e.command(); err != nil {
		e.say(Message{Failed: &Failed{Step: "start the command", Text: err.Error()}})
	}
	<-e.session.CloseChan()
	e.kill()
	return 0
}

func (e *elsewhere) kill() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.child != nil && !e.ended {
		_ = e.child.Kill()
	}
	for range 3 { // what is stopped forks no more
		if e.tree {
			_ = errors.Join(e.all(unix.SIGSTOP), e.all(unix.SIGKILL))
		}
	}
}

// launched is a run of the native provider.
type launched struct {
	*exec.Cmd
	events, said, started *os.File
	mine                  []*os.File
}

// launch prepares a run. The request goes over a pipe: no word of it is an argument, and
// nobody finds it in /proc.
func (e *elsewhere) launch(asked *Remote) (*launched, error) {
	l := &launched{Cmd: exec.Command("/proc/self/exe", Verb, Launch, e.own)}
	l.Args[0], l.Dir, l.Env = "pccrun", "/", []string{"PATH=" + os.Getenv("PATH")}
	l.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Credential: e.as}
	pipe := func(theirsReads bool) (mine, theirs *os.File, err error) {
		r, w, err := os.Pipe()
		if theirsReads {
			return w, r, err
		}
		return r, w, err
	}
	request, theirs, err := pipe(true)
	if err != nil {
		return nil, err
	}
	l.ExtraFiles = []*os.File{theirs}
	for _, to := range []**os.File{&l.events, &l.said, &l.started} {
		var their *os.File
		if *to, their, err = pipe(false); err != nil {
			return nil, err
		}
		l.ExtraFiles = append(l.ExtraFiles, their)
		l.mine = append(l.mine, *to)
	}
	if asked.Ask {
		pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return nil, os.NewSyscallError("socketpair", err)
		}
		mine := os.NewFile(uintptr(pair[0]), "questions")
		l.ExtraFiles, l.mine = append(l.ExtraFiles, os.NewFile(uintptr(pair[1]), "questions")), append(l.mine, mine)
		e.answers = json.NewEncoder(mine)
		go e.questions(mine)
	}
	go func() {
		_ = json.NewEncoder(request).Encode(asked)
		request.Close()
	}()
	return l, nil
}

// questions passes on what the run asks, to its end.
func (e *elsewhere) questions(f *os.File) {
	defer f.Close()
	for in := json.NewDecoder(f); ; {
		var q Question
		if in.Decode(&q) != nil {
			return
		}
		e.say(Message{Question: &q})
	}
}

// begin starts it and closes what is its own.
func (l *launched) begin() error {
	err := l.Start()
	for _, f := range l.ExtraFiles {
		f.Close()
	}
	if err != nil {
		for _, f := range l.mine {
			f.Close()
		}
	}
	return err
}

// hear reads the events of a run to their end. each may be nil.
func (l *launched) hear(each func(line []byte, e events.Event)) (refused *events.Refused, exit *events.Exit) {
	defer l.events.Close()
	r := bufio.NewScanner(l.events)
	r.Buffer(nil, 4<<20)
	for r.Scan() {
		record, err := events.Parse(r.Bytes())
		if err != nil {
			continue
		}
		switch ev := record.Event.(type) {
		case events.Refused:
			refused = &ev
		case events.Exit:
			exit = &ev
		}
		if each != nil {
			each(r.Bytes(), record.Event)
		}
	}
	return refused, exit
}

// complaint is what a run said itself, for where its events say nothing.
func complaint(said io.ReadCloser) string {
	defer said.Close()
	text, _ := io.ReadAll(io.LimitReader(said, 4<<10))
	go func() { _, _ = io.Copy(io.Discard, said) }()
	return strings.TrimPrefix(strings.Join(strings.Fields(events.Clean(string(text))), " "), "pccrun: ")
}

// unnamed reports whether a trial was refused for a reason that another way of running the command may not have.
func (t *Trial) unnamed() bool {
	return t.Refused != nil && t.Refused.Code == failed && t.Refused.Guarantee == ""
}

// trial runs, as the command will be run, what tries to reach the provider's own daemon: by the native provider,
// by that as the copy's owner where root's way needs what the kernel does not have (idmapped mounts), or without namespaces.
func (e *elsewhere) trial() (*Trial, error) {
	t, argv, err := e.tryNative()
	if err != nil || !t.unnamed() {
		return t, err
	}
	if t.Root {
		if err := e.lower(); err != nil {
			return nil, err
		}
		as, _, err := e.tryNative()
		if err == nil && !as.unnamed() {
			as.Given = e.given
			return as, nil
		}
	}
	if err := e.tryBare(t, argv); err != nil {
		t.Refused.Text += "; without namespaces: " + err.Error()
	} else {
		t.Bare, _, _ = strings.Cut(t.Refused.Text, "; no mode but namespaces ")
		t.Refused = nil
	}
	t.Given = e.given
	return t, nil
}

// lower has the native provider run the command as the copy's owner, as on any machine where that user starts pccrun.
func (e *elsewhere) lower() error {
	if err := e.become(); err != nil {
		return err
	}
	e.own = filepath.Join(e.dir, "lower")
	if err := os.Mkdir(e.own, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return os.Lchown(e.own, int(e.as.Uid), int(e.as.Gid))
}

// openTerminal opens a terminal, which is the command's user's: else that opens /dev/tty alone.
func (e *elsewhere) openTerminal(columns, rows int) (master, slave *os.File, err error) {
	if master, slave, err = openTerminal(columns, rows); err == nil && e.as != nil {
		_ = slave.Chown(int(e.as.Uid), int(e.as.Gid))
	}
	return master, slave, err
}

// tryNative runs the trial by the native provider, and returns what it has executed.
func (e *elsewhere) tryNative() (t *Trial, argv []Text, err error) {
	t = &Trial{Root: os.Getuid() == 0}
	var addresses []string
	for _, port := range e.asked.Daemons {
		for _, host := range ownAddresses() {
			at := net.JoinHostPort(host, strconv.Itoa(int(port)))
			addresses = append(addresses, at)
			if answers(at) {
				t.Daemons = append(t.Daemons, at)
			}
		}
	}
	self, err := os.Executable()
	if err != nil {
		return nil, nil, err
	}
	asked := *e.asked
	asked.Stdin, asked.Terminal, asked.Seeds, asked.Ask = false, false, nil, false
	shown := *asked.Policy
	shown.Files = append(slices.Clip(shown.Files), profiles.FileRule{Path: self, Access: profiles.Read, Origin: profiles.Origin{Source: "trial"}})
	asked.Policy = &shown
	asked.Argv = Texts(append([]string{self, Verb, Reach}, append([]string{}, addresses...)...))
	l, err := e.launch(&asked)
	if err != nil {
		return nil, nil, err
	}
	out, err := l.StdoutPipe()
	if err != nil {
		return nil, nil, err
	}
	if err := l.begin(); err != nil {
		return nil, nil, err
	}
	var heard sync.WaitGroup
	var refused *events.Refused
	var exit *events.Exit
	said := ""
	heard.Go(func() {
		refused, exit = l.hear(func(_ []byte, ev events.Event) {
			if plan, is := ev.(events.Plan); is {
				t.Answers = nil
				for _, g := range plan.Guarantees {
					state := profiles.Missing
					for _, s := range []profiles.State{profiles.Kept, profiles.Weak} {
						if s.String() == g.State {
							state = s
						}
					}
					t.Answers = append(t.Answers, profiles.Answer{Guarantee: profiles.Guarantee(g.Name), State: state, Mechanism: g.Mechanism, Cause: g.Cause})
				}
			}
		})
	})
	heard.Go(func() { said = complaint(l.said) })
	heard.Go(func() { l.started.Close() })
	printed, _ := io.ReadAll(io.LimitReader(out, 64<<10))
	failure := l.Wait()
	heard.Wait()
	switch {
	case refused != nil:
		t.Refused = &Refusal{Code: failed, Guarantee: refused.Guarantee, Text: refused.Cause, Hint: refused.Hint}
	case failure != nil || exit == nil || exit.Code != 0:
		if said == "" && failure != nil {
			said = failure.Error()
		}
		t.Refused = &Refusal{Code: failed, Text: said}
	}
	if t.Refused == nil {
		err = t.reached(printed)
	}
	return t, asked.Argv, err
}

// reached reads what [Reach] has printed.
func (t *Trial) reached(printed []byte) error {
	lines := strings.Fields(string(printed))
	if len(lines) == 0 || lines[len(lines)-1] != reachedAll {
		return errors.New("the trial did not finish")
	}
	t.Reached = lines[:len(lines)-1]
	return nil
}

// ownAddresses are where this place's own services can be met.
func ownAddresses() []string {
	list := []string{"127.0.0.1", "::1"}
	all, _ := net.InterfaceAddrs()
	for _, a := range all {
		if n, is := a.(*net.IPNet); is && !n.IP.IsLoopback() && !n.IP.IsLinkLocalUnicast() || is && n.IP.To4() != nil && !n.IP.IsLoopback() {
			list = append(list, n.IP.String())
		}
	}
	return list
}

// answers reports whether somebody takes a connection.
func answers(at string) bool {
	// What captures connections takes them all: somebody has to be there who does not hang up.
	return asks(at, "GET /health HTTP/1.0\r\n\r\n", "HTTP/")
}

// asks reports whether what is at an address answers a request with a beginning.
func asks(at, request, beginning string) bool {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	c, err := (&net.Dialer{}).DialContext(ctx, "tcp", at)
	if err != nil {
		return false
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(2 * time.Second))
	if _, err := io.WriteString(c, request); err != nil {
		return false
	}
	head := make([]byte, len(beginning))
	_, err = io.ReadFull(c, head)
	return err == nil && string(head) == beginning
}

// leads reports whether the proxy of the environment connects to an address.
func leads(at string) bool {
	proxy, err := url.Parse(os.Getenv("HTTPS_PROXY"))
	if err != nil || proxy.Host == "" {
		return false
	}
	password, _ := proxy.User.Password()
	token := base64.StdEncoding.EncodeToString([]byte(proxy.User.Username() + ":" + password))
	return asks(proxy.Host, "CONNECT "+at+" HTTP/1.1\r\nHost: "+at+"\r\nProxy-Authorization: Basic "+token+"\r\n\r\n", "HTTP/1.1 200")
}

// reachedAll ends what [Reach] prints.
const reachedAll = "done"

// reach prints those of the addresses that answer.
func reach(addresses []string) int {
	found := make([]bool, len(addresses))
	var all sync.WaitGroup
	for i, at := range addresses {
		all.Go(func() { found[i] = answers(at) || leads(at) })
	}
	all.Wait()
	for i, at := range addresses {
		if found[i] {
			fmt.Println(at)
		}
	}
	fmt.Println(reachedAll)
	return 0
}

// command runs what was asked for.
func (e *elsewhere) command() error {
	if e.bare != nil {
		return e.bareCommand()
	}
	asked := *e.asked
	l, err := e.launch(&asked)
	if err != nil {
		return err
	}
	if asked.Terminal {
		if e.master, e.slave, err = e.openTerminal(asked.Columns, asked.Rows); err != nil {
			return err
		}
	}
	e.plan = &Plan{Terminal: asked.Terminal, Stdin: asked.Stdin}
	s, err := e.streams()
	if err != nil {
		return err
	}
	l.Stdin, l.Stdout, l.Stderr = s.theirs[0], s.theirs[1], s.theirs[2]
	if asked.Terminal {
		l.SysProcAttr.Setctty = true
	}
	err = l.begin()
	s.closeTheirs()
	if err != nil {
		return err
	}
	e.mu.Lock()
	e.child = l.Process
	e.mu.Unlock()
	said := make(chan string, 1)
	go func() { said <- complaint(l.said) }()
	go func() {
		defer l.started.Close()
		if n, _ := l.started.Read(make([]byte, 1)); n == 1 {
			e.say(Message{Started: true})
		}
	}()
	go e.obeyElsewhere()
	refused, exit := l.hear(func(line []byte, ev events.Event) {
		switch ev.(type) {
		case events.NetDecision, events.NetClosed, events.Denial, events.Warning, events.Hidden:
			e.say(Message{Event: slices.Clone(line)})
		}
	})
	err = l.Wait()
	e.mu.Lock()
	e.ended = true
	e.mu.Unlock()
	s.printed()
	done := &Done{}
	var status *exec.ExitError
	if errors.As(err, &status) {
		w := status.Sys().(syscall.WaitStatus)
		if done.Code = w.ExitStatus(); w.Signaled() {
			done.Code, done.Signal = 0, int(w.Signal())
		}
	}
	if exit != nil {
		done.Code, done.Signal = exit.Code, 0
		if exit.Signal != "" {
			done.Signal = int(unix.SignalNum(exit.Signal))
		}
		done.TimedOut, done.OOM, done.Memory, done.Processes = exit.TimedOut, exit.OOM, exit.MaxMemory, exit.Processes
		done.User, done.System = time.Duration(exit.UserMS)*time.Millisecond, time.Duration(exit.SystemMS)*time.Millisecond
		done.Read, done.Written, done.IOBy = exit.ReadBytes, exit.WriteBytes, exit.IOBy
	}
	if refused != nil {
		done.Refused = &Refusal{Code: done.Code, Guarantee: refused.Guarantee, Text: refused.Cause, Hint: refused.Hint}
	} else if exit == nil && done.Code == failed {
		done.Refused = &Refusal{Code: failed, Text: <-said}
	}
	e.say(Message{Done: done})
	return nil
}

// obeyElsewhere does what the launcher says while the command runs.
func (e *elsewhere) obeyElsewhere() {
	for {
		var m Message
		if e.in.Decode(&m) != nil {
			return
		}
		switch {
		case m.Signal != 0:
			e.mu.Lock()
			if e.child != nil && !e.ended {
				_ = e.child.Signal(unix.Signal(m.Signal))
			}
			e.mu.Unlock()
		case m.Size != nil && e.master != nil:
			resize(e.master, m.Size[0], m.Size[1])
		case m.Exec != nil:
			e.hear(m.Exec, e.ask)
		case m.Answer != nil && e.answers != nil:
			_ = e.answers.Encode(m.Answer) // a run that is over asks no more
		}
	}
}

// ask has another command started by the run, as `pccrun exec` does on any machine.
func (e *elsewhere) ask(plan *Plan, s *streams, sys *syscall.SysProcAttr) (pid int, wait func() unix.WaitStatus, step string, err error) {
	c := exec.Command("/proc/self/exe", "exec", "--")
	sys.Credential = e.as
	c.Args[0], c.Dir, c.SysProcAttr = "pccrun", e.asked.Dir, sys
	for _, arg := range plan.Argv {
		c.Args = append(c.Args, string(arg))
	}
	c.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + e.asked.Policy.Home, "XDG_STATE_HOME=" + filepath.Join(e.own, "STATE")}
	c.Stdin, c.Stdout, c.Stderr = s.theirs[0], s.theirs[1], s.theirs[2]
	err = c.Start()
	s.closeTheirs()
	if err != nil {
		return 0, nil, "start pccrun exec", err
	}
	return c.Process.Pid, func() unix.WaitStatus {
		_ = c.Wait()
		return unix.WaitStatus(c.ProcessState.Sys().(syscall.WaitStatus))
	}, "", nil
}
