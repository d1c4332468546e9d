package namespaces

import (
	"errors"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/internal/kernel"
	"github.com/pccrun/pccrun/internal/survey"
)

// A Refusal is a step that this host is set up to refuse: which setting does
// it, and what mends it. Nothing of the command has run.
type Refusal struct {
	Step  string // as the plan names it, such as [StepProc]
	Err   error  // what the kernel said to it
	Cause string
	Fix   string // for the user to do, "" if nobody knows
}

func (e *Refusal) Error() string { return e.Err.Error() + ": " + e.Cause }

// Unwrap returns what the kernel said.
func (e *Refusal) Unwrap() error { return e.Err }

// Hint says what mends it.
func (e *Refusal) Hint() string { return e.Fix }

// The steps that hosts refuse by configuration.
const (
	StepClone = "clone into new namespaces"
	StepProc  = "mount proc on /proc"
	StepSys   = "mount sysfs on /sys"
)

// What the kernel and its security modules are asked about: proc(5),
// namespaces(7), and Documentation/admin-guide/sysctl/kernel.rst for the
// settings that only some distributions have.
const (
	usernsClone    = "/proc/sys/kernel/unprivileged_userns_clone"
	appArmorUserns = "/proc/sys/kernel/apparmor_restrict_unprivileged_userns"
	namespaceLimit = "/proc/sys/user/max_"
)

// explain adds to a step's error the cause that the host's settings show. It
// returns err as it is where they show none. read returns the text of a file, ""
// if it cannot be read: a launch that succeeds reads nothing.
func explain(err error, step string, errno unix.Errno, read func(string) string) error {
	refusal := func(cause, fix string) error { return &Refusal{step, err, cause, fix} }
	// Docker's filter says of clone3(2), whose flags it cannot see, and of calls
	// newer than itself that the kernel has none.
	unseen := errno == unix.ENOSYS && filtered(read("/proc/self/status"))
	denied := errno == unix.EPERM || errno == unix.EACCES || unseen
	byFilter := func() error {
		verb := " forbids it"
		if step != StepClone {
			verb = " may forbid it"
		}
		if unit := unitOf(read("/proc/self/cgroup")); unit != "" {
			return refusal("a seccomp filter of the unit "+unit+verb+" (RestrictNamespaces= or SystemCallFilter=)", unhardened(unit, read))
		}
		return refusal("a seccomp filter around pccrun"+verb+", as in containers and sandboxes", unconfined("", read)+"; inside pccrun, start the outer one with --nested")
	}
	switch {
	case errno == unix.ENOSYS && unfit(read) != nil:
		return refusal(unfit(read).Cause, unfit(read).Fix)
	case step == StepClone && errno == unix.ENOSPC:
		for _, kind := range [...]string{"user", "mnt", "pid", "net", "ipc", "uts", "cgroup"} {
			name := namespaceLimit + kind + "_namespaces"
			if n := read(name); n == "0" {
				return refusal("user.max_"+kind+"_namespaces is 0", sysctl("user.max_"+kind+"_namespaces", "15000"))
			}
		}
		return refusal("the limit user.max_*_namespaces is reached, or namespaces are nested too deeply", "")
	case step == StepClone && errno == unix.EINVAL && read("/proc/self/uid_map") == "":
		return refusal("this kernel has no user namespaces", "boot a kernel with CONFIG_USER_NS")
	case !denied:
		return err
	case unseen:
		return byFilter()
	case step == StepClone && read(usernsClone) == "0":
		return refusal("kernel.unprivileged_userns_clone is 0", sysctl("kernel.unprivileged_userns_clone", "1"))
	case (step == StepProc || step == StepSys) && covered(read("/proc/self/mountinfo"), step[strings.LastIndexByte(step, '/'):]) != "":
		// mount_too_revealing in the kernel's fs/namespace.c.
		root := step[strings.LastIndexByte(step, '/'):]
		if unit := unitOf(read("/proc/self/cgroup")); unit != "" {
			return refusal(covered(read("/proc/self/mountinfo"), root)+" is covered or read-only in the unit "+unit+", so that the kernel refuses to mount a new "+root, unhardened(unit, read))
		}
		return refusal(covered(read("/proc/self/mountinfo"), root)+" is covered or read-only here, as in containers, so that the kernel refuses to mount a new "+root,
			unconfined("", read)+"; or run pccrun outside the container")
	case containerProfile(read("/proc/self/attr/current")):
		return refusal("the container's AppArmor profile "+read("/proc/self/attr/current")+" forbids it", unconfined("", read))
	case confined(read("/proc/self/attr/current")):
		return refusal("the AppArmor profile "+read("/proc/self/attr/current")+" forbids it", "pccrun doctor --fix gives pccrun a profile of its own")
	case read(appArmorUserns) == "1":
		return refusal("AppArmor restricts user namespaces (kernel.apparmor_restrict_unprivileged_userns is 1)", "pccrun doctor --fix gives pccrun a profile that allows them")
	case filtered(read("/proc/self/status")):
		return byFilter()
	case step == StepClone && !hasRoot(read("/proc/self/mountinfo")):
		return refusal("pccrun runs in a chroot, where the kernel refuses user namespaces", "run it outside the chroot, or enter the chroot with pivot_root")
	}
	return err
}

