package workspace

import (
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/workspace/vcs"
)

// indexes sets aside the indexes for which git would write elsewhere. How long the names
// of objects are in one says a configuration: as it is left, so that this comes last.
func (i *inerter) indexes() {
	g := i.guard
	g.rules.suspects(g.tree, func(s suspect) {
		if s.kind == isRepo && s.hit.name == "" {
			i.indexesIn(i.scan.abs(s.rel), !g.repos[s.rel] || g.standing.another(s.dir))
		}
	})
	for _, dir := range g.standing.GitDirs {
		i.indexesIn(dir, false)
	}
}

// indexesIn looks at those of one repository: at whatever is there, or what the run has
// left; and at its list of conflicts, also one that stood: a file that it lists may have
// become a link.
func (i *inerter) indexesIn(gitDir string, all bool) {
	i.each(gitDir, func(fd int, e os.DirEntry) {
		if e.Name() == vcs.MergeRR && !e.IsDir() {
			if b, err := readOwn(fd, vcs.MergeRR, vcs.MaxConfig); !gone(err) && (err != nil || !i.soundRR(gitDir, b)) {
				i.aside(gitDir+"/"+vcs.MergeRR, vcs.WhyRR)
			}
			return
		}
		if !vcs.IsIndex(e.Name()) || !e.Type().IsRegular() || !all && !i.changed(fd, e.Name()) {
			return
		}
		b, err := readOwn(fd, e.Name(), vcs.MaxGitIndex)
		if gone(err) {
			return
		}
		if f, known := i.hash(gitDir); err != nil || !known || !vcs.SoundIndex(b, f) {
			i.aside(gitDir+"/"+e.Name(), vcs.WhyIndex)
		}
	})
}

// soundRR reports whether a list of conflicts names files of the repository's working
// tree, with no link on the way.
func (i *inerter) soundRR(gitDir string, b []byte) bool {
	paths, ok := vcs.ListedRR(b)
	if !ok || len(paths) == 0 {
		return ok
	}
	trees, ok := i.saidOf(gitDir)
	if !ok {
		return false
	}
	// What the repository says of its tree the command may have written, and others may
	// lead to it as well: git takes the one that it is called in.
	for _, tree := range slices.Concat(i.treesOf(gitDir), trees) {
		for _, path := range paths {
			var st unix.Stat_t
			switch err := i.guard.stat(tree+"/"+path, &st); {
			case err == unix.ENOENT, err == unix.ENOTDIR:
			case err != nil, st.Mode&unix.S_IFMT == unix.S_IFLNK:
				return false
			}
		}
	}
	return true
}

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

// hash returns by what the objects of a repository are named, and whether its
// configuration leaves no doubt of that.
func (i *inerter) hash(gitDir string) (f vcs.Format, known bool) {
	common := gitDir
	if b, err := i.read(gitDir+"/commondir", vcs.MaxGitFile); err == nil {
		t, _, err := i.follow(gitDir, vcs.ParsePathFile(b))
		if err != nil {
			return 0, false
		}
		common = t.end.Path
	}
	if k := i.at(common); k != nil && k.whole[common+"/config"] {
		return 0, false // accepted later, it would count for what is here now
	}
	// git-new-workdir has a link there; one that is new has been set aside.
	t, _, err := i.follow(common, "config")
	if err != nil {
		return 0, false
	}
	b, err := i.read(t.end.Path, vcs.MaxConfig)
	if gone(err) {
		return vcs.FormatSHA1, true
	}
	if err != nil { // as root that is given up, what it was is all that is known: the command has read it at most
		f, known = i.guard.standing.Formats[gitDir]
		return f, known
	}
	return vcs.HashOf(b)
}

// read reads a file of a repository, in the tree or outside.
func (i *inerter) read(path string, limit int64) ([]byte, error) {
	dir, name, err := i.guard.parent(path)
	if err != nil {
		return nil, err
	}
	defer unix.Close(dir)
	return readOwn(dir, name, limit)
}
