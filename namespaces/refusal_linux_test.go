package namespaces

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// Each setting of a host that refuses is named, and nothing else is blamed.
func TestExplain(t *testing.T) {
	const free = "21 1 0:19 / / rw - ext4 /dev/vda rw\n22 21 0:20 / /proc rw - proc proc rw\n23 21 0:21 / /sys ro - sysfs sysfs ro\n"
	for name, c := range map[string]struct {
		step  string
		errno unix.Errno
		files map[string]string
		cause string // "" for none
		hint  string
	}{
		"nothing known":         {StepClone, unix.EPERM, nil, "", ""},
		"sysctl":                {StepClone, unix.EPERM, map[string]string{usernsClone: "0"}, "kernel.unprivileged_userns_clone is 0", "sysctl -w kernel.unprivileged_userns_clone=1"},
		"sysctl, another errno": {StepClone, unix.ENOMEM, map[string]string{usernsClone: "0"}, "", ""},
		"no user namespaces":    {StepClone, unix.ENOSPC, map[string]string{namespaceLimit + "user_namespaces": "0"}, "user.max_user_namespaces is 0", "sysctl -w user.max_user_namespaces=15000"},
		"no net namespaces":     {StepClone, unix.ENOSPC, map[string]string{namespaceLimit + "user_namespaces": "9", namespaceLimit + "net_namespaces": "0"}, "user.max_net_namespaces is 0", "=15000"},
		"too many":              {StepClone, unix.ENOSPC, map[string]string{namespaceLimit + "user_namespaces": "9"}, "the limit user.max_*_namespaces is reached", ""},
		"built without":         {StepClone, unix.EINVAL, nil, "no user namespaces", "CONFIG_USER_NS"},
		"old kernel":            {"make /dev", unix.ENOSYS, map[string]string{"/proc/sys/kernel/osrelease": "5.10.0-46-cloud-amd64"}, "older than Linux 5.12", "boot a newer"},
		"call taken away":       {"make /dev", unix.ENOSYS, map[string]string{"/proc/sys/kernel/osrelease": "6.1.0"}, "", ""},
		"apparmor profile":      {StepClone, unix.EACCES, map[string]string{"/proc/self/attr/current": "vm-user (enforce)"}, "AppArmor profile vm-user (enforce)", "pccrun doctor --fix"},
		"apparmor complains":    {"make /dev", unix.EACCES, map[string]string{"/proc/self/attr/current": "x (complain)"}, "", ""},
		"selinux":               {"make /dev", unix.EACCES, map[string]string{"/proc/self/attr/current": "unconfined_u:unconfined_r:unconfined_t:s0"}, "", ""},
		"ubuntu":                {"map user and group in the user namespace", unix.EPERM, map[string]string{appArmorUserns: "1", "/proc/self/attr/current": "unconfined"}, "apparmor_restrict_unprivileged_userns", "doctor --fix"},
		"container":             {StepClone, unix.EPERM, map[string]string{"/proc/self/status": "Name:\tx\nSeccomp:\t2\nx"}, "a seccomp filter around", "seccomp=unconfined"},
		"container, later":      {"set the host name", unix.EPERM, map[string]string{"/proc/self/status": "Name:\tx\nSeccomp:\t2\nx"}, "a seccomp filter around pccrun may", "seccomp=unconfined"},
		"container, proc":       {StepProc, unix.EPERM, map[string]string{"/proc/self/status": "x\nSeccomp:\t2\n", "/proc/self/mountinfo": free + "40 22 0:6 /null /proc/kcore rw - devtmpfs x rw\n"}, "/proc/kcore is covered", "unmask=ALL --security-opt seccomp=unconfined"},
		"container, all of it": {StepClone, unix.EPERM, map[string]string{"/proc/self/status": "x\nSeccomp:\t2\n", "/proc/self/mountinfo": free + "40 22 0:6 /null /proc/kcore rw - devtmpfs x rw\n", "/proc/self/attr/current": "docker-default (enforce)"},
			"the container's AppArmor profile docker-default", "docker run --security-opt systempaths=unconfined --security-opt seccomp=unconfined --security-opt apparmor=unconfined, podman run --security-opt unmask=ALL"},
		"unit":                  {StepClone, unix.EPERM, map[string]string{"/proc/self/status": "x\nSeccomp:\t2\n", "/proc/self/cgroup": "0::/system.slice/agent.service\n"}, "a seccomp filter of the unit agent.service forbids it (RestrictNamespaces=", "systemctl edit agent.service, below [Service]: RestrictNamespaces=no, a SystemCallFilter= that allows @mount;"},
		"unit, clone3":          {StepClone, unix.ENOSYS, map[string]string{"/proc/sys/kernel/osrelease": "6.1.0", "/proc/self/status": "x\nSeccomp:\t2\n", "/proc/self/cgroup": "12:pids:/\n1:name=systemd:/user.slice/user-1000.slice/user@1000.service/app.slice/a.service/payload\n"}, "the unit a.service", "RestrictNamespaces=no"},
		"unit, proc":            {StepProc, unix.EPERM, map[string]string{"/proc/self/mountinfo": free + "40 22 0:20 /sys /proc/sys ro - proc proc rw\n", "/proc/self/cgroup": "0::/system.slice/agent.service"}, "/proc/sys is covered or read-only in the unit agent.service", "[Service]: ProtectKernelTunables=no, ProtectKernelLogs=no, ProcSubset=all;"},
		"a user's manager":      {StepClone, unix.EPERM, map[string]string{"/proc/self/status": "x\nSeccomp:\t2\n", "/proc/self/cgroup": "0::/user.slice/user-1000.slice/user@1000.service/app.slice/x.scope\n"}, "a seccomp filter around", "seccomp=unconfined"},
		"a container in a unit": {StepClone, unix.EPERM, map[string]string{"/proc/self/status": "x\nSeccomp:\t2\n", "/proc/self/cgroup": "0::/system.slice/x.service/docker-1.scope\n"}, "a seccomp filter around", "seccomp=unconfined"},
		"Docker's filter":       {StepClone, unix.ENOSYS, map[string]string{"/proc/sys/kernel/osrelease": "6.1.0", "/proc/self/status": "x\nSeccomp:\t2\n", "/proc/self/attr/current": "docker-default (enforce)"}, "a seccomp filter around", "seccomp=unconfined --security-opt apparmor=unconfined"},
		"no clone3":             {StepClone, unix.ENOSYS, map[string]string{"/proc/sys/kernel/osrelease": "6.1.0"}, "", ""},
		"container, AppArmor":   {"make /dev", unix.EACCES, map[string]string{"/proc/self/attr/current": "containers-default-0.50.1 (enforce)"}, "the container's AppArmor profile", "podman run --security-opt apparmor=unconfined"},
		"chroot":                {StepClone, unix.EPERM, map[string]string{"/proc/self/mountinfo": "30 21 0:19 / /proc rw - proc proc rw\n"}, "chroot", "outside"},
		"in a tree with a root": {StepClone, unix.EPERM, map[string]string{"/proc/self/mountinfo": free}, "", ""},
		"proc masked":           {StepProc, unix.EPERM, map[string]string{"/proc/self/mountinfo": free + "40 22 0:6 /null /proc/kcore rw - devtmpfs x rw\n"}, "/proc/kcore is covered", "systempaths=unconfined"},
		"proc/sys read-only":    {StepProc, unix.EPERM, map[string]string{"/proc/self/mountinfo": free + "40 22 0:20 /sys /proc/sys ro - proc proc rw\n"}, "/proc/sys is covered", "unmask=ALL"},
		"proc read-only":        {StepProc, unix.EPERM, map[string]string{"/proc/self/mountinfo": "21 1 0:19 / / rw - ext4 x rw\n22 21 0:20 / /proc ro,nosuid - proc proc rw\n"}, "/proc is covered or read-only", "unmask"},
		"proc as it should be":  {StepProc, unix.EPERM, map[string]string{"/proc/self/mountinfo": free + "40 22 0:30 / /proc/sys/fs/binfmt_misc rw - binfmt_misc x rw\n"}, "", ""},
		"sys masked":            {StepSys, unix.EPERM, map[string]string{"/proc/self/mountinfo": free + "40 23 0:31 / /sys/firmware ro - tmpfs x rw\n"}, "/sys/firmware is covered", "systempaths"},
		"sys as it should be":   {StepSys, unix.EPERM, map[string]string{"/proc/self/mountinfo": free + "40 23 0:31 / /sys/fs/cgroup rw - cgroup2 x rw\n41 23 0:32 / /sys/kernel/security rw - securityfs x rw\n"}, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			plain := &StepError{Step: c.step, Errno: c.errno}
			err := explain(plain, c.step, c.errno, func(path string) string { return c.files[path] })
			require.ErrorIs(t, err, c.errno)
			var r *Refusal
			if c.cause == "" {
				require.False(t, errors.As(err, &r), "%v", err)
				require.Equal(t, error(plain), err)
				return
			}
			require.ErrorAs(t, err, &r)
			require.Contains(t, err.Error(), plain.Error()+": ")
			require.Contains(t, err.Error(), c.cause)
			require.Contains(t, r.Hint(), c.hint)
		})
	}
}

