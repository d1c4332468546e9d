package workspace

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/workspace/vcs"
)

// A Standing is what stood in a workspace when a run began, as far as the look
// at its end needs it. It is written down before the command starts, so that
// the look can be made by somebody else if the launcher is killed.
type Standing struct {
	Session string    // of the run
	Root    string    // the workspace
	Start   time.Time // what has a ctime before it was not changed by the run
	Files   []profiles.FileRule
	Protect []profiles.ProtectRule

	Names    []string              // relative to Root: protected names that stood
	Repos    []string              // and directories of git
	Shut     []string              // and directories that could not be listed: they are hidden inside
	Vacant   []string              // absolute: names that no pattern finds, and that did not exist
	Late     map[string]string     // see [Found.Late]
	GitDirs  []string              // absolute: directories of git outside of the workspace that the command writes in
	Formats  map[string]vcs.Format // of those, as far as their configuration leaves no doubt: as root that is given up, nobody can read it at the end
	Stores   []string              // absolute: directories of objects, references and logs that it writes in with them
	Reviewed []string              // absolute: what is for review outside of the workspace
	Awaited  map[string]string     // absolute, and why: what is for review in the workspace and no pattern finds, directories and names that did not exist
	Covered  []Node                // absolute: directories that the command does not see, or sees empty; by path or, moved, by inode
	Hooks    []string              // relative to a working tree: where a configuration that stood makes git look for hooks
	Commands []string              // relative to a working tree: programs that a configuration that stood names
	Own      []string              // those among them that the user's own configuration names: they count in every repository
	Astray   []string              // relative to Root: .git files and links, and directories of git with a commondir, that led to nothing
	Placed   []string              // absolute: what Hooks and Commands led to, where it stood and cannot be changed
	Path     []string              // absolute: where the user's shell finds programs
	Known    []Known               // files whose change is told of
	Linked   map[string]uint64     // relative: the inodes of directories with links, but for those that [Standing.lists] leaves out; nil if nobody knows
	Inodes   map[string]uint64     // relative: those of directories of which [dir.tells] is true, and of Path; nil if nobody knows
	Recent   map[string]string     // relative: where links lead that came just before the start, and by their ctimes could be the command's
	Git      map[string]GitEntry   // absolute: what stood in git directories, see [Standing.noteGit]; nil if nobody knows
	Keys     map[string][]string   // of reviewed configurations of git: the settings that execute something, as name=value
}

// A GitEntry is what stood in a git directory when a run began.
type GitEntry struct {
	Ino uint64
	Sum uint64 // of inodes and ctimes of what git acts on; of what it does not read the kind
}

// A Known is a file that stood: one for review, or one that is pinned and
// cannot have been changed from inside.
type Known struct {
	Node
	Ctime int64 // nanoseconds
	Pin   bool
	Why   string
}

// standingMagic begins a record, standingEnd ends it: one without was never
// finished, and its command never started.
const (
	standingMagic = "pccrun record 2\n"
	standingEnd   = "end\n"
)

// appendQuoted is [strconv.AppendQuoteToASCII], which goes through a word letter by
// letter, for those that have nothing to escape: a launch writes some five hundred.
func appendQuoted(b []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c >= 0x7f || c == '"' || c == '\\' {
			return strconv.AppendQuoteToASCII(b, s)
		}
	}
	return append(append(append(b, '"'), s...), '"')
}

