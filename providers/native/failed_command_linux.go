package native

import (
	"cmp"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/pccrun/pccrun/events"
	"github.com/pccrun/pccrun/internal/procfs"
	"github.com/pccrun/pccrun/internal/shell"
	"github.com/pccrun/pccrun/netproxy/rules"
	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/survey"
	"github.com/pccrun/pccrun/workspace/vcs"
)

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
	{"bwrap unshare podman chrome google-chrome chromium chromium-browser electron", "/proc/self/ns/user", "--nested"},
}

// needs returns what a command may lack by the programs that it names, and that stands on the host: settings, who
// commits, and who signs. It is asked before root gives up what it may see.
func (p *Planned) needs(command, files []string, places []survey.Place) (list []events.Hidden) {
	if dir := p.beside(files, places); dir != "" {
		list = append(list, events.Hidden{What: "read the directory of the command, " + dir, Hint: "--read " + shell.Quote(dir)})
	}
	if name, is := snap(files); is {
		list = append(list, events.Hidden{What: "reach snapd, which starts " + name + ": its own program lies below /snap/" + name + "/current"})
	}
	words := namesIn(command)
	policy := p.Policy
	for _, l := range lacking {
		if !slices.ContainsFunc(words, func(word string) bool { return strings.Contains(" "+l.programs+" ", " "+word+" ") }) {
			continue
		}
		path := strings.Replace(l.path, "~", policy.Home, 1)
		given := policy.Decide(path).Access >= profiles.Read
		hint, what := l.hint, "read "+path
		switch hint {
		case "":
			hint = "--read " + shell.Quote(path)
		case "--nested":
			given, what = policy.Nested, "make a user namespace"
		default:
			given, what = policy.Uses(strings.TrimPrefix(hint, "--use ")), "connect "+path
		}
		traced := policy.Attempts && slices.ContainsFunc(profiles.SecretDirs[:], func(dir string) bool { return survey.Below(path, policy.Home+"/"+dir) })
		if _, err := os.Stat(path); err == nil && !given && !traced {
			list = append(list, events.Hidden{What: what, Hint: hint})
		}
	}
	if !slices.Contains(words, "git") {
		return list
	}
	for _, path := range [...]string{policy.Home + "/.gitconfig", policy.Home + "/.config/git"} {
		if _, err := os.Stat(path); err == nil && policy.Decide(path).Access < profiles.Read && slices.ContainsFunc(words, names) {
			list = append(list, events.Hidden{What: "read " + path, Hint: "--read " + shell.Quote(path), Code: gitFatal})
		}
	}
	if service := signers[cmp.Or(p.found.SignFormat, "openpgp")]; p.signer() == "" && !policy.Attempts && !policy.Uses(service) && slices.ContainsFunc(words, signs) {
		list = append(list, events.Hidden{What: "sign a commit", Hint: "--use " + service, Code: gitFatal})
	}
	return list
}

// namesIn returns the words of a command, of paths the last name.
func namesIn(command []string) []string {
	words := vcs.Words(strings.Join(command, " "))
	for i, word := range words {
		words[i] = filepath.Base(word)
	}
	return words
}

// signIn is what a client of ssh lacks that may reach its servers: the keys stay outside, and an agent signs with them.
func (p *Planned) signIn(words []string) []events.Hidden {
	policy, code := p.Policy, 0
	reaches := func(text string, parse func(string) (rules.Rule, error)) bool {
		rule, err := parse(text)
		return err == nil && rule.Covers(22)
	}
	switch {
	case policy.Uses("ssh-agent"):
	case slices.ContainsFunc(words, func(w string) bool { return slices.Contains([]string{"ssh", "scp", "sftp", "mosh"}, w) }):
		if len(policy.Network.Allow)+len(policy.Network.Local) > 0 {
			code = sshFatal
		}
	case slices.Contains(words, "git"):
		if slices.ContainsFunc(policy.Network.Allow, func(r profiles.NetRule) bool { return reaches(r.Text, rules.Parse) }) {
			code = gitFatal
		}
	}
	if keys, _ := filepath.Glob(policy.Home + "/.ssh/id_*"); code == 0 || len(keys) == 0 {
		return nil
	}
	return []events.Hidden{{What: "sign in with the keys of " + policy.Home + "/.ssh", Hint: `eval "$(ssh-agent)", ssh-add and --use ssh-agent`, Code: code}}
}

