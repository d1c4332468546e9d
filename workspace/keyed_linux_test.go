package workspace

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/profiles"
)

// sorting is a file of the host's and a stash, for one run after another.
type sorting struct {
	t     *testing.T
	path  string
	rules profiles.KeyedFile
	root  *os.Root
}

func newSorting(t *testing.T, host string) *sorting {
	s := &sorting{t: t, path: filepath.Join(t.TempDir(), "agent.json")}
	require.NoError(t, os.WriteFile(s.path, []byte(host), 0o640))
	s.rules = profiles.KeyedFile{Path: s.path, Keys: []profiles.KeyRule{{Pattern: "keep*"}, {Pattern: "in", Fate: profiles.Inside}}}
	var err error
	s.root, err = os.OpenRoot(t.TempDir())
	require.NoError(t, err)
	return s
}

// begin takes a copy as a run does, and end sorts what it has become.
func (s *sorting) begin() *Copied {
	real, host, err := ReadKeyed(s.path)
	require.NoError(s.t, err)
	k := &Copied{Keyed: Keyed{Path: s.path, Real: real, Rules: s.rules, Host: host}, Name: "copy"}
	k.Remember(nil)
	k.Recall = func(change func([]byte) ([]byte, error)) error { return nil }
	return k
}

func (s *sorting) end(k *Copied, now string) []Finding {
	dir := s.t.TempDir()
	require.NoError(s.t, os.WriteFile(filepath.Join(dir, k.Name), []byte(now), 0o600))
	var err error
	k.Dir, err = unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	require.NoError(s.t, err)
	defer unix.Close(k.Dir)
	stash := &Stash{Open: func() (*os.Root, error) { return s.root, nil }}
	g := &Guard{stash: stash, told: func(Finding) {}}
	require.NoError(s.t, g.settleKeys(k))
	return stash.settle()
}

func (s *sorting) host() string {
	b, err := os.ReadFile(s.path)
	require.NoError(s.t, err)
	return string(b)
}

// Runs at once, and a host that writes as Claude Code does, lose nothing of each
// other's.
func TestKeysAtOnce(t *testing.T) {
	s := newSorting(t, `{"keep0": 0, "host": 0}`)
	const runs = 8
	var wait sync.WaitGroup
	for i := range runs {
		k := s.begin()
		wait.Add(2)
		go func() {
			defer wait.Done()
			left, err := k.change([]keyChange{{names: []string{fmt.Sprint("keep", i+1)}, after: &node{kind: isNumber, text: "1"}}}, &Stash{Open: func() (*os.Root, error) { return s.root, nil }})
			require.NoError(t, err)
			require.Empty(t, left)
		}()
		go func() { // the host
			defer wait.Done()
			for os.Mkdir(s.path+".lock", 0o755) != nil {
				time.Sleep(time.Millisecond)
			}
			defer os.Remove(s.path + ".lock")
			tree, err := parseTree([]byte(s.host()))
			require.NoError(t, err)
			tree.set([]string{fmt.Sprint("host", i)}, &node{kind: isNumber, text: "1"})
			require.NoError(t, os.WriteFile(s.path+fmt.Sprint(".tmp", i), tree.bytes(), 0o600))
			require.NoError(t, os.Rename(s.path+fmt.Sprint(".tmp", i), s.path))
		}()
	}
	wait.Wait()
	tree, err := parseTree([]byte(s.host()))
	require.NoError(t, err)
	require.Len(t, tree.index, 2+2*runs, s.host())
	list, err := os.ReadDir(filepath.Dir(s.path))
	require.NoError(t, err)
	require.Len(t, list, 1, "the file, no lock and no temporary one")
}

// What the host has changed meanwhile stays, where the run did not change it too.
func TestKeysHostMeanwhile(t *testing.T) {
	s := newSorting(t, `{"keep1": 1, "keep2": 1, "own": 1}`)
	k := s.begin()
	require.NoError(t, os.WriteFile(s.path, []byte(`{"keep1": 2, "keep2": 2, "own": 2}`), 0o640))
	require.Empty(t, s.end(k, `{"keep1": 1, "keep2": 3, "own": 1}`))
	require.JSONEq(t, `{"keep1": 2, "keep2": 3, "own": 2}`, s.host())
	info, err := os.Stat(s.path)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o640), info.Mode())

	// It is gone by now: it is not made again, and somebody hears of it.
	k = s.begin()
	require.NoError(t, os.Remove(s.path))
	found := s.end(k, `{"keep1": 5, "keep2": 3, "own": 2}`)
	require.Len(t, found, 1)
	require.Equal(t, "keep1", found[0].Why)
	require.NoFileExists(t, s.path)
}

