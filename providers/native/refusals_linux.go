package native

import (
	"os"
	"strings"

	"github.com/pccrun/pccrun/internal/shell"
	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/workspace"
)

// signers are the services by which git signs, by gpg.format.
var signers = map[string]string{"openpgp": "gpg-agent", "x509": "gpg-agent", "ssh": "ssh-agent"}

// signingKey is the setting that says which key of an agent's signs.
const signingKey = "user.signingkey"

// signing returns the flags that git lacks to sign in a format, "" for none: an agent, and of ssh the key that
// the repository names, since ssh-keygen wants to know which.
func (p *Planned) signing(format string) (flags string) {
	if service := signers[format]; service != "" && !p.Policy.Uses(service) {
		flags = "--use " + service
	}
	if key := p.found.NamedHere[signingKey]; format == "ssh" && key != "" && p.Policy.Decide(key).Access < profiles.Read {
		if _, err := os.Stat(key); err == nil {
			flags = strings.TrimSpace(flags + " --read " + shell.Quote(key))
		}
	}
	return flags
}

// Refused returns what [Started.changedCopies] has found.
func (s *Started) Refused() []workspace.Refusal { return s.pinned }

// changedCopies returns the configurations of which the command has changed a copy that nothing
// comes back of. It is for [namespaces.Sandbox.Gone], and to be called once.
func (s *Started) changedCopies() (list []workspace.Refusal) {
	for _, c := range s.Sandbox.Configs(false) {
		if c.Changed() {
			list = append(list, workspace.Refusal{Path: c.Path, Why: ".git/config"})
		}
	}
	return list
}
