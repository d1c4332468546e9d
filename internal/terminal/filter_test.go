package terminal

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// run gives the filter the input in pieces of the sizes that next returns.
func run(f *Filter, in string, next func() int) string {
	var out []byte
	for p := []byte(in); len(p) > 0; {
		n := min(len(p), max(1, next()))
		out = append(out, f.Filter(p[:n])...)
		p = p[n:]
	}
	return string(out)
}

func whole(f *Filter, in string) string { return run(f, in, func() int { return len(in) }) }

// Between two words, so that what is lost or left over shows.
func between(t *testing.T, f Filter, in, want string) {
	t.Helper()
	one, bytewise := f, f
	got := whole(&one, "before"+in+"after")
	require.Equal(t, "before"+want+"after", got, "%q", in)
	got = run(&bytewise, "before"+in+"after", func() int { return 1 })
	require.Equal(t, "before"+want+"after", got, "%q, byte by byte", in)
}

func TestFilterPasses(t *testing.T) {
	for _, in := range []string{
		"", "\r\n\t\b\a\x7f\x00\x0e\x0f",
		"grüße 雛 \U0001F600 ａ\u0300",
		"\x1b[31mred\x1b[0m", "\x1b[38;2;1;2;3m", "\x1b[4:3m", "\x1b[1;31m\x1b[K\x1b[2J\x1b[H",
		"\x1b[?1049h\x1b[?25l\x1b[?2004h\x1b[?1000;1006h", "\x1b[?2026$p",
		"\x1b[c", "\x1b[>c", "\x1b[=c", "\x1b[6n", "\x1b[5n", "\x1b[>q", "\x1b[?u", "\x1b[>1u", "\x1b[<u", "\x1bZ",
		"\x1b[14t", "\x1b[18t", "\x1b[22;0t", "\x1b[23;0t", "\x1b[8;21;80t", "\x1b[;21t", "\x1b[121t",
		"\x1b[!p", "\x1b[2 q", "\x1b[1;2r", "\x1b[3;1\"q",
		"\x1b7\x1b8\x1bc\x1b=\x1b>\x1b(0\x1b(B\x1b#8\x1b%G\x1bM\x1b\\",
		"\x1b]0;title\a", "\x1b]2;a title ü\x1b\\", "\x1b]1;\a", "\x1b]0;what is it?\a",
		"\x1b]8;;https://example.com/?q=1\a", "\x1b]8;id=1;file:///x\x1b\\link\x1b]8;;\x1b\\",
		"\x1b]7;file://h/p\a", "\x1b]9;done\a", "\x1b]9;4;1;50\a", "\x1b]9;52;x\a", "\x1b]777;notify;a;b\a", "\x1b]99;i=1:d=0;text?\x1b\\",
		"\x1b]4;1;?\a", "\x1b]10;?\a", "\x1b]11;?\x1b\\", "\x1b]104\a", "\x1b]112\x1b\\", "\x1b]133;A\a", "\x1b]22;pointer\a",
		"\x1b]21;foreground=red\a", "\x1b]1337;File=name=eA==;inline=1:aGVsbG8=\a", "\x1b]1337;SetMark\a", "\x1b]1337;ReportCellSize\a",
		"\x1b]P0123456", "\x1b]R", "\x1b]lTITLE\x1b\\", "\x1b]6;1;bg;red;brightness;9\a", "\x1b]66;s=2;big\a",
		"\x1b]4;1;rgb:ff/00/ff;2;#00ff00\a", "\x1b]5;0;red\a", "\x1b]11;light steel blue\a", "\x1b]12;rgba:ff/ff/ff/80\a", "\x1b]104;1;2\a",
		"\x1b]633;A\a", "\x1b]633;D;0\a", "\x1b]633;P;Cwd=/x\a",
		"\x1bPq#0;2;0;0;0~-\x1b\\", "\x1bP0;1;8q\"1;1;5;5#0~\x1b\\", "\x1bP=1s\x1b\\",
		"\x1b_Ga=T,f=100,t=d;aGVsbG8=\x1b\\", "\x1b_Gm=1;aGVs\x1b\\", "\x1b_Gi=1,a=q;\x1b\\", "\x1b_ text\x1b\\", "\x1b^pm\x1b\\", "\x1bXsos\x1b\\",
		"\x1bktitle\x1b\\",
		"\x1bPtmux;\x1b\x1b]9;done\a\x1b\\", "\x1bPtmux;\x1b\x1b]2;t\x1b\x1b\\\x1b\\",
		"\x9b31m", "\xc2\x9b31m", "\x9d0;t\x9c", "\xc2\x9d0;t\xc2\x9c", "\x85\x8d",
		"\xff\xfe\xc0\xc1\xf5", "\xc3", "\xe9\x9b",
		"\x1b[3\n1m", "\x1b[\x7f31m", // controls act within a sequence
		"\x18\x1a",
	} {
		between(t, Filter{}, in, in)
	}
}

