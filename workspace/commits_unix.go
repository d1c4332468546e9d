//go:build linux || darwin

package workspace

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/workspace/beneath"
	"github.com/pccrun/pccrun/workspace/gitdir"
	"github.com/pccrun/pccrun/workspace/vcs"
)

// What git keeps in commits and in its index it writes into the working tree when it is asked for that (`git
// switch`, `restore`, `stash pop`), outside, where nobody quarantines a protected name. So git itself is asked, in a
// sandbox of its own, which protected names the run has brought there: in the commits between what references
// led to when it began and what they lead to now, and in the index.

const (
	inCommits = "git writes it at checkout, merge or stash pop"
	inIndex   = "git writes it at `git restore`, `checkout` and `stash`"
	unread    = "new commits there may contain protected names"
)

const (
	maxNamed  = 20     // paths of one repository that are reported one by one
	maxTips   = 50_000 // references of one repository
	maxPacked = 64 << 20
)

// EachTip calls yield with the files of a git directory in which its references are, as far as take, if there is one,
// accepts them.
func EachTip(gitDir string, take func(st *unix.Stat_t) bool, yield func(rel string, b []byte)) error {
	top, err := beneath.OpenDirectory(gitDir)
	if err != nil {
		return err
	}
	defer top.Close()
	files := 0
	var walk func(dir *os.File, rel string, only []string) error
	walk = func(dir *os.File, rel string, only []string) error {
		names := only
		if names == nil {
			var err error
			if names, err = dir.Readdirnames(-1); err != nil {
				return nil // it is gone: git sees nothing there either
			}
		}
		if files += len(names); files > maxTips || strings.Count(rel, "/") > maxNested {
			return ErrTooMuch
		}
		for _, name := range names {
			name, rest, deeper := strings.Cut(name, "/")
			var st unix.Stat_t
			if unix.Fstatat(int(dir.Fd()), name, &st, unix.AT_SYMLINK_NOFOLLOW) != nil {
				continue
			}
			if st.Mode&unix.S_IFMT == unix.S_IFREG {
				if take != nil && !take(&st) {
					continue
				}
				if b, err := beneath.ReadIn(int(dir.Fd()), name, maxPacked); err == nil {
					yield(rel+name, b)
				}
				continue
			}
			fd, err := beneath.Open(int(dir.Fd()), name, unix.O_RDONLY|unix.O_DIRECTORY)
			if err != nil {
				continue
			}
			only := []string(nil)
			if deeper {
				only = []string{rest}
			}
			in := os.NewFile(uintptr(fd), name)
			err = walk(in, rel+name+"/", only)
			in.Close()
			if err != nil {
				return err
			}
		}
		return nil
	}
	if err := walk(top, "", append(gitdir.Heads[:], "refs")); err != nil {
		return fmt.Errorf("%s/refs: %w", gitDir, err)
	}
	return nil
}

// maxNested is how deep the names of references, and of submodules, may be.
const maxNested = 64

// A Written is what a run has written into one repository.
type Written struct {
	Dir    string      // the git directory
	Tree   string      // where its paths begin
	Stood  bool        // it is not new
	Old    gitdir.Tips // what references led to when the run began; nil where nobody knows
	New    gitdir.Tips // what those lead to that the run has written
	Staged bool        // its index may list protected names that the working tree has not so
	Err    error       // why not all of that is known
}

// Commits is how protected names are found in what a run has committed, stashed and staged.
type Commits struct {
	Files    gitdir.Files
	Ask      AskGit
	Protects func(tree, path string, mode uint32) (pattern string)
	Has      func(path string, mode uint32, id string) bool // that is what the working tree has there
	Report   func(path, what, why string)
}

// Look reports the protected names of some repositories.
func (c *Commits) Look(list []Written) {
	var all [][]GitQuestion
	asked := map[string]bool{} // of what working trees share
	for i := range list {
		all = append(all, c.questions(&list[i], asked))
	}
	if c.Ask == nil {
		return
	}
	var answers []GitAnswer
	if questions := slices.Concat(all...); len(questions) > 0 {
		answers = c.Ask(questions)
	}
	for i := range list {
		n := min(len(all[i]), len(answers))
		c.report(&list[i], answers[:n])
		answers = answers[n:]
	}
}

// noTrust are the options with which git goes by the objects alone, and fetches none: what it has computed of them, and
// what stands in their place, a run can have written.
var noTrust = []string{"-c", "core.commitGraph=false", "-c", "core.multiPackIndex=false", "-c", "core.useReplaceRefs=false", "-c", "protocol.allow=never"}

