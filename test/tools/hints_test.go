//go:build linux

package tools

import (
	"bytes"
	"errors"
	"net"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pccrun/pccrun/internal/await"
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
	by      string   // what the user does by a hint in words: HINT is what it says
	changes bool     // the command changes what is hidden, which is the hint's second way
	check   string   // for bash on the host: whether the command has done it
	end     string   // for bash, when all is done
}

// connect is a client of a socket.
const connect = `perl -MIO::Socket::UNIX -e 'IO::Socket::UNIX->new(shift) or exit 1' `

// trying are the flags by which a run hears of attempts.
const trying = "--report attempts"

// key makes a key of GnuPG's without a passphrase.
const key = `mkdir -m 700 ~/.gnupg; gpg --batch --quiet --passphrase '' --quick-generate-key 'n <n@example.com>' future-default default never; `

const identified = `git config user.name n; git config user.email n@example.com; `

// base makes a repository in the home.
const base = `git init -q -b main ~/base; git -C ~/base -c user.name=n -c user.email=n@example.com commit -q --allow-empty -m one; `

// snapshot makes a snapshot that is called kept, with a file new.
const snapshot = "pccrun -q --overlay . -- touch new; rm -rf ~/.local/state/pccrun/snapshots; pccrun snapshot kept; "

// agent runs one that has a key for signatures.
const (
	agent    = `mkdir -m 700 ~/.ssh; ssh-keygen -q -t ed25519 -N '' -f ~/.ssh/sign; ssh-agent -a ~/agent > ~/agent.sh; . ~/agent.sh; ssh-add -q ~/.ssh/sign; git config gpg.format ssh; git config commit.gpgSign true; `
	endAgent = `[ ! -e ~/agent.sh ] || { . ~/agent.sh; kill $SSH_AGENT_PID; while [ -e /proc/$SSH_AGENT_PID/exe ]; do sleep 0.02; done; }`
)

const endKey = `pid=$(gpg-connect-agent --no-autostart 'getinfo pid' /bye | sed -n 's/^D //p'); gpgconf --kill gpg-agent; while [ -e /proc/$pid/exe ]; do sleep 0.02; done`

