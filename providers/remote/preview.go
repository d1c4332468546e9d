package remote

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strconv"

	"github.com/pccrun/pccrun/profiles"
)

// publish reads which ports the user wants to look at.
func publish(p *plan) error {
	for _, rule := range p.policy.Network.Publish {
		if _, can := p.provider.service.(Previewer); !can {
			return &profiles.Error{Origin: rule.Origin, Cause: p.provider.Name() + ": publish: its sandboxes have no addresses for ports", Hint: "--provider native has it"}
		}
		_, inside, err := profiles.PublishedPorts(rule.Text)
		if err != nil {
			return err
		}
		p.request.Publish = append(p.request.Publish, inside)
	}
	return nil
}

// preview has ports of this machine's loopback lead to the addresses that the provider has for ports of the sandbox, and says
// where. What keeps others out of those addresses is added here: no browser could.
func preview(p *plan, ctx context.Context, l *place) (stop func(), err error) {
	ctx, cancel := context.WithCancel(ctx)
	for i, rule := range p.policy.Network.Publish {
		if err := forward(p, ctx, l, rule, p.request.Publish[i]); err != nil {
			cancel()
			return nil, err
		}
	}
	return cancel, nil
}

// forward does so for one port, until ctx is done.
func forward(p *plan, ctx context.Context, l *place, rule profiles.NetRule, inside uint16) error {
	port, _, err := profiles.PublishedPorts(rule.Text)
	if err != nil {
		return err
	}
	at, err := l.p.service.(Previewer).Preview(ctx, l.box, inside)
	if err != nil {
		return fmt.Errorf("%s: port %d: %w", p.provider.Name(), inside, err)
	}
	to, err := url.Parse(at.URL)
	if err == nil {
		err = CheckBase("the address of port "+strconv.Itoa(int(inside)), to.Scheme+"://"+to.Host)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", p.provider.Name(), err)
	}
	ln, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(int(port))))
	if err != nil {
		return &profiles.Error{Origin: rule.Origin, Cause: "publish: " + err.Error(), Hint: fmt.Sprintf("--publish FREE:%d uses a free port of this machine", inside)}
	}
	proxy := &httputil.ReverseProxy{
		Transport: NewClient(p.provider.host.Environ).Transport,
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(to)
			for name := range at.Header {
				r.Out.Header.Set(name, at.Header.Get(name))
			}
		},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			http.Error(w, "pccrun: "+p.provider.Name()+": "+err.Error(), http.StatusBadGateway)
		},
	}
	server := &http.Server{Handler: ofThisMachine(proxy)}
	go func() { _ = server.Serve(ln) }()
	context.AfterFunc(ctx, func() { _ = server.Close() })
	private := ""
	if len(at.Header) > 0 {
		private = ", which is private: pccrun adds the sandbox's token"
	}
	l.warn("port %d: http://localhost:%d leads to %s%s", inside, port, at.URL, private)
	return nil
}

// ofThisMachine answers requests that name this machine. The owner of another name can have it lead here: a page of his, which
// this machine's browser shows, would have the token added too.
func ofThisMachine(proxy http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if at := (&url.URL{Host: r.Host}); !isLoopback(at.Hostname()) {
			http.Error(w, "pccrun: "+strconv.Quote(r.Host)+" is no name of this machine: say localhost", http.StatusForbidden)
			return
		}
		proxy.ServeHTTP(w, r)
	})
}
