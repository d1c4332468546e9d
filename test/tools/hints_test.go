//go:build linux

package tools

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pccrun/pccrun/providers/native"
	"github.com/pccrun/pccrun/test/internal/host"
	"github.com/pccrun/pccrun/test/internal/tempuser"
)

// A hint is a refusal with what mends it: test/hints.txt says which row follows which hint.
type hint struct {
	name    string
	needs   string   // programs; without them the row is skipped
	env     []string // of pccrun
	flags   string   // of pccrun, of each run
	prepare string   // for bash in the repository on the host, before each run
	script  string   // what is refused inside
	says    string   // a regular expression: the line without what allows it, or with a group that is it
	end     string   // for bash, when all is done
	root    string   // for bash as root, in a mount namespace of its own, before each run; "" where nobody need be root
}

// connect is a client of a socket.
const connect = `perl -MIO::Socket::UNIX -e 'IO::Socket::UNIX->new(shift) or exit 1' `

// trying are the flags by which a run hears of attempts.
const trying = "--report attempts"

// key makes a key of GnuPG's without a passphrase.
const key = `mkdir -m 700 ~/.gnupg; gpg --batch --quiet --passphrase '' --quick-generate-key 'n <n@example.com>' future-default default never; `

// agent runs a key of ssh's in an agent.
const agent = `ssh-keygen -q -t ed25519 -N '' -f ~/key; ssh-agent -a ~/agent > ~/agent.env; SSH_AUTH_SOCK=~/agent ssh-add -q ~/key; rm ~/key; ` + identified + `git config gpg.format ssh; git config user.signingkey ~/repo/key.pub; mv ~/key.pub .; `

const identified = `git config user.name n; git config user.email n@example.com; `

const (
	endKey   = `pid=$(gpg-connect-agent --no-autostart 'getinfo pid' /bye | sed -n 's/^D //p'); gpgconf --kill gpg-agent; while [ -e /proc/$pid/exe ]; do sleep 0.02; done`
	endAgent = `eval "$(cat ~/agent.env)" > /dev/null; kill $SSH_AGENT_PID`
)

