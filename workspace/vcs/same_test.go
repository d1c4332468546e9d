package vcs

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSameSettings(t *testing.T) {
	const text = "[core]\n\tbare = false\n\tworktree = ../../../m\n[remote \"o\"]\n\turl = /o\n"
	for now, same := range map[string]bool{
		text: true,
		"[core]\n\tworktree = ../../m\n\tbare=false\n# moved\n[remote \"o\"]\nurl = \"/o\"": true,
		"[core]\n\tbare = false\n[remote \"o\"]\n\turl = /o\n":                              true,
		"[core]\n\tbare = false\n":         false,
		text + "[core]\n\tfsmonitor = x\n": false,
		text + "[":                         false,
		"[core]\n\tbare = false\n[remote \"O\"]\n\turl = /o\n": false,
		"": false,
	} {
		require.Equal(t, same, SameSettings([]byte(text), []byte(now)), now)
	}
}

func TestOfSubmodule(t *testing.T) {
	for path, is := range map[string]bool{
		"/w/.git/modules/m": true, "/w/.git/modules/a/modules/b": true, ".git/modules/m": true, "/w/.git/worktrees/t/modules/m": true,
		"/w/.git": false, "/w/.git/worktrees/t": false, "/w/.git/worktrees/modules": false, "/w/modules/m": false, "/w/.git/worktrees/modules/m": false,
	} {
		require.Equal(t, is, OfSubmodule(path), path)
	}
}
