package namespaces

import (
	"fmt"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/internal/survey"
	"github.com/pccrun/pccrun/workspace"
	"github.com/pccrun/pccrun/workspace/beneath"
)

// Git replaces its configuration by a rename, which a mount over the file refuses, and the host's file cannot
// be given to the command. But git writes where a link leads (resolve_symlink in lockfile.c): so a
// link is mounted over the file, to a copy in a private directory, of which the launcher merges into the host's
// file what may be ([workspace.PrivateConfigs]). Of the .git file of a submodule's working tree, which git
// writes anew with what it says already (connect_work_tree_and_git_dir in dir.c), nothing comes back, nor of a
// submodule's configuration in an overlay, which git writes so as well (ensure_core_worktree in
// builtin/submodule--helper.c).

// Configs returns the private copies of the sandbox, those that are merged, or those of which nothing comes back.
func (s *Sandbox) Configs(merged bool) (list []*workspace.PrivateConfig) {
	top := s.plan.top()
	for i := range s.plan.Mounts {
		m := &s.plan.Mounts[i]
		if m.Kind != PrivateCopy || filepath.Base(m.Target) == ".git" || s.plan.skips(m) || s.plan.inOwn(m.Target, top) == merged {
			continue
		}
		open := func() (dir int, name string, err error) {
			dir, err = beneath.Open(s.Private, filepath.Dir(s.plan.private(m.Link)), unix.O_RDONLY|unix.O_DIRECTORY)
			return dir, filepath.Base(m.Link), err
		}
		list = append(list, &workspace.PrivateConfig{Path: m.Target, Base: []byte(m.Text), Open: open})
	}
	return list
}

// donateConfigs opens, as root, the directories of configurations of which the command has a copy and in which it may
// not write: the launcher, which is somebody else by then, merges into these.
func (p *Plan) donateConfigs(donate func(m *Mount) (int, error)) error {
	for i := range p.Mounts {
		m := &p.Mounts[i]
		dir := filepath.Dir(m.Target)
		if _, ok := p.Configs[dir]; ok || m.Kind != PrivateCopy || filepath.Base(m.Target) == ".git" || p.Writes(dir) {
			continue
		}
		var st unix.Stat_t
		err := unix.Lstat(dir, &st)
		if err == nil {
			if p.Configs == nil {
				p.Configs = map[string]int{}
			}
			p.Configs[dir], err = donate(&Mount{Kind: Bind, Source: dir, Dev: survey.Device(st.Dev), Ino: st.Ino})
		}
		if err != nil {
			return fmt.Errorf("open %s, for what may change of %s: %w", dir, m.Target, err)
		}
	}
	return nil
}

// OpenConfig opens the directory of a configuration that is among [Plan.Configs], -1 for another.
func (p *Plan) OpenConfig(path string) (int, error) {
	if fd, ok := p.Configs[filepath.Dir(path)]; ok {
		return unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	}
	return -1, nil
}
