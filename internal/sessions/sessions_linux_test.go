package sessions

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/internal/await"
	"github.com/pccrun/pccrun/internal/events"
	"github.com/pccrun/pccrun/internal/state"
)

// TestMain is also a launcher that tests may kill: it begins a session, says
// its id, and sleeps, with a child in the place of the sandbox's pid 1.
func TestMain(m *testing.M) {
	if dir := os.Getenv("SESSIONS_TEST"); dir != "" {
		child := exec.Command("sleep", "1000")
		if err := child.Start(); err != nil {
			panic(err)
		}
		s := Home{dir}.Begin(Info{Argv: []string{"pccrun", "--env", "X=secret", "--", "sleep"}, Sandbox: Process{Pid: child.Process.Pid}})
		if _, err := s.Dir(); err != nil {
			panic(err)
		}
		os.Stdout.WriteString(s.ID() + "\n")
		time.Sleep(time.Hour) // without cgo, select{} is a deadlock to the runtime
	}
	os.Exit(m.Run())
}

func home(t *testing.T) Home {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	require.NoError(t, os.Chmod(dir, 0o700))
	return In(dir)
}

// launcher starts another process with a session.
func launcher(t *testing.T, h Home) (*exec.Cmd, Entry) {
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), "SESSIONS_TEST="+h.dir)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	var id [64]byte
	n, err := out.Read(id[:])
	require.NoError(t, err)
	e, err := h.Find(strings.TrimSpace(string(id[:n])))
	require.NoError(t, err)
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if fd, err := e.Sandbox.open(); err == nil {
			_ = unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)
			unix.Close(fd)
		}
	})
	return cmd, e
}

func states(t *testing.T, h Home) map[string]State {
	list, err := h.List()
	require.NoError(t, err)
	all := map[string]State{}
	for _, e := range list {
		all[e.ID] = e.State
	}
	return all
}

func TestID(t *testing.T) {
	id := NewID(time.Date(2026, 11, 21, 13, 0, 0, 0, time.FixedZone("", 3600)))
	require.Regexp(t, `^20261121T120000Z-[0-9a-f]{8}$`, id)
	require.True(t, validID(id))
	for _, bad := range []string{"", "x", "20261121T120000Z-0000000", "20261121T120000Z-0000000G", "20261321T120000Z-00000000", "20261121T120000Z-00000000/..", "../20261121T120000Z-00000000", "20261121T120000Z"} {
		require.False(t, validID(bad), bad)
	}
}

func TestInfoRoundTrip(t *testing.T) {
	at := time.Date(2026, 11, 21, 12, 0, 0, 5, time.UTC)
	p := Process{1, 2, "boot", 3}
	i := Info{
		ID: "i", Started: at, Version: "v", Launcher: p, Sandbox: p, Argv: []string{"a", "b\n\"", "c"}, Workspace: "/w", Profile: "p", Provider: "native",
		Without: []string{"x"}, AllowMissing: []string{"y"}, Cgroups: []string{"/c"}, Ended: at, Code: 3, Kept: []string{"stash"},
	}
	got, err := parseInfo(i.append(nil))
	require.NoError(t, err)
	require.Equal(t, i, got)
	_, err = parseInfo(Info{}.append(nil))
	require.NoError(t, err)
	for _, bad := range []string{`{}`, `{"schema":"1"}`, `{"schema":2}`, `{"schema":1,"id":1}`, `{"schema":1,"started":"x"}`, `{"schema":1,"launcher":{"pid":"x"}}`} {
		_, err = parseInfo([]byte(bad))
		require.Error(t, err, bad)
	}
}

