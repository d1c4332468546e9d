package changes

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pccrun/pccrun/test/fixture"
	"github.com/pccrun/pccrun/workspace"
)

// TestApplyChild is the process that is killed: it applies what a session
// keeps, and dies after as many steps as it is told.
func TestApplyChild(t *testing.T) {
	session, steps := os.Getenv("PCCRUN_TEST_SESSION"), os.Getenv("PCCRUN_TEST_STEPS")
	if session == "" {
		return // it is a test only when it is started by another
	}
	left, err := strconv.Atoi(steps)
	require.NoError(t, err)
	root, err := os.OpenRoot(session)
	require.NoError(t, err)
	u, err := OpenUpper(root, nil)
	require.NoError(t, err)
	require.NoError(t, u.Begin())
	passed = func() {
		if left--; left < 0 {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			time.Sleep(time.Minute)
		}
	}
	switch os.Getenv("PCCRUN_TEST_VERB") {
	case "apply":
		_, err = u.Apply(Selection{})
	case "discard":
		err = u.TakeBack()
	case "remove":
		err = RemoveUpper(root)
	}
	require.NoError(t, err)
}

// What is removed is out of sight at once: nobody applies the half of it.
func TestRemoveKilled(t *testing.T) {
	s := closedStand(t, crashWork...)
	require.True(t, Stands(s.root()), "the control")
	require.True(t, s.killed("remove", 0))
	require.False(t, Stands(s.root()))
	require.DirExists(t, filepath.Join(s.session, goneName, "0", treeName), "it was killed before it was through")
	require.NoError(t, RemoveUpper(s.root()))
	names, err := os.ReadDir(s.session)
	require.NoError(t, err)
	require.Empty(t, names)
}

// What cannot be taken back, since the host has taken the names, is not removed with
// what was made for the apply: it was lost.
func TestTakeBackStuck(t *testing.T) {
	s := newStand(t, before).run(crashWork...).settle()
	old := treeOf(t, s.host)
	taken := []string{"gone", "gone.pccrun-before", "new"}
	passed = func() {
		if _, err := os.Lstat(filepath.Join(s.host, "gone")); err == nil {
			return
		}
		for _, name := range taken {
			require.NoError(t, os.WriteFile(filepath.Join(s.host, name), []byte("the host was here"), 0o644))
		}
	}
	defer func() { passed = func() {} }()
	_, err := s.apply()
	require.ErrorContains(t, err, "undo "+filepath.Join(s.host, "gone"))
	passed = func() {}
	require.True(t, s.open().Interrupted())
	for _, name := range taken {
		require.NoError(t, os.Remove(filepath.Join(s.host, name)))
	}
	u := s.open()
	require.NoError(t, u.Begin())
	require.NoError(t, u.TakeBack())
	require.Equal(t, old, treeOf(t, s.host))
}

// killed runs a verb in a process that dies after some steps, and reports
// whether it did.
func (s *stand) killed(verb string, steps int) bool {
	binary, err := os.Executable()
	require.NoError(s.t, err)
	cmd := exec.Command(binary, "-test.run=^TestApplyChild$")
	cmd.Env = append(os.Environ(), "PCCRUN_TEST_SESSION="+s.session, "PCCRUN_TEST_STEPS="+strconv.Itoa(steps), "PCCRUN_TEST_VERB="+verb)
	out, err := cmd.CombinedOutput()
	if err == nil {
		return false
	}
	status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus)
	require.True(s.t, ok && status.Signaled(), "%v: %s", err, out)
	return true
}

var crashWork = [][2]string{{"f", "new"}, {"gone", "gone"}, {"d", "gone"}, {"dir", "a file"}, {"closed", "0700 dir"}, {"new/x/y", "y"}, {"file/now", "dir"}, {"link", "-> same"}}

// closedStand is one with closed directories: those that the command closed, having worked in them, and two that it
// made so.
func closedStand(t *testing.T, more ...[2]string) *stand {
	files := map[string]string{"shut/old": "old", "shut/gone": "gone", "shut/deep/old": "old"}
	maps.Copy(files, before)
	return newStand(t, files).run(append(more,
		[2]string{"shut/old", "new"}, [2]string{"shut/gone", "gone"}, [2]string{"shut/new/f", "f"}, [2]string{"shut/deep/old", "new"}, [2]string{"shut/deep", "0001 dir"}, [2]string{"shut", "0001 dir"},
		[2]string{"made/in/f", "f"}, [2]string{"made/in", "0001 dir"}, [2]string{"made", "0200 dir"})...).settle()
}

