package native

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pccrun/pccrun/profiles"
)

// attempted runs a script and returns what of it the launcher was told, by path
// with the rule's flag.
func (b *bench) attempted(script string) (told map[string]Attempt, out outcome) {
	b.t.Helper()
	run, err := b.plan("sh", "-c", script)
	require.NoError(b.t, err)
	told = map[string]Attempt{}
	b.onAttempt = func(a Attempt) { told[a.Path] = a }
	_, wait := b.launch(run)
	out = wait()
	require.NoError(b.t, out.err)
	return told, out
}

// What a run tries of files and is refused is told, by the rule that refuses;
// what it may do, and what the user could not do either, is not.
func TestAttempts(t *testing.T) {
	unprivileged(t)
	b := newBench(t)
	b.request.Report = "attempts"
	in := func(name string) string { return filepath.Join(b.workspace, name) }
	shown, spaced := filepath.Join(b.home, "shown"), filepath.Join(b.home, "shown/x --write ~")
	require.NoError(t, os.WriteFile(spaced, nil, 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(shown, "mode"), nil, 0o400))
	told, out := b.attempted(`
echo x > .git/hooks/post-commit
ln -s .git/hooks link; echo x > link/update
mv .git/hooks .git/away; mv .git gone
echo x > ../shown/file; echo x > '../shown/x --write ~'
echo x > made; mkdir -p .git/objects new/deep; mv made moved; echo x > /tmp/there; echo x > /dev/null
echo x > ../shown/absent/file
chmod 700 ../shown/mode ../shown/none; chmod 700 made
cat .git/config > /dev/null
echo ran`)
	require.Contains(t, out.out, "ran\n")
	for path, want := range map[string]Attempt{
		in(".git/hooks/post-commit"): {Guarantee: profiles.FSProtect, Hint: "touch .git/hooks/post-commit and --review .git/hooks/post-commit"},
		in(".git/hooks/update"):      {Guarantee: profiles.FSProtect, Hint: "touch .git/hooks/update and --review .git/hooks/update"},
		in(".git/hooks"):             {Guarantee: profiles.FSProtect},
		in(".git"):                   {Guarantee: profiles.FSProtect},
		shown + "/file":              {Guarantee: profiles.FSReadonly, Hint: "--write " + shown + " in place of --read " + shown},
		shown + "/mode":              {Guarantee: profiles.FSReadonly, Hint: "--write " + shown + "/mode"},
		spaced:                       {Guarantee: profiles.FSReadonly, Hint: "--write '" + spaced + "'"}, // one word, for who takes it over
	} {
		require.Contains(t, told, path)
		require.Equal(t, want.Guarantee, told[path].Guarantee, path)
		require.Equal(t, want.Hint, told[path].Hint, path)
		delete(told, path)
	}
	delete(told, filepath.Join(b.home, "shown/absent")) // its parent is not there: told or not
	delete(told, filepath.Join(b.home, "shown/absent/file"))
	require.Empty(t, told, "what is allowed, or could not be done outside")
	require.NoFileExists(t, in(".git/hooks/post-commit"))
	require.NoFileExists(t, shown+"/file")

	// The control: nobody asks, nobody is told, and no filter more is installed.
	b.request.Report = ""
	told, _ = b.attempted("echo x > .git/hooks/post-commit; grep Seccomp_filters /proc/self/status")
	require.Empty(t, told)
}

// What is told of an attempt on what is hidden does not depend on what is there:
// the command can read it.
func TestAttemptsOnWhatIsHidden(t *testing.T) {
	unprivileged(t)
	b := newBench(t)
	b.request.Report = "attempts"
	hidden := filepath.Join(b.home, "shown/hidden")
	require.NoError(t, os.MkdirAll(hidden, 0o755))
	b.write("shown/hidden/file", "x")
	b.write("shown/hidden/closed", "x")
	require.NoError(t, os.Chmod(filepath.Join(hidden, "closed"), 0o400))
	require.NoError(t, os.Mkdir(filepath.Join(hidden, "dir"), 0o500))
	b.request.Files = append(b.request.Files, profiles.FileFlag{Path: hidden, Access: profiles.Hide})
	told, out := b.attempted("cd " + hidden + "; for f in file closed absent dir/x other/x; do echo x > $f; done; true")
	require.Contains(t, out.out, "closed")
	for _, name := range []string{"file", "closed", "absent"} {
		require.Contains(t, told, filepath.Join(hidden, name))
	}
	require.Equal(t, told[filepath.Join(hidden, "dir/x")].Guarantee, told[filepath.Join(hidden, "other/x")].Guarantee)
}

