package inside

import (
	"bytes"
	"encoding/json"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/yamux"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/internal/await"
	"github.com/pccrun/pccrun/seccomp"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == Verb {
		os.Exit(Main(os.Args[2:]))
	}
	os.Exit(m.Run())
}

// launcher is the other side.
type launcher struct {
	session *yamux.Session
	out     *json.Encoder
	in      *json.Decoder
	died    chan error
}

type pipes struct {
	io.Reader
	io.WriteCloser
}

// launch starts this program as pid 1 of a pid namespace of its own.
func launch(t *testing.T) *launcher {
	t.Helper()
	args := []string{"--pid", "--fork", "--kill-child", "--mount-proc", "--net"}
	if os.Getuid() != 0 {
		args = append(args, "--map-root-user")
	}
	c := exec.Command("unshare", append(args, "sh", "-c", `ip link set lo up; exec "$0" "$@"`, os.Args[0], Verb)...)
	in, err := c.StdinPipe()
	require.NoError(t, err)
	out, err := c.StdoutPipe()
	require.NoError(t, err)
	c.Stderr = os.Stderr
	require.NoError(t, c.Start())
	l := &launcher{died: make(chan error, 1)}
	l.session, err = yamux.Client(pipes{out, in}, Config())
	require.NoError(t, err)
	t.Cleanup(func() {
		l.session.Close()
		_ = c.Process.Kill()
	})
	go func() { l.died <- c.Wait() }()
	control, kind := l.accept(t)
	require.Equal(t, Control, kind)
	l.in, l.out = json.NewDecoder(control), json.NewEncoder(control)
	require.Equal(t, Version, l.hear(t).Hello.Version)
	return l
}

func (l *launcher) accept(t *testing.T) (*yamux.Stream, Kind) {
	t.Helper()
	s, err := l.session.AcceptStream()
	require.NoError(t, err)
	var kind [1]byte
	_, err = io.ReadFull(s, kind[:])
	require.NoError(t, err)
	return s, Kind(kind[0])
}

func (l *launcher) hear(t *testing.T) (m Message) {
	t.Helper()
	require.NoError(t, l.in.Decode(&m))
	return m
}

func (l *launcher) say(t *testing.T, m Message) {
	t.Helper()
	require.NoError(t, l.out.Encode(m))
}

// plan is a plan of a shell's script.
func plan(script string) *Plan {
	return &Plan{
		Argv:     Texts([]string{"sh", "-c", script}),
		Env:      Texts([]string{"PATH=/usr/bin:/bin"}),
		Dir:      "/",
		Writable: []string{"/dev"},
		Filter:   seccomp.Default(),
		Floor:    seccomp.Floor(),
	}
}

//test:root
func TestACommand(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(dir+"/canary", []byte("sings"), 0o644))
	l := launch(t)
	p := plan(
		"umask; cat; pwd; ulimit -n; echo no >&2; (exec 3<>/dev/tcp/127.0.0.1/3128) 2>/dev/null; sleep 1000 & until grep -qx sleep /proc/$!/comm; do :; done; exit 7",
	)
	p.Stdin, p.Umask, p.Dir, p.Canary = true, 0o27, Text(dir), dir+"/canary"
	p.Rlimits = []Rlimit{{unix.RLIMIT_NOFILE, 99, 99}, {unix.RLIMIT_CORE, 1, 1}}
	p.Files = []File{{Path: dir + "/d/e", Dir: true}, {Path: dir + "/l", Link: "d"}, {Path: dir + "/t", Text: "x"}}
	l.say(t, Message{Plan: p})
	ready := l.hear(t).Ready
	require.NotNil(t, ready)
	assert.Equal(t, "sings", ready.Canary)
	assert.True(t, ready.Filter)
	assert.NotEmpty(t, ready.Kernel)
	assert.DirExists(t, dir+"/l/e")
	l.say(t, Message{Go: true})
	var printed [2]string
	streams := map[Kind]*yamux.Stream{}
	for range 3 {
		s, kind := l.accept(t)
		streams[kind] = s
	}
	_, err := streams[Stdin].Write([]byte("typed\n"))
	require.NoError(t, err)
	require.NoError(t, streams[Stdin].Close())
	require.True(t, l.hear(t).Started)
	for i, kind := range []Kind{Stdout, Stderr} {
		text, err := io.ReadAll(streams[kind])
		require.NoError(t, err)
		printed[i] = string(text)
	}
	assert.Equal(t, "0027\ntyped\n"+dir+"\n99\n", printed[0])
	assert.Equal(t, "no\n", printed[1])
	end := l.hear(t).Ended
	require.NotNil(t, end)
	assert.Equal(t, 7, end.Code)
	assert.Equal(t, []string{"sleep"}, end.Survivors)
	l.session.Close()
	require.NoError(t, <-l.died)
}

