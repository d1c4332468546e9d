package rules

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// executes are the calls by which a program is executed or found, and the type of a command that
// nobody has made, by the path of their package.
var executes = map[string][]string{
	"os/exec":               {"Command", "CommandContext", "LookPath", "Cmd{"},
	"os":                    {"StartProcess"},
	"syscall":               {"Exec", "ForkExec", "StartProcess"},
	"golang.org/x/sys/unix": {"Exec"},
	"plugin":                {"Open"},
}

// executors are the calls outside of package programs, and what they execute.
var executors = map[string]string{
	"cmd/pccrun/launcher_linux.go unix.Exec":             "the whole program, which the launcher carries",
	"cmd/pccrun/whole_file_linux.go unix.Exec":           "the same",
	"cmd/pccrun/learn_linux.go os.StartProcess":          "this program",
	"internal/egress/inspector_linux.go os.StartProcess": "the whole program",
	"run/home_linux.go os.StartProcess":                  "the whole program",
	"profiles/host_unix.go exec.CommandContext":          "getent(1), the system's own, by its path",
	"run/askgit/askgit_unix.go exec.Command":             "this program, for a sandbox with git",
	"providers/doctor/trials.go exec.CommandContext":     "the launcher that the user started",
	"providers/inside/command_linux.go syscall.ForkExec": "inside: this program",
	"providers/inside/native_linux.go exec.Command":      "inside: this program",
	"providers/inside/remote_linux.go exec.Command":      "inside: this program",
	"providers/macos/run.go exec.CommandContext":         "sandbox-exec(1) of macOS, by its path",
	"providers/macos/stage.go syscall.Exec":              "inside: the command",
	"providers/macos/supervisor.go exec.Command":         "this program; log(1) of macOS, by its path",
	"providers/macos/supervisor.go os.StartProcess":      "sandbox-exec(1) of macOS, by its path",
	"providers/remote/in_place_linux.go exec.LookPath":   "inside: git, before the command starts",
	"providers/remote/in_place_linux.go exec.Command":    "the same",
	"task/phase.go exec.Command":                         "this program, for a phase or a task",
	"run/detach/holder_linux.go exec.Command":            "this program, for a run",
	"run/detach/start_linux.go exec.Command":             "this program, for what holds a terminal",
}

// temporaries are the places outside of tests that use the system's temporary directory, and why nothing there is trusted.
var temporaries = map[string]string{
	"providers/inside/bare_linux.go": "inside: in a container, before its only command starts",
	"providers/macos/stage.go":       "a short name for a socket of the trial: if anybody else has it, the trial fails",
}

// Whatever pccrun executes on the host package programs finds, so that no run decides what that is; and nothing that
// it trusts lies where everybody can write.
func TestOnlyProgramsExecutes(t *testing.T) {
	met := map[string]bool{}
	eachGoFile(t, func(t *testing.T, name string, file *ast.File, positions *token.FileSet) {
		if strings.HasSuffix(name, "_test.go") || within(name, "test") || within(name, "internal/programs") {
			return
		}
		for call, at := range callsOf(file, executes) {
			row := name + " " + call
			met[row] = true
			assert.NotEmptyf(t, executors[row], "%s: %s: package internal/programs is to find and execute it", positions.Position(at), call)
		}
		for _, at := range temporary(file) {
			met[name] = true
			assert.NotEmptyf(t, temporaries[name], "%s: nothing that is trusted lies in the system's temporary directory", positions.Position(at))
		}
	})
	for row := range executors {
		assert.Truef(t, met[row], "%s: the row is not needed any more", row)
	}
	for row := range temporaries {
		assert.Truef(t, met[row], "%s: the row is not needed any more", row)
	}
}

// believes are what reads proxies or authorities from the environment, which a project can set: Go's default client,
// a client or transport that has no other, and the system's authorities as crypto/x509 finds them.
var believes = map[string][]string{
	"net/http":   {"DefaultClient", "DefaultTransport", "Get", "Head", "Post", "PostForm", "ProxyFromEnvironment", "Client{", "Transport{"},
	"crypto/tls": {"Dial", "DialWithDialer", "Dialer{"}, "crypto/x509": {"SystemCertPool"},
	"golang.org/x/net/http/httpproxy": {"FromEnvironment"},
}

// believers are the places outside of package internal/outgoing that use one all the same, and why it reads nothing there.
var believers = map[string]string{
	"netproxy/inspect/request.go http.Transport{": "has authorities of its own, and dials by the rules",
}

