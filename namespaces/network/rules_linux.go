package network

import (
	"slices"
	"time"

	"github.com/vishvananda/netlink/nl"
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

// first is a register of nf_tables.h: 1 to 4 hold 16 bytes each.
const first = unix.NFT_REG_1

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
	w.message("begin", unix.NFNL_MSG_BATCH_BEGIN, 0, &nl.Nfgenmsg{ResId: nl.Swap16(unix.NFNL_SUBSYS_NFTABLES)})
}

func (w *batch) finish() {
	w.acknowledge()
	w.message("end", unix.NFNL_MSG_BATCH_END, 0, &nl.Nfgenmsg{ResId: nl.Swap16(unix.NFNL_SUBSYS_NFTABLES)})
	w.steps = w.steps[:len(w.steps)-1] // what stands before it is acknowledged
}

func (w *batch) nft(what string, kind, flags uint16, attributes ...*nl.RtAttr) {
	w.message(what, unix.NFNL_SUBSYS_NFTABLES<<8|kind, flags, &nl.Nfgenmsg{NfgenFamily: unix.NFPROTO_INET}, attributes...)
}

// newTable begins a batch that makes the table.
func newTable() *batch {
	w := &batch{b: make([]byte, 0, 8<<10)}
	w.begin()
	w.nft("make a table of packet rules", unix.NFT_MSG_NEWTABLE, unix.NLM_F_CREATE, text(unix.NFTA_TABLE_NAME, table))
	return w
}

// ruleset returns the table with everything in it but the allowed addresses
// that are too many for one batch: those follow, in batches of their own.
func (p *Plan) ruleset(log bool) []*batch {
	toPort := payload(unix.NFT_PAYLOAD_TRANSPORT_HEADER, 2, 2)
	alive := slices.Concat(load(syn), lookup("alive", 0))
	// A segment that opens a connection, where the launcher has given no sign of life.
	newlyDead := slices.Concat(flags(syn), lookup("alive", unix.NFT_LOOKUP_F_INV))
	// To a socket: that of the packet's connection, or the one that listens at our port.
	tproxy := slices.Concat(load(capturePort>>8, capturePort&0xff),
		expression("tproxy", be32(tproxyFamily, unix.NFPROTO_UNSPEC), be32(tproxyPort, first)))
	accepted := expression("immediate", be32(unix.NFTA_IMMEDIATE_DREG, unix.NFT_REG_VERDICT),
		verdict(unix.NFTA_IMMEDIATE_DATA, be32(unix.NFTA_VERDICT_CODE, accept)))
	reset := expression("reject", be32(unix.NFTA_REJECT_TYPE, unix.NFT_REJECT_TCP_RST))
	unreachable := expression("reject", be32(unix.NFTA_REJECT_TYPE, unix.NFT_REJECT_ICMPX_UNREACH),
		attr(unix.NFTA_REJECT_ICMP_CODE, unix.NFT_REJECT_ICMPX_PORT_UNREACH))

	ports := slices.Compact(slices.Sorted(slices.Values(p.Ports)))
	w := newTable()
	w.set("alive", 1, unix.NFT_SET_TIMEOUT)
	w.set("four", 4, unix.NFT_SET_INTERVAL|unix.NFT_SET_MAP)
	w.set("six", 16, unix.NFT_SET_INTERVAL|unix.NFT_SET_MAP)
	if len(ports) > 1 {
		w.set("ports", 2, 0)
	}
	w.chain("own", false)
	w.chain("capture", false)
	w.chain("pre", true)

	if len(ports) > 0 {
		served := lookup("ports", 0)
		if len(ports) == 1 { // which costs less than a set
			served = equals(byte(ports[0]>>8), byte(ports[0]))
		}
		w.rule("own", "refuse the launcher's ports while it is stopped", toPort, served, isTCP(), newlyDead, reset)
	}
	if log {
		w.rule("own", "report closed ports", closedPort())
	}
	w.rule("own", "accept loopback traffic", accepted)
	w.rule("capture", "deny new connections while the launcher is stopped", isTCP(), newlyDead, reset)
	w.rule("capture", "capture connections", isTCP(), tproxy, accepted)
	w.rule("pre", "match IPv4", family(unix.NFPROTO_IPV4), payload(unix.NFT_PAYLOAD_NETWORK_HEADER, 16, 4), vmap("four"))
	w.rule("pre", "match IPv6", family(unix.NFPROTO_IPV6), payload(unix.NFT_PAYLOAD_NETWORK_HEADER, 24, 16), vmap("six"))
	w.rule("pre", "capture DNS queries", toPort, equals(0, 53), alive, tproxy, accepted)
	if log {
		w.rule("pre", "report denied packets", limit(), logged(""))
	}
	w.rule("pre", "refuse TCP", isTCP(), reset)
	w.rule("pre", "deny the rest", unreachable)

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
		for more := range slices.Chunk(rest, most) {
			w := &batch{}
			w.begin()
			w.elements(set, more)
			w.finish()
			all = append(all, w)
		}
	}
	return all
}