// A secret of the home that is looked for is told at the end, what is not looked
// for is not; ssh and gpg find an empty directory.
func TestTraces(t *testing.T) {
	unprivileged(t)
	b := newBench(t)
	b.request.Report = "attempts"
	for _, name := range []string{".ssh", ".gnupg", ".aws", ".config/gh"} {
		require.NoError(t, os.MkdirAll(filepath.Join(b.home, name), 0o700))
	}
	b.write(".ssh/id_ed25519", "canary-key\n")
	b.write(".aws/credentials", "canary-aws\n")
	for script, want := range map[string][]string{
		"cat ~/.ssh/id_ed25519": {".ssh"},
		"ls ~/.aws/":            {".aws"},
		"cd ~/.config/gh":       {".config/gh"},
		"ls -a ~ >/dev/null; test -d ~; stat -c %a ~/.ssh":      nil,
		"cat " + b.home + "/.aws/credentials":                   {".aws"},
		"echo x > ~/.ssh/known_hosts; cat ~/.ssh/k*":            {".ssh"},
		"mkdir -p ~/.gnupg/private; rm -rf ~/.ssh; true":        {".gnupg"},
		"find ~ -name id_ed25519 | grep .":                      nil,
		"rm ~/.ssh; ln -s / ~/.ssh; ls ~/.ssh/etc":              nil,
		"touch -ham ~/.ssh; rm -r ~/.config; ln -s / ~/.config": nil,
	} {
		_, out := b.attempted(script)
		require.NotContains(t, out.out, "canary", script)
		var paths []string
		for _, name := range want {
			paths = append(paths, filepath.Join(b.home, name))
		}
		require.Equal(t, paths, out.end.Looked, script+": "+out.out)
	}
	// A secret that the policy shows is no secret, and has no trace.
	b.request.Files = append(b.request.Files, profiles.FileFlag{Path: filepath.Join(b.home, ".ssh"), Access: profiles.Read})
	_, out := b.attempted("cat ~/.ssh/id_ed25519; readlink ~/.ssh")
	require.Equal(t, "canary-key\n", out.out)
	require.Empty(t, out.end.Looked)
	// The control: without a report there is nothing in the way.
	b.request.Report = ""
	_, out = b.attempted("ls -a ~; cat ~/.aws/credentials")
	require.NotContains(t, out.out, ".pccrun")
	require.Empty(t, out.end.Looked)
}

// What the workspace names in the home is told of where it was looked for, and whether something was made there; a secret,
// what is shown, and a file never. It needs no report.
func TestWhatTheWorkspaceNames(t *testing.T) {
	unprivileged(t)
	b := newBench(t)
	for _, name := range []string{"cache/nm", "cache/tg", "shown", ".ssh"} {
		require.NoError(t, os.MkdirAll(filepath.Join(b.home, name), 0o700))
		b.write(name+"/file", "canary\n")
	}
	for link, to := range map[string]string{"node_modules": "cache/nm", "target": "cache/tg", "keys": ".ssh", "lib": "shown", "one": "shown/file", "up": "."} {
		require.NoError(t, os.Symlink(filepath.Join(b.home, to), filepath.Join(b.workspace, link)))
	}
	b.request.Files = append(b.request.Files, profiles.FileFlag{Path: filepath.Join(b.home, "shown"), Access: profiles.Read})
	for script, want := range map[string][2][]string{
		"cat node_modules/file":                       {{"cache/nm"}, nil},
		"ls; readlink target; false":                  {},
		"cat keys/file one up/file":                   {},
		"cat lib/file | grep canary":                  {}, // the control
		"echo x > target/x":                           {{"cache/tg"}, {"cache/tg"}},
		"mkdir -p ~/cache/tg/d ~/cache/other; ls one": {{"cache/tg"}, {"cache/tg"}},
	} {
		_, out := b.attempted(script + " || true")
		for i, got := range [][]string{out.end.Looked, out.end.Made} {
			var paths []string
			for _, name := range want[i] {
				paths = append(paths, filepath.Join(b.home, name))
			}
			require.Equal(t, paths, got, script+": "+out.out)
		}
	}
}

