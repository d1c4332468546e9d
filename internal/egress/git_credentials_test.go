package egress

import (
	"os"
	"os/exec"
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
