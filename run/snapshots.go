package run

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/pccrun/pccrun/internal/messages"
	"github.com/pccrun/pccrun/internal/state"
	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/workspace/changes"
)

// SnapshotDir is the directory that holds them.
func SnapshotDir() (string, error) {
	dirs, err := Dirs()
	return filepath.Join(dirs.State, "snapshots"), err
}

// CheckSnapshotName refuses what would be no name of its own there.
func CheckSnapshotName(name string) error {
	odd := func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("._-", r))
	}
	if name == "" || len(name) > 100 || name[0] == '.' || name[0] == '-' || strings.ContainsFunc(name, odd) {
		return &messages.UsageError{Text: "snapshot " + strconv.Quote(name) + ": want letters, digits, '.', '-' and '_'", Hint: "a snapshot has a name and no path: pccrun snapshot tried-a"}
	}
	return nil
}

// OpenSnapshot opens one that is there.
func OpenSnapshot(name string) (*os.Root, error) {
	if err := CheckSnapshotName(name); err != nil {
		return nil, err
	}
	dir, err := SnapshotDir()
	if err != nil {
		return nil, err
	}
	root, err := state.OpenExisting(filepath.Join(dir, name), "")
	if errors.Is(err, fs.ErrNotExist) {
		return nil, &messages.UsageError{Text: "snapshot " + strconv.Quote(name) + ": there is none", Hint: "pccrun snapshot list lists them"}
	}
	return root, err
}

// fromSnapshot makes overlays of the directories that a snapshot has changes of.
func fromSnapshot(req *profiles.Request) error {
	root, err := OpenSnapshot(req.From)
	if err != nil {
		return err
	}
	defer root.Close()
	r, err := changes.ReadRecord(root)
	if err != nil {
		return fmt.Errorf("snapshot %s: %w", req.From, err)
	}
	for _, l := range r.Layers {
		flag := profiles.FileFlag{Path: l.Path, Access: profiles.Overlay}
		if !slices.Contains(req.Files, flag) {
			req.Files = append(req.Files, flag)
		}
	}
	return nil
}
