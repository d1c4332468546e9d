//go:build linux

// Package overlay holds what `pccrun diff`, `apply` and `discard` make of a run
// to what the same work does to a plain copy of the tree, with the program as
// it is shipped and the kernel's own overlayfs.
package overlay

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pccrun/pccrun/internal/await"
	"github.com/pccrun/pccrun/test/internal/host"
	"github.com/pccrun/pccrun/workspace/changes"
)

// A desk is a home with a workspace.
type desk struct {
	t    *testing.T
	home string
	ws   string
	prog string
}

func newDesk(t *testing.T) *desk {
	home, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	d := &desk{t: t, home: home, ws: filepath.Join(home, "ws"), prog: host.Program(t)}
	require.NoError(t, os.Mkdir(d.ws, 0o755))
	t.Cleanup(func() { // the test's own clean-up cannot enter what is closed
		_ = exec.Command("chmod", "-R", "u+rwX", home).Run()
	})
	return d
}

func (d *desk) write(name, text string) {
	path := filepath.Join(d.ws, name)
	require.NoError(d.t, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(d.t, os.WriteFile(path, []byte(text), 0o644))
}

// cmd is pccrun in the workspace.
func (d *desk) cmd(args ...string) *exec.Cmd {
	cmd := exec.Command(d.prog, args...)
	cmd.Dir = d.ws
	cmd.Env = append(os.Environ(), "HOME="+d.home, "XDG_STATE_HOME=", "XDG_CONFIG_HOME=", "XDG_CACHE_HOME=")
	return cmd
}

// pccrun runs it and returns what it says on both outputs, and its status.
func (d *desk) pccrun(args ...string) (out, err string, code int) {
	cmd := d.cmd(args...)
	var o, e bytes.Buffer
	cmd.Stdout, cmd.Stderr = &o, &e
	_ = cmd.Run()
	return o.String(), e.String(), cmd.ProcessState.ExitCode()
}

// ok is one that must succeed.
func (d *desk) ok(args ...string) (out, err string) {
	d.t.Helper()
	out, err, code := d.pccrun(args...)
	require.Zero(d.t, code, "pccrun %q: %s%s", args, out, err)
	return out, err
}

// overlay runs a script with the workspace as an overlay.
func (d *desk) overlay(script string, flags ...string) (out, err string) {
	d.t.Helper()
	return d.ok(append(append([]string{"--overlay", "."}, flags...), "--", "sh", "-c", script)...)
}

// sessions returns what is kept of runs. What root's run left is an empty
// directory, until gc.
func (d *desk) sessions() []string {
	list, _ := filepath.Glob(filepath.Join(d.home, ".local/state/pccrun/sessions/*/*"))
	return list
}

// tree is what stands in a directory, each path with its mode and content.
func tree(t *testing.T, root string) map[string]string {
	all := map[string]string{}
	require.NoError(t, filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		text := info.Mode().String()
		switch {
		case d.Type().IsRegular():
			b, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			text += " " + string(b)
		case d.Type()&fs.ModeSymlink != 0:
			text, err = os.Readlink(path)
			if err != nil {
				return err
			}
		}
		rel, _ := filepath.Rel(root, path)
		all[rel] = text
		return nil
	}))
	return all
}

// names are those that the random work is done to: few enough to be met again,
// and some that a careless program trips over.
var names = []string{"a", "b", "c", "d e", "-f", "new\nline", "ü", "'q'", `"`, "\\", "*", "\xff\xfe", ".h"}

func randomPath(r *rand.Rand) string {
	parts := make([]string, 1+r.IntN(3))
	for i := range parts {
		parts[i] = names[r.IntN(len(names))]
	}
	return "./" + strings.Join(parts, "/")
}

