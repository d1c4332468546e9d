//go:build linux

// Package rules holds the whole repository to its house rules: what no
// compiler checks, and what nobody should have to remember.
package rules

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pccrun/pccrun/test/internal/verdicts"
)

const module = "github.com/pccrun/pccrun"

// layers is the order of the packages, from the leaves up: none imports one
// that stands higher. A package below another's directory stands with it.
var layers = [][]string{
	{"netproxy/rules", "internal/state", "internal/events", "workspace/beneath", "workspace/vcs", "internal/hint", "internal/shell", "internal/procfs", "internal/kernel", "internal/credentials", "internal/start", "internal/await", "internal/private", "internal/spending"},
	{"internal/programs", "internal/outgoing"},
	{"profiles"},
	{"internal/clients", "seatbelt", "seccomp", "cgroups", "netproxy", "workspace", "internal/homes", "internal/terminal", "internal/sessions", "internal/messages"},
	{"internal/survey", "internal/egress"},
	{"namespaces"},
	{"providers/filesync"},
	{"providers"},
	{"providers/e2b", "providers/daytona", "providers/cloudflare", "providers/modal", "providers/sprites", "providers/vercel"}, // an adapter uses the engine of all that copy
	{"task/agent"},
	{"run"},
	{"task"},
	{"task/many"},
	{"test/escape"},
	{"cmd"},
	{"test"},
}

// house are the packages that are counted: all that a native run takes, and the command line.
var house = strings.Fields("cmd task run profiles namespaces seccomp cgroups netproxy internal providers/native providers/doctor")

// TestLines prints how many lines the packages have without their tests, and without those that a
// program has written.
func TestLines(t *testing.T) {
	lines, generated := map[string]int{}, 0
	eachGoFile(t, func(t *testing.T, name string, file *ast.File, positions *token.FileSet) {
		i := slices.IndexFunc(house, func(dir string) bool { return within(name, dir) })
		count := positions.File(file.Pos()).LineCount()
		switch {
		case i < 0 || strings.HasSuffix(name, "_test.go"):
		case ast.IsGenerated(file):
			generated += count
		default:
			lines[house[i]] += count
		}
	})
	sum := 0
	for _, dir := range house {
		assert.NotZero(t, lines[dir], dir)
		t.Logf("%6d %s", lines[dir], dir)
		sum += lines[dir]
	}
	t.Logf("%6d together, and %d that are generated", sum, generated)
}

// innocent packages know nothing of the policy, though they stand above it.
var innocent = []string{"internal/clients", "seccomp", "cgroups", "netproxy", "internal/terminal"}

// below the flow are packages that the command line reaches by package run alone.
var belowTheFlow = []string{"internal/survey", "internal/egress", "namespaces", "seatbelt", "seccomp", "cgroups", "netproxy", "workspace"}

// reachesThrough are the files of the command line that import one of them all the same, and
// why. A row that is not needed any more fails the test.
var reachesThrough = map[string]string{
	"cmd/pccrun/escape.go netproxy":      "is the inspector, where the launcher starts this program as one",
	"cmd/pccrun/place_linux.go netproxy": "likewise, in a cloud's sandbox",
}

func TestTheCommandLineGoesByTheFlow(t *testing.T) {
	met := map[string]bool{}
	eachGoFile(t, func(t *testing.T, name string, file *ast.File, _ *token.FileSet) {
		if path.Dir(name) != "cmd/pccrun" || strings.HasSuffix(name, "_test.go") {
			return
		}
		for _, spec := range file.Imports {
			target, err := strconv.Unquote(spec.Path.Value)
			require.NoError(t, err)
			target, ours := strings.CutPrefix(target, module+"/")
			i := slices.IndexFunc(belowTheFlow, func(dir string) bool { return within(target, dir) })
			if !ours || i < 0 || target == "netproxy/rules" { // a leaf
				continue
			}
			row := name + " " + belowTheFlow[i]
			met[row] = true
			assert.NotEmptyf(t, reachesThrough[row], "%s imports %s: package run is to have what it needs", name, target)
		}
	})
	for row := range reachesThrough {
		assert.Truef(t, met[row], "%s: the row is not needed any more", row)
	}
}

