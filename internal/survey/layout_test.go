//go:build unix

package survey

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pccrun/pccrun/profiles"
)

// aMac makes the layout of a Mac in a directory: a home, Homebrew's prefix, Xcode's tools and
// keychains. It returns the home.
func aMac(t *testing.T) string {
	root, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	home := root + "/Users/me"
	write := func(name, text string, mode os.FileMode) {
		require.NoError(t, os.MkdirAll(filepath.Dir(root+"/"+name), 0o755))
		require.NoError(t, os.WriteFile(root+"/"+name, []byte(text), mode))
	}
	link := func(to, name string) {
		require.NoError(t, os.MkdirAll(filepath.Dir(root+"/"+name), 0o755))
		require.NoError(t, os.Symlink(to, root+"/"+name))
	}
	write("Users/me/.nvm/versions/node/v22/bin/node", "", 0o755)
	link("../lib/node_modules/claude/cli.js", "Users/me/.nvm/versions/node/v22/bin/claude")
	write("Users/me/.nvm/versions/node/v22/lib/node_modules/claude/cli.js", "#!/usr/bin/env node\n", 0o755)
	write("Users/me/homebrew/Cellar/jq/1.7/bin/jq", "", 0o755)
	link("../Cellar/jq/1.7/bin/jq", "Users/me/homebrew/bin/jq")
	write("Users/me/homebrew/bin/brew", "", 0o755)
	write("Users/me/Library/Python/3.13/bin/ruff", "#!"+home+"/Library/Python/3.13/bin/python3\n", 0o755)
	write("Users/me/Library/Python/3.13/lib/python/x.py", "", 0o644)
	write("Users/me/Library/Keychains/login.keychain-db", "secret", 0o600)
	write("Users/me/.ssh/id_rsa", "secret", 0o600)
	write("Users/me/dotfiles/gitconfig", "[user]\n\tname = me\n\ttoken = x\n", 0o644)
	link("dotfiles/gitconfig", "Users/me/.gitconfig")
	write("Users/me/ca.pem", "-----BEGIN CERTIFICATE-----\n", 0o644)
	write("Users/me/key.pem", "-----BEGIN CERTIFICATE-----\n-----BEGIN PRIVATE KEY-----\n", 0o644)
	write("Users/me/src/app/.git/HEAD", "ref: refs/heads/main\n", 0o644)
	write("Users/me/src/app/.git/config", "", 0o644)
	write("Users/me/src/app/sub/.env", "secret", 0o600)
	require.NoError(t, os.Link(root+"/Users/me/src/app/sub/.env", root+"/Users/me/src/app/sub/notes"))
	write("Users/me/src/app/.vscode/tasks.json", "{}", 0o644)
	write("Users/me/src/app/AGENTS.md", "", 0o644)
	write("Users/me/src/app/plain", "", 0o644)
	return home
}

func layoutOn(t *testing.T, home, workspace string, environ []string, change func(*profiles.Request)) (*Survey, *profiles.Policy) {
	environ = append([]string{"PATH=" + strings.Join([]string{home + "/.nvm/versions/node/v22/bin", home + "/homebrew/bin", home + "/Library/Python/3.13/bin", "/usr/bin", "/bin"}, ":")}, environ...)
	req := profiles.Request{Profile: "claude", Workspace: workspace, Host: profiles.Host{Home: home, Cwd: workspace, Environ: environ, Memory: 8 << 30}, Command: []string{"claude"}}
	if change != nil {
		change(&req)
	}
	policy, err := profiles.Resolve(req)
	require.NoError(t, err)
	host := req.Host
	found, err := LayoutOf(policy, Options{Getenv: host.Getenv, Environ: environ, Command: []string{home + "/.nvm/versions/node/v22/bin/claude"}})
	require.NoError(t, err)
	return found, policy
}

func accessAt(s *Survey, path string) (a profiles.Access, ok bool) {
	i := slices.IndexFunc(s.Places, func(p Place) bool { return p.Path == path })
	if i < 0 {
		return 0, false
	}
	return s.Places[i].Access, true
}

