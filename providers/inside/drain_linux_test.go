package inside

import (
	"bytes"
	"io"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// What a command has printed is read also by who is so late that the deadline has passed.
func TestReadNow(t *testing.T) {
	r, w, err := os.Pipe()
	require.NoError(t, err)
	defer r.Close()
	defer w.Close()
	_, err = w.WriteString("printed")
	require.NoError(t, err)
	require.NoError(t, r.SetReadDeadline(time.Unix(1, 0)))
	b := make([]byte, 100)
	_, err = r.Read(b)
	require.ErrorIs(t, err, os.ErrDeadlineExceeded, "control: Read does not look")
	n, err := readNow(r, b)
	require.NoError(t, err)
	require.Equal(t, "printed", string(b[:n]))
	_, err = readNow(r, b)
	require.ErrorIs(t, err, unix.EAGAIN, "there is no more")
	require.NoError(t, w.Close())
	_, err = readNow(r, b)
	require.ErrorIs(t, err, io.EOF)
}

// A command that left something running, which holds the pipe, has all it printed copied.
func TestDrain(t *testing.T) {
	for range 3 {
		r, w, err := os.Pipe()
		require.NoError(t, err)
		_, err = w.WriteString("printed")
		require.NoError(t, err)
		var d Drain
		var out bytes.Buffer
		d.Go(&out, r)
		d.Wait()
		require.Equal(t, "printed", out.String())
		require.NoError(t, w.Close())
	}
}
