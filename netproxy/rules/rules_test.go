package rules

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func set(t testing.TB, texts ...string) *Set {
	t.Helper()
	var rs []Rule
	for _, text := range texts {
		r, err := Parse(text)
		require.NoError(t, err)
		rs = append(rs, r)
	}
	s, err := New(rs...)
	require.NoError(t, err)
	return s
}

var tableRules = []string{
	"github.com",
	"allow github.com:22",
	"*.pkgs.example",
	".idx.example",
	"deny evil.idx.example",
	"allow pg.corp.example:5432",
	"allow 10.20.0.0/16:5432",
	"deny 10.20.99.0/24",
	"allow 192.0.2.10:8443",
	"allow [2606:4700::]/32:443",
	"allow host:5432",
	"allow GET,HEAD https://api.github.com/repos/acme/**",
	"deny https://api.github.com/repos/acme/secrets/**",
	"allow xn--bcher-kva.example",
	"allow db.example:5000-5010,6000",
	"allow anywhere.example",
	"deny *:25",
}

// outcome decides on a host and all that it resolves to, as the proxy does.
func outcome(s *Set, host string, port uint16, resolved []string, own bool) string {
	v := s.Decide(host, port)
	if v.Action == Inspect {
		return "inspect"
	}
	if v.Action == Deny {
		return "deny:" + string(v.Reason)
	}
	if v.Local {
		return "allow 127.0.0.1"
	}
	addrs := []netip.Addr{v.Addr}
	if !v.Addr.IsValid() {
		addrs = addrs[:0]
		for _, r := range resolved {
			addrs = append(addrs, netip.MustParseAddr(r))
		}
	}
	result := "deny:nothing"
	for _, a := range addrs {
		d := s.DecideAddr(v, a, own)
		if d.Action == Allow {
			return "allow " + d.Addr.String()
		}
		result = "deny:" + string(d.Reason)
	}
	return result
}

func TestConnect(t *testing.T) {
	s := set(t, tableRules...)
	const public = "140.82.112.3"
	for _, c := range []struct {
		host string
		port uint16
		to   string
		want string
	}{
		{"github.com", 443, public, "allow " + public},
		{"GitHub.COM.", 443, public, "allow " + public},
		{"github.com", 22, public, "allow " + public},
		{"github.com", 8080, public, "deny:default"},
		{"gist.github.com", 443, public, "deny:default"},
		{"github.com.evil.example", 443, public, "deny:default"},
		{"evilgithub.com", 443, public, "deny:default"},
		{"notpkgs.example", 443, public, "deny:default"},
		{"pkgs.example", 443, public, "deny:default"},
		{"registry.pkgs.example", 443, public, "allow " + public},
		{"a.b.pkgs.example", 443, public, "allow " + public},
		{"idx.example", 443, public, "allow " + public},
		{"files.idx.example", 443, public, "allow " + public},
		{"evil.idx.example", 443, public, "deny:rule"},
		{"a.evil.idx.example", 443, public, "deny:rule"},
		{"github.com", 443, "127.0.0.1", "deny:resolved-address"},
		{"github.com", 443, "169.254.169.254", "deny:resolved-address"},
		{"github.com", 443, "10.0.0.5", "deny:resolved-address"},
		{"github.com", 443, "10.0.0.5,140.82.112.3", "allow " + public},
		{"github.com", 443, "::ffff:10.0.0.5", "deny:resolved-address"},
		{"github.com", 443, "64:ff9b::7f00:1", "deny:resolved-address"},
		{"github.com", 443, "2002:7f00:1::", "deny:resolved-address"},
		{"github.com", 443, "198.18.0.7", "deny:resolved-address"},
		{"pg.corp.example", 5432, "10.20.1.1", "allow 10.20.1.1"},
		{"pg.corp.example", 5432, "10.20.99.1", "deny:resolved-address"},
		{"pg.corp.example", 5432, "10.30.1.1", "deny:resolved-address"},
		{"pg.corp.example", 5432, "::ffff:10.20.1.1", "allow 10.20.1.1"},
		{"10.20.1.1", 5432, "", "allow 10.20.1.1"},
		{"10.20.1.1", 443, "", "deny:default"},
		{"10.20.99.1", 5432, "", "deny:rule"},
		{"192.0.2.10", 8443, "", "allow 192.0.2.10"},
		{"::ffff:10.20.1.1", 5432, "", "allow 10.20.1.1"},
		{"2606:4700::1111", 443, "", "allow 2606:4700::1111"},
		{"140.82.112.3", 443, "", "deny:default"},
		{"0x7f.1", 80, "", "deny:invalid-host"},
		{"2130706433", 80, "", "deny:invalid-host"},
		{"0177.0.0.1", 80, "", "deny:invalid-host"},
		{"127.1", 80, "", "deny:invalid-host"},
		{"127.0.0.1", 80, "", "deny:default"},
		{"::1", 5432, "", "deny:default"},
		{"localhost", 5432, "", "deny:default"},
		{"host.pccrun.internal", 5432, "", "allow 127.0.0.1"},
		{"host.pccrun.internal", 22, "", "deny:default"},
		{"a.host.pccrun.internal", 5432, "", "deny:default"},
		{"evil.com%2Epkgs.example", 443, "", "deny:invalid-host"},
		{"::ffff:1.2.3.4%x.pkgs.example", 443, "", "deny:invalid-host"},
		{"fe80::1%eth0", 443, "", "deny:invalid-host"},
		{"evil.com\x00.pkgs.example", 443, "", "deny:invalid-host"},
		{"evil.com@x.pkgs.example", 443, "", "deny:invalid-host"},
		{"evil.com\r\nX: y.pkgs.example", 443, "", "deny:invalid-host"},
		{"evil。pkgs.example", 443, "", "deny:invalid-host"},
		{"a..pkgs.example", 443, "", "deny:invalid-host"},
		{"github.com..", 443, "", "deny:invalid-host"},
		{".", 443, "", "deny:invalid-host"},
		{"bücher.example", 443, public, "allow " + public},
		{"BÜCHER.example", 443, public, "allow " + public},
		{"gіthub.com", 443, public, "deny:default"},
		{"xn--github-.com", 443, public, "deny:invalid-host"},
		{"db.example", 5000, public, "allow " + public},
		{"db.example", 5010, public, "allow " + public},
		{"db.example", 6000, public, "allow " + public},
		{"db.example", 5011, public, "deny:default"},
		{"db.example", 25, public, "deny:rule"},
		{"anywhere.example", 0, public, "deny:invalid-host"},
		{"api.github.com", 443, public, "inspect"},
		{"", 443, "", "deny:invalid-host"},
		{strings.Repeat("a", 64) + ".pkgs.example", 443, "", "deny:invalid-host"},
		{strings.Repeat("a.", 130) + "pkgs.example", 443, "", "deny:invalid-host"},
		{strings.Repeat("ü", 4000) + ".pkgs.example", 443, "", "deny:invalid-host"},
	} {
		t.Run(fmt.Sprintf("%q:%d to %s", c.host, c.port, c.to), func(t *testing.T) {
			require.Equal(t, c.want, outcome(s, c.host, c.port, strings.Split(c.to, ","), false))
		})
	}
}

