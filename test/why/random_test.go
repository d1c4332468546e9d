//go:build linux

package why

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pccrun/pccrun/test/internal/host"
)

// A forest makes random workspaces and rules.
type forest struct {
	*rand.Rand
	home, workspace string
	paths           []string // what is asked about
	missing         []string // names at which nothing stands, and links that lead there
	beside          string   // another directory that may be written; "" for none
	sockets         []string // that somebody listens on, and links that lead there
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
	for _, path := range []string{outside + "/s", f.home + "/shown/s", f.workspace + "/s"} {
		f.listen(t, path)
	}
	dirs := []string{f.workspace}
	files := []string{f.workspace + "/file"}
	targets := []string{outside, outside + "/file", f.home + "/shown/file"}
	f.missing = []string{f.workspace + "/none", f.workspace + "/.env.none"}
	if f.IntN(3) == 0 {
		f.beside = outside
		f.flags = append(f.flags, "--write", outside)
		f.missing = append(f.missing, outside+"/none")
	}
	for range 4 + f.IntN(14) {
		path := filepath.Join(dirs[f.IntN(len(dirs))], names[f.IntN(len(names))])
		switch f.IntN(11) {
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
		case 8:
			f.listen(t, path)
		case 10:
			if os.Symlink(f.missing[f.IntN(len(f.missing))], path) == nil {
				f.missing = append(f.missing, path)
			}
		case 9:
			if to := f.sockets[f.IntN(len(f.sockets))]; f.IntN(2) == 0 {
				f.flags = append(f.flags, "--socket", to)
			} else if len(path) < 108 && os.Symlink(to, path) == nil { // a longer name no program can connect to
				f.sockets = append(f.sockets, path)
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
	f.missing = slices.DeleteFunc(f.missing, func(path string) bool {
		_, err := os.Stat(path)
		return err == nil
	})
	f.paths = append(f.paths, outside+"/file", f.home+"/shown/file")
	f.Shuffle(len(f.paths), func(i, j int) { f.paths[i], f.paths[j] = f.paths[j], f.paths[i] })
	f.paths = f.paths[:min(len(f.paths), 10)]
}

// listen has somebody answer at a socket, where there is room for its name.
func (f *forest) listen(t *testing.T, path string) {
	l, err := net.Listen("unix", path)
	if err != nil {
		return
	}
	t.Cleanup(func() { _ = l.Close() })
	f.sockets = append(f.sockets, path)
}

// TestMain makes the test a program that connects to a socket, too.
func TestMain(m *testing.M) {
	if path := os.Getenv("PCCRUN_TEST_DIAL"); path != "" {
		if _, err := net.Dial("unix", path); err != nil {
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// resolved is where the links of a path lead.
func resolved(path string) string {
	if end, err := filepath.EvalSymlinks(path); err == nil {
		return end
	}
	return path
}

// probe is what a run says of each path, a line for each. All is read before anything is written:
// a write through a link can make what the next would read.
const probe = `for f; do [ "$f" != -- ] || break; if cat "$f" > /dev/null 2>&1; then echo "read $f yes"; else echo "read $f no"; fi; done
while [ "$1" != -- ]; do if (: >> "$1") 2> /dev/null; then echo "write $1 yes"; else echo "write $1 no"; fi; shift; done; shift
for f; do if PCCRUN_TEST_DIAL=$f "$0"; then echo "connect $f yes"; else echo "connect $f no"; fi; done`

// TestWhyAgreesOnRandomTrees asks of random trees, and holds the answers to what a run can do.
// PCCRUN_LONG is how many.
func TestWhyAgreesOnRandomTrees(t *testing.T) {
	program := host.Program(t)
	self, err := os.Executable()
	require.NoError(t, err)
	const few = 16
	trees := few
	if long := os.Getenv("PCCRUN_LONG"); long != "" {
		trees, _ = strconv.Atoi(long)
		trees = max(trees, 1000)
	}
	asked, yes := map[string]int{}, map[string]int{}
	for n := range trees {
		seed := uint64(n) // the same each time, but in the long run
		if trees > few {
			seed = rand.Uint64()
		}
		t.Run("", func(t *testing.T) {
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
			// Before the run: what it takes away at its end is not there to be asked about.
			answers := map[string]string{}
			questions := map[string][]string{"read": f.paths, "write": append(f.paths, f.missing...), "connect": f.sockets}
			for question, paths := range questions {
				for _, path := range paths {
					answer, said, err := start(append([]string{"why", question, path, "--workspace", f.workspace}, f.flags...)...)
					answers[question+" "+path] = map[bool]string{true: "yes", false: "no"}[err == nil] + "\n" + answer + said
				}
			}
			argv := append([]string{"-q", "--workspace", f.workspace, "--read", self}, f.flags...)
			argv = append(append(append(append(append(argv, "--", "sh", "-c", probe, self), f.paths...), f.missing...), "--"), f.sockets...)
			did, said, err := start(argv...)
			if err != nil && did == "" {
				return // rules that contradict each other are refused, which is no answer
			}
			for line := range strings.Lines(did) {
				words := strings.Fields(line)
				if words[0] == "write" && strings.HasSuffix(resolved(words[1]), "/.git/config") {
					continue // the command writes a copy of its own, and why speaks of the host's
				}
				if end := resolved(words[1]); words[0] == "write" && !strings.HasPrefix(end, f.workspace+"/") && (f.beside == "" || !strings.HasPrefix(end, f.beside+"/")) {
					continue // the directory around it is not there either, in an empty home
				}
				if slices.Contains(f.missing, words[1]) {
					if words[0] == "read" {
						continue
					}
					if _, err := os.Stat(words[1]); err != nil {
						words[2] = "no" // what is quarantined was written, and is not there in the end
					}
				}
				want, answer, _ := strings.Cut(answers[words[0]+" "+words[1]], "\n")
				if want != words[2] {
					list, _ := exec.Command("find", f.workspace, "-not", "-path", "*/.git/*", "-ls").Output()
					t.Logf("%s", list)
				}
				require.Equal(t, want, words[2], "seed %d: %s\nflags %q\nwhy: %s\nrun: %s", seed, line, f.flags, answer, said)
				if asked[words[0]]++; want == "yes" {
					yes[words[0]]++
				}
			}
		})
	}
	for question, n := range asked {
		require.True(t, yes[question] > 0 && yes[question] < n, fmt.Sprint(question, ": ", yes[question], " of ", n))
	}
}
