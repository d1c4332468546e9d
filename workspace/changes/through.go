package changes

import (
	"path/filepath"

	"github.com/pccrun/pccrun/workspace"
	"github.com/pccrun/pccrun/workspace/beneath"
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
	switch own := vcs.MetaOf(c.Path); {
	case vcs.InsideGit(dir): // see [Upper.inGit]
		return ""
	case own != "":
		if rest, in := beneath.Path(filepath.Join(root, own), end); !in || rest == "" {
			return vcs.ThroughVCS
		}
		return ""
	case vcs.InsideGit(end[1:]) && !vcs.Annexed(end):
		return vcs.IntoGit
	}
	return ""
}
