package escape

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A world is what stands around one sandbox: a home full of secrets, a
// workspace, listeners, a process that waits to be touched. All of it is made
// for one run and gone after it.
type world struct {
	Spec
	secret string
	self   string // this program, where a payload can be started from
	waiter *exec.Cmd
	waited chan struct{} // closed when the waiter has ended

	mu   sync.Mutex
	hits []string // what reached a listener: "tcp4", "udp 20.0.0.66:53", "dns evil.test."

	files   map[string]string // path → content of the canary files
	cleanup []func()
}

// Names of canary files below the home, each with the secret in it.
var homeSecrets = []string{
	".ssh/id_rsa", ".aws/credentials", ".netrc", ".git-credentials", ".npmrc", ".pypirc",
	".docker/config.json", ".kube/config", ".config/gcloud/application_default_credentials.json", ".azure/accessTokens.json",
	".config/gh/hosts.yml", ".gnupg/private-keys-v1.d/canary.key", ".claude.json", ".claude/.credentials.json", ".codex/auth.json",
	".bash_history", ".zsh_history", ".python_history", ".viminfo", ".lesshst", ".psql_history", ".local/share/keyrings/login.keyring",
	".mozilla/firefox/x.default/logins.json", ".config/google-chrome/Default/Login Data", ".config/chromium/Default/Cookies",
	".password-store/canary.gpg", ".vault-token", ".terraform.d/credentials.tfrc.json", ".cargo/credentials.toml",
	"Documents/taxes.txt", ".config/pccrun/secret", ".local/state/pccrun/secret",
}

// newWorld is a world that is not built yet. The caller closes it, built or not.
func newWorld() *world { return &world{files: map[string]string{}, waited: make(chan struct{})} }

// build makes all that a world is of.
func (w *world) build(j *job) {
	var raw [secretLen / 2]byte
	rand.Read(raw[:])
	w.secret = hex.EncodeToString(raw[:])
	sum := sha256.Sum256([]byte(w.secret))
	rand.Read(raw[:8])
	w.Spec = Spec{
		Nonce: hex.EncodeToString(raw[:8]), SecretSum: hex.EncodeToString(sum[:]), Caged: j.Caged && !j.Shared, Guarded: j.Shared, Control: j.Control, Alone: j.Alone != "",
		Launcher: j.Launcher, ShmID: -1, MsgID: -1, SemID: -1,
	}
	mark := j.Run + "-" + w.Nonce[:8]
	w.Tag = "tag-" + mark
	if w.Caged {
		w.Home, w.Canary, w.Shown = "/home/dev", "/srv/canary", "/srv/shown"
	} else {
		base := filepath.Join(j.Dir, "w-"+w.Nonce[:8])
		must(os.Mkdir(base, 0o755))
		w.later(func() { removeAll(base) })
		w.Home, w.Canary, w.Shown = base+"/home", base+"/canary", base+"/shown"
	}
	w.Workspace = w.Home + "/src/ws"
	w.Tmp = "/tmp/pccrun-escape-" + mark
	must(os.Mkdir(w.Tmp, 0o700))
	if !w.Caged { // what is in a cage goes with it
		w.later(func() { removeTagged(mark) })
	}
	w.makeFiles()
	w.self = w.Workspace + "/.probe/pccrun"
	must(place(j.Self, w.self))
	w.Program = w.self
	w.listen()
	w.startWaiter()
	w.makeIPC(filepath.Join(j.Dir, "ipc-"+w.Nonce[:8]))
	if w.Namespaces = j.Namespaces; w.Namespaces == nil {
		w.Namespaces = ownNamespaces()
	}
	w.HostName, _ = os.Hostname()
	if text, err := os.ReadFile("/proc/cmdline"); err == nil {
		sum := sha256.Sum256(text)
		w.CommandLine = hex.EncodeToString(sum[:])
	}
	if id, err := os.ReadFile("/etc/machine-id"); err == nil {
		w.Machine = strings.TrimSpace(string(id))
	}
}

// ownNamespaces are those of this process, by their kind.
func ownNamespaces() map[string]string {
	list := map[string]string{}
	for _, ns := range [...]string{"user", "mnt", "pid", "net", "ipc", "uts", "cgroup"} {
		list[ns], _ = os.Readlink("/proc/self/ns/" + ns)
	}
	return list
}

func (w *world) later(f func()) { w.cleanup = append(w.cleanup, f) }

// close ends and removes all that the world is made of.
func (w *world) close() {
	for i := len(w.cleanup) - 1; i >= 0; i-- {
		w.cleanup[i]()
	}
	w.cleanup = nil
}

