//go:build linux || darwin

package profiles

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestKeysFate(t *testing.T) {
	k := KeyedFile{Keys: []KeyRule{{"a*", Keep}, {"ab*", Inside}, {"abc", Keep}, {"p.*.x", Inside}, {"p.*", Drop}, {"*", Drop}}}
	for _, c := range []struct {
		names []string
		fate  Fate
		known bool
	}{
		{[]string{"abc"}, Keep, true},
		{[]string{"abc", "d"}, Keep, true},
		{[]string{"abx"}, Drop, true}, // of patterns that fit as well the safest
		{[]string{"p"}, Drop, true},
		{[]string{"p", "/a.b"}, Drop, true},
		{[]string{"p", "/a.b", "x", "deep"}, Inside, true},
	} {
		fate, known := k.Fate(c.names)
		require.Equal(t, c.known, known, c.names)
		require.Equal(t, c.fate, fate, c.names)
	}
	k.Keys = []KeyRule{{"a*b", Keep}}
	for _, name := range []string{"a", "ab", "axb", "axbc", "b"} {
		_, known := k.Fate([]string{name})
		require.Equal(t, name == "ab" || name == "axb", known, name)
	}
	// What a rule names below a key says nothing of the key itself.
	k.Keys = []KeyRule{{"p.x", Keep}}
	_, known := k.Fate([]string{"p"})
	require.False(t, known)
}

// Of what Claude Code keeps in ~/.claude.json the host's own executes, trusts or
// obeys some: none of that reaches the host. The names are of Claude Code 2.1.330.
func TestClaudeKeys(t *testing.T) {
	w := newWorld(t)
	p := w.policy(func(r *Request) { r.Command = []string{"claude"} })
	k, ok := p.Copied(w.home + "/.claude.json")
	require.True(t, ok)
	for _, names := range [][]string{
		{"mcpServers", "x", "command"}, {"projects", "/w", "mcpServers", "x"}, {"env", "A"}, {"apiKeyHelper"}, {"primaryApiKey"}, {"remoteControlAtStartup"},
		{"autoUploadSessions"}, {"autoUpdates"}, {"installMethod"}, {"projects", "/w", "mcpContextUris"}, {"claudeInChromeDefaultEnabled"}, {"autoConnectIde"},
		{"autoInstallIdeExtension"}, {"respectGitignore"}, {"fileCheckpointingEnabled"}, {"hooks"}, {"permissions"}, {"projects", "/w"}, {"projects"}, {"autoUpdatesProtectedForNative"},
	} {
		_, known := k.Fate(names)
		require.False(t, known, names)
	}
	for _, names := range [][]string{
		{"projects", "/w", "hasTrustDialogAccepted"}, {"projects", "/w", "enabledMcpjsonServers"}, {"projects", "/w", "allowedTools"}, {"bypassPermissionsModeAccepted"},
		{"customApiKeyResponses", "approved"}, {"projects", "/w", "hasClaudeMdExternalIncludesApproved"}, {"seenSecurityWarnings"}, {"hasSeenAutoDefaultNotice"},
	} {
		fate, known := k.Fate(names)
		require.True(t, known, names)
		require.Equal(t, Inside, fate, names)
	}
	for _, names := range [][]string{{"cachedGrowthBookFeatures", "tengu_x"}, {"cachedDynamicConfigs"}} {
		fate, _ := k.Fate(names)
		require.Equal(t, Drop, fate, names)
	}
}