// A method that a rule denies is denied in whatever case; one that it allows is not
// allowed in another.
func TestRequestMethods(t *testing.T) {
	s := set(t, "https://api.example/**", "deny DELETE,POST https://api.example/x/**")
	only := set(t, "GET https://api.example/**")
	for method, want := range map[string][2]Action{"GET": {Allow, Allow}, "get": {Allow, Deny}, "DELETE": {Deny, Deny}, "delete": {Deny, Deny}, "Post": {Deny, Deny}} {
		r := Request{"https", "api.example", method, "/x/y"}
		require.Equal(t, want[0], s.DecideRequest("api.example", 443, r).Action, method)
		require.Equal(t, want[1], only.DecideRequest("api.example", 443, r).Action, method)
	}
}

// TestRequestHint: who reads what would allow a request pastes it into a shell. A
// method may hold what a shell would run; no rule can name such a one.
func TestRequestHint(t *testing.T) {
	s := set(t, "GET https://api.example/**")
	for _, method := range []string{"'`id`'", "'$HOME'", "a'&b", "post", "X_Y", strings.Repeat("A", 33), ""} {
		v := s.DecideRequest("api.example", 443, Request{"https", "api.example", method, "/x"})
		require.Equal(t, Deny, v.Action)
		require.Empty(t, v.AllowWith, method)
		require.Empty(t, s.DecideRequest("api.example", 443, Request{"https", "api.example", "GE'T", "/'`id`'"}).AllowWith)
	}
	v := s.DecideRequest("api.example", 443, Request{"https", "api.example", "POST", "/x"})
	require.Equal(t, "--allow 'POST https://api.example/x'", v.AllowWith, "the control")
	_, err := Parse(strings.Trim(strings.TrimPrefix(v.AllowWith, "--allow "), "'"))
	require.NoError(t, err)
}

