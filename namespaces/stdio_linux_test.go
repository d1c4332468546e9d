package namespaces

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/internal/await"
)

// judgement is what the role "stdio" finds.
type judgement struct {
	Fds        [3]int
	Host       int
	Background bool
	Err        string
}

// stdioRole judges its standard descriptors, less those that it is told to
// close, and says so on descriptor 3.
func stdioRole(args []string) error {
	for _, arg := range args {
		fd, err := strconv.Atoi(arg)
		if err != nil {
			return err
		}
		unix.Close(fd)
	}
	var j judgement
	s, err := JudgeStdio(false)
	if err != nil {
		j.Err = err.Error()
	} else {
		j.Fds, j.Host, j.Background = s.Fds, s.Host, s.Background
	}
	return json.NewEncoder(os.NewFile(3, "verdict")).Encode(j)
}

// judge returns what JudgeStdio says of three files.
func judge(t *testing.T, files [3]*os.File, args ...string) (j judgement) {
	r, w, err := os.Pipe()
	require.NoError(t, err)
	defer r.Close()
	cmd := self(t, "stdio", args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = files[0], files[1], files[2], []*os.File{w}
	err = cmd.Run()
	w.Close()
	require.NoError(t, err)
	require.NoError(t, json.NewDecoder(r).Decode(&j))
	return j
}

// openTerminal returns both ends of a new terminal.
func openTerminal(t *testing.T) (master, slave *os.File) {
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	require.NoError(t, err)
	t.Cleanup(func() { master.Close() })
	require.NoError(t, unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0))
	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	require.NoError(t, err)
	slave, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	require.NoError(t, err)
	t.Cleanup(func() { slave.Close() })
	return master, slave
}

func TestJudgeStdio(t *testing.T) {
	dir := t.TempDir()
	create := func(name string) *os.File {
		f, err := os.Create(filepath.Join(dir, name))
		require.NoError(t, err)
		t.Cleanup(func() { f.Close() })
		return f
	}
	r, w, err := os.Pipe()
	require.NoError(t, err)
	defer r.Close()
	defer w.Close()
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	require.NoError(t, err)
	defer null.Close()
	_, tty := openTerminal(t)
	file, other := create("file"), create("other")
	directory, err := os.Open(dir)
	require.NoError(t, err)
	defer directory.Close()

	through := judgement{Fds: [3]int{0, 1, 2}, Host: -1}
	require.Equal(t, through, judge(t, [3]*os.File{null, null, null}), "devices that are no terminal are handed through")
	sockets, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	require.NoError(t, err)
	socket, peer := os.NewFile(uintptr(sockets[0]), "socket"), os.NewFile(uintptr(sockets[1]), "socket")
	defer socket.Close()
	defer peer.Close()
	require.Equal(t, through, judge(t, [3]*os.File{socket, null, null}), "and a socket that only brings input")
	all := judge(t, [3]*os.File{socket, socket, socket})
	require.Greater(t, all.Fds[0], 3, "what the command writes to a socket the launcher passes on")
	require.Greater(t, all.Fds[1], 3)
	require.Equal(t, all.Fds[1], all.Fds[2])
	stream, _ := connection(t)
	require.Greater(t, judge(t, [3]*os.File{stream, null, null}).Fds[0], 3, "one of the network is not even handed through for input")
	messages, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	require.NoError(t, err)
	datagrams, far := os.NewFile(uintptr(messages[0]), "socket"), os.NewFile(uintptr(messages[1]), "socket")
	defer datagrams.Close()
	defer far.Close()
	require.Equal(t, through, judge(t, [3]*os.File{datagrams, datagrams, datagrams}), "messages stay whole")

	j := judge(t, [3]*os.File{file, null, null})
	require.Greater(t, j.Fds[0], 3, "a file is read by the launcher")
	require.Equal(t, []int{1, 2}, j.Fds[1:])
	j = judge(t, [3]*os.File{r, w, w})
	require.Greater(t, j.Fds[0], 3, "and so is a pipe")
	require.Greater(t, j.Fds[1], 3)
	require.Equal(t, j.Fds[1], j.Fds[2], "2>&1 is one pipe")
	j = judge(t, [3]*os.File{null, file, file})
	require.Greater(t, j.Fds[1], 3)
	require.Equal(t, j.Fds[1], j.Fds[2], "2>&1 is one pipe")
	j = judge(t, [3]*os.File{null, file, other})
	require.Greater(t, j.Fds[2], 3)
	require.NotEqual(t, j.Fds[1], j.Fds[2])

	// Not our terminal, so we are not in front of it.
	require.Equal(t, judgement{Fds: [3]int{Terminal, Terminal, Terminal}, Host: 0, Background: true}, judge(t, [3]*os.File{tty, tty, tty}))
	require.Equal(t, judgement{Fds: [3]int{0, 1, Terminal}, Host: 2, Background: true}, judge(t, [3]*os.File{null, null, tty}))

	for fd, name := range stdNames {
		files := [3]*os.File{null, w, w}
		files[fd] = directory
		require.Equal(t, judgement{Err: name + ": a directory would give the command access to all below it"}, judge(t, files))
		require.Equal(t, judgement{Err: name + ": bad file descriptor"}, judge(t, [3]*os.File{null, w, w}, strconv.Itoa(fd)))
	}
}

