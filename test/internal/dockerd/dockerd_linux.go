// Package dockerd gives root a container engine of a test's own, Docker's with runc and,
// where it was built, gVisor's runsc, or Podman's, and takes it away again with all that it
// made.
//
// It has namespaces of its own for mounts and the network: no bridge, no packet rule
// and no mount of it is the machine's, and an engine that runs already keeps its own.
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
)

// prefix begins the names of an engine's directory and control group. It is not the one of
// pccrun's own groups: tests that count those run beside an engine.
const prefix = "dockerd-pccrun-"

// Program and Podman are engines, of Debian's packages docker.io and podman.
const (
	Program = "/usr/sbin/dockerd"
	Podman  = "/usr/bin/podman"
)

// An Engine is one that runs.
type Engine struct {
	Host string // what DOCKER_HOST says

	dir    string
	group  string // of control groups
	daemon *exec.Cmd
	exited chan struct{}
}

// Start starts an engine whose socket a group may use. runsc is gVisor's program, ""
// for none.
func Start(gid int, runsc string) (*Engine, error) {
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
	e.daemon = exec.Command(
		Program,
		"--data-root",
		e.path("data"),
		"--exec-root",
		e.path("exec"),
		"--host",
		e.Host,
		"--group",
		strconv.Itoa(gid),
		"--pidfile",
		e.path("pid"),
		"--config-file",
		e.path("daemon.json"),
		"--bridge=none",
		"--iptables=false",
		"--ip6tables=false",
		"--cgroup-parent",
		"/"+e.group,
	)
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
	e.daemon = exec.Command(
		Podman,
		"--root",
		e.path("data"),
		"--runroot",
		e.path("exec"),
		"--tmpdir",
		e.path("tmp"),
		"--runtime",
		"/usr/sbin/runc",
		"system",
		"service",
		"--time=0",
		e.Host,
	)
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
	for range 600 {
		if c, err := net.Dial("unix", e.path("docker.sock")); err == nil {
			_, _ = c.Write([]byte("GET /_ping HTTP/1.0\r\n\r\n"))
			answer := make([]byte, 64)
			n, _ := c.Read(answer)
			c.Close()
			if bytes.Contains(answer[:n], []byte(" 200 ")) {
				return nil
			}
		}
		select {
		case <-e.exited:
			said, _ := os.ReadFile(e.path("log"))
			return errors.Join(fmt.Errorf("the engine ended:\n%s", said), e.Stop())
		case <-time.After(100 * time.Millisecond):
		}
	}
	said, _ := os.ReadFile(e.path("log"))
	return errors.Join(fmt.Errorf("the engine does not answer:\n%s", said), e.Stop())
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
	for range 600 { // its containerd dies with it, but a moment later
		if !slices.ContainsFunc(users(e.dir), func(pid int) bool {
			name, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/comm")
			return string(name) == "containerd\n"
		}) {
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
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
		select {
		case <-e.exited:
		case <-time.After(time.Minute):
			_ = e.Kill()
		}
	}
	return sweep(e.dir)
}

// sweep ends what runs for an engine whose directory this is, and removes that.
func sweep(dir string) error {
	for range 600 {
		pids := users(dir)
		for _, pid := range pids {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		if len(pids) == 0 {
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	// A group whose last process has been killed can be removed once that is gone: after a crash of
	// the engine that takes seconds.
	for range 3000 {
		groups, _ := filepath.Glob("/sys/fs/cgroup/*/" + filepath.Base(dir))
		if unified := "/sys/fs/cgroup/" + filepath.Base(dir); exists(unified) {
			groups = append(groups, unified)
		}
		if len(groups) == 0 {
			break
		}
		for _, group := range groups {
			inner, _ := filepath.Glob(group + "/*") // rmdir(2) takes no file
			for _, one := range append(inner, group) {
				_ = syscall.Rmdir(one)
			}
		}
		time.Sleep(20 * time.Millisecond)
	}
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
