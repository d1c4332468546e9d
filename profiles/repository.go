package profiles

import (
	"errors"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/pccrun/pccrun/netproxy/rules"
	"github.com/pccrun/pccrun/workspace/vcs"
)

// gitHubToken is the variable that GitHub's own programs take a token from.
const gitHubToken = "GITHUB_TOKEN"

// repositoryName is OWNER/NAME as GitHub gives it out. It holds nothing that a rule would take for more than itself.
var repositoryName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]{0,38}/[A-Za-z0-9._-]{1,100}$`)

// gitHubAddress is how a remote at GitHub is written: by https, where CI adds a user, or by ssh.
var gitHubAddress = regexp.MustCompile(`^(?i:https://(?:[^/@]*@)?github\.com/|git@github\.com:|ssh://git@github\.com/)(.*)$`)

// IsRepository reports whether --github-token takes a text for a repository, and not for a token.
func IsRepository(text string) bool {
	_, name, _ := strings.Cut(text, "/")
	return text == "origin" || repositoryName.MatchString(text) && strings.Trim(strings.TrimSuffix(name, ".git"), ".") != ""
}

// githubToken reads the repository that a token is for. What is neither may be the token itself: it is not repeated.
func githubToken(d *decoder, text string, o Origin) {
	repository := strings.TrimSuffix(text, ".git")
	switch {
	case !IsRepository(text):
		d.at(o, "--github-token origin takes the token from $GITHUB_TOKEN, or asks gh auth token",
			"want OWNER/NAME, or origin: a token on a command line can be read by other users")
		return
	case text == "origin":
		var err error
		if repository, err = originOf(d.workspace); err != nil {
			d.at(o, "--github-token OWNER/NAME", "origin: %v", err)
			return
		}
	}
	d.put(entry{key: keyInject, inject: &Injection{Env: gitHubToken, Repository: repository, Hosts: []string{
		"https://github.com/" + repository + ".git/**", "https://github.com/" + repository + "/**",
		"https://api.github.com/repos/" + repository, "https://api.github.com/repos/" + repository + "/**",
	}, Origin: o}, origin: o})
}

// originOf returns the repository at GitHub that the remote origin of a workspace leads to. What git's configuration
// includes is not read, and nothing is executed.
func originOf(workspace string) (string, error) {
	git := filepath.Join(workspace, ".git")
	read := func(path string, _ int64) ([]byte, error) { return ReadFile(path) }
	at := func(dir, path string) string {
		if filepath.IsAbs(path) {
			return path
		}
		return filepath.Join(dir, path)
	}
	if dir, err := vcs.GitFile(read, git); err == nil { // of a linked work tree
		git = at(workspace, dir)
		if common, err := read(filepath.Join(git, "commondir"), 0); err == nil {
			git = at(git, vcs.ParsePathFile(common))
		}
	}
	text, err := ReadFile(filepath.Join(git, "config"))
	if err != nil {
		return "", errors.New(workspace + " is no git repository")
	}
	settings, err := vcs.ParseConfig(text)
	if err != nil {
		return "", err
	}
	address := ""
	for _, s := range settings {
		if s.Section == "remote" && s.Sub == "origin" && s.Key == "url" && address == "" {
			address = s.Value
		}
	}
	if found := gitHubAddress.FindStringSubmatch(address); found != nil {
		if name := strings.TrimSuffix(strings.TrimSuffix(found[1], "/"), ".git"); name != "origin" && IsRepository(name) {
			return name, nil
		}
	}
	return "", errors.New("the workspace has no remote of that name at github.com")
}

// repositories completes what --github-token asks for: the token is the variable's, or gh has it, and where no rule
// speaks of a host, the repository's own requests to it are allowed.
func repositories(p *Policy, host *Host) {
	n := &p.Network
	set, err := n.Rules(func(rules.Rule) ([]rules.Rule, error) { return nil, nil })
	for i := range n.Inject {
		in := &n.Inject[i]
		if in.Repository == "" || err != nil { // which network says
			continue
		}
		if in.File == "" && in.Command == nil && host.Getenv(in.Env) == "" {
			in.Command = []string{"gh", "auth", "token", "--hostname", "github.com"} // or GH_HOST says of which host
		}
		for _, text := range in.Hosts {
			name, _, _ := strings.Cut(strings.TrimPrefix(text, "https://"), "/")
			if v := set.Decide(name, 443); v.Action == rules.Deny && v.Rule == "" {
				n.Allow = append(n.Allow, NetRule{text, in.Origin})
			}
		}
		p.Warnings = append(p.Warnings, in.Goes())
	}
}

// Goes says where a token for a repository goes.
func (in *Injection) Goes() string {
	return "the token of " + in.Source() + " goes to github.com/" + in.Repository + " alone"
}
