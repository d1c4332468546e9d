package workspace

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/internal/await"
	"github.com/pccrun/pccrun/test/fixture"
	"github.com/pccrun/pccrun/workspace/beneath"
	"github.com/pccrun/pccrun/workspace/gitconfig"
	"github.com/pccrun/pccrun/workspace/quarantine"
)

// A copied is a workspace whose configuration has a private copy, which lies in a directory here.
type copied struct {
	*watchman
	copy    string
	configs *PrivateConfigs
}

func newCopied(t *testing.T) *copied {
	w := newWatchman(t)
	w.sh("git config --local user.name host; git config core.logAllRefUpdates true")
	c := &copied{watchman: w, copy: fixture.Dir(t) + "/config"}
	text := c.host()
	require.NoError(t, os.WriteFile(c.copy, []byte(text), 0o600))
	w.begin()
	c.configs = &PrivateConfigs{Session: "20260101T000000Z-00000000", List: []*PrivateConfig{{Path: w.path(".git/config"), Base: []byte(text), Open: func() (int, string, error) {
		fd, err := unix.Open(filepath.Dir(c.copy), unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		return fd, "config", err
	}}}}
	c.configs.Shown = func(path string) bool { return inside(w.root, path) }
	w.guard.Configs = c.configs
	w.guard.peers = Guards{w.guard}
	return c
}

func (c *copied) host() string {
	b, err := os.ReadFile(c.path(".git/config"))
	require.NoError(c.t, err)
	return string(b)
}

// lock takes git's lock of the host's file, as git does.
func (c *copied) lock() {
	f, err := os.OpenFile(c.path(".git/config.lock"), os.O_CREATE|os.O_EXCL, 0o644)
	require.NoError(c.t, errors.Join(err, f.Close()))
}

// saved waits until a text that the copy has is in the session's directory.
func (c *copied) saved(text string) {
	await.Until(c.t, text+" is saved", func() bool {
		b, _ := os.ReadFile(c.session.Name() + "/" + savedName)
		var list []PrivateConfig
		return json.Unmarshal(b, &list) == nil && len(list) == 1 && bytes.Contains(list[0].Now, []byte(text))
	})
}

// git changes the copy as git does, from where it does not read the host's file, which may be half written.
func (c *copied) git(args ...string) {
	for i := 0; i+1 < len(args); i += 2 {
		c.sh("cd /; git config --file " + c.copy + " " + args[i] + " '" + args[i+1] + "'")
	}
}

// settings ends the run and returns what was told of configurations.
func (c *copied) settings() (list []string) {
	found, err := c.guard.Finish()
	require.NoError(c.t, err)
	c.guard.Close()
	for _, f := range found {
		if f.Kind == Address || f.Kind == Setting || f.Kind == Review {
			list = append(list, strings.TrimSpace(string(f.Kind)+" "+f.What+": "+f.Why))
		}
	}
	return list
}

// What has changed is the host's when the run has ended, in its place, and what the host has changed meanwhile stays.
func TestConfigsAreMergedAtTheEnd(t *testing.T) {
	c := newCopied(t)
	c.guard.Watch()
	c.sh("git config pull.rebase true")                        // by a rename
	require.NoError(t, os.Chmod(c.path(".git/config"), 0o440)) // whatever the mode
	before, err := os.Stat(c.path(".git/config"))
	require.NoError(t, err)
	host := c.host()
	c.git("user.name", "a much longer name than before, by some", "remote.x.url", "./there", "remote.y.url", "/elsewhere", "core.fsmonitor", "./x")
	c.saved("elsewhere")
	c.git("user.name", "x", "branch.b.remote", "x", "user.email", "x@example.org")
	c.saved("x@example.org")
	require.Equal(t, host, c.host(), "nothing is merged while the run goes on")
	require.Equal(t, []string{
		"review changed by the host, or just after a change by the host: .git/config",
		"address remote.x.url is ./there: it is new",
		"setting core.fsmonitor: it names a program",
		"setting remote.y.url: its value is a path that this run did not show",
	}, c.settings())
	after, err := os.Stat(c.path(".git/config"))
	require.NoError(t, err)
	require.Equal(t, before.Mode(), after.Mode())
	require.True(t, os.SameFile(before, after), "a rename would end the mounts of other runs")
	for _, want := range []string{"name = x\n", `"b"`, "email = x@example.org", "rebase = true"} {
		require.Contains(t, c.host(), want)
	}
	for _, not := range []string{"elsewhere", "fsmonitor"} {
		require.NotContains(t, c.host(), not)
	}
	c.sh("test ! -e .git/config.lock; test ! -e " + c.session.Name() + "/" + savedName)
}

// Without the host's doing nothing is said of a change that was merged.
func TestConfigsAreNoOthersChange(t *testing.T) {
	c := newCopied(t)
	time.Sleep(2 * racy)
	c.git("user.name", "x")
	require.Empty(t, c.settings())
	c.sh(`test "$(git config user.name)" = x`)
}

// Where the host's git is at work and does not end, what could not be merged is reported, and accepted later.
func TestConfigsLocked(t *testing.T) {
	c := newCopied(t)
	c.lock()
	c.git("user.name", "y", "core.pager", "z")
	require.Equal(t, []string{"setting : " + gitconfig.ErrLocked.Error(), "review new: git waits for this lock; remove it if no git is running"}, c.settings())
	found, err := quarantine.ReadFindings(c.session)
	require.NoError(t, err)
	require.ErrorIs(t, found[0].Restore(c.session), gitconfig.ErrLocked)
	require.NoError(t, os.Remove(c.path(".git/config.lock")))
	require.NoError(t, found[0].Restore(c.session))
	c.sh(`test "$(git config user.name)" = y; test "$(git config core.pager)" = z`)
	require.ErrorIs(t, found[0].Restore(c.session), unix.ENOENT, "it is put back once")
}

// Where the host's git ends in time, the run waits for it.
func TestConfigsUnlocked(t *testing.T) {
	c := newCopied(t)
	c.lock()
	c.git("user.name", "y")
	time.AfterFunc(50*time.Millisecond, func() { os.Remove(c.path(".git/config.lock")) })
	require.Empty(t, c.settings())
	c.sh(`test "$(git config user.name)" = y`)
}

// What could not be written to the host's file, since another has its place by then, is reported as a whole.
func TestConfigsThatCannotBeWritten(t *testing.T) {
	c := newCopied(t)
	config, away := c.path(".git/config"), c.path("away")
	c.configs.Shown = func(string) bool { // asked between reading and writing
		require.NoError(t, os.Rename(config, away))
		return true
	}
	c.git("user.name", "x", "remote.x.url", "./there")
	require.Contains(t, strings.Join(c.settings(), "\n"), "setting : "+gitconfig.ErrReplaced.Error())
	require.NoError(t, os.Rename(away, config))
	require.NotContains(t, c.host(), "name = x\n")
}

// What is accepted takes the place of nothing that has changed since.
func TestAcceptSetting(t *testing.T) {
	c := newCopied(t)
	c.git("core.fsmonitor", "./x", "core.pager", "./y")
	require.Len(t, c.settings(), 2)
	found, err := quarantine.ReadFindings(c.session)
	require.NoError(t, err)
	require.Equal(t, "[core]\n\tfsmonitor = ./x\n", string(must(beneath.ReadOwn(int(openDirT(t, c.session.Name()+"/stash")), found[0].Stash, 100))))
	c.sh("git config core.fsmonitor ./mine")
	require.ErrorIs(t, found[0].Restore(c.session), quarantine.ErrInTheWay)
	require.NoError(t, found[1].Restore(c.session))
	c.sh(`test "$(git config core.fsmonitor)" = ./mine; test "$(git config core.pager)" = ./y`)
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func openDirT(t *testing.T, path string) int {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	require.NoError(t, err)
	t.Cleanup(func() { unix.Close(fd) })
	return fd
}

// Whatever stands in the place of a copy, or of the host's file, the run ends.
func TestConfigsThatAreNone(t *testing.T) {
	for name, do := range map[string]struct{ copy, want string }{
		"removed":              {"rm $1", ""},
		"a directory":          {"rm $1; mkdir $1", ""},
		"a FIFO":               {"rm $1; mkfifo $1", ""},
		"a link":               {"rm $1; ln -s /etc/passwd $1", ""},
		"unreadable":           {"chmod 0 $1; test $(id -u) != 0 || rm $1", ""},
		"too large":            {"git config --file $1 user.name y; yes '# x' | head -c 70000 >> $1", "setting : " + gitconfig.ErrSize.Error()},
		"unclear":              {"printf '\\a' >> $1", "setting : " + gitconfig.ErrControl.Error()},
		"the host's is gone":   {"git config --file $1 user.name y; rm .git/config", "setting : " + gitconfig.ErrReplaced.Error()},
		"the host's is a link": {"git config --file $1 user.name y; mv .git/config .git/x; ln -s x .git/config", "setting : " + gitconfig.ErrReplaced.Error()},
		"the host's is no configuration": {"git config --file $1 user.name y; echo '[' > .git/config",
			"setting : the host's file: " + gitconfig.ErrSyntax.Error()},
		"the host's is locked by one who was killed": {"git config --file $1 core.pager y; echo pccrun 20260101T000000Z-00000000 > .git/config.lock", "setting core.pager: it names a program"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCopied(t)
			c.sh("set -- " + c.copy + "; " + do.copy)
			var told []string
			for _, line := range c.settings() {
				if !strings.HasPrefix(line, "review") {
					told = append(told, line)
				}
			}
			require.Equal(t, do.want, strings.Join(told, "\n"))
		})
	}
}

// What the copies of a killed run said the next pccrun merges, and it reports all.
func TestSavedConfigs(t *testing.T) {
	c := newCopied(t)
	c.guard.Watch()
	c.git("remote.x.url", c.root+"/r", "remote.y.url", "/elsewhere", "user.name", "y", "core.pager", "z")
	c.saved("pager")
	c.guard.halt()
	c.guard.Close()
	require.NotContains(t, c.host(), "name = y")

	s := scanOf(t, c.query).Standing("20260101T000000Z-00000000", c.query)
	configs, err := SavedConfigs(s, c.session)
	require.NoError(t, err)
	c.guard, err = NewGuard(s, nil, nil, c.stash(), func(Finding) {})
	require.NoError(t, err)
	c.guard.Configs = configs
	require.Equal(t, []string{
		"address remote.x.url is " + c.root + "/r: it is new",
		"setting core.pager: it names a program",
		"setting remote.y.url: its value is a path that this run did not show",
	}, c.settings())
	require.Contains(t, c.host(), "name = y")
	configs, err = SavedConfigs(s, c.session)
	require.NoError(t, err)
	require.Nil(t, configs, "it is done")
	for _, text := range []string{"", "[", "[null]", `[{"Path":"a"}]`, "[{}]"} {
		require.NoError(t, os.WriteFile(c.session.Name()+"/"+savedName, []byte(text), 0o600))
		_, err = SavedConfigs(s, c.session)
		require.Error(t, err, text)
	}
}

// config.worktree, which git inside may make, stands until the end, unless the host's git would read it.
func TestLateConfig(t *testing.T) {
	for _, read := range []bool{false, true} {
		w := newWatchman(t)
		w.begin()
		if read {
			w.sh("git config extensions.worktreeConfig true")
		}
		w.sh("echo '[core]' > .git/config.worktree")
		_, err := w.guard.look()
		require.NoError(t, err)
		_, err = os.Lstat(w.path(".git/config.worktree"))
		require.Equal(t, read, err != nil)
		require.Contains(t, w.end(), "stashed .git/config.worktree")
		_, err = os.Lstat(w.path(".git/config.worktree"))
		require.ErrorIs(t, err, os.ErrNotExist)
	}
}
