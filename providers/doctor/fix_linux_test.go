package doctor

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pccrun/pccrun/internal/private"
	"github.com/pccrun/pccrun/internal/programs"
	"github.com/pccrun/pccrun/profiles"
)

// fake is a host with these files.
func fake(files map[string]string) host {
	return host{
		launcher: "/bin/sh", user: "u", uid: 1000,
		read:   func(path string) string { return files[path] },
		exists: func(path string) bool { _, ok := files[path]; return ok },
		look:   func(name string) bool { _, ok := files["/usr/bin/"+name]; return ok },
	}
}

func scripts(list []Fix) (all string) {
	for _, f := range list {
		all += f.Script()
	}
	return all
}

func TestFixSettings(t *testing.T) {
	off := map[string]string{"/proc/sys/kernel/unprivileged_userns_clone": "0", "/proc/sys/user/max_user_namespaces": "0", "/proc/sys/user/max_net_namespaces": "5"}
	list := fixes(&Provider{}, fake(off))
	require.Len(t, list, 1)
	require.False(t, list[0].Optional)
	require.Equal(t, `mkdir -p /etc/sysctl.d
cat > /etc/sysctl.d/60-pccrun.conf <<'EOF'
kernel.unprivileged_userns_clone = 1
user.max_user_namespaces = 15000
EOF
echo 1 > /proc/sys/kernel/unprivileged_userns_clone
echo 15000 > /proc/sys/user/max_user_namespaces
`, list[0].Script())
	require.Empty(t, fixes(&Provider{Runs: true}, fake(off)), "what runs needs no fix")
	require.Empty(t, fixes(&Provider{}, fake(nil)))
}

func TestFixAppArmor(t *testing.T) {
	ubuntu := map[string]string{"/proc/sys/kernel/apparmor_restrict_unprivileged_userns": "1", "/etc/apparmor.d/abi/4.0": ""}
	h := fake(ubuntu)
	list := fixes(&Provider{}, h)
	require.Len(t, list, 1)
	require.Contains(t, list[0].Script(), "abi <abi/4.0>,\nprofile pccrun \"/bin/sh\" flags=(unconfined) {\n  userns,\n}\n")
	require.Contains(t, list[0].Script(), "apparmor_parser -r /etc/apparmor.d/pccrun")

	// A program that the user can replace is not what a profile may trust.
	h.launcher = filepath.Join(t.TempDir(), "pccrun")
	list = fixes(&Provider{}, h)
	require.Contains(t, list[0].Script(), "/usr/local/bin/pccrun\n")
	require.Contains(t, list[0].Script(), `profile pccrun "/usr/local/bin/pccrun"`)
	require.NotEmpty(t, list[0].After)

	old := fake(map[string]string{"/proc/self/attr/current": "lxc (enforce)"})
	require.NotContains(t, scripts(fixes(&Provider{}, old)), "userns")
	require.Contains(t, scripts(fixes(&Provider{}, old)), "profile pccrun")
	require.Empty(t, fixes(&Provider{}, fake(map[string]string{"/proc/self/attr/current": "unconfined"})))
	container := fake(map[string]string{"/proc/self/attr/current": "docker-default (enforce)"})
	require.Empty(t, fixes(&Provider{Hint: "docker run --security-opt apparmor=unconfined"}, container), "the engine's profile")
	require.Equal(t, `/a\*b\{c\}`, globbed("/a*b{c}"))
}

