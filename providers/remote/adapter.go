package remote

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"runtime"
	"strings"
	"time"

	"github.com/pccrun/pccrun/providers"
)

// A Base is what adapters of HTTP APIs have in common: each embeds one.
type Base struct {
	API     API
	Facts   Facts
	Address string      // of the provider's API
	Key     http.Header // what each call to it bears
	Query   url.Values  // likewise
	Owner   string      // who the account is, where the adapter knows it: a key may be another every day
	Wrong   error       // what is wrong with the user's key, or an address
}

// base is what all adapters embed.
func (b *Base) base() *Base { return b }

// Of returns the New of an adapter, by what makes one from the environment: a provider, whether or not it can be used.
func Of[S interface {
	Service
	base() *Base
}](from func(environ []string) S) func(providers.Host) *Provider {
	return func(host providers.Host) *Provider {
		s := from(host.Environ)
		return New(s, s.base().Facts, host)
	}
}

// Begin fills in what each adapter has by the environment: the client, the API's address, by a variable or as it otherwise is,
// the processor there, and what is wrong with either or with the key. advice says how to get one.
func Begin(b *Base, environ []string, variable, otherwise, advice string) {
	b.API.Client = NewClient(environ)
	b.Address = strings.TrimSuffix(cmp.Or(Variable(environ, variable), otherwise), "/")
	b.Facts.Arch = Here(b.Address, "amd64")
	needs(b, environ, advice)
	b.Check(variable, b.Address)
}

// Name is the provider's.
func (b *Base) Name() string { return b.API.Provider }

// Ready says what is wrong with the key or an address.
func (b *Base) Ready() error { return b.Wrong }

// needs says which of the variables is not set without which a provider of this name cannot be used ([providers.Kind]).
func needs(b *Base, environ []string, advice string) {
	kind, err := providers.KindOf(b.API.Provider)
	if err != nil {
		b.Wrong = err
		return
	}
	if keys := kind.MissingKeys(func(name string) string { return Variable(environ, name) }); keys != "" {
		way, others, more := strings.Cut(keys, ", or ")
		if more {
			advice += "; or set " + others
		}
		is := " is not set"
		if strings.Contains(way, " and ") {
			is = " are not set"
		}
		b.Unusable(way+is, advice)
	}
}

// Account tells accounts apart, by their keys where nothing else names one, and tells nobody which they are.
func (b *Base) Account() string {
	return sumOf([]byte(b.Address + " " + cmp.Or(b.Owner, strings.Join(b.API.Secrets, " "))))[:16]
}

// Unusable says why the provider cannot be used. What was said first counts.
func (b *Base) Unusable(cause, advice string) {
	if b.Wrong == nil {
		b.Wrong = &providers.UnusableError{Provider: b.API.Provider, Cause: cause, Advice: advice}
	}
}

// Check holds an address that a variable gives against [CheckBase].
func (b *Base) Check(name, address string) {
	if address != "" {
		if err := CheckBase(name, address); err != nil {
			b.Unusable(err.Error(), "")
		}
	}
}

// Call calls the provider's API.
func (b *Base) Call(ctx context.Context, c *Call, path string) (http.Header, error) {
	return b.API.Do(ctx, c.to(b.Address+path, b.Key, b.Query))
}

// MakeBy calls for a sandbox: in is what is asked, out is the answer. The error is an [UnclearError] where nobody knows whether one
// was made.
func MakeBy(ctx context.Context, b *Base, in, out any, path string) error {
	_, err := b.Call(ctx, &Call{What: "create a sandbox", Method: http.MethodPost, In: in, Out: out, Once: true, Limit: 2 * time.Minute}, path)
	return Unclear(err)
}

// MakeNamed is [MakeBy] of a sandbox that is known by the name in what is asked, and is not ready yet. One that stands already
// was made by a call whose answer was lost.
func MakeNamed(ctx context.Context, b *Base, name string, in any, path string) (*Sandbox, error) {
	if err := MakeBy(ctx, b, in, &struct{}{}, path); err != nil && !HasStatus(err, http.StatusConflict) {
		return nil, err
	}
	return b.Checked(&Sandbox{ID: name})
}

// Body is what a request says, less what is empty.
func Body(all map[string]any) map[string]any {
	maps.DeleteFunc(all, func(_ string, v any) bool { return v == nil || v == "" || v == 0 })
	return all
}

// About calls the provider's API about one sandbox, whose name stands for {id} in the path. An answer of 404 is an [ErrGone].
func (b *Base) About(ctx context.Context, id string, c *Call, path string) error {
	_, err := about(ctx, b, id, c, path)
	return err
}

func about(ctx context.Context, b *Base, id string, c *Call, path string) (http.Header, error) {
	c.What += " sandbox " + id
	header, err := b.Call(ctx, c, strings.Replace(path, "{id}", url.PathEscape(id), 1))
	return header, orGone(err)
}

