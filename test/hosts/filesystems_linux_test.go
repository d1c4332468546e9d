package hosts

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pccrun/pccrun/test/internal/host"
)

// A filesystem is what the workspace lies on. The script makes $D/mnt one, in
// a mount namespace of the test's own, with loop devices that go with it.
type filesystem struct {
	name    string
	needs   []string
	mount   string
	refused string // what a root launcher says of it, and any where names fold; "" where it runs
}

// folds is what is said where .GIT is .git.
const folds = "takes names for each other that differ in capitals"

const disk = `truncate -s 600M $D/disk; `

var filesystems = []filesystem{
	{"ext4", []string{"mkfs.ext4"}, disk + `mkfs.ext4 -q $D/disk; mount -o loop $D/disk $D/mnt`, ""},
	{"xfs", []string{"mkfs.xfs"}, disk + `mkfs.xfs -q $D/disk; mount -o loop $D/disk $D/mnt`, ""},
	{"btrfs", []string{"mkfs.btrfs"}, disk + `mkfs.btrfs -q $D/disk >/dev/null; mount -o loop $D/disk $D/mnt`, ""},
	{"tmpfs", nil, `mount -t tmpfs none $D/mnt`, ""},
	{"overlayfs", nil, `mkdir $D/lower $D/upper $D/work; mount -t overlay -o lowerdir=$D/lower,upperdir=$D/upper,workdir=$D/work none $D/mnt`, "idmapped mounts"},
	{"FUSE", []string{"bindfs"}, `mkdir $D/below; bindfs -o allow_other $D/below $D/mnt`, "idmapped mounts"},
	{"ext4 that folds case", []string{"mkfs.ext4", "chattr"}, disk + `mkfs.ext4 -q -O casefold -E encoding=utf8 $D/disk; mount -o loop $D/disk $D/mnt 2>/dev/null || { echo needs a kernel with casefold; exit 77; }; mkdir $D/mnt/ws; chattr +F $D/mnt/ws`, folds},
}

// work is what a command does in its workspace, and tries beside it. It says
// what it got that it should not have.
const work = `echo x > f && mv f g && ln g h && ln -s g l && mkdir d && mv g d/ && test "$(cat d/g)" = x && chmod 700 d && test "$(cat h)" = x && rm -r d h l
cat .env 2>/dev/null
{ echo changed > .git/hooks/post-commit; } 2>/dev/null && echo changed
{ echo x > "$OUT/x"; } 2>/dev/null && echo wrote
test ! -e "$MARK" || echo there
echo done`

// open switches off what keeps it from that.
var open = []string{"--without", "hide", "--without", "protect", "--without", "readonly", "--without", "landlock"}

// checks runs work in $W as a user, with everything on, and as the control.
const checks = `
mkdir -p "$W/.git/hooks" "$W/.git/objects" "$W/.git/refs" "$D/out" "$D/home"
printf 'ref: refs/heads/main\n' > "$W/.git/HEAD"; printf '[core]\n\trepositoryformatversion = 0\n' > "$W/.git/config"; echo canary > "$W/.env"
chmod 777 "$D/out"; chown -R "$ID:${GID:-$ID}" "$W/" "$D/home"
cd "$W"
as() { if [ "$ID" = "$UID" ]; then "$@"; else setpriv --reuid "$ID" --regid "$ID" --clear-groups "$@"; fi; }
as "$PCCRUN" -q --env OUT="$D/out" --env MARK="$MARK" -- sh -c "$WORK"
echo control
as "$PCCRUN" -q $OPEN --env OUT="$D/out" --env MARK="$MARK" -- sh -c "$WORK"
`

const (
	protected   = "done\n"
	unprotected = "canary\nchanged\nwrote\ndone\n"
)

