//go:build linux

package escape

import (
	"bytes"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pccrun/pccrun/profiles"
)

// The test program is its own payload, helper and cage.
func TestMain(m *testing.M) {
	if code, is := Hidden(os.Args[1:]); is {
		os.Exit(code)
	}
	if len(os.Args) > 1 && os.Args[1] == "__escape" {
		os.Exit(Main(os.Args[2:]))
	}
	if len(os.Args) > 1 && os.Args[1] == macVerb {
		os.Exit(macPayload(os.Args[2:], os.Stdout))
	}
	if len(os.Args) > 3 && os.Args[1] == "__litter" {
		if err := litter(os.Args[2], os.Args[3]); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if len(os.Args) > 1 && !strings.HasPrefix(os.Args[1], "-test.") {
		os.Exit(125) // a probe calls verbs that there are none of: it is not to run all tests
	}
	os.Exit(m.Run())
}

func TestJudge(t *testing.T) {
	escaped, blocked := Escaped("x"), Blocked("x: %v", syscall.EPERM)
	for _, row := range []struct {
		name            string
		control, inside Outcome
		claim           string
		want            Verdict
	}{
		{"held", escaped, blocked, "", VerdictBlocked},
		{"held and claimed", escaped, blocked, "kept", VerdictBlocked},
		{"held by something weak", escaped, blocked, "weak", VerdictDegraded},
		{"broken", escaped, escaped, "", VerdictEscaped},
		{"broken though weak", escaped, escaped, "weak", VerdictEscaped},
		{"control blocked", blocked, blocked, "", VerdictVacuous},
		{"control blocked, inside escaped", blocked, escaped, "", VerdictVacuous},
		{"control broke", Broken("x"), blocked, "", VerdictVacuous},
		{"control needs", Needing("git"), blocked, "", VerdictSkipped},
		{"control has no such call", Blocked("x: %v", syscall.ENOSYS), blocked, "", VerdictSkipped},
		{"inside needs", escaped, Needing("git"), "", VerdictSkipped},
		{"inside did not run", escaped, Broken("x"), "", VerdictError},
		{"inside refused, and said so", escaped, Broken("x"), "missing", VerdictSkipped},
		{"nothing ran", Outcome{}, Outcome{}, "", VerdictError},
	} {
		t.Run(row.name, func(t *testing.T) {
			got, reason := judge(&Probe{}, row.control, row.inside, Claim{State: row.claim})
			require.Equal(t, row.want, got, reason)
			if got != VerdictBlocked && got != VerdictEscaped && row.name != "nothing ran" && row.claim != "weak" {
				require.NotEmpty(t, reason)
			}
		})
	}
}

func TestFindings(t *testing.T) {
	p := &Probe{Errnos: errnos("EPERM ENOSYS")}
	require.Nil(t, findings(p, Blocked("x: %v", syscall.EPERM)))
	require.Equal(t, []string{"errno EBADF, want EPERM or ENOSYS"}, findings(p, Blocked("x: %v", syscall.EBADF)))
	require.Nil(t, findings(p, Blocked("absent")))
	require.Nil(t, findings(&Probe{}, Blocked("x: %v", syscall.EBADF)))
}

func TestProbesAreComplete(t *testing.T) {
	closed := []profiles.Guarantee{
		profiles.FSHide, profiles.FSReadonly, profiles.FSSpecial, profiles.FSProtect, profiles.FSOverlay, profiles.NetAllowlist, profiles.NetAddress, profiles.NetDNS,
		profiles.NetTransparent, profiles.NetInject, profiles.IPCUnix, profiles.IPCSysV, profiles.ProcIsolated, profiles.ProcNoSurvivors, profiles.SysFilter,
		profiles.SysNoNewUserns, profiles.PrivNone, profiles.EnvScrub, profiles.ResMemory, profiles.ResCPU, profiles.ResPids, profiles.ResFiles, profiles.ResDisk,
		profiles.ResTime, profiles.TTYIsolated, profiles.TTYOutput, profiles.InfoKernel, profiles.InfoHost, profiles.LaunchIntegrity, profiles.SyncUp, profiles.SyncDown,
	}
	id := regexp.MustCompile(`^(FS|NS|KS|NET|DNS|IPC|RES|LCH|PER|TTY|SYN|INF)-\d{3}$`)
	seen, tried := map[string]bool{}, 0
	for _, p := range Probes() {
		require.Regexp(t, id, p.ID)
		require.False(t, seen[p.ID], "%s twice", p.ID)
		seen[p.ID] = true
		require.Contains(t, closed, p.Guarantee, p.ID)
		require.NotEmpty(t, p.Name, p.ID)
		require.NotEmpty(t, p.Explain, p.ID)
		require.LessOrEqual(t, p.Severity, Critical)
		require.NotEqual(t, "BUG", p.Name)
		if p.Payload == nil && p.Drive == nil {
			require.NotEmpty(t, p.Needs, "%s cannot run and does not say why", p.ID)
			continue
		}
		tried++
		require.NotEmpty(t, p.Expect, p.ID)
		require.Same(t, p, Find(p.ID))
	}
	require.GreaterOrEqual(t, len(seen), 250)
	require.GreaterOrEqual(t, tried, 180)
	require.Nil(t, Find("FS-999"))
}

// Every id of the catalogue stays: reports and baselines refer to them.
func TestProbesOfTheCatalogue(t *testing.T) {
	for _, row := range []struct {
		area string
		ids  string
	}{
		{"FS", "1-11 13-22 24-37 39-50"}, {"NS", "1-2 4-12 14-18 20-28"}, {"KS", "1-6 8-23 25 28-42"},
		{"NET", "1-20 22-27 29-48"}, {"DNS", "1 3-9"}, {"IPC", "1-2 6-18"}, {"RES", "1-2 5-9 11-18"},
		{"LCH", "5-6 8-9 11-12 14-29"}, {"PER", "1-3 5-16 18-19 23-31"}, {"TTY", "1 3-11"}, {"SYN", "1-2 4-14 16-24"}, {"INF", "1-17"},
	} {
		for word := range strings.FieldsSeq(row.ids) {
			from, to, isRange := strings.Cut(word, "-")
			if !isRange {
				to = from
			}
			first, _ := strconv.Atoi(from)
			last, _ := strconv.Atoi(to)
			for n := first; n <= last; n++ {
				id := row.area + "-" + strings.Repeat("0", 3-len(strconv.Itoa(n))) + strconv.Itoa(n)
				if id == "KS-020" || id == "KS-021" || id == "KS-023" {
					continue // amd64 only
				}
				require.NotNil(t, Find(id), id)
			}
		}
	}
}

// TestSuiteBites holds launchers that protect nothing, or little, against the
// probes that they must fail.
func TestSuiteBites(t *testing.T) {
	needCage(t)
	nothing := &Target{Name: "nothing", Argv: []string{"/usr/bin/env"}}
	ids := []string{"FS-001", "FS-002", "FS-004", "NS-001", "NS-002", "NET-001", "NET-004", "IPC-001", "IPC-003", "IPC-005", "LCH-001", "PER-001", "KS-001", "KS-049", "NS-018", "FS-015", "TTY-004", "NS-003"}
	results := run(t, []*Target{nothing}, func(p *Probe) bool { return contains(ids, p.ID) })
	require.Len(t, results, len(ids))
	for _, r := range results {
		if r.Verdict == VerdictSkipped && strings.Contains(r.Reason, "kernel") {
			continue
		}
		require.Equal(t, VerdictEscaped, r.Verdict, "%s: %s %s", r.ID, r.Reason, r.Inside.Detail)
	}
	report := &Report{Results: results, targets: []string{"nothing"}}
	require.Equal(t, 1, report.Exit())
}

func contains(list []string, s string) bool {
	for _, x := range list {
		if x == s {
			return true
		}
	}
	return false
}

// TestLauncherThatDoesNotStart must never pass for a sandbox that holds.
func TestLauncherThatDoesNotStart(t *testing.T) {
	needCage(t)
	for name, argv := range map[string][]string{
		"fails":         {"/bin/false"},
		"says it is ok": {"/bin/true"},
		"is absent":     {"/nonexistent/launcher"},
		"swallows":      {"/bin/sh", "-c", `"$@" >/dev/null 2>&1`, "sh"},
		"forges":        {"/bin/sh", "-c", `echo '@@probe 0123456789abcdef {"kind":"blocked"}'`, "sh"},
	} {
		t.Run(name, func(t *testing.T) {
			results := run(t, []*Target{{Name: name, Argv: argv}}, func(p *Probe) bool { return p.ID == "FS-001" })
			require.Len(t, results, 1)
			require.Equal(t, VerdictError, results[0].Verdict)
			require.Equal(t, 3, (&Report{Results: results}).Exit())
		})
	}
}

func TestExit(t *testing.T) {
	r := func(v Verdict, s Severity, claim, accepted string) Result {
		return Result{Verdict: v, Severity: s, Claim: claim, Accepted: accepted}
	}
	held := r(VerdictBlocked, High, "kept", "")
	for _, row := range []struct {
		name    string
		results []Result
		want    int
	}{
		{"all held", []Result{held}, 0},
		{"an escape", []Result{held, r(VerdictEscaped, High, "", "")}, 1},
		{"a claimed escape", []Result{held, r(VerdictEscaped, High, "kept", "")}, 1},
		{"a weak one", []Result{held, r(VerdictEscaped, High, "weak", "")}, 1},
		{"a known gap", []Result{held, r(VerdictEscaped, High, "missing", "")}, 0},
		{"accepted", []Result{held, r(VerdictEscaped, High, "kept", "for a reason")}, 0},
		{"below the threshold", []Result{held, r(VerdictEscaped, Low, "kept", "")}, 0},
		{"an error", []Result{held, r(VerdictError, Low, "", "")}, 2},
		{"an error and an escape", []Result{r(VerdictError, Low, "", ""), r(VerdictEscaped, High, "", "")}, 1},
		{"vacuous and skipped only", []Result{r(VerdictVacuous, High, "", ""), r(VerdictSkipped, High, "", "")}, 3},
		{"nothing", nil, 3},
	} {
		require.Equal(t, row.want, (&Report{Results: row.results, failOn: Medium}).Exit(), row.name)
	}
	target := &Target{Name: "x", Claims: []Claim{{Guarantee: profiles.FSHide, State: "kept"}, {Guarantee: profiles.FSOverlay, State: "missing"}}}
	require.Equal(t, []profiles.Guarantee{profiles.FSHide}, untested(target, nil))
	held.Target, held.Guarantee = "x", profiles.FSHide
	require.Empty(t, untested(target, []Result{held}))
	require.Equal(t, 2, (&Report{Results: []Result{held}, Untested: map[string][]profiles.Guarantee{"x": {profiles.FSHide}}}).Exit())
}

func TestSplit(t *testing.T) {
	for line, want := range map[string][]string{
		`bwrap --ro-bind / / --`: {"bwrap", "--ro-bind", "/", "/", "--"},
		`a 'b c' "d e" f\ g ''`:  {"a", "b c", "d e", "f g", ""},
		"  ":                     nil,
		`'a\b'`:                  {`a\b`},
	} {
		got, err := split(line)
		require.NoError(t, err)
		require.Equal(t, want, got, line)
	}
	for _, line := range []string{`'a`, `"a`, `a\`, "a\x00b"} {
		_, err := split(line)
		require.Error(t, err, line)
	}
	_, err := Wrap("", "   ")
	require.Error(t, err)
}

func FuzzSplit(f *testing.F) {
	for _, s := range []string{"a b", `'a b'`, `\`, "\x00", `"a\"b"`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		words, err := split(s)
		if err != nil {
			return
		}
		quoted := make([]string, len(words))
		for i, w := range words {
			quoted[i] = "'" + strings.ReplaceAll(w, "'", `'\''`) + "'"
		}
		again, err := split(strings.Join(quoted, " "))
		require.NoError(t, err)
		require.Equal(t, len(words), len(again))
		for i := range words {
			require.Equal(t, strings.ToValidUTF8(words[i], "\uFFFD"), strings.ToValidUTF8(again[i], "\uFFFD"))
		}
	})
}

func TestLooseAddress(t *testing.T) {
	for host, want := range map[string]string{
		"127.1": "127.0.0.1", "2130706433": "127.0.0.1", "0x7f000001": "127.0.0.1", "0177.0.0.1": "127.0.0.1", "0": "0.0.0.0", "1.2.3.4": "1.2.3.4",
	} {
		got, ok := looseAddress(host)
		require.True(t, ok)
		require.Equal(t, want, got)
	}
	_, ok := looseAddress("evil.test")
	require.False(t, ok)
}

// The greeting must be one that a real server reads a name from.
func TestClientHello(t *testing.T) {
	for _, name := range []string{"evil.test", ""} {
		client, server := net.Pipe()
		go client.Write([]byte(clientHello(name)))
		got := "unread"
		stop := errors.New("stop")
		err := tls.Server(server, &tls.Config{GetConfigForClient: func(h *tls.ClientHelloInfo) (*tls.Config, error) {
			got = h.ServerName
			go func() {
				buf := make([]byte, 1024)
				client.Read(buf)
			}()
			return nil, stop
		}}).Handshake()
		require.ErrorIs(t, err, stop)
		require.Equal(t, name, got)
	}
}

func TestErrno(t *testing.T) {
	for _, e := range []Errno{Errno(syscall.EPERM), Errno(syscall.EROFS), 0, 4000} {
		text, err := e.MarshalText()
		require.NoError(t, err)
		var again Errno
		require.NoError(t, again.UnmarshalText(text))
		require.Equal(t, e, again)
	}
	var e Errno
	require.Error(t, e.UnmarshalText([]byte("EWHATEVER")))
	require.Equal(t, Errno(syscall.EROFS), errnoIn([]any{"x", &os.PathError{Err: syscall.EROFS}}))
}

func TestSeverity(t *testing.T) {
	for s := Info; s <= Critical; s++ {
		again, err := ParseSeverity(s.String())
		require.NoError(t, err)
		require.Equal(t, s, again)
	}
	_, err := ParseSeverity("High")
	require.EqualError(t, err, `severity "High": want one of info, low, medium, high, critical`)
}

func TestLeaks(t *testing.T) {
	w := newWorldForTest(t)
	require.True(t, leaks([]byte("x="+w.secret+";"), w.SecretSum))
	require.True(t, leaks([]byte("abc"+w.secret+"def"), w.SecretSum), "among other digits")
	require.False(t, leaks([]byte(w.secret[1:]), w.SecretSum))
	require.False(t, leaks(nil, w.SecretSum))
}

func newWorldForTest(t *testing.T) *world {
	dir := t.TempDir()
	self := filepath.Join(dir, "self")
	require.NoError(t, place("/proc/self/exe", self))
	require.NoError(t, os.Chmod(self, 0o755))
	w := newWorld()
	t.Cleanup(w.close)
	w.build(&job{ID: "FS-001", Dir: dir, Run: randomHex(6), Self: self})
	return w
}

// A world that is closed leaves no file, process or shared memory.
func TestWorldCleansUp(t *testing.T) {
	w := newWorldForTest(t)
	require.FileExists(t, w.Canary+"/secret")
	pid, tmp, home := w.HostPID, w.Tmp, w.Home
	require.NoError(t, syscall.Kill(pid, 0))
	locked := w.Workspace + "/locked/in"
	require.NoError(t, os.MkdirAll(locked, 0o700))
	require.NoError(t, os.Chmod(filepath.Dir(locked), 0))
	w.close()
	require.ErrorIs(t, syscall.Kill(pid, 0), syscall.ESRCH)
	require.NoDirExists(t, tmp)
	require.NoDirExists(t, filepath.Dir(home))
	require.NoFileExists(t, "/dev/shm/"+w.Tag)
}

func TestReadReport(t *testing.T) {
	const nonce = "0123456789abcdef"
	line := func(o string) string { return sentinel + nonce + " " + o + "\n" }
	o, ok := readReport([]byte("noise "+line(`{"kind":"blocked","detail":"a"}`)+"noise\r\n"+line(`{"kind":"escaped","errno":"EPERM","detail":"b"}`)), nonce)
	require.True(t, ok)
	require.Equal(t, Outcome{Kind: DidEscape, Errno: Errno(syscall.EPERM), Detail: "b"}, o)
	for _, text := range []string{"", line("{"), line(""), strings.ReplaceAll(line(`{"kind":"blocked"}`), nonce, "fedcba9876543210"), sentinel + nonce} {
		_, ok := readReport([]byte(text), nonce)
		require.False(t, ok, text)
	}
}

func FuzzReadReport(f *testing.F) {
	f.Add([]byte(sentinel + "n {\"kind\":\"blocked\"}\n"))
	f.Add([]byte(sentinel + "n "))
	f.Fuzz(func(t *testing.T, data []byte) { readReport(data, "n") })
}

func TestFlags(t *testing.T) {
	for _, args := range [][]string{
		{"--nonsense"}, {"--severity", "dire"}, {"word"}, {"--json", "--tap"}, {"--report", "x.txt"}, {"--without", "magic"}, {"--layers", "--provider", "docker"}, {"--parallel", "-1"}, {"--id", ""}, {"--baseline", ""}, {"--explain", ""},
	} {
		_, err := parse(args)
		require.Error(t, err, "%v", args)
	}
	for provider, want := range map[string]string{"native": "", "docker": "", "e2b": "has the files of this machine", "dokcer": "no such provider"} {
		o, err := parse([]string{"--provider", provider, "--runtime", "runsc"})
		require.NoError(t, err)
		targets, err := o.targets("/pccrun")
		if want != "" {
			require.ErrorContains(t, err, want)
			continue
		}
		require.NoError(t, err)
		require.Equal(t, provider == "docker", targets[0].Provider == "docker")
		require.Contains(t, strings.Join(targets[0].flags(), " "), "--provider "+provider+" --runtime runsc")
	}
	o, err := parse([]string{"compare", "--only", "FS,net.dns", "--severity", "high", "bwrap", "unshare"})
	require.NoError(t, err)
	require.True(t, o.compare)
	require.Equal(t, []string{"bwrap", "unshare"}, o.launchers)
	chosen, err := o.selected()
	require.NoError(t, err)
	for _, p := range chosen {
		require.GreaterOrEqual(t, p.Severity, High)
		require.True(t, p.Area() == "FS" || p.Guarantee == profiles.NetDNS, p.ID)
	}
	o.only, o.ids = nil, list{"ks-001"}
	chosen, err = o.selected()
	require.NoError(t, err)
	require.Len(t, chosen, 1, "as --explain, in any case")
	o.only, o.ids = list{"XX"}, nil
	_, err = o.selected()
	require.Error(t, err)
}

func TestNativeCommandLine(t *testing.T) {
	n := Native("/bin/pccrun", []string{"--profile", "strict"})
	require.Equal(t, []string{"{self}", "run", "--workspace", "{workspace}", "--read", "{shown}", "--hide", "{canary}", "--profile", "strict", "{flags}", "--"}, n.Argv)
	off := n.without([]profiles.Layer{profiles.LayerSeccomp})
	require.Equal(t, []string{"--profile", "strict", "--without", "seccomp", "{flags}", "--"}, off.Argv[8:])
	require.Len(t, n.Argv, 12, "the original is unchanged")
	require.Same(t, n, n.without(nil))
	s := &Suite{Command: "pccrun"}
	require.Equal(t, "pccrun escape --id FS-001 --profile strict", s.reproduce(Find("FS-001"), n))
	w, err := Wrap("", "bwrap --bind {workspace} {workspace} --")
	require.NoError(t, err)
	require.Equal(t, "pccrun escape --id FS-001 --wrap 'bwrap --bind {workspace} {workspace} --'", s.reproduce(Find("FS-001"), w))
	_, err = Ready("nonesuch", "")
	require.Error(t, err)
}

func TestListAndExplain(t *testing.T) {
	var b bytes.Buffer
	require.Equal(t, 0, printList(&b, false))
	require.Equal(t, len(Probes()), strings.Count(b.String(), "\n"))
	b.Reset()
	require.Equal(t, 0, printList(&b, true))
	for line := range strings.Lines(b.String()) {
		require.True(t, json.Valid([]byte(line)), line)
	}
	b.Reset()
	require.Equal(t, 0, printExplanation(&b, "fs-001"))
	require.Contains(t, b.String(), "reproduce    pccrun escape --id FS-001")
	require.Equal(t, 2, printExplanation(&b, "FS-999"))
}

// The page of threats is what the suite says today, and no probe refers to a hole that it does not explain.
func TestPage(t *testing.T) {
	var b bytes.Buffer
	require.Equal(t, 0, printPage(&b))
	page, err := os.ReadFile("threats.md")
	require.NoError(t, err)
	require.Equal(t, string(page), b.String(), "pccrun escape --list --markdown > test/escape/threats.md")

	known := map[string]bool{}
	for _, h := range holes {
		require.NotEmpty(t, triedBy(h.id), h.id)
		require.False(t, known[h.id], h.id)
		known[h.id] = true
	}
	for _, p := range Probes() {
		for _, reference := range p.References {
			require.True(t, known[reference] || !strings.HasPrefix(reference, "CVE-"), "%s refers to %s", p.ID, reference)
		}
	}
}

// What cannot be written is an error, for reports before anything has run.
func TestCannotWrite(t *testing.T) {
	home := t.TempDir()
	for _, args := range [][]string{{"--list"}, {"--explain", "FS-001"}, {"--wrap", marking(home), "--id", "FS-001", "--report", "/nonexistent/x.md"}} {
		full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
		require.NoError(t, err)
		defer full.Close()
		cmd := exec.Command("/proc/self/exe", append([]string{"__escape"}, args...)...)
		cmd.Stdout = full
		err = cmd.Run()
		var exit *exec.ExitError
		require.ErrorAs(t, err, &exit, "%v", args)
		require.Equal(t, 2, exit.ExitCode(), "%v", args)
	}
	require.Empty(t, marked(home))
}

// TestCommand runs the verb as a user would, with a launcher that is wrapped.
func TestCommand(t *testing.T) {
	needCage(t)
	home := t.TempDir()
	page, log := filepath.Join(home, "out.md"), filepath.Join(home, "out.sarif")
	cmd := exec.Command("/proc/self/exe", "__escape", "--wrap", "env --", "--id", "FS-001,KS-040", "--json", "--report", page, "--report", log, "--parallel", "1")
	cmd.Env = append(os.Environ(), "XDG_CACHE_HOME="+home)
	out, err := cmd.Output()
	var exit *exec.ExitError
	require.ErrorAs(t, err, &exit)
	require.Equal(t, 1, exit.ExitCode())
	require.Equal(t, 2, bytes.Count(out, []byte("\n")))
	require.Contains(t, string(out), `"verdict":"escaped"`)
	require.FileExists(t, page)
	require.FileExists(t, log)
}
