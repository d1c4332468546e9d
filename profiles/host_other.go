//go:build !linux && !darwin

package profiles

import (
	"errors"
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

func readFile(string, linkMode) ([]byte, error)        { return nil, errors.ErrUnsupported }
func readUpTo(string, linkMode, int64) ([]byte, error) { return nil, errors.ErrUnsupported }
func gitTop(string, int) string                        { return "" }
func ownDir(string, int) bool                          { return false }
func everybodys(string, int) bool                      { return false }

func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}
