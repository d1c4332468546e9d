package terminal

import (
	"bytes"
	"strings"
)

// number reads the decimal number that b begins with. One that no terminal
// has a meaning for comes back as tooLarge: programs that let it overflow
// would take it for another.
func number(b []byte) (n int, rest []byte) {
	i := 0
	for ; i < len(b) && b[i] >= '0' && b[i] <= '9'; i++ {
		n = min(n*10+int(b[i]-'0'), tooLarge)
	}
	return n, b[i:]
}

const tooLarge = 1 << 16

// simple judges an escape sequence: ESC, intermediate bytes, a final one.
func (f *Filter) simple() verdict {
	b := f.params()
	f.screen.escape(b)
	// ESC % selects a character set other than UTF-8, where bytes of
	// characters would be controls. Back to UTF-8 is fine.
	if b[0] == '%' && string(b) != "%G" || f.Answered && b[0] == 'Z' { // DECID
		return drop
	}
	return pass
}

// control judges a control sequence.
func (f *Filter) control() verdict {
	b := f.params()
	final, args := b[len(b)-1], b[:len(b)-1]
	private := ""
	if len(args) > 0 && args[0] >= '<' && args[0] <= '?' {
		private, args = string(args[:1]), args[1:]
	}
	end := len(args)
	for end > 0 && args[end-1] >= 0x20 && args[end-1] < 0x30 {
		end--
	}
	args, inter := args[:end], args[end:]
	for _, c := range args {
		if c < 0x30 || c > 0x3b {
			return drop // out of order: terminals disagree on what it means
		}
	}
	first, _ := number(args)
	switch final {
	case 't': // XTWINOPS 20 and 21: report the icon's label and the title
		if first == 20 || first == 21 || first == tooLarge {
			return drop
		}
	case 'i': // media copy: to the printer, which may be a command
		return drop
	case 'y': // DECRQCRA reads the screen back, by checksums
		if bytes.IndexByte(inter, '*') >= 0 {
			return drop
		}
	case 'z': // DECINVM plays a macro
		if bytes.IndexByte(inter, '*') >= 0 {
			return drop
		}
	}
	if f.Answered && asks(private, first, string(inter)+string(rune(final))) {
		return drop
	}
	f.screen.control(private, args, string(inter)+string(rune(final)))
	return pass
}

// asks reports whether a terminal answers a control sequence: by what it is, its state, its position, its size.
func asks(private string, first int, final string) bool {
	switch final {
	case "c", "n", "$p", "$w", "$u", "&w", "'|", "x":
		return true
	case "q":
		return private == ">"
	case "u", "m", "S":
		return private == "?"
	case "t":
		return private == "" && first >= 11 && first <= 19
	}
	return false
}

// osc judges an operating system command: number ; text. What passes is listed:
// among the others are some that open or write a file (xterm's log, rxvt's
// screen dump, mintty's sounds and icons, which may lie on a server that the
// terminal then logs in to).
func (f *Filter) osc(c byte, end bool) verdict {
	if far := len(f.hold)-f.body > 8; far && !end && c != ';' && c != ':' {
		return undecided // nothing else decides: do not look at all of it for each byte
	}
	b := f.params()
	if len(b) == 0 {
		return drop // at its end: nothing
	}
	if c := b[0]; c < '0' || c > '9' {
		// Letters have a use: the palette of the Linux console (which
		// forgoes the terminator), titles of Sun's terminals.
		if c == 'P' || c == 'R' || c == 'l' || c == 'L' {
			return pass
		}
		return drop
	}
	n, text := number(b)
	if len(text) == 0 && !end {
		return undecided
	}
	if len(text) > 0 && text[0] != ';' {
		return drop
	}
	text = bytes.TrimPrefix(text, []byte(";"))
	if f.Answered && n != 8 && n != 66 { // of links and words, which are no questions
		if !end {
			f.whole = true
			return undecided
		}
		if bytes.IndexByte(text, '?') >= 0 || n == 1337 {
			return drop
		}
	}
	switch n {
	case 6, // properties of a tab
		7,   // the working directory
		8,   // links
		66,  // kitty: text in sizes
		133: // where a prompt and a command begin and end
		return pass
	case 52:
		if !f.Clipboard {
			if !end {
				f.whole = true
				return undecided
			}
			f.Clipped = f.Clipped || !harmful(n, text)
			return drop
		}
	case 0, 1, 2, 9, 21, 22, 99, 633, 777:
	case 4, 5, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19: // colours
	case 104, 105, 106, 110, 111, 112, 113, 114, 115, 116, 117, 118, 119: // and back
	case 1337:
		// An image is too large to be held: its arguments end at the colon.
		if c == ':' {
			return iterm(text)
		}
		if !end {
			return undecided
		}
		return iterm(text)
	default:
		return drop
	}
	if !end {
		f.whole = true
		return undecided
	}
	if harmful(n, text) {
		return drop
	}
	return pass
}

