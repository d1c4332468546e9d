//go:build linux || darwin

package homes

import (
	"errors"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/workspace/beneath"
)

// errFound ends a walk.
var errFound = errors.New("found")

// looked bounds what is looked at for a program.
var looked = beneath.Limits{Entries: 20_000, Depth: 1 << 16, Time: 10 * time.Second}

// Gains records what this run may do, and returns what of it the run before might not, with a
// program that stands in the home: what that has left there, this one may execute. Nothing is looked for
// where nothing was gained.
func (h *Home) Gains(rights []string) (more []string, program string, err error) {
	before := h.Record.Rights
	if before != nil && slices.Equal(before, rights) {
		return nil, "", nil
	}
	h.Record.Rights = rights
	if err := save(h.root, recordName, h.Record); before == nil || err != nil {
		return nil, "", err
	}
	for _, r := range rights {
		if _, had := slices.BinarySearch(before, r); !had {
			more = append(more, r)
		}
	}
	if len(more) == 0 {
		return nil, "", nil
	}
	dir, err := h.root.Open(homeName)
	if err != nil {
		return nil, "", err
	}
	defer dir.Close()
	_ = beneath.Walk(int(dir.Fd()), looked, func(_ int, name string, st *unix.Stat_t, path func() string) error {
		if st.Mode&unix.S_IFMT != unix.S_IFREG || st.Mode&0o111 == 0 || st.Size == 0 || st.Nlink != 1 || strings.HasSuffix(name, ".sample") { // git's own, which nothing executes
			return nil
		}
		program = path()
		return errFound
	})
	if program == "" {
		return nil, "", nil
	}
	return more, program, nil
}
