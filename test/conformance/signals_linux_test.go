package conformance_test

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pccrun/pccrun/internal/await"
	"github.com/pccrun/pccrun/test/internal/faults"
	"github.com/pccrun/pccrun/test/internal/verdicts"
)

// steps are the calls of a run, each by a call of its own, in order, and what is left of the command's
// changes if pccrun is interrupted, or killed, while that call waits for its answer.
var steps = []struct {
	name        string
	call        func(w *wire, r *http.Request) bool
	interrupted string // what diff shows
	killed      string // likewise
	fetched     string // what diff shows after a download, where the killed run has one to make
}{
	{name: "create", call: func(w *wire, r *http.Request) bool { return w.create(r) }},
	{name: "upload", call: func(w *wire, r *http.Request) bool { return w.upload(r) }},
	{name: "set up", call: func(w *wire, r *http.Request) bool { return w.start(r) }},
	{name: "execute", call: func(w *wire, r *http.Request) bool { return w.line(r) }},
	{name: "download", call: func(w *wire, r *http.Request) bool { return w.download(r) }, interrupted: made, fetched: made},
	{name: "destroy", call: func(w *wire, r *http.Request) bool { return w.destroy(r) }, interrupted: made, killed: made},
}

const made = "A\tmade\n"

// unmet reports whether a signal waits for a process.
func unmet(t *testing.T, pid int) bool {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	require.NoError(t, err)
	_, pending, _ := strings.Cut(string(status), "\nShdPnd:\t")
	pending, _, _ = strings.Cut(pending, "\n")
	return strings.Trim(pending, "0") != ""
}

// TestSignals interrupts and kills pccrun while each call of a run waits: afterwards nothing stands at
// the provider, or gc finds it, and what came back is there. Each call meets each of the signals at one
// of the places, and at the others in make test-long.
func TestSignals(t *testing.T) {
	t.Parallel()
	tried := slices.DeleteFunc(slices.Clone(places), func(p *place) bool { return p.noProgram != "" })
	for i, place := range tried {
		for j, step := range steps {
			for k, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGKILL} {
				t.Run(place.name+"/"+step.name+"/"+sig.String(), func(t *testing.T) {
					if (i+j+k)%len(tried) != 0 {
						verdicts.SkipUnlessLong(t)
					}
					t.Parallel()
					server := place.start(t)
					p := newProgram(t, server.environ)
					w := place.wire()
					var reached, ended atomic.Bool
					waits, goes := make(chan struct{}), make(chan struct{})
					server.decide(func(r *http.Request) *faults.Fault {
						if step.call(w, r) && !reached.Swap(true) {
							close(waits)
							<-goes
							if ended.Load() { // the connection is closed: the call would be carried out after all is destroyed, or not, as it comes
								return &faults.Fault{Cut: -1}
							}
						}
						return nil
					})
					c := p.command("--provider", place.name, "--", "sh", "-c", "touch made; sleep 0.1")
					var said bytes.Buffer
					c.Stderr = &said
					require.NoError(t, c.Start())
					await.Closed(t, "the call is made", waits)
					require.NoError(t, c.Process.Signal(sig))
					if sig == syscall.SIGKILL || step.interrupted == "" {
						_ = c.Wait() // it waits for no answer
						ended.Store(sig == syscall.SIGINT)
					} else {
						await.Until(t, "pccrun meets the signal", func() bool { return !unmet(t, c.Process.Pid) })
					}
					close(goes)
					_ = c.Wait()

					diff := func() string { _, out, _ := p.run("diff", "--name-status"); return out }
					if sig == syscall.SIGINT {
						require.Empty(t, server.stand(""), "%s", &said)
						require.Equal(t, step.interrupted, diff(), "%s", &said)
						require.Equal(t, step.interrupted != "", c.ProcessState.ExitCode() == 0, "%s", &said)
						return
					}
					require.Equal(t, step.killed, diff())
					if step.name != "create" && step.name != "destroy" {
						require.Len(t, server.stand(""), 1, "the control: it was left")
					}
					unfetched := step.name == "execute" || step.name == "download"
					code, _, say := p.run("gc", "--dry-run")
					require.Equal(t, 0, code, say)
					require.Equal(t, unfetched, strings.Contains(say, "were not downloaded: the session and its sandbox are kept\npccrun: hint: pccrun download "), say)
					if unfetched {
						code, _, say = p.run("gc")
						require.Equal(t, 0, code, say)
						require.Len(t, server.stand(""), 1, "gc destroyed what was not downloaded")
					}
					code, _, say = p.run("download")
					require.Equal(t, step.fetched == "" && step.name != "execute", code != 0, say)
					if step.fetched != "" {
						require.Equal(t, step.fetched, diff())
					}
					await.Until(t, "gc finds what a call made after its caller was gone", func() bool {
						_, _, _ = p.run("gc")
						return len(server.stand("")) == 0
					})
					_, out, _ := p.run("ps", "--all")
					require.NotContains(t, strings.ToLower(out), "running")
					require.Equal(t, step.killed+step.fetched, diff(), "gc took changes that had come back")
				})
			}
		}
	}
}
