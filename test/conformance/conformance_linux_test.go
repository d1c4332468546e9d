package conformance_test

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pccrun/pccrun/internal/await"
	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/providers"
	"github.com/pccrun/pccrun/providers/filesync"
	"github.com/pccrun/pccrun/providers/remote"
	"github.com/pccrun/pccrun/test/internal/faults"
	"github.com/pccrun/pccrun/test/internal/host"
)

// cases are what each provider must do alike. Each of them has a sandbox made, unless it says
// that none is: a case tries all that one run can show.
var cases = []struct {
	name string
	try  func(t *testing.T, k *task)
}{
	{"calls are slow, refused, and answered by errors", func(t *testing.T, k *task) {
		k.fault(busy, broken, slow)
		k.sh("echo x > made")
		require.Equal(t, []string{"A made"}, k.changed())
		k.nothingLeft()
	}},
	{"the time is up", func(t *testing.T, k *task) {
		k.request.Limits[6] = "10s" // time to make its file
		o := k.run("/bin/sh", "-c", "echo x > made; trap 'exit 3' TERM; sleep 600 & wait")
		require.NoError(t, o.err)
		require.Equal(t, 124, o.code)
		require.Equal(t, []string{"A made"}, k.changed())
		k.nothingLeft()
	}},
	{"input, arguments, environment, output and status", func(t *testing.T, k *task) {
		k.stdin = strings.NewReader(strings.Repeat("typed\n", 20_000))
		k.write("sub/ü $(id) ' \"", "here\n")
		k.request.Env = []string{"GIVEN=a b\nc", "EMPTY="}
		o := k.run("/bin/sh", "-c", `wc -c | tr -d ' '
echo $(basename $PWD)/$(ls a.txt)
cat "$1"; printf '<%s>' "$2" "$3" "$4"
printf '%s|%s|%s|%s\n' "$GIVEN" "${EMPTY-unset}" "${HOST_SECRET-unset}" "$LANG"
printf '\000\377\200x\n'
env
touch a.txt; chmod 600 a.txt; chmod 644 a.txt; echo x > t; rm t # which is no change
i=0; while [ $i -lt 20000 ]; do echo line $i; i=$((i+1)); done
echo err >&2
exit 37`, "sh", "sub/ü $(id) ' \"", "", "-n", "a\nb=c")
		require.NoError(t, o.err)
		require.Equal(t, 37, o.code)
		require.Equal(t, "err\n", o.say)
		head, lines, _ := strings.Cut(o.out, "line 0\n")
		require.True(t, strings.HasPrefix(head, "120000\nproj/a.txt\nhere\n<><-n><a\nb=c>a b\nc||unset|C.UTF-8\n\x00\xff\x80x\n"), "%q", head)
		require.NotContains(t, head, "dont-tell")
		require.NotContains(t, head, "/home/nobody-here")
		require.Equal(t, 19_999, strings.Count(lines, "\n"))
		require.True(t, strings.HasSuffix(lines, "line 19999\n"))
		require.NotContains(t, k.made(), "GIVEN", "a request to create knows of the environment")
		require.NotContains(t, k.made(), "printf", "a request to create knows of the command")
		require.Nil(t, k.changed())
		k.nothingLeft()
	}},
	{"no stdin is an empty one, and a signal that ends the command comes back", func(t *testing.T, k *task) {
		o := k.run("/bin/sh", "-c", "wc -c | tr -d ' '; kill -TERM $$")
		require.Equal(t, "0\n", o.out)
		require.Equal(t, 128+15, o.code)
		require.Empty(t, o.say)
	}},
	{"what is ignored, hidden, or holds keys or secrets stays", func(t *testing.T, k *task) {
		k.write(".gitignore", "build/\n")
		k.write("build/x", "x")
		k.write(".env", "A=1")
		k.write("id_rsa", "key")
		k.write(".git/config", "[core]\n")
		k.write("private/p", "p")
		k.write("config.py", "github = 'ghp_"+"0aB1cD2eF3gH4iJ5kL6mN7oP8qR9sT0uV1wX'\n")
		k.request.Files = []profiles.FileFlag{{Path: filepath.Join(k.dir, "private"), Access: profiles.Hide}, {Path: filepath.Join(k.dir, "a.txt"), Access: profiles.Private}}
		require.Equal(t, ".gitignore\nsub\nsub/b.txt\n", k.sh("find . -mindepth 1 | sed 's,^./,,' | LC_ALL=C sort").out)
		require.True(t, k.warned("config.py"), "%q", k.heard.warnings)
	}},
	{"what is made, changed, moved and removed comes back", func(t *testing.T, k *task) {
		k.write("gone.txt", "gone")
		k.write("old.txt", strings.Repeat("the same text\n", 10))
		k.write("run.sh", "x")
		k.write("dir/in/deep", "x")
		k.write("large", strings.Repeat(rand.Text(), 20_000))
		k.write("same", "one\n")
		k.write("todir", "x")
		k.write("tofile/x", "x")
		k.write(".env", "SECRET=1\n")
		k.write(".gitignore", "build\n")
		k.write("build/kept", "kept")
		var mu sync.Mutex
		far, showing := map[string][2]int64{}, ""
		k.progress = func(what string, done, total int64) {
			mu.Lock()
			defer mu.Unlock()
			if showing = what; what != "" && (done < far[what][0] || done > total) {
				t.Errorf("%s: %d of %d after %v", what, done, total, far[what])
			}
			far[what] = [2]int64{done, total}
		}
		k.started = func() {
			mu.Lock()
			defer mu.Unlock()
			require.Empty(t, showing, "the terminal is the command's")
		}
		k.sh(`echo more >> a.txt; mkdir new; echo n > new/n.txt; rm gone.txt; mv old.txt sub/moved.txt; chmod 755 run.sh; ln -s a.txt link; rm -r dir; : > empty; mkdir none
head -c 300000 /dev/urandom > made
rm -r tofile; echo f > tofile; rm todir; mkdir todir; echo i > todir/in
touch -r same ref; echo ONE > same; touch -r ref same; rm ref
echo evil > .mcp.json; mkdir .vscode; echo {} > .vscode/tasks.json
echo theirs > .env; mkdir build; echo b > build/b; git init -q . 2>/dev/null || mkdir .git; echo > .gitignore`)
		delete(far, "")
		require.Len(t, far, 3, "both ways are shown")
		for what, n := range far {
			require.Equal(t, n[1], n[0], what)
		}
		require.Greater(t, far["downloading"][1], int64(300_000))
		require.Equal(t, []string{
			"M .gitignore", "A .mcp.json protected", "A .vscode protected", "A .vscode/tasks.json protected", "M a.txt", "D dir", "D dir/in", "D dir/in/deep", "A empty",
			"D gone.txt", "A link", "A made", "A new", "A new/n.txt", "A none", "D old.txt", "M run.sh", "M same", "A sub/moved.txt", "T todir", "A todir/in", "T tofile", "D tofile/x",
		}, k.changed())
		for _, stood := range []string{"build", ".git", ".env"} {
			require.True(t, k.warned(stood), "%q", k.heard.warnings)
		}
		require.Equal(t, "one\n", k.read("a.txt"), "the host changes before an apply")
		done, err := k.apply()
		require.NoError(t, err)
		require.Len(t, done.Withheld, 3)
		require.NoFileExists(t, filepath.Join(k.dir, ".mcp.json"))
		require.Equal(t, "one\nmore\n", k.read("a.txt"))
		require.Equal(t, "SECRET=1\n", k.read(".env"), "what did not go up is not replaced")
		require.NoFileExists(t, filepath.Join(k.dir, "gone.txt"))
		require.NoDirExists(t, filepath.Join(k.dir, "dir"))
		require.FileExists(t, filepath.Join(k.dir, "sub/moved.txt"))
		target, err := os.Readlink(filepath.Join(k.dir, "link"))
		require.NoError(t, err)
		require.Equal(t, "a.txt", target)
		info, err := os.Stat(filepath.Join(k.dir, "run.sh"))
		require.NoError(t, err)
		require.Equal(t, os.FileMode(0o755), info.Mode().Perm())
		k.nothingLeft()
	}},
	{"what is read-only is so there, a conflict is told, and a download is cut and altered", func(t *testing.T, k *task) {
		k.fault(cutDownload, wrongOnce)
		k.request.Files = []profiles.FileFlag{{Path: filepath.Join(k.dir, "sub"), Access: profiles.Read}}
		k.started = func() { k.write("a.txt", "the host's\n") }
		require.Equal(t, "refused\n", k.sh("echo x >> sub/b.txt || echo refused; echo theirs > a.txt; head -c 100000 /dev/urandom > c").out)
		require.Equal(t, []string{"M a.txt conflict", "A c"}, k.changed())
		_, err := k.apply()
		require.Error(t, err)
		require.Equal(t, "the host's\n", k.read("a.txt"))
		k.nothingLeft()
	}},
	{"a signal reaches the command, and what runs on in the background ends", func(t *testing.T, k *task) {
		nap := fmt.Sprintf("600.%09d", time.Now().UnixNano()%1e9)
		k.signals = make(chan int, 1)
		o := k.meanwhile("sleep "+nap+" & trap 'echo got it; exit 9' INT; touch ready; while :; do sleep 0.1; done", func(io.Writer) {
			await.Until(t, "it runs in the background", func() bool { return naps(nap) == 1 })
			k.signals <- 2
		})
		require.NoError(t, o.err)
		require.Equal(t, 9, o.code)
		require.Equal(t, "got it\n", o.out)
		await.Until(t, "it runs no more", func() bool { return naps(nap) == 0 })
		k.nothingLeft()
	}},
	{"a sandbox that is paused while this machine sleeps is resumed", func(t *testing.T, k *task) {
		o := k.meanwhile("echo early; touch ready; cat >/dev/null; echo late; exit 5", func(io.Writer) {
			k.pause(k.stand("running")[0])
			await.Until(t, "it runs again", func() bool { return len(k.stand("running")) == 1 })
		})
		require.NoError(t, o.err)
		require.Equal(t, 5, o.code)
		require.Equal(t, "early\nlate\n", o.out)
		require.Equal(t, []string{"A ready"}, k.changed())
		k.nothingLeft()
	}},
	{"a terminal there, its size and its keys", func(t *testing.T, k *task) {
		resized := make(chan struct{}, 1)
		var columns atomic.Int32
		columns.Store(77)
		k.terminal = &providers.Terminal{Name: "xterm", Size: func() (int, int) { return int(columns.Load()), 22 }, Resized: resized}
		o := k.meanwhile("trap 'echo interrupted; exit 5' INT; test -t 0 && test -t 1 && echo $TERM; stty size; touch ready; "+
			`until [ "$(stty size)" = "22 99" ]; do sleep 0.1; done; touch large; read w; echo got $w > made; while :; do sleep 0.1; done`, func(keys io.Writer) {
			columns.Store(99)
			resized <- struct{}{}
			k.until("large")
			_, _ = io.WriteString(keys, "word\n")
			k.until("made")
			_, _ = io.WriteString(keys, "\x03")
		})
		require.NoError(t, o.err)
		require.Equal(t, 5, o.code)
		require.Equal(t, "xterm\r\n22 77\r\nword\r\n^Cinterrupted\r\n", o.out)
		require.Equal(t, []string{"A large", "A made", "A ready"}, k.changed())
	}},
	{"a run that is ended keeps what was made", func(t *testing.T, k *task) {
		ctx, cancel := context.WithCancel(t.Context())
		k.ctx = ctx
		o := k.meanwhile("echo x > ready; sleep 600", func(io.Writer) { cancel() })
		require.NoError(t, o.err)
		require.True(t, o.Killed)
		require.Equal(t, []string{"A ready"}, k.changed())
		k.nothingLeft()
	}},
	{"a command is not there, and its sandbox, which cannot be destroyed, is found by its label", func(t *testing.T, k *task) {
		k.fault(noDestroy)
		o := k.run("no-such-program")
		require.Equal(t, 127, o.code)
		require.ErrorContains(t, o.err, "no-such-program")
		require.Contains(t, hint(o.err), "~/proj")
		require.ErrorContains(t, o.err, "was not destroyed")
		k.fault()
		found, err := k.provider.Find(t.Context(), "")
		require.NoError(t, err)
		require.Len(t, found, 1)
		require.Equal(t, k.label, found[0].Labels[providers.LabelKey])
		found, err = k.provider.Find(t.Context(), "another")
		require.NoError(t, err)
		require.Empty(t, found)
		require.NoError(t, k.provider.Destroy(t.Context(), providers.Resource{Provider: k.place.name, Labels: map[string]string{providers.LabelKey: k.label}}))
		k.nothingLeft()
		require.NoError(t, k.provider.Destroy(t.Context(), k.heard.created[0]), "what is gone already is no error")
	}},
	{"a command is not executable, and the answer to create is lost", func(t *testing.T, k *task) {
		k.fault(lostCreate)
		require.Equal(t, 126, k.run("./a.txt").code)
		require.Equal(t, 1, strings.Count(k.made(), k.label), "a second one was made")
		k.nothingLeft()
	}},
	{"one call creates two, and of a stream that is cut over and over nothing is lost", func(t *testing.T, k *task) {
		k.fault(twiceCreate, cutOften)
		o := k.run("/bin/sh", "-c", "i=0; while [ $i -lt 2000 ]; do echo line $i; i=$((i+1)); done; echo x > made; exit 6")
		require.NoError(t, o.err)
		require.Equal(t, 6, o.code)
		var want strings.Builder
		for i := range 2000 {
			fmt.Fprintf(&want, "line %d\n", i)
		}
		require.Equal(t, want.String(), o.out)
		require.Equal(t, []string{"A made"}, k.changed())
		require.Equal(t, 2, strings.Count(k.made(), k.label))
		k.nothingLeft()
	}},
	{"there is no network for a while", func(t *testing.T, k *task) {
		var refused atomic.Int32
		o := k.meanwhile("touch ready; i=0; until [ -e over ]; do echo line $i; i=$((i+1)); sleep 0.01; done; cat; exit 4", func(in io.Writer) {
			k.decide(func(r *http.Request) *faults.Fault {
				refused.Add(1)
				return &faults.Fault{Cut: -1}
			})
			k.unplug()
			taken := make(chan struct{})
			go func() { _, _ = io.WriteString(in, "typed\n"); close(taken) }()
			await.Until(t, "pccrun tries again", func() bool { return refused.Load() >= 4 })
			k.decide(func(*http.Request) *faults.Fault { return nil })
			await.Closed(t, "what was typed is on its way", taken)
			require.NoError(t, os.WriteFile(filepath.Join(k.home(k.stand("running")[0]), "proj/over"), nil, 0o644))
		})
		require.NoError(t, o.err)
		require.Equal(t, 4, o.code)
		lines, rest, _ := strings.Cut(o.out, "typed\n")
		require.Empty(t, rest)
		for i, line := range strings.Split(strings.TrimSuffix(lines, "\n"), "\n") {
			require.Equal(t, fmt.Sprintf("line %d", i), line)
		}
		require.Equal(t, []string{"A over", "A ready"}, k.changed())
		k.nothingLeft()
	}},
	{"three minutes without a network, and the run is over", func(t *testing.T, k *task) {
		k.atOnce = true
		o := k.meanwhile("echo early; echo x > ready; cat; echo late > late", func(io.Writer) {
			k.decide(func(*http.Request) *faults.Fault { return &faults.Fault{Cut: -1} })
			k.unplug()
			k.goesOn.Store(int64(time.Minute))
		})
		require.Equal(t, 125, o.code)
		require.Contains(t, "early\n", o.out, "what it printed before, as far as it was on its way")
		require.ErrorContains(t, o.err, "the connection was lost")
		require.ErrorContains(t, o.err, "the changes could not be downloaded")
		require.Contains(t, hint(o.err), "pccrun download fetches them")
		require.Nil(t, k.changed())
		require.Len(t, k.stand(""), 1, "what was changed is there")
		k.decide(func(*http.Request) *faults.Fault { return nil })
		require.NoError(t, k.opened().(fetcher).Fetch(t.Context(), k.heard.created[0], providers.Stdio{Changes: k.session}, &k.heard), "pccrun download")
		require.Equal(t, []string{"A ready"}, k.changed())
		k.nothingLeft()
	}},
	{"the clock there is ten minutes behind", func(t *testing.T, k *task) {
		k.set.Clock = -10 * time.Minute
		k.sh("echo x > made")
		require.Equal(t, []string{"A made"}, k.changed())
		k.nothingLeft()
	}},
	{"the clock there is ten minutes ahead", func(t *testing.T, k *task) {
		k.set.Clock = 10 * time.Minute
		k.sh("echo x > made")
		require.Equal(t, []string{"A made"}, k.changed())
		k.nothingLeft()
	}},
	{"the sandbox is gone while the command runs", func(t *testing.T, k *task) {
		o := k.meanwhile("echo x > ready; cat", func(io.Writer) { k.remove(k.stand("running")[0]) })
		require.ErrorContains(t, o.err, "the sandbox does not exist any more")
		require.Equal(t, 125, o.code)
		require.Nil(t, k.changed())
		k.nothingLeft()
	}},
	{"a key that is not set", func(t *testing.T, k *task) {
		k.environ = nil
		o := k.run("true")
		require.Equal(t, 125, o.code)
		for _, name := range k.place.keys {
			require.ErrorContains(t, o.err, name)
			require.Contains(t, hint(o.err), name+"=")
		}
		require.ErrorContains(t, o.err, " not set")
		require.Contains(t, hint(o.err), "export ")
		require.Empty(t, k.calls())
	}},
	{"no program for the processor of its sandboxes", func(t *testing.T, k *task) {
		k.program = filepath.Join(t.TempDir(), "absent")
		o := k.run("true")
		require.Equal(t, 125, o.code)
		require.ErrorContains(t, o.err, "absent")
		require.Empty(t, k.calls(), "it is found out before anything is asked for")
	}},
	{"a key that is wrong", func(t *testing.T, k *task) {
		k.env = []string{k.place.keys[0] + "=" + k.place.wrongKey}
		o := k.run("true")
		require.Equal(t, 125, o.code)
		require.NotContains(t, o.err.Error(), k.place.wrongKey)
		require.Contains(t, hint(o.err), k.place.keys[0])
	}},
	{"what cannot be had is refused by name", func(t *testing.T, k *task) {
		k.request.Local = []string{"5432"}
		_, err := k.plan("true")
		require.ErrorContains(t, err, "local")
		k.request.Local, k.request.Publish = nil, []string{"3000"}
		_, err = k.plan("true")
		if k.provider.(interface{ Offer() remote.Offer }).Offer().Previews {
			require.NoError(t, err)
		} else {
			require.ErrorContains(t, err, "publish")
		}
		k.request.Publish, k.request.Files = nil, []profiles.FileFlag{{Path: "/srv/data", Access: profiles.Write}}
		_, err = k.plan("true")
		require.ErrorContains(t, err, "/srv/data: only the workspace is copied")
	}},
	{"a plan tells no secret and changes nothing", func(t *testing.T, k *task) {
		k.request.Env = []string{"TOKEN=hunter2"}
		k.write(".env", "A=1")
		k.write("config.py", "github = 'ghp_"+"0aB1cD2eF3gH4iJ5kL6mN7oP8qR9sT0uV1wX'\n")
		k.write("private/p", "p")
		k.request.Files = []profiles.FileFlag{{Path: filepath.Join(k.dir, "private"), Access: profiles.Hide}}
		plan, err := k.plan("true")
		require.NoError(t, err)
		text, err := json.Marshal(plan.Describe())
		require.NoError(t, err)
		require.Contains(t, string(text), "TOKEN")
		require.NotContains(t, string(text), "hunter2")
		d := plan.Describe().(*remote.Description).Upload
		require.Equal(t, []string{"a.txt", "sub", "sub/b.txt"}, d.Files)
		left := map[string]string{}
		for _, l := range d.Left {
			left[l.Path] = l.Why
		}
		require.Len(t, left, 3)
		require.Contains(t, left[".env"], ".env")
		require.Equal(t, "the policy: hide", left["private"])
		require.Contains(t, left["config.py"], "secret")
		require.Len(t, d.Secrets, 1)
		require.Contains(t, d.Secrets[0], "config.py:1: github-pat")
		require.NotContains(t, string(text), "ghp_")
		require.Equal(t, int64(8), d.Bytes)
		require.Greater(t, d.Compressed, int64(0))
		require.Empty(t, k.stand(""))
	}},
	{"none can be created", func(t *testing.T, k *task) {
		k.fault(neverCreate)
		o := k.run("true")
		require.Equal(t, 125, o.code)
		require.ErrorContains(t, o.err, "quota of sandboxes exceeded")
		for _, v := range k.environ {
			if name, key, _ := strings.Cut(v, "="); name == k.place.keys[0] {
				require.NotContains(t, o.err.Error(), key)
			}
		}
	}},
	{"a proxy answers", func(t *testing.T, k *task) {
		k.fault(htmlCreate)
		o := k.run("true")
		require.Equal(t, 125, o.code)
		require.ErrorContains(t, o.err, "is a proxy in between?")
		k.nothingLeft()
	}},
	{"a hostile archive", func(t *testing.T, k *task) {
		k.hostile()("made@", "made/x")
		o := k.run("/bin/sh", "-c", "echo x > made")
		require.ErrorContains(t, o.err, "refused")
		require.Contains(t, hint(o.err), "refused.tar.zst")
		require.Nil(t, k.changed())
		require.Equal(t, "one\n", k.read("a.txt"))
		state, _ := k.place.rests()
		require.Len(t, k.stand(state), 1, "nobody else has what was made")
	}},
	{"what this machine cannot hold stays in the sandbox, and all else comes", func(t *testing.T, k *task) {
		o := k.run("/bin/sh", "-c", `mkdir -p logs 'odd:dir'; echo x > logs/12:00:00.log; echo x > aux.c; echo x > odd:dir/in; echo x > logs/fine; echo more >> a.txt
ln -s /usr/bin/python3 python; echo x > README; echo x > readme; rm sub/b.txt; exit 3`)
		require.Equal(t, 3, o.Code)
		require.ErrorContains(t, o.err, "6 of the names that were changed could not be downloaded; sandbox ")
		state, says := k.place.rests()
		require.ErrorContains(t, o.err, says)
		require.Contains(t, hint(o.err), "pccrun kill SESSION --no-download destroys the sandbox")
		require.True(t, k.warned(`left in the sandbox: "aux.c" (it is the name of a device on Windows), `), "%q", k.heard.warnings)
		came := []string{"A README", "M a.txt", "A logs", "A logs/fine", "D sub/b.txt"}
		require.Equal(t, came, k.changed())
		stand := k.stand(state)
		require.Len(t, stand, 1)
		require.FileExists(t, filepath.Join(k.home(stand[0]), "proj/odd:dir/in"))
		err := k.provider.(fetcher).Fetch(t.Context(), k.heard.created[0], providers.Stdio{Changes: k.session}, &k.heard)
		require.ErrorContains(t, err, "6 of the names")
		require.Equal(t, came, k.changed(), "they are not downloaded twice")
		require.Equal(t, stand, k.stand(state))
		names, said, err := k.copied(providers.Copy{})
		require.NoError(t, err)
		require.Equal(t, "x\n", names["logs/fine"])
		require.Contains(t, strings.Join(said.warnings, "\n"), `not downloaded: "aux.c"`)
		require.NoError(t, k.provider.Destroy(t.Context(), k.heard.created[0]), "the user says so")
		k.nothingLeft()
	}},
	{"a copy of a repository is one, with one commit", func(t *testing.T, k *task) {
		for _, args := range [][]string{{"init", "-q", "-b", "topic/one"}, {"add", "."}, {"-c", "user.name=U", "-c", "user.email=u@example.com", "commit", "-qm", "what stays here"}} {
			c := exec.Command("git", args...)
			c.Dir, c.Env = k.dir, append(os.Environ(), "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null")
			out, err := c.CombinedOutput()
			require.NoError(t, err, string(out))
		}
		k.write(".gitignore", "build/\n")
		k.write(".env", "KEY=a-key")
		o := k.sh("git status --porcelain; git log --format=%s; git branch --show-current; git ls-tree -r --name-only HEAD; " +
			"echo more >> a.txt; git -c user.name=A -c user.email=a@example.com commit -qam second; git log -1 --format=%s; git diff HEAD~1 --name-only")
		require.Equal(t, "the workspace\ntopic/one\n.gitignore\na.txt\nsub/b.txt\nsecond\na.txt\n", o.out, o.say)
		require.Equal(t, []string{"M a.txt"}, k.changed())
		require.True(t, k.warned("not downloaded: commits that were made there"), "%q", k.heard.warnings)
		require.False(t, k.warned("a repository that was made there"), "%q", k.heard.warnings)
		k.nothingLeft()
	}},
	{"the network is away for a while in the middle of a line", func(t *testing.T, k *task) {
		w := k.place.wire()
		var cut, away atomic.Int32
		k.decide(func(r *http.Request) *faults.Fault {
			if w.line(r) && cut.Add(1) == 1 {
				return &faults.Fault{Cut: 3000}
			}
			if cut.Load() > 0 && away.Add(1) <= 8 { // no more than as often as a call is repeated, and the line is tried
				return &faults.Fault{Cut: -1}
			}
			return nil
		})
		o := k.run("/bin/sh", "-c", "i=0; while [ $i -lt 2000 ]; do echo line $i; i=$((i+1)); done; echo x > made; exit 6")
		require.NoError(t, o.err)
		require.Equal(t, 6, o.code)
		require.Equal(t, 2000, strings.Count(o.out, "line "))
		require.Greater(t, away.Load(), int32(8), "the control")
		require.Equal(t, []string{"A made"}, k.changed())
		k.nothingLeft()
	}},
	{"no download comes through", notDownloaded},
	{"what is gone cannot be downloaded", downloadedFromNowhere},
	{"a copy is taken while the command runs", copiedWhileItRuns},
}

