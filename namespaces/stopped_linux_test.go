package namespaces

import (
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/internal/procfs"
)

func TestStoppedIn(t *testing.T) {
	require.Empty(t, StoppedIn(nil))
	proc, err := os.Open("/proc")
	require.NoError(t, err)
	defer proc.Close()
	cmd := exec.Command("sleep", "60")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	require.NoError(t, cmd.Start())
	defer cmd.Wait()
	defer cmd.Process.Kill()
	require.NotContains(t, StoppedIn(proc), Stopped{Pid: cmd.Process.Pid})
	require.NoError(t, cmd.Process.Signal(unix.SIGSTOP))
	require.Eventually(t, func() bool {
		for _, p := range StoppedIn(proc) {
			if p == (Stopped{Pid: cmd.Process.Pid}) {
				return true
			}
		}
		return false
	}, time.Minute, time.Millisecond)

	plain, err := os.Open(t.TempDir())
	require.NoError(t, err)
	defer plain.Close()
	require.NoError(t, os.WriteFile(filepath.Join(plain.Name(), "7"), nil, 0o600))
	require.Empty(t, StoppedIn(plain))

	for stat, want := range map[string][2]bool{
		"7 (a) b) T 1 7 7 34816 9 0":  {true, true},
		"7 (a) b) T 1 7 7 34816 7 0":  {true, false},
		"7 (a) b) T 1 7 7 0 -1 0":     {true, false},
		"7 (a) t 1 7 7 34816 9 0":     {}, // a debugger has stopped it
		"7 (T 1 7 7 34816 9) S 1 7 7": {},
		"":                            {},
	} {
		stopped, aside := parsed(stat)
		require.Equal(t, want, [2]bool{stopped, aside}, stat)
	}
}

func parsed(text string) (stopped, aside bool) {
	s, _ := procfs.ParseStat(7, []byte(text))
	return isStopped(&s)
}

// The name is the command's to choose.
func FuzzIsStopped(f *testing.F) {
	f.Add("a) T 1 7 7 34816 9 0")
	f.Fuzz(func(t *testing.T, name string) {
		stopped, aside := parsed("7 (" + name + ") T 1 7 7 34816 9 0")
		require.True(t, stopped && aside)
		stopped, _ = parsed("7 (" + name + ") S 1 7 7 34816 9 0")
		require.False(t, stopped)
	})
}
