package rules

import (
	"bytes"
	"go/ast"
	"go/token"
	"os"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// hinting are the directories whose hints are about what a run refuses.
var hinting = []string{
	"run", "run/review", "run/leftovers", "run/undecided", "run/explain", "profiles", "providers/native", "providers", "internal/egress", "netproxy", "netproxy/rules", "internal/survey", "namespaces", "workspace", "internal/credentials",
}

var (
	leadingFlag = regexp.MustCompile(`^(.* and )?--[a-z-]+ `)
	anyFlag     = regexp.MustCompile(`--[a-z][a-z-]*`)
	words       = regexp.MustCompile(`\pL{4}`)
)

// hintsOf returns the hints that a file's functions can print: by package, function and flag, or without
// a flag for words alone. A hint is what is given to a name that says so, and a text that begins with a flag and more.
func hintsOf(dir string, file *ast.File) map[string]bool {
	found := map[string]bool{}
	isHint := func(e ast.Expr) bool {
		id, _ := e.(*ast.Ident)
		if s, ok := e.(*ast.SelectorExpr); ok {
			id = s.Sel
		}
		return id != nil && slices.Contains([]string{"Hint", "hint", "AllowWith", "Advice", "Fix"}, id.Name)
	}
	for _, d := range file.Decls {
		name := "table"
		if f, ok := d.(*ast.FuncDecl); ok {
			name = f.Name.Name
		}
		add := func(e ast.Node) {
			ast.Inspect(e, func(n ast.Node) bool {
				l, ok := n.(*ast.BasicLit)
				if !ok || l.Kind != token.STRING {
					return true
				}
				text, _ := strconv.Unquote(l.Value)
				flags := anyFlag.FindAllString(text, -1)
				for _, flag := range flags {
					found[dir+" "+name+" "+flag] = true
				}
				if len(flags) == 0 && words.MatchString(text) {
					found[dir+" "+name] = true
				}
				return true
			})
		}
		ast.Inspect(d, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.KeyValueExpr:
				if isHint(n.Key) {
					add(n.Value)
				}
			case *ast.CallExpr:
				if f, ok := n.Fun.(*ast.SelectorExpr); ok && f.Sel.Name == "Errorf" && isHint(f.X) {
					add(n.Args[0])
				}
			case *ast.AssignStmt:
				for i, left := range n.Lhs {
					if isHint(left) && i < len(n.Rhs) {
						add(n.Rhs[i])
					}
				}
			case *ast.BasicLit:
				if text, _ := strconv.Unquote(n.Value); leadingFlag.MatchString(text) && !strings.Contains(text, "%d") && !strings.HasPrefix(text, "--without ") { // which is a cause
					add(n)
				}
			}
			return true
		})
	}
	return found
}

// TestEachHintIsFollowed holds the hints of the sources against test/hints.txt: each has a line there
// that names the row of a test which follows it, or why nobody can, and each line is a hint's.
func TestEachHintIsFollowed(t *testing.T) {
	found := map[string]bool{}
	eachGoFile(t, func(t *testing.T, name string, file *ast.File, _ *token.FileSet) {
		dir := path.Dir(name)
		if (slices.Contains(hinting, dir) || name == "cmd/pccrun/why.go") && !strings.HasSuffix(name, "_test.go") {
			for hint := range hintsOf(dir, file) {
				found[hint] = true
			}
		}
	})
	require.Greater(t, len(found), 50)
	data, err := os.ReadFile("../hints.txt")
	require.NoError(t, err)
	for line := range strings.Lines(string(data)) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		hint, by, ok := strings.Cut(strings.TrimSuffix(line, "\n"), "\t")
		require.True(t, ok, line)
		assert.True(t, found[hint], "test/hints.txt: no hint %q", hint)
		delete(found, hint)
		if strings.HasPrefix(by, "none: ") {
			continue
		}
		file, row, _ := strings.Cut(by, ": ")
		text, err := os.ReadFile("../../" + file)
		require.NoError(t, err, line)
		assert.True(t, row != "" && bytes.Contains(text, []byte(row)), "%s has no %q", file, row)
	}
	for hint := range found {
		assert.Fail(t, "no test follows the hint", "%q: follow it in a row of TestHints, and name the row in test/hints.txt", hint)
	}
}
