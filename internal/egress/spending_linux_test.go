package egress

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/internal/await"
	"github.com/pccrun/pccrun/internal/spending"
	"github.com/pccrun/pccrun/netproxy"
	"github.com/pccrun/pccrun/netproxy/rules"
	"github.com/pccrun/pccrun/profiles"
)

// An answer of the scripted API: a million tokens of input at 5 dollars, and what is said of them.
const (
	streamBegins = "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"model\":\"claude-opus-4-8\",\"usage\":{\"input_tokens\":200000,\"output_tokens\":1}}}\n\n"
	streamEnds   = "event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{},\"usage\":{\"output_tokens\":4000}}\n\nevent: message_stop\ndata: {\"type\":\"message_stop\"}\n\n"
)

// oneUSD is what such an answer costs.
const oneUSD = 1_100_000

// An api is a scripted one, by TLS, HTTP/1.1 and 2.
type api struct {
	at, ca   string
	requests atomic.Int64
	begun    chan struct{} // receives for each stream that has begun
	goes     chan struct{} // which goes on with each that is sent here
}

func newAPI(t *testing.T) *api {
	a := &api{begun: make(chan struct{}, 16), goes: make(chan struct{}, 16)}
	ln, key, file := listen(t)
	a.at, a.ca = ln.Addr().String(), file
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/messages", func(w http.ResponseWriter, r *http.Request) {
		a.requests.Add(1)
		_, _ = io.Copy(io.Discard, r.Body)
		if r.Header.Get("Accept-Encoding") != "identity" {
			http.Error(w, "encoded", http.StatusNotAcceptable)
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		io.WriteString(w, streamBegins)
		w.(http.Flusher).Flush()
		a.begun <- struct{}{}
		select {
		case <-a.goes:
			io.WriteString(w, streamEnds)
		case <-r.Context().Done():
		}
	})
	mux.HandleFunc("POST /v1/chat/completions", func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		a.begun <- struct{}{}
		<-r.Context().Done()
	})
	mux.HandleFunc("POST /v1/messages/count_tokens", func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, `{"input_tokens":5}`) })
	mux.HandleFunc("POST /v1/responses", func(w http.ResponseWriter, r *http.Request) {
		a.requests.Add(1)
		w.Header().Set("Retry-After", "30")
		http.Error(w, "slow down", http.StatusTooManyRequests)
	})
	srv := &http.Server{Handler: mux, TLSConfig: &tls.Config{Certificates: []tls.Certificate{key}}}
	go srv.ServeTLS(ln, "", "")
	t.Cleanup(func() { srv.Close() })
	return a
}

// listen listens at an address of this machine that is not its loopback.
func listen(t *testing.T) (ln net.Listener, pair tls.Certificate, ca string) {
	at, _ := server(t)
	host, _, err := net.SplitHostPort(at)
	require.NoError(t, err)
	ca = filepath.Join(t.TempDir(), "ca.pem")
	der, key := writeCertificate(t, ca, &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.ParseIP(host)},
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	})
	ln, err = net.Listen("tcp", net.JoinHostPort(host, "0"))
	require.NoError(t, err)
	return ln, tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, ca
}

// A counting run has a way out to the scripted API, and a client of it.
type counting struct {
	plan    *Plan
	service *Service
	file    *spending.File
	seen    log
	client  *http.Client
}