// What the command closed is applied with what is in it, readable to its owner.
func TestApplyClosed(t *testing.T) {
	s := closedStand(t)
	out, err := s.apply()
	require.NoError(t, err)
	require.Zero(t, out.Left)
	now := treeOf(t, s.host)
	for name, want := range map[string]string{
		"shut": "dr-x-----x ", "shut/old": "-rw-r--r-- new", "shut/new/f": "-rw-r--r-- f", "shut/deep": "dr-x-----x ", "shut/deep/old": "-rw-r--r-- new",
		"made": "drwx------ ", "made/in": "dr-x-----x ", "made/in/f": "-rw-r--r-- f",
	} {
		require.Equal(t, want, now[name], name)
	}
	require.NotContains(t, now, "shut/gone")
	require.Empty(t, s.diff())
	require.False(t, s.open().Interrupted())
}

// Wherever an apply is killed, a second one completes it and a discard takes it
// back, each whole; nothing of it is left beside the files. So it is when what
// comes after it is killed too.
func TestApplyKilled(t *testing.T) {
	make := func() (*stand, map[string]string) {
		s := closedStand(t, crashWork...)
		return s, treeOf(t, s.host)
	}
	done, _ := make()
	_, err := done.apply()
	require.NoError(t, err)
	applied := treeOf(t, done.host)
	both := 0
	for steps, more := 0, true; more; steps++ {
		for _, verb := range [...]string{"apply", "discard"} {
			s, old := make()
			more = s.killed("apply", steps)
			if !more {
				break
			}
			if steps%3 == 1 {
				s.killed(verb, steps/3)
				both++
			}
			u, err := OpenUpper(s.root(), nil)
			require.NoError(t, err)
			require.NoError(t, u.Begin(), "a lock dies with its process")
			want := applied
			if verb == "apply" {
				_, err = u.Apply(Selection{})
			} else {
				cleaning := phaseOf(t, s.session) == cleaning
				decided := phaseOf(t, s.session) == "" && maps.Equal(treeOf(t, s.host), applied)
				if want = old; cleaning || decided {
					want = applied // it had come to its end
				}
				err = u.TakeBack()
			}
			require.NoError(t, err, "%s after %d steps", verb, steps)
			require.False(t, u.Interrupted())
			require.NoError(t, u.Close())
			require.Equal(t, want, treeOf(t, s.host), "%s after %d steps", verb, steps)
			// And what was taken back can be applied after all.
			_, err = s.apply()
			require.NoError(t, err, "%s after %d steps", verb, steps)
			require.Equal(t, applied, treeOf(t, s.host))
		}
		require.Less(t, steps, 200)
	}
	require.Greater(t, both, 5)
}

func phaseOf(t *testing.T, session string) phase {
	text, err := os.ReadFile(filepath.Join(session, UpperName, journalName))
	if os.IsNotExist(err) {
		return ""
	}
	require.NoError(t, err)
	j, err := parseJournal(text, 1)
	require.NoError(t, err)
	return j.Phase
}

// Where a step fails, all is as it was.
func TestApplyFails(t *testing.T) {
	for _, name := range []string{"f", "gone", "d/a", "new"} {
		t.Run(name, func(t *testing.T) {
			s := newStand(t, before).run(crashWork...).settle()
			old := treeOf(t, s.host)
			n := 0
			passed = func() { // between the look and the rename
				if n++; n == 3 {
					path := filepath.Join(s.host, name)
					require.NoError(t, os.WriteFile(path, []byte("the host was here"), 0o644))
				}
			}
			defer func() { passed = func() {} }()
			_, err := s.apply()
			require.Error(t, err)
			now := treeOf(t, s.host)
			require.Contains(t, now[name], "the host was here")
			delete(now, name)
			delete(old, name)
			require.Equal(t, old, now)
			require.False(t, s.open().Interrupted())
		})
	}
}