// What pccrun itself sends goes by the client of package internal/outgoing, so that no project decides who gets it.
func TestOnlyOutgoingBelievesTheEnvironment(t *testing.T) {
	met := map[string]bool{}
	eachGoFile(t, func(t *testing.T, name string, file *ast.File, positions *token.FileSet) {
		if strings.HasSuffix(name, "_test.go") || within(name, "test") || within(name, "internal/outgoing") {
			return
		}
		for call, at := range callsOf(file, believes) {
			row := name + " " + call
			met[row] = true
			assert.NotEmptyf(t, believers[row], "%s: %s: package internal/outgoing/client has the client", positions.Position(at), call)
		}
	})
	for row := range believers {
		assert.Truef(t, met[row], "%s: the row is not needed any more", row)
	}
	bad := callsOf(parsed(t, `package x
import ("net/http"; certs "crypto/x509")
var a, b = http.Client{}, http.ProxyFromEnvironment
func f() { certs.SystemCertPool(); new(http.Transport); http.Get("") }`), believes)
	require.Len(t, bad, 5)
	require.Empty(t, callsOf(parsed(t, `package x
import "net/http"
func f(c *http.Client) { c.Get("") }`), believes), "the control")
}

// callsOf returns the names of packages that a file uses, of those listed, with the last place of each.
func callsOf(file *ast.File, names map[string][]string) map[string]token.Pos {
	found := map[string]token.Pos{}
	look := func(n ast.Expr, suffix string) {
		if name := named(file, n, suffix, names); name != "" {
			found[name] = n.Pos()
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.SelectorExpr: // also one that is handed on, and not called here
			look(n, "")
		case *ast.CompositeLit:
			look(n.Type, "{")
		case *ast.CallExpr:
			if f, ok := n.Fun.(*ast.Ident); ok && f.Name == "new" && len(n.Args) == 1 {
				look(n.Args[0], "{")
			}
		}
		return true
	})
	return found
}

// named returns what of a package an expression is, if it is one of those listed.
func named(file *ast.File, n ast.Expr, suffix string, names map[string][]string) string {
	s, ok := n.(*ast.SelectorExpr)
	if !ok {
		return ""
	}
	pkg, ok := s.X.(*ast.Ident)
	for _, spec := range file.Imports {
		target, _ := strconv.Unquote(spec.Path.Value)
		local := path.Base(target)
		if spec.Name != nil {
			local = spec.Name.Name
		}
		if ok && local == pkg.Name && slices.Contains(names[target], s.Sel.Name+suffix) {
			return path.Base(target) + "." + s.Sel.Name + suffix
		}
	}
	return ""
}

// temporary returns the calls that name the system's temporary directory, or leave it to the system.
func temporary(file *ast.File) (calls []token.Pos) {
	ast.Inspect(file, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		name := named(file, call.Fun, "", map[string][]string{"os": {"TempDir", "MkdirTemp", "CreateTemp"}})
		text := ""
		if len(call.Args) > 0 {
			if first, isText := call.Args[0].(*ast.BasicLit); isText {
				text = first.Value
			}
		}
		if name == "os.TempDir" || name != "" && (text == `""` || strings.HasPrefix(text, `"/tmp`) || strings.HasPrefix(text, `"/var/tmp`)) {
			calls = append(calls, call.Pos())
		}
		return true
	})
	return calls
}

func parsed(t *testing.T, text string) *ast.File {
	file, err := parser.ParseFile(token.NewFileSet(), "x.go", text, 0)
	require.NoError(t, err)
	return file
}

func TestCallsOfFinds(t *testing.T) {
	file := parsed(t, `package x
import ("os/exec"; system "os")
var run = exec.Command
func f() { _ = exec.Cmd{}; _ = new(exec.Cmd); system.StartProcess("", nil, nil); system.MkdirTemp("/tmp", ""); var _ *exec.Cmd }`)
	calls := callsOf(file, executes)
	require.Len(t, calls, 3)
	require.Contains(t, calls, "exec.Command")
	require.Contains(t, calls, "exec.Cmd{")
	require.Contains(t, calls, "os.StartProcess")
	require.Len(t, temporary(file), 1)
	require.Empty(t, callsOf(parsed(t, `package x
import ("os/exec"; "os")
func f(c *exec.Cmd, e *exec.ExitError) { c.Run(); os.Open("") }`), executes), "the control")
}
