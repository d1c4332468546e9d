//go:build !linux

package explain

import (
	"path/filepath"

	"github.com/pccrun/pccrun/profiles"
)

// At goes by the table alone: there is no native launch here.
func At(p *profiles.Policy, _ *profiles.Host, path string) (Found, error) {
	return Found{Decision: p.Decide(path)}, nil
}

// ShowsLink goes by the table.
func ShowsLink(p *profiles.Policy, _ *profiles.Host, link string) (bool, error) {
	return p.Decide(filepath.Dir(link)).Access != profiles.Hide, nil
}

// WritesFIFO is for Linux: Seatbelt knows FIFOs by their paths.
func WritesFIFO(*profiles.Policy, *profiles.Host, string) (string, error) { return "", nil }

// SurveyedEnv knows nothing either.
func SurveyedEnv(*profiles.Policy, *profiles.Host, string) (value, what string) { return "", "" }

// ProgramOf takes a name as it stands: nothing is looked for where nothing runs.
func ProgramOf(_ *profiles.Policy, _ *profiles.Host, name string) (string, error) { return name, nil }

// Unrunnable says what the error says.
func Unrunnable(err error) (what, hint string) { return err.Error(), "" }

// ChangedWith returns what a rule has to name for a path to change.
func ChangedWith(_ *profiles.Decision, path string) string { return path }