// Append appends the record's text: lines of words, of which those that
// anybody else chose are quoted as in Go.
func (r *Standing) Append(b []byte) []byte {
	b = append(b, standingMagic...)
	line := func(word string, numbers ...uint64) {
		b = append(b, word...)
		for _, n := range numbers {
			b = strconv.AppendUint(append(b, ' '), n, 10)
		}
	}
	text := func(list ...string) {
		for _, s := range list {
			b = appendQuoted(append(b, ' '), s)
		}
		b = append(b, '\n')
	}
	line("session")
	text(r.Session)
	line("root", uint64(r.Start.UnixNano()))
	text(r.Root)
	for i := range r.Files {
		line("file", uint64(r.Files[i].Access))
		text(r.Files[i].Path, r.Files[i].Glob)
	}
	for _, p := range r.Protect {
		review := uint64(0)
		if p.Review {
			review = 1
		}
		line("protect", review)
		text(p.Pattern)
	}
	for _, list := range [...]struct {
		word  string
		paths []string
	}{{"name", r.Names}, {"repo", r.Repos}, {"shut", r.Shut}, {"vacant", r.Vacant}, {"gitdir", r.GitDirs}, {"store", r.Stores}, {"hooks", r.Hooks}, {"command", r.Commands}, {"own", r.Own}, {"astray", r.Astray}, {"placed", r.Placed}, {"reviewed", r.Reviewed}, {"path", r.Path}} {
		for _, path := range list.paths {
			line(list.word)
			text(path)
		}
	}
	for _, path := range slices.Sorted(maps.Keys(r.Awaited)) {
		line("awaited")
		text(path, r.Awaited[path])
	}
	for _, path := range slices.Sorted(maps.Keys(r.Late)) {
		line("late")
		text(path, r.Late[path])
	}
	for _, path := range slices.Sorted(maps.Keys(r.Formats)) {
		line("format", uint64(r.Formats[path]))
		text(path)
	}
	for _, list := range [...]struct {
		known, word string
		inodes      map[string]uint64
	}{{"links", "linked", r.Linked}, {"inodes", "inode", r.Inodes}} {
		if list.inodes != nil { // which an empty one says as well
			line(list.known)
			text()
		}
		for _, path := range slices.Sorted(maps.Keys(list.inodes)) {
			line(list.word, list.inodes[path])
			text(path)
		}
	}
	for _, path := range slices.Sorted(maps.Keys(r.Recent)) {
		line("recent")
		text(path, r.Recent[path])
	}
	if r.Git != nil { // which an empty one says as well
		line("gits")
		text()
	}
	for _, path := range slices.Sorted(maps.Keys(r.Git)) {
		line("git", r.Git[path].Ino, r.Git[path].Sum)
		text(path)
	}
	for _, n := range r.Covered {
		line("covered", n.Dev, n.Ino)
		text(n.Path)
	}
	for _, k := range r.Known {
		word := "review"
		if k.Pin {
			word = "pin"
		}
		line(word, uint64(k.Kind), k.Dev, k.Ino, uint64(k.Ctime))
		text(k.Path, k.Why)
	}
	for _, path := range slices.Sorted(maps.Keys(r.Keys)) {
		line("keys")
		text(path)
		for _, key := range r.Keys[path] {
			line("key")
			text(path, key)
		}
	}
	return append(b, standingEnd...)
}

var (
	errNoStanding = errors.New("not a record of a run")
	errUnfinished = errors.New("the record was never finished")
)

// ParseStanding reads what [Standing.Append] wrote, and what stands behind its end.
// The error of a record that was cut short, whose command never started, is
// one that [Unfinished] knows.
func ParseStanding(text string) (*Standing, string, error) {
	rest, ok := strings.CutPrefix(text, standingMagic)
	if !ok {
		if strings.HasPrefix(standingMagic, text) {
			return nil, "", errUnfinished
		}
		return nil, "", errNoStanding
	}
	r := &Standing{}
	for {
		line, more, ok := strings.Cut(rest, "\n")
		if !ok {
			return nil, "", errUnfinished
		}
		rest = more
		if line+"\n" == standingEnd {
			return r, rest, nil
		}
		if err := r.line(line); err != nil {
			return nil, "", fmt.Errorf("%w: %q", err, line)
		}
	}
}

// ParseStandings reads the records of one run, one behind the other, and what stands
// behind the last.
func ParseStandings(text string) (list []*Standing, rest string, err error) {
	for {
		r, rest, err := ParseStanding(text)
		if err != nil {
			return nil, "", err
		}
		list = append(list, r)
		if rest == "" || rest[0] != standingMagic[0] {
			return list, rest, nil
		}
		text = rest
	}
}

// Unfinished reports whether an error says that a record was cut short.
func Unfinished(err error) bool { return errors.Is(err, errUnfinished) }

// standingShape is how many numbers and how many texts follow each word.
var standingShape = [...]struct {
	word           string
	numbers, texts int
}{
	{"session", 0, 1}, {"root", 1, 1}, {"file", 1, 2}, {"protect", 1, 1}, {"name", 0, 1}, {"repo", 0, 1}, {"shut", 0, 1}, {"vacant", 0, 1}, {"passing", 0, 1}, {"late", 0, 2}, {"gitdir", 0, 1}, {"format", 1, 1}, {"store", 0, 1}, {"hooks", 0, 1}, {"command", 0, 1}, {"own", 0, 1}, {"astray", 0, 1}, {"placed", 0, 1}, {"reviewed", 0, 1}, {"path", 0, 1}, {"awaited", 0, 2}, {"covered", 2, 1}, {"inward", 0, 0}, {"links", 0, 0}, {"linked", 1, 1}, {"inodes", 0, 0}, {"inode", 1, 1}, {"recent", 0, 2}, {"gits", 0, 0}, {"git", 2, 1},
	{"pin", 4, 2}, {"review", 4, 2}, {"keys", 0, 1}, {"key", 0, 2},
}

