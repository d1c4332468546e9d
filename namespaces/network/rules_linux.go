package network

import (
	"encoding/binary"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"
)

// The table, as nft would print it:
//
//	table inet pccrun {
//	  set alive { type …; flags timeout }        # one element, renewed while the launcher runs
//	  set ports { type inet_service }            # the launcher's on the sandbox's loopback
//	  set four  { type ipv4_addr; flags interval }
//	  set six   { type ipv6_addr; flags interval }
//	  chain pre { type filter hook prerouting priority mangle
//	    ip daddr 127.0.0.0/8 tcp dport @ports tcp flags syn  (not alive)  reject with tcp reset
//	    ip daddr 127.0.0.0/8 accept; ip daddr 198.18.0.2 accept; ip6 daddr ::1 accept; ip6 daddr OWN accept
//	    tcp flags syn  (not alive)  reject with tcp reset
//	    ip daddr @four  meta l4proto tcp tproxy ip to 198.18.0.1:15001 accept
//	    ip6 daddr @six  meta l4proto tcp tproxy ip6 to [CAPTURE]:15001 accept
//	    th dport 53 …   tcp as above, udp to the responder, for both families
//	    limit rate 200/second log group 1
//	    meta l4proto tcp reject with tcp reset
//	    reject with icmpx port-unreachable
//	  }
//	}
//
// Every packet comes by twice at most, out and back; what belongs to a
// connection that was captured finds its socket by the same tproxy. A reply
// goes to the sandbox's own address, or to the loopback.
const (
	table    = "pccrun"
	chain    = "pre"
	logGroup = 1

	aliveFor = 3 * time.Second // after the last sign of life
	// Renew is how often a sign of life is due.
	Renew = time.Second
)

// register numbers, nf_tables.h: 1 to 4 hold 16 bytes each.
const (
	verdict = unix.NFT_REG_VERDICT
	first   = unix.NFT_REG_1
	second  = unix.NFT_REG_2
)

// The attributes of tproxy, nf_tables.h.
const (
	tproxyFamily = 1 // NFTA_TPROXY_FAMILY
	tproxyAddr   = 2 // NFTA_TPROXY_REG_ADDR
	tproxyPort   = 3 // NFTA_TPROXY_REG_PORT
)

// mangle is the priority of the chain, NF_IP_PRI_MANGLE: no other has any.
const mangle = -150 & 0xffffffff

const syn, synAck = 0x02, 0x12

// begin and finish enclose what the kernel is to do as a whole or not at all.
func (w *batch) begin() {
	w.message("begin", unix.NFNL_MSG_BATCH_BEGIN, 0, unix.AF_UNSPEC, unix.NFNETLINK_V0, 0, unix.NFNL_SUBSYS_NFTABLES)
}

func (w *batch) finish() {
	w.message("end", unix.NFNL_MSG_BATCH_END, 0, unix.AF_UNSPEC, unix.NFNETLINK_V0, 0, unix.NFNL_SUBSYS_NFTABLES)
	w.what = w.what[:len(w.what)-1] // only what stands before it is acknowledged
}

func (w *batch) nft(what string, kind, flags uint16) {
	w.message(what, unix.NFNL_SUBSYS_NFTABLES<<8|kind, flags, unix.NFPROTO_INET, unix.NFNETLINK_V0, 0, 0)
}

