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
	Late     map[string]string     // absolute: names config.worktree that do not exist, and the configuration that does not have git read them (extensions.worktreeConfig)
	GitDirs  []string              // absolute: directories of git outside of the workspace that the command writes in
	Formats  map[string]vcs.Format // of those, as far as their configuration leaves no doubt: as root that is given up, nobody can read it at the end
	Closed   []string              // absolute: directories that root alone could look into, git directories or above some; where the launcher gives root up
	Stores   []string              // absolute: directories of objects, references and logs that it writes in with them
	Reviewed []string              // absolute: what is for review outside of the workspace
	Awaited  map[string]string     // absolute, and why: what is for review in the workspace and no pattern finds, directories and names that did not exist
	Covered  []Node                // absolute: directories that the command does not see, or sees empty; by path or, moved, by inode
	Hooks    []string              // relative to a working tree: where a configuration that stood makes git look for hooks
	Commands []string              // relative to a working tree: programs that a configuration that stood names
	Own      []string              // those among them that the user's own configuration names: they count in every repository
	Astray   []string              // relative to Root: .git files and links, and directories of git with a commondir, that led to nothing
	Placed   []string              // absolute: what Hooks and Commands led to, where it stood and cannot be changed
	Known    []Known               // files whose change is told of
	Linked   map[string]uint64     // relative: the inodes of directories with links, but for those that [Standing.lists] leaves out; nil if nobody knows
	Git      map[string]GitEntry   // absolute: what stood in git directories, see [Standing.noteGit]; nil if nobody knows
	Trees    map[string]LinkedTree // absolute: the .git files of linked worktrees that are not pinned, see [scan.unpinTrees]
	Held     map[string]uint64     // absolute: what is protected in those, or git executes there: the inode that stood
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

// A field is a kind of line in a record: a word, numbers, and texts, which are quoted as in Go. What writes it and
// what reads it stand beside each other.
type field struct {
	word           string
	numbers, texts int
	write          func(r *Standing, line func(n [4]uint64, s ...string))
	read           func(r *Standing, n [4]uint64, s []string) bool
}

// list is the field of a list of texts.
func list(word string, of func(r *Standing) *[]string) field {
	return field{word, 0, 1, func(r *Standing, line func([4]uint64, ...string)) {
		for _, text := range *of(r) {
			line([4]uint64{}, text)
		}
	}, func(r *Standing, _ [4]uint64, s []string) bool {
		*of(r) = append(*of(r), s[0])
		return true
	}}
}

// mapped is the field of a map by paths.
func mapped[T any](word string, numbers, texts int, of func(r *Standing) *map[string]T, write func(T) ([4]uint64, []string), read func(n [4]uint64, s []string) (T, bool)) field {
	return field{word, numbers, 1 + texts, func(r *Standing, line func([4]uint64, ...string)) {
		all := *of(r)
		for _, path := range slices.Sorted(maps.Keys(all)) {
			n, s := write(all[path])
			line(n, append([]string{path}, s...)...)
		}
	}, func(r *Standing, n [4]uint64, s []string) (ok bool) {
		all := of(r)
		if *all == nil {
			*all = map[string]T{}
		}
		(*all)[s[0]], ok = read(n, s[1:])
		return ok
	}}
}

func pairs(word string, of func(r *Standing) *map[string]string) field {
	return mapped(word, 0, 1, of, func(s string) ([4]uint64, []string) { return [4]uint64{}, []string{s} }, func(_ [4]uint64, s []string) (string, bool) { return s[0], true })
}

// known is the field that says of a map that it is one, however little is in it.
func known[T any](word string, of func(r *Standing) *map[string]T) field {
	return field{word, 0, 0, func(r *Standing, line func([4]uint64, ...string)) {
		if *of(r) != nil {
			line([4]uint64{})
		}
	}, func(r *Standing, _ [4]uint64, _ []string) bool {
		*of(r) = map[string]T{}
		return true
	}}
}

