package run

import (
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pccrun/pccrun/events"
)

// TestDescends: who asks for a name is looked for below the sandbox's first process alone.
func TestDescends(t *testing.T) {
	child := exec.Command("sleep", "60")
	require.NoError(t, child.Start())
	defer func() {
		_ = child.Process.Kill()
		_ = child.Wait()
	}()
	us, it := os.Getpid(), child.Process.Pid
	require.True(t, descends(it, us))
	require.True(t, descends(us, us))
	require.False(t, descends(us, it))
	require.False(t, descends(1<<30, us))
	require.Empty(t, (&flow{onMachine: onMachine{sshRules: func() func(string) string {
		return func(string) string { return "" }
	}}}).sshRule("example.com"), "no run, nobody asks")
}

// TestUnreached: of an allowed host that was reached at last nothing is said.
func TestUnreached(t *testing.T) {
	var u unreached
	u.closed(events.NetClosed{Host: "a.example", Port: 443, Error: "refused"})
	u.closed(events.NetClosed{Host: "a.example", Port: 443, Error: "timed out"})
	u.closed(events.NetClosed{Host: "b.example", Error: "refused"})
	u.closed(events.NetClosed{Host: "b.example"})
	u.closed(events.NetClosed{Host: "c.example"})
	require.Equal(t, []string{"a.example:443", "b.example"}, u.order)
	require.Equal(t, failedTries{2, "timed out"}, *u.tries["a.example:443"])
	require.Zero(t, u.tries["b.example"].n)
	u.say()
}
