package vcs

import (
	"path/filepath"
	"slices"
	"strings"
)

// What git writes in its own directory it writes through links: a log is appended to,
// a message and FETCH_HEAD are written anew, and a lock is taken, and renamed, where a
// link leads (lockfile.c). Much of what it writes somebody else has chosen: the names
// of branches, and the message that SQUASH_MSG holds ready. So a link there would have
// the host's git write into a start-up file, or into the configuration beside it.

// Why something in a repository's own directory is set aside.
const (
	IntoGit          = "it leads into a repository's own directory"
	ThroughGit       = "what is written to it goes where it leads: git follows links in its own directory"
	ThroughVCS       = "what is written to it goes where it leads, out of its repository"
	NotGits          = "git keeps no directory there, and nobody looks for a repository in it"
	HidesGit         = "it makes a repository of a directory that git keeps something else in"
	TooDeep          = "git keeps nothing that lies so deep"
	SaplingConfig    = "Sapling executes what its configuration names"
	JujutsuElsewhere = "Jujutsu reads a configuration where it leads"
	OldRemote        = "git takes a remote's address from it"
)

// others are the directories of other version control, whose programs write through
// links as git does.
var others = [...]string{".hg", ".sl", ".jj", ".svn", ".bzr", "_darcs", ".pijul"}

// MetaOf returns the part of a path that is some repository's own directory, "" if it
// is in none.
func MetaOf(rel string) string {
	for at := 0; at < len(rel); {
		end := at + strings.IndexByte(rel[at:]+"/", '/')
		if slices.Contains(others[:], rel[at:end]) {
			return rel[:end]
		}
		at = end + 1
	}
	return ""
}

// leanNames are what a repository of git can have of another's by a link, as
// git-new-workdir of git and repo make them: nobody opens anything in there by its name.
var leanNames = [...]string{"objects", "refs", "logs", "info", "packed-refs", "remotes", "rr-cache", "svn"}

// Refers reports whether a link in a repository's own directory is a reference, as git
// writes them with core.preferSymlinkRefs. Nothing is kept of what goes to /dev/null.
func Refers(text string) bool {
	return strings.HasPrefix(text, "refs/") && !strings.Contains(text+"/", "/../") || text == "/dev/null"
}

// LeansOn reports whether a link in a repository's own directory, which leads to end, is
// one that git follows to what another repository has by the same name. It writes there
// too, so that the other must be one that the command could write in itself.
func LeansOn(path, end string) bool {
	name, dir := filepath.Base(path), filepath.Dir(end)
	return slices.Contains(leanNames[:], name) && filepath.Base(end) == name && (InsideGit(dir[1:]) || strings.HasSuffix(dir, ".git"))
}

// Annexed reports whether a path lies in what git-annex keeps in a repository: what its
// working tree has of it are links, and it is searched as any directory is.
func Annexed(rel string) bool {
	_, rest, _ := strings.Cut("/"+rel+"/", "/.git/")
	return strings.HasPrefix(rest, "annex/") && !strings.Contains(rest, "/.git/")
}

// InsideGit reports whether a path is, or lies below, a directory named .git.
func InsideGit(rel string) bool {
	return strings.HasPrefix(rel+"/", ".git/") || strings.Contains(rel+"/", "/.git/")
}

// InsideModules reports whether a path lies where git keeps the repositories of
// submodules, by whatever names.
func InsideModules(rel string) bool { return strings.Contains("/"+rel+"/", "/.git/modules/") }

// OfSubmodule reports whether a path lies in the repository of a submodule, or of one of
// a linked worktree: git keeps each in the repository around.
func OfSubmodule(path string) bool {
	if InsideModules(path) {
		return true
	}
	_, rest, _ := strings.Cut("/"+path, "/.git/worktrees/")
	_, rest, _ = strings.Cut(rest, "/")
	return strings.HasPrefix(rest, "modules/")
}

// InsideStore reports whether a path lies in the objects, references or logs of
// something.
func InsideStore(rel string) bool {
	for _, name := range [...]string{"/objects/", "/refs/", "/logs/"} {
		if strings.Contains(rel+"/", name) {
			return true
		}
	}
	return false
}

// IsFan reports whether a name is one of the 256 over which git spreads its objects.
func IsFan(name string) bool {
	return len(name) == 2 && strings.Trim(name, "0123456789abcdef") == ""
}

// InFan reports whether a path leads to what git spreads its objects over, which is
// not read where programs keep repositories.
func InFan(rel string) bool {
	store := false
	for name := range strings.SplitSeq(rel, "/") {
		if store && IsFan(name) {
			return true
		}
		store = name == "objects"
	}
	return store
}

// IsLFSObject reports whether a path in the directory of git-lfs's objects is one where that
// looks for a file: its name is the hash of its content, and begins with those of its directories.
func IsLFSObject(rel string) bool {
	const digits = 64
	name := rel[strings.LastIndexByte(rel, '/')+1:]
	return len(name) == digits && strings.Trim(name, "0123456789abcdef") == "" && rel == name[:2]+"/"+name[2:4]+"/"+name
}
