package namespaces

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/internal/procfs"
	"github.com/pccrun/pccrun/namespaces/network"
	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/workspace"
	"github.com/pccrun/pccrun/workspace/vcs"
)

// Survey is what only this machine knows, read once before the plan.
type Survey struct {
	Identity    Identity
	Places      []Place
	Landlock    int                 // ABI version, 0 where the kernel has none
	Readable    []Readable          // under strict: see [Plan.Readable]
	Texts       []Mount             // files that have a content of their own inside
	Files, Core unix.Rlimit         // the caller\'s own limits of open files and core dumps
	Pending     unix.Rlimit         // and of signals that wait, and timers
	Limits      map[int]unix.Rlimit // what else of the caller's own is known, by resource
	Unhidden    bool                // a path that a rule hides does not exist
	Folding     Folding             // a directory of the workspace that takes .GIT for .git
	CoreHandler string              // see [Plan.CoreHandler]
	OOMScore    int                 // see [Plan.OOMScore]
	Notes       []string            // what the user should hear

	Env []Variable // what belongs to what the policy gives, where it says nothing of the variable

	GitTrace string // see [Plan.GitTrace]

	Spelled string // the current directory as the caller spells it, where links lead there; "" else

	Traces []string // names in the home whose being looked for is told at the end

	Workspace *workspace.Found // what stands there
	Query     workspace.Query  // what it was asked
	Trees     []Tree           // what else the command may write
}

// Identity is who the command is, outside and inside.
type Identity struct {
	HostUID, HostGID int  // in the host's user namespace
	UID, GID         int  // as the command sees itself
	Root             bool // pccrun was started as root and gives that up
}

// Options says what a survey needs beside the policy.
type Options struct {
	Within   time.Duration       // how long that scan may take; 0 for as long as it takes
	IndexDir string              // where the scan of the workspace keeps what it saw; "" for nowhere
	Getenv   func(string) string // the host's environment
	Environ  []string            // the same
	Network  bool                // hosts may be reached that the policy does not name
	Command  []string            // the files that the command's name stands for
	Home     *Home               // what stands at ~ where that is persistent; nil for a plan that is only looked at
	Own      string              // pccrun's own directory, which nothing inside may reach; "" for none
	Alone    bool                // nobody looks when the command is over: it is another's to run
	Earliest func() time.Time    // when the first began of the other runs that go on; the zero time, and nil, for none
}

