//go:build linux

// Package tools shows that what a developer uses still works in the sandbox:
// each row is a script that runs inside, and says what it says on the bare host.
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

// A tool is a row of the table.
type tool struct {
	name  string
	needs []string // programs; without them the row is skipped
	flags []string // pccrun's
	// prepare runs on the host before, in the directory above the
	// repository: what the script finds there stood before the sandbox did.
	prepare string
	script  string // for bash -eu, in a git repository of one commit
	want    string // is what it prints, at its end
}

var table = []tool{
	{
		name:   "git clone, commit, log",
		needs:  []string{"git"},
		script: `d=$(mktemp -d) && git clone -q . $d && cd $d && echo x > x && git add x && as commit -q -m two && git log --format=%s && rm -rf $d`,
		want:   "two\none\n",
	},
	{
		name:   "git clone beside the sources",
		needs:  []string{"git"},
		script: `git clone -q . copy && git -C copy log --format=%s && rm -rf copy`,
		want:   "one\n",
	},
	{
		name:   "git commit here",
		needs:  []string{"git"},
		script: `echo x > x && git add x && git commit -q -m two && git status --short && git log --format='%s %an'`,
		want:   "two Dev\none Dev\n",
	},
	{
		name:   "git worktree",
		needs:  []string{"git"},
		script: `git worktree add -q tree && cd tree && echo x > x && git add x && git commit -q -m 'in the tree' && git log --format=%s -1 && cd .. && git worktree remove tree && git worktree list | wc -l`,
		want:   "in the tree\n1\n",
	},
	{
		name:    "git submodule that was initialised",
		needs:   []string{"git"},
		prepare: `git init -q -b main part && as -C part commit -q --allow-empty -m part && cd repo && git -c protocol.file.allow=always submodule --quiet add ../part part && git commit -q -m 'with part'`,
		script:  `cd part && echo x > x && git add x && as commit -q -m 'in part' && cd .. && git commit -q -a -m 'move part' && git submodule status | wc -l && git log --format=%s -1`,
		want:    "1\nmove part\n",
	},
	{
		name:   "git rebase, stash, branch",
		needs:  []string{"git"},
		script: `git checkout -q -b side && echo s > s && git add s && git commit -q -m side && git checkout -q main && echo m > m && git add m && git commit -q -m main && git checkout -q side && git rebase -q main && echo dirty > s && git stash -q && git stash pop -q && git log --format=%s && cat s`,
		want:   "side\nmain\none\ndirty\n",
	},
	{
		name:    "git hooks that stood before",
		needs:   []string{"git"},
		prepare: `printf '#!/bin/sh\necho the hook ran > hooked\n' > repo/.git/hooks/pre-commit && chmod +x repo/.git/hooks/pre-commit`,
		script:  `git commit -q --allow-empty -m two && cat hooked`,
		want:    "the hook ran\n",
	},
	{
		name:    "npm run, node",
		needs:   []string{"npm", "node"},
		prepare: `cd repo && printf '{"name":"p","version":"1.0.0","scripts":{"test":"node t.js"}}' > package.json && echo 'console.log("node", 6*7)' > t.js`,
		script:  `npm test --silent && node -e 'require("fs").writeFileSync("out", String(os.cpus().length > 0)); console.log(require("fs").readFileSync("out", "utf8"))'`,
		want:    "node 42\ntrue\n",
	},
	{
		name:  "npm ci from a tarball",
		needs: []string{"npm", "node"},
		prepare: `mkdir dep && printf '{"name":"dep","version":"1.2.3","main":"i.js"}' > dep/package.json && echo 'module.exports = "dep works"' > dep/i.js &&
			cd repo && npm pack --silent ../dep && printf '{"name":"p","version":"1.0.0","dependencies":{"dep":"file:dep-1.2.3.tgz"}}' > package.json &&
			npm install --silent --offline --no-audit --no-fund && rm -rf node_modules`,
		script: `npm ci --silent --offline --no-audit --no-fund && node -p 'require("dep")'`,
		want:   "dep works\n",
	},
	{
		name:    "go build, test, vet",
		needs:   []string{"go"},
		prepare: `cd repo && if [ "${PCCRUN_TEST_GOCACHE-}" ]; then cp -r "$PCCRUN_TEST_GOCACHE" .gocache; fi && ` + goCache + `printf 'module example.com/m\n\ngo 1.21\n' > go.mod && printf 'package main\n\nfunc main() { println("built") }\n' > m.go && printf 'package main\n\nimport "testing"\n\nfunc TestM(t *testing.T) {}\n' > m_test.go && go test ./... && go vet ./...`,
		script:  goCache + `go build -o m && ./m 2>&1 && go test ./... | cut -f1,2 && go vet ./...`,
		want:    "built\nok  \texample.com/m\n",
	},
	{
		name:   "python venv and pip, offline",
		needs:  []string{"python3"},
		flags:  []string{"--env", "PIP_DISABLE_PIP_VERSION_CHECK=1"},
		script: wheel + `python3 -m venv env && env/bin/pip install -q --no-index ./tiny-1.0-py3-none-any.whl && env/bin/python -c 'import tiny; print(tiny.word)'`,
		want:   "tiny works\n",
	},
	{
		name:    "cargo build, offline",
		needs:   []string{"cargo", "gcc"},
		prepare: `cd repo && mkdir src && printf '[package]\nname = "c"\nversion = "0.1.0"\nedition = "2021"\n' > Cargo.toml && echo 'fn main() { println!("crab") }' > src/main.rs`,
		script:  `cargo run -q --offline`,
		want:    "crab\n",
	},
	{
		name:    "make and a compiler",
		needs:   []string{"make", "gcc"},
		prepare: `cd repo && printf 'all: h\n\t./h\nh: h.c\n\tgcc -o h h.c\n' > Makefile && printf '#include <stdio.h>\nint main(void) { puts("compiled"); }\n' > h.c`,
		script:  `make -s`,
		want:    "compiled\n",
	},
	{
		name:    "what sanitizers find",
		needs:   []string{"gcc"},
		prepare: `cd repo && printf '#include <stdlib.h>\nint main(int n, char **a) { char *p = malloc(8); free(p); return n > 1 ? p[0] : 0; }\n' > h.c`,
		// The one of threads ends by itself on hosts that randomise addresses much.
		script: `gcc -w -fsanitize=address -o h h.c && ./h && echo clean && { ./h x 2>&1 || true; } | grep -o heap-use-after-free | head -1 && sh -c 'ulimit -c 0' && echo no core`,
		want:   "clean\nheap-use-after-free\nno core\n",
	},
	{
		name:  "gdb on a child",
		needs: []string{"gdb"},
		// The random layout of addresses cannot be switched off everywhere.
		script: `gdb -q -batch -ex 'set disable-randomization off' -ex 'break exit' -ex run -ex 'print 6*7' -ex kill --args /bin/true 2>&1 | grep -o '^\$1 = 42'`,
		want:   "$1 = 42\n",
	},
	{
		name:   "ps sees this shell",
		needs:  []string{"ps"},
		script: `ps -o pid= -p $$ | grep -c . && ps ax | grep -q 'p[s] ax' && echo itself`,
		want:   "1\nitself\n",
	},
	{
		name:   "df, free space here and in /tmp",
		needs:  []string{"df"},
		script: `for d in . /tmp; do test "$(df --output=avail "$d" | tail -1)" -gt 0 && echo room; done`,
		want:   "room\nroom\n",
	},
	{
		name:   "nproc",
		needs:  []string{"nproc"},
		script: `test "$(nproc)" -ge 1 && echo some`,
		want:   "some\n",
	},
	{
		name:   "locale",
		needs:  []string{"locale", "sort"},
		script: `LC_ALL=C.UTF-8 bash -c 'x=äöü; echo ${#x}; locale charmap' && printf 'ä\nz\n' | LC_ALL=C.UTF-8 sort | tr '\n' ' ' && echo`,
		want:   "3\nUTF-8\nz ä \n",
	},
	{
		name:   "time zones",
		needs:  []string{"date"},
		script: `test ! -e /usr/share/zoneinfo/Europe/Berlin || test "$(TZ=Europe/Berlin date -d @0 +%H)" = 01 && date -u -d @0 +%Y`,
		want:   "1970\n",
	},
	{
		name:   "an interactive shell",
		needs:  []string{"bash"},
		script: `printf 'echo $((6*7))\ncd /tmp && pwd\nexit 3\n' | bash -i 2>/dev/null || echo "status $?"`,
		want:   "42\n/tmp\nstatus 3\n",
	},
	{
		name:   "temporary files, pipes, substitution",
		needs:  []string{"mktemp"},
		script: `f=$(mktemp) && echo a > "$f" && cat <(cat "$f") /dev/stdin <<<b && rm "$f" && mkfifo fifo && (echo through > fifo &) && cat fifo && rm fifo`,
		want:   "a\nb\nthrough\n",
	},
	{
		name:   "tar, find, xargs, sed",
		needs:  []string{"tar", "find", "xargs", "sed"},
		script: `mkdir d && echo one > d/f && chmod 600 d/f && tar cf d.tar d && rm -r d && tar xf d.tar && find d -type f -print0 | xargs -0 sed -i s/one/two/ && stat -c %a d/f && cat d/f`,
		want:   "600\ntwo\n",
	},
	{
		name:  "a server on loopback inside",
		needs: []string{"python3"},
		script: `python3 - <<'END'
import socket, threading
s = socket.create_server(("127.0.0.1", 0))
threading.Thread(target=lambda: s.accept()[0].sendall(b"hello inside\n")).start()
print(socket.create_connection(s.getsockname()).recv(64).decode(), end="")
END`,
		want: "hello inside\n",
	},
}

