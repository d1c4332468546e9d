package filesync

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/pccrun/pccrun/internal/hint"
	"github.com/pccrun/pccrun/workspace/vcs"
)

// GitDirs returns the git directory of a working tree whose top is dir, and the one that it shares with
// others. A directory that does not name the tree itself is refused: a .git file could name any.
func GitDirs(dir string) (git, common string, err error) {
	at := filepath.Join(dir, ".git")
	info, err := os.Lstat(at)
	if err != nil {
		return "", "", fmt.Errorf("%s is not the top of a git repository", dir)
	}
	if git, common, err = gitDirs(at, info.IsDir()); err != nil {
		return git, common, err
	}
	if info.IsDir() && common == git {
		return git, common, nil
	}
	if info.IsDir() || filepath.Dir(git) != filepath.Join(common, "worktrees") {
		return "", "", fmt.Errorf("%s shares %s, which does not name it", at, common)
	}
	if text, err := readSmall(filepath.Join(git, "gitdir"), maxIgnoreFile); err != nil || vcs.ParsePathFile(text) != at {
		return "", "", fmt.Errorf("%s names %s, which does not name it", at, git)
	}
	return git, common, nil
}

// gitDirs returns the same, whatever it names.
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

// History is what goes up of a repository's history.
type History struct {
	Branch   string    `json:"branch"` // that they are on, as a reference
	Commits  int       `json:"commits"`
	Left     []Left    `json:"left"` // files that stay, of all commits
	Findings []Finding `json:"-"`
}

// messageName is where findings in the message of a commit are said to be.
const messageName = "commit message"

// maxBlob bounds one file of a commit.
const maxBlob = 64 << 20

// A historian reads a stream twice: a blob comes before its names.
type historian struct {
	*History
	tree  *Tree
	rules *secretRules
	sent  map[string]*Item
	names map[string]string // that a blob goes up by, by its mark
	links map[string]string // targets, by mark
	left  map[string]string // why a name stays
	gone  map[string]string // why a blob stays, by mark

	ignored func(rel string, isDir bool) string
}

// room is what a stream of git-fast-export(1) has on this machine's disk.
type room struct {
	io.Writer
	left int64
}

func (r *room) Write(b []byte) (int, error) {
	if r.left -= int64(len(b)); r.left < 0 {
		return 0, io.ErrShortWrite
	}
	return r.Writer.Write(b)
}

// History copies commits to a stream for git-fast-import(1), as those of one branch: without the files that do
// not go up with the tree either, by name or by content. export writes them as git-fast-export(1) does, up to
// "done"; it is kept in a file.
func (t *Tree) History(ctx context.Context, export func(to io.Writer) error, file io.ReadWriteSeeker, to io.Writer) (*History, error) {
	rules, err := loadRules()
	if err != nil {
		return nil, err
	}
	kept := &room{file, t.up.Limits.Bytes}
	if err := export(kept); kept.left < 0 {
		return nil, hint.Errorf("a smaller --history", "the commits hold more than %d MB", t.up.Limits.Bytes>>20)
	} else if err != nil {
		return nil, err
	}
	h := &historian{
		History: &History{Left: []Left{}}, tree: t, rules: rules, names: map[string]string{}, links: map[string]string{}, left: map[string]string{}, gone: map[string]string{},
		sent: t.Manifest.byPath(), ignored: t.Manifest.LeftOut(),
	}
	for _, out := range []*bufio.Writer{nil, bufio.NewWriterSize(to, 1<<20)} {
		if _, err := file.Seek(0, io.SeekStart); err != nil {
			return nil, err
		}
		h.Commits = 0
		clear(h.gone)
		r := &exported{Reader: bufio.NewReaderSize(contextReader{ctx, file}, 1<<20)}
		if err := h.copy(r, out); err != nil {
			return nil, fmt.Errorf("read the history: %w", err)
		}
		if out != nil {
			err = out.Flush()
		}
	}
	return h.History, err
}

// exported is the stream of git-fast-export(1), as its manual page describes that of git-fast-import(1).
type exported struct{ *bufio.Reader }

func (r *exported) line() (string, error) {
	text, err := r.ReadString('\n')
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return strings.TrimSuffix(text, "\n"), err
}

// size reads a line "data N".
func (r *exported) size() (int, error) {
	line, err := r.line()
	if err != nil {
		return 0, err
	}
	text, isData := strings.CutPrefix(line, "data ")
	n, err := strconv.Atoi(text)
	if !isData || err != nil || n < 0 {
		return 0, fmt.Errorf("%q is not the size of data", line)
	}
	return n, nil
}

func (r *exported) data(n int) ([]byte, error) {
	text := make([]byte, n)
	_, err := io.ReadFull(r, text)
	return text, err
}

// copy reads all of a stream. Without a writer it learns by which names blobs go up.
func (h *historian) copy(r *exported, out *bufio.Writer) error {
	for {
		line, err := r.line()
		word, rest, _ := strings.Cut(line, " ")
		switch {
		case err != nil:
		case word == "blob":
			err = h.blob(r, out)
		case word == "commit":
			if h.Branch = rest; !strings.HasPrefix(rest, "refs/heads/") {
				h.Branch = "refs/heads/main" // HEAD is on none
			}
			if h.Commits++; out != nil {
				fmt.Fprintf(out, "commit %s\n", h.Branch)
			}
			err = h.commit(r, out)
		case word == "done":
			if out != nil {
				_, err = out.WriteString("done\n")
			}
			return err
		case word != "feature" && word != "reset" && word != "":
			err = fmt.Errorf("%q is not expected", line)
		}
		if err != nil {
			return err
		}
	}
}