func TestShortRunLeavesNothing(t *testing.T) {
	h := home(t)
	s := h.Begin(Info{})
	for !s.timer.Stop() { // on a busy machine it lasted long enough to be seen
		require.NoError(t, s.End(0))
		require.NoError(t, os.Remove(h.dir))
		s = h.Begin(Info{})
	}
	l := events.NewLog(s.ID(), s.Events())
	l.Emit(events.Exit{})
	require.NoError(t, s.Decide())
	require.NoError(t, l.Close(await.Patience))
	require.NoError(t, s.End(0))
	require.NoError(t, s.End(0))
	_, err := os.Lstat(h.dir)
	require.ErrorIs(t, err, fs.ErrNotExist)
	_, err = s.Dir()
	require.ErrorIs(t, err, os.ErrClosed)
	list, err := h.List()
	require.NoError(t, err)
	require.Empty(t, list)
	_, err = h.Find("")
	require.ErrorIs(t, err, ErrNoSession)
	removed, err := h.GC(GCOptions{})
	require.NoError(t, err)
	require.Empty(t, removed)
}

func TestLongRun(t *testing.T) {
	h := home(t)
	s := h.Begin(Info{Argv: []string{"pccrun", "--env", "X=secret", "--", "agent"}, Workspace: "/w", Profile: "agent"})
	l := events.NewLog(s.ID(), s.Events())
	l.Start()
	l.Emit(events.Start{})
	await.Until(t, "the session has a state", func() bool { return len(states(t, h)) == 1 })
	e, err := h.Find("")
	require.NoError(t, err)
	require.Equal(t, Running, e.State)
	require.Equal(t, []string{"pccrun", "--env", "X=…", "--", "agent"}, e.Argv)
	require.Equal(t, os.Getpid(), e.Launcher.Pid)
	require.NotZero(t, e.Launcher.Start)
	require.NotEmpty(t, e.Launcher.Boot)
	require.Zero(t, e.Sandbox)

	require.NoError(t, s.Update(func(i *Info) { i.Sandbox.Pid = os.Getppid() }))
	e, err = h.Find(s.ID()[17:21])
	require.NoError(t, err)
	require.Equal(t, os.Getppid(), e.Sandbox.Pid)
	require.NotZero(t, e.Sandbox.Start)

	l.Emit(events.Exit{})
	require.NoError(t, s.Decide())
	require.NoError(t, l.Close(await.Patience))
	require.NoError(t, s.End(0))
	require.Empty(t, states(t, h))
	names, err := os.ReadDir(h.dir)
	require.NoError(t, err)
	require.Empty(t, names)
}

func TestKept(t *testing.T) {
	h := home(t)
	s := h.Begin(Info{})
	l := events.NewLog(s.ID(), s.Events())
	l.Emit(events.Denial{What: "x"})
	s.Keep("denials")
	s.Keep("denials")
	l.Emit(events.Exit{Code: 3})
	require.NoError(t, s.Decide(), "makes the directory, although the run was short")
	require.NoError(t, l.Close(await.Patience))
	require.NoError(t, s.End(3))
	e, err := h.Find("")
	require.NoError(t, err)
	require.Equal(t, Ended, e.State)
	require.Equal(t, 3, e.Code)
	require.Equal(t, []string{"denials"}, e.Kept)
	dir, err := h.Open(e.ID)
	require.NoError(t, err)
	defer dir.Close()
	data, err := state.ReadFile(dir, EventsName, 1<<20)
	require.NoError(t, err)
	require.Equal(t, 2, strings.Count(string(data), "\n"))
	info, err := dir.Stat(".")
	require.NoError(t, err)
	require.Equal(t, fs.FileMode(0o700), info.Mode().Perm())
	_, err = h.Open("../x")
	require.ErrorIs(t, err, ErrNoSession)
}

