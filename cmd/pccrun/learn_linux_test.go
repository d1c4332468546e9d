package main

import (
	"bytes"
	"encoding/json"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pccrun/pccrun/internal/await"
)

// A pupil is a home with a workspace in it, in which pccrun is run.
type pupil struct {
	t    *testing.T
	home string
	dir  string // the workspace
	env  []string
}

func newPupil(t *testing.T) *pupil {
	home, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	p := &pupil{t: t, home: home, dir: home + "/project"}
	require.NoError(t, os.MkdirAll(p.dir+"/.git/hooks", 0o755))
	for _, e := range os.Environ() {
		if name, _, _ := strings.Cut(e, "="); name != "HOME" && !strings.HasPrefix(name, "XDG_") {
			p.env = append(p.env, e)
		}
	}
	p.env = append(p.env, "HOME="+home, "FOO_TOKEN=value")
	return p
}

func (p *pupil) write(name, text string, mode os.FileMode) {
	p.t.Helper()
	require.NoError(p.t, os.MkdirAll(filepath.Dir(p.home+"/"+name), 0o755))
	require.NoError(p.t, os.WriteFile(p.home+"/"+name, []byte(text), mode))
}

// holds reports whether there is something in a file.
func (p *pupil) holds(name string) bool {
	info, err := os.Stat(p.home + "/" + name)
	return err == nil && info.Size() > 0
}

func (p *pupil) command(args ...string) *exec.Cmd {
	program, err := exec.LookPath("pccrun")
	require.NoError(p.t, err)
	return &exec.Cmd{Path: program, Args: append([]string{"pccrun"}, args...), Dir: p.dir, Env: p.env}
}

