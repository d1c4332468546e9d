package homes

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/profiles"
)

const renewable = `{"tokens": {"access_token": "a", "refresh_token": "r1", "id_token": "x.eyJlbWFpbCI6ImRAZSIsInN1YiI6InUifQ.y"}}`

// Which log-ins a run has renewed.
//
//test:root
func TestRenewed(t *testing.T) {
	p := newPlace(t)
	p.write(".agent/auth.json", renewable)
	p.write(".agent/settings.json", `{"theme": "dark", "deep": {"a": 1, "b": 2}, "gone": 1}`)
	p.write(".agent/text", "text")
	policy := p.policy(
		profiles.Seed{Path: ".agent/auth.json", Mode: profiles.Login, Renew: "codex"}, profiles.Seed{Path: ".agent/settings.json", Mode: profiles.Follow, Drop: []string{"sandbox"}},
		profiles.Seed{Path: ".agent/text", Mode: profiles.Once}, profiles.Seed{Path: ".agent/other", Mode: profiles.Login}, profiles.Seed{Path: ".agent/broken.json", Mode: profiles.Follow, Keys: []string{"a"}},
	)
	h := p.open()
	require.NoError(t, h.Seed(policy))
	require.Empty(t, h.Renewed(policy))
	is, any := h.Copied(".agent/auth.json", Tokens{Refresh: "r1"})
	require.True(t, is && any)
	is, any = h.Copied(".agent/auth.json", Tokens{Refresh: "r2"})
	require.True(t, !is && any)
	_, any = h.Copied(".agent/text", Tokens{Refresh: "r2"})
	require.False(t, any)

	for name, text := range map[string]string{".agent/auth.json": "{}", ".agent/settings.json": `{"theme": "light", "deep": {"a": 1, "b": 3}, "new": 1}`, ".agent/other": "x", ".agent/broken.json": "{"} {
		require.NoError(t, os.WriteFile(filepath.Join(h.Path, name), []byte(text), 0o600))
	}
	require.NoError(t, os.Remove(filepath.Join(h.Path, ".agent/text")))
	var renewed []string
	for _, s := range h.Renewed(policy) {
		renewed = append(renewed, filepath.Base(s.Path))
	}
	require.Equal(t, []string{"auth.json", "other"}, renewed)
	key := Key(p.workspace, "built-in x")
	_, err := OpenAlone(p.state, key)
	require.ErrorIs(t, err, ErrInUse)
	require.NoError(t, h.Share())
	_, err = OpenAlone(p.state, key)
	require.ErrorIs(t, err, ErrInUse)
	p.close(h)
	alone, err := OpenAlone(p.state, key)
	require.NoError(t, err)
	require.Equal(t, "x", alone.Record.Name)
	require.NoError(t, alone.Write(".agent/auth.json", []byte(renewable)))
	require.Equal(t, renewable, string(alone.Read(".agent/auth.json")))
	alone.Close()
	_, err = OpenAlone(p.state, "nosuch")
	require.ErrorIs(t, err, unix.ENOENT)
}

// Tokens are read by form, and nothing that is none is taken for one.
func TestTokens(t *testing.T) {
	require.Equal(t, Tokens{Access: "a", Refresh: "r1", ID: "x.eyJlbWFpbCI6ImRAZSIsInN1YiI6InUifQ.y"}, TokensOf("codex", []byte(renewable)))
	for form, text := range map[string]string{"claude": renewable, "other": renewable, "codex": "[]"} {
		require.Equal(t, Tokens{}, TokensOf(form, []byte(text)))
	}
	require.Empty(t, TokensOf("codex", []byte(`{"tokens": {"refresh_token": "a b"}}`)).Refresh)
	require.Equal(t, Account{User: "u", Name: "d@e"}, OpenAIAccount("x.eyJlbWFpbCI6ImRAZSIsInN1YiI6InUifQ.y"))
	for _, token := range []string{"", "a.b", "a.!.c", "a.e30=.c", "a.W10.c"} {
		require.False(t, OpenAIAccount(token).Known(), token)
	}
	require.False(t, AnthropicAccount([]byte("[")).Known())
	a := AnthropicAccount([]byte(`{"oauthAccount": {"accountUuid": "u", "organizationUuid": "o"}}`))
	require.True(t, a.Known() && a.Same(Account{User: "u", Organisation: "o", Name: "other"}))
	require.False(t, Account{}.Same(Account{}), "nobody is nobody")
	_, err := Tokens{}.Put("codex", []byte("["), time.Now())
	require.Error(t, err)
}

// What a run may do beyond the one before is told where a program stands in the home.
func TestGains(t *testing.T) {
	p := newPlace(t)
	policy := p.policy()
	policy.Network.Allow, policy.Network.Local = []profiles.NetRule{{Text: "b"}, {Text: "a"}}, []profiles.NetRule{{Text: "1"}}
	policy.Network.Sockets, policy.Network.Inject = []profiles.PathRule{{Path: "/s"}}, []profiles.Injection{{Env: "I"}}
	policy.Use, policy.Environment.Pass = []profiles.UseRule{{Name: "u"}}, []profiles.EnvRule{{Pattern: "E"}}
	policy.Files = append(policy.Files, profiles.FileRule{Path: "/f", Access: profiles.Read, Origin: profiles.Origin{Source: "flag"}}, profiles.FileRule{Path: "/g", Access: profiles.Read, Origin: profiles.Origin{Source: "built-in x"}})
	policy.Files[1].Origin.Source = "default"
	rights := Rights(policy)
	require.Equal(t, []string{"--allow a", "--allow b", "--env E", "--inject I", "--local 1", "--read /f", "--socket /s", "--use u"}, rights)
	h := p.open()
	for i, c := range []struct {
		rights, more []string
		program      string
	}{{rights: []string{}}, {rights: rights}, {rights: rights[:1]}, {rights: rights[:2], more: rights[1:2], program: ".tool/run"}, {rights: rights[:2]}, {rights: rights[:1]}} {
		if i == 2 {
			require.NoError(t, os.Mkdir(h.Path+"/.tool", 0o700))
			require.NoError(t, os.Symlink("/bin/true", h.Path+"/.tool/link"))
			require.NoError(t, os.WriteFile(h.Path+"/.tool/run", []byte("x"), 0o700))
			require.NoError(t, os.WriteFile(h.Path+"/.tool/a.sample", []byte("x"), 0o700))
		}
		more, program, err := h.Gains(c.rights)
		require.NoError(t, err)
		require.Equal(t, c.more, more, i)
		require.Equal(t, c.program, program)
		p.close(h)
		h = p.open()
		require.Equal(t, c.rights, h.Record.Rights)
	}
	require.Positive(t, h.Usage())
}
