package remote

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"mime"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/pccrun/pccrun/internal/messages"
	"github.com/pccrun/pccrun/internal/outgoing/client"
	"github.com/pccrun/pccrun/profiles"
)

// API calls a provider over HTTP.
type API struct {
	Provider string
	Client   *http.Client
	Secrets  []string // never to be seen in an error

	// Advise says what mends an error, "" if nothing is known.
	Advise func(e *APIError) string

	// Wait is the first wait before a call is repeated, half a second if it is 0.
	Wait time.Duration
}

// Call is one call.
type Call struct {
	What   string // for errors: "create a sandbox"
	Method string
	URL    string
	Header http.Header

	In   any                           // sent as JSON, or
	Body func() (io.ReadCloser, error) // sent as it is
	Size int64                         // of Body

	Out   any // JSON to be read, or
	Raw   bool
	Once  bool          // not to be repeated once it may have arrived
	Limit time.Duration // for each attempt; a minute if it is 0
}

// The bounds of repetition.
const (
	attempts   = 6
	maxWait    = 15 * time.Second
	maxAsked   = 2 * time.Minute // a longer wait that the provider asks for is an error
	maxAnswer  = 16 << 20
	maxMessage = 2000
)

// An APIError is an answer that says no.
type APIError struct {
	Provider string
	What     string
	Status   int
	Code     string // the provider's own word
	Message  string
	After    time.Duration // how long the provider asks to wait
	advice   string
}

func (e *APIError) Error() string {
	text := fmt.Sprintf("%s: %s: %d %s", e.Provider, e.What, e.Status, http.StatusText(e.Status))
	if e.Message != "" {
		text += ": " + e.Message
	}
	return text
}

// Hint says what mends it.
func (e *APIError) Hint() string { return e.advice }

// NewClient returns the client by which pccrun sends a key.
func NewClient(environ []string) *http.Client {
	return client.New(profiles.ThisHost().Home, environ, messages.Say)
}

// CheckBase says what is wrong with an address to which a key would be sent.
func CheckBase(name, base string) error {
	u, err := url.Parse(base)
	if err != nil || u.Host == "" || u.User != nil || u.RawQuery != "" {
		return fmt.Errorf("%s: want an address such as https://api.example.com", name)
	}
	if u.Scheme == "https" {
		return nil
	}
	if ip := net.ParseIP(u.Hostname()); u.Scheme == "http" && (u.Hostname() == "localhost" || ip != nil && ip.IsLoopback()) {
		return nil
	}
	return fmt.Errorf("%s: %s is not https: the key would be sent in clear text", name, base)
}

// Do makes a call, repeats it where that may help and do no harm, and reads the answer.
func (a *API) Do(ctx context.Context, c *Call) (http.Header, error) {
	var header http.Header
	err := a.repeat(ctx, c, func(ctx context.Context) error {
		response, err := a.send(ctx, c)
		if err != nil {
			return err
		}
		defer response.Body.Close()
		header = response.Header
		if c.Out == nil {
			_, err = io.Copy(io.Discard, io.LimitReader(response.Body, maxAnswer))
			return err
		}
		if kind, _, _ := mime.ParseMediaType(response.Header.Get("Content-Type")); kind != "application/json" {
			return &permanentError{fmt.Errorf("the answer is %q and not JSON: is a proxy in between?", response.Header.Get("Content-Type"))}
		}
		text, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer+1))
		switch {
		case err != nil:
			return err
		case len(text) > maxAnswer:
			return &permanentError{errors.New("the answer is too long")}
		}
		if err := json.Unmarshal(text, c.Out); err != nil {
			return fmt.Errorf("the answer is no JSON: %w", err)
		}
		return nil
	})
	return header, err
}

