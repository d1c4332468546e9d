package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
)

// busybox is the userland that is made in seconds: one program of Debian's
// with all its names, and the user; busyboxARM is that for another processor.
const (
	busybox    = "busybox"
	busyboxARM = busybox + "-" + arm64
)

// busybox returns the image of its root file system.
func (c cache) busybox(ctx context.Context, release string) (string, error) {
	arch := amd64
	if release == busyboxARM {
		arch = arm64
	}
	image, root, packed := c.path(release+".img"), c.path("rootfs-"+release), c.path(release)
	if present(image) {
		return image, nil
	}
	apt, err := c.apt(ctx, arch)
	if err != nil {
		return "", err
	}
	if err := errors.Join(os.RemoveAll(root), os.RemoveAll(packed), os.MkdirAll(packed, 0o755)); err != nil {
		return "", err
	}
	if err := c.run(ctx, packed, "apt-get", append(apt, "download", "busybox-static")...); err != nil {
		return "", err
	}
	debs, _ := filepath.Glob(filepath.Join(packed, "*.deb"))
	for _, deb := range debs {
		if err := c.run(ctx, packed, "dpkg-deb", "-x", deb, packed); err != nil {
			return "", err
		}
	}
	for _, dir := range []string{"bin", "dev", "etc", "home", "lib", "proc", "root", "run", "sbin", "sys", "usr/bin", "usr/sbin", "usr/lib/modules", "var"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			return "", err
		}
	}
	program := filepath.Join(root, "bin", busybox)
	programs, _ := filepath.Glob(filepath.Join(packed, "*bin", busybox))
	more, _ := filepath.Glob(filepath.Join(packed, "usr/*bin", busybox))
	if programs = append(programs, more...); len(programs) != 1 {
		return "", fmt.Errorf("busybox-static has %d programs of that name", len(programs))
	}
	if err := os.Rename(programs[0], program); err != nil {
		return "", err
	}
	list := exec.CommandContext(ctx, program, "--list")
	if arch != runtime.GOARCH {
		list = exec.CommandContext(ctx, emulators[arch].user, program, "--list")
	}
	names, err := list.Output()
	if err != nil {
		return "", fmt.Errorf("ask busybox for its names: %w", err)
	}
	links := map[string]string{"sbin/modprobe": "/bin/" + busybox, "lib/modules": "/usr/lib/modules"} // where the kernel asks for what it lacks
	for name := range strings.FieldsSeq(string(names)) {
		links["bin/"+name] = busybox
	}
	for name, to := range links {
		if err := os.Symlink(to, filepath.Join(root, name)); err != nil && !errors.Is(err, os.ErrExist) {
			return "", err
		}
	}
	id, own := strconv.Itoa(userID), filepath.Join(root, home)
	err = errors.Join(
		os.WriteFile(filepath.Join(root, "etc/passwd"), []byte("root:x:0:0::/root:/bin/sh\nt:x:"+id+":"+id+"::"+home+":/bin/sh\n"), 0o644),
		os.WriteFile(filepath.Join(root, "etc/group"), []byte("root:x:0:\nt:x:"+id+":\n"), 0o644),
		os.Mkdir(own, 0o755), os.Chown(own, userID, userID),
		os.Mkdir(root+"/tmp", 0o777), os.Chmod(root+"/tmp", 0o777|os.ModeSticky), os.Mkdir(root+"/var/tmp", 0o777), os.Chmod(root+"/var/tmp", 0o777|os.ModeSticky))
	if err != nil {
		return "", err
	}
	return image, c.image(ctx, image, root, "64M")
}
