package inspect

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/elazarl/goproxy"

	"github.com/pccrun/pccrun/internal/events"
	"github.com/pccrun/pccrun/internal/spending"
	"github.com/pccrun/pccrun/netproxy/eof"
	"github.com/pccrun/pccrun/netproxy/inspect/wire"
	"github.com/pccrun/pccrun/netproxy/rules"
	"github.com/pccrun/pccrun/netproxy/secrets"
)

// newProxy sets goproxy up as what it is here: a carrier of requests whose
// destination stands. Its own ways to choose one are closed: no proxy of the
// environment, no CONNECT, no dialling but ours.
func (i *Inspector) newProxy() *goproxy.ProxyHttpServer {
	p := goproxy.NewProxyHttpServer()
	p.Logger = log.New(io.Discard, "", 0) // it would log URLs
	p.KeepAcceptEncoding = true
	p.ConnectDial, p.ConnectDialWithReq = nil, nil
	p.Tr = i.single
	p.OnRequest().HandleConnect(goproxy.AlwaysReject)
	p.OnRequest().DoFunc(i.onRequest)
	p.OnResponse().DoFunc(onResponse)
	return p
}

// transport connects to hosts in the protocols that it may speak.
func (i *Inspector) transport(protocols ...string) *http.Transport {
	t := &http.Transport{
		Proxy:               nil,
		DialContext:         dial,
		TLSClientConfig:     &tls.Config{RootCAs: i.cfg.Roots, MinVersion: tls.VersionTLS12, NextProtos: protocols},
		TLSHandshakeTimeout: headTimeout,
		DisableCompression:  true,
		IdleConnTimeout:     idleTimeout,
		MaxIdleConns:        maxIdle,
		MaxIdleConnsPerHost: 16,
		Protocols:           new(http.Protocols),
		HTTP2:               &http.HTTP2Config{MaxReadFrameSize: frameSize, MaxReceiveBufferPerStream: hostBuffer},

		MaxResponseHeaderBytes: maxAnswer,
	}
	t.Protocols.SetHTTP1(true)
	t.Protocols.SetHTTP2(slices.Contains(protocols, "h2"))
	return t
}

// oneRequest sends each request over the connection that was dialled for it, and no other.
func (i *Inspector) oneRequest() *http.Transport {
	t := i.transport("http/1.1")
	t.DisableKeepAlives, t.MaxResponseHeaderBytes = true, maxHead
	t.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
		p, _ := ctx.Value(passageKey{}).(*passage)
		if p == nil || p.answer == nil || p.used.Swap(true) {
			return nil, errNotPinned
		}
		return newAnswering(p.answer.Conn), nil
	}
	t.Proxy = func(r *http.Request) (*url.URL, error) { // only the form of the request depends on it
		if p := passageOf(r); p != nil && p.answer != nil && p.answer.ByProxy {
			return &url.URL{Scheme: "http", Host: "proxy.invalid"}, nil
		}
		return nil, nil
	}
	return t
}

// dial asks for another connection to the host of a passage.
func dial(ctx context.Context, _, address string) (net.Conn, error) {
	p, _ := ctx.Value(passageKey{}).(*passage)
	if p == nil || address != net.JoinHostPort(p.target.verdict.Host, strconv.Itoa(int(p.target.verdict.Port))) {
		return nil, errNotPinned
	}
	a := p.target.launcher.Ask(ctx, wire.Question{Number: p.number, Dial: true, Request: p.request})
	if a.Conn == nil {
		return nil, &unreached{a}
	}
	if p.scheme == "http" {
		return newAnswering(a.Conn), nil
	}
	return &eof.Conn{Conn: a.Conn}, nil
}

// An answering connection carries HTTP/1.1. A write to a broken one fails when all that came is read: a server may
// answer and hang up before it has all of a request, and net/http takes whatever it hears of first.
type answering struct {
	eof.Conn
	over context.Context // when a read has failed, or the connection is closed
	end  context.CancelFunc
}

func newAnswering(c net.Conn) *answering {
	a := &answering{Conn: eof.Conn{Conn: c}}
	a.over, a.end = context.WithCancel(context.Background())
	return a
}

func (a *answering) Write(b []byte) (int, error) {
	n, err := a.Conn.Write(b)
	if errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET) {
		<-a.over.Done()
	}
	return n, err
}

func (a *answering) Read(b []byte) (int, error) {
	n, err := a.Conn.Read(b)
	if err != nil {
		a.end()
	}
	return n, err
}

