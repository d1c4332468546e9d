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
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/internal/egress"
	"github.com/pccrun/pccrun/internal/events"
	"github.com/pccrun/pccrun/internal/procfs"
	"github.com/pccrun/pccrun/internal/state"
	"github.com/pccrun/pccrun/namespaces"
	"github.com/pccrun/pccrun/netproxy"
	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/providers"
	"github.com/pccrun/pccrun/seccomp"
	"github.com/pccrun/pccrun/seccomp/supervisor"
	"github.com/pccrun/pccrun/workspace/beneath"
)

// bare is what the spool has of a run without namespaces.
type bare struct {
	home         string // of the command, removed after the run
	trust        string // a directory of what it is to trust, likewise; "" for none
	service      *egress.Service
	reports      atomic.Bool // events are the command's, and no longer the trial's
	unsupervised bool        // the kernel has no seccomp supervisor: the command makes its own sockets
}

// makeBare plans a run without namespaces, and makes what it needs.
func (sp *spool) makeBare() (err error) {
	p, b := sp.asked.Policy, &bare{}
	switch {
	case p.Nested:
		return errors.New("nested: no user namespace can be made here")
	case p.Syscalls != "" && p.Syscalls != seccomp.NameDefault:
		return errors.New("syscalls: no file of the user's machine is here")
	case len(p.Network.Publish) > 0:
		return errors.New("publish: no server can be made where no namespace can be")
	case sp.asked.Ask:
		return errors.New("--ask: nobody is asked where no namespace can be made")
	}
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return os.NewSyscallError("prctl(PR_SET_CHILD_SUBREAPER)", err)
	}
	if b.home, err = os.MkdirTemp("", "pccrun-home-"); err != nil {
		return err
	}
	sp.bare, sp.place.tree = b, true
	for name, text := range sp.asked.Seeds {
		rest, below := strings.CutPrefix(name, p.Home+"/")
		if !below {
			continue
		}
		path := filepath.Join(b.home, rest)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text), 0o600)); err != nil {
			return err
		}
	}
	comesBack := homeDirs(p)
	for _, dir := range comesBack {
		at := filepath.Join(b.home, strings.TrimPrefix(dir, p.Home+"/"))
		if err := errors.Join(os.MkdirAll(filepath.Dir(at), 0o700), os.Symlink(dir, at)); err != nil {
			return err
		}
	}
	if os.Getuid() == 0 {
		if err := errors.Join(sp.chooseUser(), chownTree(b.home, &syscall.Credential{}, sp.place.as)); err != nil {
			return err
		}
	}
	if sp.injects() {
		if b.trust, err = os.MkdirTemp("", "pccrun-trust-"); err != nil {
			return err
		}
		if err := os.Chmod(b.trust, 0o755); err != nil {
			return err
		}
	}
	plan := &Plan{
		Argv: sp.asked.Argv, Dir: Text(sp.asked.Dir), Umask: 0o022, Stdin: sp.asked.Stdin, Screen: sp.asked.Screen,
		Filter: seccomp.Default(), Floor: seccomp.Floor(), Deadline: p.Resources.Deadline(), Grace: 5 * time.Second, Bare: &Bare{},
	}
	for _, path := range append(comesBack, p.Workspace, b.home, "/tmp", "/var/tmp", "/dev/shm", "/dev/null", "/dev/zero", "/dev/full", "/dev/tty", "/dev/pts", "/dev/ptmx") {
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
	if b.unsupervised = !loads(plan.Bare.Sockets, uintptr(supervisor.InstallFlags())); b.unsupervised {
		plan.Bare.Sockets = nil
	}
	sp.place.plan = plan
	return sp.serveProxy()
}