// Look reads from the host what the plan of this policy needs to know.
func Look(policy *profiles.Policy, o Options) (*Survey, error) {
	s := &Survey{Identity: WhoAmI(), Landlock: landlockABI()}
	// Go raised the soft limit of open files at its start; the caller's shell
	// still has the one that the command should get.
	if unix.Prlimit(os.Getppid(), unix.RLIMIT_NOFILE, nil, &s.Files) != nil {
		if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &s.Files); err != nil {
			return nil, os.NewSyscallError("getrlimit", err)
		}
		s.Files.Cur = min(s.Files.Cur, 1024)
	}
	if err := unix.Getrlimit(unix.RLIMIT_CORE, &s.Core); err != nil {
		return nil, os.NewSyscallError("getrlimit", err)
	}
	if unix.Getrlimit(unix.RLIMIT_SIGPENDING, &s.Pending) != nil {
		s.Pending = unix.Rlimit{} // a kernel that has none bounds nothing
	}
	s.Limits = map[int]unix.Rlimit{unix.RLIMIT_CORE: s.Core}
	for _, resource := range [...]int{unix.RLIMIT_RTPRIO, unix.RLIMIT_NICE} {
		var limit unix.Rlimit
		if unix.Getrlimit(resource, &limit) == nil {
			s.Limits[resource] = limit
		}
	}
	var err error
	if s.OOMScore, err = oomScore("/proc/self/oom_score_adj"); err != nil {
		return nil, err
	}
	s.CoreHandler = coreHandler(readCorePattern(corePattern), s.Core.Max)
	if tree := kernelTree(policy.Workspace); tree != "" {
		return nil, fmt.Errorf("workspace %s: the sandbox has a %s of its own", policy.Workspace, tree)
	}
	if err := keepsSecrets(policy); err != nil {
		return nil, err
	}
	// Looking through PATH takes as long as all the rest, and the kernel is slow to
	// print its mounts while the copy makes some: side by side.
	tools := make(chan Tools, 1)
	var table []byte
	var unread error
	go func() {
		table, unread = procfs.Read("/proc/self/mountinfo")
		tools <- Toolchains(ToolQuery{Path: o.Getenv("PATH"), Home: policy.Home, Workspace: policy.Workspace, Command: o.Command, Env: o.Getenv, Changeable: func(dir string) bool {
			return policy.Decide(dir).Access >= profiles.Overlay
		}})
	}()
	f := newFinder(policy)
	f.own, f.earliest = o.Own, o.Earliest
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
		if r := &policy.Tighten[i]; r.Glob == "" && f.decider.Decide(r.Path).Rule.Origin == r.Origin { // else another is stricter
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
		Root: policy.Workspace, Home: policy.Home, XDG: o.xdg(), Git: o.git(), Path: o.path(policy.Workspace), Files: append(slices.Clip(policy.Files), restricting(policy.Tighten)...), Protect: append(slices.Clip(policy.Protect), f.led...), Distinct: len(f.led) == 0, IndexDir: o.IndexDir, Within: o.Within,
		Single: func(path string) bool { return f.single[path] },
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
	if err := f.aside(s.Trees, &o); err != nil {
		return nil, err
	}
	needs := <-tools // and with it the table of mounts
	mounts := parseMountinfo(string(table))
	f.tools(needs, o.Command)
	s.Env = slices.Concat(f.caches(needs.Caches, mounts), f.certificates(&o, s.Workspace), f.namedSockets(o.Environ))
	f.ssh(policy.Uses("ssh-agent"))
	f.trust()
	if f.hearsGit(s, &o) {
		s.GitTrace = gitTrace
		s.Env = append(s.Env, Variable{vcs.TraceVariable + "=" + gitTrace, "where git writes what it does, and the launcher reads which pinned files it could not change"})
	}
	s.Traces = traces(policy)
	f.persistent(o.Home, o.pathDirs(), s.Traces)
	f.terminfo(o.Getenv)
	f.spelled(o.Getenv("HOME"))
	if pwd := o.Getenv("PWD"); f.spelled(pwd) && leadsTo(pwd, policy.WorkDir) {
		s.Spelled = pwd
	}
	if o.Own != "" && policy.Decide(o.Own).Access >= profiles.Read {
		f.add(o.Own, profiles.Hide, "what pccrun keeps of its runs")
	}
	if err := f.sockets(); err != nil {
		return nil, err
	}
	if unread != nil {
		return nil, unread
	}
	f.aliases(mounts)
	if s.Identity.Root {
		if err := f.setIDs(); err != nil {
			return nil, err
		}
	}
	f.anchors()
	s.Unhidden = f.absent()
	if s.Folding = f.folds(); s.Folding.Dir == "" {
		s.Folding = foldsIn(s.Trees)
	}
	s.Places = f.places
	s.texts(policy)
	s.sshSystem(f.sshTexts)
	s.Notes = f.notes
	if policy.Strict && !policy.Nested && s.Landlock >= landlockRefer && f.err == nil {
		s.Readable, f.err = f.readable(s.Identity.Root)
	}
	return s, f.err
}