func (a *answering) Close() error {
	a.end()
	return a.Conn.Close()
}

// An unreached host is allowed, and what it resolved to is not, or it did not answer. The
// launcher knows.
type unreached struct{ answer wire.Answer }

func (u *unreached) Error() string { return u.answer.Detail + u.answer.Verdict.Detail }

// A passage is one request on its way.
type passage struct {
	target    *target
	number    uint64 // of the request on its connection
	scheme    string
	authority string // host and port as the Host field has it
	request   string // for events: method and URL, without the query
	back      []secrets.Pair
	answer    *wire.Answer // with the one connection for it; nil where those to the host are shared
	used      atomic.Bool  // that connection

	bill     *bill  // nil: its answer is not counted
	length   string // of a response that goes on as long as it came
	broken   atomic.Bool
	ended    atomic.Bool  // and reported
	up, down atomic.Int64 // of an own request's contents
}

var errCrowded = errors.New("more than 1024 requests at once")

// headSize is how many bytes a request's target and fields have.
func headSize(r *http.Request) int {
	n := len(r.RequestURI)
	for name, values := range r.Header {
		for _, v := range values {
			n += len(name) + len(v)
		}
	}
	return n
}

// serve takes one request off the client's connection.
func (i *Inspector) serve(w http.ResponseWriter, r *http.Request) {
	t, _ := r.Context().Value(targetKey{}).(*target)
	defer i.requests.Add(-1)
	switch n := i.requests.Add(1); {
	case n > 2*maxRequests:
		panic(http.ErrAbortHandler) // an answer would wait until the client takes it
	case n > maxRequests:
		t.launcher.Report(wire.Report{Request: t.describe(r), Error: errCrowded.Error()})
		w.Header().Set("Connection", "close")
		send(w, answer(r, http.StatusServiceUnavailable, "", [][2]string{{"error", "crowded"}, {"detail", errCrowded.Error()}}))
	case headSize(r) > maxHead:
		w.Header().Set("Connection", "close")
		send(w, answer(r, http.StatusRequestHeaderFieldsTooLarge, "", [][2]string{{"error", "too large"}, {"detail", "the head of a request has at most 64 KiB"}}))
	case i.cfg.Alive != nil && !i.cfg.Alive():
		w.Header().Set("Connection", "close")
		send(w, answer(r, http.StatusServiceUnavailable, "", [][2]string{{"error", "stopped"}, {"detail", "pccrun is stopped (SIGSTOP), and sends nothing until it continues"}}))
	case t.own():
		i.serveOwn(w, r, t)
	default:
		i.servePinned(w, r, t)
	}
}

// scheme is that of the requests on a connection.
func schemeOf(r *http.Request) string {
	if r.TLS != nil {
		return "https"
	}
	return "http"
}

// describe returns a request's method and URL, without the query.
func (t *target) describe(r *http.Request) string {
	return r.Method + " " + schemeOf(r) + "://" + authorityOf(t.verdict, schemeOf(r)) + r.URL.EscapedPath()
}

// servePinned has a request carried to the host that the connection was made for.
func (i *Inspector) servePinned(w http.ResponseWriter, r *http.Request, t *target) {
	p := &passage{target: t, number: t.number.Add(1), scheme: schemeOf(r), request: t.describe(r)}
	p.authority = authorityOf(t.verdict, p.scheme)
	switch {
	case t.verdict.Action == rules.Deny: // whatever is asked for
		lastWord(w, r, t, refusalOf(r, t.launcher.Ask(r.Context(), wire.Question{Number: p.number})))
		return
	case r.Method == http.MethodConnect:
		refuse(w, r, p, http.StatusMethodNotAllowed, "CONNECT within a connection")
		return
	case r.URL.IsAbs() || r.URL.Host != "" || !strings.HasPrefix(r.RequestURI, "/"):
		refuse(w, r, p, http.StatusBadRequest, "the target of the request is not a path")
		return
	}
	a := t.launcher.Ask(r.Context(), wire.Question{
		Number: p.number, Method: r.Method, Scheme: p.scheme, Host: t.verdict.Host, Port: t.verdict.Port, Path: r.URL.EscapedPath(),
		Field: hostOf(r), Rewrites: rewrites(r.Header), Websocket: isWebsocket(r.Header), Request: p.request,
	})
	defer i.bills(p, a)()
	if a.Status != 0 || a.Verdict.Action == rules.Deny {
		send(w, refusalOf(r, a))
		return
	}
	if a.NoTrailers { // nor may what some servers take for a part of the head
		r.Trailer = nil
	}
	i.carry(w, r, p)
}