func TestApplyCannotWrite(t *testing.T) {
	if os.Getuid() == 0 {
		t.Skip("needs a user who is not root")
	}
	s := newStand(t, before).run(crashWork...).settle()
	require.NoError(t, os.Chmod(filepath.Join(s.host, "closed"), 0o755))
	require.NoError(t, os.Chmod(s.host, 0o555))
	defer os.Chmod(s.host, 0o755)
	old := treeOf(t, s.host)
	_, err := s.apply()
	require.ErrorIs(t, err, os.ErrPermission)
	require.Equal(t, old, treeOf(t, s.host))
	require.False(t, s.open().Interrupted())

	// Nor is a directory opened that the host has closed since.
	s = newStand(t, map[string]string{"d/old": "old"}).run([2]string{"d/new", "new"}).settle()
	require.NoError(t, os.Chmod(filepath.Join(s.host, "d"), 0o500))
	old = treeOf(t, s.host)
	_, err = s.apply()
	require.ErrorIs(t, err, os.ErrPermission)
	require.Equal(t, old, treeOf(t, s.host))
	require.NoError(t, os.Chmod(filepath.Join(s.host, "d"), 0o700))
	_, err = s.apply()
	require.NoError(t, err, "the control")
}

func TestApplyTogether(t *testing.T) {
	s := newStand(t, before).run(crashWork...).settle()
	u := s.open()
	require.NoError(t, u.Begin())
	require.Error(t, s.open().Begin(), "one at a time")
}

// An owner is kept, or nothing is applied.
func TestApplyOwner(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	s := newStand(t, map[string]string{"f": "old", "d/g": "g"})
	require.NoError(t, os.Chown(filepath.Join(s.host, "f"), 1234, 2345))
	require.NoError(t, os.Chown(filepath.Join(s.host, "d"), 77, 78))
	s.run([2]string{"f", "new"}, [2]string{"d/n/m", "m"}).settle()
	_, err := s.apply("--force") // the owners are set after the run began
	require.NoError(t, err)
	for name, want := range map[string]string{"f": "1234 2345", "d/n": "77 78", "d/n/m": "77 78"} {
		info, err := os.Lstat(filepath.Join(s.host, name))
		require.NoError(t, err)
		st := info.Sys().(*syscall.Stat_t)
		require.Equal(t, want, fmt.Sprint(st.Uid, " ", st.Gid), name)
	}
}

// What the command has written is no program with its owner's rights, though a file
// of that name was one.
func TestApplySetID(t *testing.T) {
	s := newStand(t, map[string]string{"tool": "0755 old"})
	require.NoError(t, os.Chmod(filepath.Join(s.host, "tool"), 0o755|os.ModeSetuid|os.ModeSetgid))
	s.run([2]string{"tool", "0755 the command's"}).settle()
	_, err := s.apply("--force") // the bits are set after the run began
	require.NoError(t, err)
	info, err := os.Lstat(filepath.Join(s.host, "tool"))
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o755), info.Mode())
	text, err := os.ReadFile(filepath.Join(s.host, "tool"))
	require.NoError(t, err)
	require.Equal(t, "the command's", string(text), "else this proves nothing")
	require.Empty(t, s.diff(), "and it is no difference any more")
}

func TestAttributes(t *testing.T) {
	for name, want := range map[string]string{
		"user.x": "user.x", "user.overlay.opaque": "", "user.overlay.overlay.opaque": "user.overlay.opaque", "security.capability": "",
		"trusted.x": "", "system.posix_acl_access": "system.posix_acl_access",
	} {
		require.Equal(t, want, attribute(name), name)
	}
}

func TestJournal(t *testing.T) {
	j := &journal{Phase: committing, Steps: []step{
		{Op: put, Layer: 1, Path: "a\nb", Temp: ".pccrun-apply-x-0", New: 7, Old: 8},
		{Op: mode, Path: ".", Temp: ".pccrun-apply-x-1", Modes: [2]uint32{0o755, 0o700}},
		{Op: remove, Path: "d/e", Temp: "d/.pccrun-apply-x-2", Old: 9},
	}}
	got, err := parseJournal(j.append(nil), 2)
	require.NoError(t, err)
	require.Equal(t, j, got)
	_, err = parseJournal(j.append(nil), 1)
	require.Error(t, err)
	text := string(j.append(nil))
	for _, bad := range []string{"", journalHeader, text[:len(text)-1], text + "x", strings.Replace(text, "apply 2", "apply 1", 1)} {
		_, err := parseJournal([]byte(bad), 2)
		require.ErrorIs(t, err, errJournal, bad)
	}
	for _, bad := range []journal{
		{Phase: "sleeping"}, {Phase: staging, Steps: []step{{Op: put, Path: "../x", Temp: ".pccrun-apply-x"}}}, {Phase: staging, Steps: []step{{Op: put, Path: "x", Temp: "y"}}},
		{Phase: staging, Steps: []step{{Op: "link", Path: "x", Temp: ".pccrun-apply-x"}}}, {Phase: staging, Steps: []step{{Op: put, Layer: -1, Path: "x", Temp: ".pccrun-apply-x"}}},
		{Phase: staging, Steps: []step{{Op: put, Path: "x", Temp: ".pccrun-apply-x", Modes: [2]uint32{0, 9999}}}},
	} {
		_, err := parseJournal(bad.append(nil), 1)
		require.ErrorIs(t, err, errJournal, bad)
	}
}