func quoted(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// randomWork is a shell script of operations, some of which fail.
func randomWork(r *rand.Rand, n int) string {
	var b strings.Builder
	for range n {
		p, q := quoted(randomPath(r)), quoted(randomPath(r))
		text := fmt.Sprintf("%d", r.IntN(4))
		switch r.IntN(14) {
		case 0, 1, 2:
			fmt.Fprintf(&b, "echo %s > %s\n", text, p)
		case 3:
			fmt.Fprintf(&b, "echo %s >> %s\n", text, p)
		case 4:
			fmt.Fprintf(&b, "rm -f %s\n", p)
		case 5:
			fmt.Fprintf(&b, "rm -rf %s\n", p)
		case 6, 7:
			fmt.Fprintf(&b, "mkdir -p %s\n", p)
		case 8, 9:
			fmt.Fprintf(&b, "mv %s %s\n", p, q)
		case 10:
			// Of files: root, outside, enters what is closed.
			fmt.Fprintf(&b, "[ -d %s ] || chmod %s %s\n", p, []string{"600", "755", "444", "700"}[r.IntN(4)], p)
		case 11:
			fmt.Fprintf(&b, "ln -s %s %s\n", q, p)
		case 12:
			// Of a directory that is copied into itself, cp copies what it comes to first.
			fmt.Fprintf(&b, "case %s/ in %s/*) ;; *) cp -a %s %s ;; esac\n", q, p, p, q)
		case 13:
			fmt.Fprintf(&b, "rm -rf %s; mkdir %s; head -c 5000 /dev/zero > %s/z\n", p, p, p)
		}
	}
	return b.String() + ":\n"
}

func sh(t *testing.T, dir, script string) {
	cmd := exec.Command("sh", "-c", script)
	cmd.Dir = dir
	require.NoError(t, cmd.Run())
}

// What a run does in an overlay leaves the host as it was, diff says exactly
// what it did, apply makes the host what a plain copy became, and discard
// leaves nothing.
func TestRandomWork(t *testing.T) {
	for seed := range uint64(24) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			r := rand.New(rand.NewPCG(seed, 7))
			d := newDesk(t)
			plain, orig := filepath.Join(d.home, "plain"), filepath.Join(d.home, "orig")
			sh(t, d.ws, randomWork(r, 60))
			for _, copy := range []string{plain, orig} {
				require.NoError(t, exec.Command("cp", "-a", d.ws, copy).Run())
			}
			time.Sleep(10 * time.Millisecond)
			script := randomWork(r, 40)
			before := tree(t, d.ws)
			_, said := d.overlay(script)
			sh(t, plain, script)
			changed, want := compare(t, orig, plain), tree(t, plain)
			require.Equal(t, before, tree(t, d.ws), "the host stays as it was")
			if len(changed) == 0 {
				require.Empty(t, d.sessions())
				return
			}
			require.Contains(t, said, "changed in the overlay: pccrun diff, apply or discard")
			require.Equal(t, changed, d.changes(), "script:\n%s", script)
			if seed%3 == 0 {
				d.ok("discard")
				require.Equal(t, before, tree(t, d.ws))
			} else {
				d.ok("apply")
				require.Equal(t, want, tree(t, d.ws))
			}
			require.Empty(t, d.sessions(), "nothing is kept that nobody needs")
			_, _, code := d.pccrun("diff")
			require.Equal(t, 1, code)
		})
	}
}

// compare is what changed between two plain trees, as diff --json would say it.
func compare(t *testing.T, old, now string) []string {
	a, err := os.OpenRoot(old)
	require.NoError(t, err)
	defer a.Close()
	b, err := os.OpenRoot(now)
	require.NoError(t, err)
	defer b.Close()
	set, err := changes.Compare(a, b)
	require.NoError(t, err)
	var list []string
	for _, c := range set.Changes {
		list = append(list, describe(string(rune(c.Op())), c.Path))
	}
	return list
}

func describe(op, path string) string {
	return string([]rune(op + " " + path)) // as JSON has it
}

// changes is what diff --json says.
func (d *desk) changes() []string {
	out, _ := d.ok("diff", "--json")
	var got struct {
		Changes []struct{ Op, Path, Conflict string }
	}
	require.NoError(d.t, json.Unmarshal([]byte(out), &got), out)
	var list []string
	for _, c := range got.Changes {
		require.Empty(d.t, c.Conflict, c.Path)
		path := strings.TrimPrefix(c.Path, d.ws+"/")
		if c.Path == d.ws {
			path = "."
		}
		list = append(list, describe(c.Op, path))
	}
	return list
}

// The control: without an overlay the same work reaches the host.
func TestWithoutOverlay(t *testing.T) {
	d := newDesk(t)
	d.write("f", "old\n")
	d.ok("--", "sh", "-c", "echo new > f")
	require.Equal(t, "-rw-r--r-- new\n", tree(t, d.ws)["f"])
	_, said, code := d.pccrun("diff")
	require.Equal(t, 1, code)
	require.Contains(t, said, "no run here left changes in an overlay")
}