func TestFixDelegation(t *testing.T) {
	weak := &Provider{Runs: true, Limits: []profiles.Answer{
		{Guarantee: profiles.ResMemory, State: profiles.Weak, Mechanism: "supervisor over the process tree", Hint: "as root: mkdir /sys/fs/cgroup/memory/pccrun-user-1000 # PID-OF-YOUR-SHELL"},
	}}
	list := fixes(weak, fake(nil))
	require.Len(t, list, 1)
	require.True(t, list[0].Optional)
	require.Contains(t, list[0].Script(), "mkdir /sys/fs/cgroup/memory/pccrun-user-1000")
	require.NotContains(t, list[0].Script(), "PID-OF")

	part := &Provider{Runs: true, Limits: []profiles.Answer{{Guarantee: profiles.ResCPU, State: profiles.Missing, Hint: "as root: chown 1000 x; or whole processors: --cpus 1"}}}
	require.Equal(t, "sh -c 'chown 1000 x'\n", scripts(fixes(part, fake(nil))))
	part.Runs = false
	require.Empty(t, fixes(part, fake(nil)), "its hint is the refusal's")

	weak.Limits[0].Hint = "start from a login session"
	none := fake(map[string]string{"/run/systemd/system": "", "/usr/bin/apt-get": ""})
	require.Equal(t, "apt-get install -y dbus-user-session\nloginctl enable-linger u\nsystemctl start user@1000.service\n", scripts(fixes(weak, none)))
	some := fake(map[string]string{"/run/systemd/system": "", "/run/user/1000/bus": ""})
	require.Contains(t, scripts(fixes(weak, some)), "Delegate=cpu cpuset io memory pids")

	root := fake(nil)
	root.uid = 0
	require.Empty(t, fixes(weak, root))
	require.Empty(t, fixes(weak, fake(nil)))
	require.Empty(t, fixes(&Provider{Runs: true, Limits: []profiles.Answer{{Guarantee: profiles.ResMemory, Mechanism: "cgroup v2"}}}, fake(nil)))
}

//test:root
func TestApply(t *testing.T) {
	file := filepath.Join(t.TempDir(), "f")
	f := Fix{Steps: []Step{{File: file, Content: "x\n"}}}
	if os.Geteuid() != 0 {
		only := private.Dir(t)
		require.NoError(t, os.Symlink("/bin/sh", only+"/sh"))
		require.ErrorIs(t, f.Apply(context.Background(), &programs.Finder{Environ: []string{"PATH=" + only}}), ErrNotRoot)
		require.NoFileExists(t, file)
		return
	}
	require.NoError(t, f.Apply(context.Background(), &programs.Finder{Environ: os.Environ()}))
	require.FileExists(t, file)
	f.Steps = []Step{{Run: []string{"false"}}, {File: file + "2", Content: "x\n"}}
	require.ErrorContains(t, f.Apply(context.Background(), &programs.Finder{Environ: os.Environ()}), "exit status 1")
	require.NoFileExists(t, file+"2", "the first step that does not work is the last")
}

func TestGuarded(t *testing.T) {
	h := thisHost("")
	require.True(t, h.guarded("/bin/sh"))
	require.False(t, h.guarded("/nonexistent"))
	file := filepath.Join(t.TempDir(), "f")
	require.NoError(t, os.WriteFile(file, nil, 0o755))
	require.False(t, h.guarded(file), "below a directory that all may write")
}

func TestFacts(t *testing.T) {
	h := fake(map[string]string{"/etc/os-release": "NAME=x\nPRETTY_NAME=\"Some Linux 1\"\n"})
	require.Equal(t, "Some Linux 1", h.distribution())
	h = fake(nil)
	require.Equal(t, "an unnamed distribution", h.distribution())

	dir := private.Dir(t)
	x := &examiner{Options: Options{Programs: &programs.Finder{Environ: []string{"PATH=" + dir}}}}
	require.Equal(t, "not installed", x.gvisor(context.Background()).Value)
	program := func(name, script string) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+script), 0o755))
	}
	program("docker", "echo 'io.containerd.runc.v2 runsc '")
	require.Equal(t, "not installed, a runtime of Docker", x.gvisor(context.Background()).Value)
	program("docker", "exit 1")
	program("runsc", "echo runsc version 1; echo spec: 2")
	require.Equal(t, "runsc version 1", x.gvisor(context.Background()).Value)
	require.Equal(t, "no git", x.worktree(context.Background()).Value)
}
