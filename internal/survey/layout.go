//go:build unix

package survey

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/pccrun/pccrun/internal/state"
	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/workspace"
	"github.com/pccrun/pccrun/workspace/vcs"
)

// Bounds of what a launch takes in of a workspace.
const (
	maxEntries  = 2_000_000
	maxStanding = 2_000
)

// LayoutOf is [Look] on a machine where paths are all that counts. It follows no link that a command
// could have made, and reads no file but those that say where a repository lies.
func LayoutOf(policy *profiles.Policy, o Options) (*Survey, error) {
	l := &layer{found: needs{newFinder(policy)}, policy: policy, options: &o}
	f := l.found
	f.own = o.Own
	s := &Survey{Layout: &l.layout}
	for _, home := range policy.Homes {
		l.rule(home)
	}
	for _, table := range [...][]profiles.FileRule{policy.Files, policy.Tighten} {
		f.patterns(table)
		for i := range table {
			l.rule(table[i].Path)
		}
	}
	for i := range policy.Protect {
		if r := &policy.Protect[i]; strings.HasPrefix(r.Pattern, "/") && !r.Review {
			l.leads(r.Pattern)
		}
	}
	for _, sock := range policy.Network.Sockets {
		l.leads(sock.Path)
		if _, err := os.Stat(sock.Path); errors.Is(err, fs.ErrNotExist) {
			f.notes = append(f.notes, sock.Path+" does not exist: there is no socket to reach ("+sock.Origin.String()+")")
		}
	}
	l.home()
	for _, t := range readUserGit(policy, &o).texts {
		if ByDefault(policy, t.Path) && policy.Decide(t.Path).Access < profiles.Read {
			f.put(Place{Path: t.Path, Node: File, Access: profiles.Read, Copied: true, Text: t.Content, Why: whyGit})
		}
	}
	l.toolchains()
	if f.err != nil {
		return nil, f.err
	}
	if err := l.walk(); err != nil {
		return nil, err
	}
	l.worktree()
	s.Env = slices.Concat(f.certificates(&o, &workspace.Found{}), o.placed(policy, f.readable), o.namedSockets(policy))
	s.Folding = foldedIn(policy.Workspace)
	for i := range f.places {
		if f.places[i].Node == Link {
			l.leads(f.places[i].Path)
		}
	}
	s.Places, s.Notes = f.places, f.notes
	return s, f.err
}

// A layer collects a [Layout] beside what is found.
type layer struct {
	found   needs
	policy  *profiles.Policy
	options *Options
	layout  Layout
}

// rule adds the place that a rule names, as it is spelled. A link that the command could have made carries no grant.
func (l *layer) rule(path string) {
	d := l.policy.Decide(path)
	if opensNothing(&l.found.paths, path, &d) {
		return
	}
	why := d.Rule.Origin.String()
	links, end, _ := l.found.hops(path)
	for i := range links {
		if d.Access >= profiles.Read && l.found.err == nil {
			l.found.err = l.found.refusal(path, &links[i], d.Access, why)
		}
	}
	l.leads(path)
	l.found.put(Place{Path: path, Node: end.Node, Access: d.Access, Why: why})
}

// leads notes the links on a path.
func (l *layer) leads(path string) {
	links, _, _ := l.found.hops(path)
	for _, h := range links {
		if real, err := state.Real(h.at); err == nil && !slices.ContainsFunc(l.layout.Links, func(o Lead) bool { return o.From == h.at }) {
			l.layout.Links = append(l.layout.Links, Lead{From: h.at, To: real})
		}
	}
}

// home names the directory that stands at ~ where that is persistent.
func (l *layer) home() {
	for i := range l.found.places {
		if p := &l.found.places[i]; p.Path == l.policy.Home && p.Access == profiles.Persist && l.options.Home != nil {
			p.Source = l.options.Home.Path
		}
	}
}

