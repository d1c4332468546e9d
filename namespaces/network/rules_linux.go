package network

import (
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// The table, as nft would print it:
//
//	table inet pccrun {
//	  set alive { type …; flags timeout; elements = { 2 timeout 3s } }   # renewed while the launcher runs
//	  map four { type ipv4_addr : verdict; flags interval
//	    elements = { 127.0.0.0/8 : jump own, 198.18.0.2 : jump own, 198.19.0.0/16 : jump capture, ALLOWED : jump capture } }
//	  map six { the same for IPv6 }
//	  chain own {
//	    tcp dport PORT tcp flags & 0x17 == 2 not @alive reject with tcp reset   # the launcher's; of several a set, @ports
//	    meta l4proto tcp tcp flags & 0x17 == 0x14 limit rate 200/second log prefix "answer" group 1   # nobody listens there
//	    accept
//	  }
//	  chain capture {
//	    tcp flags & 0x17 == 2 not @alive reject with tcp reset
//	    meta l4proto tcp tproxy to :53 accept
//	  }
//	  chain pre { type filter hook prerouting priority mangle
//	    ip daddr vmap @four
//	    ip6 daddr vmap @six
//	    th dport 53 @alive tproxy to :53 accept
//	    limit rate 200/second log group 1
//	    meta l4proto tcp reject with tcp reset
//	    reject with icmpx port-unreachable
//	  }
//	}
//
// All of it is seen twice by each packet's connection, out and back: a reply
// goes to the sandbox's own address, and what belongs to a connection that was
// captured finds its socket by the same tproxy. A TCP segment opens a connection
// if it has SYN (2) of the flags FIN, SYN, RST and ACK (0x17), whatever the others
// say, such as those that ask for ECN (RFC 3168); 2 is also the key of the one
// element. Each expression costs two microseconds of a launch, so there are few.
const (
	table    = "pccrun"
	logGroup = 1

	aliveFor = 3 * time.Second // after the last sign of life
	syn      = 0x02
	opening  = 0x17 // the flags that tell a segment that opens a connection
	closed   = 0x14 // RST and ACK: the answer of a port at which nobody listens

	// Renew is how often a sign of life is due.
	Renew = time.Second
)

// Registers, nf_tables.h: 1 to 4 hold 16 bytes each.
const (
	verdict = unix.NFT_REG_VERDICT
	first   = unix.NFT_REG_1
)

// Attributes of tproxy, nf_tables.h.
const (
	tproxyFamily = 1 // NFTA_TPROXY_FAMILY
	tproxyPort   = 3 // NFTA_TPROXY_REG_PORT
)

// Verdicts, nf_tables.h and netfilter.h.
const (
	accept = 1
	jump   = 1<<32 - 3
)

// mangle is the priority of the chain, NF_IP_PRI_MANGLE: no other has any.
const mangle = 1<<32 - 150

// begin and finish enclose what the kernel is to do as a whole or not at all.
func (w *batch) begin() {
	w.message("begin", unix.NFNL_MSG_BATCH_BEGIN, 0, unix.AF_UNSPEC, unix.NFNETLINK_V0, 0, unix.NFNL_SUBSYS_NFTABLES)
}

func (w *batch) finish() {
	w.acknowledge()
	w.message("end", unix.NFNL_MSG_BATCH_END, 0, unix.AF_UNSPEC, unix.NFNETLINK_V0, 0, unix.NFNL_SUBSYS_NFTABLES)
	w.steps = w.steps[:len(w.steps)-1] // what stands before it is acknowledged
}

func (w *batch) nft(what string, kind, flags uint16) {
	w.message(what, unix.NFNL_SUBSYS_NFTABLES<<8|kind, flags, unix.NFPROTO_INET, unix.NFNETLINK_V0, 0, 0)
}

// ruleset returns the table with everything in it but the allowed addresses
// that are too many for one batch: those follow, in batches of their own.
func (p *Plan) ruleset(log bool) []*batch {
	w := &batch{b: make([]byte, 0, 8<<10), steps: make([]step, 0, 32)}
	ports := slices.Compact(slices.Sorted(slices.Values(p.Ports)))
	w.begin()
	w.nft("make a table of packet rules", unix.NFT_MSG_NEWTABLE, unix.NLM_F_CREATE)
	w.text(unix.NFTA_TABLE_NAME, table)
	w.set("alive", 1, unix.NFT_SET_TIMEOUT)
	w.set("four", 4, unix.NFT_SET_INTERVAL|unix.NFT_SET_MAP)
	w.set("six", 16, unix.NFT_SET_INTERVAL|unix.NFT_SET_MAP)
	if len(ports) > 1 {
		w.set("ports", 2, 0)
	}
	w.chain("own", false)
	w.chain("capture", false)
	w.chain("pre", true)

	match := func() { w.lookup("ports", 0) }
	if len(ports) == 1 { // which costs less than a set
		match = w.is(byte(ports[0]>>8), byte(ports[0]))
	}
	if len(ports) > 0 {
		w.rule("own", "refuse the launcher's ports while it is stopped", w.port, match, w.tcp, w.newlyDead, w.reset)
	}
	if log {
		w.rule("own", "report closed ports", w.tcp, w.closed, w.limit, w.logAnswer)
	}
	w.rule("own", "accept loopback traffic", w.accept)
	w.rule("capture", "deny new connections while the launcher is stopped", w.tcp, w.newlyDead, w.reset)
	w.rule("capture", "capture connections", w.tcp, w.tproxy, w.accept)
	w.rule("pre", "match IPv4", w.family(unix.NFPROTO_IPV4), w.field(unix.NFT_PAYLOAD_NETWORK_HEADER, 16, 4), w.vmap("four"))
	w.rule("pre", "match IPv6", w.family(unix.NFPROTO_IPV6), w.field(unix.NFT_PAYLOAD_NETWORK_HEADER, 24, 16), w.vmap("six"))
	w.rule("pre", "capture DNS queries", w.port, w.is(0, 53), w.alive, w.tproxy, w.accept)
	if log {
		w.rule("pre", "report denied packets", w.limit, w.log)
	}
	w.rule("pre", "refuse TCP", w.tcp, w.reset)
	w.rule("pre", "deny the rest", w.unreachable)

	w.sign(aliveFor)
	if len(ports) > 1 {
		var all []element
		for _, port := range ports {
			all = append(all, element{key: []byte{byte(port >> 8), byte(port)}})
		}
		w.elements("ports", all)
	}
	four, six := p.elements(true), p.elements(false)
	w.elements("six", six[:min(len(six), most)])
	w.elements("four", four[:min(len(four), most)])
	w.finish()
	all := []*batch{w}
	for set, rest := range map[string][]element{"four": four[min(len(four), most):], "six": six[min(len(six), most):]} {
		for ; len(rest) > 0; rest = rest[min(most, len(rest)):] {
			w := &batch{}
			w.begin()
			w.elements(set, rest[:min(most, len(rest))])
			w.finish()
			all = append(all, w)
		}
	}
	return all
}

// closedPorts returns a table that reports closed ports of the loopback, and changes the way of no packet.
func closedPorts() *batch {
	w := &batch{b: make([]byte, 0, 1<<10), steps: make([]step, 0, 8)}
	w.begin()
	w.nft("make a table of packet rules", unix.NFT_MSG_NEWTABLE, unix.NLM_F_CREATE)
	w.text(unix.NFTA_TABLE_NAME, table)
	w.chain("pre", true)
	w.rule("pre", "report closed ports", w.tcp, w.closed, w.limit, w.logAnswer)
	w.finish()
	return w
}

// most is how many elements one message adds: an attribute holds 64 KiB.
const most = 500

// lifeSign returns what makes the kernel accept for that long. The element is
// made anew, since older kernels do not renew one that is there.
func lifeSign(lasts time.Duration) *batch {
	w := &batch{}
	w.begin()
	w.nft("renew", unix.NFT_MSG_DELSETELEM, 0) // all of them: it may have expired
	w.text(unix.NFTA_SET_ELEM_LIST_TABLE, table)
	w.text(unix.NFTA_SET_ELEM_LIST_SET, "alive")
	w.sign(lasts)
	w.finish()
	return w
}

func (w *batch) sign(lasts time.Duration) {
	w.elements("alive", []element{{key: []byte{syn}, timeout: lasts}})
}

// An element of a set or map.
type element struct {
	key     []byte
	end     bool   // of an interval, and no longer in it
	chain   string // of a map: where to jump
	timeout time.Duration
}

// elements returns the intervals of a family: where its packets go.
func (p *Plan) elements(is4 bool) (all []element) {
	for _, s := range p.segments(is4) {
		all = append(all, element{key: s.from.AsSlice(), chain: s.chain})
		if after := s.to.Next(); after.IsValid() {
			all = append(all, element{key: after.AsSlice(), end: true})
		}
	}
	return all
}

func (w *batch) set(name string, length, flags uint32) {
	w.nft("make the set "+name, unix.NFT_MSG_NEWSET, unix.NLM_F_CREATE)
	w.text(unix.NFTA_SET_TABLE, table)
	w.text(unix.NFTA_SET_NAME, name)
	w.be32(unix.NFTA_SET_FLAGS, flags)
	w.be32(unix.NFTA_SET_KEY_TYPE, 0)
	w.be32(unix.NFTA_SET_KEY_LEN, length)
	if flags&unix.NFT_SET_MAP != 0 {
		w.be32(unix.NFTA_SET_DATA_TYPE, unix.NFT_DATA_VERDICT)
	}
	w.be32(unix.NFTA_SET_ID, uint32(len(w.steps)))
}

func (w *batch) elements(set string, all []element) {
	w.nft("fill the set "+set, unix.NFT_MSG_NEWSETELEM, unix.NLM_F_CREATE)
	w.text(unix.NFTA_SET_ELEM_LIST_TABLE, table)
	w.text(unix.NFTA_SET_ELEM_LIST_SET, set)
	w.nest(unix.NFTA_SET_ELEM_LIST_ELEMENTS, func() {
		for _, e := range all {
			w.nest(unix.NFTA_LIST_ELEM, func() {
				w.data(unix.NFTA_SET_ELEM_KEY, e.key...)
				if e.end {
					w.be32(unix.NFTA_SET_ELEM_FLAGS, unix.NFT_SET_ELEM_INTERVAL_END)
				}
				if e.chain != "" {
					w.verdict(unix.NFTA_SET_ELEM_DATA, jump, e.chain)
				}
				if e.timeout > 0 {
					w.be64(unix.NFTA_SET_ELEM_TIMEOUT, uint64(e.timeout.Milliseconds()))
				}
			})
		}
	})
}

// chain makes a chain, hooked in or to be jumped to.
func (w *batch) chain(name string, hooked bool) {
	w.nft("make the chain "+name, unix.NFT_MSG_NEWCHAIN, unix.NLM_F_CREATE)
	w.text(unix.NFTA_CHAIN_TABLE, table)
	w.text(unix.NFTA_CHAIN_NAME, name)
	if !hooked {
		return
	}
	w.nest(unix.NFTA_CHAIN_HOOK, func() {
		w.be32(unix.NFTA_HOOK_HOOKNUM, unix.NF_INET_PRE_ROUTING)
		w.be32(unix.NFTA_HOOK_PRIORITY, mangle)
	})
	w.text(unix.NFTA_CHAIN_TYPE, "filter")
}

// data is a value in an attribute of its own.
func (w *batch) data(kind uint16, value ...byte) {
	w.nest(kind, func() { w.attr(unix.NFTA_DATA_VALUE, value...) })
}

// verdict is what becomes of a packet, in an attribute of its own.
func (w *batch) verdict(kind uint16, code uint32, chain string) {
	w.nest(kind, func() {
		w.nest(unix.NFTA_DATA_VERDICT, func() {
			w.be32(unix.NFTA_VERDICT_CODE, code)
			if chain != "" {
				w.text(unix.NFTA_VERDICT_CHAIN, chain)
			}
		})
	})
}

// rule appends a rule: its expressions one after the other, until one does not
// match.
func (w *batch) rule(chain, what string, expressions ...func()) {
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

// field loads bytes of one of a packet's headers.
func (w *batch) field(base, offset, length uint32) func() {
	return func() {
		w.expression("payload", func() {
			w.be32(unix.NFTA_PAYLOAD_DREG, first)
			w.be32(unix.NFTA_PAYLOAD_BASE, base)
			w.be32(unix.NFTA_PAYLOAD_OFFSET, offset)
			w.be32(unix.NFTA_PAYLOAD_LEN, length)
		})
	}
}

func (w *batch) load(value ...byte) {
	w.expression("immediate", func() {
		w.be32(unix.NFTA_IMMEDIATE_DREG, first)
		w.data(unix.NFTA_IMMEDIATE_DATA, value...)
	})
}

// is compares what was loaded.
func (w *batch) is(value ...byte) func() {
	return func() {
		w.expression("cmp", func() {
			w.be32(unix.NFTA_CMP_SREG, first)
			w.be32(unix.NFTA_CMP_OP, unix.NFT_CMP_EQ)
			w.data(unix.NFTA_CMP_DATA, value...)
		})
	}
}

// mask keeps of what was loaded the bits of value.
func (w *batch) mask(value ...byte) {
	w.expression("bitwise", func() {
		w.be32(unix.NFTA_BITWISE_SREG, first)
		w.be32(unix.NFTA_BITWISE_DREG, first)
		w.be32(unix.NFTA_BITWISE_LEN, uint32(len(value)))
		w.data(unix.NFTA_BITWISE_MASK, value...)
		w.data(unix.NFTA_BITWISE_XOR, make([]byte, len(value))...)
	})
}

func (w *batch) family(f byte) func() {
	return func() { w.meta(unix.NFT_META_NFPROTO); w.is(f)() }
}

func (w *batch) tcp()  { w.meta(unix.NFT_META_L4PROTO); w.is(unix.IPPROTO_TCP)() }
func (w *batch) port() { w.field(unix.NFT_PAYLOAD_TRANSPORT_HEADER, 2, 2)() } // of the destination

// newlyDead matches a segment that opens a connection if the launcher has given
// no sign of life.
func (w *batch) newlyDead() {
	w.flags(syn)
	w.lookup("alive", unix.NFT_LOOKUP_F_INV)
}

func (w *batch) closed() { w.flags(closed) }

func (w *batch) flags(set byte) {
	w.field(unix.NFT_PAYLOAD_TRANSPORT_HEADER, 13, 1)()
	w.mask(opening)
	w.is(set)()
}

func (w *batch) alive() { w.load(syn); w.lookup("alive", 0) }

func (w *batch) lookup(set string, flags uint32) {
	w.expression("lookup", func() {
		w.text(unix.NFTA_LOOKUP_SET, set)
		w.be32(unix.NFTA_LOOKUP_SREG, first)
		w.be32(unix.NFTA_LOOKUP_FLAGS, flags)
	})
}

// vmap does what the map says of what was loaded.
func (w *batch) vmap(name string) func() {
	return func() {
		w.expression("lookup", func() {
			w.text(unix.NFTA_LOOKUP_SET, name)
			w.be32(unix.NFTA_LOOKUP_SREG, first)
			w.be32(unix.NFTA_LOOKUP_DREG, verdict)
		})
	}
}

// tproxy hands the packet to a socket: that of its connection, or the one that
// listens at our port.
func (w *batch) tproxy() {
	w.load(capturePort>>8, capturePort&0xff)
	w.expression("tproxy", func() {
		w.be32(tproxyFamily, unix.NFPROTO_UNSPEC)
		w.be32(tproxyPort, first)
	})
}

func (w *batch) accept() {
	w.expression("immediate", func() {
		w.be32(unix.NFTA_IMMEDIATE_DREG, verdict)
		w.verdict(unix.NFTA_IMMEDIATE_DATA, accept, "")
	})
}

func (w *batch) limit() {
	w.expression("limit", func() {
		w.be64(unix.NFTA_LIMIT_RATE, 200)
		w.be64(unix.NFTA_LIMIT_UNIT, 1) // a second
		w.be32(unix.NFTA_LIMIT_BURST, 200)
	})
}

func (w *batch) log() { w.logAs("") }

func (w *batch) logAnswer() { w.logAs("answer") }

func (w *batch) logAs(prefix string) {
	w.expression("log", func() {
		if prefix != "" {
			w.text(unix.NFTA_LOG_PREFIX, prefix)
		}
		w.attr(unix.NFTA_LOG_GROUP, 0, logGroup)
		w.be32(unix.NFTA_LOG_SNAPLEN, snapshot)
	})
}

func (w *batch) reset() {
	w.expression("reject", func() { w.be32(unix.NFTA_REJECT_TYPE, unix.NFT_REJECT_TCP_RST) })
}

func (w *batch) unreachable() {
	w.expression("reject", func() {
		w.be32(unix.NFTA_REJECT_TYPE, unix.NFT_REJECT_ICMPX_UNREACH)
		w.attr(unix.NFTA_REJECT_ICMP_CODE, unix.NFT_REJECT_ICMPX_PORT_UNREACH)
	})
}
