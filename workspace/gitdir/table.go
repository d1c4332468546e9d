// Package gitdir is the one table of what git keeps in a repository's own directory: names, and the shape
// that each has. It judges by a name, a kind and bytes, and touches no file itself.
//
// The table is an allowlist. What stands in it is what git makes in daily work, as regular files; what does
// not is foreign, whoever has made it and whatever for. The table does not judge configuration and hooks
// ([Config]): those are the matter of whoever pins them, or takes keys out of them.
//
// It promises that git, run by somebody else in a directory in which all is kept by this table, executes
// nothing and writes nowhere else than into its own directory and the working tree for what is there. It does
// not promise that commits, objects, logs and references are true: a run that may commit may forge them.
package gitdir

import (
	"fmt"
	"io/fs"
	"strings"

	"github.com/pccrun/pccrun/workspace/vcs"
)

// A Verdict says what becomes of a name that is new in a git directory, or has changed there.
type Verdict uint8

// The verdicts.
const (
	Foreign Verdict = iota // git keeps nothing there: into quarantine
	State                  // git acts on it when it goes on: into quarantine, also where it stood and was changed
	Keep                   // it stays, if its content has the shape; of a directory, what is in it is judged
	List                   // it stays with what belongs to it, and is reported
	Lock                   // somebody may be at work: it stays, and is reported
	Delete                 // git computes it again: it goes, and nobody hears of it
	Config                 // configuration, hooks and what leads to them: others look at that
	Nest                   // a directory that is a git directory of its own, or in which some lie: see [Nests]
)

// An Entry is what the table says of a name.
type Entry struct {
	Verdict Verdict
	Why     string // it is not kept, or is reported

	// Sound judges the content of a file of at most Limit bytes; nil where any content does.
	Sound func(b []byte, f vcs.Format) bool
	Limit int64
	Bad   string // why content that is not sound is not kept
}

// Why a name is not kept.
const (
	WhyForeign = "git has no file of that name there"
	whyLink    = "git would follow this link"
	whyRef     = "not a valid reference"
	whyIndex   = "git would write its entries outside the working tree or into .git; git reset makes a new index"

	whyLog     = "not a valid log of git"
	whyGoesOn  = "git would execute or write what it names at --continue"
	whyMerge   = "the next commit removes it"
	whyLock    = "git waits for this lock; remove it if no git is running"
	whyObjects = "git would read objects from other directories"
	whyRemote  = "git would read a remote's address from it"
	whyHistory = "git would show a different history"
	whyReplay  = "git would write its content into files at a similar conflict"
)

const (
	small = 1 << 20
	large = 64 << 20
)

type row struct {
	pattern string
	Entry
}

func kept(pattern string) row { return row{pattern, Entry{Verdict: Keep}} }

func shaped(pattern string, limit int64, sound func(b []byte, f vcs.Format) bool, bad string) row {
	return row{pattern, Entry{Verdict: Keep, Sound: sound, Limit: limit, Bad: bad}}
}

func ruled(pattern string, v Verdict, why string) row {
	return row{pattern, Entry{Verdict: v, Why: why}}
}