func TestNothingImportsWhatIsAboveIt(t *testing.T) {
	eachGoFile(t, func(t *testing.T, name string, file *ast.File, _ *token.FileSet) {
		if strings.HasSuffix(name, "_test.go") {
			return // tests may use the packages that use theirs
		}
		assert.NoError(t, checkImports(path.Dir(name), file.Imports), name)
	})
}

func checkImports(pkg string, imports []*ast.ImportSpec) error {
	from := layer(pkg)
	if from < 0 {
		return fmt.Errorf("package %s has no place in the layers", pkg)
	}
	for _, spec := range imports {
		target, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			return err
		}
		target, ours := strings.CutPrefix(target, module+"/")
		if !ours {
			continue
		}
		if layer(target) > from {
			return fmt.Errorf("package %s imports %s, which is above it", pkg, target)
		}
		if within(target, "profiles") && slices.ContainsFunc(innocent, func(dir string) bool { return within(pkg, dir) }) {
			return fmt.Errorf("package %s imports %s: it is to know nothing of the policy", pkg, target)
		}
	}
	return nil
}

// layer returns the number of a package's layer, -1 if it has none. The
// longest directory decides: netproxy/rules stands below netproxy.
func layer(pkg string) int {
	best, number := "", -1
	for i, dirs := range layers {
		for _, dir := range dirs {
			if within(pkg, dir) && len(dir) > len(best) {
				best, number = dir, i
			}
		}
	}
	return number
}

func within(pkg, dir string) bool { return pkg == dir || strings.HasPrefix(pkg, dir+"/") }

func TestCheckImportsFinds(t *testing.T) {
	imports := func(target string) []*ast.ImportSpec {
		return []*ast.ImportSpec{{Path: &ast.BasicLit{Value: strconv.Quote(module + "/" + target)}}}
	}
	for _, ok := range [][2]string{{"netproxy", "netproxy/rules"}, {"profiles", "internal/state"}, {"cmd/pccrun", "providers/native"}, {"test/bench", "test/internal/host"}} {
		require.NoError(t, checkImports(ok[0], imports(ok[1])), ok)
	}
	for _, bad := range [][2]string{{"netproxy/rules", "netproxy"}, {"internal/state", "profiles"}, {"seccomp", "profiles"}, {"providers/native", "cmd/pccrun"}, {"unheard", "internal/state"}, {"profiles", "test/escape"}} {
		require.Error(t, checkImports(bad[0], imports(bad[1])), bad)
	}
}

func TestEveryPackageHasAComment(t *testing.T) {
	has := map[string]bool{}
	eachGoFile(t, func(_ *testing.T, name string, file *ast.File, _ *token.FileSet) {
		dir := path.Dir(name)
		has[dir] = has[dir] || file.Doc != nil && strings.Contains(file.Doc.Text(), " ")
	})
	for dir, ok := range has {
		assert.Truef(t, ok, "package %s has no package comment", dir)
	}
}

func TestGofmt(t *testing.T) {
	eachFile(t, ".go", func(t *testing.T, name string, data []byte) {
		want, err := format.Source(data)
		require.NoError(t, err)
		assert.Truef(t, bytes.Equal(want, data), "gofmt would change %s", name)
	})
}

// An error begins in lower case, ends without a full stop, and says what was
// done rather than that it failed.
func TestErrorStrings(t *testing.T) {
	eachGoFile(t, func(t *testing.T, name string, file *ast.File, positions *token.FileSet) {
		ast.Inspect(file, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok || len(call.Args) == 0 {
				return true
			}
			f, ok := call.Fun.(*ast.SelectorExpr)
			text, isText := call.Args[0].(*ast.BasicLit)
			if !ok || !isText || text.Kind != token.STRING {
				return true
			}
			if pkg, ok := f.X.(*ast.Ident); !ok || pkg.Name+"."+f.Sel.Name != "errors.New" && pkg.Name+"."+f.Sel.Name != "fmt.Errorf" {
				return true
			}
			s, err := strconv.Unquote(text.Value)
			require.NoError(t, err)
			assert.NoError(t, checkError(s), positions.Position(text.Pos()))
			return true
		})
	})
}