// rewrites returns a field that may make another request of one, "" if there is none.
func rewrites(h http.Header) string {
	for name := range h {
		if rules.Rewrites(name) {
			return name
		}
	}
	return ""
}

// serveOwn does what a client of the proxy asks.
func (i *Inspector) serveOwn(w http.ResponseWriter, r *http.Request, t *target) {
	q, err := questionOf(r)
	if err != nil {
		lastWord(w, r, t, answer(r, http.StatusBadRequest, "", [][2]string{{"error", "refused"}, {"detail", err.Error()}}))
		return
	}
	q.Number = t.number.Add(1)
	ctx := r.Context()
	if r.Method == http.MethodConnect { // net/http takes the end of one way for that of the connection
		ctx = context.WithoutCancel(ctx)
	}
	a := t.launcher.Ask(ctx, q)
	switch {
	case a.Status != 0 || a.Verdict.Action == rules.Deny:
		lastWord(w, r, t, refusalOf(r, a))
		return
	case r.Method == http.MethodConnect:
		i.tunnel(w, t, a)
		return
	case a.Conn == nil:
		panic(http.ErrAbortHandler)
	}
	defer a.Conn.Close()
	p := &passage{target: t, number: q.Number, scheme: "http", authority: authorityOf(a.Verdict, "http"), answer: &a}
	defer p.end()
	defer i.bills(p, a)()
	r.Trailer = nil
	if !q.Websocket { // nor may the host make one of what was decided on as something else
		r.Header.Del("Upgrade")
	}
	if r.Method == http.MethodOptions && r.URL.Path == "" && !a.ByProxy {
		r.URL.Path = "*"
	}
	i.carry(w, r, p)
}

// questionOf reads a request in the two forms that a proxy gets, CONNECT with an authority
// and an absolute http URL (RFC 9112, section 3.2), and refuses the others.
func questionOf(r *http.Request) (q wire.Question, err error) {
	ok := true
	q = wire.Question{Method: r.Method, Scheme: "http", Path: r.URL.EscapedPath(), Rewrites: rewrites(r.Header), Proof: r.Header["Proxy-Authorization"]}
	switch {
	case r.Method == http.MethodConnect:
		if q.Host, q.Port, ok = rules.SplitAuthority(r.RequestURI, 0); !ok {
			return q, errors.New("CONNECT needs host:port")
		}
		if r.ContentLength != 0 {
			return q, errors.New("CONNECT with a body")
		}
		return q, nil
	case !r.URL.IsAbs():
		return q, errors.New("this is a proxy: it takes CONNECT and absolute http:// URLs")
	case r.URL.Scheme == "https":
		return q, errors.New("https goes through CONNECT")
	case r.URL.Scheme != "http":
		return q, errors.New("scheme " + strconv.Quote(r.URL.Scheme) + " is not http")
	case strings.Contains(r.RequestURI, "#"):
		return q, errors.New("fragment in a request target")
	case r.URL.User != nil:
		return q, errors.New("user in a request target")
	}
	if q.Host, q.Port, ok = rules.SplitAuthority(r.URL.Host, 80); !ok {
		return q, errors.New("malformed authority")
	}
	q.Websocket = isWebsocket(r.Header) && r.Method == http.MethodGet && r.ContentLength == 0 && r.ProtoAtLeast(1, 1)
	return q, nil
}

// tunnel gives an allowed CONNECT back to the launcher, or reads the requests in it.
func (i *Inspector) tunnel(w http.ResponseWriter, t *target, a wire.Answer) {
	conn, rw, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	early, _ := rw.Reader.Peek(rw.Reader.Buffered())
	early = append(bytes.Clone(early), t.conn.early...)
	if a.Verdict.Action != rules.Inspect {
		t.conn.leave(early)
		return
	}
	if _, err := io.WriteString(conn, "HTTP/1.1 200 Connection established\r\n\r\n"); err != nil {
		conn.Close()
		return
	}
	t.conn.once.Do(func() {}) // its end is reported by who reads it now
	inner := &counted{Conn: t.conn.Conn, early: early, launcher: t.launcher}
	go i.accept(&target{launcher: t.launcher, verdict: a.Verdict, conn: inner})
}

