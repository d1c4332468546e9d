package remote

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/pccrun/pccrun/providers/filesync"
	"github.com/pccrun/pccrun/providers/inside"
	"github.com/pccrun/pccrun/workspace"
	"github.com/pccrun/pccrun/workspace/changes"
)

// listing is what stands in the copy, as pccrun there lists it. The command may have written it where nothing keeps it
// from pccrun's own files: all that it can do so is to keep its own changes from being fetched.
type listing struct {
	Entries entries `json:"entries"`
	Reflog  int64   `json:"reflog"` // how long the log of HEAD is in the copy's repository

	of map[string]entry
}

// listed is a path with what stands there.
type listed struct {
	Path inside.Text `json:"p"`
	entry
}

// entry is all that tells one state of a path from another.
type entry struct {
	Kind     workspace.Kind `json:"k"`
	Mode     uint32         `json:"m"`
	Size     int64          `json:"s"`
	Inode    uint64         `json:"i"`
	Modified int64          `json:"t"` // nanoseconds
	Changed  int64          `json:"c"`
	Target   inside.Text    `json:"l,omitempty"` // of a link

	Names int    `json:"n,omitempty"`   // with sums: hard links all
	Sum   string `json:"sum,omitempty"` // of a file
}

// The bounds of a path in a listing: how deep [list] goes down, and as many of the longest names.
const (
	maxListedDepth = 4096
	maxListedPath  = maxListedDepth << 8
)

// entries are those of a listing.
type entries []listed

// maxListed is how many entries a listing may have: a few bytes of text, such as "{},", take a hundred times as many here.
const maxListed = 1 << 20

// UnmarshalJSON refuses more than a listing may have.
func (l *entries) UnmarshalJSON(text []byte) error { return l.read(text, maxListed) }

// read counts the entries, whose text is valid, before it takes them in, and takes no more than most.
func (l *entries) read(text []byte, most int) error {
	n, depth, quoted := 1, 0, false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '[' || c == '{':
			depth++
		case c == ']' || c == '}':
			depth--
		case c == ',' && depth == 1:
			n++
		}
	}
	if n > most {
		return fmt.Errorf("it has more than %d names", most)
	}
	return json.Unmarshal(text, (*[]listed)(l))
}

// index finds entries by their paths.
func (l *listing) index() error {
	l.of = make(map[string]entry, len(l.Entries))
	for i, e := range l.Entries {
		name := string(e.Path)
		if name == "" || path.IsAbs(name) || path.Clean(name) != name || name == "." || name == ".." || strings.HasPrefix(name, "../") || strings.Contains(name, "\x00") ||
			len(name) > maxListedPath || strings.Count(name, "/") > maxListedDepth {
			return fmt.Errorf("entry %d of the list is invalid", i)
		}
		l.of[name] = e.entry
	}
	return nil
}

// isDir reports whether a path is a directory.
func (l *listing) isDir(name string) bool {
	e, stands := l.of[name]
	return stands && e.Kind == workspace.Dir
}

// asked is a path as ignore files are asked about it.
func (l *listing) asked(name string) string {
	if l.isDir(name) {
		return name + "/"
	}
	return name
}

// A difference is what has to be fetched of what stands there now, and what is not.
type difference struct {
	after *listing
	ask   map[string]bool // with all directories around each
	gone  []string        // the outermost only
	stays []string        // made there, and left out by an ignore file; a directory with all in it
	git   []string        // repositories that were made there
	odd   []string        // sockets, FIFOs and devices
}

// names are what is asked for, a directory before what is in it.
func (d *difference) names() []string {
	return slices.SortedFunc(maps.Keys(d.ask), changes.ComparePaths)
}

