package vcs

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// What is taken for harmless is not what is known to execute.
func TestInertKeysRunNothing(t *testing.T) {
	for name := range strings.FieldsSeq(inertKeys) {
		section, key, _ := strings.Cut(name, ".")
		if key == "*" {
			key = "anything"
		}
		values := []string{"x", "!x"}
		if key == "refstorage" {
			values = []string{"files", "reftable"}
		}
		for _, value := range values {
			s := Setting{Section: section, Key: key, Value: value}
			require.Equal(t, UseNone, s.Use(), name)
			require.True(t, s.Inert(), name)
		}
	}
	for _, s := range []Setting{
		{Section: "alias", Key: "co", Value: "checkout"}, {Section: "remote", Sub: "o", Key: "url", Value: "ext::sh -c x"}, {Section: "remote", Sub: "o", Key: "url", Value: "-x"},
		{Section: "submodule", Sub: "s", Key: "update", Value: "!x"}, {Section: "protocol", Sub: "ext", Key: "allow", Value: "always"}, {Section: "lfs", Sub: "x", Key: "path", Value: "x"},
		{Section: "commit", Key: "gpgsign", Value: "true"}, {Section: "commit", Key: "gpgsign"}, {Section: "tag", Sub: "x", Key: "gpgsign", Value: "false"},
		{Section: "core", Key: "hookspath", Value: "x"}, {Section: "url", Sub: "ext::sh", Key: "insteadof", Value: "x"}, {Section: "of", Key: "tomorrow"}, {Section: "remote", Sub: "o", Key: "vcs", Value: "x"},
		{Section: "remote", Sub: "--upload-pack=x", Key: "promisor", Value: "true"}, {Section: "remote", Sub: "x::y", Key: "promisor", Value: "true"}, {Section: "branch", Sub: "-x", Key: "merge", Value: "y"},
		{Section: "extensions", Key: "partialclone", Value: "--upload-pack=x"}, {Section: "extensions", Key: "refstorage", Value: "files:///x"}, {Section: "extensions", Key: "tomorrow", Value: "x"},
	} {
		require.False(t, s.Inert(), s.Name())
	}
	require.True(t, (&Setting{Section: "submodule", Sub: "s", Key: "update", Value: "rebase"}).Inert())
	require.True(t, (&Setting{Section: "commit", Key: "gpgsign", Value: "false"}).Inert())
	for url, inert := range map[string]bool{
		"https://example.com/a.git": true, "git@example.com:a/b.git": true, "../o": true, "/o/.git": true, "file:///o": true, "https://example.com/a%20b": true, "origin": true,
		"/o/.git/objects/x": false, ".git/refs/x": false, "file:///o/%2egit/objects/x": false, "file:///o/.git/logs/x": false, "/k/objects/0f/x": false,
	} {
		for _, name := range []string{"remote.o.url", "remote.o.pushurl", "remote..pushdefault", "branch.m.remote", "branch.m.pushremote", "submodule.s.url"} {
			part := strings.Split(name, ".")
			s := Setting{Section: part[0], Sub: part[1], Key: part[2], Value: url}
			require.Equal(t, inert, s.Inert(), "%s=%s", name, url)
		}
	}
}
