package namespaces

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/internal/hint"
	"github.com/pccrun/pccrun/namespaces/inside"
	"github.com/pccrun/pccrun/namespaces/network"
	"github.com/pccrun/pccrun/profiles"
)

// A StepError says which step of the plan failed, and why. Nothing of the
// command has run.
type StepError struct {
	Step  string
	Errno unix.Errno
}

func (e *StepError) Error() string { return e.Step + ": " + e.Errno.Error() }

// Unwrap returns the errno.
func (e *StepError) Unwrap() error { return e.Errno }

// An ExecError says that the command could not be executed.
type ExecError struct {
	Name  string
	Errno unix.Errno
}

func (e *ExecError) Error() string { return e.Name + ": " + e.Errno.Error() }

// Unwrap returns the errno.
func (e *ExecError) Unwrap() error { return e.Errno }

// Hint says what execve(2) meant: the file itself was there before the launch.
func (e *ExecError) Hint() string {
	switch e.Errno {
	case unix.ENOENT:
		return "the file exists on the host: the program of its #! line does not exist inside, or no rule shows the file (pccrun why exec)"
	case unix.ENOEXEC:
		return "it has no #! line and is no program for this machine: name its interpreter, as in pccrun -- sh " + e.Name
	}
	return ""
}

// ErrEnded says that the sandbox was killed from outside while it was set up.
var ErrEnded = errors.New("the sandbox ended while it was being set up")

// Result is how a run ended.
type Result struct {
	Status   unix.WaitStatus
	TimedOut bool
	Killed   bool        // pid 1 was killed before it could tell of an end
	Usage    unix.Rusage // of everything that ran inside
	Wall     time.Duration

	// Survivors are the processes that were there when the command was gone, by
	// name, and were killed.
	Survivors []string

	Looked []string // what of the home was looked for that is not there, where the plan has traces of it
	Made   []string // and where of that the command has made something
}

// Sandbox is a sandbox, from the clone of its pid 1 to its end. Its launcher takes it through these steps,
// each once and in this order:
//
//	Begin    clone pid 1, which makes what every sandbox has
//	Give     tell it the plan, by which it goes on
//	Network  make the way out of the sockets that it opens (if the plan has one)
//	Go       let the command run as soon as the set-up is through
//	Next     wait until the command is stopped or gone
//	Collect  wait until nothing is left
//
// Close ends one for which Go has not succeeded.
type Sandbox struct {
	Pid         int            // of its pid 1, in this process's pid namespace
	Private     int            // a descriptor of the tmpfs that holds its private directories
	SysV        [3]int         // descriptors of its /proc/sysvipc/shm, sem and msg, 0 if the plan asks for none
	Listeners   []net.Listener // on its own loopback, as the plan lists them; from [Sandbox.Adopt] on
	Questions   net.PacketConn // port 53 of its own loopback, by UDP, if the plan asks for it; from [Sandbox.Adopt] on
	Net         *network.Net   // the way out, if the plan has one and the kernel could make it
	NetError    error          // why it could not
	Master      *os.File       // the command's terminal, if it has one
	user, mnt   int            // its namespaces, for the remounter
	root        int            // the root of its tree
	control     int
	link        link
	starting    sync.Mutex // over the program, once the command runs
	execs       executes
	env         []string // in place of the plan's; nil: none
	plan        *Plan
	program     *inside.Program
	shell       *compiler
	started     time.Time
	cloned      chan error
	supervision inside.Supervision
	prepared    *network.Prepared

	// SharesKeyring says, once [Sandbox.Go] has returned, that it has the session keyring of its
	// user, who has no key left for another.
	SharesKeyring bool

	result    Result     // as far as it is known
	problem   error      // why the command did not run
	aborted   chan error // why the launcher has ended it: see [Sandbox.Abort]
	collected bool       // pid 1 is gone and was waited for
	remounter *RemountWatcher
	mounter   mounter
	dialers   dialers
	listens   []int          // descriptors of Listeners, until they are adopted
	asked     int            // that of Questions, until then; 0 for none
	parted    bool           // see [Sandbox.part]
	parting   sync.WaitGroup // closes what part gives up
}

