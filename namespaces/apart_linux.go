package namespaces

import (
	"fmt"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/workspace/vcs"
)

// Git writes the configuration of a submodule's repository at each `git submodule
// update`, always with what it says already (ensure_core_worktree in
// builtin/submodule--helper.c), and where it checks submodules out as well the .git file
// too (connect_work_tree_and_git_dir in dir.c); it goes no further if that fails. Neither can the host's
// file be given to the command, nor git be talked out of it. But git writes where a link
// leads (resolve_symlink in lockfile.c): so a link is mounted over the file, to a copy.
// Nothing of that copy comes back.

// Unkept returns the configurations of which the command has changed its copy, in what it
// says and not only in where the working tree is: for [Sandbox.Gone]. One that has grown
// by more than that is not read: a thousand of a megabyte take a minute.
func (s *Sandbox) Unkept() (paths []string, err error) {
	for i := range s.plan.Mounts {
		m := &s.plan.Mounts[i]
		if m.Kind != Apart || filepath.Base(m.Target) == ".git" || s.plan.skips(m) {
			continue
		}
		fd, err := openPlain(s.Private, s.plan.private(m.Link), unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC)
		if err == unix.ENOENT || err == unix.ENOTDIR || err == unix.ELOOP || err == unix.EACCES || err == unix.ENXIO {
			continue // what the command has made of it is no configuration
		}
		if err != nil {
			return paths, fmt.Errorf("look for the copy of %s in the sandbox: %w", m.Target, err)
		}
		var st unix.Stat_t
		f := os.NewFile(uintptr(fd), m.Link)
		if err = unix.Fstat(fd, &st); err == nil && st.Mode&unix.S_IFMT == unix.S_IFREG {
			most := len(m.Text) + unix.PathMax // where the working tree is may take more room
			now, err := io.ReadAll(io.LimitReader(f, int64(most)+1))
			if err == nil && (len(now) > most || !vcs.SameSettings([]byte(m.Text), now)) {
				paths = append(paths, m.Target)
			}
		}
		f.Close()
	}
	return paths, nil
}
