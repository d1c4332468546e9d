package namespaces

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/internal/await"
	"github.com/pccrun/pccrun/namespaces/inside"
	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/seccomp"
)

// alone fails a test that leaves a child.
func alone(t *testing.T) {
	t.Helper()
	list, err := os.ReadFile("/proc/self/task/" + strconv.Itoa(os.Getpid()) + "/children")
	require.NoError(t, err)
	require.Empty(t, strings.TrimSpace(string(list)), "children are left")
}

// Each script must fail, and succeed where the layer that stops it is off.
func TestMounts(t *testing.T) {
	files := []string{"secret.txt", "hidden/f.txt", "shown/f.txt", "private/old.txt", "private/in/f.txt", "git/hook.txt"}
	rules := []string{"hide secret.txt", "hide hidden", "read shown", "private private", "read private/in", "write git pin protect", "read git/hook.txt pin protect"}
	for _, c := range []struct {
		script string
		off    []profiles.Layer
	}{
		{"cat secret.txt", []profiles.Layer{profiles.LayerHide}},
		{"rm secret.txt", []profiles.Layer{profiles.LayerHide}},
		{"cat hidden/f.txt", []profiles.Layer{profiles.LayerHide}},
		{"> hidden/new", []profiles.Layer{profiles.LayerHide}},
		{"cat private/old.txt", []profiles.Layer{profiles.LayerHide}},
		{"> shown/new", []profiles.Layer{profiles.LayerReadonly, profiles.LayerLandlock}},
		{"> shown/f.txt", []profiles.Layer{profiles.LayerReadonly, profiles.LayerLandlock}},
		{"echo >> git/hook.txt", []profiles.Layer{profiles.LayerProtect}},
		{"mv git git2", []profiles.Layer{profiles.LayerProtect}},
		{"mkdir -p ../outside", []profiles.Layer{profiles.LayerReadonly, profiles.LayerLandlock}},
	} {
		t.Run(c.script, func(t *testing.T) {
			require.False(t, newBench(t, files, rules...).succeeds(c.script))
			require.True(t, newBench(t, files, rules...).without(c.off...).succeeds(c.script), "control")
		})
	}
	b := newBench(t, files, rules...)
	require.True(t, b.succeeds("cat shown/f.txt private/in/f.txt git/hook.txt && > private/new && > git/new && > made && test -e secret.txt"))
	require.FileExists(t, b.path("made"))
	require.FileExists(t, b.path("git/new"))
	require.NoFileExists(t, b.path("private/new"), "what is private is gone")
	alone(t)
}

// Every layer can be off, and the run still starts.
func TestWithout(t *testing.T) {
	for _, layer := range []profiles.Layer{
		profiles.LayerSeccomp, profiles.LayerFloor, profiles.LayerLandlock, profiles.LayerUsernsLimit, profiles.LayerPidns, profiles.LayerNetns, profiles.LayerIpcns,
		profiles.LayerUtsns, profiles.LayerCgroupns, profiles.LayerReadonly, profiles.LayerHide, profiles.LayerProtect, profiles.LayerProcMasks, profiles.LayerDumpable,
		profiles.LayerNoNewPrivs, profiles.LayerCaps, profiles.LayerKeyring, profiles.LayerFds, profiles.LayerRlimits, profiles.LayerTTY,
	} {
		t.Run(string(layer), func(t *testing.T) {
			b := newBench(t, []string{"secret.txt", "hidden/f.txt"}, "hide secret.txt", "hide hidden").without(layer)
			b.plan.Filter = seccomp.Default()
			require.True(t, b.succeeds("echo > made"))
		})
	}
	alone(t)
}

