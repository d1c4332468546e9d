// Package machine makes places that look like another machine, for tests: this one's system
// read-only, with a home, users, processes, a network and a /tmp of their own, in which root
// is root. What runs there is the kernel's own work; no more than the machine is made up.
package machine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/internal/await"
)

// A Machine is one. It ends with this process.
type Machine struct {
	pid  int // of its first process
	bare bool
	keep io.Closer
	wait func() error

	world     int // the first process of the network around it
	keepWorld io.Closer
	waitWorld func() error
}

// Options say what a machine has of its own.
type Options struct {
	Root  string            // an empty directory of this machine that becomes its root
	Home  string            // a directory of this machine, which it has as /home/user
	Shows []string          // directories of this machine that it has too, read-only
	Hosts map[string]string // names that it knows, and addresses of the world around it

	// Bare has nobody there make a namespace, as in many a container: who is executed is root, or a user,
	// without a capability and in a chroot, where the kernel lets nobody make a user namespace either.
	Bare bool
}

// Address is a machine's own.
const Address = "203.0.113.9"

// Home is where a machine has [Options.Home].
const Home = "/home/user"

// script makes the machine of a mount namespace: $1 the root, $2 the home, then what is shown.
const script = `
set -e
r=$1 h=$2
shift 2
mount --make-rprivate /
mount --bind / "$r"
mount -o remount,bind,ro "$r"
for d in home root tmp run opt var/tmp srv; do mount -t tmpfs -o mode=755 none "$r/$d"; done
chmod 1777 "$r/tmp" "$r/var/tmp"
mkdir -p "${h%/*}/opt"
mount --bind "${h%/*}/opt" "$r/opt" # a machine that is started again has its files
mkdir "$r/home/user"
mount --bind "$h" "$r/home/user"
mount -t proc proc "$r/proc"
mount -t sysfs -o ro sysfs "$r/sys"
mount -t tmpfs -o mode=755 none "$r/dev"
for n in null zero full random urandom tty; do : > "$r/dev/$n"; mount --bind "/dev/$n" "$r/dev/$n"; done
mkdir "$r/dev/pts" "$r/dev/shm"
mount -t devpts -o newinstance,ptmxmode=666,mode=620 devpts "$r/dev/pts"
ln -s pts/ptmx "$r/dev/ptmx"
ln -s /proc/self/fd "$r/dev/fd"
mount -t tmpfs -o mode=1777 none "$r/dev/shm"
for d; do
	case $d in /home/*|/root/*|/tmp/*|/run/*|/opt/*|/var/tmp/*|/srv/*) mkdir -p "$r$d"; mount --bind "$d" "$r$d"; mount -o remount,bind,ro "$r$d" ;; esac
done
cat /proc/self/fd/3 > "$r/run/hosts"
mount --bind "$r/run/hosts" "$r/etc/hosts"
echo nameserver 127.0.0.1 > "$r/run/resolv.conf"
[ ! -f "$r/etc/resolv.conf" ] || mount --bind "$r/run/resolv.conf" "$r/etc/resolv.conf"
hostname machine
ip link set lo up
mkdir "$r/run/chroot"
mount --rbind "$r" "$r/run/chroot"
mkdir "$r/run/old"
cd "$r"
pivot_root . run/old
umount -l /run/old
echo ready
exec 3<&-
exec cat >/dev/null
`

// Start starts a machine. Only root can.
func Start(o Options) (*Machine, error) {
	var hosts strings.Builder
	hosts.WriteString("127.0.0.1 localhost machine\n::1 localhost\n")
	for name, address := range o.Hosts {
		fmt.Fprintf(&hosts, "%s %s\n", address, name)
	}
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	go func() {
		_, _ = io.WriteString(w, hosts.String())
		w.Close()
	}()
	c := exec.Command("unshare", append([]string{"--mount", "--pid", "--ipc", "--uts", "--net", "--fork", "--kill-child", "/bin/sh", "-c", script, "sh", o.Root, o.Home}, o.Shows...)...)
	c.ExtraFiles = []*os.File{r}
	var said strings.Builder
	c.Stderr = &said
	in, err := c.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := c.StdoutPipe()
	if err != nil {
		return nil, err
	}
	err = c.Start()
	r.Close()
	if err != nil {
		return nil, err
	}
	m := &Machine{keep: in, wait: c.Wait, bare: o.Bare}
	line := make([]byte, 6)
	if _, err := io.ReadFull(out, line); err != nil || string(line) != "ready\n" {
		in.Close()
		err = errors.Join(errors.New("make a machine: "+said.String()), c.Wait())
		return nil, err
	}
	children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", c.Process.Pid, c.Process.Pid))
	if err == nil {
		m.pid, err = strconv.Atoi(strings.TrimSpace(string(children)))
	}
	if err != nil {
		in.Close()
		return nil, errors.Join(err, c.Wait())
	}
	if err := m.link(o.Hosts); err != nil {
		m.Stop()
		return nil, err
	}
	return m, nil
}