// What diff prints is a patch: git makes of the old tree what the run made.
func TestDiffIsAPatch(t *testing.T) {
	d := newDesk(t)
	git := func(args ...string) string {
		cmd := exec.Command("git", append([]string{"-c", "user.name=n", "-c", "user.email=a@b", "-c", "core.fsmonitor="}, args...)...)
		cmd.Dir = d.ws
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "git %q: %s", args, out)
		return string(out)
	}
	git("init", "-q")
	d.write("keep", "1\n2\n3\n4\n5\n6\n7\n8\n9\n")
	d.write("gone", "x\n")
	d.write("moved", "the same\nas before\n")
	d.write("tab\tname", "x")
	git("add", "-A")
	git("commit", "-qm", "one")
	time.Sleep(10 * time.Millisecond)
	d.overlay(`sed -i s/5/five/ keep; rm gone; mv moved "to here"; printf 'no newline' > "tab	name"; mkdir -p n/m; echo n > "n/m/n\"n"; ln -s keep l; chmod 755 keep`)
	patch, _ := d.ok("diff")
	d.ok("apply")
	want := tree(t, d.ws)
	git("add", "-A")
	git("reset", "-q", "--hard")
	require.NotContains(t, tree(t, d.ws), "l")
	cmd := exec.Command("git", "apply", "-")
	cmd.Dir, cmd.Stdin = d.ws, strings.NewReader(patch)
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s\n%s", out, patch)
	got := tree(t, d.ws)
	for _, m := range []map[string]string{want, got} {
		for path := range m {
			if path == ".git" || strings.HasPrefix(path, ".git/") {
				delete(m, path)
			}
		}
	}
	require.Equal(t, want, got)
}

// What is protected, hidden or read-only stays so in an overlay, and nothing
// hidden gets into it.
func TestRulesHoldInside(t *testing.T) {
	d := newDesk(t)
	d.write("ro/f", "ro")
	d.write("w/f", "w")
	d.write("secret", "SECRET=1")
	d.write("sub/secret", "SECRET=2")
	d.write(".vscode/tasks.json", "{}")
	script := `cat secret sub/secret; mv sub other; cat other/secret; rm -rf sub; ln sub/secret x; cp -a sub y; cat y/secret
		echo x > ro/f; rm -rf ro; echo x > .vscode/tasks.json; rm -rf .vscode; mv .vscode v; echo x > w/f; mkdir -p .cursor; echo x > .cursor/rules; ls -a; exit 0`
	out, said := d.overlay(script, "--hide", "**/secret", "--read", "ro", "--write", "w")
	require.NotContains(t, out+said, "SECRET")
	require.Equal(t, "-rw-r--r-- x\n", tree(t, d.ws)["w/f"], "what may be written is the host's own")
	for _, name := range d.changes() {
		require.NotContains(t, name, "SECRET")
	}
	upper, err := exec.Command("grep", "-rs", "SECRET", filepath.Join(d.home, ".local")).Output()
	require.Error(t, err, "no file holds it: %s", upper)
	_, said, code := d.pccrun("apply")
	require.Equal(t, 1, code, said)
	require.Contains(t, said, ".cursor: protected")
	now := tree(t, d.ws)
	require.NotContains(t, now, ".cursor")
	require.Equal(t, "-rw-r--r-- ro", now["ro/f"])
	require.Equal(t, "-rw-r--r-- {}", now[".vscode/tasks.json"])
	d.ok("apply", ".cursor")
	require.Contains(t, tree(t, d.ws), ".cursor/rules")
	require.Empty(t, d.sessions())
	// The control: in an overlay without the rules the secret is there.
	out, _ = d.overlay("cat secret")
	require.Contains(t, out, "SECRET")
	require.Empty(t, d.sessions())
}

// The host changes, during the run, what the command has changed, or removes it, which is no conflict.
func TestRemovedDuringTheRun(t *testing.T) {
	d := newDesk(t)
	for _, name := range []string{"f", "moved", "edited", "quiet"} {
		d.write(name, "old\n")
	}
	time.Sleep(10 * time.Millisecond)
	cmd := d.cmd("--overlay", ".", "--", "sh", "-c", "echo new >> f; echo new >> edited; mv moved away; echo ready; read x; echo new > quiet")
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	ready := make([]byte, 6)
	_, err = out.Read(ready)
	require.NoError(t, err)
	require.NoError(t, os.Remove(filepath.Join(d.ws, "f")))
	d.write("edited", "host\n")
	running, _ := d.ok("diff", "--name-status")
	require.Contains(t, running, "M\tedited")
	_, said, code := d.pccrun("apply")
	require.Equal(t, 1, code)
	require.Contains(t, said, "still runs")
	in.Close()
	require.NoError(t, cmd.Wait())
	patch, _ := d.ok("diff")
	require.Contains(t, patch, "# edited: conflict: changed on the host during the run")
	require.NotContains(t, patch, "# away: conflict")
	_, said, code = d.pccrun("apply")
	require.Equal(t, 1, code)
	require.Contains(t, said, "conflict: edited: changed")
	d.ok("apply", "away", "moved", "quiet")
	d.ok("apply", "--force")
	now := tree(t, d.ws)
	require.Equal(t, "-rw-r--r-- old\nnew\n", now["edited"])
	require.Equal(t, "-rw-r--r-- old\nnew\n", now["f"])
	require.Empty(t, d.sessions())
}

