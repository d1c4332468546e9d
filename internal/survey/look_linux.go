package survey

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/internal/hint"
	"github.com/pccrun/pccrun/internal/procfs"
	"github.com/pccrun/pccrun/internal/shell"
	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/workspace"
)

// Look reads from the host what a plan of this policy needs to know.
func Look(policy *profiles.Policy, o Options) (*Survey, error) {
	s := new(Survey)
	var err error
	if tree := KernelTree(policy.Workspace); tree != "" {
		return nil, fmt.Errorf("workspace %s: the sandbox replaces %s", policy.Workspace, tree)
	}
	if err := keepsSecrets(policy); err != nil {
		return nil, err
	}
	// Looking through PATH takes as long as all the rest, and the kernel is slow to
	// print its mounts while the copy makes some: side by side.
	changeable := func(dir string) bool { return policy.Decide(dir).Access >= profiles.Overlay }
	tools := make(chan Tools, 1)
	var table []byte
	var unread error
	go func() {
		table, unread = procfs.Read("/proc/self/mountinfo")
		tools <- Toolchains(ToolQuery{Path: o.Getenv("PATH"), Home: policy.Home, Workspace: policy.Workspace, Command: o.Command, Env: o.Getenv, Changeable: changeable})
	}()
	f := newFinder(policy)
	if o.Home != nil {
		f.layers = o.Home.Layers
	}
	f.own, f.earliest = o.Own, o.Earliest
	n := needs{f}
	f.runs()
	for _, home := range policy.Homes {
		f.rule(home)
	}
	for i := range policy.Files {
		if policy.Files[i].Glob == "" {
			f.rule(policy.Files[i].Path)
		}
	}
	f.tightening = true
	for i := range policy.Tighten {
		if r := &policy.Tighten[i]; r.Glob == "" && f.policy.Decide(r.Path).Rule.Origin == r.Origin { // else another is stricter
			f.rule(r.Path)
		}
	}
	f.tightening = false
	f.patterns(policy.Files)
	f.patterns(policy.Tighten)
	if f.err == nil {
		f.protected()
	}
	if f.err != nil {
		return nil, f.err
	}
	f.dotfiles()
	s.Query = workspace.Query{
		Root: policy.Workspace, Home: policy.Home, XDG: o.xdg(), Git: o.git(), Files: append(slices.Clip(policy.Files), restricting(policy.Tighten)...), Protect: append(slices.Clip(policy.Protect), f.led...), IndexDir: o.IndexDir, Launch: o.Launch,
		Single: func(path string) bool { return f.single[path] },
		Access: func(path string) profiles.Access { return policy.Decide(path).Access },
	}
	s.Trees = f.trees()
	for _, t := range s.Trees {
		if !t.State { // else more of a repository there may change
			s.Query.Trees = append(s.Query.Trees, t.Query.Root)
		}
	}
	if s.Workspace, err = workspace.Scan(s.Query); err != nil {
		return nil, err
	}
	f.workspace(s.Workspace)
	if f.git() {
		n.userGit(&o, s.Workspace)
	}
	if err := f.scanTrees(s.Workspace, s.Trees, &o); err != nil {
		return nil, err
	}
	needs := <-tools // and with it the table of mounts
	mounts := parseMountinfo(string(table))
	f.tools(needs, o.Command)
	if f.git() && len(s.Workspace.Programs) > 0 {
		f.tools(Toolchains(ToolQuery{Programs: s.Workspace.Programs, Home: policy.Home, Workspace: policy.Workspace, Env: o.Getenv, Changeable: changeable}), nil)
	}
	ci, notes := o.ofCI(policy, f.add)
	f.notes = append(f.notes, notes...)
	s.Env = slices.Concat(f.caches(needs.Caches, mounts), o.placed(policy, n.readable), o.settings(policy), o.ofHooks(policy, n.readable), ci, n.certificates(&o, s.Workspace), o.namedSockets(f.policy))
	n.cargo(&o)
	n.ssh(policy.Uses("ssh-agent"))
	if o.startsSSH(policy) {
		n.sshSystem()
	}
	n.trust()
	s.Traces, s.Signing = f.traces(), f.signing
	n.unsigned(&o, s.Traces)
	f.persistent(o.Home, o.pathDirs(), s.Traces, mounts)
	f.terminfo(o.Getenv)
	f.spelled(o.Getenv("HOME"))
	if pwd := o.Getenv("PWD"); f.spelled(pwd) && leadsTo(pwd, policy.WorkDir) {
		s.CallerPath = pwd
	}
	if o.Own != "" && policy.Decide(o.Own).Access >= profiles.Read {
		f.add(o.Own, profiles.Hide, "pccrun's own state")
	}
	if err := f.sockets(); err != nil {
		return nil, err
	}
	if unread != nil {
		return nil, unread
	}
	mountAliases{&f.paths, mounts}.hide()
	if os.Getuid() == 0 {
		if err := f.setIDs(); err != nil {
			return nil, err
		}
	}
	s.Named = f.namedDirectories(s.Workspace, o.Home)
	n.groupShared(s.Workspace)
	f.anchors()
	s.Unhidden = f.absent()
	if s.Folding = f.folds(); s.Folding.Dir == "" {
		s.Folding = foldsIn(s.Trees)
	}
	s.Places = f.places
	s.Texts = f.sshTexts
	s.Notes = f.notes
	return s, f.err
}

