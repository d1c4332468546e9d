package changes

import (
	"path/filepath"

	"github.com/pccrun/pccrun/workspace"
	"github.com/pccrun/pccrun/workspace/beneath"
	"github.com/pccrun/pccrun/workspace/vcs"
)

// through says why a change that is a link, or gives git the address of a remote, is not
// to be made unasked, "" if it is. It goes by the names alone.
func through(root string, c *Change) string {
	if c.After == nil {
		return ""
	}
	dir := filepath.Dir(c.Path)
	if name := filepath.Base(dir); c.After.Kind != workspace.Dir && (name == "remotes" || name == "branches") && vcs.InsideGit(filepath.Dir(dir)) && !vcs.InsideStore(c.Path) {
		return vcs.OldRemote
	}
	if c.After.Kind != workspace.Link {
		return ""
	}
	end := c.After.Target
	if !filepath.IsAbs(end) {
		end = filepath.Join(root, dir, end)
	}
	end = filepath.Clean(end)
	switch own := vcs.MetaOf(c.Path); {
	case vcs.InsideGit(dir):
		if _, in := beneath.Path(root, end); vcs.Refers(c.After.Target) || in && vcs.LeansOn(c.Path, end) {
			return ""
		}
		return vcs.ThroughGit
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
