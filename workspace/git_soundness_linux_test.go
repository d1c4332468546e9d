package workspace

import (
	"encoding/binary"
	"encoding/hex"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pccrun/pccrun/test/fixture"
	"github.com/pccrun/pccrun/workspace/gitdir"
	"github.com/pccrun/pccrun/workspace/vcs"
)

// What git itself writes is sound, in each form that it has.
func TestSoundIndexOfGit(t *testing.T) {
	w := newWatchman(t)
	w.sh("mkdir -p a/b c; for i in $(seq 300); do echo $i > a/b/$i; done; touch c/x; ln -s c l; echo '*.x' > .gitignore; git add .; git -c user.name=x -c user.email=x@x commit -qm x")
	for _, script := range []string{
		"git update-index --index-version 2", "git update-index --index-version 3; git update-index --skip-worktree c/x; echo > c/new; git add -N c/new", "git update-index --index-version 4",
		"git -c index.threads=4 -c index.recordEndOfIndexEntries=true -c index.recordOffsetTable=true update-index --force-write-index",
		"git update-index --index-version 2; git -c index.threads=4 -c index.recordEndOfIndexEntries=true -c index.recordOffsetTable=true update-index --force-write-index",
		"git update-index --split-index; echo x > a/y; echo x > a/b/8; git add a; git rm -q --cached a/b/7", "git update-index --no-split-index; git update-index --untracked-cache; git status -s",
		"git reset -q --hard; git sparse-checkout set --cone --sparse-index c",
		"rm -rf .git; git init -q --object-format=sha256; git add .; git update-index --index-version 4",
	} {
		w.begin()
		w.sh(script + "; git status -s > /dev/null; test -s .git/index; touch .git/index .git/shared* || true")
		require.NotContains(t, strings.Join(w.end(), " "), "index", script)
	}
}

// `git restore .` writes what the index lists, wherever that is: rc is a file of the
// user's own beside the workspace.
func TestGuardForgedIndex(t *testing.T) {
	const restore = "git restore . 2> /dev/null || true; "
	for name, c := range map[string]struct {
		before, dir string // where the index is
		version     uint32
		path        string
		use         string
		want        []string
	}{
		"above":               {"", ".git", 2, "../rc", restore, []string{"inert .git/index"}},
		"a hook":              {"", ".git", 4, ".git/hooks/post-checkout", restore + "git checkout -q . || true; ", []string{"inert .git/index"}},
		"in a new one":        {"", "r/.git", 2, "../../rc", "cd r; " + restore, []string{"inert r/.git/index"}},
		"in a worktree":       {"git worktree add -q w", ".git/worktrees/w", 2, "../../rc", "cd w; " + restore, []string{"inert .git/worktrees/w/index"}},
		"that cannot be read": {"", ".git", 2, "../rc", "chmod 600 .git/index 2> /dev/null || true; " + restore, []string{"inert .git/index"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, guarded := range []bool{false, true} {
				w := newWatchman(t)
				w.sh(asUser + c.before)
				w.begin()
				w.sh(asUser + "test -e r || git init -q r; rm -f r/.git/hooks/*; echo 'touch '$PWD'/../rc' > evil; chmod +x evil; git -C $(dirname " + c.dir + ") hash-object -w $PWD/evil > ../oid 2> /dev/null || git hash-object -w evil > ../oid")
				oid, err := os.ReadFile(filepath.Dir(w.root) + "/oid")
				require.NoError(t, err)
				id, err := hex.DecodeString(strings.TrimSpace(string(oid)))
				require.NoError(t, err)
				index := fixture.Index(c.version, nil, fixture.Entry{Path: c.path, Mode: 0o100755, OID: id})
				require.NoError(t, os.WriteFile(w.path(c.dir+"/index"), index, 0o600))
				if name == "that cannot be read" {
					w.sh("chmod 0 .git/index")
				}
				if guarded {
					require.Equal(t, c.want, w.end())
				} else {
					w.guard.Close()
				}
				w.sh(asUser + c.use)
				_, err = os.Lstat(filepath.Dir(w.root) + "/rc")
				require.Equal(t, guarded, os.IsNotExist(err), "control: without a guard git writes it")
			}
		})
	}
}

