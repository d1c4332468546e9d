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