// A snapshot is what a run changed, and others begin with it.
func TestSnapshot(t *testing.T) {
	d := newDesk(t)
	d.write("f", "old\n")
	d.write("d/gone", "x\n")
	d.write("host", "h\n")
	time.Sleep(10 * time.Millisecond)
	d.overlay("echo one > f; rm -r d; mkdir d; echo n > d/n; ln -s f l; mkdir -p e/e; chmod 700 e/e; mv host moved")
	want := d.changes()
	out, _ := d.ok("snapshot", "first")
	require.Equal(t, "first\n", out)
	_, said, code := d.pccrun("snapshot", "first")
	require.Equal(t, 1, code)
	require.Contains(t, said, "already exists")
	d.ok("discard")
	require.Empty(t, d.sessions())
	for range 2 {
		out, _ := d.ok("--from", "first", "--", "sh", "-c", "cat f; ls d; readlink l; cat moved; ls d/gone || true")
		require.Equal(t, "one\nn\nf\nh\n", out)
		require.Equal(t, want, d.changes())
		d.ok("discard")
	}
	d.ok("--from", "first", "--", "sh", "-c", "echo two > f; rm d/n; echo x > x")
	d.write("host", "changed since the snapshot\n")
	patch, _ := d.ok("diff")
	require.Contains(t, patch, "conflict: changed on the host since the run")
	d.ok("discard")
	d.ok("--from", "first", "--", "true")
	patch, _ = d.ok("diff")
	require.Contains(t, patch, "# host: conflict: changed on the host during the run", "also by a run that began later")
	d.ok("apply", "f", "d")
	now := tree(t, d.ws)
	require.Equal(t, "-rw-r--r-- one\n", now["f"])
	require.NotContains(t, now, "d/gone")
	out, _ = d.ok("snapshot", "list")
	require.Contains(t, out, "first\t")
	d.ok("snapshot", "--remove", "first")
	_, _, code = d.pccrun("--from", "first", "--", "true")
	require.Equal(t, 125, code)
	for _, name := range []string{"../x", ".x", "-x", "a/b", ""} {
		_, _, code = d.pccrun("--from="+name, "--", "true")
		require.Equal(t, 125, code, name)
	}
}

// What an overlay takes of the disk is bounded.
func TestDisk(t *testing.T) {
	d := newDesk(t)
	script := "for i in 1 2 3 4 5 6 7 8; do head -c 4000000 /dev/zero > f$i; done; "
	_, said, code := d.pccrun("--overlay", ".", "--disk", "10m", "--", "sh", "-c", script+"sleep 600")
	require.Equal(t, 137, code, said)
	require.Contains(t, said, "disk full")
	d.ok("discard")
	d.overlay(script, "--disk", "100m")
}

// A commit that was made inside can be applied after the host's git has looked
// at its files, not after it has changed its index.
func TestGit(t *testing.T) {
	d := newDesk(t)
	git := func(args ...string) string {
		cmd := exec.Command("git", append([]string{"-c", "user.name=n", "-c", "user.email=a@b"}, args...)...)
		cmd.Dir = d.ws
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "git %q: %s", args, out)
		return string(out)
	}
	git("init", "-q", "-b", "main")
	d.write("f", "old\n")
	d.write("g", "old\n")
	git("add", "-A")
	git("commit", "-qm", "one")
	time.Sleep(10 * time.Millisecond)
	script := "echo new > f; git -c user.name=n -c user.email=a@b commit -qam two; git status --short"
	out, _ := d.overlay(script)
	require.Empty(t, out)
	require.NotContains(t, git("log", "--format=%s"), "two")
	require.NoError(t, os.Chtimes(filepath.Join(d.ws, "g"), time.Unix(1e9, 0), time.Unix(1e9, 0)))
	index := func() string { return tree(t, d.ws)[".git/index"] }
	was := index()
	git("update-index", "-q", "--refresh")
	require.NotEqual(t, was, index(), "git has renewed it")
	d.ok("apply")
	require.Equal(t, "two\none\n", git("log", "--format=%s"))
	require.Empty(t, git("status", "--short"))
	git("fsck", "--strict")
	d.overlay("git -c user.name=n -c user.email=a@b commit -q --allow-empty -m three; echo x >> f; git add f")
	d.write("g", "new\n")
	git("add", "g")
	_, said, code := d.pccrun("apply")
	require.Equal(t, 1, code)
	require.Contains(t, said, "conflict: .git/index: changed on the host since the run")
}

