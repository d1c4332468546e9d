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
)

// People keep their settings in a repository and link to them: ~/.codex/skills
// -> ~/dotfiles/codex/skills, made by hand, by GNU Stow, chezmoi or Home Manager.
// A protected name that is a link stays where it is, what it leads to is read-only
// as well, and can be read as if it stood at the name itself.
//
// The last of these is a grant, and where such a link stands the command may
// write. That it is the user's follows from what pccrun keeps: no run leaves
// anything new at a protected name, so that what stands there was put there
// outside, unless it came while a run goes on. A link that may be younger than
// any such run grants nothing, nor does one to a secret.

// A hop is a link on the way of a path.
type hop struct {
	at, text string
	to       string // where the path goes on
	st       unix.Stat_t
}

// hops follows a path through all links, and says what stands at the end:
// nothing is [Absent].
func (f *finder) hops(path string) (list []hop, end Place, err error) {
	for {
		prefix, st, err := f.first(path)
		end = Place{Path: path, Node: NodeOf(st.Mode), Dev: Device(st.Dev), Ino: st.Ino}
		switch {
		case err != nil && nowhere(err) && (err != unix.EACCES || !f.owns(filepath.Dir(prefix))):
			return list, Place{Path: path, Node: Absent}, nil
		case err != nil:
			return nil, end, fmt.Errorf("lstat %s: %w", prefix, err)
		case end.Node != Link:
			return list, end, nil
		case len(list) == 40:
			return nil, end, fmt.Errorf("lstat %s: %w", path, unix.ELOOP)
		}
		h := hop{at: prefix, st: st}
		if h.text, h.to, err = leads(prefix, path[len(prefix):]); err != nil {
			return nil, end, err
		}
		list, path = append(list, h), h.to
	}
}

