//go:build unix

package events

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/pccrun/pccrun/internal/await"
)

// samples has every event, with every field set.
var samples = []Event{
	Start{Version: "1", Pid: 7, Argv: []string{"pccrun", "--", "x y"}, Workspace: "/w", WorkDir: "/w/d", Profile: "claude", Provider: "native", Without: []string{"seccomp"}, AllowMissing: []string{"res.cpu"}},
	Plan{Guarantees: []Guarantee{{"fs.hide", "kept", "mount namespace", ""}, {"res.memory", "weak", "supervisor", "sampled"}}},
	Warning{Text: "t", Hint: "h"},
	Refused{Guarantee: "fs.hide", Cause: "c", Hint: "h"},
	Denial{Guarantee: "net.allowlist", What: "connect evil.example:443", Rule: "r", Hint: "--allow evil.example"},
	Hidden{What: "read /home/u/p/.env", Rule: "hide **/.env*", Hint: "--read .env"},
	NetClosed{Host: "h", Port: 443, Address: "192.0.2.1", Via: "http", Up: 1, Down: 2, DurationMS: 3, Error: "x"},
	NetDecision{Allowed: true, Host: "h", Port: 443, Address: "192.0.2.1:443", Upstream: true, Via: "http", Request: "GET /", Rule: "r", Guarantee: "net.allowlist", Hint: "x", Times: 7},
	OOM{Limit: 1 << 30, Kills: 2},
	Timeout{AfterMS: 1500},
	Spending{Model: "m", Input: 1, CacheRead: 2, CacheWrite: 3, Output: 4, USD: 0.25, Before: 0.5, Total: 0.75, Limit: 1, Over: true, Note: "n"},
	Changed{Path: "/w/.envrc", Kind: "stashed", What: "file", Why: ".envrc"},
	Exec{Number: 1, Argv: []string{"sh", "-c", "x"}},
	ExecEnd{Number: 1, Code: 127, WallMS: 5, Error: "none: no such file or directory"},
	Dropped{Count: 3},
	Exit{Code: 137, Signal: "SIGKILL", TimedOut: true, OOM: true, WallMS: 1, UserMS: 2, SystemMS: 3, MaxMemory: 4, ReadBytes: 5, WriteBytes: 6, IOBy: "rusage", Processes: 7, PriceUSD: 0.25, Denials: 8, Changed: []Change{{"CLAUDE.md", "review"}}},
}

var noon = time.Date(2026, 11, 21, 12, 0, 0, 5, time.UTC)

func TestRoundTrip(t *testing.T) {
	for i, e := range samples {
		b := Append(nil, uint64(i), noon, "s", e)
		require.True(t, json.Valid(b), "%s", b)
		require.Equal(t, byte('\n'), b[len(b)-1])
		r, err := Parse(b[:len(b)-1])
		require.NoError(t, err, "%s", b)
		require.Equal(t, Record{V: 1, Seq: uint64(i), Time: noon, Session: "s", Type: e.Type(), Event: e, Line: b[:len(b)-1]}, r)
		// An empty one is as valid.
		zero := reflect.New(reflect.TypeOf(e)).Elem().Interface().(Event)
		b = Append(nil, 0, noon, "s", zero)
		r, err = Parse(b)
		require.NoError(t, err, "%s", b)
		require.Equal(t, zero, r.Event)
	}
}

func TestLine(t *testing.T) {
	require.Equal(t, `{"v":1,"seq":3,"time":"2026-11-21T12:00:00.000000005Z","session":"s","type":"denial","guarantee":"net.dns","what":"resolve x","hint":"--allow x"}`+"\n",
		string(Append(nil, 3, noon, "s", Denial{Guarantee: "net.dns", What: "resolve x", Hint: "--allow x"})))
}

