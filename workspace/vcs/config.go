package vcs

import (
	"errors"
	"iter"
	"slices"
	"strings"
)

// A Setting is one key of a git configuration, spelled as git compares it:
// section and key in lower case, the subsection as it stands.
type Setting struct {
	Section, Sub, Key string
	Value             string
	Bare              bool // without "=": it is true
}

var errConfigSyntax = errors.New("not a git configuration")

// ParseConfig reads a git configuration as git_parse_source in git's config.c
// does. What stood before a mistake is returned with the error: git acts on it
// too before it gives up.
func ParseConfig(b []byte) ([]Setting, error) {
	c, err := ParseConfigPlaces(b)
	return c.Settings, err
}

// A Config is a configuration with where in its text it says what.
type Config struct {
	Settings []Setting
	Places   []Place // of each
	Headings []Heading
}

// A Place is a part of a text: of a setting its key and value, with the end of the line.
type Place struct{ From, To int }

// A Heading is where a section begins in a file: `[section "sub"]`.
type Heading struct {
	Section, Sub string
	Place            // of the brackets and what is between them
	First        int // the index of the first setting in it
}

// ParseConfigPlaces is [ParseConfig], and says where all of that stands.
func ParseConfigPlaces(b []byte) (all Config, err error) {
	p := configParser{s: string(b)}
	if strings.HasPrefix(p.s, "\uFEFF") {
		p.i = len("\uFEFF")
	}
	var cur Setting
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
			from := p.i - 1
			section, sub, ok := p.header()
			if !ok {
				return all, errConfigSyntax
			}
			cur, named = Setting{Section: section, Sub: sub}, true
			all.Headings = append(all.Headings, Heading{section, sub, Place{from, p.i}, len(all.Settings)})
		case isAlpha(c):
			from := p.i - 1
			// A key before the first section has no name that git would know.
			if !p.pair(c, &cur) || !named {
				return all, errConfigSyntax
			}
			all.Settings, all.Places = append(all.Settings, cur), append(all.Places, Place{from, p.i})
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
func (p *configParser) pair(c byte, s *Setting) (ok bool) {
	var name strings.Builder
	for ; !p.eof && isKeyChar(c); c = p.next() {
		name.WriteByte(lower(c))
	}
	for c == ' ' || c == '\t' {
		c = p.next()
	}
	s.Key, s.Value, s.Bare = name.String(), "", c == '\n'
	if c == '=' {
		s.Value, ok = p.value()
	}
	return ok || s.Bare
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

// A Use says what git does with the value of a setting.
type Use uint8

const (
	UseNone    Use = iota
	UseCommand     // runs it, by a shell or as a program
	UseInclude     // reads it as configuration
	UseHooks       // runs what is in this directory
	UseDir         // copies or reads what is in this directory
)

// commandKeys are the keys whose value is run, with any subsection, and after them those of other programs that work in a
// repository: git-annex, git-svn, git-secrets. In pager and hook each key is one.
const commandKeys = " core.fsmonitor core.sshcommand core.gitproxy core.askpass core.editor core.pager core.alternaterefscommand " +
	"credential.helper gpg.program gpg.defaultkeycommand filter.clean filter.smudge filter.process " +
	"diff.external diff.command diff.textconv merge.driver remote.uploadpack remote.receivepack uploadpack.packobjectshook " +
	"difftool.cmd difftool.path mergetool.cmd mergetool.path guitool.cmd guitool.path browser.cmd browser.path man.cmd man.path " +
	"sequence.editor interactive.difffilter trailer.command trailer.cmd tar.command gc.recentobjectshook " +
	"sendemail.sendmailcmd sendemail.tocmd sendemail.cccmd sendemail.headercmd sendemail.smtpserver imap.tunnel " +
	"web.browser web.httpd instaweb.browser instaweb.httpd help.browser help.httpd " +
	"svn.authorsprog svn-remote.authorsprog secrets.providers "

// Use returns what git does with a setting's value: git help config, 2.51.
func (s *Setting) Use() Use {
	name := s.Section + "." + s.Key
	switch s.Section {
	case "include", "includeif":
		if s.Key == "path" {
			return UseInclude
		}
	case "alias", "submodule":
		if (s.Section == "alias" || s.Key == "update") && strings.HasPrefix(s.Value, "!") {
			return UseCommand
		}
	case "pager", "hook":
		return UseCommand
	case "remote", "annex":
		if annexed(s.Key) || (s.Key == "url" || s.Key == "pushurl") && strings.HasPrefix(s.Value, external) {
			return UseCommand
		}
	case "lfs":
		if kind, _, _ := strings.Cut(s.Sub, "."); kind == "customtransfer" || kind == "extension" {
			return UseCommand
		}
	}
	switch {
	case name == "core.hookspath", name == "gitflow.hooks" && s.Sub == "path":
		return UseHooks
	case name == "init.templatedir":
		return UseDir
	case strings.Contains(commandKeys, " "+name+" "):
		return UseCommand
	}
	return UseNone
}

// external is what an address begins with that is a command: git-remote-ext(1).
const external = "ext::"

// annexed reports whether git-annex runs what a key of its own says.
func annexed(key string) bool {
	return strings.HasSuffix(key, "-command") || strings.HasSuffix(key, "-hook")
}

// Command returns what a setting has git run.
func (s *Setting) Command() string {
	return strings.TrimPrefix(strings.TrimPrefix(s.Value, "!"), external)
}

// shellWords splits a command as a shell would, so that each word can be looked at
// as a path. Expansions stay as they are written: a path that only a shell
// finds out is not found.
func shellWords(command string) []string {
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

// maxNested is how deep commands are looked for in words of commands.
const maxNested = 4

// Mentioned returns the words of a command, each with whether it is a program that the
// command starts from a path, or the script of an interpreter. A word in which there are
// several is a command as well, which a shell is given (sh -c 'tools/clean %f').
func Mentioned(command string) iter.Seq2[string, bool] {
	return func(yield func(string, bool) bool) { mentioned(command, maxNested, yield) }
}

func mentioned(command string, deep int, yield func(string, bool) bool) bool {
	words := shellWords(command)
	for k, word := range words {
		program := k == 0 && strings.Contains(word, "/") || k > 0 && Interprets(words[k-1]) && !strings.HasPrefix(word, "-")
		if !yield(word, program) {
			return false
		}
		if deep > 0 && len(shellWords(word)) > 1 && !mentioned(word, deep-1, yield) {
			return false
		}
	}
	return true
}

// Interprets reports whether a word of a command names a program that executes the file
// which the next word names.
func Interprets(word string) bool {
	name := strings.TrimRight(word[strings.LastIndexByte(word, '/')+1:], "0123456789.")
	switch name {
	case "sh", "bash", "dash", "ash", "zsh", "ksh", "fish", "python", "perl", "ruby", "node", "nodejs", "bun", "deno", "php", "lua", "tclsh", "Rscript", "pwsh", "source":
		return true
	}
	return word == "."
}

// SameSettings reports whether two configurations say the same, wherever they have the
// working tree.
func SameSettings(a, b []byte) bool {
	said := func(text []byte) ([]Setting, error) {
		all, err := ParseConfig(text)
		return slices.DeleteFunc(all, func(s Setting) bool { return s.Places() }), err
	}
	x, err := said(a)
	y, e := said(b)
	return slices.Equal(x, y) && (err == nil) == (e == nil)
}

// Name returns the setting's full name.
func (s *Setting) Name() string {
	if s.Sub == "" {
		return s.Section + "." + s.Key
	}
	return s.Section + "." + s.Sub + "." + s.Key
}

// read are the settings that name a file or directory which git, or a program of its own, reads
// as text, and which is no secret: git help config, 2.51. Left out are sslKey, sslCert and
// cookieFile of http, smtpSSLClientKey of sendemail and their like, and what git writes.
var read = strings.Fields(`
	blame.ignorerevsfile commit.template core.attributesfile core.excludesfile diff.orderfile
	fsck.skiplist fetch.fsck.skiplist receive.fsck.skiplist format.signaturefile
	gpg.allowedsignersfile gpg.revocationfile http.sslcainfo http.sslcapath http.proxysslcainfo http.pinnedpubkey
	instaweb.modulepath mailmap.file sendemail.aliasesfile sendemail.mailmap.file sendemail.smtpsslcertpath help.htmlpath
`)

// Reads returns the file that a setting has git read, as text, "" for none. A name that
// begins with :(optional) need not be there.
func (s *Setting) Reads() string {
	value := strings.TrimPrefix(s.Value, ":(optional)")
	switch {
	case s.Section == "user" && s.Key == "signingkey":
		// The key itself is the agent's: ssh-keygen wants to know which.
		if !strings.HasPrefix(value, "/") && !strings.HasPrefix(value, "~/") {
			return ""
		}
		return strings.TrimSuffix(value, ".pub") + ".pub"
	case slices.Contains(read, s.Section+"."+s.Key) || slices.Contains(read, s.Name()):
		return value
	}
	return ""
}

// Certifies reports whether that is a file of certificate authorities, for every host.
func (s *Setting) Certifies() bool {
	return s.Section == "http" && s.Sub == "" && (s.Key == "sslcainfo" || s.Key == "proxysslcainfo")
}
