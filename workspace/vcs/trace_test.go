package vcs

import (
	"fmt"
	"path"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// failures returns which of some files a trace says git has failed to change.
func failures(t *Trace, text string, files ...string) (list []string) {
	t.Read([]byte(text), func(p string) bool {
		for _, f := range files {
			if f == p {
				list = append(list, p)
				return true
			}
		}
		return false
	})
	return list
}

func TestTrace(t *testing.T) {
	const place = "07:11:44.048075 usage.c:79                        "
	tree := "07:11:44.0" + "46945 repository.c:136                  worktree /w\n"
	for _, c := range []struct {
		name, text, want string
	}{
		{"a file in quotes", tree + place + "error unable to unlink old '.vscode/t': Device or resource busy\n", "/w/.vscode/t"},
		{"read-only", tree + place + "error unable to unlink old '.vscode/t': Read-only file system\n", "/w/.vscode/t"},
		{"more words behind", tree + place + "error unable to write file '.vscode/t' mode 100644: Device or resource busy\n", "/w/.vscode/t"},
		{"a warning of apply", tree + place + "error unable to unlink '.vscode/t': Device or resource busy\n", "/w/.vscode/t"},
		{"git mv", tree + place + "error renaming '.vscode/t' failed: Invalid cross-device link\n", "/w/.vscode/t"},
		{"git rm", tree + place + "error git rm: '.vscode/t': Read-only file system\n", "/w/.vscode/t"},
		{"a configuration", tree + place + "error could not write config file .git/config: Device or resource busy\n", "/w/.git/config"},
		{"one elsewhere", tree + place + "error could not lock config file /a b/r/.git/config: Read-only file system\n", "/a b/r/.git/config"},
		{"without a place", "worktree /w\nerror unable to unlink old '.vscode/t': Read-only file system\n", "/w/.vscode/t"},
		{"a tree in quotes", "worktree '/a b/it'\\''s'\nerror unable to unlink old 'x': Read-only file system\n", "/a b/it's/x"},
		{"an apostrophe in the name", tree + "error unable to unlink old 'it's': Device or resource busy\n", "/w/it's"},
		{"a dot-dot", tree + "error unable to unlink old '../w/.vscode/t': Device or resource busy\n", "/w/.vscode/t"},

		{"another error", tree + "error unable to unlink old '.vscode/t': No such file or directory\n", ""},
		{"no error of the kernel's", tree + "error .vscode/t: does not match index\n", ""},
		{"no colon", tree + "error pathspec '.vscode/t' did not match any file(s) known to git\n", ""},
		{"a list", tree + "error Your local changes to the following files would be overwritten by merge:\n\t.vscode/t\nPlease commit\n", ""},
		{"another line", tree + "start git unlink '.vscode/t': Device or resource busy\n", ""},
		{"no tree", "error unable to unlink old '.vscode/t': Read-only file system\n", ""},
		{"a relative tree", "worktree w\nerror unable to unlink old '.vscode/t': Read-only file system\n", ""},
		{"a line that has not ended", tree + "error unable to unlink old '.vscode/t': Read-only file system", ""},
		{"too long", tree + "error unable to unlink old '.vscode/t'" + strings.Repeat(" ", maxTraceLine) + ": Read-only file system\n", ""},
		{"nothing", "\n\n\x00\n", ""},
	} {
		files := []string{"/w/.vscode/t", "/w/.git/config", "/a b/r/.git/config", "/a b/it's/x", "/w/it's"}
		for _, size := range []int{1, 7, len(c.text)} { // in whatever pieces it comes
			var got []string
			trace := &Trace{}
			for rest := c.text; rest != ""; {
				piece := rest[:min(size, len(rest))]
				rest = rest[len(piece):]
				got = append(got, failures(trace, piece, files...)...)
			}
			require.Equal(t, c.want, strings.Join(got, " "), "%s, %d at a time", c.name, size)
		}
	}
}

// TestTraceTranslated: git says it in the language of the command's environment.
func TestTraceTranslated(t *testing.T) {
	const said = "worktree /w\nerror konnte Löschen von altem „.mcp.json“ nicht ausführen: Das Gerät oder die Ressource ist belegt\n"
	require.Empty(t, failures(&Trace{}, said, "/w/.mcp.json"))
	require.Equal(t, []string{"/w/.mcp.json"}, failures(&Trace{Translated: true}, said, "/w/.mcp.json"))
	require.Empty(t, failures(&Trace{Translated: true}, "worktree /w\nerror x '.mcp.json': Permission denied\n", "/w/.mcp.json"), "an error that is known for another one")
	require.Empty(t, failures(&Trace{Translated: true}, "worktree /w\nerror .mcp.json: passt nicht zum Index\n", "/w/.mcp.json"))
}

// TestTraceTrees: the latest tree that has the file is the one; a few are known.
func TestTraceTrees(t *testing.T) {
	const said = "error unable to unlink old '.mcp.json': Device or resource busy\n"
	trace := &Trace{}
	require.Equal(t, []string{"/b/.mcp.json", "/a/.mcp.json"}, failures(trace, "worktree /a\nworktree /b\n"+said+"worktree /a\n"+said, "/a/.mcp.json", "/b/.mcp.json"))
	require.Equal(t, []string{"/a/.mcp.json"}, failures(trace, "worktree /b\n"+said, "/a/.mcp.json"), "who wrote an error nobody knows")
	for i := range 10 * maxTraceTrees {
		failures(trace, fmt.Sprintf("worktree /%d\n", i))
	}
	require.Len(t, trace.trees, maxTraceTrees)
	require.Empty(t, failures(trace, said, "/a/.mcp.json"))
}

// TestTraceSkip: what stands behind a gap begins with the next line.
func TestTraceSkip(t *testing.T) {
	trace := &Trace{}
	failures(trace, "worktree /w\nerror unable")
	trace.Skip()
	require.Empty(t, failures(trace, "error unable to unlink old 'x': Device or resource busy\n", "/w/x"))
	require.Equal(t, []string{"/w/x"}, failures(trace, "error unable to unlink old 'x': Device or resource busy\n", "/w/x"))
	failures(trace, "error una")
	trace.Forget()
	require.Equal(t, []string{"/w/x"}, failures(trace, "error unable to unlink old 'x': Device or resource busy\n", "/w/x"))
}

func FuzzTrace(f *testing.F) {
	f.Add("07:11:44.046945 repository.c:136                  worktree /w\n07:11:44.048075 usage.c:79                        error unable to unlink old '.vscode/t': Device or resource busy\n", 3, false)
	f.Add("worktree '/a b/it'\\''s'\nerror „x“: belegt\n", 1, true)
	f.Fuzz(func(t *testing.T, text string, size int, translated bool) {
		size = max(1, min(size, len(text)))
		trace, whole := &Trace{Translated: translated}, &Trace{Translated: translated}
		var pieces, all []string
		note := func(list *[]string) func(string) bool {
			return func(p string) bool {
				require.True(t, path.IsAbs(p) && path.Clean(p) == p, p)
				if *list = append(*list, p); len(*list) > 1000 {
					return true // who asks no more, as the launcher does, bounds the work
				}
				return len(p)%2 == 0
			}
		}
		for rest := text; rest != ""; {
			piece := rest[:min(size, len(rest))]
			rest = rest[len(piece):]
			trace.Read([]byte(piece), note(&pieces))
		}
		whole.Read([]byte(text), note(&all))
		require.Equal(t, all, pieces)
		require.LessOrEqual(t, len(whole.trees), maxTraceTrees)
		require.LessOrEqual(t, len(whole.rest), maxTraceLine)
	})
}
