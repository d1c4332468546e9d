//go:build linux

package escape

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/internal/await"
	"github.com/pccrun/pccrun/test/internal/verdicts"
)

// litterProbes are those that make most of what has to be removed.
const litterProbes = "FS-001,FS-059,KS-040,IPC-005,IPC-006,IPC-019,NS-002,NS-018,NS-019,RES-005,LCH-026,LCH-027,PER-001,TTY-001"

// TestLeavesNothing runs the suite in namespaces in which nobody else makes
// anything, and compares what is there before and after: files, mounts,
// processes, IPC objects, keys, control groups. A run that is killed leaves its litter to the
// next one; every other end is one of these two.
//
//test:root end
func TestLeavesNothing(t *testing.T) {
	needCage(t)
	launcher := testLauncher(t)
	for _, how := range []string{"end", "TERM", "INT", "HUP", "KILL", "moments"} {
		t.Run(how, func(t *testing.T) {
			if how != "end" && how != "KILL" {
				verdicts.SkipUnlessLong(t)
			}
			cmd := exec.Command("/proc/self/exe", "__litter", how, launcher)
			cmd.Env = []string{"HOME=/tmp/home", "PATH=" + hostPath()}
			cmd.SysProcAttr = &syscall.SysProcAttr{
				Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWIPC, Pdeathsig: syscall.SIGKILL,
			}
			if os.Geteuid() != 0 {
				// the same user, who may mount until it says otherwise
				identity(cmd.SysProcAttr, os.Geteuid(), os.Getegid())
				cmd.SysProcAttr.UidMappings[0].HostID, cmd.SysProcAttr.GidMappings[0].HostID = os.Geteuid(), os.Getegid()
				cmd.SysProcAttr.AmbientCaps = []uintptr{unix.CAP_SYS_ADMIN}
			}
			out, err := cmd.CombinedOutput()
			require.NoError(t, err, "%s", out)
		})
	}
}

// litter is the first process of the namespaces.
func litter(how, launcher string) error {
	program, err := os.Open(launcher)
	if err != nil {
		return err
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	for _, dir := range []string{"/tmp", "/var/tmp", "/dev/shm", "/run", "/home", "/var/cache"} {
		if err := unix.Mount("litter", dir, "tmpfs", 0, "mode=1777"); err != nil {
			return fmt.Errorf("mount on %s: %w", dir, err)
		}
	}
	if err := unix.Mount("proc", "/proc", "proc", 0, ""); err != nil {
		return fmt.Errorf("mount proc: %w", err)
	}
	if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); err != nil {
		return err
	}
	if err := os.Mkdir("/tmp/home", 0o755); err != nil {
		return err
	}
	copied := "/tmp/launcher"
	if err := place(fmt.Sprintf("/proc/self/fd/%d", program.Fd()), copied); err != nil {
		return err
	}
	if err := os.Chmod(copied, 0o755); err != nil {
		return err
	}
	if how == "KILL" {
		// whether it was there before the run that was killed nobody can know
		if err := errors.Join(os.MkdirAll("/tmp/home/.cache/pccrun", 0o755), os.MkdirAll("/var/cache/pccrun", 0o755)); err != nil {
			return err
		}
	}
	suite := func(ids string) *exec.Cmd {
		cmd := exec.Command("/proc/self/exe", "__escape", "compare", "--wrap", "env --", "--id", ids, "pccrun")
		cmd.Env = append(os.Environ(), "PCCRUN_LAUNCHER="+copied)
		return cmd
	}
	before := standing()
	switch how {
	case "end":
		cmd := suite(litterProbes)
		if out, _ := cmd.CombinedOutput(); cmd.ProcessState.ExitCode() != 1 {
			err = fmt.Errorf("the suite: %v: %s", cmd.ProcessState, out)
		}
	case "moments":
		return atMoments(suite, before)
	default:
		err = endBy(suite(litterProbes), how, func() error {
			if !underWay(before) {
				return errors.New("control: a run that is under way leaves no trace")
			}
			return nil
		})
	}
	if how == "KILL" && err == nil {
		time.Sleep(1100 * time.Millisecond) // a site that is younger is left alone
		var out []byte
		if out, err = suite("KS-040").CombinedOutput(); err != nil {
			err = fmt.Errorf("the next run: %w: %s", err, out)
		}
	}
	if err != nil {
		return err
	}
	return asBefore(before)
}

// ends are the signals that end the suite, each with the status that it ends with.
var ends = map[string]struct {
	signal unix.Signal
	status int
}{"TERM": {unix.SIGTERM, 143}, "INT": {unix.SIGINT, 130}, "HUP": {unix.SIGHUP, 129}, "KILL": {unix.SIGKILL, -1}}

// underWay waits for the traces of a run.
func underWay(before map[string]bool) bool {
	return eventually(await.Patience, func() bool { return len(standing()) > len(before)+60 })
}

