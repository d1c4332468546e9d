package docker_test

import (
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/internal/await"
	"github.com/pccrun/pccrun/internal/outgoing"
	"github.com/pccrun/pccrun/providers/docker"
	"github.com/pccrun/pccrun/test/internal/dockerd"
	"github.com/pccrun/pccrun/test/internal/host"
	"github.com/pccrun/pccrun/test/internal/modelapi"
)

// Each of these has its control: the same file, which the policy does not speak of.
func TestFiles(t *testing.T) {
	eachRuntime(t, func(t *testing.T, k *task) {
		users, beside := &task{dir: world.user.Home}, k.dir+"-beside"
		k.write(t, ".env", "SECRET=1", "plain.env.txt", "SHOWN=1", "keys/id", "hidden", "fixed/a", "stays", "kept/private", "stays",
			".vscode/tasks.json", "{}", "open/b", "goes")
		users.write(t, "other", "home", filepath.Base(beside)+"/stands", "")
		_, out, errs := k.run(t, "--hide keys --hide .env --read fixed --private kept --write "+beside, strings.Join([]string{
			"cat .env keys/id ../other 2>/dev/null; cat plain.env.txt; echo",
			"echo x >fixed/a; rm fixed/a; mv fixed gone; echo x >.vscode/tasks.json; mv .vscode gone2; rm -rf .git/hooks; echo x >>.git/config; echo x >.git/hooks/pre-commit",
			"chmod 644 .env; cat .env; ls kept; echo x >kept/b; echo made >$1/made",
			"echo changed >open/b; mv open moved",
			"echo y >/usr/bin/y; echo y >/etc/y; echo y >/tmp/y && cat /tmp/y; echo z >~/z && cat ~/z",
			"ls ~ /home",
		}, "\n"), beside)
		for _, hidden := range []string{"SECRET", "hidden", "home\n", "other", "private"} {
			assert.NotContains(t, out, hidden)
		}
		for _, shown := range []string{"SHOWN=1\n", "y\n", "z\n"} {
			assert.Contains(t, out, shown, "the control: "+errs)
		}
		assert.Equal(t, "stays", k.text(t, "fixed/a"))
		assert.Equal(t, "stays", k.text(t, "kept/private"))
		assert.NoFileExists(t, filepath.Join(k.dir, "kept/b"))
		assert.Equal(t, "{}", k.text(t, ".vscode/tasks.json"))
		assert.NotContains(t, k.text(t, ".git/config"), "x\n")
		assert.NoFileExists(t, filepath.Join(k.dir, ".git/hooks/pre-commit"))
		assert.Equal(t, "changed\n", k.text(t, "moved/b"), "the control")
		assert.Equal(t, "made\n", users.text(t, filepath.Base(beside)+"/made"), "the control")
		assert.NoFileExists(t, filepath.Join(world.user.Home, "z"))
	})
}

// What this machine mounts later does not appear inside, not even beside the engine's own files,
// where an engine by itself lets it in. Those are not shown, and are where Docker keeps them.
func TestMountsOfTheHost(t *testing.T) {
	eachRuntime(t, func(t *testing.T, k *task) {
		assert.Equal(t, dockerd.Data, client(t, "info", "--format", "{{.DockerRootDir}}"))
		inEngine(t, "test", "-d", dockerd.Data+"/image") // the control of what is not listed inside
		k.pccrun(t)
		k.write(t, "below/x", "")
		places := []string{"/var/cache", "/var/lib/dpkg", sharedDir(t), filepath.Join(k.dir, "below")}
		control := client(t, "run", "--detach", "--network=none", "--volume=/var:/var:ro", usersImage(t), "sh", "-c", "until [ -e /var/cache/later ]; do cat /dev/null; done")
		defer client(t, "rm", "--force", control)
		_, end := k.begin(t, "", `until [ -s mounted ]; do sleep 0.05; done; ls /var/lib/docker
for at; do test -e "$at" || echo "no $at"; test ! -e "$at/later" || echo "$at"; done`, places...)
		for _, at := range places {
			inEngine(t, "mount", "-t", "tmpfs", "later", at)
			defer inEngine(t, "umount", at)
			inEngine(t, "touch", at+"/later")
		}
		k.write(t, "mounted", "x")
		code, out, errs := end()
		assert.Zero(t, code, errs)
		assert.Empty(t, out)
		await.Until(t, "the control sees the mount", func() bool { return client(t, "inspect", "--format", "{{.State.Status}}", control) == "exited" })
	})
}

