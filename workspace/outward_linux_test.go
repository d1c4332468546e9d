package workspace

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/workspace/beneath"
	"github.com/pccrun/pccrun/workspace/internal/fixture"
)

// own begins guards over the workspace and over what an agent keeps, which is beside it.
func (w *watchman) own(inward bool) (guards Guards, records []*Standing) {
	time.Sleep(2 * racy)
	state := filepath.Dir(w.root) + "/state"
	w.query.Protect = append(slices.Clip(w.query.Protect), fixture.Protect(state+"/settings.json", state+"/commands")...)
	q := Query{Root: state, Protect: append(fixture.Protect(".git/hooks"), fixture.Review(".git/config")...), Aside: true, Kept: true, Inward: inward}
	stash := w.stash()
	for _, q := range []Query{w.query, q} {
		found := scanOf(w.t, q)
		s := found.Standing("20261121T120000Z-0a0b0c0d", q)
		g, err := NewGuard(s, found, nil, stash, func(f Finding) { w.told <- f })
		require.NoError(w.t, err)
		guards, records = append(guards, g), append(records, s)
	}
	return Together(guards...), records
}

// killed are the guards that somebody else makes of what was written down.
func (w *watchman) killed(guards Guards, records []*Standing) Guards {
	guards.Close()
	list, _, err := ParseStandings(string(records[1].Append(records[0].Append(nil))))
	require.NoError(w.t, err)
	require.Equal(w.t, records[1].Inward, list[1].Inward)
	stash := w.stash()
	guards = nil
	for _, s := range list {
		g, err := NewGuard(s, nil, nil, stash, func(f Finding) { w.told <- f })
		require.NoError(w.t, err)
		guards = append(guards, g)
	}
	return Together(guards...)
}

// What an agent writes outside, in what it keeps, goes where a link leads: none is left
// that leads out, and those stay that stood, that lead to what is kept, and that nothing
// is written through.
func TestGuardOutward(t *testing.T) {
	for _, mode := range []string{"off", "on", "killed"} {
		t.Run(mode, func(t *testing.T) {
			w := newWatchman(t)
			state := filepath.Dir(w.root) + "/state"
			w.sh(`mkdir -p ../state/projects/p ../state/far/deep ../state/far/near ../other/d ../bin; cp /bin/true ../bin/codex; ln -s ../rc ../state/old
				ln -s ../../projects/f ../state/far/deep/l; ln -s ../../projects/f ../state/far/near/l; ln -s state ../alias; ln -s ../projects ../state/far/up; mkdir d`)
			guards, records := w.own(mode != "off")
			w.sh(`cd ../state; ln -s "$PWD/../rc" log; ln -s ../../rc projects/rel; ln -s projects/../../rc dots; ln -s old hop; ln -s hop hops; ln -s ../gone/f lost; ln -s .. dir; ln -s / root
				ln -s ../ws/x into; ln -s ../ws/d/../../state/by by; ln -s ../other/d/../../state/by by2; ln -s settings.json set; ln -s . all; ln -s commands/x command; ln -s /proc/self/cwd/x proc
				mv far/deep moved; ln -s ../bin/codex arg
				ln -s projects/f in; ln -s "$PWD/in" in2; ln -s missing later; ln -s ../state/projects/f back; ln -s ../alias/projects/f alias; ln -s /dev/null null; mv far/near far/next
				mkdir venv; ln -s /usr/bin/env venv/env`)
			w.sh("for f in log dots hop hops; do rm -f ../rc; echo x >> ../state/$f; test -e ../rc; done; rm ../rc; echo x >> ../state/moved/l 2> /dev/null || mkdir ../projects; echo x >> ../state/moved/l; test -e ../projects/f; rm -r ../projects") // the control
			if mode == "killed" {
				guards = w.killed(guards, records)
			}
			all, err := guards.Finish()
			require.NoError(t, err)
			guards.Close()
			out := []string{"all", "arg", "by", "by2", "command", "dir", "dots", "hop", "into", "log", "lost", "moved/l", "proc", "projects/rel", "root", "set"}
			if os.Getuid() == 0 {
				out = append(out, "venv/env") // which root can write to
			}
			if mode == "off" {
				out = nil
			}
			var want []string
			for _, name := range out {
				want = append(want, "inert "+state+"/"+name)
			}
			require.ElementsMatch(t, want, w.names(all))
			for _, name := range []string{"old", "in", "in2", "later", "back", "alias", "null", "far/next/l", "far/up", "hops"} {
				_, err := os.Lstat(state + "/" + name)
				require.NoError(t, err, name)
			}
			for _, name := range out {
				_, err := os.Lstat(state + "/" + name)
				require.ErrorIs(t, err, os.ErrNotExist, name)
			}
			if mode == "on" { // and back, where the user wants it
				for _, f := range all {
					require.NoError(t, f.Restore(w.session))
				}
				w.sh("test -L ../state/log")
			}
		})
	}
}

