package remote

import (
	"bytes"
	"context"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/pccrun/pccrun/providers/filesync"
	"github.com/pccrun/pccrun/workspace"
	"github.com/pccrun/pccrun/workspace/changes"
)

// listing is what stands in the copy: for each path all that tells one state of it from
// another, as find prints it.
type listing struct {
	of   map[string]string
	text []byte // as it was printed
}

// look lists the copy.
func (r *running) look(ctx context.Context) (*listing, error) {
	ctx, cancel := context.WithTimeout(ctx, r.provider.patient.script)
	defer cancel()
	text, _, err := r.shell(ctx, true, list, nil, r.copy, r.label)
	if err != nil {
		return nil, fmt.Errorf("%s: list the remote workspace: %w", r.provider.Name(), err)
	}
	l, err := parseListing(text)
	if err != nil {
		return nil, fmt.Errorf("%s: list the remote workspace: %w", r.provider.Name(), err)
	}
	return l, nil
}

// parseListing reads what the script printed. The command may have had its hand in it:
// all that it can do so is to keep its own changes from being fetched.
func parseListing(text []byte) (*listing, error) {
	l := &listing{of: map[string]string{}, text: text}
	fields := bytes.Split(text, []byte{0})
	if len(fields)%3 != 1 || len(fields[len(fields)-1]) != 0 {
		return nil, fmt.Errorf("the list is truncated")
	}
	for i := 0; i+2 < len(fields); i += 3 {
		name := string(fields[i+1])
		if name == "" || len(fields[i]) < 2 || fields[i][1] != ' ' {
			return nil, fmt.Errorf("entry %d of the list is invalid", i/3)
		}
		l.of[name] = string(fields[i]) + "\x00" + string(fields[i+2])
	}
	return l, nil
}

// is reports whether a path is of a kind, by find's letter.
func (l *listing) is(name string, kind byte) bool {
	e := l.of[name]
	return e != "" && e[0] == kind
}

// A difference is what has to be fetched, and what is gone.
type difference struct {
	ask    []string // in the order of [changes.ComparePaths], with all directories around each
	gone   []string // the outermost only
	stays  []string // made there, and left out by an ignore file; a directory with all in it
	git    []string // repositories that were made there
	odd    []string // sockets, FIFOs and devices
	askSet map[string]bool
}

// differ compares two listings. What an earlier command made and git ignores may be there, and was not sent.
func (r *running) differ(ctx context.Context, before, after *listing, m *filesync.Manifest) (*difference, error) {
	sent, added := sentIn(m), []string{}
	for name := range after.of {
		if !sent[name] && after.of[name] != before.of[name] {
			added = append(added, after.asked(name))
		}
	}
	leftOut, err := m.LeftOut(ctx, r.provider.host.Git, added)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", r.provider.Name(), err)
	}
	return differ(before, after, m, leftOut), nil
}

// sentIn are the paths that went up.
func sentIn(m *filesync.Manifest) map[string]bool {
	sent := map[string]bool{}
	for i := range m.Items {
		sent[m.Items[i].Path] = true
	}
	return sent
}

// asked is a path as ignore files are asked about it.
func (l *listing) asked(name string) string {
	if l.is(name, 'd') {
		return name + "/"
	}
	return name
}

// differ compares two listings; leftOut is what ignore files leave out of what was not sent.
func differ(before, after *listing, m *filesync.Manifest, leftOut map[string]string) *difference {
	d, sent := &difference{askSet: map[string]bool{}}, sentIn(m)
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
		case !sent[name] && leftOut[name] != "":
			d.stays = append(d.stays, name)
			skip = name + "/"
			continue
		case after.is(name, 'd') && before.is(name, 'd') && mode(after.of[name]) == mode(before.of[name]):
			continue // names that come and go in it are differences of their own
		}
		d.add(name)
	}
	for name := range before.of {
		if _, stands := after.of[name]; !stands && sent[name] && (path.Dir(name) == "." || after.of[path.Dir(name)] != "") {
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
func (r *running) only(ctx context.Context, d *difference, after *listing, patterns filesync.Selection) error {
	var names []string
	for _, name := range slices.Concat(d.ask, d.gone, d.stays, d.git, d.odd) {
		names = append(names, after.asked(name))
	}
	selected, err := patterns.Of(ctx, r.provider.host.Git, names)
	if err == nil {
		d.only(after, selected)
	}
	return err
}

func (d *difference) only(after *listing, selected map[string]bool) {
	ask := d.ask
	d.ask, d.askSet = nil, map[string]bool{}
	for _, name := range ask {
		if selected[name] {
			d.add(name)
		}
	}
	slices.SortFunc(d.ask, changes.ComparePaths)
	for _, list := range []*[]string{&d.gone, &d.stays, &d.git, &d.odd} {
		*list = slices.DeleteFunc(*list, func(name string) bool { return !selected[name] })
	}
}

// refuse leaves of a difference what a download may hold, and returns what it may not, with the reason of each.
func (d *difference) refuse(after *listing, down filesync.Down) (left []string) {
	names := make([]filesync.Name, 0, len(d.ask))
	for _, name := range d.ask {
		entry, target, _ := strings.Cut(after.of[name], "\x00")
		n := filesync.Name{Path: name, Target: target}
		var kind string
		_, _ = fmt.Sscanf(entry, "%s %o %d", &kind, &n.Mode, &n.Size)
		switch kind {
		case "d":
			n.Kind = workspace.Dir
		case "l":
			n.Kind = workspace.Link
		}
		names = append(names, n)
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

// mode is what a listing says of kind and mode.
func mode(entry string) string {
	fields := strings.SplitN(entry, " ", 3)
	return fields[0] + " " + fields[1]
}

// add asks for a path and the directories that it lies in.
func (d *difference) add(name string) {
	for ; name != "." && !d.askSet[name]; name = path.Dir(name) {
		d.askSet[name] = true
		d.ask = append(d.ask, name)
	}
}