// count begins a run with a limit, none for 0.
func count(t *testing.T, a *api, limit spending.USD, h2 bool) *counting {
	b := newBench(t)
	b.mine("SSL_CERT_FILE=" + a.ca)
	b.request.Allow, b.request.Env = []string{a.at}, []string{"ANTHROPIC_BASE_URL=https://" + a.at}
	c := &counting{}
	var err error
	if limit > 0 {
		c.file, err = spending.Create(filepath.Join(t.TempDir(), "spending"), limit)
		require.NoError(t, err)
		t.Cleanup(func() { c.file.Close() })
		b.budget = &spending.Budget{Files: []*spending.File{c.file}}
	}
	c.plan, err = b.plan()
	require.NoError(t, err)
	require.Equal(t, limit > 0, c.plan.Inspects())
	files, err := c.plan.StartInspector(func() (*os.File, error) { return os.Open("/proc/self/exe") }, 0, 0)
	require.NoError(t, err)
	roots := x509.NewCertPool()
	if limit > 0 {
		require.True(t, roots.AppendCertsFromPEM([]byte(files[0].Text)))
	} else {
		text, err := os.ReadFile(a.ca)
		require.NoError(t, err)
		require.True(t, roots.AppendCertsFromPEM(text))
	}
	c.service, err = c.plan.Open(c.seen.note)
	require.NoError(t, err)
	t.Cleanup(c.service.Close)
	c.service.Begin(nil)
	proxy, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	c.service.Listeners(t.Context(), []net.Listener{proxy})
	c.client = &http.Client{Transport: &http.Transport{
		Proxy:           http.ProxyURL(&url.URL{Scheme: "http", Host: proxy.Addr().String()}),
		TLSClientConfig: &tls.Config{RootCAs: roots}, ForceAttemptHTTP2: h2,
	}}
	t.Cleanup(c.client.CloseIdleConnections)
	return c
}

func (c *counting) post(t *testing.T, a *api, path string) (*http.Response, string) {
	t.Helper()
	answer, err := c.client.Post("https://"+a.at+path, "application/json", strings.NewReader(`{"model":"claude-opus-4-8","stream":true}`))
	require.NoError(t, err)
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	return answer, string(text)
}

func (c *counting) spent(t *testing.T) spending.USD {
	t.Helper()
	state, err := c.file.Read()
	require.NoError(t, err)
	return state.Spent
}

// TestSpending counts what streams cost through the real process, before the client has their end, and lets none go out when
// the budget is spent.
func TestSpending(t *testing.T) {
	a := newAPI(t)
	for name, h2 := range map[string]bool{"HTTP/1.1": false, "HTTP/2.0": true} {
		t.Run(name, func(t *testing.T) {
			c := count(t, a, 2*oneUSD, h2)
			before := a.requests.Load()
			for i := range 2 {
				answer, err := c.client.Post("https://"+a.at+"/v1/messages", "application/json", strings.NewReader("{}"))
				require.NoError(t, err)
				require.Equal(t, name, answer.Proto)
				<-a.begun
				lines := bufio.NewReader(answer.Body)
				line, err := lines.ReadString('\n')
				require.NoError(t, err)
				require.Equal(t, "event: message_start\n", line, "it is passed on as it comes")
				require.EqualValues(t, i*oneUSD, c.spent(t))
				a.goes <- struct{}{}
				rest, err := io.ReadAll(lines)
				require.NoError(t, err)
				require.Contains(t, string(rest), "message_stop")
				await.Until(t, "it is counted", func() bool { return c.spent(t) == spending.USD((i+1)*oneUSD) })
				answer.Body.Close()
			}
			answer, text := c.post(t, a, "/v1/messages")
			require.Equal(t, http.StatusPaymentRequired, answer.StatusCode)
			require.Equal(t, "false", answer.Header.Get("X-Should-Retry"))
			require.Contains(t, text, "$2.20 of $2.20 spent: no further request goes out")
			require.EqualValues(t, 2, a.requests.Load()-before, "the third did not go out")
			require.True(t, c.seen.has(func(e netproxy.Event) bool {
				return e.Kind == netproxy.Spent && e.Spend.Over && e.Spend.Now.Spent == 2*oneUSD
			})())
			require.True(t, c.seen.has(func(e netproxy.Event) bool {
				return e.Kind == netproxy.Spent && e.Spend.Model == "claude-opus-4-8" && e.Spend.Input == 200000 && e.Spend.Output == 4000 && e.Spend.Note == ""
			})())
			require.True(t, c.seen.has(func(e netproxy.Event) bool {
				return e.Kind == netproxy.Denied && e.Request == "POST https://"+a.at+"/v1/messages"
			})())
			answer, text = c.post(t, a, "/v1/messages/count_tokens")
			require.Equal(t, http.StatusOK, answer.StatusCode, "what costs nothing passes")
			require.Contains(t, text, "input_tokens")

			// The control: without a budget as many go out as are sent.
			free := count(t, a, 0, h2)
			for range 3 {
				a.goes <- struct{}{}
				request, err := http.NewRequest("POST", "https://"+a.at+"/v1/messages", strings.NewReader("{}"))
				require.NoError(t, err)
				request.Header.Set("Accept-Encoding", "identity")
				answer, err := free.client.Do(request)
				require.NoError(t, err)
				<-a.begun
				text, err := io.ReadAll(answer.Body)
				require.NoError(t, err)
				require.Contains(t, string(text), "message_stop")
				answer.Body.Close()
			}
		})
	}
}

