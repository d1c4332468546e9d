package filesync

import (
	"context"
	"path"
	"slices"
	"strings"

	"github.com/pccrun/pccrun/workspace"
	"github.com/pccrun/pccrun/workspace/changes"
)

// A Manifest says what of a tree went up, and what did not. It is what decides later which of
// the names that come down may take a place.
type Manifest struct {
	Version int                          `json:"v"`
	Items   []Item                       `json:"items"` // by path, a directory right before what is in it
	Left    []Left                       `json:"left"`
	Ignore  map[string]map[string]string `json:"ignore"` // the texts of ignore files, by name and directory
}

const manifestVersion = 1

// An Item is what went up, as it stood then.
type Item struct {
	Path  string        `json:"path"` // relative to the top, "." for the top itself
	Entry changes.Entry `json:"entry"`
}

// A Left is what did not go up: a file, or a directory with all that is in it.
type Left struct {
	Path   string `json:"path"`
	Why    string `json:"why"`
	Size   int64  `json:"size,omitempty"` // of a file
	Secret bool   `json:"secret,omitempty"`
	Dir    bool   `json:"dir,omitempty"`

	notable bool
}

// Notable reports whether nobody could have expected that it stays: no list of the user's, and no
// list of names, says so.
func (l Left) Notable() bool { return l.notable }

// byPath returns the items by their paths.
func (m *Manifest) byPath() map[string]*Item {
	list := make(map[string]*Item, len(m.Items))
	for i := range m.Items {
		list[m.Items[i].Path] = &m.Items[i]
	}
	return list
}

// dirs returns the inodes of directories by their paths.
func (m *Manifest) dirs() map[string]uint64 {
	list := map[string]uint64{}
	for i := range m.Items {
		if e := &m.Items[i].Entry; e.Kind == workspace.Dir {
			list[m.Items[i].Path] = e.Stamp.Ino
		}
	}
	return list
}

// LeftOut returns by which line of an ignore file paths are left out, as the files were when all went up: what is new
// there need not be fetched. A directory's path ends in a slash, and not in the answer.
func (m *Manifest) LeftOut(ctx context.Context, git RunGit, paths []string) (map[string]string, error) {
	return m.leftOut(ctx, git, nil, paths)
}

// leftOut is LeftOut, by the files as they were or as they are now: a run that changed them can only have more left out.
func (m *Manifest) leftOut(ctx context.Context, git RunGit, now map[string]map[string]string, paths []string) (map[string]string, error) {
	return excludedBy(ctx, git, []map[string]map[string]string{m.Ignore, now}, paths)
}

// A Conflict is a change that does not come down.
type Conflict struct {
	Change changes.Change
	Why    string
}

// Judge says which changes may come down, of those between the tree on the host and the one that
// came back ([changes.Compare]). now are the texts of the ignore files as the run left them.
//
//   - What did not go up is not deleted by not coming back, and is never replaced.
//   - What went up and was changed on the host since is a conflict.
//   - What is new and left out by an ignore file, then or now, stays where it was made.
func (m *Manifest) Judge(ctx context.Context, git RunGit, set *changes.Set, now map[string]map[string]string) (kept changes.Set, withheld []Conflict, err error) {
	up := m.byPath()
	var added []string
	for _, c := range set.Changes {
		if c.Before == nil && up[c.Path] == nil {
			added = append(added, asked(c.Path, c.After.Kind == workspace.Dir))
		}
	}
	leftOut, err := m.leftOut(ctx, git, now, added)
	if err != nil {
		return kept, nil, err
	}
	kept = changes.Set{Root: set.Root, Lost: set.Lost}
	for _, c := range set.Changes {
		item := up[c.Path]
		why := ""
		switch {
		case c.Before != nil && item == nil:
			if c.After == nil {
				continue
			}
			why = "the host has a file there that was not uploaded"
		case c.Before == nil && item != nil:
			c.Conflict = "removed on the host since the upload"
		case item != nil:
			c.Conflict = changedSince(&item.Entry, c.Before)
		default:
			if line := leftOut[c.Path]; line != "" {
				why = "left out by " + line
			} else if i := slices.IndexFunc(m.Left, func(l Left) bool { return strings.HasPrefix(c.Path, l.Path+"/") }); i >= 0 {
				why = "it is in a directory that was not uploaded: " + m.Left[i].Path
			}
		}
		if why != "" {
			withheld = append(withheld, Conflict{c, why})
			continue
		}
		kept.Changes = append(kept.Changes, c)
	}
	kept, withheld = m.keepDirs(kept, withheld)
	return kept, withheld, nil
}

// asked is a path as git is asked about it.
func asked(rel string, isDir bool) string {
	if isDir {
		return rel + "/"
	}
	return rel
}

// keepDirs keeps a directory that has something in it which did not go up: it is not removed, nor
// replaced.
func (m *Manifest) keepDirs(set changes.Set, withheld []Conflict) (changes.Set, []Conflict) {
	stays := map[string]bool{}
	for _, l := range m.Left {
		for dir := l.Path; dir != "."; dir = path.Dir(dir) {
			stays[dir] = true
		}
	}
	set.Changes = slices.DeleteFunc(set.Changes, func(c changes.Change) bool {
		if c.Before == nil || c.Before.Kind != workspace.Dir || c.After != nil && c.After.Kind == workspace.Dir || !stays[c.Path] {
			return false
		}
		withheld = append(withheld, Conflict{c, "it has files that were not uploaded"})
		return true
	})
	return set, withheld
}

// changedSince says that what is there is not what went up, "" if it is.
func changedSince(then, now *changes.Entry) string {
	const changed = "changed on the host since the upload"
	switch {
	case then.Kind != now.Kind || then.Mode != now.Mode:
		return changed
	case then.Kind == workspace.Dir:
		return ""
	case then.Kind == workspace.Link && then.Target == now.Target:
		return ""
	case then.Size != now.Size || then.Target != now.Target || then.Stamp.Mtime != now.Stamp.Mtime || then.Stamp.Ctime != now.Stamp.Ctime || then.Stamp.Ino != now.Stamp.Ino:
		return changed
	}
	return ""
}
