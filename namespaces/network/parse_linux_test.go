package network

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

func packet4(protocol byte, ports ...byte) []byte {
	b := make([]byte, 20, 28)
	b[0], b[9] = 0x45, protocol
	copy(b[16:], []byte{8, 8, 4, 4})
	return append(b, ports...)
}

func packet6(protocol byte, ports ...byte) []byte {
	b := make([]byte, 40, 48)
	b[0], b[6] = 0x60, protocol
	b[24], b[39] = 0x26, 1
	return append(b, ports...)
}

func TestParsePacket(t *testing.T) {
	for name, c := range map[string]struct {
		packet []byte
		want   string
	}{
		"tcp":              {packet4(6, 1, 2, 1, 187), "tcp 8.8.4.4:443"},
		"udp":              {packet4(17, 1, 2, 0, 53), "udp 8.8.4.4:53"},
		"ping":             {packet4(1, 8, 0, 1, 2), "icmp 8.8.4.4:0"},
		"sctp":             {packet4(132, 8, 0, 1, 2), " 8.8.4.4:0"},
		"tcp6":             {packet6(6, 1, 2, 1, 187), "tcp [2600::1]:443"},
		"udp6":             {packet6(17, 1, 2, 0, 53), "udp [2600::1]:53"},
		"ping6":            {packet6(58, 1, 2), "icmp [2600::1]:0"},
		"hop-by-hop":       {packet6(0, 6, 0, 1, 4, 0, 0, 0, 0, 1, 2, 1, 187), "tcp [2600::1]:443"},
		"long destination": {packet6(60, append([]byte{17, 1, 1, 12, 15: 0}, 1, 2, 0, 53)...), "udp [2600::1]:53"},
		"two extensions":   {packet6(43, 60, 0, 2, 0, 0, 0, 0, 0, 58, 0, 1, 4, 0, 0, 0, 0, 8, 0), "icmp [2600::1]:0"},
		"first fragment":   {packet6(44, 6, 0, 0, 1, 0, 0, 0, 7, 1, 2, 1, 187), "tcp [2600::1]:443"},
		"later fragment":   {packet6(44, 6, 0, 0, 9, 0, 0, 0, 7, 1, 2, 1, 187), " [2600::1]:0"},
		"cut extension":    {packet6(0, 6, 1, 1, 12, 0, 0, 0, 0, 1, 2, 1, 187), " [2600::1]:0"},
		"no extension":     {packet6(0, 6), " [2600::1]:0"},
		"cut":              {packet4(6, 1, 2, 1), ""},
		"short":            {packet4(6)[:19], ""},
		"short6":           {packet6(6)[:39], ""},
		"empty":            {nil, ""},
		"version":          {append([]byte{0x55}, packet4(6, 1, 2, 3, 4)[1:]...), ""},
		"header too long":  {append([]byte{0x4f}, packet4(6, 1, 2, 3, 4)[1:]...), ""},
		"header too short": {append([]byte{0x44}, packet4(6, 1, 2, 3, 4)[1:]...), ""},
	} {
		r, ok := parsePacket(c.packet, false)
		require.Equal(t, c.want != "", ok, name)
		if ok {
			require.Equal(t, c.want, r.Protocol+" "+r.To.String(), name)
		}
	}
	fragment := packet4(17, 0, 0, 0, 53)
	fragment[7] = 1
	r, ok := parsePacket(fragment, false)
	require.True(t, ok)
	require.Equal(t, Refusal{"", netip.MustParseAddrPort("8.8.4.4:0"), false}, r)

	// An answer to the first segment, one that ends a connection, and one from another address.
	own := packet4(6, 0, 81, 3, 4, 0, 0, 0, 0)
	copy(own[16:], []byte{127, 0, 0, 1})
	r, ok = parsePacket(own, true)
	require.True(t, ok)
	require.Equal(t, Refusal{"tcp", netip.MustParseAddrPort("127.0.0.1:81"), true}, r)
	own[27] = 1
	_, ok = parsePacket(own, true)
	require.False(t, ok)
	_, ok = parsePacket(packet4(6, 0, 81, 3, 4, 0, 0, 0, 0), true)
	require.False(t, ok)
}

func FuzzParsePacket(f *testing.F) {
	f.Add(packet4(6, 1, 2, 3, 4))
	f.Add(packet6(17, 1, 2, 3, 4))
	f.Add(packet6(0, 60, 0, 1, 4, 0, 0, 0, 0, 6, 0, 1, 4, 0, 0, 0, 0, 1, 2, 1, 187))
	f.Fuzz(func(t *testing.T, b []byte) {
		if r, ok := parsePacket(b, false); ok && !r.To.Addr().IsValid() {
			t.Fatalf("%x", b)
		}
	})
}

// FuzzMessages reads what a kernel might send.
func FuzzMessages(f *testing.F) {
	w := (&Plan{Range: NewRange(1)}).Prepare()
	f.Add(w.routes.b)
	f.Add(w.rules[0].b)
	f.Add([]byte{16, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0})
	// A packet that was refused, whole, and without what pads its last attribute.
	packet := packet4(17, 1, 2, 0)
	log := &batch{}
	log.message("", unix.NFNL_SUBSYS_ULOG<<8|logMessage, 0, &nl.Nfgenmsg{}, attr(logPayload, packet...))
	f.Add(log.b)
	f.Add(append([]byte{byte(len(log.b) - 1)}, log.b[1:len(log.b)-1]...))
	f.Fuzz(func(t *testing.T, b []byte) {
		parseRefusals(b, func(r Refusal) {
			if !r.To.Addr().IsValid() {
				t.Fatalf("%x", b)
			}
		})
	})
}
