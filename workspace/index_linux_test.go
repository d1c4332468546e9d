package workspace

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/test/fixture"
)

// settled makes a tree that the index believes at once.
func settled(t *testing.T) (q Query, file string) {
	top := fixture.Dir(t)
	root := top + "/ws"
	for _, path := range []string{"a/b/.envrc", "a/c/x", ".vscode/tasks.json", "d/.env"} {
		fixture.Write(t, root+"/"+path, "x")
	}
	time.Sleep(2 * racy)
	q = Query{Root: root, IndexDir: top + "/state/index", Protect: fixture.Protect(".envrc", ".vscode"), Files: hide(root, "**/.env")}
	require.Equal(t, 6, scanOf(t, q).Stats.Read)
	files, err := filepath.Glob(q.IndexDir + "/*")
	require.NoError(t, err)
	require.Len(t, files, 1)
	return q, files[0]
}

// Each combination of flags has an index. Their number is bounded: what was not read for longest goes.
func TestIndexesAreFew(t *testing.T) {
	q, file := settled(t)
	other := filepath.Join(q.IndexDir, "other")
	fixture.Write(t, other, "x")
	for i := range maxIndexes + 3 {
		name := filepath.Join(q.IndexDir, fmt.Sprintf("%s%d", indexPrefix, i))
		fixture.Write(t, name, "x")
		at := time.Now().Add(-time.Duration(i+1) * time.Hour)
		require.NoError(t, os.Chtimes(name, at, at))
	}
	list := func() []string {
		files, err := filepath.Glob(q.IndexDir + "/" + indexPrefix + "*")
		require.NoError(t, err)
		return files
	}
	scanOf(t, q)
	require.Len(t, list(), maxIndexes+4, "control: nothing is new")
	q.Files = hide(q.Root, "**/.env", "**/x")
	scanOf(t, q)
	require.Len(t, list(), maxIndexes)
	require.FileExists(t, file)
	require.FileExists(t, other)
	require.NoFileExists(t, filepath.Join(q.IndexDir, fmt.Sprintf("%s%d", indexPrefix, maxIndexes+2)))
	require.Zero(t, scanOf(t, q).Stats.Read, "the new one is there")
}

func TestIndexReadsWhatChanged(t *testing.T) {
	q, _ := settled(t)
	f := scanOf(t, q)
	require.Equal(t, Stats{Dirs: 6, Read: 0, Entries: 0}, f.Stats)
	require.Equal(t, []string{".vscode", "a/b/.envrc"}, pinPaths(t, q.Root, f))
	require.Equal(t, []string{"d/.env"}, matchPaths(t, q.Root, f))

	began := time.Now()
	fixture.Write(t, q.Root+"/a/c/.envrc", "x")
	f = scanOf(t, q)
	require.Equal(t, 1, f.Stats.Read)
	require.Equal(t, []string{".vscode", "a/b/.envrc", "a/c/.envrc"}, pinPaths(t, q.Root, f))
	again := scanOf(t, q).Stats.Read
	if time.Since(began) < racy {
		require.Equal(t, 1, again, "it changed too recently to be believed")
	}
	time.Sleep(2 * racy)
	require.LessOrEqual(t, scanOf(t, q).Stats.Read, again, "the scan before may have come late enough to be believed")
	require.Zero(t, scanOf(t, q).Stats.Read)

	// A directory of another inode under the old name, and one that is gone.
	require.NoError(t, os.Rename(q.Root+"/a/b", q.Root+"/a/gone"))
	require.NoError(t, os.RemoveAll(q.Root+"/a/gone"))
	require.NoError(t, os.Rename(q.Root+"/d", q.Root+"/a/b"))
	f = scanOf(t, q)
	require.Equal(t, []string{".vscode", "a/c/.envrc"}, pinPaths(t, q.Root, f))
	require.Equal(t, []string{"a/b/.env"}, matchPaths(t, q.Root, f))
	require.Equal(t, 5, f.Stats.Dirs)
}