func TestNothingIsForged(t *testing.T) {
	for _, evil := range []string{
		"x\n{\"v\":1,\"type\":\"exit\",\"code\":0}", "x\",\"type\":\"exit", "\x1b]0;x\a\x1b[2J", "\u009b2J", "a\x00b", "\u2028\u2029", "\u202egnp.exe", "\u200b\ufeff", "\xff\xfe\x9b", "\\", "\U000e0041",
	} {
		b := Append(nil, 0, noon, evil+"s", Start{Argv: []string{evil}, Workspace: evil})
		require.Equal(t, 1, bytes.Count(b, []byte("\n")))
		require.Regexp(t, `^[^\x00-\x1f\x7f]+\n$`, string(b))
		require.True(t, utf8.Valid(b))
		for _, r := range string(b[:len(b)-1]) {
			require.True(t, visible(r), "%U", r)
		}
		r, err := Parse(b)
		require.NoError(t, err)
		require.Equal(t, strings.ToValidUTF8(evil, "\ufffd"), strings.ReplaceAll(r.Event.(Start).Workspace, "\ufffd\ufffd\ufffd", "\ufffd"))
		require.Equal(t, Start{}.Type(), r.Type)
	}
}

func TestBounds(t *testing.T) {
	long := strings.Repeat("ä", 1<<20)
	args := make([]string, 10_000)
	b := Append(nil, 0, noon, "s", Start{Argv: args, Workspace: long, Profile: "x" + long})
	require.Less(t, len(b), 16<<10)
	r, err := Parse(b)
	require.NoError(t, err)
	s := r.Event.(Start)
	require.Len(t, s.Argv, maxList)
	require.True(t, strings.HasSuffix(s.Workspace, "ä…"))
	require.True(t, strings.HasSuffix(s.Profile, "ä…"))
}

func TestClean(t *testing.T) {
	require.Equal(t, `/a "b" ü`, Clean(`/a "b" ü`))
	require.Equal(t, `a\u000ab"c"\\n\u001b\u202e`, Clean("a\nb\"c\"\\n\x1b\u202e"))
	require.Equal(t, `\udb40\udc41`, Clean("\U000e0041"))
	require.True(t, strings.HasSuffix(Clean(strings.Repeat("x", 1<<20)), "…"))
}

func TestParseRefuses(t *testing.T) {
	head := `"v":1,"seq":1,"time":"2026-11-21T12:00:00Z","session":"s"`
	for _, line := range []string{
		"", "null", "[]", "{}", "{", `{` + head + `}`, `{` + head + `,"type":"exit","code":"0"}`, `{` + head + `,"type":"exit"}{}`,
		`{"v":0,"seq":1,"time":"2026-11-21T12:00:00Z","session":"s","type":"exit"}`, `{"v":1,"seq":-1,"time":"2026-11-21T12:00:00Z","session":"s","type":"exit"}`,
		`{"v":1,"seq":1,"time":"yesterday","session":"s","type":"exit"}`, `{"v":1,"seq":1,"session":"s","type":"exit"}`,
	} {
		_, err := Parse([]byte(line))
		require.Error(t, err, line)
		require.False(t, errors.Is(err, ErrVersion))
	}
	_, err := Parse([]byte(`{"v":2,"seq":1,"time":"2026-11-21T12:00:00Z","session":"s","type":"exit"}`))
	require.ErrorIs(t, err, ErrVersion)
	r, err := Parse([]byte(`{` + head + `,"type":"of.tomorrow","code":"0"}`))
	require.NoError(t, err)
	require.Nil(t, r.Event)
	r, err = Parse([]byte(`{` + head + `,"type":"oom","limit":1,"new":[]}`))
	require.NoError(t, err)
	require.Equal(t, OOM{Limit: 1}, r.Event)
}

func TestReader(t *testing.T) {
	one := string(Append(nil, 1, noon, "s", OOM{}))
	path := filepath.Join(t.TempDir(), "events")
	w, err := os.Create(path)
	require.NoError(t, err)
	defer w.Close()
	f, err := os.Open(path)
	require.NoError(t, err)
	defer f.Close()
	r := NewReader(f)
	_, err = r.Next()
	require.Equal(t, io.EOF, err)
	w.WriteString(one + "garbage\n" + one[:20])
	_, err = r.Next()
	require.NoError(t, err)
	_, err = r.Next()
	require.Error(t, err)
	require.NotErrorIs(t, err, ErrRead)
	_, err = r.Next()
	require.Equal(t, io.EOF, err, "half a line is none yet")
	w.WriteString(one[20:] + strings.Repeat("x", maxLine+100<<10) + "\n" + one)
	rec, err := r.Next()
	require.NoError(t, err)
	require.Equal(t, one, string(rec.Line)+"\n")
	_, err = r.Next()
	require.ErrorContains(t, err, "a line of more than")
	_, err = r.Next()
	require.NoError(t, err)
	f.Close()
	_, err = r.Next()
	require.ErrorIs(t, err, ErrRead)
}

