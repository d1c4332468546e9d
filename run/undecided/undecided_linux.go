package undecided

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/internal/messages"
	"github.com/pccrun/pccrun/internal/sessions"
	"github.com/pccrun/pccrun/internal/shell"
	"github.com/pccrun/pccrun/internal/survey"
	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/run/askgit"
	"github.com/pccrun/pccrun/workspace"
	"github.com/pccrun/pccrun/workspace/beneath"
	"github.com/pccrun/pccrun/workspace/quarantine"
)

// Findings are those of a workspace. The zero value has none.
type Findings struct {
	home      sessions.Home
	workspace string
	list      []finding
}

type finding struct {
	workspace.Finding
	session  string
	source   string // the directory that is mounted, "" if it is not
	busy     bool   // another run goes on with it
	dev, ino uint64 // of its stub, once that is made
}

// Find reads what sessions that keep findings have in quarantine. mounts says whether the run can mount any of it.
func Find(p *profiles.Policy, home sessions.Home, kept string, mounts bool) (f Findings, err error) {
	f = Findings{home: home, workspace: p.Workspace}
	list, err := home.List()
	if err != nil {
		return f, err
	}
	mounts = mounts && !p.Nested && !p.Strict && !p.ProtectStrict && survey.Guards(p)
	seen, room := map[string]bool{}, workspace.MaxStubs/2 // the rest is for what this run makes
	for _, e := range slices.Backward(list) {
		if e.Workspace != p.Workspace || !slices.Contains(e.Kept, kept) {
			continue
		}
		dir, err := home.Open(e.ID)
		if err != nil {
			continue
		}
		found, _ := quarantine.ReadFindings(dir)
		for _, c := range slices.Backward(found) {
			if !c.Protected() || c.Stash == "" || c.Parts != nil || seen[c.Path] {
				continue
			}
			seen[c.Path] = true
			u := finding{Finding: c, session: e.ID}
			if e.State == sessions.Ended && room > 0 && mounts && f.mountable(p, c) && c.Single(dir) {
				room--
				u.source, _ = filepath.EvalSymlinks(filepath.Join(home.State(), "sessions", e.ID, quarantine.StashName, c.Stash))
			}
			var st unix.Stat_t
			u.busy = e.State == sessions.Running || u.source == "" && unix.Lstat(c.Path, &st) == nil && HasStub(home, st.Dev, st.Ino)
			f.list = append(f.list, u)
		}
		dir.Close()
	}
	return f, nil
}

// mountable reports whether a finding can be mounted where it stood: what stood there is a directory, nothing does now,
// and the command could make one there, which would be quarantined and go on working.
func (f *Findings) mountable(p *profiles.Policy, c workspace.Finding) bool {
	if _, in := beneath.Path(p.Workspace, c.Path); !in || c.Path == p.Workspace || c.Mode&unix.S_IFMT != unix.S_IFDIR {
		return false
	}
	for path := c.Path; path != p.Workspace; path = filepath.Dir(path) {
		if r, is := p.Protected(path); p.Decide(path).Access != profiles.Write || (is && !r.Review) != (path == c.Path) {
			return false
		}
	}
	dir, name, err := beneath.ParentOf(c.Path)
	if err != nil {
		return false
	}
	defer unix.Close(dir)
	var st unix.Stat_t
	var here, there unix.Statx_t
	staging := filepath.Join(f.home.State(), quarantine.StagingName)
	return beneath.Stat(dir, name, &st) == unix.ENOENT &&
		unix.Statx(dir, "", unix.AT_EMPTY_PATH, unix.STATX_MNT_ID, &here) == nil && here.Mask&unix.STATX_MNT_ID != 0 &&
		unix.Statx(unix.AT_FDCWD, staging, unix.AT_SYMLINK_NOFOLLOW, unix.STATX_MNT_ID, &there) == nil && here.Mnt_id == there.Mnt_id
}

