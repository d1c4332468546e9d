package native

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
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

// A Lack is what some programs need of the host, and do not say well that they have not got it.
type Lack struct {
	Programs string // by name
	Path     string // what stands on the host: ~ is the home, and a directory ends with a slash
	Flags    string // what gives it, "" for the path itself: to read, or as a copy
	With     string // what they need with it
}

// upward is the file that a row's programs look for in their directory and in those above.
const upward = ".envrc"

// Lacking are the settings that programs keep in a home, and what else only a flag gives them. A directory is
// given as a copy that they may write: they keep sessions and locks beside the settings, and fail without
// (Azure/azure-cli issue 21213, snyk/kubernetes-monitor issue 1099).
var Lacking = [...]Lack{
	{Programs: "kubectl helm helmfile k9s kustomize flux argocd stern skaffold tilt kubectx kubens istioctl", Path: "~/.kube/config"},
	{Programs: "aws cdk cdklocal sam copilot chamber terraform tofu terragrunt pulumi packer eksctl s5cmd serverless sls", Path: "~/.aws/"},
	{Programs: "gcloud gsutil bq", Path: "~/.config/gcloud/"},
	{Programs: "az azd func", Path: "~/.azure/"},
	{Programs: "terraform tofu", Path: "~/.terraformrc"},
	{Programs: "terraform tofu", Path: "~/.terraform.d/"},
	{Programs: "gh", Path: "~/.config/gh/"},
	{Programs: "glab", Path: "~/.config/glab-cli/"},
	{Programs: "tea", Path: "~/.config/tea/"},
	{Programs: "doctl", Path: "~/.config/doctl/"},
	{Programs: "fly flyctl", Path: "~/.fly/"},
	{Programs: "heroku", Path: "~/.netrc"},
	{Programs: "vercel", Path: "~/.local/share/com.vercel.cli/"},
	{Programs: "netlify", Path: "~/.config/netlify/"},
	{Programs: "wrangler", Path: "~/.config/.wrangler/"},
	{Programs: "firebase", Path: "~/.config/configstore/"},
	{Programs: "vault", Path: "~/.vault-token"},
	{Programs: "op", Path: "~/.config/op/"},
	{Programs: "sops", Path: "~/.config/sops/"},
	{Programs: "rclone", Path: "~/.config/rclone/"},
	{Programs: "s3cmd", Path: "~/.s3cfg"},
	{Programs: "psql pg_dump pg_restore pgcli", Path: "~/.pgpass"},
	{Programs: "mysql mysqldump mariadb mycli", Path: "~/.my.cnf"},
	{Programs: "ansible ansible-playbook ansible-vault ansible-galaxy", Path: "~/.ansible.cfg"},
	{Programs: "mvn mvnw mvnd", Path: "~/.m2/settings.xml"},
	{Programs: "gradle gradlew", Path: "~/.gradle/gradle.properties"},
	{Programs: "sbt", Path: "~/.sbt/"},
	{Programs: "cargo", Path: "~/.cargo/config.toml"},
	{Programs: "twine flit hatch", Path: "~/.pypirc"},
	{Programs: "gem bundle", Path: "~/.gem/credentials"},
	{Programs: "bundle", Path: "~/.bundle/config"},
	{Programs: "composer", Path: "~/.config/composer/auth.json"},
	{Programs: "nuget dotnet", Path: "~/.nuget/NuGet/NuGet.Config"},
	{Programs: "hg", Path: "~/.hgrc"},
	{Programs: "jj", Path: "~/.config/jj/"},
	{Programs: "direnv", Path: "~/.local/share/direnv/", With: "--read .envrc"},
	{Programs: "pass", Path: "~/.password-store/", With: "--use gpg-agent"},
	{Programs: "docker docker-compose", Path: "/var/run/docker.sock", Flags: "--use docker"},
	{Programs: "bwrap unshare podman chrome google-chrome chromium chromium-browser electron", Path: "/proc/self/ns/user", Flags: "--nested"},
}

// at is where it stands.
func (l *Lack) at(home string) string {
	return strings.TrimSuffix(strings.Replace(l.Path, "~", home, 1), "/")
}

// hint is what gives it.
func (l *Lack) hint(home string) string {
	flags := l.Flags
	if flags == "" {
		flags = "--read "
		if strings.HasSuffix(l.Path, "/") {
			flags = "--overlay "
		}
		flags += shell.Quote(l.at(home))
	}
	return strings.TrimSpace(flags + " " + l.With)
}

