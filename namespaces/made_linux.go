package namespaces

import (
	"fmt"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/profiles"
)

// A path that may be written, does not exist, and lies in a private directory
// (an agent's state, the first time) has nothing to be mounted: a name made for
// it on the host would stay there when the launcher is killed, or the command
// writes nothing. So the command makes it in the private directory, and when all
// of the run is dead the launcher carries it over.

// made lists those paths: what is made there is the user's, and not gone at exit.
func (p *Plan) made(places []Place) (paths []string) {
	for _, place := range places {
		if place.Node != Absent && !place.Copied || place.Access != profiles.Write {
			continue
		}
		if i := p.holder(place.Path); i >= 0 && p.Mounts[i].Kind == Fresh && !p.Mounts[i].ReadOnly {
			paths = append(paths, place.Path)
		}
	}
	return paths
}

// holder returns the index of the mount that holds a name, -1 for the host's own
// tree.
func (p *Plan) holder(path string) int {
	in := -1
	for i := range p.Mounts {
		if target := p.Mounts[i].Target; below(path, target) && path != target && (in < 0 || len(target) >= len(p.Mounts[in].Target)) {
			in = i
		}
	}
	return in
}

// private returns what a path in a private directory is called in the tmpfs that holds them.
func (p *Plan) private(path string) string {
	i := p.holder(path)
	return entry(i) + path[len(p.Mounts[i].Target):]
}

// A Made is what the command has made at a path of [Plan.Made]: an entry of a
// directory that nobody else sees. Dir is the caller's to close.
type Made struct {
	Path string
	Dir  int
	Name string
}

// Made returns what stands at the paths of [Plan.Made], for [Sandbox.Gone]. A
// name behind a link is none: the command has made the link.
func (s *Sandbox) Made() (list []Made, err error) {
	for _, path := range s.plan.Made {
		m := Made{Path: path, Name: filepath.Base(path)}
		m.Dir, err = openPlain(s.Private, filepath.Dir(s.plan.private(path)), unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC)
		if err == unix.ENOENT || err == unix.ENOTDIR || err == unix.ELOOP {
			continue
		}
		if err != nil {
			return list, fmt.Errorf("look for %s in the sandbox: %w", path, err)
		}
		var st unix.Stat_t
		if unix.Fstatat(m.Dir, m.Name, &st, unix.AT_SYMLINK_NOFOLLOW) != nil {
			unix.Close(m.Dir)
			continue
		}
		list = append(list, m)
	}
	return list, nil
}
