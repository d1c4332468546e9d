//go:build unix

package remote

import (
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/workspace/beneath"
)

// filesBelow lists the regular files of a tree and its directories, each before what is in it.
func filesBelow(root *os.Root) (list []fileBelow, err error) {
	top, err := root.Open(".")
	if err != nil {
		return nil, err
	}
	defer top.Close()
	limits := beneath.Limits{Entries: 4 * conversationFiles, Depth: 128, Time: time.Minute}
	err = beneath.Walk(int(top.Fd()), limits, func(_ int, _ string, st *unix.Stat_t, path func() string) error {
		if kind := beneath.KindOf(uint32(st.Mode)); kind == beneath.File || kind == beneath.Dir {
			list = append(list, fileBelow{path(), kind == beneath.Dir, st.Size})
		}
		return nil
	})
	return list, err
}
