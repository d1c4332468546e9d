//go:build unix && !launcher

package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pccrun/pccrun/profiles"
)

// A path that was given from a subdirectory means the same in the work tree of the task.
func TestPathThere(t *testing.T) {
	for _, c := range []struct{ name, arg, value, want string }{
		{"--read", "PATH", "./x", "./sub/x"},
		{"--hide", "PATH", "..", "./."},
		{"--read", "PATH", "../../data", "/data"},
		{"--read", "PATH", "/abs", "/abs"},
		{"--read", "PATH", "~/x", "~/x"},
		{"--protect", "PATH", "**/x", "**/x"},
		{"--socket", "PATH", "./s", "/repo/sub/s"},
		{"--settings", "FILE", "s.json", "/repo/sub/s.json"},
		{"--syscalls", "default|FILE", "default", "default"},
		{"--syscalls", "default|FILE", "p/s.json", "/repo/sub/p/s.json"},
		{"--profile", "NAME|FILE", "claude", "claude"},
		{"--inject-file", "NAME=PATH", "T=./t", "T=/repo/sub/t"},
		{"--inject-file", "NAME=PATH", "T=/t", "T=/t"},
		{"--env", "NAME[=VALUE]", "A=./x", "A=./x"},
	} {
		require.Equal(t, c.want, pathThere(&flagDef{name: c.name, arg: c.arg}, c.value, "/repo/sub", "/repo"), c.value)
	}
	hide := func(path string) []string {
		return (&givenFlag{flagDef: flagDef{name: "--hide", arg: "PATH"}, value: path}).there(&profiles.Host{Cwd: "/repo/sub", Environ: []string{"HOME=/repo"}}, "/repo")
	}
	require.Equal(t, []string{"--hide", "/abs"}, hide("/abs"))
	require.Equal(t, []string{"--hide", "/repo/x", "--hide", "./x"}, hide("/repo/x"), "there it is another file")
	require.Equal(t, []string{"--hide", "~/x", "--hide", "./x"}, hide("~/x"))
	link := filepath.Join(t.TempDir(), "link")
	require.NoError(t, os.Symlink("/", link))
	require.Equal(t, []string{"--hide", link + "/repo", "--hide", "./."}, hide(link+"/repo"))
}
