//go:build unix

package macos

import (
	"context"
	"crypto/rand"
	"net"

	"github.com/pccrun/pccrun/internal/egress"
	"github.com/pccrun/pccrun/internal/events"
	"github.com/pccrun/pccrun/internal/hint"
	"github.com/pccrun/pccrun/providers"
)

// openEgress opens the way out: the proxy on a port of the loopback, which serves who gives the token.
func (r *running) openEgress(ctx context.Context) (err error) {
	policy := *r.policy
	policy.Network.Publish = nil // the command listens at this machine's own ports
	sandbox := egress.Sandbox{Environ: r.environ, Token: rand.Text()}
	if r.network() {
		if r.proxy, err = net.Listen("tcp4", "127.0.0.1:0"); err != nil {
			return err
		}
		r.close = append(r.close, func() { r.proxy.Close() })
		sandbox.Proxy = portOf(r.proxy)
	}
	host := egress.Host{Environ: r.provider.host.Environ, Programs: r.provider.host.Programs, StateDir: r.provider.host.StateDir, Secrets: new(egress.Secrets)}
	if r.command.Ask {
		host.Ask = r.observer.Ask
	}
	if r.egress, err = egress.New(&policy, host, sandbox); err != nil {
		return err
	}
	for _, text := range r.egress.Warnings {
		r.observer.Warning(events.Warning{Text: text})
	}
	if r.egress.Inspects() {
		return hint.Errorf("--allow HOST, without a method or a path; pccrun in a Linux virtual machine keeps such rules",
			"macos: rules for requests need the inspection process, which does not run on macOS")
	}
	service, err := r.egress.Open(providers.Telling(r.observer, r.denials))
	if err != nil {
		return err
	}
	r.close = append(r.close, service.Close)
	service.Begin(nil)
	if r.proxy != nil {
		ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
		r.close = append(r.close, cancel)
		service.Listeners(ctx, []net.Listener{r.proxy})
	}
	return nil
}

func portOf(l net.Listener) uint16 { return uint16(l.Addr().(*net.TCPAddr).Port) }
