//go:build linux

package tools

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pccrun/pccrun/test/internal/host"
)

// A layout is a home as developers have them: what runs in it outside runs inside
// and says the same.
type layout struct {
	needs   []string // programs; without them the row is skipped
	prepare string   // for sh -eu, in the home, which has an empty repository in ws
	env     []string // ~ is the home; NAME- takes one away
	shell   string   // what the caller's shell does first: ulimit, umask
	dir     string   // where it starts; "" is ws
	flags   []string
	script  string   // for sh
	command string   // a program that says the same where it is the command itself; "" for none
	want    string   // is what it prints, as it does outside; @ is the home
	says    []string // what pccrun says, a part of each line in order
}

const system = "/usr/local/bin:/usr/bin:/bin"

// built is the profile with git's configuration, in as few words as possible.
var built = []string{"--profile", "build", "-q"}

// brewed makes a prefix of Homebrew's in $d with a program that finds its data as those do.
const brewed = `mkdir -p $d/bin $d/opt $d/Cellar/b/1.7/bin $d/Cellar/b/1.7/share; ln -s ../Cellar/b/1.7 $d/opt/b; ln -s ../Cellar/b/1.7/bin/brewed $d/bin/brewed
	echo brewed > $d/Cellar/b/1.7/share/data; printf '#!/bin/sh\ncat %s/opt/b/share/data\n' "$d" > $d/Cellar/b/1.7/bin/brewed; chmod +x $d/Cellar/b/1.7/bin/brewed`

