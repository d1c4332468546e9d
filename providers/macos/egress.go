//go:build unix

package macos

import (
	"context"
	"crypto/rand"
	"net"
	"os"
	"path/filepath"

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
	if r.trap, err = net.Listen("tcp4", "127.0.0.1:0"); err != nil {
		return err
	}
	r.close = append(r.close, func() { r.trap.Close() })
	// By a name relative to the directory it could be longer than sun_path is.
	door, err := listenUnix(filepath.Join(r.dir, trialName), "door")
	if err != nil {
		return err
	}
	r.close = append(r.close, func() { door.Close() })
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

// listenUnix listens at a name in a directory.
func listenUnix(dir, name string) (net.Listener, error) {
	path := filepath.Join(dir, name)
	if len(path) < 100 { // 104 bytes on macOS
		return net.Listen("unix", path)
	}
	short, err := os.MkdirTemp("/tmp", "pccrun-")
	if err != nil {
		return nil, err
	}
	defer os.Remove(short)
	link := filepath.Join(short, "d")
	if err := os.Symlink(dir, link); err != nil {
		return nil, err
	}
	defer os.Remove(link)
	return net.Listen("unix", filepath.Join(link, name))
}
