package remote

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// in does a word, and reads its answer.
func in(t *testing.T, answer any, args ...string) (status int, said string) {
	t.Helper()
	var out, say bytes.Buffer
	status = InPlace(args, &out, &say)
	if answer != nil && status == 0 {
		require.NoError(t, json.Unmarshal(out.Bytes(), answer))
	}
	return status, say.String()
}

// What is packed is what is extracted: names of any bytes, modes, times and links, in place of what stood there.
func TestPackAndExtract(t *testing.T) {
	from, to, tmp := t.TempDir(), t.TempDir(), t.TempDir()
	at := time.Unix(1_600_000_000, 0)
	require.NoError(t, os.MkdirAll(filepath.Join(from, "d/e"), 0o755))
	for name, mode := range map[string]os.FileMode{"d/run": 0o755, "d/\xff\n": 0o600, "empty": 0o444} {
		require.NoError(t, os.WriteFile(filepath.Join(from, name), bytes.Repeat([]byte(name[:1]), 5*len(name)), 0o600))
		require.NoError(t, os.Chmod(filepath.Join(from, name), mode))
		require.NoError(t, os.Chtimes(filepath.Join(from, name), at, at))
	}
	require.NoError(t, os.Symlink("../empty", filepath.Join(from, "d/link")))
	require.NoError(t, os.Chmod(filepath.Join(from, "d/e"), 0o500))
	require.NoError(t, os.MkdirAll(filepath.Join(from, ".git/logs"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(from, ".git/logs/HEAD"), []byte("12345"), 0o644))

	names := []string{"d", "d/e", "d/link", "d/run", "d/\xff\n", "empty"}
	listed, archive, text := filepath.Join(tmp, "names"), filepath.Join(tmp, "archive"), namesOf(names)
	require.NoError(t, os.WriteFile(listed, text, 0o644))
	status, _ := in(t, nil, packWord, from, listed, sumOf([]byte("half")), archive)
	require.Equal(t, statusGarbled, status)
	var p packed
	status, said := in(t, &p, packWord, from, listed, sumOf(text), archive)
	require.Zero(t, status, said)
	whole, err := os.ReadFile(archive)
	require.NoError(t, err)
	require.Equal(t, packed{sumOf(whole), int64(len(whole))}, p)

	require.NoError(t, os.WriteFile(filepath.Join(to, "empty"), []byte("old"), 0o644))
	status, _ = in(t, nil, extractWord, archive, sumOf(nil), to)
	require.Equal(t, statusGarbled, status)
	status, said = in(t, nil, extractWord, archive, p.Sum, to)
	require.Zero(t, status, said)
	require.NoFileExists(t, archive)
	status, _ = in(t, nil, extractWord, archive, p.Sum, to)
	require.Equal(t, statusGarbled, status, "an answer that was lost: it is sent again")

	look := func(dir string) map[string]entry {
		l := &listing{}
		status, said := in(t, l, listWord, dir, "sums")
		require.Zero(t, status, said)
		require.NoError(t, l.index())
		require.NotContains(t, l.of, ".git/logs")
		for name, e := range l.of {
			e.Inode, e.Changed, e.Size = 0, 0, 0
			if e.Kind == 'l' {
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
	_, _ = in(t, &l, listWord, from)
	require.Equal(t, int64(5), l.Reflog)

	text = namesOf([]string{"d/\xff\n", "empty"})
	require.NoError(t, os.WriteFile(listed, text, 0o644))
	status, said = in(t, nil, removeWord, to, listed, sumOf(text))
	require.Zero(t, status, said)
	require.NoFileExists(t, filepath.Join(to, "empty"))
	require.FileExists(t, filepath.Join(to, "d/run"))
	require.NoFileExists(t, listed)
	status, _ = in(t, nil, removeWord, to, listed, sumOf(text))
	require.Equal(t, statusGarbled, status, "likewise")

	require.NoError(t, os.WriteFile(listed, namesOf(names), 0o644))
	status, said = in(t, nil, packWord, to, listed, sumOf(namesOf(names)), archive)
	require.Equal(t, statusRefused, status)
	require.Contains(t, said, "no such file")
	status, said = in(t, nil, packWord, to, listed, sumOf(namesOf(names)), archive, "busy")
	require.Zero(t, status, said)
}

// The program leaves the directory that it was uploaded to, once, if it came whole.
func TestPrepare(t *testing.T) {
	home, staging := t.TempDir(), filepath.Join(t.TempDir(), "staging")
	t.Setenv("HOME", home)
	program := filepath.Join(staging, "pccrun")
	require.NoError(t, os.Mkdir(staging, 0o755))
	require.NoError(t, os.WriteFile(program, []byte("text"), 0o644))
	status, _ := in(t, nil, prepareWord, program, sumOf([]byte("other")), "proj", ".own")
	require.Equal(t, statusGarbled, status)
	var p prepared
	for range 2 { // an answer that was lost
		status, said := in(t, &p, prepareWord, program, sumOf([]byte("text")), "proj", ".own")
		require.Zero(t, status, said)
	}
	require.Equal(t, home, string(p.Home))
	require.NoDirExists(t, staging)
	info, err := os.Stat(filepath.Join(home, ".own/pccrun"))
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o755), info.Mode().Perm())
	require.DirExists(t, filepath.Join(home, "proj"))

	require.NoError(t, os.WriteFile(filepath.Join(home, "proj/x"), nil, 0o644))
	status, said := in(t, nil, prepareWord, program, sumOf([]byte("text")), "proj", ".own")
	require.Equal(t, statusRefused, status)
	require.Contains(t, said, "is not empty")
	status, said = in(t, nil, prepareWord, "", "", "proj", ".own", "stands")
	require.Zero(t, status, said)
	other := t.TempDir()
	status, _ = in(t, &p, prepareWord, "", "", "proj", ".own", "", other)
	require.Zero(t, status)
	require.Equal(t, other, string(p.Home))
	status, _ = in(t, nil, "unknown")
	require.Equal(t, statusRefused, status)
}
