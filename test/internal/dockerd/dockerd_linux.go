// Package dockerd gives root a container engine of a test's own, Docker's with runc and,
// where it was built, gVisor's runsc, or Podman's, and takes it away again with all that it
// made.
//
// It has namespaces of its own for mounts and the network: no bridge, no packet rule
// and no mount of it is the machine's, and an engine that runs already keeps its own. Its
// data is where an engine keeps it by default, but to itself alone: for this machine it
// is in the engine's own directory, and /var/lib/docker is not touched, or not there.
// Mounts are shared as where systemd has started the machine.
package dockerd

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/pccrun/pccrun/internal/await"
)

// prefix begins the names of an engine's directory and control group. It is not the one of
// pccrun's own groups: tests that count those run beside an engine.
const prefix = "dockerd-pccrun-"

// Program and Podman are engines, of Debian's packages docker.io and podman.
const (
	Program = "/usr/sbin/dockerd"
	Podman  = "/usr/bin/podman"
)

// Data is where an engine keeps its data that is not told otherwise.
const Data = "/var/lib/docker"

// inPlace makes $1 the place of what is in $0/data, and executes the rest. $1 need not exist:
// its directory is then replaced by one that has the same entries, each bound. The engine does not see
// what comes into that directory of the host later.
const inPlace = `set -e
dir=${1%/*}
mkdir -p "$0/data" "$0/around"
if [ -d "$1" ]; then
	mount --bind "$0/data" "$1"
	mount --make-rshared /
	shift
	exec "$@"
fi
mount -t tmpfs around "$0/around"
for from in "$dir"/* "$dir"/.[!.]*; do
	to=$0/around/${from##*/}
	if [ "$from" = "$1" ]; then continue
	elif [ -L "$from" ]; then cp -P "$from" "$to"
	elif [ -d "$from" ]; then mkdir "$to"; mount --rbind "$from" "$to"
	elif [ -e "$from" ]; then : >"$to"; mount --bind "$from" "$to"
	fi
done
mkdir "$0/around/${1##*/}"
mount --bind "$0/data" "$0/around/${1##*/}"
mount --move "$0/around" "$dir"
mount --make-rshared /
shift
exec "$@"`

// An Engine is one that runs.
type Engine struct {
	Host string // what DOCKER_HOST says

	dir    string
	group  string // of control groups
	daemon *exec.Cmd
	exited chan struct{}
	ways   int // that lead to it: see Between
}

// Start starts an engine whose socket a group may use. runsc is gVisor's program, ""
// for none.
func Start(gid int, runsc string) (*Engine, error) { return StartAt(Data, gid, runsc) }

// StartAt starts one that keeps its data elsewhere, in a directory that need not exist: its
// parent does.
func StartAt(data string, gid int, runsc string) (*Engine, error) {
	e, err := prepare()
	if err != nil {
		return nil, err
	}
	config := "{}"
	if runsc != "" {
		config = fmt.Sprintf(`{"runtimes": {"runsc": {"path": %q}}}`, runsc)
	}
	if err := os.WriteFile(e.path("daemon.json"), []byte(config), 0o600); err != nil {
		return nil, errors.Join(err, e.Stop())
	}
	e.daemon = exec.Command("sh", "-c", inPlace, e.dir, data, Program, "--data-root", data,
		"--exec-root", e.path("exec"), "--host", e.Host, "--group", strconv.Itoa(gid), "--pidfile", e.path("pid"),
		"--config-file", e.path("daemon.json"), "--bridge=none", "--iptables=false", "--ip6tables=false", "--cgroup-parent", "/"+e.group)
	return e, e.start()
}

// StartPodman starts Podman's engine, with runc, for a group.
func StartPodman(gid int) (*Engine, error) {
	e, err := prepare()
	if err != nil {
		return nil, err
	}
	var files syscall.Rlimit // by itself, Podman would give more than this process may have
	err = syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files)
	text := fmt.Sprintf("[containers]\ndefault_ulimits = [\"nofile=%d:%d\", \"nproc=16384:16384\"]\n"+
		"[engine]\ncgroup_manager = \"cgroupfs\"\nevents_logger = \"file\"\n", files.Max, files.Max)
	if err = errors.Join(err, os.WriteFile(e.path("containers.conf"), []byte(text), 0o600)); err != nil {
		return nil, errors.Join(err, e.Stop())
	}
	e.daemon = exec.Command(Podman, "--root", e.path("data"), "--runroot", e.path("exec"), "--tmpdir", e.path("tmp"),
		"--runtime", "/usr/sbin/runc", "system", "service", "--time=0", e.Host)
	e.daemon.Dir = e.dir // where its helpers note that memory ran out
	e.daemon.Env = append(os.Environ(), "CONTAINERS_CONF="+e.path("containers.conf"))
	if err := e.start(); err != nil {
		return nil, err
	}
	if err := errors.Join(os.Chown(e.path("docker.sock"), 0, gid), os.Chmod(e.path("docker.sock"), 0o660)); err != nil {
		return nil, errors.Join(err, e.Stop())
	}
	return e, nil
}