// ruleset returns the table with everything in it.
func (p *Plan) ruleset(log bool) *batch {
	w := &batch{b: make([]byte, 0, 8<<10)}
	w.begin()
	w.nft("make a table of packet rules", unix.NFT_MSG_NEWTABLE, unix.NLM_F_CREATE)
	w.text(unix.NFTA_TABLE_NAME, table)
	w.set("alive", 4, unix.NFT_SET_TIMEOUT, nil)
	w.set("ports", 2, 0, ports(p.Ports))
	w.set("four", 4, unix.NFT_SET_INTERVAL, nil)
	w.set("six", 16, unix.NFT_SET_INTERVAL, nil)
	w.nft("hook the rules in", unix.NFT_MSG_NEWCHAIN, unix.NLM_F_CREATE)
	w.text(unix.NFTA_CHAIN_TABLE, table)
	w.text(unix.NFTA_CHAIN_NAME, chain)
	w.nest(unix.NFTA_CHAIN_HOOK, func() {
		w.be32(unix.NFTA_HOOK_HOOKNUM, unix.NF_INET_PRE_ROUTING)
		w.be32(unix.NFTA_HOOK_PRIORITY, mangle)
	})
	w.text(unix.NFTA_CHAIN_TYPE, "filter")

	localhost := netip.MustParsePrefix("127.0.0.0/8")
	w.rule("refuse the launcher's ports while it is stopped", w.to4(localhost), w.newTCP, w.port, w.in("ports"), w.dead, w.reset)
	for _, own := range [...]netip.Prefix{localhost, netip.PrefixFrom(own4, 32)} {
		w.rule("leave the loopback alone", w.to4(own), w.accept)
	}
	for _, own := range [...]netip.Addr{netip.IPv6Loopback(), p.Range.own()} {
		w.rule("leave the loopback alone", w.family(unix.NFPROTO_IPV6), w.daddr6, w.is(own.AsSlice()...), w.accept)
	}
	w.rule("refuse what is new while the launcher is stopped", w.newTCP, w.dead, w.reset)
	four, six := w.tproxy(unix.NFPROTO_IPV4, capture4), w.tproxy(unix.NFPROTO_IPV6, p.Range.capture())
	w.rule("capture IPv4", w.protocol(unix.IPPROTO_TCP), w.family(unix.NFPROTO_IPV4), w.daddr4, w.in("four"), four, w.accept)
	w.rule("capture IPv6", w.protocol(unix.IPPROTO_TCP), w.family(unix.NFPROTO_IPV6), w.daddr6, w.in("six"), six, w.accept)
	dns4 := w.tproxy(unix.NFPROTO_IPV4, netip.AddrPortFrom(resolver4, 53))
	dns6 := w.tproxy(unix.NFPROTO_IPV6, netip.AddrPortFrom(p.Range.resolver(), 53))
	w.rule("capture DNS over TCP", w.protocol(unix.IPPROTO_TCP), w.port, w.is(0, 53), w.family(unix.NFPROTO_IPV4), four, w.accept)
	w.rule("capture DNS over TCP", w.protocol(unix.IPPROTO_TCP), w.port, w.is(0, 53), w.family(unix.NFPROTO_IPV6), six, w.accept)
	w.rule("capture DNS", w.protocol(unix.IPPROTO_UDP), w.port, w.is(0, 53), w.alive, w.family(unix.NFPROTO_IPV4), dns4, w.accept)
	w.rule("capture DNS", w.protocol(unix.IPPROTO_UDP), w.port, w.is(0, 53), w.alive, w.family(unix.NFPROTO_IPV6), dns6, w.accept)
	if log {
		w.rule("report what is refused", w.limit, w.log)
	}
	w.rule("refuse TCP", w.protocol(unix.IPPROTO_TCP), w.reset)
	w.rule("refuse the rest", w.unreachable)
	w.elements("alive", []element{{key: []byte{0, 0, 0, 1}, timeout: aliveFor}})
	w.acknowledge()
	w.finish()
	return w
}

// lifeSign returns what makes the kernel accept for a while longer. The
// element is made anew, since older kernels do not renew one that is there.
func lifeSign() *batch {
	w := &batch{}
	w.begin()
	w.nft("renew", unix.NFT_MSG_DELSETELEM, 0) // all of them: it may have expired
	w.text(unix.NFTA_SET_ELEM_LIST_TABLE, table)
	w.text(unix.NFTA_SET_ELEM_LIST_SET, "alive")
	w.elements("alive", []element{{key: []byte{0, 0, 0, 1}, timeout: aliveFor}})
	w.acknowledge()
	w.finish()
	return w
}

// addresses returns the batches that fill a set with prefixes, each small
// enough for the buffer of a socket.
func addresses(set string, list []netip.Prefix) (batches []*batch) {
	const most = 500 // an attribute holds 64 KiB
	for ; len(list) > 0; list = list[min(most, len(list)):] {
		var all []element
		for _, p := range list[:min(most, len(list))] {
			all = append(all, element{key: p.Addr().AsSlice()})
			if after := afterLast(p); after.IsValid() {
				all = append(all, element{key: after.AsSlice(), end: true})
			}
		}
		w := &batch{}
		w.begin()
		w.elements(set, all)
		w.acknowledge()
		w.finish()
		batches = append(batches, w)
	}
	return batches
}

// afterLast returns the first address behind a prefix, or the zero Addr.
func afterLast(p netip.Prefix) netip.Addr {
	b := p.Masked().Addr().AsSlice()
	for i := p.Bits(); i < 8*len(b); i++ {
		b[i/8] |= 0x80 >> (i % 8)
	}
	last, _ := netip.AddrFromSlice(b)
	return last.Next()
}