var hints = []hint{
	// What the words of the command name.
	{name: "a file of the home", prepare: "echo a > ~/notes.txt", script: "@cat ~/notes.txt", says: `hidden: read .*/notes\.txt`},
	{name: "a file beside the workspace", prepare: "mkdir '../a b'; echo a > '../a b/f'", script: "@cat '../a b/f'", says: `hidden: read .*/a b/f`},
	{name: "a file to be made where nothing is shown", prepare: "mkdir ~/docs; echo a > a", script: "@cp a ~/docs/b", check: "[ -s ~/docs/b ]", says: `hidden: write .*/docs/b`},
	{name: "a directory beside the workspace", prepare: "mkdir ../d; echo a > ../d/f", script: "@grep -rq a ../d", says: `hidden: read .*/d`},
	{name: "a file that an option names", prepare: "echo a > ~/pattern; echo a > f", script: "@grep -q --file=$HOME/pattern f", says: `hidden: read .*/pattern`},
	{name: "a hidden file", prepare: "echo S=1 > .env", script: "@cat .env", says: `hidden: read .*/\.env`},
	{name: "a hidden file that is removed", prepare: "mkdir -p d; echo S=1 > d/.env", script: "@rm -f d/.env", says: `hidden: read .*/d/\.env`, changes: true},
	{name: "a hidden file that is moved", prepare: "mkdir -p d; echo S=1 > d/.env", script: "@mv d/.env d/e", says: `hidden: read .*/d/\.env`, changes: true},
	{name: "a protected hidden file that is removed", prepare: "mkdir -p d; echo S=1 > d/.envrc", script: "@rm -f d/.envrc", says: `hidden: read .*/d/\.envrc`, changes: true},
	{name: "a hidden file of an odd name", prepare: `mkdir "a b"; echo S=1 > "a b/.env"`, script: `@cat "a b/.env"`, says: `hidden: read .*/a b/\.env`},
	{name: "a hidden file that git adds", needs: "git", prepare: "echo S=1 > .env; echo a > f; mkdir -p d; echo S=1 > d/.env.ignored; echo .env.ignored > .gitignore", script: "@git add -A", says: `hidden: read .*/\.env, which git would add \(to allow: (?P<hint>.*)\)`},
	{name: "a socket in the workspace", script: "@" + connect + "s", says: `hidden: connect .*/s`},
	{name: "a socket in the home", script: "@" + connect + "~/s", says: `hidden: connect .*/h/s`},
	{name: "a package manager", needs: "npm", env: []string{"npm_config_registry=http://mirror.example"}, script: `(exec -a npm bash -c ': < /dev/tcp/registry.example/443') || [ "$npm_config_registry" = http://mirror.example ]`, says: `denied: resolve registry\.example`},
	{name: "a package mirror of this machine", needs: "npm", env: []string{"npm_config_registry=http://localhost:$PORT"}, flags: "--allow @npm", script: `[ "$npm_config_registry" = http://localhost:$PORT ]; exec 3<> /dev/tcp/localhost/$PORT`, says: `hint: (?P<hint>--local \d+) opens the port`},
	{name: "a socket that is tried", flags: trying, script: connect + "~/s", says: `hidden: connect .*/h/s`},
	// What the workspace names.
	{name: "where a link of the workspace leads", prepare: "mkdir -p ~/cache/nm; echo a > ~/cache/nm/f; ln -s ~/cache/nm node_modules", script: "cat node_modules/f", says: `hidden: read .*/cache/nm, where node_modules leads`},
	{name: "where a link to a link leads", prepare: "mkdir -p ~/cache/nm; echo a > ~/cache/nm/f; ln -s cache ~/c; ln -s ../c/nm node_modules", script: "cat node_modules/f", says: `hidden: read .*/c, where node_modules leads`},
	{name: "a package that npm has linked", prepare: "mkdir -p ~/lib node_modules/@a; echo a > ~/lib/f; ln -s ../../../lib node_modules/@a/lib; ln -s ../../f node_modules/@a/own; ln -s ../../lib node_modules/lib", script: "cat node_modules/@a/lib/f", says: `hidden: read .*/lib, where node_modules/@a/lib leads`},
	{name: "writing where a link of the workspace leads", prepare: "mkdir -p ~/cache/tg; ln -s ~/cache/tg target", script: "echo x > target/x", check: "[ -e ~/cache/tg/x ]", says: `hidden: write .*/cache/tg, where target leads; what was written is gone`},
	{name: "the objects of a shared clone", needs: "git", prepare: base + "rm -rf .git; git clone -q -s ~/base c; mv c/.git .; rmdir c", script: "git log -1", says: `hidden: read .*/base/\.git/objects, which \.git/objects/info/alternates names`},
	{name: "a remote in the home", needs: "git", prepare: base + "git remote add up ~/base", script: "git fetch -q up", says: `hidden: read .*/base, which is the remote up`},
	{name: "a remote in the home, to push to", needs: "git", prepare: base + "git remote add up ~/base; git fetch -q up", script: "git push -q up up/main:refs/heads/new", says: `hidden: write .*/base, which is the remote up`},
	{name: "the objects of a shared clone, in a private directory", needs: "git", prepare: base + "rm -rf .git /var/tmp/pccrun-hints-$UID; mv ~/base /var/tmp/pccrun-hints-$UID; git clone -q -s /var/tmp/pccrun-hints-$UID c; mv c/.git .; rmdir c", script: "git log -1", says: `hidden: read /var/tmp/pccrun-hints-\d+/\.git/objects, which \.git/objects/info/alternates names`, end: "rm -rf /var/tmp/pccrun-hints-$UID"},
	{name: "a git directory apart", needs: "git", prepare: base + "rm -rf .git; git clone -q --separate-git-dir ~/apart ~/base c; mv c/.git .; rmdir c", script: "git log -1; git -c user.name=n -c user.email=e commit -q --allow-empty -m x", says: `.* links to .*/apart, which does not point back, and is not shown: if it is this directory's, (?P<hint>--write \S+) shows it`},
	{name: "a git directory apart, read-only", flags: "--read $HOME/apart", instead: "--read $HOME/apart", needs: "git", prepare: base + "rm -rf .git; git clone -q --separate-git-dir ~/apart ~/base c; mv c/.git .; rmdir c", script: "git -c user.name=n -c user.email=e commit -q --allow-empty -m x", says: `.* links to .*/apart, which does not point back, and stays read-only: if it is this directory's, (?P<hint>--write \S+) lets git write`},
	{name: "the repository of a linked worktree", flags: trying, needs: "git", prepare: base + "rm -rf ~/repo/.git; git -C ~/base worktree add -q ~/repo -b w", script: "git worktree add -q new; git -C new log -1; git gc -q", says: `denied: write .*/base/\.git/worktrees/new`},
	{name: "a repository of a group", needs: "git", prepare: "rm -rf .git; git init -q --shared=group .", script: "echo a > a; git add a", says: `git makes no directory in .*/repo/\.git: core.sharedRepository has it set the set-group-ID bit, which the sandbox refuses`},
	{name: "what signs by gpg", needs: "git gpg gpgconf", prepare: key + "git config commit.gpgSign true", script: "git -c user.name=n -c user.email=n@example.com commit -q --allow-empty -m x", says: `denied: read .*/\.gnupg`, end: endKey},
	{name: "what signs by ssh", needs: "git ssh-keygen ssh-agent ssh-add", env: []string{"SSH_AUTH_SOCK=$HOME/agent"}, prepare: agent + "git config user.signingKey ~/.ssh/sign.pub", script: "git -c user.name=n -c user.email=n@example.com commit -q --allow-empty -m x", says: `denied: read .*/\.ssh`, end: endAgent},
	{name: "what signs by ssh, with a key elsewhere", needs: "git ssh-keygen ssh-agent ssh-add", env: []string{"SSH_AUTH_SOCK=$HOME/agent"}, prepare: agent + "mv ~/.ssh/sign.pub ~; git config user.signingKey ~/sign.pub", script: "@git -c user.name=n -c user.email=n@example.com commit -q --allow-empty -m x", says: `your git configuration has commits signed, .*`, end: endAgent},
	{name: "a directory that a .pth file names", needs: "python3", prepare: "python3 -m venv --without-pip .venv; mkdir ~/lib; touch ~/lib/edited.py; echo ~/lib > $(echo .venv/lib/python3*/site-packages)/e.pth", script: ".venv/bin/python -c 'import edited'", says: `hidden: read .*/lib, which e\.pth names`},
	{name: "an environment elsewhere", needs: "python3", prepare: "python3 -m venv --without-pip ~/envs/a; ln -s ~/envs/a .venv", script: "[ $(PATH=$PWD/.venv/bin:$PATH; command -v python) = $PWD/.venv/bin/python ]", says: `hidden: read .*/envs/a, where \.venv leads`},
	{name: "a program of an environment elsewhere", needs: "python3", prepare: "python3 -m venv --without-pip ~/envs/a; ln -s ~/envs/a .venv", script: "@.venv/bin/python -c 1", says: `hint: (?P<hint>--read \S+) shows it: .* is hidden, where \.venv leads`},
	{name: "a program of a hidden environment", needs: "python3", prepare: "python3 -m venv --without-pip .env", script: "@.env/bin/python -c 1", says: `hint: (?P<hint>--read \S+) shows it`},
	{name: "an environment that is called .env", needs: "python3", prepare: "python3 -m venv --without-pip .env", script: ".env/bin/python -c 1", says: `.*/\.env is a virtual environment of Python, and is hidden for its name`},
	// What it has asked for.
	{name: "a service of the machine", flags: "--allow a.example", prepare: "echo $PORT > conf", script: "exec 3<>/dev/tcp/localhost/$(cat conf)", says: `hidden: connect localhost:\d+ of this machine`},
	{name: "a service of the machine, without a network", prepare: "echo $PORT > conf", script: "exec 3<>/dev/tcp/localhost/$(cat conf)", says: `hidden: connect localhost:\d+ of this machine`},
	{name: "a service of the machine, and no error", prepare: "echo $PORT > conf; rm -f reached", script: "(exec 3<>/dev/tcp/localhost/$(cat conf)) && touch reached; exit 0", check: "[ -e reached ]", says: `hidden: connect localhost:\d+ of this machine`},
	{name: "a service of the machine, and a signal", prepare: "echo $PORT > conf; rm -f reached", script: "(exec 3<>/dev/tcp/localhost/$(cat conf)) && touch reached && exit 0; kill -9 $$", says: `hidden: connect localhost:\d+ of this machine`},
	{name: "a secret of the home", flags: trying, prepare: "mkdir ~/.ssh; echo k > ~/.ssh/known", script: "cat ~/.ssh/known", says: `denied: read .*/\.ssh`},
	{name: "the keys of gpg", needs: "gpg gpgconf", flags: trying, prepare: key + "echo text > text", script: "gpg --batch --quiet --yes -s text", says: `denied: read .*/\.gnupg`, end: endKey},
	{name: "the settings of kubectl", flags: trying, prepare: "mkdir ~/.kube; echo s > ~/.kube/config", script: "cat ~/.kube/config", says: `denied: read .*/\.kube`},
	{name: "the settings of a client", flags: trying, prepare: "mkdir ~/.aws; echo s > ~/.aws/config", script: "cat ~/.aws/config; echo x > ~/.aws/session", says: `denied: read .*/\.aws`},
	{name: "the passwords of pass", needs: "gpg gpgconf", flags: trying, prepare: key + "mkdir ~/.password-store; echo s | gpg --batch --quiet -e -r n@example.com -o ~/.password-store/x.gpg", script: "gpg --batch --quiet --decrypt ~/.password-store/x.gpg; : > ~/.password-store/.lock", says: `denied: read .*/\.password-store`, end: endKey},

	{name: "write a file", flags: trying + " --read $HOME/out", prepare: "mkdir ~/out; echo a > ~/out/f", script: "echo x > ~/out/f", says: `denied: write .*/out/f`},
	{name: "make a file in the home", flags: trying + " --read $HOME", script: "echo x > ~/new", says: `denied: write .*/h/new`},
	{name: "write a protected file", flags: trying, prepare: "echo a > .mcp.json", script: "echo x > .mcp.json", says: `denied: write .*/\.mcp\.json`},
	{name: "make a file in a protected directory", flags: trying, prepare: "mkdir .vscode", script: "echo x > .vscode/new.json", says: `denied: write .*/new\.json`},
	{name: "make a directory in a protected one", flags: trying, prepare: "mkdir .claude", script: "mkdir -p .claude/worktrees; echo x > .claude/worktrees/f", says: `denied: write .*/worktrees`},
	{name: "keep what a tool fills in a protected directory", prepare: "mkdir .husky", script: "mkdir -p .husky/_; echo x > .husky/_/h", check: "[ -e .husky/_/h ]", says: `hint: .*; (?P<hint>mkdir .* and --write \S+) keep it the next time`},
	{name: "a FIFO that stood", flags: trying, prepare: "mkfifo p", script: "cat p & echo x > p && wait", says: `denied: write .*/p`},
	{name: "write a protected file that is hidden", flags: trying, prepare: "echo a > .envrc", script: "echo x > .envrc", says: `denied: write .*/\.envrc`},
	{name: "write where a protected link leads", flags: trying, prepare: "mkdir cfg; echo a > cfg/m.json; ln -s cfg/m.json .mcp.json", script: "echo x > cfg/m.json", says: `denied: write .*/cfg/m\.json`},
	{name: "write where a protected link to a directory leads", flags: trying, prepare: "mkdir -p .claude shared; echo a > shared/x; ln -s ../shared .claude/skills", script: "echo x > .claude/skills/x", says: `denied: write .*/shared/x`},
	{name: "a file that git writes by a copy", needs: "git", prepare: identified + `echo one > .mcp.json; git add .mcp.json; git commit -q -m one; git switch -q -c other; echo two > .mcp.json; git commit -q -a -m two; git switch -q main`, script: `git switch -q -f other; [ "$(git status --porcelain --untracked-files=no)" = "" ]`, says: `denied: change \.mcp\.json`},
	{name: "a name that is forbidden", flags: "--protect-strict", script: "echo x > .mcp.json", says: `denied: write .*/\.mcp\.json`},
	{name: "a directory in quarantine", script: "for i in $(seq 500); do mkdir -p .zed && rmdir .zed || { echo x > .zed/left; exit 1; }; done", says: `quarantined: \.zed \(Zed would run programs that it names; to allow: (?P<hint>.*)\)`},
	{name: "a name in quarantine", script: "mkdir -p sub; echo x > sub/.npmrc; echo x > sub/.envrc; while [ -e sub/.envrc ]; do sleep 0.02; done; [ -e sub/.npmrc ]", says: `quarantined: sub/\.npmrc \(npm would load it; to allow: (?P<hint>.*)\)`},
}

