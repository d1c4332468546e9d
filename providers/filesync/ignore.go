package filesync

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/pccrun/pccrun/internal/hint"
)

// RunGit runs git in a sandbox that shows a directory of its own, and, read-only, what is in show. prepare is given
// the directory before git starts; what is written there later git sees as well.
type RunGit func(ctx context.Context, show, args []string, prepare func(dir string) error, in io.Reader, out io.Writer) error

// The names of ignore files. Each holds for the directory that it lies in.
const (
	gitIgnore    = ".gitignore"
	e2bIgnore    = ".e2bignore"
	pccrunIgnore = ".pccrunignore"
)

// IsIgnoreFile reports whether a name is that of an ignore file.
func IsIgnoreFile(name string) bool {
	return name == gitIgnore || name == e2bIgnore || name == pccrunIgnore
}

// An ignorer has git say which paths ignore files leave out (git-check-ignore(1)). The work tree of its git is a
// directory of pccrun's that holds the texts of ignore files and nothing else: no configuration, index or name of the
// workspace. Each rule set has a directory of its own there, for what one leaves out no other takes in again.
type ignorer struct {
	ctx  context.Context
	git  RunGit
	sets []*ruleSet

	work string // the work tree, "" while git does not run
	in   *io.PipeWriter
	out  *bufio.Reader
	done chan error
}

// A ruleSet is what ignore files of one kind say, by the directories that they lie in.
type ruleSet struct {
	number int
	under  string                  // where the paths that are asked about lie among those of the files
	files  map[string][]ignoreFile // of each directory, the later before the earlier
	lines  map[string]int          // that are written already
}

// An ignoreFile is a text among those that stand for one ignore file.
type ignoreFile struct {
	name  string // that messages give it
	first int    // its first line there
}

func newIgnorer(ctx context.Context, git RunGit) *ignorer { return &ignorer{ctx: ctx, git: git} }

// set adds a rule set that has no file yet.
func (g *ignorer) set(under string) *ruleSet {
	s := &ruleSet{len(g.sets), under, map[string][]ignoreFile{}, map[string]int{}}
	g.sets = append(g.sets, s)
	return s
}

// add adds a text to the rules of a directory. A later one has precedence over an earlier one.
func (g *ignorer) add(s *ruleSet, dir, name, text string) error {
	text = strings.TrimPrefix(text, "\ufeff")
	if strings.TrimSpace(text) == "" {
		return nil
	}
	if err := g.start(); err != nil {
		return err
	}
	s.files[dir] = append(s.files[dir], ignoreFile{name, s.lines[dir] + 1})
	s.lines[dir] += strings.Count(text, "\n") + 1
	at := filepath.Join(g.work, strconv.Itoa(s.number), filepath.FromSlash(dir))
	if err := os.MkdirAll(at, 0o700); err != nil {
		return err
	}
	f, err := os.OpenFile(filepath.Join(at, gitIgnore), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text + "\n")
	return errors.Join(err, f.Close())
}

// reinclude has a directory that is named itself count as one that no rule leaves out.
func (g *ignorer) reinclude(s *ruleSet, dir string) error {
	var literal strings.Builder
	for _, c := range path.Base(dir) {
		if strings.ContainsRune(`\*?[ `, c) {
			literal.WriteByte('\\')
		}
		literal.WriteRune(c)
	}
	return g.add(s, parentOf(dir), dir, "!/"+literal.String()+"/")
}

// start has git wait for questions.
func (g *ignorer) start() error {
	if g.work != "" {
		return nil
	}
	if g.git == nil {
		return errors.New("BUG: ignore files are there, and no git to read them")
	}
	questions, in := io.Pipe()
	answers, out := io.Pipe()
	g.in, g.out, g.done = in, bufio.NewReaderSize(answers, 64<<10), make(chan error, 1)
	works := make(chan string, 1)
	prepare := func(dir string) error {
		err := makeRepository(dir)
		if err == nil {
			works <- dir
		}
		return err
	}
	args := []string{"--git-dir=.git", "check-ignore", "--no-index", "--stdin", "-z", "--verbose", "--non-matching"}
	go func() {
		err := g.git(g.ctx, nil, args, prepare, questions, out)
		questions.CloseWithError(io.ErrClosedPipe)
		out.Close()
		close(works)
		g.done <- err
	}()
	work, runs := <-works
	if !runs {
		return g.failed(g.ended())
	}
	g.work = work
	return nil
}

// makeRepository makes the least that git takes for a repository.
func makeRepository(dir string) error {
	git := filepath.Join(dir, ".git")
	err := errors.Join(os.MkdirAll(filepath.Join(git, "objects"), 0o700), os.MkdirAll(filepath.Join(git, "refs"), 0o700))
	if err == nil {
		err = os.WriteFile(filepath.Join(git, "HEAD"), []byte("ref: refs/heads/main\n"), 0o600)
	}
	return err
}

// ended waits for the end of git, and says why.
func (g *ignorer) ended() error {
	err := <-g.done
	g.done <- err
	return err
}

func (g *ignorer) failed(err error) error {
	return hint.Errorf("git has to be installed, and to run in a sandbox here", "git cannot say what ignore files leave out: %w", err)
}

