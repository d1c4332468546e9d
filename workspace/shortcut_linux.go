package workspace

import (
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// What a link leads to is looked at where it lies. But what a repository keeps in its
// own directories is not searched, and where programs keep what is theirs no names
// count: of what lies there nothing is executed by the name that it has, and by a link
// it gets another one. So a link that leads there from elsewhere is set aside.

// Why a link is set aside.
const (
	intoGit   = "it leads into a repository's own directory"
	intoState = "it leads to what programs keep for themselves, where names do not count"
	tooFar    = "it leads on by more steps than can be followed"
)

// maxShortcuts bounds the names that are looked up for all links of a tree that are
// new, beside what each may take: a link farm of 100,000 takes a tenth of it, and all
// of it four seconds.
const maxShortcuts = 4 << 20

// shortcuts sets aside such links in what is below a directory, as far as the run has
// made them. One that stood is the user's.
func (i *inerter) shortcuts(d *dir, room *int) {
	if d.gone || d.shut || d.state == hidden || insideGit(d.rel) {
		return
	}
	if d.links && (d.ctime == 0 || latest(d.ctime) >= i.guard.begun()) {
		i.shortcutsIn(d, room)
	}
	for _, k := range d.kids {
		i.shortcuts(k, room)
	}
}

// shortcutsIn looks at the links of one directory.
func (i *inerter) shortcutsIn(d *dir, room *int) {
	fd, err := openDirOf(i.guard.fd, d.rel)
	if err != nil {
		i.fail(i.scan.abs(d.rel), err)
		return
	}
	defer unix.Close(fd)
	names, err := entries(fd)
	if err != nil {
		i.fail(i.scan.abs(d.rel), err)
		return
	}
	slices.Sort(names)
	for _, name := range names {
		var st unix.Stat_t
		if name == ".git" || statBeneath(fd, name, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFLNK || !i.guard.touched(&st) {
			continue
		}
		path := i.scan.abs(join(d.rel, name))
		to, why := i.shortcut(path, join(d.rel, name), room)
		leans := d.git && to == name && slices.Contains(leanNames[:], name)
		if why != "" && !leans {
			i.aside(path, why)
		}
	}
}

// leanNames are what a repository of git can have of another's by a link, as
// git-new-workdir of git makes them: nobody opens anything in there by its name.
var leanNames = [...]string{"objects", "refs", "logs", "info", "packed-refs", "remotes", "rr-cache", "svn"}

// shortcut says what the end of a link is called, and why it is not to stay, "" if it
// is.
func (i *inerter) shortcut(path, rel string, room *int) (to, why string) {
	packages := inModules(rel) // an installer makes them by the thousand
	if text, err := i.scan.readlink(path); err != nil || packages && !strings.Contains(text, ".git") {
		return "", ""
	}
	t, whose, err := i.follow(filepath.Dir(path), filepath.Base(path))
	for _, k := range i.others {
		*room -= k.scan.steps
		k.scan.steps = 0
	}
	if err != nil || *room < 0 {
		return "", tooFar
	}
	end, named := t.end.Path[1:], true
	if whose != nil {
		end, _ = below(whose.scan.root, t.end.Path)
		named = whose.scan.rules.named()
	}
	switch {
	case insideGit(end), !named && inFan(end) && (packages || !i.scan.rules.named()):
		why = intoGit
	case !named && !packages && i.scan.rules.named():
		why = intoState
	}
	return filepath.Base(end), why
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
