//go:build unix

package task

import (
	"path/filepath"
	"slices"
	"strings"

	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/run/askgit"
)

// A directory that a rule hides is empty for whoever works at a task: the files that git tracks there look deleted, and a commit
// would delete them. A file that a rule hides cannot be read: git would commit nothing at all.

// hides reports whether a rule hides a path of the work tree.
func hides(p *Placed, path string) bool {
	return p.order.Policy.Decide(filepath.Join(p.repo.top, path)).Access < profiles.Read
}

// indexSize bounds the list of what git tracks: two million files.
const indexSize = 256 << 20

// tracked returns the files of a git directory's index in directories that rules hide, and those that git passes over already.
func tracked(p *Placed, gitDir string) (hidden, skipped []string, err error) {
	text, err := p.repo.asks.Answer(p.stop.Hard, askgit.Call{Read: append(p.repo.dirs(), gitDir), Patience: patience, Args: []string{"--git-dir=" + gitDir, "ls-files", "-z", "-t"}}, indexSize)
	dirs := map[string]bool{".": false}
	for entry := range strings.SplitSeq(text, "\x00") {
		tag, path, is := strings.Cut(entry, " ")
		if !is {
			continue
		}
		dir := filepath.Dir(path)
		empty, known := dirs[dir]
		if !known {
			empty = hides(p, dir)
			dirs[dir] = empty
		}
		if empty {
			hidden = append(hidden, path)
		}
		if tag == "S" { // skip-worktree: git-update-index(1)
			skipped = append(skipped, path)
		}
	}
	return hidden, skipped, err
}

// passOver has git pass over the files of the clone in directories that rules hide now, and over no others.
func passOver(p *Placed) error {
	if p.task.InPlace {
		return nil
	}
	hidden, skipped, err := tracked(p, filepath.Join(p.task.Worktree, ".git"))
	if err != nil {
		return err
	}
	without := func(list, others []string) []string {
		return slices.DeleteFunc(slices.Clone(list), func(path string) bool { _, is := slices.BinarySearch(others, path); return is })
	}
	for _, change := range []struct {
		option string
		paths  []string
	}{{"--skip-worktree", without(hidden, skipped)}, {"--no-skip-worktree", without(skipped, hidden)}} {
		if len(change.paths) == 0 {
			continue
		}
		run := p.gitPhase("update-index", change.option, "-z", "--stdin")
		run.place, run.in = nil, strings.Join(change.paths, "\x00")+"\x00"
		o, err := run.runIn(p)
		if err == nil {
			err = o.refusal("git update-index")
		}
		if err != nil {
			return err
		}
	}
	if len(hidden) > 0 {
		p.to.Line(Count(len(hidden), "file") + " in directories that rules hide: the branch keeps them as they are")
	}
	return nil
}

// except are pathspecs for all but some paths, as git reads them from its standard input.
func except(paths []string) string {
	var b strings.Builder
	b.WriteString(":(top)\x00")
	for _, path := range paths {
		b.WriteString(":(top,exclude,literal)" + path + "\x00")
	}
	return b.String()
}
