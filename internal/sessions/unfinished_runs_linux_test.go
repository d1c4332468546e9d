package sessions

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pccrun/pccrun/internal/await"
	"github.com/pccrun/pccrun/internal/state"
)

// settled returns what a settling found owed, as "id text".
func settled(t *testing.T, h Home, fail error) []string {
	var list []string
	_, err := h.Settle("", func(id, text string) error {
		list = append(list, id+" "+text)
		return fail
	})
	require.Equal(t, fail != nil && len(list) > 0, err != nil)
	return list
}

func TestOwed(t *testing.T) {
	h := In(t.TempDir() + "/state")
	require.Empty(t, settled(t, h, nil), "nothing was ever owed")
	id := NewID(time.Now())
	d, err := h.Owe(id, []byte("a\n"))
	require.NoError(t, err)
	require.NoError(t, d.Add("b\n"))
	require.Empty(t, settled(t, h, nil), "its launcher lives")
	require.NoError(t, d.Done())
	require.Empty(t, settled(t, h, nil))

	d, err = h.Owe(id, []byte("a\n"))
	require.NoError(t, err)
	require.NoError(t, d.file.Close()) // as if it had died
	require.Equal(t, []string{id + " a\n"}, settled(t, h, errors.New("no")))
	require.Equal(t, []string{id + " a\n"}, settled(t, h, nil), "what failed is tried again")
	require.Empty(t, settled(t, h, nil))

	// What is none, or was just made, is left alone; what a launcher that was
	// root has emptied goes.
	require.NoError(t, os.WriteFile(h.owed()+"/x", []byte("x"), 0o600))
	require.NoError(t, os.Symlink("/etc/passwd", filepath.Join(h.owed(), id+".1")))
	require.NoError(t, os.WriteFile(h.owed()+"/"+id+".2", nil, 0o600))
	_, _ = h.Settle("", func(string, string) error { t.Fatal("it is no unfinished"); return nil })
	require.FileExists(t, h.owed()+"/"+id+".2")
	old := time.Now().Add(-time.Minute)
	require.NoError(t, os.Chtimes(h.owed()+"/"+id+".2", old, old))
	_, _ = h.Settle("", func(string, string) error { t.Fatal("it is no unfinished"); return nil })
	require.NoFileExists(t, h.owed()+"/"+id+".2")
	require.NoError(t, os.Chmod(h.owed(), 0o777))
	_, err = h.Settle("", nil)
	require.Error(t, err, "others could write there")
}

