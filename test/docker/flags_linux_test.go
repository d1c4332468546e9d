package docker_test

import (
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pccrun/pccrun/providers/docker"
)

// A row says what a flag of `pccrun run` does at this provider: what the command or
// pccrun prints then, or the refusal.
type row struct {
	args []string // the flag, and what belongs to it
	sh   string   // the command
	code int      // of the exit; 125 is a refusal
	out  string   // a pattern of what the command prints
	err  string   // a pattern of what pccrun prints
	free string   // what must not be printed

	env   []string                       // of pccrun
	again string                         // a second command with the same flags; out is of that
	after func(t *testing.T, dir string) // a look at the workspace
}

// launchers are flags in which a runtime has no part: make test-long tries them with each.
var launchers = strings.Fields("--profile --settings --home --fresh-home --no-login --review --env --inject-file --inject-command " +
	"--report --allow-missing --provider --events --log -v -q")

// TestFlags walks all flags: each is honoured, or refused by name.
func TestFlags(t *testing.T) {
	eachRuntime(t, func(t *testing.T, runtime string) {
		k := newTask(t, runtime)
		home := world.user.Home
		k.write(t, "keys/id", "hidden\n")
		k.write(t, "kept/a", "stays\n")
		k.write(t, "Makefile.mine", "all:\n")
		users := &task{dir: home}
		users.write(t, "secret.txt", "from-a-real-file")
		users.write(t, "secret.sh", "#!/bin/sh\necho from-a-real-command\n")
		require.NoError(t, os.Chmod(filepath.Join(home, "secret.sh"), 0o755))
		k.write(t, "profile.jsonc", `{"extends": "default", "environment": {"set": {"OF_PROFILE": "seen"}}}`)
		k.write(t, "settings.json", `{"network": {"allowedDomains": [], "deniedDomains": []}, "filesystem": {"denyRead": ["`+k.dir+`/keys"], "allowWrite": ["`+k.dir+`"], "denyWrite": []}}`)
		k.write(t, "calls.json", `{"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [{"names": ["mkdir", "mkdirat"], "action": "SCMP_ACT_ERRNO", "errnoRet": 1}]}`)
		beside := strings.TrimPrefix(k.dir, home+"/") + "-beside"
		other := &task{dir: filepath.Join(home, beside)}
		other.write(t, "there", "")
		other.asUser(t, "true")
		login := filepath.Join(home, ".claude", ".credentials.json")
		users.write(t, ".claude/.credentials.json", `{"claudeAiOauth": {"accessToken": "token-1", "refreshToken": "token-2", "expiresAt": 9999999999999}}`)
		defer os.RemoveAll(filepath.Dir(login))
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("served")) }))
		defer server.Close()
		_, port, err := net.SplitHostPort(server.Listener.Addr().String())
		require.NoError(t, err)
		socket := filepath.Join(home, "door")
		l, err := net.Listen("unix", socket)
		require.NoError(t, err)
		defer l.Close()
		require.NoError(t, os.Chmod(socket, 0o777))
		const connect = `python3 -c 'import socket,sys; socket.socket(socket.AF_UNIX).connect(sys.argv[1]); print("connected")' `
		const status = `curl -s -o /dev/null -w '%{http_connect}' https://example.com; true`
		const fork = `for i in $(seq 40); do sleep 1 & done; wait`
		on := func(runc, runsc row) row {
			if runtime == docker.Runsc {
				return runsc
			}
			return runc
		}
		gvisor := row{code: 125, err: "gVisor prevents connections"}
		with := func(r row, args ...string) row {
			r.args = args
			return r
		}
		table := map[string]row{
			"--profile":        {args: []string{"profile.jsonc"}, sh: "echo $OF_PROFILE", out: "seen"},
			"--workspace":      {args: []string{other.dir}, sh: "pwd; ls", out: other.dir + "\nthere"},
			"--settings":       {args: []string{"settings.json"}, sh: "cat keys/id; cat kept/a", out: "^stays", free: "hidden"},
			"--hide":           {args: []string{"keys"}, sh: "cat keys/id; cat kept/a", out: "^stays", free: "hidden"},
			"--private":        {args: []string{"kept"}, sh: "ls kept; touch kept/b; echo end", out: "^end", after: holds("kept/a", "stays\n")},
			"--read":           {args: []string{"kept"}, sh: "echo x >kept/a; cat kept/a", out: "stays"},
			"--overlay":        {args: []string{"kept"}, code: 125, err: "fs.overlay: missing"},
			"--write":          {args: []string{other.dir}, sh: "echo made >" + other.dir + "/made", after: holds("../"+filepath.Base(other.dir)+"/made", "made\n")},
			"--home":           {args: []string{"persist"}, sh: "echo kept >~/x", again: "cat ~/x", out: "kept"},
			"--fresh-home":     {args: []string{"--profile", "claude"}, sh: "echo kept >~/x; cat ~/x", again: "cat ~/x; echo end", out: "^end"},
			"--no-login":       {args: []string{"--profile", "claude"}, sh: "cat ~/.claude/.credentials.json; echo end", out: "^end", free: "token-1"},
			"--protect":        {args: []string{"Makefile.mine"}, sh: "echo x >Makefile.mine; cat Makefile.mine", out: "^all:\n$"},
			"--review":         {args: []string{"Makefile.mine"}, sh: "echo x >>Makefile.mine", err: "changed: Makefile.mine"},
			"--allow":          {args: []string{"example.com"}, sh: status, out: "^50"},
			"--deny":           {args: []string{"example.com", "--allow", "*.example.com"}, sh: status, out: "^403"},
			"--local":          {args: []string{port}, sh: "curl -s http://host.pccrun.internal:" + port, out: "served"},
			"--publish":        {args: []string{"3000"}, code: 125, err: "publish"},
			"--socket":         on(row{args: []string{socket}, sh: connect + socket, out: "connected"}, with(gvisor, socket)),
			"--use":            on(row{args: []string{"ssh-agent"}, sh: connect + "$SSH_AUTH_SOCK", out: "connected", env: []string{"SSH_AUTH_SOCK=" + socket}}, row{args: []string{"ssh-agent"}, code: 125, err: gvisor.err, env: []string{"SSH_AUTH_SOCK=" + socket}}),
			"--env":            {args: []string{"GIVEN=1"}, sh: "echo given $GIVEN", out: "given 1"},
			"--inject":         {args: []string{"TOKEN=example.com", "--allow", "example.com"}, sh: "echo token $TOKEN.", out: "token .+\\.", free: "the-real-one", env: []string{"TOKEN=the-real-one"}},
			"--inject-file":    {args: []string{"TOKEN=" + home + "/secret.txt", "--inject", "TOKEN=example.com", "--allow", "example.com"}, sh: "echo token $TOKEN.", out: "token .+\\.", free: "from-a-real"},
			"--inject-command": {args: []string{"TOKEN=" + home + "/secret.sh", "--inject", "TOKEN=example.com", "--allow", "example.com"}, sh: "echo token $TOKEN.", out: "token .+\\.", free: "from-a-real"},
			"--memory":         {args: []string{"128m"}, sh: "head -c 600m /dev/zero | tail >/dev/null", code: -1, err: "memory"},
			"--cpus":           {args: []string{"0.5", "--dry-run", "--json"}, out: `"NanoCpus": 500000000`},
			"--pids":           on(row{args: []string{"6"}, sh: fork, code: -1, err: "(?i)fork"}, row{args: []string{"6"}, code: 125, err: "res.pids: missing"}),
			"--files":          {args: []string{"32"}, sh: "ulimit -n", out: "^32\n"},
			"--filesize":       {args: []string{"1m"}, sh: "head -c 2m /dev/zero >big; stat -c %s big", out: "1048576"},
			"--disk":           {args: []string{"16m"}, sh: "head -c 64m /dev/zero >/tmp/big 2>/dev/null; stat -c %s /tmp/big", out: "^1[0-9]{7}\n"},
			"--timeout":        {args: []string{"1s"}, sh: "sleep 100", code: 124, err: "timed out after 1s"},
			"--syscalls":       {args: []string{"calls.json"}, sh: "mkdir new; ls -d new; echo end", out: "^end"},
			"--nested":         {code: 125, err: "nested"},
			"--strict":         {code: 125, err: "only weakly kept"},
			"--report":         {args: []string{"attempts"}, sh: "true", err: "denied file accesses are not reported"},
			"--protect-strict": {code: 125, err: "protect.strict"},
			"--allow-missing":  {args: []string{"fs.overlay", "--overlay", "kept"}, sh: "echo runs", out: "runs", err: "fs.overlay may be missing"},
			"--without":        {args: []string{"seccomp"}, code: 125, err: "--without"},
			"--ask":            {code: 125, err: "--ask"},
			"--provider":       {args: []string{"docker"}, sh: "echo runs", out: "runs", err: "provider docker"},
			"--runtime":        {args: []string{runtime}, sh: "uname -r", out: on(row{out: "[0-9]"}, row{out: "gvisor"}).out},
			"--docker-image":   {args: []string{"pccrun-none:3"}, code: 125, err: "docker pull pccrun-none:3"},
			"--docker-network": {args: []string{"bridge"}, code: 125, err: "net.allowlist: missing: --docker-network bridge"},
			"--from":           {args: []string{"1"}, code: 125, err: "--from"},
			"--pass-fd":        {args: []string{"3"}, code: 125, err: "--pass-fd"},
			"--keep":           {args: []string{"1h"}, code: 125, err: "no sandbox to be kept"},
			"--history":        {args: []string{"1"}, code: 125, err: "the repository itself is shown"},
			"--dry-run":        {sh: "touch not-made", out: "guarantees", after: absent("not-made")},
			"--json":           {args: []string{"--dry-run"}, sh: "touch not-made", out: `"guarantees"`, after: absent("not-made")},
			"--events":         {args: []string{"events.jsonl"}, sh: "true", after: matches("events.jsonl", `"type":"`)},
			"--log":            {sh: "echo logged-$((1+1))", out: "logged-2", after: matches("../.local/state/pccrun/sessions/*/log", "logged-2")},
			"-v":               {sh: "true", err: "."},
			"-q":               {sh: "echo runs", out: "^runs\n", free: "provider"},
		}
		help, err := pccrun(t, k.dir, "run", "--help").Output()
		require.NoError(t, err)
		flags := map[string]bool{}
		for _, m := range regexp.MustCompile(`(?m)^  (-[a-z]|--[a-z-]+)\b`).FindAllSubmatch(help, -1) {
			flags[string(m[1])] = true
		}
		require.Equal(t, slices.Sorted(maps.Keys(flags)), slices.Sorted(maps.Keys(table)), "every flag has a row")
		for _, flag := range slices.Sorted(maps.Keys(flags)) {
			if runtime == docker.Runsc && os.Getenv("PCCRUN_LONG") == "" && slices.Contains(launchers, flag) {
				continue
			}
			t.Run(strings.TrimLeft(flag, "-"), func(t *testing.T) { table[flag].try(t, k, flag, runtime) })
		}
	})
}

