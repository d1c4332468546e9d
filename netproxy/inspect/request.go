package inspect

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/pccrun/pccrun/netproxy"
	"github.com/pccrun/pccrun/netproxy/rules"
	"github.com/pccrun/pccrun/netproxy/secrets"
)

// newProxy makes the carrier of requests whose destination stands, which chooses none.
func (i *Inspector) newProxy() *httputil.ReverseProxy {
	return &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) { // it would leave these out, and change odd queries
			for _, name := range [...]string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto"} {
				if values, ok := r.In.Header[name]; ok {
					r.Out.Header[name] = values
				}
			}
			r.Out.URL.RawQuery, r.Out.Trailer = r.In.URL.RawQuery, r.In.Trailer
		},
		Transport:      carrier(i.carry),
		ModifyResponse: clean,
		ErrorHandler:   failed,
		FlushInterval:  -1,                         // a response goes on as it comes, as far as it comes
		ErrorLog:       log.New(io.Discard, "", 0), // it would log URLs
	}
}

type carrier func(*http.Request) (*http.Response, error)

func (c carrier) RoundTrip(r *http.Request) (*http.Response, error) { return c(r) }

// transport connects to hosts in the protocols that it may speak.
func (i *Inspector) transport(protocols ...string) *http.Transport {
	t := &http.Transport{
		Proxy:               nil,
		DialContext:         i.dial,
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

// dial is the only way out: the rules decide once more, and the address is
// checked.
func (i *Inspector) dial(ctx context.Context, _, address string) (net.Conn, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return nil, err
	}
	c, v, err := i.cfg.Dial(ctx, host, uint16(n))
	if err != nil && v.Action == rules.Deny {
		return nil, &refusedAddress{v}
	}
	return c, err
}

// A refusedAddress says that a host is allowed and what it resolved to is not.
type refusedAddress struct{ verdict rules.Verdict }

func (r *refusedAddress) Error() string { return r.verdict.Detail }

// A passage is one request on its way.
type passage struct {
	target    *target
	scheme    string
	authority string // host and port as the Host field has it
	request   string // for events: method and URL, without the query
	back      []secrets.Pair
}

var errCrowded = errors.New("more than 1024 requests to inspected hosts at once")

// serve takes one request off the client's connection, pins it to the host
// that the connection was made for, and has it carried there.
func (i *Inspector) serve(w http.ResponseWriter, r *http.Request) {
	t, _ := r.Context().Value(targetKey{}).(*target)
	p := &passage{target: t, scheme: "http"}
	if r.TLS != nil {
		p.scheme = "https"
	}
	p.authority = authorityOf(t.verdict, p.scheme)
	p.request = r.Method + " " + p.scheme + "://" + p.authority + r.URL.EscapedPath()
	defer i.requests.Add(-1)
	switch n := i.requests.Add(1); {
	case n > 2*maxRequests:
		panic(http.ErrAbortHandler) // an answer would wait until the client takes it
	case n > maxRequests:
		t.decided(t.verdict, p.request, errCrowded)
		w.Header().Set("Connection", "close")
		answer(w, r, http.StatusServiceUnavailable, [][2]string{{"error", "crowded"}, {"detail", errCrowded.Error()}})
		return
	case i.cfg.Alive != nil && !i.cfg.Alive():
		w.Header().Set("Connection", "close")
		answer(w, r, http.StatusServiceUnavailable, [][2]string{{"error", "stopped"}, {"detail", "pccrun is stopped (SIGSTOP), and sends nothing until it continues"}})
		return
	case r.Method == http.MethodConnect:
		i.refuse(w, r, p, http.StatusMethodNotAllowed, "CONNECT within a connection")
		return
	case r.URL.IsAbs() || r.URL.Host != "" || !strings.HasPrefix(r.RequestURI, "/"):
		i.refuse(w, r, p, http.StatusBadRequest, "the target of the request is not a path")
		return
	}
	v := i.cfg.Rules.DecideRequest(t.verdict.Host, t.verdict.Port, rules.Request{Scheme: p.scheme, Host: hostOf(r), Method: r.Method, Path: r.URL.EscapedPath()})
	if v.Action != rules.Deny && i.cfg.Rules.SpeaksOfRequests(t.verdict) {
		for name := range r.Header {
			if rules.Rewrites(name) {
				v.Action, v.Reason, v.Rule, v.Detail = rules.Deny, rules.BadPath, "", "the field "+name+" may make another request of it"
			}
		}
		r.Trailer = nil // nor may what some servers take for a part of the head
	}
	t.decided(v, p.request, nil)
	if v.Action == rules.Deny {
		deny(w, r, v)
		return
	}
	// Pinned: from here on, nothing that the client has said names a host.
	r.URL.Scheme, r.URL.Host, r.Host = p.scheme, p.authority, p.authority
	r.URL.User = nil
	if r.ProtoMajor == 1 {
		_ = http.NewResponseController(w).EnableFullDuplex() // an answer may come before the request is over
	}
	r.Header.Del("Http2-Settings")
	if holds(r.Header, "Upgrade", "websocket") {
		r.Header.Set("Upgrade", "websocket")
	} else {
		r.Header.Del("Upgrade")
	}
	i.proxy.ServeHTTP(final{w}, r.WithContext(context.WithValue(r.Context(), passageKey{}, p)))
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

// carry sends a request out, with the secrets in it, and refuses what did not come by way of
// serve.
func (i *Inspector) carry(r *http.Request) (*http.Response, error) {
	p := passageOf(r)
	if p == nil || r.URL.Host != p.authority || r.Host != r.URL.Host {
		return nil, errNotPinned
	}
	i.fill(p, r)
	if r.ProtoMajor == 1 { // a websocket needs it, and HTTP/1.1 is faster
		return i.plain.RoundTrip(r)
	}
	return i.either.RoundTrip(r)
}

// fill puts the secrets in.
func (i *Inspector) fill(p *passage, r *http.Request) {
	if p.scheme != "https" {
		return
	}
	var out []secrets.Pair
	if out, p.back = i.replacements(p.target.verdict); len(out) == 0 {
		return
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
	p.inject(r, out)
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
func (p *passage) inject(r *http.Request, out []secrets.Pair) {
	for name, values := range r.Header {
		for k, value := range values {
			with := secrets.Replace(value, out)
			if scheme, coded, ok := strings.Cut(value, " "); ok && strings.EqualFold(scheme, "basic") && strings.HasSuffix(name, "uthorization") {
				coded = strings.TrimSpace(coded)
				if text, err := base64.StdEncoding.DecodeString(coded); err == nil {
					if secret := secrets.Replace(string(text), out); secret != string(text) {
						encoded := base64.StdEncoding.EncodeToString([]byte(secret))
						p.back = append(secrets.Escaped(encoded, coded), p.back...)
						with = scheme + " " + encoded
					}
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

// clean takes out of a response what may not come back.
func clean(resp *http.Response) error {
	p := passageOf(resp.Request)
	switched := resp.StatusCode == http.StatusSwitchingProtocols
	switch {
	case switched && !holds(resp.Request.Header, "Upgrade", "websocket"):
		return errors.New("the server switched protocols unasked")
	case len(p.back) > 0 && resp.StatusCode == http.StatusPartialContent:
		return errors.New("the server sent only part of the response")
	}
	resp.Header.Del("Alt-Svc") // no other way to the host is open
	if len(p.back) == 0 {
		return nil
	}
	p.cleanFields(resp.Header)
	p.cleanFields(resp.Trailer)
	if switched {
		return nil
	}
	reader := secrets.NewStream
	if resp.ContentLength >= 0 {
		reader = secrets.NewReader // all pairs keep the length
	}
	switch encoding := strings.ToLower(strings.Join(resp.Header["Content-Encoding"], ",")); {
	case encoding == "" || encoding == "identity" || resp.Request.Method == http.MethodHead:
	case encoding == "gzip" || encoding == "x-gzip":
		resp.Body = &unzipped{body: resp.Body}
		resp.Header.Del("Content-Encoding")
		resp.Header.Del("Content-Length")
		resp.ContentLength = -1
	default:
		return errors.New("the server used an encoding that was not requested: " + strconv.Quote(encoding))
	}
	resp.Body = &filtered{Reader: reader(resp.Body, p.back), body: resp.Body, response: resp, passage: p}
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
func failed(w http.ResponseWriter, r *http.Request, err error) {
	p := passageOf(r)
	var address *refusedAddress
	switch {
	case p == nil || errors.Is(err, errNotPinned):
		answer(w, r, http.StatusMisdirectedRequest, [][2]string{{"error", "refused"}, {"detail", errNotPinned.Error()}})
	case errors.As(err, &address):
		p.target.decided(address.verdict, p.request, nil)
		deny(w, r, address.verdict)
	default:
		p.target.decided(p.target.verdict, p.request, errors.New(secrets.Replace(err.Error(), p.back)))
		answer(w, r, http.StatusBadGateway, [][2]string{{"error", "bad gateway"}, {"detail", secrets.Replace(netproxy.Explain(err), p.back)}})
	}
}

// deny answers 403, or 421 and 400 where the request is at odds with itself.
func deny(w http.ResponseWriter, r *http.Request, v rules.Verdict) {
	status := http.StatusForbidden
	switch v.Reason {
	case rules.BadMatch:
		status = http.StatusMisdirectedRequest
	case rules.BadPath:
		status = http.StatusBadRequest
	}
	answer(w, r, status, [][2]string{
		{"error", "denied"}, {"host", v.Host}, {"port", strconv.Itoa(int(v.Port))}, {"reason", string(v.Reason)}, {"rule", v.Rule}, {"detail", v.Detail}, {"allow_with", v.AllowWith},
	})
}

// refuse answers what is no request for the host of the connection.
func (i *Inspector) refuse(w http.ResponseWriter, r *http.Request, p *passage, status int, why string) {
	v := p.target.verdict
	v.Action, v.Reason, v.Detail = rules.Deny, rules.BadMatch, why
	p.target.decided(v, p.request, nil)
	w.Header().Set("Connection", "close")
	answer(w, r, status, [][2]string{{"error", "refused"}, {"detail", why}})
}

// answer sends an answer of our own: JSON, or text for who reads it on a
// terminal.
func answer(w http.ResponseWriter, r *http.Request, status int, fields [][2]string) {
	var body bytes.Buffer
	kind := "text/plain"
	if agent := r.UserAgent(); holds(r.Header, "Accept", "text/plain") || strings.HasPrefix(agent, "curl/") || strings.HasPrefix(agent, "Wget/") || strings.HasPrefix(agent, "git/") {
		body.WriteString("pccrun:")
		for _, f := range fields {
			if f[1] != "" {
				body.WriteString(" " + f[0] + "=" + strconv.QuoteToASCII(f[1]))
			}
		}
		body.WriteByte('\n')
	} else {
		kind = "application/json"
		object := map[string]string{}
		for _, f := range fields {
			object[f[0]] = f[1]
		}
		_ = json.NewEncoder(&body).Encode(object)
	}
	w.Header().Set("Content-Type", kind)
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = body.WriteTo(w)
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

// final is for a response alone: what comes before it, which is not looked through, is not
// passed on.
type final struct{ http.ResponseWriter }

func (f final) WriteHeader(status int) {
	if status >= 200 {
		f.ResponseWriter.WriteHeader(status)
	}
}

func (f final) Unwrap() http.ResponseWriter { return f.ResponseWriter }

func (f final) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(f.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	return &begun{conn, rw.Reader}, rw, nil
}

// A begun connection has what came with the request, and no end of one way: a websocket ends as
// a whole.
type begun struct {
	net.Conn
	from io.Reader
}

func (b *begun) Read(p []byte) (int, error) { return b.from.Read(p) }