func (p *pupil) pccrun(args ...string) (stdout, stderr string, code int) {
	p.t.Helper()
	cmd := p.command(args...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	if _, exited := err.(*exec.ExitError); !exited {
		require.NoError(p.t, err)
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

// profile is where the diff puts what is proposed.
func (p *pupil) profile() string { return p.home + "/p.jsonc" }

// take makes the profile of a diff, by patch(1) where there is one.
func (p *pupil) take(diff string) string {
	p.t.Helper()
	require.Contains(p.t, diff, "+++ "+p.profile()+"\n")
	cmd := exec.Command("patch", p.profile())
	cmd.Stdin = strings.NewReader(diff)
	out, err := cmd.CombinedOutput()
	require.NoError(p.t, err, string(out))
	text, err := os.ReadFile(p.profile())
	require.NoError(p.t, err)
	return string(text)
}

// uncomment takes over the proposal that a line's comment holds.
func (p *pupil) uncomment(what string) {
	p.t.Helper()
	text, err := os.ReadFile(p.profile())
	require.NoError(p.t, err)
	after := regexp.MustCompile(`(?m)^( *)// ("`+regexp.QuoteMeta(what)+`")`).ReplaceAllString(string(text), "$1$2")
	require.NotEqual(p.t, string(text), after, what)
	require.NoError(p.t, os.WriteFile(p.profile(), []byte(after), 0o600))
}

const plainProfile = "{\n  // mine\n  \"extends\": \"default\",\n}\n"

// What is proposed is then allowed: refused, learnt, written, gone through.
//
//test:root ^(a_file|writing|a_secret|a_secret_by_another_name)$
func TestLearnThenRun(t *testing.T) {
	t.Parallel()
	p := newPupil(t)
	_, err := exec.LookPath("patch")
	require.NoError(t, err)
	p.write("project/.env", "S=1\n", 0o644)
	p.write("project/Makefile", "-include .env\nall:\n\t@test -n \"$(S)\" && echo $(S)\n", 0o644)
	p.write("project/.mcp.json", "old\n", 0o644)
	self, err := os.Executable()
	require.NoError(t, err)
	program, err := os.ReadFile(self)
	require.NoError(t, err)
	p.write("project/dial", string(program), 0o755)
	p.write("conf", "configured\n", 0o644)
	p.write(".config/tool/a", "a", 0o644)
	p.write("shown/file", "old\n", 0o644)
	p.write("tools/prog", "#!/bin/sh\necho ran\n", 0o755)
	p.write(".netrc", "secret\n", 0o600)
	p.write(".ssh/id", "secret\n", 0o600)
	require.NoError(t, os.Symlink("conf", p.home+"/link"))
	require.NoError(t, os.Symlink(p.home+"/link", p.home+"/link2"))
	require.NoError(t, os.Symlink(p.home+"/.config/tool", p.home+"/dir"))
	require.NoError(t, os.Symlink(p.home+"/.netrc", p.home+"/plain"))
	require.NoError(t, os.Link(p.home+"/.ssh/id", p.home+"/linked"))
	p.serve("unix", p.home+"/srv.sock")
	port := strconv.Itoa(p.serve("tcp", "127.0.0.1:0").Addr().(*net.TCPAddr).Port)

	for _, c := range []struct {
		name, profile, script string
		proposed, commented   string // in the diff, without indentation; neither: listed alone
		want                  string // what the command prints in the end
	}{
		{"a file", "", `cat ~/conf`, `"~/conf": "read",`, "", "configured\n"},
		{"a secret", "", `cat ~/.netrc`, "", "", ""},
		{"in lines of another system", "\"filesystem\": {\r\n    \"~/x\": \"hide\" // \u202e\r\n  },\r", `cat ~/conf`, `"~/conf": "read",`, "", "configured\n"},
		{"by links", "", `cat ~/link2`, `"~/link2": "read",`, "", "configured\n"},
		{"by a link on the way", "", `cat ~/dir/a; ls ~/dir`, `"~/dir/a": "read",`, "", "aa\n"},
		{"a secret by a link", "", `cat ~/plain`, "", "", ""},
		{"a secret by another name", "", `cat ~/linked`, "", "", ""},
		{"keys", "", `cat ~/.ssh/id`, "", "", ""},
		{"what a rule hides, by a child", "", `make -s`, "", `"~/project/.env"`, "1\n"},
		{"a protected file", "", `echo new > .mcp.json && cat .mcp.json`, "", `".mcp.json"`, "new\n"},
		{"a directory beside the workspace", "", `echo new > ../shown/new && cat ../shown/new`, `"~/shown": "write",`, "", "new\n"},
		{"writing", `"filesystem": {"~/shown": "read"},`, `echo new > ~/shown/file && cat ~/shown/file`, `"~/shown/file": "write",`, "", "new\n"},
		{"a new file", `"filesystem": {"~/shown": "read"}`, `echo new > ~/shown/new && cat ~/shown/new`, `"~/shown": "write"`, "", "new\n"},
		{"a program", "", `~/tools/prog`, `"~/tools/prog": "read",`, "", "ran\n"},
		{"a socket", "", `./dial ~/srv.sock`, "", `"~/srv.sock"`, "hello\n"},
		{"a port", "", `bash -c 'exec 3<>/dev/tcp/localhost/` + port + ` && cat <&3'`, "", `"localhost:` + port + `"`, "hello\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := *p
			p.t = t
			require.NoError(t, os.WriteFile(p.profile(), []byte(strings.Replace(plainProfile, "\n}", "\n  "+c.profile+"\n}", 1)), 0o600))
			flags := []string{"--profile", p.profile()}
			run := []string{"--", "sh", "-c", c.script}
			p.write("project/.mcp.json", "old\n", 0o644)
			require.NoError(t, os.RemoveAll(p.home+"/shown/new"))
			before, _, code := p.pccrun(append(flags, run...)...)
			require.False(t, code == 0 && before == c.want, "the control: the policy refuses it")

			diff, told, learnt := p.pccrun(append(append([]string{"learn"}, flags...), run...)...)
			require.Equal(t, code, learnt, "the status is the command's: %s", told)
			if c.proposed+c.commented == "" {
				require.Empty(t, diff, "no secret is proposed")
				require.Regexp(t, `(?m)^pccrun: denied: read .*/\.(netrc|ssh)|plain|linked`, told)
				require.Regexp(t, `(?m)^pccrun: learn: not proposed: read \S+: .*secrets`, told)
				return
			}
			for _, line := range strings.Split(told, "\n") {
				require.NotContains(t, diff, line+"\n\n", "no output of the command's")
			}
			after := p.take(diff)
			require.Contains(t, after, "// mine\n", "what stands stays")
			require.Contains(t, after, c.proposed, diff)
			if c.commented != "" {
				require.Regexp(t, `(?m)^ *// `+regexp.QuoteMeta(c.commented), after)
				again, _, _ := p.pccrun(append(flags, run...)...)
				require.NotEqual(t, c.want, again, "a comment allows nothing")
				diff, _, _ := p.pccrun(append(append([]string{"learn"}, flags...), run...)...)
				require.NotContains(t, diff, c.commented, "it stands there")
				p.uncomment(strings.Trim(c.commented, `"`))
			}
			out, told, code := p.pccrun(append(flags, run...)...)
			require.Equal(t, c.want, out, told+after)
			require.Zero(t, code)
		})
	}
}

// serve says hello to everybody.
func (p *pupil) serve(network, address string) net.Listener {
	l, err := net.Listen(network, address)
	require.NoError(p.t, err)
	p.t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			io.WriteString(conn, "hello\n")
			conn.Close()
		}
	}()
	return l
}

