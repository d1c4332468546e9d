package network

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestRange(t *testing.T) {
	r := NewRange(0x0123456789)
	require.Equal(t, "fd01:2345:6789:1::/64", r.Names6().String())
	require.Equal(t, "fd01:2345:6789::2", r.own().String())
	require.NotEqual(t, r, NewRange(1))
	require.True(t, r.own().IsPrivate())
	require.Equal(t, "198.18.0.53", Resolver().String())
}

func TestSegments(t *testing.T) {
	text := func(p *Plan, is4 bool) (s string) {
		for _, x := range p.segments(is4) {
			s += fmt.Sprintf("%s-%s %s\n", x.from, x.to, x.chain)
		}
		return s
	}
	prefixes := func(list ...string) (p []netip.Prefix) {
		for _, s := range list {
			p = append(p, netip.MustParsePrefix(s))
		}
		return p
	}
	r := NewRange(0x0123456789)
	require.Equal(t, "127.0.0.0-127.255.255.255 own\n198.18.0.2-198.18.0.2 own\n198.19.0.0-198.19.255.255 capture\n", text(&Plan{Range: r}, true))
	require.Equal(t, "::1-::1 own\nfd01:2345:6789::2-fd01:2345:6789::2 own\nfd01:2345:6789:1::-fd01:2345:6789:1:ffff:ffff:ffff:ffff capture\n", text(&Plan{Range: r}, false))
	require.Equal(t, "0.0.0.0-126.255.255.255 capture\n127.0.0.0-127.255.255.255 own\n128.0.0.0-198.18.0.1 capture\n198.18.0.2-198.18.0.2 own\n198.18.0.3-255.255.255.255 capture\n",
		text(&Plan{Range: r, Allowed: prefixes("10.0.0.0/8", "0.0.0.0/0", "10.1.0.0/16", "::/0")}, true))
	require.Equal(t, "::-:: capture\n::1-::1 own\n::2-fd01:2345:6789::1 capture\nfd01:2345:6789::2-fd01:2345:6789::2 own\nfd01:2345:6789::3-ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff capture\n",
		text(&Plan{Range: r, Allowed: prefixes("::/0")}, false))
	require.Contains(t, text(&Plan{Range: r, Allowed: prefixes("127.0.0.1/32", "198.18.0.2/32", "10.0.0.0/31", "10.0.0.2/31")}, true),
		"10.0.0.0-10.0.0.1 capture\n10.0.0.2-10.0.0.3 capture\n127.0.0.0-127.255.255.255 own\n")
}

// TestSegmentsAgree holds the segments against the prefixes, address by
// address.
func TestSegmentsAgree(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	for range 200 {
		p := &Plan{Range: testRange0}
		for range random.IntN(6) {
			a := [4]byte{[]byte{127, 198, 10}[random.IntN(3)], []byte{0, 18, 19}[random.IntN(3)], byte(random.IntN(3)), byte(random.IntN(4))}
			p.Allowed = append(p.Allowed, netip.PrefixFrom(netip.AddrFrom4(a), 8+random.IntN(25)))
		}
		list := p.segments(true)
		for i := 1; i < len(list); i++ {
			require.True(t, list[i-1].to.Less(list[i].from), "%v", list)
		}
		for range 200 {
			a := netip.AddrFrom4([4]byte{[]byte{127, 198, 10, 9}[random.IntN(4)], []byte{0, 18, 19}[random.IntN(3)], byte(random.IntN(3)), byte(random.IntN(4))})
			want := ""
			if Names4.Contains(a) {
				want = "capture"
			}
			for _, x := range p.Allowed {
				if x.Contains(a) {
					want = "capture"
				}
			}
			if a.IsLoopback() || a == own4 {
				want = "own"
			}
			got := ""
			for _, s := range list {
				if !a.Less(s.from) && !s.to.Less(a) {
					got = s.chain
				}
			}
			require.Equal(t, want, got, "%s in %v", a, p.Allowed)
		}
	}
}

var testRange0 = NewRange(1)