var hints = []hint{
	{name: "who signs, by gpg", needs: "git gpg gpgconf", prepare: key + identified + "git config commit.gpgsign true", script: "git commit -q --allow-empty -m x", says: "hidden: sign a commit", end: endKey},
	{name: "who signs one commit, by gpg", needs: "git gpg gpgconf", flags: "--profile build", prepare: key + identified, script: "git commit -q -S --allow-empty -m x", says: "hidden: sign a commit", end: endKey},
	{name: "who signs, by ssh", needs: "git ssh-agent ssh-add ssh-keygen", env: []string{"SSH_AUTH_SOCK=$HOME/agent"}, prepare: agent + "git config commit.gpgsign true", script: "git commit -q --allow-empty -m x", says: "hidden: sign a commit", end: endAgent},
	{name: "who signs one commit, by ssh", needs: "git ssh-agent ssh-add ssh-keygen", env: []string{"SSH_AUTH_SOCK=$HOME/agent"}, flags: "--profile build", prepare: agent, script: "git commit -q -S --allow-empty -m x", says: "hidden: sign a commit", end: endAgent},
	{name: "the keys of gpg", needs: "gpg gpgconf", flags: trying, prepare: key + "echo text > text", script: "gpg --batch --quiet --yes -s text", says: `denied: read .*/\.gnupg`, end: endKey},
	{name: "a hidden file", prepare: "echo S=1 > .env", script: "cat .env", says: `hidden: read .*/\.env`},
	{name: "a hidden file of an odd name", prepare: `mkdir "a b"; echo S=1 > "a b/.env"`, script: `cat "a b/.env"`, says: `hidden: read .*/a b/\.env`},
	{name: "a socket in the workspace", script: connect + "s", says: `hidden: connect .*/s`},
	{name: "SSH_AUTH_SOCK", env: []string{"SSH_AUTH_SOCK=$HOME/repo/s"}, script: connect + `"$SSH_AUTH_SOCK"`, says: `hidden: find SSH_AUTH_SOCK`},
	{name: "DOCKER_HOST", env: []string{"DOCKER_HOST=unix://$HOME/repo/s"}, script: connect + `"${DOCKER_HOST#unix://}"`, says: `hidden: find DOCKER_HOST`},
	{name: "a descriptor", script: `read -r x <&5; [ -n "$x" ]`, says: `hidden: use descriptor 5`},
	{
		name: "the directory of the command", flags: "--profile default", says: `hidden: read the directory of the command, .*/src`,
		prepare: `mkdir ~/src; echo beside > ~/src/data; printf '#!/bin/sh\ncat "$(dirname "$(readlink -f "$0")")/data"\n' > ~/src/tool; chmod +x ~/src/tool; ln -s ~/src/tool ~/bin/tool`,
		script:  "@tool",
	},
	{name: "who commits", needs: "git", prepare: "mv ~/identity ~/.gitconfig", script: "git commit -q --allow-empty -m x", says: `hidden: read .*/\.gitconfig`},
	{name: "who commits, by a directory", needs: "git", prepare: "mkdir -p ~/.config/git; mv ~/identity ~/.config/git/config", script: "git commit -q --allow-empty -m x", says: `hidden: read .*/\.config/git`},
	{name: "an option of a tool", env: []string{"NODE_ENV=test"}, script: `[ "$NODE_ENV" = test ]`, says: "hidden: find NODE_ENV"},
	{name: "an option that names a file", env: []string{"KUBECONFIG=$HOME/corp/k:$HOME/none"}, prepare: "mkdir ~/corp; echo cluster > ~/corp/k", script: `cat "${KUBECONFIG%:*}"`, says: "hidden: find KUBECONFIG"},
	{name: "an option with a file in it", env: []string{"NODE_ENV=test", "JAVA_TOOL_OPTIONS=-Da=b -Djavax.net.ssl.trustStore=$HOME/corp.jks"}, prepare: "echo store > ~/corp.jks", script: `cat "${JAVA_TOOL_OPTIONS##*=}"`, says: "hidden: find JAVA_TOOL_OPTIONS"},
	{name: "an option with a directory in it", env: []string{"CFLAGS=-O2 -I$HOME/inc"}, prepare: "mkdir ~/inc; echo h > ~/inc/h", script: `cat "${CFLAGS##*-I}/h"`, says: "hidden: find CFLAGS"},
	{name: "a service of the machine", script: ": http://localhost:$PORT/; exec 3<>/dev/tcp/localhost/$PORT", says: `hidden: connect localhost:\d+ of this machine`},
	{name: "a service of the machine, by its address", script: ": 127.0.0.1:$PORT; exec 3<>/dev/tcp/127.0.0.1/$PORT", says: `hidden: connect 127\.0\.0\.1:\d+ of this machine`},

	{name: "write a file", flags: trying + " --read $HOME/out", prepare: "mkdir ~/out; echo a > ~/out/f", script: "echo x > ~/out/f", says: `denied: write .*/out/f`},
	{name: "make a file", flags: trying + " --read $HOME/out", prepare: "mkdir ~/out", script: "echo x > ~/out/new", says: `denied: write .*/out/new`},
	{name: "make a directory", flags: trying + " --read $HOME/out", prepare: "mkdir ~/out", script: "mkdir ~/out/new", says: `denied: write .*/out/new`},
	{name: "rename a file", flags: trying + " --read $HOME/out", prepare: "mkdir ~/out; echo a > ~/out/f", script: "mv ~/out/f ~/out/g", says: `denied: write .*/out/f`},
	{name: "rename a file over another", flags: trying + " --read $HOME/out", prepare: "mkdir ~/out; echo a > ~/out/f; echo b > ~/out/g", script: "mv -f ~/out/f ~/out/g", says: `denied: write .*/out/g`},
	{name: "move a file to another directory", flags: trying + " --read $HOME/out", prepare: "mkdir -p ~/out/a ~/out/b; echo a > ~/out/a/f", script: "mv ~/out/a/f ~/out/b/f", says: `denied: write .*/a/f`},
	{name: "write a file that a flag shows", flags: trying + " --read $HOME/f", prepare: "echo a > ~/f", script: "echo x > ~/f", says: `denied: write .*/h/f`},
	{name: "make a file below what a flag shows", flags: trying + " --read $HOME/out", prepare: "mkdir -p ~/out/d", script: "echo x > ~/out/d/new", says: `denied: write .*/d/new`},
	{name: "link a file", flags: trying + " --read $HOME/out", prepare: "mkdir ~/out; echo a > ~/out/f", script: "ln -s f ~/out/g", says: `denied: write .*/out/g`},
	{name: "make a file in the home", flags: trying + " --read $HOME", script: "echo x > ~/new", says: `denied: write .*/h/new`},
	{name: "write a protected file", flags: trying, prepare: "echo a > .mcp.json", script: "echo x > .mcp.json", says: `denied: write .*/\.mcp\.json`},
	{name: "write a file of a protected directory", flags: trying, prepare: "mkdir .vscode; echo a > .vscode/settings.json", script: "echo x > .vscode/settings.json", says: `denied: write .*/settings\.json`},
	{name: "make a file in a protected directory", flags: trying, prepare: "mkdir .vscode", script: "echo x > .vscode/new.json", says: `denied: write .*/new\.json`},
	{name: "make a directory in a protected one", flags: trying, prepare: "mkdir .claude", script: "mkdir -p .claude/worktrees; echo x > .claude/worktrees/f", says: `denied: write .*/worktrees`},
	{name: "write a protected file that is hidden", flags: trying, prepare: "echo a > .envrc", script: "echo x > .envrc", says: `denied: write .*/\.envrc`},
	{name: "write where a protected link leads", flags: trying, prepare: "mkdir cfg; echo a > cfg/m.json; ln -s cfg/m.json .mcp.json", script: "echo x > cfg/m.json", says: `denied: write .*/cfg/m\.json`},
	{name: "a pinned file", flags: "--report none", prepare: "echo a > .mcp.json", script: "rm .mcp.json", says: `pinned: \.mcp\.json: .*; (?P<hint>--review .*) allows changes`},
	{name: "a name that is forbidden", flags: "--protect-strict", script: "echo x > .mcp.json", says: `denied: write .*/\.mcp\.json`},
	{name: "a name in quarantine", script: "mkdir -p sub; echo x > sub/.npmrc; for i in {1..50}; do [ -e sub/.npmrc ] || exit 1; sleep 0.02; done", says: `quarantined: sub/\.npmrc \(npm would load it; to allow: (?P<hint>.*)\)`},
	{name: "a secret of the home", flags: trying, prepare: "mkdir ~/.ssh; echo k > ~/.ssh/known", script: "cat ~/.ssh/known", says: `denied: read .*/\.ssh`},
}

