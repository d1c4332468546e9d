package native

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/internal/hint"
	"github.com/pccrun/pccrun/profiles"
)

// What a repository, or an earlier run in it, may plant to make the next run
// show or change more than the policy says. Each row's script prints the canary
// or changes the file if it works.
func TestPlanted(t *testing.T) {
	unprivileged(t)
	secret := func(b *bench) string { return filepath.Join(b.home, "secret") }
	for _, c := range []struct {
		name   string
		plant  func(*bench)
		script string
		leak   string // must not be printed
	}{
		{"the workspace's own profile shows where a link leads", func(b *bench) {
			require.NoError(t, os.Symlink(secret(b), filepath.Join(b.workspace, "x.md")))
			b.write("work/.pccrun.jsonc", `{"filesystem":{"**/*.md":"write"}}`)
		}, "cat x.md; echo EVIL > x.md", "canary-home"},
		{"a pattern of the user's follows a planted link", func(b *bench) {
			require.NoError(t, os.Symlink(secret(b), filepath.Join(b.workspace, "docs.md")))
			b.request.Files = []profiles.FileFlag{{Path: b.workspace + "/**/*.md", Access: profiles.Read}}
		}, "cat docs.md", "canary-home"},
		{"a pin shows what is hidden", func(b *bench) {
			require.NoError(t, os.MkdirAll(filepath.Join(b.workspace, ".env.d"), 0o755))
			require.NoError(t, os.MkdirAll(filepath.Join(b.workspace, "p"), 0o755))
			b.write("work/.env.d/prod", "canary-hidden\n")
			require.NoError(t, os.Symlink("../.env.d/prod", filepath.Join(b.workspace, "p/.npmrc")))
		}, "cat .env.d/prod p/.npmrc", "canary-hidden"},
		{"a directory that cannot be listed", func(b *bench) {
			require.NoError(t, os.Mkdir(filepath.Join(b.workspace, "d"), 0o755))
			b.write("work/d/.env", "canary-listed\n")
			require.NoError(t, os.Chmod(filepath.Join(b.workspace, "d"), 0o300))
		}, "chmod 755 d; cat d/.env", "canary-listed"},
		{"a directory that cannot be searched", func(b *bench) {
			require.NoError(t, os.Mkdir(filepath.Join(b.workspace, "d"), 0o755))
			b.write("work/d/.env", "canary-searched\n")
			require.NoError(t, os.Chmod(filepath.Join(b.workspace, "d"), 0o600))
		}, "chmod 755 d; cat d/.env", "canary-searched"},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBench(t)
			c.plant(b)
			if o, err := b.tries(c.script); err == nil {
				require.NoError(t, o.err)
				require.NotContains(t, o.out, c.leak)
			}
			_ = os.Chmod(filepath.Join(b.workspace, "d"), 0o755) // for the directory to be removed
			text, err := os.ReadFile(secret(b))
			require.NoError(t, err)
			require.Equal(t, "canary-home\n", string(text))
		})
	}
}

// tries runs a script unless the launch is refused.
func (b *bench) tries(script string) (outcome, error) {
	if _, err := b.plan("/bin/sh", "-c", script); err != nil {
		return outcome{}, err
	}
	return b.sh(script), nil
}

// A repository whose mode was taken away by one run is not open to the next.
func TestClosedRepository(t *testing.T) {
	unprivileged(t)
	b := newBench(t)
	require.NoError(t, os.Chmod(filepath.Join(b.workspace, ".git"), 0o600))
	_, err := b.tries("chmod 755 .git; echo fsmonitor >> .git/config; echo > .git/hooks/pre-commit")
	_ = err // refused or without effect: both will do
	require.NoError(t, os.Chmod(filepath.Join(b.workspace, ".git"), 0o755))
	config, err := os.ReadFile(filepath.Join(b.workspace, ".git/config"))
	require.NoError(t, err)
	require.NotContains(t, string(config), "fsmonitor")
	require.NoFileExists(t, filepath.Join(b.workspace, ".git/hooks/pre-commit"))
}

// What is read-only stays so around something that is protected.
func TestAnchorInReadOnly(t *testing.T) {
	unprivileged(t)
	b := newBench(t)
	require.NoError(t, os.MkdirAll(filepath.Join(b.workspace, "sub/pkg"), 0o755))
	b.write("work/sub/pkg/.npmrc", "x\n")
	b.request.Files = []profiles.FileFlag{{Path: filepath.Join(b.workspace, "sub"), Access: profiles.Read}}
	o := b.sh("echo evil > sub/pkg/f; mv sub/pkg sub/other; rm -rf .git/refs 2>&1")
	require.NoError(t, o.err)
	require.NoFileExists(t, filepath.Join(b.workspace, "sub/pkg/f"))
	require.FileExists(t, filepath.Join(b.workspace, "sub/pkg/.npmrc"))

	b.request.Files = nil
	o = b.sh("echo made > sub/pkg/f")
	require.NoError(t, o.err)
	require.FileExists(t, filepath.Join(b.workspace, "sub/pkg/f"), "control: without the rule it is written")
}

