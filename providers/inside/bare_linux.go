package inside

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/internal/egress"
	"github.com/pccrun/pccrun/internal/events"
	"github.com/pccrun/pccrun/internal/state"
	"github.com/pccrun/pccrun/namespaces"
	"github.com/pccrun/pccrun/netproxy"
	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/providers"
	"github.com/pccrun/pccrun/seccomp"
	"github.com/pccrun/pccrun/seccomp/supervisor"
	"github.com/pccrun/pccrun/workspace/beneath"
)

// bare is the spool's part of such a run.
type bare struct {
	home    string // of the command, which goes with the run
	service *egress.Service
	tells   atomic.Bool // the command runs
	asIs    bool        // sockets are nobody's to make: a filter that asks cannot be loaded
}

// makeBare plans a run without namespaces, and makes what it needs.
func (e *elsewhere) makeBare() (err error) {
	p, b := e.asked.Policy, &bare{}
	switch {
	case p.Nested:
		return errors.New("nested: no user namespace can be made here")
	case p.Syscalls != "" && p.Syscalls != seccomp.NameDefault:
		return errors.New("syscalls: no file of the user's machine is here")
	case e.asked.Ask:
		return errors.New("--ask: nobody is asked where no namespace can be made")
	}
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return os.NewSyscallError("prctl(PR_SET_CHILD_SUBREAPER)", err)
	}
	if b.home, err = os.MkdirTemp("", "pccrun-home-"); err != nil {
		return err
	}
	e.bare, e.tree = b, true
	for name, text := range e.asked.Seeds {
		rest, below := strings.CutPrefix(name, p.Home+"/")
		if !below {
			continue
		}
		path := filepath.Join(b.home, rest)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text), 0o600)); err != nil {
			return err
		}
	}
	if os.Getuid() == 0 {
		if err := errors.Join(e.become(), give(b.home, &syscall.Credential{}, e.as)); err != nil {
			return err
		}
	}
	plan := &Plan{
		Argv: e.asked.Argv, Dir: Text(e.asked.Dir), Umask: 0o022, Stdin: e.asked.Stdin, Terminal: e.asked.Terminal, Columns: e.asked.Columns, Rows: e.asked.Rows,
		Filter: seccomp.Default(), Floor: seccomp.Floor(), Deadline: p.Resources.Deadline(), Grace: 5 * time.Second, Bare: &Bare{},
	}
	for _, path := range []string{p.Workspace, b.home, "/tmp", "/var/tmp", "/dev/shm", "/dev/null", "/dev/zero", "/dev/full", "/dev/tty", "/dev/pts", "/dev/ptmx"} {
		if real, err := filepath.EvalSymlinks(path); err == nil {
			plan.Writable = append(plan.Writable, real)
		}
	}
	limit := func(resource int, value int64, hard uint64) {
		if value > 0 {
			plan.Rlimits = append(plan.Rlimits, Rlimit{resource, min(uint64(value), hard), hard})
		}
	}
	want := &p.Resources
	limit(unix.RLIMIT_NOFILE, max(want.Files.Value, 0), uint64(want.Files.Value))
	limit(unix.RLIMIT_FSIZE, want.FileSize.Value, uint64(want.FileSize.Value))
	limit(unix.RLIMIT_NPROC, want.Pids.Value, uint64(want.Pids.Value))
	limit(unix.RLIMIT_CORE, 1, 1) // not 0: core(5), and package namespaces
	if plan.Bare.Sockets, err = seccomp.Watch(supervisor.Sockets(), runtime.GOARCH); err != nil {
		return err
	}
	if b.asIs = !listens(plan.Bare.Sockets); b.asIs {
		plan.Bare.Sockets = nil
	}
	e.plan = plan
	return e.leaveBare()
}

// become has the command be the owner of the copy, or where that is root a user whom nobody else is.
func (e *elsewhere) become() error {
	var st unix.Stat_t
	if err := unix.Stat(e.asked.Policy.Workspace, &st); err != nil {
		return &os.PathError{Op: "stat", Path: e.asked.Policy.Workspace, Err: err}
	}
	e.as = &syscall.Credential{Uid: st.Uid, Gid: st.Gid}
	if st.Uid != 0 {
		return nil
	}
	id := uint32(namespaces.WhoAmI().HostUID)
	e.as, e.given = &syscall.Credential{Uid: id, Gid: id}, true
	// For good: each change of an owner is one of the file, for whoever asks what the command changed.
	return give(e.asked.Policy.Workspace, &syscall.Credential{}, e.as)
}