func FuzzJournal(f *testing.F) {
	f.Add((&journal{Phase: staging, Steps: []step{{Op: put, Path: "a", Temp: ".pccrun-apply-1", New: 1}}}).append(nil))
	f.Fuzz(func(t *testing.T, text []byte) {
		j, err := parseJournal(text, 2)
		if err != nil {
			return
		}
		for _, s := range j.Steps {
			require.True(t, localPath(s.Path) && localPath(s.Temp))
		}
		again, err := parseJournal(j.append(nil), 2)
		require.NoError(t, err)
		require.Equal(t, j, again)
	})
}

func TestRecord(t *testing.T) {
	r := &Record{
		Workspace: "/w", Started: -5, Layers: []Layer{{"/w", 1, 2}, {"/h/\xff\n", 3, 4}}, Protect: append(fixture.Protect(".envrc"), fixture.Review("x y")...), Ended: true,
		Stood: []Stood{{Layer: 1, Path: "a\nb"}, {Path: ".", Entry: &Entry{Kind: workspace.Dir, Mode: 0o1777, Stamp: Stamp{9, -1, 2, 3, 4}}, Touched: true}, {Path: "f", Entry: &Entry{Size: 10}, Index: 1<<64 - 1}},
	}
	got, err := parseRecord(r.append(nil))
	require.NoError(t, err)
	for i := range got.Protect {
		got.Protect[i].Origin = r.Protect[i].Origin
	}
	require.Equal(t, r, got)
	text := string(r.append(nil))
	for _, bad := range []string{"", recordHeader, text[:len(text)-1], text + "x", strings.Replace(text, "overlay 2", "overlay 1", 1)} {
		_, err := parseRecord([]byte(bad))
		require.ErrorIs(t, err, errRecord, bad)
	}
	good := func(change func(r *Record)) []byte {
		r := &Record{Workspace: "/w", Layers: []Layer{{"/w", 1, 2}}, Stood: []Stood{{Path: "a"}}}
		change(r)
		return r.append(nil)
	}
	_, err = parseRecord(good(func(*Record) {}))
	require.NoError(t, err, "the control")
	for name, change := range map[string]func(r *Record){
		"no layer": func(r *Record) { r.Layers = nil }, "a relative layer": func(r *Record) { r.Layers[0].Path = "w" }, "a relative workspace": func(r *Record) { r.Workspace = "w" },
		"of no layer": func(r *Record) { r.Stood[0].Layer = 1 }, "an absolute path": func(r *Record) { r.Stood[0].Path = "/a" }, "a path that leads up": func(r *Record) { r.Stood[0].Path = "a/../b" },
		"of no kind": func(r *Record) { r.Stood[0].Entry = &Entry{Kind: 9} },
	} {
		_, err := parseRecord(good(change))
		require.ErrorIs(t, err, errRecord, name)
	}
}

func FuzzRecord(f *testing.F) {
	f.Add((&Record{Workspace: "/w", Layers: []Layer{{"/w", 1, 2}}, Stood: []Stood{{Path: "a"}}, Protect: fixture.Protect("x")}).append(nil))
	f.Fuzz(func(t *testing.T, text []byte) {
		r, err := parseRecord(text)
		if err != nil {
			return
		}
		again, err := parseRecord(r.append(nil))
		require.NoError(t, err)
		require.Equal(t, r, again)
	})
}

