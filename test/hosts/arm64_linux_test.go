package hosts

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pccrun/pccrun/test/internal/verdicts"
)

// What is built for arm64 runs under an emulator of that processor, whose system
// calls are this kernel's: what decides and prints does all of its work, and the
// filters answer as the table says. Namespaces and filters of its own the emulator
// does not make: there the launcher refuses by name. A machine of that processor is
// booted by test/vm.
func TestArm64(t *testing.T) {
	verdicts.SkipUnlessLong(t)
	if os.Geteuid() != 0 {
		t.Skip("needs root, whose go command builds")
	}
	if runtime.GOARCH == "arm64" {
		t.Skip("needs another processor than arm64: all tests run on that")
	}
	qemu, err := exec.LookPath("qemu-aarch64")
	if err != nil {
		t.Skip("needs qemu-aarch64")
	}
	root, err := filepath.Abs("../..")
	require.NoError(t, err)
	goTool := func(args ...string) {
		cmd := exec.Command("go", args...)
		cmd.Dir, cmd.Env = root, append(os.Environ(), "CGO_ENABLED=0", "GOARCH=arm64")
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
	dir := t.TempDir()
	program := filepath.Join(dir, "pccrun")
	goTool("build", "-o", program, "./cmd/pccrun")
	run := func(args ...string) (string, int) {
		cmd := exec.Command(qemu, append([]string{program}, args...)...)
		cmd.Dir, cmd.Env = dir, []string{"HOME=" + dir, "PATH=" + os.Getenv("PATH"), "XDG_STATE_HOME=" + filepath.Join(dir, "state")}
		out, err := cmd.CombinedOutput()
		if err != nil {
			require.IsType(t, &exec.ExitError{}, err)
		}
		return string(out), cmd.ProcessState.ExitCode()
	}
	work := filepath.Join(dir, "work")
	require.NoError(t, os.Mkdir(work, 0o755))
	for _, c := range []struct {
		says string
		args []string
	}{
		{"linux/arm64", []string{"version"}},
		{"closed home, writable workspace", []string{"profile", "list"}},
		{"no: read", []string{"why", "read", filepath.Join(dir, ".ssh", "id"), "--workspace", work}},
		{`"sys.filter"`, []string{"--workspace", work, "--dry-run", "--json", "--", "true"}},
		{"FS-001", []string{"escape", "--list"}},
	} {
		out, _ := run(c.args...)
		require.Contains(t, out, c.says, "%q", c.args)
	}
	out, code := run("--workspace", work, "--", "true")
	require.Equal(t, 125, code, out)
	require.Contains(t, out, "function not implemented")

	goTool("test", "-exec", qemu, "./profiles", "./internal/state", "./internal/events/...")
	goTool("test", "-exec", qemu, "-run", "^(TestBuiltin.*|TestOCIForm.*|TestOtherArchitectures.*|TestFloor(Refuses|DecidesByArguments|IsShort)|TestWatch|FuzzCompileOCI)$", "./seccomp")
}