// give makes the files of one owner below a directory another's. No command runs meanwhile.
func give(dir string, from, to *syscall.Credential) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return err
	}
	if st.Uid == from.Uid {
		if err := f.Chown(int(to.Uid), int(to.Gid)); err != nil {
			return err
		}
	}
	shut := func(path string, err error) error {
		return &os.PathError{Op: "open", Path: beneath.Shorten(path), Err: err}
	}
	return beneath.Walk(int(f.Fd()), beneath.Limits{Entries: 1 << 26, Depth: 1 << 26, Time: time.Hour, Shut: shut}, func(dir int, name string, st *unix.Stat_t, path func() string) error {
		if st.Uid != from.Uid {
			return nil
		}
		if err := unix.Fchownat(dir, name, int(to.Uid), int(to.Gid), unix.AT_SYMLINK_NOFOLLOW); err != nil && !beneath.Gone(err) {
			return &os.PathError{Op: "lchown", Path: beneath.Shorten(path()), Err: err}
		}
		return nil
	})
}

// leaveBare plans the way out, and serves it.
func (e *elsewhere) leaveBare() error {
	p := e.asked.Policy
	var environ []string
	for _, text := range e.asked.Environ {
		environ = append(environ, string(text))
	}
	env := slices.DeleteFunc(p.Environ(environ), func(v string) bool { return strings.HasPrefix(v, "HOME=") })
	env = append(env, "HOME="+e.bare.home)
	l, err := net.ListenTCP("tcp4", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		return err
	}
	port := l.Addr().(*net.TCPAddr).AddrPort().Port()
	way, err := egress.New(p, egress.Host{Environ: environ}, egress.Sandbox{Hostname: namespaces.Hostname, Proxy: port, Token: rand.Text(), Environ: env})
	if err != nil {
		l.Close()
		return err
	}
	if e.plan.Env = Texts(way.Environ); way.Rules == nil {
		return l.Close()
	}
	e.plan.Env, e.plan.Bare.Port = Texts(way.Uncaptured(way.Environ)), port
	if e.bare.service, err = way.Open(func(event netproxy.Event) { providers.Tell(told{e: e}, event) }); err != nil {
		return err
	}
	e.bare.service.Begin(nil)
	e.bare.service.Listeners(context.Background(), []net.Listener{l})
	return nil
}

// told passes on what the proxy did.
type told struct {
	providers.Observer
	e *elsewhere
}

func (t told) Decision(d events.NetDecision) { t.emit(d) }
func (t told) Closed(c events.NetClosed)     { t.emit(c) }
func (t told) emit(event events.Event) {
	if !t.e.bare.tells.Load() {
		return // of the trial's
	}
	t.e.say(Message{Event: bytes.TrimSpace(events.Append(nil, 0, time.Now(), "place", event))})
}

// tryBare runs, as the command will be run, what tries to reach the provider's own daemon.
func (e *elsewhere) tryBare(t *Trial, argv []Text) error {
	if err := e.makeBare(); err != nil {
		return err
	}
	t.Answers = e.bareAnswers()
	plan := *e.plan
	plan.Argv, plan.Deadline, plan.Terminal = argv, time.Minute, false
	e.plan = &plan
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer r.Close()
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	done, step, err := e.begun(&streams{theirs: [3]*os.File{null, w, null}})
	if err != nil {
		return fmt.Errorf("%s: %w", step, err)
	}
	printed, _ := io.ReadAll(io.LimitReader(r, 64<<10))
	done()
	return t.reached(printed)
}

// bareCommand runs what was asked for without namespaces.
func (e *elsewhere) bareCommand() error {
	plan := *e.plan
	plan.Argv, plan.Deadline, plan.Terminal = e.asked.Argv, e.asked.Policy.Resources.Deadline(), e.asked.Terminal
	e.plan = &plan
	deafen()
	e.bare.tells.Store(true)
	defer e.clearBare()
	var err error
	if plan.Terminal {
		if e.master, e.slave, err = e.openTerminal(plan.Columns, plan.Rows); err != nil {
			return err
		}
	}
	wait, step, err := e.start()
	var exec *execError
	switch {
	case errors.As(err, &exec):
		code := 126
		if errors.Is(err, fs.ErrNotExist) {
			code = 127
		}
		e.say(Message{Done: &Done{Refused: &Refusal{Code: code, Text: err.Error()}}})
		return nil
	case err != nil:
		return fmt.Errorf("%s: %w", step, err)
	}
	e.say(Message{Started: true})
	go e.obey(e.in)
	end := wait()
	if e.bare.service != nil {
		e.bare.service.Close()
	}
	e.clearBare() // before the files are asked for
	e.say(Message{Done: &Done{Code: end.Code, Signal: end.Signal, TimedOut: end.TimedOut, User: end.User, System: end.System, Survivors: end.Survivors}})
	return nil
}