// An element of a set.
type element struct {
	key     []byte
	end     bool // of an interval, and no longer in it
	timeout time.Duration
}

func ports(list []uint16) (all []element) {
	for _, port := range list {
		all = append(all, element{key: binary.BigEndian.AppendUint16(nil, port)})
	}
	return all
}

func (w *batch) set(name string, length, flags uint32, all []element) {
	w.nft("make the set "+name, unix.NFT_MSG_NEWSET, unix.NLM_F_CREATE)
	w.text(unix.NFTA_SET_TABLE, table)
	w.text(unix.NFTA_SET_NAME, name)
	w.be32(unix.NFTA_SET_FLAGS, flags)
	w.be32(unix.NFTA_SET_KEY_TYPE, 0)
	w.be32(unix.NFTA_SET_KEY_LEN, length)
	w.be32(unix.NFTA_SET_ID, uint32(len(w.what)))
	if len(all) > 0 {
		w.elements(name, all)
	}
}

func (w *batch) elements(set string, all []element) {
	w.nft("fill the set "+set, unix.NFT_MSG_NEWSETELEM, unix.NLM_F_CREATE)
	w.text(unix.NFTA_SET_ELEM_LIST_TABLE, table)
	w.text(unix.NFTA_SET_ELEM_LIST_SET, set)
	w.nest(unix.NFTA_SET_ELEM_LIST_ELEMENTS, func() {
		for _, e := range all {
			w.nest(unix.NFTA_LIST_ELEM, func() {
				w.data(unix.NFTA_SET_ELEM_KEY, e.key)
				if e.end {
					w.be32(unix.NFTA_SET_ELEM_FLAGS, unix.NFT_SET_ELEM_INTERVAL_END)
				}
				if e.timeout > 0 {
					w.be64(unix.NFTA_SET_ELEM_TIMEOUT, uint64(e.timeout.Milliseconds()))
				}
			})
		}
	})
}

// data is a value in an attribute of its own.
func (w *batch) data(kind uint16, value []byte) {
	w.nest(kind, func() { w.attr(unix.NFTA_DATA_VALUE, value) })
}

// rule appends a rule: its expressions one after the other, until one does not
// match.
func (w *batch) rule(what string, expressions ...func()) {
	w.nft(what, unix.NFT_MSG_NEWRULE, unix.NLM_F_CREATE|unix.NLM_F_APPEND)
	w.text(unix.NFTA_RULE_TABLE, table)
	w.text(unix.NFTA_RULE_CHAIN, chain)
	w.nest(unix.NFTA_RULE_EXPRESSIONS, func() {
		for _, e := range expressions {
			e()
		}
	})
}

func (w *batch) expression(name string, body func()) {
	w.nest(unix.NFTA_LIST_ELEM, func() {
		w.text(unix.NFTA_EXPR_NAME, name)
		w.nest(unix.NFTA_EXPR_DATA, body)
	})
}

func (w *batch) meta(key uint32) {
	w.expression("meta", func() {
		w.be32(unix.NFTA_META_KEY, key)
		w.be32(unix.NFTA_META_DREG, first)
	})
}

// payload loads bytes of a packet's header.
func (w *batch) payload(base, offset, length uint32) {
	w.expression("payload", func() {
		w.be32(unix.NFTA_PAYLOAD_DREG, first)
		w.be32(unix.NFTA_PAYLOAD_BASE, base)
		w.be32(unix.NFTA_PAYLOAD_OFFSET, offset)
		w.be32(unix.NFTA_PAYLOAD_LEN, length)
	})
}

func (w *batch) mask(mask ...byte) {
	w.expression("bitwise", func() {
		w.be32(unix.NFTA_BITWISE_SREG, first)
		w.be32(unix.NFTA_BITWISE_DREG, first)
		w.be32(unix.NFTA_BITWISE_LEN, uint32(len(mask)))
		w.data(unix.NFTA_BITWISE_MASK, mask)
		w.data(unix.NFTA_BITWISE_XOR, make([]byte, len(mask)))
	})
}

func (w *batch) load(register uint32, value []byte) {
	w.expression("immediate", func() {
		w.be32(unix.NFTA_IMMEDIATE_DREG, register)
		w.data(unix.NFTA_IMMEDIATE_DATA, value)
	})
}

