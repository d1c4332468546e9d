package procfs

import (
	"net"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestListens(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	port := uint16(l.Addr().(*net.TCPAddr).Port)
	require.True(t, Listens(os.Getpid(), port))
	require.NoError(t, l.Close())
	require.False(t, Listens(os.Getpid(), port))
}

func TestClient(t *testing.T) {
	c, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	require.NoError(t, err)
	port := uint16(c.LocalAddr().(*net.UDPAddr).Port)
	require.Equal(t, os.Args, Client(os.Getpid(), "udp", port))
	require.NoError(t, c.Close())
	require.Nil(t, Client(os.Getpid(), "udp", port))
}
