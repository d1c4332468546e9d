package netproxy

import (
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// An ecosystem is a program that fetches packages, told to fetch them from
// https://example.com with nothing but the variables of AddEnviron to say how.
type ecosystem struct {
	name  string
	argv  []string
	env   []string          // HOME, CA and the like are put in
	files map[string]string // in HOME
	serve map[string]string // what the server has, by path
	asked string            // the path that the program must ask the server for
	out   string            // what it must print
}

var ecosystems = []ecosystem{
	{
		name: "npm", argv: []string{"npm", "view", "pkg", "version", "--registry=https://example.com/", "--cafile=CA"},
		serve: map[string]string{"/pkg": `{"name":"pkg","dist-tags":{"latest":"1.2.3"},"versions":{"1.2.3":{"name":"pkg","version":"1.2.3","dist":{"tarball":"https://example.com/t"}}}}`},
		files: map[string]string{".npmrc": "proxy=http://127.0.0.1:1\nhttps-proxy=http://127.0.0.1:1\n"},
		asked: "/pkg", out: "1.2.3",
	},
	{
		name: "go", argv: []string{"go", "list", "-m", "-versions", "mod.example/m"},
		files: map[string]string{".config/go/telemetry/mode": "off"}, // or something of it is still written when the test is over
		env:   []string{"GOPROXY=https://example.com", "GONOSUMDB=*", "GOFLAGS=-mod=mod", "GOTOOLCHAIN=local", "GOPATH=HOME/go"},
		serve: map[string]string{
			"/mod.example/m/@v/list": "v1.2.3\n", "/mod.example/m/@v/v1.2.3.info": `{"Version":"v1.2.3"}`, "/mod.example/m/@v/v1.2.3.mod": "module mod.example/m\n",
		},
		asked: "/mod.example/m/@v/list", out: "v1.2.3",
	},
	{
		name: "cargo", argv: []string{"cargo", "info", "--registry", "test", "foo"},
		env:   []string{"CARGO_REGISTRIES_TEST_INDEX=sparse+https://example.com/", "CARGO_HTTP_CAINFO=CA", "CARGO_HOME=HOME/cargo", "CARGO_NET_RETRY=0"},
		serve: map[string]string{"/config.json": `{"dl":"https://example.com/dl"}`},
		files: map[string]string{".gitconfig": "[http]\n\tproxy = http://127.0.0.1:1\n"},
		asked: "/3/f/foo",
	},
	{
		name: "gcloud", argv: []string{"gcloud", "projects", "list", "--access-token-file=HOME/token", "--format=value(projectId)"},
		env:   []string{"CLOUDSDK_API_ENDPOINT_OVERRIDES_CLOUDRESOURCEMANAGER=https://example.com/", "CLOUDSDK_CORE_CUSTOM_CA_CERTS_FILE=CA", "CLOUDSDK_CONFIG=HOME/gcloud", "CLOUDSDK_CORE_DISABLE_USAGE_REPORTING=1", "CLOUDSDK_CORE_CHECK_GCE_METADATA=0"},
		files: map[string]string{"token": "t"},
		serve: map[string]string{"/v1/projects": `{"projects":[{"projectId":"hello-gcloud"}]}`},
		asked: "/v1/projects", out: "hello-gcloud",
	},
	{ // what it would attach to (run -it, exec) it dials past every proxy, as its hijacked connections do
		name: "docker", argv: []string{"docker", "--tlsverify", "--tlscacert=CA", "-H", "tcp://example.com:443", "version", "--format={{.Server.Version}}"},
		serve: map[string]string{"/_ping": "OK", "/v1.24/version": `{"Version":"1.2.3","ApiVersion":"1.24"}`},
		asked: "/_ping",
	},
	{
		name: "git with a proxy of its own", argv: []string{"git", "ls-remote", "https://example.com/repo.git"},
		files: map[string]string{".gitconfig": "[http]\n\tproxy = http://127.0.0.1:1\n"},
		serve: map[string]string{"/repo.git/info/refs": strings.Repeat("a", 40) + "\trefs/heads/main\n"},
		asked: "/repo.git/info/refs", out: "refs/heads/main",
	},
}

// TestEcosystems runs the programs that developers fetch packages with; pip and node are among
// those of test/egress.
func TestEcosystems(t *testing.T) {
	for _, e := range ecosystems {
		t.Run(e.name, func(t *testing.T) {
			var mu sync.Mutex
			var asked []string
			secure, ca := tlsServer(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				mu.Lock()
				asked = append(asked, r.URL.Path)
				mu.Unlock()
				if body, ok := e.serve[r.URL.Path]; ok {
					io.WriteString(w, body)
					return
				}
				w.WriteHeader(http.StatusNotFound)
			}))
			f := start(t, nil, "example.com")
			f.host("example.com", 443, secure.Listener.Addr().String())
			home := t.TempDir()
			for name, text := range e.files {
				require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(home, name)), 0o700))
				require.NoError(t, os.WriteFile(filepath.Join(home, name), []byte(text), 0o600))
			}
			argv := slices.Clone(e.argv)
			for i := 1; i < len(argv); i++ {
				argv[i] = replace(argv[i], home, ca)
			}
			env := slices.Clone(e.env)
			for i := range env {
				env[i] = replace(env[i], home, ca)
			}
			out, err := f.commandIn(home, ca, env, argv...)
			mu.Lock()
			defer mu.Unlock()
			require.True(t, slices.ContainsFunc(asked, func(p string) bool { return strings.HasPrefix(p, e.asked) }), "asked %q: %s", asked, out)
			if e.out != "" {
				require.NoError(t, err, out)
				require.Contains(t, out, e.out)
			}
			for _, d := range f.dials() {
				require.True(t, strings.HasPrefix(d, publicAddr), d)
			}
		})
	}
}

