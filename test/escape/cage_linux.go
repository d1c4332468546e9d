package escape

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/internal/kernel"
)

// A cage is a place where a payload may do its worst: namespaces, home, /etc,
// temporary directories, devices' terminals, network and processes of its own.
// It is made by running this program once more with clone flags; its first
// process builds the place, performs the job in it and answers on its standard
// output. When it ends, the kernel ends all that it held.
//
//	suite ── job (JSON, stdin) ──▶ cage: mounts, network, world ──▶ payload or launcher
//	suite ◀── outcome (JSON, stdout) ── cage

// cage performs a job in a cage.
func cage(ctx context.Context, j *job) (Outcome, error) {
	ctx, cancel := context.WithTimeout(ctx, longTime)
	defer cancel()
	runtime.LockOSThread() // the cage's death signal is this thread's end, and no other goroutine may end it
	defer runtime.UnlockOSThread()
	dir, err := os.MkdirTemp(j.Dir, "cage-")
	if err != nil {
		return Outcome{}, err
	}
	defer os.Remove(dir)
	if os.Geteuid() == 0 && !tmpfsMapsOwners() {
		if err := os.MkdirAll(filepath.Join(homeOnDisk(dir), "home"), 0o700); err != nil {
			return Outcome{}, err
		}
		defer removeAll(homeOnDisk(dir))
	}
	input, err := json.Marshal(j)
	if err != nil {
		return Outcome{}, err
	}
	cmd := exec.CommandContext(ctx, j.Self, cageVerb, dir)
	cmd.Env = []string{"PATH=" + hostPath()}
	cmd.Dir = "/"
	cmd.Stdin = bytes.NewReader(input)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWNET | syscall.CLONE_NEWIPC | syscall.CLONE_NEWUTS | unix.CLONE_NEWCGROUP,
		Setsid:     true,
		Pdeathsig:  syscall.SIGKILL,
	}
	if os.Geteuid() != 0 {
		identity(cmd.SysProcAttr, 0, 0)
		cmd.SysProcAttr.UidMappings[0].HostID = os.Geteuid()
		cmd.SysProcAttr.GidMappings[0].HostID = os.Getegid()
	}
	if err := cmd.Run(); err != nil {
		return Outcome{}, fmt.Errorf("cage: %w: %s", err, strings.TrimSpace(stderr.String()))
	}
	var o Outcome
	if err := json.Unmarshal(stdout.Bytes(), &o); err != nil {
		return Outcome{}, fmt.Errorf("cage: %w: %.200q", err, stdout.String())
	}
	return o, nil
}

// tmpfsMapsOwners reports whether a tmpfs can show its files as somebody
// else's, which a launcher that gives root up asks of a workspace: since Linux
// 6.3 (mount_setattr(2)).
func tmpfsMapsOwners() bool { return kernel.AtLeast(6, 3) }

// homeOnDisk is where the homes of a cage are whose tmpfs cannot map owners: in
// a directory that nobody else may enter, beside the cage, on the disk that has
// the workspaces of all other trials.
func homeOnDisk(dir string) string { return dir + "-disk" }

// runCage is the first process of a cage.
func runCage(dir string) int {
	j := &job{}
	if err := json.NewDecoder(os.Stdin).Decode(j); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	o := outcomeOf(func() Outcome {
		furnish(dir, j)
		return perform(context.Background(), j)
	})
	if err := json.NewEncoder(os.Stdout).Encode(o); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	return 0
}

// Directories of a cage that are its own and empty; all others are the host's,
// read-only.
var ownDirs = []string{"tmp", "home", "root", "opt", "srv", "run", "mnt", "media", "proc", "dev", "sys", "etc", ".cage", "boot"}

// What stands in the files of a cage by which names are looked up.
const (
	hostsText    = "127.0.0.1 localhost\n::1 localhost\n"
	resolverText = "nameserver " + resolverAddress + "\n"
)

