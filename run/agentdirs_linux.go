package run

import (
	"github.com/pccrun/pccrun/internal/kernel"
	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/providers"
	"github.com/pccrun/pccrun/workspace"
)

// makeAgentDirs makes the directories of the workspace's that the agent takes for its own, where
// none stand: a layer lies on each until the run is over. What earlier kernels make of a layer is
// read-only, and no help.
func (f *flow) makeAgentDirs() {
	if names := f.policy.MadeDirs(); f.Name == providers.Native && !f.req.DryRun && len(names) > 0 && kernel.AtLeast(6, 6) {
		f.agentDirs.Close() // another provider's turn came before
		f.agentDirs = workspace.MakeDirs(f.policy.Workspace, names)
	}
}

// removeAgentDirs takes them away, if nothing has come to lie in them.
func (f *flow) removeAgentDirs() {
	f.agentDirs.Close()
	f.agentDirs = nil
	if f.policy != nil && !f.req.DryRun && len(f.policy.MadeDirs()) > 0 {
		workspace.RemoveMade(f.policy.Workspace, profiles.EveryMadeDir())
	}
}
