package native

import (
	"errors"
	"slices"
	"strings"

	"github.com/pccrun/pccrun/internal/hint"
	"github.com/pccrun/pccrun/namespaces"
	"github.com/pccrun/pccrun/profiles"
)

// onProc are the guarantees that need a /proc of the sandbox's own; onSys those
// that need such a /sys; onNamespaces all that namespaces and what is mounted
// in them keep.
var (
	onProc       = []profiles.Guarantee{profiles.ProcIsolated, profiles.InfoKernel}
	onSys        = []profiles.Guarantee{profiles.InfoKernel, profiles.InfoHost}
	onNamespaces = []profiles.Guarantee{
		profiles.FSHide, profiles.FSReadonly, profiles.FSSpecial, profiles.FSProtect, profiles.FSOverlay, profiles.NetAllowlist, profiles.NetAddress, profiles.NetDNS,
		profiles.IPCUnix, profiles.IPCSysV, profiles.ProcIsolated, profiles.ProcNoSurvivors, profiles.ResDisk, profiles.InfoKernel, profiles.InfoHost,
	}
)

// unkept adds to the refusal of a step by this host which guarantees of the
// policy it costs. There is no second mode that keeps them: without a pid namespace processes outlive
// a launcher that is killed, without mounts nothing private takes the place of what is hidden, and
// Landlock neither forbids a name in a writable directory nor a change of a file's mode and times.
func (r *Planned) unkept(err error) error {
	var refusal *namespaces.Refusal
	if !errors.As(err, &refusal) {
		return err
	}
	lost := onNamespaces
	switch refusal.Step {
	case namespaces.StepProc:
		lost = onProc
	case namespaces.StepSys:
		lost = onSys
	}
	var list []string
	for _, q := range r.Policy.Requirements {
		if q.Required && slices.Contains(lost, q.Guarantee) && !slices.Contains(r.Policy.AllowMissing, q.Guarantee) {
			list = append(list, string(q.Guarantee))
		}
	}
	if len(list) == 0 {
		return err
	}
	return hint.Errorf(refusal.Fix, "%w; no mode but namespaces keeps %s", err, strings.Join(list, ", "))
}