func TestUnsafeHome(t *testing.T) {
	h := home(t)
	work := filepath.Dir(h.dir)
	require.ErrorIs(t, h.Check(work), state.ErrUnsafe)
	require.NoError(t, h.Check(work+"/else"))
	s := h.Begin(Info{Workspace: work})
	l := events.NewLog(s.ID(), s.Events())
	l.Emit(events.Exit{})
	_, err := s.Dir()
	require.ErrorIs(t, err, state.ErrUnsafe)
	require.NoError(t, l.Close(await.Patience), "the session says it, once")
	require.ErrorIs(t, s.End(0), state.ErrUnsafe)
	_, err = os.Lstat(h.dir)
	require.ErrorIs(t, err, fs.ErrNotExist)

	require.NoError(t, os.Mkdir(h.dir, 0o777))
	require.NoError(t, os.Chmod(h.dir, 0o777))
	_, err = h.List()
	require.ErrorIs(t, err, state.ErrUnsafe)
	_, err = h.GC(GCOptions{})
	require.ErrorIs(t, err, state.ErrUnsafe)
	s = h.Begin(Info{})
	s.Keep("stash")
	require.ErrorIs(t, s.Decide(), state.ErrUnsafe)
	require.ErrorIs(t, s.End(0), state.ErrUnsafe)
}

func TestCrashed(t *testing.T) {
	h := home(t)
	cmd, e := launcher(t, h)
	require.Equal(t, Running, e.State)
	removed, err := h.GC(GCOptions{All: true})
	require.NoError(t, err)
	require.Empty(t, removed, "what runs stays")
	require.NoError(t, cmd.Process.Kill())
	_ = cmd.Wait()
	require.Equal(t, map[string]State{e.ID: Crashed}, states(t, h))
	removed, err = h.GC(GCOptions{EndedOnly: true})
	require.NoError(t, err)
	require.Empty(t, removed)
	removed, err = h.GC(GCOptions{DryRun: true})
	require.NoError(t, err)
	require.Equal(t, []string{e.ID}, removed)

	// The directory stays until everything else that was left is cleared.
	_, err = h.GC(GCOptions{Crashed: func(Entry) error { return errors.New("busy") }})
	require.ErrorContains(t, err, "busy")
	require.Len(t, states(t, h), 1)
	var seen []string
	removed, err = h.GC(GCOptions{Crashed: func(e Entry) error {
		seen = append(seen, e.ID)
		return h.Kill(e, unix.SIGTERM, await.Patience)
	}})
	require.NoError(t, err)
	require.Equal(t, []string{e.ID}, removed)
	require.Equal(t, []string{e.ID}, seen)
	_, err = e.Sandbox.open()
	require.ErrorIs(t, err, ErrGone, "the sandbox that was left is dead")
	require.Empty(t, states(t, h))
}

func TestKill(t *testing.T) {
	h := home(t)
	cmd, e := launcher(t, h)
	require.ErrorIs(t, h.Kill(e, unix.SIGWINCH, 10*time.Millisecond), ErrAlive)
	u, err := e.Usage()
	require.NoError(t, err)
	require.Equal(t, 1, u.Processes)
	require.Equal(t, 1, u.Threads)
	require.Positive(t, u.Memory)

	// Another process has the pid now, or had it: no signal is sent.
	for name, change := range map[string]func(*Process){
		"another start": func(p *Process) { p.Start++ },
		"another boot":  func(p *Process) { p.Boot = "x" },
		"no pid":        func(p *Process) { p.Pid = 0 },
		"everybody":     func(p *Process) { p.Pid = -1 },
		"nobody":        func(p *Process) { p.Pid = 1 << 22 },
	} {
		other := e
		change(&other.Launcher)
		require.ErrorIs(t, h.Kill(other, unix.SIGKILL, 0), ErrGone, name)
	}
	other := e
	other.Launcher.Space++
	require.ErrorIs(t, h.Kill(other, unix.SIGKILL, 0), ErrElsewhere)
	other = e
	other.State = Ended
	require.ErrorIs(t, h.Kill(other, unix.SIGKILL, 0), ErrGone)
	require.NoError(t, cmd.Process.Signal(syscall.Signal(0)), "it lives: nothing of this has hit it")
	require.ErrorIs(t, h.Kill(e, os.Signal(nil), 0), errors.ErrUnsupported)

	// It stays a zombie until the test ends, and a zombie has ended.
	require.NoError(t, h.Kill(e, unix.SIGTERM, await.Patience))
	require.ErrorIs(t, h.Kill(e, unix.SIGTERM, await.Patience), ErrGone)
}

