package netproxy

import (
	"context"
	"fmt"
	"net/netip"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/dns/dnsmessage"

	"github.com/pccrun/pccrun/netproxy/rules"
)

// TestAsk puts each question once, at connect, and never for what a rule denies.
func TestAsk(t *testing.T) {
	var mu sync.Mutex
	var asked []string
	answers := map[string]Permission{"session.example": Session, "once.example": Once, "private.example": Session}
	cfg := &Config{Names: NewNames(fake4, fake6), Ask: func(_ context.Context, host string, port uint16) Permission {
		mu.Lock()
		defer mu.Unlock()
		asked = append(asked, fmt.Sprintf("%s:%d", host, port))
		return answers[host]
	}}
	f := start(t, cfg, "ok.example", "GET http://api.example/ok", "deny denied.example")
	web := hello(t, false).Listener.Addr().String()
	for _, name := range []string{"ok.example", "session.example", "once.example", "no.example", "denied.example", "api.example"} {
		f.host(name, 80, web)
	}
	f.hosts["private.example"] = f.hosts["ok.example"][:0:0]
	f.hosts["private.example"] = append(f.hosts["private.example"], netip.MustParseAddr("10.1.2.3"))
	f.routes["10.1.2.3:80"] = web
	get := func(host string) string {
		return f.ask("GET http://" + host + "/x HTTP/1.1\r\nHost: " + host + "\r\nConnection: close\r\n\r\n")
	}
	for range 2 {
		require.Contains(t, get("ok.example"), "hello ok.example")
		require.Contains(t, get("session.example"), "hello session.example")
		require.Contains(t, get("once.example"), "hello once.example")
		require.Contains(t, get("no.example"), "403 Denied by pccrun (to allow: --allow no.example)")
		require.Contains(t, get("denied.example"), "403")
		require.Contains(t, get("api.example"), "403", "a rule for requests is not lifted")
		require.Contains(t, get("private.example"), "guarded", "nor is the guard of an address")
		require.Contains(t, get("140.82.112.9"), "403", "an address is not asked about")
	}
	require.Equal(t, []string{"session.example:80", "once.example:80", "no.example:80", "private.example:80", "once.example:80"}, asked)

	code, a := f.resolve("whatever.example.", dnsmessage.TypeA)
	require.Equal(t, dnsmessage.RCodeSuccess, code)
	require.NotEmpty(t, a)
	code, _ = f.resolve("denied.example.", dnsmessage.TypeA)
	require.Equal(t, dnsmessage.RCodeNameError, code)
	require.Len(t, asked, 5, "names are not asked about")
	for n := range 2 * maxAsked {
		get(fmt.Sprintf("h%d.example", n))
	}
	require.Len(t, asked, maxAsked)
}

// TestAskTogether: connections at the same time wait for one answer.
func TestAskTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked, answer := 0, make(chan Permission)
		p := New(Config{Rules: parse(t), Ask: func(context.Context, string, uint16) Permission {
			asked++
			return <-answer
		}})
		defer p.Close()
		got := make(chan rules.Action, 3)
		for round := range 2 {
			for range 3 {
				go func() { got <- p.decideOrAsk(t.Context(), "ok.example", 80).Action }()
			}
			synctest.Wait()
			answer <- Once
			for range 3 {
				require.Equal(t, rules.Allow, <-got)
			}
			require.Equal(t, round+1, asked)
		}
	})
}

// TestAskEnds: the end of the proxy ends the waiting for an answer.
func TestAskEnds(t *testing.T) {
	entered := make(chan struct{}, 10)
	f := start(t, &Config{Ask: func(ctx context.Context, _ string, _ uint16) Permission {
		entered <- struct{}{}
		<-ctx.Done()
		return Refuse
	}})
	f.raw("CONNECT other.example:80 HTTP/1.1\r\n\r\n")
	<-entered
	f.Close()
}
