package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Another command in a session has a terminal of its own, of the size of the user's, whose
// Ctrl-C is a signal inside; what it prints passes the filter, and the user's is as it was after. It ends with the
// command, whoever has the terminal open then.
//
//test:root
func TestExecTerminal(t *testing.T) {
	t.Parallel()
	p := newPupil(t)
	s := newSeat(t, p)
	p.write("project/inside.sh", `stty size
test -t 0 && test -t 1 && test -t 2 && echo three terminals.
tty
printf 'a\033]52;c;c2VjcmV0\033\\b\n'
read line
echo "read $line."
trap 'echo trapped.; stty size; exit 4' INT
while :; do sleep .05; done
`, 0o644)
	p.write("project/holder.sh", `trap '' HUP
echo held; touch holds
while echo held 2>/dev/null; do sleep .02; done
`, 0o644)
	s.typed("pccrun -q -- sh -c 'until [ -e over ]; do sleep .05; done' </dev/null >/dev/null 2>&1 &\n")
	s.typed("stty rows 33 cols 111; stty -g > before; until pccrun exec -- true </dev/null 2>/dev/null; do sleep .05; done; echo it \"lives.\"\n")
	s.awaits(`it lives\.`)
	s.typed("pccrun exec -- sh inside.sh\n")
	s.awaits(`33 111`)
	s.awaits(`three terminals\.`)
	s.awaits(`/dev/pts/0`)
	s.typed("words\n")
	s.awaits(`read words\.`)
	require.NotContains(t, s.all(), "\x1b]52", "what would write the clipboard is dropped")
	s.forget()
	s.typed("\x03")
	s.awaits(`trapped\.`)
	s.awaits(`at the prompt:`)
	s.typed("echo status $?\n")
	s.awaits(`status 4\s+at the prompt:`) // the prompt too, or the next command's is taken to be there
	s.forget()
	s.typed("pccrun exec -- sh -c 'setsid sh holder.sh & until [ -e holds ]; do sleep .05; done; echo last.; exit 5'\n")
	s.awaits(`at the prompt:`)
	require.Contains(t, s.all(), "held\r\n", "another has the terminal open")
	require.Contains(t, s.all(), "last.\r\n", "what the command printed last")
	s.typed("echo status $?; stty -g > after; echo > over; wait; cmp before after && echo the \"same.\"\n")
	s.awaits(`status 5`)
	s.awaits(`the same\.`)
}
