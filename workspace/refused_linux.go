package workspace

import (
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// A Refusal is a pinned file that somebody tried to change, and what pins it.
type Refusal struct {
	Path, Why string
	Pin       string // what is pinned, where that is a directory which holds the file; "" else
	Flags     string // those that let it change, where --review of Why alone does not
}

// Refused returns, once [Guards.Finish] has returned, what git says it could not change, as far as nobody has
// changed it.
func (gs Guards) Refused(said []Refusal) (list []Refusal) {
	for _, r := range said {
		g := gs.near(r.Path)
		if g == nil { // of an overlay, or a repository elsewhere: nothing of the run could change it
			r.orPin(unix.Lstat(r.Path, new(unix.Stat_t)))
		}
		if g == nil || g.unchanged(&r) {
			list = append(list, r)
		}
	}
	slices.SortStableFunc(list, func(a, b Refusal) int { return strings.Compare(a.Path, b.Path) })
	return slices.CompactFunc(list, func(a, b Refusal) bool { return a.Path == b.Path })
}

// orPin names a directory that is pinned in the place of a file in it that is not there, as
// the error says with which it was looked for: that was to be made.
func (r *Refusal) orPin(err error) bool {
	if err != unix.ENOENT && err != unix.ENOTDIR || r.Pin == "" {
		return false
	}
	r.Path, r.Pin = r.Pin, ""
	return true
}

// unchanged reports whether what somebody tried to change is what it was.
func (g *Guard) unchanged(r *Refusal) bool {
	var st unix.Stat_t
	err := g.stat(r.Path, &st)
	if r.orPin(err) {
		err = g.stat(r.Path, &st)
	}
	if err != nil {
		return false
	}
	if i := slices.IndexFunc(g.standing.Known, func(k Known) bool { return k.Pin && k.Path == r.Path }); i >= 0 {
		return g.standing.Known[i].is(&st)
	}
	return st.Ctim.Nano() < g.standing.Start.UnixNano()
}