// Copy makes a call and writes what is answered, to its end or not at all: begin is
// called before each attempt.
func (a *API) Copy(ctx context.Context, c *Call, begin func() (io.Writer, error)) error {
	return a.repeat(ctx, c, func(ctx context.Context) error {
		response, err := a.send(ctx, c)
		if err != nil {
			return err
		}
		defer response.Body.Close()
		to, err := begin()
		if err != nil {
			return &permanentError{err}
		}
		_, err = io.Copy(writeErrors{to}, response.Body)
		return err
	})
}

// writeErrors marks errors of this machine, which no repetition mends.
type writeErrors struct{ to io.Writer }

func (w writeErrors) Write(b []byte) (int, error) {
	n, err := w.to.Write(b)
	if err != nil {
		err = &permanentError{err}
	}
	return n, err
}

// Open makes a call and returns the answer as it comes. The caller closes its body.
func (a *API) Open(ctx context.Context, c *Call) (*http.Response, error) {
	var response *http.Response
	err := a.repeat(ctx, c, func(ctx context.Context) (err error) {
		response, err = a.send(ctx, c)
		return err
	})
	return response, err
}

// Try makes a call in another way, and repeats it as [API.Do] does. What says no in an answer
// is made an error by [API.Refused].
func (a *API) Try(ctx context.Context, c *Call, try func(context.Context) error) error {
	return a.repeat(ctx, c, try)
}

// Refused is the error of an answer that says no.
func (a *API) Refused(c *Call, response *http.Response) error {
	text, _ := io.ReadAll(io.LimitReader(response.Body, 64<<10))
	return a.refusal(c, response, text)
}

// Variable returns a variable of an environment, the last of its name, "" for none.
func Variable(environ []string, name string) (value string) {
	for _, v := range environ {
		if text, ok := strings.CutPrefix(v, name+"="); ok {
			value = text
		}
	}
	return value
}

// A permanentError is not mended by repetition.
type permanentError struct{ error }

func (e *permanentError) Unwrap() error { return e.error }

// repeat calls try until it succeeds, or more would not help or could do harm.
func (a *API) repeat(ctx context.Context, c *Call, try func(context.Context) error) error {
	wait := a.Wait
	if wait == 0 {
		wait = 500 * time.Millisecond
	}
	for n := 1; ; n++ {
		err := a.attempt(ctx, c, try)
		if err == nil {
			return nil
		}
		pause, again := a.again(c, err, wait)
		if ctx.Err() != nil {
			return a.named(c, context.Cause(ctx))
		}
		if !again || n == attempts {
			return a.named(c, err)
		}
		select {
		case <-ctx.Done():
			return a.named(c, context.Cause(ctx))
		case <-time.After(pause):
		}
		wait = min(2*wait, maxWait)
	}
}

// attempt tries once, within the limit; a body that is read by others is not limited.
func (a *API) attempt(ctx context.Context, c *Call, try func(context.Context) error) error {
	if c.Raw {
		return try(ctx)
	}
	limit := c.Limit
	if limit == 0 {
		limit = time.Minute
	}
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("no answer within %s", limit))
	defer cancel()
	err := try(ctx)
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return err
}

// again says whether a call may be repeated after an error, and when.
func (a *API) again(c *Call, err error, wait time.Duration) (pause time.Duration, again bool) {
	pause = wait/2 + rand.N(wait) // who were refused together do not come again together
	var status *APIError
	var permanent *permanentError
	var dial *net.OpError
	switch {
	case errors.As(err, &permanent):
		return 0, false
	case errors.As(err, &status):
		switch status.Status {
		case http.StatusTooManyRequests, http.StatusServiceUnavailable:
			return max(pause, status.After), status.After <= maxAsked // it was refused, and not begun
		case http.StatusRequestTimeout, http.StatusInternalServerError, http.StatusBadGateway, http.StatusGatewayTimeout:
			return max(pause, status.After), !c.Once
		}
		return 0, false
	case errors.As(err, &dial) && dial.Op == "dial":
		return pause, true // it did not arrive
	}
	return pause, !c.Once
}

