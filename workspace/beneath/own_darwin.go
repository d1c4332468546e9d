package beneath

import "golang.org/x/sys/unix"

// Unlock makes a directory of the user's own readable, writable and searchable for him; "" is the first itself.
func Unlock(dir int, name string) error {
	var st unix.Stat_t
	if name == "" {
		if err := unix.Fstat(dir, &st); err != nil {
			return err
		}
		return unix.Fchmod(dir, uint32(st.Mode)&0o7777|0o700)
	}
	if err := unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return err
	}
	return unix.Fchmodat(dir, name, uint32(st.Mode)&0o7777|0o700, unix.AT_SYMLINK_NOFOLLOW)
}
