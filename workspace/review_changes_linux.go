package workspace

import (
	"bytes"
	"fmt"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/workspace/beneath"
	"github.com/pccrun/pccrun/workspace/vcs"
)

// review tells of files that may change and did, and of what is pinned and not as it was: the host has changed
// it, or it was changed in the moment before it was covered again.
func (g *Guard) review() error {
	for i := range g.standing.Known {
		k := &g.standing.Known[i]
		var st unix.Stat_t
		err := g.stat(k.Path, &st)
		f := Finding{Kind: Review, Path: k.Path, Why: k.Why, What: "changed"}
		switch {
		case beneath.Gone(err) && (k.Pin && beneath.Gone(g.stat(filepath.Dir(k.Path), &st)) || g.inRemovedTree(k.Path)):
			continue // the host, or another run, has removed all of it: nothing is left to be executed
		case beneath.Gone(err):
			f.What = "removed"
		case err == unix.EACCES && !inside(g.standing.Root, k.Path) && (!k.Pin || strings.HasPrefix(k.Why, ".git/config")):
			continue // in a directory that is named instead: see reviewed; or the command cannot write there
		case err != nil:
			return fmt.Errorf("stat %s: %w", k.Path, err)
		case !g.changed(k, &st):
			continue
		}
		if text, known := g.links[k.Path]; known && err == nil && (k.is(&st) || !k.Pin) && text == g.linkText(k.Path) {
			continue // nobody changes a link but by another in its place: a protected one was made shortly before
		}
		if k.Pin {
			f.What += " by the host, or just after a change by the host"
		}
		before, kept := g.originals[k.Path]
		if kept && err == nil {
			if now, e := g.content(k.Path); e == nil && bytes.Equal(before, now) {
				continue
			}
		}
		g.report(g.stash.Note(f, before, kept))
	}
	known := make(map[string]bool, len(g.standing.Known))
	for i := range g.standing.Known {
		known[g.standing.Known[i].Path] = true
	}
	g.fresh(g.tree, known)
	g.reviewed()
	g.commits()
	return nil
}

// changed reports whether a file is not what it was. One that changed shortly
// before the run may have changed again with the same ctime.
func (g *Guard) changed(k *Known, st *unix.Stat_t) bool {
	return !k.is(st) || changedSince(k.Ctime, g.standing.Start)
}

// is reports whether a status is the one that was known.
func (k *Known) is(st *unix.Stat_t) bool {
	return st.Ino == k.Ino && st.Dev == k.Dev && st.Ctim.Nano() == k.Ctime
}

// content reads a file that is not too large to be shown.
func (g *Guard) content(path string) ([]byte, error) {
	dir, name, err := g.parent(path)
	if err != nil {
		return nil, err
	}
	defer unix.Close(dir)
	return beneath.ReadIn(dir, name, vcs.MaxOriginal)
}

// linkText returns where a link leads, as it says.
func (g *Guard) linkText(path string) string {
	dir, name, err := g.parent(path)
	if err != nil {
		return ""
	}
	defer unix.Close(dir)
	text, _ := beneath.ReadLink(dir, name)
	return text
}

// maxOriginals bounds what is kept of files for review as they were.
const maxOriginals = 4 << 20

// remember keeps what the files for review hold, as far as the command has not
// changed them yet. Once that has ended only those are of use of which their times do not say whether it has.
func (g *Guard) remember() {
	g.originals, g.links = map[string][]byte{}, map[string]string{}
	room := maxOriginals
	for i := range g.standing.Known {
		k := &g.standing.Known[i]
		if k.Kind == Link {
			g.links[k.Path] = g.linkText(k.Path)
		}
		if k.Kind != File || room < vcs.MaxOriginal || g.stopped() && !changedSince(k.Ctime, g.standing.Start) {
			continue
		}
		dir, name, err := g.parent(k.Path)
		if err != nil {
			continue
		}
		var st unix.Stat_t
		b, err := beneath.ReadIn(dir, name, vcs.MaxOriginal)
		if err == nil && beneath.Stat(dir, name, &st) == nil && k.is(&st) {
			g.originals[k.Path] = b
			room -= len(b)
		}
		unix.Close(dir)
	}
}

// fresh tells of files for review that are new: that did not stand at the start.
func (g *Guard) fresh(d *dir, known map[string]bool) {
	if d.gone || d.State == hidden || d.State == protected {
		return
	}
	for _, h := range d.Hits {
		path := g.standing.Root + "/" + join(d.Rel, h.Name)
		switch {
		case inModules(d.Rel) || h.Kind == Dir:
		case h.Class == classProtect && (g.rules.protect[h.Arg].Review || g.rules.protect[h.Arg].Home):
			g.added(path, g.rules.protect[h.Arg].Pattern, known)
		case h.Class == classInside && d.State == reviewed:
			g.added(path, g.rules.protect[d.Why].Pattern, known)
		}
	}
	for _, k := range d.Kids {
		if k.name() == "hooks" && (d.Git || d.name() == ".git") && !g.repos[d.Rel] {
			continue // a new repository's, which are quarantined
		}
		g.fresh(k, known)
	}
}

func (g *Guard) added(path, why string, known map[string]bool) {
	if known[path] {
		return
	}
	var st unix.Stat_t
	if !beneath.Gone(g.stat(path, &st)) { // or it was quarantined for another reason
		g.report(g.stash.Note(Finding{Kind: Review, Path: path, Why: why, What: "new"}, nil, false))
	}
}
