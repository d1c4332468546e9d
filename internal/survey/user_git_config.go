package survey

import (
	"cmp"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/pccrun/pccrun/internal/shell"
	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/workspace/gitconfig"
	"github.com/pccrun/pccrun/workspace/vcs"
)

// xdg returns $XDG_CONFIG_HOME, if git takes it for a directory wherever it is started.
func (o *Options) xdg() string {
	if dir := o.Getenv("XDG_CONFIG_HOME"); filepath.IsAbs(dir) {
		return filepath.Clean(dir)
	}
	return ""
}

// userGit is the user's own configuration of git, as a command is shown it: git would do something else without.
type userGit struct {
	home, workspace string
	texts           []Text // by the paths at which git inside looks for them
	from            []string
	unread          []string // of which no text is shown
	keeps           bool     // what git writes there is kept with a persistent home

	signs, format, key string // commit.gpgSign, gpg.format, user.signingKey, wherever the workspace is
}

// Bounds of what is followed: MAX_INCLUDE_DEPTH in git's config.c, and files.
const (
	maxGitInclude = 10
	maxGitFiles   = 64
)

// whyGit is why a command sees of it what it does.
const whyGit = "your git configuration, without what may be secret"

// readUserGit reads it: git-config(1), FILES.
func readUserGit(policy *profiles.Policy, o *Options) *userGit {
	g := &userGit{home: policy.Home, workspace: policy.Workspace}
	if !policy.Uses(profiles.GitConfig) || policy.Decide(policy.Home).Access >= profiles.Read {
		return g
	}
	usual := g.home + "/.config"
	xdg := cmp.Or(o.xdg(), usual)
	if path := o.Getenv("GIT_CONFIG_GLOBAL"); path != "" {
		g.read(path, path, 0, true)
	} else {
		at := usual + "/git/config"
		if _, err := os.Lstat(g.written()); err != nil && o.Home != nil {
			at = g.written() // the other is private in a persistent home, and git writes there
		}
		g.read(xdg+"/git/config", at, 0, true)
		g.read(g.written(), g.written(), 0, true)
		g.keeps = o.Home != nil
	}
	for _, name := range [...]string{"/git/ignore", "/git/attributes"} { // gitignore(5), gitattributes(5)
		if text, err := profiles.ReadFile(xdg + name); err == nil {
			g.add(xdg+name, usual+name, text)
		}
	}
	return g
}

// written is the file that `git config --global` writes.
func (g *userGit) written() string { return g.home + "/.gitconfig" }

func (g *userGit) add(from, at string, text []byte) {
	g.texts, g.from = append(g.texts, Text{Path: at, Content: string(text)}), append(g.from, from)
}

// read adds a file, which inside is to stand at a path, and what it includes. In the workspace a file is as it is there,
// and has no say in what else is shown.
func (g *userGit) read(from, at string, depth int, always bool) {
	text, err := profiles.ReadFile(from)
	if err != nil || Below(profiles.Physical(from), g.workspace) || !filepath.IsAbs(from) || len(g.texts) == maxGitFiles || slices.Contains(g.from, from) {
		return
	}
	shown, settings, ok := gitconfig.Shown(text, filepath.Dir(from))
	if !ok {
		g.unread = append(g.unread, from+": git versions could parse it differently")
		return
	}
	g.add(from, at, shown)
	for _, s := range settings {
		switch {
		case s.Use() == vcs.UseInclude && depth < maxGitInclude:
			path := s.Value
			if rest, ok := strings.CutPrefix(path, "~/"); ok {
				path = g.home + "/" + rest
			}
			g.read(path, path, depth+1, always && s.Section == "include")
		case always:
			g.sets(&s)
		}
	}
}

// sets takes over what says how commits are signed.
func (g *userGit) sets(s *vcs.Setting) {
	switch s.Name() {
	case "commit.gpgsign":
		g.signs = s.Value
		if s.Bare {
			g.signs = "true"
		}
	case "gpg.format":
		g.format = s.Value
	case "user.signingkey":
		g.key = s.Value
	}
}

// signing says what commits lack that are to be signed: by the workspace's own configuration, which shows nothing by itself,
// or else the user's.
func (g *userGit) signing(policy *profiles.Policy, hidden func(path string) bool) (s Signing) {
	if !slices.Contains([]string{"true", "yes", "on", "1"}, strings.ToLower(g.signs)) {
		return s
	}
	agent, flags := "gpg-agent", []string{}
	s.Dir = ".gnupg"
	if g.format == "ssh" {
		agent, s.Dir = "ssh-agent", ".ssh"
		key := strings.TrimSuffix(g.key, ".pub") + ".pub"
		if rest, ok := strings.CutPrefix(key, "~/"); ok {
			key = g.home + "/" + rest
		}
		if filepath.IsAbs(key) && hidden(key) {
			flags = append(flags, "--read "+shell.Quote(key))
			if !Below(key, g.home+"/"+s.Dir) {
				s.Dir = ""
			}
		}
	}
	if !policy.Uses(agent) {
		flags = append(flags, "--use "+agent)
	}
	s.Flags = strings.Join(flags, " ")
	return s
}