// protected adds the protected paths outside the workspace, such as an agent's
// own settings in a state directory that it may write.
func (f *finder) protected() {
	for i := range f.policy.Protect {
		r := &f.policy.Protect[i]
		inert := f.policy.Decide(r.Pattern).Access < profiles.Overlay
		if r.Review || !strings.HasPrefix(r.Pattern, "/") || Below(r.Pattern, f.policy.Workspace) || inert && r.Origin.BuiltIn() {
			continue
		}
		list, end, err := f.hops(r.Pattern)
		if inert && (err != nil || f.shown(end.Path) < profiles.Overlay) {
			continue // nor can what it leads to be changed
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

// guard covers a protected path, links and end, and reports whether what stands
// at the end is shown, or nothing does.
func (f *finder) guard(r *profiles.ProtectRule, list []hop, end Place, why string) bool {
	carries := true
	for i := range list {
		h := &list[i]
		f.lead(r, h.to)
		p := Place{Path: h.at, Node: Link, Link: h.text, Access: profiles.Read, Why: why}
		if f.within(h.at) {
			p.Pin, p.Protect, p.Dev, p.Ino = true, true, Device(h.st.Dev), h.st.Ino
		}
		carries = carries && f.refuses(h.at, &h.st, profiles.Read, h.to) == ""
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
func (f *finder) within(path string) bool {
	return f.shown(filepath.Dir(path)) >= profiles.Overlay
}

// sworn reports whether nobody but the user can have put a link where the command
// may write: it is a protected name, and older than every run that has not been
// looked after yet. The time of its last change nobody can set (inode(7)).
func (f *finder) sworn(path string, st *unix.Stat_t) bool {
	if uid := int(st.Uid); uid != 0 && uid != os.Getuid() {
		return false
	}
	if !f.guarded(path) {
		return false
	}
	if f.earliest == nil {
		return true
	}
	changed := time.Unix(st.Ctim.Unix())
	if f.asked.IsZero() || !changed.Before(f.asked.Add(-ctimeGrain)) {
		// After the look: what a run has made stood on its list before.
		f.asked = time.Now()
		f.since = f.earliest()
	}
	return f.since.IsZero() || changed.Before(f.since.Add(-ctimeGrain))
}

// guarded reports whether a path outside the workspace is a protected name, or lies
// below one.
func (f *finder) guarded(path string) bool {
	r, ok := f.policy.Protected(path)
	return ok && !r.Review && !Below(path, f.policy.Workspace)
}

// ctimeGrain is the coarsest time that a file system keeps: FAT's.
const ctimeGrain = 2 * time.Second

// lends reports whether a link of the user's shows what it leads to in a hidden
// or private place: nothing that a rule of its own closes, no secret, nothing that
// holds one, or a home.
func (f *finder) lends(path string) bool {
	d := f.policy.Decide(path)
	if d.Rule.Glob != "" || d.Rule.Path != "/" && d.Rule.Path != f.policy.Home && !slices.Contains(f.policy.Homes, d.Rule.Path) || f.isWhole(path) {
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

// settings reports whether what lies there below a directory with secrets is made
// to be shared between agents, or of a directory that has them only in part.
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

// lead notes that a protected path goes on at another one, which the command may
// write: there it is protected as well, what does not exist yet included.
func (f *finder) lead(r *profiles.ProtectRule, to string) {
	if f.shown(to) < profiles.Overlay || Below(f.policy.Workspace, to) || f.reviewed(to) {
		return
	}
	if !slices.ContainsFunc(f.led, func(have profiles.ProtectRule) bool { return have.Pattern == to }) {
		f.led = append(f.led, profiles.ProtectRule{Pattern: to, Origin: r.Origin})
	}
}

// reviewed reports whether the user lets a path of the workspace change.
func (f *finder) reviewed(path string) bool {
	return slices.ContainsFunc(f.policy.Protect, func(r profiles.ProtectRule) bool {
		return r.Review && !r.Origin.BuiltIn() && r.Matches(f.policy.Workspace, path)
	})
}

// maxInner bounds the links of a directory that are followed.
const maxInner = 256

// inner follows the links of a directory that is shown: a tool that links each
// file by itself leaves such directories. What must not be shown is left out.
func (f *finder) inner(r *profiles.ProtectRule, dir, why string) {
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

// give shows what a path leads to that the user's own files name, unless a link on
// the way is anybody's, or it is what no link shows: then it is left out.
func (f *finder) give(list []hop, end Place, why string) {
	if end.Node != File && end.Node != Directory || f.shown(end.Path) >= profiles.Read || !f.lends(end.Path) {
		return
	}
	for i := range list {
		if f.refuses(list[i].at, &list[i].st, profiles.Read, list[i].to) != "" {
			return
		}
	}
	for _, h := range list {
		f.put(Place{Path: h.at, Node: Link, Link: h.text, Access: profiles.Read, Why: why})
	}
	end.Access, end.Why = profiles.Read, why
	f.put(end)
}

// lend is [finder.give] for a path that no rule of the user's own speaks of.
func (f *finder) lend(path, why string) {
	if !ByDefault(f.policy, path) {
		return
	}
	if list, end, err := f.hops(path); err == nil {
		f.give(list, end, why)
	}
}

// git reports whether the policy shows the user's configuration of git.
func (f *finder) git() bool {
	path := f.policy.Home + "/.gitconfig"
	return f.shown(path) >= profiles.Read || f.policy.Uses(profiles.GitConfig) && ByDefault(f.policy, path)
}

// linksIn returns the names of a directory that are links, no more than limit.
func linksIn(dir string, limit int) (names []string) {
	for _, e := range entriesOf(dir) {
		if e.Type()&os.ModeSymlink != 0 && len(names) < limit {
			names = append(names, e.Name())
		}
	}
	return names
}

// entriesOf returns what stands in a directory, nothing of one that cannot be read.
// (os.Open would ask the kernel to poll it, which a launch has no use for else.)
func entriesOf(dir string) []os.DirEntry {
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	d := os.NewFile(uintptr(fd), dir)
	defer d.Close()
	entries, _ := d.ReadDir(-1)
	return entries
}

// dotfiles finds what of the workspace the user's own settings are: what a
// protected name of the home leads to is protected there. In a repository of
// dotfiles it has another name, such as `bashrc`.
func (f *finder) dotfiles() {
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
	for _, e := range entriesOf(home) {
		r, path := names[e.Name()], home+"/"+e.Name()
		if git := names[".gitconfig"]; e.Name() == ".config" && git != nil {
			f.leadIn(git, path+"/git/config")
			f.leadIn(git, path+"/git/attributes")
			continue
		}
		if r == nil || f.policy.Decide(path).Access >= profiles.Overlay {
			continue // the profile says what is protected in there
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

// leadIn is [finder.lead] for what lies in the workspace, wherever else the path
// leads.
func (f *finder) leadIn(r *profiles.ProtectRule, path string) {
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