// What another version of pccrun wrote is shown, left alone, and in nobody's
// way; what it added to a file of this version is passed over.
func TestOtherVersions(t *testing.T) {
	h := home(t)
	_, e := launcher(t, h)
	dir := func(id string) string { return filepath.Join(h.dir, id) }
	text, err := os.ReadFile(filepath.Join(dir(e.ID), infoName))
	require.NoError(t, err)
	own := fmt.Sprintf(`{"schema":%d,`, Schema)
	require.True(t, strings.HasPrefix(string(text), own), string(text))
	forge := func(id, head string) {
		require.NoError(t, os.Mkdir(dir(id), 0o700))
		forged := head + strings.ReplaceAll(strings.TrimPrefix(string(text), own), e.ID, id)
		require.NoError(t, os.WriteFile(filepath.Join(dir(id), infoName), []byte(forged), 0o600))
	}
	const added, next, before = "20260101T000000Z-00000001", "20260101T000000Z-00000002", "20260101T000000Z-00000003"
	forge(added, own+`"of_tomorrow":{"x":[1]},`)
	forge(next, fmt.Sprintf(`{"schema":%d,`, Schema+1))
	forge(before, fmt.Sprintf(`{"schema":%d,`, Schema-1))
	require.Equal(t, map[string]State{e.ID: Running, added: Crashed, next: Unknown, before: Unknown}, states(t, h))
	for _, id := range []string{next, before} {
		other, err := h.Find(id)
		require.NoError(t, err)
		require.Error(t, h.Kill(other, unix.SIGTERM, 0))
		require.Contains(t, other.Cause, "written by another version of pccrun")
		_, err = other.Usage()
		require.Error(t, err)
	}
	removed, err := h.GC(GCOptions{})
	require.NoError(t, err)
	require.Equal(t, []string{added}, removed)
	require.Equal(t, map[string]State{e.ID: Running, next: Unknown, before: Unknown}, states(t, h))
}

func TestReadIO(t *testing.T) {
	var fs unix.Statfs_t
	file, err := os.Create(filepath.Join(t.TempDir(), "written"))
	require.NoError(t, err)
	defer file.Close()
	require.NoError(t, unix.Fstatfs(int(file.Fd()), &fs))
	_, before := readIO(os.Getpid())
	_, err = file.Write(make([]byte, 1<<20))
	require.NoError(t, err)
	_, after := readIO(os.Getpid())
	if fs.Type != unix.TMPFS_MAGIC { // which is not storage
		require.GreaterOrEqual(t, after-before, int64(1<<20))
	}
	read, written := readIO(-1)
	require.Zero(t, read+written, "one that is gone")
}

func TestFollow(t *testing.T) {
	h := home(t)
	cmd, e := launcher(t, h)
	f, err := h.Follow(e)
	require.NoError(t, err)
	defer f.Close()
	dir, err := h.Open(e.ID)
	require.NoError(t, err)
	defer dir.Close()
	require.NoError(t, state.WriteFile(dir, EventsName, nil, state.Fast))
	require.True(t, f.Wait())
	require.NoError(t, cmd.Process.Kill())
	_ = cmd.Wait()
	for f.Wait() {
	}
	gone, err := h.Follow(e)
	require.NoError(t, err)
	defer gone.Close()
	require.False(t, gone.Wait())
}