// send sends a call once. An answer that says no is an [APIError].
func (a *API) send(ctx context.Context, c *Call) (*http.Response, error) {
	var body io.ReadCloser
	size := c.Size
	var err error
	switch {
	case c.Body != nil:
		body, err = c.Body()
	case c.In != nil:
		var text []byte
		text, err = json.Marshal(c.In)
		body, size = io.NopCloser(bytes.NewReader(text)), int64(len(text))
	}
	if err != nil {
		return nil, &permanentError{err}
	}
	r, err := http.NewRequestWithContext(ctx, c.Method, c.URL, body)
	if err != nil {
		return nil, &permanentError{err}
	}
	r.Header = c.Header.Clone()
	if r.Header == nil {
		r.Header = http.Header{}
	}
	if body != nil {
		r.ContentLength = size
		if r.Header.Get("Content-Type") == "" {
			r.Header.Set("Content-Type", "application/json")
		}
	}
	r.Header.Set("User-Agent", "pccrun")
	response, err := a.Client.Do(r)
	if err != nil {
		return nil, err
	}
	if response.StatusCode/100 == 2 {
		return response, nil
	}
	defer response.Body.Close()
	return nil, a.Refused(c, response)
}

// refusal reads what an answer says of itself.
func (a *API) refusal(c *Call, response *http.Response, text []byte) error {
	e := &APIError{Provider: a.Provider, What: c.What, Status: response.StatusCode}
	var told struct {
		Message any             `json:"message"`
		Error   any             `json:"error"`
		Code    json.RawMessage `json:"code"`
		Own     string          `json:"error_code"`
	}
	if json.Unmarshal(text, &told) == nil {
		for _, m := range []any{told.Error, told.Message} {
			if m != nil {
				e.Message = fmt.Sprint(m)
			}
		}
		if e.Code = told.Own; e.Code == "" {
			e.Code = strings.Trim(string(told.Code), `"`)
		}
	}
	e.Message = a.clean(e.Message)
	switch after := response.Header.Get("Retry-After"); {
	case after == "":
	default:
		if n, err := strconv.ParseInt(after, 10, 32); err == nil {
			e.After = time.Duration(n) * time.Second
		} else if at, err := http.ParseTime(after); err == nil {
			e.After = max(0, time.Until(at))
		}
	}
	if a.Advise != nil {
		e.advice = a.Advise(e)
	}
	return e
}

// clean makes a text that came from elsewhere fit to be printed, on one line and
// without a secret.
func (a *API) clean(text string) string {
	for _, s := range a.Secrets {
		if s != "" {
			text = strings.ReplaceAll(text, s, "…")
		}
	}
	text = strings.Join(strings.Fields(text), " ")
	text = strings.Map(func(r rune) rune {
		if !strconv.IsPrint(r) {
			return '?'
		}
		return r
	}, text)
	if len(text) > maxMessage {
		text = text[:maxMessage] + "…"
	}
	return text
}

// named adds what was called, less what nobody should see.
func (a *API) named(c *Call, err error) error {
	var status *APIError
	if errors.As(err, &status) {
		return err
	}
	var at *url.Error
	if errors.As(err, &at) {
		err = at.Err // the address has names that say nothing to the user
	}
	var permanent *permanentError
	if errors.As(err, &permanent) {
		err = permanent.error
	}
	return &callError{fmt.Sprintf("%s: %s: ", a.Provider, c.What), a.clean(err.Error()), err}
}

// A callError is one without an answer.
type callError struct {
	what, text string
	err        error
}

func (e *callError) Error() string { return e.what + e.text }
func (e *callError) Unwrap() error { return e.err }

// Unclear marks the error of a call that may have done its work: one that was neither
// refused nor kept from arriving.
func Unclear(err error) error {
	var status *APIError
	var dial *net.OpError
	switch {
	case errors.As(err, &status) && (status.Status/100 != 5 || status.Status == http.StatusServiceUnavailable), errors.As(err, &dial) && dial.Op == "dial":
		return err
	}
	return &UnclearError{err}
}
