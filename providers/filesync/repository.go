package filesync

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/pccrun/pccrun/workspace/vcs"
)

// A repository is the one of git that a directory lies in.
type repository struct {
	under   string // where the directory lies in its working tree
	top     string
	exclude string   // the text of info/exclude
	tracked []string // what the index lists below the directory, sorted
}

const maxIgnoreFile = 1 << 20

// findRepository looks for one, upwards from a directory. What cannot be read of it leaves
// out nothing and tracks nothing: more is ignored then.
func findRepository(dir string) *repository {
	for top := dir; ; top = filepath.Dir(top) {
		info, err := os.Lstat(filepath.Join(top, ".git"))
		if err != nil {
			if filepath.Dir(top) == top {
				return nil
			}
			continue
		}
		under, _ := filepath.Rel(top, dir)
		r := &repository{top: top, under: filepath.ToSlash(under)}
		if r.under == "." {
			r.under = ""
		}
		git, common, err := gitDirs(filepath.Join(top, ".git"), info.IsDir())
		if err != nil {
			return r
		}
		if text, err := readSmall(filepath.Join(common, "info", "exclude"), maxIgnoreFile); err == nil {
			r.exclude = string(text)
		}
		r.tracked = trackedIn(git, common, r.under)
		return r
	}
}

func inDir(dir, to string) string {
	if filepath.IsAbs(to) {
		return to
	}
	return filepath.Join(dir, to)
}

// trackedIn lists what the index of a repository has below a directory of its working tree.
func trackedIn(git, common, under string) (list []string) {
	config, err := readSmall(filepath.Join(common, "config"), vcs.MaxConfig)
	if err != nil {
		return nil
	}
	format, known := vcs.HashOf(config)
	if !known {
		return nil
	}
	index, err := readSmall(filepath.Join(git, "index"), vcs.MaxGitIndex)
	if err != nil {
		return nil
	}
	prefix := ""
	if under != "" {
		prefix = under + "/"
	}
	room := vcs.MaxGitIndex // for names, of which an index may say only how each differs from the last
	x, ok := vcs.ParseIndex(index, format, func(e *vcs.IndexEntry) bool {
		room -= len(e.Name)
		if rel, ok := strings.CutPrefix(string(e.Name), prefix); ok {
			list = append(list, rel)
		}
		return room >= 0
	})
	if !ok || x.Part("link") != nil { // of a split index another file says the rest
		return nil
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// tracks reports whether the index lists a path, or something below it.
func (r *repository) tracks(rel string, isDir bool) bool {
	if r == nil {
		return false
	}
	i, found := slices.BinarySearch(r.tracked, rel)
	if !isDir {
		return found
	}
	i, _ = slices.BinarySearch(r.tracked, rel+"/")
	return i < len(r.tracked) && len(r.tracked[i]) > len(rel) && r.tracked[i][:len(rel)+1] == rel+"/"
}

// readSmall reads a regular file, not through a link, of at most limit bytes.
func readSmall(name string, limit int64) ([]byte, error) {
	info, err := os.Lstat(name)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, &fs.PathError{Op: "read", Path: name, Err: errors.New("not a regular file")}
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return readAtMost(f, limit)
}

func readAtMost(r io.Reader, limit int64) ([]byte, error) {
	text, err := io.ReadAll(io.LimitReader(r, limit+1))
	if err == nil && int64(len(text)) > limit {
		err = errors.New("too large")
	}
	return text, err
}