// powerless adds to what the kernel says to root's clone of a mount why root may
// not make it: containers take the capability, and their filter the call.
func powerless(err error, errno unix.Errno, read func(string) string) error {
	status := read("/proc/self/status")
	if errno != unix.EPERM && errno != unix.ENOSYS || mayMount(status) && !filtered(status) {
		return err
	}
	return &Refusal{Step: stepClonesMount, Err: err, Cause: "root cannot mount here (no CAP_SYS_ADMIN, or a seccomp filter), as in containers",
		Fix: "run pccrun as a user who is not root: " + unconfined(" --user 1000", read) + "; or --privileged"}
}

// stepClonesMount is root's, before anything is cloned.
const stepClonesMount = "clone a mount for the sandbox"

// mayMount reports whether the text of /proc/self/status tells of an effective
// CAP_SYS_ADMIN, bit 21 (capabilities(7)), or nothing of capabilities.
func mayMount(status string) bool {
	_, rest, ok := strings.Cut(status, "\nCapEff:\t")
	word, _, _ := strings.Cut(rest, "\n")
	caps, err := strconv.ParseUint(word, 16, 64)
	return !ok || err != nil || caps&(1<<unix.CAP_SYS_ADMIN) != 0
}

// unfit says why no launch succeeds on this kernel, nil if one may.
func unfit(read func(string) string) *Refusal {
	switch {
	case strings.Contains(read("/proc/version"), gVisor):
		return &Refusal{Cause: "this is gVisor's kernel, which lacks system calls that pccrun needs", Fix: "start pccrun outside gVisor"}
	case !kernel.Covers(read("/proc/sys/kernel/osrelease"), 5, 12):
		return &Refusal{Cause: "this kernel is older than Linux 5.12, which pccrun needs (mount_setattr)", Fix: "boot a newer kernel, or run pccrun in a virtual machine with one"}
	}
	return nil
}

// gVisor is what every release of it says of when it was built: its
// pkg/sentry/syscalls/linux/linux64.go.
const gVisor = "#1 SMP Sun Jan 10 15:06:54 PST 2016"

// Unfit adds to an error of a launch that no setting explains why none
// succeeds on this kernel, if that is known.
func Unfit(err error) error {
	var refusal *Refusal
	if errors.As(err, &refusal) {
		return err
	}
	if refusal = unfit(readText); refusal == nil {
		return err
	}
	refusal.Err = err
	return refusal
}

// sysctl says how to change a setting of the kernel.
func sysctl(name, value string) string {
	return "as root: sysctl -w " + name + "=" + value + " (pccrun doctor --fix makes it permanent)"
}

// confined reports whether a label of /proc/self/attr/current is a profile of
// AppArmor's that enforces. SELinux labels have colons and no mode.
func confined(label string) bool { return strings.HasSuffix(label, " (enforce)") }