// excluded returns which line of an ignore file leaves out each of the paths, or a directory above it: "" for none.
// A directory's path ends in a slash. All of one directory are asked before any in it: git keeps what it has read of the
// directory that it was asked about last.
func (g *ignorer) excluded(paths []string) ([]string, error) {
	why := make([]string, len(paths))
	if g.work == "" || len(paths) == 0 {
		return why, nil
	}
	var questions bytes.Buffer
	for _, s := range g.sets {
		for _, p := range paths {
			question := strconv.Itoa(s.number) + "/" + join(s.under, p)
			if _, err := os.Lstat(filepath.Join(g.work, filepath.FromSlash(question))); err == nil {
				question = strings.TrimSuffix(question, "/") // git sees that it is a directory
			}
			questions.WriteString(question + "\x00")
		}
	}
	questions.WriteString("end\x00") // git leaves all directories for it
	go func() { _, _ = g.in.Write(questions.Bytes()) }()
	for _, s := range g.sets {
		for i := range paths {
			line, err := g.answer(s)
			if err != nil {
				return nil, err
			}
			if why[i] == "" {
				why[i] = line
			}
		}
	}
	_, err := g.answer(nil)
	return why, err
}

func join(dir, name string) string {
	if dir == "" {
		return name
	}
	return dir + "/" + name
}

// answer reads one: source, line, pattern and path.
func (g *ignorer) answer(s *ruleSet) (why string, err error) {
	var fields [4]string
	for i := range fields {
		text, err := g.out.ReadString(0)
		if err != nil {
			if err = g.ended(); err == nil {
				err = errors.New("it ended before its last answer")
			}
			return "", g.failed(err)
		}
		fields[i] = text[:len(text)-1]
	}
	if fields[0] == "" || strings.HasPrefix(fields[2], "!") { // of a pattern that begins with ! git prints \!
		return "", nil
	}
	line, err := strconv.Atoi(fields[1])
	if err != nil || s == nil {
		return "", g.failed(fmt.Errorf("%q is no answer", fields))
	}
	dir := strings.TrimPrefix(path.Dir(fields[0]), strconv.Itoa(s.number))
	for _, f := range slices.Backward(s.files[strings.TrimPrefix(dir, "/")]) {
		if f.first <= line {
			return fmt.Sprintf("%s:%d", f.name, line-f.first+1), nil
		}
	}
	return "", g.failed(fmt.Errorf("%q is of no ignore file", fields[0]))
}

// close ends git.
func (g *ignorer) close() {
	if g.in != nil {
		g.in.Close()
		_, _ = io.Copy(io.Discard, g.out)
		_ = g.ended()
	}
}

// parentOf returns the directory of a path, "" for the top.
func parentOf(rel string) string { return rel[:max(0, strings.LastIndexByte(rel, '/'))] }

// excludedBy returns which of the paths the texts of ignore files leave out, by name and directory, and by which line.
// A directory's path ends in a slash. What is no path below a directory git is not asked about, and no file leaves it out.
func excludedBy(ctx context.Context, git RunGit, texts []map[string]map[string]string, paths []string) (map[string]string, error) {
	g := newIgnorer(ctx, git)
	defer g.close()
	for _, names := range texts {
		for _, name := range slices.Sorted(maps.Keys(names)) {
			s := g.set("")
			for dir, text := range names[name] {
				if err := g.add(s, dir, path.Join(dir, name), text); err != nil {
					return nil, err
				}
			}
		}
	}
	paths = slices.DeleteFunc(slices.Clone(paths), func(p string) bool { return !fs.ValidPath(strings.TrimSuffix(p, "/")) || strings.IndexByte(p, 0) >= 0 })
	list, err := g.excluded(paths)
	by := map[string]string{}
	for i, line := range list {
		if line != "" {
			by[strings.TrimSuffix(paths[i], "/")] = line
		}
	}
	return by, err
}

// A Selection is what patterns select. Each is a line of an ignore file, and selects a directory with all in it;
// one with ! leaves out, whatever selects. Without any that selects, all else is selected.
type Selection struct{ in, out string }

// ParseSelection reads patterns.
func ParseSelection(patterns []string) (s Selection, err error) {
	for _, p := range patterns {
		line, negated := strings.CutPrefix(p, "!")
		if strings.Trim(line, "/ \t\r") == "" || strings.ContainsAny(line, "\n\x00") || line[0] == '#' || line[0] == '!' {
			return s, fmt.Errorf("pattern %q: gitignore has none like it", p)
		}
		if negated {
			s.out += line + "\n"
		} else {
			s.in += line + "\n"
		}
	}
	return s, nil
}

// Of returns which of the paths are selected; a directory's ends in a slash, and not in the answer.
func (s Selection) Of(ctx context.Context, git RunGit, paths []string) (map[string]bool, error) {
	one := func(text string) (map[string]string, error) {
		return excludedBy(ctx, git, []map[string]map[string]string{{gitIgnore: {"": text}}}, paths)
	}
	in, err := one(s.in)
	if err != nil {
		return nil, err
	}
	out, err := one(s.out)
	selected := map[string]bool{}
	for _, p := range paths {
		p = strings.TrimSuffix(p, "/")
		selected[p] = (s.in == "" || in[p] != "") && out[p] == ""
	}
	return selected, err
}
