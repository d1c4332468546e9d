//go:build linux || darwin

package escape

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// On a Mac every probe runs twice as well: the control in a cage, a profile of sandbox-exec's own that
// lets it change the world that was made for it and reach this machine alone; and inside, under
// pccrun. What both sides say is compared: a probe whose control got nothing has shown nothing.

// macVerb starts this program as a payload.
const macVerb = "__escape-macos"

// macLimit bounds one run of a probe.
const macLimit = 60 * time.Second

// The verdicts of a probe, as [Verdict] has them, on a Mac.
const (
	macBlocked = "blocked"
	macEscaped = "ESCAPED"
	macVacuous = "vacuous" // the control got nothing
	macError   = "error"   // the sandbox did not run it
)

// A macResult is what came of a probe.
type macResult struct {
	Probe     string `json:"probe"`
	Guarantee string `json:"guarantee"`
	Verdict   string `json:"verdict"`
	Detail    string `json:"detail"`
}

// macSuite runs probes.
type macSuite struct {
	self    string                                     // this program
	cage    func(world string, argv []string) []string // runs a control
	sandbox func(w *macWorld, flags, argv []string) []string
}

// newMacSuite is the one of a Mac.
func newMacSuite(self string) *macSuite {
	return &macSuite{
		self: self,
		cage: func(world string, argv []string) []string {
			const profile = `(version 1)(allow default)(deny network-outbound)(allow network-outbound (remote ip "localhost:*") (remote unix-socket (subpath "/")))` +
				`(deny file-write*)(allow file-write* (subpath (param "WORLD")) (subpath "/dev"))`
			return append([]string{"/usr/bin/sandbox-exec", "-p", profile, "-D", "WORLD=" + world}, argv...)
		},
		sandbox: func(w *macWorld, flags, argv []string) []string {
			run := []string{self, "run", "-q", "--profile", "default", "--workspace", w.work(), "--read", self}
			return append(append(append(run, flags...), "--"), argv...)
		},
	}
}

// runMac runs all probes of some names, none for all, and prints a line for each.
func (s *macSuite) run(out io.Writer, names []string) (list []macResult) {
	for _, p := range macProbes() {
		if len(names) > 0 && !slices.Contains(names, p.name) {
			continue
		}
		r := s.probe(&p)
		fmt.Fprintf(out, "%-8s %-26s %-18s %s\n", r.Verdict, r.Probe, r.Guarantee, r.Detail)
		list = append(list, r)
	}
	return list
}

// probe runs one.
func (s *macSuite) probe(p *macProbe) macResult {
	r := macResult{Probe: p.name, Guarantee: string(p.guarantee)}
	got, detail, err := s.once(p, false)
	switch {
	case err != nil:
		r.Verdict, r.Detail = macError, "control: "+err.Error()
		return r
	case !got:
		r.Verdict, r.Detail = macVacuous, "control: "+detail
		return r
	}
	got, detail, err = s.once(p, true)
	switch {
	case err != nil:
		r.Verdict, r.Detail = macError, err.Error()
	case got:
		r.Verdict, r.Detail = macEscaped, detail
	default:
		r.Verdict, r.Detail = macBlocked, detail
	}
	return r
}