func TestInside(t *testing.T) {
	for _, c := range []struct {
		name, script, want string
		change             func(*Plan)
	}{
		{name: "its own name", script: "uname -n", want: "pccrun\n"},
		{name: "it sees itself", script: "ls -d /proc/[0-9]* | wc -l | grep -qx '[1-5]' && echo few", want: "few\n"},
		{name: "who it is", script: "id -u; id -g", want: fmt.Sprintf("%d\n%d\n", me().UID, me().GID)},
		{name: "no capability", script: "grep -c 'Cap[A-Z][a-z]*:.0*$' /proc/self/status", want: "5\n"},
		{name: "umask", script: "umask", want: "0022\n"},
		{name: "environment", script: "echo $PATH", want: "/usr/bin:/bin\n"},
		{name: "devices", script: "echo x > /dev/null && head -c 3 /dev/zero | wc -c; ls /dev/pts", want: "3\nptmx\n"},
		{name: "shared memory", script: "echo x > /dev/shm/y && cat /dev/shm/y", want: "x\n"},
		{name: "no network", script: "ls /sys/class/net", want: "lo\n"},
		{name: "the filter", script: "grep Seccomp: /proc/self/status", want: "Seccomp:\t2\n", change: func(p *Plan) { p.Filter = seccomp.Default() }},
		{name: "two filters", script: "grep -h Seccomp_filters: /proc/1/status /proc/self/status", want: "Seccomp_filters:\t2\nSeccomp_filters:\t2\n", change: func(p *Plan) { p.Floor, p.Filter = seccomp.Floor(), seccomp.Default() }},
		{name: "nested", script: "unshare -U true && echo made", want: "made\n", change: func(p *Plan) { p.Nested = true }},
		{name: "not nested", script: "unshare -U true 2>/dev/null || echo refused", want: "refused\n"},
		{name: "limits", script: "ulimit -n; ulimit -Hn", want: "77\n99\n", change: func(p *Plan) { p.Rlimits = []Rlimit{{unix.RLIMIT_NOFILE, "open files", 77, 99}} }},
		{name: "first to go for want of memory", script: "cat /proc/self/oom_score_adj", want: "234\n", change: func(p *Plan) { p.OOMScore = 234 }},
		{name: "no raised priority", script: "grep -c 'Max nice priority *0 *0' /proc/self/limits", want: "1\n", change: func(p *Plan) {
			p.Rlimits = rlimits(&profiles.Resources{}, &Facts{Files: unix.Rlimit{Cur: 64, Max: 64}})
		}},
		{name: "processors", script: "nproc", want: "1\n", change: func(p *Plan) { p.CPUs = firstProcessor() }},
		{name: "disk", script: "head -c 1m /dev/zero > /dev/shm/fits && echo fits; head -c 9m /dev/zero > /dev/shm/x 2>/dev/null || echo full", want: "fits\nfull\n", change: func(p *Plan) { p.Disk, p.Inodes = 4<<20, 128 }},
		{name: "inodes", script: "for i in $(seq 200); do > /dev/shm/$i; done 2>/dev/null || echo full", want: "full\n", change: func(p *Plan) { p.Disk, p.Inodes = 4<<20, 128 }},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBench(t, nil).sh(c.script)
			if c.change != nil {
				c.change(b.plan)
			}
			require.Equal(t, c.want, b.run().out)
		})
	}
}

// firstProcessor is the first of those that this process may run on.
func firstProcessor() []byte {
	var all, one unix.CPUSet
	if unix.SchedGetaffinity(0, &all) != nil {
		return nil
	}
	for i := range 1024 {
		if all.IsSet(i) {
			one.Set(i)
			break
		}
	}
	return bytes.Clone(unsafe.Slice((*byte)(unsafe.Pointer(&one)), unsafe.Sizeof(one)))
}

func TestTexts(t *testing.T) {
	b := newBench(t, []string{"etc/name.txt"}).sh("cat etc/name.txt; echo x > etc/name.txt")
	b.plan.Mounts = append(b.plan.Mounts, Mount{Kind: Text, Target: b.path("etc/name.txt"), ReadOnly: true, Mode: 0o644, Text: "another\n", Donated: -1})
	o := b.run()
	require.True(t, strings.HasPrefix(o.out, "another\n"), o.out)
	require.NotZero(t, o.Status, "it cannot be written")
	require.Empty(t, b.read("etc/name.txt"))
}

// A target that is gone is no failure where nothing is lost by that.
func TestOptional(t *testing.T) {
	b := newBench(t, []string{"socket.txt"}, "hide socket.txt optional").sh("true")
	require.NoError(t, os.Remove(b.path("socket.txt")))
	require.Zero(t, b.run().Status)
	b.plan.Mounts[1].Optional = false
	_, err := b.begin()
	require.ErrorIs(t, err, unix.ENOENT, "control")
}