func TestFilterDrops(t *testing.T) {
	b64 := "cm0gLXJmIC8K"
	for _, in := range []string{
		"\x05",
		// Clipboard.
		"\x1b]52;c;" + b64 + "\a", "\x1b]52;c;" + b64 + "\x1b\\", "\x1b]52;;" + b64 + "\a", "\x1b]52;c;?\a", "\x1b]052;c;" + b64 + "\a", "\x1b]52\a",
		"\x9d52;c;" + b64 + "\a", "\x9d52;c;" + b64 + "\x9c", "\xc2\x9d52;c;" + b64 + "\xc2\x9c",
		"\x1b\x00]52;c;x\a", "\x1b]\x0152;c;x\a", "\x1b]5\x7f2;c;x\a", "\x1b]5\n2;c;x\a", "\x1b]\x8552;c;x\a", "\x1b] 52;c;x\a", "\x1b]+52;c;x\a", "\x1b]52:c;x\a",
		"\x1b]4294967348;c;x\a", "\x1b]5\x052;c;x\a", "\x1b\x05]52;c;x\a",
		"\x1b]5522;type=write\x1b\\", "\x1b]1337;Copy=:" + b64 + "\a", "\x1b]1337;CopyToClipboard=rule\a", "\x1b]1337;EndCopy\a",
		// Answers with chosen text.
		"\x1b[21t", "\x1b[20t", "\x1b[021t", "\x1b[21;1t", "\x1b[21:1t", "\x1b[>21t", "\x1b[21 t", "\x9b21t", "\xc2\x9b21t", "\x1b[2\n1t", "\x1b[2\x051t",
		"\x1b[4294967317t", "\x1b\x1b[21t", "\x1b[\x1b[21t", "\x1b[1\x9b21t",
		"\x1bP$qm\x1b\\", "\x1bP$q\"p\x1b\\", "\x90$qm\x9c", "\xc2\x90$qm\xc2\x9c", "\x1bP+q544e\x1b\\", "\x1bP+p544e=41\x1b\\", "\x1bP\n$qm\x1b\\",
		"\x1bP1;1|17/6c730a\x1b\\", "\x1bP0;0;1!z1b5d3532\x1b\\", "\x1b[1*z", "\x1b[1;1;1;1;9;9*y",
		"\x1b]50;?\a", "\x1b]50;-*-fixed\a", "\x1b]3;?PROP\a", "\x1b]710;?\a", "\x1b]2;?\a", "\x1b]20;?\a", "\x1b]21;x=?\a", "\x1b]99;i=id:p=?;\x1b\\", "\x1b]99;i=id:a=report;x\x1b\\",
		"\x1b]1337;ReportVariable=abc\a",
		// Deeds.
		"\x1b[5i", "\x1b[?5i", "\x1b]83;exec rm\a", "\x1b]51;Eevil\a", "\x1b]51;[\"call\",\"Tapi_x\",[]]\a",
		"\x1b]9;7;\"calc\"\a", "\x1b]9;6;Shell\a", "\x1b]9;8;\"SECRET\"\a", "\x1b]9;5\a", "\x1b]5113;ac=send\x1b\\",
		"\x1b]1337;File=name=eA==:aGVsbG8=\a", "\x1b]1337;File=name=eA==;inline=0:aGVsbG8=\a",
		"\x1b]1337;File=inline=1;inline=0:aGVsbG8=\a", "\x1b]1337;File=inline=0;inline=1:aGVsbG8=\a", "\x1b]1337;MultipartFile=inline=1;size=2;Inline =0\a", "\x1b]1337;OpenURL=:aHR0\a", "\x1b]1337;Custom=id=x:y\a", "\x1b]1337;RequestUpload=format=tgz\a",
		"\x1bP1000p\x1b\\", "\x1bP1000p%begin 1\n\x1b\\", "\x1bP2000p\x1b\\",
		"\x1b_Gt=f;L2V0Yy9wYXNzd2Q=\x1b\\", "\x1b_Ga=q,t=t;L3RtcA==\x1b\\", "\x1b_Ga=q,t=s;eA==\x1b\\", "\x9fGt=f;L2V0\x9c", "\x1b_G\x00t=f;L2V0\x1b\\", "\x1b_Gt=f\x1b\\",
		"\x1b%@", "\x1b%/G",
		// Files of the host: a log, a dump, pictures, sounds; a server of somebody's that the terminal logs in to.
		"\x1b]46;/home/u/.profile\a", "\x1b]55;/home/u/x\a", "\x1b]20;/home/u/x\a", "\x1b]440;x.wav\a", "\x1b]I;\\\\evil\\x\a", "\x1b]888\a",
		"\x1b]11;*\\\\evil\\x\a", "\x1b]011;*x\a", "\x1b]11;_C:/x.png\a", "\x1b]11;C:/x\a", "\x1b]4;1;*x\a", "\x1b]10;?;*x\a", "\x1b]104;*x\a",
		// What is typed, or run again, as the output has it.
		"\x1bP0pS(E)\x1b\\", "\x1bPp@:AINJECTED@;R(M(A))\x1b\\", "\x1b]633;E;rm -rf x\a", "\x1b]633;P;Task=x\a", "\x1b]777;precmd\a", "\x1b]22;?__current__\a",
		"\x1b]701;?\a", "\x1b]12345;x\a", "\x1b]xtext\a",
		// Through multiplexers.
		"\x1bPtmux;\x1b\x1b]52;c;" + b64 + "\a\x1b\\", "\x1bPtmux;\x1b\x1b[21t\x1b\\", "\x1bPtmux;\x1b\x1b]52;c;x\x1b\\",
		"\x1bPtmux;\x1b\x1bPtmux;\x1b\x1b\x1b\x1b]52;c;x\a\x1b\x1b\\\x1b\\",
		"\x1bP]52;c;" + b64 + "\x1b\\", "\x1bPanything\x1b\\",
		// Out of order, broken off, too long.
		"\x1b[2$1t", "\x1b[1?2h", "\x1b[" + strings.Repeat("1;", 2000) + "t", "\x1b[2" + strings.Repeat("\x00", 2000) + "1t",
		"\x1b]" + strings.Repeat("0", 2000) + "52;c;x\a", "\x1bP" + strings.Repeat("1;", 2000) + "q\x1b\\",
	} {
		between(t, Filter{}, in, "")
	}
	// The same filter lets the harmless one next to them through: the
	// control of this test is TestFilterPasses.
}