// containerProfile reports whether a label is a profile that a container engine
// gives its containers: it forbids them to mount, whoever they are.
func containerProfile(label string) bool {
	for _, name := range [...]string{"docker-default", "containers-default-", "cri-containerd.apparmor.d", "crio-default", "nerdctl-default"} {
		if confined(label) && strings.HasPrefix(label, name) {
			return true
		}
	}
	return false
}

// unconfined says how a container is started so that nothing of what stands in
// pccrun's way is left: all of it at once, since each start costs a reader one.
// options come before what it names.
func unconfined(options string, read func(string) string) string {
	docker, podman := "docker run"+options, "podman run"+options
	table := read("/proc/self/mountinfo")
	if covered(table, "/proc") != "" || covered(table, "/sys") != "" {
		docker += " --security-opt systempaths=unconfined"
		podman += " --security-opt unmask=ALL"
	}
	both := ""
	if filtered(read("/proc/self/status")) {
		both += " --security-opt seccomp=unconfined"
	}
	if containerProfile(read("/proc/self/attr/current")) {
		both += " --security-opt apparmor=unconfined"
	}
	return docker + both + ", " + podman + both
}

// unitOf returns the service of systemd's that the text of /proc/self/cgroup names, "" for none: a user's
// manager is one too, which hardens nothing, and a container has a scope of its own.
func unitOf(cgroups string) (unit string) {
	for line := range strings.Lines(cgroups) {
		for name := range strings.SplitSeq(strings.TrimSuffix(line, "\n"), "/") {
			switch {
			case strings.HasSuffix(name, ".scope"), strings.HasPrefix(name, "user@"):
				unit = ""
			case strings.HasSuffix(name, ".service"):
				unit = name
			}
		}
		if unit != "" {
			break
		}
	}
	return unit
}

// unhardened says which settings of a unit leave nothing in pccrun's way, all of them at once: systemd.exec(5).
func unhardened(unit string, read func(string) string) string {
	settings := ""
	if filtered(read("/proc/self/status")) {
		settings += " RestrictNamespaces=no, a SystemCallFilter= that allows @mount,"
	}
	if table := read("/proc/self/mountinfo"); covered(table, "/proc") != "" || covered(table, "/sys") != "" {
		settings += " ProtectKernelTunables=no, ProtectKernelLogs=no, ProcSubset=all,"
	}
	return "systemctl edit " + unit + ", below [Service]:" + strings.TrimSuffix(settings, ",") + "; NoNewPrivileges= and ProtectSystem= may stay"
}

// filtered reports whether the text of /proc/self/status tells of a seccomp
// filter.
func filtered(status string) bool { return strings.Contains(status, "\nSeccomp:\t2") }

// hasRoot reports whether a table of mounts has a mount at /: in a chroot it
// has none.
func hasRoot(mountinfo string) bool {
	if mountinfo == "" {
		return true // nobody says so
	}
	for line := range strings.Lines(mountinfo) {
		if f := strings.Fields(line); len(f) > 4 && f[4] == "/" {
			return true
		}
	}
	return false
}

// covered returns a mount that keeps the kernel from mounting another instance
// of the file system at root: one below it, other than on a directory that is
// always empty, or a read-only one at root itself. "" if there is none.
func covered(mountinfo, root string) string {
	for line := range strings.Lines(mountinfo) {
		f := strings.Fields(line)
		if len(f) < 6 {
			continue
		}
		at := survey.Unescape(f[4])
		switch {
		case at == "/proc/sys/fs/binfmt_misc", at == "/sys/fs/cgroup" || strings.HasPrefix(at, "/sys/fs/") || strings.HasPrefix(at, "/sys/kernel/"):
			continue // mount points that the kernel made for it
		case strings.HasPrefix(at, root+"/"):
			return at
		case at == root && root == "/proc" && strings.HasPrefix(f[5], "ro"):
			return at
		}
	}
	return ""
}

// readText reads a small file of the kernel's.
func readText(path string) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	return strings.TrimRight(string(text), "\n\x00")
}
