package remote

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"mime"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/coder/websocket"

	"github.com/pccrun/pccrun/internal/messages"
	"github.com/pccrun/pccrun/internal/outgoing/client"
	"github.com/pccrun/pccrun/profiles"
)

// API calls a provider over HTTP.
type API struct {
	Provider string
	Client   *http.Client
	Secrets  []string // never to be seen in an error

	// Advice is what mends an error, by its status, and Advise what does for one that its message tells from others of that,
	// "" for none; it may be nil.
	Advice map[int]string
	Advise func(e *APIError) string

	// Wait is the first wait before a call is repeated, half a second if it is 0.
	Wait time.Duration
}

// Call is one call.
type Call struct {
	What   string // for errors: "create a sandbox"
	Method string
	URL    string
	Query  url.Values // of the address
	Header http.Header

	In   any                           // sent as JSON, or
	Body func() (io.ReadCloser, error) // sent as it is
	Size int64                         // of Body

	Out   any                       // JSON to be read, or
	Begin func() (io.Writer, error) // called before each attempt: what takes the answer, to its end or not at all
	Once  bool                      // not to be repeated once it may have arrived
	Limit time.Duration             // for each attempt; a minute if it is 0

	Silence time.Duration // of a stream: for how long nothing may come; 0: any time
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

// usualAdvice is what mends an error where the provider's own advice says nothing of its status.
var usualAdvice = map[int]string{http.StatusTooManyRequests: "the account's limit is reached: pccrun gc removes unused sandboxes"}

// limited is how a refusal by 400 says that a limit of the account is the reason.
var limited = regexp.MustCompile(`(?i)\b(quota|limit)\b.* exceeded`)

// NewClient returns the client by which pccrun sends a key.
func NewClient(environ []string) *http.Client {
	return client.New(profiles.ThisHost().Home, environ, messages.Say)
}

// SendAlike has an official client, which makes its own connections to an address, go the same way.
func SendAlike(environ []string, address string) error {
	return client.Process(profiles.ThisHost().Home, environ, address, messages.Say)
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
	if u.Scheme == "http" && isLoopback(u.Hostname()) {
		return nil
	}
	return fmt.Errorf("%s: %s is not https: the key would be sent in clear text", name, base)
}

// Do makes a call, repeats it where that may help and do no harm, and reads the answer.
func (a *API) Do(ctx context.Context, c *Call) (header http.Header, err error) {
	err = a.TryWithin(ctx, c, func(ctx context.Context) error {
		response, err := a.send(ctx, c)
		if err == nil {
			defer response.Body.Close()
			header = response.Header
			err = c.read(response)
		}
		return err
	})
	return header, err
}

// TryWithin is [API.Try] whose attempts have a limit each.
func (a *API) TryWithin(ctx context.Context, c *Call, try func(context.Context) error) error {
	limit := cmp.Or(c.Limit, time.Minute)
	return a.Try(ctx, c, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("no answer within %s", limit))
		defer cancel()
		err := try(ctx)
		if err != nil && ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return err
	})
}

// address is where a call goes.
func (c *Call) address() string {
	if len(c.Query) == 0 {
		return c.URL
	}
	return c.URL + "?" + c.Query.Encode()
}