func TestEnds(t *testing.T) {
	for script, want := range map[string]unix.WaitStatus{"exit 7": 7 << 8, "kill -SEGV $$": unix.WaitStatus(unix.SIGSEGV), "exit 0": 0} {
		o := newBench(t, nil).sh(script).run()
		require.Equal(t, want, o.Status&^0x80, script) // less the mark of a core dump
		require.False(t, o.TimedOut)
		require.Positive(t, o.Wall)
	}
	b := newBench(t, nil).sh("sleep 60")
	b.plan.Deadline, b.plan.Grace = 100*time.Millisecond, await.Patience
	o := b.run()
	require.True(t, o.TimedOut)
	require.Equal(t, unix.SIGTERM, o.Status.Signal())
	alone(t)
}

func TestSignals(t *testing.T) {
	r, err := newBench(t, nil).sh("exec sleep 60").begin()
	require.NoError(t, err)
	r.Signal(unix.SIGSTOP, inside.ToGroup)
	sig, _ := r.Next()
	require.Equal(t, unix.SIGSTOP, sig)
	r.Signal(unix.SIGTERM, inside.ToCommand)
	r.Resume(true)
	result, err := end(r.Sandbox)
	require.NoError(t, err)
	require.Equal(t, unix.SIGTERM, result.Status.Signal())

	r, err = newBench(t, nil).sh("sleep 60").begin()
	require.NoError(t, err)
	for range 100 { // some of it may stay unread
		r.Signal(unix.SIGWINCH, inside.ToGroup)
	}
	r.Kill()
	require.Equal(t, unix.SIGKILL, r.end().Status.Signal())
	alone(t)
}

// What pid 1 has no room for reaches it later, in its order: a run that was stopped
// goes on, whatever was said last of all that there was room for.
func TestSignalsAreNotLost(t *testing.T) {
	for odd := range 2 {
		b := newBench(t, nil)
		r, err := b.sh(waits + "await go").begin()
		require.NoError(t, err)
		require.NoError(t, unix.Kill(r.Pid, unix.SIGSTOP))
		await.Until(t, "pid 1 is stopped", func() bool {
			stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", r.Pid))
			return err == nil && strings.Contains(string(stat), ") T ")
		})
		for range odd {
			r.Signal(unix.SIGWINCH, inside.ToGroup)
		}
		for range 1000 {
			r.Signal(unix.SIGWINCH, inside.ToGroup)
			r.Signal(unix.SIGURG, inside.ToGroup)
		}
		r.link.mu.Lock()
		require.LessOrEqual(t, len(r.link.unsent), 2, "what is said again is kept once")
		require.NotEmpty(t, r.link.unsent, "there was room for all")
		r.link.mu.Unlock()
		require.NoError(t, unix.Kill(r.Pid, unix.SIGCONT))
		b.write("go", "")
		late := time.AfterFunc(await.Patience, r.Kill)
		require.Zero(t, r.end().Status)
		late.Stop()
		alone(t)
	}
}

// A step that fails ends the launch, with its name; nothing is left of it.
func TestStepFails(t *testing.T) {
	b := newBench(t, []string{"shown/f.txt"}, "read shown").sh("echo > ran")
	b.plan.Mounts[1].Ino++
	_, err := b.begin()
	var step *StepError
	require.ErrorAs(t, err, &step)
	require.ErrorIs(t, err, unix.ESTALE)
	require.Equal(t, "open "+b.path("shown")+": stale file handle", err.Error())
	require.NoFileExists(t, b.path("ran"))

	b.plan.Mounts[1].Ino--
	b.plan.Command.Dir = "/nonexistent"
	_, err = b.begin()
	require.EqualError(t, err, "enter /nonexistent: no such file or directory")
	b.plan.Command.Dir = b.dir
	require.Zero(t, b.run().Status, "control")
	alone(t)
}

func TestCommandThatDoesNotStart(t *testing.T) {
	b := newBench(t, []string{"text.txt"})
	b.plan.Command.Paths, b.plan.Command.Argv = []string{b.path("absent"), b.path("text.txt")}, []string{"text"}
	r, err := b.begin()
	require.NoError(t, err)
	_, err = end(r.Sandbox)
	var refused *ExecError
	require.ErrorAs(t, err, &refused)
	require.ErrorIs(t, err, unix.EACCES)
	require.Equal(t, "text: permission denied", err.Error())
}

