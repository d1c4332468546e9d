package providers

import (
	"time"

	"github.com/pccrun/pccrun/events"
	"github.com/pccrun/pccrun/netproxy"
	"github.com/pccrun/pccrun/profiles"
)

// Decided tells an observer what the proxy did, for a provider whose way out is package egress's.
// denied hears of each refusal first: it is what the command is told; nil where nothing tells it.
func Decided(event netproxy.Event, o Observer, denied func(events.NetDecision)) {
	v := event.Verdict
	addr := ""
	if v.Addr.IsValid() {
		addr = v.Addr.String()
	}
	closed := events.NetClosed{
		Host: v.Host, Port: int(v.Port), Address: addr, Via: event.Protocol,
		Up: event.Up, Down: event.Down, DurationMS: event.Duration.Milliseconds(),
	}
	if event.Err != nil {
		closed.Error = event.Err.Error()
	}
	switch event.Kind {
	case netproxy.Full:
		o.Warning(events.Warning{Text: "more connections at once than can be served: those beyond are reset"})
		return
	case netproxy.Closed:
		o.Closed(closed)
		return
	}
	d := events.NetDecision{
		Allowed: event.Kind != netproxy.Denied, Host: v.Host, Port: int(v.Port), Address: addr, Upstream: event.Upstream,
		Via: event.Protocol, Request: event.Request, Rule: v.Rule, Hint: v.AllowWith,
	}
	if !d.Allowed {
		d.Guarantee = string(profiles.NetAllowlist)
		if d.Address != "" && d.Request == "" {
			d.Guarantee = string(profiles.NetAddress)
		}
		if v.Detail != "" && d.Rule == "" {
			d.Rule = v.Detail
		}
		if denied != nil {
			denied(d)
		}
	}
	if event.Kind != netproxy.Failed || event.Request == "" { // a request was told of before it was sent
		o.Decision(d)
	}
	if event.Kind == netproxy.Failed {
		closed.DurationMS = time.Since(event.Time).Milliseconds()
		o.Closed(closed)
	}
}