// learned are refusals that pccrun learn prints, of most of which a run has no record.
var learned = []hint{
	{name: "learn a hidden file", prepare: "echo S=1 > .env", script: "sh -c 'cat .env'", says: `denied: read .*/\.env`},
	{name: "learn a hidden file of an odd name", prepare: `mkdir "a b"; echo S=1 > "a b/.env"`, script: `cat "a b/.env"`, says: `denied: read .*/a b/\.env`},
	{name: "learn a write of a protected file", prepare: "echo a > .mcp.json", script: "sh -c 'echo x > .mcp.json'", says: `denied: write .*/\.mcp\.json`},
	{name: "learn a directory in a protected one", prepare: "mkdir .husky", script: "mkdir -p .husky/new; echo x > .husky/new/f", says: `denied: write .*/\.husky/new`},
	{name: "learn a file beside the workspace", prepare: "mkdir ../lib; echo a > ../lib/f", script: "sh -c 'cat ../lib/f'", says: `denied: read .*/lib/f`},
	{name: "learn a write beside the workspace", prepare: "mkdir -p ../lib", script: "echo x > ../lib/g", check: "[ -e ~/lib/g ]", says: `denied: write .*/lib/g`},
	{name: "learn a directory", prepare: "mkdir ../lib", script: "cd ../lib", says: `denied: read .*/lib`},
	{name: "learn a program", prepare: "mkdir ../tools; printf '#!/bin/sh\n' > ../tools/p; chmod +x ../tools/p", script: "../tools/p", says: `denied: read .*/tools/p`},
	{name: "learn a removal", flags: "--read $HOME/out", prepare: "mkdir ../out; echo a > ../out/f", script: "rm ../out/f", says: `denied: write .*/out/f`},
	{name: "learn a socket", script: connect + "s", says: `denied: .*/repo/s`},
	{name: "learn a service", script: "exec 3<>/dev/tcp/localhost/$PORT", says: `denied: localhost:\d+ of this machine`},
}