// What an agent keeps that it has only just made is brought to the host without them.
func TestGuardOutwardMade(t *testing.T) {
	for _, inward := range []bool{false, true} {
		w := newWatchman(t)
		guards, _ := w.beside()
		home := filepath.Dir(w.root) + "/home"
		require.NoError(t, os.Mkdir(home, 0o700))
		w.sh("mkdir -p ../private/state/d; ln -s ../rc ../private/state/log; ln -s $PWD/../home/rc ../private/state/d/abs; ln -s $(dirname $PWD)/home/state/x ../private/state/in; ln -s d/y ../private/state/rel")
		fd, err := openRoot(filepath.Dir(w.root) + "/private")
		require.NoError(t, err)
		guards[0].Made = []Carried{{Path: home + "/state", Dir: fd, Name: "state", Protect: []profiles.ProtectRule{{Pattern: ".git/config", Review: true}}, Inward: inward}}
		found, err := guards.Finish()
		require.NoError(t, err)
		guards.Close()
		var want []string
		if inward {
			want = []string{"inert " + home + "/state/d/abs", "inert " + home + "/state/log"}
		}
		require.ElementsMatch(t, want, w.names(found))
		for _, name := range []string{"in", "rel"} {
			_, err := os.Lstat(home + "/state/" + name)
			require.NoError(t, err)
		}
	}
}

// A link that was moved with its directory, and so leads elsewhere, is known for one
// when the launcher was killed too.
func TestGuardMovedAfterDeath(t *testing.T) {
	w := newWatchman(t)
	w.sh("mkdir -p old d/n node_modules/p/n; ln -s ../../../rc old/HEAD; ln -s ../x d/n/l; ln -sf ../rc .git/stood; ln -s ../.git/x node_modules/p/n/l")
	text := w.begin().Append(nil)
	w.guard.Close()
	w.sh("mv old .git/lfs; mv d/n n; touch .git/f node_modules/f")
	s, _, err := ParseStanding(string(text))
	require.NoError(t, err)
	require.Len(t, s.Linked, 3)
	w.guard, err = NewGuard(s, nil, nil, w.stash(), func(Finding) {})
	require.NoError(t, err)
	require.Equal(t, []string{"inert .git/lfs/HEAD"}, w.end())
}

// A link that came a moment before the run is the user's, though its ctime does not
// tell: not one of its name that leads elsewhere, nor what another run may have made.
func TestGuardOutwardRecent(t *testing.T) {
	for name, c := range map[string]struct {
		between, during string
		another         bool
		want            []string
	}{
		"it stays":                 {},
		"the control":              {during: "ln -s ../../other ../state/b", want: []string{"b"}},
		"made anew":                {during: "rm ../state/a; ln -s ../../other ../state/a"},
		"it leads elsewhere":       {during: "ln -sf ../rc ../state/a", want: []string{"a"}},
		"in a directory that came": {during: "mkdir ../state/n; mv ../state/a ../state/n", want: []string{"n/a"}},
		"another run's":            {another: true, want: []string{"a"}},
		"set aside by another":     {between: "rm ../state/a", during: "ln -s ../../other ../state/a", want: []string{"a"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWatchman(t)
			state := filepath.Dir(w.root) + "/state"
			w.sh("mkdir ../state")
			time.Sleep(2 * racy)
			w.sh("ln -s ../../other ../state/a")
			q := Query{Root: state, Protect: fixture.Protect(".git/hooks"), Aside: true, Kept: true, Inward: true}
			record := scanOf(t, q).Standing("20261121T120000Z-0a0b0c0d", q)
			w.sh(c.between)
			record.Forget(c.another)
			w.sh(c.during)
			record, _, err := ParseStanding(string(record.Append(nil)))
			require.NoError(t, err)
			g, err := NewGuard(record, nil, nil, w.stash(), func(Finding) {})
			require.NoError(t, err)
			guards := Together(g)
			all, err := guards.Finish()
			require.NoError(t, err)
			guards.Close()
			var want []string
			for _, n := range c.want {
				want = append(want, "inert "+state+"/"+n)
			}
			require.ElementsMatch(t, want, w.names(all))
		})
	}
}

// What leads by a link in a directory around what is kept that may be written goes.
func TestGuardOutwardByLinks(t *testing.T) {
	for name, c := range map[string]struct {
		first, later string // what two runs do
		link         string // by which the agent writes
		want         []string
	}{
		"from around": {"ln -s state/h ../hop; ln -s ../hop log", "ln -sfn rc ../hop", "log", []string{"log"}},
		"to itself":   {"ln -s $PWD/h log", "true", "log", nil},
	} {
		t.Run(name, func(t *testing.T) {
			for _, inward := range []bool{false, true} {
				w := newWatchman(t)
				top := filepath.Dir(w.root)
				w.sh("mkdir ../state")
				var told []string
				for _, script := range []string{c.first, c.later} {
					time.Sleep(2 * racy)
					var guards Guards
					stash := w.stash()
					for _, q := range []Query{
						{Root: top, Protect: fixture.Protect(".git/hooks"), Aside: true, Files: []profiles.FileRule{{Path: top + "/state", Access: profiles.Private}, {Path: w.root, Access: profiles.Private}}},
						{Root: top + "/state", Protect: fixture.Protect(".git/hooks"), Aside: true, Kept: true, Inward: inward},
					} {
						found := scanOf(t, q)
						g, err := NewGuard(found.Standing("20261121T120000Z-0a0b0c0d", q), found, nil, stash, func(Finding) {})
						require.NoError(t, err)
						guards = append(guards, g)
					}
					guards = Together(guards...)
					w.sh("cd ../state; " + script)
					all, err := guards.Finish()
					require.NoError(t, err)
					guards.Close()
					for _, f := range all {
						rel, _ := beneath.Path(top+"/state", f.Path)
						told = append(told, rel)
					}
				}
				w.sh("echo x >> ../state/" + c.link + " || true")
				_, err := os.Lstat(top + "/rc")
				require.Equal(t, inward || c.want == nil, os.IsNotExist(err), "control: what the agent writes goes out")
				if inward {
					require.ElementsMatch(t, c.want, told)
				} else {
					require.Empty(t, told)
				}
			}
		})
	}
}