// TestHints follows each hint to the letter: the command that was refused works then, as it does on
// the bare host, and with any flag less of those that were printed it does not.
func TestHints(t *testing.T) {
	m := newHintMachine(t)
	rows := hints
	for i := range native.Lacking {
		rows = append(rows, m.lack(&native.Lacking[i]))
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			for _, n := range strings.Fields(row.needs) {
				if _, err := exec.LookPath(n); err != nil {
					t.Skip("needs", n)
				}
			}
			if row.root != "" && os.Getuid() != 0 {
				t.Skip("needs root")
			}
			m.follow(t, &row)
		})
	}
}

// lack is a command that needs what a row of native's names, and says so by its end alone.
func (m *hintMachine) lack(l *native.Lack) hint {
	program, _, _ := strings.Cut(l.Programs, " ")
	at := strings.Replace(l.Path, "~", "$HOME", 1)
	row := hint{name: program + " " + l.Path, script: "@" + program, says: "hidden: read " + regexp.QuoteMeta(strings.Replace(strings.TrimSuffix(l.Path, "/"), "~", m.home, 1))}
	tool := func(body string) string {
		return fmt.Sprintf("printf '#!/bin/bash -eu\\n%%s\\n' %s > ~/bin/%s; chmod +x ~/bin/%[2]s", "'"+body+"'", program)
	}
	dir := filepath.Dir(at)
	switch {
	case l.Flags == "--nested":
		row.script, row.says = "unshare -U true", "hidden: make a user namespace"
	case l.Flags == "--use docker":
		row.script, row.says = ": docker; "+connect+l.Path, "hidden: connect "+l.Path
		row.root = `mount -t tmpfs none /run; perl -MIO::Socket::UNIX -e '$s = IO::Socket::UNIX->new(Listen => 9, Local => "/run/docker.sock"); chmod 0777, "/run/docker.sock"; sleep 600' > /dev/null 2>&1 & daemon=$!; until [ -S /run/docker.sock ]; do sleep 0.01; done`
	case program == "pass":
		row.needs, row.end = "gpg gpgconf", endKey
		row.prepare = key + "mkdir ~/.password-store; echo s | gpg --batch --quiet -e -r n@example.com -o ~/.password-store/x.gpg; " + tool("gpg --batch --quiet --decrypt ~/.password-store/x.gpg; : > ~/.password-store/.lock")
	case strings.HasSuffix(at, "/"): // as clouds' clients do, it keeps something beside the settings
		row.prepare = fmt.Sprintf("mkdir -p %s; echo s > %[1]ssettings; ", at) + tool(fmt.Sprintf("read -r x < %ssettings; echo x > %[1]ssession", at))
	default:
		row.prepare = fmt.Sprintf("mkdir -p %s; echo s > %s; ", dir, at) + tool("cat "+at)
	}
	return row
}

// A hintMachine is where hints are followed: a user who is not root, with a home and a repository.
type hintMachine struct {
	program, home, port string

	user    *syscall.SysProcAttr
	environ []string
}

