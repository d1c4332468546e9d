package providers_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/providers"
)

func TestCheck(t *testing.T) {
	flag := profiles.Origin{Source: "flag", Key: "--hide"}
	required := func(list ...profiles.Guarantee) (p profiles.Policy) {
		for _, g := range list {
			p.Requirements = append(p.Requirements, profiles.Requirement{Guarantee: g, Required: true, Origin: flag})
		}
		return p
	}
	hide := profiles.Answer{Guarantee: profiles.FSHide, Mechanism: "mounts"}
	weak := profiles.Answer{Guarantee: profiles.FSHide, State: profiles.Weak, Mechanism: "mounts", Cause: "a gap", Hint: "mend it"}
	gone := profiles.Answer{Guarantee: profiles.FSHide, State: profiles.Missing, Cause: "no mounts"}
	strong, wanted, given, without := required(profiles.FSHide), required(profiles.FSHide), required(profiles.FSHide), gone
	strong.Requirements[0].Strong, wanted.Requirements[0].Required = true, false
	given.AllowMissing = []profiles.Guarantee{profiles.FSHide}
	without.Cause = "--without hide"
	two := required(profiles.FSHide, profiles.PrivNone)
	for name, c := range map[string]struct {
		policy   profiles.Policy
		answers  []profiles.Answer
		warnings []string
		err      string
		hint     string
	}{
		"kept":              {required(profiles.FSHide), []profiles.Answer{hide}, nil, "", ""},
		"weak":              {required(profiles.FSHide), []profiles.Answer{weak}, nil, "", ""},
		"weak and strong":   {strong, []profiles.Answer{weak}, nil, "guarantee fs.hide: only weakly kept, by mounts: a gap (required by flag --hide)", "mend it"},
		"missing":           {required(profiles.FSHide), []profiles.Answer{gone}, nil, "guarantee fs.hide: missing: no mounts (required by flag --hide)", "--allow-missing fs.hide runs without it"},
		"wanted":            {wanted, []profiles.Answer{gone}, []string{"guarantee fs.hide: no mounts"}, "", ""},
		"given up":          {given, []profiles.Answer{gone}, nil, "", ""},
		"switched off":      {required(profiles.FSHide), []profiles.Answer{without}, nil, "", ""},
		"unanswered":        {required(profiles.FSHide), nil, nil, "guarantee fs.hide: missing: the provider does not answer for it (required by flag --hide)", "--allow-missing fs.hide runs without it"},
		"nothing is copied": {required(profiles.SyncUp, profiles.SyncDown), nil, nil, "", ""},
		"two": {two, []profiles.Answer{gone}, nil, "guarantee fs.hide: missing: no mounts (required by flag --hide)\n" +
			"guarantee priv.none: missing: the provider does not answer for it (required by flag --hide)", "--allow-missing fs.hide,priv.none runs although they are not kept"},
	} {
		t.Run(name, func(t *testing.T) {
			warnings, err := providers.Check(&c.policy, c.answers)
			require.Equal(t, c.warnings, warnings)
			if c.err == "" {
				require.NoError(t, err)
				return
			}
			require.EqualError(t, err, c.err)
			require.Equal(t, c.hint, err.(interface{ Hint() string }).Hint())
			var one *providers.MissingError
			require.ErrorAs(t, err, &one)
		})
	}
}

func TestOneHintForSeveral(t *testing.T) {
	policy := profiles.Policy{Requirements: []profiles.Requirement{{Guarantee: profiles.FSHide, Required: true}, {Guarantee: profiles.FSProtect, Required: true}}}
	answers := []profiles.Answer{
		{Guarantee: profiles.FSHide, State: profiles.Missing, Hint: "another disk; --allow-missing fs.hide runs without"},
		{Guarantee: profiles.FSProtect, State: profiles.Missing, Hint: "another disk; --allow-missing fs.protect runs without"},
	}
	_, err := providers.Check(&policy, answers)
	require.Equal(t, "another disk; --allow-missing fs.hide,fs.protect runs although they are not kept", err.(interface{ Hint() string }).Hint())
}