func (r row) try(t *testing.T, k *task, flag, runtime string) {
	args := []string{"--provider", "docker", "--runtime", runtime}
	switch flag {
	case "--provider":
		args = args[2:]
	case "--runtime":
		args = args[:2]
	}
	args = append(args, flag)
	args = append(args, r.args...)
	if r.sh == "" {
		r.sh = "echo it ran"
	}
	run := func(sh string) (int, string, string) {
		c := pccrun(t, k.dir, append(slices.Clone(args), "--", "sh", "-c", sh)...)
		c.Env = append(c.Env, r.env...)
		return status(t, c)
	}
	code, out, errs := run(r.sh)
	if r.again != "" {
		code, out, errs = run(r.again)
	}
	if r.code >= 0 {
		assert.Equal(t, r.code, code, "%s\n%s", errs, out)
	} else {
		assert.NotZero(t, code, "%s\n%s", errs, out)
	}
	assert.Regexp(t, r.out, out)
	assert.Regexp(t, r.err, errs)
	if r.code == 125 {
		assert.Empty(t, out, "nothing ran")
		assert.Contains(t, errs, "pccrun: ")
	}
	if r.free != "" {
		assert.NotContains(t, out+errs, r.free)
	}
	if r.after != nil {
		r.after(t, k.dir)
	}
}

func holds(name, text string) func(*testing.T, string) {
	return func(t *testing.T, dir string) {
		got, err := os.ReadFile(filepath.Join(dir, name))
		require.NoError(t, err)
		assert.Equal(t, text, string(got))
	}
}

func absent(name string) func(*testing.T, string) {
	return func(t *testing.T, dir string) { assert.NoFileExists(t, filepath.Join(dir, name)) }
}

// matches looks for a file of a pattern that holds what another does.
func matches(name, pattern string) func(*testing.T, string) {
	return func(t *testing.T, dir string) {
		files, err := filepath.Glob(filepath.Join(dir, name))
		require.NoError(t, err)
		assert.True(t, slices.ContainsFunc(files, func(file string) bool {
			text, err := os.ReadFile(file)
			return err == nil && regexp.MustCompile(pattern).Match(text)
		}), "%s in one of %q", pattern, files)
	}
}