// carry has goproxy send a request. From here on, nothing that the client has said names a host.
func (i *Inspector) carry(w http.ResponseWriter, r *http.Request, p *passage) {
	r.URL.Scheme, r.URL.Host, r.Host = p.scheme, p.authority, p.authority
	r.URL.User, r.Close = nil, false
	if r.ProtoMajor == 1 {
		_ = http.NewResponseController(w).EnableFullDuplex() // an answer may come before the request is over
	}
	hopByHop(r.Header)
	if _, ok := r.Header["User-Agent"]; !ok {
		r.Header["User-Agent"] = []string{""} // or Go's client names itself
	}
	f := &flusher{ResponseWriter: w, passage: p, expects: r.Header.Get("Expect") != ""}
	out := r.WithContext(context.WithValue(r.Context(), passageKey{}, p))
	if r.ContentLength != 0 { // not of r: the server asks its body whether it was read
		out.Body = &body{ReadCloser: r.Body, n: &p.up}
	}
	i.proxy.ServeHTTP(f, out)
	if f.taken != nil {
		p.end()
		f.taken.Close() // goproxy leaves a websocket's open when the other end is gone
	}
	if p.broken.Load() {
		panic(http.ErrAbortHandler) // else it would look whole
	}
}

// end reports the end of an own request, once, before that of its connection.
func (p *passage) end() {
	if p.answer != nil && !p.ended.Swap(true) {
		p.target.launcher.Report(wire.Report{Number: p.number, Closed: true, Up: p.up.Load(), Down: p.down.Load()})
	}
}

// A body counts what is read of it.
type body struct {
	io.ReadCloser
	n *atomic.Int64
}

func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.n.Add(int64(n))
	return n, err
}

// A response's body notes in its passage that it was cut short.
type carried struct {
	body
	passage *passage
}

func (c *carried) Read(p []byte) (int, error) {
	n, err := c.body.Read(p)
	if err != nil && err != io.EOF {
		c.passage.broken.Store(true)
	}
	return n, err
}

type passageKey struct{}

// passageOf returns the passage of a request that came by way of serve, nil of another.
func passageOf(r *http.Request) *passage {
	p, _ := r.Context().Value(passageKey{}).(*passage)
	return p
}

// authorityOf spells a host and port as Host fields have it.
func authorityOf(v rules.Verdict, scheme string) string {
	host := v.Host
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	if scheme == "https" && v.Port == 443 || scheme == "http" && v.Port == 80 {
		return host
	}
	return host + ":" + strconv.Itoa(int(v.Port))
}

// hostOf returns the host that a request is for, and one that there is not
// where it names two: HTTP/2 has an :authority, and may have Host fields beside
// it.
func hostOf(r *http.Request) string {
	for _, host := range r.Header["Host"] {
		if host != r.Host {
			return ""
		}
	}
	return r.Host
}

// hopByHop takes away what is for one connection alone, but for a websocket's
// upgrade.
func hopByHop(h http.Header) {
	websocket := isWebsocket(h)
	for _, value := range h["Connection"] {
		for name := range strings.SplitSeq(value, ",") {
			if name = strings.TrimSpace(name); !strings.EqualFold(name, "upgrade") {
				h.Del(name)
			}
		}
	}
	trailers := holds(h, "Te", "trailers")
	for _, name := range [...]string{"Connection", "Keep-Alive", "Proxy-Connection", "Proxy-Authorization", "Proxy-Authenticate", "Te", "Http2-Settings"} {
		h.Del(name)
	}
	if trailers {
		h.Set("Te", "trailers") // gRPC asks for it
	}
	if websocket {
		h.Set("Connection", "Upgrade")
		h.Set("Upgrade", "websocket")
		return
	}
	h.Del("Upgrade")
}

func isWebsocket(h http.Header) bool {
	return holds(h, "Connection", "upgrade") && holds(h, "Upgrade", "websocket")
}

func holds(h http.Header, name, token string) bool {
	for _, value := range h[name] {
		for part := range strings.SplitSeq(value, ",") {
			if strings.EqualFold(strings.TrimSpace(part), token) {
				return true
			}
		}
	}
	return false
}

var errNotPinned = errors.New("not pinned")

