package doctor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/internal/programs"
	"github.com/pccrun/pccrun/profiles"
)

// Where settings live.
const (
	sysctlFile   = "/etc/sysctl.d/60-pccrun.conf"
	apparmorFile = "/etc/apparmor.d/pccrun"
	installed    = "/usr/local/bin/pccrun"
	delegateDir  = "/etc/systemd/system/user@.service.d"
)

// fixes returns what would mend what the trials found.
func fixes(p *Provider, h host) []Fix {
	var list []Fix
	if !p.Runs {
		list = append(list, h.settings()...)
		// A container's profile is its engine's, and the launcher says which
		// option leaves it out.
		if f, ok := h.apparmor(); ok && !strings.Contains(p.Hint, "apparmor=unconfined") {
			list = append(list, f)
		}
	}
	if p.Runs { // else nothing is known of its limits
		if f, ok := h.delegation(p.Limits); ok {
			list = append(list, f)
		}
	}
	return list
}

// settings raises the kernel's settings that forbid user namespaces.
func (h *host) settings() []Fix {
	var values, steps = "", []Step(nil)
	var why []string
	set := func(name, value string) {
		values += name + " = " + value + "\n"
		steps = append(steps, Step{File: "/proc/sys/" + strings.ReplaceAll(name, ".", "/"), Content: value + "\n"})
	}
	if h.read("/proc/sys/kernel/unprivileged_userns_clone") == "0" {
		why = append(why, "kernel.unprivileged_userns_clone is 0: only root can make user namespaces")
		set("kernel.unprivileged_userns_clone", "1")
	}
	for _, kind := range []string{"user", "mnt", "pid", "net", "ipc", "uts", "cgroup"} {
		if name := "user.max_" + kind + "_namespaces"; h.read("/proc/sys/"+strings.ReplaceAll(name, ".", "/")) == "0" {
			why = append(why, name+" is 0")
			set(name, "15000")
		}
	}
	if values == "" {
		return nil
	}
	return []Fix{{Why: strings.Join(why, "; "), Steps: slices.Concat([]Step{{Run: []string{"mkdir", "-p", path.Dir(sysctlFile)}}, {File: sysctlFile, Content: values}}, steps)}}
}

// apparmor gives pccrun a profile of its own, where profiles decide who may
// make user namespaces.
func (h *host) apparmor() (Fix, bool) {
	var why string
	switch label := h.read("/proc/self/attr/current"); {
	case h.read("/proc/sys/kernel/apparmor_restrict_unprivileged_userns") == "1":
		why = "AppArmor allows user namespaces only for programs with a profile"
	case strings.HasSuffix(label, " (enforce)"):
		why = "the AppArmor profile " + label + " confines pccrun"
	default:
		return Fix{}, false
	}
	f := Fix{Why: why}
	at := h.launcher
	if !h.guarded(at) {
		// A profile for a file that the user can replace is one for
		// whatever the user, or an agent, puts there.
		f.Why += "; " + at + " can be replaced by other users than root, so the fix installs a copy"
		f.Steps = append(f.Steps, Step{Run: []string{"install", "-m", "755", at, installed}})
		f.After = "run " + installed
		at = installed
	}
	text := "# Lets pccrun make user namespaces. Written by pccrun doctor.\n"
	rule := ""
	if h.exists("/etc/apparmor.d/abi/4.0") {
		text += "abi <abi/4.0>,\n"
		rule = "  userns,\n"
	}
	text += "profile pccrun " + strconv.Quote(globbed(at)) + " flags=(unconfined) {\n" + rule + "}\n"
	f.Steps = append(f.Steps, Step{File: apparmorFile, Content: text}, Step{Run: []string{"apparmor_parser", "-r", apparmorFile}})
	return f, true
}