// Begin starts the half of a sandbox that every policy has, so that the kernel
// makes its namespaces while the caller reads the policy.
//
// The sandbox ends with the thread that has cloned it. The process's first
// thread lives as long as the process does, so a caller that is on it clones at
// once; for any other a thread is made, which takes longer.
func Begin(shell Shell) (*Sandbox, error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("socketpair", err)
	}
	program, err := inside.New()
	if err != nil {
		return nil, err
	}
	if err := unix.SetNonblock(pair[0], true); err != nil {
		return nil, os.NewSyscallError("fcntl", err)
	}
	s := &Sandbox{control: pair[0], link: link{file: os.NewFile(uintptr(pair[0]), "pid 1"), program: program}, program: program, started: time.Now(), cloned: make(chan error, 1), aborted: make(chan error, 1),
		result: Result{Status: unix.WaitStatus(unix.SIGKILL), Killed: true}}
	s.shell = &compiler{Program: program, Shell: shell, control: inside.Int(pair[1]), over: map[int]inside.Reg{}, scratched: map[int]*int32{}}
	s.shell.shell()
	o := inside.Options{Flags: shell.cloneFlags(), Cgroup: shell.Cgroup, Control: pair[1], Launcher: pair[0], First: true}
	begun := *program // the caller appends to it while another thread clones
	clone := func() (err error) {
		if s.Pid, err = begun.Start(o); err != inside.ErrNotFirst {
			unix.Close(pair[1])
			s.cloned <- err
		}
		return err
	}
	if clone() == inside.ErrNotFirst {
		o.First = false
		go func() {
			runtime.LockOSThread() // and never unlocked
			_ = clone()            // who waits hears of it
			select {}
		}()
	}
	return s, nil
}

// Give gives pid 1 the plan, so that it goes on while the caller still has
// something to do before the command may run. From then on [Sandbox.Pid] is known.
func (s *Sandbox) Give(p *Plan, io *Stdio) error {
	s.plan = p
	c := s.shell
	c.rest(p, io)
	if err := <-s.cloned; err != nil {
		s.link.file.Close()
		return c.cloneError(err)
	}
	s.supervision = inside.Supervision{Deadline: int64(p.Deadline), Grace: int64(p.Grace), Signals: c.signals, Terminal: c.tty, Namespace: p.has(profiles.LayerPidns)}
	if err := s.proceed(); err != nil {
		if gone(err) { // it says what it died of
			_, err = s.link.descriptors(0)
		}
		return s.fail(err)
	}
	if p.Network != nil {
		s.prepared = p.Network.Prepare() // while pid 1 opens its sockets
	}
	return nil
}

// Network makes the way out of the sockets that pid 1 has opened, while that mounts. [Sandbox.NetError]
// says why the kernel could not make it: whether the command may run without is for the caller to judge.
func (s *Sandbox) Network() error {
	list := s.plan.sockets()
	if len(list) == 0 {
		return nil
	}
	fds, err := s.link.descriptors(len(list))
	if err != nil {
		return s.fail(err)
	}
	n := len(fds) - 2*s.plan.Dial
	s.dialers.add(list[n:], fds[n:])
	if s.prepared != nil {
		s.Net, s.NetError = s.prepared.Open(fds[:n])
	}
	return nil
}

// Go lets the command run as soon as the set-up is through, with another environment than the plan's if env
// is not nil, and returns when it is. An error says that the set-up has failed: nothing of the command has run.
func (s *Sandbox) Go(env []string) error {
	if env != nil {
		s.env = env
		s.shell.environ.Replace(env)
	}
	err := s.proceed()
	if err == nil || gone(err) { // it says what it died of
		err = s.receive(4 + len(s.shell.send))
	}
	if err != nil {
		return s.fail(err)
	}
	s.shell.settle(s.plan)
	s.SharesKeyring = s.shell.keyring != nil && *s.shell.keyring == -int32(unix.EDQUOT)
	return nil
}

// gone reports whether an error says that pid 1 has closed its end.
func gone(err error) bool { return errors.Is(err, unix.EPIPE) || errors.Is(err, unix.ECONNRESET) }

// fail ends a sandbox whose set-up has failed.
func (s *Sandbox) fail(err error) error {
	s.Close()
	return overlayError(err)
}

// cloneError names the cause of a refused clone, as far as the host tells.
func (s Shell) cloneError(err error) error {
	if s.Cgroup != 0 {
		return cgroupError(err)
	}
	var errno unix.Errno
	errors.As(err, &errno)
	return explain(fmt.Errorf("%s: %w", StepClone, err), StepClone, errno, readText)
}

