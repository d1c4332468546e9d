package survey

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/profiles"
)

// An agent's state is home/.agent; settings and skills in it are protected.
func agent(t *testing.T, files []string, rules ...string) *country {
	w := newCountry(t, append(files, "home/.agent/x"), append([]string{"+write home/.agent"}, rules...)...)
	for _, name := range []string{"settings", "skills"} {
		w.policy.Protect = append(w.policy.Protect, profiles.ProtectRule{Pattern: w.path("home/.agent/" + name)})
	}
	return w
}

// look does what a survey does with links of protected names.
func (c *country) look(earliest func() time.Time) *finder {
	f := c.finder()
	f.earliest = earliest
	for _, r := range c.policy.Files {
		f.rule(r.Path)
	}
	f.protected()
	f.dotfiles()
	return f
}

func (c *country) led(f *finder) (list []string) {
	for _, r := range f.led {
		list = append(list, strings.TrimPrefix(r.Pattern, c.root+"/"))
	}
	return list
}

func TestLinkedSettings(t *testing.T) {
	for name, c := range map[string]struct {
		files, rules []string
		want         []string // of what is found
		not          string   // a path that nothing is found of
		led          []string
		note, err    string
	}{
		"a file of the home": {
			files: []string{"home/.agent/settings -> ../dot/s", "home/dot/s"},
			want:  []string{"read link home/.agent/settings pin protect -> ../dot/s", "read file home/dot/s"}},
		"a directory": {
			files: []string{"home/.agent/skills -> HOME/home/dot/k", "home/dot/k/x"},
			want:  []string{"read link home/.agent/skills pin protect -> home/dot/k", "read dir home/dot/k"}},
		"what everybody can read": {
			files: []string{"home/.agent/settings -> HOME/store/s", "store/s -> s1", "store/s1"}, rules: []string{"read store"},
			want: []string{"read link home/.agent/settings pin protect -> store/s", "read link store/s -> s1", "read file store/s1"}},
		"nothing": {
			files: []string{"home/.agent/settings -> ../dot/s"},
			want:  []string{"read link home/.agent/settings pin protect -> ../dot/s", "read absent home/dot/s"}},
		"the workspace": {
			files: []string{"home/.agent/settings -> HOME/ws/dot/s", "ws/dot/s"},
			want:  []string{"read link home/.agent/settings pin protect -> ws/dot/s", "read file ws/dot/s pin protect"}, led: []string{"ws/dot/s"}},
		"nothing in the workspace": {
			files: []string{"home/.agent/settings -> HOME/ws/dot/s"},
			want:  []string{"read absent ws/dot/s protect"}, led: []string{"ws/dot/s"}},
		"a link in the workspace, which anybody may have put there": {
			files: []string{"home/.agent/settings -> HOME/ws/l", "ws/l -> HOME/home/private", "home/private"},
			want:  []string{"read link home/.agent/settings pin protect -> ws/l", "read link ws/l pin protect -> home/private"}, not: "home/private", led: []string{"ws/l"}, note: "home/private, which is not shown"},
		"a link of another name": {
			files: []string{"home/.agent/notes -> ../private", "home/private"}, not: "home/private"},
		"a link of another name on the way": {
			files: []string{"home/.agent/settings -> notes/s", "home/.agent/notes -> ../private", "home/private/s"}, not: "home/private/s", led: []string{"home/.agent/notes/s"}, note: "which is not shown"},
		"a secret": {
			files: []string{"home/.agent/settings -> ../.ssh/id", "home/.ssh/id"}, not: "home/.ssh/id", note: "home/.ssh/id, which is not shown"},
		"what holds one": {
			files: []string{"home/.agent/settings -> ../.config", "home/.config/gh/hosts.yml"}, not: "home/.config", note: "which is not shown"},
		"the keys of another program": {
			files: []string{"home/.agent/settings -> ../.config/gh/hosts.yml", "home/.config/gh/hosts.yml"}, not: "home/.config/gh/hosts.yml", note: "which is not shown"},
		"the settings of another program": {
			files: []string{"home/.agent/settings -> ../.config/agent/s", "home/.config/agent/s"}, want: []string{"read file home/.config/agent/s"}},
		"another agent's skills": {
			files: []string{"home/.agent/skills -> ../.claude/skills", "home/.claude/skills/x", "home/.claude/.credentials.json"}, want: []string{"read dir home/.claude/skills"}, not: "home/.claude/.credentials.json"},
		"another agent's key": {
			files: []string{"home/.agent/settings -> ../.claude/.credentials.json", "home/.claude/.credentials.json"}, not: "home/.claude/.credentials.json", note: "which is not shown"},
		"what the user hides": {
			files: []string{"home/.agent/settings -> ../dot/s", "home/dot/s"}, rules: []string{"hide home/dot"}, not: "home/dot/s", note: "which is not shown"},
		"the home": {
			files: []string{"home/.agent/skills -> .."}, not: "home", note: "home, which is not shown"},
		"the workspace as a whole": {
			files: []string{"home/.agent/skills -> HOME/ws"}, err: "which contains the workspace"},
		"a loop": {files: []string{"home/.agent/settings -> settings"}, err: "too many levels of symbolic links"},
		"a directory of links": {
			files: []string{"home/.agent/skills/a -> ../../dot/a", "home/dot/a/x", "home/.agent/skills/b -> ../../.ssh/id", "home/.ssh/id", "home/.agent/skills/c -> HOME/ws/c", "ws/c/x", "home/.agent/skills/d -> gone", "home/.agent/skills/e -> HOME/ws"},
			want:  []string{"read dir home/.agent/skills pin protect", "read dir home/dot/a", "read dir ws/c pin protect"}, not: "home/.ssh/id", led: []string{"ws/c"}},
		"the state as a whole": {
			files: []string{"home/l/settings", "home/l/skills/"}, rules: []string{"+write home/.whole"},
			want: []string{"read link home/.whole -> l", "write dir home/l", "read file home/l/settings pin protect", "read absent home/l/gone protect"}, led: []string{"home/l/settings", "home/l/gone"}},
		"a shell's file in the workspace": {
			files: []string{"home/.rc -> HOME/ws/rc", "ws/rc", "home/.rcs/a -> HOME/ws/a", "ws/a", "home/.other -> HOME/ws/b", "ws/b"}, led: []string{"ws/rc", "ws/a"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := agent(t, c.files, c.rules...)
			w.policy.Homes = append(w.policy.Homes, w.root)
			w.policy.Protect = append(w.policy.Protect, profiles.ProtectRule{Pattern: ".rc"}, profiles.ProtectRule{Pattern: ".rcs"})
			if name == "the state as a whole" {
				require.NoError(t, os.Symlink("l", w.path("home/.whole")))
				w.policy.Protect = append(w.policy.Protect, profiles.ProtectRule{Pattern: w.path("home/.whole/settings")}, profiles.ProtectRule{Pattern: w.path("home/.whole/gone")})
			}
			f := w.look(nil)
			if c.err != "" {
				require.ErrorContains(t, f.err, c.err)
				return
			}
			require.NoError(t, f.err)
			var found []string
			for _, p := range f.places {
				rest, _ := strings.CutPrefix(p.Path, w.root+"/")
				require.False(t, rest == c.not && p.Access >= profiles.Read, "%+v", p)
				text := p.Access.String() + [...]string{" absent ", " file ", " dir ", " link ", " special "}[p.Node] + rest
				if p.Pin {
					text += " pin"
				}
				if p.Protect {
					text += " protect"
				}
				if p.Link != "" {
					text += " -> " + strings.TrimPrefix(p.Link, w.root+"/")
				}
				require.False(t, p.Node == Link && p.Pin && p.Ino == 0, "a link that is mounted on itself is held against its inode")
				found = append(found, text)
			}
			require.Subset(t, found, c.want)
			require.ElementsMatch(t, c.led, w.led(f))
			if c.note == "" {
				require.Empty(t, f.notes)
			} else {
				require.Contains(t, strings.Join(f.notes, "\n"), c.note)
			}
		})
	}
}

