package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
)

// A need is a program on PATH, or a file, and the Debian package that brings it.
type need struct{ program, file, debian string }

func (n need) met() bool {
	if n.file != "" {
		_, err := os.Stat(n.file)
		return err == nil
	}
	_, err := exec.LookPath(n.program)
	return err == nil
}

// needed is what the tests use: docs/dependencies.md says why each.
var needed = []need{
	{program: "git", debian: "git"},
	{program: "bwrap", debian: "bubblewrap"},
	{program: "gcc", debian: "gcc"},
	{file: "/usr/include/stdlib.h", debian: "libc6-dev"},
	{file: "/usr/include/seccomp.h", debian: "libseccomp-dev"},
	{program: "pkg-config", debian: "pkg-config"},
	{program: "gdb", debian: "gdb"},
	{program: "vim", debian: "vim"},
	{program: "runc", debian: "runc"},
	{program: "make", debian: "make"},
	{program: "ps", debian: "procps"},
	{program: "hg", debian: "mercurial"},
	{program: "python3", debian: "python3-venv"},
	{program: "node", debian: "nodejs"},
	{program: "npm", debian: "npm"},
	{program: "pip", debian: "python3-pip"},
	{program: "curl", debian: "curl"},
	{program: "openssl", debian: "openssl"},
	{program: "socat", debian: "socat"},
	{program: "javac", debian: "default-jdk-headless"},
	{program: "wget", debian: "wget"},
	{program: "busybox", debian: "busybox"},
	{program: "psql", debian: "postgresql-client"},
	{program: "redis-cli", debian: "redis-tools"},
	{program: "ssh", debian: "openssh-client"},
	{file: "/usr/sbin/sshd", debian: "openssh-server"},
	{file: "/usr/lib/python3/dist-packages/requests", debian: "python3-requests"},
	{file: "/usr/lib/python3/dist-packages/aiohttp", debian: "python3-aiohttp"},
	{file: "/usr/sbin/useradd", debian: "passwd"},
	{program: "qemu-system-x86_64", debian: "qemu-system-x86"},
	{program: "qemu-aarch64", debian: "qemu-user"},
	{file: "/usr/share/seabios/bios-256k.bin", debian: "seabios"},
	{file: "/usr/sbin/mke2fs", debian: "e2fsprogs"},
	{file: "/usr/sbin/depmod", debian: "kmod"},
	{program: "xz", debian: "xz-utils"},
	{program: "patch", debian: "patch"},
	{program: "dbus-daemon", debian: "dbus-daemon"},
	{program: "xmllint", debian: "libxml2-utils"},
	{file: "/usr/share/zoneinfo/Europe/Berlin", debian: "tzdata"},
}

// install brings what the tests need where that is possible, as root on
// Debian; elsewhere it says what is missing, and those tests skip.
func install(ctx context.Context) error {
	var missing []string
	for _, n := range needed {
		if !n.met() {
			missing = append(missing, n.debian)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	if _, err := exec.LookPath("apt-get"); err != nil || os.Getuid() != 0 {
		fmt.Println("missing, and so not tested:", strings.Join(missing, " "))
		return nil
	}
	fmt.Println("installing", strings.Join(missing, " "))
	for _, args := range [][]string{{"update", "-qq"}, append([]string{"install", "-qq", "-y", "--no-install-recommends"}, missing...)} {
		cmd := exec.CommandContext(ctx, "apt-get", args...)
		cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("apt-get %s: %w\n%s", args[0], err, out)
		}
	}
	return nil
}