var layouts = map[string]layout{
	"the control": {script: `pwd; echo $HOME`, want: "@/ws\n@\n"},

	// Version managers: what PATH names is a shim, and what that starts lies elsewhere.
	"pyenv": {
		prepare: `mkdir -p .pyenv/shims .pyenv/libexec .pyenv/versions/3.9/bin
			printf '#!/bin/sh\nPYENV_ROOT=%s exec %s/.pyenv/libexec/pyenv exec "${0##*/}" "$@"\n' "$HOME" "$HOME" > .pyenv/shims/py
			printf '#!/bin/sh\nshift; exec ~/.pyenv/versions/$(cat ~/.pyenv/version)/bin/"$@"\n' > .pyenv/libexec/pyenv
			printf '#!/bin/sh\necho py\n' > .pyenv/versions/3.9/bin/py; echo 3.9 > .pyenv/version; chmod +x .pyenv/*/* .pyenv/versions/3.9/bin/py`,
		env: []string{"PATH=~/.pyenv/shims:" + system}, script: "py", want: "py\n"},
	"rbenv": {
		prepare: `mkdir -p .rbenv/shims .rbenv/libexec .rbenv/bin .rbenv/versions/3.3/bin
			printf '#!/bin/sh\nexec "%s/.rbenv/bin/rbenv" exec "${0##*/}"\n' "$HOME" > .rbenv/shims/rb; ln -s ../libexec/rbenv .rbenv/bin/rbenv
			printf '#!/bin/sh\nexec ~/.rbenv/versions/$(cat ~/.rbenv/version)/bin/$2\n' > .rbenv/libexec/rbenv
			printf '#!/bin/sh\necho rb\n' > .rbenv/versions/3.3/bin/rb; echo 3.3 > .rbenv/version; chmod +x .rbenv/*/* .rbenv/versions/3.3/bin/rb`,
		env: []string{"PATH=~/.rbenv/shims:" + system}, script: "rb", want: "rb\n"},
	"asdf": {
		prepare: `mkdir -p .asdf/shims .asdf/bin .asdf/installs/n/20/bin; echo n 20 > .tool-versions
			printf '#!/bin/sh\nexec %s/.asdf/bin/asdf exec tool\n' "$HOME" > .asdf/shims/tool
			printf '#!/bin/sh\nexec ~/.asdf/installs/n/$(cut -d" " -f2 ~/.tool-versions)/bin/$2\n' > .asdf/bin/asdf
			printf '#!/bin/sh\necho tool\n' > .asdf/installs/n/20/bin/tool; chmod +x .asdf/*/* .asdf/installs/n/20/bin/tool`,
		env: []string{"PATH=~/.asdf/shims:" + system}, script: "tool", want: "tool\n"},
	"nvm, a program of npm's": {
		needs: []string{"node"},
		prepare: `mkdir -p .nvm/versions/node/v20/bin .nvm/versions/node/v20/lib/node_modules/x; ln -s "$(command -v node)" .nvm/versions/node/v20/bin/node
			printf '#!/usr/bin/env node\nconsole.log(require("./y"))' > .nvm/versions/node/v20/lib/node_modules/x/x.js; echo 'module.exports = "x"' > .nvm/versions/node/v20/lib/node_modules/x/y.js
			chmod +x .nvm/versions/node/v20/lib/node_modules/x/x.js; ln -s ../lib/node_modules/x/x.js .nvm/versions/node/v20/bin/x`,
		env: []string{"PATH=~/.nvm/versions/node/v20/bin:" + system}, script: "x; command -v node", want: "x\n@/.nvm/versions/node/v20/bin/node\n"},
	"rustup in another place": {
		prepare: `mkdir -p opt/rustup/toolchains/stable/bin .cargo/bin; printf '#!/bin/sh\nexec "${RUSTUP_HOME:-$HOME/.rustup}/toolchains/stable/bin/${0##*/}"\n' > .cargo/bin/cargo
			printf '#!/bin/sh\necho crab\n' > opt/rustup/toolchains/stable/bin/cargo; chmod +x .cargo/bin/cargo opt/rustup/toolchains/stable/bin/cargo`,
		env: []string{"RUSTUP_HOME=~/opt/rustup", "PATH=~/.cargo/bin:" + system}, script: "cargo", want: "crab\n"},
	"Java that is in no PATH": {
		prepare: `mkdir -p .jdks/21/bin; printf '#!/bin/sh\necho java\n' > .jdks/21/bin/java; chmod +x .jdks/21/bin/java`,
		env:     []string{"JAVA_HOME=~/.jdks/21"}, script: `"$JAVA_HOME/bin/java"`, want: "java\n"},
	"mise, a version that is a link": {
		prepare: `mkdir -p .local/share/mise/installs/n/20.1/bin; ln -s ./20.1 .local/share/mise/installs/n/20
			printf '#!/bin/sh\necho tool\n' > .local/share/mise/installs/n/20.1/bin/tool; chmod +x .local/share/mise/installs/n/20.1/bin/tool`,
		env: []string{"PATH=~/.local/share/mise/installs/n/20/bin:" + system}, script: "tool", want: "tool\n"},
	"pnpm's own directory": {
		prepare: `d=.local/share/pnpm; mkdir -p $d/global/5/node_modules/t/bin; printf '#!/bin/sh\necho t\n' > $d/global/5/node_modules/t/bin/t
			printf '#!/bin/sh\nexec "%s/%s/global/5/node_modules/t/bin/t" "$@"\n' "$HOME" $d > $d/t; chmod +x $d/t $d/global/5/node_modules/t/bin/t`,
		env: []string{"PNPM_HOME=~/.local/share/pnpm", "PATH=~/.local/share/pnpm:" + system}, script: "t", want: "t\n"},
	"corepack's package managers": {
		prepare: `mkdir -p .cache/node/corepack/v1/pnpm/9 .local/bin; echo echo pnpm > .cache/node/corepack/v1/pnpm/9/pnpm
			printf '#!/bin/sh\n. ~/.cache/node/corepack/v1/pnpm/9/pnpm\n' > .local/bin/pnpm; chmod +x .local/bin/pnpm`,
		env: []string{"PATH=~/.local/bin:" + system}, script: "pnpm", want: "pnpm\n"},
	"npm's global programs": {
		needs: []string{"node"},
		prepare: `echo prefix="$HOME/.npm-global" > .npmrc; mkdir -p .npm-global/lib/node_modules/t .npm-global/bin
			printf '#!/usr/bin/env node\nconsole.log("t")' > .npm-global/lib/node_modules/t/t.js; chmod +x .npm-global/lib/node_modules/t/t.js; ln -s ../lib/node_modules/t/t.js .npm-global/bin/t`,
		env: []string{"PATH=~/.npm-global/bin:" + system}, script: "t", want: "t\n"},
	"a project of pnpm's": {
		needs:   []string{"node"},
		prepare: `d=ws/node_modules/.pnpm/d@1/node_modules/d; mkdir -p $d; echo 'module.exports = "d"' > $d/index.js; ln -s .pnpm/d@1/node_modules/d ws/node_modules/d`,
		script:  `node -p 'require("d")'`, want: "d\n"},

	// Where programs lie: what PATH names, and what that leads to. Each is started by a shell, and as the
	// command itself.
	"Homebrew, in a home of its own": {
		prepare: "d=$HOME/../linuxbrew/.linuxbrew\n" + brewed, env: []string{"PATH=~/../linuxbrew/.linuxbrew/bin:" + system},
		script: "brewed", command: "@/../linuxbrew/.linuxbrew/bin/brewed", want: "brewed\n"},
	"Homebrew, by the command alone": {
		prepare: "d=$HOME/../linuxbrew/.linuxbrew\n" + brewed, script: "echo brewed", command: "@/../linuxbrew/.linuxbrew/bin/brewed", want: "brewed\n"},
	"Homebrew, in the home": {
		prepare: "d=$HOME/.linuxbrew\n" + brewed, env: []string{"PATH=~/.linuxbrew/bin:" + system}, script: "brewed", command: "@/.linuxbrew/bin/brewed", want: "brewed\n"},
	"Homebrew, where the user wanted it": { // Linuxbrew/brew issue 901
		prepare: "d=$HOME/opt/brew\n" + brewed, env: []string{"PATH=~/opt/brew/bin:" + system}, script: "brewed", command: "@/opt/brew/bin/brewed", want: "brewed\n"},
	"Nix: ~/.nix-profile": { // anthropics/claude-code issue 53593
		prepare: `mkdir -p .local/state/nix/profiles; ln -s /usr .local/state/nix/profiles/profile-1-link; ln -s profile-1-link .local/state/nix/profiles/profile; ln -s .local/state/nix/profiles/profile .nix-profile`,
		env:     []string{"PATH=~/.nix-profile/bin:" + system}, script: "command -v env; env true", command: "@/.nix-profile/bin/which env", want: "@/.nix-profile/bin/env\n"},
	"Nix, in the directories of XDG": {
		prepare: `mkdir -p .local/state/nix/profiles; ln -s /usr .local/state/nix/profiles/profile-1-link; ln -s profiles/profile-1-link .local/state/nix/profile`,
		env:     []string{"PATH=~/.local/state/nix/profile/bin:" + system}, script: "command -v env; env true", command: "@/.local/state/nix/profile/bin/which env", want: "@/.local/state/nix/profile/bin/env\n"},
	"Guix": {
		prepare: `mkdir -p .config/guix; ln -s /usr ../guix-1-link; ln -s guix-1-link ../guix-profile; ln -s "$HOME/../guix-profile" .guix-profile; ln -s "$HOME/../guix-profile" .config/guix/current`,
		env:     []string{"PATH=~/.config/guix/current/bin:~/.guix-profile/bin:" + system}, script: "command -v env; ~/.guix-profile/bin/env true", command: "@/.guix-profile/bin/which env", want: "@/.config/guix/current/bin/env\n"},
	"mise's shims": { // carderne/pi-sandbox issue 51
		prepare: `mkdir -p .local/bin .local/share/mise/shims .local/share/mise/installs/n/20/bin .config/mise; printf '[tools]\nn = "20"\n' > .config/mise/config.toml
			printf '#!/bin/sh\nexec ~/.local/share/mise/installs/n/$(sed -n "s/n = .\\(.*\\)./\\1/p" ~/.config/mise/config.toml)/bin/${0##*/}\n' > .local/bin/mise
			printf '#!/bin/sh\necho tool\n' > .local/share/mise/installs/n/20/bin/tool; chmod +x .local/bin/mise .local/share/mise/installs/n/20/bin/tool; ln -s "$HOME/.local/bin/mise" .local/share/mise/shims/tool`,
		env: []string{"PATH=~/.local/share/mise/shims:" + system}, script: "tool", command: "tool", want: "tool\n"},
	"volta": {
		prepare: `mkdir -p .volta/bin .volta/tools/image/node/22/bin; printf '#!/bin/sh\nexec ~/.volta/tools/image/node/22/bin/${0##*/}\n' > .volta/bin/volta-shim; ln -s volta-shim .volta/bin/tool
			printf '#!/bin/sh\necho tool\n' > .volta/tools/image/node/22/bin/tool; chmod +x .volta/bin/* .volta/tools/image/node/22/bin/tool`,
		env: []string{"VOLTA_HOME=~/.volta", "PATH=~/.volta/bin:" + system}, script: "tool", command: "@/.volta/bin/tool", want: "tool\n"},
	"pnpm's directory elsewhere": {
		prepare: `d=.data/pnpm/global/5; mkdir -p $d/node_modules/.bin $d/node_modules/t; printf '#!/bin/sh\necho t\n' > $d/node_modules/t/t; ln -s global/5/node_modules/t/t .data/pnpm/t; chmod +x $d/node_modules/t/t`,
		env:     []string{"PATH=~/.data/pnpm:" + system}, script: "t", command: "@/.data/pnpm/t", want: "t\n"},
	"bun's global programs": {
		prepare: `d=.bun/install/global/node_modules/t; mkdir -p $d .bun/bin; printf '#!/bin/sh\ncat ~/%s/data\n' $d > $d/cli; echo t > $d/data; chmod +x $d/cli; ln -s ../install/global/node_modules/t/cli .bun/bin/t`,
		env:     []string{"PATH=~/.bun/bin:" + system}, script: "t", command: "@/.bun/bin/t", want: "t\n"},
	"flatpak's exports": {
		prepare: `d=.local/share/flatpak; mkdir -p $d/exports/bin $d/app/org.t/x/1/export/bin; ln -s x $d/app/org.t/current; ln -s 1 $d/app/org.t/x/active; printf '#!/bin/sh\necho t\n' > $d/app/org.t/x/1/export/bin/org.t
			chmod +x $d/app/org.t/x/1/export/bin/org.t; ln -s ../../app/org.t/current/active/export/bin/org.t $d/exports/bin/org.t`,
		env: []string{"PATH=~/.local/share/flatpak/exports/bin:" + system}, script: "org.t", command: "org.t", want: "t\n"},
	"links from one directory of programs to another": { // /snap/bin, /opt/…/bin, /usr/local/bin
		prepare: `mkdir -p ../snap/bin ../opt/tool/bin ../opt/tool/lib; echo t > ../opt/tool/lib/data; printf '#!/bin/sh\ncat %s/../opt/tool/lib/data\n' "$HOME" > ../opt/tool/bin/t; chmod +x ../opt/tool/bin/t; ln -s "$HOME/../opt/tool/bin/t" ../snap/bin/t`,
		env:     []string{"PATH=~/../snap/bin:" + system}, script: "t", command: "@/../snap/bin/t", want: "t\n"},

	"a manager that is a function of the shell's, and no entry of PATH": { // lukashornych/hole pull request 26
		prepare: `mkdir -p .nvm/versions/node/v20/bin .sdkman/bin; printf '#!/bin/sh\necho n\n' > .nvm/versions/node/v20/bin/n; chmod +x .nvm/versions/node/v20/bin/n; echo 'PATH=$NVM_DIR/versions/node/v20/bin:$PATH' > .nvm/nvm.sh; echo 'echo sdk' > .sdkman/bin/sdkman-init.sh`,
		env:     []string{"NVM_DIR=~/.nvm", "SDKMAN_DIR=~/.sdkman"}, script: ". $NVM_DIR/nvm.sh; n; . $SDKMAN_DIR/bin/sdkman-init.sh", want: "n\nsdk\n"},
	"rvm": {
		prepare: `mkdir -p .rvm/bin .rvm/scripts; echo 'echo rvm' > .rvm/scripts/rvm; printf '#!/bin/sh\n. ~/.rvm/scripts/rvm\n' > .rvm/bin/rvm; chmod +x .rvm/bin/rvm`,
		env:     []string{"PATH=~/.rvm/bin:" + system}, script: "rvm", command: "rvm", want: "rvm\n"},
	"uv's tools": { // TNG/oh-my-agentic-coder issue 315
		prepare: `p=.local/share/uv/python/cpython-3.12/bin; d=.local/share/uv/tools/r; mkdir -p $p $d/bin .local/bin; printf '#!/bin/sh\necho py; cat ~/%s/x\n' $d > $p/python3.12; chmod +x $p/python3.12; echo x > $d/x
			ln -s "$HOME/$p/python3.12" $d/bin/python; printf '#!%s/bin/python\n' "$HOME/$d" > $d/bin/r; chmod +x $d/bin/r; ln -s "$HOME/$d/bin/r" .local/bin/r`,
		env: []string{"PATH=~/.local/bin:" + system}, script: "r", command: "r", want: "py\nx\n"},
	"codex, which npm has installed in nvm's": { // openai/codex issue 20906
		prepare: `d=.nvm/versions/node/v22/lib/node_modules/@openai/codex; b=$d/node_modules/@openai/codex-linux-x64/vendor/x/codex; mkdir -p $d/bin $b .nvm/versions/node/v22/bin; printf '#!/bin/sh\necho codex-cli\n' > $b/codex
			printf '#!/bin/sh\nexec ~/%s/codex "$@"\n' $b > $d/bin/codex.js; chmod +x $b/codex $d/bin/codex.js; ln -s ../lib/node_modules/@openai/codex/bin/codex.js .nvm/versions/node/v22/bin/codex`,
		env: []string{"PATH=~/.nvm/versions/node/v22/bin:" + system}, script: "codex", command: "@/.nvm/versions/node/v22/bin/codex", want: "codex-cli\n"},
	"webi's links into ~/.local/opt": { // 1ay1/agentty issue 21
		prepare: `d=.local/opt/go-1; mkdir -p $d/bin $d/pkg/tool .local/bin; echo g > $d/VERSION; ln -s go-1 .local/opt/go; printf '#!/bin/sh\ncat ~/.local/opt/go/VERSION\n' > $d/bin/go; chmod +x $d/bin/go; ln -s "$HOME/.local/opt/go/bin/go" .local/bin/go`,
		env:     []string{"PATH=~/.local/bin:" + system}, script: "go", command: "go", want: "g\n"},
	"NixOS: links in a directory that is private": { // ocaml/opam pull request 6333, GreyhavenHQ/greywall pull request 93
		prepare: `mkdir -p ../run ../store/sys/sw/bin; ln -s "$HOME/../store/sys" ../run/current-system; ln -s /usr/bin/env ../store/sys/sw/bin/env`,
		env:     []string{"PATH=~/../run/current-system/sw/bin:" + system}, script: "command -v env; env true", command: "@/../run/current-system/sw/bin/env echo @/../run/current-system/sw/bin/env", want: "@/../run/current-system/sw/bin/env\n"},
	"installations beside secrets": { // of cabal, composer and yarn
		prepare: `d=.local/state/cabal/store/ghc/h; c=.config/composer/vendor; y=.config/yarn/global/node_modules; mkdir -p $d/bin $d/share .local/bin $c/bin $c/p $y/.bin $y/t; echo h > $d/share/h; echo p > $c/p/data; echo t > $y/t/data
			printf '#!/bin/sh\ncat ~/%s/share/h\n' $d > $d/bin/hlint; ln -s "$HOME/$d/bin/hlint" .local/bin/hlint; printf '#!/bin/sh\ncat ~/%s/p/data\n' $c > $c/bin/p; printf '#!/bin/sh\ncat ~/%s/t/data\n' $y > $y/t/t; ln -s ../t/t $y/.bin/t; chmod +x $d/bin/hlint $c/bin/p $y/t/t`,
		env: []string{"PATH=~/.local/bin:~/.config/composer/vendor/bin:~/.config/yarn/global/node_modules/.bin:" + system}, script: "hlint; p; t", want: "h\np\nt\n"},
	"what mise trusts": { // RyderFreeman4Logos/cli-sub-agent issue 1056, mensfeld/code-on-incus issue 328
		prepare: `d=.local/state/mise/trusted-configs; mkdir -p .local/bin $d; ln -s "$HOME/ws/mise.toml" $d/ws-1; printf '#!/bin/sh\nreadlink ~/%s/ws-1\n' $d > .local/bin/mise; chmod +x .local/bin/mise`,
		env:     []string{"PATH=~/.local/bin:" + system}, script: "mise", want: "@/ws/mise.toml\n"},
	"libraries of the user's own": { // unslothai/unsloth pull request 7101
		needs: []string{"python3"},
		prepare: `d=.local/lib/python$(python3 -c 'import sys; print("%d.%d" % sys.version_info[:2])')/site-packages; mkdir -p $d .local/share/gem/ruby/3.1.0 R/x86_64-pc-linux-gnu-library/4.3 perl5/lib/perl5; echo 'word = "mine"' > $d/minemine.py
			for d in .local/share/gem/ruby/3.1.0 R/x86_64-pc-linux-gnu-library/4.3 perl5/lib/perl5; do echo $d > $d/x; done`,
		script: `python3 -c 'import minemine; print(minemine.word)'; cd; cat .local/share/gem/ruby/*/x R/*/*/x perl5/lib/perl5/x`, want: "mine\n.local/share/gem/ruby/3.1.0\nR/x86_64-pc-linux-gnu-library/4.3\nperl5/lib/perl5\n"},
	"what is installed among them": {
		prepare: `mkdir -p .local/lib/python3/site-packages`, script: `echo x > ~/.local/lib/python3/site-packages/x; echo done`, want: "done\n",
		says: []string{"not saved: @/.local/lib/python3 (1 file, 2 bytes) is outside the workspace", "--save"}},
	"an environment of Python in the home": {
		needs:   []string{"python3"},
		prepare: `for d in venvs/x .virtualenvs/x; do python3 -m venv --without-pip $d; echo 'word = "mine"' > $(echo $d/lib/python*/site-packages)/minemine.py; done; echo 'import minemine; print(minemine.word)' > ws/m.py`,
		env:     []string{"VIRTUAL_ENV=~/venvs/x", "PATH=~/venvs/x/bin:" + system}, script: `python3 m.py`, command: "@/.virtualenvs/x/bin/python m.py", want: "mine\n"},

	// What tools have downloaded before, which a project without a network needs: oalders/dot-files issue 979, shisa-ai/shisad issue 25.
	"browsers, and what else is downloaded once": {
		prepare: `mkdir -p .cache/ms-playwright/.links .cache/pre-commit .gradle/wrapper/dists/g elsewhere/crates/registry/index; touch .cache/pre-commit/db.db; echo b > .cache/ms-playwright/b; echo c > elsewhere/crates/registry/index/c`,
		env:     []string{"CARGO_HOME=~/elsewhere/crates"},
		script:  `cat ~/.cache/ms-playwright/b $CARGO_HOME/registry/index/c; touch ~/.cache/ms-playwright/c ~/.cache/pre-commit/x $CARGO_HOME/.package-cache; ls ~/.gradle/wrapper/dists`, want: "b\nc\ng\n"},
	"pnpm's store, in its directory of PATH": {
		prepare: `d=.local/share/pnpm; mkdir -p $d/store/v3; echo s > $d/store/v3/s; printf '#!/bin/sh\ncd ~/.local/share/pnpm/store/v3 && cat s && touch new\n' > $d/t; chmod +x $d/t`,
		env:     []string{"PATH=~/.local/share/pnpm:" + system}, script: "t", want: "s\n"},
	"gems in a place of their own": {
		prepare: `mkdir -p gems/bin gems/specifications; echo x > gems/specifications/x; printf '#!/bin/sh\nls $GEM_HOME/specifications; touch $GEM_HOME/specifications/new $GEM_HOME/bin/new\n' > gems/bin/t; chmod +x gems/bin/t`,
		env:     []string{"GEM_HOME=~/gems", "PATH=~/gems/bin:" + system}, script: "t", want: "x\n"},

	// Installations in the open part of the home, and variables that say where one is.
	"flutter": { // its program writes where it lies
		prepare: `d=development/flutter; mkdir -p $d/bin/internal $d/bin/cache $d/packages; touch $d/bin/internal/shared.sh; echo fl > $d/packages/x
			printf '#!/bin/sh\nd=${0%%/bin/*}; echo lock > $d/bin/cache/lockfile && cat $d/packages/x\n' > $d/bin/flutter; chmod +x $d/bin/flutter`,
		env: []string{"PATH=~/development/flutter/bin:" + system}, script: "flutter", command: "flutter", want: "fl\n"},
	"proto in another place": {
		prepare: `mkdir -p opt/proto/shims opt/proto/tools/n/22/bin; printf '#!/bin/sh\nexec ${PROTO_HOME:-~/.proto}/tools/n/22/bin/n\n' > opt/proto/shims/n
			printf '#!/bin/sh\necho n\n' > opt/proto/tools/n/22/bin/n; chmod +x opt/proto/shims/n opt/proto/tools/n/22/bin/n`,
		env: []string{"PROTO_HOME=~/opt/proto", "PATH=~/opt/proto/shims:" + system}, script: "n", want: "n\n"},
	// leanprover/elan, and one that nobody has listed.
	"a version manager of no list": {
		prepare: `mkdir -p .elan/bin .elan/toolchains/s/bin .exenv/shims .exenv/versions/1 .exenv/libexec; echo v > .exenv/versions/1/v; echo l > .exenv/libexec/l
			printf '#!/bin/sh\nexec ~/.elan/toolchains/s/bin/lean\n' > .elan/bin/lean; printf '#!/bin/sh\necho lean\n' > .elan/toolchains/s/bin/lean
			printf '#!/bin/sh\ncat ~/.exenv/versions/1/v ~/.exenv/libexec/l\n' > .exenv/shims/elixir; chmod +x .elan/bin/lean .elan/toolchains/s/bin/lean .exenv/shims/elixir`,
		env: []string{"PATH=~/.elan/bin:~/.exenv/shims:" + system}, script: "lean; elixir", want: "lean\nv\nl\n"},
	// jenv(1): `jenv add` makes a link.
	"a version that was added as a link": {
		prepare: `mkdir -p .jenv/shims .jenv/versions jdks/21/bin jdks/21/lib; ln -s ../../jdks/21 .jenv/versions/21; echo l > jdks/21/lib/l
			printf '#!/bin/sh\nexec ~/.jenv/versions/21/bin/java\n' > .jenv/shims/java; printf '#!/bin/sh\ncat ~/jdks/21/lib/l\n' > jdks/21/bin/java; chmod +x .jenv/shims/java jdks/21/bin/java`,
		env: []string{"PATH=~/.jenv/shims:" + system}, script: "java", want: "l\n"},
	"fnm's multishells": {
		prepare: `d=.local/share/fnm/node-versions/v20/installation; mkdir -p $d/bin .local/state/fnm_multishells; printf '#!/bin/sh\necho n\n' > $d/bin/n; chmod +x $d/bin/n; ln -s "$HOME/$d" .local/state/fnm_multishells/1_2`,
		env:     []string{"FNM_MULTISHELL_PATH=~/.local/state/fnm_multishells/1_2", "PATH=~/.local/state/fnm_multishells/1_2/bin:" + system}, script: "n; echo $FNM_MULTISHELL_PATH", want: "n\n@/.local/state/fnm_multishells/1_2\n"},
	"Android, which no PATH has": {
		prepare: `mkdir -p sdks/android/platform-tools; echo a > sdks/android/x`, env: []string{"ANDROID_HOME=~/sdks/android"}, script: "cat $ANDROID_HOME/x", want: "a\n"},
	"search paths": {
		prepare: `mkdir ws/src`, env: []string{"PYTHONPATH=src:.", "LD_LIBRARY_PATH=/usr/lib", "NODE_PATH=~/ws/src"}, script: "echo $PYTHONPATH $LD_LIBRARY_PATH $NODE_PATH", want: "src:. /usr/lib @/ws/src\n"},
	"an editor in the home": {
		prepare: `mkdir -p tools; printf '#!/bin/sh\necho edited > "$2"\n' > tools/ed; chmod +x tools/ed`, env: []string{"EDITOR=~/tools/ed -f"}, flags: built,
		script: `git -c user.name=a -c user.email=b commit -q --allow-empty && git log --format=%s`, want: "edited\n"},

	// Links to another disk, and a place that is reached by links.
	"~/.cache": {prepare: `mkdir disk; ln -s disk .cache`, script: `mkdir -p ~/.cache/x && echo y > ~/.cache/x/y && cat ~/.cache/x/y`, want: "y\n"},
	"~/.local/share": {
		prepare: `mkdir -p disk/tool/bin .local/bin; ln -s ../disk .local/share; printf '#!/bin/sh\necho tool\n' > disk/tool/bin/tool; chmod +x disk/tool/bin/tool; ln -s ../share/tool/bin/tool .local/bin/tool`,
		env:     []string{"PATH=~/.local/bin:" + system}, script: "tool", want: "tool\n"},
	"the workspace": {
		prepare: `mkdir disk; mv ws disk/ws; ln -s disk/ws ws; printf 'all:\n\t@cat %s/ws/x\n' "$HOME" > ws/Makefile; echo x > ws/x`, needs: []string{"make"},
		script: `pwd; pwd -P; make -s`, want: "@/ws\n@/disk/ws\nx\n", says: []string{"the workspace is @/disk/ws: @/ws leads there by a link"}},
	"a directory above it": {
		prepare: `mkdir disk; mv ws disk/ws; ln -s disk code`, dir: "code/ws", script: `pwd; cd ..; ls`, want: "@/code/ws\nws\n", says: []string{"the workspace is @/disk/ws: @/code/ws leads there by a link"}},
	"the home": {
		prepare: `mkdir disk; mv ws disk/ws; ln -s disk me; printf '[user]\n\tname = n\n' > disk/.gitconfig; echo me > disk/ws/me`, env: []string{"HOME=~/me"}, dir: "me/ws", flags: built,
		script: `git config user.name; cat ` + "@/me/ws/me", want: "n\nme\n"},

	// git.
	"a worktree": {
		prepare: `git init -q main; git -C main -c user.name=a -c user.email=b commit -q --allow-empty -m one; git -C main worktree add -q ../wt`, dir: "wt",
		script: `git -c user.name=a -c user.email=b commit -q --allow-empty -m two && git log --format=%s -1 && git status --short`, want: "two\n"},
	"a worktree of a bare clone, in which nobody has committed": { // akitaonrails/ai-jail issue 101: git makes logs/ then
		prepare: `git init -q one; git -C one -c user.name=a -c user.email=b commit -q --allow-empty -m one; git clone -q --bare one bare/.bare; echo gitdir: ./.bare > bare/.git; git -C bare worktree add -q wt 2>/dev/null; test ! -e bare/.bare/logs`,
		dir:     "bare/wt", script: `git -c user.name=a -c user.email=b commit -q --allow-empty -m two && git log --format=%s -1 && git reflog | wc -l`, want: "two\n3\n"},
	"a submodule alone": {
		prepare: `git init -q sub; git -C sub -c user.name=a -c user.email=b commit -q --allow-empty -m one; git init -q top; git -C top -c protocol.file.allow=always submodule --quiet add ../sub sub`, dir: "top/sub",
		script: `git -c user.name=a -c user.email=b commit -q --allow-empty -m two && git log --format=%s -1`, want: "two\n"},
	"includeIf": {
		prepare: `printf '[includeIf "gitdir:~/ws/"]\n\tpath = ~/.gitconfig-work\n[include]\n\tpath = .gitconfig.local\n' > .gitconfig; printf '[user]\n\tname = work\n\temail = w@x\n' > .gitconfig-work
			printf '[alias]\n\tst = status\n' > .gitconfig.local`,
		flags: built, script: `git commit -q --allow-empty -m x && git log --format=%an -1; git config alias.st`, want: "work\nstatus\n"},
	"a configuration of links": {
		prepare: `mkdir -p dot/git .config; ln -s ../dot/git .config/git; printf '[include]\n\tpath = local\n' > dot/git/config; printf '[user]\n\tname = n\n' > dot/git/local; ln -s dot/rc .gitconfig; printf '[include]\n\tpath = ~/dot/more\n' > dot/rc
			printf '[user]\n\temail = e\n' > dot/more`,
		flags: built, script: `git config user.name; git config user.email`, want: "n\ne\n"},
	"stow's links, one by one": {
		prepare: `mkdir -p dot/.config/git .config/git; printf '[user]\n\tname = n\n' > dot/.config/git/config; ln -s ../../dot/.config/git/config .config/git/config`, flags: built, script: `git config user.name`, want: "n\n"},
	"Home Manager's links": {
		prepare: `mkdir -p store/1 store/2 .config/git; printf '[user]\n\tname = n\n' > store/1/config; ln -s "$HOME/store/1/config" store/2/config; ln -s "$HOME/store/2/config" .config/git/config`, flags: built, script: `git config user.name`, want: "n\n"},
	"excludes and hooks of the user's own": {
		prepare: `echo '*.o' > .ignored; mkdir .hooks; printf '#!/bin/sh\necho hook\n' > .hooks/pre-commit; chmod +x .hooks/pre-commit
			printf '[core]\n\texcludesFile = ~/.ignored\n\thooksPath = ~/.hooks\n[user]\n\tname = a\n\temail = b\n' > .gitconfig`,
		flags: built, script: `touch a.o b.c; git status --short; git commit -q --allow-empty -m x 2>&1`, want: "?? b.c\nhook\n"},
	"programs that git's configuration names": { // with what they need; in a shell's spelling too
		prepare: `mkdir -p tools/lib .pyenv/versions/3/bin; for n in pager external; do printf '#!/bin/sh\necho %s; test $# != 0 || cat\n' $n > tools/$n; done
			printf '#!%s/.pyenv/versions/3/bin/py\n' "$HOME" > tools/editor; printf '#!/bin/sh\necho edited > "$2"\n' > .pyenv/versions/3/bin/py
			printf '#!/bin/sh\necho username=u; echo password=p\n' > tools/helper; chmod +x tools/* .pyenv/versions/3/bin/py
			printf '[core]\n\teditor = ~/tools/editor\n\tpager = $HOME/tools/pager\n[diff]\n\texternal = %s/tools/external\n[alias]\n\tx = !~/tools/external alias\n[credential]\n\thelper = %s/tools/helper\n[user]\n\tname = a\n\temail = b\n' "$HOME" "$HOME" > .gitconfig
			echo 1 > ws/f; git -C ws add f; git -C ws commit -qm one; echo 2 > ws/f`,
		flags:  built,
		script: `git diff; git x; git commit -qa; git log --format=%s -1; git config core.pager | xargs -I@@ sh -c 'echo paged | @@'; printf 'protocol=https\nhost=h\n' | git credential fill | grep pass`,
		want:   "external\nexternal\nedited\npager\npaged\npassword=p\n"},
	"files that git's configuration names": {
		prepare: `mkdir names; for n in ignored mailmap order signature template; do echo $n > names/$n; done; mkdir .ssh; echo "b ssh-ed25519 AAAA" > .ssh/signers; echo "ssh-ed25519 AAAA b" > .ssh/key.pub; echo secret > .ssh/key
			printf -- '-----BEGIN CERTIFICATE-----\n' > names/ca.pem
			printf '[blame]\n\tignoreRevsFile = ~/names/ignored\n[mailmap]\n\tfile = ~/names/mailmap\n[diff]\n\torderFile = ~/names/order\n[format]\n\tsignatureFile = ~/names/signature\n[commit]\n\ttemplate = ~/names/template\n' > .gitconfig
			printf '[http "https://x.example"]\n\tsslCAInfo = ~/names/ca.pem\n[gpg "ssh"]\n\tallowedSignersFile = ~/.ssh/signers\n[user]\n\tsigningKey = ~/.ssh/key\n' >> .gitconfig`,
		flags: built, script: `cat ~/names/*; cat ~/.ssh/signers ~/.ssh/key.pub`, want: "-----BEGIN CERTIFICATE-----\nignored\nmailmap\norder\nsignature\ntemplate\nb ssh-ed25519 AAAA\nssh-ed25519 AAAA b\n"},

	// Agents.
	"dotfiles of codex": {
		prepare: `mkdir -p dot/skills .codex; echo 'm = 1' > dot/config.toml; echo s > dot/skills/s; ln -s ../dot/config.toml .codex/config.toml; ln -s ../dot/skills .codex/skills`,
		flags:   []string{"--profile", "codex", "-q"}, script: `grep -x "m = 1" ~/.codex/config.toml; cat ~/.codex/skills/s; echo log > ~/.codex/log`, want: "m = 1\ns\n"},
	"dotfiles of Claude Code, as a whole": {
		prepare: `mkdir -p dot/claude; printf '{\n  "a": 1\n}\n' > dot/claude/settings.json; ln -s dot/claude .claude`,
		flags:   []string{"--profile", "claude", "-q"}, script: `cat ~/.claude/settings.json; echo log > ~/.claude/log`, want: "{\n  \"a\": 1\n}\n"},
	"CODEX_HOME": {
		prepare: `mkdir ch; echo m > ch/config.toml`, env: []string{"CODEX_HOME=~/ch"}, flags: []string{"--profile", "codex", "--env", "CODEX_HOME", "--write", "~/ch"},
		script: `cat $CODEX_HOME/config.toml`, want: "m\n", says: []string{"profile codex"}},

	// The environment, and limits of the caller's.
	"TERMINFO": {
		needs: []string{"tic", "infocmp", "tput"}, prepare: `infocmp xterm | sed 's/^xterm/xfoo/' > t; tic -o app/terminfo t; infocmp xterm | sed 's/^xterm/xbar/' > t; tic -o .terminfo t`,
		env: []string{"TERM=xfoo", "TERMINFO=~/app/terminfo"}, script: `tput colors`, want: "8\n"},
	"~/.terminfo":     {needs: []string{"tic", "infocmp", "tput"}, prepare: `infocmp xterm | sed 's/^xterm/xbar/' > t; tic -o .terminfo t`, env: []string{"TERM=xbar"}, script: `tput colors`, want: "8\n"},
	"an editor":       {env: []string{"VSCODE_GIT_IPC_HANDLE=/run/user/1/git.sock", "GIT_ASKPASS=/nonexistent/askpass.sh", "TERM_PROGRAM=vscode"}, script: `git status -s; echo $TERM_PROGRAM`, want: "vscode\n"},
	"tmux, ssh-agent": {env: []string{"TMUX=/tmp/tmux-1/default,1,0", "TERM=screen", "SSH_AUTH_SOCK=/tmp/ssh/agent.1"}, script: `git status -s; echo $TERM`, want: "screen\n"},
	"direnv":          {prepare: `echo x > ws/.envrc`, env: []string{"DIRENV_DIR=-~/ws", "DIRENV_DIFF=x"}, script: `echo ok`, want: "ok\n"},
	"TMPDIR":          {prepare: `mkdir tmp`, env: []string{"TMPDIR=~/tmp"}, script: `mktemp > /dev/null && echo made`, want: "made\n"},
	"caches in odd places": {
		env:    []string{"GOPATH=~/gp", "GOCACHE=~/gc/x", "npm_config_cache=~/nc", "PIP_CACHE_DIR=/nonexistent", "XDG_RUNTIME_DIR=/run/user/99999"},
		script: `echo ok`, want: "ok\n"},
	"PATH of nothing":              {env: []string{"PATH=/nonexistent/bin:~/nope:" + system + ":::."}, script: `echo ok`, want: "ok\n"},
	"no PATH":                      {env: []string{"PATH-"}, script: `echo ok`, want: "ok\n"},
	"no HOME, no USER, no SHELL":   {env: []string{"USER-", "LOGNAME-", "SHELL-", "TERM-", "LANG-"}, script: `echo ok`, want: "ok\n"},
	"a language that is not there": {env: []string{"LC_ALL=xx_YY.UTF-8"}, script: `echo $LC_ALL`, want: "xx_YY.UTF-8\n"},
	"a long environment":           {env: []string{"LC_X=" + strings.Repeat("x", 120000), "A=" + strings.Repeat("x", 100000), "B=" + strings.Repeat("x", 100000)}, script: `echo ${#LC_X}`, want: "120000\n"},
	"umask 077":                    {shell: "umask 077", script: `touch x; mkdir d; ls -ld x d | cut -c1-10; umask`, want: "drwx------\n-rw-------\n0077\n"},
	"umask 0":                      {shell: "umask 0", script: `touch x; ls -l x | cut -c1-10`, want: "-rw-rw-rw-\n"},
	"core dumps":                   {shell: "ulimit -c unlimited 2>/dev/null || :", script: `echo ok`, want: "ok\n"},
	"few open files":               {shell: "ulimit -n 200", script: `ulimit -n`, want: "200\n"},
}