// A link that may have been put there by a run that goes on grants nothing, by
// whatever name.
func TestYoungLinks(t *testing.T) {
	w := agent(t, []string{"home/.agent/settings -> ../dot/s", "home/dot/s", "home/.agent/skills/x -> ../../dot/x", "home/dot/x"})
	shown := func(earliest func() time.Time) (n int) {
		for _, p := range w.look(earliest).places {
			if strings.HasPrefix(p.Path, w.path("home/dot")) && p.Access == profiles.Read {
				n++
			}
		}
		return n
	}
	require.Equal(t, 2, shown(func() time.Time { return time.Time{} }), "the control: nothing goes on")
	require.Equal(t, 2, shown(func() time.Time { return time.Now().Add(time.Minute) }), "the control: what began later")
	require.Zero(t, shown(func() time.Time { return time.Now().Add(-time.Minute) }))
	require.Zero(t, shown(func() time.Time { return time.Now() }), "a file system may keep whole seconds")

	old := []unix.Timespec{{Sec: 1}, {Sec: 1}}
	require.NoError(t, unix.UtimesNanoAt(unix.AT_FDCWD, w.path("home/.agent/settings"), old, unix.AT_SYMLINK_NOFOLLOW))
	require.Zero(t, shown(func() time.Time { return time.Now().Add(-time.Minute) }), "times that anybody can set do not count")
}
