package remote

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pccrun/pccrun/workspace"
)

// in does a word with what it reads, and reads its answer.
func in(t *testing.T, answer any, from input, args ...string) (status int, said string) {
	t.Helper()
	var out, say bytes.Buffer
	status = InPlace(append([]string{args[0], from.file, from.sum, strconv.Itoa(from.parts)}, args[1:]...), &out, &say)
	if answer != nil && status == 0 {
		require.NoError(t, json.Unmarshal(out.Bytes(), answer))
	}
	return status, say.String()
}

// What is packed is what is extracted: names, modes, times and links, in place of what stood there.
func TestPackAndExtract(t *testing.T) {
	from, to, tmp := t.TempDir(), t.TempDir(), t.TempDir()
	at := time.Unix(1_600_000_000, 0)
	require.NoError(t, os.MkdirAll(filepath.Join(from, "d/e"), 0o755))
	for name, mode := range map[string]os.FileMode{"d/run": 0o755, "d/ü '": 0o600, "empty": 0o444} {
		require.NoError(t, os.WriteFile(filepath.Join(from, name), bytes.Repeat([]byte(name[:1]), 5*len(name)), 0o600))
		require.NoError(t, os.Chmod(filepath.Join(from, name), mode))
		require.NoError(t, os.Chtimes(filepath.Join(from, name), at, at))
	}
	require.NoError(t, os.Symlink("../empty", filepath.Join(from, "d/link")))
	require.NoError(t, os.Chmod(filepath.Join(from, "d/e"), 0o500))
	require.NoError(t, os.MkdirAll(filepath.Join(from, ".git/logs"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(from, ".git/logs/HEAD"), []byte("12345"), 0o644))

	names := []string{"d", "d/e", "d/link", "d/run", "d/ü '", "empty"}
	sent := func(names ...string) input {
		text, file := namesOf(names), filepath.Join(tmp, "names")
		require.NoError(t, os.WriteFile(file, text, 0o644))
		return input{file, sumOf(text), 1}
	}
	archive := filepath.Join(tmp, "archive")
	half := sent(names...)
	half.sum = sumOf([]byte("half"))
	status, _ := in(t, nil, half, packWord, from, archive, "1000000")
	require.Equal(t, statusGarbled, status)
	var p, cut packed
	status, said := in(t, &p, sent(names...), packWord, from, archive, "1000000")
	require.Zero(t, status, said)
	whole, err := os.ReadFile(downName(archive, 0))
	require.NoError(t, err)
	require.Equal(t, packed{sumOf(whole), int64(len(whole)), 1}, p)

	status, said = in(t, &cut, sent(names...), packWord, from, archive, "100")
	require.Zero(t, status, said)
	require.Equal(t, packed{p.Sum, p.Size, int(p.Size+99) / 100}, cut)
	parts := input{filepath.Join(tmp, "came"), p.Sum, cut.Parts}
	arrive := func() {
		for i := range cut.Parts {
			text, err := os.ReadFile(downName(archive, i))
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(partName(parts.file, i, cut.Parts), text, 0o644))
		}
	}
	arrive()
	require.NoError(t, os.WriteFile(filepath.Join(to, "empty"), []byte("old"), 0o644))
	require.NoError(t, os.Symlink(tmp, filepath.Join(to, "d")))
	require.NoError(t, os.WriteFile(filepath.Join(to, "other"), nil, 0o644))
	garbled := parts
	garbled.sum = sumOf(nil)
	status, _ = in(t, nil, garbled, extractWord, to)
	require.Equal(t, statusGarbled, status)
	status, said = in(t, nil, parts, extractWord, to)
	require.Zero(t, status, said)
	left, err := filepath.Glob(parts.file + "*")
	require.NoError(t, err)
	require.Empty(t, left)
	require.FileExists(t, filepath.Join(to, "other"))
	require.NoError(t, os.Remove(filepath.Join(to, "other")))
	require.NoDirExists(t, filepath.Join(tmp, "e"), "a link is not followed")
	require.NoDirExists(t, filepath.Join(filepath.Dir(to), ".pccrun-"+filepath.Base(to)+"-fresh"))
	status, _ = in(t, nil, parts, extractWord, to)
	require.Equal(t, statusGarbled, status, "an answer that was lost: it is sent again")

	look := func(dir string) map[string]entry {
		l := &listing{}
		status, said := in(t, l, input{}, listWord, dir, "sums")
		require.Zero(t, status, said)
		require.NoError(t, l.index())
		require.NotContains(t, l.of, ".git/logs")
		for name, e := range l.of {
			e.Inode, e.Changed, e.Size = 0, 0, 0
			if e.Kind == workspace.Link {
				e.Modified = 0
			}
			l.of[name] = e
		}
		return l.of
	}
	want := look(from)
	require.Contains(t, want, ".git")
	delete(want, ".git")
	require.Equal(t, want, look(to))
	var l listing
	_, _ = in(t, &l, input{}, listWord, from)
	require.Equal(t, int64(5), l.Reflog)

	gone := sent("d/ü '", "empty")
	status, said = in(t, nil, gone, removeWord, to)
	require.Zero(t, status, said)
	require.NoFileExists(t, filepath.Join(to, "empty"))
	require.FileExists(t, filepath.Join(to, "d/run"))
	require.NoFileExists(t, gone.file)
	status, _ = in(t, nil, gone, removeWord, to)
	require.Equal(t, statusGarbled, status, "likewise")

	status, said = in(t, nil, sent(names...), packWord, to, archive, "1000000")
	require.Equal(t, statusRefused, status)
	require.Contains(t, said, "no such file")
	status, said = in(t, nil, sent(names...), packWord, to, archive, "1000000", "busy")
	require.Zero(t, status, said)
}