// onRequest is goproxy's hook before a request goes out: it puts the secrets
// in, and refuses what did not come by way of serve.
func (i *Inspector) onRequest(r *http.Request, ctx *goproxy.ProxyCtx) (*http.Request, *http.Response) {
	p := passageOf(r)
	if p == nil || r.URL.Host != p.authority || r.Host != r.URL.Host {
		return r, goproxy.NewResponse(r, goproxy.ContentTypeText, http.StatusMisdirectedRequest, errNotPinned.Error())
	}
	ctx.UserData = p
	transport := i.either
	switch {
	case p.answer != nil:
		transport = i.single
	case r.ProtoMajor == 1: // a websocket needs it, and HTTP/1.1 is faster
		transport = i.plain
	}
	ctx.RoundTripper = goproxy.RoundTripperFunc(func(r *http.Request, _ *goproxy.ProxyCtx) (*http.Response, error) {
		if p.answer != nil && p.answer.Authorization != "" { // the client's is gone by now
			r.Header.Set("Proxy-Authorization", p.answer.Authorization)
		}
		return transport.RoundTrip(r)
	})
	if resp := i.fill(p, r); resp != nil {
		return r, resp
	}
	p.bill.ask(r)
	return r, nil
}

// fill puts the secrets in. A request with the placeholder of one that goes to this host with others only, or in
// another place, is answered with a refusal: its host would say no more than that the credential is wrong.
func (i *Inspector) fill(p *passage, r *http.Request) (refusal *http.Response) {
	if p.scheme != "https" {
		return nil
	}
	asked := rules.Request{Scheme: p.scheme, Host: p.authority, Method: r.Method, Path: r.URL.EscapedPath()}
	out, back, bound, withheld := i.replacements(p.target.verdict, asked, rewrites(r.Header) != "")
	if p.back = back; len(back) == 0 {
		return nil
	}
	withhold := func(s Secret, only string) *http.Response {
		v := p.target.verdict
		v.Action, v.Reason, v.Rule, v.Detail = rules.Deny, rules.Withheld, "", s.Name+" goes out only "+only
		p.target.launcher.Report(wire.Report{Refused: &v, Request: p.request})
		return refusalOf(r, wire.Answer{Verdict: v})
	}
	for _, s := range withheld {
		if carries(r, s.Placeholder, "") {
			return withhold(s, "with requests for "+strings.Join(s.Hosts.Texts(), ", "))
		}
	}
	for _, s := range out {
		if s.Field != "" && carries(r, s.Placeholder, s.Field) {
			return withhold(s, "in the field "+s.Field)
		}
	}
	// No other encoding is asked of a host that knows a secret: what comes
	// back has to be read.
	r.Header.Set("Accept-Encoding", "identity")
	// Nor are parts asked of it: each could hold half of a secret that an
	// earlier request left there. A whole answer is one to every such question
	// (RFC 9110, section 14.2).
	for _, name := range partial {
		r.Header.Del(name)
	}
	// Nor other characters than those that a secret is looked for in.
	r.Header.Del("Accept-Charset")
	for k, value := range r.Header["Accept"] {
		r.Header["Accept"][k] = withoutCharset(value)
	}
	if bound {
		r.Trailer = nil // which some servers take for a part of the head
	}
	p.inject(r, out)
	return nil
}

// partial are the fields that ask for a part of an answer: HTTP's own, its
// forerunner, which some servers still take, and Azure's.
var partial = [...]string{"Range", "If-Range", "Request-Range", "X-Range", "X-Ms-Range"}

// withoutCharset returns an Accept field without what it says of characters: some
// servers answer in EBCDIC to whoever wants that.
func withoutCharset(accept string) string {
	if !strings.Contains(strings.ToLower(accept), "charset") {
		return accept
	}
	types := strings.Split(accept, ",")
	for i, t := range types {
		parameters := strings.Split(t, ";")
		types[i] = strings.Join(slices.DeleteFunc(parameters, func(p string) bool {
			name, _, _ := strings.Cut(p, "=")
			return strings.EqualFold(strings.Trim(name, " \t"), "charset")
		}), ";")
	}
	return strings.Join(types, ",")
}

// inject puts secrets where their placeholders stand: in fields, in what Basic
// credentials encode, in the query. What of it the server may send back is
// noted.
func (p *passage) inject(r *http.Request, list []Secret) {
	var out []secrets.Pair
	for _, s := range list {
		out = append(out, secrets.Pair{Old: s.Placeholder, New: s.Value})
	}
	for name, values := range r.Header {
		for k, value := range values {
			with := secrets.Replace(value, out)
			if scheme, coded, text := basic(name, value); text != "" {
				if secret := secrets.Replace(text, out); secret != text {
					encoded := base64.StdEncoding.EncodeToString([]byte(secret))
					p.back = append(secrets.Escaped(encoded, coded), p.back...)
					with = scheme + " " + encoded
				}
			}
			values[k] = with
		}
	}
	for _, s := range out {
		if strings.Contains(r.URL.RawQuery, s.Old) {
			r.URL.RawQuery = strings.ReplaceAll(r.URL.RawQuery, s.Old, url.QueryEscape(s.New))
		}
	}
}