// plant makes a session directory with the files given.
func plant(t *testing.T, h Home, id string, files map[string]string) string {
	dir := filepath.Join(h.dir, id)
	require.NoError(t, os.MkdirAll(dir, 0o700))
	for name, text := range files {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	return dir
}

func ended(id string, at time.Time, kept ...string) string {
	return string(Info{ID: id, Started: at, Ended: at, Kept: kept}.append(nil))
}

func TestHostileContents(t *testing.T) {
	h := home(t)
	secret := filepath.Join(filepath.Dir(h.dir), "secret")
	require.NoError(t, os.WriteFile(secret, []byte("{}"), 0o600))
	const stamp = "20260101T000000Z-0000000"
	plant(t, h, stamp+"0", map[string]string{infoName: `{"schema":7,"id":"` + stamp + `0","later":true}`})
	plant(t, h, stamp+"1", map[string]string{infoName: `garbage`})
	plant(t, h, stamp+"2", map[string]string{infoName: ended(stamp+"0", time.Now())}) // of another
	require.NoError(t, os.Symlink(secret, filepath.Join(plant(t, h, stamp+"3", nil), infoName)))
	require.NoError(t, unix.Mkfifo(filepath.Join(plant(t, h, stamp+"4", nil), infoName), 0o600))
	f, err := os.Create(filepath.Join(plant(t, h, stamp+"5", nil), infoName))
	require.NoError(t, err)
	require.NoError(t, f.Truncate(1<<40))
	f.Close()
	require.NoError(t, os.Symlink("/etc", filepath.Join(h.dir, stamp+"6")))
	require.NoError(t, os.WriteFile(filepath.Join(h.dir, stamp+"7"), nil, 0o600))
	require.NoError(t, unix.Mkfifo(filepath.Join(h.dir, stamp+"8"), 0o600))
	lock := plant(t, h, stamp+"9", map[string]string{infoName: ended(stamp+"9", time.Now())})
	require.NoError(t, unix.Mkfifo(filepath.Join(lock, lockName), 0o600))
	require.NoError(t, os.Mkdir(filepath.Join(h.dir, "not a session"), 0o700))

	list, err := h.List()
	require.NoError(t, err)
	require.Len(t, list, 10)
	for _, e := range list {
		require.Equal(t, Unknown, e.State, e.ID)
		require.NotEmpty(t, e.Cause)
		require.ErrorIs(t, h.Kill(e, unix.SIGKILL, 0), ErrGone)
	}
	removed, err := h.GC(GCOptions{All: true})
	require.NoError(t, err)
	require.Empty(t, removed, "what is not understood stays")
	_, err = h.Find(stamp)
	require.ErrorContains(t, err, "matches 10 sessions")
}

func TestGC(t *testing.T) {
	h := home(t)
	now := time.Now()
	old, young := now.Add(-8*24*time.Hour), now.Add(-time.Hour)
	add := func(at time.Time, kept ...string) string {
		id := NewID(at)
		plant(t, h, id, map[string]string{infoName: ended(id, at, kept...), lockName: ""})
		return id
	}
	oldest := add(old.Add(-time.Hour), "denials")
	for range keepCount - 1 {
		add(old, "denials")
	}
	removed, err := h.GC(GCOptions{})
	require.NoError(t, err)
	require.Empty(t, removed, "the last 100 stay, however old")
	var fresh []string
	for range 3 {
		fresh = append(fresh, add(young, "stash"))
	}
	unwanted := add(young)
	removed, err = h.GC(GCOptions{DryRun: true})
	require.NoError(t, err)
	require.Contains(t, removed, unwanted)
	require.Len(t, states(t, h), keepCount+4)
	removed, err = h.GC(GCOptions{})
	require.NoError(t, err)
	require.Contains(t, removed, oldest)
	require.Contains(t, removed, unwanted)
	left := states(t, h)
	for _, id := range fresh {
		require.Contains(t, left, id)
	}
	require.GreaterOrEqual(t, len(left), keepCount-1)

	// Many young ones stay as well.
	for range 2 * keepCount {
		add(young, "denials")
	}
	before := len(states(t, h))
	_, err = h.GC(GCOptions{})
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(states(t, h)), before-keepCount)

	// New sessions make room: each looks at few on average, but some at all.
	unwanted = add(young)
	for begun := 0; states(t, h)[unwanted] != ""; begun++ {
		require.Less(t, begun, 1000)
		s := h.Begin(Info{})
		_, err = s.Dir()
		require.NoError(t, err)
		require.NoError(t, s.End(0))
	}

	// Two at a time, on the same.
	total := len(states(t, h))
	var wait sync.WaitGroup
	counts := make([]int, 4)
	for i := range counts {
		wait.Go(func() {
			removed, err := h.GC(GCOptions{All: true})
			if err != nil {
				t.Error(err)
			}
			counts[i] = len(removed)
		})
	}
	wait.Wait()
	sum := 0
	for _, n := range counts {
		sum += n
	}
	require.Equal(t, total, sum, "each is removed once")
	names, err := os.ReadDir(h.dir)
	require.NoError(t, err)
	require.Empty(t, names)
}