// A terminal that is ours, and in front: the command starts in the foreground.
func TestJudgeForeground(t *testing.T) {
	_, tty := openTerminal(t)
	r, w, err := os.Pipe()
	require.NoError(t, err)
	defer r.Close()
	cmd := self(t, "stdio")
	cmd.Stdin, cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = tty, tty, tty, []*os.File{w}
	cmd.SysProcAttr = &unix.SysProcAttr{Setsid: true, Setctty: true}
	err = cmd.Run()
	w.Close()
	require.NoError(t, err)
	var j judgement
	require.NoError(t, json.NewDecoder(r).Decode(&j))
	require.Equal(t, judgement{Fds: [3]int{Terminal, Terminal, Terminal}}, j)
}

// blockDevice returns one, opened for nothing but its name.
func blockDevice(t *testing.T) *os.File {
	var found string
	filepath.WalkDir("/dev", func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type()&fs.ModeDevice != 0 && d.Type()&fs.ModeCharDevice == 0 {
			found = path
			return fs.SkipAll
		}
		return nil
	})
	if found == "" {
		t.Skip("needs a block device below /dev")
	}
	fd, err := unix.Open(found, unix.O_PATH, 0)
	require.NoError(t, err)
	return os.NewFile(uintptr(fd), found)
}

func TestJudgePlace(t *testing.T) {
	file := filepath.Join(t.TempDir(), "f")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	fd, err := unix.Open(file, unix.O_PATH, 0)
	require.NoError(t, err)
	place := os.NewFile(uintptr(fd), file)
	defer place.Close()
	require.Equal(t, judgement{Err: "standard output: opened with O_PATH, so it cannot be read or written"}, judge(t, [3]*os.File{nil, place, nil}))
	read, err := os.Open(file)
	require.NoError(t, err)
	defer read.Close()
	require.Empty(t, judge(t, [3]*os.File{read, nil, nil}).Err)
}

func TestJudgeBlockDevice(t *testing.T) {
	device := blockDevice(t)
	defer device.Close()
	require.Equal(t, judgement{Err: "standard input: a block device would give the command access to the whole disk"}, judge(t, [3]*os.File{device, nil, nil}))
	// Handed in as the caller of a launcher does, less close-on-exec.
	fd, err := unix.FcntlInt(device.Fd(), unix.F_DUPFD, 3)
	require.NoError(t, err)
	defer unix.Close(fd)
	require.ErrorContains(t, JudgePassed([]int{fd}), "a directory or block device")
}

// What has no place in any file system is refused unless it only waits or counts: a group of
// fanotify(7), which anybody can make from Linux 5.13 on, stands for the others.
func TestJudgeAnonymous(t *testing.T) {
	event, err := unix.Eventfd(0, 0) // as a caller hands it in: not close-on-exec
	require.NoError(t, err)
	counter := os.NewFile(uintptr(event), "eventfd")
	defer counter.Close()
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	require.NoError(t, err)
	defer null.Close()
	require.Equal(t, judgement{Fds: [3]int{0, 1, 2}, Host: -1}, judge(t, [3]*os.File{counter, null, null}), "control")
	require.NoError(t, JudgePassed([]int{event}), "control")

	group, err := unix.FanotifyInit(unix.FAN_CLASS_NOTIF|unix.FAN_REPORT_FID, 0)
	require.NoError(t, err)
	door := os.NewFile(uintptr(group), "fanotify")
	defer door.Close()
	for fd, name := range stdNames {
		files := [3]*os.File{null, null, null}
		files[fd] = door
		require.Equal(t, judgement{Err: name + `: "fanotify" would give the command access to files outside`}, judge(t, files))
	}
	require.ErrorContains(t, JudgePassed([]int{group}), `"fanotify" would give`)
}

func TestJudgePassed(t *testing.T) {
	r, w, err := os.Pipe()
	require.NoError(t, err)
	defer r.Close()
	defer w.Close()
	ours := int(w.Fd())
	theirs, err := unix.FcntlInt(w.Fd(), unix.F_DUPFD, 3)
	require.NoError(t, err)
	defer unix.Close(theirs)
	directory, err := unix.Open("/", unix.O_RDONLY|unix.O_DIRECTORY, 0)
	require.NoError(t, err)
	defer unix.Close(directory)

	require.NoError(t, JudgePassed([]int{theirs}))
	require.ErrorContains(t, JudgePassed([]int{theirs, ours}), "not open", "the launcher's own are not the caller's to pass")
	require.ErrorContains(t, JudgePassed([]int{1 << 19}), "not open")
	require.ErrorContains(t, JudgePassed([]int{2}), "passed anyway")
	require.ErrorContains(t, JudgePassed([]int{directory}), "--pass-fd "+strconv.Itoa(directory)+": a directory")
}