// capital is a first word that is an ordinary one: not BUG, not SOCKS, nor the
// name of a type or a call, which has capitals further on or a dot.
var capital = regexp.MustCompile(`^\p{Lu}\p{Ll}*([^\p{L}.]|$)`)

func checkError(s string) error {
	switch {
	case s == "":
		return fmt.Errorf("an error without words")
	case capital.MatchString(s):
		return fmt.Errorf("error %q: begins with a capital", s)
	case strings.HasSuffix(s, ".") || strings.HasSuffix(s, "\n"):
		return fmt.Errorf("error %q: ends like a sentence", s)
	case strings.Contains(s, "failed "+"to"):
		return fmt.Errorf("error %q: say what was done", s)
	}
	return nil
}

func TestCheckErrorFinds(t *testing.T) {
	for _, good := range []string{"mount /proc: %w", "SOCKS version 4", "BUG: unknown state", "%s: no such rule", "StartTransientUnit: answer %q"} {
		require.NoError(t, checkError(good))
	}
	for _, bad := range []string{"", "Mount /proc", "A mount", "mount /proc.", "mount\n", "failed " + "to mount"} {
		require.Error(t, checkError(bad), bad)
	}
}

func TestNothingIsLeftForLater(t *testing.T) {
	later := regexp.MustCompile(`\b(TO` + `DO|FIX` + `ME|XX` + `X)\b`)
	eachGoFile(t, func(t *testing.T, name string, file *ast.File, positions *token.FileSet) {
		for _, group := range file.Comments {
			assert.Empty(t, later.FindString(group.Text()), positions.Position(group.Pos()))
		}
	})
	eachFile(t, ".md", func(t *testing.T, name string, data []byte) {
		assert.Empty(t, string(later.Find(data)), name)
	})
}

// No file names a package registry, or a place of the machine that it was
// written on. What the registries are is asked of their clients.
func TestNoRegistryAndNoMachineIsNamed(t *testing.T) {
	words := append(registries(), "/wo"+"rk/main", "/wo"+"rk/shared", "/fa"+"rm/")
	require.Greater(t, len(words), 3, "no client told a registry")
	eachFile(t, "", func(t *testing.T, name string, data []byte) {
		for _, word := range words {
			assert.Falsef(t, bytes.Contains(data, []byte(word)), "%s names %s", name, word)
		}
	})
}

// registries returns the hosts that the clients on this machine are set up for.
func registries() []string {
	var hosts []string
	for _, ask := range [][]string{{"go", "env", "GOPROXY"}, {"npm", "config", "get", "registry"}, {"apt-get", "indextargets", "--format", "$(SITE)"}} {
		out, err := exec.Command(ask[0], ask[1:]...).Output()
		if err != nil {
			continue // a client that is not there
		}
		for _, m := range regexp.MustCompile(`://([^/\s,|]+\.[^/\s,|]+)`).FindAllStringSubmatch(string(out), -1) {
			if !slices.Contains(hosts, m[1]) {
				hosts = append(hosts, m[1])
			}
		}
	}
	return hosts
}

// What is built is no source: a program in the root has been committed by
// mistake more than once.
func TestNothingBuiltIsKept(t *testing.T) {
	const most = 1 << 20
	names := tracked(t)
	require.NotEmpty(t, names)
	for _, name := range names {
		data, err := os.ReadFile(filepath.Join(top(t), name))
		if err != nil { // taken away, and not committed yet
			continue
		}
		if strings.HasPrefix(name, "vendor/") { // modules, where make test has copied them
			continue
		}
		assert.Less(t, len(data), most, "%s", name)
		assert.False(t, bytes.HasPrefix(data, []byte("\x7fELF")) || bytes.HasPrefix(data, []byte("MZ")), "%s is a program", name)
	}
}

