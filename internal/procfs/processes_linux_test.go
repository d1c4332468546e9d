package procfs

import (
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pccrun/pccrun/internal/await"
)

func TestParseStat(t *testing.T) {
	for text, want := range map[string]Stat{
		"7 (sleep) S 1": {Name: "sleep", State: 'S'}, "7 (a) b) Z 1": {Name: "a) b", State: 'Z'}, "7 () R 1": {State: 'R'},
	} {
		s, ok := ParseStat(7, []byte(text))
		require.True(t, ok, text)
		require.Equal(t, []any{7, want.Name, want.State, want.State == 'Z'}, []any{s.Pid, s.Name, s.State, s.Dead()}, text)
	}
	for _, text := range []string{"", "7 (x)", "7 )x( S", "("} {
		_, ok := ParseStat(7, []byte(text))
		require.False(t, ok, text)
	}
	s, _ := ParseStat(7, []byte("7 (a) b) S 1 7 7 0 -1 4194560 x"))
	require.Equal(t, []int64{1, 7, -1, 0, 0, 0}, []int64{s.Field(4), s.Field(5), s.Field(8), s.Field(10), s.Field(99), s.Field(2)})
}

func FuzzParseStat(f *testing.F) {
	f.Add([]byte("7 (a) b) S 1 7 7 0 -1 4194560 1 0 0 0 5 6 0 0 20 0 3 0 99 4096 100 1"))
	f.Fuzz(func(t *testing.T, text []byte) {
		s, _ := ParseStat(7, text)
		s.Field(4)
		s.Field(24)
	})
}

// Both ways to find a process's descendants find the same.
func TestTree(t *testing.T) {
	cmd := exec.Command("sh", "-c", "sleep 100 & sh -c 'sleep 100 & wait' & wait")
	require.NoError(t, cmd.Start())
	pid := cmd.Process.Pid
	defer func() {
		for _, pid := range Tree(pid) {
			if p, err := os.FindProcess(pid); err == nil {
				_ = p.Kill()
			}
		}
		_ = cmd.Wait()
	}()
	await.Until(t, "the shell has two children, and one of them a child", func() bool { return len(Tree(pid)) == 4 && len(descendants(pid, parents())) == 4 })
	require.Equal(t, Tree(pid), descendants(pid, parents()))
	require.Equal(t, []int{1 << 30}, Tree(1<<30), "a process that lets nobody look")
	s, ok := ReadStat(pid)
	require.True(t, ok && s.Name == "sh" && s.Field(4) == int64(os.Getpid()), "%+v", s)
	_, ok = ReadStat(1 << 30)
	require.False(t, ok)
}

func TestDescendants(t *testing.T) {
	require.Equal(t, []int{5, 6, 7, 8}, descendants(5, map[int]int{5: 1, 6: 5, 7: 6, 8: 5, 9: 1, 10: 99}))
	require.Equal(t, []int{5}, descendants(5, nil))
	require.Equal(t, []int{5, 6}, descendants(5, map[int]int{5: 6, 6: 5}), "read while numbers changed hands")
}