// A repository that is read-only has its index judged like others, and stays read-only.
func TestGuardIndexInAReadOnlyRepository(t *testing.T) {
	w := newWatchman(t)
	w.begin()
	w.sh(asUser + "echo x > a; git add a; git commit -qm one; git write-tree; chmod a-w .git")
	before, err := os.ReadFile(w.path(".git/index"))
	require.NoError(t, err)
	require.Contains(t, string(before), "TREE", "control: git computed something")
	require.Empty(t, w.end())
	after, err := os.ReadFile(w.path(".git/index"))
	require.NoError(t, err)
	require.NotContains(t, string(after), "TREE")
	info, err := os.Stat(w.path(".git"))
	require.NoError(t, err)
	require.Zero(t, info.Mode().Perm()&0o222)
	w.sh("chmod u+w .git")
}

// Of a worktree whose repository lies elsewhere the index does too.
func TestGuardForgedIndexOutside(t *testing.T) {
	w := newWatchman(t)
	w.sh(asUser + "git worktree add -q -b side ../side")
	w.root = filepath.Dir(w.root) + "/side"
	w.query.Root = w.root
	for i := range w.query.Files {
		w.query.Files[i].Path = w.root
	}
	w.begin()
	require.NoError(t, os.WriteFile(w.path("../ws/.git/worktrees/side/index"), fixture.Index(2, nil, fixture.Entry{Path: "../rc", Mode: 0o100644}), 0o600))
	require.Equal(t, []string{"inert " + filepath.Dir(w.root) + "/ws/.git/worktrees/side/index"}, w.end())
}

// By another hash the same index lists other names: what counts is the configuration that
// is left, and this one is quarantined, also where it was there before in a directory of another name.
func TestGuardIndexOfAnotherHash(t *testing.T) {
	for i, guarded := range []bool{false, true, false, true} {
		w := newWatchman(t)
		const config = `printf '[extensions]\nobjectformat = sha256\n[x]\ny = \1\n' > `
		w.sh("mkdir old; " + config + "old/config")
		w.begin()
		w.sh(`git init -q r; echo evil | git -C r hash-object -w --stdin > r/.git/oid; mv r/.git/oid oid; ` + config + "r/.git/config")
		if i >= 2 {
			w.sh("rm r/.git/config; mv r/.git/* old; rmdir r/.git; mv old r/.git")
		}
		text, err := os.ReadFile(w.path("oid"))
		require.NoError(t, err)
		oid, err := hex.DecodeString(strings.TrimSpace(string(text)))
		require.NoError(t, err)
		// The name of a longer hash holds a shorter one, and what follows that.
		b := binary.BigEndian.AppendUint32(append([]byte("DIRC"), fixture.Numbers(3, 1)...), 0)
		b = append(append(b, make([]byte, 20)...), fixture.Numbers(0o100755, 0, 0, 0)...)
		b = append(append(append(b, oid...), 0, 5), "../rc\x00\x00\x00\x00\x00"...)
		const size = 0x01010101 // of an extension, as the name says that follows for the other
		b = append(append(append(b, 0x41, 0x41, 0x20, 0), "\x01\x01\x01\x01"+strings.Repeat("a", 0x141-4)...), 0)
		for (len(b)-12)%8 != 0 {
			b = append(b, 0)
		}
		rest := 84 + 8 + size + 20 - 32 - 8 - len(b)
		b = append(append(b, fixture.Extension("BBBB", make([]byte, rest)...)...), make([]byte, 32)...)
		require.True(t, gitdir.SoundIndex(b, vcs.FormatSHA256))
		require.False(t, gitdir.SoundIndex(b, vcs.FormatSHA1))
		require.NoError(t, os.WriteFile(w.path("r/.git/index"), b, 0o600))
		if guarded {
			require.Equal(t, []string{"inert r/.git/config", "inert r/.git/index"}, w.end())
		} else {
			w.guard.Close()
			w.sh("rm r/.git/config")
		}
		w.sh("cd r; git restore . 2> /dev/null || true")
		_, err = os.Lstat(w.path("rc"))
		require.Equal(t, guarded, os.IsNotExist(err), "control: git writes it when nothing says another hash")
	}
}

