package namespaces

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/internal/survey"
)

func needsRoot(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
}

func TestWhoAmI(t *testing.T) {
	id := WhoAmI()
	require.Equal(t, os.Getuid() == 0, id.Root)
	if id.Root {
		require.NotZero(t, id.HostUID)
		require.NotZero(t, id.UID)
	} else {
		require.Equal(t, Identity{HostUID: os.Getuid(), HostGID: os.Getgid(), UID: os.Getuid(), GID: os.Getgid()}, id)
		require.NoError(t, id.Shed(), "there is nothing to give up")
		require.Equal(t, id, WhoAmI())
	}
}

func TestPasswd(t *testing.T) {
	path := filepath.Join(t.TempDir(), "passwd")
	require.NoError(t, os.WriteFile(path, []byte("root:x:0:0:root:/root:/bin/sh\nuser:x:1000:1000::/home/user:/bin/sh\nshort:x\nother:x:10001:1::/:/bin/sh\n"), 0o644))
	id := Identity{UID: 1000}
	require.Equal(t, "me:x:1000:\nroot:x:0:0:root:/root:/bin/sh\nshort:x\nother:x:10001:1::/:/bin/sh\n", id.passwd(path, "me:x:1000:"))
	require.Equal(t, "me:x:1000:\n", id.passwd("/nonexistent", "me:x:1000:"))
}

func FuzzPasswd(f *testing.F) {
	f.Add("root:x:0:0:root:/root:/bin/sh\nu:x:1000:1000::/:/bin/sh\nu:x:1000")
	f.Fuzz(func(t *testing.T, text string) {
		first, rest, ok := strings.Cut(Identity{UID: 1000}.inPlace(text, "me:x:1000:"), "\n")
		require.True(t, ok)
		require.Equal(t, "me:x:1000:", first)
		for line := range strings.Lines(rest) {
			fields := strings.Split(line, ":")
			require.False(t, len(fields) > 3 && fields[2] == "1000", line)
		}
	})
}

// shedRole lends files as root, gives root up, and runs a command. What else is named it
// pins, and the host removes that as soon as it is lent.
func shedRole(args []string) error {
	dir := args[0]
	id := WhoAmI()
	p := &Plan{
		Shell: Shell{Identity: id}, Landlock: landlockABI(),
		Command: Command{Paths: []string{"/bin/sh"}, Argv: []string{"sh", "-c", args[1]}, Env: []string{"PATH=/usr/bin:/bin"}, Dir: dir, Umask: 0o022},
	}
	for _, name := range []string{"of-root", "of-user", "shown"} {
		var st unix.Stat_t
		if err := unix.Lstat(dir+"/"+name, &st); err != nil {
			return err
		}
		p.Mounts = append(p.Mounts, Mount{Kind: Bind, Target: dir + "/" + name, Source: dir + "/" + name, Dev: survey.Device(st.Dev), Ino: st.Ino, Tree: true, ReadOnly: name == "shown", Donated: -1})
	}
	pins := args[2:]
	for _, path := range pins {
		var st unix.Stat_t
		if err := unix.Lstat(path, &st); err != nil {
			return err
		}
		p.Mounts = append(p.Mounts, Mount{Kind: Bind, Target: path, Source: path, Dev: survey.Device(st.Dev), Ino: st.Ino, ReadOnly: true, Protect: true, Donated: -1})
	}
	if err := p.Donate(); err != nil {
		return err
	}
	for _, path := range pins {
		if err := os.Remove(path); err != nil {
			return err
		}
	}
	if err := id.Shed(); err != nil {
		return err
	}
	box, err := Begin(p.Shell)
	if err != nil {
		return err
	}
	if err := launch(box, p, &Stdio{Fds: [3]int{0, 1, 2}, Host: -1}); err != nil {
		return err
	}
	box.Keep()
	_, err = end(box)
	return err
}

// What is gone by the time that root has been given up, which cannot look anew, keeps no
// run from its start: what comes there is covered, as when the host removes it later.
func TestShedGone(t *testing.T) {
	needsRoot(t)
	dir := fakeHome(t, "of-root/pin", "of-root/d/pin", "of-root/f", "of-user/f", "shown/f")
	for d := dir; d != "/tmp" && d != "/"; d = filepath.Dir(d) {
		require.NoError(t, os.Chmod(d, 0o755))
	}
	const script = `cd of-root; cat pin d/pin 2> /dev/null; for f in pin d/pin; do : > $f || exit 3; n=0; while [ -w $f ] && [ $n -lt 9000 ]; do sleep 0.02; n=$((n+1)); done; [ $n -lt 9000 ] && echo $f is covered; done`
	out, err := self(t, "shed", dir, script, dir+"/of-root/d/pin", dir+"/of-root/pin").CombinedOutput()
	require.NoError(t, err, string(out))
	require.Equal(t, "pin is covered\nd/pin is covered\n", string(out))
}