func newHintMachine(t *testing.T) *hintMachine {
	m := &hintMachine{program: host.Program(t), environ: environ(), user: &syscall.SysProcAttr{}}
	if os.Getuid() == 0 {
		user, err := tempuser.New()
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, user.Remove()) })
		m.home, m.user.Credential, m.environ = user.Home+"/h", user.Credential(), user.Environ(m.environ)
	} else {
		m.home = t.TempDir() + "/h"
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { l.Close() })
	_, m.port, err = net.SplitHostPort(l.Addr().String())
	require.NoError(t, err)
	m.environ = append(m.environ, "HOME="+m.home, "XDG_STATE_HOME="+m.home+"/.local/state", "PATH="+m.home+"/bin:"+os.Getenv("PATH"), "SSH_AUTH_SOCK=")
	return m
}

// fresh makes the home anew, with what a row prepares.
func (m *hintMachine) fresh(t *testing.T, row *hint) {
	t.Helper()
	if row.end != "" {
		_, _ = m.bash(nil, "/", row.end) // of what the last one began
		t.Cleanup(func() { _, _ = m.bash(nil, "/", row.end) })
	}
	out, err := m.bash(nil, "/", `chmod -R u+rwX "$HOME" 2> /dev/null || true; rm -rf "$HOME"; mkdir -p ~/bin ~/repo; printf '[user]\n\tname = n\n\temail = e@example.com\n' > ~/identity
		cd ~/repo; echo mine > ~/mine; git init -q -b main .; `+row.prepare)
	require.NoError(t, err, out)
	l, err := net.Listen("unix", m.home+"/repo/s")
	require.NoError(t, err)
	require.NoError(t, os.Chmod(m.home+"/repo/s", 0o777))
	t.Cleanup(func() { l.Close() })
}

func (m *hintMachine) bash(row *hint, dir, script string, args ...string) (string, error) {
	argv := append([]string{"bash", "-euc", script}, args...)
	user := m.user
	if row != nil && row.root != "" {
		id := fmt.Sprint(user.Credential.Uid)
		argv = append([]string{"unshare", "--mount", "bash", "-euc", row.root + `; setpriv --reuid "$0" --regid "$0" --clear-groups "$@" && code=0 || code=$?; kill $daemon; exit $code`, id}, argv...)
		user = nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Dir, cmd.SysProcAttr, cmd.Env, cmd.WaitDelay = dir, user, m.environ, time.Second
	if row != nil {
		for _, v := range row.env {
			cmd.Env = append(cmd.Env, strings.ReplaceAll(v, "$HOME", m.home))
		}
	}
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	return out.String(), err
}

// run runs the row's command behind what a user would type.
func (m *hintMachine) run(t *testing.T, row *hint, prefix string) (string, bool) {
	t.Helper()
	command := `bash -euc "$1"`
	if name, is := strings.CutPrefix(row.script, "@"); is {
		command = name
	}
	out, err := m.bash(row, m.home+"/repo", prefix+" "+command+" 5< ~/mine", "bash", strings.ReplaceAll(row.script, "$PORT", m.port))
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		require.NoError(t, err)
	}
	return out, err == nil
}

func (m *hintMachine) follow(t *testing.T, row *hint) {
	m.fresh(t, row)
	out, works := m.run(t, row, "")
	require.True(t, works, "the control, outside: %s", out)
	m.fresh(t, row)
	pccrun := m.program + " " + strings.ReplaceAll(row.flags, "$HOME", m.home)
	out, works = m.run(t, row, pccrun+" --")
	require.False(t, works, "without the hint: %s", out)
	says := row.says
	if !strings.Contains(says, "(?P<hint>") {
		says += `(, \d+ times)? \(to allow: (?P<hint>.*)\)`
	}
	line := regexp.MustCompile(`(?m)^pccrun: ` + says + `$`)
	found := line.FindStringSubmatch(out)
	require.NotNil(t, found, "%s: %s", says, out)
	advice := found[line.SubexpIndex("hint")]
	t.Log(advice)
	before, flags, is := strings.Cut(advice, " and ")
	if !is {
		before, flags = "true", advice
	}
	if with, instead, is := strings.Cut(flags, " in place of "); is {
		require.Contains(t, pccrun, instead)
		pccrun, flags = strings.Replace(pccrun, instead, "", 1), with
	}
	again := func(flags string) (string, bool) {
		said, err := m.bash(row, m.home+"/repo", before)
		require.NoError(t, err, said)
		return m.run(t, row, pccrun+" -q "+flags+" --")
	}
	out, works = again(flags)
	require.True(t, works, "%s, after: %s", advice, out)
	each := regexp.MustCompile(` (--)`).ReplaceAllString(flags, "\n$1")
	if list := strings.Split(each, "\n"); len(list) > 1 {
		for i := range list {
			m.fresh(t, row)
			less := strings.Join(append(append([]string{}, list[:i]...), list[i+1:]...), " ")
			out, works = again(less)
			require.False(t, works, "it works with %s alone: %s", less, out)
		}
	}
}