func TestRequest(t *testing.T) {
	s := set(t, tableRules...)
	for _, c := range []struct{ host, method, path, want string }{
		{"api.github.com", "GET", "/repos/acme/x", "allow"},
		{"API.github.com:443", "HEAD", "/repos/acme/x?y=/../", "allow"},
		{"api.github.com", "GET", "/repos/acme/@babel%2fcore", "allow"},
		{"api.github.com", "GET", "/repos/acme/", "allow"},
		{"api.github.com", "POST", "/repos/acme/x", "deny:default"},
		{"api.github.com", "GET", "/repos/other/x", "deny:default"},
		{"api.github.com", "GET", "/repos/acme", "deny:default"},
		{"api.github.com", "GET", "/repos/acme/secrets/k", "deny:rule"},
		{"api.github.com", "GET", "/repos/acme/%73ecrets/k", "deny:rule"},
		{"api.github.com", "GET", "/repos/acme/Secrets/k", "deny:rule"},
		{"api.github.com", "GET", "/repos/acme/secrets;v=1/k", "deny:rule"},
		{"api.github.com", "GET", "/repos/acme/secrets%2fk", "deny:rule"},
		{"api.github.com", "GET", "/repos/acme/%2573ecrets/k", "deny:rule"},
		{"api.github.com", "GET", "/repos/acme/secrets%252fk", "deny:rule"},
		{"api.github.com", "GET", "/repos/acme/secrets%25252fk", "deny:rule"},
		{"api.github.com", "GET", "/repos/acme/100%zz%2573ecrets/k", "deny:400-path"},
		{"api.github.com", "GET", "/repos/acme/100%2525", "allow"},
		{"api.github.com", "GET", "/repos/acme/job/feature%252Fx/%E4%B8%AD%E9%C0/100%25up", "allow"},
		{"api.github.com", "GET", "/REPOS/acme/x", "deny:default"},
		{"api.github.com", "GET", "/repos%2facme/x", "deny:default"},
		{"api.github.com", "GET", "/repos/acme/../other/x", "deny:400-path"},
		{"api.github.com", "GET", "/repos/acme/%2e%2e/other/x", "deny:400-path"},
		{"api.github.com", "GET", "/repos/acme/%252e%252e/other/x", "deny:400-path"},
		{"api.github.com", "GET", "/repos/acme/%25252e%25252e/other/x", "deny:400-path"},
		{"api.github.com", "GET", "/repos/acme/%25zz%25252e/%2525252525", "deny:400-path"},
		{"api.github.com", "GET", "/repos/acme/%c0%ae%c0%ae/other/x", "deny:400-path"},
		{"api.github.com", "GET", "/repos/acme/%25c1%25b3ecrets/k", "deny:400-path"},
		{"api.github.com", "GET", "/repos/acme/..%e0%80%af../x", "deny:400-path"},
		{"api.github.com", "GET", "/repos/acme/%f0%80%80%ae./x", "deny:400-path"},
		{"api.github.com", "GET", "/repos/acme/%25u002e%25u002e/x", "deny:400-path"},
		{"api.github.com", "GET", "/repos/acme/..;a/other/x", "deny:400-path"},
		{"api.github.com", "GET", "/repos/acme%2f..%2fx", "deny:400-path"},
		{"api.github.com", "GET", "/repos//acme/x", "deny:400-path"},
		{"api.github.com", "GET", "/repos/acme/%", "deny:400-path"},
		{"api.github.com", "GET", "/repos/acme/%5cx", "deny:400-path"},
		{"api.github.com", "GET", "/repos/acme/%00", "deny:400-path"},
		{"api.github.com", "GET", "/repos/acme/\x7f", "deny:400-path"},
		{"api.github.com", "GET", "repos/acme/x", "deny:400-path"},
		{"evil.com", "GET", "/repos/acme/x", "deny:421-host-mismatch"},
		{"api.github.com:8443", "GET", "/repos/acme/x", "deny:421-host-mismatch"},
		{"", "GET", "/repos/acme/x", "deny:421-host-mismatch"},
	} {
		t.Run(c.host+" "+c.method+" "+c.path, func(t *testing.T) {
			v := s.DecideRequest("api.github.com", 443, Request{"https", c.host, c.method, c.path})
			got := v.Action.String()
			if v.Action == Deny {
				got += ":" + string(v.Reason)
			}
			require.Equal(t, c.want, got)
		})
	}
	require.Equal(t, Allow, s.DecideRequest("github.com", 443, Request{"https", "github.com", "PUT", "/x"}).Action, "not inspected")
	require.Equal(t, ByDefault, s.DecideRequest("gist.github.com", 443, Request{"https", "gist.github.com", "GET", "/"}).Reason)
	v6 := set(t, "GET https://[2606:4700::1111]/ok/*")
	require.Equal(t, Allow, v6.DecideRequest("2606:4700::1111", 443, Request{"https", "[2606:4700::1111]", "GET", "/ok/x"}).Action)
	require.Equal(t, Deny, v6.DecideRequest("2606:4700::1111", 443, Request{"https", "[2606:4700::1111]", "GET", "/ok/x/y"}).Action)
}

