package survey

import (
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/profiles"
)

// nobody is who owns what a user namespace has no identity for, as
// /proc/sys/fs/overflowuid says unless somebody has changed it.
const nobody = 65534

// mountAliases are the places where mounts show what is hidden under another path, such as a home that is bound to a
// second place.
type mountAliases struct {
	*paths
	mounts []mountpoint
}

// hide hides what is hidden in the other mounts of its file system too; and the other places of what is mounted in a
// hidden directory, such as a directory of a data disk that is bound into the home.
//
// Not hidden is what a rule of the user's shows by name. Nor is what belongs to root, or in a container to nobody: that is
// no secret of a home, and /usr may be bound into a chroot there. Where only the defaults hide a path, a rule of the user's
// for the other mount shows that, whole. What pccrun keeps of its runs is hidden in any case.
func (f mountAliases) hide() {
	for _, p := range f.places[:len(f.places):len(f.places)] {
		if p.Access >= profiles.Read || p.Node != Directory && p.Node != File {
			continue
		}
		f.elsewhere(p.Path, func(alias string) bool {
			if !f.named(alias) {
				return true
			}
			if ByDefault(f.policy, p.Path) && p.Path != f.own {
				return false
			}
			f.notes = append(f.notes, alias+" is hidden: it is another mount of "+p.Path)
			return true
		})
		for _, m := range f.mounts {
			var st unix.Stat_t
			if p.Node == Directory && m.target != p.Path && Below(m.target, p.Path) && f.policy.Decide(m.target).Access < profiles.Read &&
				unix.Lstat(m.target, &st) == nil && st.Uid != 0 && st.Uid != nobody {
				f.alias(m, m.root, m.target, func(alias string) bool { return ByDefault(f.policy, alias) })
			}
		}
	}
	if f.own != "" {
		f.elsewhere(f.own, func(alias string) bool { return f.shown(alias) >= profiles.Read })
	}
}

// named reports whether a rule of the user's names a path, and not what it lies in.
func (f mountAliases) named(path string) bool {
	d := f.policy.Decide(path)
	return d.Rule.Path == path && !ByDefault(f.policy, path)
}

// elsewhere hides a path wherever another mount shows it.
func (f mountAliases) elsewhere(path string, hides func(alias string) bool) {
	own := mountOf(f.mounts, path)
	f.alias(own, filepath.Join(own.root, path[len(strings.TrimSuffix(own.target, "/")):]), path, hides)
}

// alias hides the places, but for that of own, where mounts show a path of a
// file system, and a condition holds.
func (f mountAliases) alias(own mountpoint, inside, path string, hides func(string) bool) {
	for _, m := range f.mounts {
		if m.device != own.device || m.target == own.target {
			continue
		}
		alias := m.target // all of the mount lies in what is hidden
		if Below(inside, m.root) {
			alias = filepath.Join(m.target, strings.TrimPrefix(inside, m.root))
		} else if !Below(m.root, inside) {
			continue
		}
		if alias != "/" && f.policy.Decide(alias).Access >= profiles.Read && !Below(alias, f.policy.Workspace) && mountOf(f.mounts, alias).target == m.target && hides(alias) {
			f.add(alias, profiles.Hide, "another mount of "+path)
			f.beyond(alias)
		}
	}
}

// mountpoint is one line of the table of mounts.
type mountpoint struct{ device, root, target string }

// parseMountinfo reads proc_pid_mountinfo(5).
func parseMountinfo(text string) []mountpoint {
	var list []mountpoint
	for line := range strings.Lines(text) {
		if f := strings.SplitN(line, " ", 6); len(f) == 6 {
			list = append(list, mountpoint{f[2], Unescape(f[3]), Unescape(f[4])})
		}
	}
	return list
}

// Unescape undoes the octal escapes of the table: \\040 is a space.
func Unescape(s string) string {
	if !strings.Contains(s, "\\") {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if n, err := strconv.ParseUint(s[min(i+1, len(s)):min(i+4, len(s))], 8, 8); s[i] == '\\' && err == nil {
			b.WriteByte(byte(n))
			i += 3
			continue
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// mountOf returns the mount that shows a path: of those above it the deepest,
// and of those the last.
func mountOf(mounts []mountpoint, path string) (best mountpoint) {
	for _, m := range mounts {
		if Below(path, m.target) && len(m.target) >= len(best.target) {
			best = m
		}
	}
	return best
}