// knownFile is the field of files whose change is reported, pinned or not.
func knownFile(word string, pin bool) field {
	return field{word, 4, 2, func(r *Standing, line func([4]uint64, ...string)) {
		for _, k := range r.Known {
			if k.Pin == pin {
				line([4]uint64{uint64(k.Kind), k.Dev, k.Ino, uint64(k.Ctime)}, k.Path, k.Why)
			}
		}
	}, func(r *Standing, n [4]uint64, s []string) bool {
		r.Known = append(r.Known, Known{Node: Node{Path: s[0], Kind: Kind(n[0]), Dev: n[1], Ino: n[2]}, Ctime: int64(n[3]), Pin: pin, Why: s[1]})
		return n[0] <= uint64(Special)
	}}
}

// fields are all of a record.
func fields() []field {
	return []field{
		{"session", 0, 1, func(r *Standing, line func([4]uint64, ...string)) { line([4]uint64{}, r.Session) },
			func(r *Standing, _ [4]uint64, s []string) bool { r.Session = s[0]; return true }},
		{"root", 1, 1, func(r *Standing, line func([4]uint64, ...string)) {
			line([4]uint64{uint64(r.Start.UnixNano())}, r.Root)
		},
			func(r *Standing, n [4]uint64, s []string) bool {
				r.Root, r.Start = s[0], time.Unix(0, int64(n[0]))
				return true
			}},
		{"file", 1, 2, func(r *Standing, line func([4]uint64, ...string)) {
			for i := range r.Files {
				line([4]uint64{uint64(r.Files[i].Access)}, r.Files[i].Path, r.Files[i].Glob)
			}
		}, func(r *Standing, n [4]uint64, s []string) bool {
			r.Files = append(r.Files, profiles.FileRule{Path: s[0], Glob: s[1], Access: profiles.Access(n[0])})
			return n[0] <= uint64(profiles.Write)
		}},
		{"protect", 1, 1, func(r *Standing, line func([4]uint64, ...string)) {
			for i := range r.Protect {
				line([4]uint64{uint64(flag(r.Protect[i].Review))}, r.Protect[i].Pattern)
			}
		}, func(r *Standing, n [4]uint64, s []string) bool {
			r.Protect = append(r.Protect, profiles.ProtectRule{Pattern: s[0], Review: n[0] == 1})
			return true
		}},
		list("name", func(r *Standing) *[]string { return &r.Names }), list("repo", func(r *Standing) *[]string { return &r.Repos }),
		list("shut", func(r *Standing) *[]string { return &r.Shut }), list("vacant", func(r *Standing) *[]string { return &r.Vacant }),
		list("gitdir", func(r *Standing) *[]string { return &r.GitDirs }), list("store", func(r *Standing) *[]string { return &r.Stores }), list("closed", func(r *Standing) *[]string { return &r.Closed }),
		list("hooks", func(r *Standing) *[]string { return &r.Hooks }), list("command", func(r *Standing) *[]string { return &r.Commands }),
		list("own", func(r *Standing) *[]string { return &r.Own }), list("astray", func(r *Standing) *[]string { return &r.Astray }),
		list("placed", func(r *Standing) *[]string { return &r.Placed }), list("reviewed", func(r *Standing) *[]string { return &r.Reviewed }),
		pairs("awaited", func(r *Standing) *map[string]string { return &r.Awaited }), pairs("late", func(r *Standing) *map[string]string { return &r.Late }),
		mapped("format", 1, 0, func(r *Standing) *map[string]vcs.Format { return &r.Formats },
			func(f vcs.Format) ([4]uint64, []string) { return [4]uint64{uint64(f)}, nil },
			func(n [4]uint64, _ []string) (vcs.Format, bool) {
				return vcs.Format(n[0]), n[0] <= uint64(vcs.FormatSHA256)
			}),
		known("links", func(r *Standing) *map[string]uint64 { return &r.Linked }),
		mapped("linked", 1, 0, func(r *Standing) *map[string]uint64 { return &r.Linked },
			func(ino uint64) ([4]uint64, []string) { return [4]uint64{ino}, nil }, func(n [4]uint64, _ []string) (uint64, bool) { return n[0], true }),
		known("gits", func(r *Standing) *map[string]GitEntry { return &r.Git }),
		mapped("git", 2, 0, func(r *Standing) *map[string]GitEntry { return &r.Git },
			func(e GitEntry) ([4]uint64, []string) { return [4]uint64{e.Ino, e.Sum}, nil }, func(n [4]uint64, _ []string) (GitEntry, bool) { return GitEntry{n[0], n[1]}, true }),
		mapped("tree", 1, 1, func(r *Standing) *map[string]LinkedTree { return &r.Trees },
			func(t LinkedTree) ([4]uint64, []string) { return [4]uint64{t.Ino}, []string{t.Admin} },
			func(n [4]uint64, s []string) (LinkedTree, bool) { return LinkedTree{n[0], s[0]}, true }),
		mapped("held", 1, 0, func(r *Standing) *map[string]uint64 { return &r.Held },
			func(ino uint64) ([4]uint64, []string) { return [4]uint64{ino}, nil }, func(n [4]uint64, _ []string) (uint64, bool) { return n[0], true }),
		{"covered", 2, 1, func(r *Standing, line func([4]uint64, ...string)) {
			for _, n := range r.Covered {
				line([4]uint64{n.Dev, n.Ino}, n.Path)
			}
		}, func(r *Standing, n [4]uint64, s []string) bool {
			r.Covered = append(r.Covered, Node{Path: s[0], Kind: Dir, Dev: n[0], Ino: n[1]})
			return true
		}},
		knownFile("pin", true), knownFile("review", false),
		{"keys", 0, 1, func(r *Standing, line func([4]uint64, ...string)) {
			for _, path := range slices.Sorted(maps.Keys(r.Keys)) {
				line([4]uint64{}, path)
			}
		}, func(r *Standing, _ [4]uint64, s []string) bool {
			if r.Keys == nil {
				r.Keys = map[string][]string{}
			}
			r.Keys[s[0]] = []string{}
			return true
		}},
		{"key", 0, 2, func(r *Standing, line func([4]uint64, ...string)) {
			for _, path := range slices.Sorted(maps.Keys(r.Keys)) {
				for _, key := range r.Keys[path] {
					line([4]uint64{}, path, key)
				}
			}
		}, func(r *Standing, _ [4]uint64, s []string) bool {
			_, ok := r.Keys[s[0]]
			if ok {
				r.Keys[s[0]] = append(r.Keys[s[0]], s[1])
			}
			return ok
		}},
	}
}

