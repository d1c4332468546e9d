package secrets

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"html/template"
	"io"
	"net/url"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"
	"time"

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
	require.Len(t, Spellings("0123456789abcdef", "fedcba9876543210"), 7+len(numbered), "a plain one has few: itself, three in base64, one in hexadecimal, two of wide characters")
}

// TestWide has a secret in two and in four bytes a character, in either order.
func TestWide(t *testing.T) {
	const secret = "sk-secret-0123456789abcdefXYZ+/x"
	pairs := Spellings(secret, placeholder(t, secret))
	for _, form := range []string{"\x00%s", "%s\x00", "\x00\x00\x00%s", "%s\x00\x00\x00"} {
		wide := ""
		for _, c := range "<" + secret + ">" {
			wide += fmt.Sprintf(form, string(c))
		}
		for _, r := range []io.Reader{strings.NewReader(wide), iotest.OneByteReader(strings.NewReader(wide))} {
			out := read(t, r, pairs)
			require.Len(t, out, len(wide))
			require.NotContains(t, strings.ReplaceAll(out, "\x00", ""), secret[16:])
		}
	}
}

// pauseHere is more than a busy machine makes of itself.
const pauseHere = 20 * time.Millisecond

// A conversation is a stream whose pieces are sent when those before have come.
type conversation struct {
	t   *testing.T
	in  *io.PipeWriter
	out chan string
}

func converse(t *testing.T, pairs []Pair) *conversation {
	r, in := io.Pipe()
	c := &conversation{t, in, make(chan string, 100)}
	s := NewStream(r, pairs)
	s.pause = pauseHere
	t.Cleanup(func() { in.Close(); s.Close() })
	go func() {
		buf := make([]byte, 64<<10)
		for {
			n, err := s.Read(buf)
			if n > 0 {
				c.out <- string(buf[:n])
			}
			if err != nil {
				c.out <- "(" + err.Error() + ")"
				return
			}
		}
	}()
	return c
}

// say sends pieces one behind the other, and returns what comes until much more than a
// pause is over.
func (c *conversation) say(pieces ...string) (heard string) {
	for _, piece := range pieces {
		_, err := io.WriteString(c.in, piece)
		require.NoError(c.t, err)
	}
	return c.hear()
}

func (c *conversation) hear() (heard string) {
	for {
		select {
		case text := <-c.out:
			heard += text
		case <-time.After(8 * pauseHere):
			return heard
		}
	}
}

// TestStreamPassesOn holds that a stream is not kept waiting, but for what nobody says by
// chance.
func TestStreamPassesOn(t *testing.T) {
	c := converse(t, []Pair{{Old: "secret-secret", New: "xxxxxx-xxxxxx"}})
	for _, say := range []struct{ in, out string }{
		{"data: 1\n\n", "data: 1\n\n"}, {"a sec", "a sec"}, {"ond\n", "ond\n"}, {"secret-secret\n", "xxxxxx-xxxxxx\n"},
		{"a secret", "a "}, {"s and on", "secrets and on"}, {"secre", "secre"}, {"t-secret\n", "x-xxxxxx\n"},
	} {
		require.Equal(t, say.out, c.say(say.in))
	}
	require.Equal(t, "xxxxxx-xxxxxx\n", c.say("sec", "ret-s", "ecret\n"), "without a pause none of it")
	require.Empty(t, c.say("secret-s"))
	c.in.CloseWithError(errors.New("broken"))
	require.Equal(t, "secret-s(broken)", c.hear())
	n, err := NewStream(strings.NewReader("x"), nil).Read(nil)
	require.Zero(t, n)
	require.NoError(t, err)
}