// A run that learns records what was hidden and opened, executed, entered or to be changed, by children too, and nothing of
// what it had, of what the command made, of caches, or of the sandbox's own.
func TestSought(t *testing.T) {
	unprivileged(t)
	b := newBench(t)
	b.request.Report = "attempts"
	for _, name := range []string{"dir", "tools", ".ssh"} {
		require.NoError(t, os.Mkdir(filepath.Join(b.home, name), 0o755))
	}
	b.write("dir/file", "canary")
	b.write("notes", "canary")
	b.write("tools/run", "#!/bin/sh\n")
	b.write("closed", "canary")
	require.NoError(t, os.Chmod(filepath.Join(b.home, "closed"), 0))
	b.write("server.key", "canary")
	require.NoError(t, os.Symlink("server.key", filepath.Join(b.home, "plain")))
	require.NoError(t, os.Mkdir(filepath.Join(b.home, "other"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(b.home, "other/.env"), []byte("canary"), 0o644))
	b.write(".ssh/key", "canary")
	require.NoError(t, os.Link(filepath.Join(b.home, ".ssh/key"), filepath.Join(b.home, "linked")))
	script := `cat file ../notes ../linked ../secret ../none ../closed ../plain ../other/.env ../.ssh/id ../.cache/x /tmp/x /proc/1/environ; ../tools/run; cd ../dir; cat ../shown/none
		echo x > ../dir/new; echo x > ~/made; cat ~/made; (cat .env; sh -c 'cat .env'); echo >> .env; true`
	run, err := b.plan("sh", "-c", script)
	require.NoError(t, err)
	_, wait := b.launch(run)
	require.NoError(t, wait().err)
	require.Empty(t, run.sought, "the control: only a run that learns asks about reads")

	b.learn = true
	run, err = b.plan("sh", "-c", script)
	require.NoError(t, err)
	_, wait = b.launch(run)
	o := wait()
	require.NoError(t, o.err)
	require.NotContains(t, o.out, "canary")
	got := map[string]string{}
	for _, d := range run.soughtDenials() {
		require.Equal(t, "fs.hide", d.Guarantee)
		require.NotEmpty(t, d.Rule)
		got[d.What] = d.Hint
	}
	at := func(name string) string { return filepath.Join(b.home, name) }
	require.Equal(t, map[string]string{
		"read " + at("notes"):      "--read " + at("notes"),
		"read " + at("secret"):     "", // by its name
		"read " + at("tools/run"):  "--read " + at("tools/run"),
		"read " + at("dir"):        "--read " + at("dir"),
		"read " + at("work/.env"):  "--read .env",
		"write " + at("dir/new"):   "--write " + at("dir"),
		"read " + at("plain"):      "", // leads to a key
		"read " + at("linked"):     "", // is one by another name
		"read " + at("other/.env"): "",
	}, got)
}

// A socket that a run tries is known, but for those of libraries and of the user's session.
func TestTriedSocketsAreSeen(t *testing.T) {
	unprivileged(t)
	b := newBench(t)
	tried := func() []string {
		run, err := b.plan("perl", "-MIO::Socket::UNIX", "-e", "IO::Socket::UNIX->new($_) for @ARGV", "/run/nscd/socket", "/tmp/tmux-1/default", b.home+"/.gnupg/S.gpg-agent", b.home+"/none/s", "/var/run/none/s")
		require.NoError(t, err)
		_, wait := b.launch(run)
		require.NoError(t, wait().err)
		return run.sockets
	}
	require.Empty(t, tried(), "the control: nobody asks")
	b.request.Report = "attempts"
	require.Equal(t, []string{b.home + "/none/s", "/run/none/s"}, tried())
}
