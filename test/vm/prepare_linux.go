package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// A cache holds what is downloaded and made once, for all checkouts.
type cache struct {
	dir string
	log io.Writer
}

func (c cache) path(parts ...string) string {
	return filepath.Join(append([]string{c.dir}, parts...)...)
}

// lock keeps other runs from making the same images at the same time: flock(2).
func (c cache) lock() (unlock func(), err error) {
	f, err := os.OpenFile(c.path("lock"), os.O_CREATE|os.O_RDWR|unix.O_CLOEXEC, 0o644)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
		f.Close()
		return nil, fmt.Errorf("lock %s: %w", f.Name(), err)
	}
	return func() { f.Close() }, nil
}

func present(path string) bool { _, err := os.Stat(path); return err == nil }

// run runs a program of the host's; what it prints goes to the log.
func (c cache) run(ctx context.Context, dir, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "PATH="+os.Getenv("PATH")+":/usr/sbin:/sbin", "LC_ALL=C")
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	fmt.Fprintf(c.log, "+ %s %s\n%s", name, strings.Join(args, " "), out.Bytes())
	if err != nil {
		return fmt.Errorf("%s: %w: %s", name, err, tail(out.String(), 400))
	}
	return nil
}

// archive returns where this machine's own apt finds Debian, and its security
// updates.
func archive(ctx context.Context) (main, security string, err error) {
	out, err := exec.CommandContext(ctx, "apt-get", "indextargets", "--format", "$(SITE)").Output()
	if err != nil {
		return "", "", fmt.Errorf("ask apt for its archive: %w", err)
	}
	for site := range strings.FieldsSeq(string(out)) {
		if strings.Contains(site, "security") {
			security = site
		} else {
			main = site
		}
	}
	if main == "" {
		return "", "", errors.New("apt has no archive configured here")
	}
	return main, cmp.Or(security, main), nil
}

// packages are what a userland has beyond the smallest.
var packages = []string{
	"systemd", "systemd-sysv", "dbus", "dbus-user-session", "libpam-systemd", "apparmor", "uidmap",
	"procps", "kmod", "git", "iproute2", "util-linux", "passwd", "login",
	"podman", "crun", "netavark", "patch", // netavark: debootstrap knows no package by what it provides
}

// userland returns the image of a release's root file system.
func (c cache) userland(ctx context.Context, release string) (string, error) {
	if release == busybox || release == busyboxARM {
		return c.busybox(ctx, release)
	}
	image := c.path(release + ".img")
	if present(image) {
		return image, nil
	}
	if os.Geteuid() != 0 {
		return "", errors.New("a userland is made once, and debootstrap needs root for that")
	}
	root := c.path("rootfs-" + release)
	if !present(filepath.Join(root, "usr/bin/git")) || present(filepath.Join(root, "debootstrap")) { // which it leaves where it fails
		site, _, err := archive(ctx)
		if err != nil {
			return "", err
		}
		if err := c.run(ctx, c.dir, "debootstrap", "--variant=minbase", "--include="+strings.Join(packages, ","), release, root, site); err != nil {
			return "", err
		}
	}
	script := "id t >/dev/null 2>&1 || useradd -m -u " + strconv.Itoa(userID) + " -s /bin/bash t\n" +
		"echo 0123456789abcdef0123456789abcdef >/etc/machine-id; echo vm >/etc/hostname; echo 127.0.0.1 localhost >/etc/hosts; mkdir -p /usr/lib/modules\n" +
		"rm -rf /var/cache/apt/archives/*.deb /var/lib/apt/lists/*\n"
	if err := c.run(ctx, c.dir, "chroot", root, "sh", "-ec", script); err != nil {
		return "", err
	}
	return image, c.image(ctx, image, root, "1500M")
}

// image writes an ext4 file system with what is in a directory.
func (c cache) image(ctx context.Context, image, dir, size string) error {
	fresh := image + ".new"
	_ = os.Remove(fresh)
	if err := c.run(ctx, c.dir, "mke2fs", "-q", "-t", "ext4", "-O", "^has_journal", "-E", "lazy_itable_init=1,root_owner=0:0", "-d", dir, fresh, size); err != nil {
		return err
	}
	return os.Rename(fresh, image)
}

