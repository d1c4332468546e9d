package vcs

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// What git takes for renamed is what it says itself of pairs around the bound.
func TestRenamedAsGit(t *testing.T) {
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("needs git")
	}
	dir := t.TempDir()
	git := func(args ...string) string {
		cmd := exec.Command("git", append([]string{"-c", "user.name=x", "-c", "user.email=x", "-C", dir}, args...)...)
		cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null")
		out, err := cmd.Output()
		require.NoError(t, err, "%v", args)
		return string(out)
	}
	git("init", "-q")
	random := rand.New(rand.NewPCG(1, 2))
	var had, now [][]byte
	for i := range 150 {
		lines := make([]string, 20+random.IntN(20))
		for n := range lines {
			lines[n] = strings.Repeat(fmt.Sprintf("%d of %d ", n, i), 1+random.IntN(12)) + [...]string{"\n", "\r\n", "", "\x00\n"}[random.IntN(3+i%2)]
		}
		had = append(had, []byte(strings.Join(lines, "")))
		for n := range lines {
			if random.IntN(100) < 30+i%30 {
				lines[n] = fmt.Sprintf("other %d %d\n", n, random.Int())
			}
		}
		now = append(now, []byte(strings.Join(lines, "")))
		if i%5 == 0 {
			now[i] = append(now[i], had[i][:len(had[i])/2]...)
		}
	}
	sides := [2]int{}
	for i := range had {
		write := func(name, gone string, b []byte) {
			_ = os.Remove(dir + "/" + gone)
			require.NoError(t, os.WriteFile(dir+"/"+name, b, 0o600))
			git("add", "-A")
		}
		write("a", "b", had[i])
		tree := strings.TrimSpace(git("write-tree"))
		write("b", "a", now[i])
		is := strings.Contains(git("diff", "--cached", "--raw", "-M50%", tree), "\tb\n") && strings.Contains(git("diff", "--cached", "--name-status", "-M50%", tree), "R")
		got := Renamed(had[i], now[i])
		require.False(t, is && !got, "pair %d", i)
		if is != got { // both ways to see the ends of lines count
			require.Contains(t, string(had[i]), "\r", "pair %d", i)
		}
		if is {
			sides[1]++
		} else {
			sides[0]++
		}
	}
	require.Greater(t, min(sides[0], sides[1]), 20, "control: there are both")
}