// A link of a protected name cannot be replaced.
func TestProtectedLink(t *testing.T) {
	unprivileged(t)
	b := newBench(t)
	b.write("work/real", "ok\n")
	require.NoError(t, os.Symlink("real", filepath.Join(b.workspace, ".mcp.json")))
	o := b.sh("echo evil > n; mv n .mcp.json; rm -f .mcp.json; cat .mcp.json")
	require.NoError(t, o.err)
	require.Contains(t, o.out, "ok", "it works as before")
	to, err := os.Readlink(filepath.Join(b.workspace, ".mcp.json"))
	require.NoError(t, err)
	require.Equal(t, "real", to)
}

// A file that a rule hides or makes read-only by its name is so by its other
// names in the workspace too.
func TestOtherNames(t *testing.T) {
	unprivileged(t)
	for _, c := range []struct {
		name, rule, script string
		access             profiles.Access
	}{
		{"hidden", "named.txt", "cat oth/named", profiles.Hide},
		{"read-only", "named.txt", "echo evil >> oth/named", profiles.Read},
		{"in a read-only directory", "sec", "echo evil >> oth/deep", profiles.Read},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBench(t)
			for _, dir := range []string{"oth", "sec/sub"} {
				require.NoError(t, os.MkdirAll(filepath.Join(b.workspace, dir), 0o755))
			}
			b.write("work/named.txt", "canary\n")
			b.write("work/sec/sub/deep", "canary\n")
			require.NoError(t, os.Link(filepath.Join(b.workspace, "named.txt"), filepath.Join(b.workspace, "oth/named")))
			require.NoError(t, os.Link(filepath.Join(b.workspace, "sec/sub/deep"), filepath.Join(b.workspace, "oth/deep")))
			for range 2 { // the second with the index of the first
				b.request.Files = []profiles.FileFlag{{Path: filepath.Join(b.workspace, c.rule), Access: c.access}}
				o := b.sh(c.script + " && echo done")
				require.NoError(t, o.err)
				require.NotContains(t, o.out, "done")
				require.NotContains(t, o.out, "canary")
			}
			b.request.Files = nil
			o := b.sh(c.script + " && echo done")
			require.NoError(t, o.err)
			require.Contains(t, o.out, "done", "control: without the rule")
		})
	}
}

// A FIFO in the workspace leads to whoever holds its other end outside.
func TestFIFO(t *testing.T) {
	unprivileged(t)
	b := newBench(t)
	fifo := filepath.Join(b.workspace, "sub/fifo")
	require.NoError(t, os.MkdirAll(filepath.Dir(fifo), 0o755))
	require.NoError(t, unix.Mkfifo(fifo, 0o600))
	fd, err := unix.Open(fifo, unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	require.NoError(t, err)
	defer unix.Close(fd)
	buf := make([]byte, 64)
	for range 2 {
		o := b.sh("echo command > sub/fifo; mv sub/fifo sub/other; echo command > sub/other")
		require.NoError(t, o.err)
		_, err = unix.Read(fd, buf)
		require.Equal(t, unix.EAGAIN, err)
		_ = os.Remove(filepath.Join(b.workspace, "sub/other"))
	}
	b.request.Files = []profiles.FileFlag{{Path: fifo, Access: profiles.Write}}
	o := b.sh("echo command > sub/fifo")
	require.NoError(t, o.err)
	n, err := unix.Read(fd, buf)
	require.NoError(t, err, "control: named, it is open")
	require.Equal(t, "command\n", string(buf[:n]))
}

// The environment makes nothing the proxy, and no file something on this machine's loopback.
func TestOwnProxy(t *testing.T) {
	b := newBench(t)
	b.request.Allow = []string{"example.test"}
	plan := func(line string) (*Run, error) {
		b.mine(line)
		return b.plan("/bin/true")
	}
	_, err := plan("http_proxy=http://127.0.0.1:18099")
	var own *hint.Error
	require.ErrorAs(t, err, &own)
	b.request.Local = []string{"18099"}
	r, err := plan("http_proxy=http://127.0.0.1:18099")
	require.NoError(t, err)
	require.Contains(t, strings.Join(r.Warnings, "\n"), "the proxy 127.0.0.1:18099 of ~/.config/pccrun/environment")
	b.environ = []string{"http_proxy=http://127.0.0.1:18099"}
	r, err = plan("")
	require.NoError(t, err)
	require.Contains(t, strings.Join(r.Warnings, "\n"), "http_proxy of the environment does not count")
	r, err = plan("HTTPS_PROXY=http://proxy.example:3128")
	require.NoError(t, err)
	require.Contains(t, strings.Join(r.Warnings, "\n"), "the proxy proxy.example:3128")
}
