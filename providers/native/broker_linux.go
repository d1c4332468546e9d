package native

import (
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/internal/hint"
	"github.com/pccrun/pccrun/internal/survey"
	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/seccomp/supervisor"
	"github.com/pccrun/pccrun/workspace"
)

// The launcher does some calls in place of the command, on descriptors, where
// mounts alone would leave a gap. With protect.strict it makes names, so that
// protected ones cannot come to be. Under strict it opens files, in what may be
// written, wherever something is hidden there: Landlock cannot leave out a part of
// a directory, so it gives no right to content there, and the launcher, who asks
// the policy about each path, is the second layer behind the mounts. Nor does it
// matter then that the host replaces a file under its mount.

// forbids reports whether the launcher makes names in place of the command, so
// that protected ones cannot come to be at all, and why it cannot if it should.
func (r *Planned) forbids(powerless error) (bool, error) {
	if !r.Policy.ProtectStrict || !survey.Guards(r.Policy) {
		return false, nil
	}
	const refused = "guarantee fs.protect: protect-strict: %v"
	switch off := r.Policy.Without; {
	case r.Policy.Nested:
		return false, hint.Errorf("without --nested", refused, "with nested, Landlock does not restrict the command")
	case slices.Contains(off, profiles.LayerLandlock), r.Plan.Landlock < 2:
		return false, hint.Errorf("a kernel with Landlock (Linux 5.19)", refused, "it needs Landlock, so that the launcher creates all names")
	case powerless != nil:
		return false, hint.Errorf("start pccrun without them", refused, powerless)
	}
	return true, nil
}

// truncates is the version of Landlock (Linux 6.2) that hears of truncate(2) in
// every form, those of 32-bit programs included, about which nobody is asked.
const truncates = 3

// opens reports whether the launcher opens files in place of the command. Where
// it would and cannot, or the user takes it that hidden files are hidden weakly,
// the answers say what stays weak.
func (r *Planned) opens(powerless error) bool {
	p := r.Policy
	if !p.Strict || slices.Contains(p.AllowMissing, profiles.FSHide) || p.Nested || len(r.Plan.Readable) == 0 || r.Plan.Landlock < truncates || slices.Contains(p.Without, profiles.LayerLandlock) {
		return false
	}
	if r.Plan.OpenedDirectly() == "" && r.Plan.ReadInWritable() == "" || powerless != nil {
		return false
	}
	return r.hidesLater() || r.Plan.HidesFiles() || len(r.pins()) > 0 || r.Plan.ReadInWritable() != ""
}

// hidesLater reports whether a rule hides what does not exist yet.
func (r *Planned) hidesLater() bool { return r.Plan.Unhidden || r.Policy.HidesPatterns() }

// broker is the launcher as the one who does what the plan has it do.
func (s *Started) broker(seen func(*supervisor.Call)) *supervisor.Broker {
	r := s.run
	d := &supervisor.Broker{Root: s.box.Root(), Umask: r.Plan.Command.Umask, Seen: seen, Makes: func(path string) bool { return r.Plan.At(path).MakesNames }}
	d.Separate = func(string, string) bool { return false }
	d.Forbids = func(string, func(string) bool) bool { return false }
	if r.Policy.ProtectStrict {
		ban := &workspace.Ban{}
		for i, standing := range r.Guarded().Standing("") {
			ban.Add(r.trees[i].Found, standing)
		}
		d.Separate = ban.Separate
		d.Forbids = func(path string, within func(string) bool) bool {
			if !r.Plan.Writes(path) {
				return false // a private directory: nobody outside will look there
			}
			pattern, yes := ban.Covers(path, within)
			if yes {
				r.report.attempt(r.forbidden(path, pattern))
			}
			return yes
		}
	}
	if r.Plan.Watch.Opens {
		g := r.gate()
		d.Opens = func(path string) bool { return r.Plan.At(path).OpensFiles }
		d.Withholds, d.Keeps, d.Created = g.withholds, g.keeps, g.made
	}
	return d
}

// A gate decides which files the launcher opens. It is asked by one goroutine.
type gate struct {
	run    *Planned
	hidden map[supervisor.FileID]bool // files that stood at the start: they stay hidden under whatever name
	spared map[string]bool            // what a pattern matches and the survey left alone
	own    map[supervisor.FileID]bool // what the command has under names that are hidden: its own work
}

func (r *Planned) gate() *gate {
	g := &gate{run: r, hidden: map[supervisor.FileID]bool{}, spared: map[string]bool{}, own: map[supervisor.FileID]bool{}}
	for _, path := range r.Plan.Masked() {
		if fd, err := unix.Open(path, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0); err == nil {
			if id, _, err := supervisor.Identify(fd); err == nil {
				g.hidden[id] = true
			}
			unix.Close(fd)
		}
	}
	for _, s := range r.trees[0].Found.Spared {
		g.spared[s.Path] = true
	}
	return g
}

// withholds is the answer to an open of a file. What is hidden is judged by its
// path, and by itself where it stood at the start; what is read-only by its path.
func (g *gate) withholds(path string, id supervisor.FileID, writes bool) unix.Errno {
	switch {
	case g.hidden[id], g.hides(path) && !g.own[id]:
		return unix.EACCES
	case writes && g.run.Plan.Planned(path).ReadOnly:
		return unix.EROFS
	}
	return 0
}

func (g *gate) hides(path string) bool {
	m := g.run.Plan.Planned(path)
	return m.Hides() || g.run.Policy.Decide(path).Access == profiles.Hide && !g.spared[path]
}

// keeps reports whether a directory stays where it is, since the plan or a rule
// hides something in it by its path, or pins it.
func (g *gate) keeps(dir string) bool {
	if g.hides(dir) || g.run.Plan.ReadOnlyIn(dir) {
		return true
	}
	for _, table := range [...][]profiles.FileRule{g.run.Policy.Files, g.run.Policy.Tighten} {
		for i := range table {
			if r := &table[i]; r.Access == profiles.Hide && anchored(r, dir) {
				return true
			}
		}
	}
	return false
}

// anchored reports whether what a rule names in a directory may have another
// name for it once the directory is moved. A name at any depth has not.
func anchored(r *profiles.FileRule, dir string) bool {
	in := func(path, dir string) bool { return path == dir || strings.HasPrefix(path, dir+"/") }
	if r.Glob == "" || in(r.Path, dir) {
		return in(r.Path, dir)
	}
	rest, deep := strings.CutPrefix(r.Glob, "**/")
	if !in(dir, r.Path) || deep && !strings.Contains(rest, "/") {
		return false
	}
	names := strings.Split(rest, "/")
	if !deep {
		return strings.ContainsAny(names[0], "*?[") || in(dir, r.Path+"/"+names[0])
	}
	name := dir[strings.LastIndexByte(dir, '/')+1:]
	return slices.ContainsFunc(names[:len(names)-1], func(part string) bool { return part == name || strings.ContainsAny(part, "*?[") })
}

// maxOwn bounds how many files are remembered as the command's own.
const maxOwn = 1 << 16

func (g *gate) made(path string, id supervisor.FileID) {
	if len(g.own) < maxOwn && g.hides(path) && !g.hidden[id] {
		g.own[id] = true
	}
}