// write makes a canary file whose content is remembered.
func (w *world) write(path, content string) {
	must(os.MkdirAll(filepath.Dir(path), 0o755))
	w.files[path] = content
	must(os.WriteFile(path, []byte(content), 0o644))
}

func (w *world) makeFiles() {
	secret := w.secret + "\n"
	files := map[string]string{
		w.Canary + "/secret": secret, w.Canary + "/sub/secret": secret, w.Canary + "/a": "a\n", w.Canary + "/f": "canary f\n",
		w.Tmp + "/secret": secret,
		w.Shown + "/f":    "shown f\n", w.Shown + "/big": strings.Repeat("shown\n", 2000), w.Shown + "/sub/f": "shown sub\n",
		w.Home + "/.bashrc": "# canary\n", w.Home + "/.profile": "# canary\n", w.Home + "/.gitconfig": "[user]\n\tname = canary\n",
		w.Home + "/src/ws-evil/secret": secret, w.Home + "/src/ws2/secret": secret,
		w.Workspace + "/README.md": "# canary\n", w.Workspace + "/.env": "TOKEN=" + secret, w.Workspace + "/sub/.env.local": "TOKEN=" + secret,
		w.Workspace + "/.env.example": "TOKEN=\n",
		w.Workspace + "/.envrc":       "# canary\n", w.Workspace + "/.vscode/settings.json": "{}\n", w.Workspace + "/.mcp.json": "{}\n",
		w.Workspace + "/.husky/pre-commit": "# canary\n", w.Workspace + "/.claude/settings.json": "{}\n", w.Workspace + "/package.json": "{}\n",
		w.Workspace + "/.idea/workspace.xml": "<x/>\n", w.Workspace + "/.cursor/mcp.json": "{}\n", w.Workspace + "/.codex/config.toml": "\n",
		w.Workspace + "/.devcontainer/devcontainer.json": "{}\n", w.Workspace + "/.npmrc": "\n", w.Workspace + "/.bashrc": "\n",
		w.Workspace + "/.gemini/settings.json": "{}\n", w.Workspace + "/.github/workflows/ci.yml": "on: push\n", w.Workspace + "/AGENTS.md": "\n",
		w.Workspace + "/Makefile": "all:\n", w.Workspace + "/venv/bin/python": "#!/bin/sh\n",
		w.Workspace + "/.git/HEAD": "ref: refs/heads/main\n", w.Workspace + "/.git/config": "[core]\n\trepositoryformatversion = 0\n\tbare = false\n",
		w.Workspace + "/.git/hooks/post-checkout": "#!/bin/sh\n", w.Workspace + "/.git/info/attributes": "\n", w.Workspace + "/.git/info/exclude": "\n",
		w.Workspace + "/.git/modules/sub/HEAD": "ref: refs/heads/main\n", w.Workspace + "/.git/modules/sub/config": "[core]\n\tbare = false\n",
		w.Workspace + "/nested/.git/HEAD": "ref: refs/heads/main\n", w.Workspace + "/nested/.git/config": "[core]\n\tbare = false\n",
	}
	// what a careful user of srt would write; nobody else reads it
	files[w.Home+"/.srt-settings.json"] = fmt.Sprintf(`{"network":{"allowedDomains":[],"deniedDomains":[]},"filesystem":{"denyRead":[%q,%q],"allowRead":[%q],"allowWrite":[%q],"denyWrite":[]}}`+"\n",
		w.Home, w.Canary, w.Workspace, w.Workspace)
	for _, name := range homeSecrets {
		files[filepath.Join(w.Home, name)] = secret
	}
	for path, content := range files {
		w.write(path, content)
	}
	for _, repo := range []string{w.Workspace + "/.git", w.Workspace + "/nested/.git", w.Workspace + "/.git/modules/sub"} {
		for _, dir := range []string{"objects", "refs/heads", "hooks", "info"} {
			must(os.MkdirAll(filepath.Join(repo, dir), 0o755))
		}
	}
	// Modes let everybody write what is shown for reading: it must be the
	// sandbox that refuses, not the owner.
	must(errors.Join(
		os.Chmod(w.Home+"/.ssh", 0o700),
		syscall.Mkfifo(w.Shown+"/fifo", 0o666), os.Chmod(w.Shown+"/fifo", 0o666),
		syscall.Mkfifo(w.Canary+"/fifo", 0o666), os.Chmod(w.Canary+"/fifo", 0o666),
		os.Chmod(w.Shown, 0o777), os.Chmod(w.Shown+"/sub", 0o777), os.Chmod(w.Shown+"/f", 0o666), os.Chmod(w.Shown+"/sub/f", 0o666),
		os.Symlink(w.Canary+"/secret", w.Workspace+"/link-to-secret"),
		os.MkdirAll(w.Workspace+"/.probe", 0o755),
	))
}

