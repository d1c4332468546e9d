package workspace

import "golang.org/x/sys/unix"

// rebases tells of rebases that the run has begun or changed, and that execute
// something when the user goes on with them.
func (g *Guard) rebases() {
	check := func(gitDir string) {
		for _, name := range rebaseState {
			path := gitDir + "/" + name
			var st unix.Stat_t
			if err := g.stat(path, &st); err != nil || !g.touched(&st) {
				continue
			}
			if b, err := g.content(path); err != nil && !gone(err) || err == nil && rebases(name, b) {
				g.told(g.stash.note(Finding{Kind: Review, Path: path, Why: rebaseRuns, What: "new"}, nil, false))
			}
		}
	}
	for _, dir := range g.standing.GitDirs {
		check(dir)
	}
	g.rules.suspects(g.tree, func(s suspect) {
		if s.kind == isRepo && s.hit.name == "" {
			check(g.standing.Root + "/" + s.rel)
		}
	})
}