func TestLayout(t *testing.T) {
	home := aMac(t)
	work := home + "/src/app"
	s, policy := layoutOn(t, home, work, []string{"SSL_CERT_FILE=" + home + "/ca.pem", "GIT_SSL_CAINFO=" + home + "/key.pem"}, nil)
	for _, path := range []string{
		home + "/.nvm/versions/node/v22/bin", home + "/.nvm/versions/node/v22/lib/node_modules", home + "/homebrew/bin", home + "/homebrew/Cellar",
		home + "/Library/Python/3.13/bin", home + "/Library/Python/3.13/lib", home + "/ca.pem",
	} {
		shown := slices.ContainsFunc(s.Places, func(p Place) bool {
			return Below(path, p.Path) && p.Path != home && p.Access >= profiles.Read && p.Path != "/"
		})
		require.True(t, shown, path)
	}
	for _, path := range []string{home + "/Library/Keychains", home + "/.ssh", home + "/dotfiles", home + "/key.pem"} {
		shown := slices.ContainsFunc(s.Places, func(p Place) bool { return Below(path, p.Path) && Below(p.Path, home+"/") && p.Access >= profiles.Read })
		require.False(t, shown, path)
	}
	a, ok := accessAt(s, work+"/sub/notes")
	require.True(t, ok && a == profiles.Hide, "another name of a hidden file")
	require.True(t, slices.ContainsFunc(s.Places, func(p Place) bool {
		return p.Path == home+"/.gitconfig" && p.Copied && p.Text == "[user]\n\tname = me\n"
	}), "git's configuration, without what may be secret")
	for _, path := range []string{work + "/sub/.env", work + "/.vscode", work + "/.git/config"} {
		require.Contains(t, s.Layout.Standing, path)
	}
	require.NotContains(t, s.Layout.Standing, work+"/plain")
	require.False(t, s.Layout.Crowded)
	require.Equal(t, []string{"SSL_CERT_FILE=" + home + "/ca.pem"}, []string{s.Env[0].Entry})
	require.Len(t, s.Env, 1, "a file with a key is not passed")
	require.Equal(t, profiles.Persist, policy.Decide(home).Access)
}

// What a container is made of: links, what patterns name, and what holds it; of the system no more than
// private directories.
func TestMountable(t *testing.T) {
	home := aMac(t)
	work := home + "/src/app"
	require.NoError(t, os.Symlink("sub/.env", work+"/.env.local"))
	require.NoError(t, os.Symlink("dotfiles/gitconfig", home+"/named"))
	s, policy := layoutOn(t, home, work, nil, func(r *profiles.Request) {
		r.Files = []profiles.FileFlag{{Path: home + "/named", Access: profiles.Read}}
	})
	require.NoError(t, os.Symlink("elsewhere", home+"/.seed"))
	seed := Place{Path: home + "/.seed", Node: File, Access: profiles.Read, Copied: true, Text: "seed"}
	s.Places = append(s.Places, seed)
	at := map[string]Place{}
	places, err := s.Mountable(policy)
	require.NoError(t, err)
	for _, p := range places {
		at[p.Path] = p
	}
	require.Equal(t, seed, at[seed.Path], "what stands here is not asked")
	for path, want := range map[string]Place{
		home:                         {Node: Directory, Access: profiles.Persist},
		work:                         {Node: Directory, Access: profiles.Write},
		work + "/sub/.env":           {Node: File, Access: profiles.Hide},
		work + "/.env.local":         {Node: Link, Access: profiles.Hide},
		work + "/sub":                {Node: Directory, Access: profiles.Write, Pin: true, Protect: true},
		work + "/.git":               {Node: Directory, Access: profiles.Write, Pin: true, Protect: true},
		work + "/.git/config":        {Node: File, Access: profiles.Read, Pin: true, Protect: true},
		work + "/.vscode":            {Node: Directory, Access: profiles.Read, Pin: true, Protect: true},
		home + "/named":              {Node: Link, Link: "dotfiles/gitconfig", Access: profiles.Read},
		home + "/dotfiles/gitconfig": {Node: File, Access: profiles.Read},
		"/tmp":                       {Node: Directory, Access: profiles.Private, Optional: true},
	} {
		p, is := at[path]
		require.True(t, is, path)
		require.True(t, p.Ino != 0 || path == "/tmp" || p.Link != "", path)
		p.Path, p.Dev, p.Ino, p.Why = "", 0, 0, ""
		require.Equal(t, want, p, path)
	}
	require.NotContains(t, at, "/etc")
	require.NotContains(t, at, work+"/plain")
}

