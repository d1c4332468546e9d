package workspace

import (
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/test/fixture"
	"github.com/pccrun/pccrun/workspace/beneath"
	"github.com/pccrun/pccrun/workspace/vcs"
)

// A reference says the same as a scan, slowly and in few words: every path is
// looked at with lstat, every rule is asked about every path.
type reference struct{ pins, matches, review, anchors []string }

func refer(t *testing.T, q Query) reference {
	t.Helper()
	inode := func(path string) (uint64, uint64) {
		var st unix.Stat_t
		require.NoError(t, unix.Lstat(path, &st))
		return st.Ino, uint64(st.Nlink)
	}
	exists := func(path string) bool { _, err := os.Lstat(path); return err == nil }
	isGit := func(dir string) bool {
		return exists(dir+"/HEAD") && (exists(dir+"/objects") && exists(dir+"/refs") || exists(dir+"/commondir"))
	}
	// store reports whether a directory is where git keeps objects and refs.
	store := func(dir string) bool {
		rel, _ := beneath.Path(q.Root, filepath.Dir(dir))
		name := filepath.Base(dir)
		return (name == "objects" || name == "refs" || name == "logs") && vcs.InsideGit(rel) && isGit(filepath.Dir(dir))
	}
	var paths []string
	require.NoError(t, filepath.WalkDir(q.Root, func(path string, d fs.DirEntry, err error) error {
		require.NoError(t, err)
		if path == q.Root {
			return nil
		}
		paths = append(paths, path)
		if d.IsDir() {
			if store(path) {
				paths = paths[:len(paths)-1]
				return fs.SkipDir
			}
			for _, r := range q.Files {
				if r.Access == profiles.Hide && r.Matches(path) {
					return fs.SkipDir
				}
			}
		}
		return nil
	}))
	pins, matches, review := map[string]bool{}, map[string]bool{}, map[string]bool{}
	for _, path := range append(paths, q.Root) {
		info, err := os.Lstat(path)
		require.NoError(t, err)
		deny, look := false, false
		for _, r := range q.Protect {
			if path != q.Root && r.Matches(q.Root, path) {
				deny = deny || !r.Review
				look = look || r.Review
			}
		}
		if strings.Contains(path, "/node_modules/") {
			deny, look = false, deny
		}
		if filepath.Base(path) == ".git" && !info.IsDir() {
			deny = true
		}
		if info.IsDir() && (filepath.Base(path) == ".git" || isGit(path)) && !slices.ContainsFunc(q.Files, func(r profiles.FileRule) bool { return r.Matches(path) }) {
			for _, name := range gitNames {
				if exists(path + "/" + name) {
					pins[path+"/"+name] = true
				}
			}
		}
		if deny {
			pins[path] = true
		} else if look && !info.IsDir() {
			review[path] = true
		}
		for _, r := range q.Files {
			if path != q.Root && r.Glob != "" && r.Matches(path) {
				matches[path] = true
			}
		}
	}
	// Aliases, of whatever is pinned or hidden, and of all below it.
	covered := func(set map[string]bool, path string) bool {
		for dir := path; dir != "/"; dir = filepath.Dir(dir) {
			if set[dir] {
				return true
			}
		}
		return false
	}
	var all []string
	require.NoError(t, filepath.WalkDir(q.Root, func(path string, d fs.DirEntry, err error) error {
		if d.IsDir() && path != q.Root && store(path) {
			return fs.SkipDir
		}
		if d.Type().IsRegular() {
			all = append(all, path)
		}
		return nil
	}))
	names := map[uint64][]string{}
	for _, path := range all {
		ino, n := inode(path)
		if n > 1 {
			names[ino] = append(names[ino], path)
		}
	}
	for _, same := range names {
		hidden := slices.ContainsFunc(same, func(p string) bool { return covered(matches, p) })
		pinned := slices.ContainsFunc(same, func(p string) bool { return covered(pins, p) && !covered(matches, p) })
		for _, p := range same {
			if covered(matches, p) {
				continue
			}
			if hidden {
				matches[p] = true
			} else if pinned {
				pins[p] = true
			}
		}
	}
	var out reference
	anchors := map[string]bool{}
	for p := range pins {
		if !covered(pins, filepath.Dir(p)) {
			out.pins = append(out.pins, p)
			for dir := filepath.Dir(p); dir != q.Root; dir = filepath.Dir(dir) {
				anchors[dir] = true
			}
		}
	}
	for p := range matches {
		if !covered(matches, filepath.Dir(p)) {
			out.matches = append(out.matches, p)
		}
	}
	for p := range review {
		if !covered(pins, p) {
			out.review = append(out.review, p)
		}
	}
	for p := range anchors {
		out.anchors = append(out.anchors, p)
	}
	slices.Sort(out.pins)
	slices.Sort(out.matches)
	slices.Sort(out.review)
	slices.Sort(out.anchors)
	return out
}

