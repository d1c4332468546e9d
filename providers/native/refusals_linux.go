package native

import "github.com/pccrun/pccrun/workspace"

// signers are the services by which git signs, by gpg.format.
var signers = map[string]string{"openpgp": "gpg-agent", "x509": "gpg-agent", "ssh": "ssh-agent"}

// signer returns the service by which git is set up to sign and which the policy does not use, "" for none.
func (p *Planned) signer() string {
	if service := signers[p.found.Signs]; !p.Policy.Uses(service) {
		return service
	}
	return ""
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
