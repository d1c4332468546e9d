package native

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/profiles"
)

// Each way to make a protected name that is absent is refused, and works
// without --protect-strict; what the name of something else is made of works.
func TestStrict(t *testing.T) {
	unprivileged(t)
	for name, script := range map[string]string{
		"open":                        "echo x > .envrc",
		"append":                      "echo x >> .envrc",
		"open in a directory":         "mkdir sub && echo x > sub/.npmrc",
		"open by another spelling":    "mkdir sub && echo x > sub/../sub/./.npmrc",
		"open by an absolute path":    "echo x > $PWD/.envrc",
		"open through a link":         "ln -s .envrc link && echo x > link",
		"open through links":          "mkdir d && ln -s ../link d/up && ln -s .envrc link && echo x > d/up",
		"open below a link":           "mkdir d && ln -s d e && echo x > e/.envrc",
		"open below a descriptor":     "exec 3<. && echo x > /proc/self/fd/3/.envrc",
		"open below the directory":    "echo x > /proc/self/cwd/.envrc",
		"open below the root":         "echo x > /proc/self/root$PWD/.envrc",
		"mkdir":                       "mkdir .vscode",
		"symlink":                     "ln -s file .envrc",
		"link":                        "ln file .envrc",
		"mkfifo":                      "mkfifo .envrc",
		"rename":                      "echo x > y && mv y .envrc",
		"rename into":                 "mkdir d; echo x > .d; mv .d d/.npmrc",
		"rename what holds it":        "mkdir d && echo x > d/config && mv d .cargo",
		"link to what holds it":       "mkdir d && ln -s d .cargo",
		"link, then rename":           "mkdir d && echo x > d/config && ln -s d l && mv -T l .cargo",
		"link, then link":             "mkdir d && echo x > d/config && ln -s d l && ln -P l .cargo",
		"link on git's way":           "mkdir d && echo x > d/attributes && rm -rf .git/info && ln -s ../d .git/l && mv -T .git/l .git/info",
		"move out of packages":        "mkdir -p node_modules/p && echo x > node_modules/p/.envrc && mv node_modules/p q",
		"rename what packages are in": "mkdir -p node_modules/p && echo x > node_modules/p/.envrc && mv node_modules q",
		"copy":                        "cp file .envrc",
		"install":                     "install -m 644 file .envrc",
		"tar":                         "mkdir /tmp/t && echo x > /tmp/t/.envrc && tar -C /tmp/t -c . | tar -x --no-same-permissions",
		"a name of git's":             "echo x > .git/commondir",
		"a directory that git reads":  "mkdir d && echo x > d/attributes && rm -rf .git/info && mv d .git/info",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, strict := range []bool{false, true} {
				b := newBench(t)
				b.request.ProtectStrict = strict
				require.NoError(t, os.RemoveAll(filepath.Join(b.workspace, ".git/info/attributes")))
				o := b.sh(script)
				require.NoError(t, o.err)
				if strict {
					require.NotZero(t, o.end.Status.ExitStatus(), o.out)
				} else {
					require.Zero(t, o.end.Status.ExitStatus(), o.out)
				}
			}
		})
	}
}

// works is what programs do with files. It does the same with the launcher's
// help and without.
const works = `
show() { find . -path ./.git -prune -o -printf '%p %y %m %n %l\n' | sort; }
try() { "$@" 2>&1; echo "$? $*"; }
echo a > a; echo b >> a; cat a; : > a; (umask 077; echo c > private; mkdir -m 755 open; mkdir closed); umask 002; echo d > group; mkdir shared
try mkdir open; try mkdir -p open/x/y/; try rmdir open/x/y; try ln -s nowhere/at/all dangling; try ln a hard; try ln a hard; try ln -s a soft; cat soft
echo through > soft; cat a; try mv a b; try mv b open; try mv open moved; try mv moved/b .; try mv b closed/; try mv closed/b/ x; try mv nothing x
try touch new/absent/file; try touch file/below; try mkdir file/below; echo x > dangling; try mkfifo fifo; (echo fifo > fifo &) ; cat fifo; try mkfifo fifo
set -C; echo y > group; echo $?; set +C; echo > /dev/null; echo out > /dev/stdout; echo fd > /proc/self/fd/1
try cp -r moved copy; try cp -p private copy; try rm -rf moved; mkdir 'strange name'; echo x > 'strange name/…'; echo x > "$(printf 'bytes\377\001')"; mktemp -p . tmp.XXXXXX | wc -c
rm -f tmp.*; chmod 500 shared; try touch shared/x; chmod 700 shared; try touch shared/x; ln -s /proc/self/fd/1 out; echo to-the-link > out
cd copy; echo x > ../from-below; echo y > ../../outside; cd ..; mkdir gone 'gone (deleted)'; cd gone; rmdir ../gone; try touch x; cd ..
echo t > /tmp/t; mkdir /tmp/d; mv /tmp/t /tmp/d; try mv /tmp/d/t .; echo h > ~/h; mkdir -p ~/.cache/x; mv ~/h ~/.cache/x; ls ~/.cache/x; try ln ~/.cache/x/h h
mkdir -p deep/$(printf 'd/%.0s' $(seq 100)); seq 200 | xargs -n 1 -P 4 sh -c 'echo $0 > many.$0; mv many.$0 done.$0'; cat done.* | sort -n | tail -1
printf '#!/bin/sh\necho ran\n' > prog; chmod +x prog; ./prog; mv prog prog2; mv -n prog2 a; mv --exchange prog2 a 2>/dev/null; touch a/ 2>&1; echo x > soft/ 
show`

