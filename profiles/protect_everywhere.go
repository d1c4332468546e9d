package profiles

import (
	"path/filepath"
	"slices"
	"strings"
)

// What a tool of the host executes it finds in any directory, not in the workspace
// only: another repository that a rule lets the command write has hooks as well.

// cacheDirs are where tools of the host keep what they have fetched or counted, below the home.
// As in node_modules the names there are the packages', and what unpacks them fails
// without one.
var cacheDirs = [...]string{".cache", ".npm", ".cargo/registry", ".cargo/git", "go/pkg", ".gradle/caches", ".m2/repository", ".local/share/pnpm", ".rustup/toolchains", ".config/go/telemetry"}

// sharedDirs are everybody's: what is new in there need not be the command's, and
// nobody works in them.
var sharedDirs = []string{"/tmp", "/var/tmp", "/run"}

// Temporary reports whether a directory is one in which nothing is meant to last.
func (p *Policy) Temporary(dir string) bool { return slices.Contains(sharedDirs, dir) }

// Caches returns the directories below the home in which tools keep what they have
// fetched.
func (p *Policy) Caches() []string {
	list := make([]string, len(cacheDirs))
	for i, dir := range cacheDirs {
		list[i] = filepath.Join(p.Home, dir)
	}
	return list
}

// remade are what programs write to any home and miss in none, below the home: histories,
// logs, states of their own, what they have fetched.
var remade = [...]string{
	".bash_history", ".zsh_history", ".python_history", ".node_repl_history", ".psql_history", ".mysql_history", ".sqlite_history", ".rediscli_history", ".lesshst", ".viminfo",
	".wget-hsts", ".Xauthority", ".ICEauthority", ".dbus", ".pki", ".parallel", ".nv", ".java", ".ipython", ".jupyter", ".matplotlib",
	".config/go", ".config/configstore", ".config/matplotlib", ".config/NuGet", ".local/state", ".local/share/Trash", ".local/share/recently-used.xbel", ".local/share/virtualenv",
	".ccache", ".sccache", ".gradle", ".m2", ".ivy2", ".sbt", ".coursier", ".cargo/.package-cache", ".cargo/.global-cache", ".rustup", ".nuget", ".dotnet", ".templateengine",
	".yarn", ".pnpm-store", ".node-gyp", ".electron-gyp", ".deno", ".bun/install/cache", ".pub-cache", ".gem", ".bundle/cache", ".cpan", ".cpanm", ".conda", ".hex", ".mix", ".stack", ".cabal", ".opam",
	".julia", ".swiftpm", ".terraform.d/plugin-cache", ".vscode-server", ".npm-global", ".config/pip", ".subversion", ".hgcache",
}

// Remade returns the paths of which nobody misses what a run has written there: caches,
// what any program writes to any home, and what profiles of agents name of their state.
func (p *Policy) Remade() []string {
	list := p.Caches()
	for _, name := range remade {
		list = append(list, filepath.Join(p.Home, name))
	}
	for i := range p.Files {
		r := &p.Files[i]
		if rest, in := below(p.Home, r.Path); in && rest != "" && !within(p.Workspace, r.Path) && strings.HasPrefix(r.Origin.Source, "built-in ") && r.Origin.Source != "built-in default" {
			names := strings.SplitN(rest, "/", 4)
			n := 1
			switch names[0] {
			case ".config":
				n = 2
			case ".local":
				n = 3
			}
			list = append(list, filepath.Join(p.Home, strings.Join(names[:min(n, len(names))], "/")))
		}
	}
	return list
}

// Passing reports whether what stands at a path of the sandbox is the command's own and of
// no use to another run: a cache, which a tool fills again, or a private directory that is
// no home.
func (p *Policy) Passing(path string) bool {
	rule := p.Decide(path).Rule
	return rule.Access == Private && rule.Path != p.Home || slices.ContainsFunc(p.Caches(), func(cache string) bool { return within(cache, path) })
}

// keptProtect are the rules for what [Policy.Keeps]: who keeps a repository there
// writes its configuration, of which what executes something is taken back.
var keptProtect = []ProtectRule{
	{Pattern: ".git/hooks", Origin: Origin{Source: "default"}},
	{Pattern: ".git/commondir", Origin: Origin{Source: "default"}},
	{Pattern: ".git/info/attributes", Origin: Origin{Source: "default"}},
	{Pattern: ".git/config", Review: true, Origin: Origin{Source: "default"}},
	{Pattern: ".git/config.worktree", Review: true, Origin: Origin{Source: "default"}},
}

// Keeps reports whether a rule lets the command write what an agent or a cache keeps
// for itself, or what everybody shares. Of names in there nothing is known; but a repository of git is one,
// and its owner runs git in it.
func (p *Policy) Keeps(path string, rule FileRule) bool {
	return rule.Origin.BuiltIn() || slices.Contains(sharedDirs, path) ||
		slices.ContainsFunc(p.Caches(), func(cache string) bool { return within(cache, path) })
}

// ProtectedOutside returns the protect rules for a directory beside the workspace that the
// command may write, for one that is kept ([Policy.Keeps]) or another; nil where
// nothing is protected. An absolute rule is none of them: it says itself where it
// holds. Such a directory may be a home's: its names are denied.
func (p *Policy) ProtectedOutside(kept bool) []ProtectRule {
	switch {
	case slices.Contains(p.Without, LayerProtect) || len(p.Protect) == 0:
		return nil
	case kept:
		return keptProtect
	}
	return slices.DeleteFunc(denied(p.Protect), func(r ProtectRule) bool { return strings.HasPrefix(r.Pattern, "/") })
}

// ProtectedAnywhere is [Policy.Protected] for a path that may lie beside the
// workspace, in a directory that a rule lets the command write.
func (p *Policy) ProtectedAnywhere(path string) (ProtectRule, bool) {
	r, ok := p.Protected(path)
	if ok || within(p.Workspace, path) {
		return r, ok
	}
	d := p.Decide(path)
	if d.Access != Write {
		return r, false
	}
	beside := Policy{Workspace: d.Rule.Path, Protect: p.ProtectedOutside(p.Keeps(path, d.Rule) || p.Keeps(d.Rule.Path, d.Rule))}
	return beside.Protected(path)
}