// prepare makes an engine's directory.
func prepare() (*Engine, error) {
	if err := removeStale(); err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("/tmp", prefix+strconv.Itoa(os.Getpid())+"-")
	if err != nil {
		return nil, err
	}
	e := &Engine{
		Host:   "unix://" + dir + "/docker.sock",
		dir:    dir,
		group:  filepath.Base(dir),
		exited: make(chan struct{}),
	}
	if err := os.Chmod(dir, 0o711); err != nil {
		return nil, errors.Join(err, e.Stop())
	}
	return e, nil
}

// start starts the engine's program, and waits until it answers.
func (e *Engine) start() error {
	log, err := os.Create(e.path("log"))
	if err != nil {
		e.daemon = nil
		return errors.Join(err, e.Stop())
	}
	defer log.Close()
	e.daemon.Stdout, e.daemon.Stderr = log, log
	e.daemon.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWNET, Setpgid: true}
	if err := e.daemon.Start(); err != nil {
		e.daemon = nil
		return errors.Join(err, e.Stop())
	}
	go func() {
		_ = e.daemon.Wait()
		close(e.exited)
	}()
	answers := until(func() bool { return e.answers() || e.gone() })
	if answers && !e.gone() {
		return nil
	}
	said, _ := os.ReadFile(e.path("log"))
	return errors.Join(fmt.Errorf("the engine does not answer:\n%s", said), e.Stop())
}

// answers reports whether the engine does.
func (e *Engine) answers() bool {
	c, err := net.Dial("unix", e.path("docker.sock"))
	if err != nil {
		return false
	}
	defer c.Close()
	_ = c.SetDeadline(await.Deadline())
	_, _ = c.Write([]byte("GET /_ping HTTP/1.0\r\n\r\n"))
	answer := make([]byte, 64)
	n, _ := c.Read(answer)
	return bytes.Contains(answer[:n], []byte(" 200 "))
}

// gone reports whether the engine has ended.
func (e *Engine) gone() bool {
	select {
	case <-e.exited:
		return true
	default:
		return false
	}
}

// until looks whether something holds until it does, and reports whether it ever did.
func until(holds func() bool) bool {
	for end := time.Now().Add(await.Patience); !holds(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			return false
		}
	}
	return true
}

func (e *Engine) path(name string) string { return filepath.Join(e.dir, name) }

// Pid is the engine's process.
func (e *Engine) Pid() int { return e.daemon.Process.Pid }

// Kill ends the engine at once, as a crash would.
func (e *Engine) Kill() error {
	if err := e.daemon.Process.Kill(); err != nil {
		return err
	}
	<-e.exited
	return nil
}

// Restart starts an engine again that was killed, with what it had.
func (e *Engine) Restart() error {
	until(func() bool { // its containerd dies with it, but a moment later
		return !slices.ContainsFunc(users(e.dir), func(pid int) bool {
			name, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/comm")
			return string(name) == "containerd\n"
		})
	})
	// Its number may still be one that nobody has waited for, and dockerd would wait for that to answer.
	if err := os.Remove(e.path("exec/containerd/containerd.pid")); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	e.exited = make(chan struct{})
	e.daemon = exec.Command(e.daemon.Args[0], e.daemon.Args[1:]...)
	return e.start()
}

// Stop ends the engine and takes away all of it.
func (e *Engine) Stop() error {
	if e.daemon != nil {
		_ = e.daemon.Process.Signal(syscall.SIGTERM)
		if !until(e.gone) {
			_ = e.Kill()
		}
	}
	return sweep(e.dir)
}

// sweep ends what runs for an engine whose directory this is, and removes that.
func sweep(dir string) error {
	until(func() bool {
		pids := users(dir)
		for _, pid := range pids {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		return len(pids) == 0
	})
	// A group whose last process has been killed can be removed once that is gone: after a crash of
	// the engine that takes seconds.
	until(func() bool {
		groups, _ := filepath.Glob("/sys/fs/cgroup/*/" + filepath.Base(dir))
		if unified := "/sys/fs/cgroup/" + filepath.Base(dir); exists(unified) {
			groups = append(groups, unified)
		}
		for _, group := range groups {
			inner, _ := filepath.Glob(group + "/*") // rmdir(2) takes no file
			for _, one := range append(inner, group) {
				_ = syscall.Rmdir(one)
			}
		}
		return len(groups) == 0
	})
	return os.RemoveAll(dir)
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// users returns the processes whose arguments name a directory: the engine's own,
// containerd's and the shims.
func users(dir string) (pids []int) {
	names, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, name := range names {
		line, err := os.ReadFile(name)
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(name)))
		if err == nil && pid != os.Getpid() && strings.Contains(string(line), dir+"/") {
			pids = append(pids, pid)
		}
	}
	return pids
}

// removeStale takes away the engines of tests that were killed.
func removeStale() error {
	dirs, err := filepath.Glob("/tmp/" + prefix + "*")
	for _, dir := range dirs {
		maker, _, _ := strings.Cut(strings.TrimPrefix(filepath.Base(dir), prefix), "-")
		if pid, bad := strconv.Atoi(maker); bad == nil && syscall.Kill(pid, 0) != nil {
			err = errors.Join(err, sweep(dir))
		}
	}
	return err
}