// What stands in a cage by fixed names.
const (
	cageSelf     = "/.cage/pccrun"
	cageLauncher = "/.cage/launcher"
	cageProfile  = "/.cage/profile.jsonc"
)

// A cageMount is one of a cage's file systems: of a kind, or bound from a path of the machine.
type cageMount struct {
	path, kind string
	flags      uintptr
	data       string
}

// cageMounts are mounted in this order: homes have mounts of their own, so that launchers
// can cover them; proc comes before the old root goes, since a user namespace may mount it
// only where an unmasked one is in sight.
var cageMounts = []cageMount{
	{"tmp", "tmpfs", unix.MS_NOSUID | unix.MS_NODEV, "mode=1777,size=512m"}, {"var/tmp", "tmpfs", unix.MS_NOSUID | unix.MS_NODEV, "mode=1777,size=512m"},
	{"home", "tmpfs", 0, "mode=755,size=512m"}, {"srv", "tmpfs", 0, "mode=755,size=512m"}, {"opt", "tmpfs", 0, "mode=755,size=512m"},
	{"run", "tmpfs", 0, "mode=755,size=512m"}, {"root", "tmpfs", 0, "mode=755,size=512m"},
	{"proc", "proc", 0, ""}, {"sys", "/sys", unix.MS_BIND | unix.MS_REC, ""}, {"dev", "/dev", unix.MS_BIND | unix.MS_REC, ""},
	{"dev/pts", "devpts", 0, "newinstance,ptmxmode=0666,mode=0620"}, {"dev/shm", "tmpfs", 0, "mode=1777,size=256m"}, {"dev/mqueue", "mqueue", 0, ""},
}

func (m cageMount) mount(dir string) {
	to := filepath.Join(dir, m.path)
	if disk := filepath.Join(homeOnDisk(dir), m.path); m.path == "home" && isDirectory(disk) {
		m.kind, m.flags, m.data = disk, unix.MS_BIND, ""
		must(os.Chmod(disk, 0o755))
	}
	if strings.HasPrefix(m.path, "dev/") && !exists(to) {
		return // a host without it
	}
	must(unix.Mount(m.kind, to, m.kind, m.flags, m.data), "mount /"+m.path)
}

// furnish turns an empty directory into the root of the cage and enters it. A cage that
// is shared leaves the files of the machine where they are, for an engine that sees no
// others: the network, the names in it and the processes are the cage's.
func furnish(dir string, j *job) {
	must(unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""), "make mounts private")
	must(unix.Mount("cage", dir, "tmpfs", 0, "mode=755"), "mount root")
	if j.Shared {
		shareRoot(dir)
	} else {
		makeRoot(dir, j)
	}
	must(unix.Sethostname([]byte("cage-host")), "hostname")
	must(linkUp("lo"), "loopback")
}

// shareRoot covers what of the machine's files names others, and shows the cage's processes.
func shareRoot(dir string) {
	for name, text := range map[string]string{"hosts": hostsText, "resolv.conf": resolverText} {
		from := filepath.Join(dir, name)
		must(os.WriteFile(from, []byte(text), 0o644))
		must(unix.Mount(from, "/etc/"+name, "", unix.MS_BIND, ""), "/etc/"+name)
	}
	must(unix.Mount("proc", "/proc", "proc", 0, ""))
}

func makeRoot(dir string, j *job) {
	makeDirectories(dir)
	for _, m := range cageMounts {
		m.mount(dir)
	}
	if ptmx := filepath.Join(dir, "dev/ptmx"); !isLink(ptmx) { // a link leads to pts/ptmx, which is new
		must(unix.Mount(filepath.Join(dir, "dev/pts/ptmx"), ptmx, "", unix.MS_BIND, ""), "bind /dev/ptmx")
	}
	makeEtc(dir, j)
	bindPrograms(dir, j)
	must(errors.Join(os.Chdir(dir), unix.PivotRoot(".", "."), unix.Unmount(".", unix.MNT_DETACH), os.Chdir("/")), "pivot")
	j.Self, j.Dir = cageSelf, "/tmp"
	if j.Launcher != "" {
		j.Launcher = cageLauncher
	}
	if j.Profile != "" {
		j.Profile = cageProfile
	}
}

