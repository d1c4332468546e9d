package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// The machine's side. This program is its initial file system's /init, its
// init where there is no systemd, what drives the user's programs, and those
// themselves: it asks its own name and arguments which.

// Where the machine has what it was given, and where the user leaves results.
const (
	payload = "/run/vm"
	results = "/run/vm-results"
	userID  = 1000
	home    = "/home/t"
)

// console is where the machine's own mistakes are told.
func console(format string, args ...any) {
	if f, err := os.OpenFile("/dev/console", os.O_WRONLY, 0); err == nil {
		fmt.Fprintf(f, "vm: "+format+"\n", args...)
		f.Close()
	}
}

// guest runs one of the machine's programs. It returns only if it could not.
func guest(what string) error {
	switch what {
	case "init":
		return initial()
	case "boot":
		return boot()
	case "drive":
		return drive()
	case "work":
		return serve()
	}
	return fmt.Errorf("no program %q in the machine", what)
}

// isInit reports whether this is the first program of a machine.
func isInit() bool { return os.Getpid() == 1 && filepath.Base(os.Args[0]) == "init" }

// halt ends the machine, whatever came of it.
func halt() {
	unix.Sync()
	_ = unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF)
}

// chosen returns the set-up that the kernel's command line names, and its
// words.
func chosen() (*setup, map[string]bool, error) {
	line, err := os.ReadFile("/proc/cmdline")
	if err != nil {
		return nil, nil, err
	}
	var s *setup
	words := map[string]bool{}
	for word := range strings.FieldsSeq(string(line)) {
		words[word] = true
		if name, ok := strings.CutPrefix(word, "vm.setup="); ok {
			s = findSetup(name)
		}
	}
	if s == nil {
		return nil, nil, errors.New("the command line names no set-up")
	}
	return s, words, nil
}

// mount is mount(2), with the directory made where it is missing.
func mount(kind, at string, flags uintptr, data string) error {
	_ = os.MkdirAll(at, 0o755)
	source := kind
	if strings.HasPrefix(data, "/dev/") {
		source, data = data, ""
	}
	if err := unix.Mount(source, at, kind, flags, data); err != nil {
		return fmt.Errorf("mount %s on %s: %w", kind, at, err)
	}
	return nil
}

const noAll = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC

// initial loads what the root file system needs, mounts it, and goes there.
func initial() error {
	for _, m := range [][2]string{{"proc", "/proc"}, {"sysfs", "/sys"}, {"devtmpfs", "/dev"}} {
		if err := mount(m[0], m[1], unix.MS_NOSUID, ""); err != nil {
			return err
		}
	}
	modules, _ := filepath.Glob("/modules/*") // sorted: in the order in which they need each other
	for _, m := range modules {
		f, err := os.Open(m)
		if err != nil {
			return err
		}
		if err := unix.FinitModule(int(f.Fd()), "", 0); err != nil && !errors.Is(err, unix.EEXIST) {
			return fmt.Errorf("load %s: %w", m, err)
		}
		f.Close()
	}
	for range 200 {
		if _, err := os.Stat("/dev/vdd"); err == nil {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	s, _, err := chosen()
	if err != nil {
		return err
	}
	for _, m := range []struct {
		kind, at string
		flags    uintptr
		data     string
	}{
		{"ext4", "/new", 0, "/dev/vda"},
		{"ext4", "/new/usr/lib/modules", unix.MS_RDONLY, "/dev/vdb"},
		{"tmpfs", "/new/run", unix.MS_NOSUID | unix.MS_NODEV, "mode=755"},
		{"ext4", "/new" + payload, unix.MS_RDONLY, "/dev/vdc"},
	} {
		if err := mount(m.kind, m.at, m.flags, m.data); err != nil {
			return err
		}
	}
	if s.start.systemd() { // that directory says to others that it is there: sd_booted(3)
		if err := units("/new/run/systemd/system", s); err != nil {
			return err
		}
	}
	if err := os.Mkdir("/new"+results, 0o755); err != nil {
		return err
	}
	if err := os.Chown("/new"+results, userID, userID); err != nil {
		return err
	}
	for _, dir := range []string{"/proc", "/sys", "/dev"} {
		if err := unix.Mount(dir, "/new"+dir, "", unix.MS_MOVE, ""); err != nil {
			return fmt.Errorf("move %s: %w", dir, err)
		}
	}
	if err := os.Chdir("/new"); err != nil {
		return err
	}
	if err := unix.Mount(".", "/", "", unix.MS_MOVE, ""); err != nil {
		return fmt.Errorf("move the root: %w", err)
	}
	if err := unix.Chroot("."); err != nil {
		return err
	}
	if s.start.systemd() {
		return unix.Exec("/sbin/init", []string{"/sbin/init"}, []string{"PATH=" + path})
	}
	return unix.Exec(payload+"/vm", []string{payload + "/vm", "guest", "boot"}, []string{"PATH=" + path})
}

const path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// units writes systemd's part: what drives, what runs as the user, and no
// service that a machine of a minute has no use for.
func units(dir string, s *setup) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	user := "[Service]\nType=oneshot\nUser=t\nWorkingDirectory=" + home + "\nTimeoutStartSec=infinity\nPAMName=login\nExecStart=" + program(s) + " guest work\n"
	files := map[string]string{
		"vm.target":       "[Unit]\nRequires=basic.target vm.service\nWants=systemd-logind.service dbus.socket\nAfter=basic.target\nAllowIsolate=yes\n",
		"vm.service":      "[Unit]\nAfter=basic.target systemd-logind.service dbus.socket systemd-user-sessions.service\nWants=systemd-user-sessions.service\n[Service]\nType=oneshot\nTimeoutStartSec=infinity\nExecStart=" + payload + "/vm guest drive\n",
		"vm-work.service": user,
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	for _, name := range []string{
		"systemd-udevd.service", "systemd-udevd-control.socket", "systemd-udevd-kernel.socket", "systemd-udev-trigger.service", "systemd-udev-settle.service",
		"getty.target", "systemd-timesyncd.service", "systemd-firstboot.service", "systemd-update-utmp.service", "systemd-machine-id-commit.service",
		"systemd-hwdb-update.service", "systemd-journal-flush.service", "systemd-pstore.service", "systemd-random-seed.service", "systemd-binfmt.service",
		"systemd-journal-catalog-update.service", "systemd-update-done.service", "systemd-networkd.service", "ldconfig.service", "e2scrub_reap.service",
		"systemd-pcrphase.service", "systemd-pcrphase-sysinit.service", "systemd-tpm2-setup.service", "systemd-tpm2-setup-early.service",
	} {
		if err := os.Symlink("/dev/null", filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	return nil
}

// boot is init where there is no systemd.
func boot() error {
	s, _, err := chosen()
	if err != nil {
		return err
	}
	for _, m := range []struct {
		kind, at string
		flags    uintptr
		data     string
	}{
		{"devpts", "/dev/pts", unix.MS_NOSUID | unix.MS_NOEXEC, "mode=620,gid=5,ptmxmode=666"},
		{"tmpfs", "/dev/shm", unix.MS_NOSUID | unix.MS_NODEV, "mode=1777"},
		{"securityfs", "/sys/kernel/security", noAll, ""},
		{"mqueue", "/dev/mqueue", noAll, ""},
	} {
		if err := mount(m.kind, m.at, m.flags, m.data); err != nil {
			return err
		}
	}
	for name, to := range map[string]string{"fd": "/proc/self/fd", "stdin": "/proc/self/fd/0", "stdout": "/proc/self/fd/1", "stderr": "/proc/self/fd/2"} {
		_ = os.Symlink(to, "/dev/"+name)
	}
	switch s.start {
	case bare, container:
		err = mount("cgroup2", "/sys/fs/cgroup", noAll, "")
	case bareV1:
		err = mount("tmpfs", "/sys/fs/cgroup", noAll, "mode=755")
		for _, c := range []string{"memory", "pids", "cpu"} {
			if err == nil {
				err = mount("cgroup", "/sys/fs/cgroup/"+c, noAll, c)
			}
		}
	}
	if err != nil {
		return err
	}
	if err := loopback(); err != nil {
		return err
	}
	p, err := os.StartProcess(payload+"/vm", []string{payload + "/vm", "guest", "drive"}, &os.ProcAttr{Env: []string{"PATH=" + path, "HOME=/root"}, Files: []*os.File{nil, nil, nil}})
	if err != nil {
		return err
	}
	for { // an init collects whatever is left to it
		pid, err := unix.Wait4(-1, nil, 0, nil)
		if err != nil && err != unix.EINTR || pid == p.Pid {
			return errors.New("the driver ended and the machine stands")
		}
	}
}

func loopback() error {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	return netlink.LinkSetUp(lo)
}

// drive makes the machine what the set-up says, lets the user work, and writes
// what came of it to the disk that was lent for that.
func drive() error {
	s, _, err := chosen()
	if err != nil {
		return err
	}
	var u unix.Utsname
	_ = unix.Uname(&u)
	r := result{Setup: s.name, Release: unix.ByteSliceToString(u.Release[:])}
	if err := r.run(s); err != nil {
		r.Problem = err.Error()
	}
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	disk, err := os.OpenFile("/dev/vdd", os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	if _, err := disk.Write(append(text, '\n')); err != nil {
		return err
	}
	if err := disk.Sync(); err != nil {
		return err
	}
	halt()
	return nil
}

func (r *result) run(s *setup) error {
	if err := s.tweak(); err != nil {
		return err
	}
	u, err := logIn(s, nil)
	if err != nil {
		return err
	}
	if err := u.ask("all", &r.Before); err != nil || !s.fixable {
		return errors.Join(err, u.leave())
	}
	err = r.follow(s, &u)
	return errors.Join(err, u.leave())
}

func (s *setup) tweak() error {
	for _, name := range s.tweaks {
		if err := tweaks[name](); err != nil {
			return fmt.Errorf("tweak %s: %w", name, err)
		}
	}
	return nil
}

// program is what the user's part runs as. Where AppArmor confines the user,
// its profile is attached to a path of its own.
func program(s *setup) string {
	if len(s.tweaks) > 0 && strings.HasPrefix(s.tweaks[0], "apparmor") {
		return confined
	}
	return payload + "/vm"
}
