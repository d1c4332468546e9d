package native

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pccrun/pccrun/internal/await"
	"github.com/pccrun/pccrun/profiles"
)

// openBench asks for a strict run without the mounts that hide and pin, so that
// what is refused is refused by the launcher, behind Landlock.
func openBench(t *testing.T, strict bool, without ...profiles.Layer) *bench {
	b := newBench(t)
	b.request.Strict = strict
	b.request.AllowMissing = []string{"fs.special", "ipc.unix", "info.host", "res.memory", "res.pids", "res.cpu"}
	for _, l := range without {
		b.request.Without = append(b.request.Without, string(l))
	}
	return b
}

// Without the mounts each way to read what is hidden in the workspace is refused
// under strict, and works without it.
func TestOpens(t *testing.T) {
	unprivileged(t)
	for name, script := range map[string]string{
		"by its name":                    "cat .env",
		"as standard input":              "cat < .env",
		"for reading and writing":        "exec 3<>.env && cat <&3",
		"by an absolute path":            "cat $PWD/.env",
		"by another spelling":            "cat .git/../.env",
		"by a link":                      "ln -s .env l && cat l",
		"by links":                       "mkdir d && ln -s ../l d/l && ln -s .env l && cat d/l",
		"by the directory in /proc":      "cat /proc/self/cwd/.env",
		"by the root in /proc":           "cat /proc/self/root$PWD/.env",
		"by a directory's descriptor":    "exec 3<. && cat /proc/self/fd/3/.env",
		"under another name":             "mv .env x && cat x",
		"under one name more":            "ln .env x && cat x",
		"in another's place":             `python3 -c "import ctypes; ctypes.CDLL(None).renameat2(-100, b'.env', -100, b'file', 2)" && cat file`,
		"copied":                         "cp .env x && cat x",
		"as a script":                    "sh .env; sed p .env",
		"by a descriptor without rights": `python3 -c 'import os; fd = os.open(".env", os.O_PATH); print(open("/proc/self/fd/%d" % fd).read())'`,
		"below a hidden directory":       "cat hidden/secret",
		"in a directory that moves":      "mv hidden open && cat open/secret",
		"in a directory of a pattern":    "cat keys/a.key",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, strict := range []bool{false, true} {
				b := openBench(t, strict, profiles.LayerHide)
				for _, dir := range []string{"work/hidden", "work/keys"} {
					require.NoError(t, os.MkdirAll(filepath.Join(b.home, dir), 0o755))
				}
				b.write("work/hidden/secret", "canary-env\n")
				b.write("work/keys/a.key", "canary-env\n")
				for _, path := range []string{"hidden", "keys/*.key"} {
					b.request.Files = append(b.request.Files, profiles.FileFlag{Path: filepath.Join(b.workspace, path), Access: profiles.Hide})
				}
				o := b.sh("exec 2>&1; " + script)
				require.NoError(t, o.err)
				require.Equal(t, !strict, strings.Contains(o.out, "canary-env"), o.out)
			}
		})
	}
}

// A hidden file is hidden though the host replaces it, or makes it, during the
// run, under whatever name; a protected one cannot be written then either.
func TestOpensReplaced(t *testing.T) {
	unprivileged(t)
	for _, strict := range []bool{false, true} {
		b := openBench(t, strict, profiles.LayerHide, profiles.LayerProtect)
		run, err := b.plan("sh", "-c", `until [ -e go ]; do sleep 0.01; done
cat .env .env.new; mv .env x; cat x; ln .env.new y; cat y; echo written > .git/config; truncate -s 0 .git/config; cp file .git/config; mv file .git/config; echo end`)
		require.NoError(t, err)
		_, wait := b.launch(run)
		for _, name := range []string{".env", ".git/config"} {
			text, err := os.ReadFile(filepath.Join(b.workspace, name))
			require.NoError(t, err)
			b.write("work/replaces", string(text))
			require.NoError(t, os.Rename(filepath.Join(b.workspace, "replaces"), filepath.Join(b.workspace, name)))
		}
		b.write("work/.env.new", "canary-env\n")
		before, err := os.ReadFile(filepath.Join(b.workspace, ".git/config"))
		require.NoError(t, err)
		b.write("work/go", "")
		o := wait()
		require.NoError(t, o.err)
		require.Contains(t, o.out, "end")
		after, err := os.ReadFile(filepath.Join(b.workspace, ".git/config"))
		require.NoError(t, err)
		require.Equal(t, !strict, strings.Contains(o.out, "canary-env"), o.out)
		require.Equal(t, strict, string(before) == string(after))
	}
}

