package gitconfig

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestShown(t *testing.T) {
	for text, want := range map[string]string{
		"[user]\n\tname = Ada # me\n\ttoken = x\n[credential]\n\thelper = store\n":                                                       "[user]\n\tname = Ada\n",
		"# password: x\n[core]\n\thooksPath = ~/hooks\n\taskpass = x\n":                                                                  "[core]\n\thookspath = ~/hooks\n",
		"[commit] gpgsign\n[Alias]\n\tci = \"commit -m '#'\"\n":                                                                          "[commit]\n\tgpgsign\n[alias]\n\tci = \"commit -m '#'\"\n",
		"[http]\n\textraHeader = \"Authorization: x\"\n\tproxy = http://p:1\n":                                                           "[http]\n\tproxy = http://p:1\n",
		"[http]\n\tproxy = http://u@p:1\n[http \"https://h\"]\n\tcookieFile = x":                                                         "",
		"[url \"https://t@h/\"]\n\tinsteadOf = a\n[url \"ssh://git@h/\"]\n\tinsteadOf = b\n[url \"git@h:\"]\n\tinsteadOf = https://h/\n": "[url \"ssh://git@h/\"]\n\tinsteadof = b\n[url \"git@h:\"]\n\tinsteadof = https://h/\n",
		"[alias]\n\tx = \"!curl https://h/a@b ssh://u:p@h\"\n\ty = !curl https://h/a@b\n\tz = !curl -H 'Authorization: x'\n":             "[alias]\n\ty = !curl https://h/a@b\n",
		"[includeIf \"gitdir:~/w/\"]\n\tpath = w.inc\n[github]\n\tuser = x\n":                                                            "[includeif \"gitdir:~/w/\"]\n\tpath = /home/u/w.inc\n",
		"[credential]\n\thelper = \"!f() { echo password=$T; }; f\"\n\thelper = \"!f() { echo password=x; }; f\"\n":                      "[credential]\n\thelper = \"!f() { echo password=$T; }; f\"\n",
	} {
		shown, _, ok := Shown([]byte(text), "/home/u")
		require.True(t, ok, text)
		require.Equal(t, want, string(shown), text)
	}
	_, _, ok := Shown([]byte("[user\n"), "/")
	require.False(t, ok)
}
