package workspace

import (
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// A Refusal is a pinned file that somebody tried to change, and what pins it.
type Refusal struct {
	Path, Why string
}

// Refused returns, once [Guards.Finish] has returned, the tracked files that are pinned, for which git
// has put other content into the index and not written it, and what the run says could not be
// changed, as far as nobody has changed it.
func (gs Guards) Refused(said []Refusal) (list []Refusal) {
	for _, g := range gs {
		list = append(list, g.unwritten...)
	}
	for _, r := range said {
		// Of an overlay, or a repository elsewhere, nothing of the run could change it.
		if g := gs.near(r.Path); g == nil || g.unchanged(r) {
			list = append(list, r)
		}
	}
	slices.SortStableFunc(list, func(a, b Refusal) int { return strings.Compare(a.Path, b.Path) })
	return slices.CompactFunc(list, func(a, b Refusal) bool { return a.Path == b.Path })
}

// unchanged reports whether what somebody tried to change is what it was.
func (g *Guard) unchanged(r Refusal) bool {
	var st unix.Stat_t
	if g.stat(r.Path, &st) != nil {
		return false
	}
	if i := slices.IndexFunc(g.standing.Known, func(k Known) bool { return k.Pin && k.Path == r.Path }); i >= 0 {
		return g.standing.Known[i].is(&st)
	}
	return st.Ctim.Nano() < g.standing.Start.UnixNano()
}
