package changes

import (
	"path/filepath"

	"github.com/pccrun/pccrun/workspace"
	"github.com/pccrun/pccrun/workspace/vcs"
)

// through says why a change that is a link is not to be made unasked, "" if it is. It goes
// by the names alone.
func through(root string, c *Change) string {
	if c.After == nil {
		return ""
	}
	if c.After.Kind != workspace.Link {
		return ""
	}
	dir, end := filepath.Dir(c.Path), c.After.Target
	if !filepath.IsAbs(end) {
		end = filepath.Join(root, dir, end)
	}
	end = filepath.Clean(end)
	if !vcs.InsideGit(dir) && vcs.InsideGit(end[1:]) && !vcs.Annexed(end) { // for the others see [Upper.inGit]
		return vcs.IntoGit
	}
	return ""
}
