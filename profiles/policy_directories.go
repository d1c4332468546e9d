package profiles

import (
	"fmt"
	"os"
	"path"
	"path/filepath"

	"github.com/pccrun/pccrun/internal/state"
)

// What a project sets in the environment (.envrc, an editor's terminal) reaches
// us as the user's own would. HOME and XDG_CONFIG_HOME say where policy is read
// from, and a policy can open everything: where they lead away from the home of
// the user database it is said, and a git repository, whose files others write,
// is not asked at all.

// asks reports whether policy is read from a directory, and says what the user
// should hear of that; usual is where it is if the environment does not say
// otherwise, below the home of the user database.
func (r *resolver) asks(dir, usual, what string) bool {
	home := r.req.Host.Home
	if home == "" || dir == home+usual || dir == real(home)+usual {
		return true
	}
	if top := repository(real(dir), real(home)); top != "" {
		r.policy.Warnings = append(r.policy.Warnings, fmt.Sprintf("%s: ignored, because it is in the git repository %s and not in your home", what, top))
		return false
	}
	r.policy.Warnings = append(r.policy.Warnings, fmt.Sprintf("%s: used instead of %s, because of HOME or XDG_CONFIG_HOME", what, home+usual))
	return true
}

// repository returns the top of the git repository that a directory lies in, ""
// if there is none. A home that is one is the user's own.
func repository(dir, home string) string {
	for ; dir != "/" && dir != "." && !within(dir, home); dir = path.Dir(dir) {
		if _, err := os.Lstat(dir + "/.git"); err == nil {
			return dir
		}
	}
	return ""
}

// others returns what the profiles of other runs are read from, as far as links lead
// there: what else is in the directory of the user's configuration goes with it.
func others(config string) []string {
	if config == "" {
		return nil
	}
	dir, list := config+"/profiles", []string{config}
	for _, path := range []string{dir, config + "/" + SettingsFile} {
		if _, err := os.Readlink(path); err == nil {
			list = append(list, path)
		}
	}
	entries, _ := os.ReadDir(dir) // who cannot read it has none of the names
	for _, e := range entries {
		if e.Type()&os.ModeSymlink != 0 {
			list = append(list, dir+"/"+e.Name())
		}
	}
	return list
}

// leads returns where a path leads, or would if what lacks were made.
func leads(name string) string {
	name, rest := path.Clean(name), ""
	if state.Straight(name) {
		return name
	}
	for range 40 { // as many links as the kernel follows, path_resolution(7)
		if to, err := filepath.EvalSymlinks(name); err == nil {
			return path.Join(to, rest)
		}
		if to, err := os.Readlink(name); err == nil {
			if !path.IsAbs(to) {
				to = path.Join(real(path.Dir(name)), to)
			}
			name = path.Clean(to)
			continue
		}
		if name == "/" || name == "." {
			break
		}
		name, rest = path.Dir(name), path.Join(path.Base(name), rest)
	}
	return path.Join(name, rest)
}