// TestStreamWaits: the end of a response's body writes its trailers, at which whoever was
// given the response may still look.
func TestStreamWaits(t *testing.T) {
	r, in := io.Pipe()
	s := NewStream(r, nil)
	defer s.Close()
	heard := make(chan struct{})
	go func() {
		io.WriteString(in, "x")
		close(heard)
	}()
	select {
	case <-heard:
		t.Fatal("read before anything was wanted")
	case <-time.After(50 * time.Millisecond):
	}
	n, err := s.Read(make([]byte, 3))
	require.NoError(t, err)
	require.Equal(t, 1, n)
	<-heard
}

// TestStreamCloses: whoever reads a stream no more leaves nobody behind.
func TestStreamCloses(t *testing.T) {
	before := runtime.NumGoroutine()
	for range 100 {
		r, in := io.Pipe()
		s := NewStream(r, Spellings("0123456789abcdef", "fedcba9876543210"))
		go io.WriteString(in, "some more than is wanted")
		n, err := s.Read(make([]byte, 3))
		require.NoError(t, err)
		require.Equal(t, 3, n)
		s.Close()
		s.Close()
		in.Close()
	}
	require.Eventually(t, func() bool { return runtime.NumGoroutine() <= before+5 }, 20*time.Second, 10*time.Millisecond)
}

// TestNoOracle: whoever has the other end say what he likes, and sees what of it comes
// before the rest, learns nothing of the secret: a guess that is right comes no later
// than one that is wrong, however many characters of the secret are known and as long as
// the next ones have to be guessed one by one.
func TestNoOracle(t *testing.T) {
	const secret = "sk-ant-api03-aB3dE5gH7jK9mN1pQ3sT5vW7yZ9-bD2fG4hJ6kL8"
	stand := placeholder(t, secret)
	pairs := Spellings(secret, stand)
	public := common(secret, stand)
	forms := map[string]func(string) string{
		"as it is": func(s string) string { return s },
		"URL":      func(s string) string { return strings.ReplaceAll(s, "-", "%2D") },
		"hex":      func(s string) string { return hex.EncodeToString([]byte(s)) },
		"base64":   func(s string) string { return base64.StdEncoding.EncodeToString([]byte(s[:len(s)/3*3])) },
		"lines": func(s string) string {
			return strings.ReplaceAll(base64.StdEncoding.EncodeToString([]byte(s[:len(s)/3*3])), "C", "C\n")
		},
		"wide": func(s string) string { return spaced(s, "\x00") },
		"dump": func(s string) string { return written(s, s, numbered[0]) },
	}
	for name, form := range forms {
		for _, known := range []int{public, public + guessable - 1} {
			right := secret[:known+1]
			wrong := secret[:known] + string([]byte{secret[known] ^ 1})
			for _, guess := range []string{right, wrong} {
				if known == public+guessable-1 && guess == right {
					continue // one guess too many: it is the control below
				}
				text := "<" + form(guess)
				require.Equal(t, text, converse(t, pairs).say(text), "%s, %d known: it came", name, known-public)
			}
		}
	}
	// The control: more than anybody guesses waits, and then as long for whatever comes.
	for _, next := range []string{secret[public+guessable+1 : public+guessable+4], "xyz"} {
		require.Equal(t, "<", converse(t, pairs).say("<"+secret[:public+guessable+1], next), next)
	}
	// What a sized body holds back is always as much.
	for _, text := range []string{strings.Repeat("x", 8000), strings.Repeat("x", 8000-20) + secret[:20], strings.Repeat("s", 8000)} {
		in, out := io.Pipe()
		go out.Write([]byte(text))
		n, err := NewReader(in, pairs).Read(make([]byte, 64<<10))
		require.NoError(t, err)
		require.Equal(t, 8000-window(pairs), n)
	}
}

