package workspace

import (
	"time"

	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/workspace/beneath"
	"github.com/pccrun/pccrun/workspace/vcs"
)

// ErrTooMuch is returned when the content of a workspace asks for more work
// than a launch may take. The error that wraps it names the path.
var ErrTooMuch = beneath.ErrTooMuch

// A Query says where to look, and for what.
type Query struct {
	Root string // the workspace: a directory; absolute, clean, without symbolic links
	Home string // whose git configuration counts beside that of the repositories; "" for none
	XDG  string // where its programs keep theirs ($XDG_CONFIG_HOME), if that is not .config in it; absolute

	// Git is what the user's environment says to his git ([vcs.Environment]).
	Git []vcs.Variable

	// Launch says that a run begins, for which the directory of git's logs is made where a repository has none.
	Launch bool

	// Files is the policy's file table; rules that do not concern Root cost
	// next to nothing. Rules with a glob are what is looked for; those without
	// say which directories the payload will not see, so that they are not
	// searched for what only matters where it can be reached.
	Files []profiles.FileRule

	// Access says what the policy allows of a path, of which no rule here speaks; nil for nothing.
	Access func(path string) profiles.Access

	// Single reports of a path that somebody has just looked there, through no link,
	// and has seen a file without another name; nil if nobody has. A rule's own
	// file is then not looked at again.
	Single func(path string) bool

	// Protect names files beyond those of git, which are always looked for:
	// the package's own rules have the patterns .git/hooks, .git/config,
	// .git/config.worktree, .git/commondir and .git/info/attributes, and a
	// rule here with such a pattern and Review set moves them to
	// [Found.Review]. Of two rules with one pattern the one that denies counts. The list is
	// kept, not copied: nobody changes it from here on.
	Protect []profiles.ProtectRule

	// Trees are directories that the command may write as well, of which each is looked
	// through by itself, as the workspace is.
	Trees []string

	// Main is what was found in the workspace, for a directory beside it in which worktrees of its repositories may lie.
	Main *Found

	// Aside is set for a directory beside the workspace that the command may write as
	// well: where a .git file in its root leads is shown by no one for it.
	Aside bool

	// Kept is set for one that programs fill by themselves, in which no name but those
	// of git counts: what a store of git's objects holds is not searched there, in
	// whatever repository.
	Kept bool

	// IndexDir is a directory outside the workspace, owned by the user and
	// writable by nobody else, that keeps what the last scan saw, so that the
	// next one reads only directories that changed. "" scans all. It is made
	// if it does not exist; what in it is damaged or not the user's is ignored.
	// What is Aside may hold it, as the caller keeps the command away from it.
	IndexDir string
}

// A Kind is what a path is, itself.
type Kind = beneath.Kind

// The kinds.
const (
	File    = beneath.File
	Dir     = beneath.Dir
	Link    = beneath.Link
	Special = beneath.Special
)

// A Node is one file as the scan saw it.
type Node struct {
	Path string // absolute and clean; no component but the last is a symbolic link
	Kind Kind
	Dev  uint64 // as st_dev
	Ino  uint64
}

// A Pin is something that must be read-only inside, with all below it, and
// must stay where it is.
//
// A pin whose kind is Link can be mounted on itself: open_tree(2) with
// OPEN_TREE_CLONE and AT_SYMLINK_NOFOLLOW, move_mount(2) without
// MOVE_MOUNT_T_SYMLINKS. It then works as before, and renaming or unlinking it
// is EBUSY.
type Pin struct {
	Node
	Why    string          // the pattern that it matches, or what names it
	Origin profiles.Origin // zero for the package's own rules

	// Private is set where the command is to have a copy of its own, with Text in it, in which git
	// may write: of a configuration of git, and of the .git file of a submodule's working tree,
	// which git writes anew whenever it updates that. Not of one of [gitconfig.MaxSize] or more, nor behind 1,024
	// others or 2 MiB of them.
	Private bool
	Text    string
}

// Unlisted is the Why of a pinned directory of which nobody could say what is
// in it: it must not be seen inside at all.
const Unlisted = "a directory that cannot be listed"

// A Match is what a glob of the file table matches, or another name of it.
type Match struct {
	Node
	Rule   profiles.FileRule
	Target string // of a link: where it leads, if that exists; absolute
	Why    string // "" for a match by name, else e.g. "same file as /w/.env"
	Links  []Node // those in the workspace by which a name that matches led there: without them, it would not
}

// A Spared file matches a hiding glob and is left alone all the same.
type Spared struct {
	Path  string
	Rule  profiles.FileRule
	Cause string
}

// A Reviewed file may change, and is reported at exit if it did: if it is gone,
// is another file, or has a ctime that is not before [Found.Start]. No program
// can set a ctime.
type Reviewed struct {
	Node
	Why    string // the pattern that it matches
	Origin profiles.Origin
}

// A Common is a git directory outside the workspace that the workspace's own
// .git file points to, and that points back: the repository of a linked
// worktree, or the directory of a submodule. What must stay as it is in there
// is among [Found.Pins].
type Common struct {
	Path   string   // the repository's directory, shown read-only
	GitDir string   // the worktree's own part of it; equal to Path for a submodule
	Write  []string // what a commit writes: existing directories in Path

	format vcs.Format // of its objects' names
	sure   bool       // its configuration leaves no doubt of that
}

// Stats says what a scan cost.
type Stats struct {
	Dirs    int // directories that the workspace has, as far as they were searched
	Read    int // directories that were read; the others were as the index has them
	Entries int // directory entries that were looked at
}

// Found is what [Scan] found. All lists are sorted by path, and no path stands
// twice in one of them.
type Found struct {
	Start time.Time // just before the scan looked at anything

	Pins    []Pin
	Matches []Match
	Review  []Reviewed
	FIFOs   []Node   // whose other ends are outside
	Leads   []string // links at the top, and those of node_modules that lead out
	Spared  []Spared

	// Anchors are the directories between Root, or Common.Path, and a pin:
	// each must be a mount point of its own, writable, so that it cannot be
	// renamed away to make room for another. They come before what lies below.
	Anchors []string

	// Holding are directories, by device and inode, in which a pin or a match is.
	Holding map[string][2]uint64

	// Vacant are names that are protected and do not exist, and that no pattern
	// finds: in the git directories, inside the workspace or not, and at the end of
	// links that lead nowhere.
	Vacant []string

	// Away are links, protected or in what is, that lead out of the workspace.
	Away []string

	// Outside are the files and directories outside the workspace that the user's own
	// configuration of git names, as far as git reads them, or runs hooks from there:
	// absolute, and they need not exist.
	Outside []string

	// Programs are the files outside that it has git start, as absolute paths.
	Programs []string

	// Certificates are the files of certificate authorities that it names.
	Certificates []string

	// Worktrees are the .git files of working trees outside whose repository lies in
	// the workspace, as it spells their paths, and which lead back to it: git takes one
	// that it does not see for gone, and removes what the repository has of it.
	Worktrees []string

	Common []Common
	Notes  []string // what a user should hear: a .git file that points to what does not point back, …
	Stats  Stats

	forGuard guardInput // for a look after the run
}
