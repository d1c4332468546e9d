package secrets

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"io"
	"net/url"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"
)

var key = []byte("0123456789abcdef0123456789abcdef")

func placeholder(t testing.TB, secret string) string {
	t.Helper()
	p, err := Placeholder(key, "NAME host", secret)
	require.NoError(t, err)
	return p
}

func TestPlaceholder(t *testing.T) {
	for secret, want := range map[string]struct{ prefix, alphabet string }{
		"sk-ant-api03-" + strings.Repeat("aB3-_", 18):        {"sk-ant-api03-", base62},
		"ghp_" + strings.Repeat("Zz9", 12):                   {"ghp_", base62},
		"github_pat_11ABCDEFG0_" + strings.Repeat("x1Y", 20): {"github_pat_", base62},
		"AIzaSy" + strings.Repeat("Q-q", 11):                 {"", base62},
		"ab-cd_ef":                                           {},
		strings.Repeat("0123", 10):                           {"", digits},
		strings.Repeat("deadbeef", 5):                        {"", hexes},
		"xX-ab-" + strings.Repeat("k", 30):                   {"", base62},
		"sk-short-Abc":                                       {"", base62}, // too little would be left
	} {
		p, err := Placeholder(key, "NAME host", secret)
		if len(secret) < MinLength {
			require.Error(t, err)
			continue
		}
		require.NoError(t, err)
		require.Len(t, p, len(secret))
		require.NotEqual(t, secret, p)
		require.True(t, strings.HasPrefix(p, want.prefix), p)
		require.Empty(t, strings.Trim(p[len(want.prefix):], want.alphabet), p)
		again, err := Placeholder(key, "NAME host", secret)
		require.NoError(t, err)
		require.Equal(t, p, again)
		other, err := Placeholder(key, "OTHER host", secret)
		require.NoError(t, err)
		require.NotEqual(t, p, other)
		other, err = Placeholder([]byte("another key"), "NAME host", secret)
		require.NoError(t, err)
		require.NotEqual(t, p, other)
	}
	a, b := placeholder(t, "sk-ant-api03-"+strings.Repeat("q", 90)), placeholder(t, "sk-ant-api03-"+strings.Repeat("Z", 90))
	require.Equal(t, a, b, "it tells nothing of the secret, and outlives it")
	for _, bad := range []string{"", "short", strings.Repeat("x", MaxLength+1), "with a space in it", "line\nbreak-and-more", "ümlaut-and-more"} {
		_, err := Placeholder(key, "NAME host", bad)
		require.Error(t, err, bad)
	}
}

func read(t testing.TB, r io.Reader, pairs []Pair) string {
	t.Helper()
	out, err := io.ReadAll(NewReader(r, pairs))
	require.NoError(t, err)
	return string(out)
}

func TestReader(t *testing.T) {
	const secret = "sk-secret-0123456789abcdefXYZ+/x"
	pairs := Spellings(secret, placeholder(t, secret))
	for _, text := range []string{
		secret, "a" + secret + "b", secret + secret, strings.Repeat("x", 16<<10-5) + secret + "y", "sk-secret-sk-secret-" + secret, secret[:len(secret)-1],
		`{"echo":"` + url.QueryEscape(secret) + `"}`,
	} {
		for name, r := range map[string]io.Reader{"whole": strings.NewReader(text), "bytes": iotest.OneByteReader(strings.NewReader(text)), "with EOF": iotest.DataErrReader(strings.NewReader(text))} {
			out := read(t, r, pairs)
			require.NotContains(t, out, secret, name)
			require.NotContains(t, out, url.QueryEscape(secret), name)
			require.Equal(t, Replace(text, pairs), out, name)
		}
	}
	require.Equal(t, secret[:20], read(t, strings.NewReader(secret[:20]), pairs), "what only begins like it comes whole")
	for before := range 6 {
		encoded := base64.StdEncoding.EncodeToString([]byte(strings.Repeat("p", before) + secret + "tail"))
		out := read(t, strings.NewReader(encoded), pairs)
		decoded, err := base64.StdEncoding.DecodeString(out)
		if err == nil {
			require.NotContains(t, string(decoded), secret)
		}
		require.NotEqual(t, encoded, out)
	}
}

