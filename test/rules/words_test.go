//go:build linux

package rules

import (
	"fmt"
	"go/ast"
	"go/token"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// notSaid are words that no message, help or page uses, and what is said instead: the
// glossary of internal/messages.
var notSaid = []struct {
	pattern *regexp.Regexp
	instead string
}{
	{word(`set(s|ting)? (\S+ )?aside|made inert`), "quarantined"},
	{word(`not taken over`), "not saved"},
	{word(`allowed by --`), "(to allow: FLAGS)"},
	{word(`last look`), "post-run check"},
	{word(`debts?|ow(e|es|ed)|paid`), "unfinished-run record"},
	{word(`keeper`), "remount watcher"},
	{word(`janitor|deputy`), "directory remover, broker"},
	{word(`heard|told`), "printed, reported"},
	{word(`looked after|looks after|looked through`), "checked, scanned"},
	{word(`log-ins?`), "login"},
}

func word(pattern string) *regexp.Regexp { return regexp.MustCompile(`(?i)\b(` + pattern + `)\b`) }

// inMessages are said nowhere in a message, and may be in a page.
var inMessages = regexp.MustCompile(`(?i)\b(beside|handed (in|over|on)|in the way of)\b`)

// oneWord are names that say nothing alone, of a file or of an exported identifier.
var oneWord = strings.Fields("apart handed gap made passed spelled later other plain wild called stray moved rest starved beside held meet tried")

// pending are names of that kind that are still to be changed.
var pending = map[string]bool{}

func notSaidIn(text string) (bad string) {
	for _, w := range notSaid {
		if found := w.pattern.FindString(text); found != "" {
			return fmt.Sprintf("%q: say %s", found, w.instead)
		}
	}
	return ""
}

// TestMessagesUseTheGlossary reads every text of more than one word in the program, and the pages.
func TestMessagesUseTheGlossary(t *testing.T) {
	require.NotEmpty(t, notSaidIn("what was set aside is kept"), "the control")
	require.NotEmpty(t, inMessages.FindString("a repository beside the workspace"), "the control")
	eachGoFile(t, func(t *testing.T, name string, file *ast.File, files *token.FileSet) {
		if strings.HasSuffix(name, "_test.go") || within(name, "test") && !within(name, "test/escape") || strings.Contains(name, "/internal/") {
			return
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING && strings.Contains(lit.Value, " ") {
				text, err := strconv.Unquote(lit.Value)
				require.NoError(t, err)
				bad := notSaidIn(text)
				if found := inMessages.FindString(text); bad == "" && found != "" {
					bad = fmt.Sprintf("%q: name the place", found)
				}
				assert.Empty(t, bad, "%s: %s", files.Position(lit.Pos()), text)
			}
			return true
		})
	})
	pages, err := filepath.Glob(top(t) + "/docs/*.md")
	require.NoError(t, err)
	for _, page := range append(pages, top(t)+"/README.md", top(t)+"/docs/man/pccrun.1") {
		text, err := os.ReadFile(page)
		require.NoError(t, err)
		for i, line := range strings.Split(string(text), "\n") {
			if !strings.Contains(line, "version 1") && !strings.Contains(line, "formerly") && !strings.HasPrefix(line, "said `") {
				assert.Empty(t, notSaidIn(line), "%s:%d: %s", page, i+1, line)
			}
		}
	}
}

// TestNamesSayWhatTheyAre: neither a file nor an exported identifier has such a name.
func TestNamesSayWhatTheyAre(t *testing.T) {
	found := map[string]bool{}
	eachGoFile(t, func(t *testing.T, name string, file *ast.File, _ *token.FileSet) {
		stem, _, _ := strings.Cut(strings.TrimSuffix(path.Base(name), ".go"), "_")
		rest := strings.TrimPrefix(strings.TrimSuffix(path.Base(name), ".go"), stem)
		if slices.Contains(oneWord, stem) && regexp.MustCompile(`^(_(linux|unix|darwin|windows|other|test))*$`).MatchString(rest) {
			found[name] = true
		}
		for _, decl := range file.Decls {
			var names []*ast.Ident
			switch d := decl.(type) {
			case *ast.FuncDecl:
				names = append(names, d.Name)
			case *ast.GenDecl:
				for _, s := range d.Specs {
					switch s := s.(type) {
					case *ast.TypeSpec:
						names = append(names, s.Name)
					case *ast.ValueSpec:
						names = append(names, s.Names...)
					}
				}
			}
			for _, id := range names {
				if id.IsExported() && slices.Contains(oneWord, strings.ToLower(id.Name)) {
					found[path.Dir(name)+"."+id.Name] = true
				}
			}
		}
	})
	for name := range found {
		assert.True(t, pending[name], "%s: name it for what it is", name)
	}
}
