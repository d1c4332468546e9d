//go:build unix

package survey

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/internal/hint"
	"github.com/pccrun/pccrun/internal/shell"
	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/workspace"
)

// People keep their settings in a repository and link to them: ~/.codex/skills -> ~/dotfiles/codex/skills, made by hand,
// by GNU Stow, chezmoi or Home Manager. Where a protected name is a link:
//
//   - the link stays as it is;
//   - what it leads to is read-only too;
//   - what it leads to can be read, also in a place that is hidden or private.
//
// The third is a grant, by a link that may stand where the command can write. So the link must be the user's. A protected
// name that a run makes is quarantined: a link that is older than every run which still goes on was made outside. A
// younger one grants nothing, and none grants what is secret.

// links are the places of a survey with what links of protected names, and of the user's own files, lead to.
type links struct {
	paths
	led   []profiles.ProtectRule // where links of protected names lead, beside those of the policy
	aways []profiles.ProtectRule // where links of the workspace's protected names lead outside of it
}

// protected adds the protected paths outside the workspace, such as an agent's
// own settings in a state directory that it may write.
func (f *links) protected() {
	for i := range f.policy.Protect {
		r := &f.policy.Protect[i]
		inert := f.policy.Decide(r.Pattern).Access < profiles.Overlay
		if r.Review || !strings.HasPrefix(r.Pattern, "/") || Below(r.Pattern, f.policy.Workspace) || inert && r.Origin.BuiltIn() {
			continue
		}
		list, end, err := f.hops(r.Pattern)
		if inert && (err != nil || f.shown(end.Path) < profiles.Overlay) {
			continue // what it leads to cannot be changed either
		}
		if err != nil {
			f.err = fmt.Errorf("protect %s: %w (%s)", r.Pattern, err, r.Origin)
		} else if Below(f.policy.Workspace, end.Path) {
			fix := "--review " + shell.Quote(r.Pattern)
			if r.Origin.Source == "flag" { // which no other flag takes back
				fix = "leave that flag out"
			}
			f.err = hint.Errorf(fix,
				"protect %s: links to %s, which contains the workspace (%s)", r.Pattern, end.Path, r.Origin)
		}
		if f.err != nil {
			return
		}
		why := "protect: " + r.Origin.String()
		if !f.guard(r, list, end, why) {
			f.notes = append(f.notes, fmt.Sprintf("%s leads to %s, which is not shown: --read %s shows it", r.Pattern, end.Path, shell.Quote(end.Path)))
			continue
		}
		if end.Node == Directory {
			f.inner(r, end.Path, why)
		}
	}
}

// guard adds a protected path, its links and its end, and reports whether what stands at the end is shown, or nothing
// stands there.
func (f *links) guard(r *profiles.ProtectRule, list []hop, end Place, why string) bool {
	carries := true
	for i := range list {
		h := &list[i]
		f.lead(r, h.to)
		p := Place{Path: h.at, Node: Link, Link: h.text, Access: profiles.Read, Why: why}
		if f.within(h.at) {
			p.Pin, p.Protect, p.Dev, p.Ino = true, true, Device(uint64(h.st.Dev)), h.st.Ino
		}
		carries = carries && f.refuses(h, profiles.Read) == ""
		f.put(p)
	}
	if len(list) > 0 && f.reviewed(end.Path) {
		return true
	}
	end.Access, end.Why, end.Protect = profiles.Read, why, f.within(end.Path)
	if end.Node == Absent {
		f.put(end)
		return true
	}
	if f.shown(end.Path) < profiles.Read && (!carries || !f.lends(end.Path)) {
		return false
	}
	end.Pin = end.Protect
	f.put(end)
	return true
}

// within reports whether a name lies where the command may write.
func (f *paths) within(path string) bool {
	return f.shown(filepath.Dir(path)) >= profiles.Overlay
}

// madeByUser reports whether the user made a link that stands where the command may write: it is a protected name, and
// older than every run of which the post-run check is still to come. Nobody can set the time of its last change (inode(7)).
func (f *paths) madeByUser(path string, st *unix.Stat_t) bool {
	if uid := int(st.Uid); uid != 0 && uid != os.Getuid() {
		return false
	}
	if !f.protectedOutside(path) {
		return false
	}
	if f.earliest == nil {
		return true
	}
	changed := time.Unix(st.Ctim.Unix())
	if f.asked.IsZero() || !changed.Before(f.asked.Add(-ctimeGrain)) {
		// The runs are listed after the link was seen: whoever has made it is on the list.
		f.asked = time.Now()
		f.since = f.earliest()
	}
	return f.since.IsZero() || changed.Before(f.since.Add(-ctimeGrain))
}