// beside is the directory in which the file of a command really lies, where the command is shown that file alone of it.
func (p *Planned) beside(files []string, places []survey.Place) string {
	if len(files) == 0 {
		return ""
	}
	file, err := filepath.EvalSymlinks(files[0])
	dir := filepath.Dir(file)
	if err != nil || p.Policy.Decide(dir).Access >= profiles.Read {
		return ""
	}
	nearest := survey.Place{}
	for _, at := range places {
		if at.Node == survey.Directory && survey.Below(dir, at.Path) && len(at.Path) > len(nearest.Path) {
			nearest = at
		}
	}
	if nearest.Access >= profiles.Read {
		return ""
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) < 2 {
		return ""
	}
	return dir
}

// snap returns the name of the snap that a command is. snapd starts it with a set-user-ID program, and no flag gives that.
func snap(files []string) (name string, is bool) {
	if len(files) == 0 {
		return "", false
	}
	to, err := os.Readlink(files[0])
	name, _, _ = strings.Cut(filepath.Base(files[0]), ".")
	return name, err == nil && to == "/usr/bin/snap"
}

// Lacks returns what a command that failed may have lacked, which nobody can have seen it miss.
func (r *plan) Lacks(command []string) []events.Hidden {
	return slices.Concat(r.lacks, r.unpassed(), r.listening(command))
}

// toolOptions are variables by which people set what tools do, and no secrets.
var toolOptions = [...]string{
	"JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS", "JAVA_OPTS", "MAVEN_OPTS", "MAVEN_ARGS", "GRADLE_OPTS", "SBT_OPTS", "NODE_OPTIONS", "NODE_ENV", "RAILS_ENV", "RACK_ENV", "MIX_ENV", "APP_ENV",
	"GOFLAGS", "GOPRIVATE", "GOOS", "GOARCH", "CGO_ENABLED", "CC", "CXX", "CFLAGS", "CXXFLAGS", "LDFLAGS", "RUSTFLAGS", "PYTEST_ADDOPTS", "KUBECONFIG", "AWS_PROFILE", "AWS_REGION",
	"DOCKER_CONTEXT", "COMPOSE_FILE", "COMPOSE_PROJECT_NAME", "TF_WORKSPACE", "PGHOST",
}

// unpassed returns the options that are set outside and not inside, with what a trust store of Java's needs.
func (r *plan) unpassed() []events.Hidden {
	var names, flags []string
	host := profiles.Host{Environ: r.provider.environ}
	for _, name := range toolOptions {
		value := host.Getenv(name)
		if value == "" || r.Policy.DecideEnv(name).Action != profiles.EnvScrubbed || profiles.CertificateSwitch(name, value) {
			continue
		}
		names, flags = append(names, name), append(flags, "--env "+name)
		for _, word := range strings.Fields(value) {
			if path, is := strings.CutPrefix(word, "-Djavax.net.ssl.trustStore="); is && r.Policy.Decide(path).Access < profiles.Read {
				flags = append(flags, "--read "+shell.Quote(path))
			}
		}
	}
	if len(names) == 0 {
		return nil
	}
	return []events.Hidden{{What: "find " + strings.Join(names, ", "), Rule: "not in environment.pass", Hint: strings.Join(flags, " ")}}
}

// listening returns the services of this machine that the command names and cannot reach: its loopback is its own.
func (r *plan) listening(command []string) (list []events.Hidden) {
	for _, word := range command {
		for _, host := range [...]string{"localhost:", "127.0.0.1:", "[::1]:"} {
			_, rest, is := strings.Cut(word, host)
			digits := len(rest) - len(strings.TrimLeft(rest, "0123456789"))
			port, err := strconv.ParseUint(rest[:digits], 10, 16)
			if !is || err != nil || !procfs.Listens(uint16(port)) {
				continue
			}
			rule := "localhost:" + rest[:digits]
			if !slices.ContainsFunc(r.Policy.Network.Local, func(l profiles.NetRule) bool {
				parsed, err := rules.ParseLocal(l.Text)
				return err == nil && parsed.Covers(uint16(port))
			}) {
				list = append(list, events.Hidden{What: "connect " + host + rest[:digits] + " of this machine", Hint: "--local " + rule})
			}
		}
	}
	return list
}

// gitFatal and sshFatal are the exit codes with which git and ssh give up.
const gitFatal, sshFatal = 128, 255

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
