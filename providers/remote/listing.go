package remote

import (
	"context"
	"fmt"
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
	Entries []listed `json:"entries"`
	Reflog  int64    `json:"reflog"` // how long the log of HEAD is in the copy's repository

	of map[string]entry
}

// listed is a path with what stands there.
type listed struct {
	Path inside.Text `json:"p"`
	entry
}

// entry is all that tells one state of a path from another.
type entry struct {
	Kind     byte        `json:"k"` // 'f', 'd', 'l', or 'o' for any other
	Mode     uint32      `json:"m"`
	Size     int64       `json:"s"`
	Inode    uint64      `json:"i"`
	Modified int64       `json:"t"` // nanoseconds
	Changed  int64       `json:"c"`
	Target   inside.Text `json:"l,omitempty"` // of a link

	Names int    `json:"n,omitempty"`   // with sums: hard links all
	Sum   string `json:"sum,omitempty"` // of a file
}

// look lists the copy.
func (r *running) look(ctx context.Context) (*listing, error) {
	how := ""
	if r.label != "" {
		how = "busy"
	}
	return r.list(ctx, r.program, how)
}

// list lists the copy by pccrun's program in a directory there.
func (r *running) list(ctx context.Context, program, how string) (*listing, error) {
	ctx, cancel := context.WithTimeout(ctx, r.provider.patient.script)
	defer cancel()
	l := &listing{}
	err := r.word(ctx, program, true, l, listWord, r.copy, how)
	if err == nil {
		err = l.index()
	}
	if err != nil {
		return nil, fmt.Errorf("%s: list the remote workspace: %w", r.provider.Name(), err)
	}
	return l, nil
}

// index finds entries by their paths.
func (l *listing) index() error {
	l.of = make(map[string]entry, len(l.Entries))
	for i, e := range l.Entries {
		name := string(e.Path)
		if name == "" || path.IsAbs(name) || path.Clean(name) != name || name == "." || name == ".." || strings.HasPrefix(name, "../") || strings.Contains(name, "\x00") || e.Kind == 0 {
			return fmt.Errorf("entry %d of the list is invalid", i)
		}
		l.of[name] = e.entry
	}
	return nil
}

// is reports whether a path is of a kind.
func (l *listing) is(name string, kind byte) bool { return l.of[name].Kind == kind }

// A difference is what has to be fetched, and what is gone.
type difference struct {
	ask    []string // in the order of [changes.ComparePaths], with all directories around each
	gone   []string // the outermost only
	stays  []string // made there, and left out by an ignore file; a directory with all in it
	git    []string // repositories that were made there
	odd    []string // sockets, FIFOs and devices
	askSet map[string]bool
}

// differ holds two listings against each other.
func differ(before, after *listing, m *filesync.Manifest) *difference {
	d := &difference{askSet: map[string]bool{}}
	left, sent := m.LeftOut(), map[string]bool{} // what an earlier command made and git ignores may stand, and was not sent
	for i := range m.Items {
		sent[m.Items[i].Path] = true
	}
	names := make([]string, 0, len(after.of))
	for name := range after.of {
		names = append(names, name)
	}
	slices.SortFunc(names, changes.ComparePaths)
	skip := "" // a directory that stays there
	for _, name := range names {
		switch {
		case skip != "" && strings.HasPrefix(name, skip):
			continue
		case after.of[name] == before.of[name]:
			continue
		case path.Base(name) == ".git":
			d.git = append(d.git, name)
			skip = name + "/"
			continue
		case !after.is(name, 'f') && !after.is(name, 'd') && !after.is(name, 'l'):
			d.odd = append(d.odd, name)
			continue
		case !sent[name] && left(name, after.is(name, 'd')) != "":
			d.stays = append(d.stays, name)
			skip = name + "/"
			continue
		case after.is(name, 'd') && before.is(name, 'd') && after.of[name].Mode == before.of[name].Mode:
			continue // names that come and go in it are differences of their own
		}
		d.add(name)
	}
	for name := range before.of {
		if _, stands := after.of[name]; !stands && sent[name] && (path.Dir(name) == "." || after.of[path.Dir(name)].Kind != 0) {
			d.gone = append(d.gone, name)
			if dir := path.Dir(name); dir != "." && after.is(dir, 'd') {
				d.add(dir)
			}
		}
	}
	d.gone = slices.DeleteFunc(d.gone, func(name string) bool { dir := path.Dir(name); return dir != "." && !after.is(dir, 'd') })
	slices.SortFunc(d.ask, changes.ComparePaths)
	slices.SortFunc(d.gone, changes.ComparePaths)
	return d
}

// only leaves of a difference what is selected, with the directories around it.
func (d *difference) only(after *listing, selects func(name string, isDir bool) bool) {
	ask := d.ask
	d.ask, d.askSet = nil, map[string]bool{}
	for _, name := range ask {
		if selects(name, after.is(name, 'd')) {
			d.add(name)
		}
	}
	slices.SortFunc(d.ask, changes.ComparePaths)
	for _, list := range []*[]string{&d.gone, &d.stays, &d.git, &d.odd} {
		*list = slices.DeleteFunc(*list, func(name string) bool { return !selects(name, after.is(name, 'd')) })
	}
}

// refuse leaves of a difference what a download may hold, and returns what it may not, with the reason of each.
func (d *difference) refuse(after *listing, down filesync.Down) (left []string) {
	names := make([]filesync.Name, 0, len(d.ask))
	for _, name := range d.ask {
		e := after.of[name]
		names = append(names, filesync.Name{Path: name, Kind: e.kind(), Mode: int64(e.Mode), Size: e.Size, Target: string(e.Target)})
	}
	why := down.Refuses(names)
	d.ask = slices.DeleteFunc(d.ask, func(name string) bool {
		if why[name] == "" {
			return false
		}
		delete(d.askSet, name)
		left = append(left, fmt.Sprintf("%q (%s)", name, why[name]))
		return true
	})
	return left
}

// kind is an entry's, as a change set has it.
func (e *entry) kind() workspace.Kind {
	switch e.Kind {
	case 'f':
		return workspace.File
	case 'd':
		return workspace.Dir
	case 'l':
		return workspace.Link
	}
	return workspace.Special
}

// add asks for a path and the directories that it lies in.
func (d *difference) add(name string) {
	for ; name != "." && !d.askSet[name]; name = path.Dir(name) {
		d.askSet[name] = true
		d.ask = append(d.ask, name)
	}
}
