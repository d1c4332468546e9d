package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// diskSize is what an image could grow to; it takes what is written.
const diskSize = 32 << 30

// A disk is a file system of the bench's own, in a file: ext4 as an installer makes it. Where
// the machine's has no journal, as many a cloud's, ext4 looks at each file that was deleted in
// the last minutes before it makes a new one (recently_deleted, fs/ext4/ialloc.c): after one
// large deletion a file costs ten times as much, and so does a launch that makes some.
type disk struct{ image, dir string }

// newDisk mounts one on a directory.
func newDisk(dir string) (_ *disk, err error) {
	d := &disk{image: dir + ".img", dir: dir}
	f, err := os.OpenFile(d.image, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			os.Remove(d.image)
		}
	}()
	if err := errors.Join(f.Truncate(diskSize), f.Close()); err != nil {
		return nil, err
	}
	for _, argv := range [][]string{
		{"mkfs.ext4", "-q", "-F", "-m", "0", d.image},
		{"mount", "-o", "loop,noinit_itable", d.image, dir}, // nothing is written beside what is measured
	} {
		if out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput(); err != nil {
			return nil, fmt.Errorf("%s: %w: %s", argv[0], err, bytes.TrimSpace(out))
		}
	}
	if err := errors.Join(os.Remove(filepath.Join(dir, "lost+found")), os.Chmod(dir, 0o700)); err != nil {
		return nil, errors.Join(err, unix.Unmount(dir, unix.MNT_DETACH))
	}
	return d, nil
}

func (d *disk) remove() error {
	err := unix.Unmount(d.dir, unix.MNT_DETACH)
	if err != nil {
		err = fmt.Errorf("unmount %s: %w", d.dir, err)
	}
	return errors.Join(err, os.Remove(d.image))
}
