package rules

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

func setOf(t testing.TB, texts ...string) *Set {
	t.Helper()
	var list []Rule
	for _, text := range texts {
		r, err := Parse(text)
		require.NoError(t, err)
		list = append(list, r)
	}
	s, err := New(list...)
	require.NoError(t, err)
	return s
}

func TestDecideName(t *testing.T) {
	s := setOf(t, "github.com", "db.example:5000-5010,6000", "*.pkgs.example", ".apex.example:22", "deny evil.pkgs.example", "deny *:25", "mail.example:25",
		"half.example:25-26", "host:5432", "deny half.apex.example:22-60000", "gone.example:443", "deny gone.example:443", "GET https://api.example/v1/*", "every.example:*", "deny every.example:443-65535")
	for name, want := range map[string]Action{
		"github.com": Allow, "GitHub.COM.": Allow, "www.github.com": Deny, "com": Deny, "db.example": Allow, "pkgs.example": Deny, "a.b.pkgs.example": Allow,
		"evil.pkgs.example": Deny, "x.evil.pkgs.example": Deny, "apex.example": Allow, "www.apex.example": Allow, "mail.example": Deny, "half.example": Allow,
		"half.apex.example": Deny, HostName: Allow, "gone.example": Deny, "every.example": Allow, "api.example": Inspect, "": Deny, "1.2.3.4": Deny, "a..b": Deny, "0x7f.1": Deny, "_dmarc.github.com": Deny,
	} {
		require.Equal(t, want, s.DecideName(name).Action, name)
	}
	require.Equal(t, "--allow evil.example", s.DecideName("evil.example").AllowWith)
	require.Equal(t, "--local PORT", setOf(t).DecideName(HostName).AllowWith)
	require.Equal(t, Deny, (*Set)(nil).DecideName("github.com").Action)
	require.Equal(t, Deny, setOf(t).DecideName(HostName).Action)
}

// TestDecideNameAgrees holds it against the slow way: every port.
func TestDecideNameAgrees(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 8 {
		var texts []string
		for range 1 + r.IntN(4) {
			text := []string{"a.example", ".example.net", "*.a.example", "deny a.example", "deny *", "deny .example.net"}[r.IntN(6)]
			lo := 1 + r.IntN(65000)
			texts = append(texts, text+":"+ports(lo, lo+r.IntN(65536-lo)))
		}
		s := setOf(t, texts...)
		for _, name := range []string{"a.example", "b.a.example", "example.net", "www.example.net"} {
			slow := false
			for port := 1; port < 65536 && !slow; port++ {
				slow = s.Decide(name, uint16(port)).Action == Allow
			}
			require.Equal(t, slow, s.DecideName(name).Action == Allow, "%s %q", name, texts)
		}
	}
}

func ports(lo, hi int) string {
	digits := func(n int) string {
		return netip.AddrPortFrom(netip.IPv4Unspecified(), uint16(n)).String()[len("0.0.0.0:"):]
	}
	return digits(lo) + "-" + digits(hi)
}

func TestPrefixesAndPorts(t *testing.T) {
	s := setOf(t, "github.com", "deny 10.20.99.0/24", "10.20.0.0/16:5432", "[2606:4700::]/32:443", "a.example:22,8000-8002", "deny b.example:9999")
	got := s.Prefixes()
	slices.SortFunc(got, func(a, b netip.Prefix) int { return a.Addr().Compare(b.Addr()) })
	require.Equal(t, []netip.Prefix{netip.MustParsePrefix("10.20.0.0/16"), netip.MustParsePrefix("2606:4700::/32")}, got)
	list, all := s.Ports(16)
	require.True(t, all)
	require.Equal(t, []uint16{22, 80, 443, 5432, 8000, 8001, 8002}, list)
	list, all = s.Ports(3)
	require.False(t, all)
	require.Len(t, list, 3)
	require.Nil(t, (*Set)(nil).Prefixes())
	_, all = (*Set)(nil).Ports(1)
	require.True(t, all)
	_, all = setOf(t, "a.example:*").Ports(64)
	require.False(t, all)
}
