// Package survey is what only this machine knows of a policy, read once and the same for
// every provider: what stands at the paths of its rules, where links lead, which repositories
// there are to protect, the toolchains of PATH, homes, sockets, certificates.
//
// The promise: [Look] changes nothing (but the index of a large workspace, which it keeps, and git's logs/),
// runs nothing, and says of each path of the policy what to do with it, or why the policy
// cannot be kept. A provider looks at a [Survey] alone, and at the machine no more.
package survey

import (
	"time"

	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/workspace"
)

// Survey is what only this machine knows, read once before the plan.
type Survey struct {
	Places   []Place
	Unhidden bool     // a path that a rule hides does not exist
	Folding  Folding  // a directory of the workspace that takes .GIT for .git
	Notes    []string // what the user should hear

	Env []Variable // what belongs to what the policy gives, where it says nothing of the variable

	Texts []Text // files of the system's that the command gets with the same content, as its own: ssh takes them from its user only

	CallerPath string // the current directory as the caller spells it, where links lead there; "" else

	Traces  []string // names in the home whose being looked for is told at the end
	Signing Signing  // likewise
	Named   []Named  // likewise, of what the workspace names

	Layout *Layout // nil for a provider that mounts

	Workspace *workspace.Found // what stands there
	Query     workspace.Query  // what it was asked
	Trees     []Tree           // what else the command may write
}

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

// Signing says what git lacks for commits that are to be signed, nothing where they are not.
type Signing struct {
	Dir   string // in the home, where it looks for keys; "" for elsewhere
	Flags string // with which they are signed
}

// NamedRemote begins what names a directory from which git fetches, and to which it pushes.
const NamedRemote = "which is the remote "

// Options says what a survey needs beside the policy.
type Options struct {
	IndexDir string              // where the scan of the workspace keeps what it saw; "" for nowhere
	Getenv   func(string) string // the host's environment
	Environ  []string            // the same
	Launch   bool                // a run begins: see [workspace.Query]
	Network  bool                // hosts may be reached that the policy does not name
	Command  []string            // the files that the command's name stands for
	Home     *Home               // what stands at ~ where that is persistent; nil for a plan that is only looked at
	Own      string              // pccrun's own directory, which nothing inside may reach; "" for none
	Earliest func() time.Time    // when the first began of the other runs that go on; the zero time, and nil, for none
}

// A Named is a directory that the workspace names and the command does not see: it has one of its own in place of one above.
type Named struct {
	Path string // as the command looks it up
	By   string // what names it, for people
	In   string // the directory of its own
}

// A Node says what stands at a path.
type Node uint8

// The kinds of nodes that a plan tells apart.
const (
	Absent Node = iota
	File
	Directory
	Link
	Special // socket, FIFO or device
)

// A Place is a path at which access changes, as the survey found it.
type Place struct {
	Path        string
	Node        Node
	Dev         uint64 // major<<32 | minor of its file system
	Ino         uint64
	Link        string // Node == Link: its text
	Access      profiles.Access
	Pin         bool   // a mount of its own even where the access is that of its surroundings: it cannot be renamed away
	Protect     bool   // it belongs to what a host tool would execute later
	Optional    bool   // it may be gone, or out of the command's reach, by the time it is covered; or it need not be there at all
	Copied      bool   // the command gets a copy, with Text in it, where a private directory holds the name
	Kept        bool   // Copied: in a persistent home it is a file of that, see [homes.Home.GitConfig]
	Scratch     bool   // Access is Overlay, and what is changed is gone at exit
	Layer       string // Scratch: the directory of the host's that lies over it, "" for none: what an earlier run left
	PrivateCopy bool   // a pin of which the command gets a copy to change, with Text in it, where the plan has a place for one: see [PrivateCopy]
	Text        string
	Source      string // what of the host stands there, if it lies elsewhere: of a socket, or of a persistent home
	Why         string // the rule, for people
}

// A Text is a file with a content of its own.
type Text struct{ Path, Content string }

// A Variable is one that a run sets beside those of the policy.
type Variable struct {
	Entry string // NAME=VALUE
	Why   string
}

// A Home is the directory that stands at ~ where the policy has that persistent. It is the
// launcher's, and what earlier runs have left in it nobody outside goes by: names for mounts
// are made in it before the start.
type Home struct {
	Path     string            // absolute, without links
	Dev, Ino uint64            // as stat(2) has them
	Layers   map[string]string // by directory of the workspace, what earlier runs of its agent left there
}

// Folding is a directory in which .GIT is .git: of some file systems it is the
// whole of them (a share of Windows or macOS, vfat), of others a directory
// (ext4's chattr +F). Rules go by names as they are spelled.
type Folding struct {
	Dir     string // "" for none
	Covered bool   // the kernel folds the names itself: what is mounted on one is on all its spellings
}

// A Tree is a directory outside the workspace that the command may write on the
// host, and what stands there: a tool of the host may execute what it finds there.
type Tree struct {
	Query workspace.Query
	Found *workspace.Found

	// State is set for a directory in which a tool keeps its own files, such as a cache. Names mean nothing there, so
	// none is protected but in git's repositories: git is run in them.
	State bool
}

// WorktreeRepository is why the repository of a workspace that is a linked worktree is shown.
const WorktreeRepository = "the repository of this worktree"

// Less orders paths so that each directory comes right before what is in it.
func Less(a, b string) int {
	for i := 0; i < len(a) && i < len(b); i++ {
		x, y := a[i], b[i]
		if x == y {
			continue
		}
		if x == '/' {
			return -1
		}
		if y == '/' {
			return 1
		}
		return int(x) - int(y)
	}
	return len(a) - len(b)
}

// Below reports whether path is dir or lies in it.
func Below(path, dir string) bool {
	return dir == "/" || path == dir || len(path) > len(dir) && path[len(dir)] == '/' && path[:len(dir)] == dir
}

// ByDefault reports whether no rule of the user's own decides on a path.
func ByDefault(policy *profiles.Policy, path string) bool {
	d := policy.Decide(path)
	return d.Rule.Glob == "" && (d.Rule.Origin.BuiltIn() || d.Access == profiles.Persist || d.Rule.Path == policy.Home && homeFlag(d.Rule.Origin))
}

// homeFlag reports whether a rule says no more than what sort of home there is.
func homeFlag(o profiles.Origin) bool {
	return o.Source == "flag" && (o.Key == "--home" || o.Key == "--fresh-home") || o.Source == "environment"
}
