//go:build linux || darwin

package escape

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/profiles"
)

// A macProbe is one thing that an attacker would try on a Mac. It returns nil where he got it.
type macProbe struct {
	name      string
	guarantee profiles.Guarantee
	flags     []string // of pccrun's; {home} and {work} stand for the world's
	try       func(w *macWorld) error
	after     func(w *macWorld) error // looks from outside, where only there it is to be seen; nil: got it
}

// A macWorld is what the suite has made for one run of a probe: a home with secrets, a workspace in
// it, servers, a process. Both sides know it by its directory.
type macWorld struct {
	Dir      string // absolute, without links
	TCP, UDP int    // ports of the loopback at which the suite listens
	Pid      int    // of a process of the suite's
	Nonce    string
}

func (w *macWorld) home() string { return filepath.Join(w.Dir, "home") }
func (w *macWorld) work() string { return filepath.Join(w.Dir, "home/src/app") }

// macSecret is what hidden files hold.
const macSecret = "canary"

// macFiles are the files of a world, below its home.
var macFiles = map[string]string{
	".ssh/id_rsa": macSecret, ".shown": "shown", "tool": "#!/bin/sh\nexit 0\n", "src/app/.env": macSecret, "src/app/keys/.env": macSecret, "src/app/plain": "plain",
	"src/app/.vscode/tasks.json": "{}", "src/app/.git/HEAD": "ref: refs/heads/main\n", "src/app/.git/config": "[core]\n", "src/app/.git/hooks/post-commit.sample": "", "src/app/sub/.idea/x": "",
}

// gets reads a secret.
func gets(path string) error {
	text, err := os.ReadFile(path)
	if err == nil && !strings.Contains(string(text), macSecret) {
		err = errors.New("read something else")
	}
	return err
}

// writes changes a file, or makes it.
func writes(path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, []byte("changed"), 0o644)
}

// temp is a directory of the command's own.
func (w *macWorld) temp() string {
	if dir := os.Getenv("TMPDIR"); dir != "" {
		return dir
	}
	return w.Dir + "/tmp"
}

func dials(network, address string) error {
	c, err := net.DialTimeout(network, address, 3*time.Second)
	if err == nil {
		c.Close()
	}
	return err
}

