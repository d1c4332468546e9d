//go:build linux

package main

import (
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/test/internal/host"
)

// Parts execute this program again for the work in a sandbox.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "work" {
		main()
		return
	}
	os.Exit(m.Run())
}

// The parts that take seconds run, with the least of everything, so that `make bench` is
// not broken on the day that it is needed. No figure is judged: a test machine is busy.
func TestBenchRuns(t *testing.T) {
	if _, err := exec.LookPath("bwrap"); err != nil {
		t.Skip("needs bwrap")
	}
	t.Setenv("PCCRUN_TEST_BIN", host.Program(t))
	require.NoError(t, run(t.Context(), options{only: "launch,memory,standing,docker,cloud", rounds: 1, standing: 1, files: 50}))
	require.ErrorContains(t, run(t.Context(), options{only: "nothing"}), "no such part")
}

func TestMinusTakesPairs(t *testing.T) {
	require.Equal(t, 2*time.Second, minus(
		[]time.Duration{3 * time.Second, 102 * time.Second, 5 * time.Second},
		[]time.Duration{1 * time.Second, 100 * time.Second, 3 * time.Second}))
}

func TestFigureSaysItsVerdict(t *testing.T) {
	f := figure{name: "launch", value: 0.98, unit: "×", goal: 1}
	require.Contains(t, f.String(), "reached")
	f.value = 1.01
	require.Contains(t, f.String(), "missed")
	f.why = "no bwrap"
	require.Contains(t, f.String(), "not measured: no bwrap")
}

// The disk of a bench leaves neither mount nor image.
//
//test:root
func TestDiskLeavesNothing(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	dir := t.TempDir()
	d, err := newDisk(dir)
	if err != nil {
		t.Skip("needs a loop device: " + err.Error())
	}
	var st unix.Statfs_t
	require.NoError(t, unix.Statfs(dir, &st))
	require.EqualValues(t, unix.EXT4_SUPER_MAGIC, st.Type)
	list, err := os.ReadFile("/proc/self/mountinfo")
	require.NoError(t, err)
	require.Contains(t, string(list), dir, "control")
	require.NoError(t, d.remove())
	list, err = os.ReadFile("/proc/self/mountinfo")
	require.NoError(t, err)
	require.NotContains(t, string(list), dir)
	require.NoFileExists(t, dir+".img")
}