// read reads an answer.
func (c *Call) read(response *http.Response) error {
	kind := response.Header.Get("Content-Type")
	switch media, _, _ := mime.ParseMediaType(kind); {
	case c.Begin != nil:
		to, err := c.Begin()
		if err != nil {
			return &permanentError{err}
		}
		_, err = io.Copy(writeErrors{to}, response.Body)
		return err
	case c.Out == nil:
		_, err := io.Copy(io.Discard, io.LimitReader(response.Body, maxAnswer))
		return err
	case media != "application/json":
		return &permanentError{fmt.Errorf("the answer is %q and not JSON: is a proxy in between?", kind)}
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
func (a *API) Open(ctx context.Context, c *Call) (response *http.Response, err error) {
	err = a.Try(ctx, c, func(ctx context.Context) (err error) {
		response, err = a.send(ctx, c)
		return err
	})
	return response, err
}

// Socket opens a WebSocket, whose messages have no more than 8 MiB. The caller closes it.
func (a *API) Socket(ctx context.Context, c *Call) (ws *websocket.Conn, err error) {
	err = a.Try(ctx, c, func(ctx context.Context) (err error) {
		shake, stop := context.WithTimeout(ctx, time.Minute)
		defer stop()
		var response *http.Response
		ws, response, err = websocket.Dial(shake, "ws"+strings.TrimPrefix(c.address(), "http"), &websocket.DialOptions{HTTPClient: a.Client, HTTPHeader: c.Header})
		if err != nil && response != nil && response.Body != nil {
			return a.Refused(c, response)
		}
		return err
	})
	if err == nil {
		ws.SetReadLimit(8 << 20)
	}
	return ws, err
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

// Permanent marks an error that no repetition mends.
func Permanent(err error) error { return &permanentError{err} }

// Try calls try, which makes a call in any way, until it succeeds, or more would not help or could do harm. What says no
// in an answer is made an error by [API.Refused].
func (a *API) Try(ctx context.Context, c *Call, try func(context.Context) error) error {
	wait := cmp.Or(a.Wait, 500*time.Millisecond)
	for n := 1; ; n++ {
		err := try(ctx)
		if err == nil {
			return nil
		}
		pause, again := c.again(err, wait)
		if again && n < attempts {
			select {
			case <-ctx.Done():
			case <-time.After(pause):
			}
		}
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		if !again || n == attempts || ctx.Err() != nil {
			return a.named(c, err)
		}
		wait = min(2*wait, maxWait)
	}
}

// again says whether a call may be repeated after an error, and when.
func (c *Call) again(err error, wait time.Duration) (pause time.Duration, again bool) {
	pause = wait/2 + rand.N(wait) // who were refused together do not come again together
	var refused *APIError
	var permanent *permanentError
	switch {
	case errors.As(err, &permanent):
		return 0, false
	case !errors.As(err, &refused):
		return pause, !c.Once || unsent(err)
	case refused.unbegun():
		return max(pause, refused.After), refused.After <= maxAsked
	}
	may := []int{http.StatusRequestTimeout, http.StatusInternalServerError, http.StatusBadGateway, http.StatusGatewayTimeout}
	return max(pause, refused.After), !c.Once && refused.After <= maxAsked && slices.Contains(may, refused.Status)
}

// unsent reports whether a call did not arrive.
func unsent(err error) bool {
	var dial *net.OpError
	return errors.As(err, &dial) && dial.Op == "dial"
}

// unbegun reports whether what was asked for was refused, and not begun, and may be asked for again.
func (e *APIError) unbegun() bool {
	return e.Status == http.StatusTooManyRequests || e.Status == http.StatusServiceUnavailable
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
	var r *http.Request
	if err == nil {
		r, err = http.NewRequestWithContext(ctx, c.Method, c.address(), body)
	}
	if err != nil {
		return nil, &permanentError{err}
	}
	r.Header.Set("User-Agent", "pccrun")
	if body != nil {
		r.ContentLength = size
		r.Header.Set("Content-Type", "application/json")
	}
	maps.Copy(r.Header, c.Header)
	response, err := a.Client.Do(r)
	if err != nil || response.StatusCode/100 == 2 {
		return response, err
	}
	defer response.Body.Close()
	return nil, a.Refused(c, response)
}

// Refused is the error of an answer that says no, by what it says of itself.
func (a *API) Refused(c *Call, response *http.Response) error {
	text, _ := io.ReadAll(io.LimitReader(response.Body, 64<<10))
	e := &APIError{Provider: a.Provider, What: c.What, Status: response.StatusCode}
	var told struct {
		Message any             `json:"message"`
		Error   any             `json:"error"`
		Code    json.RawMessage `json:"code"`
		Own     string          `json:"error_code"`
	}
	if json.Unmarshal(text, &told) == nil {
		e.Code = cmp.Or(told.Own, strings.Trim(string(told.Code), `"`))
		if of, is := told.Error.(map[string]any); is { // which says all
			e.Code, told.Error = fmt.Sprint(of["code"]), of["message"]
		}
		if told.Message == nil {
			told.Message = told.Error
		}
		if told.Message != nil {
			e.Message = a.clean(fmt.Sprint(told.Message))
		}
	}
	after := response.Header.Get("Retry-After")
	if n, err := strconv.ParseInt(after, 10, 32); err == nil {
		e.After = time.Duration(n) * time.Second
	} else if at, err := http.ParseTime(after); err == nil {
		now, err := http.ParseTime(response.Header.Get("Date")) // whose clock it is by
		if err != nil {
			now = time.Now()
		}
		e.After = max(0, at.Sub(now))
	}
	if a.Advise != nil {
		e.advice = a.Advise(e)
	}
	usual := usualAdvice[e.Status]
	if e.Status == http.StatusBadRequest && limited.MatchString(e.Message) {
		usual = usualAdvice[http.StatusTooManyRequests]
	}
	e.advice = cmp.Or(e.advice, a.Advice[e.Status], usual)
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
	text = strings.Map(func(r rune) rune {
		if !strconv.IsPrint(r) {
			return '?'
		}
		return r
	}, strings.Join(strings.Fields(text), " "))
	if len(text) > maxMessage {
		text = text[:maxMessage] + "…"
	}
	return text
}

// named adds what was called, less what nobody should see.
func (a *API) named(c *Call, err error) error {
	var refused *APIError
	if errors.As(err, &refused) {
		return err
	}
	var at *url.Error
	if errors.As(err, &at) {
		err = at.Err // the address has names that say nothing to the user
	}
	return &callError{fmt.Sprintf("%s: %s: %s", a.Provider, c.What, a.clean(err.Error())), err}
}

// A callError is one without an answer.
type callError struct {
	text string
	err  error
}

func (e *callError) Error() string { return e.text }
func (e *callError) Unwrap() error { return e.err }

// HasStatus reports whether an error is an answer of one of these statuses.
func HasStatus(err error, status ...int) bool {
	var e *APIError
	return errors.As(err, &e) && slices.Contains(status, e.Status)
}

// Unclear marks the error of a call that may have done its work: one that was neither
// refused nor kept from arriving.
func Unclear(err error) error {
	var refused *APIError
	if err == nil || unsent(err) || errors.As(err, &refused) && (refused.unbegun() || refused.Status/100 != 5) {
		return err
	}
	return &UnclearError{err}
}