// A sandbox that was begun and is given up leaves nothing.
func TestGiveUp(t *testing.T) {
	box, err := Begin(Shell{Identity: me()})
	require.NoError(t, err)
	box.Close()
	require.ErrorIs(t, unix.Kill(box.Pid, 0), unix.ESRCH)
	alone(t)

	box, err = Begin(Shell{Identity: me()})
	require.NoError(t, err)
	require.NoError(t, <-box.cloned)
	box.cloned <- nil
	box.Kill()
	require.ErrorIs(t, launch(box, newBench(t, nil).sh("true").plan, &Stdio{Fds: [3]int{0, 1, 2}, Host: -1}), ErrEnded)
	alone(t)

	_, err = Begin(Shell{Identity: Identity{HostUID: os.Getuid() + 1, HostGID: os.Getgid()}})
	require.NoError(t, err, "it fails later")
	box, err = Begin(Shell{Identity: Identity{HostUID: os.Getuid() + 1, HostGID: os.Getgid()}})
	require.NoError(t, err)
	require.ErrorContains(t, launch(box, newBench(t, nil).sh("true").plan, &Stdio{Fds: [3]int{0, 1, 2}, Host: -1}), "map user and group")
}

// beginRole says how a sandbox fares inside another.
func beginRole([]string) error {
	box, err := Begin(Shell{Identity: me()})
	if err != nil {
		return err
	}
	score, err := oomScore("/proc/self/oom_score_adj")
	if err != nil {
		return err
	}
	p := &Plan{OOMScore: score, Command: Command{Paths: []string{"/bin/true"}, Argv: []string{"true"}, Dir: "/"}}
	if err := launch(box, p, &Stdio{Fds: [3]int{0, 1, 2}, Host: -1}); err != nil {
		return err
	}
	_, err = end(box)
	return err
}

// in makes a role of this binary the command.
func (b *bench) in(role string, args ...string) *bench {
	cmd := self(b.t, role, args...)
	b.plan.Command.Paths, b.plan.Command.Argv = []string{cmd.Path}, cmd.Args
	b.plan.Command.Env = append(b.plan.Command.Env, roleVariable+"="+role, "GOCOVERDIR="+b.dir)
	return b
}

func TestCloneFails(t *testing.T) {
	o := newBench(t, nil).in("begin").run()
	require.Contains(t, o.out, "clone into new namespaces: ", "user namespaces are forbidden inside")
	b := newBench(t, nil).in("begin")
	b.plan.Nested = true
	require.Empty(t, b.run().out, "control")
}

// connectRole says hello to a port of the loopback and copies the answer.
func connectRole(args []string) error {
	c, err := net.Dial("tcp", "127.0.0.1:"+args[0])
	if err != nil {
		return err
	}
	fmt.Fprintln(c, "hello")
	_, err = io.Copy(os.Stdout, c)
	return err
}

// queueRole makes a POSIX message queue, mq_open(3), with flags, and sends to it if
// they let it.
func queueRole(args []string) error {
	flags, err := strconv.Atoi(args[0])
	if err != nil {
		return err
	}
	name, err := unix.BytePtrFromString("pccrun-test")
	if err != nil {
		return err
	}
	fd, _, errno := unix.Syscall6(unix.SYS_MQ_OPEN, uintptr(unsafe.Pointer(name)), uintptr(flags|unix.O_CREAT), 0o600, 0, 0, 0)
	if errno != 0 {
		return errno
	}
	if flags&unix.O_ACCMODE == unix.O_RDONLY {
		return nil
	}
	if _, _, errno := unix.Syscall6(unix.SYS_MQ_TIMEDSEND, fd, uintptr(unsafe.Pointer(name)), 1, 0, 0, 0); errno != 0 {
		return errno
	}
	return nil
}

// A message queue is a file of an internal file system, which no Landlock rule grants:
// nobody inside can write to one (docs/seccomp.md).
func TestMessageQueues(t *testing.T) {
	read, write := strconv.Itoa(unix.O_RDONLY), strconv.Itoa(unix.O_RDWR)
	require.Zero(t, newBench(t, nil).in("queue", read).run().Status)
	require.Zero(t, newBench(t, nil).in("queue", write).without(profiles.LayerLandlock).run().Status)
	if landlockABI() >= landlockRefer {
		out := newBench(t, nil).in("queue", write).run()
		require.NotZero(t, out.Status)
	}
}

