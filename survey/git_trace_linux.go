package survey

import (
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/workspace"
	"github.com/pccrun/pccrun/workspace/vcs"
)

// GitTraceFile is where git is to write what it does, in a run in which it could fail at what
// is pinned and nobody else would say so.
const GitTraceFile = "/run/pccrun.trace"

// hearsGit reports whether a run has git write that: something is pinned at which git would
// fail, the directory for it is private, nobody else sets the variable, and a file may grow.
// (Beyond a limit of files' sizes the kernel would end git for it, by SIGXFSZ.)
func (f *finder) hearsGit(s *Survey, o *Options) bool {
	without := func(l profiles.Layer) bool { return slices.Contains(f.policy.Without, l) }
	if o.Alone || without(profiles.LayerProtect) || without(profiles.LayerHide) || f.policy.Resources.FileSize.Value > 0 {
		return false
	}
	if !f.cannotSign(s.Workspace) && !f.inGitsWay(s.Workspace) && !slices.ContainsFunc(s.Trees, func(t Tree) bool { return !t.State && f.inGitsWay(t.Found) }) {
		return false
	}
	var size unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_FSIZE, &size) != nil || size.Cur != unix.RLIM_INFINITY {
		return false
	}
	elsewhere := slices.ContainsFunc(s.Workspace.Traced, func(path string) bool { return f.shown(path) >= profiles.Read })
	return !elsewhere && f.unset(vcs.TraceVariable, o) && f.privately(GitTraceFile)
}

// signers are the services by which git signs, by gpg.format.
var signers = map[string]string{"openpgp": "gpg-agent", "x509": "gpg-agent", "ssh": "ssh-agent"}

// cannotSign reports whether git is set up to sign, and has nobody to do it.
func (f *finder) cannotSign(found *workspace.Found) bool {
	return found.Signs != "" && !f.policy.Uses(signers[found.Signs])
}

// Signer returns the service by which git signs as it is set up here, "" for none.
func Signer(found *workspace.Found) string { return signers[found.Signs] }

// inGitsWay reports whether git would fail at something that is pinned in a tree, or shown
// read-only for it, and nothing else would tell.
func (f *finder) inGitsWay(found *workspace.Found) bool {
	overlay := slices.ContainsFunc(f.policy.Files, func(r profiles.FileRule) bool { return r.Access == profiles.Overlay })
	return found.Tracked || slices.ContainsFunc(found.Pins, func(p workspace.Pin) bool {
		i, put := f.seen[p.Path]
		config := strings.HasPrefix(p.Why, ".git/config") && put && !f.places[i].Apart
		if p.Kind != workspace.File || !overlay && !config {
			return false
		}
		access := f.shown(filepath.Dir(p.Path))
		return access == profiles.Overlay || config && access == profiles.Write
	})
}

// unset reports whether the command gets no variable of a name from elsewhere.
func (f *finder) unset(name string, o *Options) bool {
	d := f.policy.DecideEnv(name)
	if d.Action == profiles.EnvPassed || slices.Contains(f.policy.Without, profiles.LayerEnv) {
		return o.Getenv != nil && o.Getenv(name) == ""
	}
	return f.free(name)
}

// privately reports whether what is made at a path is in a private directory.
func (f *finder) privately(path string) bool {
	i, ok := f.seen[filepath.Dir(path)]
	_, taken := f.seen[path]
	return ok && !taken && f.places[i].Node == Directory && f.places[i].Access == profiles.Private
}