// table is the whole of it; the first row that matches counts. A pattern that ends in a slash is for
// directories, each other one for regular files. In a component, <hash> is the name of an object, <fan> and
// <object> the two parts of one that is loose, and * any text;
// a component ** stands for one or more of those of a reference's name.
var table = []row{
	shaped("HEAD", small, head, whyRef),
	shaped("ORIG_HEAD", small, ids, whyRef), shaped("REBASE_HEAD", small, ids, whyRef), shaped("AUTO_MERGE", small, ids, whyRef),
	shaped("FETCH_HEAD", large, func([]byte, vcs.Format) bool { return true }, whyRef), kept("COMMIT_EDITMSG"), kept("TAG_EDITMSG"), kept("SQUASH_MSG"), kept("MERGE_MSG"), kept("MERGE_MODE"), kept("description"),
	{"MERGE_HEAD", Entry{Verdict: List, Why: whyMerge, Sound: ids, Limit: small, Bad: whyRef}},
	{"CHERRY_PICK_HEAD", Entry{Verdict: List, Why: whyMerge, Sound: ids, Limit: small, Bad: whyRef}},
	{"REVERT_HEAD", Entry{Verdict: List, Why: whyMerge, Sound: ids, Limit: small, Bad: whyRef}},
	shaped("index", vcs.MaxGitIndex, SoundIndex, whyIndex), shaped("sharedindex.<hash>", vcs.MaxGitIndex, SoundIndex, whyIndex),
	shaped("shallow", large, ids, whyRef),

	ruled("refs/replace/", Foreign, whyHistory), ruled("refs/replace/**", Foreign, whyHistory),
	kept("refs/"), kept("refs/**/"), shaped("refs/**", small, ref, whyRef),
	shaped("packed-refs", large, packedRefs, whyRef),
	kept("reftable/"), kept("reftable/tables.list"), kept("reftable/0x*.ref"), kept("reftable/0x*.log"),
	kept("logs/"), shaped("logs/HEAD", large, log, whyLog), kept("logs/refs/"), kept("logs/refs/**/"), shaped("logs/refs/**", large, log, whyLog),

	kept("objects/"), kept("objects/<fan>/"), kept("objects/<fan>/<object>"),
	kept("objects/pack/"), kept("objects/pack/pack-<hash>.pack"), kept("objects/pack/pack-<hash>.idx"), kept("objects/pack/pack-<hash>.rev"),
	kept("objects/pack/pack-<hash>.mtimes"), kept("objects/pack/pack-<hash>.keep"), kept("objects/pack/pack-<hash>.promisor"),
	kept("objects/info/"), ruled("objects/info/alternates", State, whyObjects), ruled("objects/info/http-alternates", State, whyObjects),
	kept("objects/bundles/"), kept("objects/bundles/*"),

	kept("info/"), kept("info/exclude"), kept("info/sparse-checkout"), ruled("info/attributes", Config, ""), ruled("info/grafts", State, whyHistory),
	kept("branches/"), ruled("branches/*", State, whyRemote), kept("remotes/"), ruled("remotes/*", State, whyRemote),
	kept("hooks/"), kept("hooks/*.sample"), ruled("hooks/*", Config, ""),
	ruled("config", Config, ""), ruled("config.worktree", Config, ""),
	ruled("worktrees/", Nest, ""), ruled("modules/", Nest, ""), // and the directories in them, of any name
	kept("lfs/"), kept("lfs/**/"), kept("lfs/**"), // of git-lfs
	kept("opencode"), // the name that an agent gives the repository

	ruled("rebase-merge/", State, whyGoesOn), ruled("rebase-apply/", State, whyGoesOn), ruled("sequencer/", State, whyGoesOn), ruled("MERGE_AUTOSTASH", State, whyGoesOn),
	ruled("BISECT_*", State, whyGoesOn),
	// With rerere.enabled each commit makes these; they are empty unless there was a conflict.
	shaped("MERGE_RR", small, func(b []byte, _ vcs.Format) bool { return len(b) == 0 }, whyReplay), kept("rr-cache/"), ruled("rr-cache/*/", State, whyReplay), ruled("rr-cache/*/*", State, whyReplay),

	// What git writes before it has a name: somebody may be at it.
	kept("objects/pack/tmp_*"), kept("objects/pack/.tmp-*"), kept("sharedindex_*"), kept("shallow_*"), kept("packed-refs.new"),

	// What git computes again.
	ruled("objects/info/commit-graph", Delete, ""), ruled("objects/info/commit-graphs/", Delete, ""), ruled("objects/info/commit-graphs/*", Delete, ""), ruled("objects/info/packs", Delete, ""),
	ruled("objects/pack/multi-pack-index*", Delete, ""), ruled("objects/pack/multi-pack-index.d/", Delete, ""), ruled("objects/pack/multi-pack-index.d/*", Delete, ""), ruled("objects/pack/pack-<hash>.bitmap", Delete, ""),
	ruled("info/refs", Delete, ""), ruled("objects/<fan>/tmp_obj_*", Delete, ""), ruled("gc.log", Delete, ""), ruled("gc.pid", Lock, whyLock),
}

