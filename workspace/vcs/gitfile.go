package vcs

import (
	"errors"
	"strings"
)

// MaxGitFile is how long a .git file may be: git refuses longer ones
// (read_gitfile_gently in setup.c).
const MaxGitFile = 1 << 20

var errNoGitFile = errors.New("not a .git file")

// ParseGitFile returns where a .git file points, as git reads it: after the
// exact prefix, without carriage returns and newlines at the end, up to the
// first NUL. Blanks count. A relative path starts at the file's own directory.
func ParseGitFile(b []byte) (string, error) {
	s, ok := strings.CutPrefix(string(b), "gitdir: ")
	if !ok {
		return "", errNoGitFile
	}
	s = strings.TrimRight(s, "\r\n")
	s, _, _ = strings.Cut(s, "\x00")
	if s == "" {
		return "", errNoGitFile
	}
	return s, nil
}

// GitFile returns where the .git file at a path points.
func GitFile(read func(path string, limit int64) ([]byte, error), path string) (string, error) {
	b, err := read(path, MaxGitFile)
	if err != nil {
		return "", err
	}
	return ParseGitFile(b)
}

// ParsePathFile returns the path in a commondir or gitdir file, as
// get_common_dir_noenv in git's setup.c reads it.
func ParsePathFile(b []byte) string {
	s := strings.TrimRight(string(b), "\r\n")
	s, _, _ = strings.Cut(s, "\x00")
	return s
}
