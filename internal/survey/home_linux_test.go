package survey

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pccrun/pccrun/profiles"
)

// Rules for what the sandbox has of its own are so already, or are refused.
func TestRulesOfOwnTrees(t *testing.T) {
	for path, c := range map[string]struct {
		access profiles.Access
		err    string
		note   bool
	}{
		"/dev/null":     {access: profiles.Write},
		"/dev/sda":      {access: profiles.Read, note: true},
		"/dev/sdb":      {access: profiles.Write, err: "the sandbox replaces /dev"},
		"/dev/sdc":      {access: profiles.Hide},
		"/sys":          {access: profiles.Hide},
		"/proc/1/x":     {access: profiles.Hide, err: "no processes of the host"},
		"/proc/self/x":  {access: profiles.Hide, err: "differs for each process"},
		"/proc/version": {access: profiles.Read},
		"/run":          {access: profiles.Read, err: "always private"},
	} {
		w := newCountry(t, nil)
		w.policy.Files = append(w.policy.Files, profiles.FileRule{Path: path, Access: c.access, Origin: profiles.Origin{Source: "flag"}})
		f := w.finder()
		f.runs()
		if path != RuntimeDir {
			f.rule(path)
		}
		if c.err != "" {
			require.ErrorContains(t, f.err, c.err, path)
			continue
		}
		require.NoError(t, f.err, path)
		require.Equal(t, c.note, len(f.notes) > 0, path)
	}
}

// Of a persistent home some directories are private, and what a link of the user's leads to
// stands at the name that a rule has.
func TestPersistentHome(t *testing.T) {
	w := newCountry(t, []string{"dots/agent/x", "home/.agent -> ../dots/agent", "home/.gone -> nowhere", "home/bin/tool", "home/.ssh/id"},
		"read home/.agent", "read home/.gone")
	w.policy.Files[1].Access = profiles.Persist // of the home
	s, err := Look(w.policy, Options{
		Getenv: func(name string) string { return map[string]string{"PATH": w.path("home/tools") + ":bin"}[name] },
		Home:   &Home{Path: "/state/home", Dev: 5, Ino: 7},
	})
	require.NoError(t, err)
	found := map[string]Place{}
	for _, p := range s.Places {
		found[p.Path] = p
	}
	home := found[w.path("home")]
	require.Equal(t, Place{Path: w.path("home"), Node: Directory, Dev: 5, Ino: 7, Access: profiles.Persist, Source: "/state/home", Why: home.Why}, home)
	require.Equal(t, w.path("dots/agent"), found[w.path("home/.agent")].Source)
	require.NotContains(t, found, w.path("home/.gone"))
	for _, name := range []string{"home/.ssh", "home/.gnupg", "home/tools"} {
		require.Equal(t, profiles.Private, found[w.path(name)].Access, name)
	}
	w.policy.Attempts = true
	s, err = Look(w.policy, Options{Getenv: os.Getenv})
	require.NoError(t, err)
	require.Contains(t, s.Traces, ".ssh")
	require.True(t, ByDefault(w.policy, "/etc/shadow"))
	require.False(t, ByDefault(w.policy, w.path("home/.agent")))
}
