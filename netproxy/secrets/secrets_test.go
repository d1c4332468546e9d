package secrets

import (
	"encoding/base64"
	"errors"
	"io"
	"net/url"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pccrun/pccrun/internal/await"
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

// TestSpellings has a secret with every character that somebody escapes, sent back as it
// is, in base64, and as URLs escape these, whole and byte by byte. The control is another
// secret.
func TestSpellings(t *testing.T) {
	const secret, other = `sk-secret-01/23+45=67&89<ab>cd"ef'gh\ij%kl~mn:op@qr`, `sk-secret-01/23+45=67&89<ab>cd"ef'gh\ij%kl~mn:op@qx`
	pairs := Spellings(secret, placeholder(t, secret))
	lower := func(s string) string {
		return regexp.MustCompile("%..").ReplaceAllStringFunc(s, strings.ToLower)
	}
	coded := func(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }
	for name, spell := range map[string]func(string) string{
		"as it is": func(s string) string { return s }, "query": url.QueryEscape, "path": url.PathEscape, "query, lower": func(s string) string { return lower(url.QueryEscape(s)) },
		"base64 in a query": func(s string) string { return url.QueryEscape(coded(s + s)) }, "base64 in a query, lower": func(s string) string { return lower(url.QueryEscape(coded(s + s))) },
	} {
		form, control := "<"+spell(secret)+">", "<"+spell(other)+">"
		for _, r := range []func(string) io.Reader{func(s string) io.Reader { return strings.NewReader(s) }, func(s string) io.Reader { return iotest.OneByteReader(strings.NewReader(s)) }} {
			out := read(t, r(form), pairs)
			require.Len(t, out, len(form), name)
			if strings.HasPrefix(name, "base64") {
				require.NotContains(t, out, form[10:60], name)
				continue
			}
			require.NotContains(t, out, "secret-01", name)
			require.Equal(t, control, read(t, r(control), pairs), name)
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
	require.Len(t, Spellings("0123456789abcdef", "fedcba9876543210"), 4, "a plain one has few: itself, and three in base64")
	require.True(t, InName("X-"+strings.ToUpper(secret), pairs))
	require.False(t, InName("X-Secret", pairs))
}

// A conversation is a stream whose pieces are sent when those before have come. It is one of
// a synctest bubble, in which a busy machine makes no pauses.
type conversation struct {
	t   *testing.T
	in  *io.PipeWriter
	out chan string
}

func converse(t *testing.T, pairs []Pair) *conversation {
	r, in := io.Pipe()
	c := &conversation{t, in, make(chan string, 100)}
	s := NewStream(r, pairs)
	t.Cleanup(func() { in.Close() }) // which ends both who read
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
// pause is over, of the bubble's clock.
func (c *conversation) say(pieces ...string) (heard string) {
	for _, piece := range pieces {
		_, err := io.WriteString(c.in, piece)
		require.NoError(c.t, err)
	}
	return c.hear()
}

func (c *conversation) hear() (heard string) {
	for {
		time.Sleep(8 * pause)
		synctest.Wait()
		select {
		case text := <-c.out:
			heard += text
		default:
			return heard
		}
	}
}

// TestStreamPassesOn holds that a stream is not kept waiting, but for what nobody says by
// chance.
func TestStreamPassesOn(t *testing.T) { synctest.Test(t, streamPassesOn) }

func streamPassesOn(t *testing.T) {
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
func TestStreamWaits(t *testing.T) { synctest.Test(t, streamWaits) }

func streamWaits(t *testing.T) {
	r, in := io.Pipe()
	s := NewStream(r, nil)
	defer s.Close()
	heard := make(chan struct{})
	go func() {
		io.WriteString(in, "x")
		close(heard)
	}()
	synctest.Wait()
	select {
	case <-heard:
		t.Fatal("read before anything was wanted")
	default:
	}
	n, err := s.Read(make([]byte, 3))
	require.NoError(t, err)
	require.Equal(t, 1, n)
	<-heard
	in.Close()
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
	await.Until(t, "nobody is left behind", func() bool { return runtime.NumGoroutine() <= before+5 })
}

// TestNoOracle: whoever has the other end say what he likes, and sees what of it comes
// before the rest, learns nothing of the secret: a guess that is right comes no later
// than one that is wrong, however many characters of the secret are known and as long as
// the next ones have to be guessed one by one.
func TestNoOracle(t *testing.T) { synctest.Test(t, noOracle) }

func noOracle(t *testing.T) {
	const secret = "sk-ant-api03-aB3dE5gH7jK9mN1pQ3sT5vW7yZ9-bD2fG4hJ6kL8"
	stand := placeholder(t, secret)
	pairs := Spellings(secret, stand)
	public := common(secret, stand)
	forms := map[string]func(string) string{
		"as it is": func(s string) string { return s },
		"base64":   func(s string) string { return base64.StdEncoding.EncodeToString([]byte(s[:len(s)/3*3])) },
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
func TestStreamInPieces(t *testing.T) { synctest.Test(t, streamInPieces) }

func streamInPieces(t *testing.T) {
	for _, secret := range []string{"sk-ant-api03-aB3dE5gH7jK9mN1pQ3sT5vW7yZ9-bD2fG4hJ6kL8", "a1B2c3D4e5F6"} {
		stand := placeholder(t, secret)
		pairs := Spellings(secret, stand)
		most := common(secret, stand) + unguessed(len(secret)-common(secret, stand)) - 1
		for cut := range len(secret) {
			text := "<" + secret + ">"
			in := NewStream(io.MultiReader(strings.NewReader(text[:cut+1]), strings.NewReader(text[cut+1:])), pairs)
			in.pause = await.Patience
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
				in.pause = await.Patience
				out, err := io.ReadAll(in)
				require.NoError(t, err)
				require.Equal(t, Replace(text, pairs), string(out))
			}
		}
	}
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
		stream.pause = await.Patience
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