func replace(text, home, ca string) string {
	return strings.ReplaceAll(strings.ReplaceAll(text, "HOME/", home+"/"), "=CA", "="+ca)
}

func TestAddEnviron(t *testing.T) {
	const proxy = "http://127.0.0.1:3128"
	get := func(env []string, name string) (values []string) {
		for _, e := range env {
			if v, ok := strings.CutPrefix(e, name+"="); ok {
				values = append(values, v)
			}
		}
		return values
	}
	had := []string{"HTTPS_PROXY=http://corp:1", "X=1"}
	env := AddEnviron(had, proxy)
	require.Equal(t, []string{proxy}, get(env, "HTTPS_PROXY"))
	require.Equal(t, []string{"1"}, get(env, "X"))
	require.Equal(t, []string{proxy}, get(env, "GIT_CONFIG_VALUE_0"))
	require.Equal(t, "HTTPS_PROXY=http://corp:1", had[0], "what was handed in is left as it was")
	env = AddEnviron([]string{"GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=user.name", "GIT_CONFIG_VALUE_0=me"}, proxy)
	require.Equal(t, []string{"me"}, get(env, "GIT_CONFIG_VALUE_0"))
	require.Equal(t, env[:3], AddEnvironWithout(env[:3]), "what the user has set for git holds")
	require.Equal(t, []string{"1"}, get(AddEnvironWithout(nil), "GIT_CONFIG_COUNT"))
	require.Empty(t, get(env, "ALL_PROXY"), "it breaks Python's httpx")
}

func TestAddUncaptured(t *testing.T) {
	const ours = "-Dhttp.proxyHost=127.0.0.1 -Dhttp.proxyPort=3128 -Dhttps.proxyHost=127.0.0.1 -Dhttps.proxyPort=3128 -DsocksProxyHost=127.0.0.1 -DsocksProxyPort=3128"
	require.Equal(t, []string{"A=1", "JAVA_TOOL_OPTIONS=" + ours}, AddUncaptured([]string{"A=1"}, "http://127.0.0.1:3128"))
	had := []string{"JAVA_TOOL_OPTIONS=-Dhttp.proxyHost=own", "A=1"}
	require.Equal(t, []string{"JAVA_TOOL_OPTIONS=" + ours + " -Dhttp.proxyHost=own", "A=1"}, AddUncaptured(had, "http://127.0.0.1:3128"), "the last of two holds")
	require.Equal(t, "JAVA_TOOL_OPTIONS=-Dhttp.proxyHost=own", had[0], "what was handed in is left as it was")
	require.Equal(t, had, AddUncaptured(had, "http://proxy"), "without a port there is none")
}
