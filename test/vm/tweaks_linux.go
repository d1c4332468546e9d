package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"

	"golang.org/x/sys/unix"
)

// confined is where the user's program lies when AppArmor confines it.
const confined = "/run/vm-confined"

// tweaks are what set-ups differ in: each changes the machine, or fails.
var tweaks = map[string]func() error{
	"userns-off": func() error { return set("kernel/unprivileged_userns_clone", "0") },
	"userns-0":   func() error { return set("user/max_user_namespaces", "0") },
	"yama-2":     func() error { return set("kernel/yama/ptrace_scope", "2") },
	"hidepid":    func() error { return unix.Mount("proc", "/proc", "proc", unix.MS_REMOUNT, "hidepid=2") },
	"proc-masked": func() error {
		return unix.Mount("/dev/null", "/proc/kcore", "", unix.MS_BIND, "")
	},
	"proc-sys-ro": func() error { return readOnly("/proc/sys", unix.MS_BIND) },
	"tmp-noexec":  func() error { return mount("tmpfs", "/tmp", noAll, "mode=1777") },
	"no-shm":      func() error { return unix.Unmount("/dev/shm", unix.MNT_DETACH) },
	// What Microsoft's init leaves where systemd is off.
	"wsl": func() error {
		return errors.Join(unix.Unmount("/sys/kernel/security", 0), mount("cgroup2", "/sys/fs/cgroup/unified", noAll, ""))
	},
	"docker-filter": dockersFilter,
	"casefold":      foldHome,
	"sys-ro":        func() error { return unix.Mount("", "/sys", "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY, "") },
	// As systemd before 249 does it, whoever asks.
	"delegate-few": func() error {
		const dir = "/run/systemd/system/user@.service.d"
		if err := errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(dir+"/00-few.conf", []byte("[Service]\nDelegate=\nDelegate=memory pids\n"), 0o644)); err != nil {
			return err
		}
		return exec.Command("systemctl", "daemon-reload").Run()
	},
	// What Ubuntu 24.04 does to programs without a profile, imitated with a
	// profile for the user's first program: Debian's kernels lack
	// kernel.apparmor_restrict_unprivileged_userns.
	"apparmor-deny": func() error { return apparmor("capability,\n deny userns,") },
	"apparmor-caps": func() error { return apparmor("userns,\n deny capability,") },
}

// foldHome gives the user a home on an ext4 of its own, in whose directories
// capitals do not count: what is made below one that is marked so is as well.
func foldHome() error {
	const image, at = "/var/vm-casefold.img", "/run/vm-casefold"
	for _, argv := range [][]string{
		{"mke2fs", "-q", "-t", "ext4", "-O", "casefold", "-E", "encoding=utf8", image, "1G"},
		{"modprobe", "loop"}, {"mkdir", at}, {"mount", "-o", "loop", image, at}, {"mkdir", at + "/home"}, {"chattr", "+F", at + "/home"},
		{"chown", fmt.Sprint(userID), at + "/home"}, {"mount", "--bind", at + "/home", home},
	} {
		if out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w: %s", strings.Join(argv, " "), err, out)
		}
	}
	return nil
}

func set(name, value string) error {
	return os.WriteFile("/proc/sys/"+name, []byte(value), 0)
}

// readOnly puts a read-only bind of a directory over itself.
func readOnly(dir string, flags uintptr) error {
	if err := unix.Mount(dir, dir, "", flags, ""); err != nil {
		return err
	}
	return unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY, "")
}

// apparmor confines the user's first program and all that it starts, but for
// programs with a profile of their own (pix). A program in memory has no path
// in the tree: the flags let it start.
func apparmor(rules string) error {
	program, err := os.ReadFile(payload + "/vm")
	if err != nil {
		return err
	}
	if err := os.WriteFile(confined, program, 0o755); err != nil {
		return err
	}
	text := "abi <abi/4.0>,\nprofile vm-user " + confined + " flags=(attach_disconnected, mediate_deleted) {\n / r,\n /** rwlkm,\n /** pix,\n network,\n unix,\n signal,\n ptrace,\n dbus,\n mqueue,\n mount,\n umount,\n pivot_root,\n " + rules + "\n}\n"
	if err := os.WriteFile("/run/vm-profile", []byte(text), 0o644); err != nil {
		return err
	}
	if out, err := exec.Command("apparmor_parser", "-K", "-r", "/run/vm-profile").CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
}