// protectedOutside reports whether a path outside the workspace is a protected name, or lies
// below one.
func (f *paths) protectedOutside(path string) bool {
	r, ok := f.policy.Protected(path)
	return ok && !r.Review && !Below(path, f.policy.Workspace)
}

// ctimeGrain is the coarsest time that a file system keeps: FAT's.
const ctimeGrain = 2 * time.Second

// lends reports whether a link of the user's may show a path in a hidden or private place. It may not if the path has a
// rule of its own, is a secret, holds one, or holds a home.
func (f *links) lends(path string) bool {
	d := f.policy.Decide(path)
	if d.Rule.Glob != "" || d.Rule.Path != "/" && d.Rule.Path != f.policy.Home && !slices.Contains(f.policy.Homes, d.Rule.Path) || isWhole(f.policy, path) {
		return false
	}
	for _, s := range profiles.SecretPlaces {
		secret := filepath.Join(f.policy.Home, s.Name)
		if Below(secret, path) || Below(path, secret) && !settings(s.Name, path[len(secret):]) && !isPublic(path) {
			return false
		}
	}
	return f.own == "" || !Below(path, f.own)
}

// settings reports whether what lies there below a directory with secrets is none: it is made to be shared between
// agents, or belongs to a program that keeps no secret there.
func settings(name, rest string) bool {
	switch name {
	case ".claude", ".codex", ".gemini":
		first, _, _ := strings.Cut(strings.TrimPrefix(rest, "/"), "/")
		return slices.Contains([]string{"skills", "agents", "commands", "prompts", "rules", "hooks", "plugins", "output-styles", "CLAUDE.md", "AGENTS.md", "GEMINI.md"}, first)
	case ".config":
		return strings.Count(rest, "/") > 1 // the parts that hold keys are places of their own
	case ".local/state":
		return strings.HasPrefix(rest, "/nix/")
	}
	return false
}

// lead protects the path at which a protected link goes on, where the command may write it: also if nothing stands there
// yet.
func (f *links) lead(r *profiles.ProtectRule, to string) {
	if f.shown(to) < profiles.Overlay || Below(f.policy.Workspace, to) || f.reviewed(to) {
		return
	}
	if !slices.ContainsFunc(f.led, func(have profiles.ProtectRule) bool { return have.Pattern == to }) {
		f.led = append(f.led, profiles.ProtectRule{Pattern: to, Origin: r.Origin})
	}
}

// reviewed reports whether the user lets a path of the workspace change.
func (f *links) reviewed(path string) bool {
	return slices.ContainsFunc(f.policy.Protect, func(r profiles.ProtectRule) bool {
		return r.Review && !r.Origin.BuiltIn() && r.Matches(f.policy.Workspace, path)
	})
}

// maxInner bounds the links of a directory that are followed.
const maxInner = 256

// inner follows the links in a directory that is shown, as GNU Stow leaves it, which links each file by itself. What must
// not be shown is left out.
func (f *links) inner(r *profiles.ProtectRule, dir, why string) {
	for _, name := range linksIn(dir, maxInner) {
		path := dir + "/" + name
		list, end, err := f.hops(path)
		if err != nil || end.Node != File && end.Node != Directory {
			continue
		}
		if r != nil {
			f.guard(r, list, end, why)
			continue
		}
		f.give(list, end, why)
	}
}

// give shows what a path leads to that the user's own files name. It leaves out what [links.lends] does not allow, and what
// a link leads to that may be another's.
func (f *links) give(list []hop, end Place, why string) {
	if end.Node != File && end.Node != Directory || f.shown(end.Path) >= profiles.Read || !f.lends(end.Path) || !f.carries(list) {
		return
	}
	f.through(list, why)
	end.Access, end.Why = profiles.Read, why
	f.put(end)
}

// lend is [links.give] for a path that no rule of the user's own speaks of.
func (f *links) lend(path, why string) {
	if !ByDefault(f.policy, path) {
		return
	}
	if list, end, err := f.hops(path); err == nil {
		f.give(list, end, why)
	}
}

// git reports whether the policy shows the user's configuration of git.
func (f *links) git() bool {
	path := f.policy.Home + "/.gitconfig"
	return f.shown(path) >= profiles.Read || f.policy.Uses(profiles.GitConfig) && ByDefault(f.policy, path)
}

// linksIn returns the names of a directory that are links, no more than limit.
func linksIn(dir string, limit int) (names []string) {
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		if e.Type()&os.ModeSymlink != 0 && len(names) < limit {
			names = append(names, e.Name())
		}
	}
	return names
}

