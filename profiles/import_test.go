//go:build linux || darwin

package profiles

import (
	"path"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const srtSettings = `{
	"network": {
		"allowedDomains": ["github.com", "*.pkgs.example", "api.example.com:443", "*"],
		"deniedDomains": ["evil.example", "*:22"],
		"deniedResolvedAddresses": ["192.0.2.0/24", "2001:db8::/32", "2001:db8::1"],
		"allowUnixSockets": ["/run/x.sock"],
		"allowLocalBinding": true,
		"strictAllowlist": true
	},
	"filesystem": {
		"denyRead": ["~/.ssh", "/opt/secret", {"path": "./[x]", "literal": true}],
		"allowRead": ["~/.ssh/known_hosts"],
		"allowWrite": [".", "/opt/out", "out2"],
		"denyWrite": ["./config", "~/.aws"],
		"allowGitConfig": true
	},
	"credentials": {
		"files": [{"path": "~/.netrc", "mode": "mask"}],
		"envVars": [{"name": "LANG", "mode": "deny"}, {"name": "KEY", "mode": "mask", "injectHosts": ["api.example.com"]}, {"name": "TERM", "mode": "mask"}],
		"sigv4": {"streaming": "deny"}
	},
	"ignoreViolations": {"*": ["x"]},
	"allowNestedUserNamespaces": true,
	"mandatoryDenySearchDepth": 3,
	"enableWeakerNestedSandbox": false
}`

func TestImportSRT(t *testing.T) {
	w := newWorld(t)
	file := w.write("~/.srt-settings.json", srtSettings)
	p := w.policy(func(r *Request) { r.Settings = []string{file} })
	for path, want := range map[string]Access{
		w.home + "/.ssh/id":          Hide,
		w.home + "/.ssh/known_hosts": Read,
		"/opt/secret/x":              Hide,
		"/opt/out/x":                 Write,
		"/opt/other":                 Read,
		w.dir + "/a":                 Write,
		w.dir + "/out2":              Write,
		w.dir + "/[x]":               Hide,
		w.dir + "/x":                 Write,
		w.dir + "/config/y":          Read,
		w.home + "/.aws/credentials": Private, // a deny of writing opens nothing
		w.home + "/.netrc":           Hide,
		w.home + "/other":            Private, // and our home stays closed
	} {
		require.Equal(t, want, access(p, path), path)
	}
	require.Equal(t, []string{"github.com", "*.pkgs.example", "api.example.com:443"}, hostsOf(p))
	set, err := p.Network.Rules(nil)
	require.NoError(t, err)
	require.Equal(t, "deny", set.Decide("github.com", 22).Action.String())
	require.Equal(t, "allow", set.Decide("github.com", 443).Action.String())
	require.Len(t, p.Network.Deny, 5)
	require.Equal(t, EnvScrubbed, p.DecideEnv("LANG").Action)
	require.Equal(t, EnvScrubbed, p.DecideEnv("TERM").Action)
	require.Equal(t, EnvInjected, p.DecideEnv("KEY").Action)
	require.True(t, p.Nested)
	r, ok := p.Protected(w.dir + "/.git/config")
	require.True(t, ok && r.Review)
	require.Equal(t, Origin{Source: file, Line: 11, Key: "filesystem.denyRead"}, p.Decide("/opt/secret").Rule.Origin)
	warnings := strings.Join(p.Warnings, "\n")
	for _, key := range []string{`rule "*"`, "allowUnixSockets", "pccrun hides the file and does not mask it", "sigv4"} {
		require.Contains(t, warnings, key)
	}

	// A flag stands above, an empty list of what may be written closes.
	p = w.policy(func(r *Request) {
		r.Settings, r.Files = []string{file}, []FileFlag{{"/opt/secret", Read}, {"config", Write}}
	})
	require.Equal(t, Read, access(p, "/opt/secret/x"))
	require.Equal(t, Write, access(p, w.dir+"/config/y"))
	w.write("~/closed.json", `{"network": {"allowedDomains": [], "deniedDomains": []}, "filesystem": {"denyRead": [], "allowWrite": [], "denyWrite": []}}`)
	p = w.policy(func(r *Request) { r.Settings = []string{"~/closed.json"} })
	require.Equal(t, Read, access(p, w.dir))
	require.Empty(t, p.Network.Allow)
}

func TestImportClaude(t *testing.T) {
	w := newWorld(t)
	settings := w.write("~/.claude/settings.json", `{
		"model": "x", "permissions": {"deny": ["Read(~/x)"]}, "somethingNew": [1],
		"sandbox": {
			"enabled": true, "excludedCommands": ["docker"], "autoAllowBashIfSandboxed": true, "newKey": 1,
			"network": {"allowedDomains": ["corp.example"], "allowLocalBinding": true},
			"filesystem": {"allowWrite": ["//opt/out", "/opt/out2", "cache"], "denyRead": ["~/.kube"]}
		}
	}`)
	w.write("~/mine.jsonc", `{"extends": "claude", "filesystem": {"~/.claude": "read"}}`)
	p := w.policy(func(r *Request) { r.Profile = "~/mine.jsonc" })
	require.Equal(t, Write, access(p, w.dir), "its list adds to the workspace")
	require.Equal(t, Write, access(p, "/opt/out"))
	require.Equal(t, Write, access(p, "/opt/out2"))
	require.Equal(t, Write, access(p, w.home+"/.claude/cache"))
	require.Equal(t, Hide, access(p, w.home+"/.kube/config"))
	require.Contains(t, hostsOf(p), "corp.example")
	require.Equal(t, []string{
		settings + ":4: sandbox.excludedCommands: ignored: pccrun runs nothing outside the sandbox",
		settings + ":4: sandbox.newKey: ignored: unknown key",
	}, p.Warnings)

	// Where the command may write there, a file that nobody trusted may be its own work.
	w.write("~/own.jsonc", `{"extends": "claude", "filesystem": {"~/.claude": "write"}}`)
	p = w.policy(func(r *Request) { r.Command, r.Profile = []string{"claude"}, w.home+"/own.jsonc" })
	require.Equal(t, Read, access(p, "/opt/out"))
	require.Equal(t, Hide, access(p, w.home+"/.kube/config"))
	require.NotContains(t, hostsOf(p), "corp.example")
	require.Contains(t, p.Warnings, settings+" is not trusted and cannot allow more: ignored line 6: sandbox.filesystem.allowWrite, line 5: sandbox.network.allowedDomains \"corp.example\"")

	// Only for claude and what extends it, as above; and what the command line names is held to its keys.
	require.NotContains(t, hostsOf(w.policy(nil)), "corp.example")
	_, err := w.with(func(r *Request) { r.Settings = []string{settings} })
	require.EqualError(t, err, settings+":4: sandbox.newKey: unknown key")
	w.write("~/.claude/settings.json", `{"sandbox": {"network": {"deniedDomains": ["bad rule here now"]}}}`)
	_, err = w.with(func(r *Request) { r.Command = []string{"claude"} })
	require.ErrorContains(t, err, settings+":1: sandbox.network.deniedDomains: ")
	w.write("~/.claude/settings.json", `{`)
	_, err = w.with(func(r *Request) { r.Command = []string{"claude"} })
	require.ErrorContains(t, err, settings+":1: ")
}

// What srt's format has, the sandbox key can have too, but it opens no user namespaces.
func TestImportClaudeAsSRT(t *testing.T) {
	w := newWorld(t)
	file := w.write("~/s.json", `{"sandbox": {"allowNestedUserNamespaces": true, "credentials": {"files": [{"path": "/opt/k", "mode": "deny"}]}}}`)
	p := w.policy(func(r *Request) { r.Settings = []string{file} })
	require.Equal(t, Hide, access(p, "/opt/k"))
	require.Equal(t, Read, access(p, "/opt/l"), "control")
	require.False(t, p.Nested)
	require.Equal(t, []string{file + ":1: sandbox.allowNestedUserNamespaces: ignored: it has no meaning here"}, p.Warnings)
}

func TestUploadIgnore(t *testing.T) {
	w := newWorld(t)
	lines, _, err := UploadIgnore(w.home)
	require.NoError(t, err)
	require.Empty(t, lines, "there is no file")
	file := w.write("~/.parallel-cc/sandbox.json", `{"uploadIgnorePatterns": ["*.sql", "/data/"]}`)
	lines, by, err := UploadIgnore(w.home)
	require.NoError(t, err)
	require.Equal(t, "*.sql\n/data/\n", lines)
	require.Equal(t, file, by)
	for text, want := range map[string]string{`"*.sql"`: "uploadIgnorePatterns", `[3]`: "uploadIgnorePatterns", `["a\nb"]`: "gitignore has none like it", `["/"]`: "gitignore has none like it"} {
		w.write("~/.parallel-cc/sandbox.json", `{"uploadIgnorePatterns": `+text+`}`)
		_, _, err = UploadIgnore(w.home)
		require.ErrorContains(t, err, want, text)
	}
}

func TestImportParallel(t *testing.T) {
	w := newWorld(t)
	w.write("~/.parallel-cc/sandbox.json", `{
		"defaultProvider": "native",
		"providers": {
			"native": {"allowedDomains": ["github.com"], "filesystem": {"allowWrite": [".", ".git"], "denyRead": ["~/.config/gh", "/opt/x"]}},
			"docker": {"image": "x", "anything": {}}
		},
		"uploadIgnorePatterns": [".git"]
	}`)
	p := w.policy(nil)
	require.Equal(t, []string{"github.com"}, hostsOf(p))
	require.Equal(t, Write, access(p, w.dir+"/a"))
	require.Equal(t, Hide, access(p, "/opt/x/y"))
	require.Equal(t, Hide, access(p, w.home+"/.config/gh/hosts.yml"))

	// Variables stand above the file, and are named where they loosen.
	p = w.policy(func(r *Request) {
		r.Host.Environ = append(r.Host.Environ,
			"PARALLEL_CC_NATIVE_ALLOWED_DOMAINS=api.example.com, b.example,", "PARALLEL_CC_NATIVE_ALLOW_WRITE_PATHS=./out,~/cache",
			"PARALLEL_CC_NATIVE_DENY_READ_PATHS=/opt/y", "PARALLEL_CC_SANDBOX_TIMEOUT=3600")
	})
	require.Equal(t, []string{"github.com", "api.example.com", "b.example"}, hostsOf(p))
	require.Equal(t, Read, access(p, w.dir+"/a"), "only what is listed can be written")
	require.Equal(t, Write, access(p, w.dir+"/out/x"))
	require.Equal(t, Write, access(p, w.home+"/cache"))
	require.Equal(t, Hide, access(p, "/opt/y"))
	require.Equal(t, time.Hour, p.Resources.Deadline())
	require.Equal(t, []string{
		"PARALLEL_CC_NATIVE_ALLOWED_DOMAINS allows more than the profile: api.example.com, b.example,",
		"PARALLEL_CC_NATIVE_ALLOW_WRITE_PATHS allows more than the profile: ./out,~/cache",
	}, p.Warnings)
	require.Equal(t, "environment: PARALLEL_CC_NATIVE_DENY_READ_PATHS", p.Decide("/opt/y").Rule.Origin.String())

	for _, bad := range []string{"PARALLEL_CC_SANDBOX_TIMEOUT=0", "PARALLEL_CC_SANDBOX_TIMEOUT=1h", "PARALLEL_CC_NATIVE_DENY_READ_PATHS=~x/y"} {
		_, err := w.with(func(r *Request) { r.Host.Environ = append(r.Host.Environ, bad) })
		name, _, _ := strings.Cut(bad, "=")
		require.ErrorContains(t, err, "environment: "+name)
	}

	// Limits of a container count where one is asked for.
	limits := []string{"PARALLEL_CC_DOCKER_MEMORY_LIMIT=300m", "PARALLEL_CC_DOCKER_CPU_LIMIT=1.5"}
	limited := func(provider string, more ...string) *Policy {
		return w.policy(func(r *Request) {
			r.Provider, r.Host.Environ = provider, append(append(r.Host.Environ, limits...), more...)
		})
	}
	for _, p := range []*Policy{limited("docker"), limited("", "PARALLEL_CC_SANDBOX_PROVIDER=docker")} {
		require.EqualValues(t, 300<<20, p.Resources.Memory.Value)
		require.EqualValues(t, 1500, p.Resources.CPUs.Value)
	}
	require.NotEqualValues(t, 300<<20, limited("").Resources.Memory.Value, "the control")
	_, err := w.with(func(r *Request) {
		r.Provider, r.Host.Environ = "docker", append(r.Host.Environ, "PARALLEL_CC_DOCKER_MEMORY_LIMIT=lots")
	})
	require.ErrorContains(t, err, "environment: PARALLEL_CC_DOCKER_MEMORY_LIMIT")
	w.write("~/.parallel-cc/sandbox.json", `{"providers": {"native": {"allowedDomain": ["x.example"]}}}`)
	require.Contains(t, w.policy(nil).Warnings[0], "providers.native.allowedDomain: ignored: unknown key")
}

func TestImportMistakes(t *testing.T) {
	w := newWorld(t)
	const head = `{"network": {"allowedDomains": [], "deniedDomains": []}, "filesystem": {"denyRead": [], "allowWrite": [], "denyWrite": []}, `
	for text, want := range map[string]string{
		`[]`:                    ":1: a list: want an object",
		`{}`:                    ":1: network: missing",
		`{"network": {}}`:       ":1: filesystem: missing",
		head + `"foo": 1}`:      ":1: foo: unknown key",
		head + `"network": {}}`: ":1: network: duplicate, first in line 1",
		head + `"allowNestedUserNamespaces": "yes"}`:                                                ":1: allowNestedUserNamespaces: a string: want true or false",
		head + `"credentials": {"files": [{"path": "~/x", "mode": "no"}]}}`:                         `:1: credentials.files: mode "no": want deny or mask`,
		head + `"credentials": {"envVars": [{"name": "A B", "mode": "deny"}]}}`:                     `:1: credentials.envVars: name "A B": want the name of a variable`,
		head + `"credentials": {"envVars": [{"name": "A", "mode": "mask", "injectHosts": ["*"]}]}}`: `:1: credentials.envVars: injectHosts: want names of hosts`,
		head + `"credentials": {"secrets": []}}`:                                                    `:1: credentials.secrets: unknown key`,
		`{"network": {"allowedDomains": "x"}, "filesystem": {}}`:                                    ":1: network.allowedDomains: a string: want a list",
		`{"network": {"mitmProxy": {"socketPath": "/x", "domains": []}}, "filesystem": {}}`:         ":1: network.mitmProxy: another proxy is not supported",
		`{"network": {"deniedDomains": ["a b c d"]}, "filesystem": {}}`:                             `:1: network.deniedDomains: rule "a b c d":`,
		`{"network": {"nope": 1}, "filesystem": {}}`:                                                ":1: network.nope: unknown key",
		`{"network": {}, "filesystem": {"denyRead": [1]}}`:                                          ":1: filesystem.denyRead: a number: want a string",
		`{"network": {}, "filesystem": {"denyRead": ["a\u0000b"]}}`:                                 `:1: filesystem.denyRead: "a\x00b": control character in a path`,
		`{"network": {}, "filesystem": {"denyRead": [{"path": "x", "lit": true}]}}`:                 ":1: filesystem.denyRead.lit: unknown key",
		`{"network": {}, "filesystem": {"denyRead": [{"literal": true}]}}`:                          ":0: filesystem.denyRead: null: want a string",
		`{"network": {}, "filesystem": {"denyreed": []}}`:                                           ":1: filesystem.denyreed: unknown key",
		`{"network": {}, "filesystem": {"denyRead": "x"}}`:                                          ":1: filesystem.denyRead: a string: want a list",
	} {
		file := w.write("~/s.json", text)
		_, err := w.with(func(r *Request) { r.Settings = []string{file} })
		require.Error(t, err, text)
		got := Mistakes(err)[0].Error()
		want = strings.Replace(want, ":0: ", ": ", 1)
		require.True(t, strings.HasPrefix(got, file+want), "%s\n got %s\nwant %s", text, got, file+want)
	}
}

// Whatever another tool's settings say, nothing panics, secrets of the home
// that no list names stay closed, and mistakes are one line each.
func FuzzImport(f *testing.F) {
	f.Add(srtSettings)
	f.Add(`{"sandbox": {"filesystem": {"denyWrite": ["~/.secret"], "denyRead": ["/"]}}}`)
	f.Add(`{"network": {}, "filesystem": {"denyWrite": ["~/.secret", "~"], "allowRead": []}}`)
	w := newWorld(f)
	f.Fuzz(func(t *testing.T, text string) {
		if len(text) > 4096 {
			return
		}
		r := &resolver{req: &Request{Host: w.request().Host}, policy: &Policy{}, scope: scope{home: w.home, workspace: w.dir, cwd: w.dir, memory: 1 << 30}}
		for _, read := range []func(*importer, value){(*importer).either, (*importer).parallel} {
			v, err := parseJSONC("s", text)
			if err != nil {
				return
			}
			im := r.newImporter("s")
			read(im, v)
			for _, m := range Mistakes(im.err()) {
				require.NotContains(t, m.Error(), "\n")
			}
			for _, rule := range im.layer.atMost {
				require.Equal(t, Read, rule.Access)
			}
		}
	})
}

func FuzzPath(f *testing.F) {
	for _, seed := range []string{"~/.ssh", "./a/../b", "/a//b/", "**/x", "~", ".", "..", "a*b", "/[a]/b", "~u", "$HOME"} {
		f.Add(seed)
	}
	s := &scope{home: "/home/u", workspace: "/home/u/src", cwd: "/home/u/src"}
	f.Fuzz(func(t *testing.T, text string) {
		for _, bare := range []bool{false, true} {
			s.bare = bare
			r, err := s.fileRule(text, s.workspace)
			if err != nil {
				require.NotContains(t, err.Error(), "\n")
				continue
			}
			require.True(t, strings.HasPrefix(r.Path, "/"), text)
			require.Equal(t, r.Path, path.Clean(r.Path), text)
			require.NotContains(t, r.Text(), "\x00")
			require.False(t, strings.HasPrefix(r.Glob, "/") || strings.HasSuffix(r.Glob, "/") || strings.Contains(r.Glob, "//"), text)
			p := Policy{Files: []FileRule{r}}
			p.Files[0].Access = Write
			if r.Glob == "" {
				require.Equal(t, Write, p.Decide(r.Path).Access, text)
			}
		}
		if pattern, err := s.protectPattern(text); err == nil {
			require.NotEmpty(t, pattern)
			require.NotContains(t, "/"+pattern+"/", "/../")
		}
	})
}