// NodeOf returns what a mode of stat(2) is of.
func NodeOf(mode uint32) Node {
	switch mode & unix.S_IFMT {
	case unix.S_IFREG:
		return File
	case unix.S_IFDIR:
		return Directory
	case unix.S_IFLNK:
		return Link
	}
	return Special
}

// A finder adds to [links] what the policy and this machine have beside links: rules, trees, tools, the home.
type finder struct {
	links
	layers   map[string]string // see [Home.Layers]
	signing  Signing
	sshTexts []Text // files of the system's that ssh takes from its user only
}

// newFinder returns a finder with room for what the rules name.
func newFinder(policy *profiles.Policy) *finder {
	n := len(policy.Files) + len(policy.Tighten)
	return &finder{links: links{paths: paths{
		policy: policy, places: make([]Place, 0, 2*n),
		seen: make(map[string]int, 2*n), dirs: make(map[string]inode, n), single: make(map[string]bool, n),
	}}}
}

// rule adds the place that a rule's path names, with the access that
// [profiles.Policy.Decide] gives it, and where it leads.
func (f *finder) rule(path string) {
	d := f.policy.Decide(path)
	if f.spelledInHome(path, &d) {
		return
	}
	if d.Access == profiles.Write && d.Rule.Path == path && path != f.policy.Workspace && Below(path, f.policy.Workspace) && strings.HasPrefix(d.Rule.Origin.Source, "built-in ") {
		if _, end, err := f.hops(path); err != nil || end.Path != path || end.Node == Absent {
			return // a link that has come since the policy was read says what it opens; nothing opens nothing
		}
	}
	f.resolve(path, d.Access, d.Rule.Origin.String(), 0)
	f.beyond(path)
	// A default for what an image lacks, such as /var/tmp, covers nothing.
	if i, ok := f.seen[path]; ok && f.places[i].Node == Absent && d.Access == profiles.Private && ByDefault(f.policy, path) && f.shown(filepath.Dir(path)) <= profiles.Read {
		f.places[i].Optional = true
		if path == f.policy.Home { // a user has none, and the place for it is private
			f.places[i].Node = Directory
		}
	}
	if i, ok := f.seen[path]; ok && f.err == nil && d.Access == profiles.Read && f.places[i].Node != File && path != f.policy.Home && Below(path, f.policy.Home) && ByDefault(f.policy, path) {
		if _, end, err := f.hops(path); err == nil && end.Node == Directory {
			f.inner(nil, end.Path, d.Rule.Origin.String())
		}
	}
}

func (f *paths) add(path string, access profiles.Access, why string) {
	f.resolve(path, access, why, 0)
}

// tools shows what the programs of PATH need, where nothing but the defaults
// hides it, and the command itself.
func (f *finder) tools(t Tools, command []string) {
	show := func(path, why string) {
		if f.policy.Decide(path).Access < profiles.Read && ByDefault(f.policy, path) {
			f.add(path, profiles.Read, why)
		}
	}
	for _, path := range command {
		show(path, "the command")
	}
	for _, tool := range t.Show {
		show(tool.Path, tool.Why)
	}
}

// workspace adds what the workspace has at the start: what is hidden by a
// pattern, and what a host tool would execute later.
func (f *finder) workspace(found *workspace.Found) {
	f.notes = append(f.notes, found.Notes...)
	// What the workspace holds, somebody in it may have put there: it only ever
	// takes away from what the policy says of a path.
	for _, n := range found.FIFOs {
		if d := f.policy.Decide(n.Path); d.Rule.Path != n.Path { // else it is named
			f.put(placeOf(n, Place{Access: f.atMost(n.Path, profiles.Hide), Optional: true, Why: FIFOHidden}))
		}
	}
	for _, m := range found.Matches {
		if d := f.policy.Decide(m.Path); d.Rule.Path == m.Path && d.Rule.Glob == "" && m.Target == "" {
			continue // the user has named it, which beats a pattern
		}
		if slices.ContainsFunc(f.policy.Network.Sockets, func(s profiles.PathRule) bool { return s.Path == m.Path && s.At == "" }) {
			continue // likewise
		}
		f.put(placeOf(m.Node, Place{Access: f.atMost(m.Path, m.Rule.Access), Why: m.Rule.Origin.String()}))
		if m.Kind == workspace.Dir && m.Rule.Access == profiles.Hide && m.Rule.Origin.BuiltIn() && nodeAt(m.Path+"/pyvenv.cfg") == File {
			f.notes = append(f.notes, m.Path+" is a virtual environment of Python, and is hidden for its name (to allow: --read "+shell.Quote(m.Path)+")")
		}
		if m.Target != "" && !f.leads(m) || m.Rule.Access >= profiles.Overlay {
			continue
		}
		for _, l := range m.Links { // as in [paths.resolve]
			f.put(placeOf(l, Place{Access: f.atMost(l.Path, m.Rule.Access), Why: m.Rule.Origin.String(), Pin: f.within(l.Path)}))
		}
	}
	for _, c := range found.Common {
		if !ByDefault(f.policy, c.Path) {
			continue
		}
		f.commons = append(f.commons, c.Path)
		if c.GitDir != c.Path { // that of a submodule is written as a whole
			f.add(c.Path, profiles.Read, WorktreeRepository)
		}
		// What the command does to the workspace it does to its repository.
		access := min(profiles.Write, max(profiles.Read, f.policy.Decide(f.policy.Workspace).Access))
		for _, path := range c.Write {
			if ByDefault(f.policy, path) {
				f.add(path, access, worktreeCommits)
			}
		}
	}
	for _, path := range found.Worktrees {
		const why = "the .git file of a worktree of this repository"
		if links, _, err := f.hops(path); err != nil || len(links) > 0 {
			f.lend(path, why)
		} else if ByDefault(f.policy, path) && f.policy.Decide(path).Access < profiles.Read && (f.own == "" || !Below(path, f.own)) {
			f.add(path, profiles.Read, why)
		}
	}
	f.pinned(found)
}