// orGone is an error, which is an [ErrGone] too where it is an answer of 404.
func orGone(err error) error {
	if HasStatus(err, http.StatusNotFound) {
		return fmt.Errorf("%w: %w", ErrGone, err)
	}
	return err
}

// A Resource is how an API has sandboxes, of each of which it tells as a T: most adapters embed one.
type Resource[T any] struct {
	Base
	Path string                                  // of one, whose name stands for {id}
	Take func(*T, http.Header) (*Sandbox, error) // what an answer says of one
	Asks func(*Request) map[string]any           // the body of a request to create
}

// Describe is [Service.Describe].
func (r *Resource[T]) Describe(q *Request) any { return r.Asks(q) }

// One calls about one sandbox as [Base.About] does, and takes what the answer says of it.
func (r *Resource[T]) One(ctx context.Context, id string, c *Call, path string) (*Sandbox, error) {
	a := new(T)
	c.Out = a
	header, err := about(ctx, &r.Base, id, c, path)
	if err != nil {
		return nil, err
	}
	return r.Take(a, header)
}

// Status is [Service.Status].
func (r *Resource[T]) Status(ctx context.Context, id string) (*Sandbox, error) {
	return r.One(ctx, id, &Call{What: "look at"}, r.Path)
}

// Post has the API do something with a sandbox, by a call below its own path.
func (r *Resource[T]) Post(ctx context.Context, id, what, path string, in any) error {
	return r.About(ctx, id, &Call{What: what, Method: http.MethodPost, In: in, Limit: 2 * time.Minute}, r.Path+path)
}

// Destroy is [Service.Destroy].
func (r *Resource[T]) Destroy(ctx context.Context, id string) error {
	return r.About(ctx, id, &Call{What: "destroy", Method: http.MethodDelete, Limit: 2 * time.Minute}, r.Path)
}

// At is a call to the daemon of a sandbox.
func (s *Sandbox) At(c *Call, path string) *Call { return c.to(s.Address+path, s.Header, s.Query) }

// to is the call at an address, with what each one to it bears.
func (c *Call) to(address string, header http.Header, query url.Values) *Call {
	all, asks := http.Header{}, url.Values{}
	for _, h := range []http.Header{header, c.Header} {
		maps.Copy(all, h)
	}
	for _, q := range []url.Values{query, c.Query} {
		maps.Copy(asks, q)
	}
	c.URL, c.Header, c.Query = address, all, asks
	return c
}

// Daemon calls the daemon of a sandbox.
func (b *Base) Daemon(ctx context.Context, s *Sandbox, c *Call, path string) error {
	_, err := b.API.Do(ctx, s.At(c, path))
	return err
}

// Command is what is executed at a provider that cannot be asked for another user: as root where the sandbox's may become it.
func (e *Exec) Command() []string {
	const become = `[ "$(id -u)" = 0 ] || ! sudo -n true 2>/dev/null || exec sudo -n -- "$@"; exec "$@"`
	if !e.Root {
		return e.Argv
	}
	return append([]string{"/bin/sh", "-c", become, "sh"}, e.Argv...)
}

// Stream has the daemon of a sandbox execute a program, by a call whose answer is a stream of a media type, and follow read that
// to the program's exit status. What is returned is that of [Ended].
func Stream(ctx context.Context, b *Base, s *Sandbox, c *Call, path, media string, follow func(from io.Reader) (int, error)) (code int, err error) {
	c.What, c.Method = "execute", http.MethodPost
	reading, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	response, err := b.API.Open(reading, s.At(c, path))
	if err != nil {
		return Ended(ctx, 0, err)
	}
	defer response.Body.Close()
	if kind := response.Header.Get("Content-Type"); !strings.HasPrefix(kind, media) {
		return 0, fmt.Errorf("%s: execute: the answer is %q and not a stream: is a proxy in between?", b.Name(), kind)
	}
	if code, err = follow(&stream{response.Body, c.Silence, stop}); err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		err = fmt.Errorf("%s: execute: %w", b.Name(), cmp.Or(context.Cause(reading), err))
	}
	return Ended(ctx, code, err)
}

// stream is what comes bit by bit: who takes it may take his time.
type stream struct {
	io.Reader
	silence time.Duration
	stop    context.CancelCauseFunc
}

func (s *stream) Read(b []byte) (int, error) {
	if s.silence > 0 {
		defer time.AfterFunc(s.silence, func() { s.stop(fmt.Errorf("nothing came for %s", s.silence)) }).Stop()
	}
	return s.Reader.Read(b)
}

// Ended is how a program ended that was followed, as [Service.Exec] returns it. Where a call was refused it did not begin; of any
// other error nobody knows what became of it.
func Ended(ctx context.Context, code int, err error) (int, error) {
	var cut *CutError
	var unclear *UnclearError
	var refused *APIError
	var permanent *permanentError
	switch {
	case err == nil:
		return code, nil
	case ctx.Err() != nil:
		return 0, context.Cause(ctx)
	case errors.As(err, &cut):
		return code, err
	case !errors.As(err, &unclear) && (errors.As(err, &refused) || errors.As(err, &permanent)):
		return code, orGone(err)
	}
	return code, &CutError{Err: err}
}