// The launcher serves ports inside: who connects before waits.
func TestListeners(t *testing.T) {
	b := newBench(t, nil).in("connect", "3129")
	b.plan.Listen = []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:3128"), netip.MustParseAddrPort("127.0.0.1:3129"), netip.MustParseAddrPort("[::1]:3129")}
	r, err := b.begin()
	require.NoError(t, err)
	require.NoError(t, r.Adopt())
	require.Len(t, r.Listeners, 3)
	require.Equal(t, "[::1]:3129", r.Listeners[2].Addr().String())
	go func() {
		c, err := r.Listeners[1].Accept()
		if err == nil {
			line := make([]byte, 6)
			io.ReadFull(c, line)
			fmt.Fprintf(c, "you said %s", line)
			c.Close()
		}
	}()
	require.Equal(t, "you said hello\n", r.end().out)
	for _, l := range r.Listeners {
		l.Close()
	}
}

func TestCreate(t *testing.T) {
	b := newBench(t, []string{"private/"}, "private private")
	b.plan.addFresh(b.path("private/pccrun"), "for the command to read")
	b.plan.addFresh(b.path("elsewhere/pccrun"), "in nothing private")
	r, err := b.sh("while [ ! -s private/pccrun/log ]; do sleep 0.01; done; cat private/pccrun/log; echo x >> private/pccrun/log").begin()
	require.NoError(t, err)
	f, err := r.Create(b.path("private/pccrun/log"))
	require.NoError(t, err)
	_, err = f.WriteString("told\n")
	require.NoError(t, err)
	require.NoError(t, f.Close())
	_, err = r.Create(b.path("private/pccrun/log"))
	require.ErrorIs(t, err, unix.EEXIST)
	_, err = r.Create(b.path("elsewhere/pccrun/log"))
	require.ErrorIs(t, err, unix.ENOENT)
	o := r.end()
	require.True(t, strings.HasPrefix(o.out, "told\n"), o.out)
	require.NotZero(t, o.Status, "it can be read only")
	require.NoDirExists(t, b.path("private/pccrun"))
}

// writeRole writes a line to a descriptor.
func writeRole(args []string) error {
	fd, err := strconv.Atoi(args[0])
	if err == nil {
		_, err = unix.Write(fd, []byte("handed\n"))
	}
	return err
}

func TestPassedDescriptors(t *testing.T) {
	r, w, err := os.Pipe()
	require.NoError(t, err)
	defer r.Close()
	defer w.Close()
	fd, err := unix.FcntlInt(w.Fd(), unix.F_DUPFD, 30)
	require.NoError(t, err)
	defer unix.Close(fd)
	b := newBench(t, nil).in("write", strconv.Itoa(fd))
	require.NotZero(t, b.run().Status, "nothing but the standard descriptors is open")
	b.plan.PassFDs = []int{fd}
	require.Zero(t, b.run().Status)
	text := make([]byte, 16)
	n, err := r.Read(text)
	require.NoError(t, err)
	require.Equal(t, "handed\n", string(text[:n]))
}

// A command at a terminal has one of its own: it is its session's, and its keys
// and signals are the command's.
func TestTerminal(t *testing.T) {
	for _, background := range []bool{false, true} {
		b := newBench(t, nil).sh("tty; stty size; ps -o tpgid= -p $$ 2>/dev/null; exit 3")
		box, err := Begin(b.plan.Shell)
		require.NoError(t, err)
		require.NoError(t, launch(box, b.plan, &Stdio{Fds: [3]int{Terminal, Terminal, Terminal}, Host: 0, Background: background, size: &unix.Winsize{Row: 24, Col: 80}}))
		text := make(chan string)
		go func() {
			all, _ := io.ReadAll(box.Master) // EIO once nobody has it open
			text <- string(all)
		}()
		for sig, end := box.Next(); end == nil; sig, end = box.Next() {
			require.NotZero(t, sig)
			box.Resume(false)
		}
		result, err := box.Collect()
		require.NoError(t, err)
		require.Equal(t, 3, result.Status.ExitStatus())
		require.True(t, strings.HasPrefix(<-text, "/dev/pts/0\r\n24 80\r\n"), "its size is known before it can ask")
		box.Master.Close()
	}
	alone(t)
}

