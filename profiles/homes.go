package profiles

import (
	"os"
	"path"
	"runtime"
	"slices"
	"strings"
)

// systemDirs are parents of homes that hold more than homes: a home such as
// /var/lib/jenkins does not hide /var/lib.
var systemDirs = []string{"/", "/bin", "/boot", "/dev", "/etc", "/lib", "/opt", "/proc", "/run", "/sbin", "/srv", "/sys", "/tmp", "/usr", "/usr/local", "/var", "/var/lib", "/var/tmp"}

// homesOf returns the directories that hold homes, and where links lead from
// them: a home behind a link is not hidden by the link's name.
func homesOf(database, home string) []string {
	homes := append([]string{"/home", "/root"}, homesAround("")...)
	if runtime.GOOS == "darwin" {
		homes = []string{"/Users", "/var/root"}
	}
	for i := range homes {
		homes = append(homes, real(homes[i]))
	}
	if database != home {
		database = real(database)
	}
	if database = path.Clean(database); strings.HasPrefix(database, "/") && database != "/" {
		if parent := path.Dir(database); !slices.Contains(systemDirs, parent) {
			homes = append(homes, parent)
		}
		if database != home {
			homes = append(homes, database)
		}
	}
	slices.Sort(homes)
	return slices.Compact(homes)
}

// homesElsewhere returns the directories that hold homes on a Mac, as far as the
// path of one tells.
func homesElsewhere(home string) []string {
	homes := []string{"/Users", "/private/var/root"}
	if parent := path.Dir(home); !slices.Contains(systemDirs, parent) && !slices.Contains(homes, parent) {
		homes = append(homes, parent)
	}
	return homes
}

// homesAround returns where a virtual machine shows the homes of the system
// that it runs on, below root: Lima and its like at the same path, WSL, OrbStack,
// Docker Desktop. A key lies there as in one of its own.
func homesAround(root string) (homes []string) {
	for _, dir := range [...]string{"/Users", "/mnt/c/Users", "/mnt/mac/Users", "/host_mnt/Users"} {
		if info, err := os.Stat(root + dir); err == nil && info.IsDir() {
			homes = append(homes, root+dir)
		}
	}
	return homes
}

// partOfHome reports whether in the workspace names count as in a home: it is one, holds one, or is a dot
// directory of one, where links and variables such as ZDOTDIR lead. The user's own is refused before.
// On a Mac nothing looks at new names during a run: there they count so everywhere.
func (p *Policy) partOfHome(host *Host) bool {
	if host.Elsewhere || runtime.GOOS == "darwin" {
		return true
	}
	ws := p.Workspace
	for _, home := range append([]string{p.Home}, host.Homes...) {
		if rest, in := below(home, ws); len(home) > 1 && (within(ws, home) || in && strings.HasPrefix(rest, ".")) {
			return true
		}
	}
	return false
}

// denied returns rules of which those for names of a home hold everywhere.
func denied(rules []ProtectRule) []ProtectRule {
	rules = slices.Clone(rules) // a built-in list is everybody's
	for i := range rules {
		rules[i].Home = false
	}
	return rules
}
