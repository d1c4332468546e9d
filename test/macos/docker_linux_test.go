package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pccrun/pccrun/test/internal/dockerd"
	"github.com/pccrun/pccrun/test/internal/host"
	"github.com/pccrun/pccrun/test/internal/tempuser"
	"github.com/pccrun/pccrun/test/internal/verdicts"
)

// TestDocker runs commands as a Mac's pccrun does with an engine in a virtual machine: pccrun for Linux
// is taken from beside it, and nothing but the engine's stream and shared files joins both.
//
//test:root
func TestDocker(t *testing.T) {
	verdicts.SkipUnlessLong(t)
	if os.Getuid() != 0 {
		t.Skip("needs root, to start an engine")
	}
	if _, err := os.Stat(dockerd.Program); err != nil {
		t.Skip("needs docker.io")
	}
	program, err := flowOfMac()
	require.NoError(t, err)
	user, err := tempuser.New()
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, user.Remove()) })
	engine, err := dockerd.Start(int(user.GID), "")
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, engine.Stop()) })
	at, stop, err := engine.InVM(int(user.GID))
	require.NoError(t, err)
	t.Cleanup(stop)
	make := engine.Busybox("pccrun-test:mac")
	out, err := exec.Command(make[0], make[1:]...).CombinedOutput()
	require.NoError(t, err, "%s", out)

	bin, project := filepath.Join(user.Home, "bin"), filepath.Join(user.Home, "project")
	as := func(dir string, argv ...string) (string, error) {
		c := exec.Command(argv[0], argv[1:]...)
		c.Dir, c.Env = dir, user.Environ([]string{"PATH=" + bin + ":/usr/bin:/bin", "DOCKER_HOST=" + at, "MISSING="})
		c.SysProcAttr = &syscall.SysProcAttr{Credential: user.Credential()}
		out, err := c.CombinedOutput()
		return string(out), err
	}
	setup := `mkdir bin project dotfiles; cd project; git init -q; mkdir sub; echo TOKEN=secret >sub/.env; ln -s sub/.env link.env
echo mine >a; echo kept >.envrc; echo other >../dotfiles/x; ln -s dotfiles/x ../x
git -c user.name=a -c user.email=a@b commit -q --allow-empty -m first; git worktree add -q ../tree`
	text, err := as(user.Home, "sh", "-ec", setup)
	require.NoError(t, err, text)
	install := func(from, name string) {
		text, err := os.ReadFile(from)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(bin, name), text, 0o755))
	}
	install(program, "pccrun")
	flags := []string{bin + "/pccrun", "--provider", "docker", "--docker-image", "pccrun-test:mac", "--env", "PATH=/bin", "--read", "~/x", "--"}
	text, err = as(project, append(flags, "true")...)
	require.Error(t, err)
	assert.Contains(t, text, bin+"/pccrun-linux-", "what is missing, and what makes it")
	install(host.Program(t), "pccrun-linux-"+runtime.GOARCH)

	text, err = as(project, append(flags, "sh", "-c", `cat a /of-the-image ~/x; cat sub/.env link.env; ls ~/dotfiles ~/bin
echo x >.envrc; echo x >.git/hooks/post-commit; echo x >>.git/config; mv sub other; wget -qO- http://evil.example; echo new >new; mkdir -p .vscode
echo '{}' >.vscode/tasks.json; exit 3`)...)
	var exit *exec.ExitError
	require.ErrorAs(t, err, &exit, text)
	assert.Equal(t, 3, exit.ExitCode(), text)
	assert.Contains(t, text, "mine\nmine\nother\n")
	assert.NotContains(t, text, "secret")
	assert.Contains(t, text, "evil.example", "the refusal")
	assert.Contains(t, text, "quarantined: .vscode")
	for name, want := range map[string]string{"project/.envrc": "kept\n", "project/new": "new\n", "project/sub/.env": "TOKEN=secret\n"} {
		have, err := os.ReadFile(filepath.Join(user.Home, name))
		require.NoError(t, err)
		assert.Equal(t, want, string(have), name)
	}
	assert.NoFileExists(t, filepath.Join(project, ".git/hooks/post-commit"))
	assert.NoDirExists(t, filepath.Join(project, ".vscode"))
	text, err = as(project, "git", "status", "--porcelain", "--untracked-files=no")
	require.NoError(t, err, text)

	// Of the repository of a linked worktree a commit's part is written, and nothing that git executes.
	text, err = as(filepath.Join(user.Home, "tree"), append(flags, "sh", "-c", `cd ~/project/.git; cat HEAD; echo x >objects/new && echo written
for name in config hooks/post-commit objects/info/alternates worktrees/tree/commondir; do echo x >$name; done; true`)...)
	require.NoError(t, err, text)
	assert.Contains(t, text, "ref: refs/heads/")
	assert.Contains(t, text, "written\n")
	assert.Equal(t, 4, strings.Count(text, "Read-only file system"), text)

	// With a terminal the command has one of its own, and the keys and modes of the user's are relayed.
	line := strings.Join(append(flags, "sh", "-c", "'[ -t 0 ] && [ -t 1 ] && read word && echo got \\$word'"), " ")
	text, err = as(project, "sh", "-c", "echo typed | script -qec \""+line+"\" /dev/null")
	require.NoError(t, err, text)
	assert.Contains(t, text, "got typed")
	left, err := os.ReadDir(filepath.Join(user.Home, ".local/state/pccrun/docker"))
	require.NoError(t, err)
	assert.Empty(t, left, "what was made for a run is gone")
}