// What is quarantined as it was may be accepted: it says another hash then.
func TestGuardIndexOfAConfigurationToCome(t *testing.T) {
	for plant, want := range map[string]string{
		"git init -q r": "", `git init -q r; git -C r config alias.x '!true'`: "inert r/.git/config",
		`git init -q r; printf '[extensions]\nobjectformat = sha256\n[x]\ny = \1\n' > r/.git/config`: "inert r/.git/config inert r/.git/index",
	} {
		w := newWatchman(t)
		w.begin()
		w.sh(plant)
		require.NoError(t, os.WriteFile(w.path("r/.git/index"), fixture.Index(2, nil, fixture.Entry{Path: "f", Mode: 0o100644}), 0o600))
		require.Equal(t, want, strings.Join(w.end(), " "))
	}
}

// Where a configuration that stood is a link, as git-new-workdir makes one, an index is read as most repositories have it.
func TestGuardIndexOfAWorkdir(t *testing.T) {
	for name, plant := range map[string]string{"honest": "", "forged": "; mv ../forged .git/index"} {
		w := newWatchman(t)
		w.sh(asUser + `git init -q m; cd m; echo x > f; git add f; git commit -qm x; mkdir -p ../nw/.git
			for f in config refs objects info hooks packed-refs; do ln -s $PWD/.git/$f ../nw/.git/$f; done; cp .git/HEAD ../nw/.git; cd ../nw; git reset -q --hard`)
		w.begin()
		require.NoError(t, os.WriteFile(w.path("forged"), fixture.Index(2, nil, fixture.Entry{Path: "../rc", Mode: 0o100644}), 0o600))
		w.sh("cd nw; echo y > g; git add g" + plant)
		var want []string
		if plant != "" {
			want = []string{"inert nw/.git/index"}
		}
		require.Equal(t, want, w.end(), name)
	}
}

// A series of picks goes on with the strategy that it began with, which git starts by
// its name, whatever that leads to.
func TestGuardPicksWithAStrategy(t *testing.T) {
	w := newWatchman(t)
	w.sh(asUser + `echo a > f; git add f; git commit -qm a; git checkout -qb o; echo b > f; git commit -qam b; echo c > f; git commit -qam c; git checkout -q -; echo z > f; git commit -qam z`)
	w.begin()
	w.sh(asUser + `git cherry-pick o~1 o 2> /dev/null || true; mkdir git-merge-x; printf '#!/bin/sh\ntouch ran; exit 1' > evil; chmod +x evil; printf '[options]\n\tstrategy = x/../evil\n' > .git/sequencer/opts
		git init -q n; mkdir n/.git/sequencer; printf '[options]\n\tstrategy = ort\n\tedit = true\n' > n/.git/sequencer/opts`)
	control := w.copied()
	require.Equal(t, []string{"inert .git/sequencer", "inert n/.git/sequencer", "review .git/CHERRY_PICK_HEAD"}, w.end())
	const goOn = `echo m > f; git add f; GIT_EDITOR=true git cherry-pick --continue || true; `
	w.sh(asUser + goOn + "! test -e ran")
	w.sh(asUser + "cd " + control + "; " + goOn + "test -e ran")
}

// What a merge has put aside the next commit puts back, and it is the run that says what
// that is.
func TestGuardAutostash(t *testing.T) {
	const plant = `git commit -q --allow-empty -m x; echo evil > g; git add g; s=$(git stash create); git reset -q --hard; echo $s > .git/MERGE_AUTOSTASH`
	for before, want := range map[string][]string{"": {"inert .git/MERGE_AUTOSTASH"}, plant: nil} {
		w := newWatchman(t)
		w.sh(asUser + before)
		w.begin()
		if before == "" {
			w.sh(asUser + plant)
		}
		require.Equal(t, want, w.end())
		w.sh(asUser + "git commit -q --allow-empty -m y 2> /dev/null") // git puts there what stood
		_, err := os.Lstat(w.path("g"))
		require.Equal(t, want != nil, os.IsNotExist(err))
	}
}

// What an earlier run has left under another name is as old as it was when its directory
// gets the one that counts.
func TestGuardMovedDirectories(t *testing.T) {
	for _, killed := range []bool{false, true} {
		w := newWatchman(t)
		w.sh("mkdir -p x remotes r .git/branches; echo 'exec evil' > x/git-rebase-todo; echo URL: /x > remotes/origin; echo /x > .git/branches/mine;")
		require.NoError(t, os.WriteFile(w.path("r/index"), fixture.Index(2, nil, fixture.Entry{Path: "../rc", Mode: 0o100755}), 0o600))
		text := w.begin().Append(nil)
		w.sh("mv x .git/rebase-merge; mv remotes .git/remotes; git init -q --bare r; touch .git/branches/f; rm .git/branches/f")
		if killed {
			w.guard.Close()
			s, _, err := ParseStanding(string(text))
			require.NoError(t, err)
			w.guard, err = NewGuard(s, nil, nil, w.stash(), func(Finding) {})
			require.NoError(t, err)
		}
		require.Equal(t, []string{"inert .git/rebase-merge", "inert .git/remotes/origin", "inert r/index"}, w.end())
	}
}

