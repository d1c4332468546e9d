package workspace

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/internal/await"
	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/test/fixture"
	"github.com/pccrun/pccrun/workspace/quarantine"
)

// How the journal of a stash begins, and how many versions of one path it keeps.
const (
	stashHead = "pccrun stash 1\n"
	maxSame   = 16
)

// A watchman is a workspace with a guard over it, and a stash beside it.
type watchman struct {
	t       testing.TB
	root    string
	session *os.Root
	query   Query
	guard   *Guard
	told    chan Finding
}

// deny is what most of these tests protect.
var deny = append(fixture.Protect(".envrc", ".vscode", ".husky", ".npmrc", ".pccrun.jsonc", "**/.cargo/config"), fixture.Review("Makefile", ".github/workflows")...)

func newWatchman(t testing.TB, rules ...profiles.ProtectRule) *watchman {
	top := fixture.Dir(t)
	w := &watchman{t: t, root: top + "/ws", told: make(chan Finding, 1000)}
	require.NoError(t, os.MkdirAll(top+"/session", 0o700))
	var err error
	w.session, err = os.OpenRoot(top + "/session")
	require.NoError(t, err)
	t.Cleanup(func() {
		if os.RemoveAll(top) != nil { // some of it is closed
			_ = exec.Command("chmod", "-R", "u+rwx", top).Run()
		}
	})
	t.Cleanup(func() { w.session.Close() })
	w.query = Query{Root: w.root, Protect: append(slices.Clip(deny), rules...), Files: hide(w.root, "**/.env*")}
	w.query.Files = append(w.query.Files, profiles.FileRule{Path: w.root, Glob: "**/out", Access: profiles.Private})
	return newRepoIn(w)
}

// Hooks in a directory for review that git's configuration names are pinned, since they stood, but where a flag names it.
func TestGuardHooksInADirectoryForReview(t *testing.T) {
	for _, c := range []struct {
		hooks, source string
		want          []string
	}{
		{".husky/_", "/p.jsonc", []string{"review .husky/pre-commit"}},
		{".husky/_", "flag", []string{"review .husky/_/h", "review .husky/pre-commit"}},
		{".git/hooks", "/p.jsonc", []string{"review .husky/_/h", "review .husky/pre-commit"}},
	} {
		w := newWatchman(t)
		w.query.Protect = fixture.Review(".husky")
		w.query.Protect[0].Origin.Source = c.source
		w.sh("mkdir -p .husky/_; echo x > .husky/_/old; git config core.hooksPath " + c.hooks)
		w.begin()
		w.sh("echo x > .husky/pre-commit")
		if len(c.want) > 1 {
			w.sh("echo x > .husky/_/h") // else it is read-only
		}
		require.Equal(t, c.want, w.end(), c.hooks+" "+c.source)
	}
}

// copied returns where a copy of the workspace is, as the run has left it: for a control.
func (w *watchman) copied() string {
	w.sh("rm -rf ../control; mkdir ../control; cp -a . ../control/ws")
	return filepath.Dir(w.root) + "/control/ws"
}

func newRepoIn(w *watchman) *watchman {
	newRepo(w.t, w.root)
	return w
}

// elsewhere puts the session on another file system than the workspace.
func (w *watchman) elsewhere() {
	shm, err := os.MkdirTemp("/dev/shm", "pccrun-test")
	if err != nil {
		w.t.Skip("needs a second file system")
	}
	w.t.Cleanup(func() { os.RemoveAll(shm) })
	w.session.Close()
	w.session, err = os.OpenRoot(shm)
	require.NoError(w.t, err)
}

// begin scans, and starts to guard.
func (w *watchman) begin() *Standing {
	// What is older than the clock's grain is known to be older.
	time.Sleep(2 * racy)
	found := scanOf(w.t, w.query)
	s := found.Standing("20261121T120000Z-0a0b0c0d", w.query)
	var err error
	w.guard, err = NewGuard(s, found, nil, w.stash(), func(f Finding) { w.told <- f })
	require.NoError(w.t, err)
	w.guard.AskGit = plainGit
	return s
}

func (w *watchman) stash() *Stash {
	return &Stash{Open: func() (*os.Root, error) { return w.session, nil }}
}

// end looks a last time, and returns what was found as "kind path", sorted.
func (w *watchman) end() []string {
	found, err := w.guard.Finish()
	require.NoError(w.t, err)
	w.guard.Close()
	return w.names(found)
}

func (w *watchman) names(found []Finding) []string {
	var list []string
	for _, f := range found {
		if f.Parts != nil {
			list = append(list, w.names(f.Parts)...)
			continue
		}
		list = append(list, string(f.Kind)+" "+strings.TrimPrefix(f.Path, w.root+"/"))
	}
	slices.Sort(list)
	return list
}

// inert reports whether the stash's journal has a path as made inert.
func (w *watchman) inert(path string) bool {
	found, err := quarantine.ReadFindings(w.session)
	require.NoError(w.t, err)
	return slices.Contains(w.names(found), "inert "+path)
}

func (w *watchman) path(name string) string { return w.root + "/" + name }

func (w *watchman) sh(script string) {
	w.t.Helper()
	c := exec.Command("sh", "-ec", script)
	c.Dir = w.root
	c.Env = fixture.GitEnv(w.t)
	out, err := c.CombinedOutput()
	require.NoError(w.t, err, string(out))
}

