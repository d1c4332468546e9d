//go:build !linux && !darwin

package profiles

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// ThisHost reads what [Resolve] needs to know of this machine and its user.
func ThisHost() Host {
	cwd, _ := os.Getwd()
	return Host{UID: os.Getuid(), Environ: os.Environ(), Cwd: filepath.ToSlash(cwd)}
}

var errNotDir = errors.New("not a directory")

type linkMode bool

const (
	followLinks linkMode = true
	noLinks     linkMode = false
)

// readFile is [readUpTo] for a profile and the like.
func readFile(path string, links linkMode) ([]byte, error) { return readUpTo(path, links, maxFile) }

// readUpTo reads a regular file of at most so many bytes.
func readUpTo(path string, links linkMode, most int64) ([]byte, error) {
	fail := func(text string) ([]byte, error) {
		return nil, &fs.PathError{Op: "read", Path: path, Err: errors.New(text)}
	}
	stat := os.Lstat
	if links == followLinks {
		stat = os.Stat
	}
	switch info, err := stat(path); {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return fail("not a regular file")
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, most+1))
	if err == nil && int64(len(text)) > most {
		return fail(fmt.Sprintf("larger than %d bytes", most))
	}
	return text, err
}

func gitTop(string, int) string   { return "" }
func ownDir(string, int) bool     { return false }
func everybodys(string, int) bool { return false }

func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}