// pumpRole runs a command as a launcher does: between what it was given itself,
// and pipes of its own where that is a file.
func pumpRole(args []string) error {
	s, err := JudgeStdio(false)
	if err != nil {
		return err
	}
	cmd := exec.Command(args[0], args[1:]...)
	var files [3]*os.File
	for i, fd := range s.Fds {
		if fd, err = unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 3); err != nil {
			return err
		}
		files[i] = os.NewFile(uintptr(fd), stdNames[i])
	}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = files[0], files[1], files[2]
	if err := cmd.Start(); err != nil {
		return err
	}
	for _, f := range files {
		f.Close()
	}
	drain := s.Run()
	cmd.Wait()
	return drain(0)
}

// noise is what no encoding and no buffer leaves as it is by chance.
func noise(n int) []byte {
	random := rand.NewChaCha8([32]byte{1})
	b := make([]byte, n)
	random.Read(b)
	return b
}

func TestPumps(t *testing.T) {
	dir := t.TempDir()
	file := func(name string, flags int, content []byte) *os.File {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, content, 0o644))
		f, err := os.OpenFile(path, flags, 0)
		require.NoError(t, err)
		t.Cleanup(func() { f.Close() })
		return f
	}
	read := func(f *os.File) []byte {
		b, err := os.ReadFile(f.Name())
		require.NoError(t, err)
		return b
	}
	run := func(in, out, errors *os.File, script string) {
		t.Helper()
		cmd := self(t, "pump", "/bin/sh", "-c", script)
		cmd.Stdin, cmd.Stdout, cmd.Stderr = in, out, errors
		require.NoError(t, cmd.Run())
	}
	data := noise(3<<20 + 17)
	in, out, errs := file("in", os.O_RDONLY, data), file("out", os.O_WRONLY, nil), file("errs", os.O_WRONLY, nil)
	run(in, out, errs, "cat; echo problem >&2")
	require.True(t, bytes.Equal(data, read(out)), "what goes through is not changed")
	require.Equal(t, "problem\n", string(read(errs)))

	log := file("log", os.O_WRONLY|os.O_APPEND, []byte("before\n"))
	run(nil, log, log, "for i in 1 2 3; do echo out $i; echo err $i >&2; done")
	require.Equal(t, "before\nout 1\nerr 1\nout 2\nerr 2\nout 3\nerr 3\n", string(read(log)), "appended, in order")

	middle := file("middle", os.O_WRONLY, []byte("0123456789"))
	_, err := middle.Seek(4, io.SeekStart)
	require.NoError(t, err)
	run(nil, middle, nil, "printf ab")
	require.Equal(t, "0123ab6789", string(read(middle)), "where the caller stood")

	// The command does not read it all.
	run(file("much", os.O_RDONLY, data), out, errs, "head -c 5 > /dev/null")

	// A file that cannot be written is the user's error, and the command goes on.
	cmd := self(t, "pump", "/bin/sh", "-c", "echo x; true")
	readOnly := file("readonly", os.O_RDONLY, nil)
	cmd.Stdout = readOnly
	var said bytes.Buffer
	cmd.Stderr = &said
	require.Error(t, cmd.Run())
	require.Contains(t, said.String(), "standard output")
	require.Empty(t, read(readOnly))
}

