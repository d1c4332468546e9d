package start

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// started builds the program of testdata with these flags of the linker, runs it
// with that timer slack, and returns what it prints.
func started(t *testing.T, ldflags string, slack uintptr) string {
	return run(t, built(t, ldflags), slack)
}

func built(t *testing.T, ldflags string) string {
	program := filepath.Join(t.TempDir(), "started")
	build := exec.Command("go", "build", "-ldflags", ldflags, "-o", program, "./testdata/started")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	out, err := build.CombinedOutput()
	require.NoError(t, err, string(out))
	return program
}

func run(t *testing.T, program string, slack uintptr) string {
	runtime.LockOSThread() // and never unlocked: the thread goes with its slack
	require.NoError(t, unix.Prctl(unix.PR_SET_TIMERSLACK, slack, 0, 0, 0))
	out, err := exec.Command(program).CombinedOutput()
	require.NoError(t, err, string(out))
	return string(out)
}

const linked = "-E github.com/pccrun/pccrun/internal/start.entry"

// The first thread has the slack that the program was given, and so has all that it
// makes; the runtime's monitor has more.
//
//test:root
func TestEntry(t *testing.T) {
	const slack, more = "60000\n", "thread 1000000\n"
	text := started(t, linked, 60000)
	require.Contains(t, text, "first 60000 <nil>\n")
	plain := started(t, "", 60000)
	require.Contains(t, plain, "first 60000 <nil>\n")
	require.NotContains(t, plain, more, "control")
	if os.Getuid() == 0 { // who may read it
		require.Contains(t, text, "thread "+slack)
		require.Contains(t, text, more)
		require.Contains(t, plain, "thread "+slack)
	}
}

// Who asks for more slack has it.
func TestEntryLeavesMore(t *testing.T) {
	text := started(t, linked, 2000000)
	require.Contains(t, text, "first 2000000 <nil>\n")
	require.NotContains(t, text, "thread 1000000\n")
}

// A thread gets back what the program began with; without an entry it is left alone.
func TestRestore(t *testing.T) {
	runtime.LockOSThread()
	slack := func() int {
		n, err := unix.PrctlRetInt(unix.PR_GET_TIMERSLACK, 0, 0, 0, 0)
		require.NoError(t, err)
		return n
	}
	require.NoError(t, unix.Prctl(unix.PR_SET_TIMERSLACK, 70000, 0, 0, 0))
	Restore()
	require.Equal(t, 70000, slack(), "control")
	inherited = 60000
	defer func() { inherited = 0 }()
	Restore()
	require.Equal(t, 60000, slack())
}

// The command that is built has the entry.
func TestMakefileNamesTheEntry(t *testing.T) {
	makefile, err := os.ReadFile("../../Makefile")
	require.NoError(t, err)
	for line := range strings.Lines(string(makefile)) {
		if strings.Contains(line, "-tags launcher ") {
			require.Contains(t, line, linked)
			return
		}
	}
	t.Fatal("no build of the launcher")
}
