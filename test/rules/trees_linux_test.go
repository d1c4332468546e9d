package rules

import (
	"go/ast"
	"go/parser"
	"go/token"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// walks are the functions of the standard library that go through a tree by paths, or by a descriptor and a stack frame
// for each level: a command makes trees deeper than either takes.
var walks = map[string][]string{
	"path/filepath": {"Walk", "WalkDir"},
	"io/fs":         {"WalkDir"},
	"os":            {"RemoveAll", "CopyFS"},
}

// walkers are the calls of these outside of tests, and why no command's tree stops them.
var walkers = map[string]string{
	"cgroups/leftovers_linux.go filepath.WalkDir":        "control groups, of which a command makes none",
	"namespaces/landlock_read_linux.go filepath.WalkDir": "ends at its limit; what has too long a path cannot be executed",
	"internal/survey/layout.go filepath.WalkDir":         "ends at its limit; below too long a path nothing of the user's lies",
	"providers/doctor/trials.go os.RemoveAll":            "a directory of its own, in which nothing runs that others chose",
	"run/askgit/askgit_unix.go os.RemoveAll":             "a sandbox's home, where git alone could write",
	"internal/private/private.go os.RemoveAll":           "for tests",
	"internal/sessions/session.go root.RemoveAll":        "a session that has not begun",
	"internal/state/remove_other.go root.RemoveAll":      "a system on which nothing runs",
}

// What a command may have made is walked and removed by package beneath: by descriptors, without recursion, within bounds.
func TestTreesAreWalkedByOneWalker(t *testing.T) {
	met := map[string]bool{}
	eachGoFile(t, func(t *testing.T, name string, file *ast.File, positions *token.FileSet) {
		if strings.HasSuffix(name, "_test.go") || within(name, "test") {
			return
		}
		for call, at := range walksOf(file) {
			row := name + " " + call
			met[row] = true
			assert.NotEmptyf(t, walkers[row], "%s: %s: beneath.Walk, state.RemoveAll and state.RemovePath take any depth", positions.Position(at), call)
		}
	})
	for row := range walkers {
		assert.Truef(t, met[row], "%s: the row is not needed any more", row)
	}
}

// walksOf returns these calls of a file, and those of an os.Root's method.
func walksOf(file *ast.File) map[string]token.Pos {
	found := callsOf(file, walks)
	packages := map[string][]string{}
	for _, spec := range file.Imports {
		packages[strings.Trim(spec.Path.Value, `"`)] = []string{"RemoveAll"}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		if s, ok := n.(*ast.SelectorExpr); ok && s.Sel.Name == "RemoveAll" && named(file, s, "", packages) == "" {
			found["root.RemoveAll"] = s.Pos()
		}
		return true
	})
	return found
}

func TestWalksOfFinds(t *testing.T) {
	const text = "package x\nimport (\n\"os\"; \"io/fs\"; f \"path/filepath\"; store \"example.org/state\"\n)\nvar _ = %s"
	for expr, want := range map[string]string{
		"os.RemoveAll(p)": "os.RemoveAll", "fs.WalkDir": "fs.WalkDir", "f.WalkDir(p, nil)": "filepath.WalkDir", "r.dir.RemoveAll(p)": "root.RemoveAll",
		"os.Remove(p)": "", "store.RemoveAll(r, p)": "", "f.Join(p)": "",
	} {
		file, err := parser.ParseFile(token.NewFileSet(), "x.go", strings.Replace(text, "%s", expr, 1), 0)
		require.NoError(t, err)
		var got []string
		for call := range walksOf(file) {
			got = append(got, call)
		}
		require.Equal(t, want, strings.Join(got, " "), expr)
	}
}
