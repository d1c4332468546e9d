package gitconfig

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pccrun/pccrun/workspace/vcs"
)

func TestStrip(t *testing.T) {
	drop := func(s *vcs.Setting) bool { return !s.Inert() }
	for text, want := range map[string]string{
		"[core]\n\tbare = false\n\tfsmonitor = x ; y\n\tfilemode = true\n": "[core]\n\tbare = false\n\tfilemode = true\n",
		"[core] fsmonitor = x\n[user]\n\tname = me\n":                      "[core] \n[user]\n\tname = me\n",
		"[alias]\n\tx = \"!a\\\n b\"\n# c\n":                               "[alias]\n# c\n",
		"\uFEFF[core]\r\n\teditor = x\r\n\tbare = true\r\n":                "\uFEFF[core]\r\n\tbare = true\r\n",
		"[core]\n\tfsmonitor":                                              "[core]\n",
		"[core]\n\tfsmonitor = false\n\tfsmonitor = 0\n":                   "[core]\n\tfsmonitor = false\n",
	} {
		got, dropped, ok := Strip([]byte(text), drop)
		require.True(t, ok, text)
		require.NotEmpty(t, dropped, text)
		require.Equal(t, want, string(got), text)
	}
	for _, bad := range []string{"[core", "x = y\n", "[core]\n\tx = \"a\n", "[core]\n\tx = a\x00b\n", "[core]\rx = y\n"} {
		_, _, ok := Strip([]byte(bad), drop)
		require.False(t, ok, "%q", bad)
	}
}

// What is left of a configuration has, to git itself, none of what was dropped.
func FuzzStrip(f *testing.F) {
	gitPath, err := exec.LookPath("git")
	if err != nil {
		f.Skip("needs git")
	}
	for _, seed := range []string{"[core]\n\tfsmonitor = x\n", "[a \"b\"] c = d # e\n\tf\n[core] pager=x\n", "[alias]\n\tx = !y\\\nz\n", "\uFEFF[core]\neditor=\"a ; b\" c\r\n"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		left, dropped, ok := Strip([]byte(text), func(s *vcs.Setting) bool { return !s.Inert() })
		if !ok || len(dropped) == 0 {
			return
		}
		file := t.TempDir() + "/config"
		require.NoError(t, os.WriteFile(file, left, 0o600))
		out, err := exec.Command(gitPath, "config", "--no-includes", "-z", "--name-only", "-l", "-f", file).Output()
		if err != nil {
			return // git stops at it
		}
		for name := range strings.SplitSeq(string(out), "\x00") {
			require.False(t, slices.Contains(dropped, name) && !strings.Contains(name, "url") && !strings.Contains(name, "update"), "%q: git still sees %s", text, name)
		}
	})
}