// What is executed only from a home stays where it is new, and is told of, also after the launcher's
// death; beside one that stood, or where another rule denies it, it is quarantined.
func TestGuardListsNamesOfAHome(t *testing.T) {
	var rules []profiles.ProtectRule
	for _, name := range []string{".gitconfig", ".zshrc", ".zprofile", ".zlogin"} {
		rules = append(rules, profiles.ProtectRule{Pattern: name, Home: true})
	}
	w := newWatchman(t, append(rules, fixture.Protect(".zlog*")...)...)
	w.sh("mkdir zsh t; echo a > zsh/.zshrc")
	text := w.begin().Append(nil)
	w.sh("ln -s x t/.gitconfig; echo x > t/.zprofile; echo x > t/.zlogin; echo x > zsh/.zprofile; mkdir -p .gitconfig node_modules/.zshrc; echo x > .gitconfig/.envrc; echo x > node_modules/.gitconfig")
	want := []string{"review t/.gitconfig", "review t/.zprofile", "stashed .gitconfig/.envrc", "stashed t/.zlogin", "stashed zsh/.zprofile"}
	require.Equal(t, want, w.end())
	s, _, err := ParseStanding(string(text))
	require.NoError(t, err)
	w.guard, err = NewGuard(s, nil, nil, w.stash(), func(Finding) {})
	require.NoError(t, err)
	w.sh("echo y > zsh/.zprofile")
	again := append(want, "review t/.gitconfig", "review t/.zprofile", "stashed zsh/.zprofile")
	slices.Sort(again)
	require.Equal(t, again, w.end())
	w.sh("test -L t/.gitconfig; test -e t/.zprofile; test ! -e zsh/.zprofile; test ! -e t/.zlogin")

	var pins []string
	for _, p := range scanOf(t, w.query).Pins {
		pins = append(pins, strings.TrimPrefix(p.Path, w.root+"/"))
	}
	require.Contains(t, pins, "zsh/.zshrc")
	require.Contains(t, pins, "t/.gitconfig")
	require.NotContains(t, pins, ".gitconfig", "a directory")
}

// Each plant stands without a guard, and is gone and told with one.
func TestGuardSetsAside(t *testing.T) {
	for name, c := range map[string]struct {
		before, plant string
		want          []string
	}{
		"a file":                    {"", "echo x > .envrc", []string{"stashed .envrc"}},
		"a directory":               {"", "mkdir .vscode; echo x > .vscode/tasks.json", []string{"stashed .vscode"}},
		"at depth":                  {"mkdir -p a/b", "echo x > a/b/.npmrc; mkdir -p c/d/.cargo; echo x > c/d/.cargo/config", []string{"stashed a/b/.npmrc", "stashed c/d/.cargo/config"}},
		"in a directory that moves": {"mkdir x; mkdir -p z/y", "echo x > x/.npmrc; mv x z/y/", []string{"stashed z/y/x/.npmrc"}},
		"by renaming":               {"echo x > plain; mkdir d", "mv plain .npmrc; mv d .husky", []string{"stashed .husky", "stashed .npmrc"}},
		"a directory takes a name that makes it count": {"mkdir c; echo x > c/config", "mv c .cargo", []string{"stashed .cargo/config"}},
		"a link":                   {"echo x > plain", "ln -s plain .envrc; ln -s /etc .vscode; ln -s nowhere .npmrc", []string{"stashed .envrc", "stashed .npmrc", "stashed .vscode"}},
		"a link on the way":        {"mkdir d; echo x > d/config", "ln -s d .cargo; mkdir h; ln -s ../nowhere h/.cargo; ln -s d other", []string{"stashed .cargo", "stashed h/.cargo"}},
		"a link on git's way":      {"rm -r .git/info; mkdir i; echo x > i/attributes", "ln -s ../i .git/info", []string{"stashed .git/info"}},
		"where one led that stood": {"mkdir d; ln -s d .cargo", "echo x > d/config", []string{"stashed d/config"}},
		"a hard link":              {"echo x > plain", "ln plain .envrc", []string{"stashed .envrc"}},
		"a FIFO":                   {"", "mkfifo .envrc", []string{"stashed .envrc"}},
		"closed directories":       {"mkdir a", "mkdir -p a/b/c; echo x > a/b/c/.npmrc; chmod 000 a/b/c; chmod 000 a/b; chmod 500 a", []string{"stashed a/b/c/.npmrc"}},
		"the root itself, closed":  {"mkdir a", "echo x > .envrc; echo x > a/.npmrc; mkdir -p b/.vscode; chmod 000 b .", []string{"stashed .envrc", "stashed a/.npmrc", "stashed b/.vscode"}},
		"a closed one of its own":  {"", "mkdir .husky; echo x > .husky/h; chmod 000 .husky", []string{"stashed .husky"}},
		"names of git that did not exist": {"rm -rf .git/info .git/hooks", "mkdir -p .git/hooks .git/info; echo x > .git/hooks/pre-commit; echo x > .git/info/attributes; echo x > .git/config.worktree",
			[]string{"stashed .git/config.worktree", "stashed .git/hooks", "stashed .git/info/attributes"}},
		"where a link led to nothing":            {"ln -s scripts/env .envrc; mkdir scripts", "echo x > scripts/env", []string{"stashed scripts/env"}},
		"the workspace's own profile":            {"", "echo {} > .pccrun.jsonc", []string{"stashed .pccrun.jsonc"}},
		"hostile names":                          {"", `d=$(printf 'a\033[31m\nb\302\233'); mkdir "$d"; echo x > "$d/.envrc"`, []string{"stashed a\x1b[31m\nb\u009b/.envrc"}},
		"what stood stays":                       {"echo x > .envrc; mkdir .vscode", "mkdir other; echo x > other/file", nil},
		"what a package brings stays":            {"", "mkdir -p node_modules/p/.vscode; echo x > node_modules/p/.npmrc", nil},
		"in a directory that cannot be searched": {"", "mkdir -p d/.vscode d/e; echo x > d/e/.npmrc; chmod 400 d/e; chmod 400 d", []string{"stashed d/.vscode", "stashed d/e/.npmrc"}},
		"in a new directory that a rule hides":   {"", "mkdir -p .envs/.vscode .env.d; echo x > .env.d/.npmrc", []string{"stashed .env.d/.npmrc", "stashed .envs/.vscode"}},
		"what the command does not see stays":    {"mkdir -p a/.envs a/out; echo x > a/.envs/.npmrc; echo x > a/out/.npmrc", "mv a b", nil},
		"files for review":                       {"echo a > Makefile", "echo b > Makefile; mkdir -p sub/.github .github/workflows; echo x > .github/workflows/x.yml", []string{"review .github/workflows/x.yml", "review Makefile"}},
		"a rebase that executes": {"git init -q o", "mkdir .git/rebase-merge o/.git/rebase-merge; echo 'exec evil' > .git/rebase-merge/git-rebase-todo; printf '# x\n\n  x evil\n' > o/.git/rebase-merge/git-rebase-todo; echo a/../b > o/.git/rebase-merge/strategy",
			[]string{"inert .git/rebase-merge", "inert o/.git/rebase-merge"}},
		"a rebase that does not": {"", "mkdir .git/rebase-merge; printf 'pick 1234 x\n# exec\n; exec\nf 12 y\nnoop\n' > .git/rebase-merge/git-rebase-todo; echo ort > .git/rebase-merge/strategy", []string{"inert .git/rebase-merge"}},
		"a rebase that stood":    {"mkdir .git/rebase-merge; echo 'exec mine' > .git/rebase-merge/git-rebase-todo", "echo x > y", nil},
		"one that is changed":    {"mkdir .git/rebase-merge; echo 'exec mine' > .git/rebase-merge/git-rebase-todo", "echo 'exec evil' > .git/rebase-merge/git-rebase-todo", []string{"inert .git/rebase-merge"}},
		"the same content again": {"echo a > Makefile", "echo a > new; mv new Makefile", nil},
		"one that is removed":    {"echo a > Makefile", "rm Makefile", []string{"review Makefile"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWatchman(t)
			if c.before != "" {
				w.sh(c.before)
			}
			w.begin()
			w.guard.remember()
			w.sh(c.plant)
			for _, f := range c.want {
				kind, path, _ := strings.Cut(f, " ")
				if kind == "stashed" && !strings.Contains(c.plant, "chmod") {
					_, err := os.Lstat(w.path(path))
					require.NoError(t, err, "control: without a guard it stands")
				}
			}
			require.Equal(t, c.want, w.end())
			for _, f := range c.want {
				if kind, path, _ := strings.Cut(f, " "); kind == "stashed" {
					_, err := os.Lstat(w.path(path))
					require.ErrorIs(t, err, unix.ENOENT, path)
				}
			}
			found, err := quarantine.ReadFindings(w.session)
			require.NoError(t, err)
			require.Equal(t, c.want, w.names(found), "the journal says so as well")
		})
	}
}

