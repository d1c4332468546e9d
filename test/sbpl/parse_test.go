package sbpl

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const start = "(version 1)\n(deny default)\n"

func TestParseRefuses(t *testing.T) {
	good := []string{
		`(allow file-read* (literal "/a"))`, `(allow file-read* (subpath (param "P")))`,
		`(allow file-read* (regex #"^/a/[^/]+$"))`,
		`(allow network-outbound (remote ip "localhost:80") (remote tcp "*:443") (remote unix-socket (path-literal "/s")))`,
		`(allow signal process-info* (target same-sandbox))`, `(allow file-read* (literal "/tmp")) ; the link itself`,
		`(allow file-read* (literal "/a\"\\b"))`,
		`(allow ipc-posix-shm (ipc-posix-name "x"))`, `(deny file-write* (prefix "/a"))`, `(allow file* (subpath "/a"))`,
	}
	for _, text := range good {
		_, err := Parse(start+text, []Param{{"P", "/p"}})
		require.NoError(t, err, text)
	}
	for text, cause := range map[string]string{
		`(allow file-read* (literal "/a")`: "( without )", `)`: ") without (",
		`(allow file-read* (literal "/a))`: "without end", `allow`: "want a rule",
		`(allow file-raed* (literal "/a"))`: "is not modelled", `(allow default)`: "2 rules for default",
		`(permit file-read*)`: "want a rule", `(allow)`: "without an operation",
		`(allow file-read* (path "/a"))`: "is not modelled", `(allow file-read* (literal "a"))`: "absolute",
		`(allow file-read* (literal "/a/../b"))`: "absolute",
		`(allow file-read* (subpath "/a/"))`:     "absolute", `(deny file-read* (subpath "/tmp"))`: "never holds",
		`(deny file-read* (literal "/var/x"))`:                   "never holds",
		`(allow file-read* (subpath (param "Q")))`:               "has no value",
		`(allow file-read* (subpath (string-append "/a" "/b")))`: "want one", `(allow file-read* (literal))`: "want one",
		`(allow file-read* (regex "^/a"))`: "want (regex", `(allow file-read* (regex #"^/(?i)a"))`: "not modelled",
		`(allow file-read* (regex #"a{3}"))`: "not modelled",
		`(allow file-read* (regex #"\d"))`:   "not modelled", `(allow file-read* (regex #"("))`: "missing",
		`(allow file-read* (regex #""))`:                               "empty expression",
		`(allow network-outbound (remote ip "127.0.0.1:80"))`:          "must be * or localhost",
		`(allow network-outbound (remote ip "localhost:0"))`:           "want a port",
		`(allow network-outbound (remote ip "localhost:080"))`:         "want a port",
		`(allow network-outbound (local ip "localhost:80"))`:           "not modelled",
		`(allow network-inbound (remote ip "*:80"))`:                   "not modelled",
		`(allow network-outbound (remote icmp "*:80"))`:                "not modelled",
		`(allow network-outbound (remote unix-socket (regex #"^/a")))`: "want (path-literal",
		`(allow network-outbound (remote ip))`:                         "want ip",
		`(allow network-outbound (remote ip (param "P")))`:             "in quotes",
		`(allow file-read* (global-name "a"))`:                         "says nothing of",
		`(allow mach-lookup (subpath "/a"))`:                           "says nothing of", `(allow signal (target children))`: "not modelled",
		`(allow file-read* (require-not (literal "/a") (literal "/b")))`: "2 filters",
		`(allow file-read* (require-all))`:                               "0 filters", `(allow file-read* "x")`: "want a filter",
		`(allow file-read* (with no-log))`: "is not modelled", `(import "system.sb")`: "want a rule",
		`(define x 1)`: "want a rule", `(allow file-read* (literal "/a\n"))`: "before something else",
		"(allow file-read* (literal \"/a\nb\"))": "control character", `(allow file-read* #t)`: `# without "`,
		`{}`: "not a part", `(version 1)`: "want a rule",
		`(allow mach-lookup (global-name ""))`: "want one", strings.Repeat("(", 40): "in each other",
		`(allow file-read* (literal "/a\`: "before something else", `#`: `# without "`,
	} {
		_, err := Parse(start+text, []Param{{"P", "/p"}})
		assert.ErrorContains(t, err, cause, text)
	}
	for text, cause := range map[string]string{
		"": "begins with (version 1)", "(deny default)": "begins with (version 1)",
		"(version 2)(deny default)": "begins with (version 1)", "(version 1)": "0 rules for default",
		strings.Repeat(" ", maxText+1): "want at most",
	} {
		_, err := Parse(text, nil)
		assert.ErrorContains(t, err, cause)
	}
	_, err := Parse(start, []Param{{"P", "/a"}, {"P", "/b"}})
	assert.ErrorContains(t, err, "want each once")
	_, err = Parse(start+`(allow file-read* (literal (param "P")))`, []Param{{"P", "/a\nb"}})
	assert.ErrorContains(t, err, "control character")
}