// A lock that nobody has touched for long is nobody's; one that is held is waited
// for, and then it is told what the host has not got.
func TestKeysLocked(t *testing.T) {
	s := newSorting(t, `{"keep1": 1}`)
	require.NoError(t, os.Mkdir(s.path+".lock", 0o755))
	old := time.Now().Add(-time.Minute)
	require.NoError(t, os.Chtimes(s.path+".lock", old, old))
	require.Empty(t, s.end(s.begin(), `{"keep1": 2}`))
	require.JSONEq(t, `{"keep1": 2}`, s.host())
	require.NoDirExists(t, s.path+".lock")

	require.NoError(t, os.Mkdir(s.path+".lock", 0o755))
	patience := lockWait
	lockWait = 100 * time.Millisecond
	t.Cleanup(func() { lockWait = patience })
	soon := time.Now().Add(time.Minute) // as if it were touched all the time
	require.NoError(t, os.Chtimes(s.path+".lock", soon, soon))
	found := s.end(s.begin(), `{"keep1": 3}`)
	require.Len(t, found, 1)
	require.Equal(t, Keys, found[0].Kind)
	require.JSONEq(t, `{"keep1": 2}`, s.host())
	require.NoError(t, os.Remove(s.path+".lock"))

	// And it can be accepted.
	require.NoError(t, found[0].Restore(s.root))
	require.JSONEq(t, `{"keep1": 3}`, s.host())

	// One that is old, and that nobody can remove, is not waited for without end.
	require.NoError(t, os.WriteFile(s.path+".lock", nil, 0o600))
	require.NoError(t, os.Chtimes(s.path+".lock", old, old))
	found = s.end(s.begin(), `{"keep1": 4}`)
	require.Equal(t, "keep1", found[len(found)-1].Why)
	require.FileExists(t, s.path+".lock")
	require.JSONEq(t, `{"keep1": 3}`, s.host())
}

// What a hostile run makes of its copy takes no longer than it must.
func TestKeysFlood(t *testing.T) {
	s := newSorting(t, `{"own": 1}`)
	var text []byte
	for i := range maxValues - 1 {
		text = fmt.Appendf(text, `,"%d":%d`, i, i)
	}
	began := time.Now()
	found := s.end(s.begin(), "{"+string(text[1:])+"}")
	require.Len(t, found, 1)
	require.Less(t, len(found[0].Why), 1<<10)
	require.Less(t, time.Since(began), 20*time.Second)
	require.JSONEq(t, `{"own": 1}`, s.host())
	found = s.end(s.begin(), `{"`+string(bytes.Repeat([]byte("x"), 1<<20))+`": 1, "\u001b[31m": 2}`)
	require.Less(t, len(found[len(found)-1].Why), 1<<10)
	found = s.end(s.begin(), string(make([]byte, MaxKeyed+1)))
	require.Equal(t, Stashed, found[len(found)-1].Kind)

	// Two million numbers, each behind a hundred spaces once they are written.
	deep := strings.Repeat("[", maxDeep-1) + strings.Repeat("0,", (MaxKeyed-1<<10)/2) + "0" + strings.Repeat("]", maxDeep-1)
	found = s.end(s.begin(), `{"evil": `+deep+"}")
	require.Equal(t, Stashed, found[len(found)-1].Kind)
	require.Contains(t, found[len(found)-1].Why, "more than 131072 values")
}

// A run cannot make the host's file so large that the next one is refused once the
// host's own programs have added to it.
func TestKeysRoom(t *testing.T) {
	s := newSorting(t, `{"own": 1}`)
	require.Empty(t, s.end(s.begin(), `{"own": 1, "keep": "`+strings.Repeat("x", maxGiven-1<<10)+`"}`), "control")
	before := s.host()
	found := s.end(s.begin(), before[:len(before)-2]+`, "keep2": "`+strings.Repeat("x", 1<<11)+`"}`)
	require.Len(t, found, 1)
	require.Equal(t, Keys, found[0].Kind)
	require.Equal(t, "keep2", found[0].Why)
	require.Equal(t, before, s.host())
	require.Empty(t, s.end(s.begin(), `{"own": 1}`), "it can always become smaller")
	require.JSONEq(t, `{"own": 1}`, s.host())
}