// sharedDir is a directory of this machine's that everybody sees.
func sharedDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/opt", "pccrun-test-")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	require.NoError(t, os.Chmod(dir, 0o755))
	return dir
}

// listen has somebody wait at a socket.
func listen(t *testing.T, path string) {
	t.Helper()
	l, err := net.Listen("unix", path)
	require.NoError(t, err)
	t.Cleanup(func() { l.Close() })
	require.NoError(t, os.Chmod(path, 0o777))
}

// Whoever waits at a socket or at the other end of a FIFO, in a directory that is shown, is
// reached from outside, and not from a container; but at the socket that is named.
func TestDoors(t *testing.T) {
	eachRuntime(t, func(t *testing.T, k *task) {
		dir := sharedDir(t)
		listen(t, dir+"/named")
		listen(t, dir+"/socket")
		require.NoError(t, syscall.Mkfifo(dir+"/fifo", 0o666))
		require.NoError(t, os.Chmod(dir+"/fifo", 0o666))
		reader, err := os.OpenFile(dir+"/fifo", os.O_RDWR, 0) // so that a writer need not wait
		require.NoError(t, err)
		defer reader.Close()
		try := `for at in named socket; do python3 -c 'import socket,sys; socket.socket(socket.AF_UNIX).connect(sys.argv[1]); print(sys.argv[2])' ` + dir + `/$at to-$at; done
(echo x >` + dir + `/fifo) && echo wrote; ls ` + dir
		assert.Equal(t, "to-named\nto-socket\nwrote\nfifo\nnamed\nsocket\n", k.outside(t, try), "the control")
		flags, want := "--socket "+dir+"/named", "to-named\nfifo\nnamed\nsocket\n"
		if k.gvisor() { // which refuses a named one too, before the start
			flags, want = "", "fifo\nnamed\nsocket\n"
		}
		_, out, errs := k.run(t, flags, try)
		assert.Equal(t, want, out, errs)
	})
}

// A socket that is gone by the start, with the directory that it was in, needs no cover.
func TestADoorThatIsGone(t *testing.T) {
	eachRuntime(t, func(t *testing.T, k *task) {
		dir, gone := sharedDir(t), false
		listen(t, dir+"/socket")
		k.after(t, isMade, func() { gone = assert.NoError(t, os.RemoveAll(dir)) })
		_, out, errs := k.run(t, "", "echo runs")
		assert.Equal(t, "runs\n", out, errs)
		assert.True(t, gone, "the control")
		assert.Empty(t, containers(t))
	})
}

// Somebody puts a link in the way after the survey: the engine follows it as root, and
// pid 1 sees that it is another file, under gVisor by when it was made.
func TestASwappedDirectory(t *testing.T) {
	eachRuntime(t, func(t *testing.T, k *task) { k.swapped(t) })
}

func (k *task) swapped(t *testing.T, others ...func(*http.Response) error) {
	t.Helper()
	inner := filepath.Join(k.dir, "inner")
	k.write(t, "inner/a", "mine")
	code, _, errs := k.run(t, "--read inner", "true")
	assert.Zero(t, code, "the control: "+errs)
	k.after(t, isMade, func() {
		assert.NoError(t, os.Rename(inner, inner+"-old"))
		assert.NoError(t, os.Symlink(t.TempDir(), inner))
	}, others...)
	code, out, errs := k.run(t, "--read inner", "echo ran")
	assert.Equal(t, 125, code, out)
	assert.Contains(t, errs, "another file than the survey saw")
}