// TestPumpPipes holds pipes to what they are without a launcher between.
func TestPumpPipes(t *testing.T) {
	self := self(t, "pump")
	// $P runs a command behind a launcher's pumps.
	shell := func(script string) string {
		t.Helper()
		cmd := exec.Command("/bin/sh", "-c", script)
		cmd.Env = append(self.Env, "P="+self.Path)
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, string(out))
		return string(out)
	}
	data := filepath.Join(t.TempDir(), "data")
	require.NoError(t, os.WriteFile(data, noise(9<<20+17), 0o644))
	require.Empty(t, shell("cat "+data+" | $P cat | cmp - "+data), "byte by byte, past where it is passed on in bulk")
	require.Equal(t, "out 1\nerr 1\nout 2\nerr 2\n", shell("$P sh -c 'for i in 1 2; do echo out $i; echo err $i >&2; done' 2>&1 | cat"), "in order")

	// What the command does not read is not its own.
	require.Equal(t, "a\nb\nc\n", shell("printf 'a\\nb\\nc\\n' | while read x; do $P true; echo $x; done"))
	require.Equal(t, "a b\nc d\n", shell("printf 'a\\nb\\nc\\nd\\n' | while read x; do echo $x $($P sh -c 'read y; echo $y'); done"))
	lines := filepath.Join(t.TempDir(), "lines")
	require.NoError(t, os.WriteFile(lines, []byte("a\nb\nc\nd\n"), 0o644))
	require.Equal(t, "a b\nc d\n", shell("while read x; do echo $x $($P sh -c 'read y; echo $y'); done < "+lines), "nor is the rest of a file")

	// Each side learns when the other is gone.
	require.Equal(t, "y\n", shell("$P yes | head -n 1"))
	require.Equal(t, "end\n", shell("$P sh -c 'exec >&-; sleep 1; echo late >&2' 2>/dev/null | { cat; echo end; }"))
	done := filepath.Join(t.TempDir(), "done")
	wait := "until [ -e " + done + " ]; do sleep 0.01; done"
	require.Equal(t, "writer 141\nend\n", shell("{ yes; echo writer $? >&2; > "+done+"; } | $P sh -c 'exec <&-; "+wait+"; echo end'"))

	// Opened again, the command's end is not the host's pipe.
	const write = "echo evil > /proc/self/fd/0"
	require.Equal(t, "evil\n", shell("sleep 1 | { sh -c '"+write+"'; head -n 1; }"), "control")
	require.Equal(t, "", shell("sleep 1 | { $P sh -c '"+write+"'; head -n 1; }"))
	// Nor does what it writes there move the host's place in its file.
	script := filepath.Join(t.TempDir(), "script")
	fill := `sh -c 'head -c 9 /dev/zero > /proc/self/fd/0'`
	require.NoError(t, os.WriteFile(script, []byte("echo first\n$P "+fill+"\necho last\n"), 0o644))
	require.Equal(t, "first\nlast\n", shell("bash < "+script))
	read := func(command string, seconds int) string { // of a pipe that its reader leaves alone, as long as it stands
		require.NoError(t, os.Remove(done))
		return shell(fmt.Sprintf("{ echo secret; %s sh -c 'timeout %d head -n 1 < /proc/self/fd/1 >&2; true'; > %s; } | { %s; }", command, seconds, done, wait))
	}
	require.Equal(t, "secret\n", read("", int(await.Patience.Seconds())), "control")
	require.Equal(t, "", read("$P", 1))
}

// TestPumpSockets gives a command sockets, as node does, on which it wants to
// stop what the launcher says afterwards.
func TestPumpSockets(t *testing.T) {
	talk := func(input []byte, stdin, launcher bool, script string) (said string, after error) {
		t.Helper()
		pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		require.NoError(t, err)
		ours, theirs := os.NewFile(uintptr(pair[0]), "ours"), os.NewFile(uintptr(pair[1]), "theirs")
		defer ours.Close()
		defer theirs.Close()
		cmd := exec.Command("/bin/sh", "-c", script)
		if launcher {
			cmd = self(t, "pump", "/bin/sh", "-c", script)
		}
		cmd.Stdout, cmd.Stderr = theirs, theirs
		if stdin {
			cmd.Stdin = theirs
		}
		require.NoError(t, cmd.Start())
		got := make(chan []byte)
		go func() {
			b, _ := io.ReadAll(ours)
			got <- b
		}()
		if len(input) > 0 { // the command may have shut it down by now
			_, err = ours.Write(input)
			require.NoError(t, err)
		}
		require.NoError(t, unix.Shutdown(pair[0], unix.SHUT_WR))
		require.NoError(t, cmd.Wait())
		_, after = unix.Write(pair[1], []byte("the launcher's\n")) // raw: of an os.File this is standard error to no one
		theirs.Close()
		return string(<-got), after
	}
	data := noise(3<<20 + 17)
	said, err := talk(data, true, true, "cat; echo problem >&2")
	require.NoError(t, err)
	require.True(t, said == string(data)+"problem\nthe launcher's\n", "byte by byte, in both directions")

	const silence = `perl -e 'open(my $s, ">&=", 2); shutdown($s, 2) or print "no socket: $!\n"'`
	_, err = talk(nil, false, false, silence)
	require.Equal(t, unix.EPIPE, err, "control: nothing more can be said")
	said, err = talk(nil, false, true, silence)
	require.NoError(t, err)
	require.Equal(t, "no socket: Socket operation on non-socket\nthe launcher's\n", said)
}

// Without its layer the command has the host's terminal itself, and the
// launcher none to relay.
func TestHandIn(t *testing.T) {
	s := &Stdio{Fds: [3]int{Terminal, 7, Terminal}, Host: 0, Background: true}
	s.HandIn()
	require.Equal(t, &Stdio{Fds: [3]int{0, 7, 2}, Host: -1}, s)
}
