package native

import (
	"cmp"
	"os"
	"slices"
	"strings"

	"github.com/pccrun/pccrun/events"
	"github.com/pccrun/pccrun/internal/shell"
	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/workspace"
)

// signers are the services by which git signs, by gpg.format.
var signers = map[string]string{"openpgp": "gpg-agent", "x509": "gpg-agent", "ssh": "ssh-agent"}

// signer returns the service by which git is set up to sign and which the policy does not use, "" for none.
func (p *Planned) signer() string {
	if service := signers[p.found.Signs]; !p.Policy.Uses(service) {
		return service
	}
	return ""
}

// gitFatal is the exit code with which git gives up.
const gitFatal = 128

// AfterGit returns what a command that ended with a code of git's may have lacked: who commits, and who signs. It looks at
// the words of the command, since neither is known before.
func (r *plan) AfterGit(code int, command []string) (list []events.Hidden) {
	words := strings.Fields(strings.Join(command, " "))
	if code != gitFatal || !slices.ContainsFunc(words, func(w string) bool { return w == "git" || strings.HasSuffix(w, "/git") }) {
		return nil
	}
	p := r.Policy
	for _, name := range [...]string{"/.gitconfig", "/.config/git"} {
		if _, err := os.Stat(p.Home + name); err == nil && p.Decide(p.Home+name).Access < profiles.Read && slices.ContainsFunc(words, names) {
			list = append(list, events.Hidden{What: "read " + p.Home + name, Hint: "--read " + shell.Quote(p.Home+name)})
		}
	}
	if service := signers[cmp.Or(r.found.SignFormat, "openpgp")]; r.signer() == "" && !p.Attempts && !p.Uses(service) && slices.ContainsFunc(words, signs) {
		list = append(list, events.Hidden{What: "sign a commit", Hint: "--use " + service})
	}
	return list
}

// names reports whether a word is a verb of git that needs to know who commits.
func names(word string) bool {
	switch word {
	case "commit", "merge", "rebase", "cherry-pick", "revert", "am", "tag", "stash", "pull", "notes", "commit-tree":
		return true
	}
	return false
}

// signs reports whether a word is an option of git's by which a commit is signed.
func signs(word string) bool {
	return strings.HasPrefix(word, "--gpg-sign") || strings.HasPrefix(word, "-") && !strings.HasPrefix(word, "--") && strings.Contains(word, "S")
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