// endBy starts the suite, waits for its moment and ends it by a signal, to which
// it must answer by its status.
func endBy(cmd *exec.Cmd, how string, moment func() error) error {
	if err := cmd.Start(); err != nil {
		return err
	}
	err := moment()
	cmd.Process.Signal(ends[how].signal)
	cmd.Wait()
	status := cmd.ProcessState.Sys().(syscall.WaitStatus)
	switch {
	case err != nil:
		return err
	case cmd.ProcessState.ExitCode() != ends[how].status && status.Signal() != ends[how].signal: // the latter before it has done anything
		return fmt.Errorf("%s: %v, want status %d", how, cmd.ProcessState, ends[how].status)
	}
	return nil
}

// atMoments ends runs at one moment after the other, from before the first file is
// made until long after a run has begun.
func atMoments(suite func(string) *exec.Cmd, before map[string]bool) error {
	names := []string{"INT", "TERM", "HUP"}
	for i, pause := range []int{0, 2, 5, 10, 20, 40, 80, 160, 320, 640, 1280, 2560, -1} {
		err := endBy(suite(litterProbes), names[i%len(names)], func() error {
			if pause < 0 && !underWay(before) {
				return errors.New("control: a run that is under way leaves no trace")
			}
			time.Sleep(time.Duration(pause) * time.Millisecond)
			return nil
		})
		if err == nil {
			err = asBefore(before)
		}
		if err != nil {
			return fmt.Errorf("after %d ms: %w", pause, err)
		}
	}
	return nil
}

// asBefore wants all to be again as it was.
func asBefore(before map[string]bool) error {
	for {
		if pid, err := unix.Wait4(-1, nil, unix.WNOHANG, nil); err != nil || pid <= 0 {
			break // what the suite's children left to us, their first process
		}
	}
	look := func() (more []string) {
		after := standing()
		for name := range after {
			if !before[name] {
				more = append(more, "+"+name)
			}
		}
		for name := range before {
			// Others clear groups away too, and the directories on which mounts stand that were copied from theirs.
			if !after[name] && !strings.HasPrefix(name, "group") && !strings.HasPrefix(name, "/proc/self/mountinfo") {
				more = append(more, "-"+name)
			}
		}
		return more
	}
	more := look() // what comes later is another's: control groups are everybody's
	eventually(await.Patience, func() bool {
		now := look()
		more = slices.DeleteFunc(more, func(name string) bool { return !slices.Contains(now, name) })
		return len(more) == 0
	})
	if len(more) > 0 {
		slices.Sort(more)
		return fmt.Errorf("not as before:\n%s", strings.Join(more, "\n"))
	}
	return nil
}

// standing is all that a run might leave.
func standing() map[string]bool {
	all := map[string]bool{}
	for _, dir := range append([]string{"/home", "/var/cache"}, sharedDirs...) {
		filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
			if err == nil && path == "/run/pccrun-git" { // a directory of pccrun's own, as its state is: root's runs share it
				return filepath.SkipDir
			}
			if err == nil {
				all["file "+path] = true
			}
			return nil
		})
	}
	for _, name := range processes() {
		if line := statusLine(name, "State"); line != "" && !strings.HasPrefix(line, "Z") {
			all["process "+name] = true
		}
	}
	for _, path := range []string{"/proc/sysvipc/shm", "/proc/sysvipc/msg", "/proc/sysvipc/sem", "/proc/self/mountinfo"} {
		data, _ := os.ReadFile(path)
		for line := range strings.Lines(string(data)) {
			if fields := strings.Fields(line); len(fields) > 4 {
				all[path+" "+fields[0]+" "+fields[1]+" "+fields[4]] = true
			}
		}
	}
	keys, _ := os.ReadFile("/proc/keys")
	for line := range strings.Lines(string(keys)) {
		if serial, ours := keyOfSuite(line); ours {
			all["key "+serial] = true
		}
	}
	left, _ := filepath.Glob("/sys/fs/cgroup/*/pccrun-*")
	for _, dir := range left {
		all["group "+dir] = true
	}
	return all
}

// keyOfSuite says whether a line of /proc/keys, proc(5), is of a key that stands
// and that the suite made: keys belong to users, not to namespaces, and other
// tests make, end and forget theirs meanwhile.
func keyOfSuite(line string) (serial string, is bool) {
	f := strings.Fields(line)
	if len(f) < 9 || strings.ContainsAny(f[1], "RDX") { // revoked, dead, expired
		return "", false
	}
	description := strings.Join(f[8:], " ")
	return f[0] + " " + description, strings.HasPrefix(description, "tag-") || strings.HasPrefix(description, "canary")
}

func TestKeyOfSuite(t *testing.T) {
	for line, want := range map[string]bool{
		"1b21fa22 I--Q---     1 perm 3f010000     0     0 user      tag-0123456789ab-cdef0123: 32": true,
		"1b21fa22 I--Q---     1 perm 3f1b0000     0     0 keyring   canary: 1":                     true,
		"1b21fa22 I--Q---     1 perm 1f3f0000     0 65534 keyring   _uid_ses.0: 1":                 false,
		"1b21fa22 IRDQ---     1 expd 3f010000     0     0 user      tag-0123456789ab-cdef0123: 32": false,
		"1b21fa22 I--Q---     1 perm": false,
	} {
		_, is := keyOfSuite(line)
		require.Equal(t, want, is, line)
	}
}
