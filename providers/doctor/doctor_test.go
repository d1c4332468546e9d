package doctor

import (
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestKeys(t *testing.T) {
	names := Keys([]string{"ANTHROPIC_API_KEY=sk-1", "E2B_API_KEY=", "PATH=/bin", "MY_API_TOKEN=x", "GITHUB_TOKEN=y", "API_KEY_HINT=z", "broken"})
	require.Equal(t, []string{"ANTHROPIC_API_KEY", "MY_API_TOKEN", "GITHUB_TOKEN"}, names)
}

// What is shown is what sh(1) does, whatever is in it.
func TestScript(t *testing.T) {
	dir := t.TempDir()
	odd := dir + "/a b'c$(false)"
	f := Fix{Steps: []Step{
		{Run: []string{"mkdir", "-p", odd}},
		{File: odd + "/one", Content: "it's $HOME\n"},
		{File: odd + "/more", Content: "first $(false)\n  second\n"},
		{Run: []string{"cp", odd + "/one", odd + "/copy"}},
	}}
	out, err := exec.Command("sh", "-ec", f.Script()).CombinedOutput()
	require.NoError(t, err, "%s", out)
	text, err := exec.Command("cat", odd+"/copy", odd+"/more").Output()
	require.NoError(t, err)
	require.Equal(t, "it's $HOME\nfirst $(false)\n  second\n", string(text))
}

func TestReportOK(t *testing.T) {
	require.False(t, (&Report{}).OK())
	require.False(t, (&Report{Providers: []Provider{{}}}).OK())
	require.True(t, (&Report{Providers: []Provider{{}, {Runs: true}}}).OK())
}
