package profiles

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// world is a machine of a test's own: a home, and a repository in it.
type world struct {
	t         testing.TB
	home, dir string
}

func newWorld(t testing.TB) *world {
	root, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	w := &world{t: t, home: root + "/home/u", dir: root + "/home/u/src/project"}
	require.NoError(t, os.MkdirAll(w.dir+"/.git", 0o755))
	return w
}

func (w *world) write(path, text string) string {
	w.t.Helper()
	if !filepath.IsAbs(path) {
		path = filepath.Join(w.dir, path)
	}
	require.NoError(w.t, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(w.t, os.WriteFile(path, []byte(text), 0o644))
	return path
}

func (w *world) request() Request {
	return Request{Host: Host{
		UID: os.Getuid(), Home: w.home, Cwd: w.dir, Memory: 16 << 30,
		Environ: []string{"HOME=" + w.home, "PATH=/usr/bin", "SECRET=x"},
	}}
}

func TestDefault(t *testing.T) {
	w := newWorld(t)
	p, err := Resolve(w.request())
	require.NoError(t, err)
	require.Equal(t, "default", p.Profile)
	require.Equal(t, w.dir, p.Workspace)
	require.Equal(t, int64(12<<30), p.Resources.Memory.Value)
	require.Equal(t, []string{"HOME=" + w.home, "PATH=/usr/bin"}, p.Environ(w.request().Host.Environ))
	for path, want := range map[string]Access{
		"/etc/passwd":             Read,
		"/tmp/x":                  Private,
		"/home/other/.ssh/id_rsa": Hide,
		w.home + "/.ssh/id_rsa":   Private,
		w.dir + "/main.go":        Write,
		w.dir + "/a/b/.env.local": Hide,
		w.dir + "/.env.example":   Write,
	} {
		require.Equal(t, want, p.Decide(path).Access, path)
	}
	require.Empty(t, p.Network.Allow)
	require.Empty(t, p.Warnings)
}

func TestBuiltins(t *testing.T) {
	w := newWorld(t)
	for _, name := range Builtin() {
		req := w.request()
		req.Profile = name
		p, err := Resolve(req)
		require.NoError(t, err, name)
		require.Equal(t, name, p.Profile)
	}
}

func BenchmarkResolve(b *testing.B) {
	w := newWorld(b)
	req := w.request()
	for b.Loop() {
		if _, err := Resolve(req); err != nil {
			b.Fatal(err)
		}
	}
}