func TestFilterBrokenOff(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{"\x1b]7;x\x1b]52;c;y\az", "\x1b]7;x\x1b\\z"},
		{"\x1b]7;x\x9b21tz", "\x1b]7;x\x1b\\z"},
		{"\x1b]7;x\x1b[31mz", "\x1b]7;x\x1b\\\x1b[31mz"},
		{"\x1b]0;x\x1b[31mz", "\x1b[31mz"},
		{"\x1bPtmux;\x9d52;c;x\x9c\x1b\\z", "\x1b\\z"},
		{"\x1bPq~\x1b\x1b\\z", "\x1bPq~\x1b\\\x1b\\z"},
		{"\x1b]7;x\x18z", "\x1b]7;x\x18z"},
		{"\x1b]52;c;x\x18z", "z"}, {"\x1b]5\x182;c;z", "2;c;z"}, {"\x1b]52;c;x\x1b[mz", "\x1b[mz"}, {"\x1b]52;c;x\x9b1mz", "\x9b1mz"},
		{"\x1b[2\x1a1tz", "1tz"}, {"\x1b\x18[21tz", "[21tz"}, {"\x1b[2\xe9\x9b\x9bz", "\xe9\x9b\x9bz"},
		{"\x1b]52;c;x\xc2\x9cz", "z"}, {"\x1b]52;c;\u96db\az", "z"},
		{"\x1b]52;c;x\x1b", ""}, {"\x1b]52;c;", ""}, {"\x1b", ""}, {"\xc2", ""},
		{"\x1b]0;\u96dc\u975c\az", "\x1b]0;\u96dc\u975c\az"}, // with the bytes 9c and 9d
		{"\xe9\x9d52;c;x\az", "\xe9z"},                       // of a character that is broken off nothing is hidden
		{"\xc2\x1b]52;c;x\az", "\xc2z"}, {"\xc2\x05\x9b21tz", "z"},
	} {
		f := Filter{}
		require.Equal(t, c.want, whole(&f, c.in), "%q", c.in)
		f = Filter{}
		require.Equal(t, c.want, run(&f, c.in, func() int { return 1 }), "%q", c.in)
	}
}