func TestGCRemains(t *testing.T) {
	h := home(t)
	now := time.Now()
	begins := NewID(now)
	plant(t, h, begins, nil)
	stuck := NewID(now)
	require.NoError(t, os.Chtimes(plant(t, h, stuck, map[string]string{lockName: ""}), now, now.Add(-time.Hour)))
	half := plant(t, h, trash+"x", nil)
	// As an overlay leaves it: nobody may enter, not even its owner.
	require.NoError(t, os.MkdirAll(filepath.Join(half, "work/work/deep"), 0o700))
	require.NoError(t, os.Chmod(filepath.Join(half, "work/work"), 0))
	outside := filepath.Join(filepath.Dir(h.dir), "outside")
	require.NoError(t, os.WriteFile(outside, nil, 0o600))
	require.NoError(t, os.Symlink(outside, filepath.Join(half, "link")))
	removed, err := h.GC(GCOptions{})
	require.NoError(t, err)
	require.Equal(t, []string{stuck}, removed)
	names, err := os.ReadDir(h.dir)
	require.NoError(t, err)
	require.Len(t, names, 1)
	require.Equal(t, begins, names[0].Name())
	require.FileExists(t, outside)
}

func TestRelease(t *testing.T) {
	home := In(t.TempDir())
	s := home.Begin(Info{Workspace: "/w"})
	s.Keep("upper")
	s.Keep("log")
	s.Keep("stash")
	s.Drop("stash")
	_, err := s.Dir()
	require.NoError(t, err)
	require.ErrorIs(t, home.Release(s.ID(), "upper"), ErrAlive)
	require.NoError(t, s.End(0))
	require.NoError(t, home.Release(s.ID(), "upper"))
	e, err := home.Find(s.ID())
	require.NoError(t, err)
	require.Equal(t, []string{"log"}, e.Kept)
	require.NoError(t, home.Release(s.ID(), "log"))
	_, err = home.Find(s.ID())
	require.ErrorIs(t, err, ErrNoSession)
	require.Error(t, home.Release(s.ID(), "log"))
}

// What is wanted after the run is on the disk at once, also where the directory stood.
func TestWant(t *testing.T) {
	home := In(t.TempDir())
	s := home.Begin(Info{Workspace: "/w"})
	kept := func() []string {
		e, err := home.Find(s.ID())
		require.NoError(t, err)
		return e.Kept
	}
	_, err := s.Want("log")
	require.NoError(t, err)
	require.Equal(t, []string{"log"}, kept())
	s.Keep("stash")
	require.Equal(t, []string{"log"}, kept(), "control")
	_, err = s.Want("upper")
	require.NoError(t, err)
	require.Equal(t, []string{"log", "stash", "upper"}, kept())
	require.NoError(t, s.End(0))
}