// harmful judges the text of the commands that have good uses and bad ones.
func harmful(n int, text []byte) bool {
	has := func(s string) bool { return bytes.Contains(text, []byte(s)) }
	switch n {
	case 52: // a question
		_, data, found := bytes.Cut(text, []byte(";"))
		return !found || bytes.IndexByte(data, '?') >= 0
	case 9: // ConEmu's: wait for a key, run a macro or a command, print a variable
		k, rest := number(text)
		return k >= 5 && k <= 8 && len(text) > 0 && (len(rest) == 0 || rest[0] == ';')
	case 21, 22: // kitty: colours by name, the pointer's shape; answers repeat names that it does not know
		return has("?")
	case 633: // VS Code: the text of a command is offered to be run again
		kind, rest, _ := bytes.Cut(text, []byte(";"))
		return len(kind) != 1 || bytes.IndexByte([]byte("ABCDFGHIP"), kind[0]) < 0 || kind[0] == 'P' && !bytes.HasPrefix(rest, []byte("Cwd="))
	case 777: // rxvt: calls its extensions
		return !bytes.HasPrefix(text, []byte("notify;"))
	case 99: // kitty: notifications; answers repeat the identifier
		options, _, _ := bytes.Cut(text, []byte(";"))
		return bytes.Contains(options, []byte("?")) || bytes.Contains(options, []byte("report")) ||
			bytes.Contains(options, []byte("c=1")) || bytes.Contains(options, []byte("alive"))
	}
	if n >= 4 {
		return !colours(text)
	}
	return bytes.Equal(bytes.TrimSpace(text), []byte("?")) // rxvt answers with what was set
}

// colours reports whether a list has nothing but colours, numbers of them and
// questions: mintty takes other text for the name of a picture.
func colours(list []byte) bool {
	for _, item := range bytes.Split(list, []byte(";")) {
		if string(item) == "?" {
			continue
		}
		model, values, numeric := bytes.Cut(item, []byte(":"))
		if numeric && len(bytes.Trim(values, "0123456789abcdefABCDEF/.,%-")) > 0 {
			return false
		}
		for i, c := range model {
			if !(c >= '0' && c <= '9' || c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z' || c == ' ' || c == '#' && i == 0) {
				return false
			}
		}
		if numeric && len(model) < 3 { // a drive of Windows
			return false
		}
	}
	return true
}

// iterm judges iTerm2's own command by its name: those that are known to
// show something, or to describe the shell, pass.
func iterm(text []byte) verdict {
	end := bytes.IndexAny(text, "=:")
	name, args := text, []byte(nil)
	if end >= 0 {
		name, args = text[:end], text[end+1:]
	}
	switch string(name) {
	case "File", "MultipartFile": // without "inline" it is a download
		args, _, _ = bytes.Cut(args, []byte(":"))
		shown, keys := drop, map[string]bool{}
		for arg := range bytes.SplitSeq(args, []byte(";")) {
			key, _, _ := bytes.Cut(arg, []byte("="))
			name := strings.ToLower(string(bytes.TrimSpace(key)))
			if keys[name] { // which of them counts, each terminal says for itself
				return drop
			}
			keys[name] = true
			if string(arg) == "inline=1" {
				shown = pass
			}
		}
		return shown
	case "FilePart", "FileEnd", "SetMark", "CursorShape", "ReportCellSize", "SetUserVar", "CurrentDir", "RemoteHost",
		"ShellIntegrationVersion", "HighlightCursorLine", "ClearScrollback", "UnicodeVersion", "RequestAttention", "SetColors":
		return pass
	}
	return drop
}

// dcs judges a device control string: parameters, intermediate bytes, a final
// byte, then data. What passes is listed, since GNU screen hands on the data
// of any. ReGIS is not: it types what a macro of its own holds.
func (f *Filter) dcs(c byte, end bool) verdict {
	b := f.params()
	if end && f.whole {
		return f.tmux()
	}
	if end || len(b) != len(f.hold)-f.body || c >= 0x80 {
		return drop // without a final byte, or with controls before it
	}
	if c < 0x40 {
		return undecided
	}
	head := b[:len(b)-1]
	plain := len(bytes.Trim(head, "0123456789;:")) == 0
	switch {
	case plain && c == 'q': // sixel image
		return pass
	case plain && c == '{': // soft characters
		return pass
	case c == 's' && (string(head) == "=1" || string(head) == "=2"): // synchronized update
		return pass
	case c == 't' && len(head) == 0 && !f.Answered: // perhaps "tmux;"
		f.whole = true
		return undecided
	}
	return drop
}

// tmux judges what tmux would hand on to the terminal around it: it passes
// if all of it would.
func (f *Filter) tmux() verdict {
	data, ok := bytes.CutPrefix(f.hold[f.body:], []byte("tmux;"))
	if !ok || f.depth == 3 {
		return drop
	}
	inner := bytes.ReplaceAll(data, []byte{esc, esc}, []byte{esc})
	g := Filter{Clipboard: f.Clipboard, depth: f.depth + 1, screen: f.screen}
	if !bytes.Equal(g.Filter(inner), inner) || !g.quiet() {
		f.Clipped = f.Clipped || g.Clipped
		return drop
	}
	f.screen = g.screen
	return pass
}

// apc judges an application program command. Kitty's graphics must carry
// their data: a name of a file, which the terminal would open, and delete if
// asked to, is one of the host's.
func (f *Filter) apc(c byte, end bool) verdict {
	b := f.params()
	if len(b) == 0 || b[0] != 'G' {
		return pass
	}
	if f.Answered {
		return drop
	}
	if c != ';' && !end {
		return undecided
	}
	for _, arg := range bytes.Split(bytes.TrimSuffix(b[1:], []byte(";")), []byte(",")) {
		key, value, _ := bytes.Cut(bytes.TrimSpace(arg), []byte("="))
		if string(key) == "t" && string(value) != "d" {
			return drop
		}
	}
	return pass
}