func (f *Found) reference() reference {
	var out reference
	for _, p := range f.Pins {
		out.pins = append(out.pins, p.Path)
	}
	hidden := map[string]bool{}
	for _, m := range f.Matches {
		hidden[m.Path] = true
	}
	for _, m := range f.Matches {
		below := false
		for dir := filepath.Dir(m.Path); dir != "/"; dir = filepath.Dir(dir) {
			below = below || hidden[dir]
		}
		if !below {
			out.matches = append(out.matches, m.Path)
		}
	}
	for _, r := range f.Review {
		out.review = append(out.review, r.Path)
	}
	out.anchors = append(out.anchors, f.Anchors...)
	return out
}

var treeNames = []string{
	"a", "b", "c", "src", "node_modules", ".git", ".git", "HEAD", "objects", "refs", "config", "hooks", "commondir",
	".envrc", ".vscode", ".env", ".env.local", "key.pem", "AGENTS.md", "x.iml", "sub", "logs", "vault",
}

// change does one random thing to a tree: no symbolic links, whose treatment
// has tests of its own.
func change(rnd *rand.Rand, root string) {
	var dirs, files []string
	_ = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if d.IsDir() {
			dirs = append(dirs, path)
		} else {
			files = append(files, path)
		}
		return nil
	})
	dir := dirs[rnd.IntN(len(dirs))]
	path := filepath.Join(dir, treeNames[rnd.IntN(len(treeNames))])
	switch n := rnd.IntN(20); {
	case n < 7:
		_ = os.WriteFile(path, nil, 0o644)
	case n < 13:
		_ = os.Mkdir(path, 0o755)
	case n < 15 && len(files) > 0:
		_ = os.Link(files[rnd.IntN(len(files))], path)
	case n < 16 && dir != root:
		_ = os.RemoveAll(dir)
	case n < 18 && len(files) > 0:
		_ = os.Rename(files[rnd.IntN(len(files))], path)
	case dir != root:
		_ = os.Rename(dir, filepath.Join(dirs[rnd.IntN(len(dirs))], filepath.Base(path)))
	}
}

// On random trees that change between scans, a scan says what the reference
// says: without an index, with the index of the last scan, and once more with
// nothing changed.
func TestScanReference(t *testing.T) {
	for seed := range uint64(6) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			rnd := rand.New(rand.NewPCG(seed, 2))
			top := fixture.Dir(t)
			root := top + "/ws"
			require.NoError(t, os.Mkdir(root, 0o755))
			q := Query{
				Root:    root,
				Files:   hide(root, "**/.env*", "**/*.pem", "**/vault"),
				Protect: append(fixture.Protect(".envrc", ".vscode", "*.iml", "sub/config"), fixture.Review("AGENTS.md", "src")...),
			}
			indexed := q
			indexed.IndexDir = top + "/index"
			for round := range 20 {
				for range rnd.IntN(12) + 1 {
					change(rnd, root)
				}
				if round%3 == 0 {
					time.Sleep(racy + 5*time.Millisecond) // let the index believe something
				}
				want := refer(t, q)
				for _, q := range []Query{q, indexed, indexed} {
					f := scanOf(t, q)
					if got := f.reference(); !reflect.DeepEqual(want, got) {
						out, _ := exec.Command("ls", "-lianR", root).Output()
						require.Equal(t, want, got, "round %d, index %q\n%s", round, q.IndexDir, out)
					}
				}
			}
		})
	}
}
