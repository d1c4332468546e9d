package filesync

import (
	"bytes"
	"context"
	"errors"
	"fmt"
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
	under       string // where the directory lies in its working tree
	top         string
	git, common string // its directories, the second shared with other working trees; "" if they cannot be found
	asked       bool
	tracked     []string // what its index lists below the directory, sorted
}

const maxIgnoreFile = 1 << 20

// findRepository looks for one, upwards from a directory.
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
		r.git, r.common, _ = gitDirs(filepath.Join(top, ".git"), info.IsDir())
		return r
	}
}

// gitDirs returns the git directory of a working tree, and the one that it shares with others.
func gitDirs(at string, isDir bool) (git, common string, err error) {
	if git = at; !isDir {
		text, err := readSmall(at, maxIgnoreFile)
		if err != nil {
			return "", "", err
		}
		to, err := vcs.ParseGitFile(text)
		if err != nil {
			return "", "", err
		}
		git = inDir(filepath.Dir(at), to)
	}
	common = git
	if text, err := readSmall(filepath.Join(git, "commondir"), maxIgnoreFile); err == nil {
		common = inDir(git, vcs.ParsePathFile(text))
	}
	return git, common, nil
}

func inDir(dir, to string) string {
	if filepath.IsAbs(to) {
		return to
	}
	return filepath.Join(dir, to)
}

// exclude returns the text of info/exclude, "" where it cannot be read.
func (r *repository) exclude() string {
	text, _ := readSmall(filepath.Join(r.common, "info", "exclude"), maxIgnoreFile)
	return string(text)
}

// maxTracked bounds what git may list.
const maxTracked = 64 << 20

// list has git list what the index has below the directory, once.
func (r *repository) list(ctx context.Context, git RunGit) error {
	if r.asked {
		return nil
	}
	r.asked = true
	if r.git == "" {
		return errors.New("its .git file names no git directory")
	}
	names := &limitedBuffer{most: maxTracked}
	show := slices.Compact([]string{r.git, r.common})
	if err := git(ctx, show, []string{"--git-dir=" + r.git, "ls-files", "-z"}, func(string) error { return nil }, nil, names); err != nil {
		return err
	}
	for name := range strings.SplitSeq(names.String(), "\x00") {
		if r.under != "" {
			rel, below := strings.CutPrefix(name, r.under+"/")
			if !below {
				continue
			}
			name = rel
		}
		r.tracked = append(r.tracked, name)
	}
	slices.Sort(r.tracked)
	return nil
}

// tracks reports whether the index lists a path, or something below it.
func (r *repository) tracks(rel string, isDir bool) bool {
	if !isDir {
		_, found := slices.BinarySearch(r.tracked, rel)
		return found
	}
	i, _ := slices.BinarySearch(r.tracked, rel+"/")
	return i < len(r.tracked) && strings.HasPrefix(r.tracked[i], rel+"/")
}

// A limitedBuffer takes so many bytes and no more.
type limitedBuffer struct {
	bytes.Buffer
	most int
}

func (b *limitedBuffer) Write(text []byte) (int, error) {
	if b.Len()+len(text) > b.most {
		return 0, fmt.Errorf("git prints more than %d MiB", b.most>>20)
	}
	return b.Buffer.Write(text)
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
