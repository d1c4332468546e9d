package profiles

// A SecretPlace is a name in a home: a file that holds secrets, or a directory in which some lie.
type SecretPlace struct {
	Name string // with slashes, as in .config/gh
	Sort PlaceSort
}

// A PlaceSort says what is known of a [SecretPlace].
type PlaceSort uint8

const (
	holds    PlaceSort = iota // all of it is taken for secret
	Searched                  // likewise, and a program looks there only to use what it finds: that it looked is worth a report
	Mixed                     // most of what lies there is no secret, and it is not known of each file
)

// SecretPlaces are the names that no toolchain, link or hint shows unasked. They need not exist.
var SecretPlaces = [...]SecretPlace{
	// keys, and logins of clouds
	{".ssh", Searched}, {".gnupg", Searched}, {".aws", Searched}, {".azure", Searched}, {".kube", Searched}, {".docker", holds}, {".pki", holds}, {".terraform.d", holds}, {".vault-token", holds},
	// settings and state of every program, and what of it is known to hold keys
	{".config", Mixed}, {".config/gcloud", Searched}, {".config/gh", Searched}, {".config/glab-cli", holds}, {".config/hub", holds}, {".config/doctl", holds}, {".config/op", holds},
	{".config/rclone", holds}, {".config/sops", holds}, {".config/age", holds}, {".config/containers", holds}, {".config/chromium", holds}, {".config/pccrun", holds}, {".local/state", Mixed},
	// stores of passwords, and what browsers and mail programs keep
	{".password-store", Searched}, {".local/share/keyrings", Searched}, {".local/share/kwalletd", holds}, {".mozilla", Searched}, {".config/google-chrome", Searched}, {".thunderbird", holds},
	// what git and package managers sign in with
	{".netrc", holds}, {".git-credentials", holds}, {".npmrc", holds}, {".pypirc", holds}, {".cargo/credentials", holds}, {".cargo/credentials.toml", holds}, {".gem/credentials", holds},
	{".gradle/gradle.properties", holds}, {".m2/settings.xml", holds},
	// agents' logins and conversations
	{".claude", holds}, {".codex", holds}, {".gemini", holds},
}

// SearchedPlaces returns the names of those that a program looks for only to use them.
func SearchedPlaces() (names []string) {
	for _, place := range SecretPlaces {
		if place.Sort == Searched {
			names = append(names, place.Name)
		}
	}
	return names
}

// StartupFiles are names in a home that a shell, a session, git, npm and their like execute, or take
// orders from, when they start. The default profile's protect.home is a part of them.
var StartupFiles = [...]string{
	".bashrc", ".bash_profile", ".bash_login", ".bash_logout", ".bash_aliases", ".profile", ".zshrc", ".zshenv", ".zprofile", ".zlogin", ".zlogout",
	".kshrc", ".mkshrc", ".cshrc", ".tcshrc", ".login", ".logout", ".inputrc", ".envrc", ".xprofile", ".xsessionrc", ".pam_environment",
	".gitconfig", ".gitattributes", ".npmrc", ".yarnrc", ".yarnrc.yml", ".netrc", ".pypirc", ".pydistutils.cfg", ".curlrc", ".wgetrc",
	".gdbinit", ".lldbinit", ".vimrc", ".exrc", ".tmux.conf", ".screenrc",
	".config/fish", ".config/environment.d", ".config/pip", ".config/systemd", ".config/autostart", ".config/npm", ".config/direnv", ".config/mise",
}