// TestSpendingCloses tries the ways round: paths whose costs nobody knows, websockets, an answer that the client leaves, and
// the end of the process that reads answers.
func TestSpendingCloses(t *testing.T) {
	a := newAPI(t)
	c := count(t, a, 100*oneUSD, false)
	for _, path := range []string{"/v1/images/generations", "/v1/messages/batches", "/v1//messages", "/v1/messages;x"} {
		answer, text := c.post(t, a, path)
		require.Equal(t, http.StatusForbidden, answer.StatusCode, path)
		require.Contains(t, text, `"message":"pccrun: with a budget: `, path)
	}
	request, err := http.NewRequest("GET", "https://"+a.at+"/v1/responses", nil)
	require.NoError(t, err)
	request.Header.Set("Connection", "Upgrade")
	request.Header.Set("Upgrade", "websocket")
	answer, err := c.client.Do(request)
	require.NoError(t, err)
	answer.Body.Close()
	require.Equal(t, http.StatusUpgradeRequired, answer.StatusCode)
	require.Zero(t, a.requests.Load())

	// An API that is asked too much has all wait.
	first, _ := c.post(t, a, "/v1/responses")
	require.Equal(t, http.StatusTooManyRequests, first.StatusCode)
	require.EqualValues(t, 1, a.requests.Load())
	second, text := c.post(t, a, "/v1/messages")
	require.Equal(t, http.StatusTooManyRequests, second.StatusCode)
	require.NotEmpty(t, second.Header.Get("Retry-After"))
	require.Contains(t, text, "the API wants no requests for")
	require.EqualValues(t, 1, a.requests.Load(), "the second did not go out")
	require.Zero(t, c.spent(t))

	// A client that goes has spent what was said of its answer by then, and an estimate of the rest.
	_, err = c.file.Extend(100 * oneUSD)
	require.NoError(t, err)
	ctx, leave := context.WithCancel(t.Context())
	request, err = http.NewRequestWithContext(ctx, "POST", "https://"+a.at+"/v1/messages", strings.NewReader("{}"))
	require.NoError(t, err)
	answer, err = c.client.Do(request)
	require.NoError(t, err)
	<-a.begun
	leave()
	answer.Body.Close()
	await.Until(t, "it is counted", c.seen.has(func(e netproxy.Event) bool {
		return e.Kind == netproxy.Spent && strings.Contains(e.Spend.Note, "estimated")
	}))
	require.GreaterOrEqual(t, c.spent(t), spending.USD(1_000_000))
	left := c.spent(t)
	require.Less(t, left, spending.USD(oneUSD))

	// One that goes before there is an answer has spent what it has sent.
	ctx, leave = context.WithCancel(t.Context())
	request, err = http.NewRequestWithContext(ctx, "POST", "https://"+a.at+"/v1/chat/completions", strings.NewReader(strings.Repeat("x", 400)))
	require.NoError(t, err)
	go func() {
		<-a.begun
		leave()
	}()
	_, err = c.client.Do(request)
	require.Error(t, err)
	await.Until(t, "it is counted", func() bool { return c.spent(t) > left })
	left = c.spent(t)

	// Nobody reads the rest of an answer whose process is gone.
	answer, err = c.client.Post("https://"+a.at+"/v1/messages", "application/json", strings.NewReader("{}"))
	require.NoError(t, err)
	<-a.begun
	require.NoError(t, unix.Kill(c.plan.reader.number(), unix.SIGKILL))
	await.Until(t, "it is counted", c.seen.has(func(e netproxy.Event) bool {
		return e.Kind == netproxy.Spent && strings.Contains(e.Spend.Note, "has ended")
	}))
	answer.Body.Close()
	require.Equal(t, left+1_000_000, c.spent(t))
}