func nodeOf(mode uint32) Node {
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

// finder collects places; the first mistake wins.
type finder struct {
	policy   *profiles.Policy
	decider  *profiles.Decider // of the policy, once somebody has asked
	places   []Place
	roots    []string               // of trees that lie in another: mounts by which the launcher reaches them
	commons  []string               // git directories outside the workspace that are shown for it
	seen     map[string]int         // by path, index into places
	dirs     map[string]inode       // directories that are known, and no link is on the way to them
	single   map[string]bool        // files that have no other name, as known
	led      []profiles.ProtectRule // where links of protected names lead, beside those of the policy
	own      string                 // pccrun's own directory
	notes    []string
	sshTexts []Stub // files of the system's that ssh takes from its user only
	err      error

	tightening bool // the rule is of a table that opens nothing, wherever it leads

	earliest     func() time.Time // see [Options.Earliest]
	since, asked time.Time        // what it said, and when
}

// newFinder returns a finder with room for what the rules name.
func newFinder(policy *profiles.Policy) *finder {
	n := len(policy.Files) + len(policy.Tighten)
	return &finder{
		policy: policy, decider: policy.Decider(), places: make([]Place, 0, 2*n),
		seen: make(map[string]int, 2*n), dirs: make(map[string]inode, n), single: make(map[string]bool, n),
	}
}

// rule adds the place that a rule's path names, with the access that
// [profiles.Policy.Decide] gives it, and where it leads.
func (f *finder) rule(path string) {
	d := f.decider.Decide(path)
	if f.spelledInHome(path, &d) {
		return
	}
	if d.Access == profiles.Write && d.Rule.Path == path && path != f.policy.Workspace && below(path, f.policy.Workspace) && strings.HasPrefix(d.Rule.Origin.Source, "built-in ") {
		if _, end, err := f.hops(path); err != nil || end.Path != path {
			return // a link that has come since the policy was read says what it opens
		}
	}
	f.resolve(path, d.Access, d.Rule.Origin.String(), 0)
	f.beyond(path)
	// A default for what an image lacks, such as /var/tmp, covers nothing.
	if i, ok := f.seen[path]; ok && f.places[i].Node == Absent && d.Access == profiles.Private && f.byDefault(path) && f.shown(filepath.Dir(path)) <= profiles.Read {
		f.places[i].Optional = true
		if path == f.policy.Home { // a user has none, and the place for it is private
			f.places[i].Node = Directory
		}
	}
	if i, ok := f.seen[path]; ok && f.err == nil && d.Access == profiles.Read && f.places[i].Node != File && path != f.policy.Home && below(path, f.policy.Home) && f.byDefault(path) {
		if _, end, err := f.hops(path); err == nil && end.Node == Directory {
			f.inner(nil, end.Path, d.Rule.Origin.String())
		}
	}
}

func (f *finder) add(path string, access profiles.Access, why string) {
	f.resolve(path, access, why, 0)
}

// tools shows what the programs of PATH need, where nothing but the defaults
// hides it, and the command itself.
func (f *finder) tools(t Tools, command []string) {
	show := func(path, why string) {
		if f.decider.Decide(path).Access < profiles.Read && f.byDefault(path) {
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
		if d := f.decider.Decide(n.Path); d.Rule.Path != n.Path { // else it is named
			f.put(placeOf(n, Place{Access: f.atMost(n.Path, profiles.Hide), Optional: true, Why: "a FIFO, whose other end is outside"}))
		}
	}
	for _, m := range found.Matches {
		if d := f.decider.Decide(m.Path); d.Rule.Path == m.Path && d.Rule.Glob == "" && m.Target == "" {
			continue // the user has named it, which beats a pattern
		}
		f.put(placeOf(m.Node, Place{Access: f.atMost(m.Path, m.Rule.Access), Why: m.Rule.Origin.String()}))
		if m.Target != "" && !f.leads(m) || m.Rule.Access >= profiles.Overlay {
			continue
		}
		for _, l := range m.Links { // as in [finder.resolve]
			f.put(placeOf(l, Place{Access: f.atMost(l.Path, m.Rule.Access), Why: m.Rule.Origin.String(), Pin: f.within(l.Path)}))
		}
	}
	for _, c := range found.Common {
		if !f.byDefault(c.Path) {
			continue
		}
		f.commons = append(f.commons, c.Path)
		if c.GitDir != c.Path { // that of a submodule is written as a whole
			f.add(c.Path, profiles.Read, WorktreeRepository)
		}
		// What the command does to the workspace it does to its repository.
		access := min(profiles.Write, max(profiles.Read, f.decider.Decide(f.policy.Workspace).Access))
		for _, path := range c.Write {
			if f.byDefault(path) {
				f.add(path, access, "what a commit in this worktree writes")
			}
		}
	}
	for _, path := range found.Worktrees {
		const why = "the .git file of a worktree of this repository"
		if links, _, err := f.hops(path); err != nil || len(links) > 0 {
			f.lend(path, why)
		} else if f.byDefault(path) && f.decider.Decide(path).Access < profiles.Read && (f.own == "" || !below(path, f.own)) {
			f.add(path, profiles.Read, why)
		}
	}
	for _, path := range found.Beside {
		if f.git() {
			f.lend(path, "what your git configuration names")
		}
	}
	f.pinned(found)
}

// WorktreeRepository is why the repository of a workspace that is a linked worktree is shown.
const WorktreeRepository = "the repository of this worktree"

// restricting returns the rules that take something away. What else stands in a
// table that only tightens grants nothing.
func restricting(table []profiles.FileRule) []profiles.FileRule {
	return slices.DeleteFunc(slices.Clone(table), func(r profiles.FileRule) bool { return r.Access > profiles.Read })
}

// around returns what is allowed where a path lies: what the policy says, but in
// the repository of a worktree, which no rule names, what was just shown of it.
func (f *finder) around(path string) profiles.Access {
	for _, common := range f.commons {
		if !below(path, common) || !f.byDefault(path) {
			continue
		}
		for dir := path; below(dir, common); dir = filepath.Dir(dir) {
			if i, ok := f.seen[dir]; ok {
				return f.places[i].Access
			}
		}
	}
	return f.shown(path)
}

// shown returns what the command may do at a path: what the policy says, but where
// a link of a rule's path has led above it, what that rule says.
func (f *finder) shown(path string) profiles.Access {
	d := f.decider.Decide(path)
	for dir := path; len(dir) > len(d.Rule.Path) && dir != "/"; dir = filepath.Dir(dir) {
		if i, ok := f.seen[dir]; ok && f.places[i].Node != Absent && f.places[i].Node != Link {
			return f.places[i].Access
		}
	}
	return d.Access
}

// atMost returns an access, or what the policy says of the path if that is
// stricter.
func (f *finder) atMost(path string, access profiles.Access) profiles.Access {
	return min(access, f.decider.Decide(path).Access)
}

// byDefault reports whether no rule of the user's own decides on a path.
func (f *finder) byDefault(path string) bool {
	d := f.decider.Decide(path)
	return d.Rule.Glob == "" && (builtIn(d.Rule.Origin) || d.Access == profiles.Persist || d.Rule.Path == f.policy.Home && homeFlag(d.Rule.Origin))
}

func builtIn(o profiles.Origin) bool {
	return o.Source == "default" || strings.HasPrefix(o.Source, "built-in ")
}

// homeFlag reports whether a rule says no more than what sort of home there is.
func homeFlag(o profiles.Origin) bool {
	return o.Source == "flag" && (o.Key == "--home" || o.Key == "--fresh-home") || o.Source == "environment"
}

func placeOf(n workspace.Node, p Place) Place {
	p.Path, p.Dev, p.Ino = n.Path, device(n.Dev), n.Ino
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

// device turns st_dev into what statx(2) reports: major<<32 | minor.
func device(dev uint64) uint64 { return uint64(unix.Major(dev))<<32 | uint64(unix.Minor(dev)) }

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
		if r.Glob != "" && !below(r.Path, f.policy.Workspace) && f.err == nil {
			f.err = &PatternError{Rule: *r}
		}
	}
}

// A PatternError says that a pattern reaches beyond the workspace.
type PatternError struct{ Rule profiles.FileRule }

func (e *PatternError) Error() string {
	return fmt.Sprintf("filesystem %s: a pattern is looked for in the workspace only (%s)", e.Rule.Text(), e.Rule.Origin)
}

// Hint says what to do instead.
func (e *PatternError) Hint() string { return "name the directory itself: " + e.Rule.Path }

// put adds a place, or makes the one that is there stricter.
func (f *finder) put(p Place) {
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

// texts are the files of /etc that say who and where one is.
func (s *Survey) texts(policy *profiles.Policy) {
	s.text(policy, "/etc/hosts", "127.0.0.1 localhost "+Hostname+"\n::1 localhost ip6-localhost ip6-loopback\n")
	// Each name by which a machine can be told from another, in the form that programs expect.
	const machine = "70636372756e00000000000000000000\n"
	for _, path := range [...]string{"/etc/machine-id", "/var/lib/dbus/machine-id", "/var/db/dbus/machine-id", "/usr/local/etc/machine-id"} {
		s.text(policy, path, machine)
	}
	s.text(policy, "/etc/hostname", Hostname+"\n")
	s.text(policy, "/etc/machine-info", "\n")
	s.text(policy, "/etc/hostid", "pccr")
	s.text(policy, "/var/lib/cloud/data/instance-id", Hostname+"\n")
	if !policy.Nested { // else the kernel makes no /proc in a sandbox within this one
		s.text(policy, "/proc/sys/kernel/random/boot_id", "70636372-756e-4000-8000-000000000000\n")
	}
	// No search list: the host name has no domain, so there is none by
	// default either, and with "search ." musl finds no name of one label.
	if n := &policy.Network; len(n.Allow) > 0 || len(n.Local) > 0 {
		s.text(policy, "/etc/resolv.conf", "nameserver "+network.Resolver().String()+"\n")
	} else if !slices.Contains(policy.Without, profiles.LayerNetns) { // where no route leads elsewhere
		s.text(policy, "/etc/resolv.conf", "nameserver 127.0.0.1\n")
	}
	if id := s.Identity; id.Root {
		s.text(policy, "/etc/passwd", id.passwd("/etc/passwd", fmt.Sprintf("pccrun:x:%d:%d:pccrun:%s:/bin/bash", id.UID, id.GID, policy.Home)))
		s.text(policy, "/etc/group", id.passwd("/etc/group", fmt.Sprintf("pccrun:x:%d:", id.GID)))
	}
}

func (s *Survey) text(policy *profiles.Policy, path, text string) {
	var st unix.Stat_t
	if unix.Lstat(path, &st) != nil || policy.Decide(path).Access != profiles.Read {
		return
	}
	// A link, as resolv.conf often is one into /run, is covered itself.
	if n := nodeOf(st.Mode); n == File || n == Link {
		s.Texts = append(s.Texts, Mount{Kind: Text, Target: path, OverLink: n == Link, ReadOnly: true, Mode: 0o644, Text: text, Donated: -1, Why: "who and where the command is"})
	}
}