// closedPorts returns a table that reports closed ports of the loopback, and changes the way of no packet.
func closedPorts() *batch {
	w := newTable()
	w.chain("pre", true)
	w.rule("pre", "report closed ports", closedPort())
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
	w.nft("renew", unix.NFT_MSG_DELSETELEM, 0, // all of them: it may have expired
		text(unix.NFTA_SET_ELEM_LIST_TABLE, table), text(unix.NFTA_SET_ELEM_LIST_SET, "alive"))
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
	attributes := []*nl.RtAttr{
		text(unix.NFTA_SET_TABLE, table), text(unix.NFTA_SET_NAME, name), be32(unix.NFTA_SET_FLAGS, flags), be32(unix.NFTA_SET_KEY_TYPE, 0),
		be32(unix.NFTA_SET_KEY_LEN, length), be32(unix.NFTA_SET_ID, uint32(len(w.steps))),
	}
	if flags&unix.NFT_SET_MAP != 0 {
		attributes = append(attributes, be32(unix.NFTA_SET_DATA_TYPE, unix.NFT_DATA_VERDICT))
	}
	w.nft("make the set "+name, unix.NFT_MSG_NEWSET, unix.NLM_F_CREATE, attributes...)
}

func (w *batch) elements(set string, all []element) {
	list := nest(unix.NFTA_SET_ELEM_LIST_ELEMENTS)
	for _, e := range all {
		a := nest(unix.NFTA_LIST_ELEM, data(unix.NFTA_SET_ELEM_KEY, e.key...))
		if e.end {
			a.AddChild(be32(unix.NFTA_SET_ELEM_FLAGS, unix.NFT_SET_ELEM_INTERVAL_END))
		}
		if e.chain != "" {
			a.AddChild(verdict(unix.NFTA_SET_ELEM_DATA, be32(unix.NFTA_VERDICT_CODE, jump), text(unix.NFTA_VERDICT_CHAIN, e.chain)))
		}
		if e.timeout > 0 {
			a.AddChild(be64(unix.NFTA_SET_ELEM_TIMEOUT, uint64(e.timeout.Milliseconds())))
		}
		list.AddChild(a)
	}
	w.nft("fill the set "+set, unix.NFT_MSG_NEWSETELEM, unix.NLM_F_CREATE,
		text(unix.NFTA_SET_ELEM_LIST_TABLE, table), text(unix.NFTA_SET_ELEM_LIST_SET, set), list)
}

// chain makes a chain, hooked in or to be jumped to.
func (w *batch) chain(name string, hooked bool) {
	attributes := []*nl.RtAttr{text(unix.NFTA_CHAIN_TABLE, table), text(unix.NFTA_CHAIN_NAME, name)}
	if hooked {
		attributes = append(attributes, text(unix.NFTA_CHAIN_TYPE, "filter"),
			nest(unix.NFTA_CHAIN_HOOK, be32(unix.NFTA_HOOK_HOOKNUM, unix.NF_INET_PRE_ROUTING), be32(unix.NFTA_HOOK_PRIORITY, mangle)))
	}
	w.nft("make the chain "+name, unix.NFT_MSG_NEWCHAIN, unix.NLM_F_CREATE, attributes...)
}

// data is a value in an attribute of its own.
func data(kind int, value ...byte) *nl.RtAttr {
	return nest(kind, attr(unix.NFTA_DATA_VALUE, value...))
}

