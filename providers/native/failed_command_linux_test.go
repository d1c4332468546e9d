package native

import (
	"os"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSnap(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.Symlink("/usr/bin/snap", dir+"/kubectl.convert"))
	require.NoError(t, os.Symlink("/usr/bin/env", dir+"/other"))
	for path, want := range map[string]string{dir + "/kubectl.convert": "kubectl", dir + "/other": "", dir + "/none": ""} {
		name, is := snap([]string{path})
		require.Equal(t, want != "", is, path)
		if is {
			require.Equal(t, want, name)
		}
	}
	_, is := snap(nil)
	require.False(t, is)
}

func TestSigns(t *testing.T) {
	for word, want := range map[string]bool{"-S": true, "-aS": true, "-Skey": true, "--gpg-sign=x": true, "--Signoff": false, "-s": false, "S": false, "--allow-empty": false} {
		require.Equal(t, want, signs(word), word)
	}
}

// TestSharing: with the umask that is named git has no mode to change: adjust_shared_perm and calc_shared_perm of its path.c.
func TestSharing(t *testing.T) {
	for shared, want := range map[string]int{
		"": 0o022, "umask": 0o022, "false": 0o022, "none": 0o022, "7777": 0o022,
		"group": 0o002, "TRUE": 0o002, "1": 0o002, "all": 0o002, "2": 0o002, "0660": 0o007, "0664": 0o002, "0640": 0o027, "0666": 0,
	} {
		require.Equal(t, want, sharing(shared, 0o022), shared)
	}
	require.Equal(t, 0o007, sharing("group", 0o077))
	require.Equal(t, 0o002, sharing("world", 0o077))
	require.Equal(t, 0o002, sharing("group", 0o002), "nothing is to be said")
}

func TestSetsID(t *testing.T) {
	mode := regexp.MustCompile(setsID)
	for word, want := range map[string]bool{
		"2755": true, "02755": true, "4755": true, "6755": true, "g+s": true, "u=rwxs": true, "ug+s": true, "+s": true, "u-w,g+s": true,
		"755": false, "0755": false, "1777": false, "g-s": false, "u+x": false, "files": false, "+t": false, "a=rx": false,
	} {
		require.Equal(t, want, mode.MatchString(word), word)
	}
}

func TestRecipes(t *testing.T) {
	const makefile = "# a: comment\nX := y\n.PHONY: all\nall: build\n\t@echo all\nbuild: ; \n\tcat $(HOME)/b\n\tcat $$HOME/c\nother:\n\t-other\n"
	const build = "cat $HOME/b\ncat $HOME/c\n"
	require.Equal(t, "echo all\n"+build, recipes(makefile, nil))
	require.Equal(t, "echo all\n"+build, recipes(makefile, []string{"-j4", "V=1"}))
	require.Equal(t, build, recipes(makefile, []string{"build"}))
	require.Equal(t, "other\n"+build, recipes(makefile, []string{"other", "build"}))
	require.Equal(t, "run it\n", recipes("@go mode='x':\n    run it\n", nil), "of just")
	require.Empty(t, recipes("a: b\nb: a\n", nil))
	require.Empty(t, recipes("", []string{"x"}))
}

func TestUnwritten(t *testing.T) {
	for text, want := range map[string]string{
		"cat a": "cat a", "cat a > b": "cat a ", "cat a >b; c": "cat a ; c", "cat a >> b < c": "cat a  < c", "a 2>&1 | b": "a 2 | b", "a >| b\nc": "a \nc", "a >": "a ",
	} {
		require.Equal(t, want, unwritten(text), text)
	}
}