// Of what Gemini CLI keeps in ~/.gemini the host's own executes, trusts or obeys most:
// none of that reaches the host, and answers stay in the sandbox. The names are of
// Gemini CLI 0.61.
func TestGeminiKeys(t *testing.T) {
	w := newWorld(t)
	p := w.policy(func(r *Request) { r.Command = []string{"gemini"} })
	k, ok := p.Copied(w.home + "/.gemini/settings.json")
	require.True(t, ok)
	for _, names := range [][]string{
		{"mcpServers", "x", "command"}, {"mcp", "serverCommand"}, {"hooks", "BeforeTool"}, {"hooksConfig", "enabled"}, {"tools", "discoveryCommand"}, {"tools", "callCommand"},
		{"tools", "allowed"}, {"tools", "sandbox"}, {"tools", "shell", "pager"}, {"security", "folderTrust", "enabled"}, {"security", "disableYoloMode"}, {"security", "auth", "useExternal"},
		{"general", "defaultApprovalMode"}, {"general", "preferredEditor"}, {"general", "checkpointing"}, {"context", "fileName"}, {"context", "includeDirectories"},
		{"telemetry", "outfile"}, {"advanced", "dnsResolutionOrder"}, {"experimental", "enableAgents"}, {"admin"}, {"policyPaths"}, {"security"}, {"ui", "customThemes"},
	} {
		_, known := k.Fate(names)
		require.False(t, known, names)
	}
	for name, want := range map[string]Fate{
		"oauth_creds.json": Keep, "google_accounts.json": Keep, "state.json": Keep, "projects.json": Inside,
		"trustedFolders.json": Inside, "trusted_hooks.json": Inside, "policy_integrity.json": Inside, "mcp-server-enablement.json": Inside, "acknowledgments/agents.json": Inside,
	} {
		k, ok := p.Copied(w.home + "/.gemini/" + name)
		require.True(t, ok, name)
		fate, known := k.Fate([]string{"/some/path.x", "y"})
		require.True(t, known, name)
		require.Equal(t, want, fate, name)
	}
	require.Equal(t, Private, p.Decide(w.home+"/.gemini/new").Access, "what is not named is not the host's")
	require.Equal(t, Private, p.Decide(w.home+"/.gemini/history/x").Access, "git executes what repositories say")
	for _, name := range []string{"GEMINI.md", "commands/x.toml", "extensions/x", "skills/x", "agents/x.md", "policies/x.toml"} {
		require.Equal(t, Read, p.Decide(w.home+"/.gemini/"+name).Access, name)
	}

	// Where the directory itself is shown, the file is the host's, and protected whole.
	p = w.policy(func(r *Request) { r.Command, r.Files = []string{"gemini"}, []FileFlag{{"~/.gemini", Write}} })
	_, ok = p.Copied(w.home + "/.gemini/settings.json")
	require.False(t, ok)
	_, ok = p.Protected(w.home + "/.gemini/settings.json")
	require.True(t, ok)
}

// Sources are laid on each other by pattern; a rule elsewhere that is stricter stays so.
func TestKeysMerge(t *testing.T) {
	w := newWorld(t)
	w.write("~/base.jsonc", `{"extends": "default", "filesystem": {"~/a.json": "write", "~/b.json": "read"}, "protect": {"keys": {"~/a.json": {"x": "keep", "y": "drop"}, "~/b.json": {"x": "keep"}}}}`)
	w.write("~/more.jsonc", `{"extends": "./base.jsonc", "protect": {"keys": {"~/a.json": {"x": null, "y": "inside", "z": "keep"}}}}`)
	w.write("~/less.jsonc", `{"extends": "./base.jsonc", "protect": {"keys": {"~/a.json": null}}}`)
	p := w.policy(func(r *Request) { r.Profile = w.home + "/more.jsonc" })
	k, ok := p.Copied(w.home + "/a.json")
	require.True(t, ok)
	require.Equal(t, []KeyRule{{"y", Inside}, {"z", Keep}}, k.Keys)
	_, ok = p.Copied(w.home + "/b.json")
	require.False(t, ok, "it cannot be written")
	p = w.policy(func(r *Request) { r.Profile = w.home + "/less.jsonc" })
	_, ok = p.Copied(w.home + "/a.json")
	require.False(t, ok)
	// In a directory of the host's the file is protected as a whole.
	p = w.policy(func(r *Request) { r.Profile, r.Files = w.home+"/more.jsonc", []FileFlag{{"~", Write}} })
	_, ok = p.Copied(w.home + "/a.json")
	require.False(t, ok)
	r, ok := p.Protected(w.home + "/a.json")
	require.True(t, ok)
	require.False(t, r.Review)
}