// A booted kernel is files of one.
type kernelFiles struct{ name, image, modules, early string }

// kernel returns the files of the newest package that the archive has for k.
// It looks once: what it found stays until the directory is removed.
func (c cache) kernel(ctx context.Context, k kernel) (kernelFiles, error) {
	dir := c.path("kernel-" + strings.ReplaceAll(k.name, " ", "-"))
	files := kernelFiles{image: filepath.Join(dir, "vmlinuz"), modules: filepath.Join(dir, "modules.img"), early: filepath.Join(dir, "early")}
	if name, err := os.ReadFile(filepath.Join(dir, "name")); err == nil {
		files.name = strings.TrimSpace(string(name))
		return files, nil
	}
	apt, err := c.apt(ctx, k.arch)
	if err != nil {
		return files, err
	}
	if files.name, err = newest(ctx, apt, k.pattern); err != nil {
		return files, err
	}
	tree := filepath.Join(dir, "tree")
	if err := os.RemoveAll(dir); err != nil {
		return files, err
	}
	if err := os.MkdirAll(tree, 0o755); err != nil {
		return files, err
	}
	if err := c.download(ctx, apt, files.name, dir); err != nil {
		return files, err
	}
	debs, _ := filepath.Glob(filepath.Join(dir, "*.deb"))
	for _, deb := range debs {
		if err := c.run(ctx, dir, "dpkg-deb", "-x", deb, tree); err != nil {
			return files, err
		}
	}
	if err := c.modules(ctx, tree, &files); err != nil {
		return files, err
	}
	if err := os.RemoveAll(tree); err != nil {
		return files, err
	}
	return files, os.WriteFile(filepath.Join(dir, "name"), []byte(files.name+"\n"), 0o644)
}

// apt returns the options of an apt that knows more releases than the host's, or
// those of another processor, and leaves the host's alone.
func (c cache) apt(ctx context.Context, arch string) ([]string, error) {
	root := c.path("apt")
	if arch != amd64 {
		root += "-" + arch
	}
	options := []string{"-o", "Dir=" + root, "-o", "Dir::Etc::parts=/etc/apt/apt.conf.d", "-o", "Dir::Etc::main=/etc/apt/apt.conf", "-o", "Dir::State::status=" + root + "/status", "-o", "APT::Sandbox::User=root", "-q",
		"-o", "APT::Architecture=" + arch, "-o", "APT::Architectures=" + arch}
	if present(filepath.Join(root, "done")) {
		return options, nil
	}
	for _, dir := range []string{"etc/apt/sources.list.d", "etc/apt/preferences.d", "var/lib/apt/lists/partial", "var/cache/apt/archives/partial"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			return nil, err
		}
	}
	site, security, err := archive(ctx)
	if err != nil {
		return nil, err
	}
	var list strings.Builder
	for _, release := range []string{"bullseye", "bookworm", "trixie"} {
		fmt.Fprintf(&list, "deb [signed-by=%[1]s] %[2]s %[3]s main\ndeb [signed-by=%[1]s] %[4]s %[3]s-security main\n", keyring, site, release, security)
	}
	fmt.Fprintf(&list, "deb [signed-by=%s] %s trixie-backports main\n", keyring, site)
	if err := os.WriteFile(filepath.Join(root, "etc/apt/sources.list"), []byte(list.String()), 0o644); err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(root, "status"), nil, 0o644); err != nil {
		return nil, err
	}
	if err := c.run(ctx, root, "apt-get", append(options, "update")...); err != nil {
		return nil, err
	}
	return options, os.WriteFile(filepath.Join(root, "done"), nil, 0o644)
}

const keyring = "/usr/share/keyrings/debian-archive-keyring.gpg"