// is compares what was loaded.
func (w *batch) is(value ...byte) func() {
	return func() {
		w.expression("cmp", func() {
			w.be32(unix.NFTA_CMP_SREG, first)
			w.be32(unix.NFTA_CMP_OP, unix.NFT_CMP_EQ)
			w.data(unix.NFTA_CMP_DATA, value)
		})
	}
}

func (w *batch) family(f byte) func() {
	return func() { w.meta(unix.NFT_META_NFPROTO); w.is(f)() }
}

func (w *batch) protocol(p byte) func() {
	return func() { w.meta(unix.NFT_META_L4PROTO); w.is(p)() }
}

func (w *batch) daddr4() { w.payload(unix.NFT_PAYLOAD_NETWORK_HEADER, 16, 4) }
func (w *batch) daddr6() { w.payload(unix.NFT_PAYLOAD_NETWORK_HEADER, 24, 16) }
func (w *batch) port()   { w.payload(unix.NFT_PAYLOAD_TRANSPORT_HEADER, 2, 2) }

// to4 matches packets to addresses of an IPv4 prefix.
func (w *batch) to4(p netip.Prefix) func() {
	return func() {
		w.family(unix.NFPROTO_IPV4)()
		w.daddr4()
		if p.Bits() < 32 {
			w.mask(binary.BigEndian.AppendUint32(nil, ^uint32(0)<<(32-p.Bits()))...)
		}
		w.is(p.Addr().AsSlice()...)()
	}
}

// newTCP matches the first packet of a connection.
func (w *batch) newTCP() {
	w.protocol(unix.IPPROTO_TCP)()
	w.payload(unix.NFT_PAYLOAD_TRANSPORT_HEADER, 13, 1)
	w.mask(synAck)
	w.is(syn)()
}

func (w *batch) lookup(set string, flags uint32) {
	w.expression("lookup", func() {
		w.text(unix.NFTA_LOOKUP_SET, set)
		w.be32(unix.NFTA_LOOKUP_SREG, first)
		w.be32(unix.NFTA_LOOKUP_FLAGS, flags)
	})
}

func (w *batch) in(set string) func() { return func() { w.lookup(set, 0) } }

// alive matches while the launcher runs, dead when it does not.
func (w *batch) alive() { w.load(first, []byte{0, 0, 0, 1}); w.lookup("alive", 0) }
func (w *batch) dead()  { w.load(first, []byte{0, 0, 0, 1}); w.lookup("alive", unix.NFT_LOOKUP_F_INV) }

// tproxy hands the packet to a socket: that of its connection, or the one that
// listens at to.
func (w *batch) tproxy(family uint32, to netip.AddrPort) func() {
	return func() {
		w.load(first, to.Addr().AsSlice())
		w.load(second, binary.BigEndian.AppendUint16(nil, to.Port()))
		w.expression("tproxy", func() {
			w.be32(tproxyFamily, family)
			w.be32(tproxyAddr, first)
			w.be32(tproxyPort, second)
		})
	}
}

func (w *batch) accept() {
	w.expression("immediate", func() {
		w.be32(unix.NFTA_IMMEDIATE_DREG, verdict)
		w.nest(unix.NFTA_IMMEDIATE_DATA, func() {
			w.nest(unix.NFTA_DATA_VERDICT, func() { w.be32(unix.NFTA_VERDICT_CODE, 1) }) // NF_ACCEPT
		})
	})
}

func (w *batch) limit() {
	w.expression("limit", func() {
		w.be64(unix.NFTA_LIMIT_RATE, 200)
		w.be64(unix.NFTA_LIMIT_UNIT, 1) // a second
		w.be32(unix.NFTA_LIMIT_BURST, 200)
	})
}

func (w *batch) log() {
	w.expression("log", func() {
		w.attr(unix.NFTA_LOG_GROUP, binary.BigEndian.AppendUint16(nil, logGroup))
		w.be32(unix.NFTA_LOG_SNAPLEN, snapshot)
	})
}

func (w *batch) reset() {
	w.expression("reject", func() { w.be32(unix.NFTA_REJECT_TYPE, unix.NFT_REJECT_TCP_RST) })
}

func (w *batch) unreachable() {
	w.expression("reject", func() {
		w.be32(unix.NFTA_REJECT_TYPE, unix.NFT_REJECT_ICMPX_UNREACH)
		w.attr(unix.NFTA_REJECT_ICMP_CODE, []byte{unix.NFT_REJECT_ICMPX_PORT_UNREACH})
	})
}
