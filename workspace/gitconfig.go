package workspace

import (
	"errors"
	"strings"
)

// A setting is one key of a git configuration, spelled as git compares it:
// section and key in lower case, the subsection as it stands.
type setting struct {
	section, sub, key string
	value             string // "" for a key without "=", which is true
	from, to          int    // where key and value stand in the file, with the end of the line
}

var errConfigSyntax = errors.New("not a git configuration")

// parseConfig reads a git configuration as git_parse_source in git's config.c
// does. What stood before a mistake is returned with the error: git acts on it
// too before it gives up.
func parseConfig(b []byte) ([]setting, error) {
	p := configParser{s: string(b)}
	if strings.HasPrefix(p.s, "\uFEFF") {
		p.i = len("\uFEFF")
	}
	var all []setting
	var cur setting
	named := false
	for {
		c := p.next()
		switch {
		case c == '\n':
			if p.eof {
				return all, nil
			}
		case isSpace(c):
		case c == '#' || c == ';':
			p.skipLine()
		case c == '[':
			section, sub, ok := p.header()
			if !ok {
				return all, errConfigSyntax
			}
			cur, named = setting{section: section, sub: sub}, true
		case isAlpha(c):
			cur.from = p.i - 1
			key, value, ok := p.pair(c)
			// A key before the first section has no name that git would know.
			if !ok || !named {
				return all, errConfigSyntax
			}
			cur.key, cur.value, cur.to = key, value, p.i
			all = append(all, cur)
		default:
			return all, errConfigSyntax
		}
	}
}

type configParser struct {
	s   string
	i   int
	eof bool
}

// next returns the next character; the end of the file is a newline, and so
// is CR LF.
func (p *configParser) next() byte {
	if p.i >= len(p.s) {
		p.eof = true
		return '\n'
	}
	c := p.s[p.i]
	p.i++
	if c == '\r' && p.i < len(p.s) && p.s[p.i] == '\n' {
		p.i++
		return '\n'
	}
	return c
}

func (p *configParser) skipLine() {
	for p.next() != '\n' {
	}
}

// header reads `section]`, `section.sub]` or `section "sub"]`.
func (p *configParser) header() (section, sub string, ok bool) {
	var name strings.Builder
	for {
		c := p.next()
		switch {
		case p.eof:
			return "", "", false
		case c == ']':
			section, sub, _ = strings.Cut(name.String(), ".")
			return section, sub, true
		case isSpace(c):
			for ; isSpace(c); c = p.next() {
				if c == '\n' {
					return "", "", false
				}
			}
			if c != '"' {
				return "", "", false
			}
			sub, ok := p.quoted()
			if !ok || p.next() != ']' {
				return "", "", false
			}
			// `[a.b "c"]` is section a, subsection b.c: git splits the whole
			// name at its first and its last dot.
			section, more, both := strings.Cut(name.String(), ".")
			if both {
				sub = more + "." + sub
			}
			return section, sub, true
		case isKeyChar(c) || c == '.':
			name.WriteByte(lower(c))
		default:
			return "", "", false
		}
	}
}

// quoted reads a subsection up to its closing quote.
func (p *configParser) quoted() (string, bool) {
	var sub strings.Builder
	for {
		c := p.next()
		switch c {
		case '\n':
			return "", false
		case '"':
			return sub.String(), true
		case '\\':
			if c = p.next(); c == '\n' {
				return "", false
			}
		}
		sub.WriteByte(c)
	}
}

// pair reads a key that begins with c, and its value.
func (p *configParser) pair(c byte) (key, value string, ok bool) {
	var name strings.Builder
	for ; !p.eof && isKeyChar(c); c = p.next() {
		name.WriteByte(lower(c))
	}
	for c == ' ' || c == '\t' {
		c = p.next()
	}
	switch c {
	case '\n':
		return name.String(), "", true
	case '=':
		value, ok = p.value()
		return name.String(), value, ok
	}
	return "", "", false
}

// value reads up to the end of the line: quotes, escapes, continued lines and
// comments. Blanks at both ends go; those in between stay as they are, as in
// git since 2.45. What follows a NUL is lost on git, which keeps C strings.
func (p *configParser) value() (string, bool) {
	var v strings.Builder
	var blanks string // seen, and kept if something follows
	quote := false
	for {
		c := p.next()
		switch {
		case c == '\n':
			s, _, _ := strings.Cut(v.String(), "\x00")
			return s, !quote
		case !quote && isSpace(c):
			if v.Len() > 0 {
				blanks += string(c)
			}
			continue
		case !quote && (c == '#' || c == ';'):
			p.skipLine()
			s, _, _ := strings.Cut(v.String(), "\x00")
			return s, true
		}
		v.WriteString(blanks)
		blanks = ""
		switch c {
		case '"':
			quote = !quote
		case '\\':
			switch c = p.next(); c {
			case '\n':
			case 't':
				v.WriteByte('\t')
			case 'b':
				v.WriteByte('\b')
			case 'n':
				v.WriteByte('\n')
			case '\\', '"':
				v.WriteByte(c)
			default:
				return "", false
			}
		default:
			v.WriteByte(c)
		}
	}
}

