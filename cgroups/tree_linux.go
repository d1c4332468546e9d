package cgroups

import (
	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/internal/procfs"
)

// KillTree kills a child of this process with all that descends from it, as far
// as nobody has adopted it. They are stopped before any of them dies, so that
// none can make another meanwhile, and none's children go to somebody else.
func KillTree(pid int) {
	stopped := map[int]bool{}
	for before := -1; before < len(stopped); {
		before = len(stopped)
		tree := []int{pid}
		for i := 0; i < len(tree); i++ {
			if !stopped[tree[i]] && unix.Kill(tree[i], unix.SIGSTOP) == nil {
				stopped[tree[i]] = true
			}
			tree, _ = procfs.AppendChildren(tree, tree[i])
		}
	}
	for pid := range stopped {
		unix.Kill(pid, unix.SIGKILL)
	}
}