func TestRedact(t *testing.T) {
	in := []string{"pccrun", "--env", "A=secret", "--env=B=secret=2", "-env", "C=s", "--env", "D", "--allow", "x=y", "--", "sh", "--env", "E=kept"}
	want := []string{"pccrun", "--env", "A=…", "--env=B=…", "-env", "C=…", "--env", "D", "--allow", "x=y", "--", "sh", "--env", "E=kept"}
	before := append([]string(nil), in...)
	require.Equal(t, want, Redact(in))
	require.Equal(t, before, in)
	require.Equal(t, []string{"--env"}, Redact([]string{"--env"}))
	require.Empty(t, Redact(nil))
}

// buffer is a sink's writer that tests look into.
type buffer struct {
	mu     sync.Mutex
	data   bytes.Buffer
	closed bool
	err    error
	gate   chan struct{} // if not nil, each write waits for it
	writes int
}

func (b *buffer) Write(p []byte) (int, error) {
	if b.gate != nil {
		<-b.gate
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.data.Write(p)
	b.writes++
	return len(p), b.err
}

func (b *buffer) count() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.writes
}

func (b *buffer) Close() error { b.closed = true; return nil }

func (b *buffer) sink(name string) Sink {
	return Sink{Name: name, Open: func() (io.WriteCloser, error) { return b, nil }}
}

func (b *buffer) records(t *testing.T) (all []Record) {
	r := NewReader(bytes.NewReader(b.data.Bytes()))
	for {
		record, err := r.Next()
		if err == io.EOF {
			return all
		}
		require.NoError(t, err)
		all = append(all, record)
	}
}

func TestLog(t *testing.T) {
	var all, denials buffer
	l := NewLog("s", all.sink("all"), Denials(&denials))
	l.Emit(Start{})
	l.Emit(Denial{What: "a"})
	require.Zero(t, all.data.Len(), "nothing is written before the start")
	l.Start()
	l.Emit(NetDecision{Host: "evil.example", Port: 443, Via: "http", Guarantee: "net.allowlist"})
	l.Emit(NetDecision{Allowed: true, Host: "h"})
	l.Emit(Denial{What: "a"})
	l.Emit(Exit{})
	require.NoError(t, l.Close(await.Patience))
	require.NoError(t, l.Close(await.Patience))
	l.Emit(Exit{})
	var types []Type
	for i, r := range all.records(t) {
		require.Equal(t, uint64(i), r.Seq)
		types = append(types, r.Type)
	}
	require.Equal(t, []Type{Start{}.Type(), Denial{}.Type(), NetDecision{}.Type(), Denial{}.Type(), NetDecision{}.Type(), Denial{}.Type(), Exit{}.Type()}, types)
	require.True(t, all.closed && denials.closed)
	require.Len(t, denials.records(t), 3)
	total, distinct := l.Denied()
	require.Equal(t, int64(3), total)
	require.Equal(t, []DenialCount{{Denial{What: "a"}, 2}, {Denial{Guarantee: "net.allowlist", What: "connect evil.example:443"}, 1}}, distinct)
}

// TestLogPace emits faster than a sink is written to: what comes after a pause is
// written at once, what follows soon with what else came, and what is prompt each by
// itself. A log that is closed waits for nothing.
// What is emitted before the start is written at the start, all of it and in its order.
func TestLogEarly(t *testing.T) {
	var all, none buffer
	l := NewLog("s", all.sink("all"))
	const early = 500
	for i := range early {
		l.Emit(Warning{Text: strconv.Itoa(i)})
	}
	l.Start()
	l.Emit(Exit{})
	require.NoError(t, l.Close(await.Patience))
	records := all.records(t)
	require.Len(t, records, early+1)
	for i, r := range records[:len(records)-1] {
		require.Equal(t, uint64(i), r.Seq)
		require.Equal(t, Warning{Text: strconv.Itoa(i)}, r.Event)
	}

	sink, asked := none.sink("none"), false
	sink.Wanted = func() bool { asked = true; return false }
	l = NewLog("s", sink)
	l.Emit(Start{})
	require.NoError(t, l.Close(await.Patience))
	require.True(t, asked)
	require.Zero(t, none.data.Len())
}