// clearBare takes away what was made for the run.
func (e *elsewhere) clearBare() {
	e.reopen()
	_ = state.RemovePath(e.bare.home)
}

// reopen undoes what a command whose user is pccrun's has closed of pccrun's own files: Landlock knows no chmod(2).
// Package remote does the same where [Attach] cannot be executed.
func (e *elsewhere) reopen() {
	program := filepath.Dir(e.dir)
	for _, path := range []string{filepath.Dir(program), program, e.dir, filepath.Join(e.dir, lineName), filepath.Join(program, "pccrun")} {
		var st unix.Stat_t
		if unix.Lstat(path, &st) == nil && int(st.Uid) == os.Getuid() && st.Mode&0o700 != 0o700 && st.Mode&unix.S_IFMT != unix.S_IFLNK {
			_ = unix.Chmod(path, st.Mode&0o7777|0o700)
		}
	}
}

// bareAnswers say what this place lets be kept without a namespace. What is kept by being
// another machine, the provider answers for.
func (e *elsewhere) bareAnswers() []profiles.Answer {
	kept, weak, missing := profiles.KeptBy, profiles.WeakBy, profiles.MissingFor
	abi, want := Landlock(), &e.asked.Policy.Resources
	always := map[profiles.Guarantee]string{
		profiles.SysFilter: "two seccomp filters", profiles.SysNoNewUserns: "two seccomp filters", profiles.EnvScrub: "an environment of its own, pccrun not dumpable",
		profiles.ResFiles: "RLIMIT_NOFILE, RLIMIT_FSIZE", profiles.ResTime: "pccrun's clock", profiles.TTYIsolated: "a pseudo-terminal of its own",
	}
	limited := func(l profiles.Limit, a profiles.Answer) profiles.Answer {
		if l.Value == 0 {
			return kept("no limit is set")
		}
		return a
	}
	const noGroup = "no namespace can be made there, and without one nothing measures all processes together"
	return profiles.AnswerEach(always, func(g profiles.Guarantee) (a profiles.Answer, ok bool) {
		switch g {
		case profiles.NetAllowlist, profiles.NetAddress, profiles.NetDNS:
			switch {
			case e.bare.asIs:
				a = missing("no namespace can be made there, and no seccomp supervisor: the command makes its own sockets", "")
			case abi < landlockConnect && e.plan.Bare.Port != 0:
				a = missing(fmt.Sprintf("no namespace can be made there, and Landlock %d knows no ports: the command reaches each port of the sandbox's loopback", abi), "")
			case e.plan.Bare.Port == 0:
				a = kept("a seccomp supervisor, which makes no socket")
			default:
				a = kept("a seccomp supervisor, which binds each socket to the loopback; Landlock, which lets none but the proxy's port be connected to")
			}
		case profiles.NetTransparent:
			a = weak("variables that name the proxy", "programs that read none of them reach nothing", "")
		case profiles.NetInject:
			a = kept("no secret is injected")
			if len(e.asked.Policy.Network.Inject) > 0 {
				a = missing("no secret is injected where no namespace can be made", "")
			}
		case profiles.PrivNone:
			a = kept("empty capability sets, no_new_privs")
			if h := namespaces.CoreHandler(); h != "" {
				a = missing("a crash inside starts the core dump handler of the sandbox ("+h+")", "")
			}
		case profiles.ResMemory:
			a = limited(want.Memory, missing(noGroup, ""))
		case profiles.ResCPU:
			a = limited(want.CPUs, missing(noGroup, ""))
		case profiles.ResDisk:
			a = limited(want.Disk, missing("no namespace can be made there, and so no private file system", ""))
		case profiles.ResPids:
			a = limited(want.Pids, weak("RLIMIT_NPROC", "what else this user runs in the sandbox is counted too", ""))
		case profiles.LaunchIntegrity:
			switch {
			case abi < landlockRefer:
				a = missing("neither a namespace nor Landlock keeps the command from pccrun's own files", "")
			case e.as != nil:
				a = kept("another user, Landlock, one failing step ends the launch")
			case abi < landlockScope:
				a = weak("Landlock, pccrun not dumpable", "the command can end pccrun, whose user it is", "")
			default:
				a = weak("Landlock, pccrun not dumpable", "the command is pccrun's user", "")
			}
		default:
			return a, false
		}
		return a, true
	})
}

// hand installs the filter for sockets and gives its listener to the spool, by what it is told errors.
func (b *Bare) hand() error {
	listener, errno := load(b.Sockets, uintptr(supervisor.InstallFlags()))
	if errno != 0 {
		return errno
	}
	defer unix.Close(int(listener))
	return unix.Sendmsg(errorFD, []byte{0}, unix.UnixRights(int(listener)), nil, 0)
}