func TestStrictWorks(t *testing.T) {
	unprivileged(t)
	var outs [2]string
	open := func() int {
		list, err := os.ReadDir("/proc/self/fd")
		require.NoError(t, err)
		return len(list)
	}
	for i, strict := range []bool{false, true} {
		b := newBench(t)
		b.request.ProtectStrict = strict
		before := open()
		o := b.sh(works)
		require.NoError(t, o.err)
		require.Less(t, open(), before+100, "descriptors of the launcher: one for each file would be hundreds")
		outs[i] = strings.ReplaceAll(o.out, b.home, "HOME")
	}
	with, without := strings.Split(outs[1], "\n"), strings.Split(outs[0], "\n")
	for i := range min(len(with), len(without)) {
		require.Equal(t, without[i], with[i])
	}
	require.Len(t, with, len(without))
	require.Contains(t, outs[1], "./done.200 f 664 1")
}

// The launcher holds nothing of what it has made.
func TestStrictHoldsNothing(t *testing.T) {
	unprivileged(t)
	b := newBench(t)
	b.request.ProtectStrict = true
	run, err := b.plan("sh", "-c", "for i in $(seq 200); do echo x > f$i; ln f$i l$i; mkdir d$i; mv f$i d$i/f; ln -s x s$i; done")
	require.NoError(t, err)
	before, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	_, wait := b.launch(run)
	o := wait()
	require.NoError(t, o.err)
	require.FileExists(t, filepath.Join(b.workspace, "d200/f"))
	after, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	require.Less(t, len(after), len(before)+20)
}

// What people do with git works, in the repository and in new ones.
func TestStrictGit(t *testing.T) {
	unprivileged(t)
	names := newBench(t)
	names.request.ProtectStrict = true
	for name, b := range map[string]*bench{"names": names, "opens": openBench(t, true)} {
		t.Run(name, func(t *testing.T) { worksWithGit(t, b) })
	}
}