// Places are what a plan mounts.
func (f *Findings) Places() (places []survey.Place) {
	for _, u := range f.list {
		var st unix.Stat_t
		if u.source != "" && unix.Lstat(u.source, &st) == nil {
			places = append(places, survey.Place{
				Path: u.Path, Node: survey.Directory, Dev: survey.Device(st.Dev), Ino: st.Ino,
				Access: profiles.Write, Pin: true, Source: u.source, Why: "in quarantine, of session " + u.session,
			})
		}
	}
	return places
}

// MakeStubs makes the directories on which the plan mounts them. The line of each is recorded before it stands. The error is
// EEXIST too where somebody else has made one.
func (f *Findings) MakeStubs(record func(line string) error) error {
	for i := range f.list {
		u := &f.list[i]
		if u.source == "" {
			continue
		}
		staged := fmt.Sprintf("%s/%s/%d-%d", f.home.State(), quarantine.StagingName, os.Getpid(), i)
		if err := f.makeStub(u, staged, record); err != nil {
			return fmt.Errorf("make %s: %w: %w", beneath.Shorten(u.Path), err, unix.ESTALE)
		}
	}
	return nil
}

func (f *Findings) makeStub(u *finding, staged string, record func(line string) error) error {
	if err := unix.Mkdir(staged, u.Mode&0o777|0o700); err != nil {
		return err
	}
	defer unix.Rmdir(staged)
	var st unix.Stat_t
	if err := cmp.Or(unix.Lstat(staged, &st), record(StubLine(st.Dev, st.Ino))); err != nil {
		return err
	}
	dir, name, err := beneath.ParentOf(u.Path)
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	if err = unix.Renameat2(unix.AT_FDCWD, staged, dir, name, unix.RENAME_NOREPLACE); err == nil {
		u.dev, u.ino = st.Dev, st.Ino
		err = f.home.Renew(u.session) // lest gc removes what is in use
	}
	return err
}

// eachStub calls do with each stub that stands where it was made: the directory that holds it, and its name there.
func (f *Findings) eachStub(do func(u *finding, dir int, name string)) {
	for i := range f.list {
		u := &f.list[i]
		if u.ino == 0 {
			continue
		}
		dir, name, err := beneath.ParentOf(u.Path)
		if err != nil {
			continue
		}
		var st unix.Stat_t
		if beneath.Stat(dir, name, &st) == nil && st.Dev == u.dev && st.Ino == u.ino {
			do(u, dir, name)
		}
		unix.Close(dir)
	}
}

// AddTo adds those that stand to the stubs of a run.
func (f *Findings) AddTo(stubs *workspace.Stubs) {
	f.eachStub(func(u *finding, dir int, name string) {
		fd, err := beneath.Open(dir, name, unix.O_PATH|unix.O_DIRECTORY)
		if err != nil {
			fd = -1
		}
		stubs.Knows(u.dev, u.ino, fd)
	})
}

// RemoveStubs removes those of a run that nobody guards.
func (f *Findings) RemoveStubs() {
	f.eachStub(func(_ *finding, dir int, name string) { _ = unix.Unlinkat(dir, name, unix.AT_REMOVEDIR) })
}

// StillQuarantined returns what of the mounted is in quarantine as before, after the run, and a line that says so. What the command has
// emptied is no finding any more; kept is the reason for which its session is kept.
func (f *Findings) StillQuarantined(kept string) (held []workspace.Finding, line string) {
	var hints, names []string
	for _, u := range f.list {
		if u.ino == 0 || unix.Rmdir(u.source) == nil && f.releaseEmpty(u.session, kept) == nil {
			continue
		}
		held, hints = append(held, u.Finding), append(hints, "pccrun review "+u.session)
		names = append(names, f.name(u.Path))
	}
	if len(held) > 0 {
		line = "still in quarantine: " + strings.Join(names, " ") + " (" + strings.Join(slices.Compact(hints), ", ") + ")"
	}
	return held, line
}

// releaseEmpty lets a session go that has no finding any more.
func (f *Findings) releaseEmpty(id, kept string) error {
	dir, err := f.home.Open(id)
	if err != nil {
		return err
	}
	defer dir.Close()
	found, err := quarantine.ReadFindings(dir)
	if err == nil && len(found) == 0 {
		err = f.home.Release(id, kept)
	}
	return err
}