func TestLogPace(t *testing.T) {
	var all, denials buffer
	l := NewLog("s", all.sink("all"), Denials(&denials))
	l.Start()
	const n = 200
	began := time.Now()
	for i := range n {
		l.Emit(Denial{What: "x"})
		await.Until(t, "it is written", func() bool { return denials.count() > i })
	}
	require.LessOrEqual(t, all.count(), 1+int(time.Since(began)/pace))
	require.Equal(t, n, denials.count())
	l.Emit(Exit{})
	require.NoError(t, l.Close(await.Patience))
	require.Len(t, all.records(t), n+1)
}

func TestDenialOfDecision(t *testing.T) {
	for d, want := range map[NetDecision]string{
		{Host: "h", Port: 1, Via: "http"}:                              "connect h:1",
		{Host: "h", Via: "dns"}:                                        "resolve h",
		{Host: "h", Port: 443, Via: "http", Request: "GET https://h/"}: "request GET https://h/",
	} {
		require.Equal(t, want, d.Denial().What)
	}
}

func TestLogSlowReader(t *testing.T) {
	slow := buffer{gate: make(chan struct{})}
	var fast buffer
	l := NewLog("s", slow.sink("slow"), fast.sink("fast"))
	l.Start()
	big := Warning{Text: strings.Repeat("x", 4000)}
	const n = 1000 // four times what may wait
	for range n {
		l.Emit(big)
		await.Until(t, "another sink is written", func() bool { return fast.len() > 0 })
	} // nobody waits for the slow one
	close(slow.gate)
	l.Emit(Exit{Code: 3})
	err := l.Close(await.Patience)
	require.ErrorContains(t, err, "slow: ")
	require.ErrorContains(t, err, "events dropped")
	got := slow.records(t)
	require.Equal(t, Exit{Code: 3}, got[len(got)-1].Event)
	dropped, warnings := int64(0), int64(0)
	for _, r := range got {
		switch e := r.Event.(type) {
		case Dropped:
			dropped += e.Count
		case Warning:
			warnings++
		}
	}
	require.NotZero(t, dropped)
	require.Equal(t, int64(n), dropped+warnings)
}

func (b *buffer) len() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.data.Len()
}

func TestLogDeadReader(t *testing.T) { synctest.Test(t, logDeadReader) }

func logDeadReader(t *testing.T) {
	stuck := buffer{gate: make(chan struct{})}
	defer close(stuck.gate)
	broken := buffer{err: errors.New("no space left")}
	var fine buffer
	none := Sink{Name: "none", Open: func() (io.WriteCloser, error) { return nil, errors.New("gone") }}
	quiet := Sink{Name: "quiet", Open: func() (io.WriteCloser, error) { return nil, ErrNotWanted }}
	l := NewLog("s", stuck.sink("stuck"), broken.sink("broken"), none, quiet, fine.sink("fine"))
	l.Start()
	for range 100 {
		l.Emit(Warning{})
	}
	l.Emit(Exit{})
	err := l.Close(100 * time.Millisecond)
	require.ErrorContains(t, err, "stuck: the reader stopped before the last events")
	require.ErrorContains(t, err, "broken: no space left")
	require.ErrorContains(t, err, "none: gone")
	require.NotContains(t, err.Error(), "quiet")
	require.NotContains(t, err.Error(), "fine")
	require.Len(t, fine.records(t), 101)
}

func TestLogBounds(t *testing.T) {
	var small buffer
	s := Denials(&small)
	s.Max = 1000
	l := NewLog("s", s)
	for range 100 {
		l.Emit(Denial{What: "x"})
	}
	require.ErrorContains(t, l.Close(await.Patience), "dropped")
	require.LessOrEqual(t, small.data.Len(), 1000)
	require.NotEmpty(t, small.records(t))
	for i := range 1000 {
		l.denials.add(Denial{What: strings.Repeat("x", i)})
	}
	_, distinct := l.Denied()
	require.Len(t, distinct, maxDistinct)
}

