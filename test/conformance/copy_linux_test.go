package conformance_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pccrun/pccrun/internal/await"
	"github.com/pccrun/pccrun/internal/sessions"
	"github.com/pccrun/pccrun/providers"
	"github.com/pccrun/pccrun/providers/filesync"
	"github.com/pccrun/pccrun/providers/remote"
	fake "github.com/pccrun/pccrun/test/internal/e2b"
)

// copier is what each provider with a copy is, too.
type copier interface {
	Copy(ctx context.Context, r providers.Resource, c providers.Copy, stdio providers.Stdio, o providers.Observer) (int, error)
}

// copied takes a copy of the sandbox with a label into a new directory, as another process does.
func (k *task) copied(c providers.Copy) (names map[string]string, said *heard, err error) {
	k.t.Helper()
	c.Dir, said = filepath.Join(k.t.TempDir(), "to"), &heard{}
	r := providers.Resource{Provider: k.place.name, Labels: map[string]string{providers.LabelKey: k.label}}
	n, err := k.opened().(copier).Copy(k.t.Context(), r, c, providers.Stdio{Changes: k.session}, said)
	names = map[string]string{}
	_ = filepath.WalkDir(c.Dir, func(name string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			text, e := os.ReadFile(name)
			require.NoError(k.t, e)
			rel, _ := filepath.Rel(c.Dir, name)
			names[rel] = string(text)
		} else if err == nil && name != c.Dir {
			n--
		}
		return nil
	})
	if err == nil {
		require.Len(k.t, names, n)
	}
	return names, said, err
}

// there reports whether the command has made a file.
func (k *task) there(name string) bool {
	return slices.ContainsFunc(k.stand("running"), func(id string) bool {
		_, err := os.Stat(filepath.Join(k.home(id), "proj", name))
		return err == nil
	})
}

// until waits for a file of the command's.
func (k *task) until(name string) {
	k.t.Helper()
	await.Until(k.t, "the command makes a file named "+name, func() bool { return k.there(name) })
}

// meanwhile runs a script, and does something when it has made a file named ready, and the provider here
// knows that it runs; then its input ends.
func (k *task) meanwhile(script string, do func(keys io.Writer)) *outcome {
	k.t.Helper()
	in, out := io.Pipe()
	k.stdin = in
	var started atomic.Bool
	k.started = func() { started.Store(true) }
	ended := make(chan *outcome, 1)
	go func() { ended <- k.run("/bin/sh", "-c", script) }()
	await.Until(k.t, "the command makes a file named ready", func() bool { return len(ended) > 0 || started.Load() && k.there("ready") })
	if len(ended) > 0 {
		o := <-ended
		require.Fail(k.t, "the run ended before its command made a file named ready", "%v, status %d: %s", o.err, o.code, o.say)
	}
	do(out)
	require.NoError(k.t, out.Close())
	return await.Receive(k.t, "the command ends after its input", ended)
}

func copiedWhileItRuns(t *testing.T, k *task) {
	k.write(".gitignore", "build/\n")
	o := k.meanwhile("echo more >> a.txt; mkdir build; echo b > build/b; echo evil > .mcp.json; touch ready; cat; rm ready; echo late > late; exit 5", func(io.Writer) {
		names, said, err := k.copied(providers.Copy{Running: true})
		require.NoError(t, err)
		require.Equal(t, map[string]string{"a.txt": "one\nmore\n", "ready": ""}, names)
		require.Contains(t, strings.Join(said.warnings, "\n"), "not downloaded: .mcp.json: protected")
		require.Contains(t, strings.Join(said.warnings, "\n"), "left out by ignore files: build")
		names, _, err = k.copied(providers.Copy{Running: true, All: true})
		require.NoError(t, err)
		require.Equal(t, map[string]string{".gitignore": "build/\n", "a.txt": "one\nmore\n", "build/b": "b\n", "ready": "", "sub/b.txt": "two\n"}, names)
		names, _, err = k.copied(providers.Copy{Running: true, All: true, Filter: []string{"b*", "!sub/"}})
		require.NoError(t, err)
		require.Equal(t, map[string]string{"build/b": "b\n"}, names)
		names, _, err = k.copied(providers.Copy{Running: true, Filter: []string{"*.none"}})
		require.NoError(t, err)
		require.Empty(t, names)
		_, _, err = k.copied(providers.Copy{Running: true, Filter: []string{"# none"}})
		require.ErrorContains(t, err, "gitignore has none like it")
		require.Len(t, k.stand("running"), 1)
		left, err := filepath.Glob(filepath.Join(k.home(k.stand("running")[0]), ".pccrun-proj-*"))
		require.NoError(t, err)
		require.Empty(t, left, "an archive stays there")
	})
	require.NoError(t, o.err)
	require.Equal(t, 5, o.code)
	require.Equal(t, []string{"A .mcp.json protected", "M a.txt", "A late"}, k.changed(), "the run is not disturbed")
	require.Equal(t, "one\n", k.read("a.txt"))
	k.nothingLeft()
}

