package namespaces

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pccrun/pccrun/internal/await"
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

// A command that waits in the gap for a file keeps what it opens, which the answers say, and the
// run goes on; by its name the file is covered.
func TestFileOpenedBeforeItIsCovered(t *testing.T) {
	b := newBench(t, []string{"f.txt"}, "hide f.txt")
	r, err := b.sh(waits + "await replaced; exec 9<f.txt; echo > opened; covered -r f.txt; cat f.txt; cat <&9").begin()
	require.NoError(t, err)
	b.write("new", "fresh")
	require.NoError(t, os.Rename(b.path("new"), b.path("f.txt")))
	b.write("replaced", "")
	r.until("opened")
	k, gone := r.Keep(), r.aborted
	o := r.end()
	k.Close()
	require.Empty(t, gone)
	require.Equal(t, "cat: f.txt: Permission denied\nfresh", o.out)
}
