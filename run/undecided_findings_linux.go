package run

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/internal/messages"
	"github.com/pccrun/pccrun/internal/sessions"
	"github.com/pccrun/pccrun/internal/shell"
	"github.com/pccrun/pccrun/internal/survey"
	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/workspace"
	"github.com/pccrun/pccrun/workspace/beneath"
	"github.com/pccrun/pccrun/workspace/quarantine"
)

// A directory that a run has left in quarantine, and nobody has decided about, is there in the workspace's next sandbox:
// else git, for one, would take its files for deleted. It is mounted, from where it lies in the session, on a stub like
// those of [workspace.Stubs], and stays a finding of that session. Of two runs the one that makes the stub has it.

// An undecided finding is one of an earlier run in this workspace.
type undecided struct {
	workspace.Finding
	session  string
	source   string // where it is mounted from, "" if it is not
	busy     bool   // another run has it
	dev, ino uint64 // of its stub, once that is made
}

// hold takes in what is undecided, and adds what of it is mounted to the places of a run.
func (f *prepared) hold(s *survey.Survey) {
	f.undecided = nil
	if !f.holds {
		return
	}
	home := sessions.In(f.dirs.State)
	list, err := home.List()
	if err != nil {
		return
	}
	seen, room := map[string]bool{}, workspace.MaxStubs/2 // the rest is for what this run makes
	for _, e := range slices.Backward(list) {
		if e.Workspace != f.policy.Workspace || !slices.Contains(e.Kept, KeepChanges) {
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
			u := undecided{Finding: c, session: e.ID}
			if e.State == sessions.Ended && room > 0 && f.mountable(c) && c.Single(dir) {
				room--
				u.source, _ = filepath.EvalSymlinks(filepath.Join(f.dirs.State, "sessions", e.ID, quarantine.StashName, c.Stash))
			}
			var st unix.Stat_t
			u.busy = e.State == sessions.Running || u.source == "" && unix.Lstat(c.Path, &st) == nil && hasStub(home, st.Dev, st.Ino)
			if u.source != "" && unix.Lstat(u.source, &st) == nil {
				s.Places = append(s.Places, survey.Place{
					Path: c.Path, Node: survey.Directory, Dev: survey.Device(st.Dev), Ino: st.Ino,
					Access: profiles.Write, Pin: true, Source: u.source, Why: "in quarantine, of session " + e.ID,
				})
			}
			f.undecided = append(f.undecided, u)
		}
		dir.Close()
	}
}