// tracked returns what git keeps; where the tree is a copy of that, all of it but
// what make build has put there.
func tracked(t *testing.T) (names []string) {
	if out, err := exec.Command("git", "-C", top(t), "ls-files", "-z").Output(); err == nil {
		return strings.FieldsFunc(string(out), func(r rune) bool { return r == 0 })
	}
	require.NoError(t, filepath.WalkDir(top(t), func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && (entry.Name() == "bin" || entry.Name() == ".cache" || entry.Name() == ".git"):
			return filepath.SkipDir
		case entry.Type().IsRegular() && entry.Name() != "whole.bin" && entry.Name() != "place.gz":
			name, err := filepath.Rel(top(t), path)
			names = append(names, name)
			return err
		}
		return nil
	}))
	return names
}

// TestWhatIsNotCovered holds the list of files that do not count for coverage to
// the tree: each of its rows stands for files that are there, and none for those
// of another row.
func TestWhatIsNotCovered(t *testing.T) {
	rows, err := verdicts.Rows(filepath.Join(top(t), "test", "uncovered.txt"), 2)
	require.NoError(t, err)
	by := map[string]string{}
	for _, row := range rows {
		found := false
		for _, name := range tracked(t) {
			is, err := path.Match(row[0], name)
			require.NoError(t, err, row[0])
			if !is || strings.HasSuffix(name, "_test.go") {
				continue
			}
			found = true
			assert.Emptyf(t, by[name], "%s stands in the rows %s and %s", name, by[name], row[0])
			by[name] = row[0]
		}
		assert.True(t, found, "%s: no such file", row[0])
		assert.NotContains(t, row[0], "/*", "a whole directory: what is new in it would not count, and nobody would know")
	}
}

// TestPackagesHaveTests holds test/packages.txt to the tree.
func TestPackagesHaveTests(t *testing.T) {
	rows, err := verdicts.ReadPackages(filepath.Join(top(t), "test", "packages.txt"))
	require.NoError(t, err)
	for _, row := range rows {
		tests, err := filepath.Glob(filepath.Join(top(t), row.Package, "*_test.go"))
		require.NoError(t, err)
		assert.NotEmpty(t, tests, "test/packages.txt: %s has no tests", row.Package)
	}
}

// Whoever has just cloned the project finds in one table what make can do, to which the README leads.
func TestEachTargetIsNamed(t *testing.T) {
	makefile, err := os.ReadFile(filepath.Join(top(t), "Makefile"))
	require.NoError(t, err)
	page, err := os.ReadFile(filepath.Join(top(t), "CONTRIBUTING.md"))
	require.NoError(t, err)
	phony := regexp.MustCompile(`(?m)^\.PHONY: (.*)$`).FindSubmatch(makefile)
	require.NotNil(t, phony)
	for target := range strings.FieldsSeq(string(phony[1])) {
		assert.Contains(t, string(page), "| `make "+target+"` |")
	}
}

// What a page says to be complete in is held to what there is: the README to the
// pages, the architecture to the groups of packages, the dependencies to go.mod.
func TestPagesAreComplete(t *testing.T) {
	read := func(name string) string {
		text, err := os.ReadFile(filepath.Join(top(t), name))
		require.NoError(t, err)
		return string(text)
	}
	readme := read("README.md")
	pages, err := filepath.Glob(filepath.Join(top(t), "docs/*.md"))
	require.NoError(t, err)
	require.NotEmpty(t, pages)
	for _, page := range pages {
		name := "docs/" + filepath.Base(page)
		assert.Contains(t, readme, "]("+name+")", "README.md does not lead to %s", name)
	}

	architecture := read("docs/architecture.md")
	dirs := map[string]bool{}
	eachFile(t, ".go", func(_ *testing.T, name string, _ []byte) { dirs[path.Dir(name)] = true })
	for dir := range dirs {
		group, _, _ := strings.Cut(dir, "/") // what each package is for, its own comment says
		assert.Contains(t, architecture, "`"+group, "docs/architecture.md does not name a group of packages")
	}
	packages := regexp.MustCompile("`((?:[a-z]+/)+[a-z]+)`").FindAllStringSubmatch(architecture, -1)
	require.Greater(t, len(packages), 10)
	for _, m := range packages {
		assert.DirExists(t, filepath.Join(top(t), m[1]), "docs/architecture.md")
	}

	dependencies := modulesIn(read("docs/dependencies.md"))
	modules := regexp.MustCompile(`(?m)^\t(\S+) v\S+$`).FindAllStringSubmatch(read("go.mod"), -1) // why an indirect one, go mod why says
	require.NotEmpty(t, modules)
	for _, m := range modules {
		assert.True(t, dependencies[m[1]], "docs/dependencies.md does not name %s", m[1])
	}
}

