package procfs

import (
	"net"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestListens(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	port := uint16(l.Addr().(*net.TCPAddr).Port)
	require.True(t, Listens(port))
	require.NoError(t, l.Close())
	require.False(t, Listens(port))
}
