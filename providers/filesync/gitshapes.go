package filesync

import (
	"bytes"
	"regexp"
	"strings"

	"github.com/pccrun/pccrun/workspace"
	"github.com/pccrun/pccrun/workspace/vcs"
)

// A gitShape is one kind of file that git itself makes in a repository's own directory.
type gitShape struct {
	path  *regexp.Regexp
	sound func(b []byte) bool // nil: any content
	limit int64               // of what is read to judge it
}

const (
	gitHash  = `(?:[0-9a-f]{40}|[0-9a-f]{64})`
	gitName  = `[^\x00-\x20\x7f~^:?*\[\\/.-][^\x00-\x20\x7f~^:?*\[\\/$;&|<>` + "`" + `"'(){}!]*`
	maxState = 1 << 20
)

// gitShapes are all of them. There is no link among them, and nothing that git executes, or
// that leads it elsewhere: hooks, alternates, grafts, a rebase in progress, directories of others.
var gitShapes = []gitShape{
	{shape(`HEAD`), matching(`ref: refs/heads/` + gitName + `(?:/` + gitName + `)*\n|` + gitHash + `\n`), maxState},
	{shape(`(?:ORIG_HEAD)`), matching(gitHash + `\n`), maxState},
	{shape(`refs/(?:heads|tags|remotes|notes)/` + gitName + `(?:/` + gitName + `)*`), soundRef, maxState},
	{shape(`refs/stash`), matching(gitHash + `\n`), maxState},
	{shape(`packed-refs`), soundPackedRefs, 64 << 20},
	{shape(`config`), soundConfig, vcs.MaxConfig},
	{shape(`index|sharedindex\.` + gitHash), soundIndex, vcs.MaxGitIndex},
	{shape(`shallow`), matching(`(?:` + gitHash + `\n)*`), 64 << 20},
	{path: shape(`FETCH_HEAD|COMMIT_EDITMSG|SQUASH_MSG|MERGE_MSG|MERGE_MODE|AUTO_MERGE|description|info/exclude`)},
	{path: shape(`hooks/[a-z-]+\.sample`)},
	{path: shape(`logs/(?:HEAD|refs/(?:stash|(?:heads|tags|remotes|notes)/` + gitName + `(?:/` + gitName + `)*))`)},
	{path: shape(`objects/[0-9a-f]{2}/(?:[0-9a-f]{38}|[0-9a-f]{62})`)},
	{path: shape(`objects/pack/pack-` + gitHash + `\.(?:pack|idx|rev|mtimes|keep|promisor)`)},
	{path: shape(`lfs/objects/[0-9a-f]{2}/[0-9a-f]{2}/[0-9a-f]{64}`)},
	{path: shape(`reftable/(?:tables\.list|0x[0-9a-f]+-0x[0-9a-f]+-[0-9a-f]+\.ref)`)},
}

// gitDirs are the directories that these lie in, and those that git makes empty.
var gitDirs = shape(`branches|hooks|info|objects|objects/info|objects/pack|objects/[0-9a-f]{2}|reftable|lfs(?:/(?:tmp|objects(?:/[0-9a-f]{2}){0,2}))?` +
	`|(?:logs/)?refs(?:/(?:heads|tags|remotes|notes)(?:/` + gitName + `)*)?|logs`)

func shape(text string) *regexp.Regexp { return regexp.MustCompile(`^(?:` + text + `)$`) }

func matching(text string) func([]byte) bool {
	re := regexp.MustCompile(`^(?:` + text + `)$`)
	return re.Match
}

var soundRefText = matching(`ref: refs/(?:heads|tags|remotes)/` + gitName + `(?:/` + gitName + `)*\n|` + gitHash + `\n`)

func soundRef(b []byte) bool { return soundRefText(b) }

var packedLine = matching(gitHash + ` refs/(?:stash|(?:heads|tags|remotes|notes)/` + gitName + `(?:/` + gitName + `)*)|\^` + gitHash + `|#.*`)

func soundPackedRefs(b []byte) bool {
	for line := range bytes.Lines(b) {
		line, whole := bytes.CutSuffix(line, []byte{'\n'})
		if !whole || !packedLine(line) {
			return false
		}
	}
	return true
}

// soundConfig reports whether git starts nothing for a configuration, and looks nowhere else.
func soundConfig(b []byte) bool {
	_, dropped, ok := vcs.Strip(b, func(s *vcs.Setting) bool { return !s.Inert() || s.Places() })
	return ok && len(dropped) == 0
}

func soundIndex(b []byte) bool {
	return vcs.SoundIndex(b, vcs.FormatSHA1) || vcs.SoundIndex(b, vcs.FormatSHA256)
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

// gitTrouble says why a member does not belong into a repository's own directory, and returns the
// shape that it has, if it is a file whose content is to be judged.
func gitTrouble(rest string, kind workspace.Kind) (*gitShape, string) {
	const foreign = "git keeps nothing of that name, or nothing that may come from elsewhere"
	switch {
	case kind == workspace.Link:
		return nil, "git follows links in its own directory"
	case rest == "":
		if kind != workspace.Dir {
			return nil, "a .git that is no directory leads to another repository"
		}
		return nil, ""
	case strings.HasSuffix(rest, ".lock") || strings.Contains(rest, ".lock/") || strings.Contains(rest, "..") || strings.Contains(rest, "@{"):
		return nil, foreign
	case kind == workspace.Dir:
		if !gitDirs.MatchString(rest) {
			return nil, foreign
		}
		return nil, ""
	}
	for i := range gitShapes {
		if gitShapes[i].path.MatchString(rest) {
			return &gitShapes[i], ""
		}
	}
	return nil, foreign
}
