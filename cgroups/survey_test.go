//go:build linux

package cgroups

import (
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// fake is a machine made of files. A test for an unprivileged user runs as one,
// since root may write everything.
type fake struct {
	t     *testing.T
	root  string
	types map[string]int64 // filesystem types by directory
	vars  map[string]string
}

func newFake(t *testing.T, cgroup string) fake {
	f := fake{t, t.TempDir(), map[string]int64{}, map[string]string{}}
	f.file("proc/cgroup", cgroup)
	return f
}

func (f fake) file(name, content string) {
	name = filepath.Join(f.root, name)
	require.NoError(f.t, os.MkdirAll(filepath.Dir(name), 0o755))
	require.NoError(f.t, os.WriteFile(name, []byte(content), 0o644))
}

// v2 makes a group. All but the root of the hierarchy have cgroup.events.
func (f fake) v2(dir, controllers, procs string) {
	for _, file := range []string{"cgroup.events", "cgroup.subtree_control"} {
		f.file("cg/"+dir+"/"+file, "")
	}
	f.file("cg/"+dir+"/cgroup.controllers", controllers+"\n")
	f.file("cg/"+dir+"/cgroup.procs", procs)
}

// deny makes a group one that the user may not write.
func (f fake) deny(dir string) {
	name := filepath.Join(f.root, "cg", dir)
	require.NoError(f.t, os.Chmod(name, 0o555))
	f.t.Cleanup(func() { require.NoError(f.t, os.Chmod(name, 0o755)) })
}

func (f fake) mount(dir string, fstype int64) {
	f.types[filepath.Join(f.root, "cg", dir)] = fstype
}

func (f fake) machine(uid int) machine {
	return machine{
		proc: filepath.Join(f.root, "proc"), cgroup: filepath.Join(f.root, "cg"), run: filepath.Join(f.root, "run"),
		uid: uid, pid: 42,
		env:      func(name string) string { return f.vars[name] },
		fstype:   func(dir string) int64 { return f.types[dir] },
		readOnly: func(dir string) bool { return f.vars["read-only"] == strings.TrimPrefix(dir, f.root) },
	}
}

// survey returns what was found, with the fake's root left out of paths.
func (f fake) survey(uid int) Host {
	h := f.machine(uid).survey(Memory | CPUs | Pids)
	for i := range h.V2 {
		h.V2[i].Dir = strings.TrimPrefix(h.V2[i].Dir, f.root)
		h.V2[i].Bus = strings.TrimPrefix(h.V2[i].Bus, f.root)
	}
	for i := range h.V1 {
		h.V1[i].Dir = strings.TrimPrefix(h.V1[i].Dir, f.root)
	}
	h.Hint = strings.ReplaceAll(h.Hint, f.root, "")
	return h
}

func (f fake) socket(name string) {
	name = filepath.Join(f.root, name)
	require.NoError(f.t, os.MkdirAll(filepath.Dir(name), 0o755))
	dir := shortDir(f.t)
	l, err := net.Listen("unix", dir+"/s")
	require.NoError(f.t, err)
	f.t.Cleanup(func() { l.Close() })
	require.NoError(f.t, os.Rename(dir+"/s", name))
}

func TestSurveyReadsNothingForNothing(t *testing.T) {
	f := newFake(t, "")
	m := f.machine(1000)
	m.proc = "/does/not/exist"
	m.fstype = func(string) int64 { t.Error("looked at a filesystem"); return 0 }
	h := m.survey(0)
	require.Equal(t, Host{NProc: h.NProc}, h)
}

func TestSurveyRootOfV2(t *testing.T) {
	f := newFake(t, "0::/\n")
	f.mount("", unix.CGROUP2_SUPER_MAGIC)
	f.v2("", "memory pids cpu", "1\n2\n42\n")
	require.NoError(t, os.Remove(f.root+"/cg/cgroup.events"))
	require.Equal(t, []Tree{{Dir: "/cg", Controllers: []string{"memory", "pids", "cpu"}}}, f.survey(0).V2)
}

func TestSurveyDelegation(t *testing.T) {
	uid := os.Getuid()
	for _, test := range []struct {
		name string
		own  string
		make func(fake)
		want []Tree
	}{
		{"parent", "/jobs/a/shell", func(f fake) {
			f.v2("jobs/a", "memory", "")
			f.v2("jobs/a/shell", "", "41\n42\n")
		}, []Tree{{Dir: "/cg/jobs/a", Controllers: []string{"memory"}}}},
		{"parent is systemd's", "/app.slice/x.scope", func(f fake) {
			f.v2("app.slice", "memory", "")
			f.v2("app.slice/x.scope", "", "41\n42\n")
		}, nil},
		{"alone", "/jobs/a", func(f fake) {
			f.v2("jobs", "memory", "")
			f.v2("jobs/a", "memory", "42\n")
			f.deny("jobs")
		}, []Tree{{Dir: "/cg/jobs/a", Leaf: true, Controllers: []string{"memory"}}}},
		{"not alone", "/jobs/a", func(f fake) {
			f.v2("jobs/a", "memory", "41\n42\n")
			f.deny("jobs")
		}, nil},
		{"alone in a unit that is not delegated", "/x.service", func(f fake) {
			f.v2("x.service", "memory", "42\n")
		}, nil},
		{"alone in a delegated unit", "/x.service", func(f fake) {
			f.v2("x.service", "memory", "42\n")
			if err := unix.Setxattr(f.root+"/cg/x.service", "user.delegate", []byte("1"), 0); err != nil {
				f.t.Skipf("needs extended attributes: %v", err)
			}
		}, []Tree{{Dir: "/cg/x.service", Leaf: true, Controllers: []string{"memory"}}}},
		{"not writable", "/jobs/a", func(f fake) {
			f.v2("jobs/a", "memory", "42\n")
			f.deny("jobs/a")
			f.deny("jobs")
		}, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			if uid == 0 && strings.Contains(test.name, "not writable") {
				t.Skip("runs as the user")
			}
			f := newFake(t, "0::"+test.own+"\n")
			f.mount("", unix.CGROUP2_SUPER_MAGIC)
			f.v2("", "memory", "")
			test.make(f)
			got := f.survey(uid)
			if uid == 0 && test.name == "parent" {
				require.Empty(t, got.V2, "root may write all groups, and leaves those above alone")
				return
			}
			require.Equal(t, test.want, got.V2)
			require.NotEmpty(t, got.Hint)
		})
	}
}

