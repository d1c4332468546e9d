package filesync

import (
	"path/filepath"
	"strings"

	"github.com/pccrun/pccrun/workspace/vcs"
)

// UserIgnore returns the text of the ignore file that git reads for this user in every repository
// (core.excludesFile), as far as his own configuration names it; config is $XDG_CONFIG_HOME.
func UserIgnore(home, config string) string {
	if config == "" {
		config = filepath.Join(home, ".config")
	}
	name := filepath.Join(config, "git", "ignore")
	for _, file := range []string{filepath.Join(config, "git", "config"), filepath.Join(home, ".gitconfig")} {
		text, err := readSmall(file, vcs.MaxConfig)
		if err != nil {
			continue
		}
		settings, _ := vcs.ParseConfig(text) // what stands before a mistake counts for git too
		for _, s := range settings {
			if s.Name() == "core.excludesfile" {
				name = s.Value
			}
		}
	}
	if rest, ok := strings.CutPrefix(name, "~/"); ok {
		name = filepath.Join(home, rest)
	}
	if !filepath.IsAbs(name) {
		return ""
	}
	text, err := readSmall(name, maxIgnoreFile)
	if err != nil {
		return ""
	}
	return string(text)
}
