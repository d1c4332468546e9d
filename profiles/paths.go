package profiles

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
)

// A scope is what expanding a path and a limit needs to know.
type scope struct {
	home      string // for ~
	workspace string // for . in files
	cwd       string // for relative paths in flags
	bare      bool   // x means ./x, as for any command; else it is a mistake
	dot       string // for . in what is read: the workspace in profiles, the current directory in flags
	base      string // the directory of the file that is read, for paths of other files
	memory    int64  // bytes of this machine
}

// hinted is an error that knows what mends it.
type hinted struct {
	error
	hint string
}

func hintOf(err error) string {
	var h hinted
	if errors.As(err, &h) {
		return h.hint
	}
	return ""
}

func quote(s string) string { return strconv.Quote(s) }
func itoa(n int) string     { return strconv.Itoa(n) }

// Bounds of Linux: PATH_MAX less its NUL, and NAME_MAX.
const (
	maxPath = 4095
	maxName = 255
)

// path expands ~ and ., where . is the given directory, and returns an
// absolute, clean path.
func (s *scope) path(text, dot string) (string, error) {
	full, _, err := s.expand(text, dot)
	return full, err
}

// expand is path, and returns the directory too that ~ or . stood for.
func (s *scope) expand(text, dot string) (full, base string, err error) {
	if text == "" {
		return "", "", errors.New("empty path")
	}
	for _, c := range []byte(text) {
		if c < ' ' || c == 0x7f {
			return "", "", fmt.Errorf("%q: control character in a path", text)
		}
	}
	first, rest, _ := strings.Cut(text, "/")
	switch {
	case strings.HasPrefix(text, "/"):
		base = "/"
	case first == "~":
		base = s.home
	case strings.HasPrefix(text, "~"):
		return "", "", hinted{fmt.Errorf("%q: homes of other users are not supported", text), "write the absolute path"}
	case strings.HasPrefix(text, "$"):
		hint := "write ~ for the home and . for the workspace"
		if s.bare {
			hint = "let the shell expand it, or write ~ for the home"
		}
		return "", "", hinted{fmt.Errorf("%q: variables are not expanded", text), hint}
	case first == "**":
		base, rest = s.workspace, text
	case first == "." || first == ".." || s.bare:
		base, rest = dot, text
	default:
		return "", "", hinted{fmt.Errorf("%q: want a path that begins with /, ~, . or **/", text), "./" + text + " is the path in the workspace"}
	}
	if strings.HasPrefix(text, "/") {
		full = Physical(text) // which is itself, where there is nothing to clean
	} else {
		full = Physical(base + "/" + rest)
	}
	if len(full) > maxPath {
		return "", "", fmt.Errorf("path of %d bytes: want at most %d", len(full), maxPath)
	}
	for i := 1; i <= len(full); {
		name, next := nextName(full, i)
		if len(name) > maxName {
			return "", "", fmt.Errorf("name of %d bytes in a path: want at most %d", len(name), maxName)
		}
		i = next
	}
	return full, base, nil
}

// Physical returns a path that leads where this one does, and is clean: to the kernel
// the parent of a link is that of what it leads to, where path.Clean takes the link away.
func Physical(name string) string {
	if !strings.HasPrefix(name, "/") || !strings.Contains(name, "/..") {
		return path.Clean(name)
	}
	at := "/"
	for part := range strings.SplitSeq(name, "/") {
		if part == ".." {
			if to, err := filepath.EvalSymlinks(at); err == nil {
				at = to
			}
		}
		at = path.Join(at, part)
	}
	return at
}

// fileRule expands a key of the file table; a pattern is split at the first
// name that has a special character.
func (s *scope) fileRule(text, dot string) (FileRule, error) {
	p, base, err := s.expand(text, dot)
	if err != nil {
		return FileRule{}, err
	}
	// Only what was written is a pattern, not what ~ and . stood for, less
	// what .. took off it.
	for !within(base, p) {
		base = path.Dir(base)
	}
	literal := len(base)
	n := strings.IndexAny(p[literal:], "*?[")
	if n < 0 {
		return FileRule{Path: p}, nil
	}
	slash := strings.LastIndexByte(p[:literal+n], '/')
	rule := FileRule{Path: p[:max(slash, 1)], Glob: p[slash+1:]}
	if cause := checkGlob(rule.Glob); cause != "" {
		return FileRule{}, fmt.Errorf("%q: %s", text, cause)
	}
	return rule, nil
}

// plainName reports whether a text is a single name that stands for itself in
// every notation.
func plainName(text string) bool {
	if text == "" || text == "." || text == ".." || len(text) > maxName {
		return false
	}
	for i := range len(text) {
		switch c := text[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '.', c == '-', c == '_':
		default:
			return false
		}
	}
	return true
}

// protectPattern checks a pattern of the protect list and expands ~.
func (s *scope) protectPattern(text string) (string, error) {
	if plainName(text) { // most are, of some hundreds at each launch
		return text, nil
	}
	if first, _, _ := strings.Cut(text, "/"); s.bare && (first == "." || first == "..") { // a flag: from where the user is
		p, err := s.path(text, s.cwd)
		if err != nil {
			return "", err
		}
		if text = p; p != s.workspace && within(s.workspace, p) {
			text = p[len(s.workspace)+1:]
		}
	}
	if strings.HasPrefix(text, "~") || strings.HasPrefix(text, "/") {
		p, err := s.path(text, s.workspace)
		if err == nil && isGlob(p) {
			err = fmt.Errorf("%q: patterns work only in the workspace", text)
		}
		return p, err
	}
	text = strings.TrimPrefix(text, "./")
	p, err := s.path("/"+text, "")
	if err != nil {
		return "", err
	}
	if p == "/" || strings.Contains("/"+text+"/", "/../") {
		return "", fmt.Errorf("%q: want a name, or a path in the workspace", text)
	}
	if cause := checkGlob(p[1:]); cause != "" {
		return "", fmt.Errorf("%q: %s", text, cause)
	}
	return p[1:], nil
}

// ReadFile reads a file that a policy names, as profiles themselves are read: a
// regular one of no more than 1 MiB, through links.
func ReadFile(path string) ([]byte, error) { return readFile(path, followLinks) }

type linkMode bool

const (
	followLinks linkMode = true
	noLinks     linkMode = false
)

// readFile reads a regular file of at most [maxFile] bytes through one descriptor. It never blocks on a FIFO, and never
// reads a device.
func readFile(path string, links linkMode) ([]byte, error) {
	fail := func(format string, args ...any) ([]byte, error) {
		return nil, &fs.PathError{Op: "read", Path: path, Err: fmt.Errorf(format, args...)}
	}
	flags := os.O_RDONLY | nonBlocking
	if links == noLinks {
		if info, err := os.Lstat(path); err == nil && info.Mode()&fs.ModeSymlink != 0 {
			return fail("a symbolic link, which is not followed")
		}
		flags |= noFollowing // one that has come since is an error
	}
	f, err := os.OpenFile(path, flags, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil {
		return nil, err
	} else if !info.Mode().IsRegular() {
		return fail("not a regular file")
	}
	text, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(text) > maxFile {
		return fail("larger than %d bytes", maxFile)
	}
	return text, err
}

func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}
