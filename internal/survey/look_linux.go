package survey

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/internal/hint"
	"github.com/pccrun/pccrun/internal/procfs"
	"github.com/pccrun/pccrun/internal/shell"
	"github.com/pccrun/pccrun/internal/state"
	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/workspace"
	"github.com/pccrun/pccrun/workspace/vcs"
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
		Root: policy.Workspace, Home: policy.Home, XDG: o.xdg(), Git: vcs.Environment(o.Getenv), Files: append(slices.Clip(policy.Files), restricting(policy.Tighten)...), Protect: append(slices.Clip(policy.Protect), f.led...), IndexDir: o.IndexDir, Launch: o.Launch,
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
	if pwd := o.Getenv("PWD"); f.spelled(pwd) {
		if real, err := state.Real(pwd); err == nil && real == policy.WorkDir {
			s.CallerPath = pwd
		}
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
	s.Folding = f.folds(s.Trees)
	s.Places = f.places
	s.Texts = f.sshTexts
	s.Notes = f.notes
	return s, f.err
}

// rule adds the place that a rule's path names, with the access that
// [profiles.Policy.Decide] gives it, and where it leads.
func (f *finder) rule(path string) {
	d := f.policy.Decide(path)
	if f.spelledInHome(path, &d) {
		return
	}
	if opensNothing(&f.paths, path, &d) {
		return
	}
	f.add(path, d.Access, d.Rule.Origin.String())
	f.beyond(path)
	// A default for what an image lacks, such as /var/tmp, covers nothing.
	if i, ok := f.seen[path]; ok && f.places[i].Node == Absent && d.Access == profiles.Private && ByDefault(f.policy, path) && f.shown(filepath.Dir(path)) <= profiles.Read {
		f.places[i].Optional = true
		if path == f.policy.Home { // a user has none, and the place for it is private
			f.places[i].Node = Directory
		}
	}
	if i, ok := f.seen[path]; ok && f.err == nil && d.Access == profiles.Read && f.places[i].Node != File && f.places[i].Node != Absent && path != f.policy.Home && Below(path, f.policy.Home) && ByDefault(f.policy, path) {
		if _, end, err := f.hops(path); err == nil && end.Node == Directory {
			f.inner(nil, end.Path, d.Rule.Origin.String())
		}
	}
}

// workspace adds what the workspace has at the start: what is hidden by a
// pattern, and what a host tool would execute later.
func (f *finder) workspace(found *workspace.Found) {
	f.notes = append(f.notes, found.Notes...)
	for path, node := range found.Holding {
		f.dirs[path] = inode{Device(node[0]), node[1]}
	}
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
		for _, l := range m.Links { // as in [paths.add]
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

// keepsSecrets refuses a workspace that is a directory of secrets, which the command could read and
// change: somebody may have led there by a link. A repository of its own within is one
// that somebody works in, such as ~/.config/nvim.
func keepsSecrets(policy *profiles.Policy) error {
	for _, s := range profiles.SecretPlaces {
		dir := policy.Home + "/" + s.Name
		if !Below(policy.Workspace, dir) {
			continue
		}
		var st unix.Stat_t
		if policy.Workspace == dir || unix.Lstat(policy.Workspace+"/.git", &st) != nil {
			return hint.Errorf("cd to a project; --read or --write DIR shows another directory",
				"workspace %s: %s keeps secrets and configuration of other programs", policy.Workspace, dir)
		}
	}
	return nil
}

// absent names the paths that the user wants hidden, or kept from writing, or
// shown by a flag, which may be mistyped (a profile of his own may be for several
// machines), and that do not exist. A mount needs something to cover: if they appear during
// the run they are what their directory is. It reports whether one was to be
// hidden. In a directory that is hidden or private itself nothing of the host's
// appears. What is protected is quarantined.
func (f *finder) absent() (hidden bool) {
	for _, p := range f.places {
		if p.Node != Absent || p.Protect || ByDefault(f.policy, p.Path) {
			continue
		}
		around := f.policy.Decide(filepath.Dir(p.Path)).Access
		switch {
		case p.Access == profiles.Hide && around >= profiles.Read:
			hidden = true
			f.notes = append(f.notes, p.Path+" does not exist; if it appears during the run it is not hidden ("+p.Why+")")
		case p.Access == profiles.Read && around <= profiles.Read && f.policy.Decide(p.Path).Rule.Origin.Source == "flag":
			f.notes = append(f.notes, p.Path+" does not exist and is not shown ("+p.Why+")")
		case p.Access == profiles.Read && around > profiles.Read:
			f.notes = append(f.notes, p.Path+" does not exist; the command can create and write it ("+p.Why+")")
		}
	}
	return hidden
}