// mistakes are hints of a run that does not begin, or has lost what it was for, and of pccrun why.
var mistakes = []hint{
	{name: "a rule for what is not there", flags: "--write $HOME/data", script: "mkdir -p ~/data; echo x > ~/data/f", says: `hint: (?P<hint>mkdir -p \S+), or give its parent the access`},
	{name: "an overlay of a file", flags: "--overlay $HOME/o/f", instead: "--overlay $HOME/o/f", prepare: "mkdir ~/o; echo a > ~/o/f", script: "echo x > ~/o/f", says: `hint: (?P<hint>--overlay \S+)`},
	{name: "a private file", flags: "--private f", instead: "--private f", prepare: "echo a > f", script: "true", says: `hint: (?P<hint>--hide \S+)`},
	{name: "a rule by a link that the command could have made", flags: "--write l/f", instead: "--write l/f", prepare: "mkdir ~/out; echo a > ~/out/f; ln -s ~/out l", script: "echo x > ~/out/f", says: `hint: .*: (?P<hint>--write \S+)`},
	{name: "a rule for a protected name", flags: "--write .mcp.json", prepare: "echo a > .mcp.json", script: "echo x > .mcp.json", says: `hint: add (?P<hint>--review \.mcp\.json): .*`},
	{name: "a rule for a protected directory", flags: "--write .vscode", instead: "--write .vscode", prepare: "mkdir .vscode; echo a > .vscode/FILE", script: "echo x > .vscode/FILE", says: `hint: add .*; (?P<hint>--review \.vscode/FILE), or .*`},
	{name: "a rule for a link in a protected directory", flags: "--review .claude/s.json", instead: "--review .claude/s.json", prepare: "mkdir -p .claude cfg; echo a > cfg/s.json; ln -s ../cfg/s.json .claude/s.json", script: "echo x > .claude/s.json", says: `hint: (?P<hint>--review \.claude)`},
	{name: "a rule that leads through a link", flags: "--read l", instead: "--read l", prepare: "mkdir ~/out; echo a > ~/out/f; ln -s ~/out l", script: "cat ~/out/f", says: `hint: .*: (?P<hint>--read \S+)`},
	{name: "a home as the workspace", flags: "--workspace $HOME", instead: "--workspace $HOME", script: "true", says: `hint: cd to a project, or name one: (?P<hint>--workspace DIR)`},
	{name: "a fresh home where there is none", flags: "--fresh-home", script: "true", says: `hint: (?P<hint>--home persist) gives one`},
	{name: "a socket that is a file", flags: "--socket $HOME/f", instead: "--socket $HOME/f", prepare: "echo a > ~/f", script: "cat ~/f", says: `hint: (?P<hint>--read \S+) shows a file that is not a socket`},
	{name: "the whole of /run", flags: "--read /run", instead: "--read /run", script: "true", says: `hint: name the path in it: (?P<hint>--read /run/NAME)`},
	{name: "names that cannot be forbidden", flags: "--protect-strict --nested", instead: "--nested", script: "true", says: `hint: without (?P<hint>--nested)`},
	{name: "a promise that is not kept", flags: "--strict --home persist --disk 1g", script: "true", says: `hint: (?P<hint>--allow-missing \S+) runs (?:without it|although they are not kept)`},
	{name: "layers of another provider", flags: "--provider docker --without landlock", instead: "--provider docker", script: "true", says: `hint: (?P<hint>--provider native)`},
	{name: "a credential without a host", needs: "git", prepare: `git config --file ~/.gitconfig credential.helper '!f() { echo username=u; echo password=of-some-length; }; f'`, flags: "--use git-credentials", script: "true", says: `hint: (?P<hint>--allow HOST), as in the remote's address`},
	{name: "a secret without a host", env: []string{"TOKEN=a-secret-of-some-length"}, flags: "--inject TOKEN=a.example", script: "true", says: `hint: (?P<hint>--allow a\.example)`},
	{name: "a secret that is shown", flags: "--allow a.example --read $HOME/kept --inject-file TOKEN=$HOME/kept/t --inject TOKEN=a.example", prepare: "mkdir ~/kept; echo a-secret-of-some-length > ~/kept/t", script: "true", says: `hint: (?P<hint>--hide \S+)`},
	{name: "a port that is taken", flags: "--publish $PORT:8080", instead: "--publish $PORT:8080", script: "true", says: `hint: (?P<hint>--publish FREE:8080) uses a free port of this machine`},
	{name: "a server that an agent's settings name", flags: "--profile codex --fresh-home", prepare: `mkdir ~/.codex; printf 'model_provider = "lm"\n[model_providers.lm]\nbase_url = "http://localhost:%s/v1"\n' $PORT > ~/.codex/config.toml`, script: `exec 3<>/dev/tcp/localhost/$(sed -n 's|.*localhost:\([0-9]*\).*|\1|p' ~/.codex/config.toml)`, says: `.*/\.codex/config\.toml names .*, not allowed: (?P<hint>--local .*) opens it`},
	{name: "a server that a variable names", flags: "--profile opencode --fresh-home", env: []string{"OPENAI_BASE_URL=http://localhost:$PORT"}, script: `exec 3<>/dev/tcp/localhost/"${OPENAI_BASE_URL##*:}"`, says: `OPENAI_BASE_URL names .*, not allowed: (?P<hint>--env .*) opens it`},
	{name: "a descriptor of a file that could be reopened", flags: "--nested --pass-fd 5", instead: "--pass-fd 5", script: "cat ~/mine", says: `hint: (?P<hint>--read FILE), or a pipe.*`},
	{name: "what the configuration of git names", needs: "git", prepare: `mkdir ~/.ssh; echo '*.o' > ~/.ssh/x; git config --file ~/.gitconfig core.excludesFile ~/.ssh/x`, script: `touch a.o; [ "$(git status --short a.o)" = "" ]`, says: `\S+ is hidden, and your git configuration names it: git does without it inside \(to allow: (?P<hint>--read \S+)\)`},
	{name: "a file of the home", script: "echo x > ~/report.md", check: "[ -s ~/report.md ]", says: `hint: .*; (?P<hint>touch \S+ before the run and --write \S+) keeps it the next time`},
	{name: "a directory of the home", script: "mkdir -p ~/report; echo x > ~/report/f", check: "[ -s ~/report/f ]", says: `hint: .*; (?P<hint>mkdir \S+ before the run and --write \S+) keeps it the next time`},

	// What is spelled wrong, or is not what it has to be.
	{name: "a token on the command line", needs: "git", env: []string{"GITHUB_TOKEN=a-secret-of-some-length"}, flags: "--github-token ghp_x", instead: "--github-token ghp_x", prepare: "git config remote.origin.url git@github.com:acme/app.git", script: "[ $GITHUB_TOKEN ]", says: `hint: (?P<hint>--github-token origin) takes .*`},
	{name: "a profile that is misspelled", flags: "--profile buidl", instead: "--profile buidl", script: "true", says: `hint: did you mean (?P<hint>\w+)\?`, by: "--profile HINT"},
	{name: "a guarantee that is misspelled", flags: "--allow-missing fs.hid", instead: "--allow-missing fs.hid", script: "true", says: `hint: did you mean (?P<hint>\S+)\?`, by: "--allow-missing HINT"},
	{name: "a service that is misspelled", flags: "--use git-confg", instead: "--use git-confg", script: "true", says: `hint: did you mean (?P<hint>\S+)\?`, by: "--use HINT"},
	{name: "a provider that is misspelled", flags: "--provider natve", instead: "--provider natve", script: "true", says: `hint: did you mean (?P<hint>\w+)\?.*`, by: "--provider HINT"},
	{name: "a profile by a path in a variable", env: []string{"PCCRUN_PROFILE=$HOME/p.jsonc"}, prepare: "echo '{}' > ~/p.jsonc", script: "true", says: `hint: (?P<hint>--profile) takes a path too`, by: "HINT $HOME/p.jsonc"},
	{name: "a key that is misspelled", flags: "--profile $HOME/p.jsonc", prepare: `echo '{"filesytem": {"~/mine": "read"}}' > ~/p.jsonc`, script: "cat ~/mine", says: `hint: did you mean (?P<hint>\w+)\?`, by: "sed -i s/filesytem/HINT/ ~/p.jsonc and "},
	{name: "a key in the wrong place", flags: "--profile $HOME/p.jsonc", prepare: `echo '{"allow": ["a.example"]}' > ~/p.jsonc`, script: "true", says: `hint: it belongs in (?P<hint>\w+)`, by: `echo '{"HINT": {"allow": ["a.example"]}}' > ~/p.jsonc and `},
	{name: "a text for a list", flags: "--profile $HOME/p.jsonc", prepare: `echo '{"protect": {"deny": "x"}}' > ~/p.jsonc`, script: "true", says: `hint: write (?P<hint>\[.*\])`, by: `echo '{"protect": {"deny": HINT}}' > ~/p.jsonc and `},
	{name: "a value for a name", flags: "--profile $HOME/p.jsonc", prepare: `echo '{"environment": {"pass": ["A=b"]}}' > ~/p.jsonc`, script: "[ $A = b ]", says: `hint: environment\.set gives a value: (?P<hint>"set": .*)`, by: `echo '{"environment": {HINT}}' > ~/p.jsonc and `},
	{name: "a variable in a path", flags: "--read '${HOME}/mine'", instead: "--read '${HOME}/mine'", script: "cat ~/mine", says: `hint: .*write (?P<hint>~) for the home.*`, by: "--read HINT/mine"},
	{name: "a pattern outside of the workspace", flags: "--read '$HOME/d*'", instead: "--read '$HOME/d*'", prepare: "mkdir ~/d; echo a > ~/d/f", script: "cat ~/d/f", says: `hint: name the directory itself: (?P<hint>\S+)`, by: "--read HINT"},
	{name: "a secret that is too short", flags: "--allow a.example --inject-file TOKEN=$HOME/t --inject TOKEN=a.example", prepare: "echo short > ~/t", script: "true", says: `hint: want a value of at least 12 bytes in the file (?P<hint>\S+)`, by: "echo a-secret-of-some-length > HINT and "},
	{name: "secrets as the workspace", flags: "--workspace $HOME/.aws", instead: "--workspace $HOME/.aws", prepare: "mkdir ~/.aws", script: "true", says: `hint: (?P<hint>cd to a project); .*`, by: "--workspace $HOME/repo"},
	{name: "a question without a terminal", flags: "--ask", instead: "--ask", script: "true", says: `hint: (?P<hint>--allow) RULE allows a host`, by: "HINT a.example"},
	{name: "Docker at a port of this machine", flags: "--use docker", instead: "--use docker", env: []string{"DOCKER_HOST=tcp://localhost:$PORT"}, script: `exec 3<>/dev/tcp/localhost/"${DOCKER_HOST##*:}"`, says: `hint: (?P<hint>--local \S+ --env DOCKER_HOST) reaches it`},
	{name: "Docker at a host", flags: "--use docker", instead: "--use docker", env: []string{"DOCKER_HOST=tcp://a.example:2375"}, script: `[ "$DOCKER_HOST" ]`, says: `hint: --allow a\.example:2375 (?P<hint>--env DOCKER_HOST) reaches it`},
	{name: "a snapshot that is not there", flags: "--from kep", instead: "--from kep", prepare: snapshot, script: "[ -e new ]", says: `hint: (?P<hint>pccrun snapshot list) lists them`, by: "HINT | grep -q kept and --from kept"},
	{name: "a snapshot by a path", flags: "--from ./kept", instead: "--from ./kept", prepare: snapshot, script: "[ -e new ]", says: `hint: a snapshot has (?P<hint>a name) and no path: .*`, by: "--from kept"},
	{name: "a cloud that is not set up", flags: "--provider e2b", instead: "--provider e2b", script: "true", says: `hint: set it, or (?P<hint>--provider native) runs on this machine`},
	{name: "too many ports", flags: "$(printf -- '--local localhost:%s ' {9001..9400})", instead: "$(printf -- '--local localhost:%s ' {9001..9400})", script: "true", says: `hint: (?P<hint>name only the ports that are used), .*`, by: "--local $PORT"},
	{name: "a client that is set up for no host", flags: "--allow @npm", instead: "--allow @npm", prepare: "echo 'registry=nonsense' > ~/.npmrc", script: "true", says: `hint: name the hosts that your client is set up for: (?P<hint>--allow HOST)`},
	{name: "a protected link to the workspace", flags: "--profile $HOME/p.jsonc", prepare: `ln -s repo ~/l; echo '{"protect": {"deny": ["~/l"]}}' > ~/p.jsonc`, script: "true", says: `hint: (?P<hint>--review \S+)`},
	{name: "a socket of the network that is handed in", flags: "--pass-fd 6 6<> /dev/tcp/localhost/$PORT", instead: "--pass-fd 6 6<> /dev/tcp/localhost/$PORT", script: "true <&6", says: `hint: (?P<hint>use a pipe) .*`, by: "true and --pass-fd 6 6< <(echo x)"},
	// Limits that were met.
	{name: "the memory is spent", flags: "--memory 64m", instead: "--memory 64m", script: `perl -e '$a = "x" x (256 << 20)'`, says: `hint: (?P<hint>--memory SIZE) sets the limit`},
	{name: "the disk is full", flags: "--disk 8m", instead: "--disk 8m", script: "head -c 32M /dev/zero > /tmp/f", says: `hint: (?P<hint>--disk SIZE) sets the limit.*`},

	{name: "why not write, by a copy", flags: "--read $HOME/out", prepare: "mkdir -p ~/out/d", script: "echo x > ~/out/d/f", why: "write $HOME/out/d", says: `hint: --write .*, (?P<hint>--overlay \S+) a copy of it`},
	{name: "why not read what is hidden", prepare: "echo S=1 > .env", script: "cat .env", why: "read .env", says: `hint: (?P<hint>--read \S+) shows it`},
	{name: "why not write where a protected link leads", prepare: "mkdir cfg; echo a > cfg/m.json; ln -s cfg/m.json .mcp.json", script: "echo x > cfg/m.json", why: "write cfg/m.json", says: `hint: (?P<hint>--review \S+) lets it change`},
	{name: "why not a socket", script: connect + "s", why: "connect $HOME/repo/s", says: `hint: (?P<hint>--socket \S+) names it`},
	{name: "why not a variable", env: []string{"A_TOKEN=x"}, script: `[ "$A_TOKEN" ]`, why: "env A_TOKEN", says: `hint: (?P<hint>--env A_TOKEN) passes it`},
	{name: "why not a service", script: "exec 3<>/dev/tcp/localhost/$PORT", why: "connect localhost:$PORT", says: `hint: (?P<hint>--local \S+) allows it`},
}

