package quarantine

import (
	"os"

	"golang.org/x/sys/unix"
)

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

// adopt makes no stash: nothing is staged for it.
func (*Stash) adopt(*os.Root) bool { return false }

// versions are counted where a run goes on.
type versions struct{}

func (versions) settle(int) {}
