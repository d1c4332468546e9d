package native

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/internal/survey"
	"github.com/pccrun/pccrun/namespaces"
	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/workspace"
	"github.com/pccrun/pccrun/workspace/quarantine"
)

// Guarded returns what the look after this run goes by.
func (r *Planned) Guarded() *survey.Guarded {
	return &survey.Guarded{Policy: r.Policy, Trees: r.trees, Writes: r.Plan.Writes, Own: r.Plan.Checked}
}

// ShowsDenials reports whether the command has a file in which it reads of refusals.
func (r *Planned) ShowsDenials() bool {
	return survey.Guards(r.Policy) || r.Policy.Attempts || r.Egress.Rules != nil
}

// Configs returns the private copies of git's configurations that a run which has started has.
func (s *Started) Configs(session string) *workspace.PrivateConfigs {
	shown := func(path string) bool { return s.run.Policy.Decide(path).Access >= profiles.Read }
	return &workspace.PrivateConfigs{Session: session, List: s.box.Configs(true), At: s.run.Plan.OpenConfig, Shown: shown}
}

// Refused returns what [Started.changedCopies] has found.
func (s *Started) Refused() []workspace.Refusal { return s.pinned }

// changedCopies returns the configurations of which the command has changed a copy that nothing
// comes back of. It is for when nothing of the command runs any more, and to be called once.
func (s *Started) changedCopies() (list []workspace.Refusal) {
	for _, c := range s.box.Configs(false) {
		if c.Changed() {
			list = append(list, workspace.Refusal{Path: c.Path, Why: ".git/config"})
		}
	}
	return list
}

// stage plans a staging directory, by which a directory that the command makes under a protected name goes on working
// inside; nil where none can be had, and such a directory is moved away.
func (r *Run) stage(stateDir string) *namespaces.Staging {
	p := r.Policy
	if stateDir == "" || r.Plan.Identity.Root || p.Nested || p.Strict || p.ProtectStrict || !survey.Guards(p) {
		return nil
	}
	dir := filepath.Join(stateDir, quarantine.StagingName)
	var here, there unix.Statx_t
	look := func(path string, st *unix.Statx_t) error {
		return unix.Statx(unix.AT_FDCWD, path, unix.AT_SYMLINK_NOFOLLOW, unix.STATX_TYPE|unix.STATX_MNT_ID, st)
	}
	err := look(dir, &there)
	if err == unix.ENOENT && os.Mkdir(dir, 0o700) == nil {
		err = look(dir, &there)
	}
	if err != nil || look(p.Workspace, &here) != nil {
		return nil
	}
	if here.Mask&unix.STATX_MNT_ID == 0 || here.Mnt_id != there.Mnt_id { // nothing can be renamed from one to the other
		return nil
	}
	gates := quarantine.Gates(p.Workspace)
	kept := filepath.Join(dir, strconv.Itoa(os.Getpid())+"-"+strconv.FormatUint(rand.Uint64(), 36))
	if os.Mkdir(kept, 0o700) != nil {
		return nil
	}
	name := filepath.Join(gates[len(gates)-1], quarantine.Prefix+strconv.Itoa(os.Getpid())+"-")
	return &namespaces.Staging{Tree: p.Workspace, Name: name, Kept: kept}
}

// onStub reports whether a mount is of what is in quarantine, on a stub that is made between [plan.Bind] and [Run.Clone].
func (r *Run) onStub(m namespaces.Mount) bool {
	return m.Kind == namespaces.Bind && m.Tree && !m.ReadOnly && m.Source != m.Target && survey.Below(m.Target, r.Policy.Workspace)
}

// Stubs say how directories under protected names go on working inside.
func (s *Started) Stubs() *workspace.Stubs {
	stubs := workspace.NewStubs()
	if staging := s.run.Plan.Staging; staging != nil {
		stubs.Staged, stubs.Mount = staging.Kept, s.box.Mount
		s.box.ReadyToMount()
	}
	return stubs
}

// protectMechanism says how fs.protect is kept.
const protectMechanism = "read-only mounts, quarantine of new names, post-run check"

// strictMechanism says how it is kept where names are forbidden.
const strictMechanism = "read-only mounts, names created by the launcher under Landlock, post-run check"

// pins returns what is pinned in all trees that the command may write.
func (r *Planned) pins() (pins []workspace.Pin) {
	for i := range r.trees {
		pins = append(pins, r.trees[i].Found.Pins...)
	}
	return pins
}

// protectGap says what fs.protect leaves open on this run, "" for nothing.
func (r *Planned) protectGap() string {
	switch {
	case r.Policy.Nested:
		return "a file that the host replaces can be changed in a mount namespace that the command made"
	case r.Plan.Watch != nil && r.Plan.Watch.Opens && r.Plan.OpenedDirectly() == "":
	case slices.ContainsFunc(r.pins(), func(p workspace.Pin) bool { return p.Kind != workspace.Dir }):
		return "a command that waits can open or link a protected file in the moment when the host replaces it, and change it from then on; it is reported at exit"
	}
	return ""
}