// TestHints follows hints to the letter: the command that was refused works then, and with any
// flag less of those that were printed it does not. What a flag's hint says for which path, and
// which call wants which flag, is tested in profiles and native. Root follows one as the user whom
// it makes.
//
//test:root ^a_file_of_the_home$
func TestHints(t *testing.T) {
	m := newHintMachine(t)
	for _, row := range slices.Concat(hints, learned, mistakes) {
		t.Run(row.name, func(t *testing.T) {
			for _, n := range strings.Fields(row.needs) {
				if _, err := exec.LookPath(n); err != nil {
					t.Skip("needs", n)
				}
			}
			m.follow(t, &row)
		})
	}
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
	for _, path := range []string{m.home + "/repo/s", m.home + "/s"} {
		l, err := net.Listen("unix", path)
		require.NoError(t, err)
		require.NoError(t, os.Chmod(path, 0o777))
		t.Cleanup(func() { l.Close() })
	}
}

func (m *hintMachine) bash(row *hint, dir, script string, args ...string) (string, error) {
	argv := append([]string{"bash", "-euc", "pccrun() { " + m.program + ` "$@"; }; ` + script}, args...)
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Dir, cmd.SysProcAttr, cmd.Env, cmd.WaitDelay = dir, m.user, m.environ, time.Second
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
	out, err := m.bash(row, m.home+"/repo", "umask 022; "+prefix+" "+command+" 5< ~/mine", "bash", strings.ReplaceAll(row.script, "$PORT", m.port))
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
	first := pccrun
	if strings.HasPrefix(row.name, "learn ") {
		first = m.program + " learn " + expand(row.flags)
	}
	out, works := tried(first + " --")
	require.False(t, works, "without the hint: %s", out)
	begin, says := "(?m)pccrun: ", row.says // what the command prints in pieces may stand before it
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
	if row.by != "" {
		advice = strings.ReplaceAll(expand(row.by), "HINT", advice)
	}
	t.Log(advice)
	before, flags, is := strings.Cut(advice, " and ")
	if !is && strings.HasPrefix(advice, "--") {
		before, flags = "true", advice
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
	flags = strings.NewReplacer("FREE", freePort(t), " HOST", " a.example", " FILE", " ~/mine", " DIR", " ~/repo", "SIZE", "1g").Replace(flags) // what the user is to put there
	again := func(flags string) (string, bool) {
		return tried(before + "\n" + pccrun + " -q " + flags + " --") // a umask holds in one shell
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