// serve starts a server on the host's loopback.
func serve(t *testing.T) (port string) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "served") }))
	t.Cleanup(s.Close)
	_, port, _ = net.SplitHostPort(s.Listener.Addr().String())
	return port
}

// A server of the host's own loopback that the policy names is reached by the proxy; nothing else
// is, by whatever way.
func TestNetwork(t *testing.T) {
	eachRuntime(t, func(t *testing.T, k *task) {
		named, other := serve(t), serve(t)
		_, out, errs := k.run(t, "--events events --allow *.example.org --deny evil.example.org --local "+named, strings.Join([]string{
			"curl -sS http://host.pccrun.internal:" + named,
			"curl -sS http://host.pccrun.internal:" + other,
			"curl -sS --noproxy '*' http://127.0.0.1:" + other,
			"curl -sS https://evil.example.org; curl -sS https://good.example.org",
			"curl -sS --noproxy '*' http://host.pccrun.internal:" + named + "/by-name",
			"curl -sS --noproxy '*' https://evil.example.org/by-name",
			"curl -sS --noproxy '*' http://127.64.0.99:" + named,
			"curl -sS --noproxy '*' http://127.0.0.1:" + named,
			"curl -sS --noproxy '*' http://127.0.0.1:" + other, // the container's own
			"cat $PCCRUN_DENIALS; echo x >>$PCCRUN_DENIALS",
		}, "\n"))
		assert.Equal(t, 3, strings.Count(out, "served"), "by the proxy, by its name, and at the loopback: "+errs)
		assert.True(t, strings.HasPrefix(out, "served"), "the control")
		assert.Contains(t, out, "evil.example.org")
		allowed := map[string]bool{}
		for line := range strings.Lines(k.text(t, "events")) {
			var e struct {
				Type, Host string
				Port       int
				Allowed    bool
			}
			require.NoError(t, json.Unmarshal([]byte(line), &e))
			if e.Type == "net.decision" {
				allowed[fmt.Sprint(e.Host, ":", e.Port)] = e.Allowed
			}
		}
		assert.Equal(t, map[string]bool{
			"host.pccrun.internal:" + named: true, "host.pccrun.internal:" + other: false, "good.example.org:443": true, "evil.example.org:443": false,
			"evil.example.org:0":   false, // the name alone was asked for
			"127.64.0.99:" + named: false, // nobody's
			"localhost:" + named:   true,
		}, allowed)
	})
}

// What requests cost is counted on this machine, and no further one goes out when the budget is spent. A network of the
// engine's, in which nobody counts, is refused.
func TestBudget(t *testing.T) {
	eachRuntime(t, func(t *testing.T, k *task) {
		ln, err := modelapi.Listen()
		require.NoError(t, err)
		defer ln.Close()
		var asked atomic.Int32
		go modelapi.Serve(ln, func(*http.Request) { asked.Add(1) })
		at := ln.Addr().String()
		flags := "--allow " + at + " --env ANTHROPIC_BASE_URL=http://" + at
		const ask = "for i in 1 2 3 4; do curl -sS -d '{}' $ANTHROPIC_BASE_URL/v1/messages; done; echo the end"
		code, out, errs := k.run(t, flags+" --budget 2", "trap 'exit 3' INT; "+ask+"; sleep 60")
		assert.Equal(t, 124, code, errs)
		assert.EqualValues(t, 2, asked.Load(), "the third does not go out")
		assert.Contains(t, errs, "budget spent: $2.20 of $2.00")
		assert.Equal(t, 2, strings.Count(out, "an answer"), out)
		code, out, errs = k.run(t, flags+" --budget 5", ask)
		assert.Zero(t, code, errs)
		assert.Contains(t, out, "the end", "the control")
		assert.EqualValues(t, 6, asked.Load())
		code, _, errs = k.run(t, flags+" --budget 5 --docker-network bridge --allow-missing net.allowlist", "true")
		assert.Equal(t, 125, code)
		assert.Contains(t, errs, "--budget: in a network of the engine nobody counts what requests cost")
	})
}

