package remote_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pccrun/pccrun/providers/remote"
)

// served starts a server that gives one answer after the other, the last for ever.
func served(t *testing.T, answers ...http.HandlerFunc) (*remote.API, string, *int) {
	n := new(int)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := answers[min(*n, len(answers)-1)]
		*n++
		h(w, r)
	}))
	t.Cleanup(s.Close)
	a := &remote.API{Provider: "cloud", Client: remote.NewClient(nil), Secrets: []string{"hush"}, Wait: time.Millisecond, Advise: func(e *remote.APIError) string { return "advice " + e.Code }}
	return a, s.URL, n
}

func status(code int, body string, header ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		for i := 0; i < len(header); i += 2 {
			w.Header().Set(header[i], header[i+1])
		}
		w.WriteHeader(code)
		_, _ = io.WriteString(w, body)
	}
}

func cut(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }

func TestRepetition(t *testing.T) {
	fine := status(200, `{"a":1}`)
	for name, c := range map[string]struct {
		answers []http.HandlerFunc
		once    bool
		calls   int
		err     string
	}{
		"at once":                      {[]http.HandlerFunc{fine}, false, 1, ""},
		"after errors":                 {[]http.HandlerFunc{status(500, ""), status(502, ""), fine}, false, 3, ""},
		"after a cut":                  {[]http.HandlerFunc{cut, fine}, false, 2, ""},
		"never":                        {[]http.HandlerFunc{status(500, `{"message":"oops"}`)}, false, 6, "cloud: call: 500 Internal Server Error: oops"},
		"an error, once":               {[]http.HandlerFunc{status(500, ""), fine}, true, 1, "cloud: call: 500 Internal Server Error"},
		"a cut, once":                  {[]http.HandlerFunc{cut, fine}, true, 1, "cloud: call: EOF"},
		"refused, once":                {[]http.HandlerFunc{status(429, "", "Retry-After", "0"), status(503, ""), fine}, true, 3, ""},
		"asked to wait for too long":   {[]http.HandlerFunc{status(429, "", "Retry-After", "3600"), fine}, false, 1, "cloud: call: 429 Too Many Requests"},
		"an error, for too long":       {[]http.HandlerFunc{status(502, "", "Retry-After", "3600"), fine}, false, 1, "cloud: call: 502 Bad Gateway"},
		"a mistake":                    {[]http.HandlerFunc{status(400, `{"error":"bad","code":7}`), fine}, false, 1, "cloud: call: 400 Bad Request: bad"},
		"a secret that is sent back":   {[]http.HandlerFunc{status(401, `{"message":"no key hush\u001b[31m"}`)}, false, 1, "cloud: call: 401 Unauthorized: no key …?[31m"},
		"another's page":               {[]http.HandlerFunc{status(200, "<html>", "Content-Type", "text/html")}, false, 1, `cloud: call: the answer is "text/html" and not JSON: is a proxy in between?`},
		"half an answer, then a whole": {[]http.HandlerFunc{status(200, `{"a":`), fine}, false, 2, ""},
		"a redirect":                   {[]http.HandlerFunc{status(302, "", "Location", "http://127.0.0.1:1/"), fine}, false, 1, "cloud: call: 302 Found"},
	} {
		t.Run(name, func(t *testing.T) {
			a, url, n := served(t, c.answers...)
			var out struct{ A int }
			_, err := a.Do(t.Context(), &remote.Call{What: "call", Method: "POST", URL: url, In: "x", Out: &out, Once: c.once})
			require.Equal(t, c.calls, *n)
			if c.err == "" {
				require.NoError(t, err)
				require.Equal(t, 1, out.A)
				return
			}
			require.EqualError(t, err, c.err)
			var e *remote.APIError
			if errors.As(err, &e) {
				require.Equal(t, "advice "+e.Code, e.Hint())
			}
		})
	}
}