// bash runs a script with the variables of a test, in a mount namespace of its
// own where the caller may have one.
func bash(t *testing.T, script string, env ...string) (out, errs string, code int) {
	t.Helper()
	cmd := exec.Command("bash", "-eu", "-c", script)
	group := "GID=" + strconv.Itoa(os.Getgid()) // of the user, who need not have the number of his group
	if os.Geteuid() == 0 {
		cmd = exec.Command("unshare", append([]string{"--mount", "--propagation", "private"}, cmd.Args...)...)
		group = "GID=" // of ID
	}
	cmd.Env = append(os.Environ(), group, "WORK="+work, "OPEN="+strings.Join(open, " "), "MARK=", "PCCRUN="+host.Program(t))
	cmd.Env = append(cmd.Env, env...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	_ = cmd.Run()
	return stdout.String(), stderr.String(), cmd.ProcessState.ExitCode()
}

// place returns a directory that any identity may enter.
func place(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, d := range []string{dir, filepath.Dir(dir)} {
		require.NoError(t, os.Chmod(d, 0o755))
	}
	return dir
}

// who are the identities that a test has: root gives itself up, and plays an
// unprivileged user too.
func who() map[string]string {
	if os.Geteuid() == 0 {
		return map[string]string{"root": "0", "user": "65534"}
	}
	return map[string]string{"user": strconv.Itoa(os.Getuid())}
}

func TestFilesystems(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root to mount file systems")
	}
	for _, fs := range filesystems {
		t.Run(fs.name, func(t *testing.T) {
			for _, program := range fs.needs {
				if _, err := exec.LookPath(program); err != nil {
					t.Skip("needs", program)
				}
			}
			for name, id := range who() {
				t.Run(name, func(t *testing.T) {
					d := place(t)
					out, errs, code := bash(t, `mkdir $D/mnt; `+fs.mount+`; chmod 755 $D/mnt; mkdir -p "$W"`+checks, "D="+d, "W="+d+"/mnt/ws", "ID="+id, "HOME="+d+"/home")
					if code == 77 {
						t.Skip(strings.TrimSpace(out))
					}
					if fs.refused != "" && (id == "0" || fs.refused == folds) {
						require.Equal(t, 125, code, errs)
						require.Contains(t, errs, fs.refused)
						require.Contains(t, errs, "hint: ")
						return
					}
					require.Equal(t, protected+"control\n"+unprotected, out, errs)
				})
			}
		})
	}
}

// Paths that people have, and that attackers make.
func TestPaths(t *testing.T) {
	for name, path := range map[string]string{
		"spaces":      "a  b ",
		"a line feed": "two\nlines",
		"not UTF-8":   "\xff\xfe\x80",
		"a dash":      "-rf",
		"quotes":      `it's "$HOME" \ * ?`,
		"brackets":    "[a]{b}",
		"controls":    "\x1b]0;title\x07\t",
		"4000 bytes":  strings.Repeat(strings.Repeat("d", 199)+"/", 20),
	} {
		t.Run(name, func(t *testing.T) {
			for name, id := range who() {
				t.Run(name, func(t *testing.T) {
					d := place(t)
					w := d + "/w/" + path
					if strings.Count(path, "/") > 0 {
						w = d + "/w/" + path[:4000-len(d)-len("/w/")]
					}
					out, errs, _ := bash(t, `mkdir -p -- "$W"; `+checks, "D="+d, "W="+w, "ID="+id, "HOME="+d+"/home")
					require.Equal(t, protected+"control\n"+unprotected, out, errs)
				})
			}
		})
	}
}

// Homes and trees that are not where their names say, or are mounted oddly.
func TestPlaces(t *testing.T) {
	for _, c := range []struct{ name, script, work string }{
		{"a symlinked home", `mkdir -p $D/real/u; ln -s real $D/homes; HOME=$D/homes/u; W=$D/homes/u/ws; mkdir $W; chown $ID:${GID:-$ID} $D/real/u`, ""},
		{"a symlinked workspace", `mkdir -p $D/real/ws; chown $ID:${GID:-$ID} $D/real/ws; ln -s real/ws $D/ws; W=$D/ws`, ""},
		{"a home on a mount of its own", `mkdir $D/home; mount -t tmpfs none $D/home; mkdir $D/home/ws; W=$D/home/ws; chown $ID:${GID:-$ID} $D/home`, "root"},
		{"a workspace that is a mount", `mkdir $D/ws; mount -t tmpfs -o mode=755 none $D/ws; W=$D/ws`, "root"},
		{"a mount in the workspace", `mkdir -p $D/ws/in; W=$D/ws; mount -t tmpfs none $D/ws/in`, "root"},
		{"/ mounted shared", `mount --make-rshared /; mkdir $D/ws; W=$D/ws`, "root"},
		{"/ mounted as a slave", `mount --make-rslave /; mkdir $D/ws; W=$D/ws`, "root"},
		{"5,000 mounts", `mkdir -p $D/ws $D/m; W=$D/ws; mount -t tmpfs none $D/m; for i in $(seq 13); do mkdir $D/m/$i; mount --rbind $D/m $D/m/$i; done; test $(wc -l < /proc/self/mountinfo) -gt 5000`, "root"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.work == "root" && os.Geteuid() != 0 {
				t.Skip("needs root to mount")
			}
			for name, id := range who() {
				t.Run(name, func(t *testing.T) {
					d := place(t)
					out, errs, _ := bash(t, c.script+"\n"+checks, "D="+d, "ID="+id, "HOME="+d+"/home")
					require.Equal(t, protected+"control\n"+unprotected, out, errs)
				})
			}
		})
	}
}

