package rules

import (
	"bytes"
	"flag"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write suffixes.txt anew")

// TestSuffixesAreTheList: the file has the rules of the public suffix list as sorted lines, from the
// copy in golang.org/x/net that go.sum pins.
func TestSuffixesAreTheList(t *testing.T) {
	// The list itself is packed into a trie there; its test has it in full, which no vendor directory has.
	dir, err := exec.Command("go", "list", "-mod=mod", "-m", "-f", "{{.Dir}}", "golang.org/x/net").Output()
	if len(bytes.TrimSpace(dir)) == 0 {
		t.Skip("needs the module cache")
	}
	require.NoError(t, err)
	tree, err := parser.ParseFile(token.NewFileSet(), filepath.Join(strings.TrimSpace(string(dir)), "publicsuffix/table_test.go"), nil, 0)
	require.NoError(t, err)
	var lines []string
	ast.Inspect(tree, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || spec.Names[0].Name != "rules" {
			return true
		}
		for _, e := range spec.Values[0].(*ast.CompositeLit).Elts {
			line, err := strconv.Unquote(e.(*ast.BasicLit).Value)
			require.NoError(t, err)
			lines = append(lines, line)
		}
		return false
	})
	require.Greater(t, len(lines), 5000)
	slices.Sort(lines)
	text := strings.Join(lines, "\n") + "\n"
	if *update {
		require.NoError(t, os.WriteFile("suffixes.txt", []byte(text), 0o644))
	} else if text != suffixes {
		t.Fatal("suffixes.txt is another list: go generate ./netproxy/rules")
	}
}
