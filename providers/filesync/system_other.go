//go:build !unix

package filesync

import (
	"errors"
	"io/fs"
	"os"
	"time"
)

const nonblock, directory = 0, 0

// flock locks nothing here: what a killed extraction leaves stays.
func flock(_ *os.File, wait bool) error {
	if wait {
		return nil
	}
	return errors.ErrUnsupported
}

func ownerFrom(fs.FileInfo) (uid, gid int) { return -1, -1 }

func setLinkTime(*os.Root, string, time.Time) error { return nil }
