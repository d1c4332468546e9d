package sessions

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pccrun/pccrun/internal/await"
	"github.com/pccrun/pccrun/internal/state"
)

// recovered returns the records that were recovered, as "id text".
func recovered(t *testing.T, h Home, fail error) []string {
	var list []string
	_, err := h.Recover("", func(id, text string) error {
		list = append(list, id+" "+text)
		return fail
	})
	require.Equal(t, fail != nil && len(list) > 0, err != nil)
	return list
}

func TestUnfinished(t *testing.T) {
	h := In(t.TempDir() + "/state")
	require.Empty(t, recovered(t, h, nil), "nothing was ever written")
	id := NewID(time.Now())
	d, err := h.WriteUnfinished(id, []byte("a\n"))
	require.NoError(t, err)
	require.NoError(t, d.Add("b\n"))
	require.Empty(t, recovered(t, h, nil), "its launcher lives")
	require.NoError(t, d.Done())
	require.Empty(t, recovered(t, h, nil))

	d, err = h.WriteUnfinished(id, []byte("a\n"))
	require.NoError(t, err)
	require.NoError(t, d.file.Close()) // as if it had died
	require.Equal(t, []string{id + " a\n"}, recovered(t, h, errors.New("no")))
	require.Equal(t, []string{id + " a\n"}, recovered(t, h, nil), "what failed is tried again")
	require.Empty(t, recovered(t, h, nil))

	// What is none, or was just made, stays; what a launcher that was root could not remove goes.
	require.NoError(t, os.WriteFile(h.unfinished()+"/x", []byte("x"), 0o600))
	require.NoError(t, os.Symlink("/etc/passwd", filepath.Join(h.unfinished(), id+".1")))
	require.NoError(t, os.WriteFile(h.unfinished()+"/"+id+".2", nil, 0o600))
	_, _ = h.Recover("", func(string, string) error { t.Fatal("it is no unfinished"); return nil })
	require.FileExists(t, h.unfinished()+"/"+id+".2")
	old := time.Now().Add(-time.Minute)
	require.NoError(t, os.Chtimes(h.unfinished()+"/"+id+".2", old, old))
	_, _ = h.Recover("", func(string, string) error { t.Fatal("it is no unfinished"); return nil })
	require.NoFileExists(t, h.unfinished()+"/"+id+".2")
	require.NoError(t, os.Chmod(h.unfinished(), 0o777))
	_, err = h.Recover("", nil)
	require.Error(t, err, "others could write there")
}

// A workspace is marked while sessions hold something for its next run; what such a session keeps is young while in use.
func TestHold(t *testing.T) {
	h := In(t.TempDir())
	held := func(workspace string) bool {
		is, err := h.Recover(workspace, nil)
		require.NoError(t, err)
		return is
	}
	require.False(t, held("/a"))
	require.NoError(t, h.Hold("/a", true))
	require.True(t, held("/a"))
	require.False(t, held("/b"))
	require.NoError(t, h.Hold("/a", false))
	require.NoError(t, h.Hold("/a", false))
	require.False(t, held("/a"))

	s := h.Begin(Info{Workspace: "/a"})
	s.Keep("changes")
	require.NoError(t, s.End(0))
	long := time.Now().Add(-2 * keepAge)
	require.NoError(t, h.change(s.ID(), func(i *Info) { i.Ended = long }))
	require.NoError(t, h.Renew(s.ID()))
	e, err := h.Find(s.ID())
	require.NoError(t, err)
	require.True(t, e.Ended.After(long.Add(keepAge)))

	for _, workspace := range []string{"/a", "/gone"} {
		require.NoError(t, h.Hold(workspace, true))
	}
	_, err = h.GC(GCOptions{})
	require.NoError(t, err)
	require.True(t, held("/a"))
	require.False(t, held("/gone"), "no session is of that workspace")
}

// What others owe is told while they live, and not afterwards.
func TestUnfinishedOfOthers(t *testing.T) {
	h := In(t.TempDir() + "/state")
	others := func() (list []string) {
		require.NoError(t, h.EachUnfinished(func(id, text string) error { list = append(list, id+" "+text); return nil }))
		return list
	}
	require.Empty(t, others())
	require.True(t, h.Earliest().IsZero())
	id := NewID(time.Now())
	d, err := h.WriteUnfinished(id, []byte("a\n"))
	require.NoError(t, err)
	require.Empty(t, others(), "it is our own")
	// As if another process had written it.
	require.NoError(t, os.Rename(d.file.Name(), h.unfinished()+"/"+id+".1"))
	require.Equal(t, []string{id + " a\n"}, others())
	require.Equal(t, startOfID(id), h.Earliest())
	require.NoError(t, d.file.Close())
	require.Empty(t, others(), "nobody holds it")
	require.Equal(t, []string{id + " a\n"}, recovered(t, h, nil))
	_, err = h.WriteUnfinished(NewID(time.Now()), make([]byte, maxRecord+1))
	require.ErrorContains(t, err, "the limit of an unfinished-run record")
}