// compare compares two listings. What an earlier command made and git ignores may be there, and was not sent.
func compare(ctx context.Context, git filesync.RunGit, before, after *listing, m *filesync.Manifest) (*difference, error) {
	sent, added := map[string]bool{}, []string{}
	for i := range m.Items {
		sent[m.Items[i].Path] = true
	}
	for name := range after.of {
		if !sent[name] && after.of[name] != before.of[name] {
			added = append(added, after.asked(name))
		}
	}
	leftOut, err := m.LeftOut(ctx, git, added)
	if err != nil {
		return nil, err
	}
	return differ(before, after, sent, leftOut), nil
}

// differ compares two listings; leftOut is what ignore files leave out of what was not sent.
func differ(before, after *listing, sent map[string]bool, leftOut map[string]string) *difference {
	d := &difference{after: after, ask: map[string]bool{}}
	skip := "" // a directory that stays there
	for _, name := range slices.SortedFunc(maps.Keys(after.of), changes.ComparePaths) {
		now, was := after.of[name], before.of[name]
		if skip != "" && strings.HasPrefix(name, skip) || now == was {
			continue
		}
		switch {
		case path.Base(name) == ".git":
			d.git = append(d.git, name)
			skip = name + "/"
		case now.Kind == workspace.Special:
			d.odd = append(d.odd, name)
		case !sent[name] && leftOut[name] != "":
			d.stays = append(d.stays, name)
			skip = name + "/"
		case now.Kind == workspace.Dir && before.isDir(name) && now.Mode == was.Mode:
			// names that come and go in it are differences of their own
		default:
			d.add(name)
		}
	}
	for name := range before.of {
		dir := path.Dir(name)
		if _, stands := after.of[name]; !stands && sent[name] && (dir == "." || after.isDir(dir)) {
			d.gone = append(d.gone, name)
			d.add(dir)
		}
	}
	slices.SortFunc(d.gone, changes.ComparePaths)
	return d
}

// add asks for a path and the directories that it lies in.
func (d *difference) add(name string) {
	for end := len(name); name != "." && end > 0 && !d.ask[name[:end]]; end = strings.LastIndexByte(name[:end], '/') {
		d.ask[name[:end]] = true
	}
}

// only leaves of a difference what is selected, with the directories around it.
func (d *difference) only(ctx context.Context, git filesync.RunGit, patterns filesync.Selection) error {
	ask, names := d.names(), []string{}
	for _, name := range slices.Concat(ask, d.gone, d.stays, d.git, d.odd) {
		names = append(names, d.after.asked(name))
	}
	selected, err := patterns.Of(ctx, git, names)
	d.ask = map[string]bool{}
	for _, name := range ask {
		if selected[name] {
			d.add(name)
		}
	}
	for _, list := range []*[]string{&d.gone, &d.stays, &d.git, &d.odd} {
		*list = slices.DeleteFunc(*list, func(name string) bool { return !selected[name] })
	}
	return err
}

// refuse leaves of a difference what a download may hold, and returns what it may not, with the reason of each.
func (d *difference) refuse(down filesync.Down) (left []string) {
	var names []filesync.Name
	for _, name := range d.names() {
		e := d.after.of[name]
		names = append(names, filesync.Name{Path: name, Kind: e.Kind, Mode: int64(e.Mode), Size: e.Size, Target: string(e.Target)})
	}
	why := down.Refuses(names)
	for _, n := range names {
		if why[n.Path] != "" {
			delete(d.ask, n.Path)
			left = append(left, fmt.Sprintf("%q (%s)", n.Path, why[n.Path]))
		}
	}
	return left
}

// A download comes in parts, so that one is extracted while the next is made and on its way: each of so
// many names, and about so many bytes of content.
const (
	partNames = 4096
	partBytes = 32 << 20
)

// parts cuts what is asked for.
func (d *difference) parts() (list [][]string) {
	names, begin, size := d.names(), 0, int64(0)
	for i, name := range names {
		n := d.after.of[name].Size
		if size += n; i > begin && (i-begin == partNames || size > partBytes) {
			list = append(list, names[begin:i])
			begin, size = i, n
		}
	}
	return append(list, names[begin:])
}
