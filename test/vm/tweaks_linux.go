package main

import (
	"fmt"
	"os"
	"os/exec"
)

// confined is where the user's program lies when AppArmor confines it.
const confined = "/run/vm-confined"

// tweaks are what set-ups differ in: each changes the machine, or fails.
var tweaks = map[string]func() error{
	"userns-off":    func() error { return set("kernel/unprivileged_userns_clone", "0") },
	"docker-filter": dockersFilter,
	// What Ubuntu 24.04 does to programs without a profile, imitated with a
	// profile for the user's first program: Debian's kernels lack
	// kernel.apparmor_restrict_unprivileged_userns.
	"apparmor-caps": func() error { return apparmor("userns,\n deny capability,") },
}

func set(name, value string) error {
	return os.WriteFile("/proc/sys/"+name, []byte(value), 0)
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