// Each run in a workspace makes a directory at its top or in .git, and moves it out again. That alone is no reason to
// write the index, which would not hold until the next run.
func TestIndexIsNotWrittenForATime(t *testing.T) {
	q, file := settled(t)
	written := func(change func()) bool {
		before, err := os.Stat(file)
		require.NoError(t, err)
		change()
		require.NotZero(t, scanOf(t, q).Stats.Read)
		after, err := os.Stat(file)
		require.NoError(t, err)
		return !os.SameFile(before, after)
	}
	for i, dir := range [...]string{"", "/a"} {
		require.False(t, written(func() {
			require.NoError(t, os.Mkdir(q.Root+dir+"/staging", 0o700))
			require.NoError(t, os.Rename(q.Root+dir+"/staging", fmt.Sprint(filepath.Dir(q.Root), "/staging", i)))
		}))
	}
	require.True(t, written(func() { fixture.Write(t, q.Root+"/.envrc", "x") }), "control: there is news")
}

// A name that is added within the clock's grain of the post-run check is seen.
// A file below a directory that a rule closes as a whole is no other name of itself.
func TestIndexClosedDirectory(t *testing.T) {
	top := fixture.Dir(t)
	for _, path := range []string{"shut/a", "shut/b", "c"} {
		fixture.Write(t, top+"/ws/"+path, "x")
	}
	require.NoError(t, os.Link(top+"/ws/shut/b", top+"/ws/linked"))
	q := Query{Root: top + "/ws", IndexDir: top + "/state/index", Files: []profiles.FileRule{{Path: top + "/ws/shut", Access: profiles.Read}}}
	for range 3 { // without an index, with one, and with one of what has changed
		require.Equal(t, []string{"linked"}, matchPaths(t, q.Root, scanOf(t, q)))
		fixture.Write(t, q.Root+"/c", "y")
	}
}

func TestIndexRacy(t *testing.T) {
	q, _ := settled(t)
	for range 200 {
		path := q.Root + "/a/c/.envrc"
		scanOf(t, q)
		fixture.Write(t, path, "")
		require.Len(t, scanOf(t, q).Pins, 3)
		require.NoError(t, os.Remove(path))
		require.Len(t, scanOf(t, q).Pins, 2)
	}
}

// Other rules, another root and a damaged file are no index.
//
//test:root
func TestIndexNotBelieved(t *testing.T) {
	for name, spoil := range map[string]func(t *testing.T, q *Query, file string){
		"other rules": func(t *testing.T, q *Query, file string) {
			q.Protect = append(q.Protect, fixture.Protect("nothing")...)
		},
		"other access": func(t *testing.T, q *Query, file string) { q.Files[0].Access++ },
		"truncated":    func(t *testing.T, q *Query, file string) { require.NoError(t, os.Truncate(file, 100)) },
		"empty":        func(t *testing.T, q *Query, file string) { require.NoError(t, os.Truncate(file, 0)) },
		"damaged": func(t *testing.T, q *Query, file string) {
			b, err := os.ReadFile(file)
			require.NoError(t, err)
			b[len(b)/2] ^= 1
			require.NoError(t, os.WriteFile(file, b, 0o600))
		},
		"of the next version":   func(t *testing.T, _ *Query, file string) { reversion(t, file, '6') },
		"of the version before": func(t *testing.T, _ *Query, file string) { reversion(t, file, '4') },
		"another root's": func(t *testing.T, q *Query, file string) {
			b, err := os.ReadFile(file)
			require.NoError(t, err)
			body := append([]byte(nil), b[:len(b)-8]...)
			i := len(indexMagic)
			_, n := binary.Uvarint(body[i:])
			body[i+n+2] = 'X' // the first letter of the root's path
			require.NoError(t, os.WriteFile(file, binary.LittleEndian.AppendUint64(body, checksum(body)), 0o600))
		},
		"writable by others": func(t *testing.T, q *Query, file string) { require.NoError(t, os.Chmod(file, 0o666)) },
		"in a directory writable by others": func(t *testing.T, q *Query, file string) {
			require.NoError(t, os.Chmod(q.IndexDir, 0o777))
		},
		"behind a link": func(t *testing.T, q *Query, file string) {
			require.NoError(t, os.Rename(file, file+"2"))
			require.NoError(t, os.Symlink(file+"2", file))
		},
		"somebody else's": func(t *testing.T, q *Query, file string) {
			if os.Geteuid() != 0 {
				t.Skip("needs root, to give a file away")
			}
			require.NoError(t, os.Chown(file, 65534, 65534))
		},
		"a directory": func(t *testing.T, q *Query, file string) {
			require.NoError(t, os.Remove(file))
			require.NoError(t, os.Mkdir(file, 0o700))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			q, file := settled(t)
			require.Zero(t, scanOf(t, q).Stats.Read) // the control
			spoil(t, &q, file)
			f := scanOf(t, q)
			require.Equal(t, 6, f.Stats.Read)
			require.Equal(t, []string{".vscode", "a/b/.envrc"}, pinPaths(t, q.Root, f))
		})
	}
}