// verdict is what becomes of a packet, in an attribute of its own.
func verdict(kind int, attributes ...*nl.RtAttr) *nl.RtAttr {
	return nest(kind, nest(unix.NFTA_DATA_VERDICT, attributes...))
}

// Expressions are what a rule consists of, one after the other, until one does not match.
type expressions []*nl.RtAttr

func expression(name string, attributes ...*nl.RtAttr) expressions {
	return expressions{nest(unix.NFTA_LIST_ELEM, text(unix.NFTA_EXPR_NAME, name), nest(unix.NFTA_EXPR_DATA, attributes...))}
}

// rule appends a rule.
func (w *batch) rule(chain, what string, all ...expressions) {
	w.nft(what, unix.NFT_MSG_NEWRULE, unix.NLM_F_CREATE|unix.NLM_F_APPEND,
		text(unix.NFTA_RULE_TABLE, table), text(unix.NFTA_RULE_CHAIN, chain), nest(unix.NFTA_RULE_EXPRESSIONS, slices.Concat(all...)...))
}

// What loads bytes into the register.

func meta(key uint32) expressions {
	return expression("meta", be32(unix.NFTA_META_KEY, key), be32(unix.NFTA_META_DREG, first))
}

func payload(header, offset, length uint32) expressions {
	return expression("payload", be32(unix.NFTA_PAYLOAD_DREG, first), be32(unix.NFTA_PAYLOAD_BASE, header),
		be32(unix.NFTA_PAYLOAD_OFFSET, offset), be32(unix.NFTA_PAYLOAD_LEN, length))
}

func load(value ...byte) expressions {
	return expression("immediate", be32(unix.NFTA_IMMEDIATE_DREG, first), data(unix.NFTA_IMMEDIATE_DATA, value...))
}

// What matches, or acts, by what was loaded.

func equals(value ...byte) expressions {
	return expression("cmp", be32(unix.NFTA_CMP_SREG, first), be32(unix.NFTA_CMP_OP, unix.NFT_CMP_EQ), data(unix.NFTA_CMP_DATA, value...))
}

func lookup(set string, flags uint32) expressions {
	return expression("lookup", text(unix.NFTA_LOOKUP_SET, set), be32(unix.NFTA_LOOKUP_SREG, first), be32(unix.NFTA_LOOKUP_FLAGS, flags))
}

func vmap(name string) expressions {
	return expression("lookup", text(unix.NFTA_LOOKUP_SET, name), be32(unix.NFTA_LOOKUP_SREG, first), be32(unix.NFTA_LOOKUP_DREG, unix.NFT_REG_VERDICT))
}

func family(f byte) expressions { return slices.Concat(meta(unix.NFT_META_NFPROTO), equals(f)) }

// flags matches a TCP segment with these of the flags that tell what it begins or ends.
func flags(set byte) expressions {
	return slices.Concat(payload(unix.NFT_PAYLOAD_TRANSPORT_HEADER, 13, 1),
		expression("bitwise", be32(unix.NFTA_BITWISE_SREG, first), be32(unix.NFTA_BITWISE_DREG, first), be32(unix.NFTA_BITWISE_LEN, 1),
			data(unix.NFTA_BITWISE_MASK, opening), data(unix.NFTA_BITWISE_XOR, 0)),
		equals(set))
}

// logged reports the packet.
func logged(prefix string) expressions {
	return expression("log", text(unix.NFTA_LOG_PREFIX, prefix), attr(unix.NFTA_LOG_GROUP, 0, logGroup), be32(unix.NFTA_LOG_SNAPLEN, snapshot))
}

func isTCP() expressions {
	return slices.Concat(meta(unix.NFT_META_L4PROTO), equals(unix.IPPROTO_TCP))
}

func limit() expressions { // a second
	return expression("limit", be64(unix.NFTA_LIMIT_RATE, 200), be64(unix.NFTA_LIMIT_UNIT, 1), be32(unix.NFTA_LIMIT_BURST, 200))
}

// closedPort reports the answer of a port at which nobody listens.
func closedPort() expressions {
	return slices.Concat(isTCP(), flags(closed), limit(), logged("answer"))
}