func worksWithGit(t *testing.T, b *bench) {
	b.environ = []string{"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@b", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@b"}
	b.request.Env = []string{"GIT_*"}
	o := b.sh(`set -e
exec 2>&1
git -c protocol.file.allow=always --version
git add file; git commit -qm one; git branch other; echo 2 > two; git add two; git commit -qm two
git checkout -q other; echo 3 > three; git add three; git commit -qm three; git rebase -q master || git rebase -q main
echo dirty >> file; git stash -q; git stash pop -q; git commit -qam four
git worktree add -q tree HEAD~1; (cd tree; echo w > w; git add w; git commit -qm w); git worktree remove tree
git init -q new; (cd new; echo n > n; git add n; git commit -qm n); git clone -q new clone; (cd clone; git fetch -q; git log --format=%s)
git clone -q . self; (cd self; git -c protocol.file.allow=always submodule add -q ../new sub; git -c protocol.file.allow=always submodule update --init -q; git commit -qm sub)
git gc -q; git fsck --no-progress; git log --format=%s | tr '\n' ' '`)
	require.NoError(t, o.err)
	require.Zero(t, o.end.Status.ExitStatus(), o.out)
	require.Contains(t, o.out, "four three two one")
}

const racerVariable = "PCCRUN_NATIVE_TEST_RACER"

// race makes a name with calls whose path another thread rewrites.
func race() {
	if os.Getenv(racerVariable) == "landlock" {
		_, _, err := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
		fmt.Println(err == unix.EOPNOTSUPP)
		os.Exit(0)
	}
	protected, harmless := ".envrc\x00\x00", os.Getenv(racerVariable) // of eight bytes
	reads := harmless == "read"
	if reads {
		protected, harmless = ".env\x00\x00\x00\x00", "harmless"
	}
	var path [16]byte
	copy(path[:], harmless)
	stop := make(chan bool)
	go func() {
		for {
			select {
			case <-stop:
				return
			default:
				*(*[8]byte)(unsafe.Pointer(&path)) = [8]byte([]byte(protected))
				*(*[8]byte)(unsafe.Pointer(&path)) = [8]byte([]byte(harmless))
			}
		}
	}()
	at, source := uintptr(unsafe.Pointer(&path)), uintptr(unsafe.Pointer(unsafe.StringData("file\x00")))
	cwd := unix.AT_FDCWD
	tries := 4000
	if os.Getenv("TRIES") == "many" { // the control, whose threads may have to wait for a processor
		tries = 4_000_000
	}
	for i := range tries {
		if reads {
			var text [6]byte
			if fd, _, err := unix.Syscall6(unix.SYS_OPENAT, uintptr(cwd), at, unix.O_RDONLY, 0, 0, 0); err == 0 {
				unix.Read(int(fd), text[:])
				unix.Close(int(fd))
			}
			if string(text[:]) == "canary" {
				fmt.Println("read")
				os.Exit(0)
			}
			continue
		}
		switch i % 4 {
		case 0:
			fd, _, err := unix.Syscall6(unix.SYS_OPENAT, uintptr(cwd), at, unix.O_CREAT|unix.O_WRONLY, 0o644, 0, 0)
			if err == 0 {
				unix.Close(int(fd))
			}
		case 1:
			unix.Syscall6(unix.SYS_LINKAT, uintptr(cwd), source, uintptr(cwd), at, 0, 0)
		case 2:
			unix.Syscall(unix.SYS_SYMLINKAT, source, uintptr(cwd), at)
		case 3:
			unix.Syscall(unix.SYS_MKDIRAT, uintptr(cwd), at, 0o755)
		}
		if _, err := os.Lstat(".envrc"); err == nil {
			fmt.Println("made")
			os.Exit(0)
		}
		os.Remove(harmless)
	}
	close(stop)
	fmt.Println("never")
	os.Exit(0)
}

// Threads that rewrite the path while the call is decided on make nothing that
// is protected, be the other path one that the launcher serves or one that it
// lets go on; without it they do at once.
func TestStrictRace(t *testing.T) {
	unprivileged(t)
	for _, path := range []string{"harmless", "/tmp/xyz"} {
		t.Run(path, func(t *testing.T) {
			for _, strict := range []bool{false, true} {
				raced(t, path, strict)
			}
		})
	}
}

// A program cannot forbid itself with Landlock what the launcher would do for it.
func TestStrictLandlock(t *testing.T) {
	unprivileged(t)
	require.Equal(t, "false\n", racer(t, "landlock", false))
	require.Equal(t, "true\n", racer(t, "landlock", true))
}

func raced(t *testing.T, path string, strict bool) {
	want := map[bool]string{false: "made\n", true: "never\n"}[strict]
	require.Equal(t, want, racer(t, path, strict))
}

// racer runs this test binary inside, as [race].
func racer(t *testing.T, path string, strict bool) string {
	b := newBench(t)
	b.request.ProtectStrict = strict
	b.bringSelf("racer")
	tries := "few"
	if !strict && path != "landlock" {
		tries = "many"
	}
	o := b.sh("TRIES=" + tries + " GOCOVERDIR=/tmp " + racerVariable + "=" + path + " ./racer") // else a build that counts says so
	require.NoError(t, o.err)
	return o.out
}

// bringSelf puts this test binary into the workspace.
func (b *bench) bringSelf(name string) {
	b.t.Helper()
	self, err := os.Open("/proc/self/exe")
	require.NoError(b.t, err)
	defer self.Close()
	program, err := os.OpenFile(filepath.Join(b.workspace, name), os.O_CREATE|os.O_WRONLY, 0o755)
	require.NoError(b.t, err)
	_, err = io.Copy(program, self)
	require.NoError(b.t, err)
	require.NoError(b.t, program.Close())
}

// Where names cannot be forbidden the run does not begin.
func TestStrictRefused(t *testing.T) {
	unprivileged(t)
	b := newBench(t)
	b.request.ProtectStrict = true
	_, err := b.plan("true")
	require.NoError(t, err)
	b.request.Nested = true
	_, err = b.plan("true")
	require.ErrorContains(t, err, "protect-strict")
	b.request.Nested, b.request.Without = false, []string{string(profiles.LayerLandlock)}
	_, err = b.plan("true")
	require.ErrorContains(t, err, "Landlock")
}