// What the host replaces is covered again.
func TestRemountWatcher(t *testing.T) {
	b := newBench(t, []string{"secret.txt", "hidden/f.txt", "shown/f.txt", "git/config.txt", "sub/deep/secret.txt"},
		"hide secret.txt", "hide hidden", "read shown", "write git pin protect", "read git/config.txt pin protect", "hide sub/deep/secret.txt", "write sub pin protect", "write sub/deep pin protect")
	r, err := b.sh(waits + "await go; for f in secret.txt hidden/f.txt sub/deep/secret.txt; do covered -r $f; done; covered -w shown; covered -w git/config.txt; cat secret.txt hidden/* sub/deep/secret.txt; for f in shown/new git/config.txt git/x; do (echo changed >> $f) && echo wrote $f; done; cat git/config.txt").begin()
	require.NoError(t, err)
	k, gone := r.Keep(), r.aborted
	require.NotNil(t, k)
	reader, writer, err := os.Pipe() // as to a program that is being started when the helper is
	require.NoError(t, err)
	defer reader.Close()
	replace := func(name string) {
		b.write("new", "replaced")
		require.NoError(t, os.Rename(b.path("new"), b.path(name)))
	}
	again := func(dir, file string) {
		require.NoError(t, os.Rename(b.path(dir), b.path("old")))
		require.NoError(t, os.MkdirAll(b.path(dir), 0o755))
		b.write(file, "replaced")
		require.NoError(t, os.RemoveAll(b.path("old")))
	}
	for range 3 {
		replace("secret.txt")
		replace("git/config.txt")
		again("hidden", "hidden/f.txt")
		again("shown", "shown/f.txt")
		again("sub/deep", "sub/deep/secret.txt")
	}
	require.NoError(t, writer.Close())
	require.NoError(t, reader.SetReadDeadline(await.Deadline()))
	_, err = reader.Read(make([]byte, 1))
	require.ErrorIs(t, err, io.EOF, "what mends holds no pipe of the launcher's")
	b.write("go", "")
	o := r.end()
	k.Close()
	require.Empty(t, gone)
	require.NotContains(t, strings.TrimSuffix(o.out, "replaced"), "replaced", "only the protected file can be read")
	require.Contains(t, o.out, "wrote git/x\nreplaced", "and that shows what is there now")
	require.NotContains(t, o.out, "wrote git/config.txt")
	require.NotContains(t, o.out, "wrote shown/new")

	r, err = newBench(t, nil).sh("true").begin()
	require.NoError(t, err)
	require.Nil(t, r.Keep(), "there is nothing to keep")
	r.end()
}

// A remount watcher that cannot go on says so.
func TestRemountWatcherGivesUp(t *testing.T) {
	b := newBench(t, []string{"secret.txt"}, "hide secret.txt")
	r, err := b.sh("while [ ! -e go ]; do sleep 0.01; done").begin()
	require.NoError(t, err)
	user := r.user
	r.user = -1
	k, gone := r.Keep(), r.aborted
	b.write("new", "replaced")
	require.NoError(t, os.Rename(b.path("new"), b.path("secret.txt")))
	err = await.Receive(t, "it gives up", gone)
	require.ErrorContains(t, err, "cover "+b.path("secret.txt")+" again")
	require.True(t, errors.Is(err, unix.EBADF), err)
	k.Close()
	r.user = user
	b.write("go", "")
	r.end()
	alone(t)
}

// A hard limit of the caller's that is lower than the plan's stays: raising it
// takes a privilege.
func TestHardLimitOfTheHost(t *testing.T) {
	var now unix.Rlimit
	require.NoError(t, unix.Getrlimit(unix.RLIMIT_MSGQUEUE, &now))
	b := newBench(t, nil).sh("ulimit -H -q 2>/dev/null; true")
	b.plan.Rlimits = []Rlimit{{unix.RLIMIT_MSGQUEUE, "message queues", now.Max + 1, now.Max + 1}}
	require.Zero(t, b.run().Status)
	r, stands := Rlimit{unix.RLIMIT_MSGQUEUE, "", now.Max + 1, now.Max + 1}.bounded()
	require.Equal(t, now.Max, r.Hard)
	require.Equal(t, now.Cur == now.Max, stands)
	r, stands = Rlimit{unix.RLIMIT_MSGQUEUE, "", 1, 2}.bounded()
	require.Equal(t, Rlimit{unix.RLIMIT_MSGQUEUE, "", 1, 2}, r)
	require.False(t, stands)
}