func TestFilterClipboard(t *testing.T) {
	f := Filter{Clipboard: true}
	for _, in := range []string{"\x1b]52;c;aGVsbG8=\a", "\x1b]52;;aGVsbG8=\x1b\\", "\x1bPtmux;\x1b\x1b]52;c;aGVsbG8=\a\x1b\\"} {
		between(t, f, in, in)
	}
	for _, in := range []string{"\x1b]52;c;?\a", "\x1b]52;?\a", "\x1b]52\a", "\x1b]5522;x\a", "\x1b[21t"} {
		between(t, f, in, "")
	}
	long := "\x1b]52;c;" + strings.Repeat("QUFB", maxString/4) + "\a"
	between(t, f, long, "")
}

// A terminal that is laxer than any: it ignores controls, and knows no
// state but the start of a sequence.
var lax = regexp.MustCompile(`(\x1b\]|\xc2\x9d)0*(52|5522|50|51|83);|(\x1b\[|\xc2\x9b)0*2[01]t|\x05|(\x1bP|\xc2\x90)(\$q|\+q|1000p)|(\x1b_|\xc2\x9f)Gt=f`)

func laxView(b []byte) []byte {
	return bytes.Map(func(r rune) rune { // invalid bytes stay: they become U+FFFD, which matches nothing
		if r < 0x20 && r != esc && r != enq && r != bel || r == del {
			return -1
		}
		return r
	}, b)
}

var pieces = []string{
	"\x1b", "\x1b]", "\x1b[", "\x1bP", "\x1b_", "\x1b\\", "\a", "\x9b", "\x9d", "\x9c", "\x90", "\xc2", "\xc2\x9d", "\xe9", "\xe9\x9b", "52;c;", "52", "5", "2", ";", "?",
	"21t", "2", "1t", "$q", "+q", "tmux;", "1000p", "q", "t", "Gt=f;", "x", "\x18", "\x1a", "\n", "\x05", "\x00", "\x7f", "hello ", "\xff", "1337;File=", "inline=1:", "0;",
}

func TestFilterRandom(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 200_000 {
		var in strings.Builder
		for range 1 + r.IntN(12) {
			in.WriteString(pieces[r.IntN(len(pieces))])
		}
		check(t, in.String(), func() int { return 1 + r.IntN(4) })
	}
}

func check(t *testing.T, in string, next func() int) {
	t.Helper()
	for _, clipboard := range []bool{false, true} {
		a, b := Filter{Clipboard: clipboard}, Filter{Clipboard: clipboard}
		one, many := whole(&a, in), run(&b, in, next)
		if one != many {
			t.Fatalf("%q: in one piece %q, in many %q", in, one, many)
		}
		quiet := a.quiet()
		if string(a.Reset()) != string(b.Reset()) {
			t.Fatalf("%q: resets differ", in)
		}
		if !clipboard && lax.Match(laxView([]byte(one))) {
			t.Fatalf("%q passes as %q", in, one)
		}
		again := Filter{Clipboard: clipboard}
		twice := whole(&again, one)
		twice += string(again.partial)
		if quiet && twice != one {
			t.Fatalf("%q passes as %q, and that as %q", in, one, twice)
		}
	}
}