// listens reports whether a filter that asks can be loaded, by a thread that loads it and ends.
func listens(filter []byte) bool {
	loaded := make(chan bool)
	go func() {
		runtime.LockOSThread()
		if unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != nil {
			loaded <- false
			return
		}
		listener, errno := load(filter, uintptr(supervisor.InstallFlags()))
		if errno == 0 {
			unix.Close(int(listener))
		}
		loaded <- errno == 0
	}()
	return <-loaded
}

// socketPair is a pipe over which a descriptor goes.
func socketPair() (r, w *os.File, err error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, os.NewSyscallError("socketpair", err)
	}
	return os.NewFile(uintptr(pair[0]), "told"), os.NewFile(uintptr(pair[1]), "errors"), nil
}

// supervise takes the listener that a stage hands over. What comes in place of one is the beginning of an error.
func (b *Bare) supervise(told *os.File) (rest io.Reader, err error) {
	first, rights := make([]byte, 1), make([]byte, unix.CmsgSpace(4))
	var n, m int
	for n, m, _, _, err = unix.Recvmsg(int(told.Fd()), first, rights, unix.MSG_CMSG_CLOEXEC); err == unix.EINTR; {
		n, m, _, _, err = unix.Recvmsg(int(told.Fd()), first, rights, unix.MSG_CMSG_CLOEXEC)
	}
	if err != nil || m == 0 {
		return io.MultiReader(bytes.NewReader(first[:n]), told), err
	}
	messages, err := unix.ParseSocketControlMessage(rights[:m])
	if err != nil {
		return nil, err
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil {
		return nil, err
	}
	supervisor.Loopback(fds[0], b.Port != 0)
	return told, nil
}

// process is one that runs.
type process struct {
	pid, parent int
	name, start string
	over        bool // a zombie
}

// readProcess reads a process's state, proc_pid_stat(5).
func readProcess(pid int) (q process, ok bool) {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	open, end := bytes.IndexByte(stat, '('), bytes.LastIndex(stat, []byte(") "))
	if err != nil || open < 0 || end < open {
		return q, false
	}
	fields := strings.Fields(string(stat[end+2:]))
	if len(fields) < 20 {
		return q, false
	}
	parent, err := strconv.Atoi(fields[1])
	return process{pid, parent, string(stat[open+1 : end]), fields[19], fields[0] == "Z"}, err == nil
}

// processes are all that run here and are the command's: all but pid 1, or all that descend from the spool.
func (p *place) processes() (list []process) {
	entries, _ := os.ReadDir("/proc")
	all := map[int]process{}
	for _, entry := range entries {
		if pid, err := strconv.Atoi(entry.Name()); err == nil {
			if q, ok := readProcess(pid); ok {
				all[pid] = q
			}
		}
	}
	self := os.Getpid()
	for pid, q := range all {
		from := q.parent
		for n := 0; from > 1 && from != self && n < len(all); n++ {
			from = all[from].parent
		}
		if pid != self && (from == self || !p.tree) {
			list = append(list, q)
		}
	}
	slices.SortFunc(list, func(a, b process) int { return a.pid - b.pid })
	return list
}

// all sends a signal to all that runs here and is the command's.
func (p *place) all(sig unix.Signal) error {
	if !p.tree {
		return unix.Kill(-1, sig)
	}
	for _, q := range p.processes() {
		fd, err := unix.PidfdOpen(q.pid, 0)
		if now, ok := readProcess(q.pid); ok && now.start == q.start { // it is still that one
			if err == nil {
				err = unix.PidfdSendSignal(fd, sig, nil, 0)
			}
			if err == unix.EPERM || err == unix.ENOSYS { // by the filters of older engines: no other process takes its number so soon
				_ = unix.Kill(q.pid, sig)
			}
		}
		if fd >= 0 {
			unix.Close(fd)
		}
	}
	return nil
}

// endTree ends all that descends from the spool. What is stopped forks no more: it is ended when nobody
// new was there.
func (p *place) endTree(reap func(options int) bool) {
	for before := []process(nil); ; time.Sleep(time.Millisecond) {
		reap(unix.WNOHANG)
		now := p.processes()
		if len(now) == 0 {
			return
		}
		sig := unix.SIGSTOP
		if slices.EqualFunc(now, before, func(a, b process) bool { return a.pid == b.pid && a.start == b.start }) {
			sig = unix.SIGKILL
		}
		_ = p.all(sig)
		before = now
	}
}