// A link that the command could have made carries no grant; one of the user's does.
func TestLayoutRefusesLinksOfTheCommand(t *testing.T) {
	home := aMac(t)
	work := home + "/src/app"
	require.NoError(t, os.Symlink("/etc", work+"/shown"))
	req := profiles.Request{Profile: "default", Workspace: work, Host: profiles.Host{Home: home, Cwd: work, Memory: 8 << 30}, Files: []profiles.FileFlag{{Path: work + "/shown", Access: profiles.Read}}}
	policy, err := profiles.Resolve(req)
	require.NoError(t, err)
	_, err = LayoutOf(policy, Options{Getenv: func(string) string { return "" }})
	require.ErrorContains(t, err, "which the command could have made")

	req.Files = []profiles.FileFlag{}
	require.NoError(t, os.Mkdir(home+"/husky", 0o755))
	require.NoError(t, os.Symlink(home+"/husky", work+"/.husky"))
	policy, err = profiles.Resolve(req)
	require.NoError(t, err)
	policy.Files = append(policy.Files, profiles.FileRule{Path: work + "/.husky/_", Access: profiles.Write, Origin: profiles.Origin{Source: "built-in default"}})
	_, err = LayoutOf(policy, Options{Getenv: func(string) string { return "" }})
	require.NoError(t, err, "a built-in rule opens nothing there, and is in nobody's way")

	req.Files = []profiles.FileFlag{{Path: home + "/.gitconfig", Access: profiles.Read}, {Path: "/opt/*/x", Access: profiles.Hide}}
	policy, err = profiles.Resolve(req)
	require.NoError(t, err)
	_, err = LayoutOf(policy, Options{Getenv: func(string) string { return "" }})
	require.ErrorContains(t, err, "patterns work only in the workspace")
}

// The repository of a linked worktree is shown if it points back, and nothing of it that git executes
// can be changed.
func TestLayoutOfAWorktree(t *testing.T) {
	home := aMac(t)
	work, main := home+"/src/wt", home+"/src/app/.git"
	own := main + "/worktrees/wt"
	for _, dir := range []string{work, own, main + "/objects", main + "/refs"} {
		require.NoError(t, os.MkdirAll(dir, 0o755))
	}
	write := func(path, text string) { require.NoError(t, os.WriteFile(path, []byte(text), 0o644)) }
	write(work+"/.git", "gitdir: "+own+"\n")
	write(own+"/commondir", "../..\n")
	s, _ := layoutOn(t, home, work, nil, nil)
	require.Contains(t, strings.Join(s.Notes, "\n"), "does not point back")
	_, ok := accessAt(s, own)
	require.False(t, ok)

	write(own+"/gitdir", work+"/.git\n")
	s, policy := layoutOn(t, home, work, nil, nil)
	for path, want := range map[string]profiles.Access{main: profiles.Read, own: profiles.Write, main + "/objects": profiles.Write} {
		a, ok := accessAt(s, path)
		require.True(t, ok, path)
		require.Equal(t, want, a, path)
	}
	require.Contains(t, s.Layout.Protect, own+"/commondir")
	require.Equal(t, own, s.Layout.OwnGit)
	write(own+"/HEAD", "ref: refs/heads/wt\n")
	require.NoError(t, os.MkdirAll(main+"/objects/info", 0o755))
	at := map[string]Place{}
	places, err := s.Mountable(policy)
	require.NoError(t, err)
	for _, p := range places {
		at[p.Path] = p
	}
	for path, want := range map[string]profiles.Access{
		main: profiles.Read, own: profiles.Write, main + "/objects": profiles.Write, main + "/objects/info": profiles.Read, own + "/commondir": profiles.Read,
	} {
		require.Equal(t, want.String(), at[path].Access.String(), path)
		require.Equal(t, Absent != at[path].Node, true, path)
	}

	module := home + "/src/app/.git/modules/lib"
	require.NoError(t, os.MkdirAll(module, 0o755))
	write(module+"/HEAD", "ref: refs/heads/main\n")
	write(work+"/.git", "gitdir: "+module+"\n")
	s, _ = layoutOn(t, home, work, nil, nil)
	_, ok = accessAt(s, module)
	require.False(t, ok, "its configuration names no working tree")
	write(module+"/config", "[core]\n\tworktree = ../../../../wt\n")
	s, _ = layoutOn(t, home, work, nil, nil)
	a, ok := accessAt(s, module)
	require.True(t, ok && a == profiles.Write)
}

