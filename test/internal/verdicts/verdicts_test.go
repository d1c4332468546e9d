package verdicts

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestTake(t *testing.T) {
	r := reader{lines: map[string][]string{}}
	for _, e := range []event{
		{Action: "run", Package: "p", Test: "TestA"},
		{Action: "output", Package: "p", Test: "TestA", Output: "=== RUN   TestA\n"},
		{Action: "pass", Package: "p", Test: "TestA"},
		{Action: "output", Package: "p", Test: "TestB", Output: "    b_test.go:7: wrong\n"},
		{Action: "fail", Package: "p", Test: "TestB"},
		{Action: "output", Package: "p", Test: "TestC", Output: "    c_test.go:9: needs a kernel\n"},
		{Action: "output", Package: "p", Test: "TestC", Output: "--- SKIP: TestC (0.00s)\n"},
		{Action: "skip", Package: "p", Test: "TestC"},
		{Action: "output", Package: "p", Test: "TestD", Output: "panic: it never ended\n"},
		{Action: "output", Package: "p", Output: "FAIL\n"},
		{Action: "fail", Package: "p"},
	} {
		r.take(e)
	}
	require.Equal(t, []Verdict{
		{Outcome: Pass, Package: "p", Test: "TestA", Output: "=== RUN   TestA\n"},
		{Outcome: Failed, Package: "p", Test: "TestB", Output: "    b_test.go:7: wrong\n"},
		{Outcome: Skipped, Package: "p", Test: "TestC", Reason: "needs a kernel", Output: "    c_test.go:9: needs a kernel\n--- SKIP: TestC (0.00s)\n"},
	}, r.list)
	require.Equal(t, "FAIL\npanic: it never ended\n", r.end())
}

// The go command's own parser is what reads a binary's output.
func TestRead(t *testing.T) {
	text := "\x16=== RUN   TestA\n    a_test.go:3: needs root\n\x16--- SKIP: TestA (0.01s)\n\x16=== RUN   TestB\n\x16--- PASS: TestB (0.00s)\n\x16PASS\n"
	list, rest, err := Read(t.Context(), Module+"p", strings.NewReader(text))
	require.NoError(t, err)
	require.Len(t, list, 2)
	require.Equal(t, "needs root", list[0].Reason)
	require.Equal(t, Pass, list[1].Outcome)
	require.Contains(t, rest, "PASS")
	require.True(t, Skips{{"user", "p.TestA", "needs"}}.Allow(list[0], "user"))
}

func TestAllow(t *testing.T) {
	v := Verdict{Outcome: Skipped, Package: Module + "cgroups", Test: "TestV2/limits", Reason: "needs cgroup v2"}
	for _, row := range [][]string{{"any", "cgroups.TestV2:*", "needs"}, {"user", "cgroups.*", "cgroup v2"}, {"vm", "cgroups.*", ""}} {
		require.True(t, Skips{row}.Allow(v, "user", "vm"), row)
	}
	for _, row := range [][]string{{"root", "cgroups.*", ""}, {"any", "namespaces.*", ""}, {"any", "cgroups.TestV1*", ""}, {"any", "cgroups.*", "other"}, {"any", "[", ""}, {"vm", "cgroups.*", ""}} {
		require.False(t, Skips{row}.Allow(v, "user"), row)
	}
}

func TestRows(t *testing.T) {
	name := filepath.Join(t.TempDir(), "rows")
	require.NoError(t, os.WriteFile(name, []byte("# a comment\n\na\t\tb\n"), 0o600))
	rows, err := Rows(name, 2)
	require.NoError(t, err)
	require.Equal(t, [][]string{{"a", "b"}}, rows)
	_, err = Rows(name, 3)
	require.ErrorContains(t, err, ":3: 2 columns, want 3")
	_, err = ReadSkips("/does/not/exist")
	require.Error(t, err)
}

func TestReason(t *testing.T) {
	require.Equal(t, "needs git", reason([]string{"=== RUN   TestX\n", "    x_test.go:7: a line\n", "    x_test.go:9: needs git\n", "--- SKIP: TestX (0.00s)\n"}))
	require.Equal(t, "needs runc", reason([]string{"    testscript.go:609: WORK=$WORK\n", "        \n", "        > [!exec:runc] skip 'needs runc'\n", "        \n"}))
	require.Empty(t, reason([]string{"=== RUN   TestX\n"}))
}

func TestLong(t *testing.T) {
	s := Skips{{"any", "test/escape.TestMutations*", long}, {"root", "test/escape.TestSteps:*", long}, {"any", "test/vm.TestSmallest", "needs qemu"}, {"any", "test/docker.*:runsc", long}}
	require.Equal(t, "^TestMutations.*$|^TestSteps$", s.Long(Module+"test/escape"))
	require.Equal(t, "^.*$", s.Long(Module+"test/docker"), "all of them")
	require.Empty(t, s.Long(Module+"test/vm"))
}

func TestReadPackages(t *testing.T) {
	name := filepath.Join(t.TempDir(), "packages.txt")
	require.NoError(t, os.WriteFile(name, []byte("cgroups\t35\tboth\nprofiles\t4\tonce\n"), 0o644))
	rows, err := ReadPackages(name)
	require.NoError(t, err)
	require.Equal(t, PackageRow{"profiles", 4 * time.Second, Once}, rows.Of(Module+"profiles"))
	require.Equal(t, PackageRow{Package: "new", Who: Marked}, rows.Of("new"))
	for _, bad := range []string{"a\tb\tboth\n", "a\t1\ttwice\n", "a\t1\n"} {
		require.NoError(t, os.WriteFile(name, []byte(bad), 0o644))
		_, err := ReadPackages(name)
		require.Error(t, err, bad)
	}
}

func TestFuzzTargets(t *testing.T) {
	events := `{"Action":"start","Package":"p"}
{"Action":"output","Package":"p","Output":"FuzzA\n"}
{"Action":"output","Package":"p","Output":"ok  \tp\t0.1s\n"}
{"Action":"output","Package":"q","Output":"FuzzB\n"}
`
	require.Equal(t, []Verdict{{Package: "p", Test: "FuzzA"}, {Package: "q", Test: "FuzzB"}}, FuzzTargets([]byte(events)))
}
