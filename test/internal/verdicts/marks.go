package verdicts

import (
	"cmp"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
)

// A Mark is a directive in the comment of a test function, without its //: which further
// runs have the test.
type Mark string

// The marks.
const (
	Root  Mark = "test:root"  // root, too; test:root PATTERN: of its subtests those that match
	Check Mark = "test:check" // `make check`, too, though its package stands below test
)

// Of reports whether a function has the mark, and the pattern of its subtests.
func (m Mark) Of(f *ast.FuncDecl) (pattern string, has bool) {
	if f.Doc == nil || f.Recv != nil {
		return "", false
	}
	for _, line := range f.Doc.List {
		if word, rest, _ := strings.Cut(line.Text, " "); word == "//"+string(m) {
			return strings.TrimSpace(rest), true
		}
	}
	return "", false
}

// Tests returns the tests with the mark in the package of a directory, as one pattern for
// -test.run; "" if there are none.
func (m Mark) Tests(dir string) (string, error) {
	names, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil {
		return "", err
	}
	var list []string
	for _, name := range names {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return "", err
		}
		for _, decl := range file.Decls {
			f, ok := decl.(*ast.FuncDecl)
			if !ok {
				continue
			}
			if pattern, has := m.Of(f); has {
				list = append(list, "^"+f.Name.Name+"$/("+cmp.Or(pattern, ".*")+")")
			}
		}
	}
	return strings.Join(list, "|"), nil
}
