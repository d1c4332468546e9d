//go:build unix

package task

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/pccrun/pccrun/internal/hint"
	"github.com/pccrun/pccrun/run/askgit"
)

// A Clash is a pair of commits that git does not merge with each other, by their places in the list that [Clashes] got, and
// the files of which both change the same lines.
type Clash struct {
	A, B  int
	Files []string
}

// Bounds of what [Clashes] tries.
const (
	maxPairs     = 4000
	clashesSize  = 16 << 20 // bytes that git may print
	clashesFiles = 16       // that are named of a pair
)

// Clashes returns which of some commits of a repository git would not merge with each other, and how many pairs it has not
// tried, since there are too many. Git tries in a sandbox in which it writes nothing but a directory that is then deleted.
func Clashes(ctx context.Context, top string, commits []string) (found []Clash, untried int, err error) {
	repo, err := open(ctx, top)
	if err != nil {
		return nil, 0, err
	}
	var pairs []Clash
	for b := range commits {
		for a := range b {
			pairs = append(pairs, Clash{A: a, B: b})
		}
	}
	untried = max(0, len(pairs)-maxPairs)
	pairs = pairs[:len(pairs)-untried]
	if len(pairs) == 0 {
		return nil, 0, nil
	}
	var in strings.Builder
	for _, p := range pairs {
		fmt.Fprintf(&in, "%s %s\n", commits[p.A], commits[p.B])
	}
	out := &askgit.Output{Room: clashesSize}
	args := []string{"--git-dir=.", "merge-tree", "--write-tree", "--stdin", "--name-only", "--no-messages"}
	err = repo.asks.Run(ctx, repo.objects, args, repo.bare, strings.NewReader(in.String()), out)
	if out.Room < 0 {
		err = fmt.Errorf("git prints more than %d MiB of them", clashesSize>>20)
	}
	if err != nil && strings.HasPrefix(err.Error(), "usage: git merge-tree") {
		err = hint.Errorf("git 2.39 or newer can", "this git cannot try merges")
	}
	if err != nil {
		return nil, 0, err
	}
	return clashesIn(out.String(), pairs), untried, nil
}

// bare makes a repository without references in a directory, which borrows the objects of this one.
func (r *repository) bare(dir string) error {
	err := errors.Join(os.MkdirAll(filepath.Join(dir, "objects/info"), 0o700), os.Mkdir(filepath.Join(dir, "refs"), 0o700))
	for name, text := range map[string][]byte{
		"HEAD": []byte("ref: refs/heads/none\n"), "config": []byte(r.cloneConfig()), "objects/info/alternates": r.alternates(), "shallow": r.shallow,
	} {
		if err == nil && len(text) > 0 {
			err = os.WriteFile(filepath.Join(dir, name), text, 0o600)
		}
	}
	return err
}

// clashesIn reads what git merge-tree prints for pairs, with the options above: of each whether it merges cleanly, 1 or 0,
// the tree, the files that do not merge, and an empty field. Each ends with a NUL.
func clashesIn(text string, pairs []Clash) (found []Clash) {
	fields := strings.Split(text, "\x00")
	for _, p := range pairs {
		if len(fields) < 3 {
			break
		}
		clean := fields[0] == "1"
		for fields = fields[2:]; len(fields) > 0 && fields[0] != ""; fields = fields[1:] {
			if len(p.Files) < clashesFiles {
				p.Files = append(p.Files, fields[0])
			}
		}
		if fields = fields[min(1, len(fields)):]; !clean {
			found = append(found, p)
		}
	}
	return found
}
