package programs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/pccrun/pccrun/internal/state"
)

// The record is a file of lines: `tree "PATH"`, `inode ID "PATH"` with what [inode] told of that tree, and
// `program HASH "PATH"`.
const (
	recordName = "programs"
	maxRecord  = 256 << 10 // bytes
)

// Records returns the directories in which the records lie: in the home that the user database has, and
// in pccrun's state directory if that is another. A variable can so add one, and replace none: what is
// trusted stands in the first alone. A home of another user holds no record: who is root in a user
// namespace has the database's home of the host's root.
func Records(home, stateDir string) (dirs []string) {
	if HasHome(home) {
		if real, err := state.Real(home); err == nil {
			home = real
		}
		dirs = append(dirs, filepath.Join(home, ".local/state/pccrun"))
	}
	if filepath.IsAbs(stateDir) && !slices.Contains(dirs, stateDir) {
		dirs = append(dirs, stateDir)
	}
	return dirs
}

// HasHome reports whether a home of the user database is the user's own, so that a record can lie in it.
func HasHome(home string) bool {
	info, err := os.Stat(home)
	return err == nil && info.IsDir() && filepath.IsAbs(home) && isOwn(info)
}

// A record is what the records together hold.
type record struct {
	trees   []string
	inodes  map[string]bool   // of trees, also after they were renamed
	trusted map[string]string // hashes by path
}

// add takes a text in. A line that says nothing is of another version.
func (r *record) add(text []byte) {
	for line := range strings.Lines(string(text)) {
		word, rest, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		sum := ""
		if word == "program" || word == "inode" {
			sum, rest, _ = strings.Cut(rest, " ")
		}
		path, err := strconv.Unquote(rest)
		switch {
		case err != nil:
		case word == "tree":
			r.trees = append(r.trees, path)
		case word == "inode":
			if r.inodes == nil {
				r.inodes = map[string]bool{}
			}
			r.inodes[sum] = true
		case word == "program":
			if r.trusted == nil {
				r.trusted = map[string]string{}
			}
			r.trusted[path] = sum
		}
	}
}

func treeLine(path string) string { return "tree " + strconv.Quote(path) + "\n" }

func inodeLine(id, path string) string { return "inode " + id + " " + strconv.Quote(path) + "\n" }

// Cover records trees that a run is about to write, where their links lead. Most launches find them
// recorded, and write nothing. It is an error if no record has all of them.
func (f *Finder) Cover(trees []string) error {
	var lines []string
	for _, tree := range trees {
		real, err := state.Real(tree)
		if err != nil {
			real = tree
		}
		if line := treeLine(real); !slices.Contains(lines, line) {
			lines = append(lines, line)
			if id := inode(real); id != "" {
				lines = append(lines, inodeLine(id, real))
			}
		}
	}
	var failed []error
	for _, dir := range f.Records {
		text, err := read(dir)
		have := "\n" + string(text)
		lacks := func(line string) bool { return !strings.Contains(have, "\n"+line) }
		if err == nil && slices.ContainsFunc(lines, lacks) {
			text, err = edit(dir, func(have []string) []string {
				for _, line := range lines {
					if !slices.Contains(have, line) {
						have = append(have, line)
					}
				}
				return have
			})
		}
		if err != nil {
			failed = append(failed, err)
			continue
		}
		if f.kept == nil {
			f.kept = map[string][]byte{}
		}
		f.kept[dir] = text
	}
	if len(f.Records) > len(failed) {
		return nil
	}
	return fmt.Errorf("record what this run can write: %w", errors.Join(failed...))
}

// Trust lets a program pass as long as it has its present content, wherever it lies. It returns where
// its links lead.
func (f *Finder) Trust(file string) (real string, err error) {
	if f.NoTrust || len(f.Records) == 0 {
		return "", errors.New("the user database has no home of your own, in which trust could be recorded")
	}
	if real, err = resolve(file); err != nil {
		return "", err
	}
	sum, err := hash(real)
	if err != nil {
		return "", err
	}
	_, err = f.Distrust(real)
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		_, err = edit(f.Records[0], func(have []string) []string {
			return append(have, "program "+sum+" "+strconv.Quote(real)+"\n")
		})
	}
	return real, err
}

// Distrust takes that back; [fs.ErrNotExist] if the program was not trusted.
func (f *Finder) Distrust(file string) (real string, err error) {
	if real, err = resolve(file); err != nil { // it may be gone
		real = file
	}
	if len(f.Records) == 0 {
		return real, fs.ErrNotExist
	}
	found, quoted := false, strconv.Quote(real)
	is := func(line string) bool {
		return strings.HasPrefix(line, "program ") && strings.HasSuffix(line, " "+quoted+"\n")
	}
	_, err = edit(f.Records[0], func(have []string) []string {
		found = slices.ContainsFunc(have, is)
		return slices.DeleteFunc(have, is)
	})
	if err != nil {
		return real, err
	}
	if !found {
		return real, fs.ErrNotExist
	}
	return real, nil
}

// Trusted returns the programs that the user trusts, by path, and whether each still has the content.
func (f *Finder) Trusted() (map[string]bool, error) {
	j, err := f.judge()
	if err != nil {
		return nil, err
	}
	list := map[string]bool{}
	for path := range j.trusted {
		list[path] = j.trusts(path)
	}
	return list, nil
}

func resolve(file string) (string, error) {
	file, err := filepath.Abs(file)
	if err != nil {
		return "", err
	}
	return filepath.EvalSymlinks(file)
}

// bounded takes trees out that are gone where there are too many, and inodes of which another stands at the path now.
// Trees that stand are not forgotten.
func bounded(lines []string) (string, error) {
	text := strings.Join(lines, "")
	if len(text) <= maxRecord {
		return text, nil
	}
	text = strings.Join(slices.DeleteFunc(lines, func(line string) bool {
		var r record
		r.add([]byte(line))
		if path := line[strings.Index(line, `"`)+1:]; len(r.inodes) > 0 {
			path, err := strconv.Unquote(`"` + strings.TrimSuffix(path, "\n"))
			return err != nil || inodeLine(inode(path), path) != line
		}
		return len(r.trees) == 0 && len(r.trusted) == 0 || slices.ContainsFunc(r.trees, func(tree string) bool {
			_, err := os.Lstat(tree)
			return errors.Is(err, fs.ErrNotExist)
		})
	}), "")
	if len(text) > maxRecord {
		return "", fmt.Errorf("more than %d KiB of trees that runs could write", maxRecord>>10)
	}
	return text, nil
}