// What the host makes under a hidden name during the run is reached by no
// descriptor that has no rights: not under a name that it is given, and not after
// its own is taken away. The control is the same file under a name that is shown.
func TestOpensHeld(t *testing.T) {
	unprivileged(t)
	for name, script := range map[string]string{
		"given a name": `libc.linkat(-100, b"/proc/self/fd/%d" % fd, -100, b"x", 0x400); print(open("x").read())`,
		"removed":      `os.unlink(name); print(open("/proc/self/fd/%d" % fd).read())`,
		"as it stands": `print(open("/dev/fd/%d" % fd).read())`,
	} {
		t.Run(name, func(t *testing.T) {
			for _, file := range []string{"later.pem", "later.txt"} {
				b := openBench(t, true)
				b.request.Files = append(b.request.Files, profiles.FileFlag{Path: b.workspace + "/**/*.pem", Access: profiles.Hide})
				run, err := b.plan("python3", "-c", `import ctypes, os, time
libc, name = ctypes.CDLL(None), "`+file+`"
while not os.path.exists("go"): time.sleep(0.01)
fd = os.open(name, os.O_PATH)
`+script)
				require.NoError(t, err)
				_, wait := b.launch(run)
				b.write("work/"+file, "canary-later\n")
				b.write("work/go", "")
				o := wait()
				require.NoError(t, o.err)
				require.Equal(t, file == "later.txt", strings.Contains(o.out, "canary-later"), o.out)
			}
		})
	}
}

// A directory that may be written and lies in one that is shown has no rights of
// that one's: a path that the launcher does not look up leads to nothing either.
func TestOpensShown(t *testing.T) {
	unprivileged(t)
	for _, strict := range []bool{false, true} {
		b := openBench(t, strict)
		b.workspace = filepath.Join(b.home, "shown/inner")
		require.NoError(t, os.Mkdir(b.workspace, 0o755))
		b.request.Files = append(b.request.Files, profiles.FileFlag{Path: b.workspace + "/**/*.pem", Access: profiles.Hide})
		b.write("shown/beside", "canary-beside\n")
		run, err := b.plan("sh", "-c", "until [ -e go ]; do sleep 0.01; done; cat later.pem; cat /proc/self/cwd/later.pem; cat ../beside")
		require.NoError(t, err)
		_, wait := b.launch(run)
		b.write("shown/inner/later.pem", "canary-later\n")
		b.write("shown/inner/go", "")
		o := wait()
		require.NoError(t, o.err)
		require.Equal(t, !strict, strings.Contains(o.out, "canary-later"), o.out)
		require.Contains(t, o.out, "canary-beside")
	}
}

// A file that is handed in open for reading is not opened for more: for the
// command Landlock sees to it, which is off in the control.
func TestOpensPassed(t *testing.T) {
	unprivileged(t)
	passed := func(file string, strict bool, without ...profiles.Layer) (before, after string) {
		b := openBench(t, strict, without...)
		path := filepath.Join(b.home, file)
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		f, err := os.Open(path)
		require.NoError(t, err)
		defer f.Close()
		run, err := b.plan("bash", "-c", fmt.Sprintf("head -c 4 <&%[1]d; echo written >> /proc/self/fd/%[1]d; echo end", f.Fd()))
		require.NoError(t, err)
		run.Plan.PassFDs = []int{int(f.Fd())}
		_, wait := b.launch(run)
		o := wait()
		require.NoError(t, o.err)
		require.Contains(t, o.out, string(text[:4]))
		require.Contains(t, o.out, "end")
		now, err := os.ReadFile(path)
		require.NoError(t, err)
		return string(text), string(now)
	}
	before, after := passed("secret", false, profiles.LayerLandlock)
	require.Equal(t, before+"written\n", after)
	before, after = passed("secret", false)
	require.Equal(t, before, after)
	for _, file := range []string{"secret", "work/file", "work/.git/config"} {
		before, after = passed(file, true)
		require.Equal(t, before, after, file)
	}
}

