package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// A command at a provider that is not this machine has a terminal of its own, of the size of
// the user's, gets its keys, and prints to it through the filter; the user's is as it was after.
func TestTerminalElsewhere(t *testing.T) {
	t.Parallel()
	p := newPupil(t)
	s := newSeat(t, p)
	self, err := os.Executable()
	require.NoError(t, err)
	require.NoError(t, os.Symlink(self, filepath.Join(p.home, "bin/bare")))
	p.write("project/inside.sh", `stty size
test -t 0 && test -t 1 && test -t 2 && echo three terminals.
printf 'a\033]52;c;c2VjcmV0\033\\b\n'
read line
echo "read $line."
exec sleep 60
`, 0o644)
	const missing = "fs.hide,fs.readonly,fs.special,fs.protect,net.allowlist,net.address,net.dns,ipc.unix,ipc.sysv,proc.isolated,proc.no-survivors,sys.filter,sys.no-new-userns,priv.none,env.scrub,tty.isolated,tty.output,info.kernel,info.host,launch.integrity"
	s.typed("stty rows 33 cols 111; stty -g > before\n$HOME/bin/bare -q --provider kubernetes --allow-missing " + missing + " -- sh inside.sh\n")
	s.awaits(`33 111`)
	s.awaits(`three terminals\.`)
	s.typed("words\n")
	s.awaits(`read words\.`)
	require.NotContains(t, s.all(), "\x1b]52", "what would write the clipboard is dropped")
	s.forget()
	s.typed("\x03") // a key there, and its terminal's signal
	s.awaits(`at the prompt:`)
	s.typed("echo status $?; stty -g > after; cmp before after && echo same.\n")
	s.awaits(`status 130`)
	s.awaits(`same\.`)
}