// blob takes the content of a file.
func (h *historian) blob(r *exported, out *bufio.Writer) error {
	mark, err := r.line()
	if err != nil {
		return err
	}
	n, err := r.size()
	if err != nil {
		return err
	}
	mark = strings.TrimPrefix(mark, "mark ")
	name, goes := h.names[mark]
	if n > maxBlob {
		h.gone[mark] = fmt.Sprintf("larger than %d MB", maxBlob>>20)
	}
	if out == nil || !goes || n > maxBlob {
		_, err = r.Discard(n)
		return err // the newline after it is an empty line
	}
	text, err := r.data(n)
	if err != nil {
		return err
	}
	if _, isLink := h.links[mark]; isLink {
		h.links[mark] = string(text)
		if h.gone[mark] = linkTrouble(name, string(text), noLink); h.gone[mark] != "" {
			return nil
		}
	}
	if found := h.rules.all(name, text, h.allowed); len(found) > 0 {
		h.Findings = append(h.Findings, found...)
		h.gone[mark] = "a secret: " + found[0].Rule
		return nil
	}
	_, err = fmt.Fprintf(out, "blob\nmark %s\ndata %d\n%s\n", mark, n, text)
	return err
}

func noLink(string) (target string, isLink bool) { return "", false }

func (h *historian) allowed(print string) bool { return slices.Contains(h.tree.up.Allow, print) }

// commit takes a commit, up to the empty line after its files.
func (h *historian) commit(r *exported, out *bufio.Writer) error {
	for {
		line, err := r.line()
		if err != nil {
			return err
		}
		word, rest, _ := strings.Cut(line, " ")
		switch word {
		case "":
			if out != nil {
				err = out.WriteByte('\n')
			}
			return err
		case "data":
			n, err := strconv.Atoi(rest)
			if err != nil || n < 0 || n > maxBlob {
				return fmt.Errorf("%q is not the size of a message", line)
			}
			text, err := r.data(n)
			if err != nil {
				return err
			}
			if out == nil {
				break
			}
			if found := h.rules.all(messageName, text, h.allowed); len(found) > 0 {
				h.Findings = append(h.Findings, found...)
				text = []byte("(left out: it may hold a secret)\n")
			}
			line = fmt.Sprintf("data %d\n%s", len(text), text)
		case "M":
			line, err = h.file(rest, out != nil)
		case "D":
			var why string
			if _, why, err = h.name(rest); why != "" {
				line = ""
			}
		case "mark", "author", "committer", "encoding", "from", "merge", "deleteall":
		default:
			return fmt.Errorf("%q is not expected in a commit", line)
		}
		if err == nil && out != nil && line != "" {
			_, err = out.WriteString(line + "\n")
		}
		if err != nil {
			return err
		}
	}
}

// name reads a path, and says why it stays.
func (h *historian) name(quoted string) (name, why string, err error) {
	name = quoted
	if strings.HasPrefix(quoted, `"`) {
		if name, err = strconv.Unquote(quoted); err != nil { // git quotes as C does
			return "", "", fmt.Errorf("%q is not a path", quoted)
		}
	}
	why, known := h.left[name]
	if !known {
		why = h.stays(name)
		h.left[name] = why
	}
	return name, why, nil
}

// file returns what stands in a commit for a file of it: mode, mark or hash, and path.
func (h *historian) file(text string, decided bool) (string, error) {
	fields := strings.SplitN(text, " ", 3)
	if len(fields) != 3 || fields[2] == "" || fields[0] != "160000" && fields[1][:min(1, len(fields[1]))] != ":" {
		return "", fmt.Errorf("%q is not a file", text)
	}
	mode, mark := fields[0], fields[1]
	name, why, err := h.name(fields[2])
	line := ""
	if why == "" {
		line = "D " + fields[2] // what an earlier commit had
	}
	switch {
	case err != nil || why != "":
	case mode == "160000":
		return "M " + text, nil
	case !decided:
		if h.names[mark] = name; mode == "120000" {
			h.links[mark] = ""
		}
		return "", nil
	case h.gone[mark] != "":
		why = h.gone[mark]
	case mode == "120000":
		why = linkTrouble(name, h.links[mark], noLink)
	}
	if why == "" {
		return "M " + text, err
	}
	if decided && !slices.ContainsFunc(h.Left, func(l Left) bool { return l.Path == name }) {
		h.Left = append(h.Left, Left{Path: name, Why: why})
	}
	return line, nil
}

// stays says why a path goes up in no commit.
func (h *historian) stays(name string) string {
	if why := pathTrouble(name); why != "" {
		return why
	}
	for rel, isDir := name, false; rel != ""; rel, isDir = parentOf(rel), true {
		if readsAsGit(path.Base(rel)) {
			return "a repository in it"
		}
		if why := excludedAlways(rel, isDir); why != "" {
			return why
		}
		if hides := h.tree.up.Hides; hides != nil && hides(rel) != "" {
			return hides(rel)
		}
	}
	if h.sent[name] != nil { // also what git ignores and tracks
		return ""
	}
	return h.ignored(name, false)
}