// evil are settings by which git runs something.
const evil = `git -C r config core.fsmonitor "touch $PWD/ran"; git -C r config alias.co checkout; git -C r config filter.x.clean "touch $PWD/ran"; printf '#!/bin/sh\ntouch '$PWD'/ran\n' > r/.git/hooks/pre-commit; chmod +x r/.git/hooks/pre-commit; `

// A repository that comes into being inside works afterwards, and runs nothing.
//
//test:root (made_by_init|closed)
func TestGuardMakesRepositoriesInert(t *testing.T) {
	use := `git -C r status -s; git -C r add -A; git -C r -c user.name=x -c user.email=x@x commit -qm x --allow-empty; git -C r log --oneline > /dev/null; git -C r gc -q`
	for name, c := range map[string]struct {
		before, plant, use string
		want               []string
	}{
		"made by init":         {"", "git init -q r; " + evil, use, []string{"inert r/.git/config", "inert r/.git/hooks/pre-commit"}},
		"a clone":              {"git init -q o; git -C o -c user.name=x -c user.email=x@x commit -qm x --allow-empty", "git clone -q o r; " + evil, use, []string{"inert r/.git/config", "inert r/.git/hooks/pre-commit"}},
		"a separate directory": {"", "git init -q --separate-git-dir=meta r; " + strings.ReplaceAll(evil, "r/.git", "meta"), use, []string{"inert meta/config", "inert meta/hooks/pre-commit", "inert r/.git"}},
		"hidden where nobody looks": {"", "git init -q --separate-git-dir=.git/objects/zz r; " + strings.ReplaceAll(evil, "r/.git", ".git/objects/zz"),
			"test -e .git/objects/zz || exit 0; " + use, []string{"inert .git/objects/zz", "inert r/.git"}},
		"behind a link": {"", "git init -q r; " + evil + "mv r/.git m; ln -s ../m r/.git", use, []string{"inert m/config", "inert m/hooks/pre-commit", "inert r/.git"}},
		"a bare one":    {"", "git init -q --bare r; printf '#!/bin/sh\n' > r/hooks/update; git -C r config core.pager x", "git -C r log --all", []string{"inert r/config", "inert r/hooks/update"}},
		"one that leans on another": {"", "git init -q r; " + evil + "mkdir c; mv r/.git/config r/.git/hooks r/.git/objects r/.git/refs c/; echo ../../c > r/.git/commondir", use,
			[]string{"inert r/.git/commondir"}},
		"a worktree": {"git -c user.name=x -c user.email=x@x commit -qm x --allow-empty", "git worktree add -q r 2>/dev/null; printf '[core]\n\tpager=x\n' > .git/worktrees/r/config.worktree", use,
			[]string{"inert .git/worktrees/r/config.worktree"}},
		"no repository at all":                 {"", "mkdir -p r/.git/hooks; echo x > r/.git/hooks/pre-commit; printf '[core]\n\tfsmonitor = x\n' > r/.git/config", "", []string{"inert r/.git/config", "inert r/.git/hooks/pre-commit"}},
		"in a closed root":                     {"", "git init -q r; git -C r config core.pager x; chmod 400 .", "", []string{"inert r/.git/config"}},
		"another name of a file":               {"printf '[core]\\n\\tpager = x\\n' > mine", "git init -q r; ln -f mine r/.git/config", "grep -q pager mine", []string{"inert r/.git/config"}},
		"what git cannot read":                 {"", "git init -q r; echo ] >> r/.git/config", "", []string{"inert r/.git/config"}},
		"a NUL in it":                          {"", "git init -q r; printf '\\000' >> r/.git/config", "", []string{"inert r/.git/config"}},
		"a configuration elsewhere":            {"", "git init -q r; mv r/.git/config evil; ln -s ../../evil r/.git/config", "", []string{"inert r/.git/config"}},
		"hooks elsewhere":                      {"", "git init -q r; mv r/.git/hooks evil; ln -s ../../evil r/.git/hooks", "", []string{"inert r/.git/hooks"}},
		"closed":                               {"", "git init -q r; " + evil + "chmod 000 r/.git/config r/.git/hooks r/.git", "", []string{"inert r/.git/config", "inert r/.git/hooks/pre-commit"}},
		"a submodule's working tree elsewhere": {"", "git init -q r; git -C r config core.worktree /etc", "", []string{"inert r/.git/config"}},
		"in node_modules":                      {"", "mkdir node_modules; git init -q node_modules/r; git -C node_modules/r config core.pager x", "", []string{"inert node_modules/r/.git/config"}},
		"in the hooks of another": {"", "git init -q o; git init -q o/.git/hooks/r; git -C o/.git/hooks/r config core.pager x; echo x > o/.git/hooks/r/.envrc", "",
			[]string{"inert o/.git/hooks/r", "stashed o/.git/hooks/r/.envrc"}},
		"in a new directory that a rule hides":   {"", "mkdir .envs; git init -q .envs/r; git -C .envs/r config core.pager x", "", []string{"inert .envs/r/.git/config"}},
		"in one that a rule replaces":            {"", "mkdir out; git init -q out/r; git -C out/r config core.pager x", "", []string{"inert out/r/.git/config"}},
		"in a directory that cannot be searched": {"", "mkdir -p d/e; git init -q d/e/r; git -C d/e/r config core.pager x; chmod 400 d/e; chmod 400 d", "", []string{"inert d/e/r/.git/config"}},
		"behind more steps than can be followed": {"", "git init -q --separate-git-dir=.git/objects/zz r; " + strings.ReplaceAll(evil, "r/.git", ".git/objects/zz") +
			`mkdir a; l=$(printf 'a/../%.0s' $(seq 600)); for i in $(seq 200); do mkdir a$i z$i; echo "gitdir: ../${l}a" | tee a$i/.git > z$i/.git; done`, "", nil},
		"where a submodule's name leads": {"", "mkdir -p .git/modules/x/objects; echo none > .git/modules/x/HEAD; git init -q --bare .git/modules/x/refs/m/deep; git -C .git/modules/x/refs/m/deep config core.pager x", "",
			[]string{"inert .git/modules/x/HEAD", "inert .git/modules/x/refs/m/deep"}},
		"in a submodule that stood": {"git init -q --bare .git/modules/x", "git init -q --bare .git/modules/x/refs/heads/m; git -C .git/modules/x/refs/heads/m config core.pager x", "",
			[]string{"inert .git/modules/x/refs/heads/m"}},
		"one that leads out":        {"", "mkdir r; echo gitdir: /tmp/elsewhere > r/.git", "", []string{"inert r/.git"}},
		"one that leads everywhere": {"", "git init -q --separate-git-dir=.git/objects/zz r; echo gitdir: /proc/self/cwd/.git/objects/zz > r/.git", "", []string{"inert .git/objects/zz", "inert r/.git"}},
		"one that leans out":        {"", "git init -q r; echo /proc/self/cwd/.git/objects > r/.git/commondir", "", []string{"inert r/.git/commondir"}},
		"one that pushes where nobody looks": {"", `git init -q r; git init -q --bare .git/objects/zz; (echo '#!/bin/sh'; echo "touch $PWD/ran") > .git/objects/zz/hooks/pre-receive; chmod +x .git/objects/zz/hooks/pre-receive; git -C r remote add origin $PWD/.git/objects/zz`,
			`git -C r -c user.name=x -c user.email=x@x commit -qm x --allow-empty; git -C r push -q origin HEAD || true`, []string{"inert .git/objects/zz", "inert r/.git/config"}},
		"what git refuses":                        {"", "mkdir r; : > r/.git", "", nil},
		"an honest one":                           {"", "git init -q r; git -C r remote add origin https://example.com/x; git -C r config user.name me", use, nil},
		"a directory of hooks with nothing in it": {"mkdir -p r/hooks", "cd r; mkdir objects refs; echo ref: refs/heads/main > HEAD; printf '[core]\\nbare = true\\neditor = x\\n' > config", "", []string{"inert r/config"}},
		"the user's own directory":                {"mkdir -p r/hooks; echo mine > r/config; echo mine > r/hooks/use.js", "cd r; mkdir objects refs; echo ref: refs/heads/main > HEAD", "", []string{"inert r/HEAD"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWatchman(t)
			if c.before != "" {
				w.sh(c.before)
			}
			w.begin()
			w.sh(c.plant)
			if c.want == nil && strings.Contains(c.plant, "/../") {
				w.end() // of some hundred
				require.True(t, w.inert("r/.git") || w.inert(".git/objects/zz"))
			} else {
				require.Equal(t, c.want, w.end())
			}
			if c.use != "" {
				w.sh(c.use)
			}
			require.NoFileExists(t, w.path("ran"))
			if strings.Contains(c.plant, "touch $PWD/ran") && c.use != "" {
				found, err := quarantine.ReadFindings(w.session)
				require.NoError(t, err)
				for _, f := range found {
					require.NoError(t, f.Restore(w.session))
				}
				w.sh(c.use)
				require.FileExists(t, w.path("ran"), "control: put back, it runs")
			}
		})
	}
}

