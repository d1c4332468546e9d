package run

import (
	"maps"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/internal/homes"
	"github.com/pccrun/pccrun/internal/kernel"
	"github.com/pccrun/pccrun/internal/messages"
	"github.com/pccrun/pccrun/internal/survey"
	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/providers"
	"github.com/pccrun/pccrun/run/explain"
	"github.com/pccrun/pccrun/workspace"
)

// makeAgentDirs makes the directories of the workspace's that the agent takes for its own, where
// none stand: a layer lies on each until the run is over. What earlier kernels make of a layer is
// read-only, and no help.
func (l *planner) makeAgentDirs() {
	if names := l.policy.MadeDirs(); l.native() && !l.req.DryRun && len(names) > 0 && kernel.AtLeast(6, 6) {
		l.agentDirs = workspace.MakeDirs(l.policy.Workspace, names)
	}
}

// removeAgentDirs takes them away, if nothing has come to lie in them.
func (l *planner) removeAgentDirs() {
	l.agentDirs.Close()
	l.agentDirs = nil
	if !l.req.DryRun && len(l.policy.MadeDirs()) > 0 {
		workspace.RemoveMade(l.policy.Workspace, profiles.EveryMadeDir())
	}
}

// agentLayers returns what earlier runs left in the agent's directories, where this run has a layer over them to which it
// can be added. As root it has none: what lies there would be the user's, whom root becomes.
func (m *home) agentLayers(h *homes.Home) (map[string]string, error) {
	if !m.keepsLayers() {
		return nil, nil
	}
	found := map[string]string{}
	dirs, _ := m.policy.AgentDirs()
	for _, dir := range dirs {
		at, err := h.Layer(dir)
		if err != nil {
			return nil, err
		}
		if at != "" {
			found[dir] = at
		}
	}
	return found, nil
}

func (m *home) keepsLayers() bool { return m.native() && takesLayers(m.uid) }

// takesLayers reports whether the kernel takes more than one layer by its descriptor, as a user who is not root needs it.
func takesLayers(uid int) bool { return uid != 0 && kernel.AtLeast(6, 7) }

// KeepsAgentDir reports whether a run on this machine keeps for the next one what it changes at a path, as the agent's or git's.
func KeepsAgentDir(p *profiles.Policy, path string) bool {
	dirs, _ := p.AgentDirs()
	return explain.KeepsGit(p, path) || takesLayers(os.Getuid()) && !p.FreshHome && p.Decide(p.Home).Access == profiles.Persist && slices.ContainsFunc(dirs, func(dir string) bool { return survey.Below(path, dir) })
}

// keepAgentDirs keeps with the home what the run has changed there, and returns which files of it.
func (m *home) keepAgentDirs(run providers.LocalRun) map[string]bool {
	all := map[string]bool{}
	if m.kept == nil || !m.keepsLayers() {
		return all
	}
	dirs, remade := m.policy.AgentDirs()
	for _, dir := range dirs {
		if m.policy.Decide(dir).Access != profiles.Write { // else a layer lies there, or nothing that changed
			continue
		}
		at, _, err := run.OpenLost(filepath.Join(dir, "x"))
		if err != nil {
			continue
		}
		kept, err := m.kept.Keep(dir, at, func(path string) bool {
			return slices.ContainsFunc(remade, func(name string) bool { return survey.Below(path, name) })
		})
		unix.Close(at)
		if err != nil {
			messages.Say("not kept for the next run: " + dir + ": " + messages.InWords(err))
		}
		maps.Copy(all, kept)
	}
	return all
}