// What could not be downloaded is paused: copies are taken of it, and it is fetched later. None of an archive
// that is hostile is extracted.
func notDownloaded(t *testing.T, k *task) {
	hostile := k.hostile()
	k.fault(noDownload)
	o := k.run("/bin/sh", "-c", "echo x > made; rm a.txt; mkdir -p lib/.git; : > lib/.git/HEAD; exit 4")
	require.Equal(t, 4, o.Code)
	require.ErrorContains(t, o.err, "could not be downloaded")
	state, says := k.place.rests()
	require.ErrorContains(t, o.err, says)
	require.Contains(t, hint(o.err), "pccrun kill SESSION --no-download")
	require.Equal(t, !k.place.sleeps, len(k.stand("running")) > 0, "it costs money")
	stand := k.stand(state)
	require.Len(t, stand, 1)
	require.FileExists(t, filepath.Join(k.home(stand[0]), "proj/made"))
	require.Equal(t, stand[0], k.heard.created[0].ID)
	fetch := func() error {
		return k.provider.(fetcher).Fetch(t.Context(), k.heard.created[0], providers.Stdio{Changes: k.session}, &k.heard)
	}
	_, _, err := k.copied(providers.Copy{})
	require.ErrorContains(t, err, "download")
	require.ErrorContains(t, fetch(), says)
	require.Equal(t, stand, k.stand(state), "it costs money")
	k.fault()
	names, said, err := k.copied(providers.Copy{})
	require.NoError(t, err)
	require.Equal(t, map[string]string{"made": "x\n"}, names)
	require.Contains(t, said.warnings, "deleted in the sandbox: a.txt")
	require.Contains(t, said.warnings, "not downloaded: a git directory: lib/.git")
	require.Equal(t, stand, k.stand(state), "it costs money")

	hostiles := map[string][]string{
		"what leads out":        {"../../evil"},
		"an absolute path":      {"/tmp/evil"},
		"what nobody asked for": {"other.txt"},
		"what follows a link":   {"made@", "made/x"},
		"a hook":                {".git/hooks/post-checkout"},
	}
	if !provesEngine(k.place) {
		hostiles = nil
	}
	for name, members := range hostiles {
		hostile(members...)
		names, _, err := k.copied(providers.Copy{})
		var refused *filesync.RefusedError
		require.ErrorAs(t, err, &refused, name)
		require.Empty(t, names, name)
	}
	hostile("made")
	_, _, err = k.copied(providers.Copy{})
	require.ErrorContains(t, err, "names were requested, and 1 arrived")
	hostile()
	require.Len(t, k.stand(state), 1)
	require.NoError(t, fetch())
	require.Equal(t, []string{"D a.txt", "A lib", "A made"}, k.changed())
	k.nothingLeft()
	_, _, err = k.copied(providers.Copy{})
	require.ErrorContains(t, err, "nothing is to be downloaded")
	require.ErrorContains(t, fetch(), "nothing is to be downloaded")
}

func downloadedFromNowhere(t *testing.T, k *task) {
	k.fault(noDownload)
	require.Error(t, k.run("touch", "made").err)
	k.fault()
	r, stdio := k.heard.created[0], providers.Stdio{Changes: k.session}
	require.NoError(t, k.provider.Destroy(t.Context(), r))
	again := k.provider.(fetcher)
	if text, err := k.session.ReadFile(sessions.UnfetchedName); strings.Contains(string(text), `"account":"`) {
		require.NoError(t, err)
		require.NoError(t, k.session.WriteFile(sessions.UnfetchedName, bytes.Replace(text, []byte(`"account":"`), []byte(`"account":"x`), 1), 0o600))
		require.ErrorContains(t, again.Fetch(t.Context(), r, stdio, &k.heard), "the run had another key")
		require.NoError(t, k.session.WriteFile(sessions.UnfetchedName, text, 0o600))
	} else {
		require.Equal(t, least, k.place)
	}
	_, err := k.provider.(copier).Copy(t.Context(), r, providers.Copy{Dir: filepath.Join(t.TempDir(), "to")}, stdio, &k.heard)
	require.ErrorIs(t, err, remote.ErrGone)
	_, err = k.session.Lstat(sessions.UnfetchedName)
	require.NoError(t, err, "a copy says nothing of what is to be downloaded")
	err = again.Fetch(t.Context(), r, stdio, &k.heard)
	require.ErrorIs(t, err, remote.ErrGone)
	require.ErrorContains(t, err, "what the command changed is lost")
	byLabel := providers.Resource{Provider: k.place.name, Labels: r.Labels}
	require.ErrorContains(t, again.Fetch(t.Context(), byLabel, stdio, &k.heard), "nothing is to be downloaded")
	require.Nil(t, k.changed())
}