// needs returns what a command may lack by the programs that it names, and that stands on the host: settings, who
// commits, and who signs. It is asked before root gives up what it may see.
func (p *Planned) needs(command, files []string, places []survey.Place, getenv func(string) string) (list []events.Hidden) {
	if dir := p.beside(files, places); dir != "" {
		list = append(list, events.Hidden{What: "read the directory of the command, " + dir, Hint: "--read " + shell.Quote(dir)})
	}
	if name, is := snap(files); is {
		list = append(list, events.Hidden{What: "reach snapd, which starts " + name + ": its own program lies below /snap/" + name + "/current"})
	}
	words := p.words
	policy := p.Policy
	for _, l := range Lacking {
		if !slices.ContainsFunc(words, func(word string) bool { return strings.Contains(" "+l.Programs+" ", " "+word+" ") }) {
			continue
		}
		path, what := l.at(policy.Home), "connect "
		given := policy.Decide(path).Access >= profiles.Read
		switch service, is := strings.CutPrefix(l.Flags, "--use "); {
		case l.Flags == "":
			what = "read "
		case is:
			given = policy.Uses(service)
		default:
			given, what, path = policy.Nested, "make a user namespace", ""
		}
		traced := policy.Attempts && slices.ContainsFunc(profiles.SecretDirs[:], func(dir string) bool { return survey.Below(path, policy.Home+"/"+dir) })
		if _, err := os.Stat(l.at(policy.Home)); err == nil && !given && !traced {
			list = append(list, events.Hidden{What: what + path, Hint: strings.Replace(l.hint(policy.Home), upward, p.upward(command), 1)})
		}
	}
	if !slices.Contains(words, "git") {
		return list
	}
	configs := []string{policy.Home + "/.gitconfig", cmp.Or(getenv("XDG_CONFIG_HOME"), policy.Home+"/.config") + "/git"}
	if own := getenv("GIT_CONFIG_GLOBAL"); own != "" {
		configs = []string{own}
	}
	for _, path := range configs {
		if _, err := os.Stat(path); err == nil && policy.Decide(path).Access < profiles.Read && slices.ContainsFunc(words, names) {
			list = append(list, events.Hidden{What: "read " + path, Hint: "--read " + shell.Quote(path), Code: gitFatal})
		}
	}
	if flags := p.signing(cmp.Or(p.found.SignFormat, "openpgp")); p.signing(p.found.Signs) == "" && !policy.Attempts && flags != "" && slices.ContainsFunc(words, signs) {
		list = append(list, events.Hidden{What: "sign a commit", Hint: flags, Code: gitFatal})
	}
	return list
}

// wordsOf returns the words of a command, of paths the last name. What shells read of it says as much as its own words.
func (p *Planned) wordsOf(command []string) []string {
	words := vcs.Words(strings.Join(slices.Concat(command, p.scripts), "\n"))
	for i, word := range words {
		words[i] = filepath.Base(word)
	}
	return words
}

// shells are programs of which a word is a script.
var shells = [...]string{"sh", "bash", "dash", "zsh", "ksh"}

// maxScript bounds the scripts of which each word is looked at.
const maxScript = 64 << 10

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

