package homes

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pccrun/pccrun/profiles"
)

// What another machine gets is what a fresh home here gets, without any refresh token.
func TestFilesElsewhere(t *testing.T) {
	p := newPlace(t)
	const token = "the-refresh-token"
	seeds := func() []profiles.Seed {
		return []profiles.Seed{
			{Path: ".claude.json", Keys: []string{"theme"}}, {Path: "claude.json", Mode: profiles.Login, Renew: "claude"},
			{Path: "codex.json", Mode: profiles.Login, Renew: "codex"}, {Path: "opencode.json", Mode: profiles.Login, Renew: "opencode"},
			{Path: "gemini.json", Mode: profiles.Login}, {Path: "twice.json", Mode: profiles.Login}, {Path: "list.json", Mode: profiles.Login},
			{Path: "conf.toml"}, {Path: "id"}, {Path: "notes.md"}, {Path: "empty.json", Mode: profiles.Login},
			{Path: "encrypted.json", Mode: profiles.Login}, {Path: "login.env", Mode: profiles.Login}, {Path: "broken.json"}, {Path: "repeats.md"}, {Path: "absent.json", Mode: profiles.Login},
		}
	}
	p.write(".claude.json", `{"theme": "dark", "other": 1}`)
	p.write("claude.json", `{"claudeAiOauth": {"accessToken": "access-1", "refreshToken": "`+token+`", "expiresAt": 17}}`)
	p.write("codex.json", `{"tokens": {"access_token": "access-2", "refresh_token": "`+token+`", "id_token": "id"}, "last_refresh": "2026-01-02T03:04:05Z"}`)
	p.write("opencode.json", `{"anthropic": {"type": "oauth", "refresh": "`+token+`", "access": "access-3"}}`)
	p.write("gemini.json", `{"access_token": "access-4", "refresh_token": {"value": ["`+token+`"]}}`)
	p.write("twice.json", `{"refreshToken": "`+token+`", "refreshToken": null, "a": 1} // comment`)
	p.write("list.json", `[{"Refresh-Token": "`+token+`", "b": [{"refresh": "`+token+`"}]}]`)
	p.write("conf.toml", "refresh = \"daily\"\n[[list]]\nrefresh_token = \""+token+"\"\nn = 3\n")
	p.write("id", "0123-4567\n")
	p.write("notes.md", "words\n")
	p.write("empty.json", "")
	p.write("encrypted.json", "00:11:22")
	p.write("login.env", "KEY=value\n")
	p.write("broken.json", "{")
	p.write("repeats.md", "here: "+token+"\n")
	here, _ := Files(p.policy(seeds()...))
	require.Contains(t, strings.Join(values(here), "\n"), token, "the control")
	files, notes, err := FilesElsewhere(p.policy(seeds()...))
	require.NoError(t, err)
	require.NotContains(t, strings.Join(values(files), "\n"), token)
	get := func(name string) string { return files[p.home+"/"+name] }
	require.JSONEq(t, `{"theme": "dark"}`, get(".claude.json"))
	require.JSONEq(t, `{"claudeAiOauth": {"accessToken": "access-1", "refreshToken": "", "expiresAt": 17}}`, get("claude.json"))
	require.JSONEq(t, `{"tokens": {"access_token": "access-2", "refresh_token": "", "id_token": "id"}, "last_refresh": "2026-01-02T03:04:05Z"}`, get("codex.json"))
	require.JSONEq(t, `{"anthropic": {"type": "oauth", "refresh": "", "access": "access-3"}}`, get("opencode.json"))
	require.JSONEq(t, `{"access_token": "access-4", "refresh_token": ""}`, get("gemini.json"))
	require.JSONEq(t, `{"refreshToken": null, "a": 1}`, get("twice.json"))
	require.JSONEq(t, `[{"Refresh-Token": "", "b": [{"refresh": ""}]}]`, get("list.json"))
	require.Contains(t, get("conf.toml"), "refresh = \"daily\"\n")
	require.Contains(t, get("conf.toml"), "refresh_token = \"\"\n")
	require.Equal(t, "0123-4567\n", get("id"))
	require.Equal(t, "words\n", get("notes.md"))
	require.Contains(t, files, p.home+"/empty.json")
	said := strings.Join(notes, "\n")
	for _, name := range []string{"encrypted.json", "login.env", "broken.json"} {
		require.NotContains(t, files, p.home+"/"+name)
		require.Contains(t, said, p.home+"/"+name+" is not copied to the provider: a refresh token in it could not be found: ")
	}
	require.NotContains(t, files, p.home+"/repeats.md")
	require.Contains(t, said, "repeats.md is not copied to the provider: it repeats a refresh token")
	require.Contains(t, said, "claude.json is copied to the provider, without its refresh token; --no-login prevents it")
	require.NotContains(t, said, "absent.json")

	p.write("notes.md", strings.Repeat("x", 3<<20))
	p.write("id", strings.Repeat("y", 2<<20))
	_, _, err = FilesElsewhere(p.policy(seeds()...))
	require.EqualError(t, err, "the seeds of the home have 5m, and at most 4m is copied to a provider")
	require.NoError(t, os.Remove(p.home+"/id"))
	_, _, err = FilesElsewhere(p.policy(seeds()...))
	require.NoError(t, err, "the control")
}

func values(files map[string]string) (list []string) {
	for _, text := range files {
		list = append(list, text)
	}
	return list
}