// link makes the world around a machine, in which the addresses are.
func (m *Machine) link(hosts map[string]string) error {
	c := exec.Command("unshare", "--net", "/bin/sh", "-c", "echo up; exec cat >/dev/null")
	in, err := c.StdinPipe()
	if err != nil {
		return err
	}
	out, err := c.StdoutPipe()
	if err == nil {
		err = c.Start()
	}
	if err != nil {
		return err
	}
	m.world, m.keepWorld, m.waitWorld = c.Process.Pid, in, c.Wait
	if _, err := io.ReadFull(out, make([]byte, 3)); err != nil { // until it has left this network
		return fmt.Errorf("make the world around a machine: %w", err)
	}
	there := "ip link set lo up && ip addr add 203.0.113.1/24 dev w1 && ip link set w1 up"
	for _, address := range hosts {
		there += " && ip route add local " + address + "/32 dev lo"
	}
	here := fmt.Sprintf("ip link add w0 type veth peer name w1 netns %d && ip addr add %s/24 dev w0 && ip link set w0 up && ip route add default via 203.0.113.1", m.world, Address)
	for _, step := range []struct {
		pid    int
		script string
	}{{m.pid, here}, {m.world, there}} {
		if out, err := exec.Command("nsenter", "-t", strconv.Itoa(step.pid), "-n", "/bin/sh", "-c", step.script).CombinedOutput(); err != nil {
			return fmt.Errorf("make the world around a machine: %w: %s", err, out)
		}
	}
	return nil
}

// Stop ends it with all that runs in it.
func (m *Machine) Stop() {
	if m.keepWorld != nil {
		m.keepWorld.Close()
		_ = m.waitWorld()
	}
	m.keep.Close() // its first process reads the end
	_ = m.wait()
}

// Command returns what executes a program there, as a user of the machine's.
func (m *Machine) Command(uid, gid uint32, dir string, argv ...string) *exec.Cmd {
	args := []string{"-t", strconv.Itoa(m.pid), "-m", "-p", "-i", "-u", "-n", "-r", "--"}
	may := []string{"setpriv"}
	if m.bare {
		may = []string{"chroot", "/run/chroot", "setpriv", "--bounding-set", "-sys_admin,-sys_ptrace,-net_admin", "--inh-caps", "-all"}
	}
	args = append(append(args, may...),
		"--reuid", strconv.Itoa(int(uid)), "--regid", strconv.Itoa(int(gid)), "--clear-groups", "--",
		"/bin/sh", "-c", `cd "$0" && exec "$@"`, dir,
	)
	return exec.Command("nsenter", append(args, argv...)...)
}

// Signal signals what [Machine.Command] executes: nsenter(1) is its parent.
func Signal(c *exec.Cmd, sig syscall.Signal) {
	children, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", c.Process.Pid, c.Process.Pid))
	if pid, err := strconv.Atoi(strings.TrimSpace(string(children))); err == nil {
		_ = syscall.Kill(pid, sig)
	}
}

// Listen listens at an address of the machine's own.
func (m *Machine) Listen(address string) (net.Listener, error) { return listen(m.pid, address) }

// ListenAround listens in the world around it.
func (m *Machine) ListenAround(address string) (net.Listener, error) { return listen(m.world, address) }

// Dial connects to an address of the machine's own network.
func (m *Machine) Dial(address string) (c net.Conn, err error) {
	err = within(m.pid, func() (err error) {
		c, err = net.Dial("tcp", address)
		return err
	})
	return c, err
}

func listen(pid int, address string) (l net.Listener, err error) {
	err = within(pid, func() (err error) {
		l, err = net.Listen("tcp", address)
		return err
	})
	return l, err
}

// within does something in the network of a process.
func within(pid int, do func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with this goroutine
		ns, err := os.Open(filepath.Join("/proc", strconv.Itoa(pid), "ns/net"))
		if err == nil {
			defer ns.Close()
			err = unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET)
		}
		if err == nil {
			err = do()
		}
		done <- err
	}()
	select {
	case err := <-done:
		return err
	case <-time.After(await.Patience):
		return errors.New("in another network: nothing came of it")
	}
}

// listenShared listens at a port of this machine, for a daemon of a sandbox that has no machine of
// its own. The same user's others may listen there too: each answers alike. Another user's are waited for.
func listenShared(port string) (net.Listener, error) {
	shared := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) (err error) {
		if e := c.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEPORT, 1) }); e != nil {
			return e
		}
		return err
	}}
	for end := await.Deadline(); ; time.Sleep(time.Millisecond) {
		l, err := shared.Listen(context.Background(), "tcp", "127.0.0.1"+port)
		if !errors.Is(err, unix.EADDRINUSE) || time.Now().After(end) {
			return l, err
		}
	}
}

// Path is where a path of the machine's is met on this one.
func (m *Machine) Path(name string) string {
	return filepath.Join("/proc", strconv.Itoa(m.pid), "root", name)
}