// macProbes are all of them.
func macProbes() []macProbe {
	shown := []string{"--read", "{home}/.shown"}
	return []macProbe{
		{name: "hide.read", guarantee: profiles.FSHide, try: func(w *macWorld) error { return gets(w.home() + "/.ssh/id_rsa") }},
		{name: "hide.pattern", guarantee: profiles.FSHide, try: func(w *macWorld) error { return gets(w.work() + "/.env") }},
		{name: "hide.case", guarantee: profiles.FSHide, try: func(w *macWorld) error { return gets(w.work() + foldedName(w)) }},
		{name: "hide.through-link", guarantee: profiles.FSHide, try: func(w *macWorld) error {
			link := w.work() + "/link"
			return errors.Join(os.Symlink(w.home()+"/.ssh/id_rsa", link), gets(link))
		}},
		{name: "hide.hard-link", guarantee: profiles.FSHide, try: func(w *macWorld) error {
			return errors.Join(os.Link(w.home()+"/.ssh/id_rsa", w.work()+"/twin"), gets(w.work()+"/twin"))
		}},
		{name: "hide.clone", guarantee: profiles.FSHide, try: func(w *macWorld) error {
			return errors.Join(macClone(w.home()+"/.ssh/id_rsa", w.work()+"/cloned"), gets(w.work()+"/cloned"))
		}},
		{name: "hide.exchange", guarantee: profiles.FSHide, try: func(w *macWorld) error {
			return errors.Join(macExchange(w.work()+"/.env", w.work()+"/plain"), gets(w.work()+"/plain"))
		}},
		{name: "hide.rename", guarantee: profiles.FSHide, try: func(w *macWorld) error {
			return errors.Join(os.Rename(w.work()+"/.env", w.work()+"/visible"), gets(w.work()+"/visible"))
		}},
		{name: "hide.rename-above", guarantee: profiles.FSHide, try: func(w *macWorld) error {
			to := w.temp() + "/moved"
			return errors.Join(os.Rename(w.work()+"/keys", to), gets(to+"/.env"))
		}},
		{name: "hide.execute", guarantee: profiles.FSHide, try: func(w *macWorld) error { return exec.Command(w.home() + "/tool").Run() }},
		{name: "readonly.write", guarantee: profiles.FSReadonly, flags: shown, try: func(w *macWorld) error { return writes(w.home() + "/.shown") }},
		{name: "readonly.mode", guarantee: profiles.FSReadonly, flags: shown, try: func(w *macWorld) error { return os.Chmod(w.home()+"/.shown", 0o600) }},
		{name: "readonly.remove", guarantee: profiles.FSReadonly, flags: shown, try: func(w *macWorld) error { return os.Remove(w.home() + "/.shown") }},
		{name: "readonly.hard-link", guarantee: profiles.FSReadonly, flags: shown, try: func(w *macWorld) error {
			return errors.Join(os.Link(w.home()+"/.shown", w.work()+"/shown"), writes(w.work()+"/shown"))
		}},
		{name: "protect.change", guarantee: profiles.FSProtect, try: func(w *macWorld) error { return writes(w.work() + "/.vscode/tasks.json") }},
		{name: "protect.new", guarantee: profiles.FSProtect, try: func(w *macWorld) error { return writes(w.work() + "/deep/.vscode/settings.json") }},
		{name: "protect.case", guarantee: profiles.FSProtect, try: func(w *macWorld) error { return writes(w.work() + "/deep/.VSCode/settings.json") }},
		{name: "protect.hook", guarantee: profiles.FSProtect, try: func(w *macWorld) error { return writes(w.work() + "/.git/hooks/post-commit") }},
		{name: "protect.git-config", guarantee: profiles.FSProtect, try: func(w *macWorld) error { return writes(w.work() + "/.git/config") }},
		{name: "protect.move-git", guarantee: profiles.FSProtect, try: func(w *macWorld) error { return os.Rename(w.work()+"/.git", w.work()+"/git") }},
		{name: "protect.move-above", guarantee: profiles.FSProtect, try: func(w *macWorld) error { return os.Rename(w.work()+"/sub", w.temp()+"/sub") }},
		{name: "protect.new-repository", guarantee: profiles.FSProtect, try: func(w *macWorld) error {
			from, to := w.work()+"/unnamed", w.work()+"/clone"
			if err := errors.Join(os.MkdirAll(from, 0o755), os.MkdirAll(to, 0o755), os.WriteFile(from+"/config", nil, 0o644)); err != nil {
				return err
			}
			return os.Rename(from, to+"/.git")
		}},
		{name: "special.set-id", guarantee: profiles.FSSpecial, try: func(w *macWorld) error {
			if err := os.Chmod(w.work()+"/plain", 0o755|os.ModeSetuid); err != nil {
				return err
			}
			info, err := os.Stat(w.work() + "/plain")
			if err == nil && info.Mode()&os.ModeSetuid == 0 {
				err = errors.New("the bit is not set")
			}
			return err
		}},
		{name: "net.direct", guarantee: profiles.NetAllowlist, try: func(w *macWorld) error { return dials("tcp4", "127.0.0.1:"+strconv.Itoa(w.TCP)) }},
		{name: "net.mapped", guarantee: profiles.NetAllowlist, try: func(w *macWorld) error {
			fd, err := unix.Socket(unix.AF_INET6, unix.SOCK_STREAM, 0)
			if err != nil {
				return err
			}
			defer unix.Close(fd)
			return unix.Connect(fd, &unix.SockaddrInet6{Port: w.TCP, Addr: [16]byte{10: 0xff, 11: 0xff, 12: 127, 15: 1}})
		}},
		{name: "net.listen", guarantee: profiles.NetAllowlist, try: func(*macWorld) error {
			l, err := net.Listen("tcp4", "127.0.0.1:0")
			if err == nil {
				l.Close()
			}
			return err
		}},
		{name: "net.datagram", guarantee: profiles.NetAllowlist, try: func(w *macWorld) error {
			c, err := net.Dial("udp4", "127.0.0.1:"+strconv.Itoa(w.UDP))
			if err == nil {
				_, err = c.Write([]byte(w.Nonce))
				c.Close()
			}
			return err
		}},
		{name: "net.name-server", guarantee: profiles.NetDNS, try: func(*macWorld) error { return dials("unix", nameServer) }},
		{name: "unix.socket", guarantee: profiles.IPCUnix, try: func(w *macWorld) error { return dials("unix", w.Dir+"/agent.sock") }},
		{name: "process.signal", guarantee: profiles.ProcIsolated, try: func(w *macWorld) error { return syscall.Kill(w.Pid, 0) }},
		{name: "process.list", guarantee: profiles.ProcIsolated, try: func(w *macWorld) error { return listsProcess(w.Pid) }},
		{name: "process.environment", guarantee: profiles.EnvScrub, try: func(w *macWorld) error { return readsEnvironment(w.Pid, macSecret) }},
		{name: "environment.variable", guarantee: profiles.EnvScrub, try: func(*macWorld) error {
			if os.Getenv("PCCRUN_PROBE_SECRET") != macSecret {
				return errors.New("it is not set")
			}
			return nil
		}},
		{name: "process.survivor", guarantee: profiles.ProcNoSurvivors, try: func(w *macWorld) error {
			cmd := exec.Command("/bin/sh", "-c", "sleep 3; echo lives > survived")
			cmd.Dir, cmd.SysProcAttr = w.work(), &syscall.SysProcAttr{Setsid: true}
			return cmd.Start()
		}, after: func(w *macWorld) error {
			time.Sleep(4 * time.Second)
			_, err := os.Stat(w.work() + "/survived")
			return err
		}},
		{name: "privilege.set-id-program", guarantee: profiles.PrivNone, try: func(*macWorld) error { return exec.Command("/bin/ps", "-p", "1").Run() }},
		{name: "files.number", guarantee: profiles.ResFiles, flags: []string{"--files", "64"}, try: func(w *macWorld) error {
			var held []io.Closer
			defer func() {
				for _, f := range held {
					f.Close()
				}
			}()
			for range 100 {
				f, err := os.Open(w.work() + "/plain")
				if err != nil {
					return err
				}
				held = append(held, f)
			}
			return nil
		}},
		{name: "time.wall", guarantee: profiles.ResTime, flags: []string{"--timeout", "2s"}, try: func(w *macWorld) error {
			time.Sleep(4 * time.Second)
			return writes(w.work() + "/late")
		}, after: func(w *macWorld) error {
			_, err := os.Stat(w.work() + "/late")
			return err
		}},
	}
}

// macWord says what a payload found: the nonce is what only it knows.
func macWord(w *macWorld, err error) string {
	if err == nil {
		return "sentinel " + w.Nonce + " got"
	}
	return fmt.Sprintf("sentinel %s not: %s", w.Nonce, strings.ReplaceAll(err.Error(), "\n", "; "))
}
