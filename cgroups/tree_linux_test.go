package cgroups

import (
	"bufio"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/internal/await"
	"github.com/pccrun/pccrun/internal/procfs"
)

func TestKillTree(t *testing.T) {
	cmd := exec.Command("sh", "-c", "sh -c 'sleep 60 & echo $!; wait' & wait")
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	deep, err := strconv.Atoi(strings.TrimSpace(line))
	require.NoError(t, err)
	require.NoError(t, unix.Kill(deep, 0))
	KillTree(cmd.Process.Pid)
	_ = cmd.Wait()
	await.Until(t, "all below is dead", func() bool { // somebody else collects it
		stat, err := procfs.Short("/proc/" + strconv.Itoa(deep) + "/stat")
		return err != nil || strings.Contains(string(stat), ") Z ")
	})
}
