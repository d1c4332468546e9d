package providers

import (
	"fmt"
	"slices"
	"strings"

	"github.com/pccrun/pccrun/profiles"
)

// A MissingError says that a guarantee that the policy requires would not be
// kept. Nothing has run.
type MissingError struct {
	Answer profiles.Answer
	Origin profiles.Origin // what requires it
	among  bool            // of several: the flag that gives all of them up is named once
}

func (e *MissingError) Error() string {
	what := "missing"
	if e.Answer.State == profiles.Weak {
		what = "only weakly kept, by " + e.Answer.Mechanism
	}
	return fmt.Sprintf("guarantee %s: %s: %s (required by %s)", e.Answer.Guarantee, what, e.Answer.Cause, e.Origin)
}

// Hint says what mends it, or how to do without.
func (e *MissingError) Hint() string {
	if e.Answer.Hint != "" || e.among {
		return e.Answer.Hint
	}
	return "--allow-missing " + string(e.Answer.Guarantee) + " runs without it"
}

// MissingErrors are all that the policy requires and that would not be kept,
// two at least, in the order of [profiles.Guarantees]. Nothing has run.
type MissingErrors []*MissingError

func (e MissingErrors) Error() string {
	lines := make([]string, len(e))
	for i, one := range e {
		lines[i] = one.Error()
	}
	return strings.Join(lines, "\n")
}

// Unwrap returns each of them.
func (e MissingErrors) Unwrap() []error {
	list := make([]error, len(e))
	for i, one := range e {
		list[i] = one
	}
	return list
}

// Hint says how to do without them; what mends one is that one's own.
func (e MissingErrors) Hint() string {
	names := make([]string, len(e))
	for i, one := range e {
		names[i] = string(one.Answer.Guarantee)
	}
	leave := "--allow-missing " + strings.Join(names, ",") + " runs although they are not kept"
	advice, _, _ := strings.Cut(e[0].Answer.Hint, "; --allow-missing ")
	if advice == "" || slices.ContainsFunc(e, func(one *MissingError) bool { return !strings.HasPrefix(one.Answer.Hint, advice) }) {
		return leave
	}
	return advice + "; " + leave // one thing mends all
}

// GivenUp reports whether the user has said that a guarantee may be missing.
func GivenUp(p *profiles.Policy, g profiles.Guarantee, a profiles.Answer) bool {
	return slices.Contains(p.AllowMissing, g) || strings.HasPrefix(a.Cause, "--without ")
}

// Check holds a provider's answers against what the policy requires, and names all
// that is not kept: who meets the refusal wants to know once what is lacking there.
// What is wanted becomes a warning; what the user gave up is named with its flag, and
// not here. A guarantee without an answer is missing,
// but for what is promised of copies: where nothing is copied, nobody answers for it.
func Check(policy *profiles.Policy, answers []profiles.Answer) (warnings []string, err error) {
	var missing MissingErrors
	for _, q := range policy.Requirements {
		a := profiles.Answer{Guarantee: q.Guarantee, State: profiles.Missing, Cause: "the provider does not answer for it"}
		i := slices.IndexFunc(answers, func(a profiles.Answer) bool { return a.Guarantee == q.Guarantee })
		if i >= 0 {
			a = answers[i]
		}
		switch {
		case i < 0 && (q.Guarantee == profiles.SyncUp || q.Guarantee == profiles.SyncDown):
			continue
		case a.State == profiles.Kept, a.State == profiles.Weak && !q.Strong:
			continue
		case !q.Required:
			warnings = append(warnings, "guarantee "+string(a.Guarantee)+": "+a.Cause)
			continue
		case GivenUp(policy, q.Guarantee, a):
			continue
		}
		missing = append(missing, &MissingError{Answer: a, Origin: q.Origin})
	}
	switch len(missing) {
	case 0:
		return warnings, nil
	case 1:
		return warnings, missing[0]
	}
	for _, one := range missing {
		one.among = true
	}
	return warnings, missing
}

// A CallerError is about what pccrun itself was started with: no other provider would do better.
type CallerError struct{ Err error }

func (e *CallerError) Error() string { return e.Err.Error() }
func (e *CallerError) Unwrap() error { return e.Err }
