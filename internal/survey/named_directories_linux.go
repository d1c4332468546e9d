package survey

import (
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/workspace"
	"github.com/pccrun/pccrun/workspace/vcs"
)

// maxNamed bounds them.
const maxNamed = 16

// namedDirectories returns which directories, of the home or another that the sandbox has its own in place of, the links at the top
// of the workspace, git's own files and Python's environments lead to and nothing shows. Nothing is granted for that: whoever
// can write in the workspace can name what he likes there.
func (f *finder) namedDirectories(found *workspace.Found, persistent *Home) (list []Named) {
	p := f.policy
	add := func(path, by string) {
		hops, end, err := f.hops(path)
		if err != nil || end.Node != Directory || Secret(p.Home, end.Path) || f.own != "" && (Below(f.own, end.Path) || Below(end.Path, f.own)) {
			return
		}
		at := end.Path
		for _, h := range hops {
			if f.shown(h.at) < profiles.Read {
				at = h.at // the command gets no further
				break
			}
		}
		d := p.Decide(at)
		base := d.Rule.Path
		if Below(at, p.Home) && Below(p.Home, base) {
			base = p.Home
		}
		switch {
		case len(list) == maxNamed, f.shown(at) >= profiles.Read, d.Access != profiles.Private && d.Access != profiles.Persist, d.Rule.Glob != "", at == base, Below(p.Workspace, at), Below(at, p.Workspace), Secret(p.Home, at):
			return
		case slices.ContainsFunc(f.places, func(have Place) bool { return Below(have.Path, at) }):
			return // a part of it is there
		case slices.ContainsFunc(list, func(n Named) bool { return Below(at, n.Path) || Below(n.Path, at) }):
			return
		case persistent != nil && base == p.Home && unix.Access(persistent.Path+at[len(p.Home):], unix.F_OK) == nil:
			return // an earlier run has made one of its own
		}
		list = append(list, Named{at, by, base})
	}
	slices.Sort(found.Leads)
	for _, link := range found.Leads[:min(len(found.Leads), maxInner)] {
		add(link, "where "+strings.TrimPrefix(link, p.Workspace+"/")+" leads")
	}
	for i := range found.Pins {
		git, is := strings.CutSuffix(found.Pins[i].Path, "/config")
		if !is || !found.Pins[i].Private {
			continue
		}
		if text, err := profiles.ReadFile(git + "/objects/info/alternates"); err == nil {
			for line := range strings.Lines(string(text)) {
				if line = strings.TrimSpace(line); line != "" && line[0] != '#' {
					add(beside(git+"/objects", line), "which "+filepath.Base(git)+"/objects/info/alternates names")
				}
			}
		}
		settings, _ := vcs.ParseConfig([]byte(found.Pins[i].Text))
		for _, s := range settings {
			if path := strings.TrimPrefix(s.Value, "file://"); s.Section == "remote" && s.Key == "url" && (filepath.IsAbs(path) || strings.HasPrefix(path, "../")) {
				add(beside(strings.TrimSuffix(git, "/.git"), path), NamedRemote+s.Sub)
			}
		}
	}
	for _, name := range [...]string{"/.venv", "/venv"} { // https://docs.python.org/3/library/site.html
		files, _ := filepath.Glob(p.Workspace + name + "/lib/python*/site-packages/*.pth")
		for _, file := range files[:min(len(files), maxNamed)] {
			text, _ := profiles.ReadFile(file)
			for line := range strings.Lines(string(text)) {
				if line = strings.TrimSpace(line); filepath.IsAbs(line) {
					add(line, "which "+filepath.Base(file)+" names")
				}
			}
		}
	}
	return list
}

// beside returns a path that may begin at a directory.
func beside(dir, path string) string {
	if filepath.IsAbs(path) {
		return filepath.Clean(path)
	}
	return filepath.Join(dir, path)
}
