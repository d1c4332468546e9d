package namespaces

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"
)

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

// Beside returns the names of what the command has made beside a path in the private directory
// that holds it, sorted: a clone, an archive, for which the user will look in vain. What stood
// there for mounts is none of it, and of dotfiles and the like
// programs make enough that nobody misses. It is for [Sandbox.Gone].
func (s *Sandbox) Beside(path string) (names []string, err error) {
	dir, i := filepath.Dir(path), s.plan.holder(path)
	if i < 0 || s.plan.Mounts[i].Kind != Fresh || s.plan.Mounts[i].ReadOnly || dir == "/tmp" || dir == "/var/tmp" {
		return nil, nil
	}
	m := &s.plan.Mounts[i]
	fd, err := openPlain(s.Private, entry(i)+dir[len(m.Target):], unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC)
	if err == unix.ENOENT || err == unix.ENOTDIR || err == unix.ELOOP { // the command has put something else there
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("look beside %s in the sandbox: %w", path, err)
	}
	f := os.NewFile(uintptr(fd), dir)
	defer f.Close()
	all, err := f.Readdirnames(maxBeside)
	if err != nil && err != io.EOF {
		return nil, fmt.Errorf("look beside %s in the sandbox: %w", path, err)
	}
	for _, name := range all {
		whole := filepath.Join(dir, name)
		stood := slices.ContainsFunc(m.Stubs, func(s Stub) bool { return filepath.Join(m.Target, s.Name) == whole })
		if !stood && name[0] != '.' {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names, nil
}

// maxBeside bounds how many names are looked at.
const maxBeside = 256
