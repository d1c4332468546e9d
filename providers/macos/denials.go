//go:build unix

package macos

import (
	"bufio"
	"cmp"
	"encoding/json"
	"io"
	"os"
	"regexp"
	"strings"
	"time"

	"github.com/pccrun/pccrun/internal/events"
	"github.com/pccrun/pccrun/internal/shell"
	"github.com/pccrun/pccrun/profiles"
)

// tagOf is what the system's log says with each denial of a run.
func tagOf(label string) string { return "pccrun-" + label }

// denied is a line of the log: "Sandbox: cat(4242) deny(1) file-read-data /Users/me/.ssh/id_rsa", with
// the tag on a line of its own behind it.
var denied = regexp.MustCompile(`(?s)Sandbox: (.+)\((\d+)\) deny\(\d+\) ([a-z0-9*-]+)(?: (.*))?$`)

// followDenials turns what `log stream --style ndjson` prints into denials, each reported once. Anybody may
// write to the log: what bears the tag and is no kernel's line is left out. That the log may not be read is
// reported, once.
func (r *running) followDenials(from io.Reader) {
	tag, seen, failed := tagOf(r.command.Label), map[string]bool{}, false
	in := bufio.NewScanner(from)
	in.Buffer(nil, 1<<20)
	for in.Scan() {
		var line struct {
			Message string `json:"eventMessage"`
			Process int    `json:"processID"` // 0 is the kernel
			Image   string `json:"processImagePath"`
		}
		if strings.HasPrefix(in.Text(), "log: ") && !failed {
			failed = true
			r.observer.Warning(events.Warning{Text: "denials are not reported: " + in.Text()})
		}
		if !strings.HasPrefix(in.Text(), "{") || json.Unmarshal(in.Bytes(), &line) != nil || line.Process != 0 {
			continue // of log itself: what it filters by
		}
		text, ok := strings.CutSuffix(strings.TrimRight(line.Message, "\n"), tag)
		m := denied.FindStringSubmatch(strings.TrimSpace(text))
		if !ok || m == nil {
			continue
		}
		d := denialOf(m[3], m[4], r.policy)
		if seen[d.What] || len(seen) >= maxDenials || always.MatchString(m[3]+" "+m[4]) {
			continue
		}
		seen[d.What] = true
		r.denials.Emit(d)
		r.observer.Denial(d)
	}
}

// always is what programs ask for as they start, and do without: the libraries of the system, not the
// command.
var always = regexp.MustCompile(`^(mach-lookup com\.apple\.(logd(\.events)?|system\.logger|diagnosticd|analyticsd|cfprefsd\.(agent|daemon))` +
	`|file-[a-z-]+ /dev/(dtracehelper|autofs_nowait)|user-preference-read .*|iokit-get-properties .*)$`)

// maxDenials bounds the denials of a run that are told.
const maxDenials = 10_000

// operations are those of Seatbelt's, by how their names begin: the verb of events, "" for the name
// itself, and the guarantee that a denial held.
var operations = []struct {
	prefix, verb string
	guarantee    profiles.Guarantee
}{
	{"file-read", "read", profiles.FSHide}, {"file-test-existence", "read", profiles.FSHide},
	{"file-write", "write", profiles.FSReadonly}, {"file-link", "write", profiles.FSReadonly}, {"file-clone", "write", profiles.FSReadonly},
	{"file-", "", profiles.FSHide}, {"process-exec", "execute", profiles.FSHide},
	{"network-outbound", "connect", profiles.NetAllowlist},
	{"network-bind", "listen", profiles.NetAllowlist}, {"network-inbound", "listen", profiles.NetAllowlist}, {"network-", "", profiles.NetAllowlist},
	{"process-info", "", profiles.ProcIsolated}, {"signal", "", profiles.ProcIsolated}, {"mach-priv", "", profiles.ProcIsolated},
	{"ipc-", "", profiles.IPCSysV}, {"forbidden-exec-sugid", "", profiles.PrivNone}, {"sysctl", "", profiles.InfoKernel},
	{"", "", profiles.SysFilter},
}

// denialOf says what an operation of Seatbelt's was, in the words of events.
func denialOf(operation, target string, p *profiles.Policy) events.Denial {
	i := 0
	for !strings.HasPrefix(operation, operations[i].prefix) {
		i++
	}
	d := events.Denial{Guarantee: string(operations[i].guarantee), Rule: "Seatbelt " + operation}
	verb := cmp.Or(operations[i].verb, operation)
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

// readLog returns where log(1) is to print the run's denials.
func (r *running) readLog() (*os.File, error) {
	from, to, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer from.Close()
		r.followDenials(from)
	}()
	r.close = append(r.close, func() {
		_ = from.SetReadDeadline(time.Now().Add(time.Second)) // the supervisor has ended it, unless somebody has ended that
		<-done
	})
	return to, nil
}