// ofWorktree are the names that a linked worktree's part of a repository has beside those.
var ofWorktree = []row{
	shaped("commondir", small, func(b []byte, _ vcs.Format) bool { return string(b) == "../..\n" }, "git would use the configuration of another repository"),
	ruled("gitdir", Config, ""), kept("locked"),
}

// shared are the names that a linked worktree has none of: git looks for them in the repository.
var shared = []string{"objects", "packed-refs", "shallow", "branches", "remotes", "lfs", "worktrees", "description"}

// maxDeep is how deep a name may be: git's own are not.
const maxDeep = 64

// Judge says what the table does of a name in a git directory, of that kind: the type bits of a mode. In that
// of a linked worktree, worktree is set.
func Judge(rel string, kind fs.FileMode, worktree bool) *Entry {
	first, _, _ := strings.Cut(rel, "/")
	switch {
	case kind.Type()&fs.ModeSymlink != 0:
		return &Entry{Why: whyLink}
	case strings.Count(rel, "/") >= maxDeep:
		return &Entry{Why: "git has no files so deep"}
	case kind.IsDir():
		rel += "/"
	case !kind.IsRegular():
		return &Entry{Why: WhyForeign}
	}
	if quarantine, rest, ok := strings.Cut(rel, "/"); ok && quarantine == "objects" {
		// Of whoever pushes at this moment; it goes by itself (tmp-objdir.c of git).
		name, rest, in := strings.Cut(rest, "/")
		if strings.HasPrefix(name, "tmp_objdir-") || strings.HasPrefix(name, "incoming-") {
			if rel = "objects/" + rest; !in {
				return &Entry{Why: WhyForeign}
			}
		}
	}
	if worktree {
		for _, name := range shared {
			if first == name {
				return &Entry{Why: WhyForeign}
			}
		}
		if e := find(ofWorktree, rel); e != nil {
			return e
		}
	}
	if e := find(table, rel); e != nil {
		return e
	}
	if name, is := strings.CutSuffix(rel, ".lock"); is {
		if e := find(table, name); e != nil && (e.Verdict == Keep || e.Verdict == List || e.Verdict == Config) {
			return &Entry{Verdict: Lock, Why: whyLock}
		}
	}
	if e := find(table, first+"/"); e != nil && (e.Verdict == State || e.Verdict == Nest && kind.IsDir()) { // what is in it goes with it
		return e
	}
	return &Entry{Why: WhyForeign}
}

// Nests reports whether a directory of that name is a git directory of its own if it looks like one: that of a
// submodule, or a linked worktree's part, which is one in any case.
func Nests(rel string) (may, worktree bool) {
	first, _, in := strings.Cut(rel, "/")
	return in && (first == "worktrees" || first == "modules"), in && first == "worktrees"
}

// IsFan reports whether a name is one of the directories over which git spreads its objects: they are many, and nothing
// but objects has been in one that the run has not changed.
func IsFan(rel string) bool {
	name, ok := strings.CutPrefix(rel, "objects/")
	return ok && vcs.IsFan(name)
}

// A Name is one in a git directory, as it was left there.
type Name struct {
	Rel  string
	Kind fs.FileMode
	Bare bool          // the git directory has another name than .git, and lies in none
	Fold bool          // the disk takes HOOKS for hooks
	Link func() string // where a link leads
	Read func(limit int64) ([]byte, vcs.Format, error)
}

