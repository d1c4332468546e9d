package egress

import (
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strconv"
	"strings"

	"github.com/pccrun/pccrun/netproxy/inspect/wire"
	"github.com/pccrun/pccrun/netproxy/rules"
	"github.com/pccrun/pccrun/netproxy/secrets"
	"github.com/pccrun/pccrun/profiles"
)

// gitCredentials asks the user's git, outside, for what it would sign in with at each host that
// the user's own rules allow by https, and has git inside send a placeholder in its place. Only
// a user name that is too short to be a secret enters.
func (p *Plan) gitCredentials(in *reader, host *Host) error {
	i := slices.IndexFunc(p.policy.Use, func(u profiles.UseRule) bool { return u.Name == profiles.GitCredentials })
	if i < 0 {
		return nil
	}
	origin, found := p.policy.Use[i].Origin, 0
	for _, name := range gitHosts(&p.policy.Network) {
		c, err := host.Secrets.gitCredential(name, host)
		if err != nil {
			return &profiles.Error{Origin: origin, Cause: profiles.GitCredentials + ": " + name + ": " + err.Error()}
		}
		if c.password == "" {
			p.Warnings = append(p.Warnings, "your git has no credential for "+name+": requests to it have none")
			continue
		}
		set, err := p.secretHosts(profiles.Injection{Env: "of git", Hosts: []string{name}, Origin: origin})
		if err != nil {
			return err
		}
		key, err := placeholderKey(host.StateDir, p.policy.Workspace)
		if err != nil {
			return err
		}
		secret := func(what, value string) (string, error) {
			placeholder, err := secrets.Placeholder(key, "git "+what+" "+name, value)
			if err != nil {
				return "", &profiles.Error{Origin: origin, Cause: fmt.Sprintf("%s: %s: the %s %v", profiles.GitCredentials, name, what, err)}
			}
			in.setup.Secrets = append(in.setup.Secrets, wire.Secret{Placeholder: placeholder, Value: value, Name: profiles.GitCredentials, Hosts: set.Texts()})
			return placeholder, nil
		}
		if c.password, err = secret("password", c.password); err != nil {
			return err
		}
		if len(c.username) >= secrets.MinLength { // of some hosts it is the token
			if c.username, err = secret("user name", c.username); err != nil {
				return err
			}
		}
		p.Rules = p.Rules.Watch(set)
		p.gitHelper(name, strconv.Itoa(found), c)
		found++
	}
	if found == 0 {
		return &profiles.Error{Origin: origin, Cause: profiles.GitCredentials + ": your git has no credential for a host that a rule of yours allows", Hint: "--allow the host that you push to; run `git push` once outside, or `gh auth setup-git`, so that your git saves a credential"}
	}
	return nil
}

// gitHelper has git inside take a credential for a host from its environment, and from no helper of
// the user's, which would look for one in vain.
func (p *Plan) gitHelper(name, n string, c credential) {
	user, password := "PCCRUN_GIT_USER_"+n, "PCCRUN_GIT_PASSWORD_"+n
	p.Environ = append(p.Environ, user+"="+c.username, password+"="+c.password)
	helper := `!f() { test "$1" != get || printf 'username=%s\npassword=%s\n' "$` + user + `" "$` + password + `"; }; f`
	p.gitConfig("credential.https://"+name+".helper", "", helper)
}

// gitRepository has git inside reach a repository of GitHub's by https, however its remote is spelled, and sign in
// there with a placeholder.
func (p *Plan) gitRepository(repository, placeholder string) {
	p.gitHelper(gitHub, "OF_TOKEN", credential{"x-access-token", placeholder})
	https := "https://" + gitHub + "/" + repository
	p.gitConfig("url."+https+".insteadOf", https, "git@"+gitHub+":"+repository, "ssh://git@"+gitHub+"/"+repository)
}

const gitHub = "github.com"

// gitConfig gives git inside values of a key, by its environment.
func (p *Plan) gitConfig(key string, values ...string) {
	count, _ := strconv.Atoi(getenv(p.Environ, "GIT_CONFIG_COUNT"))
	for _, value := range values {
		at := strconv.Itoa(count)
		p.Environ = append(p.Environ, "GIT_CONFIG_KEY_"+at+"="+key, "GIT_CONFIG_VALUE_"+at+"="+value)
		count++
	}
	p.Environ = append(without(p.Environ, "GIT_CONFIG_COUNT"), "GIT_CONFIG_COUNT="+strconv.Itoa(count))
}

// gitHosts are the hosts that the user's own rules name and allow by https. Those of built-in
// profiles are an agent's, and no repository lies there.
func gitHosts(n *profiles.Network) (names []string) {
	for _, r := range n.Allow {
		rule, err := rules.Parse(r.Text)
		if err != nil || strings.HasPrefix(r.Origin.Source, "built-in ") {
			continue
		}
		text := r.Text
		if text == "@github" {
			text = "github.com"
		} else if rule.Covers(22) && !rule.Covers(443) {
			continue
		}
		if _, rest, is := strings.Cut(text, "://"); is {
			text = rest
		}
		text, _, _ = strings.Cut(text, "/")
		text = strings.TrimSuffix(text, ":443")
		if text != "" && !strings.ContainsAny(text, "*@,[ ") && !strings.HasSuffix(text, ":80") && !slices.Contains(names, text) {
			names = append(names, text)
		}
	}
	return names
}

// A credential is what git signs in with.
type credential struct{ username, password string }

// gitCredential asks the user's git for a credential, without a question to the user; none is no error.
func (s *Secrets) gitCredential(name string, host *Host) (c credential, err error) {
	if s == nil {
		return credential{"user", strings.Repeat("0", secrets.MinLength)}, nil
	}
	known := "git " + name
	text, ok := s.known[known]
	if !ok {
		// What asks is switched off. No variable of git's own gets there: one could have git read a repository's
		// configuration, which the command could have written.
		env := []string{"GIT_TERMINAL_PROMPT=0", "GCM_INTERACTIVE=never"}
		out, err := s.run([]string{"git", "-c", "core.askPass=", "credential", "fill"}, "protocol=https\nhost="+name+"\n\n", env, host)
		var exit *exec.ExitError
		switch {
		case err != nil && (!errors.As(err, &exit) || exit.ExitCode() != 128): // git's own, where no helper knows one
			return c, err
		case err != nil:
			out = nil
		}
		if s.known == nil {
			s.known = map[string]string{}
		}
		text = string(out)
		s.known[known] = text
	}
	for line := range strings.Lines(text) {
		key, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "=")
		switch key {
		case "username":
			c.username = value
		case "password":
			c.password = value
		}
	}
	return c, nil
}
