package workspace

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// Git starts `git fetch` with the name of a remote, at `git diff` too where the remote is
// one that promised objects: a name that is an option makes it start a program.
func TestGuardRemotesThatAreOptions(t *testing.T) {
	const lost = "; o=$(git -C r rev-parse HEAD:f); rm r/.git/objects/${o%%${o#??}}/${o#??}"
	for name, c := range map[string]struct{ plant, use string }{
		"of a partial clone":   {`git -C r config extensions.partialClone "--upload-pack=$PWD/evil"` + lost, "git diff"},
		"one that promised":    {`printf '[remote "--upload-pack=%s"]\n\tpromisor = true\n' $PWD/evil >> r/.git/config` + lost, "git diff"},
		"one of all":           {`printf '[remote "--upload-pack=%s"]\n\turl = x\n' $PWD/evil >> r/.git/config`, "git fetch --all"},
		"a program's own name": {`printf '[remote "canary::x"]\n\tpromisor = true\n' >> r/.git/config` + lost, "PATH=$PWD/..:$PATH git diff"},
		"and by the extension": {`git -C r config extensions.partialClone canary::x` + lost, "PATH=$PWD/..:$PATH git diff"},
	} {
		for _, guarded := range []bool{false, true} {
			w := newWatchman(t)
			w.sh(`printf '#!/bin/sh\ntouch '$PWD'/ran\nexit 1\n' > evil; chmod +x evil; cp evil git-remote-canary`)
			w.begin()
			w.sh(asUser + "git init -q r; echo x > r/f; git -C r add f; git -C r commit -qm x; git -C r config remote.origin.url $PWD; echo y > r/f; " + c.plant)
			if guarded {
				require.Equal(t, []string{"inert r/.git/config"}, w.end(), name)
			} else {
				w.guard.Close()
			}
			w.sh("cd r; " + c.use + " > /dev/null 2>&1 || true")
			_, err := os.Lstat(w.path("ran"))
			require.Equal(t, guarded, os.IsNotExist(err), "control: without a guard git runs it: %s", name)
		}
	}
}

// A clone that is partial works as before.
func TestGuardPartialClone(t *testing.T) {
	w := newWatchman(t)
	w.sh(asUser + "echo x > f; git add f; git commit -qm x; git config uploadpack.allowFilter true; git config uploadpack.allowAnySHA1InWant true")
	w.begin()
	w.sh("git clone -q --filter=blob:none --no-checkout file://$PWD c")
	require.Empty(t, w.end())
	w.sh("cd c; git rev-list --objects --missing=print HEAD | grep -q '^?'; git checkout -q HEAD; cmp f ../f")
}