// What the engine and the kernel are told to bound is bounded.
func TestLimits(t *testing.T) {
	eachRuntime(t, func(t *testing.T, k *task) {
		k.write(t, "calls.json", `{"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [{"names": ["mkdir", "mkdirat"], "action": "SCMP_ACT_ERRNO", "errnoRet": 1}]}`)
		const limits = "--memory 128m --pids none --files 32 --filesize 20m --disk 16m --syscalls calls.json"
		code, out, errs := k.run(t, limits, `ulimit -n; head -c 32m /dev/zero >big; stat -c %s big
head -c 64m /dev/zero >/tmp/big; stat -c %s /tmp/big; mkdir new && echo made; echo end`)
		assert.Zero(t, code, "the control: "+errs)
		assert.Regexp(t, `^32\n20971520\n1[0-9]{7}\nend\n$`, out)
		code, _, errs = k.run(t, limits, "head -c 600m /dev/zero | tail >/dev/null")
		assert.NotZero(t, code)
		assert.Contains(t, errs, "memory")
		if !k.gvisor() { // which has threads of its own counted in place of processes
			code, _, errs = k.run(t, "--pids 6", `for i in $(seq 40); do sleep 600 & done; wait`)
			assert.NotZero(t, code)
			assert.Regexp(t, "(?i)fork", errs)
		}
	})
}

// The command has a terminal of its own, and another command one more, whose Ctrl-C is a signal
// inside, and of the size of the user's.
func TestTerminal(t *testing.T) {
	eachRuntime(t, func(t *testing.T, k *task) {
		const script = `trap 'echo trapped; exit 5' INT; echo x >begun; stty size; test -t 2 && tty; read a; echo got $a
until stty size | grep -q "30 100"; do sleep 0.05; done; echo larger; while :; do sleep 0.05; done`
		first := k.in(t, "", script)
		use := at(t, first)
		await.Until(t, "the command begins", func() bool { return k.there("begun") })
		at(t, k.exec(t, "sh", "-c", script))()
		use()
	})
}

// at starts a program at a terminal; use talks to the script.
func at(t *testing.T, c *exec.Cmd) (use func()) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	require.NoError(t, err)
	t.Cleanup(func() { master.Close() })
	fd := int(master.Fd())
	require.NoError(t, unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0))
	number, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	require.NoError(t, err)
	slave, err := os.OpenFile(fmt.Sprint("/dev/pts/", number), os.O_RDWR|unix.O_NOCTTY, 0)
	require.NoError(t, err)
	size := func(rows, columns uint16) {
		require.NoError(t, unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: rows, Col: columns}))
	}
	size(25, 81)
	c.Stdin, c.Stdout, c.Stderr = slave, slave, slave
	c.SysProcAttr.Setsid, c.SysProcAttr.Setctty = true, true
	require.NoError(t, c.Start())
	slave.Close()
	all, buffer := "", make([]byte, 1024)
	awaits := func(text string) {
		for !strings.Contains(all, text) {
			n, err := master.Read(buffer)
			require.NoError(t, err, "%q: %q", text, all)
			all += string(buffer[:n])
		}
	}
	return func() {
		awaits("25 81\r\n/dev/pts/")
		fmt.Fprint(master, "typed\n")
		awaits("got typed\r\n")
		size(30, 100)
		awaits("larger")
		fmt.Fprint(master, "\x03")
		awaits("trapped")
		_ = c.Wait()
		assert.Equal(t, 5, c.ProcessState.ExitCode(), all)
	}
}

