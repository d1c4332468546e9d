package gitdir

import (
	"bytes"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/pccrun/pccrun/workspace/vcs"
)

// Heads are the files beside references that hold names of commits.
var Heads = [...]string{"HEAD", "ORIG_HEAD", "MERGE_HEAD", "CHERRY_PICK_HEAD", "REVERT_HEAD", "FETCH_HEAD", "logs/HEAD", "logs/refs/stash", "packed-refs"}

// Tips are names of commits, and by which reference git knows each.
type Tips map[string]string

// Add takes those that stand in a file.
func (t Tips) Add(file string, b []byte) {
	for line := range bytes.Lines(b) {
		first, rest, _ := strings.Cut(string(bytes.TrimSpace(line)), " ")
		name := file
		switch file {
		case "packed-refs":
			name = rest
		case "logs/refs/stash": // from one to the next
			first, _, _ = strings.Cut(rest, " ")
		case "logs/HEAD": // where `git checkout -` leads
			_, first, _ = strings.Cut(rest, "\tcheckout: moving from ")
			first, _, _ = strings.Cut(first, " ")
		case "FETCH_HEAD":
			first, _, _ = strings.Cut(first, "\t")
		}
		if IsID(first) && strings.Trim(first, "0") != "" && t[first] == "" {
			t[first] = name
		}
	}
}

// Raw is how git is to list what differs: by bytes, and nothing of it is taken for a copy of something else.
var Raw = []string{"--raw", "-z", "--no-renames", "--no-abbrev", "--ignore-submodules=none"}

// Since returns what git is asked for the commits to which these lead and others do not, and its input.
func (t Tips) Since(others Tips) (args []string, input string) {
	var in strings.Builder
	for id := range t {
		in.WriteString(id + "\n")
	}
	for id := range others {
		in.WriteString("^" + id + "\n")
	}
	// --ignore-missing counts for what is read after it (revision.c).
	return append([]string{"log", "--ignore-missing", "--stdin", "-c", "--root", "--format=%x01%H%x00%S"}, Raw...), in.String()
}

// A Brought is a path that git would write.
type Brought struct {
	Path, ID string // of its content
	Mode     uint32
	Where    string // "the index", or the commit with the reference by which it was found
}

// EachBrought calls yield with the paths of an answer that has [Raw], less those that only go.
func (t Tips) EachBrought(text []byte, yield func(Brought)) {
	where, head := "the index", ""
	for token := range bytes.SplitSeq(text, []byte{0}) {
		text := strings.TrimPrefix(string(token), "\n")
		switch id, commit := strings.CutPrefix(text, "\x01"); {
		case head == "source":
			where, head = where[:min(12, len(where))]+" ("+t[text]+")", ""
		case head != "":
			// Modes, names of contents, and what became of it beside each parent.
			words := strings.Fields(strings.TrimLeft(head, ":"))
			head = ""
			if len(words) < 5 || strings.Trim(words[len(words)-1], "D") == "" {
				continue
			}
			mode, err := strconv.ParseUint(words[len(words)/2-1], 8, 32)
			if err == nil && mode != 0 {
				yield(Brought{Path: text, ID: words[len(words)-2], Mode: uint32(mode), Where: where})
			}
		case commit:
			where, head = id, "source"
		case strings.HasPrefix(text, ":"):
			head = text
		}
	}
}

// Files read repositories of which somebody hostile may have written each file.
type Files struct {
	Read func(path string) ([]byte, error)
	Link func(path string) string // where a link leads, "" for none
}

// from returns where a path leads that is said in a directory.
func from(dir, path string) string {
	if filepath.IsAbs(path) {
		return filepath.Clean(path)
	}
	return filepath.Join(dir, path)
}

// Common returns where a repository keeps what its working trees share.
func (f Files) Common(gitDir string) string {
	b, err := f.Read(gitDir + "/commondir")
	if err != nil {
		return gitDir
	}
	return from(gitDir, vcs.ParsePathFile(b))
}

// Tree returns where the paths of a repository begin.
func (f Files) Tree(gitDir string) string {
	tree := gitDir
	if filepath.Base(gitDir) == ".git" {
		tree = filepath.Dir(gitDir)
	}
	b, _ := f.Read(gitDir + "/config")
	for _, path := range vcs.WorkTrees(vcs.ParseConfig(b)) {
		tree = from(gitDir, path)
	}
	if b, err := f.Read(gitDir + "/gitdir"); err == nil && filepath.Base(filepath.Dir(gitDir)) == "worktrees" {
		tree = filepath.Dir(from(gitDir, vcs.ParsePathFile(b)))
	}
	return tree
}

// maxStores bounds the directories of objects of one repository.
const maxStores = 20

// Stores returns where else than there git finds objects: where a link leads, and in the alternates of each.
func (f Files) Stores(objects string) []string {
	dirs := []string{objects}
	add := func(dir, path string) {
		if dir = from(dir, path); len(dirs) < maxStores && !slices.Contains(dirs, dir) {
			dirs = append(dirs, dir)
		}
	}
	for i := 0; i < len(dirs); i++ {
		if link := f.Link(dirs[i]); link != "" {
			add(filepath.Dir(dirs[i]), link)
		}
		b, _ := f.Read(dirs[i] + "/info/alternates")
		for line := range strings.Lines(string(b)) {
			if line = strings.TrimSpace(line); line != "" && line[0] != '#' {
				add(dirs[i], line)
			}
		}
	}
	return dirs[1:]
}