// TestFlood has a payload that is refused for as long as it likes: what else
// happens is still told, and of what it did nothing is lost but the times.
func TestFlood(t *testing.T) {
	var b, denials buffer
	l := NewLog("s", Sink{Name: "all", Max: 1 << 20, Open: func() (io.WriteCloser, error) { return &b, nil }}, Denials(&denials))
	l.Start()
	flush := func() { // a reader that keeps up
		await.Until(t, "all is written", func() bool {
			l.mu.Lock()
			defer l.mu.Unlock()
			return len(l.queues[0].pending) == 0 && len(l.queues[1].pending) == 0
		})
	}
	const often = 100_000
	for i := range often {
		l.Emit(NetDecision{Host: "evil.example", Port: 443, Via: "http", Hint: "--allow evil.example"})
		if i%1000 == 0 {
			flush()
		}
	}
	for i := range 20_000 { // each another one
		l.Emit(NetDecision{Host: fmt.Sprintf("%d.evil.example", i), Port: 443, Via: "http"})
		if i%1000 == 0 {
			flush()
		}
	}
	require.NotZero(t, l.queues[0].lost, "the control: they are more than there is room for")
	for i := range 5000 {
		l.Emit(NetDecision{Allowed: true, Host: "good.example", Port: 443, Via: "http"})
		l.Emit(NetClosed{Host: "good.example", Port: 443, Via: "http"})
		if i%1000 == 0 {
			flush()
		}
	}
	l.Emit(Warning{Text: "what happens later"})
	total, distinct := l.Denied()
	require.EqualValues(t, often+20_000, total)
	require.EqualValues(t, often, distinct[0].Count)
	l.Emit(Exit{Denials: total})
	require.ErrorContains(t, l.Close(await.Patience), "dropped")
	require.LessOrEqual(t, b.data.Len(), 1<<20+64<<10)
	var same, lines, told, dropped, allowed int64
	var last []Type
	for _, r := range b.records(t) {
		switch e := r.Event.(type) {
		case NetDecision:
			if e.Allowed {
				allowed++
			} else if e.Host == "evil.example" {
				same += max(1, e.Times)
				lines++
			}
		case Denial:
			told++
		case Dropped:
			dropped += e.Count
		}
		last = append(last, r.Event.Type())
	}
	require.Less(t, lines, int64(eachTold+30))
	require.LessOrEqual(t, same, int64(often))
	require.Greater(t, same, int64(often/2), "the last doubling at least")
	require.Greater(t, allowed, int64(500), "connections are told, though refusals are not any more")
	require.NotZero(t, dropped, "and what is missing is told")
	require.Contains(t, last[len(last)-4:], Warning{}.Type())
	require.Equal(t, Exit{}.Type(), last[len(last)-1])

	var few buffer
	l = NewLog("s", Sink{Name: "all", Max: 1 << 20, Open: func() (io.WriteCloser, error) { return &few, nil }})
	for range 1000 {
		l.Emit(NetDecision{Host: "evil.example", Port: 443, Via: "http"})
	}
	l.Emit(Exit{})
	require.NoError(t, l.Close(await.Patience))
	same = 0
	for _, r := range few.records(t) {
		if d, ok := r.Event.(NetDecision); ok {
			same += max(1, d.Times)
		}
	}
	require.EqualValues(t, 1000, same, "the last ones are told at the end")
}

func TestTarget(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "events")
	for range 2 { // appended to
		s, err := Target(path, "/work")
		require.NoError(t, err)
		require.EqualValues(t, maxFile, s.Max, "which the command could fill")
		l := NewLog("s", s)
		l.Emit(Exit{})
		require.NoError(t, l.Close(await.Patience))
	}
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, 2, bytes.Count(data, []byte("\n")))

	r, w, err := os.Pipe()
	require.NoError(t, err)
	own := "fd:" + itoa(int(w.Fd()))
	_, err = Target(own, "/work")
	require.ErrorContains(t, err, "not open", "one of this program's own is no caller's")
	fd := inherited(t, w)
	s, err := Target("fd:"+itoa(fd), "/work")
	require.NoError(t, err)
	require.Zero(t, s.Max, "its reader knows what it keeps")
	w.Close()
	closeFD(fd)
	l := NewLog("s", s)
	l.Emit(Exit{})
	require.NoError(t, l.Close(await.Patience))
	data, err = io.ReadAll(r)
	require.NoError(t, err)
	require.Equal(t, 1, bytes.Count(data, []byte("\n")))

	require.NoError(t, os.Symlink(path, filepath.Join(dir, "link")))
	mkfifo(t, filepath.Join(dir, "fifo"))
	reading := inherited(t, r)
	defer closeFD(reading)
	for _, bad := range []string{"", "-", "fd:", "fd:x", "fd:-1", "fd:01", "fd:99999", "fd:4294967297", "fd:" + itoa(reading), dir, filepath.Join(dir, "no/such"), filepath.Join(dir, "link"), filepath.Join(dir, "fifo")} {
		_, err := Target(bad, "/work")
		require.Error(t, err, bad)
		require.True(t, strings.HasPrefix(err.Error(), "--events "), err)
	}
	r.Close()
}

