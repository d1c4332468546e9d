package workspace

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// What a worktree shares with its repository git takes for one without a HEAD. Of two
// runs, the first leaves what leads there, and has nothing to hide.
func TestGuardSharedWithoutHead(t *testing.T) {
	const evil = "printf '[core]\n\trepositoryformatversion = 0\n\tfsmonitor = %s/evil.sh\n' $PWD > s/config"
	const share = "mkdir -p s/objects s/refs; "
	const tree = "mkdir -p y z; echo 'ref: refs/heads/x' > z/HEAD; echo ../s > z/commondir; echo 'gitdir: ../z' > y/.git; "
	for name, c := range map[string]struct {
		first, second string
		want          string
	}{
		"a configuration that comes":   {share + tree + "printf '[core]\n' > s/config", evil, "inert y/.git inert z/commondir"},
		"its directory comes":          {tree, share + evil, "inert y/.git inert z/commondir"},
		"a way to what stands":         {share + evil, tree, "inert y/.git inert z/commondir"},
		"a way of more than git needs": {share + tree + "printf '../s\\0' > z/commondir; head -c 2000000 /dev/zero >> z/commondir", evil, "inert y/.git inert z/commondir"},
		"in an object store":           {"mkdir y; echo 'gitdir: ../.git/objects/zz' > y/.git", share + evil + "; mkdir .git/objects/zz; echo 'ref: refs/heads/x' > .git/objects/zz/HEAD; echo ../../../s > .git/objects/zz/commondir", "inert y/.git inert .git/objects/zz inert y/.git"},
		"among objects":                {"mkdir y; rm -rf .git/objects/ab; echo 'gitdir: ../.git/objects/ab' > y/.git", share + evil + "; mkdir .git/objects/ab; echo 'ref: refs/heads/x' > .git/objects/ab/HEAD; echo ../../../s > .git/objects/ab/commondir", "inert y/.git inert .git/objects/ab inert y/.git"},
		"by a link":                    {"mkdir y; rm -rf .git/objects/ab; ln -s ../.git/objects/ab y/.git", share + evil + "; mkdir .git/objects/ab; echo 'ref: refs/heads/x' > .git/objects/ab/HEAD; echo ../../../s > .git/objects/ab/commondir", "inert y/.git inert .git/objects/ab inert y/.git"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, guarded := range []bool{false, true} {
				w := newWatchman(t)
				w.sh("printf '#!/bin/sh\ntouch '$PWD'/ran\n' > evil.sh; chmod +x evil.sh; mkdir -p .git/refs/heads")
				var found []string
				for _, run := range []string{c.first, c.second} {
					w.begin()
					w.sh(run)
					if guarded {
						found = append(found, w.end()...)
					} else {
						w.guard.Close()
					}
				}
				if guarded {
					require.Equal(t, c.want, strings.Join(found, " "))
				}
				w.sh("cd y; git status > /dev/null 2>&1 || true")
				_, err := os.Lstat(w.path("ran"))
				require.Equal(t, guarded, os.IsNotExist(err), "control: without a guard git runs it")
			}
		})
	}
}