// A repository that is not named .git keeps its configuration: no pattern names that.
func TestLayoutOfABareRepository(t *testing.T) {
	home := aMac(t)
	work := home + "/src/app"
	for _, dir := range []string{"fixture.git/objects", "fixture.git/refs", "docs/objects"} {
		require.NoError(t, os.MkdirAll(work+"/"+dir, 0o755))
	}
	for _, file := range []string{"fixture.git/HEAD", "docs/HEAD"} {
		require.NoError(t, os.WriteFile(work+"/"+file, nil, 0o644))
	}
	s, policy := layoutOn(t, home, work, nil, nil)
	require.Contains(t, s.Layout.Protect, work+"/fixture.git/config")
	require.Contains(t, s.Layout.Protect, work+"/fixture.git/hooks")
	require.NotContains(t, s.Layout.Protect, work+"/docs/config")
	require.NotContains(t, s.Layout.Protect, work+"/.git/config", "which a pattern names")

	protects := Protects(policy, strings.ToLower)
	for name, want := range map[string]string{
		"sub/.vscode": ".vscode", "sub/.cargo/config.toml": "**/.cargo/config.toml", "sub/.CARGO/Config.toml": "**/.cargo/config.toml",
		"AGENTS.md": "AGENTS.md review",
		"agents.MD": "agents.md review", "sub/config.toml": "", "HEAD": "", ".env\u00e9": "",
	} {
		pattern, review, is := protects(work + "/" + name)
		if review {
			pattern += " review"
		}
		require.Equal(t, want, pattern, name)
		require.Equal(t, want != "", is, name)
	}
}

// Where there are no layers, an installation whose programs write in it is read-only, and not missing.
func TestLayoutOfInstallations(t *testing.T) {
	home := aMac(t)
	work, bin := home+"/src/app", home+"/homebrew/bin"
	require.NoError(t, os.MkdirAll(bin+"/internal", 0o755))
	for _, name := range []string{bin + "/flutter", bin + "/internal/shared.sh"} {
		require.NoError(t, os.WriteFile(name, nil, 0o755))
	}
	s, _ := layoutOn(t, home, work, []string{"PYTHONPATH=src:" + work, "PROTO_HOME=" + home + "/.ssh"}, nil)
	a, ok := accessAt(s, home+"/homebrew")
	require.True(t, ok && a == profiles.Read)
	require.Contains(t, s.Env, Variable{"PYTHONPATH=src:" + work, "all that it names can be read"})
	require.NotContains(t, fmt.Sprint(s.Env), "PROTO_HOME")
}

// Too much to hold is said.
func TestLayoutCrowded(t *testing.T) {
	home := aMac(t)
	work := home + "/src/app"
	for i := range maxStanding + 1 {
		require.NoError(t, os.MkdirAll(work+"/d/"+strings.Repeat("x", i%200+1)+"/"+strings.Repeat("y", i/200+1)+"/.idea", 0o755))
	}
	s, _ := layoutOn(t, home, work, nil, nil)
	require.True(t, s.Layout.Crowded)
	require.Len(t, s.Layout.Standing, maxStanding)
}
