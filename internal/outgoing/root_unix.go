//go:build unix

package outgoing

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// rootOnly reports whether root alone can change where a path leads, and what stands there.
func rootOnly(path string) bool {
	if !filepath.IsAbs(path) {
		return false
	}
	at, rest := "/", path
	for links := 0; ; {
		info, err := os.Lstat(at)
		if err != nil {
			return false
		}
		link := info.Mode()&os.ModeSymlink != 0
		if st, is := info.Sys().(*syscall.Stat_t); !is || st.Uid != 0 || !link && info.Mode().Perm()&0o022 != 0 {
			return false
		}
		if link {
			text, err := os.Readlink(at)
			if links++; err != nil || links > 40 {
				return false
			}
			if at = filepath.Dir(at); filepath.IsAbs(text) {
				at = "/"
			}
			rest = text + "/" + rest
		}
		var name string
		for name == "" || name == "." {
			if rest == "" {
				return true
			}
			name, rest, _ = strings.Cut(rest, "/")
		}
		at = filepath.Join(at, name)
	}
}