// TestSpendingAtTheEnd counts an answer that the end of a run cuts.
func TestSpendingAtTheEnd(t *testing.T) {
	a := newAPI(t)
	c := count(t, a, 100*oneUSD, true)
	answer, err := c.client.Post("https://"+a.at+"/v1/messages", "application/json", strings.NewReader("{}"))
	require.NoError(t, err)
	defer answer.Body.Close()
	<-a.begun
	_, err = bufio.NewReader(answer.Body).ReadString('\n')
	require.NoError(t, err)
	c.service.Close()
	require.GreaterOrEqual(t, c.spent(t), spending.USD(1_000_000))
	require.Less(t, c.spent(t), spending.USD(oneUSD))
}

// TestBudgetRefused has policies refused under which a request could go out that nobody counts.
func TestBudgetRefused(t *testing.T) {
	for want, change := range map[string]func(b *bench){
		"allow 140.82.112.0/24 by address": func(b *bench) { b.request.Allow = append(b.request.Allow, "140.82.112.0/24") },
		"allow 10.0.0.0/7 by address":      func(b *bench) { b.request.Allow = append(b.request.Allow, "10.0.0.0/7") },
		"allow no model API":               func(b *bench) { b.request.Allow = []string{"a.example"} },
		"loopback are not read": func(b *bench) {
			b.request.Local, b.request.Env = []string{"8080"}, []string{"OPENAI_BASE_URL=http://localhost:8080/v1"}
		},
		"learn tries": func(b *bench) { b.sandbox.Learn = true },
		"prices.jsonc: anthropic: x: want input and": func(b *bench) { b.budget.Prices = `{"anthropic": {"x": {}}}` },
	} {
		b := newBench(t)
		b.budget = &spending.Budget{}
		b.request.Allow = []string{"api.anthropic.com"}
		p, err := b.plan()
		require.NoError(t, err, "the control")
		require.True(t, p.Inspects())
		change(b)
		p, err = b.plan()
		if err == nil {
			err = start(p, func() (*os.File, error) { return os.Open("/proc/self/exe") })
			p.Abandon()
		} else {
			var told *profiles.Error
			require.True(t, errors.As(err, &told))
			require.NotEmpty(t, told.Hint, "%v", err)
		}
		require.ErrorContains(t, err, want)
	}
	b := newBench(t)
	b.budget = &spending.Budget{}
	b.request.Allow = []string{"a.example"}
	_, err := b.plan()
	require.ErrorContains(t, err, "allow no model API")
	b.request.Allow = append(b.request.Allow, "api.anthropic.com") // as the hint says
	_, err = b.plan()
	require.NoError(t, err)
	for _, allow := range []string{"console.anthropic.com", "*.anthropic.com", "api.openai.com:443", "GET https://api.anthropic.com/v1/*", "10.0.0.0/8:5432"} {
		b := newBench(t)
		b.budget = &spending.Budget{}
		b.request.Allow = []string{"generativelanguage.googleapis.com", allow}
		p, err := b.plan()
		require.NoError(t, err, allow)
		require.Equal(t, "inspect", p.Rules.Decide("generativelanguage.googleapis.com", 443).Action.String())
		if p.Rules.Decide("console.anthropic.com", 443).Action != rules.Deny {
			require.Equal(t, "inspect", p.Rules.Decide("console.anthropic.com", 443).Action.String(), "its servers are those of the API too")
		}
	}
	b = newBench(t)
	b.budget = &spending.Budget{}
	b.request.Allow = []string{"api.anthropic.com", "https://gateway.example/**", "gw.corp.example", "10.0.0.0/8:5432", "*.openai.com", "*.corp.example"}
	p, err := b.plan()
	require.NoError(t, err)
	require.Contains(t, strings.Join(p.Warnings, "\n"), "budget: nobody reads requests to gw.corp.example, 10.0.0.0/8:5432, *.corp.example: a model's there is not counted")
	require.Equal(t, "inspect", p.Rules.Decide("gateway.example", 443).Action.String(), "as the warning says")
	b = newBench(t)
	b.budget = &spending.Budget{}
	p, err = b.plan()
	require.NoError(t, err, "without a network nothing is spent")
	require.False(t, p.Inspects())
}
