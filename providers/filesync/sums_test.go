package filesync

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSums(t *testing.T) {
	t.Chdir(t.TempDir())
	require.NoError(t, os.WriteFile("a b\n\\", []byte("text"), 0o600))
	require.NoError(t, os.WriteFile("empty", nil, 0o600))
	var out bytes.Buffer
	require.NoError(t, Sums(&out, strings.NewReader("./a b\n\\\x00./empty\x00")))
	require.Equal(t, fmt.Sprintf("%x  ./a b\n\\\x00%x  ./empty\x00", sha256.Sum256([]byte("text")), sha256.Sum256(nil)), out.String())
	require.NoError(t, Sums(&out, strings.NewReader("")))
	require.ErrorIs(t, Sums(&out, strings.NewReader("empty")), io.ErrUnexpectedEOF)
	require.ErrorIs(t, Sums(&out, strings.NewReader("absent\x00")), fs.ErrNotExist)
}