// mountable reports whether a finding can be mounted where it stood: what stood there is a directory, nothing does now,
// and the command could make one there, which would be quarantined and go on working.
func (f *prepared) mountable(c workspace.Finding) bool {
	p := f.policy
	if !f.native() || f.uid == 0 || p.Nested || p.Strict || p.ProtectStrict || !survey.Guards(p) || c.Mode&unix.S_IFMT != unix.S_IFDIR {
		return false
	}
	if _, in := beneath.Path(p.Workspace, c.Path); !in || c.Path == p.Workspace {
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
	staging := filepath.Join(f.dirs.State, quarantine.StagingName)
	return beneath.Stat(dir, name, &st) == unix.ENOENT &&
		unix.Statx(dir, "", unix.AT_EMPTY_PATH, unix.STATX_MNT_ID, &here) == nil && here.Mask&unix.STATX_MNT_ID != 0 &&
		unix.Statx(unix.AT_FDCWD, staging, unix.AT_SYMLINK_NOFOLLOW, unix.STATX_MNT_ID, &there) == nil && here.Mnt_id == there.Mnt_id
}

// makeStubs makes the directories on which the plan mounts what is undecided. Each is written down before it stands.
// Where one cannot be made, the run is planned anew.
func (f *flow) makeStubs() error {
	for i := range f.undecided {
		u := &f.undecided[i]
		if u.source == "" {
			continue
		}
		if err := f.makeStub(u, fmt.Sprintf("%s/%s/%d-%d", f.dirs.State, quarantine.StagingName, os.Getpid(), i)); err != nil {
			f.holds = err == unix.EEXIST // somebody was quicker, which is seen by then
			return fmt.Errorf("make %s: %v: %w", beneath.Shorten(u.Path), err, unix.ESTALE)
		}
	}
	return nil
}

func (f *flow) makeStub(u *undecided, staged string) error {
	if err := unix.Mkdir(staged, u.Mode&0o777|0o700); err != nil {
		return err
	}
	defer unix.Rmdir(staged)
	var st unix.Stat_t
	if err := cmp.Or(unix.Lstat(staged, &st), f.addToRecord(stubLine(st.Dev, st.Ino))); err != nil {
		return err
	}
	dir, name, err := beneath.ParentOf(u.Path)
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	if err = unix.Renameat2(unix.AT_FDCWD, staged, dir, name, unix.RENAME_NOREPLACE); err == nil {
		u.dev, u.ino = st.Dev, st.Ino
		err = sessions.In(f.dirs.State).Renew(u.session) // lest gc removes what is in use
	}
	return err
}

// eachStub calls do with what is undecided and has a stub, with the directory in which that stands and its name, as far as
// it does.
func (f *flow) eachStub(do func(u *undecided, dir int, name string)) {
	for i := range f.undecided {
		u := &f.undecided[i]
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

// removeStubs removes those of a run that nobody looks after.
func (f *flow) removeStubs() {
	f.eachStub(func(_ *undecided, dir int, name string) { _ = unix.Unlinkat(dir, name, unix.AT_REMOVEDIR) })
}

// stillHeld says of what was mounted that it is in quarantine as before, and returns it. What the command has emptied is
// no finding any more.
func (f *flow) stillHeld() (held []workspace.Finding) {
	home := sessions.In(f.dirs.State)
	var ids, paths []string
	for _, u := range f.undecided {
		if u.ino == 0 || unix.Rmdir(u.source) == nil && dropEmptied(home, u.session) == nil {
			continue
		}
		held, ids = append(held, u.Finding), append(ids, "pccrun review "+u.session)
		paths = append(paths, Within(f.policy.Workspace, u.Path))
	}
	if len(held) > 0 && !f.req.Quiet {
		messages.Say("still in quarantine: " + strings.Join(paths, " ") + " (" + strings.Join(slices.Compact(ids), ", ") + ")")
	}
	return held
}

// dropEmptied lets go of a session that has no finding any more.
func dropEmptied(home sessions.Home, id string) error {
	dir, err := home.Open(id)
	if err != nil {
		return err
	}
	defer dir.Close()
	found, err := quarantine.ReadFindings(dir)
	if err == nil && len(found) == 0 {
		err = home.Release(id, KeepChanges)
	}
	return err
}

// sayUndecided says what git inside takes for deleted, since it is in quarantine and is not mounted.
func (f *prepared) sayUndecided() {
	if !f.holds || f.req.Quiet {
		return
	}
	var missing []workspace.Finding
	for _, u := range f.undecided {
		if u.source == "" {
			missing = append(missing, u.Finding)
		}
	}
	deleted := f.deleted(missing)
	paths, hints := map[string][]string{}, []string{}
	for _, u := range f.undecided {
		name := Within(f.policy.Workspace, u.Path)
		if u.source != "" || !slices.ContainsFunc(deleted, func(path string) bool { return within(name, path) }) {
			continue
		}
		hint := "to restore: pccrun review " + u.session + " --accept PATH"
		if u.busy {
			hint = "another run in this workspace goes on with it"
		}
		if paths[hint] == nil {
			hints = append(hints, hint)
		}
		paths[hint] = append(paths[hint], shell.Quote(name))
	}
	for _, hint := range hints {
		list := strings.Join(paths[hint], " ")
		messages.Say("git inside takes for deleted what is in quarantine: " + list + " (" + strings.Replace(hint, "PATH", list, 1) + ")")
	}
	if len(deleted) == 0 && !slices.ContainsFunc(f.undecided, func(u undecided) bool { return u.Mode&unix.S_IFMT == unix.S_IFDIR }) {
		_ = sessions.In(f.dirs.State).Hold(f.policy.Workspace, false) // else the next run looks again
	}
}

// sayDeleted says what git takes for deleted since it is in quarantine.
func (f *flow) sayDeleted(found []workspace.Finding) {
	found = slices.DeleteFunc(slices.Clone(found), func(c workspace.Finding) bool { return !c.Protected() || c.Stash == "" })
	if len(found) == 0 || os.Getuid() != f.uid { // who was root cannot start a sandbox any more
		return
	}
	if n := len(f.deleted(found)); n > 0 {
		messages.Say(fmt.Sprintf("until you accept what is in quarantine, git on the host takes tracked files for deleted: %d", n))
	}
	start := f.guarded.standing[0].Start
	if info, err := os.Lstat(f.policy.Workspace + "/.git/logs/HEAD"); err != nil || info.ModTime().Before(start) {
		return // nothing was committed
	}
	since := "--since=@" + strconv.FormatInt(start.Unix(), 10)
	if lost := f.names(found, "log", "HEAD", "--branches", since, "--diff-filter=D", "--no-renames", "--name-only", "--format="); len(lost) > 0 {
		messages.Say("a new commit deletes what is in quarantine: " + strings.Join(slices.Compact(slices.Sorted(slices.Values(lost))), " "))
	}
}

// deleted are the tracked files of findings that are not where git has them.
func (f *prepared) deleted(found []workspace.Finding) []string {
	return f.names(found, "ls-files", "--deleted", "--full-name")
}

// names has the workspace's git answer of the paths of findings.
func (f *prepared) names(found []workspace.Finding, args ...string) []string {
	var paths []string
	for _, c := range found {
		paths = append(paths, c.Path)
	}
	root := f.policy.Workspace
	if _, err := os.Lstat(root + "/.git"); err != nil || len(paths) == 0 {
		return nil
	}
	return names(root, root, paths, args...)
}