// questions are what git is to be asked of a repository. What stood is no news.
func (c *Commits) questions(w *Written, asked map[string]bool) (list []GitQuestion) {
	common := c.Files.Common(w.Dir)
	q := GitQuestion{Dir: w.Dir, Read: append(c.Files.Stores(common+"/objects"), common)}
	ask := func(input string, args, other []string) {
		q.Input, q.Args, q.Else = input, slices.Concat(noTrust, args), nil
		if other != nil {
			q.Else = slices.Concat(noTrust, other)
		}
		list = append(list, q)
	}
	config, _ := c.Files.Read(common + "/config")
	format, _ := vcs.HashOf(config)
	diff := func(args ...string) []string { return append(args, gitdir.Raw...) }
	if some := slices.Sorted(maps.Keys(w.New)); !w.Stood && len(some) > 0 { // of what its history has been nobody speaks
		args := append(diff("diff-tree", "-r"), format.EmptyTree())
		ask("", append(args, "HEAD"), append(slices.Clone(args), some[0]))
	}
	fresh := maps.Clone(w.New)
	maps.DeleteFunc(fresh, func(id, _ string) bool { return w.Old[id] != "" || asked[common+id] })
	for id := range fresh {
		asked[common+id] = true
	}
	switch {
	case !w.Stood || len(fresh) == 0 || w.Err != nil:
	case w.Old == nil:
		w.Err = errors.New("nobody knows what references led to when the run began")
	default:
		var packed strings.Builder // or missing: git knows
		for id := range fresh {
			if _, err := c.Files.Read(common + "/objects/" + id[:2] + "/" + id[2:]); err != nil {
				packed.WriteString(id + "\n")
			}
		}
		if packed.Len() > 0 {
			ask(packed.String(), []string{"cat-file", "--batch-check"}, nil)
		}
		q.Shallow = c.ends(q, fresh)
		maps.Copy(w.New, fresh)
		args, input := fresh.Since(w.Old)
		ask(input, args, nil)
		q.Shallow = ""
	}
	if args := diff("diff-index", "--cached"); w.Staged {
		ask("", append(args, "HEAD"), append(slices.Clone(args), format.EmptyTree())) // before the first commit
	}
	return list
}

// ends returns where the history of a repository ends for want of objects, of the places that its file "shallow" names: a
// run can have written any into that. What is there behind such a commit becomes a tip.
func (c *Commits) ends(q GitQuestion, tips gitdir.Tips) string {
	text, _ := c.Files.Read(c.Files.Common(q.Dir) + "/shallow")
	if len(text) == 0 || c.Ask == nil {
		return ""
	}
	ask := func(input string, args ...string) []byte {
		q.Input, q.Args, q.Else = input, slices.Concat(noTrust, args), nil
		if answers := c.Ask([]GitQuestion{q}); len(answers) == 1 {
			return answers[0].Text
		}
		return nil
	}
	commits := map[string][]string{} // and their parents
	var parents strings.Builder
	for line := range strings.Lines(string(ask(string(text), "rev-list", "--no-walk", "--parents", "--ignore-missing", "--stdin"))) {
		if ids := strings.Fields(line); len(ids) > 1 {
			commits[ids[0]] = ids[1:]
			parents.WriteString(strings.Join(ids[1:], "\n") + "\n")
		}
	}
	gone := map[string]bool{}
	for line := range bytes.Lines(ask(parents.String(), "cat-file", "--batch-check")) {
		if id, missing := missing(line); missing {
			gone[id] = true
		}
	}
	var ends strings.Builder
	for _, id := range slices.Sorted(maps.Keys(commits)) {
		if !slices.ContainsFunc(commits[id], func(p string) bool { return gone[p] }) {
			continue
		}
		ends.WriteString(id + "\n")
		for _, p := range commits[id] {
			if !gone[p] {
				tips[p] = "shallow"
			}
		}
	}
	return ends.String()
}

// missing returns the name in a line by which git-cat-file(1) says that it has no such object.
func missing(line []byte) (id string, ok bool) {
	id, ok = strings.CutSuffix(string(line), " missing\n")
	return id, ok && gitdir.IsID(id)
}

// report reads the answers: what git would write, but for what stands there just so.
func (c *Commits) report(w *Written, answers []GitAnswer) {
	type brought struct{ path, pattern, where string }
	var found []brought
	for _, a := range answers {
		w.New.EachBrought(a.Text, func(b gitdir.Brought) {
			pattern := c.Protects(w.Tree, b.Path, b.Mode)
			if pattern == "" || slices.ContainsFunc(found, func(f brought) bool { return f.path == b.Path }) || c.Has(w.Tree+"/"+b.Path, b.Mode, b.ID) {
				return
			}
			found = append(found, brought{b.Path, pattern, b.Where})
		})
		for line := range bytes.Lines(a.Text) {
			if id, is := missing(line); is && w.Err == nil {
				w.Err = fmt.Errorf("%s leads to commit %s, which is missing", w.New[id], id[:12])
			}
		}
		w.Err = cmp.Or(w.Err, a.Err)
	}
	if w.Err != nil {
		c.Report(w.Dir, "cannot be read: "+strings.ReplaceAll(w.Err.Error(), "\n", "; "), unread)
	}
	if !w.Stood && len(found) > 0 { // a clone has what it has: one line
		var names []string
		for _, f := range found[:min(len(found), 5)] {
			names = append(names, f.path)
		}
		if n := len(found) - len(names); n > 0 {
			names = append(names, fmt.Sprintf("%d more", n))
		}
		c.Report(w.Dir, "its commits contain "+strings.Join(names, ", "), inCommits)
		return
	}
	for _, f := range found[:min(len(found), maxNamed)] {
		why := inCommits
		if f.where == "the index" {
			why = inIndex
		}
		c.Report(w.Tree+"/"+f.path, "in "+f.where, f.pattern+": "+why)
	}
	if n := len(found) - maxNamed; n > 0 {
		c.Report(w.Dir, fmt.Sprintf("%d more protected names in its commits", n), inCommits)
	}
}