// basic returns what Basic credentials in a field encode, and how they are spelled; "" where it holds none.
func basic(name, value string) (scheme, coded, text string) {
	scheme, coded, ok := strings.Cut(value, " ")
	if !ok || !strings.EqualFold(scheme, "basic") || !strings.HasSuffix(name, "uthorization") {
		return "", "", ""
	}
	coded = strings.TrimSpace(coded)
	decoded, err := base64.StdEncoding.DecodeString(coded)
	if err != nil {
		return "", "", ""
	}
	return scheme, coded, string(decoded)
}

// carries reports whether a placeholder stands in a request where inject would put in what it stands for, but for
// one field.
func carries(r *http.Request, placeholder, but string) bool {
	for name, values := range r.Header {
		for _, value := range values {
			if name == but {
				break
			}
			if _, _, text := basic(name, value); strings.Contains(value, placeholder) || strings.Contains(text, placeholder) {
				return true
			}
		}
	}
	return strings.Contains(r.URL.RawQuery, placeholder)
}

// onResponse is goproxy's hook before a response goes to the client: it takes out what may not
// come back.
func onResponse(resp *http.Response, ctx *goproxy.ProxyCtx) *http.Response {
	p, _ := ctx.UserData.(*passage)
	switch {
	case p == nil:
		return resp
	case resp == nil:
		return p.failed(ctx.Req, ctx.Error)
	}
	if err := p.clean(resp); err != nil {
		resp.Body.Close()
		return p.failed(ctx.Req, err)
	}
	return resp
}

func (p *passage) clean(resp *http.Response) error {
	switched := resp.StatusCode == http.StatusSwitchingProtocols
	switch {
	case switched && !isWebsocket(resp.Request.Header):
		return errors.New("the server switched protocols unasked")
	case resp.StatusCode < 200 && !switched:
		return errors.New("the server sent no status of an answer")
	case len(p.back) > 0 && resp.StatusCode == http.StatusPartialContent:
		return errors.New("the server sent only part of the response")
	}
	if p.answer == nil {
		resp.Header.Del("Alt-Svc") // no other way to the host is open
	}
	if !switched {
		resp.Header.Del("Upgrade") // by which goproxy would take it for a websocket
		hopByHop(resp.Header)
	}
	if len(p.back) > 0 {
		p.cleanFields(resp.Header)
		p.cleanFields(resp.Trailer)
	}
	if switched {
		return nil
	}
	p.length = resp.Header.Get("Content-Length") // goproxy drops it where a body was changed
	if len(p.back) > 0 || p.bill != nil {
		reader := secrets.NewStream
		if resp.ContentLength >= 0 {
			reader = secrets.NewReader // all pairs keep the length
		}
		switch encoding := strings.ToLower(strings.Join(resp.Header["Content-Encoding"], ",")); {
		case encoding == "" || encoding == "identity" || resp.Request.Method == http.MethodHead:
		case encoding == "gzip" || encoding == "x-gzip":
			resp.Body = &unzipped{body: resp.Body}
			resp.Header.Del("Content-Encoding")
			resp.ContentLength, p.length = -1, ""
		default:
			p.bill.unread(resp)
			return errors.New("the server used an encoding that was not requested: " + strconv.Quote(encoding))
		}
		p.bill.read(resp)
		if len(p.back) > 0 {
			resp.Body = &filtered{Reader: reader(resp.Body, p.back), body: resp.Body, response: resp, passage: p}
		}
	}
	resp.Body = &carried{body{resp.Body, &p.down}, p}
	return nil
}

// cleanFields takes what may not come back out of fields. A field whose name
// holds it goes.
func (p *passage) cleanFields(h http.Header) {
	for name, values := range h {
		if secrets.InName(name, p.back) {
			delete(h, name)
			continue
		}
		for k := range values {
			values[k] = secrets.Replace(values[k], p.back)
		}
	}
}

// failed answers for a host that was not reached, or whose response is not passed on.
func (p *passage) failed(r *http.Request, err error) *http.Response {
	if err == nil {
		err = errors.New("no response")
	}
	detail := ""
	p.length = ""
	var u *unreached
	switch {
	case errors.As(err, &u) && u.answer.Verdict.Action == rules.Deny:
		return refusalOf(r, u.answer)
	case errors.As(err, &u):
		detail = u.answer.Detail
	default:
		detail = secrets.Replace(wire.Explain(err), p.back)
		if p.answer == nil {
			p.target.launcher.Report(wire.Report{Request: p.request, Error: secrets.Replace(err.Error(), p.back)})
		}
	}
	return answer(r, http.StatusBadGateway, "", [][2]string{{"error", "bad gateway"}, {"detail", detail}})
}

