package workspace

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/workspace/beneath"
)

// programDirs are where tools of the host find programs, as patterns of the last names of a
// path: editors' checkers look for environments of Python and Conda by each of these names, and
// for what Composer installs, and direnv, devbox and opam have the others in the PATH of each
// shell that comes by.
var programDirs = [...]string{
	"node_modules/.bin", ".venv/bin", "venv/bin", "env/bin", "ve/bin", "virtualenv/bin", ".conda/bin", ".pixi/envs/*/bin",
	"vendor/bin", ".direnv/*/bin", ".devbox/nix/profile/default/bin", ".devbox/virtenv/*/bin", "_opam/bin",
}

// holdsPrograms reports whether a directory is one of those.
func holdsPrograms(rel string) bool {
	if !strings.HasSuffix(rel, "bin") { // most: each launch asks of all
		return false
	}
	return slices.ContainsFunc(programDirs[:], func(p string) bool {
		rest, on := wayTo(p, rel)
		return on && rest == ""
	})
}

// A step is a name on the way to one of programDirs. Nearly all names are none, which is to cost
// next to nothing: a tree may have 100,000 links.
var steps = sync.OnceValue(func() (s struct {
	names map[string]bool
	any   map[string]bool // and those behind which each name is one
}) {
	s.names, s.any = map[string]bool{}, map[string]bool{}
	for _, p := range programDirs {
		before := ""
		for name := range strings.SplitSeq(p, "/") {
			if name == "*" {
				s.any[before] = true
			} else {
				s.names[name] = true
			}
			before = name
		}
	}
	return s
})

// wayTo reports whether a path ends in the first names of a pattern, and returns those that
// are left.
func wayTo(pattern, rel string) (rest string, on bool) {
	names, have := strings.Split(pattern, "/"), strings.Split(rel, "/")
	for n := min(len(names), len(have)); n > 0; n-- {
		if ok, _ := filepath.Match(strings.Join(names[:n], "/"), strings.Join(have[len(have)-n:], "/")); ok {
			return strings.Join(names[n:], "/"), true
		}
	}
	return "", false
}

// programs tells of the programs in a directory that changed during the run.
func (g *Guard) programs(d *dir) {
	all := g.standing.another(d)
	g.programsIn(d.rel, all, all || d.ctime == 0 || latest(d.ctime) >= g.begun())
}