func TestTargetReaderGoes(t *testing.T) {
	r, w, err := os.Pipe()
	require.NoError(t, err)
	fd := inherited(t, w)
	s, err := Target("fd:"+itoa(fd), "/work")
	require.NoError(t, err)
	w.Close()
	closeFD(fd)
	r.Close()
	l := NewLog("s", s)
	l.Emit(Exit{})
	require.ErrorContains(t, l.Close(await.Patience), "broken pipe") // and no SIGPIPE
}

// TestTable holds `pccrun help events` against the types: a heading for each event, each field in
// the lines below it, and none of what is not there.
func TestTable(t *testing.T) {
	data, err := os.ReadFile("../../cmd/pccrun/help/events.txt")
	require.NoError(t, err)
	rows := map[string]bool{}
	typ := ""
	for line := range strings.Lines(string(data)) {
		if heading := regexp.MustCompile(`^([a-z.]+)\n`).FindStringSubmatch(line); heading != nil {
			typ = heading[1]
		}
		if field := regexp.MustCompile(`^  ([a-z].*?): `).FindStringSubmatch(line); field != nil {
			for _, m := range regexp.MustCompile(`(?:^|, )([a-z0-9_.\[\]]+)`).FindAllStringSubmatch(field[1], -1) {
				require.False(t, rows[typ+" "+m[1]], "twice: %s %v", typ, m)
				rows[typ+" "+m[1]] = true
			}
		}
	}
	want := map[string]bool{}
	for _, e := range samples {
		typ := reflect.TypeOf(e)
		for i := range typ.NumField() {
			f := typ.Field(i)
			name := field(f)
			if name == "-" {
				continue
			}
			want[string(e.Type())+" "+name] = true
			if f.Type.Kind() == reflect.Slice && f.Type.Elem().Kind() == reflect.Struct {
				for j := range f.Type.Elem().NumField() {
					want[string(e.Type())+" "+name+"[]."+field(f.Type.Elem().Field(j))] = true
				}
			}
		}
	}
	require.Equal(t, want, rows)
}

func field(f reflect.StructField) string {
	name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	return name
}

func FuzzParse(f *testing.F) {
	for _, e := range samples {
		f.Add(Append(nil, 1, noon, "s", e))
	}
	f.Add([]byte(`{"v":1,"seq":1,"time":"2026-11-21T12:00:00+01:00","session":"s","type":"exit","code":1e3}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		r, err := Parse(line)
		if err != nil || r.Event == nil {
			return
		}
		// What can be read can be written, and reads the same.
		again := Append(nil, r.Seq, r.Time, r.Session, r.Event)
		r2, err := Parse(again)
		if r.Time.UTC().Year() > 9999 || r.Time.UTC().Year() < 0 {
			return
		}
		require.NoError(t, err, "%s", again)
		third := Append(nil, r2.Seq, r2.Time, r2.Session, r2.Event)
		require.Equal(t, string(again), string(third))
	})
}

func FuzzString(f *testing.F) {
	f.Add("a\n\"\\\x1b\u202e\xff")
	f.Add(strings.Repeat("ä", maxString))
	f.Fuzz(func(t *testing.T, s string) {
		b := Marshal(Cut(s))
		var got string
		require.NoError(t, json.Unmarshal(b, &got))
		if len(s) <= maxString {
			require.Equal(t, string([]rune(s)), got)
		}
		for _, r := range string(b) {
			require.True(t, visible(r))
		}
	})
}

func BenchmarkEmit(b *testing.B) {
	l := NewLog("20261121T120000Z-00000000", Sink{Open: func() (io.WriteCloser, error) { return nil, ErrNotWanted }})
	l.Start()
	d := NetDecision{Allowed: true, Host: "api.example.com", Port: 443, Via: "http"}
	b.ReportAllocs()
	for b.Loop() {
		l.Emit(d)
	}
}
