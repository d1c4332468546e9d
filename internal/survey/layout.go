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

	"github.com/pccrun/pccrun/internal/shell"
	"github.com/pccrun/pccrun/internal/state"
	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/workspace/vcs"
)

// A Layout is what a provider goes by that mounts nothing, and whose kernel decides on each path
// by its name: what leads where, and what stands of that which patterns speak of.
type Layout struct {
	Links    []Lead   // on the paths of rules
	Standing []string // what patterns hide or protect, and is there
	Protect  []string // what protected names outside the workspace's patterns lead to, and of a repository elsewhere what no command changes
	OwnGit   string   // outside the workspace, the part of a repository that its worktree or submodule has; "" for none
	Crowded  bool     // there is more to know than a launch takes in: Standing is a part of it
}

// A Lead is a link, and the path to which it leads in the end.
type Lead struct{ From, To string }

// Bounds of what a launch takes in of a workspace.
const (
	maxEntries  = 2_000_000
	maxStanding = 2_000
)

// LayoutOf is [Look] on a machine where paths are all that counts. It follows no link that a command
// could have made, and reads no file but those that say where a repository lies.
func LayoutOf(policy *profiles.Policy, o Options) (*Survey, error) {
	l := &layer{policy: policy, options: &o, at: map[string]bool{}}
	s := &Survey{Layout: &l.layout}
	for _, home := range policy.Homes {
		if err := l.rule(home, profiles.Origin{Source: "default"}); err != nil {
			return nil, err
		}
	}
	for _, table := range [...][]profiles.FileRule{policy.Files, policy.Tighten} {
		for i := range table {
			r := &table[i]
			if r.Glob != "" && !Below(r.Path, policy.Workspace) {
				return nil, fmt.Errorf("filesystem %s: a pattern is looked for in the workspace only (%s)", r.Text(), r.Origin)
			}
			if err := l.rule(r.Path, r.Origin); err != nil {
				return nil, err
			}
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
			s.Notes = append(s.Notes, sock.Path+" does not exist: there is no socket to reach ("+sock.Origin.String()+")")
		}
	}
	l.home()
	for _, t := range readUserGit(policy, &o).texts {
		if ByDefault(l.policy, t.Path) && policy.Decide(t.Path).Access < profiles.Read {
			l.put(Place{Path: t.Path, Node: File, Access: profiles.Read, Copied: true, Text: t.Content, Why: whyGit})
		}
	}
	l.tools()
	if err := l.walk(); err != nil {
		return nil, err
	}
	if err := l.repository(); err != nil {
		return nil, err
	}
	s.Env = l.environment()
	s.Folding = foldedIn(policy.Workspace)
	s.Places, s.Notes = l.places, append(s.Notes, l.notes...)
	return s, nil
}

// layer collects a [Layout].
type layer struct {
	policy  *profiles.Policy
	options *Options
	layout  Layout
	places  []Place
	notes   []string
	at      map[string]bool // paths of places
}

func (l *layer) put(p Place) {
	if !l.at[p.Path] {
		l.at[p.Path] = true
		l.places = append(l.places, p)
	}
}

// nodeAt says what stands at a path, itself.
func nodeAt(path string) Node {
	info, err := os.Lstat(path)
	switch {
	case err != nil:
		return Absent
	case info.Mode().IsRegular():
		return File
	case info.IsDir():
		return Directory
	case info.Mode()&fs.ModeSymlink != 0:
		return Link
	}
	return Special
}

// followed returns where a path leads, and the links on it.
func followed(name string) (to string, links []string) {
	to = name
	for range 40 {
		link := firstLink(to)
		if link == "" {
			break
		}
		text, err := os.Readlink(link)
		if err != nil {
			break
		}
		if !path.IsAbs(text) {
			text = path.Join(path.Dir(link), text)
		}
		links = append(links, link)
		to = path.Join(profiles.Physical(text), to[len(link):])
	}
	return to, links
}