func TestParseErrors(t *testing.T) {
	for text, want := range map[string]string{
		"":                             "want one space",
		" github.com":                  "want one space",
		"github.com ":                  "want one space",
		"allow":                        "want one space",
		"allow  github.com":            "want one space",
		"allow GET x https://a.com/":   "too many words",
		"github.com\n":                 "character",
		"github.com\x00":               "character",
		"*.com":                        "public suffix com",
		".com":                         "public suffix com",
		"*.co.uk":                      "public suffix co.uk",
		"*.github.io":                  "public suffix github.io",
		"*.kawasaki.jp":                "public suffix kawasaki.jp",
		"*.x.kawasaki.jp":              "public suffix x.kawasaki.jp",
		"*.corp":                       "public suffix corp",
		"*":                            "allow * is refused",
		"*:443":                        "allow * is refused",
		"localhost:3000":               "use host:PORT",
		"a.localhost":                  "use host:PORT",
		"127.0.0.1:80":                 "loopback",
		"127.1.0.0/16":                 "loopback",
		"[::1]:80":                     "loopback",
		"0.0.0.0:80":                   "this host",
		"224.0.0.1":                    "multicast",
		"host":                         "needs a port",
		"host:*":                       "all ports of the host",
		"private host:22":              `"private" has no effect`,
		"private 10.0.0.0/8":           `"private" has no effect`,
		"deny private a.com":           `"private" has no effect`,
		"deny private *":               `"private" has no effect`,
		"private https://a.com":        `"private" has no effect`,
		"private @npm":                 "a group takes no other words",
		"@nope":                        "unknown group",
		"@":                            "unknown group",
		"GET @npm":                     "a group takes no other words",
		"::1:443":                      "must be bracketed",
		"fd00::/8":                     "must be bracketed",
		"[fd00::1":                     `"[" without "]"`,
		"[10.0.0.1]":                   "bad address",
		"[fe80::1%25eth0]":             "bad address",
		"[fe80::1%eth0]":               "bad address",
		"[::ffff:10.0.0.1]":            "write it as IPv4",
		"[64:ff9b::a00:1]":             "stands for an IPv4 address",
		"[2002:7f00:1::]/48":           "stands for an IPv4 address",
		"10.0.0.1/8":                   "bits set below",
		"10.0.0.0/33":                  "bad prefix length",
		"10.0.0.0/08":                  "bad prefix length",
		"10.0.0.0/":                    "bad prefix length",
		"1.2.3":                        "last label is a number",
		"0x7f.1":                       "last label is a number",
		"a.0x1f":                       "last label is a number",
		"2130706433":                   "last label is a number",
		"a.com:0":                      `bad port "0"`,
		"a.com:0443":                   `bad port "0443"`,
		"a.com:":                       `bad port ""`,
		"a.com:+443":                   `bad port "+443"`,
		"a.com:65536":                  `bad port "65536"`,
		"a.com:1,":                     `bad port ""`,
		"a.com:9-1":                    "9 is above 1",
		"a.com:1-":                     `bad port ""`,
		"a.com:80:90":                  "must be bracketed",
		"foo*.a.com":                   "character",
		"a.*.com":                      "character",
		"*.*.a.com":                    "character",
		"a..com":                       "not a host name",
		"-a.com":                       "character",
		"a。com":                        "dot that is not ASCII",
		"a\u2488com":                   "not valid in IDNA",
		"xn--a.com":                    "not valid in IDNA",
		"user@a.com":                   "character",
		"GET a.com":                    "methods need a URL",
		"get https://a.com":            "bad method",
		"GET, https://a.com":           "bad method",
		"a.com/path":                   "a path needs a URL",
		"a.com?x":                      "a path needs a URL",
		"ftp://a.com":                  "scheme",
		"https://a.com:80,443":         "one port",
		"https://a.com:1-2/":           "one port",
		"https://10.0.0.0/8":           "methods",
		"https://host:5/":              "a name or one address",
		"deny https://*/x":             "a name or one address",
		"https://":                     "no host",
		"https://u@a.com/":             "character",
		"https://a.com/a***":           "two *",
		"https://a.com/a?b":            "queries",
		"https://a.com/a/../b":         "bad path",
		"https://a.com/%2a":            "escaped *",
		"https://a.com/#x":             "bad path",
		strings.Repeat("a", 5000):      "longer than",
		"https://*.github.io/acme/**":  "public suffix",
		"https://[2606:4700::]/32/x/y": "accepted",
	} {
		t.Run(text, func(t *testing.T) {
			r, err := Parse(text)
			switch want {
			case "accepted", "methods": // a path that looks like a length
				require.NoError(t, err)
				require.True(t, r.Inspects())
			default:
				require.ErrorContains(t, err, want)
				require.Zero(t, r)
			}
		})
	}
}

func TestParse(t *testing.T) {
	for _, text := range []string{
		"deny *", "https://a.com", "http://a.com:8080", "deny host:22", "deny *.com", "deny .io", "deny localhost.example",
		"allow a.com:*", "private *.corp.example:443,8443", "r3---sn-x.example", "a_b.example", "[2606:4700::]/32",
		"0.0.0.0/0", "deny 127.0.0.0/8", "@github", "@npm", "PROPFIND https://a.com/dav/**", HostName + ":22", "buildserver",
	} {
		r, err := Parse(text)
		require.NoError(t, err, text)
		require.Equal(t, text, r.String())
		require.Equal(t, strings.HasPrefix(text, "deny"), r.Deny(), text)
	}
	_, err := ParseDeny("allow a.com")
	require.ErrorContains(t, err, "list of denied hosts")
	r, err := ParseDeny("gist.github.com")
	require.NoError(t, err)
	require.True(t, r.Deny())
}

func TestGroups(t *testing.T) {
	for _, name := range []string{"npm", "go", "pip", "cargo", "apt"} {
		r, err := Parse("@" + name)
		require.NoError(t, err)
		require.Equal(t, name, r.Group())
		_, err = New(r)
		require.ErrorContains(t, err, "--allow HOST")
	}
	r, err := Parse("@github")
	require.NoError(t, err)
	require.Empty(t, r.Group())
	s, err := New(r)
	require.NoError(t, err)
	v := s.Decide("codeload.github.com", 443)
	require.Equal(t, Allow, v.Action)
	require.Equal(t, "@github", v.Rule)
	require.Equal(t, Deny, s.Decide("gist.github.com", 443).Action)
	require.Equal(t, Deny, s.Decide("github.com", 22).Action)

	s = set(t, "a.com", "github.com:22", "deny @github")
	require.Equal(t, ByRule, s.Decide("github.com", 22).Reason)
	require.Equal(t, Allow, s.Decide("a.com", 443).Action)
}

