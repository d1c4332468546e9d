package run

import (
	"slices"

	"github.com/pccrun/pccrun/internal/kernel"
	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/providers"
	"github.com/pccrun/pccrun/sessions"
	"github.com/pccrun/pccrun/workspace"
)

// makeAgentDirs makes the directories of the workspace's that the agent takes for its own, where
// none stand: a layer lies on each until the run is over. What earlier kernels make of a layer is
// read-only, and no help.
func (f *flow) makeAgentDirs() {
	if names := f.policy.MadeDirs(); f.Name == providers.Native && !f.req.DryRun && len(names) > 0 && kernel.AtLeast(6, 6) {
		workspace.MakeDirs(f.policy.Workspace, names)
	}
}

// removeAgentDirs takes them away, if nothing has come to lie in them.
func (f *flow) removeAgentDirs() {
	if f.policy != nil && !f.req.DryRun && len(f.policy.MadeDirs()) > 0 {
		id := ""
		if f.session != nil {
			id = f.session.ID()
		}
		removeMade(sessions.In(f.dirs.State), id, f.policy.Workspace)
	}
}

// removeMade removes what a run has made for itself in a workspace, unless another run there uses
// it: without the directory its layer would be gone.
func removeMade(home sessions.Home, id, root string) {
	workspace.RemoveMade(root, profiles.EveryMadeDir(), func() bool {
		list, err := home.List()
		return err != nil || slices.ContainsFunc(list, func(e sessions.Entry) bool { return e.ID != id && e.Workspace == root && e.State == sessions.Running })
	})
}