// A workspace that is itself turned into a bare repository.
func TestGuardRootTurnedBare(t *testing.T) {
	w := newWatchman(t)
	w.sh("rm -rf .git")
	w.begin()
	w.sh("git init -q --bare .; git config core.fsmonitor evil")
	require.Equal(t, []string{"inert config"}, w.end())
	w.sh("git log --all") // it is a repository still
}

// What is protected is quarantined while the run lasts, soon.
func TestGuardWatches(t *testing.T) {
	w := newWatchman(t)
	w.sh("mkdir -p a/b")
	w.begin()
	w.guard.Watch()
	plants := []string{".envrc", "a/b/.npmrc", "new/deep/.vscode", ".envrc", "a/.husky"}
	for _, p := range plants {
		require.NoError(t, os.MkdirAll(w.path(p), 0o755))
		f := await.Receive(t, p+" is quarantined", w.told)
		require.True(t, strings.HasPrefix(w.path(p), f.Path))
	}
	require.Len(t, w.end(), len(plants))
}

// A flood of names neither stalls the guard nor gets through, and what is kept
// of it is bounded.
func TestGuardFlood(t *testing.T) {
	w := newWatchman(t)
	w.begin()
	w.guard.report = func(Finding) {}
	w.guard.Watch()
	for range 3000 {
		_ = os.WriteFile(w.path(".envrc"), nil, 0o644)
		_ = os.MkdirAll(w.path("d/.husky"), 0o755)
	}
	w.end()
	require.NoFileExists(t, w.path(".envrc"))
	require.NoDirExists(t, w.path("d/.husky"))
	kept, err := os.ReadDir(w.session.Name() + "/" + quarantine.StashName)
	require.NoError(t, err)
	require.LessOrEqual(t, len(kept), 2*maxSame)
	require.NotEmpty(t, kept)
}

