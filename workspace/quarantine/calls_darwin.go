package quarantine

import "golang.org/x/sys/unix"

// rename is renameatx_np(2) without replacing.
func rename(from int, name string, to int, as string) error {
	for {
		err := unix.RenameatxNp(from, name, to, as, unix.RENAME_EXCL)
		if err != unix.EINTR {
			return err
		}
	}
}

// openDirectory is open(2) with the flag by which no part of a path may be a link: macOS 11 has it.
func openDirectory(path string) (int, error) {
	for {
		fd, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW_ANY|unix.O_CLOEXEC, 0)
		if err != unix.EINTR {
			return fd, err
		}
	}
}

// Take moves the entry of a directory into the stash. The run has ended: nobody makes the same name again.
func (s *Stash) Take(dir int, name string, c Finding) (Finding, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.take(dir, name, c)
}

// aside leaves what cannot be moved into the stash where it is, under a name that no tool knows.
func (s *Stash) aside(dir int, name string, c Finding, why error) (Finding, error) {
	c, err := s.away(dir, name, c, why)
	if err == nil {
		s.keepLine(c)
	}
	return c, err
}

// Move moves what its maker has closed to its owner too.
func Move(from int, name string, to int, as string) error {
	err := rename(from, name, to, as)
	var st unix.Stat_t
	if err != unix.EACCES || unix.Fstat(from, &st) != nil {
		return err
	}
	_ = unix.Fchmod(from, uint32(st.Mode)&0o7777|0o700)
	if unix.Fstatat(from, name, &st, unix.AT_SYMLINK_NOFOLLOW) == nil && st.Mode&unix.S_IFMT == unix.S_IFDIR {
		_ = unix.Fchmodat(from, name, uint32(st.Mode)&0o7777|0o700, 0)
	}
	return rename(from, name, to, as)
}

// versions are counted where a run goes on.
type versions struct{}

func (versions) settle(int) {}
