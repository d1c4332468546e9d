package bundle

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/namespaces"
	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/providers/native"
)

// planOf is a run that mounts what it is given; /etc and /etc/passwd stand for
// a directory and a file.
func planOf(id namespaces.Identity, mounts ...namespaces.Mount) *native.Planned {
	return &native.Planned{
		Policy: &profiles.Policy{Resources: profiles.Resources{Memory: profiles.Limit{Value: 1 << 30}, CPUs: profiles.Limit{Value: 500}, Pids: profiles.Limit{Value: 64}}},
		Plan: &namespaces.Plan{
			Shell: namespaces.Shell{Identity: id}, Mounts: mounts, Additions: namespaces.Additions{FilterName: "default", CPUs: []byte{1}}, Disk: 1 << 20, Inodes: 128, Deadline: time.Hour,
			Rlimits: []namespaces.Rlimit{{Resource: unix.RLIMIT_NOFILE, Soft: 1, Hard: 2}},
			Command: namespaces.Command{Paths: []string{"/bin/a", "/usr/bin/a"}, Argv: []string{"a", "b"}, Env: []string{"X=1"}, Dir: "/srv", Umask: 0o27},
		},
	}
}

var (
	asUser = namespaces.Identity{HostUID: 1000, HostGID: 1001, UID: 1000, GID: 1001}
	asRoot = namespaces.Identity{HostUID: 7000, HostGID: 7000, UID: 1000, GID: 1000, Root: true}
)

// mountAt returns the last mount on a path.
func mountAt(t *testing.T, b *Bundle, path string) (found specs.Mount) {
	for _, m := range b.Spec.Mounts {
		if m.Destination == path {
			found = m
		}
	}
	require.NotEmpty(t, found, path)
	return found
}

func lossNames(b *Bundle) (names []string) {
	for _, l := range b.Losses {
		names = append(names, l.Name)
	}
	return names
}

func TestBundleOfMounts(t *testing.T) {
	bind := func(path string, tree, readOnly bool) namespaces.Mount {
		return namespaces.Mount{Kind: namespaces.Bind, Target: path, Source: path, Tree: tree, ReadOnly: readOnly}
	}
	b, err := New(planOf(asUser,
		bind("/etc", true, true), bind("/etc/passwd", false, true), bind("/usr", true, false),
		namespaces.Mount{Kind: namespaces.Mask, Target: "/m"}, namespaces.Mount{Kind: namespaces.Mask, Target: "/socket", Optional: true},
		namespaces.Mount{Kind: namespaces.Text, Target: "/t", Text: "text", Mode: 0o644},
		namespaces.Mount{Kind: namespaces.Fresh, Target: "/empty", ReadOnly: true}, namespaces.Mount{Kind: namespaces.Fresh, Target: "/private"},
		namespaces.Mount{Kind: namespaces.Fresh, Target: "/home/u", Stubs: []namespaces.Stub{{Name: "d", Node: namespaces.Directory}, {Name: "d/f", Node: namespaces.File}, {Name: "l", Node: namespaces.Link, Link: "d"}}},
		namespaces.Mount{Kind: namespaces.Bind, Target: "/l", Source: "/l", OverLink: true},
	), "/b")
	require.NoError(t, err)
	require.Equal(t, []string{"rbind", "rnosuid", "rnodev", "rro", "rprivate"}, mountAt(t, b, "/etc").Options)
	require.Equal(t, []string{"bind", "nosuid", "nodev", "ro", "rprivate"}, mountAt(t, b, "/etc/passwd").Options)
	require.Equal(t, []string{"rbind", "rnosuid", "rnodev", "rprivate"}, mountAt(t, b, "/usr").Options)
	require.Equal(t, "/b/mask", mountAt(t, b, "/m").Source)
	require.Contains(t, b.Spec.Linux.MaskedPaths, "/socket")
	require.Equal(t, "/b/text-5", mountAt(t, b, "/t").Source)
	require.Equal(t, "/b/fresh-6", mountAt(t, b, "/empty").Source)
	require.Equal(t, []string{"nosuid", "nodev", "mode=755", "uid=0", "gid=0", "size=1048576", "nr_inodes=128"}, mountAt(t, b, "/private").Options)
	require.Contains(t, mountAt(t, b, "/home/u").Options, "tmpcopyup")
	require.Contains(t, b.files, file{name: "fresh-8/l", link: "d", mode: 0o644})
	require.Contains(t, lossNames(b), "link.9")

	require.Equal(t, []string{"/bin/a", "b"}, b.Spec.Process.Args)
	require.Equal(t, "/srv", b.Spec.Process.Cwd)
	require.EqualValues(t, 0o27, *b.Spec.Process.User.Umask)
	require.Equal(t, []specs.POSIXRlimit{{Type: "RLIMIT_NOFILE", Soft: 1, Hard: 2}}, b.Spec.Process.Rlimits)
	require.Subset(t, lossNames(b), []string{"res.time", "res.disk", "res.cpu", "res.memory", "res.pids", "uid", "userns-limit"})

	_, err = New(planOf(asUser, bind("/nonexistent", true, true)), "/b")
	require.ErrorIs(t, err, unix.ENOENT)
	_, err = New(planOf(asUser, namespaces.Mount{Kind: namespaces.Mask, Target: "/\xff"}), "/b")
	require.EqualError(t, err, `spec: "/\xff": not UTF-8`)
}