// Of many versions the last is kept: it may be the host's own.
func TestGuardKeepsTheLast(t *testing.T) {
	t.Run("here", func(t *testing.T) { keepsTheLast(t, func(*watchman) {}) })
	t.Run("elsewhere", func(t *testing.T) { keepsTheLast(t, (*watchman).elsewhere) })
}

func keepsTheLast(t *testing.T, place func(*watchman)) {
	w := newWatchman(t)
	place(w)
	w.begin()
	w.guard.Watch()
	plant := func(text string) { // whole: what is quarantined is not written any more
		require.NoError(t, os.WriteFile(w.path("whole"), []byte(text), 0o644))
		require.NoError(t, os.Rename(w.path("whole"), w.path(".envrc")))
	}
	for i := range 3 * maxSame {
		plant(strconv.Itoa(i))
		await.Until(t, "it is quarantined", func() bool { _, err := os.Lstat(w.path(".envrc")); return err != nil })
	}
	plant("PRECIOUS")
	w.end()
	stash := w.session.Name() + "/" + quarantine.StashName
	kept, err := os.ReadDir(stash)
	require.NoError(t, err)
	var all []string
	for _, e := range kept {
		if text, err := os.ReadFile(stash + "/" + e.Name()); err == nil {
			all = append(all, string(text))
		}
	}
	require.Contains(t, all, "0", "and the first")
	require.Contains(t, all, "PRECIOUS")
	require.Len(t, kept, maxSame)
	left, err := filepath.Glob(w.path(quarantine.Prefix + "*"))
	require.NoError(t, err)
	require.Empty(t, left, "nothing stays where it was")
}

// Whoever comes after a launcher that was killed finds the same.
func TestGuardAfterDeath(t *testing.T) {
	w := newWatchman(t)
	w.sh("echo a > Makefile; mkdir sub; echo mine > sub/.npmrc; git init -q old; git -C old config alias.mine status; mkdir shut; echo x > shut/.npmrc; chmod 000 shut")
	text := w.begin().Append(nil)
	w.guard.Close()
	w.sh("echo x > .envrc; git init -q r; git -C r config core.pager x; echo b > Makefile; mkdir -p sub/deep; echo x > sub/deep/.npmrc")
	// It was copying one; a name that looks so hides nothing.
	left := "sub/" + quarantine.Moving + "1-3"
	w.sh("mkdir " + left + "; git init -q " + left + "/r; git -C " + left + "/r config core.pager x")
	config := "old/.git/" + quarantine.Moving + "config-1" // or was exchanging it
	w.sh("git config --file " + config + " core.pager evil")
	s, rest, err := ParseStanding(string(text) + "123\n")
	require.NoError(t, err)
	require.Equal(t, "123\n", rest)
	w.guard, err = NewGuard(s, nil, nil, w.stash(), func(Finding) {})
	require.NoError(t, err)
	want := []string{"inert r/.git/config", "review Makefile", "stashed .envrc", "stashed " + config, "stashed " + left, "stashed sub/deep/.npmrc"}
	require.Equal(t, want, w.end())
	require.FileExists(t, w.path("sub/.npmrc"))
	w.sh("chmod 700 shut; test -e shut/.npmrc; test -n \"$(git -C old config alias.mine)\"")
}

// Nor does it help a run to have closed the workspace itself.
func TestGuardAfterDeathClosed(t *testing.T) {
	w := newWatchman(t)
	s := w.begin()
	w.guard.Close()
	w.sh("echo x > .envrc; chmod 000 .")
	var err error
	w.guard, err = NewGuard(s, nil, nil, w.stash(), func(Finding) {})
	require.NoError(t, err)
	require.Equal(t, []string{"stashed .envrc"}, w.end())
}

// A configuration that may be changed loses what it did not have.
//
//test:root
func TestGuardTakesKeysBack(t *testing.T) {
	w := newWatchman(t, fixture.Review(".git/config")...)
	w.sh("git config alias.mine status")
	w.begin()
	w.sh("git config core.fsmonitor evil; git config user.name me; git remote add o https://example.com")
	require.Equal(t, []string{"inert .git/config", "review .git/config"}, w.end())
	w.sh(`test "$(git config alias.mine)" = status; test "$(git config user.name)" = me; git remote get-url o; ! git config core.fsmonitor`)
}

// What is for review below a directory that a protected link leads to stood there at the start, and is no news. What the
// host makes there is, and so is what changes where no link leads.
func TestGuardReviewsWhereAProtectedLinkLeads(t *testing.T) {
	for plant, want := range map[string][]string{"true": nil, "echo b > shared/y; echo b > own/x": {"review own/x", "review shared/y"}, "echo b > shared/x": {"review shared/x"}} {
		w := newWatchman(t, append(fixture.Review("shared", "own/x"), fixture.Protect(".claude/skills")...)...)
		w.sh("mkdir -p .claude shared own; echo a > shared/x; echo a > own/x; ln -s ../shared .claude/skills")
		w.begin()
		w.guard.remember()
		w.sh(plant)
		require.Equal(t, want, w.end(), plant)
	}
}

