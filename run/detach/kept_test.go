package detach

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The end is kept of whatever was printed, in bounded room, and the modes of what was forgotten.
func TestKept(t *testing.T) {
	t.Parallel()
	k := &kept{}
	k.add([]byte("\x1b[?1049h\x1b[?25l\x1b[?2004h\x1b[?2004l"))
	for range 3000 {
		k.add([]byte(strings.Repeat("x", 127) + "\n"))
	}
	k.add([]byte("the end"))
	require.LessOrEqual(t, len(k.earlier)+len(k.later), 2*keepSize)
	require.Greater(t, len(k.earlier)+len(k.later), keepSize)
	lines := k.lines()
	require.True(t, bytes.HasPrefix(lines, []byte("xxx")))
	require.Equal(t, 127, bytes.IndexByte(lines, '\n'), "from the beginning of a line on")
	require.True(t, bytes.HasSuffix(lines, []byte("\nthe end")))
	screen := string(k.screen())
	require.True(t, strings.HasPrefix(screen, "\x1b[?25l\x1b[?1049h") || strings.HasPrefix(screen, "\x1b[?1049h\x1b[?25l"), "%.40q", screen)
	require.NotContains(t, screen, "2004")
	require.True(t, strings.HasSuffix(screen, "\nthe end"))
	require.Equal(t, screen, string(k.screen()), "looking changes nothing")
}

// A sequence that goes over the edge of what is kept is whole, or not there.
func TestKeptInASequence(t *testing.T) {
	t.Parallel()
	for cut := range 9 {
		k := &kept{}
		k.add(append(bytes.Repeat([]byte("a"), keepSize-32), "\x1b[38;5;3mred"[:cut]...))
		k.add(append([]byte("\x1b[38;5;3mred"[cut:]), bytes.Repeat([]byte("b"), keepSize/2)...))
		k.add(bytes.Repeat([]byte("c"), keepSize/2+64))
		require.Positive(t, k.forgotten)
		screen := string(k.screen())
		require.True(t, strings.HasPrefix(screen, "\x1b[38;5;3mredb") || strings.HasPrefix(screen, "redb"), "cut at %d: %.20q", cut, screen)
	}
}

// Questions are not asked again: nobody waits for the answers, which would be typed.
func TestScreenAsksNothing(t *testing.T) {
	t.Parallel()
	for _, question := range []string{
		"\x1b[c", "\x1b[0c", "\x1b[>c", "\x1b[=c", "\x1bZ", "\x1b[5n", "\x1b[6n", "\x1b[?6n", "\x1b[?996n", "\x1b[?2004$p", "\x1b[4$p", "\x1b[>q", "\x1b[>0q", "\x1b[?u",
		"\x1b[14t", "\x1b[18t", "\x1b[?4m", "\x1b]11;?\x07", "\x1b]10;?\x1b\\", "\x1b]4;1;?\x1b\\", "\x1b]1337;ReportCellSize\x07", "\x1b_Gi=31,s=1,v=1,a=q,t=d,f=24;AAAA\x1b\\",
		"\x1b[?2;1;0S", "\x1b[x", "\x1b[1$w",
	} {
		k := &kept{}
		k.add([]byte("a" + question + "b"))
		require.Equal(t, "ab", string(k.screen()), "%q", question)
		require.Equal(t, "a"+question+"b", string(k.lines()), "as it was")
	}
	for _, plain := range []string{"\x1b[1;31m", "\x1b[2J", "\x1b[H", "\x1b[>1u", "\x1b[2 q", "\x1b[8;24;80t", "\x1b]0;title\x07", "\x1b]8;;http://x/?y\x1b\\", "\x1b]11;#000000\x07", "\x1b[>4;1m", "\x1b[2S"} {
		k := &kept{}
		k.add([]byte("a" + plain + "b"))
		require.Equal(t, "a"+plain+"b", string(k.screen()), "%q", plain)
	}
}

func TestKeys(t *testing.T) {
	t.Parallel()
	usual, err := ParseKeys(UsualKeys)
	require.NoError(t, err)
	for _, row := range []struct {
		typed []string
		pass  string
		done  bool
	}{
		{[]string{"abc"}, "abc", false},
		{[]string{"a\x10\x11b"}, "a", true},
		{[]string{"a\x10", "\x11b"}, "a", true},
		{[]string{"\x10\x10\x11"}, "\x10", true},
		{[]string{"\x10x"}, "\x10x", false},
		{[]string{"\x11\x10"}, "\x11", false},
		{[]string{"\x1b[112;5u", "\x1b[113;5u"}, "", true},
		{[]string{"\x1b[112;69u\x1b[27;5;113~"}, "", true},
		{[]string{"\x1b[112;5ux"}, "\x1b[112;5ux", false},
		{[]string{"\x1b[A"}, "\x1b[A", false},
	} {
		m, pass, done := matcher{keys: usual}, "", false
		for _, b := range row.typed {
			var p []byte
			p, done = m.typed([]byte(b))
			pass += string(p)
		}
		require.Equal(t, row.pass, pass, "%q", row.typed)
		require.Equal(t, row.done, done, "%q", row.typed)
	}
	for text, wrong := range map[string]bool{"": true, "ctrl-": true, "ctrl-P": true, "ctrl-1": true, "ab": true, "a,": true, "a": false, "ctrl-@,x": false, "ctrl-\\": false, "é": true, " ": true} {
		_, err := ParseKeys(text)
		require.Equal(t, wrong, err != nil, text)
	}
}
