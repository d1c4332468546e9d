//go:build linux

package tools

import (
	"bytes"
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

	"github.com/pccrun/pccrun/internal/await"
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
	why     string   // what pccrun why is asked, whose hint it is; else it is the run's
	instead string   // of flags, that the hint stands for
	changes bool     // the command changes what is hidden, which is the hint's second way
	check   string   // for bash on the host: whether the command has done it
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

// ownKey has the repository name a public key in a hidden directory.
const ownKey = "mkdir ~/.ssh; mv key.pub ~/.ssh; git config user.signingkey ~/.ssh/key.pub; "

// building is a program that lacks its settings, in a script.
const building = `mkdir ~/.kube; echo s > ~/.kube/config; printf '#!/bin/sh\ncat ~/.kube/config\n' > ~/bin/kubectl; printf '#!/bin/sh\nset -e\necho begin\nkubectl get\n' > build; chmod +x ~/bin/kubectl build`

var hints = []hint{
	{name: "who signs, by gpg", needs: "git gpg gpgconf", prepare: key + identified + "git config commit.gpgsign true", script: "git commit -q --allow-empty -m x", says: "hidden: sign a commit", end: endKey},
	{name: "who signs one commit, by gpg", needs: "git gpg gpgconf", flags: "--profile build", prepare: key + identified, script: "git commit -q -S --allow-empty -m x", says: "hidden: sign a commit", end: endKey},
	{name: "who signs, by ssh", needs: "git ssh-agent ssh-add ssh-keygen", env: []string{"SSH_AUTH_SOCK=$HOME/agent"}, prepare: agent + "git config commit.gpgsign true", script: "git commit -q --allow-empty -m x", says: "hidden: sign a commit", end: endAgent},
	{name: "who signs one commit, by ssh", needs: "git ssh-agent ssh-add ssh-keygen", env: []string{"SSH_AUTH_SOCK=$HOME/agent"}, flags: "--profile build", prepare: agent, script: "git commit -q -S --allow-empty -m x", says: "hidden: sign a commit", end: endAgent},
	{name: "who signs, by a key that the repository names", needs: "git ssh-agent ssh-add ssh-keygen", env: []string{"SSH_AUTH_SOCK=$HOME/agent"}, prepare: agent + ownKey + "git config commit.gpgsign true", script: "git commit -q --allow-empty -m x", says: "hidden: sign a commit", end: endAgent},
	{name: "by which key a commit is signed", needs: "git ssh-agent ssh-add ssh-keygen", env: []string{"SSH_AUTH_SOCK=$HOME/agent"}, flags: "--use ssh-agent", prepare: agent + ownKey, script: "git commit -q -S --allow-empty -m x", says: "hidden: sign a commit", end: endAgent},
	{name: "a file that the repository's configuration names", needs: "git", prepare: identified + "mkdir ~/cfg; echo text > ~/cfg/template; git config commit.template ~/cfg/template", script: "EDITOR=true git commit -q --allow-empty --allow-empty-message", says: `hidden: read .*/cfg/template, which commit\.template of the repository names`},
	{name: "a remote that is a directory", needs: "git", prepare: "git init -q --bare ~/up.git; git remote add origin ../up.git", script: "git fetch -q", says: `hidden: read .*/up\.git, a remote of the repository`},
	{name: "a push to a directory", needs: "git", prepare: identified + `git init -q --bare ~/up.git; git remote add origin "file://$HOME/up.git"; git commit -q --allow-empty -m x`, script: "git push -q origin HEAD:refs/heads/pushed", says: `hidden: write .*/up\.git, a remote of the repository`, check: "git -C ~/up.git rev-parse -q --verify refs/heads/pushed"},
	{name: "a shared repository", needs: "git", prepare: "git init -q --shared; echo x > f", script: "git add f", says: "hidden: make a directory set-group-ID, as core.sharedRepository has git do"},
	{name: "a script that lacks something", prepare: building, script: "@./build", says: `hidden: read .*/\.kube/config`},
	{name: "a script of a shell's that lacks something", prepare: building, script: "@sh build", says: `hidden: read .*/\.kube/config`},
	{name: "a file of the home that the command names", prepare: "echo a > ~/notes.txt", script: "cat ~/notes.txt", says: `hidden: read .*/notes\.txt`},
	{name: "a directory beside the workspace", prepare: "mkdir '../a b'; echo a > '../a b/f'", script: "cat '../a b/f'", says: `hidden: read .*/a b/f`},
	{name: "a file that an option names", prepare: "echo a > ~/pattern; echo a > f", script: `grep -q --file="$HOME/pattern" f`, says: `hidden: read .*/pattern`},
	{name: "a file by a link of the workspace", prepare: "echo a > ~/data; ln -s ~/data l", script: "cat ./l", says: `hidden: read .*/data`},
	{name: "a file that a script names", prepare: "echo a > ~/notes.txt; echo 'cat ~/notes.txt' > s.sh", script: "@sh s.sh", says: `hidden: read .*/notes\.txt`},
	{name: "a file that a recipe names", needs: "make", prepare: `echo a > ~/notes.txt; printf 'all: sub\n\ttrue\nsub:\n\t@cat $$HOME/notes.txt\n' > Makefile`, script: "@make", says: `hidden: read .*/notes\.txt`},
	{name: "what a recipe starts", needs: "make", prepare: building + `; printf 'x:\n\tkubectl\n' > Makefile`, script: "@make", says: `hidden: read .*/\.kube/config`},
	{name: "a program of a virtual environment", prepare: `mkdir -p ~/venvs/x/bin; echo home > ~/venvs/x/pyvenv.cfg; ` + `printf '#!/bin/sh\ncat "${0%%/bin/*}/pyvenv.cfg"\n' > ~/venvs/x/bin/tool; chmod +x ~/venvs/x/bin/tool`, script: "~/venvs/x/bin/tool", says: `hidden: read .*/venvs/x/bin/tool`},
	{name: "a program beside the workspace", prepare: `mkdir ../other; printf '#!/bin/sh\necho ran\n' > ../other/tool; chmod +x ../other/tool`, script: "../other/tool", says: `hidden: read .*/other/tool`},
	{name: "the keys of gpg", needs: "gpg gpgconf", flags: trying, prepare: key + "echo text > text", script: "gpg --batch --quiet --yes -s text", says: `denied: read .*/\.gnupg`, end: endKey},
	{name: "a hidden file", prepare: "echo S=1 > .env", script: "cat .env", says: `hidden: read .*/\.env`},
	{name: "a hidden file that is removed", prepare: "mkdir -p d; echo S=1 > d/.env", script: "rm -rf d", says: `hidden: read .*/d/\.env`, changes: true},
	{name: "a hidden file that is moved", prepare: "mkdir -p d; echo S=1 > d/.env", script: "rm -rf e; mv d e", says: `hidden: read .*/d/\.env`, changes: true},
	{name: "a hidden file that git replaces", needs: "git", prepare: identified + "git commit -q --allow-empty -m one; git switch -q -c other; echo two > .env; git add .env; git commit -q -m two; git switch -q main; echo one > .env", script: "git switch -q -f other", says: `hidden: read .*/\.env`, changes: true},
	{name: "a hidden file that git cleans", needs: "git", prepare: "mkdir -p d; echo S=1 > d/.env", script: "git clean -q -f -d -x d", says: `hidden: read .*/d/\.env`, changes: true},
	{name: "a protected hidden file that is removed", prepare: "mkdir -p d; echo S=1 > d/.envrc", script: ": .envrc; rm -rf d", says: `hidden: read .*/d/\.envrc`, changes: true},
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
	// Projects beside the workspace, by a manifest and by npm link.
	{name: "a project beside this one", prepare: `mkdir -p ~/lib; echo module l > ~/lib/go.mod; printf 'module m\n\nreplace l => ../lib\n' > go.mod`, script: "cat ../lib/go.mod", says: `hidden: read .*/lib, which go\.mod names`},
	{name: "a package that is linked", prepare: `mkdir -p ~/lib node_modules/@a; echo {} > ~/lib/package.json; ln -s ~/lib node_modules/@a/lib`, script: "cat node_modules/@a/lib/package.json", says: `hidden: read .*/lib, which node_modules/@a/lib leads to`},
	{
		name: "what direnv finds above another directory", needs: "direnv", says: `hidden: read .*/\.local/share/direnv`,
		prepare: "mkdir -p sub/x; echo export A=1 > sub/.envrc; echo export A=2 > .envrc; direnv allow sub; direnv allow .",
		script:  `direnv exec sub/x sh -c '[ "$A" = 1 ]'`,
	},
	{name: "a service of the machine", script: ": http://localhost:$PORT/; exec 3<>/dev/tcp/localhost/$PORT", says: `hidden: connect localhost:\d+ of this machine`},
	{name: "a service of the machine, by its address", script: ": 127.0.0.1:$PORT; exec 3<>/dev/tcp/127.0.0.1/$PORT", says: `hidden: connect 127\.0\.0\.1:\d+ of this machine`},

	{name: "a service of the machine, by its name", flags: "--local $PORT", script: ": http://localhost:$PORT/; exec 3<>/dev/tcp/localhost/$PORT", says: `hidden: connect localhost:\d+ of this machine`},
	{name: "a service of the machine that only a file names", flags: "--allow a.example", prepare: "echo $PORT > conf", script: "exec 3<>/dev/tcp/localhost/$(cat conf)", says: `hidden: connect localhost:\d+ of this machine`},
	{name: "a service of the machine that a variable names", env: []string{"BASE_URL=http://localhost:$PORT"}, flags: "--env BASE_URL", script: `port=${BASE_URL##*:}; exec 3<>/dev/tcp/localhost/$port`, says: `hidden: connect localhost:\d+ of this machine`},
	{name: "a host of ssh's that is this machine", prepare: `mkdir -m 700 ~/.ssh; printf 'Host work\n HostName localhost\n Port $PORT\n' > ~/.ssh/config`, script: "getent hosts work || true; exec 3<>/dev/tcp/localhost/$PORT", says: `denied: resolve work`},

	{name: "write a file", flags: trying + " --read $HOME/out", prepare: "mkdir ~/out; echo a > ~/out/f", script: "echo x > ~/out/f", says: `denied: write .*/out/f`},
	{name: "make a file in the home", flags: trying + " --read $HOME", script: "echo x > ~/new", says: `denied: write .*/h/new`},
	{name: "write a protected file", flags: trying, prepare: "echo a > .mcp.json", script: "echo x > .mcp.json", says: `denied: write .*/\.mcp\.json`},
	{name: "make a file in a protected directory", flags: trying, prepare: "mkdir .vscode", script: "echo x > .vscode/new.json", says: `denied: write .*/new\.json`},
	{name: "make a directory in a protected one", flags: trying, prepare: "mkdir .claude", script: "mkdir -p .claude/worktrees; echo x > .claude/worktrees/f", says: `denied: write .*/worktrees`},
	{name: "write a protected file that is hidden", flags: trying, prepare: "echo a > .envrc", script: "echo x > .envrc", says: `denied: write .*/\.envrc`},
	{name: "write where a protected link leads", flags: trying, prepare: "mkdir cfg; echo a > cfg/m.json; ln -s cfg/m.json .mcp.json", script: "echo x > cfg/m.json", says: `denied: write .*/cfg/m\.json`},
	{name: "a pinned file", flags: "--report none", prepare: "echo a > .mcp.json", script: "rm .mcp.json", says: `pinned: \.mcp\.json: .*; (?P<hint>--review .*) allows changes`},
	{name: "a file that git writes by a copy", needs: "git", prepare: identified + `echo one > .mcp.json; git add .mcp.json; git commit -q -m one; git switch -q -c other; echo two > .mcp.json; git commit -q -a -m two; git switch -q main`, script: `git switch -q -f other; [ "$(git status --porcelain --untracked-files=no)" = "" ]`, says: `denied: change \.mcp\.json`},
	{name: "a name that is forbidden", flags: "--protect-strict", script: "echo x > .mcp.json", says: `denied: write .*/\.mcp\.json`},
	{name: "a name in quarantine", script: "mkdir -p sub; echo x > sub/.npmrc; echo x > sub/.envrc; while [ -e sub/.envrc ]; do sleep 0.02; done; [ -e sub/.npmrc ]", says: `quarantined: sub/\.npmrc \(npm would load it; to allow: (?P<hint>.*)\)`},
	{name: "a secret of the home", flags: trying, prepare: "mkdir ~/.ssh; echo k > ~/.ssh/known", script: "cat ~/.ssh/known", says: `denied: read .*/\.ssh`},
}

// mistakes are hints of a run that does not begin, or has lost what it was for, and of pccrun why.
var mistakes = []hint{
	{name: "a rule for what is not there", flags: "--write $HOME/data", script: "mkdir -p ~/data; echo x > ~/data/f", says: `hint: (?P<hint>mkdir -p \S+), or give its parent the access`},
	{name: "an overlay of a file", flags: "--overlay $HOME/o/f", instead: "--overlay $HOME/o/f", prepare: "mkdir ~/o; echo a > ~/o/f", script: "echo x > ~/o/f", says: `hint: (?P<hint>--overlay \S+)`},
	{name: "a private file", flags: "--private f", instead: "--private f", prepare: "echo a > f", script: "true", says: `hint: (?P<hint>--hide \S+)`},
	{name: "a rule by a link that the command could have made", flags: "--write l/f", instead: "--write l/f", prepare: "mkdir ~/out; echo a > ~/out/f; ln -s ~/out l", script: "echo x > ~/out/f", says: `hint: .*: (?P<hint>--write \S+)`},
	{name: "a rule for a protected name", flags: "--write .mcp.json", prepare: "echo a > .mcp.json", script: "echo x > .mcp.json", says: `hint: add (?P<hint>--review \.mcp\.json): .*`},
	{name: "a rule for a protected directory", flags: "--write .vscode", instead: "--write .vscode", prepare: "mkdir .vscode; echo a > .vscode/FILE", script: "echo x > .vscode/FILE", says: `hint: add .*; (?P<hint>--review \.vscode/FILE), or .*`},
	{name: "a rule that leads through a link", flags: "--read l", instead: "--read l", prepare: "mkdir ~/out; echo a > ~/out/f; ln -s ~/out l", script: "cat ~/out/f", says: `hint: .*: (?P<hint>--read \S+)`},
	{name: "a home as the workspace", flags: "--workspace $HOME", instead: "--workspace $HOME", script: "true", says: `hint: cd to a project, or name one: (?P<hint>--workspace DIR)`},
	{name: "a proxy of the machine", env: []string{"HTTPS_PROXY=http://localhost:$PORT"}, flags: "--allow a.example", script: "true", says: `hint: (?P<hint>--local \d+) allows it; .*`},
	{name: "a fresh home where there is none", flags: "--fresh-home", script: "true", says: `hint: (?P<hint>--home persist) gives one`},
	{name: "a socket that is a file", flags: "--socket $HOME/f", instead: "--socket $HOME/f", prepare: "echo a > ~/f", script: "cat ~/f", says: `hint: (?P<hint>--read \S+) shows a file that is not a socket`},
	{name: "the whole of /run", flags: "--read /run", instead: "--read /run", script: "true", says: `hint: name the path in it: (?P<hint>--read /run/NAME)`},
	{name: "names that cannot be forbidden", flags: "--protect-strict --nested", instead: "--nested", script: "true", says: `hint: without (?P<hint>--nested)`},
	{name: "a promise that is not kept", flags: "--without seccomp,floor,userns-limit,landlock --strict", script: "true", says: `hint: (?P<hint>--allow-missing \S+) runs (?:without it|although they are not kept)`},
	{name: "layers of another provider", flags: "--provider docker --without landlock", instead: "--provider docker", script: "true", says: `hint: (?P<hint>--provider native)`},
	{name: "a credential without a host", needs: "git", prepare: `git config --file ~/.gitconfig credential.helper '!f() { echo username=u; echo password=of-some-length; }; f'`, flags: "--use git-credentials", script: "true", says: `hint: (?P<hint>--allow HOST), as in the remote's address`},
	{name: "a secret without a host", env: []string{"TOKEN=a-secret-of-some-length"}, flags: "--inject TOKEN=a.example", script: "true", says: `hint: (?P<hint>--allow a\.example)`},
	{name: "a secret that is shown", flags: "--allow a.example --read $HOME/s --inject-file TOKEN=$HOME/s/t --inject TOKEN=a.example", prepare: "mkdir ~/s; echo a-secret-of-some-length > ~/s/t", script: "true", says: `hint: (?P<hint>--hide \S+)`},
	{name: "a port that is taken", flags: "--publish $PORT:8080", instead: "--publish $PORT:8080", script: "true", says: `hint: (?P<hint>--publish FREE:8080) uses a free port of this machine`},
	{name: "a server that a variable names", flags: "--profile opencode --fresh-home", env: []string{"OPENAI_BASE_URL=http://localhost:$PORT"}, script: `exec 3<>/dev/tcp/localhost/"${OPENAI_BASE_URL##*:}"`, says: `OPENAI_BASE_URL names .*, not allowed: (?P<hint>--env .*) opens it`},
	{name: "a descriptor of a file that could be reopened", flags: "--nested --pass-fd 5", instead: "--pass-fd 5", script: "cat ~/mine", says: `hint: (?P<hint>--read FILE), or a pipe.*`},
	{name: "a file of the home", script: "echo x > ~/report.md", check: "[ -s ~/report.md ]", says: `hint: .*; (?P<hint>touch \S+ before the run and --write \S+) keeps it the next time`},
	{name: "a directory of the home", script: "mkdir -p ~/report; echo x > ~/report/f", check: "[ -s ~/report/f ]", says: `hint: .*; (?P<hint>mkdir \S+ before the run and --write \S+) keeps it the next time`},

	{name: "why not write, by a copy", flags: "--read $HOME/out", prepare: "mkdir -p ~/out/d", script: "echo x > ~/out/d/f", why: "write $HOME/out/d", says: `hint: --write .*, (?P<hint>--overlay \S+) a copy of it`},
	{name: "why not read what is hidden", prepare: "echo S=1 > .env", script: "cat .env", why: "read .env", says: `hint: (?P<hint>--read \S+) shows it`},
	{name: "why not a socket", script: connect + "s", why: "connect $HOME/repo/s", says: `hint: (?P<hint>--socket \S+) names it`},
	{name: "why not a variable", env: []string{"A_TOKEN=x"}, script: `[ "$A_TOKEN" ]`, why: "env A_TOKEN", says: `hint: (?P<hint>--env A_TOKEN) passes it`},
	{name: "why not a service", script: "exec 3<>/dev/tcp/localhost/$PORT", why: "connect localhost:$PORT", says: `hint: (?P<hint>--local \S+) allows it`},
}

// TestHints follows hints to the letter: the command that was refused works then, and with any
// flag less of those that were printed it does not. What a flag's hint says for which path, and
// which call wants which flag, is tested in profiles and native.
//
//test:root docker_
func TestHints(t *testing.T) {
	m := newHintMachine(t)
	rows := append(hints, mistakes...)
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
	case program == "direnv":
		row.prepare = "mkdir -p ~/.local/share/direnv; echo s > ~/.local/share/direnv/allowed; echo A=1 > .envrc; " + tool("cat ~/.local/share/direnv/allowed .envrc")
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

func freePort(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	return port
}

// fresh makes the home anew, with what a row prepares.
func (m *hintMachine) fresh(t *testing.T, row *hint) {
	t.Helper()
	if row.end != "" {
		_, _ = m.bash(nil, "/", row.end) // of what the last one began
		t.Cleanup(func() { _, _ = m.bash(nil, "/", row.end) })
	}
	out, err := m.bash(nil, "/", `chmod -R u+rwX "$HOME" 2> /dev/null || true; rm -rf "$HOME"; mkdir -p ~/bin ~/repo; printf '[user]\n\tname = n\n\temail = e@example.com\n' > ~/identity
		cd ~/repo; echo mine > ~/mine; git init -q -b main .; `+strings.ReplaceAll(row.prepare, "$PORT", m.port))
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
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Dir, cmd.SysProcAttr, cmd.Env, cmd.WaitDelay = dir, user, m.environ, time.Second
	if row != nil {
		for _, v := range row.env {
			cmd.Env = append(cmd.Env, strings.NewReplacer("$HOME", m.home, "$PORT", m.port).Replace(v))
		}
	}
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Start()
	if err != nil {
		return "", err
	}
	defer time.AfterFunc(await.Patience, func() { _ = cmd.Process.Kill() }).Stop()
	err = cmd.Wait()
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
	expand := strings.NewReplacer("$HOME", m.home, "$PORT", m.port).Replace
	tried := func(prefix string) (string, bool) {
		out, works := m.run(t, row, prefix)
		if row.check != "" {
			_, err := m.bash(row, m.home+"/repo", row.check)
			works = works && err == nil
		}
		return out, works
	}
	m.fresh(t, row)
	pccrun := m.program + " " + expand(row.flags)
	out, works := tried(pccrun + " --")
	require.False(t, works, "without the hint: %s", out)
	begin, says := "(?m)^pccrun: ", row.says
	if row.why != "" {
		begin = "(?m)^  "
		out, _ = m.bash(row, m.home+"/repo", m.program+" why "+expand(row.why)+" "+expand(row.flags))
	}
	if !strings.Contains(says, "(?P<hint>") {
		says += `(, \d+ times)? \(to allow: (?P<hint>.*)\)`
	}
	line := regexp.MustCompile(begin + says + `$`)
	found := line.FindStringSubmatch(out)
	require.NotNil(t, found, "%s: %s", says, out)
	advice := strings.Replace(found[line.SubexpIndex("hint")], " before the run and ", " and ", 1)
	if read, change, two := strings.Cut(strings.TrimSuffix(advice, " to change or remove it"), ", or "); two && row.changes {
		advice = change
	} else {
		advice = read
	}
	t.Log(advice)
	before, flags, is := strings.Cut(advice, " and ")
	if !is && strings.HasPrefix(advice, "--") {
		before, flags = "true", advice
	}
	if strings.HasPrefix(advice, "umask ") { // of the shell in which pccrun is typed
		before, pccrun = "true", advice+"; "+pccrun
	}
	with, instead, is := strings.Cut(flags, " in place of ")
	if !is {
		instead = expand(row.instead)
	}
	if flags = with; flags == instead {
		flags = "" // to leave it out
	}
	if instead != "" {
		require.Contains(t, pccrun, instead)
		pccrun = strings.Replace(pccrun, instead, "", 1)
	}
	flags = strings.NewReplacer("FREE", freePort(t), "HOST", "a.example", " FILE", " ~/mine", " DIR", " ~/repo").Replace(flags) // what the user is to put there
	again := func(flags string) (string, bool) {
		said, err := m.bash(row, m.home+"/repo", before)
		require.NoError(t, err, said)
		return tried(pccrun + " -q " + flags + " --")
	}
	out, works = again(flags)
	require.True(t, works, "%s, after: %s", advice, out)
	if list := strings.Split(strings.ReplaceAll(flags, " --", "\n--"), "\n"); len(list) > 1 {
		for i := range list {
			m.fresh(t, row)
			less := strings.Join(append(append([]string{}, list[:i]...), list[i+1:]...), " ")
			out, works = again(less)
			require.False(t, works, "it works with %s alone: %s", less, out)
		}
	}
}
