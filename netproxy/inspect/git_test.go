package inspect

import (
	"cmp"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"net/http/cgi"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pccrun/pccrun/netproxy/rules"
)

// A gitBench is the real git, behind an inspector, with a server of repositories that really lie in root.
type gitBench struct {
	t          *testing.T
	root, home string
	environ    []string
	backend    http.Handler
}

// newGit makes one with the repositories acme/app and other/app, and a commit in "work".
func newGit(t *testing.T, f *fixture) *gitBench {
	t.Helper()
	dir, err := exec.Command("git", "--exec-path").Output()
	backend := strings.TrimSpace(string(dir)) + "/git-http-backend"
	if _, e := os.Stat(backend); err != nil || e != nil {
		t.Skip("needs git with git-http-backend")
	}
	g := &gitBench{t: t, root: t.TempDir(), home: t.TempDir()}
	g.backend = &cgi.Handler{Path: backend, Env: []string{"GIT_PROJECT_ROOT=" + g.root, "GIT_HTTP_EXPORT_ALL=1", "REMOTE_USER=somebody"}, Stderr: io.Discard}
	ca := filepath.Join(t.TempDir(), "ca.pem")
	require.NoError(t, os.WriteFile(ca, f.Authority(), 0o600))
	g.environ = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + g.home, "HTTPS_PROXY=http://" + f.behind(), "GIT_SSL_CAINFO=" + ca, "GIT_TERMINAL_PROMPT=0", "GIT_CONFIG_NOSYSTEM=1", "LC_ALL=C"}
	for _, repo := range []string{"acme/app", "other/app"} {
		g.ok("init", "-q", "--bare", filepath.Join(g.root, repo+".git"))
		g.ok("-C", filepath.Join(g.root, repo+".git"), "config", "http.receivepack", "true")
	}
	g.ok("init", "-q", "work")
	require.NoError(t, os.WriteFile(filepath.Join(g.home, "work", "file"), []byte(strings.Repeat("content\n", 1<<18)), 0o600))
	g.ok("-C", "work", "add", "file")
	g.ok("-C", "work", "commit", "-q", "-m", "one")
	return g
}