// An error that no setting explains is the kernel's, where that is no good.
func TestUnfit(t *testing.T) {
	for version, want := range map[string]string{
		"Linux version 4.4.0 #1 SMP Sun Jan 10 15:06:54 PST 2016": "gVisor",
		"Linux version 5.10.0-46-cloud-amd64":                     "older than Linux 5.12",
		"Linux version 6.1.0-56-cloud-amd64":                      "",
	} {
		files := map[string]string{"/proc/version": version, "/proc/sys/kernel/osrelease": strings.Fields(version)[2]}
		r := unfit(func(path string) string { return files[path] })
		if want == "" {
			require.Nil(t, r)
			continue
		}
		require.Contains(t, r.Cause, want)
		require.NotEmpty(t, r.Fix)
	}
	known := &Refusal{Err: unix.EPERM, Cause: "a setting"}
	require.Equal(t, error(known), Unfit(known))
	require.Equal(t, unix.EPERM, Unfit(unix.EPERM), "this kernel is good")
}

// Root without its power is told so, and what works in its place.
func TestPowerless(t *testing.T) {
	const docker, full, filter = "Name:\tx\nCapEff:\t00000000a80425fb\n", "Name:\tx\nCapEff:\t000001ffffffffff\n", "Seccomp:\t2\n"
	for name, c := range map[string]struct {
		status string
		errno  unix.Errno
		named  bool
	}{
		"container":            {docker + filter, unix.EPERM, true},
		"without its filter":   {docker, unix.EPERM, true},
		"a filter alone":       {full + filter, unix.EPERM, true},
		"an old filter":        {full + filter, unix.ENOSYS, true},
		"root as it should be": {full, unix.EPERM, false},
		"another error":        {docker, unix.ENOENT, false},
		"nothing to read":      {"", unix.EPERM, false},
	} {
		err := powerless(c.errno, c.errno, func(string) string { return c.status })
		var r *Refusal
		require.Equal(t, c.named, errors.As(err, &r), name)
		require.ErrorIs(t, err, c.errno, name)
		if c.named {
			require.Contains(t, r.Hint(), "--user", name)
		}
	}
}

func TestReadText(t *testing.T) {
	file := t.TempDir() + "/f"
	require.NoError(t, os.WriteFile(file, []byte("unconfined\n\x00"), 0o600))
	require.Equal(t, "unconfined", readText(file))
	require.Empty(t, readText(file+"x"))
	require.NotEmpty(t, readText("/proc/sys/kernel/osrelease"))
}