// leads notes the links on a path, and returns where it leads.
func (l *layer) leads(name string) (to string, links []string) {
	to, links = followed(name)
	for _, link := range links {
		if real, err := state.Real(link); err == nil && !slices.ContainsFunc(l.layout.Links, func(o Lead) bool { return o.From == link }) {
			l.layout.Links = append(l.layout.Links, Lead{From: link, To: real})
		}
	}
	return to, links
}

// firstLink returns the first part of a path that is a link, "" for none.
func firstLink(name string) string {
	for i := 1; i <= len(name); i++ {
		if i < len(name) && name[i] != '/' {
			continue
		}
		info, err := os.Lstat(name[:i])
		if err != nil {
			return ""
		}
		if info.Mode()&fs.ModeSymlink != 0 {
			return name[:i]
		}
	}
	return ""
}

// rule adds the place that a rule names. A link that the command could have made carries no grant.
func (l *layer) rule(name string, origin profiles.Origin) error {
	d := l.policy.Decide(name)
	to, links := l.leads(name)
	for _, link := range links {
		r, protected := l.policy.Protected(link)
		if d.Access >= profiles.Read && l.policy.Decide(path.Dir(link)).Access >= profiles.Overlay && !(protected && !r.Review) {
			return &profiles.Error{
				Cause: fmt.Sprintf("filesystem %s: %s: leads through the link %s, which the command could have made (%s)", name, d.Access, link, origin),
				Hint:  "name where it leads, if that is meant: --" + d.Access.String() + " " + shell.Quote(to),
			}
		}
	}
	l.put(Place{Path: name, Node: nodeAt(to), Access: d.Access, Why: d.Rule.Origin.String()})
	return nil
}

// home names the directory that stands at ~ where that is persistent.
func (l *layer) home() {
	for i := range l.places {
		if p := &l.places[i]; p.Path == l.policy.Home && p.Access == profiles.Persist && l.options.Home != nil {
			p.Source = l.options.Home.Path
		}
	}
}

// show adds a path that the defaults hide, with where it leads.
func (l *layer) show(name, why string) {
	if l.policy.Decide(name).Access >= profiles.Read || !ByDefault(l.policy, name) {
		return
	}
	to, _ := l.leads(name)
	for _, one := range slices.Compact([]string{name, to}) {
		if l.policy.Decide(one).Access < profiles.Read && ByDefault(l.policy, one) {
			l.put(Place{Path: one, Node: nodeAt(one), Access: profiles.Read, Why: why})
		}
	}
}

// tools shows what the programs of PATH need.
func (l *layer) tools() {
	o := l.options
	found := Toolchains(ToolQuery{
		Path: o.Getenv("PATH"), Home: l.policy.Home, Workspace: l.policy.Workspace, Command: o.Command, Env: o.Getenv,
		Changeable: func(dir string) bool { return l.policy.Decide(dir).Access >= profiles.Overlay },
	})
	for _, name := range o.Command {
		l.show(name, "the command")
	}
	for _, tool := range found.Show {
		l.show(tool.Path, tool.Why)
	}
	for _, c := range found.Caches { // no layers here: what programs of PATH lie in, and load, is read-only
		if c.Why == OwnLibraries || slices.ContainsFunc(filepath.SplitList(o.Getenv("PATH")), func(dir string) bool { return Below(profiles.Physical(dir), c.Path) }) {
			l.show(c.Path, c.Why)
		}
	}
}