// Hosts are printed with their ports, and nobody is asked for them.
func TestLearnHosts(t *testing.T) {
	t.Parallel()
	p := newPupil(t)
	p.write("p.jsonc", plainProfile, 0o600)
	diff, told, _ := p.pccrun("learn", "--profile", p.profile(), "--", "bash", "-c", `
exec 3<>/dev/tcp/127.0.0.1/3128; printf 'CONNECT a.example:8443 HTTP/1.1\r\nHost: a.example:8443\r\n\r\n' >&3; read line <&3
(exec 4<>/dev/tcp/b.example/2222)
for i in {1..500}; do if grep -q b.example:2222 $PCCRUN_DENIALS; then break; fi; sleep 0.01; done`)
	after := p.take(diff)
	require.Contains(t, after, `"a.example:8443",`, told)
	out, _, code := p.pccrun("why", "--profile", p.profile(), "connect", "a.example:8443")
	require.Zero(t, code, out)
	require.NotContains(t, after, `"*`)
	if !strings.Contains(told, "net.transparent") { // the host captures what knows of no proxy
		require.Contains(t, after, `"b.example:2222",`, told)
		require.NotContains(t, after, `"b.example",`, "the port is known")
		require.Contains(t, told, "pccrun: denied: b.example:2222 (to allow: --allow b.example:2222)\n")
		require.NotContains(t, told, "resolve b.example")
	}
}

// What the host does not have, or would refuse as well, is none of the policy's
// doing; looking for many things proposes no more than is there.
//
//test:root
func TestLearnOnlyWhatTheHostHas(t *testing.T) {
	t.Parallel()
	p := newPupil(t)
	p.write("there", "x", 0o644)
	p.write("closed", "x", 0)
	require.NoError(t, os.Remove(p.home+"/there"))
	diff, told, code := p.pccrun("learn", "--", "sh", "-c", `
for i in 1 2 3 4 5 6 7 8 9; do cat ~/none$i ~/.config/none/$i ~/there; done
test -d ~; ls ~; ls /tmp; cd /; command -v nosuch; mkdir ~/made; echo x > ~/made/x; echo x > /tmp/x; cat /proc/1/environ; cat /etc/resolv.conf; exit 7`)
	require.Equal(t, 7, code, told)
	require.Empty(t, diff)
	require.Contains(t, told, "pccrun: learn: the profile default need not change\n")
	if os.Getuid() != 0 {
		diff, _, _ = p.pccrun("learn", "--", "sh", "-c", "cat ~/closed; echo x > /etc/pccrun-learn")
		require.Empty(t, diff)
	}
}

// A command cannot put text into the diff, nor have a secret proposed.
func TestLearnHostile(t *testing.T) {
	t.Parallel()
	p := newPupil(t)
	p.write("p.jsonc", plainProfile, 0o600)
	names := []string{
		"a\n\"~\": \"write\",\n", "b\", \"~\": \"write", "c */ \"/\": \"write\", /*", "d // x", "e\x1b[2J\x1b]0;t\x07", "f\u202etxt", "g\\", "h\xff", "i*", "j\r", "k\u2028\"~\": \"write\"",
	}
	secrets := []string{".ssh/id_ed25519", ".aws/credentials", ".kube/config", "project/.env", ".config/gh/hosts.yml", "keys/server.key", ".bash_history"}
	for _, name := range append(names, secrets...) {
		p.write(name, "canary", 0o644)
	}
	args := []string{"learn", "--profile", p.profile(), "--", "sh", "-c", `
printf -- '--- a\n+++ b\n+  "~": "write",\n'
cp /bin/cat "$(printf 'c\n"~": "write",\033[2J')"; for f in ~ ~/.. / ~/.ssh ~/.config; do ls $f; done
for f; do cat "$HOME/$f"; ./c* "$HOME/$f"; echo x >> "$HOME/$f"; done; true`, "sh"}
	diff, told, code := p.pccrun(append(append(args, names...), secrets...)...)
	require.Zero(t, code, told)
	require.NotContains(t, told, "canary")
	require.Contains(t, told, "+++ b\n", "what the command prints is not on standard output")
	require.True(t, strings.HasPrefix(diff, "--- "+p.profile()+"\n"), diff)
	require.NotRegexp(t, "[^\\x20-\\x7e\\n…]", diff)
	after := p.take(diff)
	out, told, code := p.pccrun("profile", "show", "--json", "--profile", p.profile())
	require.Zero(t, code, told)
	var shown struct {
		Filesystem []struct {
			Access, Path, Glob string
			Origin             struct{ Source string }
		}
	}
	require.NoError(t, json.Unmarshal([]byte(out), &shown))
	proposed := map[string]string{}
	for _, r := range shown.Filesystem {
		if r.Origin.Source == p.profile() {
			require.Empty(t, r.Glob, after)
			rest, ok := strings.CutPrefix(r.Path, p.home+"/")
			require.True(t, ok, r.Path)
			proposed[rest] = r.Access
		}
	}
	require.Equal(t, map[string]string{names[1]: "read", filepath.Clean(names[3]): "read", names[6]: "read"}, keepFiles(proposed), after)
	for _, name := range []string{"~/.ssh", "~/.aws", "~/.kube", ".env", "~/.config/gh", "server.key", "~/.bash_history"} {
		for _, line := range strings.Split(after, "\n") {
			if strings.Contains(line, name) && strings.Contains(line, "\": \"") {
				require.Regexp(t, `^ *// "~/project/.env": `, line, "the rest is listed alone")
			}
		}
	}
}