func TestGroupHosts(t *testing.T) {
	group, err := Parse("@npm")
	require.NoError(t, err)
	allowed := func(host string, port uint16, to string) string {
		r, err := group.For(host, port)
		require.NoError(t, err)
		s, err := New(r)
		require.NoError(t, err)
		return outcome(s, host, port, []string{to}, false)
	}
	require.Equal(t, "allow 8.8.8.8", allowed("registry.example", 443, "8.8.8.8"))
	require.Equal(t, "allow 10.0.0.1", allowed("mirror.corp", 4873, "10.0.0.1"), "a company's mirror")
	require.Equal(t, "allow 10.0.0.1", allowed("10.0.0.1", 80, "10.0.0.1"))
	require.Equal(t, "allow fd12::1", allowed("fd12::1", 80, "fd12::1"))
	for _, to := range []string{"127.0.0.1", "169.254.169.254", "169.254.1.1", "fd00:ec2::254", "::1", "100.100.100.200", "198.18.0.1"} {
		require.Equal(t, "deny:resolved-address", allowed("registry.example", 443, to), to)
		r, err := group.For(to, 443)
		require.True(t, err != nil || r.Local(), to)
	}
	for _, host := range []string{"localhost", "npm.localhost", "127.0.0.1", "::1"} {
		r, err := group.For(host, 4873)
		require.NoError(t, err, host)
		require.True(t, r.Local(), "whoever takes it looks whether the port is named: %s", host)
		require.Equal(t, uint16(4873), r.LocalPort())
	}
	for _, host := range []string{"", "*", "*.example.com", ".example.com", "host", HostName, "a b", "0x7f.1", "10.0.0.0/8"} {
		_, err := group.For(host, 443)
		require.Error(t, err, host)
	}
	_, err = group.For("registry.example", 0)
	require.Error(t, err)
	_, err = Rule{}.For("registry.example", 443)
	require.Error(t, err)

	deny, err := ParseDeny("@npm")
	require.NoError(t, err)
	no, err := deny.For("registry.example", 443)
	require.NoError(t, err)
	require.True(t, no.Deny(), "to deny a group must not open it")
	all, err := Parse("registry.example:*")
	require.NoError(t, err)
	s, err := New(all, no)
	require.NoError(t, err)
	require.Equal(t, ByRule, s.Decide("registry.example", 8080).Reason)
	require.Equal(t, "@npm", s.Decide("a.registry.example", 443).Rule)
	for _, host := range []string{"registry.example:22", "registry.example:1-65535", "10.0.0.1:*", "[2606::1]", "[2606::1]:22", "fe80::1%eth0"} {
		for _, r := range []Rule{group, deny} {
			_, err := r.For(host, 443)
			require.Error(t, err, "%s %s", r, host)
		}
	}
}

func TestLocal(t *testing.T) {
	plain, err := ParseLocal("5432")
	require.NoError(t, err)
	require.Equal(t, uint16(5432), plain.LocalPort())
	named, err := ParseLocal("localhost:8000")
	require.NoError(t, err)
	require.Equal(t, uint16(8000), named.LocalPort())
	byName, err := Parse("host:9000")
	require.NoError(t, err)
	s, err := New(plain, named, byName)
	require.NoError(t, err)
	require.False(t, s.Empty())
	for host, ports := range map[string][]uint16{
		HostName:                 {5432, 8000, 9000},
		"HOST.pccrun.internal.":  {5432, 8000, 9000},
		"localhost":              {5432, 8000},
		"app.localhost":          {5432, 8000},
		"127.0.0.1":              {5432, 8000},
		"127.8.8.8":              {5432, 8000},
		"::1":                    {5432, 8000},
		"::ffff:127.0.0.1":       {5432, 8000},
		"0.0.0.0":                {5432, 8000},
		"a.host.pccrun.internal": nil,
	} {
		for _, port := range []uint16{5432, 8000, 9000, 80} {
			v := s.Decide(host, port)
			want := Deny
			for _, p := range ports {
				if p == port {
					want = Allow
				}
			}
			require.Equal(t, want, v.Action, "%s:%d", host, port)
			require.Equal(t, want == Allow, v.Local, "%s:%d", host, port)
		}
	}
	v := s.Decide(HostName, 8000)
	require.Equal(t, Allow, s.DecideAddr(v, netip.MustParseAddr("127.0.0.1"), true).Action)
	require.Equal(t, Allow, s.DecideAddr(v, netip.IPv6Loopback(), true).Action)
	require.Equal(t, Deny, s.DecideAddr(v, netip.MustParseAddr("10.0.0.1"), false).Action)
	for host, hint := range map[string]string{HostName: "22", "127.0.0.1": "localhost:22", "localhost": "localhost:22", "::1": "localhost:22"} {
		require.Equal(t, "--local "+hint, s.Decide(host, 22).AllowWith)
		more, err := ParseLocal(hint)
		require.NoError(t, err)
		followed, err := New(plain, named, more)
		require.NoError(t, err)
		require.Equal(t, Allow, followed.Decide(host, 22).Action, "the hint works")
	}

	for _, text := range []string{"", "0", "x", "80-90", "a.com:80", "localhost:", "localhost", "127.0.0.1:80", "05432", "-1", "70000", "5432\n"} {
		_, err := ParseLocal(text)
		require.ErrorContains(t, err, "want PORT or localhost:PORT", text)
	}
	require.Equal(t, ByRule, set(t, "host:25", "deny *:25").Decide(HostName, 25).Reason)
	require.Equal(t, ByRule, set(t, "host:25", "deny host").Decide(HostName, 25).Reason)
}