// Patches go on with the options that they began with, one of which has git write an
// index wherever it says.
func TestGuardPatchesWithOptions(t *testing.T) {
	w := newWatchman(t)
	w.sh(asUser + `echo a > f; git add f; git commit -qm a; git checkout -qb o; echo b > f; git commit -qam b; echo c > g; git add g; git commit -qm c; git format-patch -q -o ../patches HEAD~2; git checkout -q -; echo z > f; git commit -qam z`)
	w.begin()
	w.sh(asUser + `git am -C3 --whitespace=fix ../patches/* 2> /dev/null || true; test -s .git/rebase-apply/apply-opt; git clone -q . n; cp -r .git/rebase-apply n/.git; printf " '--build-fake-ancestor=%s/../rc'" "$PWD" > .git/rebase-apply/apply-opt`)
	control := w.copied()
	require.Equal(t, []string{"inert .git/rebase-apply", "inert n/.git/rebase-apply"}, w.end())
	const goOn = `echo b > f; git add f; git am --continue 2> /dev/null || true; `
	w.sh(asUser + goOn + "! test -e ../rc")
	w.sh(asUser + "cd " + control + "; " + goOn + "test -s $(dirname \"$OLDPWD\")/rc")
}

// What other programs start from a repository's own directory is protected in one that
// lies elsewhere as well.
func TestGuardNamesInARepositoryElsewhere(t *testing.T) {
	w := newWatchman(t)
	w.sh(asUser + "git worktree add -q -b side ../side; mkdir .git/worktrees/side/arc; echo {} > .git/worktrees/side/arc/config")
	w.root = filepath.Dir(w.root) + "/side"
	w.query.Root = w.root
	for i := range w.query.Files {
		w.query.Files[i].Path = w.root
	}
	const rules = ".git/lazygit.yml .git/glab-cli .git/arc"
	w.query.Protect = append(slices.Clip(w.query.Protect), fixture.Protect(strings.Fields(rules)...)...)
	found := scanOf(t, w.query)
	gitDir := filepath.Dir(w.root) + "/ws/.git/worktrees/side"
	require.True(t, slices.ContainsFunc(found.Pins, func(p Pin) bool { return p.Path == gitDir+"/arc" }), "%v", found.Pins)
	w.begin()
	w.sh("cd ../ws/.git/worktrees/side; mkdir glab-cli; echo 'browser: ./evil' > glab-cli/config.yml; echo x > lazygit.yml; echo x > other")
	require.ElementsMatch(t, []string{"stashed " + gitDir + "/glab-cli", "stashed " + gitDir + "/lazygit.yml", "inert " + gitDir + "/other"}, w.end())
}

// With rerere.enabled each commit leaves an empty list of conflicts, and a directory for them.
func TestGuardRerereWithoutAConflict(t *testing.T) {
	for plant, want := range map[string][]string{"": nil, "mkdir .git/rr-cache/x; ": {"inert .git/rr-cache/x"}, "echo x > .git/rr-cache/x; ": {"inert .git/rr-cache/x"}} {
		w := newWatchman(t)
		w.begin()
		w.sh(asUser + "echo a > f; git add f; git -c rerere.enabled=true commit -qm a; " + plant)
		require.FileExists(t, w.path(".git/MERGE_RR"), "control")
		require.Equal(t, want, w.end(), plant)
		require.DirExists(t, w.path(".git/rr-cache"))
	}
}