// dotfiles protects files of the workspace to which protected names of the home lead: in a repository of dotfiles they
// have other names, such as `bashrc`.
func (f *links) dotfiles() {
	if f.policy.Decide(f.policy.Workspace).Access < profiles.Overlay {
		return
	}
	names := make(map[string]*profiles.ProtectRule, len(f.policy.Protect))
	for i := range f.policy.Protect {
		if r := &f.policy.Protect[i]; !r.Review && !strings.ContainsAny(r.Pattern, "/*?[") {
			names[r.Pattern] = r
		}
	}
	if len(names) == 0 {
		return
	}
	home := f.policy.Home
	entries, _ := os.ReadDir(home)
	for _, e := range entries {
		r, path := names[e.Name()], home+"/"+e.Name()
		if git := names[".gitconfig"]; e.Name() == ".config" && git != nil {
			f.leadIn(git, path+"/git/config")
			f.leadIn(git, path+"/git/attributes")
			continue
		}
		if r == nil || f.policy.Decide(path).Access >= profiles.Overlay {
			continue // its own rules protect what is in there
		}
		switch {
		case e.Type()&os.ModeSymlink != 0:
			f.leadIn(r, path)
		case e.IsDir():
			for _, name := range linksIn(path, maxInner) {
				f.leadIn(r, path+"/"+name)
			}
		}
	}
}

// leadIn is [links.lead] for what lies in the workspace, wherever else the path
// leads.
func (f *links) leadIn(r *profiles.ProtectRule, path string) {
	list, _, err := f.hops(path)
	if err != nil {
		return
	}
	for _, h := range list {
		if Below(h.to, f.policy.Workspace) {
			f.lead(r, h.to)
		}
	}
}

// systemTrees are what programs need, wherever a link in a workspace leads.
var systemTrees = [...]string{"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix", "/gnu", "/proc", "/sys", "/dev", "/run"}

// commonTrees may be hidden in part, not as a whole.
var commonTrees = [...]string{"/etc", "/opt", "/var", "/tmp"}

// leads hides what a link of the workspace leads to, where a pattern matches
// the link's name. Whoever can write in the workspace can plant such a link, so
// it must not take away the system, the home or the workspace as a whole: that
// is said, and stays as the policy has it under its own name. What else is
// hidden outside the workspace is said too.
func (f *links) leads(m workspace.Match) bool {
	access := f.atMost(m.Target, m.Rule.Access)
	outside := !Below(m.Target, f.policy.Workspace)
	if access < profiles.Read && isWhole(f.policy, m.Target) {
		f.notes = append(f.notes, m.Path+" leads to "+m.Target+", which this rule does not hide ("+m.Rule.Origin.String()+")")
		return false
	}
	if d := f.policy.Decide(m.Target); !outside && d.Rule.Path == m.Target && d.Rule.Glob == "" {
		return true // named, which beats a pattern, for a directory as for a file
	}
	if outside && access < f.policy.Decide(m.Target).Access {
		f.notes = append(f.notes, m.Target+" is hidden, since "+m.Path+" leads there")
	}
	f.add(m.Target, access, m.Rule.Origin.String())
	return true
}

// isWhole reports whether hiding a path would hide more than files of a
// project: a tree of the system or part of it, what holds the workspace or a
// home, or a device.
func isWhole(p *profiles.Policy, path string) bool {
	var st unix.Stat_t
	if unix.Lstat(path, &st) == nil && st.Mode&unix.S_IFMT != unix.S_IFREG && st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return true
	}
	holds := func(tree string) bool { return tree != "" && Below(tree, path) }
	return holds(p.Workspace) || holds(p.Home) || slices.ContainsFunc(p.Homes, holds) ||
		slices.ContainsFunc(commonTrees[:], holds) ||
		slices.ContainsFunc(systemTrees[:], func(tree string) bool { return holds(tree) || Below(path, tree) })
}

// spelled makes a path of the caller's work inside as he spells it, ~/code where
// that is a link to another disk: build files keep such paths. The links are the
// user's own, and what they lead to is shown already, or a home: a name is made,
// and nothing is granted. It reports whether the path leads there by links.
func (f *links) spelled(path string) bool {
	if !filepath.IsAbs(path) || filepath.Clean(path) != path || f.err != nil {
		return false
	}
	list, end, err := f.hops(path)
	if err != nil || len(list) == 0 || f.shown(end.Path) < profiles.Read && end.Path != f.policy.Home || !f.carries(list) {
		return false
	}
	f.through(list, "as "+path+" is spelled")
	return true
}

// terminfo shows what the caller's terminal is, where that is described in the
// home: terminfo(5). A new terminal brings its own.
func (f *links) terminfo(getenv func(string) string) {
	term := getenv("TERM")
	if term == "" || strings.ContainsAny(term, "/.") {
		return
	}
	for _, dir := range [...]string{getenv("TERMINFO"), f.policy.Home + "/.terminfo"} {
		if filepath.IsAbs(dir) {
			f.lend(filepath.Join(dir, term[:1], term), "the terminal's description")
		}
	}
}