// guarded reports whether only root can change what a path leads to.
func (h *host) guarded(at string) bool {
	real, err := filepath.EvalSymlinks(at)
	if err != nil {
		return false
	}
	for {
		var st unix.Stat_t
		if unix.Lstat(real, &st) != nil || st.Uid != 0 || st.Mode&0o022 != 0 {
			return false
		}
		if real == "/" {
			return true
		}
		real = path.Dir(real)
	}
}

// globbed escapes what AppArmor would take for a pattern.
func globbed(at string) string {
	var b strings.Builder
	for _, r := range at {
		if strings.ContainsRune(`*?[]{}^\`, r) {
			b.WriteByte('\\')
		}
		b.WriteRune(r)
	}
	return b.String()
}

// delegation gives the user the control groups without which limits are kept
// only weakly, or not at all.
func (h *host) delegation(answers []profiles.Answer) (Fix, bool) {
	var weak []string
	hint := ""
	for _, a := range answers {
		if a.State != profiles.Kept {
			weak = append(weak, string(a.Guarantee))
			if hint == "" {
				hint = a.Hint
			}
		}
	}
	if len(weak) == 0 || h.uid == 0 {
		return Fix{}, false
	}
	f := Fix{Why: "there are no control groups for these limits: " + strings.Join(weak, ", "), Optional: true}
	switch command, ok := strings.CutPrefix(hint, "as root: "); {
	case ok:
		// The words are the launcher's: they name directories of this process,
		// and may go on with what does without.
		command, _, _ = strings.Cut(command, "; or ")
		f.Steps = []Step{{Run: []string{"sh", "-c", strings.ReplaceAll(command, "PID-OF-YOUR-SHELL", strconv.Itoa(os.Getppid()))}}}
	case h.exists("/run/systemd/system") && !h.exists(fmt.Sprintf("/run/user/%d/bus", h.uid)):
		f.Why += "; the user has no systemd user manager"
		if h.look("apt-get") && !h.exists("/usr/lib/systemd/user/dbus.socket") {
			f.Steps = append(f.Steps, Step{Run: []string{"apt-get", "install", "-y", "dbus-user-session"}})
		}
		f.Steps = append(f.Steps, Step{Run: []string{"loginctl", "enable-linger", h.user}},
			Step{Run: []string{"systemctl", "start", fmt.Sprintf("user@%d.service", h.uid)}}) // which waits until it is up
	case h.exists("/run/systemd/system"):
		f.Why += "; systemd does not delegate all controllers to users"
		f.Steps = []Step{{Run: []string{"mkdir", "-p", delegateDir}}, {File: delegateDir + "/pccrun.conf", Content: "[Service]\nDelegate=cpu cpuset io memory pids\n"}, {Run: []string{"systemctl", "daemon-reload"}}}
		f.After = "log in again"
	default:
		return Fix{}, false
	}
	return f, true
}

// ErrNotRoot says that a fix needs root, and that nobody could be asked.
var ErrNotRoot = errors.New("needs root, and sudo is missing or asks for a password")

// Apply makes the change, as root or by sudo(8). Asking for a password is up to
// sudo, and only if there is a terminal.
func (f *Fix) Apply(ctx context.Context, finder *programs.Finder) error {
	shell, err := finder.Find("sh", nil)
	if err != nil {
		return fmt.Errorf("apply the fix: %w", err)
	}
	args := []string{"-c", "set -e\n" + f.Script()}
	cmd := shell.Command(ctx, args...)
	if os.Geteuid() != 0 {
		sudo, err := finder.Find("sudo", nil)
		if err != nil {
			return ErrNotRoot
		}
		args = append([]string{shell.Path}, args...)
		if _, err := unix.IoctlGetTermios(0, unix.TCGETS); err != nil {
			args = append([]string{"-n"}, args...)
			if sudo.Command(ctx, "-n", "true").Run() != nil {
				return ErrNotRoot
			}
		}
		cmd = sudo.Command(ctx, args...)
	}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stderr, os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("apply the fix: %w", err)
	}
	return nil
}
