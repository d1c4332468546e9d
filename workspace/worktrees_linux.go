package workspace

import (
	"path/filepath"
	"slices"

	"github.com/pccrun/pccrun/workspace/vcs"
)

// treesOf returns the directories whose .git file or link leads to a repository's.
func (i *inerter) treesOf(gitDir string) (list []string) {
	for _, g := range i.guard.peers {
		k := i.at(g.standing.Root)
		if k.trees == nil {
			k.trees = map[string][]string{}
			k.scan.steps = 0
			g.rules.suspects(g.tree, func(s suspect) {
				if s.kind != isRepo || s.hit.name == "" {
					return
				}
				path := k.scan.abs(s.rel)
				t, _, far, err := k.repository(path)
				if far {
					k.fail(path, err)
				}
				k.trees[t.end.Path] = append(k.trees[t.end.Path], filepath.Dir(path))
			})
		}
		list = append(list, k.trees[gitDir]...)
	}
	return list
}

// saidOf returns what a repository's directory says where its working tree is, as far as
// that is one that the run may write in and git says so without doubt: all that one of its
// files says, since which of them counts depends on others.
func (i *inerter) saidOf(gitDir string) (trees []string, ok bool) {
	named := filepath.Base(gitDir) == ".git"
	switch {
	case slices.Contains(i.guard.standing.GitDirs, gitDir):
		return []string{i.guard.standing.Root}, true
	case named: // git asks no configuration where it has a commondir
		trees = []string{filepath.Dir(gitDir)}
	default:
		if b, err := i.read(gitDir+"/gitdir", vcs.MaxGitFile); err == nil { // of a linked worktree
			t, whose, err := i.follow(gitDir, vcs.ParsePathFile(b))
			if err != nil || whose == nil || !t.found {
				return nil, false
			}
			trees = []string{filepath.Dir(t.end.Path)}
		}
	}
	for _, name := range [...]string{"config", "config.worktree"} { // of a submodule, the first says it
		b, err := i.read(gitDir+"/"+name, vcs.MaxConfig)
		if gone(err) {
			continue
		}
		all, e := vcs.ParseConfig(b)
		if err != nil || e != nil {
			return nil, false
		}
		for k := range all {
			if !all[k].Places() {
				continue
			}
			t, whose, err := i.follow(gitDir, all[k].Value)
			if err != nil || whose == nil || !t.found {
				return nil, false
			}
			trees = append(trees, t.end.Path)
		}
	}
	return trees, len(trees) > 0
}