// An open for which a process has no number left does not empty the file.
func TestOpensFull(t *testing.T) {
	unprivileged(t)
	for _, strict := range []bool{false, true} {
		b := openBench(t, strict)
		o := b.sh(`exec 2>&1; python3 - <<'P'
import os, resource
resource.setrlimit(resource.RLIMIT_NOFILE, (16, 16))
try:
    while True:
        os.dup(0)
except OSError:
    pass
try:
    os.open("file", os.O_WRONLY | os.O_TRUNC)
except OSError as e:
    print(e)
P
cat file; echo > file; wc -c file`)
		require.NoError(t, o.err)
		require.Contains(t, o.out, "Too many open files")
		require.Contains(t, o.out, "content\n1 file\n")
	}
}

// What the command makes under hidden names, or gives them, is its own.
func TestOpensOwn(t *testing.T) {
	unprivileged(t)
	b := openBench(t, true)
	o := b.sh(`set -e; exec 2>&1
echo made > .env.made; cat .env.made; echo more >> .env.made; cat .env.made
echo moved > t; mv t .env.moved; cat .env.moved; echo linked > t; ln t .env.linked; cat .env.linked
mv .env.made u; cat u; rm .env.moved; echo again > .env.moved; cat .env.moved
cat < u; cat /dev/stdin < u; cat /proc/self/fd/0 < u; truncate -s 2 u; cat u
python3 - <<'P'
import os, tempfile
with tempfile.TemporaryFile(dir=".") as f:
    f.write(b"nameless"); f.seek(0); print(f.read())
os.close(os.open(".", os.O_TMPFILE | os.O_RDWR))
fd = os.open("u", os.O_PATH)
print(open("/proc/self/fd/%d" % fd).read())
P
cat .git/config | head -n 1; [ ! -r .env ]`)
	require.NoError(t, o.err)
	require.Zero(t, o.end.Status.ExitStatus(), o.out)
	for _, want := range []string{"made\nmade\nmore\n", "moved\n", "linked\n", "again\n", "b'nameless'", "[core]"} {
		require.Contains(t, o.out, want)
	}
}

// Programs do with files what they do without the launcher, but for FIFOs in the
// workspace, which nobody opens.
func TestOpensWorks(t *testing.T) {
	unprivileged(t)
	const fifo = "try mkfifo fifo; (echo fifo > fifo &) ; cat fifo; "
	const made = `prog; chmod +x prog; ./prog`
	require.Contains(t, works, fifo)
	require.Contains(t, works, made)
	var outs [2][]string
	for i, strict := range []bool{false, true} {
		b := openBench(t, strict)
		o := b.sh(strings.Replace(strings.Replace(works, fifo, "", 1), made, "prog; chmod +x prog; sh prog", 1))
		require.NoError(t, o.err)
		outs[i] = strings.Split(strings.ReplaceAll(o.out, b.home, "HOME"), "\n")
	}
	require.Equal(t, outs[0], outs[1])

	for _, strict := range []bool{false, true} {
		bound := "1"
		if !strict {
			bound = fmt.Sprint(await.Patience.Seconds())
		}
		b := openBench(t, strict)
		o := b.sh("mkfifo fifo; (echo through > fifo &); timeout " + bound + " cat fifo; mkfifo /var/tmp/fifo; (echo private > /var/tmp/fifo &); cat /var/tmp/fifo")
		require.NoError(t, o.err)
		require.Equal(t, !strict, strings.Contains(o.out, "through"))
		require.Contains(t, o.out, "private")
	}
}

// What stood can be executed, scripts as well; what the command makes where it may
// write on the host cannot, but by a program that reads it.
func TestOpensPrograms(t *testing.T) {
	unprivileged(t)
	for _, strict := range []bool{false, true} {
		b := openBench(t, strict)
		b.write("work/script", "#!/bin/sh\necho script \"$@\"\n")
		b.host("cp", "/bin/echo", filepath.Join(b.workspace, "program"))
		require.NoError(t, os.Chmod(filepath.Join(b.workspace, "script"), 0o755))
		o := b.sh(`./script runs; ./program program runs; sh script too; cp program made; ./made made; cp program /var/tmp/private; /var/tmp/private private runs; ln -s script link; ./link linked`)
		require.NoError(t, o.err)
		want := "script runs\nprogram runs\nscript too\nmade\nprivate runs\nscript linked\n"
		if strict {
			want = strings.Replace(want, "made\n", "/bin/sh: 1: ./made: Permission denied\n", 1)
		}
		require.Equal(t, want, o.out)
	}
}

