package namespaces

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/internal/survey"
	"github.com/pccrun/pccrun/profiles"
)

func TestRlimits(t *testing.T) {
	s := &Facts{Files: unix.Rlimit{Cur: 1024, Max: 4096}, Core: unix.Rlimit{Cur: 0, Max: unix.RLIM_INFINITY}, Pending: unix.Rlimit{Cur: 99, Max: 200}}
	require.Equal(t, []Rlimit{
		{unix.RLIMIT_NOFILE, "open files", 1024, 4096}, {unix.RLIMIT_CORE, "core dumps", 1, 1}, {unix.RLIMIT_RTPRIO, "real-time priority", 0, 0}, {unix.RLIMIT_NICE, "priority", 0, 0},
		{unix.RLIMIT_SIGPENDING, "signals that wait", 49, 49},
	}, rlimits(&profiles.Resources{}, s))
	s.Core.Max, s.Pending.Cur = 0, 0
	require.Equal(t, []Rlimit{
		{unix.RLIMIT_NOFILE, "open files", 64, 64}, {unix.RLIMIT_CORE, "core dumps", 0, 0}, {unix.RLIMIT_RTPRIO, "real-time priority", 0, 0}, {unix.RLIMIT_NICE, "priority", 0, 0}, {unix.RLIMIT_FSIZE, "file size", 1 << 20, 1 << 20},
	}, rlimits(&profiles.Resources{Files: profiles.Limit{Value: 64}, FileSize: profiles.Limit{Value: 1 << 20}}, s), "a limit is never raised")
}

func TestBuild(t *testing.T) {
	policy := &profiles.Policy{Nested: true, Without: []profiles.Layer{profiles.LayerIpcns}}
	policy.Resources.Timeout.Value = int64(time.Minute)
	text := Mount{Kind: Text, Target: "/etc/hosts", Donated: -1}
	s := &survey.Survey{Places: places(t, []string{"write dir /w"})}
	f := &Facts{Identity: Identity{UID: 7}, Landlock: 4, Texts: []Mount{text}}
	p, err := Build(policy, s, f, Command{Argv: []string{"true"}})
	require.NoError(t, err)
	require.Equal(t, Shell{Identity: f.Identity, Nested: true, Without: policy.Without}, p.Shell)
	require.Equal(t, []string{"bind on /w", "text on /etc/hosts"}, []string{p.Mounts[0].String(), p.Mounts[1].String()})
	require.Equal(t, time.Minute, p.Deadline)
	require.Zero(t, p.Disk)
	require.EqualValues(t, 128, p.Inodes)
	require.Len(t, p.Rlimits, 4)
	policy.Resources.Disk.Value = 1 << 30
	p, err = Build(policy, s, f, Command{})
	require.NoError(t, err)
	require.EqualValues(t, 1<<15, p.Inodes, "one for each 32 KiB")

	s.Places = places(t, []string{"overlay file /w"})
	_, err = Build(policy, s, f, Command{})
	require.Error(t, err)
}

func TestAddFresh(t *testing.T) {
	mounts, err := Mounts(places(t, []string{"private dir /run", "write dir /w"}))
	require.NoError(t, err)
	p := &Plan{Mounts: mounts}
	p.addFresh("/run/pccrun", "told")
	p.addFresh("/w/pccrun", "in nothing fresh")
	require.Len(t, p.Mounts, 3)
	require.Equal(t, "fresh on /run [pccrun/]", describe(p.Mounts[0]))
	require.Equal(t, "fresh on /run/pccrun read-only", describe(p.Mounts[2]))
	require.Equal(t, "told", p.Mounts[2].Why)
}

func TestReadInWritable(t *testing.T) {
	for want, list := range map[string][]string{
		"":       {"write dir /w", "read dir /h", "hide dir /w/x", "read file /w/f"},
		"/w/r":   {"write dir /w", "read dir /w/r"},
		"/p/a/b": {"private dir /p", "read dir /p/a/b"},
	} {
		mounts, err := Mounts(places(t, list))
		require.NoError(t, err)
		p := &Plan{Mounts: mounts}
		require.Equal(t, want, p.ReadInWritable())
	}
}

func TestHidesFiles(t *testing.T) {
	for text, want := range map[string]bool{"hide file /f": true, "hide dir /d": false, "hide special /s optional": false} {
		mounts, err := Mounts(places(t, []string{text}))
		require.NoError(t, err)
		p := &Plan{Mounts: mounts}
		require.Equal(t, want, p.HidesFiles(), text)
	}
}
