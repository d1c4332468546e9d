//go:build linux || darwin

package postrun

import (
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/workspace"
	"github.com/pccrun/pccrun/workspace/gitdir"
	"github.com/pccrun/pccrun/workspace/quarantine"
	"github.com/pccrun/pccrun/workspace/vcs"
)

// A repository is to which commits the references of a git directory led, if that is known.
type repository struct {
	Tips  gitdir.Tips
	Known bool
}

// tipsOf returns the commits to which the references of a git directory lead, and of the one that it
// shares.
func tipsOf(gitDir string) (gitdir.Tips, error) {
	tips := gitdir.Tips{}
	for _, path := range slices.Compact([]string{gitDir, files.Common(gitDir)}) {
		if err := workspace.EachTip(path, nil, tips.Add); err != nil {
			return nil, err
		}
	}
	return tips, nil
}

// files reads repositories.
var files = gitdir.Files{Read: quarantine.ReadNow, Link: func(path string) string {
	to, _ := os.Readlink(path)
	return to
}}

// commits reports protected names in what the run has committed and staged.
func (c *check) commits(gitDirs []string) {
	var list []workspace.Written
	for _, dir := range gitDirs {
		old, stood := c.Repos[dir]
		if _, err := files.Read(dir + "/HEAD"); !stood && err != nil {
			continue // it was quarantined, or never was: to git that is no repository
		}
		w := workspace.Written{Dir: dir, Tree: files.Tree(dir), Stood: stood, Staged: c.another(dir + "/index")}
		if w.New, w.Err = tipsOf(dir); old.Known {
			w.Old = old.Tips
			if w.Old == nil { // gob leaves out what is empty
				w.Old = gitdir.Tips{}
			}
		}
		list = append(list, w)
	}
	look := workspace.Commits{Files: files, Ask: c.rules.AskGit, Has: c.has, Protects: c.protects, Report: func(path, what, why string) {
		c.note(quarantine.Finding{Path: path, What: what, Why: why}, nil, false)
	}}
	look.Look(list)
}

// another reports whether a file of a repository is not the one that stood.
func (c *check) another(path string) bool {
	var st unix.Stat_t
	err := unix.Lstat(path, &st)
	return err == nil && c.Stood[path] != stampOf(&st)
}

// protects returns the pattern that protects a path of a working tree, or a directory above it.
func (c *check) protects(tree, path string, _ uint32) string {
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
func (c *check) has(path string, _ uint32, id string) bool {
	content, err := quarantine.ReadNow(path)
	return err == nil && vcs.IsBlob(content, id)
}