// TestStreamInPieces: of a secret that the other end sends in pieces no more passes than
// its beginning, and what is no secret passes as it is.
func TestStreamInPieces(t *testing.T) {
	for _, secret := range []string{"sk-ant-api03-aB3dE5gH7jK9mN1pQ3sT5vW7yZ9-bD2fG4hJ6kL8", "a1B2c3D4e5F6"} {
		stand := placeholder(t, secret)
		pairs := Spellings(secret, stand)
		most := common(secret, stand) + unguessed(len(secret)-common(secret, stand)) - 1
		for cut := range len(secret) {
			text := "<" + secret + ">"
			in := NewStream(io.MultiReader(strings.NewReader(text[:cut+1]), strings.NewReader(text[cut+1:])), pairs)
			in.pause = time.Minute
			out, err := io.ReadAll(in)
			require.NoError(t, err)
			require.Equal(t, "<"+stand+">", string(out), "no pause between")
			if cut%12 == 0 || cut == most { // it takes its time
				c := converse(t, pairs)
				paused := c.say(text[:cut+1]) + c.say(text[cut+1:])
				require.Len(t, paused, len(text))
				require.LessOrEqual(t, common(secret, paused[1:]), most, "cut at %d: %s", cut, paused)
				require.Contains(t, paused, stand[most:])
			}
		}
		for _, text := range []string{secret[:len(secret)-1] + "!", strings.Repeat(secret[:len(secret)-1], 50), base64.StdEncoding.EncodeToString([]byte(secret[:len(secret)-6]))} {
			for _, size := range []int{1, 7, 100} {
				in := NewStream(&chunks{text, size}, pairs)
				in.pause = time.Minute
				out, err := io.ReadAll(in)
				require.NoError(t, err)
				require.Equal(t, Replace(text, pairs), string(out))
			}
		}
	}
}

// TestEscaped has the spellings of libraries that escape more than others, and of
// texts that were escaped twice. What another secret would be spelled like stays,
// which is the control.
func TestEscaped(t *testing.T) {
	const secret, other = `Ab12-cd/ef+gh=ij_kl~mn`, `Ab12-cd/ef+gh=ij_kl~mX`
	mustache := strings.NewReplacer(`/`, `&#x2F;`, `=`, `&#x3D;`, "`", `&#x60;`)
	gson := strings.NewReplacer(`=`, `\u003d`, `<`, `\u003c`)
	django := strings.NewReplacer(`-`, `\u002D`, `=`, `\u003D`, "`", `\u0060`)
	for name, spell := range map[string]func(string) string{
		"as it is":        func(s string) string { return s },
		"Go, HTML":        func(s string) string { return execute(t, `<p>{{.}}`, s) },
		"Go, attribute":   func(s string) string { return execute(t, `<p title={{.}}>`, s) },
		"Go, script":      func(s string) string { return execute(t, `<script>var x = {{.}}</script>`, s) },
		"Go, URL":         func(s string) string { return execute(t, `<a href="/?k={{.}}">`, s) },
		"mustache":        mustache.Replace,
		"Gson":            gson.Replace,
		"Django":          django.Replace,
		"OWASP, script":   strings.NewReplacer(`-`, `\-`, `/`, `\/`).Replace,
		"OWASP, hex":      strings.NewReplacer(`-`, `\x2d`, `=`, `\x3D`).Replace,
		"names":           strings.NewReplacer(`/`, `&sol;`, `+`, `&plus;`, `=`, `&equals;`, `_`, `&lowbar;`).Replace,
		"zeros":           strings.NewReplacer(`/`, `&#00047;`, `+`, `&#x0002b;`).Replace,
		"HTML twice":      func(s string) string { return html.EscapeString(strings.ReplaceAll(s, `+`, `&#43;`)) },
		"URL twice":       func(s string) string { return url.QueryEscape(url.QueryEscape(s)) },
		"URL, all":        strings.NewReplacer(`-`, `%2D`, `_`, `%5f`, `~`, `%7E`, `/`, `%2F`).Replace,
		"a URL in HTML":   func(s string) string { return html.EscapeString(url.PathEscape(s)) },
		"JSON in JSON":    func(s string) string { return quote(t, quote(t, gson.Replace(s))) },
		"JSON in HTML":    func(s string) string { return html.EscapeString(quote(t, gson.Replace(s))) },
		"HTML in JSON":    func(s string) string { return quote(t, mustache.Replace(s)) },
		"HTML in a URL":   func(s string) string { return url.QueryEscape(mustache.Replace(s)) },
		"JSON in a URL":   func(s string) string { return url.QueryEscape(gson.Replace(s)) },
		"PHP in a URL":    func(s string) string { return url.QueryEscape(strings.ReplaceAll(s, "/", `\/`)) },
		"all three":       func(s string) string { return url.QueryEscape(quote(t, mustache.Replace(s))) },
		"base64 in a URL": func(s string) string { return url.QueryEscape(base64.StdEncoding.EncodeToString([]byte(s + s))) },
		"base64 in PHP": func(s string) string {
			return strings.ReplaceAll(base64.StdEncoding.EncodeToString([]byte(s)), "/", `\/`)
		},
	} {
		pairs := Spellings(secret, placeholder(t, secret))
		form, control := "x"+spell(secret)+"y", "x"+spell(other)+"y"
		for _, r := range []func(string) io.Reader{func(s string) io.Reader { return strings.NewReader(s) }, func(s string) io.Reader { return iotest.OneByteReader(strings.NewReader(s)) }} {
			out := read(t, r(form), pairs)
			require.Len(t, out, len(form), name)
			require.NotContains(t, out, "mn", name)
			if strings.HasPrefix(name, "base64") {
				require.NotEqual(t, form, out)
				continue
			}
			require.NotContains(t, out, "Ab12", name)
			require.Equal(t, control, read(t, r(control), pairs), name)
		}
	}
	pairs := Spellings(secret, placeholder(t, secret))
	require.True(t, InName("X-"+strings.ToUpper(strings.ReplaceAll(secret, "/", "%2f")), pairs))
	require.False(t, InName("X-Ab12", pairs))
}