func TestInspection(t *testing.T) {
	s := set(t, "GET https://api.example.com/v1/**")
	require.Len(t, s.Inspected(), 1)
	v := s.Decide("api.example.com", 443)
	require.Equal(t, Inspect, v.Action)
	require.Equal(t, "GET https://api.example.com/v1/**", v.Rule)
	require.Equal(t, Deny, s.Decide("api.example.com", 80).Action)

	s = set(t, "api.example.com", "deny https://api.example.com/admin/**")
	require.Equal(t, Inspect, s.Decide("api.example.com", 443).Action, "a deny of requests is never ignored")
	require.Equal(t, Allow, s.Decide("api.example.com", 80).Action)
	require.Equal(t, Allow, s.DecideRequest("api.example.com", 443, Request{"https", "api.example.com", "GET", "/x"}).Action)
	require.Equal(t, ByRule, s.DecideRequest("api.example.com", 443, Request{"https", "api.example.com", "GET", "/admin/x"}).Reason)

	s = set(t, "deny https://api.example.com/admin/**")
	require.Equal(t, Deny, s.Decide("api.example.com", 443).Action, "and opens nothing")
	require.True(t, s.Empty())

	s = set(t, "GET https://a.com:8080/ok/**", "deny https://a.com:8080/ok/no")
	require.Equal(t, Allow, s.DecideRequest("a.com", 8080, Request{"https", "a.com:8080", "GET", "/ok/x"}).Action)
	require.Equal(t, Deny, s.DecideRequest("a.com", 8080, Request{"http", "a.com:8080", "GET", "/ok/x"}).Action, "not the scheme of the rule")
	require.Equal(t, ByRule, s.DecideRequest("a.com", 8080, Request{"http", "a.com:8080", "GET", "/ok/no"}).Reason, "a deny holds in every scheme")

	s = set(t, "GET https://a.com/ok/**")
	v = s.DecideRequest("a.com", 443, Request{"https", "a.com", "POST", "/up/%40x?secret=1"})
	require.Equal(t, "--allow 'POST https://a.com/up/%40x'", v.AllowWith)
	both := set(t, "GET https://a.com/ok/**", strings.Trim(strings.TrimPrefix(v.AllowWith, "--allow "), "'"))
	require.Equal(t, Allow, both.DecideRequest("a.com", 443, Request{"https", "a.com", "POST", "/up/%40x"}).Action, "the hint works")
	v = s.DecideRequest("a.com", 443, Request{"https", "a.com", "POST", "/up/'$(id)"})
	require.NotContains(t, v.AllowWith, "id", "what a client sends is nothing to paste into a shell")
	v = s.DecideRequest("a.com", 443, Request{"https", "a.com", "POST", "/" + strings.Repeat("x", 60<<10)})
	require.Equal(t, Deny, v.Action)
	require.Less(t, len(v.AllowWith), 2*maxLiteral, "a hint as long as a path leaves no room to tell of it")

	s = set(t, "https://api.example.com")
	require.Empty(t, s.Inspected())
	require.Equal(t, Allow, s.Decide("api.example.com", 443).Action)
	require.Equal(t, Deny, s.Decide("api.example.com", 80).Action)

	for _, pair := range [][]string{
		{"api.example.com", "GET https://api.example.com/**"},
		{"*.example.com", "GET https://api.example.com/**"},
		{".example.com", "GET https://*.example.com/**"},
		{"8.8.8.0/24", "GET https://8.8.8.8/**"},
	} {
		var rs []Rule
		for _, text := range pair {
			r, err := Parse(text)
			require.NoError(t, err)
			rs = append(rs, r)
		}
		_, err := New(rs...)
		require.ErrorContains(t, err, "has no effect, because", pair)
	}
}

// TestTexts holds that another process decides the same.
func TestTexts(t *testing.T) {
	var rs []Rule
	add := func(r Rule, err error) {
		require.NoError(t, err)
		rs = append(rs, r)
	}
	for _, text := range tableRules {
		add(Parse(text))
	}
	add(ParseDeny("bad.example"))
	add(ParseLocal("5433"))
	add(ParseLocal("localhost:5434"))
	add(Parse("GET https://at.example/@scope"))
	group, err := Parse("@npm")
	require.NoError(t, err)
	add(group.For("mirror.corp", 8443))
	add(group.For("10.0.0.9", 80))
	add(group.For("fd12::9", 80))
	deny, err := ParseDeny("@go")
	require.NoError(t, err)
	add(deny.For("sums.example", 443))
	add(deny.For("10.0.0.8", 443))
	s, err := New(rs...)
	require.NoError(t, err)
	require.Len(t, s.Texts(), len(rs))
	again := set(t, s.Texts()...)
	for _, host := range []string{
		"github.com", "codeload.github.com", "a.pkgs.example", "idx.example", "evil.idx.example", "pg.corp.example", "10.20.1.1", "10.20.99.1", "host.pccrun.internal",
		"api.github.com", "at.example", "db.example", "bad.example", "a.bad.example", "mirror.corp", "10.0.0.9", "fd12::9", "sums.example", "10.0.0.8", "nowhere.example",
	} {
		for _, port := range []uint16{22, 25, 80, 443, 5432, 5433, 5434, 6000, 8443} {
			a, b := s.Decide(host, port), again.Decide(host, port)
			a.Rule, b.Rule = "", ""
			require.Equal(t, a, b, "%s:%d", host, port)
			for _, to := range []string{"10.0.0.1", "8.8.8.8", "169.254.169.254"} {
				x, y := s.DecideAddr(a, netip.MustParseAddr(to), false), again.DecideAddr(b, netip.MustParseAddr(to), false)
				x.Rule, y.Rule = "", ""
				require.Equal(t, x, y)
			}
		}
	}
	require.Equal(t, []string{"@github"}, set(t, "@github").Texts())
	var none *Set
	require.Empty(t, none.Texts())
	empty, err := New(Rule{})
	require.NoError(t, err)
	require.Empty(t, empty.Texts())
}

