package filesync

import (
	"io/fs"
	"strings"

	"github.com/pccrun/pccrun/workspace"
	"github.com/pccrun/pccrun/workspace/gitdir"
	"github.com/pccrun/pccrun/workspace/vcs"
)

// config is the shape of a repository's configuration: git starts nothing for it, and looks nowhere else.
var config = gitdir.Entry{Verdict: gitdir.Keep, Limit: vcs.MaxConfig, Sound: func(b []byte, _ vcs.Format) bool {
	_, dropped, ok := vcs.Strip(b, func(s *vcs.Setting) bool { return !s.Inert() || s.Places() })
	return ok && len(dropped) == 0
}}

// sound reports whether a file has the shape that its name asks for. By what objects are named in the repository is
// not known here.
func sound(e *gitdir.Entry, rest string, b []byte) bool {
	if rest == "packed-refs" {
		odd, ok := gitdir.OddRefs(b)
		return ok && len(odd) == 0
	}
	return e.Sound(b, vcs.FormatSHA1) || e.Sound(b, vcs.FormatSHA256)
}

// inGit cuts a path behind the first .git in it, and reports whether there is one.
func inGit(rel string) (rest string, in bool) {
	if rel == ".git" {
		return "", true
	}
	if rest, in = strings.CutPrefix(rel, ".git/"); in {
		return rest, true
	}
	if _, rest, in = strings.Cut(rel, "/.git/"); in {
		return rest, true
	}
	return "", strings.HasSuffix(rel, "/.git")
}

// gitTrouble says why a member does not belong into a .git directory, and returns the
// shape that it has, if it is a file whose content is to be judged. Nothing is taken that is under way, or leads
// to what others have there.
func gitTrouble(rest string, kind workspace.Kind) (*gitdir.Entry, string) {
	const foreign = "git keeps nothing of that name, or nothing that may come from elsewhere"
	mode := fs.FileMode(0)
	switch kind {
	case workspace.Link:
		return nil, "git follows links in its own directory"
	case workspace.Dir:
		mode = fs.ModeDir
	}
	switch {
	case rest == "" && kind != workspace.Dir:
		return nil, "a .git that is no directory leads to another repository"
	case rest == "":
		return nil, ""
	case rest == "config" && kind == workspace.File:
		return &config, ""
	}
	e := gitdir.Judge(rest, mode, false)
	if e.Verdict != gitdir.Keep {
		return nil, foreign
	}
	return e, ""
}