// keepFiles drops the difference between read and write: both were tried.
func keepFiles(m map[string]string) map[string]string {
	for k := range m {
		m[k] = "read"
	}
	return m
}

func TestLearnJSON(t *testing.T) {
	t.Parallel()
	p := newPupil(t)
	p.write("conf", "x", 0o644)
	out, _, code := p.pccrun("learn", "--json", "--", "cat", p.home+"/conf")
	require.Equal(t, 1, code)
	var got struct {
		File, Diff string
		New        bool
		Code       int
		Refusals   []struct {
			What, Hint, State, Why string
			Times                  int
			Edits                  []struct{ Key, Value string }
		}
	}
	require.NoError(t, json.Unmarshal([]byte(out), &got))
	require.True(t, got.New)
	require.Equal(t, p.home+"/.config/pccrun/profiles/default.jsonc", got.File)
	require.Equal(t, 1, got.Code)
	require.Len(t, got.Refusals, 1, out)
	require.Equal(t, "read "+p.home+"/conf", got.Refusals[0].What)
	require.Equal(t, "--read "+p.home+"/conf", got.Refusals[0].Hint)
	require.Equal(t, 1, got.Refusals[0].Times)
	require.Equal(t, "~/conf", got.Refusals[0].Edits[0].Key)
	require.Equal(t, "proposed", got.Refusals[0].State)
	require.Contains(t, got.Diff, "--- /dev/null\n")
}

// --save asks at the terminal, and writes; what was typed before the question is no answer to it.
func TestLearnAsks(t *testing.T) {
	t.Parallel()
	for _, answer := range []string{"y", "n"} {
		p := newPupil(t)
		p.write("conf", "configured", 0o644)
		p.write(".ssh/id_rsa", "secret", 0o600)
		cmd := p.command("learn", "--save", "--", "sh", "-c", "cat ~/conf ~/.ssh/id_rsa")
		shown := typeAt(t, cmd, "y\ny\n", func(shown string) string {
			if strings.HasSuffix(shown, "[y/N] ") {
				return answer + "\n"
			}
			return ""
		})
		file := p.home + "/.config/pccrun/profiles/default.jsonc"
		require.Contains(t, shown, "write "+file+"?", shown)
		out, told, code := p.pccrun("--", "sh", "-c", "cat ~/conf ~/.ssh/id_rsa")
		require.NotZero(t, code, "the secret stays hidden")
		if answer == "n" {
			require.Contains(t, shown, "pccrun: learn: nothing was written")
			require.NoFileExists(t, file)
			require.Empty(t, out)
			continue
		}
		require.Contains(t, shown, "pccrun: learn: written: "+file+", 1 proposed, 0 commented out; it now replaces the built-in default")
		require.Contains(t, told, "pccrun: profile default: "+file+", replaces the built-in one\n")
		require.Equal(t, "configured", out, shown)
		info, err := os.Stat(file)
		require.NoError(t, err)
		require.Equal(t, os.FileMode(0o600), info.Mode())
	}
	p := newPupil(t)
	_, told, code := p.pccrun("learn", "--save", "--", "touch", "ran")
	require.Equal(t, refused, code)
	require.Contains(t, told, "no terminal to ask at")
	require.NoFileExists(t, p.dir+"/ran")
}

// typeAt runs a command at a terminal of its own; next says what is typed after
// what is shown by then.
func typeAt(t *testing.T, cmd *exec.Cmd, first string, next func(shown string) string) string {
	t.Helper()
	fd, slave := newTerminal(t)
	master := os.NewFile(uintptr(fd), "master")
	defer master.Close()
	cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	require.NoError(t, cmd.Start())
	slave.Close()
	io.WriteString(master, first)
	timer := time.AfterFunc(await.Patience, func() { cmd.Process.Kill() })
	defer timer.Stop()
	var shown strings.Builder
	b := make([]byte, 4096)
	for {
		n, err := master.Read(b)
		if n > 0 {
			shown.Write(b[:n])
			io.WriteString(master, next(shown.String()))
		}
		if err != nil {
			break // EIO: nobody has the terminal any more
		}
	}
	require.NoError(t, ignoreExit(cmd.Wait()))
	return shown.String()
}

func ignoreExit(err error) error {
	if _, is := err.(*exec.ExitError); is {
		return nil
	}
	return err
}
