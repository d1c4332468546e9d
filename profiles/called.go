package profiles

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// scripts are what an interpreter is given by name, executable or not.
var scripts = [...]string{".sh", ".bash", ".zsh", ".fish", ".py", ".js", ".mjs", ".cjs", ".ts", ".rb", ".pl", ".php", ".lua", ".ps1"}

// maxCalled bounds the files that are protected so: nobody has more.
const maxCalled = 256

// called protects the programs that the settings of an agent name in what the agent keeps for
// itself: hooks, a status line, servers. The settings cannot be changed from inside; what
// they name, under a name of the user's own, is what the agent outside starts next.
func (b *builder) called() {
	p := b.policy
	var settings []string
	for _, r := range p.Protect {
		switch filepath.Ext(r.Pattern) {
		case ".json", ".toml", ".yaml", ".yml":
			if strings.HasPrefix(r.Pattern, "/") && !r.Review {
				settings = append(settings, r.Pattern)
			}
		}
	}
	for _, f := range p.Keyed {
		settings = append(settings, f.Path)
	}
	n := 0
	for _, file := range settings {
		if p.Decide(file).Access < Read {
			continue // it is not the agent's of this run
		}
		text, err := readFile(file, followLinks)
		if err != nil {
			continue
		}
		for _, path := range mentioned(string(text), p.Home) {
			d := p.Decide(path)
			if d.Access != Write || !p.Recalls(d.Rule.Path, d.Rule) || n >= maxCalled {
				continue
			}
			if _, ok := p.Protected(path); ok {
				continue
			}
			if !runnable(path) {
				continue
			}
			n++
			p.Protect = append(p.Protect, ProtectRule{Pattern: path, Origin: Origin{Source: file, Key: "what it names"}})
		}
	}
}

// runnable reports whether a file is executed where a command names it: also one that is not
// there yet, by its name.
func runnable(path string) bool {
	script := slices.Contains(scripts[:], filepath.Ext(path))
	info, err := os.Stat(path)
	if err != nil {
		return script
	}
	return info.Mode().IsRegular() && (script || info.Mode()&0o111 != 0)
}

// mentioned returns the paths in a text of whatever format, but those to which a command in
// it writes (>> ~/.claude/log).
func mentioned(text, home string) (list []string) {
	text = strings.ReplaceAll(text, "${HOME}", "$HOME")
	into := false
	for text != "" {
		end := strings.IndexAny(text, " \t\r\n\"'`\\;&|()<>,=[]{}")
		word := text
		if end >= 0 {
			word = text[:end]
		}
		if word != "" {
			path := word
			for _, prefix := range [...]string{"~/", "$HOME/"} {
				if rest, is := strings.CutPrefix(word, prefix); is {
					path = home + "/" + rest
				}
			}
			if strings.HasPrefix(path, "/") && !into && !strings.ContainsAny(path, "*?\x00") {
				if path = filepath.Clean(path); !slices.Contains(list, path) {
					list = append(list, path)
				}
			}
			into = false
		}
		if end < 0 {
			break
		}
		switch text[end] {
		case '>':
			into = true
		case ' ', '\t', '"', '\'', '\\':
		default:
			into = false
		}
		text = text[end+1:]
	}
	return list
}
