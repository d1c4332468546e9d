package namespaces

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/survey"
)

const refusedLine = "error unable to unlink old '%s': Read-only file system\n"

// traceIn returns a reader of a file in a directory that stands for the private ones of a
// sandbox, that file, and what the reader has found since it was asked last.
func traceIn(t *testing.T) (g *GitTrace, file string, found func() []string) {
	dir := t.TempDir()
	require.NoError(t, os.Mkdir(dir+"/m0", 0o755))
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	require.NoError(t, err)
	g = (&Sandbox{Private: fd, plan: &Plan{GitTrace: survey.GitTraceFile, Mounts: []Mount{{Kind: Fresh, Target: "/run"}}}}).GitTrace(false)
	t.Cleanup(func() {
		g.Close()
		unix.Close(fd)
	})
	return g, dir + "/m0/" + filepath.Base(survey.GitTraceFile), func() (list []string) {
		done := make(chan struct{})
		go func() {
			defer close(done)
			g.Read(func(path string) bool {
				if strings.ContainsAny(path, " '") {
					return false // more than the name
				}
				list = append(list, path)
				return true
			})
		}()
		select {
		case <-done:
		case <-time.After(10 * time.Second):
			t.Fatal("it waits")
		}
		return list
	}
}

func add(t *testing.T, file, text string) {
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	require.NoError(t, err)
	_, err = f.WriteString(text)
	require.NoError(t, err)
	require.NoError(t, f.Close())
}

func TestGitTrace(t *testing.T) {
	_, file, found := traceIn(t)
	require.Empty(t, found(), "there is none yet")
	add(t, file, "worktree /w\n"+fmt.Sprintf(refusedLine, "a")+"error unable to un")
	require.Equal(t, []string{"/w/a"}, found())
	require.Empty(t, found(), "nothing is read twice")
	add(t, file, "link old 'b': Read-only file system\n")
	require.Equal(t, []string{"/w/b"}, found(), "a line in two parts")

	require.NoError(t, os.Truncate(file, 0))
	require.Empty(t, found())
	add(t, file, fmt.Sprintf(refusedLine, "c"))
	require.Equal(t, []string{"/w/c"}, found())
}

// TestGitTraceGrows: what is large is taken away, and who still writes there is heard.
func TestGitTraceGrows(t *testing.T) {
	_, file, found := traceIn(t)
	writer, err := os.OpenFile(file, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	require.NoError(t, err)
	defer writer.Close()
	for range 3 { // one that ended long ago is forgotten
		add(t, file, "worktree /w\n"+strings.Repeat("x\n", maxGitTrace/2))
		require.Empty(t, found())
		require.NoFileExists(t, file)
		if _, err = writer.WriteString(fmt.Sprintf(refusedLine, "late")); err == nil {
			require.Equal(t, []string{"/w/late"}, found())
		}
		add(t, file, "worktree /v\n"+fmt.Sprintf(refusedLine, "a"))
		require.Equal(t, []string{"/v/a"}, found(), "who comes later begins anew")
		_, err = writer.WriteString(fmt.Sprintf(refusedLine, "later"))
		require.NoError(t, err)
		require.Equal(t, []string{"/w/later"}, found())
		writer.Close()
		writer, err = os.OpenFile(file, os.O_WRONLY|os.O_APPEND, 0)
		require.NoError(t, err)
	}
}

// TestGitTraceHostile: the file is the command's to make and replace.
func TestGitTraceHostile(t *testing.T) {
	secret := t.TempDir() + "/secret"
	add(t, secret, "worktree /w\n"+fmt.Sprintf(refusedLine, "secret"))
	huge := "worktree /w\n" + fmt.Sprintf(refusedLine, "late")
	for _, c := range []struct {
		name string
		make func(file string) error
		want []string
	}{
		{"a FIFO", func(f string) error { return unix.Mkfifo(f, 0o600) }, nil},
		{"a link to a secret", func(f string) error { return os.Symlink(secret, f) }, nil},
		{"a link to a device that never ends", func(f string) error { return os.Symlink("/dev/zero", f) }, nil},
		{"a directory", func(f string) error { return os.Mkdir(f, 0o700) }, nil},
		{"a socket", func(f string) error { return unix.Mknod(f, unix.S_IFSOCK|0o600, 0) }, nil},
		{"a line without end", func(f string) error { return os.WriteFile(f, make([]byte, maxGitTraceRead), 0o600) }, nil},
		{"more than there is, and a line at its end", func(f string) error {
			if err := os.WriteFile(f, nil, 0o600); err != nil {
				return err
			}
			if err := os.Truncate(f, 1<<40); err != nil {
				return err
			}
			add(t, f, "\n"+huge)
			return nil
		}, []string{"/w/late"}},
	} {
		_, file, found := traceIn(t)
		require.NoError(t, c.make(file), c.name)
		require.Equal(t, c.want, found(), c.name)
		require.NoError(t, os.RemoveAll(file))
		add(t, file, "worktree /w\n"+fmt.Sprintf(refusedLine, "a"))
		require.Equal(t, []string{"/w/a"}, found(), "%s: the control, a file in its place", c.name)
	}

	// One in the place of another, again and again: two are open at most.
	_, file, found := traceIn(t)
	before := descriptors(t)
	for i := range 100 {
		require.NoError(t, os.RemoveAll(file))
		add(t, file, fmt.Sprintf("worktree /%d\n"+refusedLine, i, "a"))
		require.Equal(t, []string{fmt.Sprintf("/%d/a", i)}, found())
	}
	require.LessOrEqual(t, descriptors(t), before+2)
}

func descriptors(t *testing.T) int {
	list, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	return len(list)
}
