package namespaces

import (
	"cmp"
	"errors"
	"io/fs"
	"os"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/pccrun/pccrun/profiles"
	"github.com/stretchr/testify/require"
)

func TestReadables(t *testing.T) {
	tree := fstest.MapFS{}
	for _, name := range []string{"bin/sh", "etc/passwd", "etc/shadow", "home/u/.ssh/id", "home/u/.cargo/bin/cargo", "home/u/.cargo/credentials", "home/u/w/.env", "home/u/w/main.go", "usr/bin/git", "var/lib/x", "var/tmp/y", "srv/later/z"} {
		tree[name] = &fstest.MapFile{}
	}
	tree["lib"] = &fstest.MapFile{Mode: fs.ModeSymlink}
	tree["log"] = &fstest.MapFile{Mode: fs.ModeSocket}
	list := func(dir string) ([]fs.DirEntry, error) {
		return tree.ReadDir(cmp.Or(strings.Trim(dir, "/"), "."))
	}
	strip := func(list []Readable) (texts []string) {
		for _, r := range list {
			texts = append(texts, r.String())
		}
		return texts
	}
	for _, c := range []struct {
		name   string
		places []string
		want   []string
	}{
		{"nothing is hidden", nil, []string{"/"}},
		{"a home", []string{"private dir /home"}, []string{"/ (names only)", "/bin", "/etc", "/srv", "/usr", "/var"}},
		{"a file", []string{"hide file /etc/shadow"}, []string{"/ (names only)", "/bin", "/etc (names only)", "/etc/passwd", "/home", "/srv", "/usr", "/var"}},
		{"deep", []string{"private dir /var/tmp", "hide dir /home"}, []string{"/ (names only)", "/bin", "/etc", "/srv", "/usr", "/var (names only)", "/var/lib"}},
		{"shown within", []string{"private dir /home", "read dir /home/u/.cargo/bin"}, []string{"/ (names only)", "/bin", "/etc", "/srv", "/usr", "/var", "/home/u/.cargo/bin"}},
		{"hidden within that", []string{"private dir /home", "read dir /home/u/.cargo", "hide file /home/u/.cargo/credentials"},
			[]string{"/ (names only)", "/bin", "/etc", "/srv", "/usr", "/var", "/home/u/.cargo (names only)", "/home/u/.cargo/bin"}},
		{"writable", []string{"private dir /home", "write dir /home/u/w", "hide file /home/u/w/.env", "overlay dir /srv"}, []string{"/ (names only)", "/bin", "/etc", "/usr", "/var"}},
		{"writable where nothing is hidden", []string{"write dir /srv/later", "write file /etc/passwd"}, []string{"/ (names only)", "/bin", "/etc", "/home", "/srv (names only)", "/usr", "/var"}},
		{"not there yet", []string{"hide absent /srv/later/new"}, []string{"/ (names only)", "/bin", "/etc", "/home", "/srv (names only)", "/srv/later (names only)", "/srv/later/z", "/usr", "/var"}},
		{"a socket", []string{"hide special /log"}, []string{"/"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := Readables(places(t, c.places), list)
			require.NoError(t, err)
			require.Equal(t, c.want, strip(got))
		})
	}

	many := make([]fs.DirEntry, 2*maxReadable)
	for i := range many {
		many[i] = fs.FileInfoToDirEntry(info{name: "f" + strings.Repeat("x", i%7)})
	}
	_, err := Readables(places(t, []string{"hide file /fx"}), func(string) ([]fs.DirEntry, error) { return many, nil })
	require.ErrorContains(t, err, "hide or show whole directories")
	_, err = Readables(places(t, []string{"hide file /fx"}), func(string) ([]fs.DirEntry, error) { return nil, errors.New("broken") })
	require.ErrorContains(t, err, "broken")
}

type info struct {
	fs.FileInfo
	name string
}

func (i info) Name() string      { return i.name }
func (i info) IsDir() bool       { return false }
func (i info) Mode() fs.FileMode { return 0 }
func (i info) Type() fs.FileMode { return 0 }

// TestLandlockHides takes the mounts that hide away: what is left is Landlock's.
func TestLandlockHides(t *testing.T) {
	if landlockABI() < landlockRefer {
		t.Skip("needs Landlock")
	}
	strict := func(script string, off ...profiles.Layer) *bench {
		b := newBench(t, []string{"hidden/secret", "shown/file"}).sh(script)
		list := []Place{b.place("hide hidden"), b.place("read shown")}
		mounts, err := Mounts(list)
		require.NoError(t, err)
		b.plan.Mounts = mounts
		b.plan.Readable, err = Readables(list, os.ReadDir)
		require.NoError(t, err)
		return b.without(off...)
	}
	read := "cat hidden/secret > /dev/null 2>&1"
	require.False(t, strict("").without(profiles.LayerHide).succeeds(read), "Landlock alone")
	require.False(t, strict("").without(profiles.LayerLandlock).succeeds(read), "the mounts alone")
	require.True(t, strict("").without(profiles.LayerHide, profiles.LayerLandlock).succeeds(read), "control: neither")
	for _, honest := range []string{"cat shown/file", "ls / /usr", "git --version || true; sh -c true", "echo x > /dev/null", "head -c 1 /dev/zero", "cat /proc/self/status", "ls /sys/class"} {
		require.True(t, strict("").succeeds(honest+" > /dev/null"), honest)
	}
	alone(t)
}