func TestComparePaths(t *testing.T) {
	list := strings.Fields(". a a/b a/b/c a-b a.b b")
	mixed := slices.Clone(list)
	slices.Reverse(mixed)
	slices.SortFunc(mixed, ComparePaths)
	require.Equal(t, list, mixed)
}

// lostDir takes the directory sub away in each way that the host has.
var lostDir = map[string]func(s *stand){
	"stands": func(*stand) {},
	"removed": func(s *stand) {
		_ = os.Chmod(filepath.Join(s.host, "sub/shut"), 0o700)
		require.NoError(s.t, os.RemoveAll(filepath.Join(s.host, "sub")))
	},
	"a file":   func(s *stand) { s.replace("sub", "host") },
	"link out": func(s *stand) { s.replace("sub", "-> "+s.session) },
	"link in":  func(s *stand) { s.replace("sub", "-> sub.real") },
}

func (s *stand) replace(name, text string) {
	require.NoError(s.t, os.Rename(filepath.Join(s.host, name), filepath.Join(s.host, name+".real")))
	s.put(s.host, name, text)
}

// Where the host has no directory any more in which something was changed, as on another
// branch, that is a conflict, and can be decided: it was told of by no one, apply failed
// also with --force, and from then on neither apply nor discard could ever end.
func TestApplyLostDirectory(t *testing.T) {
	for name, take := range lostDir {
		t.Run(name, func(t *testing.T) {
			s := newStand(t, map[string]string{"sub/old": "old", "sub/deep/old": "old", "f": "old"})
			s.run([2]string{"sub/new", "new"}, [2]string{"sub/deep/new", "new"}, [2]string{"f", "new"}).settle()
			take(s)
			old := treeOf(t, s.host)
			var conflict *ConflictError
			if name != "stands" { // the control
				_, err := s.apply()
				require.ErrorAs(t, err, &conflict)
				require.Equal(t, "sub", conflict.Changes[0].Path)
				_, err = s.apply("sub/new")
				require.ErrorAs(t, err, &conflict, "of the file alone it is one too")
				require.Equal(t, old, treeOf(t, s.host))
				_, err = s.apply("f")
				require.NoError(t, err, "what has nothing to do with it can be applied")
			}
			if name != "stands" && name != "removed" { // it is the host's, and nobody has seen it
				old = treeOf(t, s.host)
				for _, path := range []string{".", "sub", "sub/new"} {
					_, err := s.apply("--force", path)
					require.ErrorContains(t, err, "sub: the host replaced the directory by a ")
				}
				require.Equal(t, old, treeOf(t, s.host))
				require.NoError(t, os.Remove(filepath.Join(s.host, "sub")))
			}
			_, err := s.apply("--force", "sub/deep/new")
			require.NoError(t, err)
			_, err = s.apply("--force")
			require.NoError(t, err)
			now := treeOf(t, s.host)
			for _, file := range []string{"sub/new", "sub/deep/new", "f"} {
				require.Equal(t, "-rw-r--r-- new", now[file])
			}
			require.Empty(t, s.diff())
			require.False(t, s.open().Interrupted())
			inSession, err := os.ReadDir(s.session)
			require.NoError(t, err)
			require.Len(t, inSession, 1, "nothing came through the link")
		})
	}
}

// Wherever an apply is killed before the host takes a directory away, a discard ends.
func TestDiscardLostDirectory(t *testing.T) {
	for name, take := range lostDir {
		t.Run(name, func(t *testing.T) {
			for steps, more := 0, true; more; steps++ {
				s := newStand(t, map[string]string{"sub/old": "old", "sub/gone": "gone", "sub/shut/old": "old", "f": "old"})
				s.run([2]string{"sub/new", "new"}, [2]string{"sub/old", "new"}, [2]string{"sub/gone", "gone"}, [2]string{"sub/shut/old", "new"}, [2]string{"sub/shut", "0001 dir"}, [2]string{"f", "new"}).settle()
				if more = s.killed("apply", steps); !more {
					require.Greater(t, steps, 10)
					break
				}
				take(s)
				u := s.open()
				require.NoError(t, u.Begin())
				if err := u.TakeBack(); err != nil { // that something is not where it was is told once
					require.ErrorContains(t, err, "undo ", steps)
					require.NotEqual(t, "stands", name)
				}
				require.False(t, u.Interrupted(), steps)
				require.NoError(t, u.TakeBack(), steps)
				require.NoError(t, u.Close())
			}
		})
	}
}
