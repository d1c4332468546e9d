//go:build linux

package escape

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A step is something that the launcher does and that no flag takes away: the
// test takes it out of the source, and builds what is left.
type step struct {
	name  string
	cuts  []cut
	probe string
}

// A cut replaces text that stands once in a file of the module.
type cut struct{ file, old, new string }

var steps = []step{
	{"what is new and protected is set aside", []cut{{"cmd/pccrun/guard_linux.go", "if g.standing == nil {\n\t\treturn nil\n\t}\n\tvar err error", "if g != nil {\n\t\treturn nil\n\t}\n\tvar err error"}}, "PER-006"},
	{"a copy takes what is written to an overlay", []cut{{"namespaces/plan.go", "m.ReadOnly = Copy, p.Path, p.Dev, p.Ino, false", "m.ReadOnly = Bind, p.Path, p.Dev, p.Ino, false\n\t\t\tm.Tree = true"}}, "FS-042"},
	{"programs that give rights are pinned", []cut{{"namespaces/setid_linux.go", "for _, root := range f.writable() {", "for _, root := range f.writable()[:0] {"}}, "FS-062"},
	{"the sandbox dies with the launcher", []cut{
		{"namespaces/shell_linux.go", "c.Call(unix.SYS_PRCTL, inside.Int(unix.PR_SET_PDEATHSIG), inside.Int(int(unix.SIGKILL)))", ""},
		{"namespaces/inside/interpret.go", "exit(0) // the launcher is gone, and the death signal on its way", "sys(unix.SYS_SCHED_YIELD, 0, 0, 0, 0, 0, 0)"},
	}, "NS-019"},
	{"an address is judged after its name", []cut{{"netproxy/rules/guard.go", "func guardOf(a netip.Addr) guard {", "func guardOf(a netip.Addr) guard {\n\tif a.IsValid() {\n\t\treturn guard{}\n\t}"}}, "NET-037"},
	{"a limit ends the run", []cut{{"namespaces/inside/interpret.go", "s.until = clock(s) + s.deadline", "s.until = 0"}}, "RES-010"},
}

// TestSteps takes steps out of the launcher, one at a time, and wants the
// suite to notice each.
func TestSteps(t *testing.T) {
	if testing.Short() || os.Geteuid() != 0 {
		t.Skip("needs root, whose go command builds, and half a minute")
	}
	needCage(t)
	home := worldReadable(t)
	whole := filepath.Join(home, "whole")
	require.NoError(t, place(testLauncher(t), whole))
	require.NoError(t, os.Chmod(whole, 0o755))
	root, err := filepath.Abs("../..")
	require.NoError(t, err)
	for i, s := range steps {
		t.Run(s.name, func(t *testing.T) {
			mutated := filepath.Join(home, strconv.Itoa(i))
			buildWithout(t, root, s.cuts, mutated)
			notices(t, whole, mutated, s.probe)
		})
	}
}

// notices wants a probe to be stopped by one launcher, and to escape the other.
func notices(t *testing.T, whole, mutated, probe string) {
	targets := []*Target{Native(whole, nil), Native(mutated, nil)}
	targets[1].Name = "mutated"
	results := run(t, targets, func(p *Probe) bool { return p.ID == probe })
	if results[0].Verdict == VerdictSkipped {
		t.Skip(results[0].Reason)
	}
	require.Contains(t, []Verdict{VerdictBlocked, VerdictDegraded}, results[0].Verdict, "whole: %s %s", results[0].Reason, results[0].Inside.Detail)
	require.Equal(t, VerdictEscaped, results[1].Verdict, "%s %s", results[1].Reason, results[1].Inside.Detail)
}

// buildWithout builds the launcher from a source that is cut, and leaves the
// source as it is: go help build, -overlay.
func buildWithout(t *testing.T, root string, cuts []cut, out string) {
	dir := t.TempDir()
	replace := map[string]string{}
	for _, c := range cuts {
		path := filepath.Join(root, c.file)
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Equal(t, 1, strings.Count(string(text), c.old), "%s: the text to cut: %s", c.file, c.old)
		replace[path] = filepath.Join(dir, strings.ReplaceAll(c.file, "/", "-"))
		require.NoError(t, os.WriteFile(replace[path], []byte(strings.Replace(string(text), c.old, c.new, 1)), 0o644))
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "overlay.json"), overlay, 0o644))
	build := exec.Command("go", "build", "-overlay", filepath.Join(dir, "overlay.json"), "-o", out, "./cmd/pccrun")
	build.Dir, build.Env = root, append(os.Environ(), "CGO_ENABLED=0")
	text, err := build.CombinedOutput()
	require.NoError(t, err, "%s", text)
}
