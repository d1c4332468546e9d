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