//test:root the_control
func TestHomes(t *testing.T) {
	program := host.Program(t)
	for name, row := range layouts {
		t.Run(name, func(t *testing.T) {
			for _, n := range row.needs {
				if _, err := exec.LookPath(n); err != nil {
					t.Skip("needs", n)
				}
			}
			home := filepath.Join(t.TempDir(), "u")
			at := func(text string) string { return strings.ReplaceAll(text, "@", home) }
			require.NoError(t, os.MkdirAll(home+"/ws", 0o755))
			env := []string{"HOME=" + home, "PATH=" + system, "LANG=C.UTF-8", "TERM=xterm", "SHELL=/bin/sh", "GIT_CONFIG_NOSYSTEM=1"}
			prepare := exec.Command("/bin/sh", "-euc", "git init -q ws\n"+row.prepare)
			prepare.Dir, prepare.Env = home, env
			out, err := prepare.CombinedOutput()
			require.NoError(t, err, string(out))
			dir := row.dir
			if dir == "" {
				dir = "ws"
			}
			shell := fmt.Sprintf("cd %s/%s; ", home, dir)
			if row.shell != "" {
				shell += row.shell + "; "
			}
			for _, e := range row.env {
				if name, gone := strings.CutSuffix(e, "-"); gone {
					env = append(env, name+"=") // until the shell takes it away
					shell += "unset " + name + "; "
					continue
				}
				env = append(env, strings.ReplaceAll(e, "~", home))
			}
			first := append([]string{program}, row.flags...)
			for i := range first {
				first[i] = strings.ReplaceAll(first[i], "~", home)
			}
			first = append(first, "--")
			run := func(words ...string) (string, string) {
				cmd := exec.CommandContext(t.Context(), "/bin/sh", append([]string{"-c", shell + `exec "$@"`, "sh"}, words...)...)
				cmd.Env = env
				var stderr bytes.Buffer
				cmd.Stderr = &stderr
				got, err := cmd.Output()
				if err != nil {
					return fmt.Sprint(string(got), err), stderr.String()
				}
				return string(got), stderr.String()
			}
			says := func(words ...string) string {
				got, stderr := run(append(first, words...)...)
				if got != at(row.want) {
					outside, failed := run(words...)
					t.Fatalf("inside: %q, %s\nwant: %q\noutside: %q, %s", got, stderr, at(row.want), outside, failed)
				}
				return stderr
			}
			stderr := says("sh", "-c", at(row.script))
			if row.command != "" {
				says(strings.Fields(at(row.command))...)
			}
			if len(row.says) == 0 {
				require.Empty(t, stderr)
				return
			}
			said := strings.Split(strings.TrimSuffix(stderr, "\n"), "\n")
			require.Len(t, said, len(row.says), stderr)
			for i, part := range row.says {
				require.Contains(t, said[i], at(part))
			}
		})
	}
}