// Where git writes is as good as what it runs: a commit has what it puts there.
func TestGuardWorkingTreeElsewhere(t *testing.T) {
	w := newWatchman(t, fixture.Review(".git/config")...)
	w.sh("git init -q s; git -C s config core.worktree /etc; mkdir d")
	w.begin()
	w.sh(`git config user.name me
		git init -q r; git -C r config core.worktree "$PWD/d"; git init -q q; git -C q config core.worktree "$PWD"
		ln -s . self; git init -q p; git -C p config core.worktree "$PWD/self"
		git init -q --bare .git/modules/m; git --git-dir .git/modules/m config core.worktree ../../../d; echo gitdir: ../.git/modules/m > d/.git
		git config core.worktree /etc`)
	top := `top() { git -C $1 rev-parse --show-toplevel; }; `
	w.sh(top + `test "$(top r) $(top p)" = "$PWD/d $PWD"; test "$(git config core.worktree)" = /etc`) // the control
	require.Equal(t, []string{"inert .git/config", "inert p/.git/config", "inert r/.git/config", "review .git/config"}, w.end())
	w.sh(`! git config --file .git/config core.worktree; git config --file .git/config user.name; git config --file q/.git/config core.worktree
		git config --file .git/modules/m/config core.worktree; git config --file s/.git/config core.worktree; ! git config --file r/.git/config core.worktree`)
	w.sh(top + `test "$(top r) $(top p) $(top q)" = "$PWD/r $PWD/p $PWD"`)
}

// It loses them as they appear, also those that are written into the file as it
// is, and at no moment is there no file.
func TestGuardTakesKeysBackAtOnce(t *testing.T) {
	w := newWatchman(t, fixture.Review(".git/config")...)
	w.begin()
	w.guard.Watch()
	missing := make(chan int)
	stop := make(chan struct{})
	go func() {
		n := 0
		for {
			select {
			case <-stop:
				missing <- n
				return
			default:
				if _, err := os.Stat(w.path(".git/config")); err != nil {
					n++
				}
			}
		}
	}()
	for _, plant := range []string{`printf '[core]\n\tfsmonitor = evil\n' >> .git/config`, "git config core.pager evil", `printf '[core]\n\tsshCommand = evil\n' >> .git/config`} {
		w.sh(plant)
		await.Until(t, "it is taken back: "+plant, func() bool {
			b, err := os.ReadFile(w.path(".git/config"))
			return err == nil && !strings.Contains(string(b), "evil")
		})
	}
	close(stop)
	require.Zero(t, <-missing)
	require.Contains(t, w.end(), "inert .git/config")
}

// A run that begins while another has a name for a moment does not take it for
// one that stood.
func TestGuardMeetsAnother(t *testing.T) {
	w := newWatchman(t)
	w.sh("echo mine > .npmrc")
	time.Sleep(3 * racy)
	began := time.Now()
	one := w.begin()
	w.guard.Close()
	two := func() *Standing { return scanOf(t, w.query).Standing("20261121T120001Z-0a0b0c0d", w.query) }
	require.False(t, two().Young(began), "control: nothing has come")
	w.sh("mkdir sub; echo x > .envrc; echo x > sub/.envrc")
	s := two()
	require.Equal(t, []string{".envrc", ".npmrc", "sub/.envrc"}, slices.Sorted(slices.Values(s.Names)))
	require.True(t, s.Young(began))
	require.NoError(t, s.Without(one))
	require.Equal(t, []string{".npmrc"}, s.Names)

	inner := two()
	inner.Root, inner.Names = w.path("sub"), []string{".envrc"}
	require.NoError(t, inner.Without(one))
	require.Empty(t, inner.Names)

	lax := *one
	lax.Protect = fixture.Review(".envrc")
	s = two()
	require.NoError(t, s.Without(&lax))
	require.Len(t, s.Names, 3, "the other run may make it")
	require.True(t, one.Overlaps(w.path("x")))
	require.False(t, one.Overlaps(w.root+"x"))
}

// A repository that another run is making at this moment is that run's: its configuration
// may come. One that stood before both keeps what protects it.
func TestGuardMeetsAClone(t *testing.T) {
	for _, met := range []bool{false, true} {
		w := newWatchman(t)
		w.sh("mkdir -p old/.git l/.git; git init -q full; ln -s ../c/.git/hooks full/.git/hooks-of-c; mkdir x; ln -s ../c/.git/commondir x/.envrc")
		one := w.begin()
		w.guard.Close()
		w.sh("mkdir c c/.git made; git init -q made/r; mkdir l/.git/modules; mkdir l/n; mkdir l/n/.git")
		s := w.begin()
		require.True(t, s.Young(one.Start))
		if met {
			require.NoError(t, s.Without(one))
		}
		require.Equal(t, !met, slices.Contains(s.Repos, "c/.git"), "%v", s.Repos)
		require.Equal(t, !met, slices.Contains(s.Repos, "l/n/.git"), "%v", s.Repos)
		require.Equal(t, !met, slices.Contains(s.Repos, "made/r/.git"), "%v", s.Repos)
		for _, stood := range []string{".git", "old/.git", "full/.git"} {
			require.Contains(t, s.Repos, stood)
		}
		require.Contains(t, s.Vacant, w.path("c/.git/commondir"), "a link that stood leads there")
		require.Contains(t, s.Vacant, w.path("old/.git/config"))
		w.guard.Close()
		var err error
		w.guard, err = NewGuard(s, scanOf(t, w.query), nil, w.stash(), func(f Finding) { w.told <- f })
		require.NoError(t, err)
		w.sh("git init -q c; git -C c config core.fsmonitor ./evil; cp full/.git/config old/.git; git -C made/r config core.fsmonitor ./evil")
		_, err = w.guard.look()
		require.NoError(t, err)
		_, err = os.Lstat(w.path("c/.git/config"))
		require.Equal(t, met, err == nil, "control: otherwise it is set aside")
		found := w.end()
		require.Contains(t, found, "stashed old/.git/config")
		if met {
			require.Contains(t, found, "inert c/.git/config")
			require.Contains(t, found, "inert made/r/.git/config")
		}
	}
}

