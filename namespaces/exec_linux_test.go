package namespaces

import (
	"io"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/internal/await"
	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/seccomp"
)

// executed is what another command in a sandbox wrote, and how it ended.
type executed struct {
	out    string
	status unix.WaitStatus
	err    error
}

// exec runs another command there.
func (r *trial) exec(argv ...string) (e executed) {
	r.b.t.Helper()
	null, err := os.Open(os.DevNull)
	require.NoError(r.b.t, err)
	defer null.Close()
	out, w, err := os.Pipe()
	require.NoError(r.b.t, err)
	defer out.Close()
	also, err := r.Exec([]string{argv[0]}, argv, [3]int{int(null.Fd()), int(w.Fd()), int(w.Fd())}, false)
	w.Close()
	if err != nil {
		return executed{err: err}
	}
	text, err := io.ReadAll(out)
	require.NoError(r.b.t, err)
	e.out = string(text)
	e.status, e.err = also.Wait()
	return e
}

// started starts a run of a shell script, and its waiting; end ends both.
func (b *bench) started(script string) (r *trial, end func() outcome) {
	b.t.Helper()
	r, err := b.sh(script).begin()
	require.NoError(b.t, err)
	ended := make(chan outcome, 1)
	go func() { ended <- r.end() }()
	b.t.Cleanup(r.Kill)
	return r, func() outcome { return <-ended }
}

const lasts = "while ! [ -e over ]; do sleep 0.01; done"

func TestExec(t *testing.T) {
	b := newBench(t, []string{".env", "read"}, "hide .env", "read read")
	b.plan.Floor, b.plan.Filter = seccomp.Floor(), seccomp.Default()
	r, end := b.started(lasts + "; exit 3")
	sh := func(script string) executed { return r.exec("/bin/sh", "-c", script) }

	e := sh("pwd; echo $DIR; umask; echo $PPID; exit 7")
	require.NoError(t, e.err)
	require.Equal(t, b.dir+"\n"+b.dir+"\n0022\n1\n", e.out)
	require.Equal(t, 7, e.status.ExitStatus())
	e = sh("kill -9 $$")
	require.Equal(t, unix.SIGKILL, e.status.Signal())

	// What holds of the first holds of it.
	e = sh("grep -E '^(CapEff|CapBnd|NoNewPrivs|Seccomp|Seccomp_filters):' /proc/self/status; ls /proc/self/fd")
	first := sh("grep -E '^(CapEff|CapBnd|NoNewPrivs|Seccomp|Seccomp_filters):' /proc/2/status; ls /proc/self/fd")
	require.Equal(t, first.out, e.out)
	require.Contains(t, e.out, "NoNewPrivs:\t1\nSeccomp:\t2\nSeccomp_filters:\t2\n0\n1\n2\n3\n")
	require.Contains(t, sh("echo x > read || echo no").out, "no")
	require.Contains(t, sh("cat .env").out, "ermission denied")
	require.NotZero(t, sh("unshare -U true").status.ExitStatus())
	require.Zero(t, sh("echo x > new").status, "control")
	require.Equal(t, "x\n", b.read("new"))
	require.Contains(t, sh("cat /proc/1/environ 2>&1").out, "ermission denied")

	// What cannot be executed is an error, and the next one runs.
	require.Equal(t, &ExecError{Name: "/none", Errno: unix.ENOENT}, r.exec("/none").err)
	require.Equal(t, &ExecError{Name: b.path("new"), Errno: unix.EACCES}, r.exec(b.path("new")).err)

	// Many at a time, and no more than there is room for.
	var all sync.WaitGroup
	var busy sync.Map
	for i := range 20 {
		all.Go(func() { busy.Store(i, sh("while ! [ -e go ]; do sleep 0.1; done; exit 5")) })
	}
	await.Until(t, "four are refused", func() bool {
		full := 0
		busy.Range(func(_, e any) bool { full++; return true })
		return full == 4
	})
	require.Error(t, sh("true").err)
	b.write("go", "")
	all.Wait()
	full := 0
	busy.Range(func(_, e any) bool {
		if e := e.(executed); e.err != nil {
			require.ErrorContains(t, e.err, "16 other commands run already")
			full++
		} else {
			require.Equal(t, 5, e.status.ExitStatus())
		}
		return true
	})
	require.Equal(t, 4, full)
	require.Zero(t, sh("true").status)

	// The end of the run is its own.
	left := make(chan executed)
	go func() { left <- sh("echo > there; exec sleep 600") }()
	r.until("there")
	b.write("over", "")
	o := end()
	require.Equal(t, 3, o.Status.ExitStatus())
	require.Equal(t, unix.SIGKILL, (<-left).status.Signal())
	require.ErrorIs(t, sh("true").err, ErrEnded)
}

func TestExecSignal(t *testing.T) {
	b := newBench(t, nil)
	r, end := b.started(lasts)
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	require.NoError(t, err)
	defer null.Close()
	fd := int(null.Fd())
	e, err := r.Exec([]string{"/bin/sleep"}, []string{"sleep", "600"}, [3]int{fd, fd, fd}, false)
	require.NoError(t, err)
	e.Signal(unix.SIGTERM)
	status, err := e.Wait()
	require.NoError(t, err)
	require.Equal(t, unix.SIGTERM, status.Signal())
	b.write("over", "")
	require.Zero(t, end().Status)
}

// A terminal is its own, with the sandbox's number, and Ctrl-C goes inside.
func TestExecTerminal(t *testing.T) {
	b := newBench(t, nil)
	r, end := b.started(lasts)
	master, slave, err := r.OpenTerminal()
	require.NoError(t, err)
	defer master.Close()
	fd := int(slave.Fd())
	e, err := r.Exec([]string{"/bin/sh"}, []string{"sh", "-c", "trap 'echo caught; exit 4' INT; tty; echo x > /dev/tty; while :; do sleep 0.1; done"}, [3]int{fd, fd, fd}, true)
	require.NoError(t, err)
	slave.Close()
	var text strings.Builder
	buffer := make([]byte, 100)
	for !strings.Contains(text.String(), "x\r\n") {
		n, err := master.Read(buffer)
		require.NoErrorf(t, err, "%q", text.String())
		text.Write(buffer[:n])
	}
	require.Equal(t, "/dev/pts/0\r\nx\r\n", text.String())
	_, err = master.Write([]byte{3})
	require.NoError(t, err)
	rest, _ := io.ReadAll(master)
	require.Equal(t, "^Ccaught\r\n", string(rest))
	status, err := e.Wait()
	require.NoError(t, err)
	require.Equal(t, 4, status.ExitStatus())
	b.write("over", "")
	require.Zero(t, end().Status)
}

// What pid 1 cannot do is refused before it is asked.
func TestExecRefused(t *testing.T) {
	b := newBench(t, nil)
	require.True(t, b.plan.execs(), "control")
	require.False(t, b.without(profiles.LayerPidns).plan.execs())
	b = newBench(t, nil)
	var err error
	b.plan.OwnFilter = true
	b.plan.Filter, err = seccomp.CompileOCI([]byte(`{"defaultAction":"SCMP_ACT_ALLOW","syscalls":[{"names":["recvmsg"],"action":"SCMP_ACT_ERRNO"}]}`), "amd64")
	require.NoError(t, err)
	require.False(t, b.plan.execs())
	r, end := b.started(lasts)
	require.ErrorIs(t, r.exec("/bin/true").err, ErrNoExec)
	b.write("over", "")
	require.Zero(t, end().Status)
}
