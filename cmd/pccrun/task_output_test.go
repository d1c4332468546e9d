//go:build unix && !launcher

package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// What an agent does in its work tree is shown by relative paths, and what it does elsewhere is not.
func TestInTree(t *testing.T) {
	for what, want := range map[string]string{
		"/w/t/a.go":                   "a.go",
		"/w/t/a.go, /w/t/sub/b.go":    "a.go, sub/b.go",
		"cd /w/t && go test /w/t/sub": "go test sub",
		"cd /w/t/sub && go test":      "cd sub && go test",
		"/w/t":                        "/w/t",
		"/w/tree/a.go":                "/w/tree/a.go",
		"/x/w/t/a.go":                 "/x/w/t/a.go",
		"cat a.go":                    "cat a.go",
	} {
		require.Equal(t, want, inTree("/w/t", what))
	}
	require.Equal(t, "/a", inTree("", "/a"))
}