// place puts a copy of this program at path: a hard link where it can be one.
func place(self, path string) error {
	if os.Link(self, path) == nil {
		return nil
	}
	from, err := os.Open(self)
	if err != nil {
		return err
	}
	defer from.Close()
	to, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(to, from)
	return errors.Join(err, to.Close())
}

// hit remembers that something from inside arrived.
func (w *world) hit(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.hits) < 10_000 {
		w.hits = append(w.hits, fmt.Sprintf(format, args...))
	}
}

// answer serves a canary listener: whoever sends something gets the secret.
func (w *world) answer(l net.Listener, name string) {
	w.serve(l, func(c net.Conn) {
		w.hit("%s", name)
		c.SetDeadline(time.Now().Add(5 * time.Second))
		c.Read(make([]byte, 4096))
		io.WriteString(c, w.secret+"\n")
	})
}

func (w *world) answerPackets(c net.PacketConn, name string) {
	w.later(func() { c.Close() })
	go func() {
		buf := make([]byte, 4096)
		for {
			_, from, err := c.ReadFrom(buf)
			if err != nil {
				return
			}
			w.hit("%s", name)
			if from != nil {
				c.WriteTo([]byte(w.secret+"\n"), from)
			}
		}
	}()
}

func (w *world) listen() {
	for _, row := range []struct {
		network, address, name string
		port                   *int
	}{
		{"tcp4", "127.0.0.1:0", "tcp4", &w.TCP4},
		{"tcp6", "[::1]:0", "tcp6", &w.TCP6},
		{"unix", "@" + w.Tag + "-stream", "abstract", nil},
		{"unix", w.Canary + "/sock", "socket", nil},
		{"unix", w.Shown + "/sock", "shown socket", nil},
		{"unix", w.Home + "/agent.sock", "agent socket", nil},
	} {
		l, err := net.Listen(row.network, row.address)
		if err != nil && row.network == "tcp6" {
			continue // a host without IPv6: the probe says so
		}
		must(err)
		if row.port != nil {
			*row.port = l.Addr().(*net.TCPAddr).Port
		}
		if strings.HasPrefix(row.address, "/") {
			must(os.Chmod(row.address, 0o777))
		}
		w.answer(l, row.name)
	}
	for _, row := range []struct{ network, address, name string }{
		{"udp4", "127.0.0.1:0", "udp4"}, {"unixgram", "@" + w.Tag + "-dgram", "abstract dgram"}, {"unixgram", w.Canary + "/dgram", "dgram"},
	} {
		c, err := net.ListenPacket(row.network, row.address)
		must(err)
		if a, ok := c.LocalAddr().(*net.UDPAddr); ok {
			w.UDP4 = a.Port
		}
		w.answerPackets(c, row.name)
	}
	w.Abstract, w.AbstractDgram = "@"+w.Tag+"-stream", "@"+w.Tag+"-dgram"
	w.Socket, w.ShownSocket = w.Canary+"/sock", w.Shown+"/sock"
	l, err := net.Listen("tcp4", "127.0.0.1:0") // a port that is free now, for a payload to listen on
	must(err)
	w.Published = l.Addr().(*net.TCPAddr).Port
	must(l.Close())
}

// startWaiter starts the process outside that payloads look for. It ends with
// status 7 when it gets SIGUSR1.
func (w *world) startWaiter() {
	cmd := exec.Command(w.self, helperVerb, "waiter", w.Tag+"-waiter")
	cmd.Env = []string{"CANARY=" + w.secret}
	cmd.Dir = w.Canary
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
	ready, err := cmd.StdoutPipe()
	must(err)
	must(cmd.Start())
	w.waiter, w.HostPID, w.Name = cmd, cmd.Process.Pid, w.Tag+"-waiter"
	io.ReadFull(ready, make([]byte, 1))
	go func() {
		cmd.Wait()
		close(w.waited)
	}()
	w.later(func() {
		cmd.Process.Kill()
		<-w.waited
	})
}

// waiterEnded says how the waiting process ended, "" if it lives.
func (w *world) waiterEnded() string {
	select {
	case <-w.waited:
		return w.waiter.ProcessState.String()
	case <-time.After(300 * time.Millisecond):
		return ""
	}
}