// What the host mounts during a run is never seen inside. The control is a
// mount namespace that follows the host's.
func TestMountsDuringARun(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root to mount")
	}
	// The command says that it runs, waits for the mount, and looks.
	const wait = `echo ready > ready; while [ ! -e go ]; do sleep 0.05; done; test ! -e sub/secret || echo seen; echo done`
	const script = `mount --make-rshared /; mkdir -p $D/ws/sub $D/home; chown -R $ID:${GID:-$ID} $D/ws $D/home; cd $D/ws
		as() { if [ "$ID" = "$UID" ]; then "$@"; else setpriv --reuid "$ID" --regid "$ID" --clear-groups "$@"; fi; }
		%RUN% sh -c "$WAIT" & run=$!
		while [ ! -e ready ] && kill -0 $run; do sleep 0.05; done
		mount -t tmpfs none sub; chmod 755 sub; echo x > sub/secret; touch go; wait $run`
	for name, id := range who() {
		t.Run(name, func(t *testing.T) {
			run := func(prefix string) string {
				d := place(t)
				out, errs, code := bash(t, strings.Replace(script, "%RUN%", prefix, 1), "D="+d, "ID="+id, "HOME="+d+"/home", "WAIT="+wait)
				require.Zero(t, code, errs)
				return out
			}
			require.Equal(t, "seen\ndone\n", run("unshare --mount --propagation slave"), "control")
			require.Equal(t, "done\n", run(`as "$PCCRUN" -q --`))
		})
	}
}

// Nor does the host see what is mounted inside, where / is shared as systemd
// leaves it: the file would be hidden from the host too, for good.
func TestMountsStayInside(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root to mount")
	}
	const script = `mount --make-rshared /; mkdir -p $D/ws/.git/objects $D/ws/.git/refs $D/home; cd $D/ws
		echo 'ref: refs/heads/main' > .git/HEAD; echo '[core]' > .git/config; echo canary > .env; chown -R $ID:${GID:-$ID} $D/ws $D/home
		as() { if [ "$ID" = "$UID" ]; then "$@"; else setpriv --reuid "$ID" --regid "$ID" --clear-groups "$@"; fi; }
		as "$PCCRUN" -q -- sh -c 'cat .env 2>/dev/null; echo ready > ready; while [ ! -e go ]; do sleep 0.05; done' & run=$!
		while [ ! -e ready ] && kill -0 $run; do sleep 0.05; done
		cat ready; cat .env; grep -c "$D" /proc/self/mountinfo || true; touch go; wait $run; cat .env; grep -c "$D" /proc/self/mountinfo || true`
	for name, id := range who() {
		t.Run(name, func(t *testing.T) {
			d := place(t)
			out, errs, _ := bash(t, script, "D="+d, "ID="+id, "HOME="+d+"/home")
			require.Equal(t, "ready\ncanary\n0\ncanary\n0\n", out, errs)
		})
	}
}

// A pccrun inside another: where the outer one leaves all open, the inner one
// keeps it, under a filter that has no openat2(2).
func TestNested(t *testing.T) {
	d := place(t)
	out, errs, _ := bash(t, `mkdir -p "$W"; `+strings.ReplaceAll(checks, `as "$PCCRUN" -q`, `as "$PCCRUN" -q --nested $OPEN -- "$PCCRUN" -q`),
		"D="+d, "W="+d+"/ws", "ID="+who()["user"], "HOME="+d+"/home")
	require.Equal(t, protected+"control\n"+unprotected, out, errs)

	_, errs, code := bash(t, `mkdir -p "$W" "$D/home"; chown -R $ID:${GID:-$ID} $W $D/home; cd "$W"; if [ $ID = $UID ]; then as=; else as="setpriv --reuid $ID --regid $ID --clear-groups"; fi
		$as "$PCCRUN" -q --write "$D/home" --env XDG_STATE_HOME=/tmp/state -- "$PCCRUN" -- true`,
		"D="+d, "W="+d+"/other", "ID="+who()["user"], "HOME="+d+"/home")
	require.Equal(t, 125, code, errs)
	require.Contains(t, errs, "a seccomp filter around pccrun forbids it")
	require.Contains(t, errs, "start the outer one with --nested")
}
