//go:build linux || darwin

package homes

import (
	"encoding/json"
	"errors"
	"io/fs"
	"slices"
	"strings"
	"syscall"

	"github.com/pccrun/pccrun/state"
)

// errFound ends a walk.
var errFound = errors.New("found")

// maxLooked bounds what is looked at for a program.
const maxLooked = 20_000

// Gains records what this run may do, and returns what of it the run before might not, with a
// program that stands in the home: what that has left there, this one may execute. Nothing is looked for
// where nothing was gained.
func (h *Home) Gains(rights []string) (more []string, program string, err error) {
	before := h.Record.Rights
	if before != nil && slices.Equal(before, rights) {
		return nil, "", nil
	}
	h.Record.Rights = rights
	text, err := json.Marshal(h.Record)
	if err == nil {
		err = state.WriteFile(h.root, recordName, text, state.Fast)
	}
	if before == nil || err != nil {
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
	left := maxLooked
	err = fs.WalkDir(h.root.FS(), homeName, func(path string, e fs.DirEntry, err error) error {
		if left--; left < 0 {
			return fs.SkipAll
		}
		if err != nil || !e.Type().IsRegular() {
			return nil
		}
		info, err := e.Info()
		if err != nil || info.Mode()&0o111 == 0 || info.Size() == 0 || strings.HasSuffix(path, ".sample") { // git's own, which nothing executes
			return nil
		}
		if st, is := info.Sys().(*syscall.Stat_t); is && st.Nlink == 1 {
			program = path[len(homeName)+1:]
			return errFound
		}
		return nil
	})
	if program == "" {
		return nil, "", nil
	}
	return more, program, nil
}
