package workspace

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
	intoGit     = "it leads into a repository's own directory"
	throughGit  = "what is written to it goes where it leads: git follows links in its own directory"
	throughVCS  = "what is written to it goes where it leads, out of its repository"
	notGits     = "git keeps no directory there, and nobody looks for a repository in it"
	hidesGit    = "it makes a repository of a directory that git keeps something else in"
	tooDeep     = "git keeps nothing that lies so deep"
	slConfig    = "Sapling executes what its configuration names"
	jjElsewhere = "Jujutsu reads a configuration where it leads"
	oldRemote   = "git takes a remote's address from it"
)

// others are the directories of other version control, whose programs write through
// links as git does.
var others = [...]string{".hg", ".sl", ".jj", ".svn", ".bzr", "_darcs", ".pijul"}

// metaOf returns the part of a path that is some repository's own directory, "" if it
// is in none.
func metaOf(rel string) string {
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

// refers reports whether a link in a repository's own directory is a reference, as git
// writes them with core.preferSymlinkRefs. Nothing is kept of what goes to /dev/null.
func refers(text string) bool {
	return strings.HasPrefix(text, "refs/") && !strings.Contains(text+"/", "/../") || text == "/dev/null"
}

// leansOn reports whether a link in a repository's own directory, which leads to end, is
// one that git follows to what another repository has by the same name. It writes there
// too, so that the other must be one that the command could write in itself.
func leansOn(path, end string) bool {
	name, dir := filepath.Base(path), filepath.Dir(end)
	return slices.Contains(leanNames[:], name) && filepath.Base(end) == name && (insideGit(dir[1:]) || strings.HasSuffix(dir, ".git"))
}

// through says why a change that is a link, or gives git the address of a remote, is not
// to be made unasked, "" if it is. It goes by the names alone.
func through(root string, c *Change) string {
	if c.After == nil {
		return ""
	}
	dir := filepath.Dir(c.Path)
	if name := filepath.Base(dir); c.After.Kind != Dir && (name == "remotes" || name == "branches") && insideGit(filepath.Dir(dir)) && !insideStore(c.Path) {
		return oldRemote
	}
	if c.After.Kind != Link {
		return ""
	}
	end := c.After.Target
	if !filepath.IsAbs(end) {
		end = filepath.Join(root, dir, end)
	}
	end = filepath.Clean(end)
	switch own := metaOf(c.Path); {
	case insideGit(dir):
		if _, in := below(root, end); refers(c.After.Target) || in && leansOn(c.Path, end) {
			return ""
		}
		return throughGit
	case own != "":
		if rest, in := below(filepath.Join(root, own), end); !in || rest == "" {
			return throughVCS
		}
		return ""
	case insideGit(end[1:]) && !annexed(end):
		return intoGit
	}
	return ""
}

// annexed reports whether a path lies in what git-annex keeps in a repository: what its
// working tree has of it are links, and it is searched as any directory is.
func annexed(rel string) bool {
	_, rest, _ := strings.Cut("/"+rel+"/", "/.git/")
	return strings.HasPrefix(rest, "annex/") && !strings.Contains(rest, "/.git/")
}

// insideGit reports whether a path is, or lies below, a directory named .git.
func insideGit(rel string) bool {
	return strings.HasPrefix(rel+"/", ".git/") || strings.Contains(rel+"/", "/.git/")
}

// insideModules reports whether a path lies where git keeps the repositories of
// submodules, by whatever names.
func insideModules(rel string) bool { return strings.Contains("/"+rel+"/", "/.git/modules/") }

// insideStore reports whether a path lies in the objects, references or logs of
// something.
func insideStore(rel string) bool {
	for _, name := range [...]string{"/objects/", "/refs/", "/logs/"} {
		if strings.Contains(rel+"/", name) {
			return true
		}
	}
	return false
}