// name returns a path as one in the workspace, if it is.
func (f *Findings) name(path string) string { return messages.Within(f.workspace, path) }

// Missing says what git inside takes for deleted, since it is in quarantine and is not mounted. settled: there is nothing
// of that kind, and no later run has to look.
func (f *Findings) Missing() (lines []string, settled bool) {
	var missing []workspace.Finding
	settled = true
	for _, u := range f.list {
		settled = settled && u.Mode&unix.S_IFMT != unix.S_IFDIR
		if u.source == "" {
			missing = append(missing, u.Finding)
		}
	}
	deleted := deleted(f.workspace, missing)
	names, hints := map[string][]string{}, []string{}
	for _, u := range f.list {
		name := f.name(u.Path)
		if u.source != "" || !slices.ContainsFunc(deleted, func(path string) bool { return survey.Below(path, name) }) {
			continue
		}
		hint := "to restore: pccrun review " + u.session + " --accept PATH"
		if u.busy {
			hint = "another run in this workspace goes on with it"
		}
		if names[hint] == nil {
			hints = append(hints, hint)
		}
		names[hint] = append(names[hint], shell.Quote(name))
	}
	for _, hint := range hints {
		list := strings.Join(names[hint], " ")
		lines = append(lines, "git inside takes for deleted what is in quarantine: "+list+" ("+strings.Replace(hint, "PATH", list, 1)+")")
	}
	return lines, settled && len(deleted) == 0
}

// Deleted says what git on the host takes for deleted, since a run that began at start has left it in quarantine.
func Deleted(root string, found []workspace.Finding, start time.Time) (lines []string) {
	found = slices.DeleteFunc(slices.Clone(found), func(c workspace.Finding) bool { return !c.Protected() || c.Stash == "" })
	if n := len(deleted(root, found)); n > 0 {
		lines = append(lines, fmt.Sprintf("until you accept what is in quarantine, git on the host takes tracked files for deleted: %d", n))
	}
	if info, err := os.Lstat(root + "/.git/logs/HEAD"); err != nil || info.ModTime().Before(start) {
		return lines // nothing was committed
	}
	since := "--since=@" + strconv.FormatInt(start.Unix(), 10)
	if lost := names(root, found, "log", "HEAD", "--branches", since, "--diff-filter=D", "--no-renames", "--name-only", "--format="); len(lost) > 0 {
		lines = append(lines, "a new commit deletes what is in quarantine: "+strings.Join(slices.Compact(slices.Sorted(slices.Values(lost))), " "))
	}
	return lines
}

// deleted are the tracked files of findings that are not where git has them.
func deleted(root string, found []workspace.Finding) []string {
	return names(root, found, "ls-files", "--deleted", "--full-name")
}

// names has the workspace's git answer of the paths of findings.
func names(root string, found []workspace.Finding, args ...string) []string {
	var paths []string
	for _, c := range found {
		paths = append(paths, c.Path)
	}
	if _, err := os.Lstat(root + "/.git"); err != nil {
		return nil
	}
	return askgit.Names(root, root, paths, args...)
}

// StubLine is the line of an unfinished-run record that names a stub, by device and inode.
func StubLine(dev, ino uint64) string { return fmt.Sprintf("stub %d %d\n", dev, ino) }

// HasStub reports whether a run that goes on has made a stub. One of which that cannot be read is none.
func HasStub(home sessions.Home, dev, ino uint64) (has bool) {
	line := "\n" + StubLine(dev, ino)
	err := home.EachUnfinished(func(_, text string) error {
		_, lines, err := workspace.ParseStandings(text) // a name in these may look like such a line
		has = has || err == nil && strings.Contains("\n"+lines, line)
		return nil
	})
	return has && err == nil
}

// KilledStubs are the stubs that the record of a killed run names, in lines after that of who held the run.
func KilledStubs(lines string) *workspace.Stubs {
	stubs := workspace.NewStubs()
	for line := range strings.Lines(lines) {
		var dev, ino uint64
		if n, _ := fmt.Sscanf(line, "stub %d %d", &dev, &ino); n == 2 {
			stubs.Knows(dev, ino, -1)
		}
	}
	return stubs
}