// Send sends a file to the daemon of a sandbox, as it is or as the call's body has it.
func Send(ctx context.Context, b *Base, s *Sandbox, a *Archive, c *Call, path string) error {
	if c.What, c.Limit = "upload", a.Within(); c.Body == nil {
		c.Header, c.Body, c.Size = http.Header{"Content-Type": {"application/octet-stream"}}, a.Open, a.Size
	}
	return b.Daemon(ctx, s, c, path)
}

// Download writes what the daemon of a sandbox answers to a call: begin is called before each attempt.
func (b *Base) Download(ctx context.Context, s *Sandbox, c *Call, path string, begin func() (io.Writer, error)) error {
	c.What, c.Begin, c.Header, c.Limit = "download", begin, http.Header{"Accept-Encoding": {"identity"}}, 20*time.Minute
	return b.Daemon(ctx, s, c, path)
}

var idShape = regexp.MustCompile(`^[A-Za-z0-9_-]{1,100}$`)

// Here is the processor of a service at an address: that of this machine for a server on it, else arch.
func Here(address, arch string) string {
	if u, err := url.Parse(address); err == nil && isLoopback(u.Hostname()) {
		return runtime.GOARCH
	}
	return arch
}

// isLoopback reports whether a host of an address is this machine.
func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// CheckID says that an answer has no id that may be a part of an address.
func CheckID(provider, what, id string) error {
	if idShape.MatchString(id) {
		return nil
	}
	return Permanent(fmt.Errorf("%s: the answer names no %s", provider, what))
}

// Checked is a sandbox as an answer tells of it, if it may be called.
func (b *Base) Checked(s *Sandbox) (*Sandbox, error) {
	err := CheckID(b.API.Provider, "sandbox", s.ID)
	if err == nil && s.Address != "" {
		err = CheckBase("the sandbox's address", s.Address)
	}
	if err != nil {
		return nil, err
	}
	return s, nil
}

// Gather reads a list that comes in pages, of which one is named in the query by cursor: get returns one, and the name of the
// next.
func (r *Resource[T]) Gather(query url.Values, cursor string, get func(query url.Values) (list []T, next string, err error)) (all []Sandbox, err error) {
	page := ""
	for range 100 {
		list, next, err := get(query)
		if err != nil {
			return nil, err
		}
		for i := range list {
			s, err := r.Take(&list[i], nil)
			if err != nil {
				return nil, err
			}
			all = append(all, *s)
		}
		if next == "" || next == page {
			break
		}
		page = next
		query.Set(cursor, page)
	}
	return all, nil
}

// UntilRuns looks at a sandbox until it runs, or never will.
func UntilRuns(ctx context.Context, b *Base, look func() (*Sandbox, error)) (box *Sandbox, err error) {
	err = Poll(ctx, 50*time.Millisecond, time.Second, func() (bool, error) {
		if box, err = look(); err == nil && box.Failed != "" {
			err = fmt.Errorf("%s: sandbox %s did not start: %s", b.Name(), box.ID, box.Failed)
		}
		return err == nil && box.Running, err
	})
	if err != nil {
		return nil, err
	}
	return box, nil
}

// Poll calls a function until it is done, after waits that grow.
func Poll(ctx context.Context, wait, most time.Duration, done func() (bool, error)) error {
	for ; ; wait = min(2*wait, most) {
		if is, err := done(); is || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(wait):
		}
	}
}

// Feed sends what a program reads, whole lines as they come, until send returns an
// error. One of [io.EOF] says that the program reads no more.
func (e *Exec) Feed(ctx context.Context, send func(text []byte) error) {
	buf, have := make([]byte, 256<<10), 0
	for ctx.Err() == nil {
		n, err := e.In.Read(buf[have:])
		have += n
		whole := have
		if err == nil && have < len(buf) {
			whole = bytes.LastIndexByte(buf[:have], '\n') + 1
		}
		if whole > 0 {
			if failed := send(buf[:whole]); failed != nil {
				err = failed
			}
			have = copy(buf, buf[whole:have])
		}
		if err != nil {
			if err != io.EOF && ctx.Err() == nil && e.Lost != nil {
				e.Lost(err)
			}
			return
		}
	}
}

// Print passes on what a program printed. A reader that is gone is no reason to end the command: it
// finds out by itself.
func Print(to io.Writer, text []byte) {
	if len(text) > 0 { // of nothing a pipe waits for a reader too
		_, _ = to.Write(text)
	}
}

// Within is how long an upload may take: one that is slower than 64 KiB a second is none.
func (a *Archive) Within() time.Duration {
	return time.Minute + time.Duration(a.Size/(64<<10))*time.Second
}
