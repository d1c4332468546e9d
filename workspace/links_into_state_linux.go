package workspace

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/workspace/beneath"
	"github.com/pccrun/pccrun/workspace/vcs"
)

// What a link leads to is looked at where it lies. But what a repository keeps in its
// own directories is not searched, and where programs keep what is theirs no names
// count: of what lies there nothing is executed by the name that it has, and by a link
// it gets another one. So a link that leads there from elsewhere is quarantined.

// Why a link is quarantined.
const (
	intoState = "it leads to a directory of tool data, which is not checked"
	tooFar    = "it leads through too many links"
)

// maxShortcuts bounds the names that are looked up for all links of a tree that are
// new, beside what each may take: a link farm of 100,000 takes a tenth of it, and all
// of it four seconds.
const maxShortcuts = 4 << 20

// shortcuts quarantines such links in what is below a directory, as far as the run has
// made them. One that stood is the user's. Those in a repository's own directory are another
// matter: see [inerter.gitDirectories].
func (i *inerter) shortcuts(d *dir, room *int) {
	if d.gone || d.shut || d.state == hidden {
		return
	}
	if moved := i.guard.moved(d.rel, d.ino); d.links && !d.git && !vcs.InsideGit(d.rel) && (moved || d.ctime == 0 || changedSince(d.ctime, i.guard.standing.Start)) {
		i.shortcutsIn(d, moved, room)
	}
	for _, k := range d.kids {
		i.shortcuts(k, room)
	}
}

// moved reports whether a directory with links did not stand where it is, or had none:
// a link that it brings with it is as old as before, and leads elsewhere from there.
func (g *Guard) moved(rel string, now uint64) bool {
	ino, ok := g.linked[rel]
	if !ok && g.late && !g.standing.lists(rel) {
		return false // nobody knows
	}
	return g.linked != nil && (!ok || ino != now)
}

// lists reports whether a record names a directory that has links. An installer makes
// thousands of them, which are written down only where all links count.
func (r *Standing) lists(rel string) bool { return !inModules(rel) || vcs.InsideGit(rel) }

// withLinks notes which directories have links.
func (d *dir) withLinks(list map[string]uint64) {
	if d.links {
		list[d.rel] = d.ino
	}
	for _, k := range d.kids {
		k.withLinks(list)
	}
}

// youngLinks reports whether a directory has links that came so shortly before a moment that their ctimes do not tell
// them from what the command makes: who sets up an agent's home by a script starts the agent at once.
func (d *dir) youngLinks(since time.Time) bool {
	return !d.gone && !d.shut && d.state != hidden && (d.links && changedSince(d.ctime, since) ||
		slices.ContainsFunc(d.kids, func(k *dir) bool { return k.youngLinks(since) }))
}

// shortcutsIn looks at the links of one directory: at all of them, or those that are new.
func (i *inerter) shortcutsIn(d *dir, all bool, room *int) {
	i.each(i.view.abs(d.rel), func(fd int, e os.DirEntry) {
		var st unix.Stat_t
		rel := join(d.rel, e.Name())
		if e.Name() == ".git" || beneath.Stat(fd, e.Name(), &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFLNK || !all && !i.guard.touched(&st) {
			return
		}
		path := i.view.abs(rel)
		if why := i.shortcut(path, rel, room); why != "" {
			i.aside(path, why)
		}
	})
}

// shortcut says why a link is not to stay, "" if it is.
func (i *inerter) shortcut(path, rel string, room *int) string {
	packages := inModules(rel) // an installer makes them by the thousand
	if text, err := i.view.readlink(path); err != nil || packages && !strings.Contains(text, ".git") {
		return ""
	}
	t, whose, far := i.leads(path, room)
	if far {
		return tooFar
	}
	end, named := t.end.Path[1:], true
	if whose != nil {
		end, _ = beneath.Path(whose.view.root, t.end.Path)
		named = whose.view.rules.named()
	}
	switch {
	case vcs.InsideGit(end) && !vcs.Annexed(end), !named && vcs.InFan(end) && (packages || !i.view.rules.named()):
		return vcs.IntoGit
	case !named && !packages && i.view.rules.named():
		return intoState
	}
	return ""
}

// leads follows a link, as far as there is room for it.
func (i *inerter) leads(path string, room *int) (t trail, whose *inerter, far bool) {
	t, whose, err := i.follow(filepath.Dir(path), filepath.Base(path))
	for _, k := range i.others {
		*room -= k.view.steps
		k.view.steps = 0
	}
	return t, whose, err != nil || *room < 0
}

// named reports whether names count that are no repository's.
func (c *rules) named() bool {
	for i := range c.protect {
		if _, git := gitPattern(c.protect[i].Pattern); !git {
			return true
		}
	}
	return false
}