// reversion makes an index another version's, whole and with its checksum.
func reversion(t *testing.T, file string, version byte) {
	b, err := os.ReadFile(file)
	require.NoError(t, err)
	body := b[:len(b)-8]
	require.Equal(t, "5\n", string(body[len(indexMagic)-2:len(indexMagic)]))
	body[len(indexMagic)-2] = version
	require.NoError(t, os.WriteFile(file, binary.LittleEndian.AppendUint64(body, checksum(body)), 0o600))
}

// An index that cannot be written is nobody's error, and leaves nothing.
func TestIndexUnwritable(t *testing.T) {
	q, file := settled(t)
	require.NoError(t, os.Remove(file))
	// Another launch is writing.
	fixture.Write(t, file+".new", "")
	scanOf(t, q)
	require.NoFileExists(t, file)
	require.FileExists(t, file+".new")
	// It was killed while it did.
	old := time.Now().Add(-time.Hour)
	require.NoError(t, os.Chtimes(file+".new", old, old))
	scanOf(t, q)
	require.NoFileExists(t, file+".new")
	scanOf(t, q)
	require.FileExists(t, file)
	// The place is a file.
	fixture.Write(t, filepath.Dir(q.IndexDir)+"/file", "")
	q.IndexDir = filepath.Dir(q.IndexDir) + "/file/index"
	scanOf(t, q)
}

// All that a scan asks for is there again, and nothing of what only that scan knew.
func TestIndexWhole(t *testing.T) {
	q := Query{Root: "/w", IndexDir: fixture.Dir(t) + "/index"}
	x := &index{Linked: []uint64{3}, Tree: &dir{Dev: 1, Ino: 2, Ctime: 3, Kids: []*dir{
		{Rel: "a", State: protected, Why: 1, Hits: []hit{{Class: classInside, Kind: File, Ino: 9, Name: "x"}}, Kids: []*dir{{Rel: "a/b"}}},
		{Rel: "c \xff", Git: true, State: protected, Why: byGit, Hits: []hit{{Class: classGlob, Arg: 7, Name: ".env"}}},
	}}}
	x.Tree.watch, x.Tree.fresh = 5, true
	x.save(q, 7)
	got := loadIndex(q, 7)
	require.NotNil(t, got)
	require.Len(t, got.all, 4)
	x.Tree.watch, x.Tree.fresh = 0, false
	require.Equal(t, x.Tree, got.Tree)
	require.Equal(t, x.Linked, got.Linked)
	require.Nil(t, loadIndex(q, 8))
}

// A file system that keeps whole seconds gives what changes within one the ctime
// that it had; a directory is believed only when that second is over.
func TestForgetWholeSeconds(t *testing.T) {
	start := time.Unix(1_800_000_000, 700_000_000)
	for _, c := range []struct {
		ctime    time.Time
		believed bool
	}{
		{start.Truncate(time.Second), false},
		{start.Truncate(time.Second).Add(-time.Second), false}, // FAT keeps every other
		{start.Truncate(time.Second).Add(-2 * time.Second), true},
		{start.Add(-2 * racy), true}, // the control: one that keeps more
		{start.Add(-racy / 2), false},
	} {
		d := &dir{Ctime: c.ctime.UnixNano(), Kids: []*dir{{Ctime: c.ctime.UnixNano()}}}
		forget(d, start, 0)
		require.Equal(t, c.believed, d.Ctime != 0, c.ctime)
		require.Equal(t, c.believed, d.Kids[0].Ctime != 0, c.ctime)
	}
	var st unix.Stat_t
	st.Ctim = unix.NsecToTimespec(start.Truncate(time.Second).UnixNano())
	require.True(t, (&Guard{standing: &Standing{Start: start}}).touched(&st))
	st.Ctim.Nsec++
	require.False(t, (&Guard{standing: &Standing{Start: start}}).touched(&st), "the control")
}
