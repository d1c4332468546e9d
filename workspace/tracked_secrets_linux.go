package workspace

import (
	"path/filepath"
	"slices"
	"strings"

	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/workspace/beneath"
	"github.com/pccrun/pccrun/workspace/vcs"
)

// spare leaves alone what a hiding glob matches by accident: a tracked file
// whose bytes are what git's index records is in the repository's objects for
// everybody to read. The index alone does not count, since the payload can
// write it: the bytes are compared. A glob whose last name has no wildcard
// names the file, and hides it.
func (s *scan) spare() error {
	wanted := map[string]map[string]bool{} // git directory → paths in the worktree
	type candidate struct{ path, gitDir, rel string }
	var all []candidate
	worktrees := map[string]repo{}
	for _, r := range s.repos {
		worktrees[r.worktree] = r
	}
	formats := map[string]vcs.Format{}
	for path, m := range s.matches {
		base := m.Rule.Glob[strings.LastIndexByte(m.Rule.Glob, '/')+1:]
		if m.Kind != File || m.Rule.Access != profiles.Hide || !strings.ContainsAny(base, "*?[") {
			continue
		}
		r, ok := s.owner(path, worktrees)
		if !ok {
			continue
		}
		rel, _ := beneath.Path(r.worktree, path)
		if wanted[r.gitDir] == nil {
			wanted[r.gitDir] = map[string]bool{}
			config, _ := s.configText(r.common + "/config")
			formats[r.gitDir], _ = vcs.HashOf(config)
		}
		wanted[r.gitDir][rel] = true
		all = append(all, candidate{path, r.gitDir, rel})
	}
	ids := map[string]map[string]string{}
	for gitDir, want := range wanted {
		ids[gitDir] = s.tracked(gitDir, formats[gitDir], want)
	}
	slices.SortFunc(all, func(a, b candidate) int { return strings.Compare(a.path, b.path) })
	left := int64(maxBlobs)
	for _, c := range all {
		id := ids[c.gitDir][c.rel]
		if id == "" {
			continue
		}
		b, err := s.readFile(c.path, left)
		left -= int64(len(b))
		if err != nil || formats[c.gitDir].BlobID(b) != id {
			continue
		}
		m := s.matches[c.path]
		delete(s.matches, c.path)
		delete(s.restricted, m.Ino)
		s.found.Spared = append(s.found.Spared, Spared{Path: c.path, Rule: m.Rule, Cause: "tracked by git, and unchanged"})
	}
	return nil
}

// owner returns the repository whose worktree a path lies in: the innermost.
func (s *scan) owner(path string, worktrees map[string]repo) (repo, bool) {
	for dir := filepath.Dir(path); ; dir = filepath.Dir(dir) {
		if r, ok := worktrees[dir]; ok {
			_, in := beneath.Path(s.root, r.gitDir)
			return r, in || r.gitDir == s.ownGit
		}
		if dir == s.root || dir == "/" {
			return repo{}, false
		}
	}
}

// tracked returns what a git index says of some files. One that cannot be read tracks nothing.
func (s *scan) tracked(gitDir string, f vcs.Format, want map[string]bool) map[string]string {
	path := filepath.Join(gitDir, "index")
	b, err := s.readFile(path, vcs.MaxGitIndex)
	if beneath.Gone(err) {
		return nil
	}
	var ids map[string]string
	if err == nil {
		ids, err = vcs.ReadIndex(b, f, want)
	}
	if err != nil {
		s.note("%s: %v: tracked files are hidden like others", path, err)
		return nil
	}
	return ids
}
