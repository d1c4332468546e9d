package inside

import (
	"bytes"
	"io"
	"testing"

	"github.com/stretchr/testify/require"
)

// A pieces is a connection that keeps what is written to it, piece by piece.
type pieces struct {
	io.ReadCloser
	written [][]byte
}

func (p *pieces) Write(b []byte) (int, error) {
	p.written = append(p.written, bytes.Clone(b))
	return len(b), nil
}

// A header goes with the content that it announces, and at once where it announces none.
func TestWhole(t *testing.T) {
	to := &pieces{}
	w := Whole(to)
	data, empty, window := []byte{0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 12}, []byte{0, 0, 0, 4, 0, 0, 0, 1, 0, 0, 0, 0}, []byte{0, 1, 0, 0, 0, 0, 0, 1, 0, 16, 0, 0}
	content := []byte("twelve bytes")
	for _, b := range [][]byte{data, content, empty, window, data, content} {
		n, err := w.Write(b)
		require.NoError(t, err)
		require.Equal(t, len(b), n)
	}
	both := append(bytes.Clone(data), content...)
	require.Equal(t, [][]byte{both, empty, window, both}, to.written)
}