// A worktree that another run checks out at this moment gets its programs, which are judged
// at the end: what is not as it stood elsewhere is quarantined.
func TestGuardMeetsACheckout(t *testing.T) {
	for _, met := range []bool{false, true} {
		w := newWatchman(t)
		w.sh(asUser + "mkdir tools; echo exit 0 > tools/h; git add tools; git commit -qm x; git config alias.h '!./tools/h'")
		one := w.begin()
		w.guard.Close()
		w.sh("git worktree add -q --no-checkout a; git worktree add -q --no-checkout b")
		s := w.begin()
		w.guard.Close()
		require.True(t, s.Young(one.Start))
		if met {
			require.NoError(t, s.Without(one))
		}
		require.Equal(t, !met, slices.Contains(s.Vacant, w.path("a/tools/h")), "%v", s.Vacant)
		var err error
		w.guard, err = NewGuard(s, scanOf(t, w.query), nil, w.stash(), func(f Finding) { w.told <- f })
		require.NoError(t, err)
		w.sh("git -C a reset -q --hard; git -C b reset -q --hard; echo evil > b/tools/h")
		if met {
			require.Equal(t, []string{"inert b/tools/h"}, w.end())
		} else {
			require.Equal(t, []string{"stashed a/tools/h", "stashed b/tools/h"}, w.end(), "control")
		}
	}
}

// One that is older than the other run is nobody's but the user's, whatever that run's
// record says.
func TestGuardMeetsWhatStood(t *testing.T) {
	w := newWatchman(t)
	w.sh("mkdir -p old/.git")
	one := w.begin()
	w.guard.Close()
	s := w.begin()
	w.guard.Close()
	one.Repos, one.Vacant = nil, nil
	require.NoError(t, s.Without(one))
	require.Contains(t, s.Repos, "old/.git")
	one.Start = one.Start.Add(-time.Hour)
	require.NoError(t, s.Without(one))
	require.NotContains(t, s.Repos, "old/.git", "control: its birth is what tells")
}

// Two guards over one workspace, as two runs have: each name is quarantined once.
func TestGuardTwice(t *testing.T) {
	w := newWatchman(t)
	w.begin()
	first := w.guard
	w.begin()
	first.Watch()
	w.guard.Watch()
	for i := range 50 {
		require.NoError(t, os.MkdirAll(w.path(filepath.Join(string(rune('a'+i%26)), ".envrc")), 0o755))
		time.Sleep(time.Millisecond)
	}
	one, err := first.Finish()
	require.NoError(t, err)
	first.Close()
	two := w.end()
	require.NotEmpty(t, append(w.names(one), two...))
	w.sh("test -z \"$(find . -name .envrc)\"")
}

// Where nothing can be kept, what is protected does not stand all the same: nor where nothing can be made, as on a disk
// that the command has filled.
func TestGuardNowhereToKeep(t *testing.T) {
	for what, more := range map[string]string{
		"no session":  "true",
		"a full disk": fmt.Sprintf("for i in $(seq 0 40); do echo > .pccrun-set-aside-moving-%[1]d-$i; echo > sub/.pccrun-set-aside-moving-%[1]d-$i; done", os.Getpid()),
	} {
		t.Run(what, func(t *testing.T) {
			w := newWatchman(t)
			w.begin()
			w.guard.stash.Open = func() (*os.Root, error) { return nil, unix.ENOSPC }
			w.sh("echo x > .envrc; mkdir -p sub/.vscode; " + more)
			require.Equal(t, []string{"stashed .envrc", "stashed sub/.vscode"}, w.end())
			w.sh("test ! -e .envrc; test ! -e sub/.vscode; rm -f .pccrun-set-aside-moving-*; test \"$(cat .pccrun-set-aside-*)\" = x")
		})
	}
}

// Where somebody removes the session during the run, what is protected does not stand all
// the same: that there is no stash any more looks like a name that is gone.
func TestGuardStashGone(t *testing.T) {
	w := newWatchman(t)
	w.begin()
	w.guard.Watch()
	w.sh("echo x > .envrc")
	require.Equal(t, w.path(".envrc"), (<-w.told).Path)
	require.NoError(t, os.RemoveAll(w.session.Name()))
	w.sh("echo y > .npmrc; mkdir .husky; git init -q r; echo z > r/.git/hooks/pre-commit")
	require.Equal(t, []string{"inert r/.git/hooks/pre-commit", "stashed .envrc", "stashed .husky", "stashed .npmrc"}, w.end())
	w.sh("test ! -e .npmrc; test ! -e .husky; test ! -e r/.git/hooks/pre-commit; test \"$(cat .pccrun-set-aside-*)\" = y")
}

// The stash may be on another file system.
//
//test:root
func TestGuardOtherFileSystem(t *testing.T) {
	w := newWatchman(t)
	w.elsewhere()
	other := w.session
	w.begin()
	w.sh("mkdir -p .vscode/a/b; echo x > .vscode/a/b/c; ln -s c .vscode/a/b/l; chmod 500 .vscode/a; echo y > .envrc; chmod 000 .envrc; mkfifo .npmrc; chmod 711 .vscode; mkdir sub; echo z > sub/.envrc; chmod 750 sub/.envrc")
	require.Equal(t, []string{"stashed .envrc", "stashed .npmrc", "stashed .vscode", "stashed sub/.envrc"}, w.end())
	w.sh("test -z \"$(ls -A . sub | grep -vx '.git\\|README\\|sub\\|\\|.*:')\"")
	found, err := quarantine.ReadFindings(other)
	require.NoError(t, err)
	readOnly(t, other.Name(), func(session *os.Root) {
		for _, f := range found {
			require.ErrorIs(t, f.Restore(session), unix.EROFS)
		}
	})
	w.sh("test ! -e .vscode; test ! -e .npmrc; test ! -e .envrc; test ! -e sub/.envrc")
	for _, f := range found {
		require.NoError(t, f.Restore(other))
	}
	w.sh("test \"$(cat .vscode/a/b/l)\" = x; test -p .npmrc; test -f .envrc; test \"$(stat -c %a .vscode .vscode/a .envrc sub/.envrc | xargs)\" = '711 500 0 750'; chmod 700 .vscode/a")
}