// Root's files, and another user's, are lent to an identity that is neither;
// what else only root may read, it may not.
func TestShed(t *testing.T) {
	needsRoot(t)
	dir := fakeHome(t, "of-root/f", "of-user/f", "shown/f", "closed/")
	for d := dir; d != "/tmp" && d != "/"; d = filepath.Dir(d) {
		require.NoError(t, os.Chmod(d, 0o755))
	}
	require.NoError(t, os.WriteFile(dir+"/shown/f", []byte("canary-shown\n"), 0o600))
	require.NoError(t, os.WriteFile(dir+"/closed/f", []byte("canary-closed\n"), 0o600))
	require.NoError(t, os.Chown(dir+"/of-user", 4242, 4243))
	require.NoError(t, os.Chown(dir+"/of-user/f", 4242, 4243))
	cmd := self(t, "shed", dir, "id -u; stat -c %u of-root of-user/f; cat shown/f; cat closed/f; echo x > of-root/made && echo x > of-user/made && echo x >> of-user/f; echo x > shown/made")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, string(out))
	require.True(t, strings.HasPrefix(string(out), "1000\n1000\n1000\ncanary-shown\n"), string(out))
	require.NotContains(t, string(out), "canary-closed")
	require.NoFileExists(t, dir+"/shown/made")
	for name, uid := range map[string]uint32{"of-root/made": 0, "of-user/made": 4242, "of-user/f": 4242} {
		info, err := os.Stat(filepath.Join(dir, name))
		require.NoError(t, err)
		require.Equal(t, uid, info.Sys().(*syscall.Stat_t).Uid, "on the disk it is its owner's: %s", name)
	}
}

// What takes away is lent as the tree around it is; what grants more, or comes from elsewhere, by itself.
func TestOwnedWith(t *testing.T) {
	bind := func(path string, readOnly bool) Mount {
		return Mount{Kind: Bind, Target: path, Source: path, ReadOnly: readOnly}
	}
	p := &Plan{Mounts: []Mount{
		{Kind: Fresh, Target: "/home"},
		bind("/home/u/ws", false),
		bind("/home/u/ws/.git", false),
		bind("/home/u/ws/.git/config", true),
		{Kind: Copy, Target: "/home/u/ws/copied", Source: "/home/u/ws/copied"},
		bind("/home/u/ws/copied/.envrc", true),
		{Kind: Mask, Target: "/home/u/ws/hidden"},
		{Kind: Bind, Target: "/home/u/ws/shown", Source: "/else", ReadOnly: true},
		bind("/srv", true),
		bind("/srv/data", false),
		bind("/srv/data/.git", true),
	}}
	require.Equal(t, []int{-1, -1, 1, 2, 1, 4, -1, -1, -1, -1, 9}, p.ownedWith())
}

func TestDonateFails(t *testing.T) {
	needsRoot(t)
	dir := fakeHome(t, "f", "l -> f")
	bind := func(path string) *Plan {
		var st unix.Stat_t
		require.NoError(t, unix.Lstat(path, &st))
		return &Plan{Shell: Shell{Identity: WhoAmI()}, Mounts: []Mount{{Kind: Fresh}, {Kind: Bind, Source: path, Target: path, Dev: survey.Device(st.Dev), Ino: st.Ino, Donated: -1}}}
	}
	p := bind(dir + "/f")
	require.NoError(t, p.Donate(), "control")
	require.NoError(t, unix.Close(p.Mounts[1].Donated))
	p = bind(dir + "/f")
	p.Mounts[1].Ino++
	require.ErrorIs(t, p.Donate(), unix.ESTALE, "something else stands there now")
	p = bind(dir + "/f")
	require.NoError(t, os.Remove(dir+"/f"))
	require.ErrorIs(t, p.Donate(), unix.ENOENT)
	require.ErrorIs(t, bind(dir+"/l").Donate(), unix.ELOOP, "a link")
	require.ErrorIs(t, bind("/proc/version").Donate(), ErrIdmap, "proc cannot map owners")
	alone(t)
}

// What surrounds a directory that may be written stays shut to a launcher that has given
// root up, since it may hold what a rule hides; the repository of a worktree does not.
func TestCheckedRepositories(t *testing.T) {
	p := &Plan{Mounts: []Mount{
		{Target: "/home/u", Tree: true, ReadOnly: true}, {Target: "/home/u/ws", Tree: true},
		{Target: "/src/.git", Tree: true, ReadOnly: true}, {Target: "/src/.git/objects", Tree: true},
		{Target: "/ro/.git", Tree: true, ReadOnly: true}, {Target: "/ro/.git/objects", Tree: true, ReadOnly: true},
	}}
	var shared []string
	for i := range p.Mounts {
		if p.checked(&p.Mounts[i]) && p.Mounts[i].ReadOnly {
			shared = append(shared, p.Mounts[i].Target)
		}
	}
	require.Equal(t, []string{"/src/.git"}, shared)
}