// modulesIn are the modules that the lists of a page begin with: `- MODULE, MODULE: …`.
func modulesIn(page string) map[string]bool {
	modules := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^- ([^:]*):\s`).FindAllStringSubmatch(page, -1) {
		for _, name := range regexp.MustCompile(`,\s+`).Split(m[1], -1) {
			modules[name] = true
		}
	}
	return modules
}

// TestWhatIsForTestsIsNotLinked holds the page of dependencies to what the two
// builds of the program link.
func TestWhatIsForTestsIsNotLinked(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(top(t), "docs/dependencies.md"))
	require.NoError(t, err)
	linked, tests, found := strings.Cut(string(page), "\n## Used by tests and generators only\n")
	require.True(t, found)
	tests, _, _ = strings.Cut(tests, "\n## ")
	forProgram, forTests := modulesIn(linked), modulesIn(tests)
	require.NotEmpty(t, forTests)
	for _, tags := range []string{"", "launcher"} {
		modules := linkedBy(t, tags, "{{with .Module}}{{.Path}}{{end}}")
		require.Contains(t, modules, "golang.org/x/sys", "the control")
		for module := range forTests {
			if !forProgram[module] { // one may be both
				assert.NotContains(t, modules, module, "docs/dependencies.md says that tests alone use it; -tags %q", tags)
			}
		}
	}
}

// linkedBy lists what a build of the program with some tags links, by a format of go list.
func linkedBy(t *testing.T, tags, format string) []string {
	// -e: the program that the launcher carries need not have been built.
	list := exec.Command("go", "list", "-e", "-deps", "-tags", tags, "-f", format, "./cmd/pccrun")
	list.Dir = top(t)
	out, err := list.Output()
	require.NoError(t, err)
	return strings.Fields(string(out))
}

// The launcher runs commands, and Go initialises each package that is linked at each start: what verbs alone
// need is not in it, and of modules only what the page of dependencies marks.
func TestTheLauncherLinksLittle(t *testing.T) {
	has := linkedBy(t, "launcher", "{{.ImportPath}}")
	whole := linkedBy(t, "", "{{.ImportPath}}")
	for _, name := range []string{
		"text/tabwriter", "encoding/xml", "net/http",
		module + "/internal/homes/login", module + "/internal/outgoing/client", module + "/netproxy/inspect", module + "/seatbelt", module + "/test/escape",
		module + "/providers/doctor", module + "/providers/docker", module + "/providers/remote", module + "/providers/filesync", module + "/task",
	} {
		assert.NotContains(t, has, name)
		assert.Contains(t, whole, name, "the control")
	}
	for _, name := range []string{module + "/run", module + "/providers/native", module + "/providers/inside"} {
		assert.Contains(t, has, name, "the control")
	}
	page, err := os.ReadFile(filepath.Join(top(t), "docs/dependencies.md"))
	require.NoError(t, err)
	marked := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^- (\S+): \(L\)`).FindAllStringSubmatch(string(page), -1) {
		marked[m[1]] = true
	}
	used := map[string]bool{}
	for _, name := range linkedBy(t, "launcher", "{{with .Module}}{{if not .Main}}{{.Path}}{{end}}{{end}}") {
		used[name] = true
	}
	assert.Equal(t, used, marked, "docs/dependencies.md marks with (L) what the launcher links")
}

