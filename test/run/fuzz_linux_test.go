package main

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestFuzzed(t *testing.T) {
	executions, inputs := fuzzed("fuzz: elapsed: 0s, gathering baseline coverage: 0/192 completed\n" +
		"fuzz: elapsed: 3s, execs: 325017 (108336/sec), new interesting: 11 (total: 202)\n" +
		"fuzz: elapsed: 6s, execs: 680218 (118402/sec), new interesting: 13 (total: 204)\nPASS\n")
	require.Equal(t, []int{680218, 13}, []int{executions, inputs})
	executions, inputs = fuzzed("--- FAIL: FuzzA\n")
	require.Equal(t, []int{0, 0}, []int{executions, inputs})
}

func TestFuzzTable(t *testing.T) {
	page := filepath.Join(t.TempDir(), "page.md")
	table := fuzzTable{}
	require.NoError(t, table.read(page), "there is none yet")
	table.add("p.FuzzA", fuzzRow{20 * time.Second, 100, 3, "2026-11-29", "**failed**"})
	require.NoError(t, os.WriteFile(page, []byte(fuzzPage+table.String()), 0o644))
	again := fuzzTable{}
	require.NoError(t, again.read(page))
	require.Equal(t, table, again)
	again.add("p.FuzzA", fuzzRow{time.Hour, 1, 1, "2026-11-30", "passed"})
	require.Equal(t, fuzzTable{"p.FuzzA": {time.Hour + 20*time.Second, 101, 4, "2026-11-30", "passed"}}, again)
	require.NoError(t, os.WriteFile(page, []byte(fuzzPage+table.String()+"| p.FuzzB | 1s |\n"), 0o644))
	require.ErrorContains(t, again.read(page), "is no row")
}