// cgroupError is the error where the kernel did not let a sandbox be born in its control group, with
// what refuses it most often. Nothing of the command has run.
func cgroupError(err error) error {
	why := "--memory none --cpus none --pids none needs no control group"
	switch {
	case errors.Is(err, unix.ENOSYS):
		why = "a seccomp filter around pccrun refuses clone3, which limits by cgroup v2 need: allow clone3"
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM):
		why = "you need write permission for cgroup.procs of the common parent of pccrun's and the sandbox's control groups"
	}
	return hint.Errorf(why, "clone into new namespaces and a control group: %w", err)
}

// Adopt makes Go's own of the sockets at which the sandbox's network is served.
// Who connects before waits.
func (s *Sandbox) Adopt() error {
	if s.Net != nil {
		if err := s.Net.Adopt(); err != nil {
			return err
		}
	}
	for len(s.listens) > 0 {
		f := os.NewFile(uintptr(s.listens[0]), "listener")
		s.listens = s.listens[1:]
		l, err := net.FileListener(f)
		f.Close()
		if err != nil {
			return err
		}
		s.Listeners = append(s.Listeners, l)
	}
	if s.asked != 0 {
		f := os.NewFile(uintptr(s.asked), "questions")
		s.asked = 0
		var err error
		s.Questions, err = net.FilePacketConn(f)
		f.Close()
		return err
	}
	return nil
}

// receive takes what pid 1 opened last.
func (s *Sandbox) receive(count int) error {
	fds, err := s.link.descriptors(count)
	if err != nil {
		return err
	}
	s.Private, s.user, s.mnt, s.root, fds = fds[0], fds[1], fds[2], fds[3], fds[4:]
	if s.shell.gate != 0 {
		if s.mounter.gate, fds = fds[0], fds[1:]; sameNode(s.mounter.gate, s.root) { // there is none
			unix.Close(s.mounter.gate)
			s.mounter.gate = 0
		}
	}
	if s.plan.Segments {
		s.SysV, fds = [3]int(fds), fds[len(s.SysV):]
	}
	if s.shell.tty != 0 {
		unix.SetNonblock(fds[0], true)
		s.Master, fds = os.NewFile(uintptr(fds[0]), "terminal"), fds[1:]
	}
	if s.plan.Questions {
		last := len(fds) - 1
		s.asked, fds = fds[last], fds[:last]
	}
	s.listens = fds
	return nil
}

// Next follows the command. It returns the signal by which the command was stopped, if it was, or how it
// ended, but for the usage, when nothing of it runs any more. The kernel may then still be taking the sandbox apart,
// which takes as long as what a launcher has to do at the end.
func (s *Sandbox) Next() (stopped unix.Signal, end *Result) {
	for !s.collected {
		m, n := s.message()
		switch {
		case n > 0 && m.Kind == inside.Stopped:
			return unix.Signal(m.A), nil
		case n > 0 && m.Kind == inside.Exited && m.C != 0: // nobody else is left
			s.part()
			return 0, &s.result
		}
	}
	s.part()
	return 0, &s.result
}

// message takes the next message of pid 1's, or collects pid 1 if there is none, and n is 0.
func (s *Sandbox) message() (m inside.Message, n int) {
	n, _, err := s.link.hear(&m, nil)
	if err != nil {
		s.problem, n = err, 0
	}
	if n == 0 {
		s.result.Usage, s.collected = s.reap(), true
		return m, 0
	}
	switch r := &s.result; m.Kind {
	case inside.Failed:
		s.problem = s.link.failed(m, n)
	case inside.NotExecuted:
		s.problem = &ExecError{Name: s.plan.Command.Argv[0], Errno: unix.Errno(m.B)}
	case inside.ExecGone:
		s.execs.ended(m)
	case inside.Left:
		r.Survivors = s.survivors()
		s.link.tell(inside.Message{Kind: inside.Seen})
	case inside.Exited:
		r.Status, r.TimedOut, r.Killed = unix.WaitStatus(m.A), m.B == inside.ByDeadline, false
	}
	return m, n
}