// Append appends the record's text.
func (r *Standing) Append(b []byte) []byte {
	b = append(b, standingMagic...)
	for _, f := range fields() {
		f.write(r, func(n [4]uint64, s ...string) {
			b = append(b, f.word...)
			for _, n := range n[:f.numbers] {
				b = strconv.AppendUint(append(b, ' '), n, 10)
			}
			for _, s := range s {
				b = appendQuoted(append(b, ' '), s)
			}
			b = append(b, '\n')
		})
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
	table := map[string]field{}
	for _, f := range fields() {
		table[f.word] = f
	}
	for {
		line, more, ok := strings.Cut(rest, "\n")
		if !ok {
			return nil, "", errUnfinished
		}
		rest = more
		if line+"\n" == standingEnd {
			return r, rest, nil
		}
		word, values, _ := strings.Cut(line, " ")
		if f, ok := table[word]; !ok || !f.parse(r, values) {
			return nil, "", fmt.Errorf("%w: %q", errNoStanding, line)
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

// parse reads what stands behind the word.
func (f *field) parse(r *Standing, rest string) bool {
	var n [4]uint64
	for i := range f.numbers {
		var digits string
		var err error
		digits, rest, _ = strings.Cut(rest, " ")
		if n[i], err = strconv.ParseUint(digits, 10, 64); err != nil {
			return false
		}
	}
	s := make([]string, f.texts)
	for i := range s {
		quoted, err := strconv.QuotedPrefix(rest)
		if err != nil {
			return false
		}
		s[i], _ = strconv.Unquote(quoted) // QuotedPrefix has checked it
		if rest = rest[len(quoted):]; i+1 < len(s) {
			if rest, _ = strings.CutPrefix(rest, " "); rest == "" {
				return false
			}
		}
	}
	return rest == "" && f.read(r, n, s)
}

func flag(is bool) byte {
	if is {
		return 1
	}
	return 0
}

// A LinkedTree is a linked worktree of which what git makes is not pinned.
type LinkedTree struct {
	Ino   uint64 // of its directory
	Admin string // its part of the repository, absolute
}
