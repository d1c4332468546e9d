package rules

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pccrun/pccrun/test/internal/verdicts"
)

// Root runs of a package that test/packages.txt calls marked only what has the mark //test:root, so
// a test that asks whether it is root has one: else what it does as root is never tried.
func TestWhoAsksForRootIsMarked(t *testing.T) {
	rows, err := verdicts.ReadPackages(filepath.Join(top(t), "test", "packages.txt"))
	require.NoError(t, err)
	tests := map[string][]*ast.File{}
	eachGoFile(t, func(_ *testing.T, name string, file *ast.File, _ *token.FileSet) {
		if strings.HasSuffix(name, "_test.go") {
			tests[path.Dir(name)] = append(tests[path.Dir(name)], file)
		}
	})
	for dir, files := range tests {
		if rows.Of(dir).Who == verdicts.Both {
			continue
		}
		for _, name := range askForRoot(files) {
			assert.Fail(t, "a test asks whether it is root, and has no mark //test:root", "%s: %s", dir, name)
		}
	}
}

// askForRoot returns the tests of a package, of those without the mark, that compare who they are
// with root, or use a function or a variable of the tests that does.
func askForRoot(files []*ast.File) (unmarked []string) {
	uses := map[string]map[string]bool{} // by declaration: the names in it
	asks := map[string]bool{}
	var tests []string
	declare := func(name string, node ast.Node) {
		if uses[name] == nil {
			uses[name] = map[string]bool{}
		}
		ids := map[string]bool{} // what an identity was kept in
		ast.Inspect(node, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.Ident:
				uses[name][n.Name] = true
			case *ast.AssignStmt:
				for i, right := range n.Rhs {
					if left, ok := n.Lhs[i].(*ast.Ident); ok && isIdentity(right, nil) {
						ids[left.Name] = true
					}
				}
			case *ast.BinaryExpr:
				zero, ok := n.Y.(*ast.BasicLit)
				asks[name] = asks[name] || ok && zero.Value == "0" && isIdentity(n.X, ids)
			}
			return true
		})
	}
	for _, file := range files {
		for _, d := range file.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				declare(d.Name.Name, d)
				_, marked := verdicts.Root.Of(d)
				if strings.HasPrefix(d.Name.Name, "Test") && d.Name.Name != "TestMain" && d.Recv == nil && !marked {
					tests = append(tests, d.Name.Name)
				}
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					if value, ok := spec.(*ast.ValueSpec); ok {
						for _, name := range value.Names {
							declare(name.Name, value)
						}
					}
				}
			}
		}
	}
	for changed := true; changed; {
		changed = false
		for name, used := range uses {
			for other := range used {
				if asks[other] && !asks[name] {
					asks[name], changed = true, true
				}
			}
		}
	}
	for _, name := range tests {
		if asks[name] {
			unmarked = append(unmarked, name)
		}
	}
	slices.Sort(unmarked)
	return unmarked
}

// isIdentity reports whether an expression is the number of who runs, or one of the names.
func isIdentity(e ast.Expr, names map[string]bool) bool {
	switch e := e.(type) {
	case *ast.Ident:
		return names[e.Name]
	case *ast.CallExpr:
		f, ok := e.Fun.(*ast.SelectorExpr)
		return ok && slices.Contains([]string{"Getuid", "Geteuid"}, f.Sel.Name)
	}
	return false
}

func TestAskForRootFinds(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "a_test.go", `package a

func TestAsks(t *testing.T) { if os.Getuid() != 0 { t.Skip("needs root") } }

//test:root
func TestMarked(t *testing.T) { if os.Getuid() != 0 { t.Skip("needs root") } }

func TestByHelper(t *testing.T) { world(t) }

func TestByTable(t *testing.T) { conditions["root"]() }

func TestByName(t *testing.T) { if uid := os.Geteuid(); uid == 0 { return } }

func TestOwner(t *testing.T) { require.Equal(t, os.Getuid(), owner) }

func world(t *testing.T) { helper(os.Geteuid() == 0) }

var conditions = map[string]func() bool{"root": func() bool { return os.Getuid() == 0 }}
`, parser.ParseComments)
	require.NoError(t, err)
	require.Equal(t, []string{"TestAsks", "TestByHelper", "TestByName", "TestByTable"}, askForRoot([]*ast.File{file}))
}

// bounds are calls that end a wait, and where a bound of the test's own would stand in their
// arguments: in seconds or minutes. What is shorter is a pause, or is itself what the test is of.
var bounds = map[string][]string{
	"Eventually": {"Second", "Minute", "Millisecond"}, "EventuallyWithT": {"Second", "Minute", "Millisecond"}, "Never": {"Second", "Minute", "Millisecond"},
	"WithTimeout": {"Second", "Minute"}, "WithDeadline": {"Second", "Minute"}, "After": {"Minute"},
	"SetDeadline": {"Second", "Minute"}, "SetReadDeadline": {"Second", "Minute"}, "SetWriteDeadline": {"Second", "Minute"},
}

// A test waits by internal/await, so that all have one bound, and none fails for being slow. What
// measures time is in `make bench`.
func TestNoTestHasABoundOfItsOwn(t *testing.T) {
	eachGoFile(t, func(t *testing.T, name string, file *ast.File, positions *token.FileSet) {
		if strings.HasSuffix(name, "_test.go") {
			for _, pos := range boundsOf(file) {
				assert.Fail(t, "a wait with a bound of its own: use internal/await", "%s", positions.Position(pos))
			}
		}
	})
}

func boundsOf(file *ast.File) (found []token.Pos) {
	ast.Inspect(file, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		f, ok := call.Fun.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		has := false
		for _, arg := range call.Args {
			ast.Inspect(arg, func(n ast.Node) bool {
				unit, ok := n.(*ast.SelectorExpr)
				if ok {
					pkg, isName := unit.X.(*ast.Ident)
					has = has || isName && pkg.Name == "time" && slices.Contains(bounds[f.Sel.Name], unit.Sel.Name)
				}
				_, isFunc := n.(*ast.FuncLit)
				return !isFunc
			})
		}
		if has {
			found = append(found, call.Pos())
		}
		return true
	})
	return found
}

func TestBoundsOfFinds(t *testing.T) {
	const text = `package a

func TestA(t *testing.T) {
	require.Eventually(t, func() bool { return true }, 10*time.Second, time.Millisecond)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	c.SetReadDeadline(time.Now().Add(5 * time.Second))
	<-time.After(time.Minute)
	await.Until(t, "it ends", func() bool { return true })
	c.SetReadDeadline(await.Deadline())
	<-time.After(10 * time.Millisecond)
}
`
	positions := token.NewFileSet()
	file, err := parser.ParseFile(positions, "a_test.go", text, 0)
	require.NoError(t, err)
	var lines []int
	for _, pos := range boundsOf(file) {
		lines = append(lines, positions.Position(pos).Line)
	}
	require.Equal(t, []int{4, 5, 6, 7}, lines)
}