func isSpace(c byte) bool { return c == ' ' || c == '\t' || c == '\n' || c == '\r' }

func isAlpha(c byte) bool { return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' }

func isKeyChar(c byte) bool { return isAlpha(c) || '0' <= c && c <= '9' || c == '-' }

func lower(c byte) byte {
	if 'A' <= c && c <= 'Z' {
		c += 'a' - 'A'
	}
	return c
}

// A use says what git does with the value of a setting.
type use uint8

const (
	useNone    use = iota
	useCommand     // runs it, by a shell or as a program
	useInclude     // reads it as configuration
	useHooks       // runs what is in this directory
	useDir         // copies or reads what is in this directory
)

// use returns what git does with a setting's value: git help config, 2.51.
func (s *setting) use() use {
	switch s.section {
	case "include", "includeif":
		if s.key == "path" {
			return useInclude
		}
	case "core":
		switch s.key {
		case "hookspath":
			return useHooks
		case "fsmonitor", "sshcommand", "gitproxy", "askpass", "editor", "pager", "alternaterefscommand":
			return useCommand
		}
	case "init":
		if s.key == "templatedir" {
			return useDir
		}
	case "alias":
		if strings.HasPrefix(s.value, "!") {
			return useCommand
		}
	case "submodule":
		if s.key == "update" && strings.HasPrefix(s.value, "!") {
			return useCommand
		}
	case "credential":
		if s.key == "helper" {
			return useCommand
		}
	case "gpg":
		if s.key == "program" || s.key == "defaultkeycommand" {
			return useCommand
		}
	case "filter":
		if s.key == "clean" || s.key == "smudge" || s.key == "process" {
			return useCommand
		}
	case "diff":
		if s.key == "external" || s.key == "command" || s.key == "textconv" {
			return useCommand
		}
	case "merge":
		if s.key == "driver" {
			return useCommand
		}
	case "difftool", "mergetool", "guitool", "browser", "man":
		if s.key == "cmd" || s.key == "path" {
			return useCommand
		}
	case "pager", "hook":
		return useCommand
	case "remote":
		if s.key == "uploadpack" || s.key == "receivepack" {
			return useCommand
		}
	case "uploadpack":
		if s.key == "packobjectshook" {
			return useCommand
		}
	case "sequence":
		if s.key == "editor" {
			return useCommand
		}
	case "interactive":
		if s.key == "difffilter" {
			return useCommand
		}
	case "trailer":
		if s.key == "command" || s.key == "cmd" {
			return useCommand
		}
	case "tar":
		if s.key == "command" {
			return useCommand
		}
	case "gc":
		if s.key == "recentobjectshook" {
			return useCommand
		}
	case "sendemail":
		switch s.key {
		case "sendmailcmd", "tocmd", "cccmd", "headercmd", "smtpserver":
			return useCommand
		}
	case "imap":
		if s.key == "tunnel" {
			return useCommand
		}
	case "web", "instaweb", "help":
		if s.key == "browser" || s.key == "httpd" {
			return useCommand
		}
	}
	return useNone
}

// words splits a command as a shell would, so that each word can be looked at
// as a path. Expansions stay as they are written: a path that only a shell
// finds out is not found.
func words(command string) []string {
	var all []string
	var word strings.Builder
	begun := false
	var quote byte
	end := func() {
		if begun {
			all = append(all, word.String())
			word.Reset()
			begun = false
		}
	}
	for i := 0; i < len(command); i++ {
		c := command[i]
		switch {
		case quote != 0 && c == quote:
			quote = 0
		case quote == '\'':
			word.WriteByte(c)
		case c == '\\' && i+1 < len(command):
			i++
			word.WriteByte(command[i])
			begun = true
		case quote != 0:
			word.WriteByte(c)
		case c == '\'' || c == '"':
			quote, begun = c, true
		case strings.IndexByte(" \t\r\n;&|<>()!", c) >= 0:
			end()
		default:
			word.WriteByte(c)
			begun = true
		}
	}
	end()
	return all
}

// name returns the setting's full name.
func (s *setting) name() string {
	if s.sub == "" {
		return s.section + "." + s.key
	}
	return s.section + "." + s.sub + "." + s.key
}