// refusalOf is the response for what the launcher has refused: 403, 421 or 400 where the request
// is at odds with itself, or its own.
func refusalOf(r *http.Request, a wire.Answer) *http.Response {
	v, status := a.Verdict, http.StatusForbidden
	switch {
	case a.Status == http.StatusBadGateway:
		return answer(r, a.Status, "", [][2]string{{"error", "unreachable"}, {"host", v.Host}, {"detail", a.Detail}})
	case a.Status != 0:
		resp := answer(r, a.Status, "", [][2]string{{"error", "refused"}, {"detail", a.Detail}})
		if a.Status == http.StatusPaymentRequired || a.Status == http.StatusTooManyRequests {
			inAPI(resp, r, a.Detail)
		}
		if a.RetryAfter > 0 {
			resp.Header.Set("Retry-After", strconv.Itoa(a.RetryAfter))
		}
		switch a.Status {
		case http.StatusPaymentRequired: // which clients of model APIs go by
			resp.Header.Set("X-Should-Retry", "false")
		case http.StatusProxyAuthRequired: // what git waits for before it gives one
			resp.Header.Set("Proxy-Authenticate", `Basic realm="pccrun"`)
		}
		return resp
	case v.Reason == rules.BadMatch:
		status = http.StatusMisdirectedRequest
	case v.Reason == rules.BadPath:
		status = http.StatusBadRequest
	}
	phrase := ""
	if status == http.StatusForbidden { // many clients show no more than the status line
		if phrase = "Denied by pccrun"; v.AllowWith != "" {
			phrase += " (to allow: " + v.AllowWith + ")"
		}
	}
	resp := answer(r, status, phrase, [][2]string{
		{"error", "denied"}, {"host", v.Host}, {"port", strconv.Itoa(int(v.Port))}, {"reason", string(v.Reason)}, {"rule", v.Rule}, {"detail", v.Detail}, {"allow_with", v.AllowWith},
	})
	if v.Reason == rules.Budget {
		inAPI(resp, r, v.Detail)
	}
	return resp
}

// inAPI gives a refusal the form of the API that is asked, where it is not text: its clients print no other.
func inAPI(resp *http.Response, r *http.Request, detail string) {
	if resp.Header.Get("Content-Type") == "application/json" {
		api, _ := spending.Judge(r.Method, r.URL.EscapedPath())
		text := api.Error(resp.StatusCode, "pccrun: "+detail)
		resp.Body, resp.ContentLength = io.NopCloser(bytes.NewReader(text)), int64(len(text))
	}
}

// refuse answers what is no request for the host of the connection.
func refuse(w http.ResponseWriter, r *http.Request, p *passage, status int, why string) {
	v := p.target.verdict
	v.Action, v.Reason, v.Detail = rules.Deny, rules.BadMatch, why
	p.target.launcher.Report(wire.Report{Refused: &v, Request: p.request})
	w.Header().Set("Connection", "close")
	send(w, answer(r, status, "", [][2]string{{"error", "refused"}, {"detail", why}}))
}

// answer makes an answer of our own: JSON, or text for who reads it on a terminal. An empty
// detail is left out.
func answer(r *http.Request, status int, phrase string, fields [][2]string) *http.Response {
	fields = slices.DeleteFunc(fields, func(f [2]string) bool { return f == [2]string{"detail", ""} })
	var text bytes.Buffer
	kind := "text/plain; charset=utf-8"
	if agent := r.UserAgent(); holds(r.Header, "Accept", "text/plain") || strings.HasPrefix(agent, "curl/") || strings.HasPrefix(agent, "Wget/") || strings.HasPrefix(agent, "git/") {
		text.WriteString("pccrun:")
		for _, f := range fields {
			if f[1] != "" {
				text.WriteString(" " + f[0] + "=" + strconv.QuoteToASCII(f[1]))
			}
		}
	} else {
		kind = "application/json"
		for i, f := range fields { // in their order
			text.WriteString("{,"[min(i, 1):][:1])
			text.Write(events.Marshal(f[0]))
			text.WriteByte(':')
			text.Write(events.Marshal(f[1]))
		}
		text.WriteByte('}')
	}
	text.WriteByte('\n')
	resp := goproxy.NewResponse(r, kind, status, text.String())
	resp.Proto, resp.ProtoMajor, resp.ProtoMinor = "HTTP/1.1", 1, 1
	resp.Header.Set("Cache-Control", "no-store")
	if resp.Status = http.StatusText(status); phrase != "" {
		resp.Status = phrase
	}
	resp.Status = strconv.Itoa(status) + " " + resp.Status
	return resp
}