// In a linked worktree a commit goes where the workspace goes.
func TestWorktree(t *testing.T) {
	d := newDesk(t)
	git := func(dir string, args ...string) string {
		cmd := exec.Command("git", append([]string{"-c", "user.name=n", "-c", "user.email=a@b"}, args...)...)
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "git %q: %s", args, out)
		return string(out)
	}
	repo := filepath.Join(d.home, "repo")
	require.NoError(t, os.Mkdir(repo, 0o755))
	git(repo, "init", "-q", "-b", "main")
	git(repo, "commit", "-q", "--allow-empty", "-m", "one")
	require.NoError(t, os.Remove(d.ws))
	git(repo, "worktree", "add", "-q", d.ws)
	time.Sleep(10 * time.Millisecond)
	commit := "echo %s > f; git add f; git -c user.name=n -c user.email=a@b commit -qm %[1]s; git config core.pager x; exit 0"
	before := tree(t, repo)
	_, said := d.overlay(fmt.Sprintf(commit, "two"))
	require.Contains(t, said, "could not lock config file", "what git would execute is pinned there too")
	require.Equal(t, before, tree(t, repo), "the repository is as it was")
	require.Equal(t, "one\n", git(d.ws, "log", "--format=%s"))
	d.ok("apply")
	require.Equal(t, "two\none\n", git(d.ws, "log", "--format=%s"))
	require.Empty(t, git(d.ws, "status", "--short"))
	// The control: without an overlay the commit is there at once.
	d.ok("--", "sh", "-c", fmt.Sprintf(commit, "three"))
	require.Equal(t, "three\ntwo\none\n", git(d.ws, "log", "--format=%s"))
}

// Which programs rename a directory that stood before, and which cannot: what
// docs/overlay.md says.
func TestRenames(t *testing.T) {
	for _, c := range []struct {
		name, needs, script string
		works               bool
	}{
		{"mv", "mv", "mv d e", true},
		{"mv of a new one", "mv", "mkdir n && mv n e", true},
		{"a file", "python3", "python3 -c 'import os; os.rename(\"d/f\", \"e\")'", true},
		{"shutil.move", "python3", "python3 -c 'import shutil; shutil.move(\"d\", \"e\")'", true},
		{"os.rename", "python3", "python3 -c 'import os; os.rename(\"d\", \"e\")'", false},
		{"fs.rename", "node", "node -e 'require(\"fs\").renameSync(\"d\", \"e\")'", false},
		{"perl", "perl", "perl -e 'rename(\"d\", \"e\") or die'", false},
		{"git mv", "git", "git init -q . && git add -A && git mv d e", false},
		{"git mv of a file", "git", "git init -q . && git add -A && git mv d/f e", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			if _, err := exec.LookPath(c.needs); err != nil {
				t.Skip("needs " + c.needs)
			}
			d := newDesk(t)
			d.write("d/f", "x")
			_, said, code := d.pccrun("--overlay", ".", "--", "sh", "-c", c.script)
			require.Equal(t, c.works, code == 0, said)
			// The control: without an overlay each works.
			_, said, code = d.pccrun("--", "sh", "-c", c.script)
			require.Zero(t, code, said)
		})
	}
}

