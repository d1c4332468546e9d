//go:build linux

package rules

import (
	"go/ast"
	"go/build/constraint"
	"go/token"
	"path"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

// A type that acts, which has a method on its pointer, is read as a whole. So it has no more methods than
// maxMethods, with those of what it embeds, and no more fields than maxFields.
const (
	maxMethods = 30
	maxFields  = 20
)

// size is how many methods and fields a type has; 0 where it is within the limit.
type size struct{ methods, fields int }

// tooLarge are the types that are larger, and by how much. A count may be lowered, and a row removed. None is raised, and
// none is added: divide the type.
var tooLarge = map[string]size{
	"internal/homes.Home":       {34, 0},
	"internal/survey.finder":    {58, 0},
	"internal/survey.links":     {32, 0},
	"namespaces.Plan":           {52, 0},
	"namespaces.Sandbox":        {34, 35},
	"namespaces.compiler":       {95, 0},
	"namespaces/inside.Program": {34, 0},
	"netproxy.Proxy":            {41, 0},
	"netproxy.client":           {62, 0},
	"profiles.Policy":           {37, 32},
	"profiles.builder":          {31, 0},
	"profiles.importer":         {46, 0},
	"providers/native.Run":      {50, 0},
	"providers/native.Started":  {33, 0},
	"workspace.Guard":           {58, 27},
	"workspace.Standing":        {0, 23},
	"workspace.scan":            {76, 32},
	"workspace.walker":          {0, 21},
}

func TestTypesAreSmall(t *testing.T) {
	sizes := map[string]size{}
	for _, system := range []string{"linux", "darwin"} {
		types := map[string]*declared{}
		eachGoFile(t, func(_ *testing.T, name string, file *ast.File, _ *token.FileSet) {
			if !within(name, "test") && !strings.HasSuffix(name, "_test.go") && builtFor(name, file, system) {
				declare(types, path.Dir(name), file)
			}
		})
		for name, d := range types {
			if !d.acts {
				continue
			}
			methods := map[string]bool{}
			d.collect(types, methods, map[*declared]bool{})
			was := sizes[name]
			sizes[name] = size{max(was.methods, len(methods)), max(was.fields, d.fields)}
		}
	}
	for name, s := range sizes {
		if s.methods <= maxMethods {
			s.methods = 0
		}
		if s.fields <= maxFields {
			s.fields = 0
		}
		if sizes[name] = s; s.methods > tooLarge[name].methods || s.fields > tooLarge[name].fields {
			t.Errorf("%q: {%d, %d}: a type that acts has at most %d methods and %d fields; listed are %v", name, s.methods, s.fields, maxMethods, maxFields, tooLarge[name])
		}
	}
	for name, listed := range tooLarge {
		now := sizes[name]
		assert.Equalf(t, listed, now, "%s: lower the row to what it is, or remove it at {0 0}", name)
	}
}

// declared is what the files of a package say of one of its types.
type declared struct {
	acts    bool
	fields  int
	methods []string
	embeds  []string // types of the product, by package and name
}

// collect adds the names of all methods: its own, and those of what it embeds.
func (d *declared) collect(types map[string]*declared, methods map[string]bool, seen map[*declared]bool) {
	if d == nil || seen[d] {
		return
	}
	seen[d] = true
	for _, name := range d.methods {
		methods[name] = true
	}
	for _, name := range d.embeds {
		types[name].collect(types, methods, seen)
	}
}

// declare takes in what a file says of types.
func declare(types map[string]*declared, dir string, file *ast.File) {
	imports := map[string]string{}
	for _, spec := range file.Imports {
		target, _ := strconv.Unquote(spec.Path.Value)
		if target, ours := strings.CutPrefix(target, module+"/"); ours {
			name := path.Base(target)
			if spec.Name != nil {
				name = spec.Name.Name
			}
			imports[name] = target
		}
	}
	of := func(name string) *declared {
		name = dir + "." + name
		if types[name] == nil {
			types[name] = &declared{}
		}
		return types[name]
	}
	for _, decl := range file.Decls {
		switch decl := decl.(type) {
		case *ast.FuncDecl:
			if decl.Recv == nil {
				continue
			}
			name, pointer := baseOf(decl.Recv.List[0].Type)
			if id, is := name.(*ast.Ident); is {
				d := of(id.Name)
				d.methods, d.acts = append(d.methods, decl.Name.Name), d.acts || pointer
			}
		case *ast.GenDecl:
			for _, spec := range decl.Specs {
				spec, is := spec.(*ast.TypeSpec)
				if !is {
					continue
				}
				d := of(spec.Name.Name)
				switch kind := spec.Type.(type) {
				case *ast.StructType:
					for _, field := range kind.Fields.List {
						d.fields += max(1, len(field.Names))
						if len(field.Names) == 0 {
							d.embeds = append(d.embeds, typeName(field.Type, dir, imports))
						}
					}
				case *ast.InterfaceType: // what embeds it has its methods
					for _, field := range kind.Methods.List {
						for _, name := range field.Names {
							d.methods = append(d.methods, name.Name)
						}
						if len(field.Names) == 0 {
							d.embeds = append(d.embeds, typeName(field.Type, dir, imports))
						}
					}
				}
			}
		}
	}
}

// baseOf strips the star and the type parameters of a type.
func baseOf(e ast.Expr) (base ast.Expr, pointer bool) {
	for {
		switch x := e.(type) {
		case *ast.StarExpr:
			e, pointer = x.X, true
		case *ast.IndexExpr:
			e = x.X
		default:
			return e, pointer
		}
	}
}

// typeName is the name of a type by its package, "" for one of another module.
func typeName(e ast.Expr, dir string, imports map[string]string) string {
	switch e, _ := baseOf(e); x := e.(type) {
	case *ast.Ident:
		return dir + "." + x.Name
	case *ast.SelectorExpr:
		if pkg, is := x.X.(*ast.Ident); is && imports[pkg.Name] != "" {
			return imports[pkg.Name] + "." + x.Sel.Name
		}
	}
	return ""
}

// builtFor reports whether a file is of the build for a system, by its name and its constraint.
func builtFor(name string, file *ast.File, system string) bool {
	tag := func(tag string) bool { return tag == system || tag == "unix" || tag == "amd64" }
	parts := strings.Split(strings.TrimSuffix(path.Base(name), ".go"), "_")
	for _, part := range parts[max(1, len(parts)-2):] {
		switch part {
		case "linux", "darwin", "windows", "arm64":
			if !tag(part) {
				return false
			}
		}
	}
	for _, group := range file.Comments {
		for _, c := range group.List {
			if c.Pos() > file.Package || !constraint.IsGoBuild(c.Text) {
				continue
			}
			if x, err := constraint.Parse(c.Text); err == nil && !x.Eval(tag) {
				return false
			}
		}
	}
	return true
}

func TestTypesAreCounted(t *testing.T) {
	for name, want := range map[string]bool{"a_linux.go": true, "a_darwin.go": false, "a_linux_amd64.go": true, "a_arm64.go": false, "a_unix.go": true} {
		assert.Equal(t, want, builtFor("x/"+name, &ast.File{}, "linux"), name)
	}
	types := map[string]*declared{
		"a.outer": {methods: []string{"one"}, embeds: []string{"a.inner", "b.other", "sync.Mutex"}},
		"a.inner": {methods: []string{"one", "two"}, embeds: []string{"a.outer"}}, "b.other": {methods: []string{"three"}},
	}
	methods := map[string]bool{}
	types["a.outer"].collect(types, methods, map[*declared]bool{})
	assert.Len(t, methods, 3)
}
