package providers

import (
	"time"

	"github.com/pccrun/pccrun/internal/events"
	"github.com/pccrun/pccrun/internal/spending"
	"github.com/pccrun/pccrun/netproxy"
	"github.com/pccrun/pccrun/profiles"
)

// Tell tells an observer what a proxy did, which is any event but [netproxy.Full].
func Tell(o Observer, e netproxy.Event) {
	if e.Kind == netproxy.Spent {
		s := e.Spend
		o.Spent(events.Spending{
			Model: s.Model, Input: s.Input, CacheRead: s.CacheRead, CacheWrite: s.CacheWrite, Output: s.Output, USD: spending.USD(s.USD).Dollars(),
			Before: s.Before.Spent.Dollars(), Total: s.Now.Spent.Dollars(), Limit: s.Now.Limit.Dollars(), Over: s.Over, Note: s.Note,
		})
		return
	}
	v := e.Verdict
	address := ""
	if v.Addr.IsValid() {
		address = v.Addr.String()
	}
	if e.Kind == netproxy.Closed {
		closed := events.NetClosed{Host: v.Host, Port: int(v.Port), Address: address, Via: e.Protocol, Up: e.Up, Down: e.Down, DurationMS: e.Duration.Milliseconds()}
		if e.Err != nil { // nobody was there to read its requests
			closed.Error = e.Err.Error()
		}
		o.Closed(closed)
		return
	}
	d := events.NetDecision{
		Allowed: e.Kind != netproxy.Denied, Host: v.Host, Port: int(v.Port), Address: address, Upstream: e.Upstream, Via: e.Protocol, Request: e.Request, Rule: v.Rule, Hint: v.AllowWith,
	}
	if !d.Allowed {
		d.Guarantee = string(profiles.NetAllowlist)
		if e.Protocol == "dns" {
			d.Guarantee = string(profiles.NetDNS)
		}
		if d.Address != "" && d.Request == "" {
			d.Guarantee = string(profiles.NetAddress)
		}
		if v.Detail != "" && d.Rule == "" {
			d.Rule = v.Detail
		}
	}
	if e.Kind != netproxy.Failed || e.Request == "" { // a request was told of before it was sent
		o.Decision(d)
	}
	if e.Kind == netproxy.Failed {
		o.Closed(events.NetClosed{Host: d.Host, Port: d.Port, Address: address, Via: d.Via, DurationMS: time.Since(e.Time).Milliseconds(), Error: e.Err.Error()})
	}
}
