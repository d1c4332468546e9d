package filesync

import (
	"bytes"
	"math/rand/v2"
	"os"
	"regexp/syntax"
	"slices"
	"strings"
	"testing"

	"github.com/BurntSushi/toml"
	"github.com/stretchr/testify/require"
)

// A text that an expression matches, made by chance.
func sample(r *rand.Rand, re *syntax.Regexp, b *strings.Builder) {
	times := func(low, high int) {
		if high < 0 || high > low+40 {
			high = low + 8
		}
		for range low + r.IntN(high-low+1) {
			sample(r, re.Sub[0], b)
		}
	}
	switch re.Op {
	case syntax.OpLiteral:
		b.WriteString(string(re.Rune))
	case syntax.OpCharClass:
		i := 2 * r.IntN(len(re.Rune)/2)
		low, high := re.Rune[i], min(re.Rune[i+1], 0x7e)
		b.WriteRune(low + rune(r.IntN(max(1, int(high-low+1)))))
	case syntax.OpAnyChar, syntax.OpAnyCharNotNL:
		b.WriteByte("abcxyz019"[r.IntN(9)])
	case syntax.OpCapture:
		sample(r, re.Sub[0], b)
	case syntax.OpStar:
		times(0, -1)
	case syntax.OpPlus:
		times(1, -1)
	case syntax.OpQuest:
		times(0, 1)
	case syntax.OpRepeat:
		times(re.Min, re.Max)
	case syntax.OpConcat:
		for _, sub := range re.Sub {
			sample(r, sub, b)
		}
	case syntax.OpAlternate:
		sample(r, re.Sub[r.IntN(len(re.Sub))], b)
	}
}

// What is searched around keywords loses nothing that the expressions match in the whole text.
func TestWindowsLoseNothing(t *testing.T) {
	s, err := loadRules()
	require.NoError(t, err)
	require.Greater(t, len(s.rules), 200)
	r := rand.New(rand.NewPCG(40, 1))
	filler, err := os.ReadFile("secrets.go")
	require.NoError(t, err)
	var published struct{ Rules []secretRule }
	require.NoError(t, toml.Unmarshal(rulesText, &published))
	original := map[string]string{}
	for _, r := range published.Rules {
		original[r.ID] = r.Regex
	}
	count := 0
	for i := range s.rules {
		rule := &s.rules[i]
		text := rule.Regex // as the file has it
		if rule.named {
			text = original[rule.ID]
		}
		tree, err := syntax.Parse(text, syntax.Perl)
		require.NoError(t, err)
		whole := *rule
		whole.named, whole.re = false, lazy(text)
		for range 6 {
			var b strings.Builder
			b.Write(filler[:r.IntN(3000)])
			b.WriteString("\n")
			sample(r, tree, &b)
			b.WriteString("\n")
			b.Write(filler[:r.IntN(3000)])
			text := []byte(b.String())
			lower := strings.ToLower(b.String())
			if !slices.ContainsFunc(rule.Keywords, func(k string) bool { return strings.Contains(lower, strings.ToLower(k)) }) {
				continue // gitleaks itself looks no further
			}
			all, _ := s.match(&whole, "x.txt", text, [2]int{0, len(text)})
			got := s.scan("x.txt", text)
			for _, want := range all {
				if rule.passes("x.txt") {
					continue
				}
				count++
				require.True(t, slices.ContainsFunc(got, func(f found) bool {
					return f.rule == want.rule && f.secret == want.secret || want.rule == generic && strings.Contains(f.secret, want.secret)
				}), "rule %s loses %q", rule.ID, want.secret)
			}
		}
	}
	require.Greater(t, count, 300)
}

// key is a secret of no one's, in two parts, so that this file holds none.
var key = "AKIA" + "Q3EGRIGU5ZL7X2MN"

func TestRead(t *testing.T) {
	s, err := loadRules()
	require.NoError(t, err)
	none := func(string) bool { return false }
	// Across the border of two pieces, and far behind.
	for _, at := range []int{0, 100, piece + overlap - 10, piece + overlap, 3*piece + 17} {
		text := bytes.Repeat([]byte("0123456789abcde\n"), (4*piece)/16)
		copy(text[at/16*16+2:], " "+key+" ")
		var passed bytes.Buffer
		all, err := s.read("x.txt", bytes.NewReader(text), none, func(b []byte) error { passed.Write(b); return nil })
		require.NoError(t, err)
		require.Len(t, all, 1, "at %d", at)
		require.Equal(t, at/16+1, all[0].Line)
		require.Equal(t, "aws-access-token", all[0].Rule)
		require.NotContains(t, all[0].String(), key)
		require.NotContains(t, passed.String(), key, "what is found is not passed")
		require.True(t, bytes.HasPrefix(text, passed.Bytes()))
		passed.Reset()
		again, err := s.read("x.txt", bytes.NewReader(text), func(print string) bool { return print == all[0].Fingerprint }, func(b []byte) error { passed.Write(b); return nil })
		require.NoError(t, err)
		require.Empty(t, again)
		require.True(t, bytes.Equal(text, passed.Bytes()), "all of it, once and in order")
	}
	// A secret elsewhere, or another one, has another fingerprint.
	a, err := s.read("a", strings.NewReader(key), none, nil)
	require.NoError(t, err)
	b, err := s.read("b", strings.NewReader(key), none, nil)
	require.NoError(t, err)
	require.NotEqual(t, a[0].Fingerprint, b[0].Fingerprint)
	_, err = s.read("a", failingReader{}, none, nil)
	require.ErrorContains(t, err, "no more")
}

type failingReader struct{}

func (failingReader) Read([]byte) (int, error) { return 0, errNoMore }

var errNoMore = syntaxError("no more")

type syntaxError string

func (e syntaxError) Error() string { return string(e) }

// What is no secret is none: words, placeholders, and what tools make.
func TestNoSecrets(t *testing.T) {
	s, err := loadRules()
	require.NoError(t, err)
	for file, text := range map[string]string{
		"a.go":              "key := os.Getenv(\"TOKEN\")\nsecret = \"${SECRET}\"\n",
		"a.py":              "password = 'aaaaaaaaaaaaaaaaaaaaaaa'\napi_key = \"<your-api-key>\"",
		"package-lock.json": "\"integrity-key\": \"sha512-Zm9vYmFyMTIzNDU2Nzg5MEFCQ0RFRkc4\"",
		"b.md":              "disk-usage and task-runner, they say",
		"abstract.h":        "int import(gnutls_pubkey_t key,\n\t\tgnutls_pkcs11_obj_t obj);\n",
	} {
		require.Empty(t, s.scan(file, []byte(text)), file)
	}
	require.NotEmpty(t, s.scan("a.py", []byte("api_key = 'zK3vQ9mT"+"1xW7pL5bR2nD8c'")), "control")
	require.NotEmpty(t, s.scan("package-lock.json", []byte("x "+key+" ")), "a key with a prefix of its own is one anywhere")
}

func FuzzScan(f *testing.F) {
	f.Add("a.txt", []byte("token = "+key))
	f.Add("a.txt", []byte("-----BEGIN "+"PRIVATE KEY-----\nxx"))
	s, err := loadRules()
	require.NoError(f, err)
	f.Fuzz(func(t *testing.T, file string, text []byte) {
		for _, got := range s.scan(file, text) {
			require.LessOrEqual(t, got.start, len(text))
		}
	})
}