// programsIn is programs for a path: for all that is there, or what has changed. One that is
// written to where it is, or made executable, leaves no mark on the directory; a link does.
func (g *Guard) programsIn(rel string, all, renamed bool) {
	fd, err := beneath.Open(g.fd, rel, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		if err != unix.EACCES || renamed { // what nobody has touched was closed to the run too
			g.unlooked(rel, err)
		}
		return
	}
	f := os.NewFile(uintptr(fd), rel)
	defer f.Close()
	list, err := f.ReadDir(-1)
	var refused *os.PathError
	if errors.As(err, &refused) {
		err = refused.Err
	}
	g.unlooked(rel, err)
	slices.SortFunc(list, func(a, b os.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	for _, e := range list {
		if !renamed && !e.Type().IsRegular() {
			continue
		}
		var st unix.Stat_t
		if err := beneath.Stat(fd, e.Name(), &st); err != nil {
			g.unlooked(join(rel, e.Name()), err)
		} else if (all || g.touched(&st)) && isProgram(e.Name(), &st) {
			g.program(g.abs(join(rel, e.Name())), filepath.Base(rel))
		}
	}
}

// isProgram reports whether a tool that looks for programs could find one in an entry.
func isProgram(name string, st *unix.Stat_t) bool {
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFLNK:
		return true
	case unix.S_IFREG:
		return st.Mode&0o111 != 0 || sourced(name)
	}
	return false
}

// byLink says why of a link in the place of such a directory, or on the way to it.
const byLink = "programs are found through it"

func (g *Guard) program(path, why string) {
	g.told(g.stash.note(Finding{Kind: Program, Path: path, Why: why, What: "new or changed"}, nil, false))
}

// unlooked tells of what could not be looked at; nothing of what is not there any more.
func (g *Guard) unlooked(rel string, err error) {
	if err != nil && !gone(err) {
		g.told(g.stash.note(Finding{Kind: Review, Path: g.abs(rel), Why: "tools find programs there", What: "cannot be read: " + err.Error()}, nil, false))
	}
}

// programLinks tells of the links in a directory by which tools of the host find programs: of
// each that is new, and of the programs that have changed where one leads that stood.
func (g *Guard) programLinks(d *dir, i *inerter) {
	moved := g.moved(d.rel, d.ino)
	if !d.links || inModules(d.rel) && !moved && d.ctime != 0 && latest(d.ctime) < g.begun() { // an installer makes thousands
		return
	}
	fd, err := beneath.Open(g.fd, d.rel, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		g.unlooked(d.rel, err)
		return
	}
	defer unix.Close(fd)
	var names []string
	known := steps()
	all := known.any[filepath.Base(d.rel)]
	g.unlooked(d.rel, beneath.Each(fd, make([]byte, 8<<10), func(name []byte) {
		if all || known.names[string(name)] {
			names = append(names, string(name))
		}
	}))
	slices.Sort(names)
	for _, name := range names {
		for _, p := range programDirs {
			if rest, on := wayTo(p, join(d.rel, name)); on {
				if beneath.DirentType(fd, name) == unix.DT_LNK {
					g.programLink(g.abs(d.rel), name, rest, i)
				}
				break
			}
		}
	}
}

// programLink does it for one, behind which the rest leads to programs.
func (g *Guard) programLink(dir, name, rest string, i *inerter) {
	t, _, err := i.followOne(dir, name)
	if err == nil && t.found && t.end.Kind != Dir { // by no name lies anything behind it
		return
	}
	if i.came(dir + "/" + name) {
		g.program(dir+"/"+name, byLink)
		return
	}
	t, whose, err := i.followOne(dir, name+"/"+rest)
	for _, n := range t.links {
		if i.came(n.Path) {
			g.program(n.Path, byLink)
		}
	}
	if err != nil { // nobody knows what programs are there
		in, _ := beneath.Path(g.standing.Root, dir)
		g.unlooked(join(in, name), err)
		return
	}
	if whose == nil || !t.found || t.end.Kind != Dir {
		return
	}
	var st unix.Stat_t
	if end, _ := beneath.Path(whose.scan.root, t.end.Path); !holdsPrograms(end) && whose.guard.stat(t.end.Path, &st) == nil {
		all := whose.guard.came(t.end.Path) || whose.brought(t.end.Path)
		whose.guard.programsIn(end, all, all || whose.guard.touched(&st))
	}
}

// inPath tells of new and changed programs where the user's shell finds them, if that is in
// what the run could write: by whatever name it is called next, an ls or a git of the
// command's would be run there. Of a link by which a shell comes there, too.
func (g *Guard) inPath(i *inerter) {
	seen := map[string]bool{}
	for _, path := range g.standing.Path {
		if rel, in := beneath.Path(g.standing.Root, path); in && holdsPrograms(rel) {
			continue // it is told of by its name
		}
		t, whose, err := i.followOne("/", path)
		for _, n := range t.links {
			if inside(g.standing.Root, n.Path) && !seen[n.Path] && i.came(n.Path) {
				g.program(n.Path, byLink)
			}
			seen[n.Path] = true
		}
		if err != nil {
			if rel, in := beneath.Path(g.standing.Root, path); in { // what lies elsewhere is not the run's
				g.unlooked(rel, err)
			}
			continue
		}
		if whose == nil || whose.guard != g || !t.found || t.end.Kind != Dir || seen[t.end.Path] {
			continue
		}
		seen[t.end.Path] = true
		var st unix.Stat_t
		if end, _ := beneath.Path(g.standing.Root, t.end.Path); !holdsPrograms(end) && g.stat(t.end.Path, &st) == nil {
			ino, known := g.standing.Inodes[end]
			all := known && ino != st.Ino || !known && (g.came(t.end.Path) || i.brought(t.end.Path))
			g.programsIn(end, all, all || g.touched(&st))
		}
	}
}

// followOne is follow for a name by itself: the steps that it takes are nobody else's. Where
// something on the way could not be looked at, though it may be there, that is an error.
func (i *inerter) followOne(dir, path string) (t trail, whose *inerter, err error) {
	t, whose, err = i.follow(dir, path)
	for _, k := range i.others {
		k.scan.steps = 0
		if err == nil && !t.found {
			err = k.scan.unknown(t.end.Path)
		}
	}
	return t, whose, err
}

// envName is an environment of Python, or a file that holds the path of one, by which pipenv and
// plugins of shells enter it: these as soon as somebody goes to where it is.
const envName = ".venv"

// names tells of such a file in a directory, or of a new link on the way to one.
func (g *Guard) names(d *dir, i *inerter) {
	t, whose, err := i.followOne(g.abs(d.rel), envName)
	if err != nil {
		g.unlooked(join(d.rel, envName), err)
		return
	}
	if whose == nil || !t.found || t.end.Kind != File {
		return
	}
	const why = "shells enter the environment that it names"
	for _, n := range t.links {
		if i.came(n.Path) {
			g.program(n.Path, why)
			return
		}
	}
	var st unix.Stat_t
	if whose.guard.stat(t.end.Path, &st) == nil && (whose.guard.touched(&st) || g.standing.another(d) || len(t.links) > 0 && whose.brought(t.end.Path)) {
		g.program(t.end.Path, why)
	}
}

// brought reports whether something may have come with a directory that it is in, as old as it was.
func (i *inerter) brought(path string) bool {
	for path = filepath.Dir(path); path != i.scan.root && inside(i.scan.root, path); path = filepath.Dir(path) {
		if i.guard.came(path) {
			return true
		}
	}
	return false
}

// sourced reports whether a file is one that shells source to enter an environment of
// Python, editors' terminals unasked: none of them has to be executable.
func sourced(name string) bool {
	return strings.HasPrefix(name, "activate") || name == "Activate.ps1"
}

// came reports whether a directory may have been moved where it is: itself, and the one above, were changed.
func (g *Guard) came(path string) bool {
	var st, above unix.Stat_t
	return g.stat(path, &st) != nil || g.touched(&st) && (g.stat(filepath.Dir(path), &above) != nil || g.touched(&above))
}