// TestSpellings has a secret with every character that somebody escapes, sent
// back as the encoders of libraries write it, whole and byte by byte.
func TestSpellings(t *testing.T) {
	const secret = `sk-secret-01/23+45=67&89<ab>cd"ef'gh\ij%kl~mn:op@qr`
	stand := placeholder(t, secret)
	pairs := Spellings(secret, stand)
	inJSON, err := json.Marshal(secret)
	require.NoError(t, err)
	var plain strings.Builder
	e := json.NewEncoder(&plain)
	e.SetEscapeHTML(false)
	require.NoError(t, e.Encode(secret))
	for name, form := range map[string]string{
		"as it is": secret, "json": strings.Trim(string(inJSON), `"`), "json, no HTML": strings.Trim(plain.String(), "\"\n"), "json of PHP": strings.ReplaceAll(strings.Trim(plain.String(), "\"\n"), "/", `\/`),
		"query": url.QueryEscape(secret), "path": url.PathEscape(secret), "query, lower": strings.ReplaceAll(strings.ReplaceAll(strings.ReplaceAll(url.QueryEscape("sk-secret-01/23+45="), "%2F", "%2f"), "%2B", "%2b"), "%3D", "%3d"),
		"html": html.EscapeString(secret), "html, hexadecimal": strings.ReplaceAll(strings.ReplaceAll(html.EscapeString(secret), "&#39;", "&#x27;"), "&#34;", "&quot;"),
		"hex": hex.EncodeToString([]byte(secret)), "HEX": fmt.Sprintf("%X", secret),
	} {
		if name == "query, lower" { // its pair is whole
			pairs := Spellings("sk-secret-01/23+45=", placeholder(t, "sk-secret-01/23+45="))
			require.NotContains(t, Replace(form, pairs), form, name)
			continue
		}
		for _, r := range []io.Reader{strings.NewReader("<" + form + ">"), iotest.OneByteReader(strings.NewReader("<" + form + ">"))} {
			out := read(t, r, pairs)
			require.NotContains(t, out, form, name)
			require.Len(t, out, len(form)+2, name)
		}
	}
	for before := range 3 {
		for _, encoding := range []*base64.Encoding{base64.StdEncoding, base64.URLEncoding, base64.RawURLEncoding} {
			out := read(t, strings.NewReader(encoding.EncodeToString([]byte(strings.Repeat("p", before)+secret))), pairs)
			text, err := encoding.DecodeString(out)
			require.NoError(t, err)
			require.NotContains(t, string(text), secret[4:len(secret)-4])
		}
	}
	require.Len(t, Spellings("0123456789abcdef", "fedcba9876543210"), 5, "a plain one has few: itself, three in base64, one in hexadecimal")
}

// TestReaderPassesOn holds that a stream is not kept waiting.
func TestReaderPassesOn(t *testing.T) {
	in, out := io.Pipe()
	r := NewReader(in, []Pair{{"secret-secret", "xxxxxx-xxxxxx"}})
	buf := make([]byte, 100)
	for _, c := range []struct{ in, out string }{{"data: 1\n\n", "data: 1\n\n"}, {"a sec", "a "}, {"ond\n", "second\n"}, {"secret-secret\n", "xxxxxx-xxxxxx\n"}} {
		go out.Write([]byte(c.in))
		n, err := r.Read(buf)
		require.NoError(t, err)
		require.Equal(t, c.out, string(buf[:n]))
	}
	broken := errors.New("broken")
	go func() {
		out.Write([]byte("sec"))
		out.CloseWithError(broken)
	}()
	n, err := io.ReadFull(r, buf)
	require.Equal(t, 3, n)
	require.ErrorIs(t, err, broken)
	n, err = r.Read(nil)
	require.Zero(t, n)
	require.NoError(t, err)
}

func FuzzReader(f *testing.F) {
	f.Add("abcabcabd", "abcabd", 3)
	f.Add("aaaaaaaaab", "aaab", 1)
	f.Fuzz(func(t *testing.T, text, secret string, size int) {
		if len(secret) < 2 || size < 1 {
			return
		}
		pairs := []Pair{{secret, strings.Repeat("\x00", len(secret))}}
		if strings.Contains(secret, "\x00") {
			return
		}
		out := read(t, &chunks{text, size}, pairs)
		require.Equal(t, strings.ReplaceAll(text, secret, pairs[0].New), out)
	})
}

// chunks reads a text in pieces of one size.
type chunks struct {
	text string
	size int
}

func (c *chunks) Read(b []byte) (int, error) {
	if c.text == "" {
		return 0, io.EOF
	}
	n := copy(b, c.text[:min(c.size, len(c.text))])
	c.text = c.text[n:]
	return n, nil
}
