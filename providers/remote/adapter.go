package remote

import (
	"bytes"
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
	Wrong   error       // what is wrong with the user's key, or an address
}

// Name is the provider's.
func (b *Base) Name() string { return b.API.Provider }

// Ready says what is wrong with the key or an address.
func (b *Base) Ready() error { return b.Wrong }

// Needs says which of the variables is not set without which a provider of this name cannot be used ([providers.Kind]).
func (b *Base) Needs(environ []string, advice string) {
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
	c.URL, c.Header = b.Address+path, b.Key
	return b.API.Do(ctx, c)
}

// About calls the provider's API about one sandbox. An answer of 404 is an [ErrGone].
func (b *Base) About(ctx context.Context, id string, c *Call, path string) error {
	c.What += " sandbox " + id
	_, err := b.Call(ctx, c, path)
	var e *APIError
	if errors.As(err, &e) && e.Status == http.StatusNotFound {
		return fmt.Errorf("%w: %w", ErrGone, err)
	}
	return err
}

// At is a call to the daemon of a sandbox.
func (s *Sandbox) At(c *Call, path string) *Call {
	header := http.Header{}
	maps.Copy(header, s.Header)
	maps.Copy(header, c.Header)
	c.URL, c.Header = s.Address+path, header
	return c
}

// Daemon calls the daemon of a sandbox.
func (b *Base) Daemon(ctx context.Context, s *Sandbox, c *Call, path string) error {
	_, err := b.API.Do(ctx, s.At(c, path))
	return err
}

// AsRoot executes a program as root where the sandbox's user may become it.
func AsRoot(argv []string) []string {
	const become = `[ "$(id -u)" = 0 ] || ! sudo -n true 2>/dev/null || exec sudo -n -- "$@"; exec "$@"`
	return append([]string{"/bin/sh", "-c", become, "sh"}, argv...)
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
	return fmt.Errorf("%s: the answer names no %s", provider, what)
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

// Gather reads a list that comes in pages: get returns one, and the name of the next; take says what one
// of it is.
func Gather[T any](get func(page string) (list []T, next string, err error), take func(*T) (*Sandbox, error)) (all []Sandbox, err error) {
	page := ""
	for range 100 {
		list, next, err := get(page)
		if err != nil {
			return nil, err
		}
		for i := range list {
			s, err := take(&list[i])
			if err != nil {
				return nil, err
			}
			all = append(all, *s)
		}
		if next == "" || next == page {
			break
		}
		page = next
	}
	return all, nil
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