func TestSurveySystemd(t *testing.T) {
	uid := os.Getuid()
	user := strconv.Itoa(uid)
	manager := "user.slice/user-" + user + ".slice/user@" + user + ".service"
	tree := func(f fake) {
		f.mount("", unix.CGROUP2_SUPER_MAGIC)
		f.v2("", "memory pids cpu io", "")
		f.v2("user.slice/user-"+user+".slice/session-1.scope", "", "7\n42\n")
		f.v2(manager, "memory pids", "")
	}
	own := "0::/user.slice/user-" + user + ".slice/session-1.scope\n"
	bus := "/run/user/" + user + "/bus"
	if uid == 0 {
		bus = "/run/dbus/system_bus_socket"
	}
	want := []Tree{{Bus: bus, Leaf: true, Controllers: []string{"memory", "pids"}}}
	if uid == 0 {
		want[0].Controllers = []string{"memory", "pids", "cpu", "io"}
	}

	f := newFake(t, own)
	tree(f)
	require.Empty(t, f.survey(uid).V2, "no systemd")
	require.NoError(t, os.MkdirAll(f.root+"/run/systemd/system", 0o755))
	require.Empty(t, f.survey(uid).V2, "no bus")
	require.Contains(t, f.survey(uid).Hint, "dbus-user-session")
	f.file(bus, "")
	require.Empty(t, f.survey(uid).V2, "not a socket")
	require.NoError(t, os.Remove(f.root+bus))
	f.socket(bus)
	require.Equal(t, want, f.survey(uid).V2)
	if uid == 0 {
		return
	}

	// The environment may name a bus that is not the manager's.
	f.vars["DBUS_SESSION_BUS_ADDRESS"] = "unix:path=" + f.root + "/desktop"
	f.socket("desktop")
	require.Equal(t, want, f.survey(uid).V2)
	delete(f.vars, "DBUS_SESSION_BUS_ADDRESS")

	// Where the manager's own is elsewhere it says where, but not for one that
	// belongs to another.
	require.NoError(t, os.Remove(f.root+bus))
	f.vars["XDG_RUNTIME_DIR"] = f.root + "/elsewhere"
	require.Empty(t, f.survey(uid).V2)
	f.socket("elsewhere/bus")
	want[0].Bus = "/elsewhere/bus"
	require.Equal(t, want, f.survey(uid).V2)
	f.socket("third")
	f.vars["DBUS_SESSION_BUS_ADDRESS"] = "tcp:host=localhost,port=1;unix:guid=0,path=" + f.root + "/third"
	want[0].Bus = "/third"
	require.Equal(t, want, f.survey(uid).V2)
	f.socket(bus)
	require.False(t, f.machine(uid+1).isSocket(f.root+bus), "another user's")

	require.NoError(t, os.RemoveAll(f.root+"/cg/"+manager))
	require.Empty(t, f.survey(uid).V2, "its manager is not in our hierarchy")
}