//test:root
func TestAConnection(t *testing.T) {
	l := launch(t)
	p := plan(`exec 3<>/dev/tcp/127.0.0.1/3128; echo asked >&3; read -r a <&3; echo "$a"`)
	p.Argv = Texts([]string{"bash", "-c", string(p.Argv[2])})
	p.Listen = []uint16{3128}
	l.say(t, Message{Plan: p})
	require.NotNil(t, l.hear(t).Ready)
	l.say(t, Message{Go: true})
	var out *yamux.Stream
	for {
		s, kind := l.accept(t)
		if kind == Stdout {
			out = s
		}
		if kind != Connection {
			continue
		}
		at, err := ReadAddress(s)
		require.NoError(t, err)
		assert.Equal(t, "127.0.0.1:3128", at.String())
		var got [6]byte
		_, err = io.ReadFull(s, got[:])
		require.NoError(t, err)
		assert.Equal(t, "asked\n", string(got[:]))
		_, err = s.Write([]byte("answered\n"))
		require.NoError(t, err)
		require.NoError(t, s.Close())
		break
	}
	text, err := io.ReadAll(out)
	require.NoError(t, err)
	assert.Equal(t, "answered\n", string(text))
}

// What is not as planned ends the launch, before the command.
//
//test:root
func TestWhatEndsALaunch(t *testing.T) {
	for name, c := range map[string]struct {
		change func(p *Plan)
		want   string
		exec   bool
	}{
		"mount":     {func(p *Plan) { p.Mounts = []Mount{{Path: "/", Dev: 1, Ino: 1}} }, "another file", false},
		"canary":    {func(p *Plan) { p.Canary = "/none" }, "no such file", false},
		"file":      {func(p *Plan) { p.Files = []File{{Path: "/none/x"}} }, "no such file", false},
		"directory": {func(p *Plan) { p.Dir = "/none" }, "no such file", false},
		"filter":    {func(p *Plan) { p.Filter = make([]byte, 8) }, "invalid argument", false},
		"command":   {func(p *Plan) { p.Argv[0] = "none-of-this-name" }, "no such file", true},
		"program":   {func(p *Plan) { p.Paths = []Text{"/etc/passwd"} }, "permission denied", true},
	} {
		t.Run(name, func(t *testing.T) {
			l := launch(t)
			p := plan("exit 0")
			c.change(p)
			l.say(t, Message{Plan: p})
			m := l.hear(t)
			if m.Ready != nil {
				l.say(t, Message{Go: true})
				m = l.hear(t)
			}
			require.NotNil(t, m.Failed)
			assert.Contains(t, m.Failed.Text, c.want)
			assert.Equal(t, c.exec, m.Failed.Exec)
		})
	}
}

// When the launcher is gone, however it went, all inside ends.
//
//test:root
func TestTheLauncherGoes(t *testing.T) {
	l := launch(t)
	l.say(t, Message{Plan: plan("sleep 1000")})
	require.NotNil(t, l.hear(t).Ready)
	l.say(t, Message{Go: true})
	require.True(t, l.hear(t).Started)
	l.session.Close()
	await.Closed(t, "all inside ends", l.died)
}

//test:root
func TestDeadline(t *testing.T) {
	l := launch(t)
	p := plan("exec sleep 600")
	p.Deadline, p.Grace = 100*time.Millisecond, await.Patience
	l.say(t, Message{Plan: p})
	require.NotNil(t, l.hear(t).Ready)
	l.say(t, Message{Go: true})
	require.True(t, l.hear(t).Started)
	end := l.hear(t).Ended
	assert.True(t, end.TimedOut)
	assert.Equal(t, int(unix.SIGTERM), end.Signal)
}

//test:root
func TestSignals(t *testing.T) {
	l := launch(t)
	l.say(t, Message{Plan: plan("trap 'exit 3' TERM; trap 'echo usr1' USR1; echo set; while :; do sleep 0.05; done")})
	require.NotNil(t, l.hear(t).Ready)
	l.say(t, Message{Go: true})
	out, kind := l.accept(t)
	require.Equal(t, Stdout, kind)
	require.True(t, l.hear(t).Started)
	set := make([]byte, 4)
	_, err := io.ReadFull(out, set)
	require.NoError(t, err)
	l.say(t, Message{Signal: int(unix.SIGUSR1)})
	_, err = io.ReadFull(out, set)
	require.NoError(t, err)
	assert.Equal(t, "usr1", string(set))
	l.say(t, Message{Signal: int(unix.SIGTERM)})
	end := l.hear(t).Ended
	assert.False(t, end.TimedOut)
	assert.Equal(t, 3, end.Code)
}

// Without a pid namespace of its own nothing is begun: it ends all processes that it
// can reach.
func TestMainIsForPidOne(t *testing.T) {
	assert.Equal(t, failed, Main(nil))
	assert.Equal(t, failed, Main([]string{"more", "words"}))
}

func TestText(t *testing.T) {
	want := []Text{"", "a", "\xff\x00 \u00e4"}
	text, err := json.Marshal(want)
	require.NoError(t, err)
	var got []Text
	require.NoError(t, json.Unmarshal(text, &got))
	assert.Equal(t, want, got)
	require.Error(t, json.Unmarshal([]byte(`["-"]`), &got))
}

