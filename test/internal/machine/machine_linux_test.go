package machine_test

import (
	"net"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pccrun/pccrun/test/internal/machine"
)

//test:root
func TestMachine(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	root, home := t.TempDir(), t.TempDir()
	m, err := machine.Start(machine.Options{Root: root, Home: home, Hosts: map[string]string{"there.example": "93.184.216.34"}})
	require.NoError(t, err)
	defer m.Stop()
	out, err := m.Command(0, 0, machine.Home, "/bin/sh", "-c", "id -u; pwd; hostname; touch made; getent hosts there.example; touch /usr/x 2>/dev/null || echo closed; ps ax | wc -l").CombinedOutput()
	require.NoError(t, err, string(out))
	require.Regexp(t, "^0\n/home/user\nmachine\n93.184.216.34 +there.example\nclosed\n[2-9]\n$", string(out))
	require.FileExists(t, home+"/made")
	out, err = m.Command(1234, 1234, "/", "id", "-u").CombinedOutput()
	require.NoError(t, err)
	require.Equal(t, "1234\n", string(out))
	l, err := m.ListenAround("0.0.0.0:4321")
	require.NoError(t, err)
	defer l.Close()
	_, err = net.Dial("tcp", "127.0.0.1:4321")
	require.Error(t, err)
	require.NoError(t, m.Command(0, 0, "/", "/bin/bash", "-c", "exec 3<>/dev/tcp/93.184.216.34/4321").Run())
}
