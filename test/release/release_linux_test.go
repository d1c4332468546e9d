package release

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pccrun/pccrun/test/internal/verdicts"
)

// only is the system that is released here: the others take minutes, and differ in the name alone.
const only = "linux-amd64"

// TestRelease makes a release of the last commit and installs it in each way that there is; then it makes it again, in
// another directory and with an empty cache, and compares.
//
//test:root
func TestRelease(t *testing.T) {
	verdicts.SkipUnlessLong(t)
	if os.Getuid() != 0 {
		t.Skip("needs root, to install a package")
	}
	first := made(t, "")
	t.Run("deb", func(t *testing.T) { installDeb(t, first) })
	t.Run("npm", func(t *testing.T) { installNpm(t, first) })
	t.Run("install.sh", func(t *testing.T) { installScript(t, first) })
	t.Run("again", func(t *testing.T) {
		second := made(t, t.TempDir())
		entries, err := os.ReadDir(first)
		require.NoError(t, err)
		require.NotEmpty(t, entries)
		for _, e := range entries {
			one, err := os.ReadFile(filepath.Join(first, e.Name()))
			require.NoError(t, err)
			other, err := os.ReadFile(filepath.Join(second, e.Name()))
			require.NoError(t, err)
			assert.True(t, bytes.Equal(one, other), "%s is another the second time", e.Name())
		}
	})
}

// made returns a directory with a release of a clone of this repository.
func made(t *testing.T, cache string) string {
	t.Helper()
	tree := filepath.Join(t.TempDir(), "tree")
	run(t, nil, "git", "clone", "--quiet", "--no-local", top(t), tree)
	out := filepath.Join(t.TempDir(), "dist")
	var env []string
	if cache != "" {
		env = []string{"GOCACHE=" + cache}
	}
	c := exec.Command("go", "run", ".", "-version", "0.0.1", "-only", only, "-out", out)
	c.Dir, c.Env = filepath.Join(tree, "release"), append(os.Environ(), env...)
	text, err := c.CombinedOutput()
	require.NoError(t, err, "%s", text)
	return out
}

func top(t *testing.T) string {
	t.Helper()
	if dir := os.Getenv("PCCRUN_TEST_TOP"); dir != "" { // test/run has the tests work on a copy, which is no repository
		return dir
	}
	return strings.TrimSpace(run(t, nil, "git", "rev-parse", "--show-toplevel"))
}

// run runs a command that has to succeed, and returns what it printed.
func run(t *testing.T, env []string, argv ...string) string {
	t.Helper()
	c := exec.Command(argv[0], argv[1:]...)
	c.Env = append(os.Environ(), env...)
	text, err := c.CombinedOutput()
	require.NoError(t, err, "%s: %s", strings.Join(argv, " "), text)
	return string(text)
}

// debInstalled installs the Debian package $1 in a copy-on-write view of this machine, in which nothing else changes, and
// prints what the package changed for good: once while it is there, and once after it is removed.
const debInstalled = `set -eu
package=$1
scratch=$2
mount -t tmpfs none "$scratch"
mkdir "$scratch/upper" "$scratch/work" "$scratch/root"
cp "$package" "$scratch/package.deb"
mount -t overlay overlay -o "lowerdir=/,upperdir=$scratch/upper,workdir=$scratch/work" "$scratch/root"
for dir in proc dev sys tmp; do mount --rbind /$dir "$scratch/root/$dir"; done
mkdir "$scratch/root/mnt/old"
cp "$package" "$scratch/root/mnt/package.deb"
cd "$scratch/root"
pivot_root . mnt/old
cd /
upper=/mnt/old$scratch/upper
export HOME=/run/home
mkdir -p /run/home/project
dpkg --install /mnt/package.deb >/dev/null
echo "runs: $(/usr/bin/pccrun version)"
chown -R 65534 /run/home
cd /run/home/project
setpriv --reuid 65534 --regid 65534 --clear-groups /usr/bin/pccrun -q -- sh -c 'echo inside: $(id -u)'
cd /
rm -rf /run/home
man -w pccrun 2>/dev/null || true
listed() { (cd "$upper" && find . ! -type d) | grep -v -e '^./var/lib/dpkg/' -e '^./var/log/' -e '^./var/cache/' -e '^./mnt/' -e '^./run/'; }
listed | sed 's/^/installed: /'
dpkg --purge pccrun >/dev/null
listed | sed 's/^/left: /'
echo done
`

func installDeb(t *testing.T, release string) {
	if _, err := exec.LookPath("dpkg"); err != nil {
		t.Skip("needs dpkg")
	}
	packages, err := filepath.Glob(filepath.Join(release, "*.deb"))
	require.NoError(t, err)
	require.Len(t, packages, 1)
	text := run(t, nil, "unshare", "--mount", "--propagation", "private", "sh", "-c", debInstalled, "sh", packages[0], t.TempDir())
	assert.Contains(t, text, "runs: pccrun 0.0.1 (")
	assert.Contains(t, text, "inside: 65534")
	assert.Contains(t, text, "installed: ./usr/bin/pccrun", "the control: what is installed is seen")
	assert.Contains(t, text, "done")
	assert.NotContains(t, text, "left: ")
}

func installNpm(t *testing.T, release string) {
	if _, err := exec.LookPath("npm"); err != nil {
		t.Skip("needs npm")
	}
	prefix := t.TempDir()
	npm := func(args ...string) {
		run(t, []string{"npm_config_cache=" + t.TempDir()}, append([]string{"npm", "--global", "--offline", "--prefix", prefix}, args...)...)
	}
	npm("install", filepath.Join(release, "npm-pccrun-linux-x64-0.0.1.tgz"), filepath.Join(release, "npm-pccrun-0.0.1.tgz"))
	program := filepath.Join(prefix, "bin", "pccrun")
	assert.Contains(t, run(t, nil, program, "version"), "pccrun 0.0.1 (")
	err := exec.Command(program, "-q", "--", "sh", "-c", "exit 3").Run()
	var ended *exec.ExitError
	require.ErrorAs(t, err, &ended)
	assert.Equal(t, 3, ended.ExitCode())
	npm("uninstall", "pccrun", "@pccrun/linux-x64")
	assert.NoFileExists(t, program)
}

func installScript(t *testing.T, release string) {
	prefix, script := t.TempDir(), filepath.Join(release, "install.sh")
	env := []string{"PREFIX=" + prefix, "PCCRUN_RELEASES=" + release}
	assert.Contains(t, run(t, env, "sh", script), "pccrun 0.0.1 (")
	assert.FileExists(t, filepath.Join(prefix, "share/man/man1/pccrun.1"))

	// An archive that is another than the list of checksums says is not installed.
	changed := t.TempDir()
	require.NoError(t, os.CopyFS(changed, os.DirFS(release)))
	archive, err := os.OpenFile(filepath.Join(changed, "pccrun-0.0.1-"+only+".tar.gz"), os.O_APPEND|os.O_WRONLY, 0)
	require.NoError(t, err)
	_, err = archive.WriteString("x")
	require.NoError(t, err)
	require.NoError(t, archive.Close())
	prefix = t.TempDir()
	c := exec.Command("sh", script)
	c.Env = append(os.Environ(), "PREFIX="+prefix, "PCCRUN_RELEASES="+changed)
	text, err := c.CombinedOutput()
	require.Error(t, err)
	assert.Contains(t, string(text), "nothing was installed")
	assert.NoFileExists(t, filepath.Join(prefix, "bin", "pccrun"))
}