func (g *gitBench) git(args ...string) (string, error) {
	cmd := exec.Command("git", append([]string{"-c", "user.name=t", "-c", "user.email=t@example.com", "-c", "init.defaultBranch=main"}, args...)...)
	cmd.Dir, cmd.Env = g.home, g.environ
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func (g *gitBench) ok(args ...string) {
	g.t.Helper()
	out, err := g.git(args...)
	require.NoError(g.t, err, out)
}

// TestGit has the real git clone from anywhere and push to acme alone.
func TestGit(t *testing.T) {
	f := start(t, "GET https://git.example.com/**", "POST https://git.example.com/*/*/git-upload-pack", "POST https://git.example.com/acme/*/git-receive-pack")
	g := newGit(t, f)
	f.host("git.example.com", g.backend.ServeHTTP)
	g.ok("-C", "work", "push", "-q", "https://git.example.com/acme/app.git", "main")
	out, err := g.git("-C", "work", "push", "-q", "https://git.example.com/other/app.git", "main")
	require.Error(t, err)
	require.Contains(t, out, "403")
	g.ok("clone", "-q", "https://git.example.com/acme/app.git", "clone")
	g.ok("-C", filepath.Join(g.root, "other/app.git"), "fetch", "-q", filepath.Join(g.root, "acme/app.git"), "main:main")
	g.ok("clone", "-q", "https://git.example.com/other/app.git", "clone2")
}

// TestBoundSecret: a secret that is bound to one repository's paths goes out with requests for them, however they
// are spelled in capitals, and with no others, by whatever spelling.
func TestBoundSecret(t *testing.T) {
	const another = "evil.example.com"
	bound := parse(t, "https://github.com/acme/app.git/**", "https://github.com/acme/app/**", "https://api.github.com/repos/acme/app", "https://api.github.com/repos/acme/app/**")
	f := startWith(t, Secret{Placeholder: placeholder, Value: secret, Name: "GITHUB_TOKEN", Hosts: bound, Caseless: true, Field: "Authorization"}, "github.com", "api.github.com", another)
	g := newGit(t, f)
	var mu sync.Mutex
	var asked, knew []string // all requests, and those that had the secret
	f.host("github.com", func(w http.ResponseWriter, r *http.Request) {
		_, password, _ := r.BasicAuth()
		mu.Lock()
		what := r.Host + r.RequestURI
		asked = append(asked, what)
		if password == secret || strings.Contains(fmt.Sprint(r.Header, r.URL), secret) {
			knew = append(knew, what)
		}
		mu.Unlock()
		switch {
		case strings.HasPrefix(r.URL.Path, "/acme/app/moved"):
			http.Redirect(w, r, "https://"+another+"/acme/app.git"+strings.TrimPrefix(r.URL.Path, "/acme/app/moved")+"?"+r.URL.RawQuery, http.StatusFound)
		case r.UserAgent() == "" || !strings.HasPrefix(r.UserAgent(), "git/"):
			io.WriteString(w, "hello")
		case password != secret:
			w.Header().Set("WWW-Authenticate", "Basic realm=GitHub")
			w.WriteHeader(http.StatusUnauthorized)
		default:
			r.URL.Path = strings.ToLower(r.URL.Path)
			g.backend.ServeHTTP(w, r)
		}
	}, "api.github.com", another)
	told := func() (all, secrets []string) {
		mu.Lock()
		defer mu.Unlock()
		all, secrets, asked, knew = asked, knew, nil, nil
		return all, secrets
	}

	helper := `!f() { printf 'username=x-access-token\npassword=%s\n' ` + placeholder + `; }; f`
	g.environ = append(g.environ, "GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=credential.https://github.com.helper", "GIT_CONFIG_VALUE_0="+helper)
	g.ok("-C", "work", "push", "-q", "https://github.com/acme/app.git", "main")
	g.ok("clone", "-q", "https://github.com/Acme/App", "clone")
	_, with := told()
	require.NotEmpty(t, with)
	g.ok("-C", filepath.Join(g.root, "other/app.git"), "fetch", "-q", filepath.Join(g.root, "acme/app.git"), "main:main")
	for _, args := range [][]string{{"clone", "-q", "https://github.com/other/app.git", "no"}, {"-C", "work", "push", "-q", "https://github.com/other/app.git", "main:x"}} {
		out, err := g.git(args...)
		require.Error(t, err)
		require.Contains(t, out, "403", args)
		_, with := told()
		require.Empty(t, with, args)
	}
	_, err := g.git("-c", "http.sslVerify=false", "clone", "-q", "https://github.com/acme/app/moved", "no")
	require.Error(t, err) // the other host is not inspected, and wants a credential
	all, with := told()
	require.Contains(t, strings.Join(all, "\n"), another+"/acme/app.git/info/refs", "it was redirected")
	require.NotContains(t, strings.Join(with, "\n"), another)

	basic := "Authorization: Basic " + base64.StdEncoding.EncodeToString([]byte("x:"+placeholder))
	bearer := "Authorization: token " + placeholder
	const field = "in the field Authorization"
	for _, c := range []struct {
		host, target, fields string
		goes                 bool
		only                 string // "" for paths
	}{
		{host: "github.com", target: "/acme/app.git/info/refs", goes: true},
		{host: "github.com", target: "/ACME/%41pp/info/refs?service=x"}, // what is escaped keeps its case: another path
		{host: "github.com", target: "/ACME/App/info/refs?service=x", goes: true},
		{host: "github.com", target: "/acme/app/x?access_token=1", goes: true}, // the control of what follows
		{host: "github.com", target: "/acme/app/x?access_token=" + placeholder, fields: "A: b", only: field},
		{host: "github.com", target: "/acme/app/x?access_token=" + placeholder, only: field},
		{host: "github.com", target: "/acme/app/x", fields: bearer + "\nUser-Agent: " + placeholder, only: field},
		{host: "github.com", target: "/acme/app/x", fields: "X-" + basic, only: field},
		{host: "github.com", target: "/acme/app/x", fields: basic, goes: true},
		{host: "api.github.com", target: "/repos/acme/app", goes: true},
		{host: "api.github.com", target: "/repos/acme/app/pulls?page=2", goes: true},
		{host: "github.com", target: "/other/app.git/info/refs"},
		{host: "github.com", target: "/other/app.git/info/refs", fields: basic},
		{host: "github.com", target: "/other/app.git/info/refs?access_token=" + placeholder, fields: "A: b"},
		{host: "github.com", target: "/acme/app-two/info/refs"},
		{host: "github.com", target: "/acme/app.gitx/info/refs"},
		{host: "github.com", target: "/acme/app.git"},
		{host: "github.com", target: "/"},
		{host: "github.com", target: "/acme/app.git/../../other/app.git/info/refs"},
		{host: "github.com", target: "/acme/app.git/%2e%2e/%2E%2e/other/app.git/info/refs"},
		{host: "github.com", target: "/acme/app.git/%252e%252e/x"},
		{host: "github.com", target: "/acme/app.git/..%2f..%2fother/app.git"},
		{host: "github.com", target: "/acme/app.git/..;/x"},
		{host: "github.com", target: "/acme/app.git/.."},
		{host: "github.com", target: "/acme/app.git/..%5cx"},
		{host: "github.com", target: "//acme/app.git/info/refs"},
		{host: "github.com", target: "/acme//app.git/info/refs"},
		{host: "github.com", target: "/acme%2fapp.git/info/refs"},
		{host: "github.com", target: "/repos/acme/app"},
		{host: "github.com", target: "/acme/app.git/info/refs", fields: bearer + "\nX-Original-URL: /other/app.git/info/refs"},
		{host: "github.com", target: "/acme/app.git/info/refs", fields: bearer + "\nX_Rewrite_Url: /other/app.git/info/refs"},
		{host: "api.github.com", target: "/repos/acme/app/x", fields: bearer + "\nX-Amz-Copy-Source: /repos/other/app/x"},
		{host: "api.github.com", target: "/repos/acme/apple"},
		{host: "api.github.com", target: "/repos/acme/app/../../../user"},
		{host: "api.github.com", target: "/user"},
		{host: "api.github.com", target: "/graphql"},
		{host: "api.github.com", target: "/repositories/1"},
		{host: "api.github.com", target: "/acme/app.git/info/refs"},
	} {
		if c.fields == "" {
			c.fields = bearer
		}
		resp, body := f.raw(c.host, "GET "+c.target+" HTTP/1.1\nHost: "+c.host+"\n"+c.fields+"\n\n")
		all, with := told()
		if c.goes {
			require.Equal(t, []string{c.host + c.target}[:1], []string{strings.ReplaceAll(strings.Join(all, " "), secret, placeholder)}, "%+v", c)
			require.Equal(t, all, with, "%+v", c)
			continue
		}
		require.Equal(t, http.StatusForbidden, resp.StatusCode, "%+v", c)
		require.Contains(t, body, "GITHUB_TOKEN goes out only "+cmp.Or(c.only, "with requests for https://github.com/acme/app.git/**"), "%+v", c)
		require.Empty(t, all, "%+v", c)
		last := f.told()[len(f.told())-1].verdict
		require.Equal(t, rules.Withheld, last.Reason, "%+v", c)
		// The control: without the secret it goes where the rules let it.
		_, _ = f.raw(c.host, "GET "+c.target+" HTTP/1.1\nHost: "+c.host+"\n\n")
		if all, with := told(); !strings.Contains(c.target, placeholder) {
			require.Len(t, all, 1, "%+v", c)
			require.Empty(t, with, "%+v", c)
		}
	}
	// The other host is not read at all.
	require.Equal(t, rules.Allow, f.set.Decide(another, 443).Action)
}
