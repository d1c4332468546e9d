package profiles

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pccrun/pccrun/internal/private"
)

// TestGitHubToken: the token is for one repository, which is named or origin, and nothing else is opened.
func TestGitHubToken(t *testing.T) {
	home := private.Dir(t)
	work := filepath.Join(home, "work")
	require.NoError(t, os.MkdirAll(filepath.Join(work, ".git"), 0o755))
	resolve := func(value, origin string, environ []string, change func(*Request)) (*Policy, error) {
		require.NoError(t, os.WriteFile(filepath.Join(work, ".git/config"), []byte("[remote \"origin\"]\n\turl = "+origin+"\n"), 0o644))
		req := Request{Command: []string{"true"}, Workspace: work, GitHubToken: value, Host: Host{UID: os.Getuid(), Home: home, Cwd: work, Memory: 8 << 30, Environ: append(environ, "HOME="+home)}}
		if change != nil {
			change(&req)
		}
		return Resolve(req)
	}
	of := func(name string) (list []string) {
		for _, text := range []string{"github.com/R.git/**", "github.com/R/**", "api.github.com/repos/R", "api.github.com/repos/R/**"} {
			list = append(list, "https://"+strings.ReplaceAll(text, "R", name))
		}
		return list
	}
	for _, c := range []struct{ value, origin, want string }{
		{"acme/app", "", "acme/app"},
		{"Acme/App.git", "", "Acme/App"},
		{"me_acme/app", "", "me_acme/app"}, // of an enterprise that manages its users
		{"origin", "https://github.com/acme/app.git", "acme/app"},
		{"origin", "https://github.com/acme/app/", "acme/app"},
		{"origin", "https://x-access-token:secret@github.com/acme/app", "acme/app"},
		{"origin", "git@github.com:acme/app.git", "acme/app"},
		{"origin", "ssh://git@github.com/acme/app.git", "acme/app"},
		{"origin", "https://gitlab.example/acme/app.git", ""},
		{"origin", "https://evil.example/@github.com/acme/app.git", ""},
		{"origin", "https://github.com.evil.example/acme/app.git", ""},
		{"origin", "https://github.com/acme/app/../../other/app", ""},
		{"origin", "https://github.com/acme/**", ""},
		{"origin", "../elsewhere", ""},
		{"origin", "", ""},
		{"acme/..", "", ""},
		{"acme/*", "", ""},
		{"acme/app/x", "", ""},
		{"acme", "", ""},
		{"ghp_0123456789abcdef", "", ""},
	} {
		p, err := resolve(c.value, c.origin, []string{"GITHUB_TOKEN=secret-of-some-length"}, nil)
		if c.want == "" {
			require.Error(t, err, c)
			require.NotContains(t, err.Error(), "ghp_", "a token is not repeated")
			continue
		}
		require.NoError(t, err, c)
		in := p.Network.Inject[0]
		require.Equal(t, Injection{Env: "GITHUB_TOKEN", Repository: c.want, Hosts: of(c.want), Origin: in.Origin}, in)
		var allowed []string
		for _, r := range p.Network.Allow {
			allowed = append(allowed, r.Text)
		}
		require.Equal(t, of(c.want), allowed)
		require.Contains(t, p.Warnings, "the token of the environment goes to github.com/"+c.want+" alone")
	}
	// A rule of the user's own stands, whether it allows more or less.
	for rule, more := range map[string]int{"github.com": 2, "GET https://github.com/acme/app.git/**": 2, "@github": 0} {
		p, err := resolve("acme/app", "", []string{"GITHUB_TOKEN=x"}, func(r *Request) { r.Allow = []string{rule} })
		require.NoError(t, err)
		require.Len(t, p.Network.Allow, 1+more, rule)
	}
	// Without the variable gh is asked, unless a source is named.
	p, err := resolve("acme/app", "", nil, nil)
	require.NoError(t, err)
	require.Equal(t, []string{"gh", "auth", "token", "--hostname", "github.com"}, p.Network.Inject[0].Command)
	p, err = resolve("acme/app", "", nil, func(r *Request) { r.InjectFiles = []string{"GITHUB_TOKEN=/token"} })
	require.NoError(t, err)
	require.Equal(t, "/token", p.Network.Inject[0].File)
	_, err = resolve("acme/app", "", nil, func(r *Request) { r.Inject = []string{"GITHUB_TOKEN=a.example"} })
	require.ErrorContains(t, err, "GITHUB_TOKEN is what --github-token injects")

	// A linked work tree has its repository's remotes.
	linked := filepath.Join(home, "linked")
	require.NoError(t, os.MkdirAll(filepath.Join(work, ".git/worktrees/linked"), 0o755))
	require.NoError(t, os.MkdirAll(linked, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(linked, ".git"), []byte("gitdir: "+work+"/.git/worktrees/linked\n"), 0o644))
	require.NoError(t, os.WriteFile(filepath.Join(work, ".git/worktrees/linked/commondir"), []byte("../..\n"), 0o644))
	p, err = resolve("origin", "git@github.com:acme/app", nil, func(r *Request) { r.Workspace = linked })
	require.NoError(t, err)
	require.Equal(t, "acme/app", p.Network.Inject[0].Repository)
}
