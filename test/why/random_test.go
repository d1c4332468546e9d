//go:build linux

package why

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pccrun/pccrun/test/internal/host"
	"github.com/pccrun/pccrun/test/internal/verdicts"
)

// A forest makes random workspaces and rules.
type forest struct {
	*rand.Rand
	home, workspace string
	paths           []string // what is asked about
	flags           []string
}

// names are what random trees are made of: some are hidden or protected, some are nothing special.
var names = []string{"a", "b", "c", ".vscode", ".envrc", ".npmrc", ".env", "Makefile", ".claude", "d.txt", ".env.example", ".husky"}

// grow makes a tree: directories, files, links and hard links of what stood by then, repositories.
func (f *forest) grow(t *testing.T) {
	outside := f.home + "/other"
	for _, dir := range []string{f.workspace, outside, f.home + "/shown"} {
		require.NoError(t, os.MkdirAll(dir, 0o755))
		require.NoError(t, os.WriteFile(dir+"/file", []byte("x\n"), 0o644))
	}
	dirs := []string{f.workspace}
	files := []string{f.workspace + "/file"}
	targets := []string{outside, outside + "/file", f.home + "/shown/file"}
	for range 4 + f.IntN(14) {
		path := filepath.Join(dirs[f.IntN(len(dirs))], names[f.IntN(len(names))])
		switch f.IntN(8) {
		case 0, 1, 2:
			if os.WriteFile(path, []byte("x\n"), 0o644) == nil {
				files = append(files, path)
			}
		case 3, 4:
			if os.Mkdir(path, 0o755) == nil {
				dirs = append(dirs, path)
				if f.IntN(3) == 0 {
					require.NoError(t, exec.Command("git", "init", "-q", path).Run())
					files = append(files, path+"/.git/config", path+"/.git/HEAD", path+"/.git/description")
				}
			}
		case 5:
			_ = os.Link(files[f.IntN(len(files))], path)
		case 6:
			to := append(append([]string{}, targets...), append(dirs, files...)...)[f.IntN(len(targets)+len(dirs)+len(files))]
			if rel, err := filepath.Rel(filepath.Dir(path), to); f.IntN(2) == 0 && err == nil {
				to = rel
			}
			_ = os.Symlink(to, path)
		case 7:
			word := []string{"--read", "--hide", "--write"}[f.IntN(3)]
			if rule := append(dirs[1:], files...)[f.IntN(len(dirs)-1+len(files))]; !strings.Contains(rule, "/.git/") {
				f.flags = append(f.flags, word, rule)
			}
		}
	}
	if f.IntN(2) == 0 {
		f.flags = append(f.flags, "--read", f.home+"/shown")
	}
	err := filepath.WalkDir(f.workspace, func(path string, d os.DirEntry, err error) error {
		if d.IsDir() && (d.Name() == "objects" || d.Name() == "refs" || d.Name() == "hooks" || d.Name() == "info") {
			return filepath.SkipDir
		}
		if info, e := os.Stat(path); e == nil && info.Mode().IsRegular() {
			f.paths = append(f.paths, path)
		}
		return err
	})
	require.NoError(t, err)
	f.paths = append(f.paths, outside+"/file", f.home+"/shown/file")
	f.Shuffle(len(f.paths), func(i, j int) { f.paths[i], f.paths[j] = f.paths[j], f.paths[i] })
	f.paths = f.paths[:min(len(f.paths), 10)]
}

// resolved is where the links of a path lead.
func resolved(path string) string {
	if end, err := filepath.EvalSymlinks(path); err == nil {
		return end
	}
	return path
}

// probe is what a run says of each path, a line for each.
const probe = `for f; do
if cat "$f" > /dev/null 2>&1; then echo "read $f yes"; else echo "read $f no"; fi
if (: >> "$f") 2> /dev/null; then echo "write $f yes"; else echo "write $f no"; fi; done`

// TestWhyAgreesOnRandomTrees asks of random trees, and holds the answers to what a run can do.
func TestWhyAgreesOnRandomTrees(t *testing.T) {
	verdicts.SkipAsRoot(t)
	program := host.Program(t)
	const few = 16
	trees := few
	if os.Getenv("PCCRUN_LONG") != "" {
		trees = 1000
	}
	asked, yes := 0, 0
	for n := range trees {
		seed := uint64(n) // the same each time, but in the long run
		if trees > few {
			seed = rand.Uint64()
		}
		top, err := filepath.EvalSymlinks(t.TempDir())
		require.NoError(t, err)
		f := &forest{Rand: rand.New(rand.NewPCG(seed, 0)), home: top + "/u", workspace: top + "/u/ws"}
		f.grow(t)
		start := func(args ...string) (string, string, error) {
			cmd := exec.Command(program, args...)
			cmd.Dir = f.workspace
			cmd.Env = []string{"HOME=" + f.home, "PATH=" + os.Getenv("PATH"), "XDG_STATE_HOME=" + top + "/state", "XDG_CACHE_HOME=" + top + "/cache"}
			var out, errs bytes.Buffer
			cmd.Stdout, cmd.Stderr = &out, &errs
			err := cmd.Run()
			return out.String(), errs.String(), err
		}
		argv := append(append(append([]string{"-q", "--workspace", f.workspace}, f.flags...), "--", "sh", "-c", probe, "sh"), f.paths...)
		did, said, err := start(argv...)
		if err != nil {
			continue // rules that contradict each other are refused, which is no answer
		}
		for line := range strings.Lines(did) {
			words := strings.Fields(line)
			if words[0] == "write" && strings.HasSuffix(resolved(words[1]), "/.git/config") {
				continue // the command writes a copy of its own, and why speaks of the host's
			}
			if words[0] == "write" && !strings.HasPrefix(resolved(words[1]), f.workspace+"/") {
				continue // the directory around it is not there either, in an empty home
			}
			answer, _, err := start(append([]string{"why", words[0], words[1], "--workspace", f.workspace}, f.flags...)...)
			want := map[bool]string{true: "yes", false: "no"}[err == nil]
			if want != words[2] {
				list, _ := exec.Command("find", f.workspace, "-not", "-path", "*/.git/*", "-ls").Output()
				t.Logf("%s", list)
			}
			require.Equal(t, want, words[2], "seed %d: %s\nflags %q\nwhy: %s\nrun: %s", seed, line, f.flags, answer, said)
			if asked++; err == nil {
				yes++
			}
		}
	}
	require.True(t, yes > 0 && yes < asked, fmt.Sprint(yes, " of ", asked))
}
