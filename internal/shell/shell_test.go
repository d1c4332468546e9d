package shell

import (
	"os/exec"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestQuote(t *testing.T) {
	require.Equal(t, "/sys/fs/cgroup/user.slice/a-b@1", Quote("/sys/fs/cgroup/user.slice/a-b@1"), "it is read by people")
	if runtime.GOOS == "windows" {
		return
	}
	for _, word := range []string{"", "a b", "a;id", "$(id)", "`id`", "a'b", "a\nb", "* ?", "&& id", "~", "#", "a\\b", "é"} {
		out, err := exec.Command("sh", "-c", "printf %s "+Quote(word)).Output()
		require.NoError(t, err, word)
		require.Equal(t, word, string(out))
	}
}

// What is quoted is one word again.
func TestWords(t *testing.T) {
	for _, word := range []string{"", "a b", "a'b", "''", `a\b`, "in place of", "--write x"} {
		words, ok := Words("--read " + Quote(word) + "  and x")
		require.True(t, ok, word)
		require.Equal(t, []string{"--read", word, "and", "x"}, words)
	}
	for _, text := range []string{"'a", `\n`} {
		_, ok := Words(text)
		require.False(t, ok, text)
	}
	words, ok := Words("")
	require.True(t, ok)
	require.Empty(t, words)
}