// What some providers have nothing of.
var (
	ofHTTP = map[string]bool{
		"calls are slow, refused, and answered by errors": true, "a proxy answers": true, "there is no network for a while": true, "three minutes without a network, and the run is over": true,
		"the clock there is ten minutes behind": true, "the clock there is ten minutes ahead": true, "the sandbox is gone while the command runs": true,
		"the network is away for a while in the middle of a line": true,
	}
	// Where nobody is root a sandbox is no machine, and pccrun there outlives its removal.
	ofMachines = map[string]bool{"the sandbox is gone while the command runs": true}
	ofSleep    = map[string]bool{"a sandbox that is paused while this machine sleeps is resumed": true}
)

// ofEngine are the cases that only the engine decides, whatever carries its calls: they are tried at one provider behind a network
// and at the least that one may be.
var ofEngine = map[string]bool{
	"the time is up": true, "no stdin is an empty one, and a signal that ends the command comes back": true, "what is ignored, hidden, or holds keys or secrets stays": true,
	"what is made, changed, moved and removed comes back": true, "a signal reaches the command, and what runs on in the background ends": true, "a terminal there, its size and its keys": true,
	"a hostile archive": true, "what this machine cannot hold stays in the sandbox, and all else comes": true,
	"a copy of a repository is one, with one commit": true,
}

