//go:build unix

package macos

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"time"

	"github.com/pccrun/pccrun/internal/events"
	"github.com/pccrun/pccrun/internal/shell"
	"github.com/pccrun/pccrun/profiles"
)

// tagOf is what the system's log says with each denial of a run.
func tagOf(label string) string { return "pccrun-" + label }

// predicate asks the log for the denials of one run.
func predicate(tag string) string { return `eventMessage CONTAINS "` + tag + `"` }

// denied is a line of the log: "Sandbox: cat(4242) deny(1) file-read-data /Users/me/.ssh/id_rsa", with
// the tag on a line of its own behind it.
var denied = regexp.MustCompile(`(?s)Sandbox: (.+)\((\d+)\) deny\(\d+\) ([a-z0-9*-]+)(?: (.*))?$`)

// readLog turns what `log stream --style ndjson` prints into denials, each told once. Anybody may
// write to the log: what bears the tag and is no kernel's line is left out.
func readLog(from io.Reader, tag string, p *profiles.Policy, tell func(events.Denial)) {
	seen := map[string]bool{}
	in := bufio.NewScanner(from)
	in.Buffer(nil, 1<<20)
	for in.Scan() {
		var line struct {
			Message string `json:"eventMessage"`
			Process int    `json:"processID"` // 0 is the kernel
			Image   string `json:"processImagePath"`
		}
		if !strings.HasPrefix(in.Text(), "{") || json.Unmarshal(in.Bytes(), &line) != nil || line.Process != 0 {
			continue // of log itself: what it filters by
		}
		text, ok := strings.CutSuffix(strings.TrimRight(line.Message, "\n"), tag)
		m := denied.FindStringSubmatch(strings.TrimSpace(text))
		if !ok || m == nil {
			continue
		}
		d := denialOf(m[3], m[4], p)
		if seen[d.What] || len(seen) >= maxDenials || always.MatchString(m[3]+" "+m[4]) {
			continue
		}
		seen[d.What] = true
		tell(d)
	}
}

// always is what programs ask for as they start, and do without: the libraries of the system, not the
// command.
var always = regexp.MustCompile(`^(mach-lookup com\.apple\.(logd(\.events)?|system\.logger|diagnosticd|analyticsd|cfprefsd\.(agent|daemon))` +
	`|file-[a-z-]+ /dev/(dtracehelper|autofs_nowait)|user-preference-read .*|iokit-get-properties .*)$`)

// maxDenials bounds the denials of a run that are told.
const maxDenials = 10_000

// denialOf says what an operation of Seatbelt's was, in the words of events.
func denialOf(operation, target string, p *profiles.Policy) events.Denial {
	d := events.Denial{Guarantee: string(guaranteeOf(operation)), Rule: "Seatbelt " + operation}
	verb := operation
	switch {
	case strings.HasPrefix(operation, "file-read"), operation == "file-test-existence":
		verb = "read"
	case strings.HasPrefix(operation, "file-write"), operation == "file-link", operation == "file-clone":
		verb = "write"
	case strings.HasPrefix(operation, "process-exec"):
		verb = "execute"
	case operation == "network-outbound":
		verb = "connect"
	case operation == "network-bind", operation == "network-inbound":
		verb = "listen"
	}
	d.What = strings.TrimSpace(verb + " " + target)
	if !strings.HasPrefix(target, "/") {
		return d
	}
	decision := p.Decide(target)
	switch {
	case verb == "connect":
		d.Guarantee, d.Hint = string(profiles.IPCUnix), "--socket "+shell.Quote(target)
	case verb == "write" && decision.Access == profiles.Write:
		if r, ok := p.ProtectedAnywhere(target); ok && !r.Review {
			d.Guarantee, d.Rule = string(profiles.FSProtect), "protect "+r.Pattern+" ("+r.Origin.String()+")"
			d.Hint = p.NewFlag(r.Pattern)
		}
	case verb == "read" || verb == "execute":
		d.Rule, d.Hint = decision.Access.String()+" "+decision.Rule.Text()+" ("+decision.Rule.Origin.String()+")", "--read "+shell.Quote(target)
	case verb == "write":
		d.Rule, d.Hint = decision.Access.String()+" "+decision.Rule.Text()+" ("+decision.Rule.Origin.String()+")", "--write "+shell.Quote(target)
	}
	return d
}

// guaranteeOf says which guarantee a denial of Seatbelt's held.
func guaranteeOf(operation string) profiles.Guarantee {
	switch {
	case strings.HasPrefix(operation, "file-write"), operation == "file-link", operation == "file-clone":
		return profiles.FSReadonly
	case strings.HasPrefix(operation, "file-"), strings.HasPrefix(operation, "process-exec"):
		return profiles.FSHide
	case strings.HasPrefix(operation, "network-"):
		return profiles.NetAllowlist
	case strings.HasPrefix(operation, "process-info"), operation == "signal", strings.HasPrefix(operation, "mach-priv"):
		return profiles.ProcIsolated
	case strings.HasPrefix(operation, "ipc-"):
		return profiles.IPCSysV
	case operation == "forbidden-exec-sugid":
		return profiles.PrivNone
	case strings.HasPrefix(operation, "sysctl"):
		return profiles.InfoKernel
	}
	return profiles.SysFilter
}

// hear follows the system's log. Who may not read it is told so, once.
func (r *running) hear(ctx context.Context) {
	argv := r.provider.system.log
	if len(argv) == 0 {
		return
	}
	tag := tagOf(r.command.Label)
	cmd := exec.CommandContext(ctx, argv[0], append(argv[1:len(argv):len(argv)], predicate(tag))...)
	cmd.Env = []string{"PATH=/usr/bin:/bin"}
	out, err := cmd.StdoutPipe()
	var said strings.Builder
	cmd.Stderr = &said
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		r.observer.Warning(events.Warning{Text: "denials are not reported: " + err.Error()})
		return
	}
	r.log = cmd.Process
	done := make(chan struct{})
	go func() {
		defer close(done)
		readLog(out, tag, r.policy, func(d events.Denial) {
			r.denials.Emit(d)
			r.observer.Denial(d)
		})
		if cmd.Wait(); said.Len() > 0 {
			line, _, _ := strings.Cut(said.String(), "\n")
			r.observer.Warning(events.Warning{Text: "denials are not reported: " + line})
		}
	}()
	r.close = append(r.close, func() {
		time.Sleep(logDelay) // what was denied last is on its way
		_ = cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-done:
		case <-time.After(time.Second):
			_ = cmd.Process.Kill()
			<-done
		}
	})
}

// logDelay is how long a line of the log may be on its way.
const logDelay = 200 * time.Millisecond