func FuzzFilter(f *testing.F) {
	for _, p := range pieces {
		f.Add([]byte(p+"52;c;x\a"), uint8(1))
	}
	f.Add([]byte("\x1bPtmux;\x1b\x1b]52;c;x\a\x1b\\"), uint8(3))
	f.Fuzz(func(t *testing.T, in []byte, size uint8) {
		check(t, string(in), func() int { return int(size) })
	})
}

func TestReset(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{"plain \x1b[31mred\x1b[0m", ""},
		{"\x1b[?1049h\x1b[?25l\x1b[?2004h\x1b=\x1b[?1000;1006h", "\x1b[?1000l\x1b[?1006l\x1b[?2004l\x1b[?1049l\x1b[?25h\x1b>"},
		{"\x1b[?1049h\x1b[?25l\x1b=\x1b>\x1b[?25h\x1b[?1049l", ""},
		{"\x1b[?7l\x1b[?7h\x1b[?7l", "\x1b[?7h"},
		{"\x1b[31m", "\x1b[m"}, {"\x1b[8m", "\x1b[m"},
		{"\x1b[>1u\x1b[?1049h\x1b[>5u\x1b[>5u\x1b[<u", "\x1b[<1u\x1b[?1049l\x1b[<1u"},
		{"\x1b[=3u", "\x1b[=0u"}, {"\x1b[>4;2m", "\x1b[>4;0m"}, {"\x1b[>4;2m\x1b[>4m", ""},
		{"\x1b[5;10r", "\x1b7\x1b[r\x1b8"}, {"\x1b[5;10r\x1b[r", ""},
		{"\x1b(0", "\x1b(B\x1b)B\x0f"}, {"\x1b[4h\x1b[20h", "\x1b[4l\x1b[20l"}, {"\x1b[5 q", "\x1b[0 q"},
		{"\x1b[?1049h\x1b[5;10r\x1bc", ""},
		{"\x1b]7;open", "\x1b\\"}, {"\x1b]0;open", ""}, {"\x1b]52;c;open", ""}, {"\x1b[?104", ""},
		{"\x1bPtmux;\x1b\x1b[?2004h\x1b\\", "\x1b[?2004l"},
		{"caf\xe9", "\xe9"},
	} {
		f := Filter{}
		whole(&f, c.in)
		require.Equal(t, c.want, string(f.Reset()), "%q", c.in)
		require.Empty(t, f.Reset(), "%q, again", c.in)
		require.Equal(t, "x", whole(&f, "x"))
	}
}

func BenchmarkFilter(b *testing.B) {
	for name, line := range map[string]string{
		"ascii":   "The quick brown fox jumps over the lazy dog, again and again.\r\n",
		"utf8":    "Zwölf Boxkämpfer jagen Viktor quer über den großen Sylter Deich 雛.\r\n",
		"colours": "\x1b[32m+\x1b[0m \x1b[38;5;12mfunc\x1b[0m main() \x1b[1m{\x1b[22m return \x1b[33m1\x1b[0m }\r\n",
		"image":   "\x1bPq" + strings.Repeat("#0~~@@vv@@~~", 200) + "\x1b\\",
	} {
		b.Run(name, func(b *testing.B) {
			in := []byte(strings.Repeat(line, 1+(64<<10)/len(line)))
			b.SetBytes(int64(len(in)))
			f := Filter{}
			for b.Loop() {
				f.Filter(in)
			}
		})
	}
}

func ExampleFilter() {
	var f Filter
	fmt.Printf("%q\n", f.Filter([]byte("copied\x1b]52;c;cm0gLXJmIC8K\a: \x1b[32mdone\x1b[m")))
	// Output: "copied: \x1b[32mdone\x1b[m"
}

// That a write of the clipboard was filtered is known, and a question is none.
func TestClipped(t *testing.T) {
	for text, want := range map[string]bool{
		"\x1b]52;c;aGVsbG8=\a": true, "\x1b]52;;aGVsbG8=\x1b\\": true, "\x1bPtmux;\x1b\x1b]52;c;aGVsbG8=\a\x1b\\": true,
		"\x1b]52;c;?\a": false, "\x1b]8;;x\a": false, "52;c;x": false,
	} {
		f := new(Filter)
		f.Filter([]byte(text))
		require.Equal(t, want, f.Clipped, "%q", text)
	}
}
