package inside

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pccrun/pccrun/internal/await"
)

// TestOneSpool has many lines begin at once: one spool waits for all of them, and none is refused.
func TestOneSpool(t *testing.T) {
	dir := t.TempDir()
	var lines []*exec.Cmd
	var said [12]bytes.Buffer
	for i := range said {
		c := exec.Command(os.Args[0], Verb, Attach, dir)
		in, err := c.StdinPipe() // stays open: the line ends when another takes its place
		require.NoError(t, err)
		defer in.Close()
		c.Stderr = &said[i]
		require.NoError(t, c.Start())
		_, err = in.Write([]byte("H 0\n"))
		require.NoError(t, err)
		lines = append(lines, c)
	}
	ended := make(chan error)
	for i, c := range lines {
		go func() {
			err := c.Wait()
			if err == nil && said[i].Len() > 0 {
				t.Errorf("line %d: %s", i, &said[i])
			}
			ended <- err
		}()
	}
	for range len(lines) - 1 { // all but the last
		require.NoError(t, await.Receive(t, "no line goes on beside another", ended))
	}
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, entries, 1)
	require.Equal(t, lineName, entries[0].Name())
	require.NoError(t, os.Remove(filepath.Join(dir, lineName)), "without it the spool ends")
	require.NoError(t, <-ended)
}