// What flags do around a plan.
func TestFlags(t *testing.T) {
	eachRuntime(t, func(t *testing.T, k *task) {
		home, users := world.user.Home, &task{dir: world.user.Home}
		k.write(t, "keys/id", "hidden\n", "kept/a", "stays\n", "Makefile.mine", "all:\n", "plain", "no program",
			"profile.jsonc", `{"extends": "default", "environment": {"set": {"OF_PROFILE": "seen"}}}`,
			"settings.json", `{"network": {"allowedDomains": [], "deniedDomains": []}, "filesystem": {"denyRead": ["`+k.dir+`/keys"], "allowWrite": ["`+k.dir+`"], "denyWrite": []}}`)
		users.write(t, "secret.txt", "from-a-real-file", "secret.sh", "#!/bin/sh\necho from-a-real-command\n",
			".claude/.credentials.json", `{"claudeAiOauth": {"accessToken": "token-1", "refreshToken": "token-2", "expiresAt": 9999999999999}}`)
		defer os.RemoveAll(filepath.Join(home, ".claude"))
		require.NoError(t, os.Chmod(filepath.Join(home, "secret.sh"), 0o755))
		code, out, errs := k.run(t, "--profile profile.jsonc --settings settings.json --env GIVEN=1 --review Makefile.mine --report attempts "+
			"--inject-file FILE="+home+"/secret.txt --inject FILE=example.com --inject-command RUN="+home+"/secret.sh --inject RUN=example.com "+
			"--allow example.com --overlay kept --allow-missing fs.overlay --events events --log -v",
			"echo $OF_PROFILE $GIVEN $FILE $RUN; cat keys/id; cat kept/a; echo x >>Makefile.mine; mkdir .vscode; echo logged-$((1+1))")
		assert.Zero(t, code, errs)
		assert.Regexp(t, `^seen 1 \S+ \S+\nstays\nlogged-2\n$`, out)
		assert.NotContains(t, out+errs, "from-a-real")
		for _, said := range []string{"changed: Makefile.mine", "quarantined: .vscode", "denied file accesses are not reported", "fs.overlay may be missing"} {
			assert.Contains(t, errs, said)
		}
		assert.Contains(t, k.text(t, "events"), `"type":"exit"`)
		assert.Contains(t, k.outside(t, "cat ~/.local/state/pccrun/sessions/*/log"), "logged-2")

		_, out, errs = k.run(t, "--profile claude", "echo kept >~/x; cat ~/.claude/.credentials.json")
		assert.Contains(t, out, "claudeAiOauth", "the control: "+errs)
		_, out, errs = k.run(t, "--profile claude", "cat ~/x")
		assert.Equal(t, "kept\n", out, errs)
		_, out, errs = k.run(t, "--profile claude --fresh-home --no-login", "cat ~/x ~/.claude/.credentials.json; echo end")
		assert.Equal(t, "end\n", out, errs)

		for _, c := range []struct {
			code              int
			says, flags, argv string
		}{
			{124, "timed out after 1s", "--timeout 1s", "sleep 1000"},
			{126, "permission denied", "", "./plain"},
			{127, "command not found", "", "none-of-this-name"},
			{125, "--pass-fd", "--pass-fd 3", "echo"},
			{125, "no sandbox to be kept", "--keep 1h", "echo"},
			{125, "--from", "--from 1", "echo"},
			{125, "--without", "--without seccomp", "echo"},
			{125, "--ask", "--ask", "echo"},
			{125, "nested", "--nested", "echo"},
			{125, "hint: docker pull pccrun-none:2", "--docker-image pccrun-none:2", "echo"},
			{0, "", "--dry-run", "touch made"},
		} {
			args := strings.Fields(strings.Join(k.flags, " ") + " " + c.flags + " -- " + c.argv)
			code, out, errs := status(t, k.pccrun(t, args...))
			assert.Equal(t, c.code, code, "%v: %s", args, errs)
			assert.Contains(t, errs, c.says)
			assert.True(t, code != 125 || out == "", "nothing ran")
		}
		assert.NoFileExists(t, filepath.Join(k.dir, "made"))
	})
}

