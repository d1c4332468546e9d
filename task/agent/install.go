package agent

import "strings"

// An installer is how an agent is installed where a place lacks it, by a shell: $version is "" for the newest, and $HOME is a
// directory of its own, in which .local/bin is to have the program.
type installer struct {
	command string
	allow   []string // the hosts that it reaches
}

// byNpm installs a package of npm's.
func byNpm(name string) installer {
	return installer{`npm install --global --no-fund --no-audit --prefix "$HOME/.local" "` + name + `@${version:-latest}"`, []string{"@npm"}}
}

// upToDate ends an installation where the agent is there: of the version that is wanted, of any where none is, or where
// the user does not want it updated.
const upToDate = `version=$1 HOME=$3
export HOME
cd "$HOME" || exit
if command -v @NAME@ > /dev/null; then
	if [ -z "$version" ] || [ "$2" = skip ]; then exit 0; fi
	case " $(@NAME@ --version 2> /dev/null) " in *[!0-9.]"$version"[!0-9.]*) exit 0 ;; esac
fi
`

// installed is what follows.
const installed = `
[ -x "$HOME/.local/bin/@NAME@" ] || { echo "the installer left no @NAME@ in its .local/bin"; exit 1; }
`

// Installer is a script of sh, with the arguments VERSION, skip or update, and DIRECTORY, that has the agent be in a place, and
// the hosts that it reaches. own stands in the place of the agent's own installer; "" for that.
func (a *Agent) Installer(own string, allow []string) (script string, hosts []string) {
	if own == "" {
		own, allow = a.install.command, append(a.install.allow[:len(a.install.allow):len(a.install.allow)], allow...)
	}
	return strings.ReplaceAll(upToDate+own+installed, "@NAME@", a.Name), allow
}