// newest returns the package whose name matches and has the highest numbers.
func newest(ctx context.Context, apt []string, pattern string) (string, error) {
	out, err := exec.CommandContext(ctx, "apt-cache", append(apt, "pkgnames", "linux-image-")...).Output()
	if err != nil {
		return "", fmt.Errorf("apt-cache: %w", err)
	}
	want := regexp.MustCompile(pattern)
	var names []string
	for name := range strings.FieldsSeq(string(out)) {
		if want.MatchString(name) {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return "", fmt.Errorf("the archive has no package %s", pattern)
	}
	return slices.MaxFunc(names, byNumbers), nil
}

var number = regexp.MustCompile(`[0-9]+`)

// byNumbers compares names by the numbers in them, from the left.
func byNumbers(a, b string) int {
	numbers := func(s string) (list []int) {
		for _, n := range number.FindAllString(s, -1) {
			i, _ := strconv.Atoi(n)
			list = append(list, i)
		}
		return list
	}
	return slices.Compare(numbers(a), numbers(b))
}

// download fetches a kernel. Since 7.x its files are in packages of their own.
func (c cache) download(ctx context.Context, apt []string, name, dir string) error {
	if err := c.run(ctx, dir, "apt-get", append(apt, "download", name)...); err != nil {
		return err
	}
	version := strings.TrimPrefix(name, "linux-image-")
	for _, part := range []string{"linux-base-", "linux-binary-", "linux-modules-"} {
		_ = c.run(ctx, dir, "apt-get", append(apt, "download", part+version)...) // where there is one
	}
	return nil
}

// modules makes the image of /usr/lib/modules, and takes out what has to be
// loaded before a disk can be read.
func (c cache) modules(ctx context.Context, tree string, f *kernelFiles) error {
	lib := filepath.Join(tree, "usr/lib/modules")
	if old := filepath.Join(tree, "lib/modules"); present(old) {
		if err := os.MkdirAll(filepath.Dir(lib), 0o755); err != nil {
			return err
		}
		if err := os.Rename(old, lib); err != nil {
			return err
		}
		if err := os.RemoveAll(filepath.Join(tree, "lib")); err != nil {
			return err
		}
	}
	if err := os.Symlink("usr/lib", filepath.Join(tree, "lib")); err != nil {
		return err
	}
	versions, err := os.ReadDir(lib)
	if err != nil || len(versions) != 1 {
		return fmt.Errorf("modules of one kernel: found %d: %v", len(versions), err)
	}
	version := versions[0].Name()
	if err := c.run(ctx, tree, "depmod", "-b", tree, version); err != nil {
		return err
	}
	images, _ := filepath.Glob(filepath.Join(tree, "boot/vmlinuz-*"))
	if len(images) == 0 {
		images, _ = filepath.Glob(filepath.Join(lib, "*/vmlinuz"))
	}
	if len(images) != 1 {
		return fmt.Errorf("images of one kernel: found %d", len(images))
	}
	if err := os.Rename(images[0], f.image); err != nil {
		return err
	}
	if err := c.image(ctx, f.modules, lib, "400M"); err != nil {
		return err
	}
	return c.earlyModules(ctx, tree, version, f.early)
}

// earlyModules copies the modules of the disk and its file system, unpacked
// and named in the order in which they need each other.
func (c cache) earlyModules(ctx context.Context, tree, version, to string) error {
	if err := os.MkdirAll(to, 0o755); err != nil {
		return err
	}
	var list []string
	for _, module := range []string{"virtio_pci", "virtio_blk", "virtio_rng", "ext4"} {
		cmd := exec.CommandContext(ctx, "modprobe", "-d", tree, "-S", version, "--show-depends", module)
		cmd.Env = append(os.Environ(), "PATH="+os.Getenv("PATH")+":/usr/sbin:/sbin")
		out, _ := cmd.Output() // one that is built in has none
		for line := range strings.Lines(string(out)) {
			if file, ok := strings.CutPrefix(strings.TrimSpace(line), "insmod "); ok && !slices.Contains(list, file) {
				list = append(list, strings.TrimSpace(file))
			}
		}
	}
	for i, file := range list {
		cat := map[string][]string{".xz": {"xz", "-dc"}, ".zst": {"zstd", "-qdc"}, ".ko": {"cat"}}[filepath.Ext(file)]
		if cat == nil {
			return fmt.Errorf("module %s: unknown compression", file)
		}
		out, err := exec.CommandContext(ctx, cat[0], append(cat[1:], file)...).Output()
		if err != nil {
			return fmt.Errorf("unpack %s: %w", file, err)
		}
		if err := os.WriteFile(filepath.Join(to, fmt.Sprintf("%03d", i)), out, 0o644); err != nil {
			return err
		}
	}
	return nil
}
