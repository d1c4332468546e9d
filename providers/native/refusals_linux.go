package native

import (
	"cmp"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/pccrun/pccrun/events"
	"github.com/pccrun/pccrun/internal/shell"
	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/survey"
	"github.com/pccrun/pccrun/workspace"
	"github.com/pccrun/pccrun/workspace/vcs"
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

// A lack is what some programs need of the host, and do not say well that they have not got it.
type lack struct {
	programs string // by name
	path     string // what stands on the host: ~ is the home
	hint     string // "" for --read of the path
}

// lacking are the settings that programs keep in a home, and what else only a flag gives them.
var lacking = [...]lack{
	{"kubectl helm helmfile k9s kustomize flux argocd stern skaffold tilt kubectx kubens istioctl", "~/.kube/config", ""},
	{"aws cdk cdklocal sam copilot chamber terraform tofu terragrunt pulumi packer eksctl s5cmd serverless sls", "~/.aws", ""},
	{"gcloud gsutil bq", "~/.config/gcloud", ""}, {"az azd func", "~/.azure", ""}, {"terraform tofu", "~/.terraformrc", ""}, {"terraform tofu", "~/.terraform.d", ""},
	{"gh", "~/.config/gh", ""}, {"glab", "~/.config/glab-cli", ""}, {"tea", "~/.config/tea", ""}, {"doctl", "~/.config/doctl", ""}, {"fly flyctl", "~/.fly", ""}, {"heroku", "~/.netrc", ""},
	{"vercel", "~/.local/share/com.vercel.cli", ""}, {"netlify", "~/.config/netlify", ""}, {"wrangler", "~/.config/.wrangler", ""}, {"firebase", "~/.config/configstore", ""},
	{"vault", "~/.vault-token", ""}, {"op", "~/.config/op", ""}, {"sops age", "~/.config/sops", ""}, {"rclone", "~/.config/rclone", ""}, {"s3cmd", "~/.s3cfg", ""},
	{"psql pg_dump pg_restore pgcli", "~/.pgpass", ""}, {"mysql mysqldump mariadb mycli", "~/.my.cnf", ""}, {"ansible ansible-playbook ansible-vault ansible-galaxy", "~/.ansible.cfg", ""},
	{"mvn mvnw mvnd", "~/.m2/settings.xml", ""}, {"gradle gradlew", "~/.gradle/gradle.properties", ""}, {"sbt", "~/.sbt", ""}, {"cargo", "~/.cargo/config.toml", ""}, {"twine flit hatch", "~/.pypirc", ""},
	{"gem bundle", "~/.gem/credentials", ""}, {"bundle", "~/.bundle/config", ""}, {"composer", "~/.config/composer/auth.json", ""}, {"nuget dotnet", "~/.nuget/NuGet/NuGet.Config", ""}, {"hg", "~/.hgrc", ""}, {"jj", "~/.config/jj", ""},
	{"pass", "~/.password-store", ""}, {"docker docker-compose", "/var/run/docker.sock", "--use docker"},
	{"bwrap unshare firejail flatpak podman buildah chrome google-chrome chromium chromium-browser electron puppeteer bazel bazelisk", "/proc/self/ns/user", "--nested"},
}

// Lacks returns what a command that failed may have lacked, and nobody can have seen it miss: who commits, and who signs;
// the settings of the programs that it names. It looks at the words of the command.
func (r *plan) Lacks(code int, command []string) (list []events.Hidden) {
	p := r.Policy
	words := vcs.Words(strings.Join(command, " "))
	for i, word := range words {
		words[i] = filepath.Base(word)
	}
	for _, l := range lacking {
		path := strings.Replace(l.path, "~", p.Home, 1)
		given := p.Decide(path).Access >= profiles.Read
		hint, what := l.hint, "read "+path
		switch hint {
		case "":
			hint = "--read " + shell.Quote(path)
		case "--nested":
			given, what = p.Nested, "make a user namespace"
		default:
			given, what = p.Uses(strings.TrimPrefix(hint, "--use ")), "connect "+path
		}
		traced := p.Attempts && slices.ContainsFunc(profiles.SecretDirs[:], func(dir string) bool { return survey.Below(path, p.Home+"/"+dir) })
		if given || traced || !slices.ContainsFunc(strings.Fields(l.programs), func(name string) bool { return slices.Contains(words, name) }) {
			continue
		}
		if _, err := os.Stat(path); err == nil {
			list = append(list, events.Hidden{What: what, Hint: hint})
		}
	}
	if code != gitFatal || !slices.Contains(words, "git") {
		return list
	}
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

// gitFatal is the exit code with which git gives up.
const gitFatal = 128

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