// upward returns the file of that name that programs find from the directory that the command names first, or else
// from where it runs, as the user would write it.
func (p *Planned) upward(command []string) string {
	from := p.Policy.WorkDir
	for _, word := range vcs.Words(strings.Join(command[1:], " ")) {
		if !filepath.IsAbs(word) {
			word = filepath.Join(p.Policy.WorkDir, word)
		}
		if info, err := os.Stat(word); err == nil && info.IsDir() {
			from = word
			break
		}
	}
	for dir := from; dir != "/"; dir = filepath.Dir(dir) {
		if _, err := os.Stat(dir + "/" + upward); err == nil {
			rel, _ := filepath.Rel(p.Policy.WorkDir, dir+"/"+upward)
			return shell.Quote(rel)
		}
	}
	return upward
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

// Lacks returns what a command that failed with a code may have lacked, which nobody can have seen it miss.
func (r *plan) Lacks(command []string, code int) []events.Hidden {
	list := slices.Concat(r.lacks, r.unpassed(), r.listening(command), r.siblings(), r.named(), r.remotes(), r.setID(r.words))
	for _, h := range r.mentioned(command, code) {
		covers := func(known events.Hidden) bool {
			return strings.HasPrefix(h.What+",", known.What+",") || strings.HasPrefix(h.What, known.What+"/")
		}
		if !slices.ContainsFunc(list, covers) {
			list = append(list, h)
		}
	}
	return list
}

// toolOptions are variables by which people set what tools do, and no secrets.
var toolOptions = [...]string{
	"JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS", "JAVA_OPTS", "MAVEN_OPTS", "MAVEN_ARGS", "GRADLE_OPTS", "SBT_OPTS", "NODE_OPTIONS", "NODE_ENV", "RAILS_ENV", "RACK_ENV", "MIX_ENV", "APP_ENV",
	"GOFLAGS", "GOPRIVATE", "GOOS", "GOARCH", "CGO_ENABLED", "CC", "CXX", "CFLAGS", "CXXFLAGS", "LDFLAGS", "RUSTFLAGS", "PYTEST_ADDOPTS", "KUBECONFIG", "AWS_PROFILE", "AWS_REGION",
	"DOCKER_CONTEXT", "COMPOSE_FILE", "COMPOSE_PROJECT_NAME", "TF_WORKSPACE", "PGHOST",
}

// unpassed returns the options that are set outside and not inside, each with the files that it names.
func (r *plan) unpassed() (list []events.Hidden) {
	host := profiles.Host{Environ: r.provider.environ}
	for _, name := range toolOptions {
		value := host.Getenv(name)
		if value == "" || r.Policy.DecideEnv(name).Action != profiles.EnvScrubbed || profiles.CertificateSwitch(name, value) {
			continue
		}
		if info, err := os.Stat(value); filepath.IsAbs(value) && err == nil && info.IsDir() {
			continue // what of it is needed nobody can say
		}
		flags := "--env " + name
		for _, word := range strings.FieldsFunc(value, func(c rune) bool { return strings.ContainsRune(" \t\n=:,", c) }) {
			path := word[max(0, strings.IndexByte(word, '/')):] // as in -I/usr/include
			if _, err := os.Stat(path); filepath.IsAbs(path) && !errors.Is(err, os.ErrNotExist) && r.Policy.Decide(path).Access < profiles.Read && !survey.Below(r.Policy.Home, path) {
				flags += " --read " + shell.Quote(path)
			}
		}
		list = append(list, events.Hidden{What: "find " + name, Rule: "not in environment.pass", Hint: flags})
	}
	return list
}

// listening returns the services of this machine that the command names, or has asked for, and cannot reach: its
// loopback is its own. Where no packet is seen its variables name some.
func (r *plan) listening(command []string) (list []events.Hidden) {
	words := slices.Clone(command)
	if r.Plan.Network == nil {
		words = append(words, r.Plan.Command.Env...)
	}
	if r.run != nil {
		for _, port := range r.run.closed {
			words = append(words, fmt.Sprintf("localhost:%d", port))
		}
	}
	for _, word := range words {
		for _, host := range [...]string{"localhost:", "127.0.0.1:", "[::1]:"} {
			_, rest, is := strings.Cut(word, host)
			digits := len(rest) - len(strings.TrimLeft(rest, "0123456789"))
			port, err := strconv.ParseUint(rest[:digits], 10, 16)
			if !is || err != nil || !procfs.Listens(uint16(port)) {
				continue
			}
			rule := "localhost:" + rest[:digits]
			allowed := slices.ContainsFunc(r.Policy.Network.Local, func(l profiles.NetRule) bool { return l.Text == rule })
			if hint := "--local " + rule; !allowed && !slices.ContainsFunc(list, func(h events.Hidden) bool { return h.Hint == hint }) {
				list = append(list, events.Hidden{What: "connect " + host + rest[:digits] + " of this machine", Hint: hint})
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

// manifests are the files by which projects name others beside them, and by which one is known for such.
var manifests = [...]string{"go.mod", "go.work", "Cargo.toml", "package.json", "pyproject.toml", "tsconfig.json", "settings.gradle", "settings.gradle.kts", "pubspec.yaml"}

// outward is a path that leads out of where it is written, as manifests have it.
const outward = "(?:\\.\\./)+[^\\s\"'`,;()\\[\\]{}]*"

// maxPackages bounds what is looked at of node_modules.
const maxPackages = 2000

// siblings returns the projects outside of the workspace that its manifests name, or npm link has linked, and that are
// hidden: a build says of one that there is none. Nothing is asked of it at the start.
func (r *plan) siblings() (list []events.Hidden) {
	seen, paths := map[string]bool{}, regexp.MustCompile(outward) // which a start does not wait for
	look := func(path, by string) {
		dir, err := filepath.EvalSymlinks(path)
		if err != nil || seen[dir] || survey.Below(r.Policy.Home, dir) || r.Policy.Decide(dir).Access >= profiles.Read {
			return // of who keeps one there the whole home would be asked
		}
		is := func(name string) bool {
			info, err := os.Stat(dir + "/" + name)
			return err == nil && info.Mode().IsRegular()
		}
		if seen[dir] = true; slices.ContainsFunc(manifests[:], is) {
			list = append(list, events.Hidden{What: "read " + dir + ", which " + by, Hint: "--read " + shell.Quote(dir)})
		}
	}
	for _, dir := range slices.Compact([]string{r.Policy.Workspace, r.Policy.WorkDir}) {
		for _, name := range manifests {
			text, _ := profiles.ReadFile(dir + "/" + name)
			for _, path := range paths.FindAll(text, maxPackages) {
				look(filepath.Join(dir, string(path)), name+" names")
			}
		}
		packages, _ := filepath.Glob(dir + "/node_modules/*")
		scoped, _ := filepath.Glob(dir + "/node_modules/@*/*")
		for _, path := range slices.Concat(packages[:min(len(packages), maxPackages)], scoped[:min(len(scoped), maxPackages)]) {
			if _, err := os.Readlink(path); err == nil {
				name, _ := filepath.Rel(dir, path)
				look(path, name+" leads to")
			}
		}
	}
	return list
}

// named returns the files outside that the repository's own configuration has git read, which are shown where the
// user's own names them. Of secrets nothing is offered: whoever has made the repository has named them.
func (r *plan) named() (list []events.Hidden) {
	for _, name := range slices.Sorted(maps.Keys(r.found.NamedHere)) {
		path := r.found.NamedHere[name]
		secret := slices.ContainsFunc(profiles.SecretDirs[:], func(dir string) bool { return survey.Below(path, r.Policy.Home+"/"+dir) })
		if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) && !secret && name != signingKey && r.Policy.Decide(path).Access < profiles.Read {
			list = append(list, events.Hidden{What: "read " + path + ", which " + name + " of the repository names", Hint: "--read " + shell.Quote(path), Code: gitFatal})
		}
	}
	return list
}

// reachesRemotes reports whether a word is a verb of git that reads a remote, or writes it.
func reachesRemotes(word string) bool {
	return slices.Contains([]string{"fetch", "pull", "push", "remote", "ls-remote", "submodule"}, word)
}

// remotes returns the remotes of this machine that are hidden: git says of one that it is no repository.
func (r *plan) remotes() (list []events.Hidden) {
	if !slices.Contains(r.words, "git") || !slices.ContainsFunc(r.words, reachesRemotes) {
		return nil
	}
	what, flag := "read ", "--read "
	if slices.Contains(r.words, "push") {
		what, flag = "write ", "--write "
	}
	for _, dir := range r.found.Remotes {
		if _, err := os.Stat(dir); err == nil && r.Policy.Decide(dir).Access < profiles.Read && !survey.Secret(r.Policy.Home, dir) && !survey.Below(r.Policy.Home, dir) {
			list = append(list, events.Hidden{What: what + dir + ", a remote of the repository", Hint: flag + shell.Quote(dir)})
		}
	}
	return list
}

// setsID are the words by which commands make set-ID modes: of chmod, mkdir and install.
const setsID = `^[ugoa+=,rwxXt-]*[+=][rwxXt]*s|^0?[2-7][0-7]{3}$`

// setID returns what of rights no sandbox gives: a filter knows not whether a set-ID mode is a directory's, and to its
// user namespace no other user or group is known.
func (r *plan) setID(words []string) (list []events.Hidden) {
	umask := r.Plan.Command.Umask
	switch want := sharing(r.found.Shared, umask); {
	case slices.Contains(words, "git") && slices.ContainsFunc(words, func(w string) bool { return strings.HasPrefix(w, "--shared=") || w == "--shared" }):
		list = append(list, events.Hidden{What: "make a directory set-group-ID, as git init --shared does: run that outside", Code: gitFatal})
	case want != umask:
		list = append(list, events.Hidden{What: "make a directory set-group-ID, as core.sharedRepository has git do", Hint: fmt.Sprintf("umask %03o", want), Code: gitFatal})
	}
	mode := regexp.MustCompile(setsID)
	for _, program := range [...]string{"chmod", "mkdir", "install"} {
		if slices.Contains(words, program) && slices.ContainsFunc(words, mode.MatchString) {
			list = append(list, events.Hidden{What: program + " with a set-ID mode: run that outside"})
		}
	}
	if slices.Contains(words, "setfacl") {
		list = append(list, events.Hidden{What: "give rights to other users by setfacl: nobody else is known inside, so run that outside"})
	}
	return list
}

// sharing returns the umask with which what git makes in a shared repository has its modes already: where its directory
// is set-group-ID, a new one is.
func sharing(shared string, umask int) int {
	switch shared = strings.ToLower(shared); shared {
	case "", "umask", "0", "false", "no", "off":
		return umask
	case "group", "1", "true", "yes", "on":
		return umask &^ 0o070
	case "all", "world", "everybody", "2":
		return umask &^ 0o075
	}
	mode, err := strconv.ParseUint(shared, 8, 9)
	if err != nil {
		return umask
	}
	return 0o777 &^ int(mode|mode&0o444>>2)
}