// The real value of a secret goes out to its host, with the requests that it is bound to, and the command has a placeholder.
func TestASecret(t *testing.T) {
	eachRuntime(t, func(t *testing.T, k *task) {
		got := make(chan string, 1)
		// Its certificate is for example.com.
		server := httptest.NewTLSServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got <- r.Header.Get("X-Token") }))
		defer server.Close()
		proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			to, err := net.Dial("tcp", server.Listener.Addr().String())
			if err != nil || r.Method != http.MethodConnect {
				w.WriteHeader(http.StatusBadGateway)
				return
			}
			from, _, err := w.(http.Hijacker).Hijack()
			if err != nil {
				return
			}
			fmt.Fprint(from, "HTTP/1.1 200 OK\r\n\r\n")
			go func() { _, _ = io.Copy(to, from) }()
			_, _ = io.Copy(from, to)
			from.Close()
		}))
		defer proxy.Close()
		(&task{dir: world.user.Home}).write(t, "authority.pem", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})))
		port := strings.TrimPrefix(proxy.URL, "http://127.0.0.1:")
		k.env = append(k.env, "TOKEN=the-real-one", "HTTPS_PROXY=http://127.0.0.1:9")
		mine := world.user.Home + "/" + outgoing.File
		(&task{dir: world.user.Home}).write(t, outgoing.File, "HTTPS_PROXY="+proxy.URL+"\nSSL_CERT_FILE="+world.user.Home+"/authority.pem\n")
		defer os.Remove(mine)
		code, out, errs := k.run(t, "--allow example.com --inject TOKEN=https://example.com/acme/* --local "+port, `echo "inside $TOKEN"; for at in other acme/../other acme/app; do curl -sS --path-as-is -o /dev/null -w "%{http_code}\n" -H "X-Token: $TOKEN" https://example.com/$at; done`)
		require.Zero(t, code, errs)
		assert.Regexp(t, `^inside .+\n403\n403\n200\n$`, out, "it goes with what it is bound to")
		assert.NotContains(t, out, "the-real-one")
		assert.Equal(t, "the-real-one", await.Receive(t, "the secret comes", got))
	})
}

// A workspace that belongs to root is refused by name, under each runtime, and what the hint names runs there.
func TestRootsWorkspace(t *testing.T) {
	needEngine(t)
	home := t.TempDir()
	k := &task{dir: home + "/src/w"}
	require.NoError(t, os.MkdirAll(k.dir, 0o755))
	run := func(flags ...string) (int, string, string) {
		c := exec.Command(host.Program(t), append(flags, "--", "sh", "-c", "echo ran; echo made >made")...)
		c.Dir, c.Env = k.dir, []string{"HOME=" + home, "PATH=/usr/local/bin:/usr/bin:/bin", "LANG=C.UTF-8", "DOCKER_HOST=" + world.engine.Host}
		return status(t, c)
	}
	runtimes := []string{docker.Runc}
	if world.runsc != "" {
		runtimes = append(runtimes, docker.Runsc)
	}
	for _, runtime := range runtimes {
		code, out, errs := run("--provider", "docker", "--runtime", runtime)
		assert.Equal(t, 125, code, errs)
		assert.Empty(t, out)
		assert.Contains(t, errs, "the workspace "+k.dir+" belongs to root")
		assert.Contains(t, errs, "hint: --provider native")
		assert.Empty(t, containers(t))
	}
	assert.NoFileExists(t, k.dir+"/made")
	code, out, errs := run("--provider", "native")
	assert.Zero(t, code, errs)
	assert.Equal(t, "ran\n", out)
	require.NoError(t, os.Remove(k.dir+"/made"))
	for _, dir := range []string{home, home + "/src"} {
		require.NoError(t, os.Chmod(dir, 0o755))
	}
	require.NoError(t, os.Chown(k.dir, int(world.user.UID), int(world.user.GID)))
	code, out, errs = run("--provider", "docker", "--home", "private")
	assert.Zero(t, code, errs)
	assert.Equal(t, "ran\n", out)
	info, err := os.Stat(k.dir + "/made")
	require.NoError(t, err)
	assert.Equal(t, world.user.UID, info.Sys().(*syscall.Stat_t).Uid)
}