// walk goes through the workspace, without following links, and notes what patterns speak of.
func (l *layer) walk() error {
	p := l.policy
	names := newNamed(p.Protect)
	hidden, twins := map[any][]string{}, map[any][]string{}
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
			l.put(Place{Path: name, Node: File, Access: profiles.Hide, Why: "another name of " + hidden[file][0]})
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
func (l *layer) twin(in map[any][]string, name string, e fs.DirEntry) {
	info, err := e.Info()
	if err != nil || !info.Mode().IsRegular() {
		return
	}
	if file, names := identity(info); names > 1 {
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

// repository shows, where the workspace is a linked worktree or a submodule, the repository that it
// belongs to: what a commit writes, and nothing that git executes.
func (l *layer) repository() error {
	text, err := profiles.ReadFile(l.policy.Workspace + "/.git")
	if err != nil {
		return nil // a directory, or none
	}
	to, err := vcs.ParseGitFile(text)
	if err != nil {
		return nil
	}
	if !path.IsAbs(to) {
		to = path.Join(l.policy.Workspace, to)
	}
	own, err := state.Real(to)
	if err != nil || Below(l.policy.Workspace, own) || Below(own, l.policy.Workspace) {
		return nil
	}
	common := own
	if text, err := profiles.ReadFile(own + "/commondir"); err == nil {
		if common = vcs.ParsePathFile(text); !path.IsAbs(common) {
			common = path.Join(own, common)
		}
		if common, err = state.Real(common); err != nil || !Below(own, common) || Below(l.policy.Workspace, common) {
			return nil
		}
	}
	if !l.pointsBack(own, common) {
		l.notes = append(l.notes, l.policy.Workspace+"/.git leads to "+own+", which does not point back: it is not shown")
		return nil
	}
	if !ByDefault(l.policy, common) {
		return nil
	}
	access := l.policy.Decide(l.policy.Workspace).Access
	if common != own {
		l.put(Place{Path: common, Node: Directory, Access: profiles.Read, Why: WorktreeRepository})
	}
	for _, dir := range slices.Compact([]string{own, common + "/objects", common + "/refs", common + "/logs"}) {
		if nodeAt(dir) == Directory && ByDefault(l.policy, dir) {
			l.put(Place{Path: dir, Node: Directory, Access: min(access, profiles.Write), Why: worktreeCommits})
		}
	}
	l.layout.OwnGit = own
	for _, name := range append(neverChanged, "gitdir", "modules") {
		l.layout.Protect = append(l.layout.Protect, own+"/"+name)
	}
	l.layout.Protect = append(l.layout.Protect, common+"/objects/info/alternates")
	return nil
}

// pointsBack reports whether a repository names this workspace as its own: a worktree's part by its
// gitdir, a submodule's by its configuration's core.worktree.
func (l *layer) pointsBack(own, common string) bool {
	if own == common {
		text, err := profiles.ReadFile(own + "/config")
		if err != nil || nodeAt(own+"/HEAD") != File {
			return false
		}
		settings, err := vcs.ParseConfig(text)
		return err == nil && slices.ContainsFunc(settings, func(s vcs.Setting) bool {
			at := s.Value
			if !path.IsAbs(at) {
				at = path.Join(own, at)
			}
			real, err := state.Real(at)
			return s.Section == "core" && s.Key == "worktree" && err == nil && real == l.policy.Workspace
		})
	}
	text, err := profiles.ReadFile(own + "/gitdir")
	if err != nil {
		return false
	}
	back, err := state.Real(vcs.ParsePathFile(text))
	return err == nil && back == l.policy.Workspace+"/.git"
}

// environment passes what names something that is shown: certificates and sockets.
func (l *layer) environment() (env []Variable) {
	if l.options.Network || len(l.policy.Network.Allow)+len(l.policy.Network.Local) > 0 {
		for _, name := range profiles.CertificateFiles {
			value := l.options.Getenv(name)
			if !path.IsAbs(value) || !free(l.policy, name) {
				continue
			}
			if l.policy.Decide(value).Access < profiles.Read && holds(value, isCertificates) {
				l.show(value, "certificate authorities that your environment names")
			}
			if to, _ := l.leads(value); l.at[to] || l.policy.Decide(to).Access >= profiles.Read {
				env = append(env, Variable{name + "=" + value, "certificate authorities that your environment names"})
			}
		}
	}
	env = append(env, l.options.placed(l.policy, func(at string) bool {
		to, _ := l.leads(profiles.Physical(at))
		return !path.IsAbs(at) || l.at[to] || l.policy.Decide(to).Access >= profiles.Read
	})...)
	return append(env, l.options.namedSockets(l.policy)...)
}