func TestWatch(t *testing.T) {
	s := set(t, "api.example.com", "*.b.com", "8.8.8.8", "host:5432", "GET https://c.com/x").Watch(set(t, "https://api.example.com", "*.b.com:443", "d.com", "8.8.8.8"))
	for host, want := range map[string]Action{
		"api.example.com": Inspect, "API.example.com.": Inspect, "x.b.com": Inspect, "b.com": Deny, "8.8.8.8": Inspect, "c.com": Inspect,
		"d.com": Deny, // to watch opens nothing
	} {
		require.Equal(t, want, s.Decide(host, 443).Action, host)
	}
	more := s.Watch(set(t, "host:5432", "http://api.example.com"))
	require.Equal(t, Inspect, more.Decide("api.example.com", 80).Action)
	require.Equal(t, Inspect, more.Decide("api.example.com", 443).Action)
	require.Equal(t, Allow, more.Decide(HostName, 5432).Action, "the host's own ports are not")
	require.Equal(t, Allow, s.Decide("api.example.com", 80).Action)
	require.Equal(t, Allow, s.Decide(HostName, 5432).Action)
	require.Equal(t, Allow, s.DecideRequest("x.b.com", 443, Request{"https", "x.b.com", "PUT", "/any"}).Action)
	require.Equal(t, BadMatch, s.DecideRequest("x.b.com", 443, Request{"https", "y.b.com", "PUT", "/any"}).Reason)
	require.Equal(t, Allow, s.DecideRequest("x.b.com", 443, Request{"https", "x.b.com", "PUT", "//any"}).Action, "no rule speaks of paths")
}

func TestNilAndEmpty(t *testing.T) {
	var s *Set
	require.Equal(t, Deny, s.Decide("a.com", 443).Action)
	require.Equal(t, Deny, s.Decide(HostName, 443).Action)
	require.Equal(t, Deny, s.DecideAddr(Verdict{Action: Allow}, netip.MustParseAddr("8.8.8.8"), false).Action)
	require.Empty(t, s.Inspected())
	require.True(t, s.Empty())
	s, err := New(Rule{})
	require.NoError(t, err)
	require.True(t, s.Empty())
	require.Equal(t, Deny, s.Decide("a.com", 443).Action)
	for _, text := range []string{"a.com", "10.0.0.0/8", "host:1"} {
		require.False(t, set(t, text).Empty(), text)
	}
}

func TestGuard(t *testing.T) {
	s := set(t, "a.com")
	v := s.Decide("a.com", 443)
	for _, a := range []string{
		"0.0.0.0", "0.1.2.3", "10.0.0.1", "100.64.0.1", "100.100.100.200", "127.0.0.1", "127.255.255.255", "168.63.129.16",
		"169.254.0.1", "169.254.169.254", "169.254.170.2", "172.16.0.1", "172.31.255.255", "192.0.0.1", "192.0.0.192", "192.0.2.1",
		"192.88.99.1", "192.168.1.1", "198.18.0.1", "198.19.255.255", "198.51.100.1", "203.0.113.1", "224.0.0.1", "239.1.1.1", "240.0.0.1",
		"255.255.255.255", "::", "::1", "::7f00:1", "::ffff:127.0.0.1", "::ffff:169.254.169.254", "64:ff9b::a00:1", "64:ff9b:1::1", "100::1",
		"2001::1", "2001:2::1", "2001:10::1", "2001:db8::1", "2002:a00:1::1", "2002:7f00:1::1", "3fff::1", "5f00::1", "fc00::1", "fd00:ec2::254",
		"fd20:ce::254", "fe80::1", "fec0::1", "ff02::1", "4000::1", "fe80::1%eth0", "8.8.8.8%eth0",
	} {
		addr, err := netip.ParseAddr(a)
		if err != nil {
			continue // IPv4 takes no zone
		}
		d := s.DecideAddr(v, addr, false)
		require.Equal(t, Deny, d.Action, a)
		require.Equal(t, BadAddr, d.Reason, a)
	}
	for _, a := range []string{
		"8.8.8.8", "1.1.1.1", "100.63.255.255", "100.128.0.1", "172.15.0.1", "172.32.0.1", "192.0.1.1", "198.17.0.1", "198.20.0.1", "223.255.255.255",
		"2606:4700::1111", "2a00:1450::1", "2001:4860:4860::8888", "64:ff9b::808:808", "2002:808:808::1",
	} {
		addr := netip.MustParseAddr(a)
		require.Equal(t, Allow, s.DecideAddr(v, addr, false).Action, a)
		require.Equal(t, Deny, s.DecideAddr(v, addr, true).Action, "the host's own %s", a)
	}
	require.Equal(t, Deny, s.DecideAddr(v, netip.Addr{}, false).Action)
	require.Equal(t, Deny, s.DecideAddr(Verdict{}, netip.MustParseAddr("8.8.8.8"), false).Action)
	literal := set(t, "8.8.8.0/24")
	require.Equal(t, Deny, literal.DecideAddr(literal.Decide("8.8.8.8", 443), netip.MustParseAddr("8.8.8.9"), false).Action)
}