func TestEvaluateRefuses(t *testing.T) {
	rules, err := Parse(start+`(allow file-read* (subpath "/a"))`, nil)
	require.NoError(t, err)
	v, err := Evaluate(rules, "file-read-data", Target{Path: "/a/b"})
	require.NoError(t, err)
	require.Equal(t, Verdict{true, 3}, v, "the control")
	for op, target := range map[string]Target{
		"file-read*": {Path: "/a"}, "file-read-data": {Path: "a"}, "file-write-data": {Path: "/a/../b"},
		"network-outbound": {}, "network-bind": {Host: "localhost"},
		"network-inbound": {Host: "localhost", Port: 1, Path: "/a"}, "mach-lookup": {}, "signal": {Process: "me"},
		"system-socket": {}, "default": {}, "unheard": {},
	} {
		_, err := Evaluate(rules, op, target)
		assert.Error(t, err, op)
	}
}

// TestPublished evaluates the ideas of other projects' profiles: what their authors
// say that they do.
func TestPublished(t *testing.T) {
	for _, c := range []struct {
		file, op string
		target   Target
		want     string
	}{
		{"open-but", "file-read-data", Target{Path: "/Users/a/x"}, "allow"},
		{"open-but", "file-read-data", Target{Path: "/secret/x"}, "deny"},
		{"open-but", "file-write-data", Target{Path: "/Users/a/x"}, "deny"},
		{"open-but", "file-write-data", Target{Path: "/out/x"}, "allow"},
		{"open-but", "network-outbound", Address("127.0.0.1", 80), "allow"},
		{"open-but", "network-outbound", Address("example.com", 80), "allow"},
		// no path: its rule for all sockets was for files
		{"open-but", "mach-lookup", Target{Name: "com.apple.x"}, "allow"},
		{"closed-root", "file-write-data", Target{Path: "/root/src/a"}, "allow"},
		{"closed-root", "file-write-data", Target{Path: "/root/.git/config"}, "deny"},
		{"closed-root", "file-write-create", Target{Path: "/root/.git"}, "deny"},
		{"closed-root", "file-write-unlink", Target{Path: "/root"}, "deny"},
		{"closed-root", "file-write-unlink", Target{Path: "/root/a"}, "allow"},
		{"closed-root", "process-exec", Target{Path: "/usr/bin/git"}, "allow"},
		{"closed-root", "process-exec", Target{Path: "/root/a"}, "deny"},
		{"closed-root", "signal", Target{Process: "others"}, "deny"},
		{"closed-root", "network-outbound", Address("example.com", 443), "deny"},
		{"order", "network-outbound", Target{Path: "/private/var/run/docker.sock"}, "ambiguous"},
		{"order", "network-outbound", Target{Path: "/private/var/run/other.sock"}, "allow"},
		{"order", "file-read-data", Target{Path: "/Users/a"}, "deny"},
		{"order", "file-read-data", Target{Path: "/bin/sh"}, "allow"},
	} {
		text, err := os.ReadFile(filepath.Join("testdata/published", c.file+".sb"))
		require.NoError(t, err)
		rules, err := Parse(string(text), []Param{{"OUT", "/out"}, {"SECRETS", "/secret"}, {"ROOT", "/root"}, {"PART",
			"/root/.git"}})
		require.NoError(t, err)
		v, err := Evaluate(rules, c.op, c.target)
		got := "deny"
		var ambiguous *AmbiguousError
		switch {
		case assert.ObjectsAreEqual(c.want, "ambiguous"):
			require.ErrorAs(t, err, &ambiguous)
			require.ErrorContains(t, err, "line 5 or line 4") // the allowing rule, the denying one
			continue
		case v.Allowed:
			got = "allow"
		}
		require.NoError(t, err, "%v", c)
		assert.Equal(t, c.want, got, "%v", c)
	}
}

// TestMemberAndGroup meets a rule for one operation and one for its group: which goes first nobody knows.
func TestMemberAndGroup(t *testing.T) {
	rules, err := Parse("(version 1)\n(deny default)\n(allow file-write-unlink (subpath \"/a\"))\n(deny file-write* (subpath \"/a/b\"))\n", nil)
	require.NoError(t, err)
	_, err = Evaluate(rules, "file-write-unlink", Target{Path: "/a/b"})
	require.ErrorContains(t, err, "line 4 or line 3")
	v, err := Evaluate(rules, "file-write-unlink", Target{Path: "/a/c"})
	require.NoError(t, err)
	require.True(t, v.Allowed, "the control")
}

func FuzzParse(f *testing.F) {
	published, err := filepath.Glob("testdata/published/*.sb")
	require.NoError(f, err)
	require.NotEmpty(f, published)
	for _, file := range published {
		text, err := os.ReadFile(file)
		require.NoError(f, err)
		f.Add(string(text))
	}
	f.Add(start + `(allow file-read* (literal "/a\"") (regex #"^[[]|[]]$")) ; x`)
	params := []Param{{"OUT", "/out"}, {"SECRETS", "/secret"}, {"ROOT", "/root"}, {"PART", "/root/.git"}}
	f.Fuzz(func(t *testing.T, text string) {
		rules, err := Parse(text, params)
		if err != nil {
			return
		}
		for op, known := range operations {
			target := map[Kind]Target{
				OnFile: {Path: "/Users/dev/a"}, OnNetwork: {Host: "localhost", Port: 80}, OnSocket: {Domain: "AF_UNIX"},
				OnProcess: {Process: "self"},
			}[known.kind]
			if target == (Target{}) {
				target.Name = "x"
			}
			v, err := Evaluate(rules, op, target)
			if err == nil && v.Line == 0 {
				require.Equal(t, rules.Default, v.Allowed)
			}
		}
	})
}