func TestBundleOfIdentities(t *testing.T) {
	mount := namespaces.Mount{Kind: namespaces.Bind, Target: "/etc", Source: "/etc", Tree: true}
	b, err := New(planOf(asUser, mount), "/b")
	require.NoError(t, err)
	require.Equal(t, []specs.LinuxIDMapping{{ContainerID: 0, HostID: 1000, Size: 1}}, b.Spec.Linux.UIDMappings)
	require.Equal(t, []specs.LinuxIDMapping{{ContainerID: 0, HostID: 1001, Size: 1}}, b.Spec.Linux.GIDMappings)
	require.Zero(t, b.Spec.Process.User.UID)
	require.Empty(t, mountAt(t, b, "/etc").UIDMappings)
	require.Equal(t, &specs.LinuxResources{}, b.Spec.Linux.Resources)

	b, err = New(planOf(asRoot, mount), "/b")
	require.NoError(t, err)
	require.Equal(t, []specs.LinuxIDMapping{{ContainerID: 0, HostID: 7001, Size: 1}, {ContainerID: 1000, HostID: 7000, Size: 1}}, b.Spec.Linux.UIDMappings)
	require.EqualValues(t, 1000, b.Spec.Process.User.UID)
	require.Equal(t, []specs.LinuxIDMapping{{ContainerID: 0, HostID: 7000, Size: 1}}, mountAt(t, b, "/etc").UIDMappings, "root's files, as the identity's")
	require.EqualValues(t, 1<<30, *b.Spec.Linux.Resources.Memory.Limit)
	require.EqualValues(t, 50_000, *b.Spec.Linux.Resources.CPU.Quota)
	require.EqualValues(t, 64, *b.Spec.Linux.Resources.Pids.Limit)
	require.NotContains(t, lossNames(b), "res.memory")

	run := planOf(asUser)
	run.Policy.Requirements = []profiles.Requirement{{Guarantee: profiles.ResPids, Required: true}}
	b, err = New(run, "/b")
	require.NoError(t, err)
	require.NotNil(t, b.Spec.Linux.Resources.Pids, "what is required is asked for")
	require.Nil(t, b.Spec.Linux.Resources.Memory)
}

func TestBundleWritten(t *testing.T) {
	dir := t.TempDir() + "/new/bundle"
	b, err := New(planOf(asUser, namespaces.Mount{Kind: namespaces.Fresh, Target: "/h", Stubs: []namespaces.Stub{{Name: "l", Node: namespaces.Link, Link: "/x"}}}), dir)
	require.NoError(t, err)
	require.NoError(t, b.Write())
	text, err := os.ReadFile(dir + "/config.json")
	require.NoError(t, err)
	var spec specs.Spec
	require.NoError(t, json.Unmarshal(text, &spec))
	require.Equal(t, b.Spec.Mounts, spec.Mounts)
	for _, l := range b.Losses {
		require.Equal(t, l.Text, spec.Annotations["org.pccrun.loss."+l.Name])
	}
	info, err := os.Stat(dir + "/config.json")
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode(), "it holds the environment")
	info, err = os.Stat(dir + "/mask")
	require.NoError(t, err)
	require.Zero(t, info.Mode())
	link, err := os.Readlink(dir + "/fresh-0/l")
	require.NoError(t, err)
	require.Equal(t, "/x", link)
	entries, err := os.ReadDir("/")
	require.NoError(t, err)
	for _, e := range entries {
		if e.IsDir() {
			require.DirExists(t, filepath.Join(dir, "rootfs", e.Name()))
		}
	}
	require.ErrorIs(t, b.Write(), os.ErrExist)
}
