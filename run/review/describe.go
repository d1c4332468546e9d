package review

import (
	"github.com/pccrun/pccrun/internal/messages"
	"github.com/pccrun/pccrun/workspace"
)

// Describe says in one line what a finding is, with the flags that would allow it.
func Describe(c workspace.Finding, root, flags string) string {
	path := messages.Within(root, c.Path)
	switch c.Kind {
	case workspace.Stashed, workspace.Inert:
		why := c.Why
		if c.Protected() {
			if why = executors[c.Why]; why == "" {
				why = "protected by " + c.Why
			}
		}
		if c.Stash == "" && c.Parts == nil { // it has another name in the workspace, or could not be kept
			why = c.What + "; " + why
		}
		if flags != "" {
			why += "; to allow: " + flags
		}
		if c.Kind == workspace.Stashed && c.Stash == "" && c.Why == workspace.Removed {
			return "not saved: " + path + " (" + why + ")"
		}
		return "quarantined: " + path + " (" + why + ")"
	case workspace.Address:
		return "changed: " + path + ": " + c.What + " (" + c.Why + ")"
	case workspace.Setting:
		if c.What == "" { // no key of it
			return "not saved: " + path + " (" + c.Why + ")"
		}
		return "not saved: " + path + ": " + c.What + " (" + c.Why + ")"
	}
	why := c.Why
	if what := reviewReasons[why]; what != "" {
		why += ": " + what
	}
	return c.What + ": " + path + " (review " + why + ")"
}

// reviewReasons say what files do that nobody can look through, by the pattern of the
// default profile.
var reviewReasons = map[string]string{
	"**/.svn/wc.db":         svnReason,
	"**/.svn/wc.db-journal": svnReason,
	"**/.svn/wc.db-wal":     svnReason,
	"**/CVS/Root":           "with :local: or :fork: CVS runs programs of the repository that it names",
}

const svnReason = "svn would change files where it says, also outside; use a fresh checkout"

// executors say what a host tool would do with a protected name, by its pattern in the
// default profile.
var executors = map[string]string{
	".git/hooks":            "git would run it",
	".git/config":           "git would run programs that it names",
	".git/config.worktree":  "git would run programs that it names",
	".git/commondir":        "git would read the configuration of another repository",
	".git/info/attributes":  "git would run filters that it names",
	".gitconfig":            "git would run programs that it names",
	".bashrc":               "bash would run it",
	".bash_profile":         "bash would run it",
	".bash_login":           "bash would run it",
	".bash_logout":          "bash would run it",
	".profile":              "the login shell would run it",
	".zshrc":                "zsh would run it",
	".zshenv":               "zsh would run it",
	".zprofile":             "zsh would run it",
	".zlogin":               "zsh would run it",
	".zlogout":              "zsh would run it",
	".envrc":                "direnv would run it",
	".husky":                "git would run hooks in it",
	".vscode":               "VS Code would run tasks in it",
	".idea":                 "JetBrains IDEs would run programs that it names",
	".zed":                  "Zed would run programs that it names",
	".devcontainer":         "editors would run commands in it",
	".devcontainer.json":    "editors would run commands in it",
	".mcp.json":             "agents would start the servers in it",
	".exrc":                 "vim would run it",
	".vimrc":                "vim would run it",
	".nvim.lua":             "Neovim would run it",
	".cursor":               "Cursor would follow it",
	".claude":               "Claude Code would run hooks in it",
	".codex":                "Codex would run programs that it names",
	".gemini":               "Gemini CLI would run programs that it names",
	".agents":               "agents would follow it",
	".windsurf":             "Windsurf would follow it",
	".continue":             "Continue would follow it",
	".roo":                  "Roo Code would follow it",
	".kiro":                 "Kiro would run hooks in it",
	".opencode":             "OpenCode would run plugins in it",
	".aider.conf.yml":       "aider would run commands in it",
	".npmrc":                "npm would load it",
	".yarnrc":               "Yarn would run the program that it names",
	".yarnrc.yml":           "Yarn would run the program that it names",
	".pnpmfile.cjs":         "pnpm would run it",
	".pnpmfile.mjs":         "pnpm would run it",
	".pypirc":               "uploads would go where it says",
	"pip.conf":              "pip would install from where it says",
	"uv.toml":               "uv would install from where it says",
	"**/.cargo/config":      "Cargo would run programs that it names",
	"**/.cargo/config.toml": "Cargo would run programs that it names",
	"**/.hg/hgrc":           "Mercurial would run hooks in it",
	".pccrun.jsonc":         "pccrun would read it as the workspace's profile",
}