// goCache is one that stands in the repository, warmed by the preparation, so that the standard
// library is not built again inside.
const goCache = `export GOTOOLCHAIN=local GOCACHE=$PWD/.gocache; `

// identity gives commits outside the repository of the test an author.
const identity = `as() { git -c user.name=Dev -c user.email=dev@example.com "$@"; }; `

// wheel writes a Python package by hand: building one needs tools that a
// plain installation has not got.
const wheel = `python3 - <<'END'
import zipfile
with zipfile.ZipFile("tiny-1.0-py3-none-any.whl", "w") as z:
    z.writestr("tiny.py", "word = 'tiny works'\n")
    z.writestr("tiny-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n")
    z.writestr("tiny-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nGenerator: hand\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
    z.writestr("tiny-1.0.dist-info/RECORD", "tiny.py,,\ntiny-1.0.dist-info/METADATA,,\ntiny-1.0.dist-info/WHEEL,,\ntiny-1.0.dist-info/RECORD,,\n")
END
`

//test:root git_commit_here
func TestTools(t *testing.T) {
	program := host.Program(t)
	for _, row := range table {
		t.Run(row.name, func(t *testing.T) {
			for _, n := range row.needs {
				if _, err := exec.LookPath(n); err != nil {
					t.Skip("needs", n)
				}
			}
			run := func(prefix ...string) (string, string) {
				argv := append(prefix, "bash", "-eu", "-o", "pipefail", "-c", identity+row.script)
				cmd := exec.CommandContext(t.Context(), argv[0], argv[1:]...)
				cmd.Dir, cmd.Env = repository(t, row.prepare), environ()
				var stderr bytes.Buffer
				cmd.Stderr = &stderr
				out, err := cmd.Output()
				return string(out), fmt.Sprintln(err, stderr.String())
			}
			got, said := run(append(append([]string{program, "-q"}, row.flags...), "--")...)
			if got != row.want {
				outside, failed := run()
				t.Fatalf("inside: %q, %s\nwant: %q\noutside: %q, %s", got, said, row.want, outside, failed)
			}
		})
	}
}

// repository makes a git repository of one commit, and beside it what prepare
// makes. It is the user's own, in a directory that is no home.
func repository(t *testing.T, prepare string) string {
	t.Helper()
	dir := t.TempDir()
	begin := `git init -q -b main repo && cd repo && git config user.name Dev && git config user.email dev@example.com &&
		echo one > one && git add one && git commit -q -m one && cd .. && ` + "\n"
	if prepare == "" {
		prepare = "true"
	}
	cmd := exec.Command("bash", "-eu", "-c", identity+begin+prepare)
	cmd.Dir = dir
	cmd.Env = environ()
	out, err := cmd.CombinedOutput()
	require.NoErrorf(t, err, "prepare: %s", out)
	return filepath.Join(dir, "repo")
}

// environ is the caller's environment without what changes the answers.
func environ() []string {
	env := []string{"LANG=C.UTF-8"}
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "GO") && !strings.HasPrefix(v, "LC_") && !strings.HasPrefix(v, "LANG=") {
			env = append(env, v)
		}
	}
	return env
}
