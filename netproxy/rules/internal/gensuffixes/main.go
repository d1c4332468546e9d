// Gensuffixes writes the rules of the public suffix list as sorted lines, from
// the copy in golang.org/x/net that go.sum pins.
package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: gensuffixes FILE")
		os.Exit(2)
	}
	if err := generate(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "gensuffixes:", err)
		os.Exit(1)
	}
}

func generate(out string) error {
	dir, err := exec.Command("go", "list", "-f", "{{.Dir}}", "golang.org/x/net/publicsuffix").Output()
	if err != nil {
		return fmt.Errorf("go list golang.org/x/net/publicsuffix: %w", err)
	}
	// The list itself is packed into a trie there; its test has it in full.
	file := filepath.Join(strings.TrimSpace(string(dir)), "table_test.go")
	tree, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
	if err != nil {
		return err
	}
	var lines []string
	ast.Inspect(tree, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || spec.Names[0].Name != "rules" {
			return true
		}
		for _, e := range spec.Values[0].(*ast.CompositeLit).Elts {
			line, err := strconv.Unquote(e.(*ast.BasicLit).Value)
			if err != nil {
				panic(err) // the file parsed, so its literals are sound
			}
			lines = append(lines, line)
		}
		return false
	})
	if len(lines) < 5000 {
		return fmt.Errorf("%s: %d rules, far fewer than the list has", file, len(lines))
	}
	slices.Sort(lines)
	return os.WriteFile(out, []byte(strings.Join(lines, "\n")+"\n"), 0o644)
}
