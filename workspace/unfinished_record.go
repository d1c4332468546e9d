package workspace

import (
	"errors"
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
	Stores   []string              // absolute: directories of objects, references and logs that it writes in with them
	Reviewed []string              // absolute: what is for review outside of the workspace
	Awaited  map[string]string     // absolute, and why: what is for review in the workspace and no pattern finds, directories and names that did not exist
	Covered  []Node                // absolute: directories that the command does not see, or sees empty; by path or, moved, by inode
	Hooks    []string              // relative to a working tree: where a configuration that stood makes git look for hooks
	Commands []string              // relative to a working tree: programs that a configuration that stood names
	Own      []string              // those among them that the user's own configuration names: they count in every repository
	Placed   []string              // absolute: what Hooks and Commands led to, where it stood and cannot be changed
	Known    []Known               // files whose change is told of
	Git      map[string]GitEntry   // absolute: what stood in git directories, see [Standing.noteGit]; nil if nobody knows
	Trees    map[string]LinkedTree // absolute: the parts of repositories that linked worktrees have, see [Guard.removed]
	Keys     map[string][]string   // of reviewed configurations of git: the settings that execute something, as name=value

	tips map[string]map[string][]byte // by directories of git: the files in which references stood; not in the record
}

// policy returns the rules of the record, under which the workspace can be written.
func (r *Standing) policy() *profiles.Policy {
	files := append([]profiles.FileRule{{Path: r.Root, Access: profiles.Write}}, r.Files...)
	return &profiles.Policy{Workspace: r.Root, Files: files}
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
	standingMagic = "pccrun record 5\n"
	standingEnd   = "\nend\n"
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

// A codec writes values one behind the other, or reads them back.
type codec struct {
	out     []byte
	in      string
	reading bool
	bad     bool // what was read is something else; all that follows is zero
}

// next is what stands behind the space or the newline before a value.
func (c *codec) next() string {
	if c.in == "" || c.bad {
		return ""
	}
	return c.in[1:]
}

// took goes on behind a value that was read, or none.
func (c *codec) took(rest string, ok bool) {
	c.in = rest
	if !ok {
		c.in, c.bad = "", true
	}
}

func (c *codec) num(n *uint64) {
	if !c.reading {
		c.out = strconv.AppendUint(append(c.out, ' '), *n, 10)
		return
	}
	rest := strings.TrimLeft(c.next(), "0123456789")
	var err error
	*n, err = strconv.ParseUint(strings.TrimSuffix(c.next(), rest), 10, 64)
	c.took(rest, err == nil)
}

// text writes a text quoted as in Go.
func (c *codec) text(s *string) {
	if !c.reading {
		c.out = appendQuoted(append(c.out, ' '), *s)
		return
	}
	quoted, err := strconv.QuotedPrefix(c.next())
	*s, _ = strconv.Unquote(quoted) // QuotedPrefix has checked it
	c.took(strings.TrimPrefix(c.next(), quoted), err == nil)
}

// number is a number of another type, up to some value.
func number[T ~uint8 | ~int64](c *codec, n *T, most T) {
	v := uint64(*n)
	if c.num(&v); v > uint64(most) {
		c.took("", false)
	}
	*n = T(v)
}

func (c *codec) flag(is *bool) {
	v := flag(*is)
	number(c, &v, 1)
	*is = v == 1
}

// count is that of entries, each of which takes some bytes. It begins a line.
func (c *codec) count(n uint64) uint64 {
	at := len(c.out)
	if c.num(&n); !c.reading {
		c.out[at] = '\n'
	} else if n > uint64(len(c.in))+1 {
		c.took("", false)
	}
	if c.bad {
		return 0
	}
	return n
}

func list[T any](c *codec, all *[]T, each func(*T)) {
	if n := c.count(uint64(len(*all))); c.reading && n > 0 {
		*all = make([]T, n)
	}
	for i := range *all {
		each(&(*all)[i])
	}
}

// table is a map by paths; nil for one of which nobody knows what was in it.
func table[T any](c *codec, all *map[string]T, each func(*T)) {
	n := uint64(len(*all))
	if *all != nil {
		n++
	}
	if n = c.count(n); !c.reading {
		for _, path := range slices.Sorted(maps.Keys(*all)) {
			value := (*all)[path]
			c.text(&path)
			each(&value)
		}
		return
	}
	if n > 0 {
		*all = map[string]T{}
	}
	for ; n > 1 && !c.bad; n-- {
		var path string
		var value T
		c.text(&path)
		each(&value)
		(*all)[path] = value
	}
}

// code writes all of a record, or reads it.
func (r *Standing) code(c *codec) {
	texts := func(all *[]string) { list(c, all, c.text) }
	node := func(n *Node) {
		c.text(&n.Path)
		number(c, &n.Kind, Special)
		c.num(&n.Dev)
		c.num(&n.Ino)
	}
	c.text(&r.Session)
	c.text(&r.Root)
	start := r.Start.UnixNano()
	if number(c, &start, -1); c.reading {
		r.Start = time.Unix(0, start)
	}
	list(c, &r.Files, func(f *profiles.FileRule) {
		c.text(&f.Path)
		c.text(&f.Glob)
		number(c, &f.Access, profiles.Write)
	})
	list(c, &r.Protect, func(p *profiles.ProtectRule) {
		c.text(&p.Pattern)
		c.flag(&p.Review)
		c.flag(&p.Home)
	})
	for _, all := range [...]*[]string{&r.Names, &r.Repos, &r.Shut, &r.Vacant, &r.GitDirs, &r.Stores, &r.Reviewed, &r.Hooks, &r.Commands, &r.Own, &r.Placed} {
		texts(all)
	}
	table(c, &r.Late, c.text)
	table(c, &r.Awaited, c.text)
	table(c, &r.Keys, texts)
	table(c, &r.Formats, func(f *vcs.Format) { number(c, f, vcs.FormatSHA256) })
	list(c, &r.Covered, node)
	list(c, &r.Known, func(k *Known) {
		node(&k.Node)
		number(c, &k.Ctime, -1)
		c.flag(&k.Pin)
		c.text(&k.Why)
	})
	table(c, &r.Git, func(e *GitEntry) {
		c.num(&e.Ino)
		c.num(&e.Sum)
	})
	table(c, &r.Trees, func(t *LinkedTree) {
		c.text(&t.File)
		c.num(&t.Ino)
	})
}

// Append appends the record's text.
func (r *Standing) Append(b []byte) []byte {
	c := codec{out: append(b, standingMagic...)}
	r.code(&c)
	return append(c.out, standingEnd...)
}

var (
	errNoStanding = errors.New("not a record of a run")
	errUnfinished = errors.New("the record was never finished")
)

// ParseStanding reads what [Standing.Append] wrote, and what stands behind its end.
// The error of a record that was cut short, whose command never started, is
// one that [Unfinished] knows.
func ParseStanding(text string) (*Standing, string, error) {
	body, ok := strings.CutPrefix(text, standingMagic)
	if !ok && !strings.HasPrefix(standingMagic, text) {
		return nil, "", errNoStanding
	}
	body, rest, whole := strings.Cut(body, standingEnd)
	if !ok || !whole {
		return nil, "", errUnfinished
	}
	r, c := &Standing{}, codec{in: body, reading: true}
	if r.code(&c); c.bad || c.in != "" {
		return nil, "", errNoStanding
	}
	return r, rest, nil
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

func flag(is bool) byte {
	if is {
		return 1
	}
	return 0
}

// A LinkedTree is a linked worktree that git could find when the run began.
type LinkedTree struct {
	File string // .git in it, which is pinned, absolute; "" where the command cannot write
	Ino  uint64
}