func TestBusPath(t *testing.T) {
	for address, want := range map[string]string{
		"":                                        "",
		"unix:path=/run/user/1000/bus":            "/run/user/1000/bus",
		"unix:path=/a/../b,guid=12":               "/b",
		"unix:abstract=/tmp/x":                    "",
		"unix:path=relative":                      "",
		"unix:path=/a%2fb":                        "",
		"autolaunch:;unix:path=/x;unix:path=/y":   "/x",
		"unixexec:path=/bin/sh;tcp:host=evil.com": "",
	} {
		require.Equal(t, want, busPath(address), address)
	}
}

func TestSurveyV1(t *testing.T) {
	uid := os.Getuid()
	f := newFake(t, "12:cpu,cpuacct:/\n4:memory:/box/one\n3:pids:/docker/abc\n1:name=systemd:/\n0::/\n")
	for _, name := range []string{"cpu", "memory", "pids"} {
		f.mount(name, unix.CGROUP_SUPER_MAGIC)
		f.file("cg/"+name+"/cgroup.procs", "")
	}
	f.file("cg/memory/box/one/cgroup.procs", "")
	f.file("cg/memory/box/one/memory.memsw.limit_in_bytes", "")
	h := f.survey(uid)
	require.Equal(t, []V1{
		{Resource: Memory, Dir: "/cg/memory/box/one", Swap: true},
		{Resource: CPUs, Dir: "/cg/cpu"},
		{Resource: Pids, Dir: "/cg/pids"}, // a container sees its own group as the top
	}, h.V1)
	require.Empty(t, h.V2)
	if uid == 0 {
		return
	}

	f.deny("memory/box/one")
	require.Len(t, f.survey(uid).V1, 2)
	require.Contains(t, f.survey(uid).Hint, "as root: mkdir -p /cg/memory/box/one/pccrun."+strconv.Itoa(uid)+" /cg/cpu/pccrun.")
	require.NoError(t, os.Chmod(f.root+"/cg/memory/box/one", 0o755))
	f.file("cg/memory/box/one/pccrun."+strconv.Itoa(uid)+"/cgroup.procs", "")
	f.deny("memory/box/one")
	require.Equal(t, "/cg/memory/box/one/pccrun."+strconv.Itoa(uid), f.survey(uid).V1[0].Dir)
	require.NoError(t, os.Chmod(f.root+"/cg/memory/box/one", 0o755))
}