// Directories of the home, and of the host beside the workspace.
func TestElsewhere(t *testing.T) {
	d := newDesk(t)
	state := filepath.Join(d.home, ".tool")
	require.NoError(t, os.MkdirAll(filepath.Join(state, "cache"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(state, "settings"), []byte("old\n"), 0o644))
	time.Sleep(10 * time.Millisecond)
	_, said := d.ok("--overlay", "~/.tool", "--protect", state+"/settings", "--", "sh", "-c", "echo c > ~/.tool/cache/c; echo x > ~/.tool/settings; echo w > f")
	require.Contains(t, said, "1 path changed in the overlay")
	require.Equal(t, "-rw-r--r-- w\n", tree(t, d.ws)["f"], "the workspace is the host's own")
	require.NotContains(t, tree(t, state), "cache/c")
	d.ok("apply", state)
	require.Equal(t, map[string]string{".": "drwxr-xr-x", "cache": "drwxr-xr-x", "cache/c": "-rw-r--r-- c\n", "settings": "-rw-r--r-- old\n"}, tree(t, state))
}

// What the command keeps of other runs cannot be reached, whatever is shown.
func TestStateIsHidden(t *testing.T) {
	d := newDesk(t)
	d.write("f", "old\n")
	time.Sleep(10 * time.Millisecond)
	d.overlay("echo new > f")
	script := "find ~/.local -name record; for f in ~/.local/state/pccrun/sessions/*/upper/0/tree/f; do echo evil > $f; done; exit 0"
	out, _ := d.ok("--write", "~/.local", "--", "sh", "-c", script)
	require.Empty(t, out)
	d.ok("apply")
	require.Equal(t, "-rw-r--r-- new\n", tree(t, d.ws)["f"])
}

// A launcher that is killed leaves what its overlay changed.
func TestLauncherKilled(t *testing.T) {
	d := newDesk(t)
	d.write("f", "old\n")
	time.Sleep(10 * time.Millisecond)
	cmd := d.cmd("--overlay", ".", "--", "sh", "-c", "echo new > f; echo ready; read x")
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	defer in.Close()
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	_, err = out.Read(make([]byte, 6))
	require.NoError(t, err)
	require.NoError(t, cmd.Process.Kill())
	_ = cmd.Wait()
	await.Until(t, "the session has ended", func() bool {
		_, _, code := d.pccrun("apply", "--force", "nothing")
		return code == 1
	})
	d.ok("gc")
	require.Equal(t, []string{"M f"}, d.changes(), "gc leaves it")
	d.ok("apply")
	require.Equal(t, "-rw-r--r-- new\n", tree(t, d.ws)["f"])
}

// TestClosedDirectory has the command close a directory with something
// protected in it: what is applied is told, and the rest can still be discarded.
func TestClosedDirectory(t *testing.T) {
	d := newDesk(t)
	d.overlay("mkdir -p d0; echo evil > d0/.envrc; echo b > a; chmod 000 d0")
	out, said, _ := d.pccrun("apply")
	require.Contains(t, out+said, "d0/.envrc")
	require.FileExists(t, filepath.Join(d.ws, "a"))
	d.ok("discard")
	require.NoError(t, os.Chmod(filepath.Join(d.ws, "d0"), 0o755))
	require.NoFileExists(t, filepath.Join(d.ws, "d0/.envrc"))
}

// Wherever apply or discard of a run's random work is killed, by the clock and as the
// shipped program, the next of them ends it: the host has all of the work or none of it.
func TestKilledAnywhere(t *testing.T) {
	for seed := range uint64(8) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			r := rand.New(rand.NewPCG(seed, 11))
			d := newDesk(t)
			seen := filepath.Join(d.home, "seen")
			require.NoError(t, os.Mkdir(seen, 0o755))
			sh(t, d.ws, randomWork(r, 60))
			time.Sleep(10 * time.Millisecond)
			before := tree(t, d.ws)
			d.overlay(randomWork(r, 60)+"cp -a . "+quoted(seen), "--write", seen)
			want := tree(t, seen)
			verbs := []string{"apply", "apply", "discard"} // a discard leaves nothing to be applied
			for range r.IntN(4) {
				cmd := d.cmd(verbs[r.IntN(len(verbs))])
				require.NoError(t, cmd.Start())
				time.Sleep(time.Duration(r.IntN(12_000)) * time.Microsecond)
				_ = cmd.Process.Kill()
				_ = cmd.Wait()
			}
			verb := verbs[r.IntN(len(verbs))]
			_, said, code := d.pccrun(verb) // 1 where the last that was killed was through
			require.Contains(t, []int{0, 1}, code, said)
			if now := tree(t, d.ws); !maps.Equal(now, want) {
				require.Equal(t, before, now, "%s: %d %s", verb, code, said)
			}
			// What was being removed by one that was killed is told of by nobody any more.
			for _, left := range d.sessions() {
				require.NotContains(t, []string{"upper", "stash"}, filepath.Base(left), "%s: %d %s", verb, code, said)
			}
		})
	}
}
