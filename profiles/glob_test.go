package profiles

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

func TestGlob(t *testing.T) {
	for _, c := range []struct {
		pattern, path string
		want          bool
	}{
		{"*", "a", true}, {"*", "", true}, {"*", "a/b", false}, {"*", ".a", true},
		{"a*c", "abc", true}, {"a*c", "ac", true}, {"a*c", "abd", false}, {"a*b*c", "aXbYbZc", true},
		{"?", "a", true}, {"?", "é", true}, {"?", "", false}, {"?", "ab", false},
		{"[abc]", "b", true}, {"[a-c]", "b", true}, {"[!a-c]", "b", false}, {"[^a-c]", "d", true},
		{"[]]", "]", true}, {"[a-]", "-", true}, {"[é-ü]", "ö", true}, {"[*]", "*", true}, {"[*]", "a", false},
		{"**", "a/b/c", true}, {"**", "a", true},
		{"**/.env*", ".env", true}, {"**/.env*", "a/b/.env.local", true}, {"**/.env*", "a/.env/b", false}, {"**/.env*", "a/env", false},
		{"a/**", "a/b/c", true}, {"a/**", "a", true}, {"a/**", "ab/c", false},
		{"a/**/z", "a/z", true}, {"a/**/z", "a/b/c/z", true}, {"a/**/z", "a/b/c", false},
		{"**/a/**/b", "x/a/y/b", true}, {"**/a/**/b", "x/y/b", false}, {"**/a/b", "a/a/b", true}, {"**/a/b", "a/b/a/b", true},
		{"a/*/c", "a/b/c", true}, {"a/*/c", "a/b/b/c", false},
		{"**/**/x", "x", true}, {"**/*/x", "x", false}, {"**/*/x", "a/b/x", true},
		{"a", "a/b", false}, {"a/b", "a", false},
	} {
		require.Equal(t, c.want, globMatch(c.pattern, c.path), "%s against %s", c.pattern, c.path)
	}
}

func TestGlobRefuses(t *testing.T) {
	for _, pattern := range []string{"a**", "**a", "a/b**/c", "[", "[]", "[a", "[!]", "x/[a/b]", "***", strings.Repeat("*", 600)} {
		require.NotEmpty(t, checkGlob(pattern), pattern)
	}
	for _, pattern := range []string{"*", "**", "**/a", "a/**/b", "[a]", "[]]", "[!a]", "a[b]c[d]", ""} {
		require.Empty(t, checkGlob(pattern), pattern)
	}
}

// A pattern that makes backtracking matchers take forever: they would not come to the end.
func TestGlobTakesNoTime(t *testing.T) {
	require.False(t, globMatch(strings.Repeat("a*", 200)+"b", strings.Repeat("a", 4000)))
	require.False(t, globMatch(strings.Repeat("**/a/", 100)+"b", strings.Repeat("a/", 2000)+"a"))
	require.False(t, globMatch(strings.Repeat("**/*a*/", 70)+"b", strings.Repeat("aaa/", 1000)+"a"))
}

// simpleMatch is the definition: slow, and plain to see.
func simpleMatch(pattern, path []string) bool {
	switch {
	case len(pattern) == 0:
		return len(path) == 0
	case pattern[0] == "**":
		return simpleMatch(pattern[1:], path) || len(path) > 0 && simpleMatch(pattern, path[1:])
	}
	return len(path) > 0 && simpleName([]rune(pattern[0]), []rune(path[0])) && simpleMatch(pattern[1:], path[1:])
}

func simpleName(pattern, name []rune) bool {
	switch {
	case len(pattern) == 0:
		return len(name) == 0
	case pattern[0] == '*':
		return simpleName(pattern[1:], name) || len(name) > 0 && simpleName(pattern, name[1:])
	case len(name) == 0:
		return false
	case pattern[0] == '?':
		return simpleName(pattern[1:], name[1:])
	}
	return pattern[0] == name[0] && simpleName(pattern[1:], name[1:])
}

func FuzzGlob(f *testing.F) {
	f.Add("**/.env*", "a/b/.env.local")
	f.Add("a/**/b", "a/x/y/b")
	f.Add("*a*b?", "xaybz")
	f.Add("[a-z][!x]", "ab")
	f.Add("**/a/**", "a")
	f.Fuzz(func(t *testing.T, pattern, path string) {
		if len(pattern) > 24 || len(path) > 24 || checkGlob(pattern) != "" || !utf8.ValidString(pattern) || !utf8.ValidString(path) {
			globMatch(pattern, path) // still no panic
			return
		}
		if strings.Contains(pattern, "[") {
			globMatch(pattern, path)
			return
		}
		want := simpleMatch(strings.Split(pattern, "/"), strings.Split(path, "/"))
		require.Equal(t, want, globMatch(pattern, path), "%q against %q", pattern, path)
	})
}