func TestSurveyNoCgroups(t *testing.T) {
	f := newFake(t, "")
	h := f.survey(1000)
	require.Empty(t, h.V2)
	require.Empty(t, h.V1)
	require.Equal(t, "as root: mount -t cgroup2 none /cg; for c in cpu memory pids; do echo +$c > /cg/cgroup.subtree_control; done; "+
		"mkdir -p /cg/pccrun.1000/shell && chown -R 1000 /cg/pccrun.1000 && echo PID-OF-YOUR-SHELL > /cg/pccrun.1000/shell/cgroup.procs", h.Hint)
	require.NoError(t, os.Remove(f.root+"/proc/cgroup"))
	require.Empty(t, f.survey(1000).Hint)
}

// Nothing that is done inside a container divides its control group.
func TestSurveyInContainer(t *testing.T) {
	require.False(t, readOnly("/proc"))
	require.False(t, readOnly("/nonexistent"))
	f := newFake(t, "0::/\n")
	f.mount("", unix.CGROUP2_SUPER_MAGIC)
	f.v2("", "cpu memory pids", "42\n")
	f.vars["read-only"] = "/cg"
	require.Contains(t, f.survey(1000).Hint, "limit the container itself")
	f.vars["read-only"] = ""
	require.Contains(t, f.survey(1000).Hint, "limit the container itself", "its own group is the top")
	require.NoError(t, os.Remove(f.root+"/cg/cgroup.events"))
	require.Contains(t, f.survey(1000).Hint, "as root: for c in")
	f = newFake(t, "1:memory:/\n")
	f.mount("memory", unix.CGROUP_SUPER_MAGIC)
	f.vars["read-only"] = "/cg/memory"
	require.Contains(t, f.survey(1000).Hint, "limit the container itself")
	f.vars["read-only"] = ""
	require.Contains(t, f.survey(1000).Hint, "as root: mkdir")
}

// The hint is what it says: a user for whom an administrator has done it gets
// limits that are kept.
func TestV1HintWorks(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root, to do what the hint says")
	}
	h := Survey(Pids)
	if len(h.V1) == 0 {
		t.Skip("needs cgroup v1")
	}
	dir := filepath.Join(h.V1[0].Dir, given+strconv.Itoa(nobody))
	require.NoError(t, os.Mkdir(dir, 0o755))
	t.Cleanup(func() { require.NoError(t, unix.Rmdir(dir)) })
	for _, name := range []string{dir, dir + "/cgroup.procs"} {
		require.NoError(t, os.Chown(name, nobody, nobody))
	}
	asNobody(t, "TestV1Pids")
}

func TestOwnGroup(t *testing.T) {
	text := []byte("9:name=systemd:/s\n8:pids:/p:q\n3:cpu,cpuacct:/c\n2:bad\n0::/v2 (deleted)\nrubbish\n")
	require.Equal(t, "/p:q", ownGroup(text, "pids"))
	require.Equal(t, "/c", ownGroup(text, "cpu"))
	require.Equal(t, "/c", ownGroup(text, "cpuacct"))
	require.Equal(t, "/v2 (deleted)", ownGroup(text, ""))
	require.Equal(t, "", ownGroup(text, "memory"))
	require.Equal(t, "", ownGroup(nil, ""))
}

func FuzzOwnGroup(f *testing.F) {
	f.Add([]byte("8:pids:/a\n0::/b\n"), "pids")
	f.Fuzz(func(t *testing.T, text []byte, controller string) {
		if group := ownGroup(text, controller); group != "" {
			require.True(t, filepath.IsAbs(group))
			dir := within("/base", group)
			require.True(t, dir == "/base" || strings.HasPrefix(dir, "/base/"), dir)
		}
	})
}

func FuzzBusPath(f *testing.F) {
	f.Add("unix:path=/a/../b,guid=12;unix:path=/c")
	f.Fuzz(func(t *testing.T, address string) {
		if p := busPath(address); p != "" {
			require.True(t, filepath.IsAbs(p) && filepath.Clean(p) == p, p)
			require.NotContains(t, p, "%")
			require.Contains(t, address, "unix:")
		}
	})
}