// What a version before this one left in files that it used again is recovered, or removed where it says nothing.
func TestSlots(t *testing.T) {
	h := In(t.TempDir() + "/state")
	require.NoError(t, os.MkdirAll(h.unfinished(), 0o700))
	long := time.Now().Add(-time.Minute)
	for name, text := range map[string]string{"slot.0": "", "slot.1": "a"} {
		require.NoError(t, os.WriteFile(h.unfinished()+"/"+name, []byte(text), 0o600))
		require.NoError(t, os.Chtimes(h.unfinished()+"/"+name, long, long))
	}
	require.Equal(t, []string{"slot a"}, recovered(t, h, errors.New("no")))
	require.NoFileExists(t, h.unfinished()+"/slot.0")

	// What only that version can read stays, and is reported once; what it writes under the name later is another record.
	for _, first := range []bool{true, false} {
		_, err := h.Recover("", func(string, string) error { return ErrOtherVersion })
		require.Equal(t, first, err != nil)
	}
	require.NoError(t, os.WriteFile(h.unfinished()+"/slot.1", []byte("b"), 0o600))
	require.Equal(t, []string{"slot b"}, recovered(t, h, ErrOtherVersion))
	require.NoError(t, os.Mkdir(h.dir, 0o700))
	_, err := h.GC(GCOptions{Now: time.Now().Add(2 * keepAge)})
	require.NoError(t, err)
	require.Equal(t, []string{"slot b"}, recovered(t, h, ErrOtherVersion), "the mark is gone, and the record is not")
	require.True(t, h.Earliest().IsZero())
}

// Nothing is opened or made in a directory that is not the user's alone.
func TestUnfinishedJudgesFirst(t *testing.T) {
	h := In(t.TempDir() + "/state")
	id := NewID(time.Now())
	elsewhere := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Dir(h.unfinished()), 0o700))
	for name, prepare := range map[string]func() error{
		"a link":        func() error { return os.Symlink(elsewhere, h.unfinished()) },
		"for all":       func() error { return errors.Join(os.Mkdir(h.unfinished(), 0o700), os.Chmod(h.unfinished(), 0o777)) },
		"for its group": func() error { return errors.Join(os.Mkdir(h.unfinished(), 0o700), os.Chmod(h.unfinished(), 0o770)) },
		"a parent for all": func() error {
			return errors.Join(os.Mkdir(h.unfinished(), 0o700), os.Chmod(filepath.Dir(h.unfinished()), 0o777))
		},
		"": func() error { return os.Mkdir(h.unfinished(), 0o700) }, // the control
	} {
		require.NoError(t, prepare())
		d, err := h.WriteUnfinished(id, []byte("a\n"))
		made, _ := os.ReadDir(h.unfinished())
		if name == "" {
			require.NoError(t, err)
			require.NoError(t, d.Done())
			require.Len(t, made, 1)
			require.NoFileExists(t, filepath.Join(h.unfinished(), made[0].Name()))
		} else {
			require.ErrorIs(t, err, state.ErrUnsafe, name)
			require.Empty(t, made, name)
		}
		require.NoError(t, os.Chmod(filepath.Dir(h.unfinished()), 0o700))
		require.NoError(t, os.RemoveAll(h.unfinished()))
	}
	// Nothing is written through a link.
	require.NoError(t, os.Mkdir(h.unfinished(), 0o700))
	require.NoError(t, os.Symlink("x", filepath.Join(h.unfinished(), recordName(id))))
	_, err := h.WriteUnfinished(id, []byte("a\n"))
	require.ErrorIs(t, err, os.ErrExist)
}

func TestEndKilled(t *testing.T) {
	h := In(t.TempDir() + "/state")
	started := time.Now().Add(-time.Minute)
	id := NewID(started)
	dir, err := h.Inherit(id)
	require.NoError(t, err)
	dir.Close()
	require.NoError(t, h.EndKilled(id, "/w", started, "changes"))
	require.NoError(t, h.EndKilled(id, "/other", time.Now(), "changes"))
	e, err := h.Find(id)
	require.NoError(t, err)
	require.Equal(t, Ended, e.State)
	require.Equal(t, "/w", e.Workspace)
	require.Equal(t, []string{"changes"}, e.Kept)
	require.Equal(t, 137, e.Code)
	removed, err := h.GC(GCOptions{})
	require.NoError(t, err)
	require.Empty(t, removed)
	for _, bad := range []string{"", "..", "../x"} {
		_, err := h.Inherit(bad)
		require.ErrorIs(t, err, ErrNoSession)
		require.Error(t, h.EndKilled(bad, "/w", started, "x"))
	}
}

func TestAwaitEnd(t *testing.T) {
	c := exec.Command("sleep", "60")
	require.NoError(t, c.Start())
	began := time.Now()
	require.ErrorIs(t, AwaitEnd(c.Process.Pid, began, 20*time.Millisecond), ErrAlive)
	require.NoError(t, AwaitEnd(c.Process.Pid, began.Add(-time.Hour), await.Patience), "another process has the number")
	go func() {
		time.Sleep(20 * time.Millisecond)
		_ = c.Process.Kill()
	}()
	require.NoError(t, AwaitEnd(c.Process.Pid, began, await.Patience))
	_ = c.Wait()
	require.NoError(t, AwaitEnd(c.Process.Pid, began, await.Patience))
	require.True(t, strings.Contains(NewID(began), "Z-"))
}

// Whatever lies among the unfinished-run records, only what a launcher wrote whole is one.
func FuzzRecover(f *testing.F) {
	const id = "20260101T000000Z-00000000"
	f.Add([]byte(id + ".1\na\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		h := In(t.TempDir() + "/state")
		require.NoError(t, os.MkdirAll(h.unfinished(), 0o700))
		require.NoError(t, os.WriteFile(h.unfinished()+"/"+id+".1", data, 0o600))
		for _, unfinished := range recovered(t, h, nil) {
			name, text, _ := strings.Cut(unfinished, " ")
			require.True(t, validID(name), unfinished)
			require.Equal(t, id, name)
			require.Equal(t, string(data), text)
		}
		require.Empty(t, recovered(t, h, nil), "each is recovered once")
	})
}

func FuzzProcess(f *testing.F) {
	f.Add([]byte("read_bytes: 7\nwrite_bytes: x"))
	f.Fuzz(func(t *testing.T, data []byte) {
		parseIO(data)
	})
}
