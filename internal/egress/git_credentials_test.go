package egress

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pccrun/pccrun/internal/private"
	"github.com/pccrun/pccrun/internal/programs"
	"github.com/pccrun/pccrun/profiles"
)

// A credential is asked for where the user's own rules let a repository be reached by https.
func TestGitHosts(t *testing.T) {
	n := &profiles.Network{}
	for _, text := range []string{"a.example", "a.example:443", "https://b.example/x/**", "GET https://c.example/x", "d.example:22", "e.example:8443", "*.f.example", "@github", "http://g.example:80", "192.0.2.1", "@npm"} {
		n.Allow = append(n.Allow, profiles.NetRule{Text: text, Origin: profiles.Origin{Source: "flag"}})
	}
	n.Allow = append(n.Allow, profiles.NetRule{Text: "api.example", Origin: profiles.Origin{Source: "built-in claude"}})
	require.Equal(t, []string{"a.example", "b.example", "c.example", "e.example:8443", "github.com", "192.0.2.1"}, gitHosts(n))
}

// The user's git is asked, once for each host, and what a repository configures is not read.
func TestGitCredential(t *testing.T) {
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("needs git")
	}
	home, repository := private.Dir(t), private.Dir(t)
	require.NoError(t, exec.Command("git", "init", "-q", repository).Run())
	require.NoError(t, exec.Command("git", "-C", repository, "config", "credential.helper", "!echo password=of-the-repository; :").Run())
	require.NoError(t, os.WriteFile(home+"/helper", []byte("#!/bin/sh\necho x >> ~/asked\ngrep -q host=kept.example && echo username=me && echo password=p4ssword-of-mine\n"), 0o700))
	require.NoError(t, os.WriteFile(home+"/.gitconfig", []byte("[credential]\n\thelper = "+home+"/helper\n"), 0o600))
	environ := []string{"HOME=" + home, "PATH=" + os.Getenv("PATH"), "GIT_DIR=" + repository + "/.git", "GIT_ASKPASS=/bin/false", "GIT_CONFIG_NOSYSTEM=1"}
	finder := &programs.Finder{Environ: environ}
	host, s := &Host{Programs: finder}, &Secrets{}
	for range 2 {
		c, err := s.gitCredential("kept.example", host)
		require.NoError(t, err)
		require.Equal(t, credential{"me", "p4ssword-of-mine"}, c)
	}
	c, err := s.gitCredential("other.example", host)
	require.NoError(t, err)
	require.Empty(t, c)
	asked, err := os.ReadFile(home + "/asked")
	require.NoError(t, err)
	require.Equal(t, "x\nx\n", string(asked))
	_, err = s.gitCredential("new.example", &Host{Programs: finder.For((&profiles.Policy{Workspace: "/usr"}).Changes, nil)})
	require.ErrorContains(t, err, "sandboxed commands can write")
}

// With a token for a repository, git inside signs in with the placeholder at GitHub alone, and reaches that repository by
// https, however its remote is spelled.
func TestGitRepository(t *testing.T) {
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("needs git")
	}
	b := newBench(t)
	b.environ = []string{"GITHUB_TOKEN=" + token, "GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=url.git@github.com:.insteadOf", "GIT_CONFIG_VALUE_0=https://github.com/"}
	b.request.GitHubToken, b.request.Env = "Acme/App", []string{"GIT_CONFIG_*"}
	p, err := b.plan()
	require.NoError(t, err)
	require.NotContains(t, strings.Join(p.Environ, "\n"), token)
	require.Contains(t, p.policy.Warnings, "the token of the environment goes to github.com/Acme/App alone")
	s := p.reader.setup.Secrets[0]
	require.True(t, s.Caseless)
	require.Equal(t, "Authorization", s.Field)
	require.Equal(t, []string{"https://github.com/acme/app.git/**", "https://github.com/acme/app/**", "https://api.github.com/repos/acme/app", "https://api.github.com/repos/acme/app/**"}, s.Hosts)
	git := func(input string, args ...string) string {
		cmd := exec.Command("git", args...)
		cmd.Env, cmd.Stdin, cmd.Dir = append(p.Environ, "GIT_TERMINAL_PROMPT=0", "GIT_CONFIG_NOSYSTEM=1"), strings.NewReader(input), b.home
		out, _ := cmd.Output()
		return string(out)
	}
	placeholder := getenv(p.Environ, "GITHUB_TOKEN")
	require.Contains(t, git("protocol=https\nhost=github.com\n\n", "credential", "fill"), "username=x-access-token\npassword="+placeholder+"\n")
	require.NotContains(t, git("protocol=https\nhost=evil.example\n\n", "credential", "fill"), placeholder)
	for remote, want := range map[string]string{
		"git@github.com:Acme/App.git": "https://github.com/Acme/App.git", "ssh://git@github.com/Acme/App": "https://github.com/Acme/App", "https://github.com/Acme/App": "https://github.com/Acme/App",
		"https://github.com/other/app": "git@github.com:other/app", // the user's own
	} {
		require.Equal(t, want+"\n", git("", "ls-remote", "--get-url", remote))
	}
}