// A workspace is marked while sessions hold something for its next run; what such a session keeps is young while in use.
func TestHold(t *testing.T) {
	h := In(t.TempDir())
	held := func(workspace string) bool {
		is, err := h.Settle(workspace, nil)
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
func TestOwedByOthers(t *testing.T) {
	h := In(t.TempDir() + "/state")
	owed := func() (list []string) {
		require.NoError(t, h.EachUnfinished(func(id, text string) error { list = append(list, id+" "+text); return nil }))
		return list
	}
	require.Empty(t, owed())
	require.True(t, h.Earliest().IsZero())
	id := NewID(time.Now())
	for _, own := range []bool{false, true} { // a file that is kept, and one of its own
		d, err := h.Owe(id, []byte("a\n"))
		if own {
			require.NoError(t, d.Done())
			d, err = ownIn(t, h, id)
		}
		require.NoError(t, err)
		require.Empty(t, owed(), "it is our own")
		// As if another process had written it.
		if own {
			other := h.owed() + "/" + id + ".1"
			require.NoError(t, os.Rename(d.path, other))
			d.path = other
			require.NoError(t, d.Add("a\n"))
		} else {
			require.NoError(t, d.file.Truncate(0))
			_, err = d.file.WriteAt([]byte(id+".1\na\n"), 0)
			require.NoError(t, err)
		}
		require.Equal(t, []string{id + " a\n"}, owed())
		require.Equal(t, startOfID(id), h.Earliest())
		require.NoError(t, d.file.Close())
		require.Empty(t, owed(), "nobody holds it")
		require.Equal(t, []string{id + " a\n"}, settled(t, h, nil))
	}
	_, err := h.Owe(NewID(time.Now()), make([]byte, maxDebt+1))
	require.ErrorContains(t, err, "the limit of an unfinished-run record")
}

// A few files are used again and again; where others hold those, a unfinished-run record has one
// of its own.
func TestSlots(t *testing.T) {
	h := In(t.TempDir() + "/state")
	id := NewID(time.Now())
	files := func() (kept, own int) {
		entries, _ := os.ReadDir(h.owed())
		for _, e := range entries {
			if strings.HasPrefix(e.Name(), slotName) {
				kept++
			} else {
				own++
			}
		}
		return kept, own
	}
	for range 3 * slots {
		d, err := h.Owe(id, []byte("a\n"))
		require.NoError(t, err)
		require.NoError(t, d.Done())
	}
	kept, own := files()
	require.Equal(t, []int{1, 0}, []int{kept, own}, "one process needs one")

	var held []*Unfinished
	for range slotTries {
		d, err := h.Owe(id, []byte("a\n"))
		require.NoError(t, err)
		held = append(held, d)
	}
	d, err := h.Owe(id, []byte("b\n"))
	require.NoError(t, err)
	kept, own = files()
	require.Equal(t, []int{slotTries, 1}, []int{kept, own})
	require.NoError(t, d.Done())
	require.Empty(t, settled(t, h, nil), "all launchers live")

	// What was not paid is in nobody's way, and is not written over.
	require.NoError(t, held[0].file.Close())
	d, err = h.Owe(id, []byte("b\n"))
	require.NoError(t, err)
	require.NotEmpty(t, d.path)
	require.NoError(t, d.Done())
	require.Equal(t, []string{id + " a\n"}, settled(t, h, errors.New("no")))
	require.Equal(t, []string{id + " a\n"}, settled(t, h, nil), "what failed is tried again")
	require.Empty(t, settled(t, h, nil))

	// A launcher that died as it began to write owes nothing yet.
	require.NoError(t, os.WriteFile(h.owed()+"/"+slotName+"0", []byte(id[:5]), 0o600))
	for _, d := range held[1:] {
		require.NoError(t, d.Done())
	}
	require.Empty(t, settled(t, h, nil))
	info, err := os.Stat(h.owed() + "/" + slotName + "0")
	require.NoError(t, err)
	require.Zero(t, info.Size())

	// Nothing is written through a link, nor into what is no file.
	require.NoError(t, os.RemoveAll(h.owed()))
	require.NoError(t, os.Mkdir(h.owed(), 0o700))
	for i := range slots {
		require.NoError(t, os.Symlink("/etc/passwd", h.owed()+"/"+slotName+strconv.Itoa(i)))
	}
	_, err = h.Owe(id, nil)
	require.Error(t, err)
}

// ownIn owes by a file for one unfinished-run record alone.
func ownIn(t *testing.T, h Home, id string) (*Unfinished, error) {
	root, err := os.OpenRoot(h.owed())
	require.NoError(t, err)
	defer root.Close()
	return own(root, id)
}

// Nothing is opened or made in a directory that is not the user's alone.
func TestOweJudgesFirst(t *testing.T) {
	h := In(t.TempDir() + "/state")
	id := NewID(time.Now())
	elsewhere := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Dir(h.owed()), 0o700))
	for name, prepare := range map[string]func() error{
		"a link":        func() error { return os.Symlink(elsewhere, h.owed()) },
		"for all":       func() error { return errors.Join(os.Mkdir(h.owed(), 0o700), os.Chmod(h.owed(), 0o777)) },
		"for its group": func() error { return errors.Join(os.Mkdir(h.owed(), 0o700), os.Chmod(h.owed(), 0o770)) },
		"a parent for all": func() error {
			return errors.Join(os.Mkdir(h.owed(), 0o700), os.Chmod(filepath.Dir(h.owed()), 0o777))
		},
		"": func() error { return os.Mkdir(h.owed(), 0o700) }, // the control
	} {
		require.NoError(t, prepare())
		d, err := h.Owe(id, []byte("a\n"))
		made, _ := os.ReadDir(h.owed())
		if name == "" {
			require.NoError(t, err)
			require.NoError(t, d.Done())
			require.Len(t, made, 1)
		} else {
			require.ErrorIs(t, err, state.ErrUnsafe, name)
			require.Empty(t, made, name)
		}
		require.NoError(t, os.Chmod(filepath.Dir(h.owed()), 0o700))
		require.NoError(t, os.RemoveAll(h.owed()))
	}
	// A link in it that leads to another of its names is no file of its own.
	require.NoError(t, os.Mkdir(h.owed(), 0o700))
	for i := range slots {
		require.NoError(t, os.Symlink("x", filepath.Join(h.owed(), slotName+strconv.Itoa(i))))
	}
	d, err := h.Owe(id, []byte("a\n"))
	require.NoError(t, err)
	require.NotEmpty(t, d.path)
	require.NoError(t, d.Done())
}

func TestBury(t *testing.T) {
	h := In(t.TempDir() + "/state")
	started := time.Now().Add(-time.Minute)
	id := NewID(started)
	dir, err := h.Inherit(id)
	require.NoError(t, err)
	dir.Close()
	require.NoError(t, h.Bury(id, "/w", started, "changes"))
	require.NoError(t, h.Bury(id, "/other", time.Now(), "changes"))
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
		require.Error(t, h.Bury(bad, "/w", started, "x"))
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
func FuzzSettle(f *testing.F) {
	const id = "20260101T000000Z-00000000"
	f.Add([]byte(id + ".1\na\n"))
	f.Add([]byte(id))
	f.Add([]byte("../x.1\na"))
	f.Fuzz(func(t *testing.T, data []byte) {
		h := In(t.TempDir() + "/state")
		require.NoError(t, os.MkdirAll(h.owed(), 0o700))
		require.NoError(t, os.WriteFile(h.owed()+"/"+slotName+"0", data, 0o600))
		require.NoError(t, os.WriteFile(h.owed()+"/"+id+".1", data, 0o600))
		for _, unfinished := range settled(t, h, nil) {
			name, text, _ := strings.Cut(unfinished, " ")
			require.True(t, validID(name), unfinished)
			require.True(t, name == id || strings.HasPrefix(string(data), name))
			require.True(t, strings.HasSuffix(string(data), text))
		}
		require.Empty(t, settled(t, h, nil), "each is settled once")
	})
}

func FuzzProcess(f *testing.F) {
	f.Add([]byte("read_bytes: 7\nwrite_bytes: x"))
	f.Fuzz(func(t *testing.T, data []byte) {
		parseIO(data)
	})
}