func TestRetryAfterIsHeeded(t *testing.T) {
	now := time.Now().UTC()
	for _, headers := range [][]string{{"Retry-After", "1"}, {"Date", now.Format(http.TimeFormat), "Retry-After", now.Add(time.Second).Format(http.TimeFormat)}} {
		a, url, _ := served(t, status(429, "", headers...), status(200, "{}"))
		begun := time.Now()
		_, err := a.Do(t.Context(), &remote.Call{What: "call", Method: "GET", URL: url})
		require.NoError(t, err)
		require.GreaterOrEqual(t, time.Since(begun), time.Second)
	}
}

func TestDeadlines(t *testing.T) {
	hang := func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }
	a, url, n := served(t, hang, status(200, "{}"))
	_, err := a.Do(t.Context(), &remote.Call{What: "call", Method: "GET", URL: url, Limit: time.Second})
	require.NoError(t, err, "the second attempt, or one after it where the machine is slow")
	require.GreaterOrEqual(t, *n, 2)

	a, url, _ = served(t, hang)
	_, err = a.Do(t.Context(), &remote.Call{What: "call", Method: "GET", URL: url, Limit: 50 * time.Millisecond, Once: true})
	require.EqualError(t, err, "cloud: call: no answer within 50ms")

	ctx, cancel := context.WithTimeoutCause(t.Context(), 50*time.Millisecond, errors.New("enough"))
	defer cancel()
	_, err = a.Do(ctx, &remote.Call{What: "call", Method: "GET", URL: url})
	require.EqualError(t, err, "cloud: call: enough")
}

func TestCopyIsWholeOrAnew(t *testing.T) {
	half := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "10")
		_, _ = io.WriteString(w, "01234")
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	}
	a, url, _ := served(t, half, status(200, "0123456789"))
	var b *bytes.Buffer
	_, err := a.Do(t.Context(), &remote.Call{What: "fetch", Method: "GET", URL: url, Begin: func() (io.Writer, error) { b = new(bytes.Buffer); return b, nil }})
	require.NoError(t, err)
	require.Equal(t, "0123456789", b.String())

	full := errors.New("no space left")
	_, err = a.Do(t.Context(), &remote.Call{What: "fetch", Method: "GET", URL: url, Begin: func() (io.Writer, error) { return nil, full }})
	require.EqualError(t, err, "cloud: fetch: no space left")
	require.ErrorIs(t, err, full)
	_, err = a.Do(t.Context(), &remote.Call{What: "fetch", Method: "GET", URL: url, Begin: func() (io.Writer, error) { return failing{full}, nil }})
	require.ErrorIs(t, err, full)
}

type failing struct{ err error }

func (f failing) Write([]byte) (int, error) { return 0, f.err }

func TestUnclear(t *testing.T) {
	var unclear *remote.UnclearError
	for _, clear := range []int{400, 401, 429, 503} {
		a, url, _ := served(t, status(clear, "", "Retry-After", "3600"))
		_, err := a.Do(t.Context(), &remote.Call{What: "call", Method: "POST", URL: url, Once: true})
		require.False(t, errors.As(remote.Unclear(err), &unclear), "%d", clear)
	}
	a, url, _ := served(t, cut)
	_, err := a.Do(t.Context(), &remote.Call{What: "call", Method: "POST", URL: url, Once: true})
	require.ErrorAs(t, remote.Unclear(err), &unclear)
	require.Contains(t, unclear.Error(), "cloud: call")
	a, _, _ = served(t, cut)
	a.Wait = time.Nanosecond
	_, err = a.Do(t.Context(), &remote.Call{What: "call", Method: "POST", URL: "http://127.0.0.1:1/", Once: true})
	require.ErrorContains(t, err, "refused")
	require.False(t, errors.As(remote.Unclear(err), &unclear), "it did not arrive")
}

func TestAddressesForKeys(t *testing.T) {
	for base, fine := range map[string]bool{
		"https://api.example.com": true, "http://127.0.0.1:80": true, "http://[::1]:80": true, "http://localhost": true,
		"http://api.example.com": false, "ftp://x": false, "https://": false, "https://u:p@x": false, "": false, "https://x?key=1": false,
	} {
		err := remote.CheckBase("NAME", base)
		require.Equal(t, fine, err == nil, "%s: %v", base, err)
		require.True(t, fine || strings.HasPrefix(err.Error(), "NAME: "))
	}
}
