package native

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/namespaces"
	"github.com/pccrun/pccrun/profiles"
)

// A refusal names what it costs: what the policy requires, and may not miss.
func TestUnkept(t *testing.T) {
	required := func(names ...profiles.Guarantee) *profiles.Policy {
		p := &profiles.Policy{Requirements: []profiles.Requirement{{Guarantee: profiles.ResDisk}}} // wanted
		for _, g := range names {
			p.Requirements = append(p.Requirements, profiles.Requirement{Guarantee: g, Required: true})
		}
		return p
	}
	refusal := func(step string) error {
		return errors.Join(&namespaces.Refusal{Step: step, Err: unix.EPERM, Cause: "a setting", Fix: "change it"})
	}
	r := &Run{Planned: Planned{Policy: required(profiles.FSHide, profiles.ProcIsolated, profiles.ProcNoSurvivors, profiles.SysFilter)}}
	for step, want := range map[string]string{
		namespaces.StepClone: "operation not permitted: a setting; no mode but namespaces keeps fs.hide, proc.isolated, proc.no-survivors",
		"set the host name":  "operation not permitted: a setting; no mode but namespaces keeps fs.hide, proc.isolated, proc.no-survivors",
		namespaces.StepProc:  "operation not permitted: a setting; no mode but namespaces keeps proc.isolated",
		namespaces.StepSys:   "operation not permitted: a setting",
	} {
		err := r.unkept(refusal(step))
		require.EqualError(t, err, want, step)
		require.ErrorIs(t, err, unix.EPERM)
		var hinter interface{ Hint() string }
		require.ErrorAs(t, err, &hinter)
		require.Equal(t, "change it", hinter.Hint())
	}
	r.Policy.AllowMissing = []profiles.Guarantee{profiles.ProcIsolated}
	require.EqualError(t, r.unkept(refusal(namespaces.StepProc)), "operation not permitted: a setting")
	require.Equal(t, unix.EPERM, r.unkept(unix.EPERM))
}
