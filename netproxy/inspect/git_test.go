package inspect

import (
	"io"
	"net/http/cgi"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestGit has the real git clone from anywhere and push to acme alone.
func TestGit(t *testing.T) {
	dir, err := exec.Command("git", "--exec-path").Output()
	backend := strings.TrimSpace(string(dir)) + "/git-http-backend"
	if _, e := os.Stat(backend); err != nil || e != nil {
		t.Skip("needs git with git-http-backend")
	}
	f := start(t, "GET https://git.example.com/**", "POST https://git.example.com/*/*/git-upload-pack", "POST https://git.example.com/acme/*/git-receive-pack")
	root := t.TempDir()
	f.host("git.example.com", (&cgi.Handler{Path: backend, Env: []string{"GIT_PROJECT_ROOT=" + root, "GIT_HTTP_EXPORT_ALL=1", "REMOTE_USER=somebody"}, Stderr: io.Discard}).ServeHTTP)
	ca := filepath.Join(t.TempDir(), "ca.pem")
	require.NoError(t, os.WriteFile(ca, f.Authority(), 0o600))
	proxy := f.behind()
	home := t.TempDir()
	git := func(args ...string) (string, error) {
		cmd := exec.Command("git", append([]string{"-c", "user.name=t", "-c", "user.email=t@example.com", "-c", "init.defaultBranch=main"}, args...)...)
		cmd.Dir = home
		cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + home, "HTTPS_PROXY=http://" + proxy, "GIT_SSL_CAINFO=" + ca, "GIT_TERMINAL_PROMPT=0", "GIT_CONFIG_NOSYSTEM=1", "LC_ALL=C"}
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	ok := func(args ...string) {
		t.Helper()
		out, err := git(args...)
		require.NoError(t, err, out)
	}
	for _, repo := range []string{"acme/app", "other/app"} {
		ok("init", "-q", "--bare", filepath.Join(root, repo+".git"))
		ok("-C", filepath.Join(root, repo+".git"), "config", "http.receivepack", "true")
	}
	ok("init", "-q", "work")
	require.NoError(t, os.WriteFile(filepath.Join(home, "work", "file"), []byte(strings.Repeat("content\n", 1<<18)), 0o600))
	ok("-C", "work", "add", "file")
	ok("-C", "work", "commit", "-q", "-m", "one")
	ok("-C", "work", "push", "-q", "https://git.example.com/acme/app.git", "main")
	out, err := git("-C", "work", "push", "-q", "https://git.example.com/other/app.git", "main")
	require.Error(t, err)
	require.Contains(t, out, "403")
	ok("clone", "-q", "https://git.example.com/acme/app.git", "clone")
	ok("-C", filepath.Join(root, "other/app.git"), "fetch", "-q", filepath.Join(root, "acme/app.git"), "main:main")
	ok("clone", "-q", "https://git.example.com/other/app.git", "clone2")
}
