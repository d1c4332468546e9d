package tempuser

import (
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

//test:root
func TestUserIsGoneWithAllThatHeLeft(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	u, err := New()
	require.NoError(t, err)
	require.DirExists(t, u.Home)
	cmd := exec.Command("sleep", "86396")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: u.Credential()}
	require.NoError(t, cmd.Start())
	require.Contains(t, u.processes(), cmd.Process.Pid)
	require.Equal(t, []string{fmt.Sprintf("sleep 86396 (%d)", cmd.Process.Pid)}, u.End(0))
	require.Error(t, cmd.Wait())
	require.Empty(t, u.End(time.Minute))
	require.NoError(t, u.Remove())
	require.NoDirExists(t, u.Home)
	_, err = user.Lookup(u.Name)
	require.Error(t, err)
}

func TestEnvironIsTheUsersOwn(t *testing.T) {
	u := &User{Name: "n", Home: "/h"}
	require.Equal(t, []string{"PATH=/bin", "HOME=/h", "USER=n", "LOGNAME=n"},
		u.Environ([]string{"HOME=/root", "PATH=/bin", "XDG_STATE_HOME=/x", "GOCACHE=/y", "USER=root"}))
}
