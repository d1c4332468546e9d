package cgroups

import (
	"bufio"
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/godbus/dbus/v5"
	"github.com/stretchr/testify/require"
)

const job = dbus.ObjectPath("/org/freedesktop/systemd1/job/7")

// shortDir returns a directory whose name leaves room for a socket's.
func shortDir(t *testing.T) string {
	dir, err := os.MkdirTemp("/tmp", "cg")
	require.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// startBus starts a bus, and returns its socket.
func startBus(t *testing.T) string {
	daemon, err := exec.LookPath("dbus-daemon")
	if err != nil {
		t.Skip("needs dbus-daemon")
	}
	dir := shortDir(t)
	socket := filepath.Join(dir, "bus")
	config := filepath.Join(dir, "config")
	require.NoError(t, os.WriteFile(config, []byte(`<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN"
 "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
<busconfig><listen>unix:path=`+socket+`</listen><auth>EXTERNAL</auth>
<policy context="default"><allow send_destination="*"/><allow receive_sender="*"/><allow own="*"/><allow user="*"/></policy></busconfig>`), 0o644))
	cmd := exec.Command(daemon, "--config-file="+config, "--nofork", "--nopidfile", "--print-address")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	_, err = bufio.NewReader(out).ReadString('\n') // it listens
	require.NoError(t, err)

	return socket
}

// A fakeManager is a service manager on a real bus.
type fakeManager struct {
	conn    *dbus.Conn
	refuses *dbus.Error
	before  []any // signals that it gives before its answer
	after   []any // and after it
	asked   chan []property
}

func (m *fakeManager) StartTransientUnit(name, mode string, properties []property, aux []struct {
	Name       string
	Properties []property
}) (dbus.ObjectPath, *dbus.Error) {
	m.asked <- properties
	m.signal(m.before)
	time.AfterFunc(20*time.Millisecond, func() { m.signal(m.after) })
	return job, m.refuses
}

// signal says that a job has ended, each of which is a path and a result, or whatever
// else it is given.
func (m *fakeManager) signal(results []any) {
	for _, r := range results {
		if pair, ok := r.([2]string); ok {
			_ = m.conn.Emit(managerPath, manager+".JobRemoved", uint32(7), dbus.ObjectPath(pair[0]), "x.scope", pair[1])
		} else {
			_ = m.conn.Emit(managerPath, manager+".JobRemoved", r)
		}
	}
}

func TestAskForScope(t *testing.T) {
	socket := startBus(t)
	conn, err := dbus.Connect("unix:path=" + socket)
	require.NoError(t, err)
	defer conn.Close()
	_, err = conn.RequestName("org.freedesktop.systemd1", 0)
	require.NoError(t, err)
	done, failed, other := [2]string{string(job), "done"}, [2]string{string(job), "failed"}, [2]string{"/other", "failed"}
	for _, test := range []struct {
		name    string
		manager fakeManager
		want    string // error
	}{
		{"done after the answer", fakeManager{after: []any{other, done}}, ""},
		{"done before the answer", fakeManager{before: []any{done}}, ""},
		{"failed", fakeManager{after: []any{failed}}, "job failed"},
		{"refused", fakeManager{refuses: dbus.NewError("org.freedesktop.DBus.Error.AccessDenied", []any{"no"})}, "no"},
		{"signals of others", fakeManager{before: []any{other, "x"}, after: []any{"x", other, failed}}, "job failed"},
	} {
		t.Run(test.name, func(t *testing.T) {
			m := test.manager
			m.conn, m.asked = conn, make(chan []property, 1)
			require.NoError(t, conn.Export(&m, managerPath, manager))
			err := askForScope(t.Context(), socket, "pccrun-1-ab.scope")
			if test.want == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, test.want)
			}
			require.Equal(t, scopeProperties("pccrun-1-ab.scope", os.Getpid()), <-m.asked)
		})
	}

	// The group is taken from the kernel, not from what the manager says: it may
	// have moved another process that has our number where it lives.
	m := fakeManager{conn: conn, asked: make(chan []property, 1), before: []any{done}}
	require.NoError(t, conn.Export(&m, managerPath, manager))
	_, err = startScope(socket, "x.scope")
	require.ErrorContains(t, err, "start scope x.scope: this process is in ")

	// Without a manager the bus says so.
	require.NoError(t, conn.Close())
	require.ErrorContains(t, askForScope(t.Context(), socket, "x.scope"), "org.freedesktop.systemd1")
}

// A fakeLogin is logind on a real bus.
type fakeLogin struct{ kills any }

func (l fakeLogin) Get(string, string) (dbus.Variant, *dbus.Error) {
	if l.kills == nil {
		return dbus.Variant{}, dbus.NewError("org.freedesktop.DBus.Error.UnknownProperty", nil)
	}
	return dbus.MakeVariant(l.kills), nil
}

func TestEndsAtLogout(t *testing.T) {
	socket := startBus(t)
	require.False(t, EndsAtLogout(socket), "nobody answers")
	conn, err := dbus.Connect("unix:path=" + socket)
	require.NoError(t, err)
	defer conn.Close()
	_, err = conn.RequestName("org.freedesktop.login1", 0)
	require.NoError(t, err)
	for _, kills := range []any{true, false, "yes", nil} {
		require.NoError(t, conn.Export(fakeLogin{kills}, "/org/freedesktop/login1", "org.freedesktop.DBus.Properties"))
		require.Equal(t, kills == true, EndsAtLogout(socket), "%v", kills)
	}
	require.False(t, EndsAtLogout("/does/not/exist"))
}

func TestScopeDir(t *testing.T) {
	fake := newFake(t, "0::/user.slice/x.scope\n")
	fake.mount("", 0x63677270)
	dir, err := scopeDir(fake.machine(1000), "x.scope")
	require.NoError(t, err)
	require.Equal(t, fake.root+"/cg/user.slice/x.scope", dir)
	_, err = scopeDir(fake.machine(1000), "y.scope")
	require.Error(t, err)
}

func TestBusThatIsNotWell(t *testing.T) {
	dir := shortDir(t)
	for name, serve := range map[string]func(net.Conn){
		"says nothing": func(net.Conn) {},
		"refuses":      func(c net.Conn) { _, _ = c.Write([]byte("REJECTED X\r\n")) },
		"hangs up":     func(c net.Conn) { c.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			socket := filepath.Join(dir, name)
			l, err := net.Listen("unix", socket)
			require.NoError(t, err)
			defer l.Close()
			go func() {
				if c, err := l.Accept(); err == nil {
					serve(c)
					time.Sleep(time.Minute) // as a peer that stays
				}
			}()
			ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
			defer cancel()
			require.Error(t, askForScope(ctx, socket, "x.scope"))
		})
	}
	_, err := startScope("/does/not/exist", "x.scope")
	require.ErrorIs(t, err, os.ErrNotExist)
}