// once runs a probe in the cage or in the sandbox, in a world of its own.
func (s *macSuite) once(p *macProbe, inside bool) (got bool, detail string, err error) {
	w, done, err := newMacWorld()
	if err != nil {
		return false, "", err
	}
	defer done()
	told, err := json.Marshal(w)
	if err != nil {
		return false, "", err
	}
	payload := []string{s.self, macVerb, p.name, string(told)}
	argv := s.cage(w.Dir, payload)
	if inside {
		flags := make([]string, len(p.flags))
		for i, f := range p.flags {
			flags[i] = strings.NewReplacer("{home}", w.home(), "{work}", w.work()).Replace(f)
		}
		argv = s.sandbox(w, flags, payload)
	}
	ctx, cancel := context.WithTimeout(context.Background(), macLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Dir, cmd.WaitDelay = w.work(), time.Second
	cmd.Env = []string{"PATH=/usr/bin:/bin:/usr/sbin:/sbin", "HOME=" + w.home(), "PCCRUN_PROBE_SECRET=" + macSecret, "TMPDIR=" + w.Dir + "/tmp"}
	out, ran := cmd.CombinedOutput()
	word := ""
	for line := range strings.Lines(string(out)) {
		if text, ok := strings.CutPrefix(line, "sentinel "+w.Nonce+" "); ok {
			word = strings.TrimSpace(text)
		}
	}
	if p.after != nil {
		if err := p.after(w); err == nil {
			return true, "seen from outside", nil
		} else if word == "" && p.name != "time.wall" {
			return false, "", fmt.Errorf("it did not run: %v: %s", ran, lastLine(out))
		}
		return false, "nothing is seen from outside", nil
	}
	if word == "" {
		return false, "", fmt.Errorf("it did not run: %v: %s", ran, lastLine(out))
	}
	return word == "got", word, nil
}

func lastLine(b []byte) string {
	lines := strings.Split(strings.TrimSpace(string(b)), "\n")
	return lines[len(lines)-1]
}

// newMacWorld makes a world. done removes it.
func newMacWorld() (w *macWorld, done func(), err error) {
	dir, err := os.MkdirTemp("", "pccrun-escape-")
	if err != nil {
		return nil, nil, err
	}
	closers := []func(){func() { os.RemoveAll(dir) }}
	done = func() {
		for _, c := range slices.Backward(closers) {
			c()
		}
	}
	fail := func(err error) (*macWorld, func(), error) {
		done()
		return nil, nil, err
	}
	if dir, err = filepath.EvalSymlinks(dir); err != nil {
		return fail(err)
	}
	w = &macWorld{Dir: dir, Nonce: rand.Text()}
	for name, text := range macFiles {
		path := filepath.Join(w.home(), name)
		err = errors.Join(err, os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o755))
	}
	if err = errors.Join(err, os.Mkdir(dir+"/tmp", 0o755)); err != nil {
		return fail(err)
	}
	tcp, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return fail(err)
	}
	closers = append(closers, func() { tcp.Close() })
	udp, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		return fail(err)
	}
	closers = append(closers, func() { udp.Close() })
	socket, err := net.Listen("unix", dir+"/agent.sock")
	if err != nil {
		return fail(err)
	}
	closers = append(closers, func() { socket.Close() })
	w.TCP, w.UDP = tcp.Addr().(*net.TCPAddr).Port, udp.LocalAddr().(*net.UDPAddr).Port
	other := exec.Command("/bin/sleep", "300")
	other.Env = []string{"PCCRUN_PROBE_SECRET=" + macSecret}
	if err := other.Start(); err != nil {
		return fail(err)
	}
	closers = append(closers, func() { other.Process.Kill(); other.Wait() })
	w.Pid = other.Process.Pid
	return w, done, nil
}

// macPayload is this program as a payload: NAME WORLD.
func macPayload(args []string, out io.Writer) int {
	var w macWorld
	if len(args) != 2 || json.Unmarshal([]byte(args[1]), &w) != nil {
		return 2
	}
	for _, p := range macProbes() {
		if p.name == args[0] {
			err := p.try(&w)
			fmt.Fprintln(out, macWord(&w, err))
			return 0
		}
	}
	return 2
}

// macMain is `pccrun escape` on a Mac: 0 where each probe was blocked.
func (s *macSuite) main(args []string, out io.Writer) int {
	asJSON := slices.Contains(args, "--json")
	names := slices.DeleteFunc(slices.Clone(args), func(a string) bool { return a == "--json" })
	for _, name := range names {
		if !slices.ContainsFunc(macProbes(), func(p macProbe) bool { return p.name == name }) {
			fmt.Fprintln(os.Stderr, "pccrun: escape: probe "+name+": there is none")
			return 2
		}
	}
	lines := out
	if asJSON {
		lines = io.Discard
	}
	list := s.run(lines, names)
	counts := map[string]int{}
	for _, r := range list {
		counts[r.Verdict]++
	}
	if asJSON {
		e := json.NewEncoder(out)
		e.SetIndent("", "  ")
		if e.Encode(list) != nil {
			return 2
		}
	} else {
		fmt.Fprintf(out, "\n%d blocked, %d escaped, %d vacuous, %d errors\n", counts[macBlocked], counts[macEscaped], counts[macVacuous], counts[macError])
	}
	switch {
	case counts[macEscaped] > 0:
		return 1
	case counts[macVacuous]+counts[macError] > 0:
		return 3
	}
	return 0
}