// Collect returns when nothing of the sandbox is left. Its error says that the command did not run, or why the
// launcher has ended it ([Sandbox.Abort]).
func (s *Sandbox) Collect() (*Result, error) {
	for !s.collected {
		s.message()
	}
	s.part()
	s.parting.Wait()
	s.link.file.Close()
	s.unplug()
	unix.Close(s.Private)
	for _, fd := range s.SysV {
		if fd != 0 {
			unix.Close(fd)
		}
	}
	if s.problem == nil && s.result.Killed { // what fails while an ended sandbox is taken apart is no reason of anything
		select {
		case s.problem = <-s.aborted:
		default:
		}
	}
	if s.problem != nil {
		return nil, s.problem
	}
	return &s.result, nil
}

// Abort ends everything inside, and has [Sandbox.Collect] return the cause, or that of an earlier call.
func (s *Sandbox) Abort(cause error) {
	select {
	case s.aborted <- cause:
	default:
	}
	s.Kill()
}

// part gives up the sandbox's namespaces, while pid 1 still holds them if
// possible: whoever is the last to do so takes every mount apart. That it is this
// process must not delay the caller of [Sandbox.Next], so it is done by another goroutine.
func (s *Sandbox) part() {
	if s.parted {
		return
	}
	s.parted = true
	s.result.Wall = time.Since(s.started)
	s.result.Looked, s.result.Made = s.looked()
	if s.remounter != nil {
		s.remounter.end()
	}
	s.mounter.end()
	s.parting.Go(func() {
		for _, fd := range [...]int{s.mnt, s.user, s.root} {
			unix.Close(fd)
		}
		if s.remounter != nil {
			s.remounter.Close()
		}
		s.starting.Lock() // a start ends with the sandbox
		defer s.starting.Unlock()
		s.execs.end()
		s.program.Free()
	})
}

// Close ends everything inside, and collects it. It is for a sandbox that was
// begun and cannot be started, and does nothing when it is called again.
func (s *Sandbox) Close() {
	if s.collected {
		return
	}
	s.collected = true
	if s.Pid == 0 && (s.plan != nil || <-s.cloned != nil) { // the clone has failed, as Give has returned
		return
	}
	unix.Kill(s.Pid, unix.SIGKILL)
	s.reap()
	s.link.file.Close()
	s.unplug()
}

// unplug closes what the launcher holds of the sandbox's network.
func (s *Sandbox) unplug() {
	if s.Net != nil {
		s.Net.Close()
	}
	for _, fd := range s.listens {
		unix.Close(fd)
	}
	s.listens = nil
	if s.asked != 0 {
		unix.Close(s.asked)
		s.asked = 0
	}
	if s.Questions != nil {
		s.Questions.Close()
	}
	s.dialers.close()
}

// Create makes a file in a directory that the plan has added with
// [With.Told].
func (s *Sandbox) Create(path string) (*os.File, error) {
	for i, m := range s.plan.Mounts {
		if m.Kind == Fresh && m.Target == filepath.Dir(path) {
			at := entry(i) + "/" + filepath.Base(path)
			fd, err := unix.Openat(s.Private, at, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_APPEND|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o644)
			if err != nil {
				return nil, &os.PathError{Op: "create", Path: path, Err: err}
			}
			return os.NewFile(uintptr(fd), path), nil
		}
	}
	return nil, &os.PathError{Op: "create", Path: path, Err: unix.ENOENT}
}

// proceed lets pid 1 go on from where it waits.
func (s *Sandbox) proceed() error {
	return s.program.Go(s.control, s.supervision)
}

// Kill ends everything inside; [Sandbox.Next] then returns.
func (s *Sandbox) Kill() { unix.Kill(s.Pid, unix.SIGKILL) }

// Signal asks pid 1 to forward a signal.
func (s *Sandbox) Signal(sig unix.Signal, to int32) {
	s.link.tell(inside.Message{Kind: inside.Signal, A: int32(sig), B: to})
}

// Resume lets a stopped command go on, in the foreground of its terminal or
// not.
func (s *Sandbox) Resume(foreground bool) {
	m := inside.Message{Kind: inside.Resume}
	if foreground {
		m.A = 1
	}
	s.link.tell(m)
}

// reap waits for pid 1, and so for everything: the kernel lets go of it when
// its pid namespace is empty.
func (s *Sandbox) reap() (usage unix.Rusage) {
	for {
		_, err := unix.Wait4(s.Pid, nil, unix.WALL, &usage)
		if err != unix.EINTR {
			return usage
		}
	}
}