// What pccrun reads of its environment stands in one help. Package managers'
// variables, which clients reads, stand there as one row.
func TestEachVariableThatIsReadIsNamed(t *testing.T) {
	help, err := os.ReadFile(filepath.Join(top(t), "cmd/pccrun/help/environment.txt"))
	require.NoError(t, err)
	reads, _, ok := strings.Cut(string(help), "\nWhat it sets")
	require.True(t, ok)
	named := map[string]bool{}
	for _, name := range regexp.MustCompile(`[A-Za-z][A-Za-z0-9_]*`).FindAllString(reads, -1) {
		named[name] = true
	}
	calls := regexp.MustCompile(`(?i)(?:getenv|lookupenv)\((?:env, )?"([A-Za-z_]+)"\)`)
	found := 0
	eachFile(t, ".go", func(t *testing.T, name string, data []byte) {
		if strings.HasSuffix(name, "_test.go") || within(name, "test") || within(name, "internal/clients") {
			return
		}
		for _, m := range calls.FindAllSubmatch(data, -1) {
			assert.True(t, named[string(m[1])], "%s: %s", name, m[1])
			found++
		}
	})
	require.Greater(t, found, 10)
}

func TestEveryLinkLeadsSomewhere(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^)\s]+)\)`)
	eachFile(t, ".md", func(t *testing.T, name string, data []byte) {
		for _, m := range link.FindAllSubmatch(data, -1) {
			target, anchor, _ := strings.Cut(string(m[1]), "#")
			if strings.Contains(target, "://") || strings.HasPrefix(target, "mailto:") {
				continue
			}
			where := filepath.Join(top(t), filepath.Dir(name), target)
			if target == "" {
				where = filepath.Join(top(t), name)
			}
			text, err := os.ReadFile(where)
			if info, statErr := os.Stat(where); statErr == nil && info.IsDir() {
				continue
			}
			assert.NoErrorf(t, err, "%s links to %s", name, m[1])
			if anchor != "" {
				assert.Containsf(t, anchors(string(text)), anchor, "%s links to %s", name, m[1])
			}
		}
	})
}

// anchors are the fragments by which the headings of a page can be reached.
func anchors(page string) []string {
	var list []string
	for line := range strings.Lines(page) {
		if !strings.HasPrefix(line, "#") {
			continue
		}
		heading := strings.ToLower(strings.TrimSpace(strings.TrimLeft(line, "#")))
		list = append(list, strings.Map(func(r rune) rune {
			switch {
			case unicode.IsLetter(r), unicode.IsDigit(r), r == '-', r == '_':
				return r
			case r == ' ':
				return '-'
			}
			return -1
		}, heading))
	}
	return list
}

func eachGoFile(t *testing.T, check func(*testing.T, string, *ast.File, *token.FileSet)) {
	t.Helper()
	eachFile(t, ".go", func(t *testing.T, name string, data []byte) {
		if strings.HasPrefix(name, "release/") { // a module of its own, which is linked into nothing and can import nothing internal
			return
		}
		positions := token.NewFileSet()
		file, err := parser.ParseFile(positions, name, data, parser.ParseComments)
		require.NoError(t, err)
		check(t, name, file, positions)
	})
}

// eachFile calls check for each text file of the repository whose name ends
// in suffix, by its path from the top.
func eachFile(t *testing.T, suffix string, check func(t *testing.T, name string, data []byte)) {
	t.Helper()
	checked := 0
	err := filepath.WalkDir(top(t), func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			switch entry.Name() {
			case ".git", ".cache", "bin", "vendor", "node_modules":
				return filepath.SkipDir
			}
			return nil
		}
		if !entry.Type().IsRegular() || !strings.HasSuffix(name, suffix) || entry.Name() == ".git" { // a linked worktree's says where it is
			return nil
		}
		data, err := os.ReadFile(name)
		if err != nil || bytes.IndexByte(data, 0) >= 0 {
			return err
		}
		rel, err := filepath.Rel(top(t), name)
		if err != nil {
			return err
		}
		checked++
		check(t, filepath.ToSlash(rel), data)
		return nil
	})
	require.NoError(t, err)
	require.NotZero(t, checked, "no file was looked at")
}

// top is the top of the repository: tests run in their package's directory.
func top(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs("../..")
	require.NoError(t, err)
	require.FileExists(t, filepath.Join(dir, "go.mod"))
	return dir
}