func (r *Standing) line(line string) error {
	word, rest, _ := strings.Cut(line, " ")
	for _, shape := range standingShape {
		if shape.word != word {
			continue
		}
		var n [4]uint64
		var s [2]string
		for i := range shape.numbers {
			var digits string
			var err error
			digits, rest, _ = strings.Cut(rest, " ")
			if n[i], err = strconv.ParseUint(digits, 10, 64); err != nil {
				return errNoStanding
			}
		}
		for i := range shape.texts {
			quoted, err := strconv.QuotedPrefix(rest)
			if err != nil {
				return errNoStanding
			}
			s[i], _ = strconv.Unquote(quoted) // QuotedPrefix has checked it
			if rest = rest[len(quoted):]; i+1 < shape.texts {
				if rest, _ = strings.CutPrefix(rest, " "); rest == "" {
					return errNoStanding
				}
			}
		}
		if rest != "" {
			return errNoStanding
		}
		return r.set(word, n, s)
	}
	return errNoStanding
}

func (r *Standing) set(word string, n [4]uint64, s [2]string) error {
	switch word {
	case "session":
		r.Session = s[0]
	case "root":
		r.Root, r.Start = s[0], time.Unix(0, int64(n[0]))
	case "file":
		if n[0] > uint64(profiles.Write) {
			return errNoStanding
		}
		r.Files = append(r.Files, profiles.FileRule{Path: s[0], Glob: s[1], Access: profiles.Access(n[0])})
	case "protect":
		r.Protect = append(r.Protect, profiles.ProtectRule{Pattern: s[0], Review: n[0] == 1})
	case "name":
		r.Names = append(r.Names, s[0])
	case "repo":
		r.Repos = append(r.Repos, s[0])
	case "shut":
		r.Shut = append(r.Shut, s[0])
	case "vacant":
		r.Vacant = append(r.Vacant, s[0])
	case "late":
		if r.Late == nil {
			r.Late = map[string]string{}
		}
		r.Late[s[0]] = s[1]
	case "gitdir":
		r.GitDirs = append(r.GitDirs, s[0])
	case "store":
		r.Stores = append(r.Stores, s[0])
	case "format":
		if n[0] > uint64(vcs.FormatSHA256) {
			return errNoStanding
		}
		if r.Formats == nil {
			r.Formats = map[string]vcs.Format{}
		}
		r.Formats[s[0]] = vcs.Format(n[0])
	case "hooks":
		r.Hooks = append(r.Hooks, s[0])
	case "command":
		r.Commands = append(r.Commands, s[0])
	case "own":
		r.Own = append(r.Own, s[0])
	case "astray":
		r.Astray = append(r.Astray, s[0])
	case "placed":
		r.Placed = append(r.Placed, s[0])
	case "reviewed":
		r.Reviewed = append(r.Reviewed, s[0])
	case "path":
		r.Path = append(r.Path, s[0])
	case "awaited":
		if r.Awaited == nil {
			r.Awaited = map[string]string{}
		}
		r.Awaited[s[0]] = s[1]
	case "links":
		r.Linked = map[string]uint64{}
	case "linked":
		if r.Linked == nil {
			return errNoStanding
		}
		r.Linked[s[0]] = n[0]
	case "inodes":
		r.Inodes = map[string]uint64{}
	case "inode":
		if r.Inodes == nil {
			return errNoStanding
		}
		r.Inodes[s[0]] = n[0]
	case "recent":
		if r.Recent == nil {
			r.Recent = map[string]string{}
		}
		r.Recent[s[0]] = s[1]
	case "gits":
		r.Git = map[string]GitEntry{}
	case "git":
		if r.Git == nil {
			return errNoStanding
		}
		r.Git[s[0]] = GitEntry{n[0], n[1]}
	case "covered":
		r.Covered = append(r.Covered, Node{Path: s[0], Kind: Dir, Dev: n[0], Ino: n[1]})
	case "pin", "review":
		if n[0] > uint64(Other) {
			return errNoStanding
		}
		node := Node{Path: s[0], Kind: Kind(n[0]), Dev: n[1], Ino: n[2]}
		r.Known = append(r.Known, Known{Node: node, Ctime: int64(n[3]), Pin: word == "pin", Why: s[1]})
	case "keys":
		if r.Keys == nil {
			r.Keys = map[string][]string{}
		}
		r.Keys[s[0]] = []string{}
	case "key":
		if _, ok := r.Keys[s[0]]; !ok {
			return errNoStanding
		}
		r.Keys[s[0]] = append(r.Keys[s[0]], s[1])
	}
	return nil
}