func TestPackets(t *testing.T) {
	var b bytes.Buffer
	at := netip.MustParseAddrPort("127.64.1.2:5353")
	require.NoError(t, WritePacket(&b, at, []byte("question")))
	require.NoError(t, WritePacket(&b, at, nil))
	for _, want := range []string{"question", ""} {
		from, text, err := ReadPacket(&b)
		require.NoError(t, err)
		assert.Equal(t, at, from)
		assert.Equal(t, want, string(text))
	}
	_, _, err := ReadPacket(&b)
	require.Error(t, err)
}

func TestCompare(t *testing.T) {
	var st unix.Stat_t
	require.NoError(t, unix.Lstat("/proc", &st))
	dev := uint64(unix.Major(st.Dev))<<32 | uint64(unix.Minor(st.Dev))
	compare := func(mounts ...Mount) error { return (&Plan{Mounts: mounts}).compare() }
	require.NoError(t, compare(Mount{Path: "/proc"}, Mount{Path: "/proc", Dev: dev, Ino: st.Ino}), "the control")
	require.ErrorContains(t, compare(Mount{Path: "/proc", Dev: dev, Ino: st.Ino + 1}), "another file")
	require.ErrorContains(t, compare(Mount{Path: "/proc", ReadOnly: true}), "mounted writable")
	require.ErrorContains(t, compare(Mount{Path: "/etc"}), "nothing is mounted")
	require.ErrorContains(t, compare(Mount{Path: "/none"}), "no such file")
	// A socket of another user's directory, say, is covered by root's launcher; the command cannot look there, unless it is root.
	closed := t.TempDir()
	require.NoError(t, os.Chmod(closed, 0))
	if unix.Lstat(closed+"/x", &st) == unix.EACCES {
		require.ErrorContains(t, compare(Mount{Path: closed + "/x"}), "nothing is mounted there")
		require.ErrorContains(t, compare(Mount{Path: closed + "/x", Ino: 1}), "permission denied", "its number cannot be compared")
	}
	assert.Equal(
		t,
		map[string]MountPoint{"/a b": {true, "x"}, "/c": {false, "x"}},
		MountPoints(
			"1 2 0:1 / /a\\040b ro,nosuid shared:1 - x y z\n1 2 0:1 / /c ro - x y z\n1 2 0:1 / /c rw - x y z\nshort\n",
		),
	)
	assert.Equal(t, `/a\9`, unescape(`/a\9`))

	// What a virtual machine shows: by numbers where the canary has that of the other side, and no other kind of file system.
	shared := func(canary uint64, m Mount) error {
		m.Bound = true
		return (&Plan{Canary: "/proc", Share: &Share{Ino: canary}, Mounts: []Mount{m}}).compare()
	}
	require.NoError(t, shared(st.Ino, Mount{Path: "/proc", Ino: st.Ino}), "the control")
	require.ErrorContains(t, shared(st.Ino, Mount{Path: "/proc", Ino: st.Ino + 1}), "another file")
	require.NoError(t, shared(st.Ino+1, Mount{Path: "/proc", Ino: st.Ino + 1}), "numbers that are not passed on say nothing")
	require.ErrorContains(t, shared(st.Ino, Mount{Path: "/sys"}), "/sys: a file of the virtual machine's own (sysfs)")
}

func TestMakeFiles(t *testing.T) {
	dir := t.TempDir()
	for _, f := range []File{{Path: dir + "/a/b", Dir: true}, {Path: dir + "/l", Link: "a"}, {Path: dir + "/t", Text: "text"}} {
		require.NoError(t, f.make())
	}
	text, err := os.ReadFile(filepath.Join(dir, "t"))
	require.NoError(t, err)
	assert.Equal(t, "text", string(text))
	assert.DirExists(t, dir+"/l/b")
	require.Error(t, (&File{Path: dir + "/t/x", Dir: true}).make())
}

func TestJoin(t *testing.T) {
	a, b := net.Pipe()
	ours, err := yamux.Client(a, Config())
	require.NoError(t, err)
	theirs, err := yamux.Server(b, Config())
	require.NoError(t, err)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	client, err := net.Dial("tcp", l.Addr().String())
	require.NoError(t, err)
	server, err := l.Accept()
	require.NoError(t, err)
	s, err := ours.OpenStream()
	require.NoError(t, err)
	go Join(server.(*net.TCPConn), s)
	_, err = client.Write([]byte("up"))
	require.NoError(t, err)
	require.NoError(t, client.(*net.TCPConn).CloseWrite())
	far, err := theirs.AcceptStream()
	require.NoError(t, err)
	up, err := io.ReadAll(far)
	require.NoError(t, err)
	_, err = io.Copy(far, strings.NewReader("down after the half was closed"))
	require.NoError(t, err)
	require.NoError(t, far.Close())
	down, err := io.ReadAll(client)
	require.NoError(t, err)
	assert.Equal(t, "up", string(up))
	assert.Equal(t, "down after the half was closed", string(down))
}