// readOnly does something with a directory on a file system that cannot be written to, which
// nobody but root can make.
func readOnly(t *testing.T, dir string, do func(*os.Root)) {
	if os.Geteuid() != 0 {
		return
	}
	require.NoError(t, unix.Mount(dir, dir, "", unix.MS_BIND, ""))
	defer func() { require.NoError(t, unix.Unmount(dir, unix.MNT_DETACH)) }()
	require.NoError(t, unix.Mount("", dir, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, ""))
	root, err := os.OpenRoot(dir)
	require.NoError(t, err)
	defer root.Close()
	do(root)
}

// Nothing is put back through a link, or over what stands there.
func TestRestore(t *testing.T) {
	w := newWatchman(t)
	w.sh("mkdir a b")
	w.begin()
	w.sh("echo x > .envrc; echo x > a/.npmrc; echo x > b/.npmrc; mkdir .vscode")
	w.end()
	found, err := quarantine.ReadFindings(w.session)
	require.NoError(t, err)
	outside := fixture.Dir(t)
	w.sh("echo host > .envrc; rmdir a b; ln -s " + outside + " a")
	for _, f := range found {
		err := f.Restore(w.session)
		switch strings.TrimPrefix(f.Path, w.root+"/") {
		case ".envrc":
			require.ErrorIs(t, err, quarantine.ErrInTheWay)
		case ".vscode":
			require.NoError(t, err)
		default:
			require.Error(t, err)
		}
	}
	w.sh("test $(cat .envrc) = host; test -d .vscode")
	list, err := os.ReadDir(outside)
	require.NoError(t, err)
	require.Empty(t, list)
	require.Error(t, Finding{Kind: Review, Path: w.path("x"), Stash: "0"}.Restore(w.session))
}

// Who looks after a run that failed, or whose disk was full, goes on where its
// journal ends.
func TestStashGoesOn(t *testing.T) {
	for name, before := range map[string]string{
		"nothing was moved":         stashHead + `inert 100644 "0" "/x/.git/hooks/a" "a hook" "file"` + "\n",
		"the last line is cut":      stashHead + `stashed 100644 "0" "/x/.envrc" ".envrc" "file"` + "\n" + `stashed 100644 "1" "/x/.en`,
		"the first line is cut":     stashHead[:5],
		"nothing but the beginning": stashHead,
		"empty":                     "",
	} {
		w := newWatchman(t)
		w.begin()
		require.NoError(t, w.session.WriteFile(quarantine.JournalName, []byte(before), 0o600), name)
		for i := range 2 { // each end leaves a journal that the next can read
			w.sh("echo x > .envrc")
			require.Equal(t, []string{"stashed .envrc"}, w.end()[:1], name)
			found, err := quarantine.ReadFindings(w.session)
			require.NoError(t, err, name)
			require.Len(t, found, i+1, "%s: what was never moved has no part in another's file", name)
			w.begin()
		}
		w.guard.Close()
	}
}

// What is shown is what is put back, whoever holds another name of it.
func TestSealDetaches(t *testing.T) {
	w := newWatchman(t)
	w.sh("echo shown > plain")
	w.begin()
	w.sh("ln plain .envrc; truncate -s 10G .npmrc; mkdir .husky; mkfifo .husky/f; ln -s /etc/passwd .husky/l")
	w.end()
	found, err := quarantine.ReadFindings(w.session)
	require.NoError(t, err)
	shown := map[string]string{}
	for _, f := range found {
		if _, err := f.Seal(w.session, false); !errors.Is(err, quarantine.ErrUnseen) {
			require.NoError(t, err)
		}
		require.NoError(t, f.Show(w.session, func(path string, content []byte, why string) {
			shown[f.Path[len(w.root)+1:]+path] = string(content) + why
		}))
	}
	require.Equal(t, map[string]string{".envrc": "shown\n", ".npmrc": "10737418240 bytes, not shown", ".husky/f": "a special file", ".husky/l": "a link to /etc/passwd"}, shown)
	w.sh("echo evil > plain")
	for _, f := range found {
		if strings.HasSuffix(f.Path, ".envrc") {
			require.NoError(t, f.Restore(w.session))
		}
	}
	w.sh("test $(cat .envrc) = shown")
}

// A look that the end of the run cuts short trusts no directory that may have
// changed once more by the same tick of the clock after it was read.
func TestStoppedLookTrustsNothingNew(t *testing.T) {
	for _, stopped := range []bool{true, false} {
		w := newWatchman(t)
		w.begin()
		w.sh("mkdir a; touch a/b")
		w.guard.stop = make(chan struct{})
		stall = func(rel string) {
			if rel == "a" {
				require.NoError(t, os.WriteFile(w.path("a/c"), nil, 0o644))
			}
			if stopped && rel == "a" {
				close(w.guard.stop) // the command is gone while this is read
			}
		}
		_, err := w.guard.look()
		stall = nil
		require.NoError(t, err)
		i := slices.IndexFunc(w.guard.tree.Kids, func(d *dir) bool { return d.Rel == "a" })
		require.GreaterOrEqual(t, i, 0, "it was read")
		require.Zero(t, w.guard.tree.Kids[i].Ctime, "it is read again")
		w.guard.stop = nil
		w.end()
	}
}

// Finish is [Guards.Finish] of the only guard of a run.
func (g *Guard) Finish() ([]Finding, error) { return g.peers.Finish() }
