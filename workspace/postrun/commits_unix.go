//go:build linux || darwin

package postrun

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/workspace"
	"github.com/pccrun/pccrun/workspace/gitdir"
	"github.com/pccrun/pccrun/workspace/quarantine"
	"github.com/pccrun/pccrun/workspace/vcs"
)

const (
	maxTips   = 50_000 // references of one repository
	maxPacked = 64 << 20
	maxNamed  = 20 // paths of one repository that are reported one by one
)

// A repository is to which commits the references of a git directory led, if that is known.
type repository struct {
	Tips  gitdir.Tips
	Known bool
}

// tipsOf returns the commits to which the references of a git directory lead, and of the one that it
// shares.
func tipsOf(gitDir string) (gitdir.Tips, error) {
	tips, names := gitdir.Tips{}, 0
	for _, dir := range slices.Compact([]string{gitDir, files.Common(gitDir)}) {
		root, err := os.OpenRoot(dir)
		if err != nil {
			return nil, err
		}
		defer root.Close()
		read := func(name string) error {
			if info, err := root.Lstat(name); err != nil || !info.Mode().IsRegular() || info.Size() > maxPacked {
				return nil // git takes it for none either
			}
			b, err := root.ReadFile(name)
			tips.Add(name, b)
			return err
		}
		for _, name := range gitdir.Heads {
			if err := read(name); err != nil {
				return nil, err
			}
		}
		err = fs.WalkDir(root.FS(), "refs", func(name string, _ fs.DirEntry, err error) error {
			if names++; names > maxTips {
				return workspace.ErrTooMuch
			}
			if err != nil {
				return nil // of a directory that is gone, or closed: git does not see it either
			}
			return read(name)
		})
		if err != nil {
			return nil, fmt.Errorf("%s/refs: %w", dir, err)
		}
	}
	return tips, nil
}

// files reads repositories.
var files = gitdir.Files{Read: quarantine.ReadNow, Link: func(path string) string {
	to, _ := os.Readlink(path)
	return to
}}

// A query is what git is asked of one repository.
type query struct {
	gitDir    string
	tips      gitdir.Tips // that are new
	questions []workspace.GitQuestion
	err       error
}

// commits reports protected names in what the run has committed and staged: git writes them when it is
// asked for that, outside, where nobody quarantines them.
func (c *check) commits(gitDirs []string) error {
	var queries []*query
	var questions []workspace.GitQuestion
	asked := map[string]bool{} // of what working trees share
	for _, dir := range gitDirs {
		old, stood := c.Repos[dir]
		if !stood { // what comes of those that did is not new
			old = repository{gitdir.Tips{}, true}
			for _, other := range c.Repos {
				maps.Copy(old.Tips, other.Tips)
			}
		}
		q := &query{gitDir: dir}
		queries = append(queries, q)
		now, err := tipsOf(dir)
		if q.err = err; err == nil && !old.Known {
			q.err = errors.New("nobody knows what references led to when the run began")
		}
		common := files.Common(dir)
		ask := func(input string, args, other []string) {
			read := append(files.Stores(common+"/objects"), common)
			q.questions = append(q.questions, workspace.GitQuestion{Dir: dir, Read: read, Args: args, Else: other, Input: input})
		}
		q.tips = maps.Clone(now)
		maps.DeleteFunc(q.tips, func(id, _ string) bool { return old.Tips[id] != "" || asked[common+id] })
		for id := range q.tips {
			asked[common+id] = true
		}
		if q.err == nil && len(q.tips) > 0 {
			args, input := q.tips.Since(old.Tips)
			ask(input, args, nil)
		}
		if c.indexed(dir) {
			config, _ := files.Read(common + "/config")
			format, _ := vcs.HashOf(config)
			args := append([]string{"diff-index", "--cached"}, gitdir.Raw...)
			ask("", append(args, "HEAD"), append(slices.Clone(args), format.EmptyTree())) // before the first commit
		}
		questions = append(questions, q.questions...)
	}
	var answers []workspace.GitAnswer
	if len(questions) > 0 && c.rules.AskGit != nil {
		answers = c.rules.AskGit(questions)
	}
	var errs []error
	for _, q := range queries {
		found := map[string]bool{}
		report := func(b gitdir.Brought) {
			pattern := c.protects(files.Tree(q.gitDir), b.Path)
			if pattern == "" || found[b.Path] || c.has(files.Tree(q.gitDir)+"/"+b.Path, b) {
				return
			}
			if found[b.Path] = true; len(found) <= maxNamed {
				why := pattern + ": git writes it at checkout, merge or stash pop"
				errs = append(errs, c.note(quarantine.Finding{Path: files.Tree(q.gitDir) + "/" + b.Path, What: "in " + b.Where, Why: why}, nil, false))
			}
		}
		n := min(len(q.questions), len(answers))
		for _, a := range answers[:n] {
			q.tips.EachBrought(a.Text, report)
			q.err = cmp.Or(q.err, a.Err)
		}
		answers = answers[n:]
		if more := len(found) - maxNamed; more > 0 {
			q.err = errors.Join(q.err, fmt.Errorf("%d more protected names", more))
		}
		if q.err != nil {
			what := "cannot be read: " + strings.ReplaceAll(q.err.Error(), "\n", "; ")
			errs = append(errs, c.note(quarantine.Finding{Path: q.gitDir, What: what, Why: "new commits there may contain protected names"}, nil, false))
		}
	}
	return errors.Join(errs...)
}

// indexed reports whether the index of a repository is another than it was.
func (c *check) indexed(gitDir string) bool {
	var st unix.Stat_t
	err := unix.Lstat(gitDir+"/index", &st)
	return err == nil && c.Stood[gitDir+"/index"] != stampOf(&st)
}

// protects returns the pattern that protects a path of a working tree, or a directory above it.
func (c *check) protects(tree, path string) string {
	for i := range len(path) + 1 {
		if i == len(path) || path[i] == '/' {
			if pattern, review, is := c.rules.Protected(tree + "/" + path[:i]); is && !review {
				return pattern
			}
		}
	}
	return ""
}

// has reports whether a path holds just what git would write.
func (c *check) has(path string, b gitdir.Brought) bool {
	content, err := quarantine.ReadNow(path)
	format := vcs.FormatSHA1
	if len(b.ID) == vcs.FormatSHA256.Digits() {
		format = vcs.FormatSHA256
	}
	return err == nil && format.BlobID(content) == b.ID
}