// chooseUser has commands run as the owner of the copy, or where that is root as a user whom nobody else is.
func (sp *spool) chooseUser() error {
	var st unix.Stat_t
	if err := unix.Stat(sp.asked.Policy.Workspace, &st); err != nil {
		return &os.PathError{Op: "stat", Path: sp.asked.Policy.Workspace, Err: err}
	}
	sp.place.as = &syscall.Credential{Uid: st.Uid, Gid: st.Gid}
	if st.Uid != 0 {
		return nil
	}
	id := uint32(namespaces.WhoAmI().HostUID)
	sp.place.as, sp.given = &syscall.Credential{Uid: id, Gid: id}, true
	// For good: each change of an owner is one of the file, for whoever asks what the command changed.
	for _, dir := range homeDirs(sp.asked.Policy) {
		if err := chownTree(dir, &syscall.Credential{}, sp.place.as); err != nil {
			return err
		}
	}
	return chownTree(sp.asked.Policy.Workspace, &syscall.Credential{}, sp.place.as)
}

// homeDirs are the directories of the home that the command writes here, and that are fetched.
func homeDirs(p *profiles.Policy) (list []string) {
	for _, rule := range p.Files {
		if rule.Origin.Source == OfConversation && strings.HasPrefix(rule.Path, p.Home+"/") {
			list = append(list, rule.Path)
		}
	}
	return list
}

