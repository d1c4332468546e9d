package survey

import (
	"path/filepath"
	"slices"
	"strings"

	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/workspace/gitconfig"
)

// toolSettings are what a tool reads of the user's, line by line, each of which a variable can stand for.
type toolSettings struct {
	moved   string   // a variable that names another file
	files   []string // below the home; the first that is there counts
	section string   // the only one that counts, "" for a text without any
	keys    string   // "": those whose variables the policy passes
	name    func(key string) string
}

// Keys that hold no secret and name no host: a registry is told by its group.
var tools = [...]toolSettings{
	{moved: "GOENV", files: []string{".config/go/env"}, name: func(key string) string { return key }}, // https://go.dev/ref/mod#environment-variables
	{
		moved: "NPM_CONFIG_USERCONFIG", files: []string{".npmrc"}, // npm help config
		keys: `audit audit-level auto-install-peers engine-strict fetch-retries fetch-timeout foreground-scripts fund ignore-scripts init-author-name init-license
			init-version install-links install-strategy legacy-peer-deps lockfile-version loglevel maxsockets min-release-age node-linker omit optional package-lock
			prefer-offline prefix progress public-hoist-pattern resolution-mode save save-exact save-prefix shamefully-hoist strict-peer-deps unicode workspaces-update`,
		name: func(key string) string { return "npm_config_" + strings.ReplaceAll(key, "-", "_") },
	},
	{
		moved: "PIP_CONFIG_FILE", files: []string{".config/pip/pip.conf", ".pip/pip.conf"}, section: "global", // https://pip.pypa.io/en/stable/topics/configuration/
		keys: "break-system-packages disable-pip-version-check find-links no-binary no-compile no-index no-input only-binary prefer-binary progress-bar quiet require-virtualenv retries timeout use-pep517 verbose",
		name: func(key string) string { return "PIP_" + strings.ToUpper(strings.ReplaceAll(key, "-", "_")) },
	},
}

// settings passes what the user has set for tools, as the variables for which it stands: in a home of the sandbox's own
// they would do something else than outside, without a word.
func (o *Options) settings(p *profiles.Policy) (env []Variable) {
	if p.Decide(p.Home).Access >= profiles.Read {
		return nil
	}
	for i := range tools {
		t := &tools[i]
		files := []string{o.Getenv(t.moved)}
		if files[0] == "" {
			files = files[:0]
			for _, name := range t.files {
				if rest, in := strings.CutPrefix(name, ".config/"); in && o.xdg() != "" {
					files = append(files, o.xdg()+"/"+rest)
				} else {
					files = append(files, p.Home+"/"+name)
				}
			}
		}
		for _, path := range files {
			text, err := profiles.ReadFile(path)
			if err != nil {
				continue
			}
			if filepath.IsAbs(path) && !Below(profiles.Physical(path), p.Workspace) && ByDefault(p, path) {
				env = append(env, t.read(o, p, path, string(text))...)
			}
			break
		}
	}
	return env
}

func (t *toolSettings) read(o *Options, p *profiles.Policy, path, text string) (env []Variable) {
	within := t.section == ""
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "[") {
			within = line == "["+t.section+"]"
		}
		key, value, is := strings.Cut(line, "=")
		key, value = strings.TrimSpace(key), strings.Trim(strings.TrimSpace(value), `"`)
		if !within || !is || t.keys != "" && !slices.Contains(strings.Fields(t.keys), key) || gitconfig.Secret(value) || strings.Contains(value, "${") {
			continue
		}
		name := t.name(key)
		passed := p.DecideEnv(name).Action == profiles.EnvPassed
		listed := t.keys != "" && p.Uses(profiles.GitConfig) && free(p, name) // as git's, which strict and offline leave out
		if (passed || listed) && o.Getenv(name) == "" {
			env = append(env, Variable{name + "=" + value, "your " + path + " has it"})
		}
	}
	return env
}