// With a launcher that opens files strict is kept for files, whatever the host
// does; in an overlay it is not.
func TestOpensAnswers(t *testing.T) {
	unprivileged(t)
	state := func(overlay bool) map[profiles.Guarantee]profiles.Answer {
		b := openBench(t, true)
		if overlay {
			b.request.Files = append(b.request.Files, profiles.FileFlag{Path: b.workspace, Access: profiles.Overlay})
			b.request.AllowMissing = append(b.request.AllowMissing, "fs.hide", "fs.protect")
		}
		run, err := b.plan("true")
		require.NoError(t, err)
		require.Equal(t, !overlay, run.Plan.At(b.workspace).OpensFiles)
		answers := map[profiles.Guarantee]profiles.Answer{}
		for _, a := range run.Answers {
			answers[a.Guarantee] = a
		}
		return answers
	}
	for _, g := range []profiles.Guarantee{profiles.FSHide, profiles.FSProtect, profiles.FSSpecial} {
		require.Equal(t, profiles.Kept, state(false)[g].State, state(false)[g].Cause)
	}
	require.Equal(t, profiles.Weak, state(true)[profiles.FSHide].State)
}

func TestAnchored(t *testing.T) {
	rule := func(path, glob string) *profiles.FileRule {
		return &profiles.FileRule{Path: path, Glob: glob, Access: profiles.Hide}
	}
	for _, c := range []struct {
		rule *profiles.FileRule
		dir  string
		want bool
	}{
		{rule("/w/a/b", ""), "/w/a", true},
		{rule("/w/a/b", ""), "/w/a/b", true},
		{rule("/w/a/b", ""), "/w/a/bc", false},
		{rule("/w", "**/.env*"), "/w/a", false},
		{rule("/w/a", "**/.env*"), "/w/a", true},
		{rule("/w/a", "**/.env*"), "/w/b", false},
		{rule("/w", "keys/*.key"), "/w/keys", true},
		{rule("/w", "keys/*.key"), "/w/other", false},
		{rule("/w", "*/secret"), "/w/any", true},
		{rule("/w", "**/keys/*.key"), "/w/x/keys", true},
		{rule("/w", "**/keys/*.key"), "/w/x", false},
		{rule("/w", "**/k*/*.key"), "/w/x", true},
	} {
		require.Equal(t, c.want, anchored(c.rule, c.dir), "%v %s", c.rule, c.dir)
	}
}

// Threads that rewrite a path while it is judged read nothing that is hidden.
func TestOpensRace(t *testing.T) {
	unprivileged(t)
	for _, strict := range []bool{false, true} {
		b := openBench(t, strict, profiles.LayerHide)
		b.write("work/harmless", "nothing\n")
		b.bringSelf("racer")
		tries := map[bool]string{false: "many", true: "few"}[strict] // the control ends when it has won
		o := b.sh("TRIES=" + tries + " GOCOVERDIR=. " + racerVariable + "=read ./racer")
		require.NoError(t, o.err)
		require.Equal(t, map[bool]string{false: "read\n", true: "never\n"}[strict], o.out)
	}
}

// A workspace in a directory that is hidden is not hidden itself.
func TestOpensWithinHidden(t *testing.T) {
	unprivileged(t)
	b := openBench(t, true)
	outer := filepath.Join(b.home, "outer")
	require.NoError(t, os.Mkdir(outer, 0o755))
	require.NoError(t, os.Rename(b.workspace, filepath.Join(outer, "work")))
	b.workspace = filepath.Join(outer, "work")
	b.write("outer/secret", "canary-outer\n")
	b.request.Files = append(b.request.Files, profiles.FileFlag{Path: outer, Access: profiles.Hide})
	o := b.sh("cat file; cat .env ../secret")
	require.NoError(t, o.err)
	require.Contains(t, o.out, "content\n")
	require.NotContains(t, o.out, "canary")
}