// chownTree makes the files of one owner below a directory another's. No command runs meanwhile.
func chownTree(dir string, from, to *syscall.Credential) error {
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

// injects reports whether a secret is to be put in, and can be: pccrun's own process is another user's than the command.
func (sp *spool) injects() bool { return len(sp.asked.Policy.Network.Inject) > 0 && sp.place.as != nil }

// serveProxy plans the egress, and serves its proxy.
func (sp *spool) serveProxy() error {
	p := sp.asked.Policy
	if !sp.injects() {
		without := *p
		without.Network.Inject, p = nil, &without
	}
	var environ []string
	for _, text := range slices.Concat(sp.asked.Environ, sp.asked.Secrets) {
		environ = append(environ, string(text))
	}
	env := slices.DeleteFunc(p.Environ(environ), func(v string) bool { return strings.HasPrefix(v, "HOME=") })
	env = append(env, "HOME="+sp.bare.home)
	l, err := net.ListenTCP("tcp4", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		return err
	}
	port := l.Addr().(*net.TCPAddr).AddrPort().Port()
	out, err := egress.New(p, egress.Host{Environ: environ}, egress.Sandbox{Hostname: namespaces.Hostname, Proxy: port, Token: rand.Text(), Trust: sp.bare.trust, Environ: env})
	if err != nil {
		l.Close()
		return err
	}
	if sp.place.plan.Env = Texts(out.Environ); out.Rules == nil {
		return l.Close()
	}
	if err := sp.inspect(out); err != nil {
		l.Close()
		return err
	}
	sp.place.plan.Env, sp.place.plan.Bare.Port = Texts(out.Trusting(out.Uncaptured(out.Environ))), port
	if sp.bare.service, err = out.Open(func(event netproxy.Event) { providers.Tell(decisions{sp: sp}, event) }); err != nil {
		return err
	}
	sp.place.egress = sp.bare.service
	sp.bare.service.Begin(nil)
	sp.bare.service.Listeners(context.Background(), []net.Listener{l})
	return nil
}

// inspect starts the process that puts secrets in, as a user whom nobody else is, and writes down what it is trusted by.
func (sp *spool) inspect(out *egress.Plan) error {
	if !sp.injects() {
		return nil
	}
	id := namespaces.WhoAmI().HostUID
	if uint32(id) == sp.place.as.Uid {
		id++
	}
	files, err := out.StartInspector(func() (*os.File, error) { return os.Open("/proc/self/exe") }, id, id)
	for _, f := range files {
		err = errors.Join(err, os.WriteFile(f.Path, []byte(f.Text), 0o644))
	}
	return err
}

// decisions is an observer that sends the launcher what the proxy decided.
type decisions struct {
	providers.Observer
	sp *spool
}

func (d decisions) Decision(e events.NetDecision) { d.emit(e) }
func (d decisions) Closed(e events.NetClosed)     { d.emit(e) }
func (d decisions) emit(event events.Event) {
	if !d.sp.bare.reports.Load() {
		return
	}
	d.sp.place.say(Message{Event: bytes.TrimSpace(events.Append(nil, 0, time.Now(), "place", event))})
}

// tryBare runs, as the command will be run, what tries to reach the provider's own daemon.
func (sp *spool) tryBare(t *Trial, argv []Text) error {
	if err := sp.makeBare(); err != nil {
		return err
	}
	t.Answers = sp.bareAnswers()
	plan := *sp.place.plan
	plan.Argv, plan.Deadline, plan.Terminal = argv, time.Minute, false
	sp.place.plan = &plan
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer r.Close()
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	done, step, err := sp.place.startWith(&streams{theirs: [3]*os.File{null, w, null}})
	if err != nil {
		return fmt.Errorf("%s: %w", step, err)
	}
	printed, _ := io.ReadAll(io.LimitReader(r, 64<<10))
	done()
	return t.readReached(printed)
}

// bareCommand runs what was asked for without namespaces.
func (sp *spool) bareCommand() error {
	if sp.injects() { // the trial's was for stand-ins
		if sp.bare.service != nil {
			sp.bare.service.Close()
		}
		if err := sp.serveProxy(); err != nil {
			return err
		}
	}
	plan := *sp.place.plan
	plan.Argv, plan.Deadline, plan.Terminal = sp.asked.Argv, sp.asked.Policy.Resources.Deadline(), sp.asked.Terminal
	sp.place.plan = &plan
	sp.bare.reports.Store(true)
	defer sp.clearBare()
	wait, step, err := sp.place.start()
	var exec *execError
	switch {
	case errors.As(err, &exec):
		code := 126
		if errors.Is(err, fs.ErrNotExist) {
			code = 127
		}
		sp.place.say(Message{Done: &Done{Refused: &Refusal{Code: code, Text: err.Error()}}})
		return nil
	case err != nil:
		return fmt.Errorf("%s: %w", step, err)
	}
	sp.place.say(Message{Started: true})
	go sp.place.followLauncher(sp.in, func(sig unix.Signal) { sp.place.signal(0, sig) }, sp.place.begin)
	end := wait()
	if sp.bare.service != nil {
		sp.bare.service.Close()
	}
	sp.clearBare() // before the files are asked for
	sp.place.say(Message{Done: &Done{Ended: *end}})
	return nil
}

// clearBare takes away what was made for the run.
func (sp *spool) clearBare() {
	sp.reopen()
	_ = state.RemovePath(sp.bare.home)
	if sp.bare.trust != "" {
		_ = state.RemovePath(sp.bare.trust)
	}
}

// reopen undoes what a command whose user is pccrun's has closed of pccrun's own files: Landlock knows no chmod(2).
// Package remote does the same where [Attach] cannot be executed.
func (sp *spool) reopen() {
	program := filepath.Dir(sp.dir)
	for _, path := range []string{filepath.Dir(program), program, sp.dir, filepath.Join(sp.dir, lineName), filepath.Join(program, "pccrun")} {
		var st unix.Stat_t
		if unix.Lstat(path, &st) == nil && int(st.Uid) == os.Getuid() && st.Mode&0o700 != 0o700 && st.Mode&unix.S_IFMT != unix.S_IFLNK {
			_ = unix.Chmod(path, st.Mode&0o7777|0o700)
		}
	}
}

// bareAnswers say what this place lets be kept without a namespace. What is kept by being
// another machine, the provider answers for.
func (sp *spool) bareAnswers() []profiles.Answer {
	kept, weak, missing := profiles.KeptBy, profiles.WeakBy, profiles.MissingFor
	abi, want := Landlock(), &sp.asked.Policy.Resources
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
			case sp.bare.unsupervised:
				a = missing("no namespace can be made there, and no seccomp supervisor: the command makes its own sockets", "")
			case abi < landlockConnect && sp.place.plan.Bare.Port != 0:
				a = missing(fmt.Sprintf("no namespace can be made there, and Landlock %d knows no ports: the command reaches each port of the sandbox's loopback", abi), "")
			case sp.place.plan.Bare.Port == 0:
				a = kept("a seccomp supervisor, which makes no socket")
			default:
				a = kept("a seccomp supervisor, which binds each socket to the loopback; Landlock, which lets none but the proxy's port be connected to")
			}
		case profiles.NetTransparent:
			a = weak("variables that name the proxy", "programs that read none of them reach nothing", "")
		case profiles.NetInject:
			a = kept("no secret is injected")
			if sp.injects() {
				a = weak("a process of another user, which reads the requests to its hosts", "programs that read no variable which names certificates do not trust it", "")
			} else if len(sp.asked.Policy.Network.Inject) > 0 {
				a = missing("no namespace can be made there, and the process that would hold the secret has the command's user", "")
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
			case sp.place.as != nil:
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

// superviseSockets installs the filter for sockets and passes its listener to the spool, over the socket of [errorFD].
func (b *Bare) superviseSockets() error {
	listener, errno := load(b.Sockets, uintptr(supervisor.InstallFlags()))
	if errno != 0 {
		return errno
	}
	defer unix.Close(int(listener))
	return unix.Sendmsg(errorFD, []byte{0}, unix.UnixRights(int(listener)), nil, 0)
}

// socketPair is a pipe of both directions, over which a descriptor goes too.
func socketPair() (mine, theirs *os.File, err error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, os.NewSyscallError("socketpair", err)
	}
	return os.NewFile(uintptr(pair[0]), "socket"), os.NewFile(uintptr(pair[1]), "socket"), nil
}

// supervise takes the listener that [Bare.superviseSockets] passes. What comes in place of one is the beginning of an error.
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

// processes are the command's: all that descend from this process, but for the one that serves HTTP for but.
func processes(but *egress.Service) (list []procfs.Stat) {
	served := 0
	if but != nil {
		served = but.Process()
	}
	for _, pid := range procfs.Tree(os.Getpid()) {
		if s, ok := procfs.ReadStat(pid); ok && pid != os.Getpid() && pid != served {
			list = append(list, s)
		}
	}
	return list
}

// startTime is the field of proc_pid_stat(5) by which a process is told from another of the same number.
const startTime = 22

// all sends a signal to all that runs here and is the command's.
func (p *place) all(sig unix.Signal) error {
	if !p.tree {
		return unix.Kill(-1, sig)
	}
	for _, s := range processes(p.egress) {
		fd, err := unix.PidfdOpen(s.Pid, 0)
		if now, ok := procfs.ReadStat(s.Pid); ok && now.Field(startTime) == s.Field(startTime) { // it is still that one
			if err == nil {
				err = unix.PidfdSendSignal(fd, sig, nil, 0)
			}
			if err == unix.EPERM || err == unix.ENOSYS { // by the filters of older engines: no other process takes its number so soon
				_ = unix.Kill(s.Pid, sig)
			}
		}
		if fd >= 0 {
			unix.Close(fd)
		}
	}
	return nil
}

// endTree ends all that descends from the spool. What is stopped forks no more: it is killed when nobody
// new was there.
func (p *place) endTree() {
	same := func(a, b procfs.Stat) bool { return a.Pid == b.Pid && a.Field(startTime) == b.Field(startTime) }
	for before := []procfs.Stat(nil); ; time.Sleep(time.Millisecond) {
		for p.reap(unix.WNOHANG) {
		}
		now := processes(p.egress)
		if len(now) == 0 {
			return
		}
		sig := unix.SIGSTOP
		if slices.EqualFunc(now, before, same) {
			sig = unix.SIGKILL
		}
		_ = p.all(sig)
		before = now
	}
}