// A Decision is what becomes of a name in a git directory.
type Decision struct {
	Why   string // it is not kept, "" if it is
	Note  string // it is kept, and this is reported
	What  string // of that: what it is, or holds
	Drop  bool   // git computes it again, and nobody needs it
	New   bool   // it is kept, and its repository did not stand: no rule for configuration and hooks holds there
	Plain []byte // what an index is to hold, nil for what it does: git computes the rest again

	Content []byte // by which it is kept
}

// Decide applies what the table says of a name that is new or has changed.
func (e *Entry) Decide(n *Name) (d Decision) {
	switch e.Verdict {
	case Delete:
		d.Drop = true
	case Lock, List:
		d.Note, d.What = e.Why, "new"
	case Foreign:
		// A directory of any name can be made to look like a repository; what else is in it is not git's to read.
		if n.Kind.Type()&fs.ModeSymlink != 0 && isLinkedRef(n.Rel, n.Link()) || n.Bare && !isOwn(n.Rel) && (!n.Fold || !isOwn(strings.ToLower(n.Rel))) {
			return d
		}
		d.Why = e.Why
	case State:
		d.Why = e.Why
	}
	if e.Sound == nil || !n.Kind.IsRegular() {
		return d
	}
	b, f, err := n.Read(e.Limit)
	if err != nil || !e.Sound(b, f) {
		return Decision{Why: e.Bad}
	}
	d.Content = b
	switch n.Rel {
	case "index":
		if plain, has, _ := PlainIndex(b, f, nil); has {
			d.Plain = plain
		}
	case "packed-refs":
		if odd, _ := oddRefs(b); len(odd) > 0 {
			d.Note, d.What = whyRef, fmt.Sprintf("holds %.100q", strings.Join(odd, ", "))
		}
	}
	return d
}

// isOwn reports whether a name in a git directory, or the directory that it lies in, is one that git reads there.
func isOwn(rel string) bool {
	first, _, _ := strings.Cut(rel, "/")
	first = strings.TrimSuffix(first, ".lock")
	for _, rows := range [][]row{table, ofWorktree} {
		for i := range rows {
			if part, _, _ := strings.Cut(rows[i].pattern, "/"); matchPart(part, first) {
				return true
			}
		}
	}
	return false
}

func find(rows []row, rel string) *Entry {
	for i := range rows {
		if p := rows[i].pattern; rel != "" && p[0] == rel[0] && match(p, rel) { // none begins with a token
			return &rows[i].Entry
		}
	}
	return nil
}

// match reports whether a path matches a pattern of the table.
func match(pattern, rel string) bool {
	for {
		part, more, deep := strings.Cut(pattern, "/")
		name, rest, below := strings.Cut(rel, "/")
		switch {
		case part == "**":
			for below && rest != "" && vcs.IsRefName(name) {
				name, rest, below = strings.Cut(rest, "/")
			}
			return vcs.IsRefName(name) && below == deep
		case !matchPart(part, name) || deep != below:
			return false
		case more == "" || rest == "":
			return more == rest
		}
		pattern, rel = more, rest
	}
}

func matchPart(part, name string) bool {
	i := strings.IndexAny(part, "<*")
	if i < 0 {
		return part == name
	}
	if !strings.HasPrefix(name, part[:i]) {
		return false
	}
	name = name[i:]
	kind, end := part[i:i+1], part[i+1:]
	if kind == "<" {
		kind, end, _ = strings.Cut(part[i+1:], ">")
	}
	name, ok := strings.CutSuffix(name, end)
	switch kind {
	case "hash":
		return ok && isHex(name, 40, 64)
	case "fan":
		return ok && isHex(name, 2, 2)
	case "object":
		return ok && isHex(name, 38, 62)
	}
	return ok
}

func isHex(s string, sizes ...int) bool {
	for _, n := range sizes {
		if len(s) == n {
			return strings.Trim(s, "0123456789abcdef") == ""
		}
	}
	return false
}
