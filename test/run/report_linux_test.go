package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestReportCounts(t *testing.T) {
	r := report{who: "user"}
	for _, e := range []event{
		{Action: "run", Package: "p", Test: "TestA"},
		{Action: "output", Package: "p", Test: "TestA", Output: "=== RUN   TestA\n"},
		{Action: "pass", Package: "p", Test: "TestA"},
		{Action: "output", Package: "p", Test: "TestB", Output: "    b_test.go:7: wrong\n"},
		{Action: "fail", Package: "p", Test: "TestB"},
		{Action: "output", Package: "p", Test: "TestC", Output: "    c_test.go:9: needs a kernel\n"},
		{Action: "output", Package: "p", Test: "TestC", Output: "--- SKIP: TestC (0.00s)\n"},
		{Action: "skip", Package: "p", Test: "TestC"},
		{Action: "output", Package: "p", Output: "FAIL\n"},
		{Action: "fail", Package: "p"},
	} {
		r.take(e)
	}
	require.Equal(t, 1, r.passed)
	require.Equal(t, []string{"p TestB (user)"}, r.failures)
	require.Equal(t, []skip{{"p", "TestC", "user", "needs a kernel"}}, r.skips)
	require.Equal(t, "    b_test.go:7: wrong\n", r.output(false))
	require.Contains(t, r.output(true), "TestA")
}

func TestAllowedSkips(t *testing.T) {
	k := skip{pkg: "github.com/pccrun/pccrun/cgroups", test: "TestV2/limits", who: "user", reason: "needs cgroup v2"}
	for _, row := range [][]string{{"any", "cgroups.TestV2:*", "needs"}, {"user", "cgroups.*", "cgroup v2"}} {
		require.True(t, k.allowedBy(row), row)
	}
	for _, row := range [][]string{{"root", "cgroups.*", ""}, {"any", "namespaces.*", ""}, {"any", "cgroups.TestV1*", ""}, {"any", "cgroups.*", "other"}, {"any", "[", ""}} {
		require.False(t, k.allowedBy(row), row)
	}
}

func TestReadRows(t *testing.T) {
	name := filepath.Join(t.TempDir(), "rows")
	require.NoError(t, os.WriteFile(name, []byte("# a comment\n\na\t\tb\n"), 0o600))
	rows, err := readRows(name, 2)
	require.NoError(t, err)
	require.Equal(t, [][]string{{"a", "b"}}, rows)
	_, err = readRows(name, 3)
	require.ErrorContains(t, err, ":3: 2 columns, want 3")
}

func TestCoverageSums(t *testing.T) {
	profile := `mode: set
m/a/x.go:1.1,2.2 3 1
m/a/x.go:1.1,2.2 3 0
m/a/y.go:1.1,2.2 1 0
m/a/z.go:1.1,2.2 96 0
m/b/x.go:1.1,2.2 1 0
`
	got, err := coverage(strings.NewReader(profile), func(file string) bool { return file == "m/a/z.go" })
	require.NoError(t, err)
	require.Equal(t, []packageCoverage{{"m/a", 3, 4}, {"m/b", 0, 1}}, got)
	require.Equal(t, 75.0, got[0].percent())
	for _, bad := range []string{"one two\n", "m/a.go:1.1,2.2 x 1\n"} {
		_, err := coverage(strings.NewReader(bad), func(string) bool { return false })
		require.Error(t, err, bad)
	}
}

func TestFuzzTargets(t *testing.T) {
	events := `{"Action":"start","Package":"p"}
{"Action":"output","Package":"p","Output":"FuzzA\n"}
{"Action":"output","Package":"p","Output":"ok  \tp\t0.1s\n"}
{"Action":"output","Package":"q","Output":"FuzzB\n"}
`
	require.Equal(t, []fuzzTarget{{"p", "FuzzA"}, {"q", "FuzzB"}}, fuzzTargets([]byte(events)))
}

func TestReason(t *testing.T) {
	require.Equal(t, "needs git", reason([]string{"=== RUN   TestX\n", "    x_test.go:7: a line\n", "    x_test.go:9: needs git\n", "--- SKIP: TestX (0.00s)\n"}))
	require.Equal(t, "needs runc", reason([]string{"    testscript.go:609: WORK=$WORK\n", "        \n", "        > [!exec:runc] skip 'needs runc'\n", "        \n"}))
	require.Empty(t, reason([]string{"=== RUN   TestX\n"}))
}
