package namespaces

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/internal/await"
	"github.com/pccrun/pccrun/internal/hint"
)

// waits is a script that says where it is, and goes on when it is told to, or when a file is
// covered: not readable (-r) or not writable (-w) by access(2), which takes hold of nothing.
const waits = `await() { while [ ! -e "$DIR/$1" ]; do sleep 0.01; done; }
	covered() { n=0; while [ $1 "$2" ] && [ $n -lt 6000 ]; do sleep 0.01; n=$((n+1)); done; }
	`

func (r *trial) until(name string) {
	r.b.t.Helper()
	await.Until(r.b.t, name+" is there", func() bool { _, err := os.Lstat(r.b.path(name)); return err == nil })
}

// A command that waits in the gap for a directory and enters it finds in there
// what it finds by name: also what the host puts there later.
func TestHandleOfReplacedDirectory(t *testing.T) {
	b := newBench(t, []string{"git/config.txt", "git/hooks/h.txt", "git/sub/secret.txt"},
		"write git pin protect", "read git/config.txt pin protect", "read git/hooks pin protect", "write git/sub pin protect", "hide git/sub/secret.txt")
	r, err := b.sh(waits + `await replaced; cd git; (echo early >> config.txt) && echo open; cd sub; echo > $DIR/entered
		await kept; covered -r secret.txt; covered -w ../config.txt; covered -w ../hooks; cat secret.txt; cd ..; (echo evil >> config.txt) && echo wrote config; (echo evil > hooks/new) && echo wrote hooks; cat sub/secret.txt
		echo > $DIR/tried; await again; covered -r sub/secret.txt; covered -w config.txt; sleep 1; cat sub/secret.txt; (echo evil >> config.txt) && echo wrote config; echo fine > free && echo free
		cd sub; cat secret.txt; mv ../sub ../other && echo moved; true`).begin()
	require.NoError(t, err)
	require.NoError(t, os.Rename(b.path("git"), b.path("old")))
	for name, text := range map[string]string{"git/config.txt": "fresh", "git/hooks/h.txt": "", "git/sub/secret.txt": "secret"} {
		require.NoError(t, os.MkdirAll(b.path(name[:strings.LastIndexByte(name, '/')]), 0o755))
		b.write(name, text)
	}
	require.NoError(t, os.RemoveAll(b.path("old")))
	b.write("replaced", "")
	r.until("entered")

	k, gone := r.Keep(), r.aborted
	b.write("kept", "")
	r.until("tried")
	for _, name := range []string{"git/config.txt", "git/sub/secret.txt"} {
		b.write("new", "later secret")
		require.NoError(t, os.Rename(b.path("new"), b.path(name)))
	}
	require.NoError(t, os.Rename(b.path("git/sub"), b.path("old")))
	require.NoError(t, os.Mkdir(b.path("git/sub"), 0o755))
	b.write("git/sub/secret.txt", "last secret")
	require.NoError(t, os.RemoveAll(b.path("old")))
	b.write("again", "")
	o := r.end()
	k.Close()
	require.Empty(t, gone)
	require.Contains(t, o.out, "open", "control: before it was covered, the handle was good for it")
	require.Contains(t, o.out, "free", "what no rule names can be written as before")
	for _, leak := range []string{"wrote", "secret\n", "later", "last secret", "moved"} {
		require.NotContains(t, strings.ReplaceAll(o.out, "secret.txt", ""), leak, o.out)
	}
	require.NotContains(t, b.read("git/config.txt"), "evil")
	require.NoFileExists(t, b.path("git/hooks/new"))
}

// What the command took hold of before a replaced file was covered ends the
// run. Each script is the gap's; the file is covered after it.
func TestGripOfReplacedFile(t *testing.T) {
	if _, err := os.Stat("/usr/bin/python3"); err != nil {
		t.Skip("needs python3")
	}
	for _, c := range []struct{ name, rule, script, cause string }{
		{"a second name", "hide f.txt", "ln f.txt kept", "linked it"},
		{"a second name of what is read-only", "read f.txt pin protect", "ln f.txt kept", "linked it"},
		{"open for reading", "hide f.txt", "exec 9<f.txt", "still has it open"},
		{"open for writing", "read f.txt pin protect", "exec 9>>f.txt", "still has it open"},
		{"held with O_PATH", "hide f.txt", "python3 -c 'import os, time; f = os.open(\"f.txt\", os.O_PATH); open(\"held\", \"w\"); time.sleep(600); os.open(\"/proc/self/fd/%d\" % f, 0)' & await held", "had it open"},
		{"what can be opened again for writing", "read f.txt pin protect", "exec 9<f.txt", "had it open"},
		{"control: read through its cover", "read f.txt pin protect", "{ covered -w f.txt; exec 9<f.txt; sleep 1; } & true", ""},
		{"control: read and closed", "read f.txt pin protect", "cat f.txt > out", ""},
		{"control: left alone", "hide f.txt", "true", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, []string{"f.txt"}, c.rule)
			r, err := b.sh(waits + "await replaced; " + c.script + "; echo > ready; await done").begin()
			require.NoError(t, err)
			b.write("new", "fresh")
			require.NoError(t, os.Rename(b.path("new"), b.path("f.txt")))
			b.write("replaced", "")
			r.until("ready")
			k, gone := r.Keep(), r.aborted
			if c.cause == "" {
				await.Until(t, "it is covered, and let go of", func() bool {
					k.mu.Lock()
					defer k.mu.Unlock()
					ok, err := k.views[0].covered(b.path("f.txt"))
					require.NoError(t, err)
					return ok && len(k.grips) == 0
				})
				require.Empty(t, gone)
			} else {
				err = await.Receive(t, "the run ends", gone)
				require.ErrorContains(t, err, c.cause)
				require.ErrorContains(t, err, b.path("f.txt"))
				require.NotEmpty(t, err.(*hint.Error).Fix)
			}
			b.write("done", "")
			r.end()
			k.Close()
		})
	}
}

// A program of the host has a while to remove the name that it wrote a file by.
func TestGripOfAnEditor(t *testing.T) {
	b := newBench(t, []string{"f.txt"})
	require.NoError(t, os.Link(b.path("f.txt"), b.path("kept")))
	k := &RemountWatcher{sandbox: &Sandbox{Pid: 1 << 30}} // nobody is inside
	judge := func(until time.Time) error {
		fd, err := unix.Open(b.path("f.txt"), unix.O_PATH|unix.O_CLOEXEC, 0)
		require.NoError(t, err)
		g := grip{item: &kept{path: b.path("f.txt"), with: "mask"}, fd: fd, until: until}
		require.NoError(t, unix.Statx(fd, "", unix.AT_EMPTY_PATH, unix.STATX_BASIC_STATS|unix.STATX_MNT_ID, &g.was))
		k.grips = []grip{g}
		err = k.loosen()
		k.release(0, 0)
		return err
	}
	require.NoError(t, judge(time.Now().Add(time.Hour)))
	require.ErrorContains(t, judge(time.Now()), "linked it", "control: it had its time")
	require.NoError(t, os.Remove(b.path("kept")))
	require.NoError(t, judge(time.Now()))
}