// TestDownloadProgram takes copies of a run that goes on, and ends it, as a user does.
func TestDownloadProgram(t *testing.T) {
	t.Parallel()
	server, err := fake.Start(credential)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.Stop()) })
	p := newProgram(t, server.Environ())
	start := func(flags ...string) (ended func()) {
		c := p.command(append(append([]string{"--provider", "e2b"}, flags...), "--", "sh", "-c", "echo two >> a.txt; mkdir dist; echo d > dist/d; echo up; exec sleep 600")...)
		started(t, c, "up\n")
		return func() {
			_ = c.Wait()
			status := c.ProcessState.Sys().(syscall.WaitStatus)
			if status.Signaled() {
				require.Equal(t, syscall.SIGTERM, status.Signal()) // a shell says 143 of it too
				return
			}
			require.Equal(t, 128+int(syscall.SIGTERM), status.ExitStatus())
		}
	}
	ended := start()
	to := filepath.Join(t.TempDir(), "to")
	for _, refused := range []struct {
		say  string
		code int
		args []string
	}{
		{"it downloads when it ends\npccrun: hint: pccrun download --to DIR ", 1, []string{}},
		{"--all and --filter go with --to", 125, []string{"--all"}},
		{"it is in the workspace", 1, []string{"--to", "dist"}},
		{"it is not empty", 1, []string{"--to", "."}},
		{"no such file or directory", 1, []string{"--to", to + "/in/it"}},
		{"not a directory", 1, []string{"--to", "a.txt"}},
	} {
		args := append([]string{"download"}, refused.args...)
		if len(refused.args) == 0 {
			_, out, _ := p.run("ps", "--json")
			args = append(args, strings.Split(strings.SplitN(out, `"id": "`, 2)[1], `"`)[0])
		}
		code, _, say := p.run(args...)
		require.Equal(t, refused.code, code, say)
		require.Contains(t, say, refused.say)
	}
	require.NoDirExists(t, to)
	code, out, say := p.run("download", "--to", to, "--filter", "dist/", "--json")
	require.Equal(t, 0, code, say)
	require.Contains(t, out, `"paths": 2`)
	text, err := os.ReadFile(filepath.Join(to, "dist/d"))
	require.NoError(t, err)
	require.Equal(t, "d\n", string(text))
	require.NoFileExists(t, filepath.Join(to, "a.txt"))
	code, _, say = p.run("kill", "--all", "--wait", await.Patience.String())
	require.Equal(t, 0, code, say)
	ended()
	_, out, say = p.run("diff", "--name-status")
	require.Equal(t, "M\ta.txt\nA\tdist\nA\tdist/d\n", out, say)
	code, _, say = p.run("discard")
	require.Equal(t, 0, code, say)

	ended = start("--keep", "1h")
	code, _, say = p.run("kill", "--all", "--no-download", "--wait", await.Patience.String())
	require.Equal(t, 0, code, say)
	ended()
	_, out, say = p.run("diff", "--name-status")
	require.Empty(t, out, "%s", say)
	require.Empty(t, server.Sandboxes(""))
	_, out, _ = p.run("ps", "--all", "--json")
	require.NotContains(t, out, "unfetched")
}

// TestLeftOutProgram: what can come is in the session, and can be applied; the sandbox stands with the rest until
// kill --no-download, which leaves other sessions alone.
func TestLeftOutProgram(t *testing.T) {
	t.Parallel()
	server, err := fake.Start(credential)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.Stop()) })
	p := newProgram(t, server.Environ())
	code, _, say := p.run("--provider", "e2b", "--", "sh", "-c", "echo two >> a.txt; echo x > aux.c")
	require.Equal(t, 125, code, say)
	require.Contains(t, say, `"aux.c" (it is the name of a device on Windows)`)
	for range 2 {
		_, out, say := p.run("diff", "--name-status")
		require.Equal(t, "M\ta.txt\n", out, say)
		code, _, say = p.run("gc")
		require.Equal(t, 0, code, say)
		require.Len(t, server.Sandboxes("paused"), 1)
		code, _, say = p.run("download")
		require.Equal(t, 1, code, say)
		require.Contains(t, say, "pccrun kill SESSION --no-download destroys the sandbox")
	}
	code, _, say = p.run("apply")
	require.Equal(t, 0, code, say)
	require.Contains(t, say, "1 applied, 0 left")
	text, err := os.ReadFile(filepath.Join(p.work, "a.txt"))
	require.NoError(t, err)
	require.Equal(t, "one\ntwo\n", string(text))
	code, _, say = p.run("gc")
	require.Equal(t, 0, code, say)
	require.Len(t, server.Sandboxes("paused"), 1)
	var listed struct{ Sessions []struct{ ID string } }
	_, out, _ := p.run("ps", "--all", "--json")
	require.NoError(t, json.Unmarshal([]byte(out), &listed), out)
	require.Len(t, listed.Sessions, 1)
	code, _, say = p.run("kill", listed.Sessions[0].ID)
	require.Equal(t, 1, code, say)
	require.Len(t, server.Sandboxes("paused"), 1, "nobody said that it may go")
	code, _, say = p.run("kill", listed.Sessions[0].ID, "--no-download")
	require.Equal(t, 0, code, say)
	require.Contains(t, say, "was not downloaded, and is destroyed")
	require.Empty(t, server.Sandboxes(""))
}
