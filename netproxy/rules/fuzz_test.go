package rules

import (
	"fmt"
	"net/netip"
	"net/url"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

func FuzzParse(f *testing.F) {
	for _, text := range tableRules {
		f.Add(text)
	}
	f.Add("@npm")
	f.Add("private *.x.example:*")
	f.Add("https://[2606::1]:8443/a/*/b/**")
	f.Add("deny [fd00::]/8")
	f.Fuzz(func(t *testing.T, text string) {
		r, err := Parse(text)
		if err != nil {
			require.Zero(t, r)
			return
		}
		if r.Group() != "" {
			return
		}
		s, err := New(r)
		require.NoError(t, err)
		if r.Deny() {
			require.True(t, s.Empty())
		}
		// What one rule allows is never a guarded address by way of its name.
		if r.kind == kindName && !r.private {
			v := s.Decide(r.name, r.ports[0].lo)
			require.NotEqual(t, ByDefault, v.Reason, "a rule matches its own name")
			require.Equal(t, Deny, s.DecideAddr(v, netip.MustParseAddr("10.0.0.1"), false).Action)
		}
		// Parsing has no memory, and a deny has the last word.
		again, err := Parse(text)
		require.NoError(t, err)
		require.Equal(t, r, again)
		all, err := Parse("deny *")
		require.NoError(t, err)
		s, err = New(r, all)
		require.NoError(t, err)
		for _, host := range []string{r.example(), "a.com", "10.0.0.1", HostName} {
			require.Equal(t, Deny, s.Decide(host, 443).Action)
		}
	})
}

func FuzzParseLocal(f *testing.F) {
	f.Add("5432")
	f.Add("localhost:5432")
	f.Fuzz(func(t *testing.T, text string) {
		r, err := ParseLocal(text)
		if err != nil {
			return
		}
		require.Equal(t, strings.TrimPrefix(text, "localhost:"), fmt.Sprint(r.ports[0].lo))
		s, err := New(r)
		require.NoError(t, err)
		require.Equal(t, Allow, s.Decide(HostName, r.ports[0].lo).Action)
	})
}

func FuzzDecide(f *testing.F) {
	s := set(f, tableRules...)
	for _, host := range []string{"github.com", "a.pkgs.example", "bücher.example", "10.20.1.1", "::1", "0x7f.1", "host.pccrun.internal", "a%2e.pkgs.example", "xn--a.pkgs.example"} {
		f.Add(host, uint16(443), []byte{8, 8, 8, 8})
	}
	f.Add("pg.corp.example", uint16(5432), []byte{10, 20, 1, 1})
	f.Fuzz(func(t *testing.T, host string, port uint16, ip []byte) {
		v := s.Decide(host, port)
		if v.Action == Deny {
			require.NotEmpty(t, v.Reason)
			require.False(t, v.Local)
			return
		}
		require.Empty(t, v.Reason)
		require.NotEmpty(t, v.Rule)
		// What is allowed is spelled in one way, and deciding again changes nothing.
		require.Equal(t, v.Host, strings.ToLower(v.Host))
		require.True(t, utf8.ValidString(v.Host))
		require.NotContains(t, v.Host, "%")
		require.Equal(t, v, s.Decide(v.Host, port))
		if a, ok := netip.AddrFromSlice(ip); ok {
			d := s.DecideAddr(v, a, false)
			if d.Action == Allow && !v.Local {
				g := guardOf(Inner(a.Unmap()))
				require.True(t, g.class == "" || s.lifts(g, Inner(a.Unmap()), port))
			}
		}
	})
}

func FuzzRequest(f *testing.F) {
	s := set(f, "GET https://a.com/ok/**", "deny https://a.com/ok/secret/**")
	f.Add("/ok/x")
	f.Add("/ok/%2e%2e/x")
	f.Add("/ok/%252e/x")
	f.Add("/ok/secret;x/y")
	f.Fuzz(func(t *testing.T, path string) {
		v := s.DecideRequest("a.com", 443, Request{"https", "a.com", "GET", path})
		if v.Action != Allow {
			return
		}
		plain, _, _ := strings.Cut(path, "?")
		decoded, _ := url.PathUnescape(plain)
		require.False(t, strings.HasPrefix(strings.ToLower(decoded), "/ok/secret/"), path)
		for range 3 {
			for part := range strings.SplitSeq(plain, "/") {
				require.NotEqual(t, "..", part)
				require.NotEqual(t, ".", part)
			}
			next, err := url.PathUnescape(plain)
			if err != nil {
				break
			}
			plain = next
		}
	})
}

// manyRules is a set of 1,500.
func manyRules(t testing.TB) *Set {
	texts := []string{}
	for i := range 500 {
		texts = append(texts, fmt.Sprintf("*.zone%d.example:443", i), fmt.Sprintf("deny host%d.zone%d.example", i, i),
			fmt.Sprintf("10.%d.%d.0/24:5432", i/250, i%250))
	}
	return set(t, texts...)
}

// TestManyRules: of 1,500 rules each decides what it is for, and no other says anything of it.
func TestManyRules(t *testing.T) {
	s := manyRules(t)
	require.Len(t, s.Texts(), 1500)
	for i := range 500 {
		zone := fmt.Sprintf("zone%d.example", i)
		require.Equal(t, "*."+zone+":443", s.Decide("a."+zone, 443).Rule)
		require.Equal(t, ByRule, s.Decide(fmt.Sprintf("host%d.%s", i, zone), 443).Reason)
		require.Equal(t, Allow, s.Decide(fmt.Sprintf("10.%d.%d.7", i/250, i%250), 5432).Action)
		require.Len(t, s.matching(Verdict{Host: "a." + zone, Port: 443}), 1)
	}
}

func BenchmarkDecide(b *testing.B) {
	s := manyRules(b)
	for _, host := range []string{"a.b.c.zone499.example", "host7.zone7.example", "nowhere.example.com", "10.1.249.7", "10.200.0.1"} {
		b.Run(host, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				v := s.Decide(host, 443)
				s.DecideAddr(v, netip.Addr{}, false)
			}
		})
	}
	b.Run("address", func(b *testing.B) {
		v := s.Decide("a.zone1.example", 443)
		a := netip.MustParseAddr("140.82.112.3")
		for b.Loop() {
			s.DecideAddr(v, a, false)
		}
	})
}