// makeIPC makes the System V objects, and notes them in a journal before
// anything can fail. A kernel without them has none to leak.
func (w *world) makeIPC(journal string) {
	var raw [4]byte
	rand.Read(raw[:])
	w.ShmKey = int(raw[0])<<16 | int(raw[1])<<8 | int(raw[2]) | 0x5000000
	w.ShmID, w.MsgID, w.SemID = w.makeObject("shm", 4096), w.makeObject("msg", 0), w.makeObject("sem", 1)
	text := ""
	for kind, id := range map[string]int{"shm": w.ShmID, "msg": w.MsgID, "sem": w.SemID} {
		if id >= 0 {
			text += fmt.Sprintln(kind, w.ShmKey, id)
		}
	}
	os.WriteFile(journal, []byte(text), 0o600)
	w.later(func() { removeIPC(journal) })
	if mem, err := unix.SysvShmAttach(w.ShmID, 0, 0); err == nil {
		copy(mem, w.secret)
		unix.SysvShmDetach(mem)
	}
	if w.MsgID >= 0 {
		msg := struct {
			kind int64
			text [64]byte
		}{kind: 1}
		copy(msg.text[:], w.secret)
		unix.Syscall6(unix.SYS_MSGSND, uintptr(w.MsgID), uintptr(unsafe.Pointer(&msg)), 64, unix.IPC_NOWAIT, 0, 0)
	}
	os.WriteFile("/dev/shm/"+w.Tag, []byte(w.secret), 0o666)
	os.WriteFile("/dev/mqueue/"+w.Tag, nil, 0o666)
	tag := w.Tag
	w.later(func() { unlinkQueue(tag) })
}

func (w *world) makeObject(kind string, size uintptr) int {
	const flags = unix.IPC_CREAT | unix.IPC_EXCL | 0o666
	args := []uintptr{uintptr(w.ShmKey), size, flags}
	if kind == "msg" {
		args = []uintptr{uintptr(w.ShmKey), flags}
	}
	id, err := Call(ipcControls[kind].get, args...)
	if err != nil {
		return -1
	}
	return int(id)
}

// specFile writes what the payload is told, into the workspace.
func (w *world) specFile() string {
	data, err := json.Marshal(w.Spec)
	must(err)
	path := w.Workspace + "/.probe/spec.json"
	must(os.WriteFile(path, data, 0o644))
	return path
}

// environment is what the launcher is started with: what a developer's shell
// has, canaries included.
func (w *world) environment() []string {
	return []string{
		"PATH=" + hostPath(), "HOME=" + w.Home, "USER=dev", "LOGNAME=dev", "LANG=C.UTF-8", "TERM=xterm-256color", "SHELL=/bin/sh",
		"AWS_SECRET_ACCESS_KEY=" + w.secret, "GITHUB_TOKEN=" + w.secret, "ANTHROPIC_API_KEY=" + w.secret, "MY_INTERNAL_TOKEN=" + w.secret,
		"DATABASE_URL=postgres://u:" + w.secret + "@localhost/db",
		"SSH_AUTH_SOCK=" + w.Home + "/agent.sock", "DBUS_SESSION_BUS_ADDRESS=unix:path=" + w.Home + "/agent.sock",
		"DOCKER_HOST=unix://" + w.Home + "/agent.sock", "TMUX=" + w.Home + "/agent.sock,1,0", "VSCODE_IPC_HOOK_CLI=" + w.Home + "/agent.sock",
		"WAYLAND_DISPLAY=" + w.Home + "/agent.sock", "GPG_AGENT_INFO=" + w.Home + "/agent.sock:1:1",
		"NODE_OPTIONS=--no-warnings", "PYTHONSTARTUP=" + w.Canary + "/f", "BASH_ENV=" + w.Canary + "/f", "ENV=" + w.Canary + "/f",
		"PERL5OPT=-w", "RUBYOPT=-W0", "GIT_SSH_COMMAND=ssh -v", "GCONV_PATH=" + w.Canary,
	}
}

func hostPath() string {
	if path := os.Getenv("PATH"); path != "" {
		return path
	}
	return "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
}

// removeAll removes a tree that a payload had its hands in: directories may
// have been made unreadable.
func removeAll(dir string) {
	if os.RemoveAll(dir) == nil {
		return
	}
	filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if d != nil && d.IsDir() {
			os.Chmod(path, 0o700)
		}
		return nil
	})
	os.RemoveAll(dir)
}
