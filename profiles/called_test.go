package profiles

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestMentioned(t *testing.T) {
	for text, want := range map[string][]string{
		`{"command": "~/.claude/a.sh --fast"}`:                               {"/h/.claude/a.sh"},
		`{"command": "\"$HOME/.claude/a.sh\" && ${HOME}/.claude/b.py"}`:      {"/h/.claude/a.sh", "/h/.claude/b.py"},
		`notify = ["python3", "/h/.codex/notify.py"]`:                        {"/h/.codex/notify.py"},
		`{"command": "jq . >> ~/.claude/log; sh ~/.claude/a.sh >/h/x 2>&1"}`: {"/h/.claude/a.sh"},
		`a>"/h/x" /h/y`:            {"/h/y"},
		`--config=/h/.codex/c.js`:  {"/h/.codex/c.js"},
		`Read(~/.claude/**) a/b ~`: nil,
		`/h/../etc/x`:              {"/etc/x"},
		``:                         nil,
	} {
		got, all := mentioned(text, "/h")
		require.Equal(t, want, got, text)
		require.True(t, all)
	}
	var many strings.Builder
	for i := range maxMentioned + 1 {
		fmt.Fprintf(&many, "/h/%d /h/%d ", i, i)
	}
	got, all := mentioned(many.String(), "/h")
	require.Len(t, got, maxMentioned)
	require.False(t, all)
}