func isLink(path string) bool { _, err := os.Readlink(path); return err == nil }

func makeDirectories(dir string) {
	for _, name := range ownDirs {
		must(os.Mkdir(filepath.Join(dir, name), 0o755))
	}
	entries, err := os.ReadDir("/")
	must(err)
	for _, entry := range entries {
		from, to := "/"+entry.Name(), filepath.Join(dir, entry.Name())
		if _, err := os.Lstat(to); err == nil {
			continue // one of its own
		}
		switch {
		case entry.Type()&os.ModeSymlink != 0:
			target, err := os.Readlink(from)
			if err == nil {
				err = os.Symlink(target, to)
			}
			must(err)
		case entry.IsDir():
			must(os.Mkdir(to, 0o755))
			bindReadOnly(from, to)
		}
	}
}

func bindReadOnly(from, to string) {
	must(unix.Mount(from, to, "", unix.MS_BIND|unix.MS_REC, ""), "bind "+from)
	must(unix.MountSetattr(unix.AT_FDCWD, to, unix.AT_RECURSIVE, &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}), "make "+from+" read-only")
}

// makeEtc makes an /etc whose accounts, names and resolver are the cage's; the
// rest leads to the host's.
func makeEtc(dir string, j *job) {
	host := filepath.Join(dir, ".cage/etc")
	must(os.Mkdir(host, 0o755))
	bindReadOnly("/etc", host)
	own := map[string]string{
		"passwd":      fmt.Sprintf("root:x:0:0:root:/root:/bin/sh\ndev:x:%d:%d::/home/dev:/bin/sh\nnobody:x:65534:65534::/nonexistent:/usr/sbin/nologin\n", j.UID, j.GID),
		"group":       fmt.Sprintf("root:x:0:\ntty:x:5:\ndev:x:%d:\nnogroup:x:65534:\n", j.GID),
		"shadow":      "root:*:19000:0:99999:7:::\n",
		"hosts":       hostsText,
		"hostname":    "cage-host\n",
		"resolv.conf": resolverText,
		"machine-id":  "0123456789abcdef0123456789abcdef\n",
		"crontab":     "", "fstab": "",
	}
	if j.UID == 0 {
		own["passwd"] = "root:x:0:0:root:/home/dev:/bin/sh\nnobody:x:65534:65534::/nonexistent:/usr/sbin/nologin\n"
	}
	etc := filepath.Join(dir, "etc")
	for name, content := range own {
		must(os.WriteFile(filepath.Join(etc, name), []byte(content), 0o644))
	}
	must(os.Chmod(filepath.Join(etc, "shadow"), 0o600))
	for _, name := range []string{"cron.d", "profile.d"} {
		must(os.Mkdir(filepath.Join(etc, name), 0o755))
		own[name] = ""
	}
	entries, err := os.ReadDir("/etc")
	must(err)
	for _, entry := range entries {
		if _, is := own[entry.Name()]; is || entry.Name() == "mtab" {
			continue
		}
		must(os.Symlink("/.cage/etc/"+entry.Name(), filepath.Join(etc, entry.Name())))
	}
}

// bindPrograms brings this program, the launcher and its profile, which may lie
// where a cage has its own directories, to a place that the cage keeps.
func bindPrograms(dir string, j *job) {
	for to, from := range map[string]string{cageSelf: j.Self, cageLauncher: j.Launcher, cageProfile: j.Profile} {
		if from == "" {
			continue
		}
		to = dir + to
		must(os.WriteFile(to, nil, 0o755))
		bindReadOnly(from, to)
	}
}