// provesEngine reports whether they are tried at a place.
func provesEngine(p *place) bool { return p == places[0] || p == least }

// fetcher is what each of these providers is, too.
type fetcher interface {
	Fetch(ctx context.Context, r providers.Resource, stdio providers.Stdio, o providers.Observer) error
}

// naps counts the processes that sleep for a time that nobody else sleeps for.
func naps(time string) (n int) {
	list, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, name := range list {
		if text, _ := os.ReadFile(name); string(text) == "sleep\x00"+time+"\x00" {
			n++
		}
	}
	return n
}

// hint is what an error says that mends it.
func hint(err error) string {
	type hinted interface{ Hint() string }
	for err != nil {
		if h, ok := err.(hinted); ok {
			return h.Hint()
		}
		if many, ok := err.(interface{ Unwrap() []error }); ok {
			for _, one := range many.Unwrap() {
				if text := hint(one); text != "" {
					return text
				}
			}
			return ""
		}
		one, ok := err.(interface{ Unwrap() error })
		if !ok {
			return ""
		}
		err = one.Unwrap()
	}
	return ""
}

// hostile has a program go up that is pccrun, and makes an archive of its own once it has been told its members: files,
// and links to /etc where a name ends in @. Without any it is honest.
func (k *task) hostile() func(members ...string) {
	t := k.t
	dir, err := os.MkdirTemp("", "pccrun-hostile-")
	require.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	require.NoError(t, os.Chmod(dir, 0o755))
	program, err := os.ReadFile(host.Program(t))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "pccrun"), program, 0o755))
	k.program = filepath.Join(dir, "hostile")
	script := `#!/bin/sh
[ "$1 $2" = "place pack" ] && [ -e ` + dir + `/archive ] || exec ` + dir + `/pccrun "$@"
mkdir -p "$7"
cat ` + dir + `/archive > "$7/0000"
cat ` + dir + "/answer\n"
	require.NoError(t, os.WriteFile(k.program, []byte(script), 0o755))
	k.path(dir)
	return func(members ...string) {
		if len(members) == 0 {
			require.NoError(t, os.Remove(filepath.Join(dir, "archive")))
			return
		}
		var b bytes.Buffer
		small, err := filesync.Compress(&b)
		require.NoError(t, err)
		archive := tar.NewWriter(small)
		for _, name := range members {
			if link, is := strings.CutSuffix(name, "@"); is {
				require.NoError(t, archive.WriteHeader(&tar.Header{Typeflag: tar.TypeSymlink, Name: link, Linkname: "/etc"}))
				continue
			}
			require.NoError(t, archive.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Size: 1, Mode: 0o644}))
			_, err = archive.Write([]byte("x"))
			require.NoError(t, err)
		}
		require.NoError(t, archive.Close())
		require.NoError(t, small.Close())
		answer := fmt.Sprintf(`{"Sum":"%x","Size":%d,"Parts":1}`, sha256.Sum256(b.Bytes()), b.Len())
		require.NoError(t, os.WriteFile(filepath.Join(dir, "answer"), []byte(answer), 0o644))
		require.NoError(t, os.WriteFile(filepath.Join(dir, "archive"), b.Bytes(), 0o644))
	}
}

// Root's are what has owners there: what goes up, and what comes back.
//
//test:root .*/^(what_is_(ignored|made|read-only)|the_sandbox_is_gone)
func TestConformance(t *testing.T) {
	t.Parallel()
	for _, p := range append(places, least) {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			for _, c := range cases {
				if credential == nil && ofMachines[c.name] || ofEngine[c.name] && !provesEngine(p) || p.wire == nil && ofHTTP[c.name] || (!p.sleeps || p.ends) && ofSleep[c.name] {
					continue
				}
				t.Run(c.name, func(t *testing.T) { t.Parallel(); c.try(t, newTask(t, p)) })
			}
		})
	}
}