// restricting returns the rules that take something away. What else stands in a
// table that only tightens grants nothing.
func restricting(table []profiles.FileRule) []profiles.FileRule {
	return slices.DeleteFunc(slices.Clone(table), func(r profiles.FileRule) bool { return r.Access > profiles.Read })
}

// around returns what is allowed where a path lies: what the policy says, but in
// the repository of a worktree, which no rule names, what was just shown of it.
func (f *paths) around(path string) profiles.Access {
	for _, common := range f.commons {
		if !Below(path, common) || !ByDefault(f.policy, path) {
			continue
		}
		for dir := path; Below(dir, common); dir = filepath.Dir(dir) {
			if i, ok := f.seen[dir]; ok {
				return f.places[i].Access
			}
		}
	}
	return f.shown(path)
}

// shown returns what the command may do at a path: what the policy says, but where
// a link of a rule's path has led above it, what that rule says, and below what is
// protected that it is read.
func (f *paths) shown(path string) profiles.Access {
	d := f.policy.Decide(path)
	for dir := path; len(dir) >= len(d.Rule.Path) && dir != "/"; dir = filepath.Dir(dir) {
		if i, ok := f.seen[dir]; ok && f.places[i].Node != Absent && f.places[i].Node != Link {
			return f.places[i].Access
		}
	}
	return d.Access
}

// atMost returns an access, or what the policy says of the path if that is
// stricter.
func (f *paths) atMost(path string, access profiles.Access) profiles.Access {
	return min(access, f.policy.Decide(path).Access)
}

func placeOf(n workspace.Node, p Place) Place {
	p.Path, p.Dev, p.Ino = n.Path, Device(n.Dev), n.Ino
	switch n.Kind {
	case workspace.File:
		p.Node = File
	case workspace.Dir:
		p.Node = Directory
	case workspace.Link:
		p.Node = Link
	default:
		p.Node = Special
	}
	return p
}

// anchors pins the directories between what may be written and what may not:
// a directory that can be renamed away makes room for another of its name.
// That a rule names one of them with the access that it has anyway changes
// nothing.
func (f *finder) anchors() {
	done := map[string]bool{}
	for _, p := range f.places[:len(f.places):len(f.places)] {
		if p.Node == Absent || p.Access >= profiles.Overlay {
			continue
		}
		// The topmost of them is the root of a mount anyway.
		for dir := filepath.Dir(p.Path); dir != "/" && !done[dir] && f.shown(filepath.Dir(dir)) == profiles.Write; dir = filepath.Dir(dir) {
			done[dir] = true
			f.anchor(dir)
		}
	}
}

// patterns refuses rules whose pattern would have to be looked for outside the
// workspace: only that is walked, and a rule must not be half kept.
func (f *finder) patterns(table []profiles.FileRule) {
	for i := range table {
		r := &table[i]
		if r.Glob != "" && !Below(r.Path, f.policy.Workspace) && f.err == nil {
			f.err = hint.Errorf("name the directory itself: "+r.Path,
				"filesystem %s: patterns work only in the workspace (%s)", r.Text(), r.Origin)
		}
	}
}

// put adds a place, or makes the one that is there stricter.
func (f *paths) put(p Place) {
	if i, ok := f.seen[p.Path]; ok {
		if p.Access < f.places[i].Access {
			f.places[i].Access, f.places[i].Why = p.Access, p.Why
		}
		f.places[i].Pin = f.places[i].Pin || p.Pin
		f.places[i].Protect = f.places[i].Protect || p.Protect
		return
	}
	f.seen[p.Path] = len(f.places)
	f.places = append(f.places, p)
}
