package profiles

import (
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
		require.Equal(t, want, mentioned(text, "/h"), text)
	}
}
