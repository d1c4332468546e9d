//go:build unix

package task

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/run/askgit"
	"github.com/pccrun/pccrun/workspace/beneath"
)

// includeFile names files that git ignores and a new work tree needs, in the form of gitignore(5). Other tools read it too.
const includeFile = ".worktreeinclude"

// Bounds of what is copied.
const (
	copiedFiles = 512
	copiedBytes = 256 << 20
)

// A copyList is what of the user's work tree a clone gets a copy of.
type copyList struct {
	paths []string // below the work tree
	left  []string // what is left out, and why
}

func (l *copyList) leave(path, why string) { l.left = append(l.left, path+" ("+why+")") }

// wanted asks git for the files that patterns, or the repository's own file of them, name. Git has to ignore them: what it does
// not ignore a task would commit. Nothing that a rule hides is among them.
func (r *repository) wanted(ctx context.Context, patterns []string, policy *profiles.Policy) (list copyList, err error) {
	var names []string
	for _, pattern := range patterns {
		names = append(names, "--exclude="+pattern)
	}
	if info, err := os.Lstat(filepath.Join(r.top, includeFile)); err == nil && info.Mode().IsRegular() && info.Size() < copySize {
		names = append(names, "--exclude-from="+filepath.Join(r.top, includeFile))
	} else if err == nil {
		list.leave(includeFile, "it is no small file")
	}
	if names == nil {
		return list, nil
	}
	named, err := r.untracked(ctx, names)
	if err != nil || len(named) == 0 {
		return list, err
	}
	if over := len(named) - copiedFiles; over > 0 {
		list.leave(Count(over, "file"), fmt.Sprintf("more than %d", copiedFiles))
		named = named[:copiedFiles]
	}
	ignored, err := r.untracked(ctx, append([]string{"--exclude-standard", "--"}, named...))
	if err != nil {
		return list, err
	}
	for _, name := range named {
		switch {
		case strings.HasSuffix(name, "/"):
			list.leave(name, "a repository of its own")
		case !slices.Contains(ignored, name):
			list.leave(name, "git does not ignore it")
		case policy.Decide(filepath.Join(r.top, name)).Access < profiles.Read:
			list.leave(name, "a rule hides it")
		case strings.ContainsAny(name, "\n\r"):
			list.leave(name, "a newline in its name")
		default:
			list.paths = append(list.paths, name)
		}
	}
	return list, nil
}

// untracked returns the files that git does not track, as arguments of ls-files choose them.
func (r *repository) untracked(ctx context.Context, args []string) ([]string, error) {
	text, err := r.asks.Answer(ctx, askgit.Call{Read: append(r.dirs(), r.top), Patience: patience, Args: append([]string{
		"--git-dir=" + r.git, "--work-tree=" + r.top, "--no-optional-locks", "--literal-pathspecs", "-c", "core.fsmonitor=false", "ls-files", "-z", "--others", "--ignored",
	}, args...)}, statusSize)
	if err != nil {
		return nil, fmt.Errorf("git cannot list the files that it ignores: %w", err)
	}
	return strings.FieldsFunc(text, func(c rune) bool { return c == 0 }), nil
}

// excludes are lines of info/exclude for what is copied: a base in which another .gitignore stands does not have it committed.
func (l *copyList) excludes() (text []byte) {
	if len(l.paths) == 0 {
		return nil
	}
	special := strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`, " ", `\ `)
	for _, name := range l.paths {
		text = append(text, "\n/"+special.Replace(name)...)
	}
	return append(text, '\n')
}

// copyTo copies the files into the clone of a work tree. No link is followed, here or there, and what stands there stays. What
// cannot be copied is left out, by name.
func (l *copyList) copyTo(clone, top string) error {
	from, err := beneath.OpenDirectory(top)
	if err != nil {
		return err
	}
	defer from.Close()
	to, err := os.OpenRoot(clone)
	if err != nil {
		return err
	}
	defer to.Close()
	left := int64(copiedBytes)
	l.paths = slices.DeleteFunc(l.paths, func(name string) bool {
		n, err := copyFile(to, int(from.Fd()), name, left)
		if left -= n; err != nil {
			why := err.Error()
			if errors.Is(err, fs.ErrExist) {
				why = "it is in the commit"
			}
			l.leave(name, why)
		}
		return err != nil
	})
	if len(l.paths) > 0 {
		time.Sleep(beforeRun)
	}
	return nil
}

// beforeRun is how old a file must be when a run begins, so that the run's check does not take it for one that the run made:
// twice what package workspace allows for the ticks of a file system's clock.
const beforeRun = 40 * time.Millisecond

// copyFile copies one, of at most so many bytes.
func copyFile(to *os.Root, from int, name string, most int64) (int64, error) {
	fd, err := beneath.Open(from, name, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW)
	if err != nil {
		return 0, errors.New("it cannot be read, or a link leads there")
	}
	source := os.NewFile(uintptr(fd), name)
	defer source.Close()
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return 0, err
	}
	switch {
	case beneath.KindOf(uint32(st.Mode)) != beneath.File:
		return 0, errors.New("it is no file")
	case st.Nlink > 1: // the other may be one that a rule hides
		return 0, errors.New("it has another name")
	case st.Size > most:
		return 0, fmt.Errorf("more than %d MiB together", copiedBytes>>20)
	}
	if err := plainDirs(to, path.Dir(name)); err != nil {
		return 0, err
	}
	file, err := to.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, fs.FileMode(st.Mode)&0o755)
	if err != nil {
		return 0, err
	}
	defer file.Close()
	n, err := io.Copy(file, io.LimitReader(source, st.Size))
	return n, errors.Join(err, file.Close())
}

// plainDirs makes a directory and those above it, none of which may be a link: nobody else is at work there yet.
func plainDirs(to *os.Root, dir string) error {
	if dir == "." {
		return nil
	}
	if err := plainDirs(to, path.Dir(dir)); err != nil {
		return err
	}
	if err := to.Mkdir(dir, 0o755); !errors.Is(err, fs.ErrExist) {
		return err
	}
	info, err := to.Lstat(dir)
	if err == nil && !info.IsDir() || strings.EqualFold(path.Base(dir), ".git") {
		err = errors.New("no directory is in its place in the commit")
	}
	return err
}

// copiesSaid bounds how many files a line names.
const copiesSaid = 8

// said are lines about what was copied.
func (l *copyList) said() (lines []string) {
	some := func(list []string) string {
		text := strings.Join(list[:min(len(list), copiesSaid)], ", ")
		if over := len(list) - copiesSaid; over > 0 {
			text += fmt.Sprintf(" and %d more", over)
		}
		return text
	}
	if len(l.paths) > 0 {
		lines = append(lines, "copied, of what git ignores: "+some(l.paths))
	}
	if len(l.left) > 0 {
		lines = append(lines, "not copied: "+some(l.left))
	}
	return lines
}
