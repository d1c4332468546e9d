// Package kernel tells which Linux runs.
//
// The promise: who asks whether it is new enough hears yes only of a release
// that says so. One that cannot be read, or is written in another way than
// "6.1.0-18-amd64" is, counts as too old. What a distribution has taken over
// from later ones it does not tell: what can be tried is better tried.
package kernel

import (
	"strconv"
	"strings"
	"syscall"
)

// AtLeast reports whether the kernel that runs is of this version or later, by
// uname(2).
func AtLeast(major, minor int) bool {
	var u syscall.Utsname
	if syscall.Uname(&u) != nil {
		return false
	}
	release := make([]byte, 0, len(u.Release))
	for _, c := range u.Release {
		if c == 0 {
			break
		}
		release = append(release, byte(c))
	}
	return Covers(string(release), major, minor)
}

// Covers reports whether a release, such as "6.1.0-18-amd64" or "5.14-rc1", is of
// this version or later. The first two numbers count.
func Covers(release string, major, minor int) bool {
	first, rest, _ := strings.Cut(release, ".")
	if end := strings.IndexFunc(rest, func(r rune) bool { return r < '0' || r > '9' }); end >= 0 {
		rest = rest[:end]
	}
	a, err := strconv.Atoi(first)
	b, err2 := strconv.Atoi(rest)
	return err == nil && err2 == nil && (a > major || a == major && b >= minor)
}
