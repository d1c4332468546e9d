package native

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/cgroups"
)

// ownGroup returns this process's directory of cgroup v2, which has to be its
// to write.
func ownGroup(t *testing.T) string {
	mounts, err := os.ReadFile("/proc/self/mounts")
	require.NoError(t, err)
	own, err := os.ReadFile("/proc/self/cgroup")
	require.NoError(t, err)
	at, path := regexp.MustCompile(`(?m)^\S+ (\S+) cgroup2 `).FindSubmatch(mounts), regexp.MustCompile(`(?m)^0::(.*)$`).FindSubmatch(own)
	if at != nil && path != nil {
		dir := filepath.Join(string(at[1]), string(path[1]))
		if unix.Access(dir, unix.W_OK) == nil && unix.Access(dir+"/cgroup.procs", unix.W_OK) == nil {
			return dir
		}
	}
	t.Skip("needs a cgroup v2 directory that this user may write")
	return ""
}

// With limits by cgroup v2 the sandbox is born in its group: nobody moves it,
// and nothing waits for that.
func TestBornInGroup(t *testing.T) {
	unprivileged(t)
	parent := ownGroup(t)
	b := newBench(t)
	b.request.Without = []string{"cgroupns"} // to see where it is
	run, err := b.plan("/bin/sh", "-c", "sed -n 's/^0:://p' /proc/self/cgroup")
	require.NoError(t, err)
	run.Limits = cgroups.Plan{Dirs: []cgroups.Dir{{Mechanism: cgroups.ByV2, Parent: parent}}}
	require.True(t, run.Limits.Born())
	s, wait := b.launch(run)
	groups := groupsOf(s)
	o := wait()
	require.NoError(t, o.err)
	require.Len(t, groups, 1)
	require.Contains(t, o.out, "/"+filepath.Base(groups[0])+"/run\n")
	require.NoDirExists(t, groups[0])

	run.Limits.Sheds = true
	require.False(t, run.Limits.Born(), "whoever sheds root is moved")
	run.Limits = cgroups.Plan{Dirs: []cgroups.Dir{{Mechanism: cgroups.ByV1}}}
	require.False(t, run.Limits.Born())
}

// A run that is not begun after all leaves no group, and one whose group cannot
// be made does not begin.
func TestRelease(t *testing.T) {
	b := newBench(t)
	run, err := b.plan("/bin/true")
	require.NoError(t, err)
	require.NoError(t, run.release())
	run.Limits = cgroups.Plan{Dirs: []cgroups.Dir{{Mechanism: cgroups.ByV2, Parent: t.TempDir() + "/none"}}}
	_, err = run.shell()
	require.ErrorIs(t, err, os.ErrNotExist)
	parent := ownGroup(t)
	run.Limits.Dirs[0].Parent = parent
	_, err = run.shell()
	require.NoError(t, err)
	made := run.group.Paths()[0]
	require.DirExists(t, made)
	require.NoError(t, run.release())
	require.NoDirExists(t, made)
}
