package beneath

import "strings"

// Path returns path relative to dir, "" if it is dir, and whether it is dir
// or lies below it. Both are absolute and clean.
func Path(dir, path string) (rest string, ok bool) {
	if dir == "/" {
		return strings.TrimPrefix(path, "/"), true
	}
	if !strings.HasPrefix(path, dir) {
		return "", false
	}
	if len(path) == len(dir) {
		return "", true
	}
	return path[len(dir)+1:], path[len(dir)] == '/'
}
