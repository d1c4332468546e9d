package proposals

import (
	"path"
	"strings"

	"github.com/pccrun/pccrun/profiles"
)

// secretDirs are names, in any directory, of which all that is below is secret.
var secretDirs = [...]string{
	".ssh", ".gnupg", ".aws", ".azure", ".kube", ".docker", ".password-store", ".mozilla", ".pki", ".terraform.d", ".config/gcloud", ".config/gh", ".config/google-chrome",
	".config/chromium", ".config/op", ".config/rclone", ".config/doctl", ".config/hub", ".local/share/keyrings", ".thunderbird",
}

// secretFiles are names of files, and beginnings where they end in *.
var secretFiles = [...]string{
	".netrc", "_netrc", ".git-credentials", ".npmrc", ".yarnrc.yml", ".pypirc", ".pgpass", ".my.cnf", ".boto", ".s3cfg", ".databricks.cfg", ".vault-token", ".env*",
	".bash_history", ".zsh_history", ".python_history", ".psql_history", ".mysql_history", ".node_repl_history", ".lesshst", "id_rsa*", "id_dsa*", "id_ecdsa*", "id_ed25519*", "shadow", "gshadow",
	"auth.json", "cookies*", "login data*",
}

var (
	secretEnds  = [...]string{".pem", ".key", ".p12", ".pfx", ".kdbx", ".jks", ".keystore", ".ovpn", ".gpg", ".asc"}
	secretWords = [...]string{"secret", "credential", "token", "password", "passwd", "apikey", "api_key", "private_key", "privatekey"}
)

// secret says why a path is not shown without a question: what it is called,
// what hides it, or that it is, or holds, a home.
func (b *maker) secret(name string) string {
	p := b.policy
	if name == "/" || within(name, p.Home) || within(name, p.Workspace) {
		return "it contains a home or the workspace"
	}
	for _, dir := range [...]string{".config", ".local", ".local/share", ".local/state", ".cache", ".var"} {
		if name == p.Home+"/"+dir {
			return "many programs keep secrets in it"
		}
	}
	for _, homes := range p.Homes {
		if within(name, homes) {
			return "homes are in it"
		}
		if within(homes, name) && !within(p.Home, name) && !within(p.Workspace, name) {
			return "it is in somebody else's home"
		}
	}
	if d := p.Decide(name); d.Access == profiles.Hide && d.Rule.Origin.Source != "default" {
		return "the rule " + d.Access.String() + " " + d.Rule.Text() + " hides it (" + d.Rule.Origin.String() + ")"
	}
	lower := strings.ToLower(name)
	for _, dir := range secretDirs {
		if strings.Contains(lower+"/", "/"+dir+"/") {
			return "secrets are kept in " + dir
		}
	}
	base := path.Base(lower)
	for _, file := range secretFiles {
		prefix, some := strings.CutSuffix(file, "*")
		if base == file || some && strings.HasPrefix(base, prefix) {
			return "it looks like a secret"
		}
	}
	for _, end := range secretEnds {
		if strings.HasSuffix(base, end) {
			return "it looks like a secret"
		}
	}
	for _, word := range secretWords {
		if strings.Contains(base, word) {
			return "it looks like a secret"
		}
	}
	return ""
}