// toolchains shows what the programs of PATH need.
func (l *layer) toolchains() {
	o := l.options
	found := Toolchains(ToolQuery{
		Path: o.Getenv("PATH"), Home: l.policy.Home, Workspace: l.policy.Workspace, Command: o.Command, Env: o.Getenv,
		Changeable: func(dir string) bool { return l.policy.Decide(dir).Access >= profiles.Overlay },
	})
	for _, c := range found.Caches { // no layers here: what programs of PATH lie in, and load, is read-only
		if c.Why == OwnLibraries || slices.ContainsFunc(filepath.SplitList(o.Getenv("PATH")), func(dir string) bool { return Below(profiles.Physical(dir), c.Path) }) {
			found.Show = append(found.Show, Tool{c.Path, c.Why})
		}
	}
	l.found.tools(found, o.Command)
}

// walk goes through the workspace, without following links, and notes what patterns speak of.
func (l *layer) walk() error {
	p := l.policy
	names := newNamed(p.Protect)
	hidden, twins := map[inode][]string{}, map[inode][]string{}
	entries := 0
	err := filepath.WalkDir(p.Workspace, func(name string, e fs.DirEntry, err error) error {
		if entries++; entries > maxEntries {
			return fmt.Errorf("workspace %s: more than %d files", p.Workspace, maxEntries)
		}
		if err != nil || name == p.Workspace {
			return nil // what cannot be listed by its owner the command cannot list
		}
		d := l.policy.Decide(name)
		if d.Access < profiles.Read {
			l.stands(name)
			l.twin(hidden, name, e)
			if e.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		if dir := path.Dir(name); e.Name() == "HEAD" && len(l.layout.Protect) < maxStanding && !vcs.InsideGit(strings.TrimPrefix(dir, p.Workspace)) && nodeAt(dir+"/objects") == Directory && nodeAt(dir+"/refs") == Directory {
			for _, own := range neverChanged { // no pattern names those of a repository that is not named .git
				l.layout.Protect = append(l.layout.Protect, dir+"/"+own)
			}
		}
		if names.may(e.Name()) {
			if r, is := p.Protected(name); is && !r.Review {
				l.stands(name)
				if e.Type()&fs.ModeSymlink != 0 {
					if to, err := state.Real(name); err == nil && l.policy.Decide(to).Access == profiles.Write && !Below(p.Workspace, to) {
						l.layout.Protect = append(l.layout.Protect, to)
					}
				}
			}
		}
		if e.Type().IsRegular() {
			l.twin(twins, name, e)
		}
		return nil
	})
	for file := range hidden {
		for _, name := range twins[file] {
			l.found.put(Place{Path: name, Node: File, Access: profiles.Hide, Why: "another name of " + hidden[file][0]})
			l.stands(name)
		}
	}
	return err
}

func (l *layer) stands(name string) {
	if len(l.layout.Standing) == maxStanding {
		l.layout.Crowded = true
		return
	}
	l.layout.Standing = append(l.layout.Standing, name)
}

// twin notes a file that has another name too.
func (l *layer) twin(in map[inode][]string, name string, e fs.DirEntry) {
	info, err := e.Info()
	if err != nil || !info.Mode().IsRegular() {
		return
	}
	if st, is := info.Sys().(*syscall.Stat_t); is && st.Nlink > 1 {
		file := inode{uint64(st.Dev), st.Ino}
		in[file] = append(in[file], name)
	}
}

// A named set says which names some pattern could match.
type named struct {
	plain    map[string]bool
	patterns []string
}

func newNamed(rules []profiles.ProtectRule) *named {
	n := &named{plain: map[string]bool{}}
	for i := range rules {
		base := path.Base(rules[i].Pattern)
		if strings.ContainsAny(base, "*?[") {
			n.patterns = append(n.patterns, base)
		} else {
			n.plain[strings.ToLower(base)] = true
		}
	}
	return n
}

func (n *named) may(name string) bool {
	return n.plain[strings.ToLower(name)] || slices.ContainsFunc(n.patterns, func(p string) bool {
		ok, err := path.Match(p, name)
		return ok || err != nil
	})
}

// worktreeCommits is why such a part is writable.
const worktreeCommits = "what a commit in this worktree writes"

// neverChanged is what no command changes of a repository that stands.
var neverChanged = []string{"config", "config.worktree", "commondir", "hooks", "info/attributes", "objects/info/alternates"}

// Protects returns what says of a path in a tree that the command may write which pattern protects
// it, if one does, and whether that is for review: as written, or where fold says that names are one.
func Protects(p *profiles.Policy, fold func(string) string) func(name string) (pattern string, review, is bool) {
	as := func(rules []profiles.FileRule) (list []profiles.FileRule) {
		for _, r := range rules {
			r.Path, r.Glob = fold(r.Path), fold(r.Glob)
			list = append(list, r)
		}
		return list
	}
	folded := &profiles.Policy{
		Home: fold(p.Home), Workspace: fold(p.Workspace), Files: as(p.Files), Tighten: as(p.Tighten), Without: p.Without,
	}
	for _, r := range p.Protect {
		r.Pattern = fold(r.Pattern)
		folded.Protect = append(folded.Protect, r)
	}
	for _, file := range p.Opened {
		folded.Opened = append(folded.Opened, fold(file))
	}
	names := newNamed(slices.Concat(folded.Protect, folded.ProtectedOutside(true)))
	return func(name string) (string, bool, bool) {
		low := fold(name)
		if !names.may(path.Base(low)) {
			return "", false, false
		}
		r, is := p.ProtectedAnywhere(name)
		if is && !r.Review {
			return r.Pattern, false, true
		}
		if f, too := folded.ProtectedAnywhere(low); too && (!is || !f.Review) {
			r, is = f, true
		}
		return r.Pattern, r.Review, is
	}
}

// worktree shows, where the workspace is a linked worktree or a submodule, the repository that it
// belongs to: what a commit writes, and nothing that git executes.
func (l *layer) worktree() {
	work := l.policy.Workspace
	text, err := profiles.ReadFile(work + "/.git")
	to, is := vcs.ParseGitFile(text)
	if err != nil || is != nil {
		return // a directory, or none
	}
	own := realFrom(work, to)
	common, back := own, ""
	if text, err := profiles.ReadFile(own + "/commondir"); err == nil {
		common = realFrom(own, vcs.ParsePathFile(text))
	}
	if own == "" || common == "" || !Below(own, common) || Below(own, work) || Below(work, common) || !ByDefault(l.policy, common) {
		return
	}
	// It names this workspace as its own: a worktree's part by its gitdir, a submodule's by its configuration's core.worktree.
	if text, err := profiles.ReadFile(own + "/gitdir"); own != common && err == nil {
		back = realFrom(own, vcs.ParsePathFile(text))
	} else if text, err := profiles.ReadFile(own + "/config"); own == common && err == nil && nodeAt(own+"/HEAD") == File {
		settings, _ := vcs.ParseConfig(text)
		for _, s := range settings {
			if s.Name() == "core.worktree" {
				back = realFrom(own, s.Value) + "/.git"
			}
		}
	}
	if back != work+"/.git" {
		l.found.notes = append(l.found.notes, work+"/.git leads to "+own+", which does not point back: it is not shown")
		return
	}
	if common != own {
		l.found.put(Place{Path: common, Node: Directory, Access: profiles.Read, Why: WorktreeRepository})
	}
	for _, dir := range slices.Compact([]string{own, common + "/objects", common + "/refs", common + "/logs"}) {
		if nodeAt(dir) == Directory && ByDefault(l.policy, dir) {
			l.found.put(Place{Path: dir, Node: Directory, Access: min(l.policy.Decide(work).Access, profiles.Write), Why: worktreeCommits})
		}
	}
	l.layout.OwnGit = own
	for _, name := range append(neverChanged, "gitdir", "modules") {
		l.layout.Protect = append(l.layout.Protect, own+"/"+name)
	}
	l.layout.Protect = append(l.layout.Protect, common+"/objects/info/alternates")
}

// realFrom returns where a path that may begin at a directory leads, "" if nothing stands there.
func realFrom(dir, path string) string {
	if !filepath.IsAbs(path) {
		path = filepath.Join(dir, path)
	}
	real, _ := state.Real(path)
	return real
}