// A commit goes through the list of the files whose conflicts git remembers: it copies
// one without a conflict into the repository, where the next run reads it.
func TestGuardConflictsElsewhere(t *testing.T) {
	const id = "1111111111111111111111111111111111111111"
	for name, c := range map[string]struct {
		before, run, dir string
		use              string
		want             []string
	}{
		"a secret":           {"", `printf "$id\t../secret\0" > .git/MERGE_RR`, ".git", `grep -q mine .git/rr-cache/$id/postimage`, []string{"inert .git/MERGE_RR"}},
		"by a link":          {"", `ln -s ../secret l; printf "$id\tl\0" > .git/MERGE_RR`, ".git", `grep -q mine .git/rr-cache/$id/postimage`, []string{"inert .git/MERGE_RR"}},
		"in a worktree":      {"git worktree add -q w", `printf "$id\t../../secret\0" > .git/worktrees/w/MERGE_RR; cd w`, "w", `grep -q mine ../.git/rr-cache/$id/postimage`, []string{"inert .git/worktrees/w/MERGE_RR"}},
		"of a forged tree":   {"git worktree add -q w", `ln -s ../../secret w/l; mkdir t; echo x > t/.git; echo $PWD/t/.git > .git/worktrees/w/gitdir; printf "$id\tl\0" > .git/worktrees/w/MERGE_RR`, "w", `grep -q mine ../.git/rr-cache/$id/postimage`, []string{"inert .git/worktrees/w/MERGE_RR", "inert .git/worktrees/w/gitdir"}},
		"of a second tree":   {"", `mkdir y; echo "gitdir: ../.git" > y/.git; ln -s ../../secret y/l; printf "$id\tl\0" > .git/MERGE_RR`, "y", `grep -q mine ../.git/rr-cache/$id/postimage`, []string{"inert .git/MERGE_RR", "inert y/.git"}},
		"by a linked .git":   {"", `mkdir y; ln -s ../.git y/.git; ln -s ../../secret y/l; printf "$id\tl\0" > .git/MERGE_RR`, "y", `grep -q mine ../.git/rr-cache/$id/postimage`, []string{"inert .git/MERGE_RR", "inert y/.git"}},
		"beside a commondir": {"", `mkdir -p y/.git; cp .git/HEAD y/.git; echo ../../.git > y/.git/commondir; printf '[core]\nworktree = ../..\n' > y/.git/config; ln -s ../../secret y/l; printf "$id\tl\0" > y/.git/MERGE_RR`, "y", `grep -q mine ../.git/rr-cache/$id/postimage`, []string{"inert y/.git/MERGE_RR", "inert y/.git/commondir"}},
		"said twice":         {"", `git init -q --bare m; mkdir m/rr-cache m/rr-cache/$id t; git -C m config core.bare false; git -C m config core.worktree $PWD; echo "gitdir: ../m" > t/.git; printf '[core]\nworktree = ../t\n' > m/config.worktree; ln -s ../secret l; printf "$id\tl\0" > m/MERGE_RR`, "t", `grep -q mine ../m/rr-cache/$id/postimage && mkdir ../.git/went`, []string{"inert m/MERGE_RR", "inert m/config.worktree", "inert m/rr-cache/" + id, "inert t/.git"}},
		"said by a gitdir":   {"", `git init -q --bare m; mkdir m/rr-cache m/rr-cache/$id t; git -C m config core.bare false; git -C m config core.worktree $PWD; echo "gitdir: ../m" > t/.git; echo $PWD/t/.git > m/gitdir; ln -s ../secret l; printf "$id\tl\0" > m/MERGE_RR`, "t", `grep -q mine ../m/rr-cache/$id/postimage && mkdir ../.git/went`, []string{"inert m/MERGE_RR", "inert m/gitdir", "inert m/rr-cache/" + id, "inert t/.git"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, guarded := range []bool{false, true} {
				w := newWatchman(t)
				w.sh(asUser + "id=" + id + "; mkdir -p .git/rr-cache/$id; echo mine > ../secret; echo x > f; " + c.before)
				w.begin()
				w.sh("id=" + id + "; " + c.run)
				if guarded {
					require.Equal(t, c.want, w.end())
				} else {
					w.guard.Close()
				}
				w.sh(asUser + "id=" + id + "; cd $(dirname " + c.dir + "/x); test -e HEAD && cd ..; git commit -q --allow-empty -m x || true; if " + c.use + "; then touch $(git rev-parse --git-common-dir)/went; fi")
				_, err := os.Lstat(w.path(".git/went"))
				require.Equal(t, guarded && c.want != nil, os.IsNotExist(err), "control: without a guard git does it")
			}
		})
	}
}