// TestLift holds that a guard is lifted only by who names it: the word for
// private ranges, or an address rule no wider than what is guarded.
func TestLift(t *testing.T) {
	for _, c := range []struct {
		rules []string
		to    string
		own   bool
		want  Action
	}{
		{[]string{"private a.com"}, "10.0.0.1", false, Allow},
		{[]string{"private a.com"}, "100.64.0.1", false, Allow},
		{[]string{"private a.com"}, "fd12::1", false, Allow},
		{[]string{"private a.com"}, "64:ff9b::a00:1", false, Allow},
		{[]string{"private a.com"}, "10.0.0.1", true, Deny},
		{[]string{"private a.com"}, "127.0.0.1", false, Deny},
		{[]string{"private a.com"}, "169.254.1.1", false, Deny},
		{[]string{"private a.com"}, "fd00:ec2::254", false, Deny},
		{[]string{"private a.com"}, "fd00:42::42", false, Deny},
		{[]string{"private a.com"}, "fd00:42::43", false, Allow},
		{[]string{"private a.com"}, "fd00:a9fe:a9fe::1", false, Deny},
		{[]string{"private a.com"}, "fd00:a9fe:a9fe::2", false, Allow},
		{[]string{"private a.com"}, "fd00:c1::a9fe:a9fe", false, Deny},
		{[]string{"private a.com"}, "fd00:c1::a9fe:a9ff", false, Allow},
		{[]string{"private a.com"}, "100.100.100.200", false, Deny},
		{[]string{"private a.com"}, "198.18.0.1", false, Deny},
		{[]string{"private .a.com", "a.com"}, "10.0.0.1", false, Allow},
		{[]string{"a.com", "10.0.0.0/8"}, "10.0.0.1", false, Allow},
		{[]string{"a.com", "10.0.0.0/8:80"}, "10.0.0.1", false, Deny},
		{[]string{"a.com", "0.0.0.0/0"}, "10.0.0.1", false, Deny},
		{[]string{"a.com", "[::]/0"}, "fd00::1", false, Deny},
		{[]string{"a.com", "8.0.0.0/5"}, "10.0.0.1", false, Deny},
		{[]string{"a.com", "10.0.0.1"}, "10.0.0.1", true, Allow},
		{[]string{"a.com", "10.0.0.0/31"}, "10.0.0.1", true, Deny},
		{[]string{"a.com", "169.254.0.0/16"}, "169.254.1.1", false, Allow},
		{[]string{"a.com", "169.254.0.0/16"}, "169.254.169.254", false, Deny},
		{[]string{"a.com", "169.254.169.254"}, "169.254.169.254", false, Allow},
		{[]string{"a.com", "198.18.0.0/15"}, "198.18.0.1", false, Allow},
		{[]string{"a.com", "0.0.0.0/0"}, "127.0.0.1", false, Deny},
		{[]string{"private a.com", "deny 10.0.0.0/8"}, "10.0.0.1", false, Deny},
		{[]string{"private a.com", "deny 10.0.0.0/8"}, "64:ff9b::a00:1", false, Deny},
		{[]string{"private a.com", "deny 10.0.0.0/8:80"}, "10.0.0.1", false, Allow},
		{[]string{"a.com", "deny [2606:4700::]/32"}, "2606:4700::1", false, Deny},
	} {
		s := set(t, c.rules...)
		d := s.DecideAddr(s.Decide("a.com", 443), netip.MustParseAddr(c.to), c.own)
		require.Equal(t, c.want, d.Action, "%v to %s (own %v): %s", c.rules, c.to, c.own, d.Detail)
	}
}

func TestAllowWith(t *testing.T) {
	s := set(t, "pg.corp.example:5432", "*.a.com")
	for _, c := range []struct {
		host string
		port uint16
		to   string
		want string
	}{
		{"b.com", 443, "", "--allow b.com"},
		{"b.com", 8080, "", "--allow b.com:8080"},
		{"8.8.8.8", 53, "", "--allow 8.8.8.8:53"},
		{"8.8.8.8", 80, "", "--allow 8.8.8.8"},
		{"10.0.0.1", 80, "", "--allow 10.0.0.1"},
		{"2606::1", 53, "", "--allow [2606::1]:53"},
		{"2606::1", 443, "", "--allow [2606::1]"},
		{"pg.corp.example", 5432, "10.0.0.1", "--allow 'private pg.corp.example:5432'"},
		{"x.a.com", 443, "192.0.2.1", "--allow 192.0.2.1"},
		{"x.a.com", 443, "10.0.0.1", "--allow 'private x.a.com'"},
		{"x.a.com", 80, "198.18.0.99", "--allow 198.18.0.0/15"}, // it stands for another
		{"x.a.com", 443, "127.0.0.1", ""},
		{"bad host", 443, "", ""},
	} {
		v := s.Decide(c.host, c.port)
		if c.to != "" {
			v = s.DecideAddr(v, netip.MustParseAddr(c.to), false)
		}
		require.Equal(t, Deny, v.Action)
		require.Equal(t, c.want, v.AllowWith, c.host)
		if c.want == "" {
			continue
		}
		rs := []string{strings.Trim(strings.TrimPrefix(c.want, "--allow "), "'"), "pg.corp.example:5432", "*.a.com"}
		require.Regexp(t, "^allow", outcome(set(t, rs...), c.host, c.port, []string{max(c.to, "8.8.8.8")}, false), "the hint works")
	}
}

func TestActionString(t *testing.T) {
	require.Equal(t, "deny allow inspect", fmt.Sprint(Deny, " ", Allow, " ", Inspect))
}
