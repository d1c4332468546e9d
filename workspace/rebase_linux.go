package workspace

import (
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/workspace/vcs"
)

// rebases tells of rebases that the run has begun or changed, and that execute
// something when the user goes on with them.
func (g *Guard) rebases() {
	check := func(gitDir string, all bool) {
		for _, name := range vcs.RebaseState {
			path := gitDir + "/" + name
			var st, dir unix.Stat_t // the file may be older than the directory's name
			if err := g.stat(path, &st); err != nil || !all && !g.touched(&st) && (!strings.Contains(name, "/") || g.stat(filepath.Dir(path), &dir) != nil || !g.touched(&dir)) {
				continue
			}
			if b, err := g.content(path); err != nil && !gone(err) || err == nil && vcs.RebaseExecutes(name, b) {
				g.told(g.stash.note(Finding{Kind: Review, Path: path, Why: vcs.WhyState(name), What: "new"}, nil, false))
			}
		}
	}
	for _, dir := range g.standing.GitDirs {
		check(dir, false)
	}
	g.rules.suspects(g.tree, func(s suspect) {
		if s.kind == isRepo && s.hit.name == "" {
			check(g.abs(s.rel), !g.repos[s.rel] || g.standing.another(s.dir))
		}
	})
}