// send sends an answer, after which the client may ask again.
func send(w http.ResponseWriter, resp *http.Response) {
	for name, values := range resp.Header {
		w.Header()[name] = values
	}
	w.WriteHeader(resp.StatusCode)
	_, _ = io.Copy(w, resp.Body)
}

// lingerTime is how long a client has to hang up after the last word.
const lingerTime = 500 * time.Millisecond

// lastWord sends an answer with its own status line, and ends the connection. Closing with
// bytes of the client's unread would reset it, and take the answer with it.
func lastWord(w http.ResponseWriter, r *http.Request, t *target, resp *http.Response) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	defer conn.Close()
	resp.Close, resp.Request = true, r
	_ = conn.SetDeadline(time.Now().Add(headTimeout))
	if resp.Write(conn) != nil {
		return
	}
	if half, ok := t.conn.Conn.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite()
	}
	_ = conn.SetReadDeadline(time.Now().Add(lingerTime))
	_, _ = io.Copy(io.Discard, conn)
}

// filtered is a body without the secrets in it, and its trailers.
type filtered struct {
	*secrets.Reader
	body     io.Closer
	response *http.Response
	passage  *passage
}

func (f *filtered) Read(b []byte) (int, error) {
	n, err := f.Reader.Read(b)
	if err == io.EOF { // trailers come with the end
		f.passage.cleanFields(f.response.Trailer)
	}
	return n, err
}

func (f *filtered) Close() error {
	f.Reader.Close()
	return f.body.Close()
}

// unzipped is the content of a gzip body, whose head is read when it is wanted.
type unzipped struct {
	body io.ReadCloser
	zip  *gzip.Reader
}

func (u *unzipped) Read(b []byte) (int, error) {
	if u.zip == nil {
		var err error
		if u.zip, err = gzip.NewReader(u.body); err != nil {
			return 0, err
		}
	}
	return u.zip.Read(b)
}

func (u *unzipped) Close() error { return u.body.Close() }

// flusher passes a response on as it comes: goproxy flushes server-sent events
// only.
type flusher struct {
	http.ResponseWriter
	passage *passage
	expects bool     // 100 Continue
	taken   net.Conn // by goproxy, for a websocket
}

func (f *flusher) WriteHeader(status int) {
	h := f.Header()
	if f.passage.length != "" {
		h.Set("Content-Length", f.passage.length)
	}
	for _, name := range [...]string{"Content-Type", "Date"} { // or Go's server makes them up
		if _, ok := h[name]; !ok {
			h[name] = nil
		}
	}
	if f.expects && status >= 200 { // the server does not see what of the body was left unread
		h.Set("Connection", "close")
	}
	f.ResponseWriter.WriteHeader(status)
	if status >= 200 && h.Get("Content-Length") == "" {
		f.Flush()
	}
}

func (f *flusher) Write(b []byte) (int, error) {
	n, err := f.ResponseWriter.Write(b)
	f.Flush()
	return n, err
}

// Flush sends what was written.
func (f *flusher) Flush() { _ = http.NewResponseController(f.ResponseWriter).Flush() }

// Unwrap and Hijack are what goproxy takes a websocket over by.
func (f *flusher) Unwrap() http.ResponseWriter { return f.ResponseWriter }

func (f *flusher) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(f.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	f.passage.up.Add(int64(rw.Reader.Buffered())) // which goproxy passes on first
	f.taken = &socket{conn, f.passage}
	return f.taken, rw, nil
}

// A socket counts what passes in a websocket.
type socket struct {
	net.Conn
	passage *passage
}

func (s *socket) Read(b []byte) (int, error) {
	n, err := s.Conn.Read(b)
	s.passage.up.Add(int64(n))
	return n, err
}

func (s *socket) Write(b []byte) (int, error) {
	s.passage.down.Add(int64(len(b))) // before the client has it: its answer may be the end
	n, err := s.Conn.Write(b)
	s.passage.down.Add(int64(n - len(b)))
	return n, err
}