// What a crashed session wanted kept outlives gc; what it left running does not.
func TestGCKeepsWhatACrashWantedKept(t *testing.T) {
	dir := t.TempDir()
	home := In(dir)
	s := home.Begin(Info{Workspace: "/w"})
	s.Keep("upper")
	_, err := s.Dir()
	require.NoError(t, err)
	require.NoError(t, s.lock.Release()) // as the kernel does it for a dead launcher
	cleared := 0
	o := GCOptions{Crashed: func(Entry) error { cleared++; return nil }}
	removed, err := home.GC(o)
	require.NoError(t, err)
	require.Empty(t, removed)
	require.Equal(t, 1, cleared)
	e, err := home.Find(s.ID())
	require.NoError(t, err)
	require.Equal(t, Crashed, e.State)
	require.Equal(t, []string{"upper"}, e.Kept)
	require.NoError(t, home.Release(s.ID(), "upper"))
	removed, err = home.GC(o)
	require.NoError(t, err)
	require.Equal(t, []string{s.ID()}, removed)
}

// What a cloud has of a crashed session that is not here outlives gc.
func TestGCKeepsWhatWasNotDownloaded(t *testing.T) {
	home := In(t.TempDir())
	crashed := func() *Session {
		s := home.Begin(Info{Workspace: "/w"})
		_, err := s.Dir()
		require.NoError(t, err)
		require.NoError(t, s.Update(func(i *Info) { i.Resource = &Resource{Provider: "e2b"} }))
		return s
	}
	all, rest := crashed(), crashed()
	dir, err := rest.Dir()
	require.NoError(t, err)
	require.NoError(t, dir.WriteFile(UnfetchedName, nil, 0o600))
	var cleared []string
	o := GCOptions{Crashed: func(e Entry) error { cleared = append(cleared, e.ID); return nil }}
	require.NoError(t, errors.Join(all.lock.Release(), rest.lock.Release())) // as the kernel does it for a dead launcher
	removed, err := home.GC(o)
	require.NoError(t, err)
	require.Equal(t, []string{all.ID()}, removed)
	require.Equal(t, []string{all.ID()}, cleared, "what the other has at the cloud would be destroyed")
	o.All = true
	removed, err = home.GC(o)
	require.NoError(t, err)
	require.Equal(t, []string{rest.ID()}, removed)
	require.Equal(t, []string{all.ID(), rest.ID()}, cleared)
}

// A sandbox that stands is listed until its time, outlives gc, and is taken once; then its session has none.
func TestTake(t *testing.T) {
	home := In(t.TempDir())
	text, err := home.Take(func([]byte) bool { return true })
	require.NoError(t, err)
	require.Nil(t, text, "there is no session")
	leave := func(until time.Time) *Session {
		s := home.Begin(Info{Workspace: "/w"})
		dir, err := s.Dir()
		require.NoError(t, err)
		require.NoError(t, dir.WriteFile(KeptName, []byte(s.ID()), 0o600))
		s.Keep(KeepSandbox)
		require.NoError(t, s.Update(func(i *Info) { i.Resource = &Resource{Provider: "e2b", Until: until, Hourly: 1} }))
		return s
	}
	stands, late, crashed, runs := leave(time.Now().Add(time.Hour)), leave(time.Now().Add(-time.Second)), leave(time.Now().Add(time.Hour)), leave(time.Now().Add(time.Hour))
	require.NoError(t, errors.Join(stands.End(0), late.End(0), crashed.lock.Release()))
	for s, want := range map[*Session]bool{stands: true, late: false, crashed: true, runs: false} {
		e, err := home.Find(s.ID())
		require.NoError(t, err)
		require.Equal(t, want, e.Standing, s.ID())
		require.Equal(t, want, !e.Resource.Until.IsZero(), s.ID())
		require.Equal(t, want || s == runs, e.Resource.Hourly == 1, s.ID())
	}
	removed, err := home.GC(GCOptions{Crashed: func(Entry) error { return errors.New("its sandbox would be destroyed") }})
	require.NoError(t, err)
	require.Empty(t, removed)
	var offered []string
	take := func(id string) bool {
		offered = nil
		text, err := home.Take(func(text []byte) bool {
			offered = append(offered, string(text))
			return string(text) == id
		})
		require.NoError(t, err)
		return string(text) == id
	}
	require.False(t, take("none"))
	require.ElementsMatch(t, []string{stands.ID(), late.ID(), crashed.ID()}, offered, "one that runs has its own")
	require.True(t, take(crashed.ID()))
	require.False(t, take(crashed.ID()), "it is taken")
	e, err := home.Find(crashed.ID())
	require.NoError(t, err)
	require.Nil(t, e.Resource)
	require.Empty(t, e.Kept)
	require.True(t, take(stands.ID()))
	_, err = home.Find(stands.ID())
	require.ErrorIs(t, err, ErrNoSession, "nothing else was kept of it")
	require.NoError(t, runs.End(0))
}

