package filesync

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
)

// An ignorePattern is one line of an ignore file (gitignore(5)).
type ignorePattern struct {
	text    string // without the marks around it
	literal int    // how many bytes of it stand before the first wildcard
	negated bool
	dir     bool // for directories only
	name    bool // for the last name of a path, at any depth
	line    int
}

// parseIgnore reads an ignore file as git's dir.c does.
func parseIgnore(text string) (list []ignorePattern) {
	text = strings.TrimPrefix(text, "\ufeff")
	number := 0
	for line := range strings.SplitSeq(text, "\n") {
		number++
		line = trimSpaces(strings.TrimSuffix(line, "\r"))
		if line == "" || line[0] == '#' {
			continue
		}
		p := ignorePattern{line: number}
		line, p.negated = strings.CutPrefix(line, "!")
		line, p.dir = strings.CutSuffix(line, "/")
		if line == "" {
			continue
		}
		p.name = strings.IndexByte(line, '/') < 0
		p.text = strings.TrimPrefix(line, "/")
		if p.literal = strings.IndexAny(p.text, `*?[\`); p.literal < 0 {
			p.literal = len(p.text)
		}
		list = append(list, p)
	}
	return list
}

// trimSpaces takes the spaces at the end away that no backslash keeps.
func trimSpaces(line string) string {
	end := -1
	for i := 0; i < len(line); i++ {
		switch line[i] {
		case ' ':
			if end < 0 {
				end = i
			}
		case '\\':
			if i++; i == len(line) {
				return line
			}
			end = -1
		default:
			end = -1
		}
	}
	if end >= 0 {
		return line[:end]
	}
	return line
}

// matches reports whether a pattern names a path, relative to the directory of its file.
func (p *ignorePattern) matches(rel string, isDir bool) bool {
	if p.dir && !isDir {
		return false
	}
	if p.name {
		rel = rel[strings.LastIndexByte(rel, '/')+1:]
	}
	if !strings.HasPrefix(rel, p.text[:p.literal]) {
		return false
	}
	if p.literal == len(p.text) {
		return len(rel) == p.literal
	}
	if p.name {
		return wildmatch(p.text, rel)
	}
	// What stands before the first wildcard is cut off, as git does: a `**` that follows it
	// begins a pattern then.
	return wildmatch(p.text[p.literal:], rel[p.literal:])
}

// An Ignore is what the ignore files of one kind say of a tree. It is a value of their texts.
type Ignore struct {
	name  string                     // of the files
	files map[string][]ignorePattern // by the directory that a file lies in, "" for the top
	below []ignoreFile               // of lower precedence, the first first
	under string                     // where the tree lies in what the paths of files are relative to
}

type ignoreFile struct {
	name     string
	patterns []ignorePattern
}

// newIgnore returns one without files.
func newIgnore(name, under string) *Ignore {
	return &Ignore{name: name, under: under, files: map[string][]ignorePattern{}}
}

// ParseIgnore makes one of the texts of files, by the directories that they lie in, "" for the top.
func ParseIgnore(name string, files map[string]string) *Ignore {
	g := newIgnore(name, "")
	for dir, text := range files {
		g.add(dir, text)
	}
	return g
}

func (g *Ignore) add(dir, text string) {
	if list := parseIgnore(text); len(list) > 0 {
		g.files[dir] = list
	}
}

// Excluded says by which line a path is left out, or a directory above it; "" if by none.
func (g *Ignore) Excluded(rel string, isDir bool) string {
	for i := 0; i < len(rel); i++ {
		if rel[i] == '/' {
			if why := g.own(rel[:i], true); why != "" {
				return why
			}
		}
	}
	return g.own(rel, isDir)
}

// Selection returns whether patterns select a path. Each is a line of an ignore file, and selects a directory
// with all in it; one with ! leaves out, whatever selects. Without any that selects, all else is selected.
func Selection(patterns []string) (func(rel string, isDir bool) bool, error) {
	var in, out []string
	for _, p := range patterns {
		list := &in
		line, negated := strings.CutPrefix(p, "!")
		if negated {
			list = &out
		}
		if one := parseIgnore(line); strings.Contains(p, "\n") || len(one) != 1 || one[0].negated {
			return nil, fmt.Errorf("pattern %q: gitignore has none like it", p)
		}
		*list = append(*list, line)
	}
	parse := func(list []string) *Ignore { return ParseIgnore("", map[string]string{"": strings.Join(list, "\n")}) }
	selects, leaves := parse(in), parse(out)
	return func(rel string, isDir bool) bool {
		return (len(in) == 0 || selects.Excluded(rel, isDir) != "") && leaves.Excluded(rel, isDir) == ""
	}, nil
}

// own is Excluded, for a path whose directories are not.
func (g *Ignore) own(rel string, isDir bool) string {
	if len(g.files) == 0 && len(g.below) == 0 {
		return ""
	}
	full := path.Join(g.under, rel)
	for dir := parentOf(full); ; dir = parentOf(dir) {
		if list := g.files[dir]; list != nil {
			in := full
			if dir != "" {
				in = full[len(dir)+1:]
			}
			if p := lastMatch(list, in, isDir); p != nil {
				return p.why(path.Join(dir, g.name))
			}
		}
		if dir == "" {
			break
		}
	}
	for _, f := range g.below {
		if p := lastMatch(f.patterns, full, isDir); p != nil {
			return p.why(f.name)
		}
	}
	return ""
}

func (p *ignorePattern) why(file string) string {
	if p.negated {
		return ""
	}
	return file + ":" + strconv.Itoa(p.line)
}

func lastMatch(list []ignorePattern, rel string, isDir bool) *ignorePattern {
	for i := range slices.Backward(list) {
		if list[i].matches(rel, isDir) {
			return &list[i]
		}
	}
	return nil
}

// parentOf returns the directory of a path, "" for the top.
func parentOf(rel string) string { return rel[:max(0, strings.LastIndexByte(rel, '/'))] }

// IsIgnoreFile reports whether a name is that of an ignore file.
func IsIgnoreFile(name string) bool {
	return name == gitIgnore || name == e2bIgnore || name == pccrunIgnore
}
