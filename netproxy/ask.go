package netproxy

import (
	"context"
	"strings"
	"sync"

	"github.com/pccrun/pccrun/netproxy/rules"
)

// A Permission is an answer to the question whether a host may be reached.
type Permission uint8

// The permissions.
const (
	Refuse  Permission = iota // and do not ask again
	Once                      // the connections that wait for the answer
	Session                   // until the end of the run
	Unasked                   // refused, since nobody could be asked or answered
)

// maxAsked is how many questions there are in a session: who is asked without
// end says yes in the end.
const maxAsked = 50

// answers remembers what was asked and answered, by host and port.
type answers struct {
	mu    sync.Mutex
	given map[string]Permission
	open  map[string]*answer
	count int
}

// An answer is one that connections wait for.
type answer struct {
	done       chan struct{}
	permission Permission
}

// mayAsk says whether a refusal is one that the user can lift: of a name that
// no rule speaks of. What a rule denies stays denied.
func (p *Proxy) mayAsk(v rules.Verdict) bool {
	return p.cfg.Ask != nil && v.Action == rules.Deny && v.Reason == rules.ByDefault && !v.Local && !v.Addr.IsValid() &&
		strings.Contains(v.Host, ".") && v.Host != rules.HostName
}

// decideOrAsk decides on host and port as decide does, and asks where nothing
// is said of them.
func (p *Proxy) decideOrAsk(ctx context.Context, host string, port uint16) rules.Verdict {
	return p.orAsk(ctx, p.decide(host, port))
}

func (p *Proxy) orAsk(ctx context.Context, v rules.Verdict) rules.Verdict {
	if p.mayAsk(v) && p.permitted(p.ask(ctx, v)) {
		v.Action, v.Rule, v.Detail, v.AllowWith = rules.Allow, "--ask", "", ""
	}
	return v
}

func (*Proxy) permitted(a Permission) bool { return a == Once || a == Session }

// ask returns the answer for v's host and port. Connections at the same time,
// as those to its IPv4 and IPv6 addresses are, have one.
func (p *Proxy) ask(ctx context.Context, v rules.Verdict) Permission {
	key := hostPort(v)
	a := &p.answers
	a.mu.Lock()
	if given, ok := a.given[key]; ok {
		a.mu.Unlock()
		return given
	}
	if open := a.open[key]; open != nil {
		a.mu.Unlock()
		select {
		case <-open.done:
			return open.permission
		case <-ctx.Done():
			return Refuse
		}
	}
	if a.count++; a.count > maxAsked {
		a.mu.Unlock()
		return Refuse
	}
	if a.open == nil {
		a.open, a.given = map[string]*answer{}, map[string]Permission{}
	}
	open := &answer{done: make(chan struct{})}
	a.open[key] = open
	a.mu.Unlock()

	open.permission = p.cfg.Ask(ctx, v.Host, v.Port)
	a.mu.Lock()
	delete(a.open, key)
	if open.permission == Session || open.permission == Refuse {
		a.given[key] = open.permission
	}
	a.mu.Unlock()
	close(open.done)
	return open.permission
}
