package namespaces

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/internal/hint"
	"github.com/pccrun/pccrun/profiles"
)

// newGroup makes a group of cgroup v2 below this process's own, whether it has
// controllers or not.
func newGroup(t *testing.T) (fd int, name string) {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	require.NoError(t, err)
	own, err := os.ReadFile("/proc/self/cgroup")
	require.NoError(t, err)
	for line := range strings.Lines(string(mounts)) {
		f := strings.Fields(line)
		if !strings.Contains(line, " - cgroup2 ") || len(f) < 5 {
			continue
		}
		for line := range strings.Lines(string(own)) {
			if path, ok := strings.CutPrefix(line, "0::"); ok {
				parent := filepath.Join(f[4], strings.TrimSuffix(path, "\n"))
				dir, err := os.MkdirTemp(parent, "pccrun-test-*")
				if err != nil || unix.Access(parent+"/cgroup.procs", unix.W_OK) != nil {
					break
				}
				t.Cleanup(func() { require.NoError(t, unix.Rmdir(dir)) })
				fd, err := unix.Open(dir, unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
				require.NoError(t, err)
				t.Cleanup(func() { unix.Close(fd) })
				return fd, filepath.Base(dir)
			}
		}
	}
	t.Skip("needs a cgroup v2 directory that this user may write")
	return 0, ""
}

// A sandbox is born in its group, all of it from the first instruction on, and
// sees that as the root.
func TestBornInGroup(t *testing.T) {
	fd, name := newGroup(t)
	in := func(fd int, without ...profiles.Layer) string {
		b := newBench(t, nil).sh("sed -n 's/^0:://p' /proc/1/cgroup /proc/self/cgroup").without(without...)
		b.plan.Cgroup = fd
		return b.run().out
	}
	require.Equal(t, "/\n/\n", in(fd))
	require.Equal(t, 2, strings.Count(in(fd, profiles.LayerCgroupns), "/"+name+"\n"))
	require.NotContains(t, in(0, profiles.LayerCgroupns), name, "control")
	alone(t)
}

// What the kernel refuses is told, and nothing runs.
func TestNotBornInGroup(t *testing.T) {
	null, err := os.Open(os.DevNull)
	require.NoError(t, err)
	defer null.Close()
	b := newBench(t, nil).sh("true")
	box, err := Begin(Shell{Identity: me(), Cgroup: int(null.Fd())})
	require.NoError(t, err, "it fails later")
	var refused *hint.Error
	require.ErrorAs(t, launch(box, b.plan, &Stdio{Fds: [3]int{0, 1, 2}, Host: -1}), &refused)
	require.ErrorIs(t, refused, unix.EBADF)
	require.EqualError(t, refused, "clone into new namespaces and a control group: bad file descriptor")
	for err, fix := range map[error]string{unix.EBADF: "--memory", unix.ENOSYS: "clone3", unix.EACCES: "cgroup.procs"} {
		require.Contains(t, cgroupError(err).(*hint.Error).Fix, fix)
	}
	alone(t)
}
