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