// The parts of a file are put together once, and the file stays where that is executed again.
func TestJoinParts(t *testing.T) {
	file := filepath.Join(t.TempDir(), "it's")
	for i := range 12 {
		require.NoError(t, os.WriteFile(partName(file, i, 12), []byte{'a' + byte(i)}, 0o644))
	}
	for range 2 {
		said, err := exec.Command("/bin/sh", "-c", joinParts, file).CombinedOutput()
		require.NoError(t, err, string(said))
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		require.Equal(t, "abcdefghijkl", string(text))
	}
	left, err := filepath.Glob(file + ".*")
	require.NoError(t, err)
	require.Empty(t, left)
}

// The program is copied from where it was uploaded to, if it came whole.
func TestPrepare(t *testing.T) {
	home, staging := t.TempDir(), filepath.Join(t.TempDir(), "staging")
	t.Setenv("HOME", home)
	program := filepath.Join(staging, "pccrun")
	require.NoError(t, os.Mkdir(staging, 0o755))
	require.NoError(t, os.WriteFile(program, []byte("text"), 0o644))
	came := input{program, sumOf([]byte("text")), 1}
	status, _ := in(t, nil, input{program, sumOf([]byte("other")), 1}, prepareWord, "proj", ".own")
	require.Equal(t, statusGarbled, status)
	var p prepared
	for range 2 { // an answer that was lost
		status, said := in(t, &p, came, prepareWord, "proj", ".own")
		require.Zero(t, status, said)
	}
	require.Equal(t, home, string(p.Home))
	info, err := os.Stat(filepath.Join(home, ".own/pccrun"))
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o755), info.Mode().Perm())
	require.DirExists(t, filepath.Join(home, "proj"))

	require.NoError(t, os.WriteFile(filepath.Join(home, "proj/x"), nil, 0o644))
	status, said := in(t, nil, came, prepareWord, "proj", ".own")
	require.Equal(t, statusRefused, status)
	require.Contains(t, said, "is not empty")
	other := t.TempDir()
	status, _ = in(t, &p, came, prepareWord, "proj", ".own", other)
	require.Zero(t, status)
	require.Equal(t, other, string(p.Home))
	status, _ = in(t, nil, input{}, "unknown")
	require.Equal(t, statusRefused, status)
}