func execute(t *testing.T, text, s string) string {
	var b strings.Builder
	require.NoError(t, template.Must(template.New("").Parse(text)).Execute(&b, s))
	return b.String()
}

func quote(t *testing.T, s string) string {
	b, err := json.Marshal(s)
	require.NoError(t, err)
	return string(b)
}

// TestEscapedPassesOn: what cannot be a spelling does not wait, and what can waits no
// longer than it has to.
func TestEscapedPassesOn(t *testing.T) {
	c := converse(t, Spellings("ab12-cd/ef+gh", "AB34-CD/EF+GH"))
	for _, say := range []struct{ in, out string }{
		{"50% ", "50% "}, {`C:\`, `C:\`}, {" a & b & ", " a & b & "}, {"x ab12", "x ab12"}, {"\n", "\n"}, {"x ab12%2", "x ab12%2"}, {"E", "E"},
		{"x ab12-cd&#4", "x "}, {"6;ef+gh, and more", "ab12-cd&#46;ef+gh, and more"}, {"x ab12-cd", "x "}, {"/ef&#4|3;gh,", "AB34-CD/EF+GH****,"},
	} {
		require.Equal(t, say.out, c.say(strings.Split(say.in, "|")...))
	}
	require.Empty(t, c.say("ab12-cd%2"))
	c.in.Close()
	require.Equal(t, "ab12-cd%2(EOF)", c.hear(), "at the end it comes")
}

// FuzzEscaped spells a secret in ways that the input chooses: it does not come
// back, and nothing becomes longer.
func FuzzEscaped(f *testing.F) {
	f.Add("ab12-cd/ef+gh", []byte{1, 2, 3, 4, 5, 6}, 3)
	f.Add(`%25\\&amp;`, []byte{0, 1, 0, 2, 3}, 1)
	f.Fuzz(func(t *testing.T, secret string, ways []byte, size int) {
		if len(secret) < 3 || len(secret) > 100 || size < 1 || len(ways) == 0 || strings.Trim(secret, "!\"#$%&'()*+,-./0123456789:;<=>?@ABCDEFGHIJKLMNOPQRSTUVWXYZ[\\]^_`abcdefghijklmnopqrstuvwxyz{|}~") != "" {
			return
		}
		form := "<"
		for i := range len(secret) {
			c := secret[i]
			way := ways[i%len(ways)]
			switch {
			case isPlain(c):
				form += string([]byte{c})
			case way%6 == 1:
				form += fmt.Sprintf("%%%s%02x", strings.Repeat("25", int(way)/6%(nested+1)), c)
			case way%6 == 2:
				form += strings.Repeat(`\`, 1+int(way)/6%backslashes) + fmt.Sprintf("u%04X", c)
			case way%6 == 3:
				form += fmt.Sprintf("&%s#%d;", strings.Repeat("amp;", int(way)/6%(nested+1)), c)
			case way%6 == 4:
				form += fmt.Sprintf("&#x%04x;", c)
			case way%6 == 5 && c != '\\':
				form += `\` + string([]byte{c})
			default:
				form += string([]byte{c})
			}
		}
		form += ">"
		out := read(t, &chunks{form, size}, []Pair{Escaped(secret, strings.Repeat("\x00", len(secret)))})
		require.Equal(t, len(form), len(out))
		require.Contains(t, out, strings.Repeat("\x00", len(secret)))
	})
}

func FuzzReader(f *testing.F) {
	f.Add("abcabcabd", "abcabd", 3)
	f.Add("aaaaaaaaab", "aaab", 1)
	f.Fuzz(func(t *testing.T, text, secret string, size int) {
		if len(secret) < 2 || size < 1 {
			return
		}
		pairs := []Pair{{Old: secret, New: strings.Repeat("\x00", len(secret))}}
		if strings.Contains(secret, "\x00") {
			return
		}
		out := read(t, &chunks{text, size}, pairs)
		require.Equal(t, strings.ReplaceAll(text, secret, pairs[0].New), out)
	})
}

// FuzzSpellings: a body with a secret in any spelling, whole, in part, in lines and beside
// other bytes, comes out as [Replace] makes it, however it comes in.
func FuzzSpellings(f *testing.F) {
	const secret = "ghp_AbC+d/EfGh12=34KlMn&op"
	pairs := Spellings(secret, placeholder(f, secret))
	f.Add([]byte("\x00\x41\x02\x82\xc3\xc4 \r\n%\\&"), uint16(1))
	f.Add([]byte("\xc0\x01\xc1\x41\xc2\x81"), uint16(300))
	f.Fuzz(func(t *testing.T, program []byte, size uint16) {
		if size == 0 || len(program) > 200 {
			return
		}
		var text strings.Builder
		for i, c := range program {
			old := pairs[int(c&0x3f)%len(pairs)].Old
			switch c >> 6 {
			case 0:
				text.WriteString(old)
			case 1:
				text.WriteString(old[:i%len(old)])
			case 2:
				text.WriteByte(c)
				text.WriteString(strings.Repeat(" \r\n%\\&"[i%6:], i%20))
			case 3:
				for width := 1 + i%10; old != ""; old = old[min(width, len(old)):] {
					text.WriteString(old[:min(width, len(old))] + "\r\n")
				}
			}
		}
		want := Replace(text.String(), pairs)
		require.NotContains(t, want, secret)
		stream := NewStream(&chunks{text.String(), int(size)}, pairs)
		stream.pause = time.Minute
		defer stream.Close()
		for _, r := range []*Reader{NewReader(&chunks{text.String(), int(size)}, pairs), stream} {
			got, err := io.ReadAll(r)
			require.NoError(t, err)
			require.Equal(t, want, string(got))
		}
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

// TestLines has a secret in base64 that is broken into lines, as encoders write it and
// as those lines are escaped and indented, and with each character written as a number.
func TestLines(t *testing.T) {
	const secret = "sk-secret-0123456789+abcdefghij/ABCDEFGHIJ-klmnopq~rstuvwxyz"
	stand := placeholder(t, secret)
	pairs := Spellings(secret, stand)
	codes := func(verb, between string) string {
		var list []string
		for i := range len(secret) {
			list = append(list, fmt.Sprintf(verb, secret[i]))
		}
		return strings.Join(list, between)
	}
	forms := map[string]string{
		"URL": codes("%%%02X", ""), "JSON": codes(`\u%04x`, ""), "script": codes(`\x%02X`, ""), "HTML": codes("&#%d;", ""), "HTML, hexadecimal": codes("&#x%X;", ""),
		"dump": codes("%02x", " "), "fingerprint": codes("%02X", ":"), "C": codes("0x%02x", ", "), "node's Buffer": codes("%d", ","), "Python's list": codes("%d", ", "),
	}
	seen := func(form, text string) bool { return strings.Contains(text, form[len(form)/3:len(form)/3*2]) }
	for before := range 3 {
		text := base64.StdEncoding.EncodeToString([]byte(strings.Repeat("p", before) + secret + strings.Repeat("q", 100)))
		for _, width := range []int{4, 19, 40, 64, 76} {
			for _, end := range []string{"\n", "\r\n", "\n    ", `\n`, `\r\n`, `\\n`, `\u000a`, "%0A", "%0d%0a", "%250A", "&#10;", "&#xD;&#xA;", "=\r\n"} {
				var lines []string
				for rest := text; rest != ""; rest = rest[min(width, len(rest)):] {
					lines = append(lines, rest[:min(width, len(rest))])
				}
				forms[fmt.Sprintf("base64 behind %d, %d wide, %q", before, width, end)] = strings.Join(lines, end)
			}
		}
	}
	for name, form := range forms {
		for way, r := range map[string]io.Reader{"whole": strings.NewReader("<" + form + ">"), "byte by byte": iotest.OneByteReader(strings.NewReader("<" + form + ">"))} {
			out := read(t, r, pairs)
			require.Len(t, out, len(form)+2, name)
			if !strings.HasPrefix(name, "base64") {
				require.False(t, seen(form, out), "%s, %s: %s", name, way, out)
				continue
			}
			// What is left of it, with the breaks gone, is not the secret.
			_, after, _ := strings.Cut(name, `, "`)
			end, err := strconv.Unquote(`"` + after)
			require.NoError(t, err)
			b, err := base64.StdEncoding.DecodeString(strings.ReplaceAll(strings.Trim(out, "<>"), end, ""))
			require.NoError(t, err, name)
			require.NotContains(t, string(b), secret[4:len(secret)-4], "%s, %s", name, way)
			require.Contains(t, string(b), strings.Repeat("q", 90), "what is not the secret's stays")
		}
		// The control: without its pairs it comes back.
		require.Contains(t, read(t, strings.NewReader(form), nil), form)
	}
	// And in a field, where a line's end can only be escaped.
	folded := base64.StdEncoding.EncodeToString([]byte(secret))
	folded = folded[:40] + `\n` + folded[40:]
	require.NotEqual(t, folded, Replace(folded, pairs))
}

// TestLinesPassOn: a stream with line breaks is not kept waiting.
func TestLinesPassOn(t *testing.T) {
	c := converse(t, Spellings("0123456789abcdef", "fedcba9876543210"))
	for _, say := range []struct{ in, out string }{
		{"data: 1\r\n\r\n", "data: 1\r\n\r\n"}, {"x MDEy\r", "x MDEy\r"}, {"\n x\n", "\n x\n"}, {"= %0A", "= %0A"},
		{"x MDEyMz\nQ1Njc4", "x "}, {"OW\n fin de la", "MDEyMz\nQ1Njc4OW\n fin de la"},
	} {
		require.Equal(t, say.out, c.say(say.in))
	}
}