//test:root
func TestHand(t *testing.T) {
	h := home(t)
	s := h.Begin(Info{})
	require.NoError(t, s.Hand(os.Getuid(), os.Getgid()))
	require.NoError(t, s.End(0))
	if os.Geteuid() != 0 {
		t.Skip("needs root: to give a directory away")
	}
	s = h.Begin(Info{})
	require.NoError(t, s.Hand(12345, 12345))
	info, err := os.Stat(filepath.Join(h.dir, s.ID(), infoName))
	require.NoError(t, err)
	require.Equal(t, uint32(12345), info.Sys().(*syscall.Stat_t).Uid)
	require.NoError(t, s.End(0))
	require.Empty(t, states(t, h))
}

func FuzzInfo(f *testing.F) {
	f.Add([]byte(`{"schema":1,"id":"20260101T000000Z-00000000","launcher":{"pid":1}}`))
	f.Add([]byte(`{"schema":2}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		h := Home{filepath.Join(t.TempDir(), "s")}
		const id = "20260101T000000Z-00000000"
		plant(t, h, id, map[string]string{infoName: string(data)})
		root, err := os.OpenRoot(h.dir)
		require.NoError(t, err)
		defer root.Close()
		e, err := look(root, id)
		if err == nil {
			require.Equal(t, id, e.ID)
			again, err := parseInfo(e.Info.append(nil))
			require.NoError(t, err)
			twice, err := parseInfo(again.append(nil))
			require.NoError(t, err)
			require.Equal(t, again, twice)
			require.Contains(t, []State{Ended, Crashed}, e.State)
		}
	})
}

func BenchmarkBeginEnd(b *testing.B) {
	h := Home{filepath.Join(b.TempDir(), "s")}
	b.Run("short", func(b *testing.B) {
		for b.Loop() {
			s := h.Begin(Info{})
			_ = s.End(0)
		}
	})
	b.Run("made", func(b *testing.B) {
		for b.Loop() {
			s := h.Begin(Info{})
			if _, err := s.Dir(); err != nil {
				b.Fatal(err)
			}
			_ = s.End(0)
		}
	})
}

// The newest session is found without a look at those before it.
func TestNewest(t *testing.T) {
	h := home(t)
	_, ok, err := h.Newest(func(Entry) bool { return true })
	require.NoError(t, err)
	require.False(t, ok)
	at := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	for i, start := range []time.Duration{0, 5 * time.Second, 5*time.Second + 800*time.Millisecond, 5*time.Second + 300*time.Millisecond} {
		s := h.Begin(Info{Started: at.Add(start), Workspace: fmt.Sprint("/w", i)})
		s.Keep("upper")
		require.NoError(t, s.End(0))
	}
	var looked []string
	newest := func(want func(Entry) bool) string {
		looked = nil
		e, _, err := h.Newest(func(e Entry) bool {
			looked = append(looked, e.Workspace)
			return want(e)
		})
		require.NoError(t, err)
		return e.Workspace
	}
	require.Equal(t, "/w2", newest(func(Entry) bool { return true }), "of one second the last")
	require.Len(t, looked, 3, "those of one second")
	require.Equal(t, "/w0", newest(func(e Entry) bool { return e.Workspace == "/w0" }))
	require.Empty(t, newest(func(Entry) bool { return false }))
}
