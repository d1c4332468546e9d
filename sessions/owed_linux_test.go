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
)

// settled returns what a settling found owed, as "id text".
func settled(t *testing.T, h Home, fail error) []string {
	var list []string
	err := h.Settle(func(id, text string) error {
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
	_, err = h.Owe(id, nil)
	require.Error(t, err)
	require.NoError(t, d.Paid())
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
	_ = h.Settle(func(string, string) error { t.Fatal("it is no debt"); return nil })
	require.FileExists(t, h.owed()+"/"+id+".2")
	old := time.Now().Add(-time.Minute)
	require.NoError(t, os.Chtimes(h.owed()+"/"+id+".2", old, old))
	_ = h.Settle(func(string, string) error { t.Fatal("it is no debt"); return nil })
	require.NoFileExists(t, h.owed()+"/"+id+".2")
	require.NoError(t, os.Chmod(h.owed(), 0o777))
	require.Error(t, h.Settle(nil), "others could write there")
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
	require.NoError(t, AwaitEnd(c.Process.Pid, began.Add(-time.Hour), time.Minute), "another process has the number")
	go func() {
		time.Sleep(20 * time.Millisecond)
		_ = c.Process.Kill()
	}()
	require.NoError(t, AwaitEnd(c.Process.Pid, began, 10*time.Second))
	_ = c.Wait()
	require.NoError(t, AwaitEnd(c.Process.Pid, began, time.Minute))
	require.True(t, strings.Contains(NewID(began), "Z-"))
}
